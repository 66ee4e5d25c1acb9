"""The monitor's level and power, over fresh seeds.

The level is tested by an exact binomial bound: if the claimed probability of a false alarm is true, the test goes red
by chance in fewer than one of a million runs. A companion named "…notices…" breaks the assumption: the rate rises.
"""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

from monitor_delay import TWINS
from monitor_delay import run as play

from tether import Constraint, Problem
from tether.check.monitor import DeclaredMeans, Monitor, SafePlays

FALSE_ALARM = 1e-6


def allowed(runs: int, probability: float) -> int:
    """The most alarms that a true probability explains with chance above FALSE_ALARM."""
    return int(binom.isf(FALSE_ALARM, runs, probability))


def alarms(seeds, law, *, level, told=1.0, count=250):
    """Runs with an alarm. Features follow the last residual, which is what a learner does; noise ~ law, σ = told."""
    problem = Problem.from_rays(
        phi_0=np.full((1, 3), 1 / 3),
        endpoints=np.eye(3)[None],
        constraints=Constraint(threshold=9.0, noise=told, gamma_norm=3.0),
        horizon=1,
    )
    total = 0
    for seed in seeds:
        rng = np.random.default_rng([seed, 5])
        monitor, gamma, last = Monitor(problem, level=level), rng.normal(size=3), 0.0
        gamma *= 2.9 / np.linalg.norm(gamma)
        for _ in range(count):
            x = rng.dirichlet([1.0, 1.0, 1.0 + 4.0 * (last > 0.0)])
            last = law(rng)
            monitor.observe(0, x, np.array([gamma @ x + last]), 0.0, int(rng.integers(4)))
            if monitor.alarm:
                break
        total += monitor.alarm is not None
    return total


