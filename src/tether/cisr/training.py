"""Train one student under one teacher; needs Stable-Baselines3."""

from importlib import metadata
from typing import Any

import numpy as np

from tether.cisr.curves import PER_UNIT, Curve
from tether.cisr.evaluation import STEPS, evaluate
from tether.cisr.student import Student, StudentSpec
from tether.cisr.teacher import Observation, Teacher, make_teacher

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
