"""Remembered facts, exact and with error bars, keep every promise (docs/theory.md section 17): coverage over worlds.

One run is a fresh world. After every plan, and at every decision, each choice in each state is compared with the truth:
its cost must be at most its bound, for every constraint. A run fails if that is ever wrong; it alarms if a plan does.

n = 300 runs for each case (a hundred for each of three noise levels), δ = 0.01, the seeds are named below. By an exact
binomial bound, a true failure probability of δ explains at most `allowed_failures(300, 0.01)` = 14 failures or alarms,
except with chance 1e-6. Alarms are held to that limit. The radii are conservative enough that none of these runs fails
at all, and the tests ask for 0: a single failure is a change to look into, and 0 of 300 proves a failure probability
under 4.5% (0.955^300 < 1e-6). The companions named "…notices…" plant a lie and expect the same measurement to show it.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import binom

from limits import restated
from tether import SlucbConfig, SlucbQvi
from tether.kernels.model import ALARM
from tether.lab.worlds.linear_mdp import Streams
from worlds import uneven_world

FALSE_ALARM, DELTA, RUNS, EPISODES = 1e-6, 0.01, 300, 40
ROUNDING = 1e-12
ERRORS = (0.002, 0.01, 0.05)
NOISES = (0.01, 0.1, 0.3)


def allowed_failures(runs, probability):
    """The most failures that a true failure probability explains with chance above FALSE_ALARM."""
    return int(binom.isf(FALSE_ALARM, runs, probability))


@dataclass(frozen=True)
class Outcome:
    """What one run showed."""

    broken: bool
    alarmed: bool
    left: float  # share of decisions that were not a_0
    facts: float  # facts that its last plan rests on


def signs(rng, shape, kind):
    """How the declared safe costs are wrong, in units of the error bar: the worst cases first."""
    if kind == 0:
        return -np.ones(shape)  # every safe action costs more than was declared
    if kind == 1:
        return np.ones(shape)
    if kind == 2:
        return rng.choice([-1.0, 1.0], shape)
    return rng.uniform(-1.0, 1.0, shape)


def declared(world, rng, *, error, off):
    """The problem as the learner is told it: safe costs off by up to `off`, said to be off by up to `error`."""
    states, horizon, constraints = world.state_count, world.problem.horizon, len(world.problem.constraints)
    true = np.einsum("hmd,sd->hsm", world.true_gamma, world.phi_0)
    # with pooled steps (one γ*) a state has one declared cost: wrong ones differ by step, too
    told = true + off * signs(rng, (horizon, states, constraints), int(rng.integers(4)))
    return restated(
        world.problem,
        baseline_cost=lambda step, state: told[step, state],
        baseline_cost_error=(error,) * constraints,
        confidence=DELTA,
    )


def costs_of_plan(world, agent):
    """True costs and bounds of every choice of the current plan: (H, S, M) each."""
    plan, tables, states = agent.current, agent.tables, world.state_count
    row, length = plan.row[:, :states], plan.length[:, :states]
    ends = tables.features.T[tables.start[:states] + np.maximum(row, 0)]  # (H, S, d)
    start = tables.phi_0[:, :states].T
    features = start + np.where(row >= 0, length, 0.0)[..., None] * (ends - start)
    return np.einsum("hmd,hsd->hsm", world.true_gamma, features), plan.bound[:, :states]


def run(seed, config, *, error=0.0, off=0.0, noise=0.1, noise_told=None, **shape):
    """One world, played for EPISODES episodes."""
    sizes = {"states": 4, "dimension": 6, **shape}  # four facts leave two directions open
    world, rng = uneven_world(seed, rays=8, noise=noise, **sizes), np.random.default_rng(seed)
    problem = declared(world, rng, error=error, off=off)
    if noise_told is not None:
        problem = restated(problem, noise=(noise_told,) * len(problem.constraints))
    agent, streams = SlucbQvi(problem, config), Streams.from_seed(seed)
    agent.register(range(world.state_count))
    threshold, broken, alarmed, left = np.array(problem.threshold), False, False, []
    for _ in range(EPISODES):
        state = world.reset(streams)
        agent.plan()
        true, bound = costs_of_plan(world, agent)
        broken |= bool((true > bound + ROUNDING).any() or (bound > threshold).any())
        alarmed |= bool((agent.current.reason[:, : world.state_count] == ALARM).any())
        for step in range(problem.horizon):
            decision = agent.act(step, state)
            fresh = agent.propose(step, state)  # from the data of this very step
            for choice in (decision, fresh):
                cost = world.true_gamma[step] @ choice.feature
                broken |= any(c > e.bound + ROUNDING for c, e in zip(cost, choice.evidence, strict=True))
                alarmed |= choice.reason == "alarm"
            left.append(not decision.is_baseline)
            seen = world.step(decision, streams)
            agent.observe(seen)
            state = seen.next_state
    return Outcome(broken, alarmed, float(np.mean(left)), float(agent.current.facts.mean()))


def measured(seeds, config, **case):
    """(runs that failed, runs that alarmed, share of decisions that left a_0, facts at the end)."""
    outcomes = [run(seed, config, **{k: v(seed) if callable(v) else v for k, v in case.items()}) for seed in seeds]
    return (
        sum(one.broken for one in outcomes),
        sum(one.alarmed for one in outcomes),
        float(np.mean([one.left for one in outcomes])),
        float(np.mean([one.facts for one in outcomes])),
    )


def some_noise(seed):
    """Another σ in every run."""
    return NOISES[seed % 3]


def some_error(seed):
    """Another error bar in every third run, so that each goes with each σ."""
    return ERRORS[seed // 3 % 3]


SMALL = {"finite": True, "states": 5, "dimension": 5}
"""Discrete actions are certified as a whole or not at all: here that happens."""

CASES = {
    "known": (SlucbConfig(), {}),
    "known, certified": (SlucbConfig(explorer="certified"), {}),
    "known, all": (SlucbConfig(condition_on="all"), {}),
    "known, finite": (SlucbConfig(), SMALL),
    "known, two constraints": (SlucbConfig(), {"constraints": 2}),
    "known, pooled": (SlucbConfig(pooled=True), {"same_stages": True}),
    "error": (SlucbConfig(), {"error": some_error, "off": some_error}),
    "error, all": (SlucbConfig(condition_on="all"), {"error": some_error, "off": some_error}),
    "error, finite": (SlucbConfig(), {"error": some_error, "off": some_error, **SMALL}),
    "error, two constraints": (SlucbConfig(), {"error": some_error, "off": some_error, "constraints": 2}),
    "error, pooled": (SlucbConfig(pooled=True), {"error": some_error, "off": some_error, "same_stages": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_certified_choice_costs_at_most_its_bound(name):
    """n = 300 runs, seeds 5000..5299: 40 plans of 12 choices, and 240 decisions, in each."""
    config, case = CASES[name]
    broken, alarmed, left, facts = measured(range(5000, 5000 + RUNS), config, noise=some_noise, **case)
    assert broken == 0
    assert alarmed <= allowed_failures(RUNS, DELTA)
    assert left > 0.2  # else there was nothing to certify
    assert facts > 1.5


@pytest.mark.slow
def test_the_coverage_test_notices_safe_costs_that_are_further_off_than_declared():
    """Off by 0.05 while 0.002 is declared: choices over their bound, or alarms, in more runs than δ allows."""
    broken, alarmed, _, _ = measured(range(5000, 5060), SlucbConfig(), error=0.002, off=0.05)
    assert broken > allowed_failures(60, DELTA)
    assert broken + alarmed > 30


@pytest.mark.slow
def test_the_coverage_test_notices_facts_that_are_believed_and_wrong():
    """Off by 0.05 while exact costs are declared, with so much noise that the data cannot contradict them soon."""
    broken, alarmed, _, _ = measured(range(5000, 5060), SlucbConfig(), off=0.05, noise=0.3)
    assert broken > 30
    assert broken + alarmed > 40


@pytest.mark.slow
def test_the_coverage_test_notices_a_noise_level_that_is_told_too_small():
    """σ = 0.3 told as 0.03: the event fails in most runs."""
    broken, alarmed, _, _ = measured(range(5000, 5060), SlucbConfig(), noise=0.3, noise_told=0.03)
    assert broken + alarmed > allowed_failures(60, DELTA)


def test_the_limit_of_alarms_is_an_exact_binomial_one():
    limit = allowed_failures(RUNS, DELTA)
    assert binom.sf(limit, RUNS, DELTA) < FALSE_ALARM <= binom.sf(limit - 1, RUNS, DELTA)
    assert binom.pmf(0, RUNS, 0.045) <= 1.1e-6