LAWS = {
    "gauss": lambda rng: rng.standard_normal(),
    "coin": lambda rng: 2.0 * rng.integers(2) - 1.0,
    "uniform": lambda rng: rng.uniform(-1.7, 1.7),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_a_false_alarm_is_no_more_likely_than_the_level(law):
    """n = 200 runs, seeds 0..199, level 0.3, looked at throughout 250 outcomes; γ* is nearly as long as B."""
    assert alarms(range(200), LAWS[law], level=0.3) <= allowed(200, 0.3)


@pytest.mark.slow
def test_the_level_test_notices_a_noise_that_is_told_too_small():
    """The same measurement with σ told as two thirds of its size exceeds the same limit."""
    assert alarms(range(200), LAWS["gauss"], level=0.3, told=2 / 3) > allowed(200, 0.3)


@pytest.mark.slow
def test_learners_on_true_worlds_are_left_alone():
    """n = 30 runs of play, seeds 500..529, δ = 0.01, 1000 outcomes each."""
    tripped = sum(play(seed, "true", episodes=500).alarm is not None for seed in range(500, 530))
    assert tripped <= allowed(30, 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("twin", [name for name in TWINS if name not in ("true",) and "hump" not in name])
def test_learners_on_wrong_worlds_are_tripped(twin):
    """n = 6 runs of play, seeds 600..605, 3000 outcomes each: all tripped (the hump of docs/check.md need not be)."""
    runs = [play(seed, twin, stop=True) for seed in range(600, 606)]
    assert all(run.alarm is not None for run in runs)
    if "half-way" in twin:
        assert all(run.alarm > 1500 for run in runs)


def unsafe_runs(seeds, mean, level, count=300):
    """Runs in which a_0 is found over τ; its mean cost is `mean` σ over τ, in states that follow the last noise.

    So do the forecasts: one says 1 σ over τ, another what the last noise was, and both are wrong.
    """
    found = 0
    for seed in seeds:
        rng, plays, state, noise = np.random.default_rng([seed, 6]), SafePlays.none(1), 0, 0.0
        for n in range(1, count + 1):
            foreseen = np.array([[1.0], [noise]])
            noise = rng.standard_normal()
            plays.add(np.array([mean + noise]), foreseen, state)
            state = int(rng.integers(3)) + 3 * (noise > 0.0)
            if n % 5 == 0 and plays.evidence()[0] >= -np.log(level):
                found += 1
                break
    return found


def test_a_safe_action_at_the_threshold_is_accused_no_more_often_than_the_level():
    """n = 150 runs, seeds 0..149, level 0.05, looked at throughout 300 outcomes; the mean is exactly τ."""
    assert unsafe_runs(range(150), 0.0, 0.05) <= allowed(150, 0.05)


def test_the_same_test_notices_a_safe_action_over_the_threshold():
    assert unsafe_runs(range(40), 0.5, 0.01) == 40


def misdeclared_runs(seeds, off, level, *, error=0.0, count=300):
    """Runs in which the mean of a_0's yes/no cost is found to be another than declared: by `off` larger. What is
    declared follows the last outcome; every third outcome is a fraction, with the same mean."""
    found = 0
    for seed in seeds:
        rng, told, last = np.random.default_rng([seed, 7]), DeclaredMeans.none(1), 0.0
        for n in range(1, count + 1):
            declared = 0.05 + 0.3 * last + 0.1 * float(rng.random())
            mean = declared + off
            last = float(rng.random() < mean) if n % 3 else mean * float(rng.choice([0.5, 1.5]))
            told.add(np.array([last]), np.array([declared]), np.array([error]), np.array([True]))
            if told.evidence()[0] >= -np.log(level):
                found += 1
                break
    return found


@pytest.mark.parametrize(("off", "error"), [(0.0, 0.0), (0.04, 0.04), (-0.04, 0.04)])
def test_a_declared_mean_that_is_true_is_accused_no_more_often_than_the_level(off, error):
    """n = 150 runs, seeds 0..149, level 0.1, looked at after each of 200 outcomes."""
    assert misdeclared_runs(range(150), off, 0.1, error=error, count=200) <= allowed(150, 0.1)


def test_the_same_test_notices_a_declared_mean_that_is_too_low_or_too_high():
    assert misdeclared_runs(range(20), 0.1, 0.01, count=400) >= 19
    assert misdeclared_runs(range(20), -0.05, 0.01, count=800) >= 19


def pooled_alarms(seeds, apart, *, level, episodes):
    """The monitors that raise an alarm where three steps are pooled whose γ* differ by `apart` along one axis."""
    problem = Problem.from_rays(
        phi_0=np.full((1, 3), 1 / 3),
        endpoints=np.eye(3)[None],
        constraints=Constraint(threshold=9.0, noise=0.2, gamma_norm=3.0),
        horizon=3,
    )
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, 8])
        monitor, gamma, last = Monitor(problem, level=level, pooled=True), rng.uniform(0.0, 1.0, 3), 0.0
        for _, step in product(range(episodes), range(3)):
            x, noise = rng.dirichlet([1.0, 1.0, 1.0 + 4.0 * (last > 0.0)]), 0.2 * rng.standard_normal()
            last = noise
            mean = gamma @ x + apart * (step - 1) * (x[0] - x[1])
            monitor.observe(step, x, np.array([mean + noise]), 0.0, int(rng.integers(4)))
            if monitor.alarm:
                found.append(monitor)
                break
    return found


@pytest.mark.slow
def test_steps_that_are_alike_are_accused_no_more_often_than_the_level():
    """n = 100 runs, seeds 0..99, level 0.3, looked at throughout 300 outcomes."""
    assert len(pooled_alarms(range(100), 0.0, level=0.3, episodes=100)) <= allowed(100, 0.3)


def test_pooled_steps_that_differ_are_found_and_the_remedy_is_named():
    found = pooled_alarms(range(6), 0.3, level=0.01, episodes=400)
    assert len(found) == 6
    assert all("pooled=False" in monitor.alarm.message for monitor in found)
    assert sum(monitor.alarm.message.startswith("the costs also depend on the step") for monitor in found) >= 5
