"""How good a policy is without a teacher: CISR plays the stochastic policy for 10,000 steps after each unit."""

from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

from tether.errors import InputError
from tether.lab.cisr.curves import PER_UNIT, Curve
from tether.lab.cisr.env import CISR_INTENDED, TIME_OUT, Successors, is_end, reward_of, successors
from tether.lab.cisr.student import Student, StudentSpec
from tether.lab.cisr.teacher import Observation, Teacher, make_teacher
from tether.lab.worlds.lake import ACTIONS, CELLS, DANGER, GOAL, START
from tether.records import Array

STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What happened in the ended episodes: `success` is goals over episodes, `mean_return` CISR's return."""

    success: float
    mean_return: float
    falls: int
    episodes: int


def evaluate(
    policy: Array, rng: np.random.Generator, *, intended: float = CISR_INTENDED, steps: int = STEPS
) -> Evaluation:
    """Play π(a|s) (S, A) for `steps` steps, one episode after another, without a teacher."""
    if policy.shape != (CELLS, len(ACTIONS)) or steps < 1:
        raise InputError(f"A policy is ({CELLS}, {len(ACTIONS)}) and is played, not {policy.shape} for {steps} steps.")
    actions = (policy.cumsum(axis=1)[:, :-1, None] <= rng.random(steps)).sum(axis=1).T.tolist()
    returns, goals, falls = _play(actions, rng.random(steps).tolist(), successors(intended))
    if not returns:
        return Evaluation(0.0, 0.0, 0, 0)
    return Evaluation(goals / len(returns), float(np.mean(returns)), falls, len(returns))


def _play(
    actions: list[list[int]], uniforms: list[float], table: list[list[Successors]]
) -> tuple[list[float], int, int]:
    """Returns of the ended episodes, goals and falls. actions: what the policy would do, [steps][S]."""
    returns: list[float] = []
    goals = falls = length = 0
    state, earned = START, 0.0
    for chosen, uniform in zip(actions, uniforms, strict=True):
        state = table[state][chosen[state]].at(uniform)
        earned += reward_of(state)
        length += 1
        if is_end(state) or length >= TIME_OUT:
            goals += state == GOAL
            falls += state in DANGER
            returns.append(earned)
            state, earned, length = START, 0.0, 0
    return returns, goals, falls


# Train one student under one teacher; needs Stable-Baselines3.

UNITS = 11


def train_student(teacher_name: str, seed: int, spec: StudentSpec | None = None, units: int = UNITS) -> Curve:
    """Train one student from scratch under a teacher; the seed decides everything."""
    spec = spec or StudentSpec()
    roles = np.random.SeedSequence(seed).generate_state(3)
    student = Student(spec, int(roles[0]))
    teacher = make_teacher(teacher_name, np.random.default_rng(roles[1]))
    rows = train_under(student, teacher, units, np.random.default_rng(roles[2]))
    columns = {name: tuple(row[name] for row in rows) for name in (*PER_UNIT, "intervention")}
    return Curve(teacher=teacher_name, intended=spec.intended, picture=spec.picture, seed=seed, **columns)


def train_under(student: Student, teacher: Teacher, units: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Let a teacher train a student; one row per unit."""
    rows = []
    for _ in range(units):
        intervention = teacher.choose()
        log = student.train_unit(intervention)
        teacher.observe(Observation(log.mean_return, log.excess))
        score = evaluate(student.action_probabilities(), rng, intended=student.spec.intended)
        rows.append(
            {
                "intervention": intervention.name,
                "success": score.success,
                "mean_return": score.mean_return,
                "training_failures": log.failures,
                "interventions": log.interventions,
                "training_return": log.mean_return,
                "excess": log.excess,
            }
        )
    return rows


def provenance(spec: StudentSpec, units: int = UNITS) -> dict[str, Any]:
    """What a curve depends on beside teacher, dynamics, picture and seed: the rest of the spec, and the versions."""
    shared = {name: value for name, value in spec.as_dict().items() if name not in ("intended", "picture")}
    packages = ("stable_baselines3", "torch", "gymnasium", "numpy")
    return {
        "command": "make cisr",
        "units": units,
        "evaluation_steps": STEPS,
        "spec": shared,
        "versions": {name: metadata.version(name) for name in packages},
    }
