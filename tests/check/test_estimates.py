"""Estimates from logs: brackets of ε and ρ that cover the truth, and what is said where there are none."""

import re

import numpy as np
import pytest

from check.test_levels import allowed
from limits import restated
from tether import Constraint, Problem, StarActions, Transition
from tether.check.estimates import (
    DRIFT,
    FAMILY,
    MISFIT,
    NOISE,
    NORM,
    Cells,
    drift_bound,
    estimates,
    fit_radius,
    misfit_bound,
    norm_floor,
)
from tether.check.logs import as_log
from worlds import simplex_problem

SIGMA = 0.1


def repeated(seed, count, epsilon, *, features=12):
    """Features that repeat, chosen by the last noise; every other one is off by ±ε from a linear model."""
    rng = np.random.default_rng(seed)
    some, gamma = rng.dirichlet(np.ones(4), size=features), rng.random(4)
    off = epsilon * np.where(np.arange(features) % 2, 1.0, -1.0)
    x, z, last = np.zeros((count, 4)), np.zeros(count), 0.0
    for n in range(count):
        k = int(rng.integers(features // 2)) + (features // 2) * (last > 0.0)
        last = SIGMA * rng.standard_normal()
        x[n], z[n] = some[k], some[k] @ gamma + off[k] + last
    return x, z, some, off


def least_misfit(some, off):
    """The true ε of these features: of what they are off by, seen twice without noise."""
    found = misfit_bound(np.repeat(some, 2, axis=0), np.repeat(off, 2), 1e-12, 0.5)
    return found.high


def covered(x, some):
    """Which features hold nine tenths of the outcomes: the most visited ones."""
    counts = np.array([(x == one).all(axis=1).sum() for one in some])
    order = np.argsort(-counts, kind="stable")
    return order[: np.searchsorted(np.cumsum(counts[order]), 0.9 * len(x)) + 1]


def drifting(seed, count, rho):
    """γ moves by ρ per row along one direction; features follow the last noise."""
    rng = np.random.default_rng(seed)
    gamma, way, last = rng.random(4), rng.standard_normal(4), 0.0
    way /= np.linalg.norm(way)
    x, z = np.zeros((count, 4)), np.zeros(count)
    for n in range(count):
        x[n] = rng.dirichlet([1.0, 1.0, 1.0, 1.0 + 3.0 * (last > 0.0)])
        last = SIGMA * rng.standard_normal()
        z[n] = x[n] @ (gamma + rho * n * way) + last
    return x, z


def test_cells_are_the_features_that_repeat_in_the_order_in_which_they_are_met():
    x = np.array([[0.2, 0.1], [0.0, 0.5], [0.2, 0.1], [0.2, 0.1]])
    cells = Cells.of(x, np.array([[1.0], [5.0], [2.0], [6.0]]))
    assert cells.feature.tolist() == [[0.2, 0.1], [0.0, 0.5]]
    assert cells.count.tolist() == [3.0, 1.0] and cells.mean.ravel().tolist() == [3.0, 5.0]


def test_the_radius_of_a_cell_by_hand():
    """n = 30, the first cell, level 0.1: σ√(40(log 4 + 2 log 20)) / 30."""
    cells = Cells(np.zeros((1, 2)), np.array([30.0]), np.zeros((1, 1)), np.zeros(30, dtype=np.intp))
    assert cells.radius(0.5, 0.1)[0] == pytest.approx(0.5 * np.sqrt(40 * (np.log(4) + 2 * np.log(20))) / 30)


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.2])
def test_the_bracket_of_the_misfit_covers_the_truth(epsilon):
    """n = 60 logs of 600 rows, seeds 0..59, level 0.1, looked at once; half the features depend on the last noise."""
    missed = 0
    for seed in range(60):
        x, z, some, off = repeated(seed, 600, epsilon)
        kept = covered(x, some)
        found, truth = misfit_bound(x, z, SIGMA, 0.1), least_misfit(some[kept], off[kept])
        assert found.cells == len(kept)
        missed += not found.low - 1e-9 <= truth <= found.high + 1e-9
    assert missed <= allowed(60, 0.1)


def test_the_bracket_closes_in_on_the_misfit():
    x, z, some, off = repeated(1, 20_000, 0.2)
    kept = covered(x, some)
    found, truth = misfit_bound(x, z, SIGMA, 0.01), least_misfit(some[kept], off[kept])
    assert 0.7 * truth < found.low <= truth <= found.high < 1.3 * truth


@pytest.mark.parametrize("rho", [0.0, 1e-4, 1e-3])
def test_the_bracket_of_the_drift_covers_the_truth(rho):
    """n = 60 logs of 400 rows, seeds 0..59, level 0.1; features follow the last noise."""
    time = np.arange(400.0)
    missed = 0
    for seed in range(60):
        found = drift_bound(*drifting(seed, 400, rho), time, SIGMA, 0.1)
        missed += not found.low <= rho <= found.high
    assert missed <= allowed(60, 0.1)


def test_the_bracket_of_the_drift_closes_in():
    found = drift_bound(*drifting(0, 20_000, 1e-4), np.arange(20_000.0), SIGMA, 0.01)
    assert 0.8e-4 < found.low <= 1e-4 <= found.high < 1.2e-4


def test_a_noise_that_is_larger_than_declared_breaks_the_coverage():
    """With σ told as a twentieth of its size, the brackets miss in more runs than the level allows."""
    time = np.arange(400.0)
    found = [drift_bound(*drifting(seed, 400, 1e-3), time, SIGMA / 20.0, 0.1) for seed in range(60)]
    assert sum(not one.low <= 1e-3 <= one.high for one in found) > allowed(60, 0.1)


def test_the_radius_of_a_fit_by_hand():
    """V = v·I with d = 1: the least over ℓ of (1 + ℓ/v)(log(1 + v/ℓ) + 2 log(10/δ))."""
    ridges = 10.0 ** np.arange(-3.0, 7.0)
    expected = np.sqrt(((1 + ridges / 7.0) * (np.log(1 + 7.0 / ridges) + 2 * np.log(10 / 0.05))).min())
    assert fit_radius(np.array([[7.0]]), 0.05) == pytest.approx(expected)


def log_of(x, z):
    return {"phi": x, "cost": z}


def test_the_report_bounds_the_misfit_where_features_repeat_and_says_so_where_they_do_not():
    x, z, *_ = repeated(0, 3000, 0.0)
    found = simplex_problem().check(log_of(x, z))[MISFIT]
    assert found.verdict == "holds" and "ε <= 0.0" in found.evidence and "confidence 0.99" in found.evidence
    rng = np.random.default_rng(0)
    x = rng.dirichlet(np.ones(4), size=300)
    found = simplex_problem().check(log_of(x, x.sum(axis=1) * 0.3))[MISFIT]
    assert found.verdict == "cannot be known" and "too few features repeat" in found.evidence


def test_a_misfit_over_the_declared_one_fails_and_a_declared_one_holds():
    x, z, *_ = repeated(0, 3000, 0.2)
    found = simplex_problem().check(log_of(x, z))[MISFIT]
    assert found.verdict == "fails" and "declare Misfit(" in found.way_out
    assert simplex_problem(misfit=0.2).check(log_of(x, z))[MISFIT].verdict == "holds"


def test_the_report_bounds_the_drift_or_says_what_is_lacking():
    x, z = drifting(0, 3000, 1e-4)
    told = simplex_problem(drift=1e-4).check(log_of(x, z))[DRIFT]
    assert told.verdict == "holds" and "ρ <= 0.0001" in told.evidence and "declared 0.0001" in told.evidence
    still = np.full((300, 4), 0.25)
    assert simplex_problem().check(log_of(still, np.full(300, 0.4)))[DRIFT].verdict == "holds"
    few = simplex_problem().check(log_of(x[:6], z[:6]))[DRIFT]
    assert few.verdict == "cannot be known" and "too few outcomes" in few.evidence


def test_the_noise_is_suggested_with_a_margin():
    x, z, *_ = repeated(0, 2000, 0.2)
    enough, little = (simplex_problem(noise=sigma).check(log_of(x, z))[NOISE] for sigma in (0.12, 0.05))
    assert enough.verdict == "holds" and "scatter of equal features" in enough.evidence  # the misfit is not noise
    assert little.verdict == "cannot be known" and "declare noise=0.10" in little.way_out
    assert simplex_problem().check(log_of(x[:20], z[:20]))[NOISE].verdict == "cannot be known"


def test_suggested_noise_of_many_costs_covers_all_of_them_at_once():
    """Ten costs at the level of one each were under their σ in 119 of 300 logs."""
    level, runs, count = 0.05, 60, 10
    problem = simplex_problem(constraints=count)
    x, wrong = np.random.default_rng(0).dirichlet(np.ones(4), size=60), 0  # where none repeats, ε takes no time
    for seed in range(runs):
        z = 0.3 + SIGMA * np.random.default_rng(seed).standard_normal((len(x), count))
        log = as_log(
            problem, [Transition(0, 0, *row, None) for row in zip(x, [0.0] * len(x), map(tuple, z), strict=True)]
        )
        found = {finding.name: finding for finding in estimates(problem, log, level, True)}[NOISE]
        suggested = re.search("σ <= (.*) with confidence", found.evidence).group(1).split(", ")
        wrong += min(map(float, suggested)) < SIGMA
    assert wrong <= allowed(runs, level)


def test_the_norm_is_suggested_and_the_default_is_called_a_guess():
    x, z = drifting(0, 3000, 0.0)
    guess = simplex_problem().check(log_of(x, z))[NORM]
    assert "B = √d is the paper's default, a guess" in guess.evidence and "‖γ*‖ <= " in guess.evidence
    small = simplex_problem(gamma_norm=0.1).check(log_of(x, z))[NORM]
    assert small.verdict == "fails" and "at least gamma_norm=" in small.way_out and "√d" not in small.evidence
    one = simplex_problem().check([Transition(0, 0, np.full(4, 0.25), 0.5, 0.4)] * 50)[NORM]
    assert one.verdict == "cannot be known" and "leaves directions of γ open" in one.evidence


def test_a_richer_family_is_suggested_where_it_predicts_better():
    rng = np.random.default_rng(0)
    x = rng.dirichlet(np.ones(4), size=2000)
    bent = x[:, 0] ** 2 + 0.1 * rng.standard_normal(2000)
    found = simplex_problem().check(log_of(x, bent))[FAMILY]
    assert found.verdict == "cannot be known" and "Polynomial, degree=2" in found.way_out
    plain = simplex_problem().check(log_of(x, x[:, 0] + 0.1 * rng.standard_normal(2000)))[FAMILY]
    assert plain.verdict == "holds"


def finding(name, x, z, **told):
    """One estimate of a log."""
    problem = simplex_problem(**told)
    return {one.name: one for one in estimates(problem, as_log(problem, log_of(x, z)), 0.01, False)}[name]


def wave(seed, count, rho):
    """γ goes to and fro along one direction, by ρ per row, and turns thrice; its features follow the last noise."""
    rng = np.random.default_rng(seed)
    gamma, way, last = rng.random(4), rng.standard_normal(4), 0.0
    way /= np.linalg.norm(way)
    x, z, place = np.zeros((count, 4)), np.zeros(count), 0.0
    for n in range(count):
        x[n] = rng.dirichlet([1.0, 1.0, 1.0, 1.0 + 3.0 * (last > 0.0)])
        last = SIGMA * rng.standard_normal()
        z[n] = x[n] @ (gamma + place * way) + last
        place += rho * (1.0 if 4 * n // count % 2 == 0 else -1.0)
    return x, z


def test_the_lower_end_of_the_drift_by_hand():
    """x = 1 at times 0, …, 4 with costs 0, 1, …, 4 and no noise to speak of: the slope is 1, and no slower γ has it."""
    found = drift_bound(np.ones((5, 1)), np.arange(5.0), np.arange(5.0), 1e-12, 0.01)
    assert (found.low, found.high) == (pytest.approx(1.0), pytest.approx(1.0))
    half = drift_bound(np.ones((5, 1)), np.arange(5.0), 60.0 * np.arange(5.0), 1e-12, 0.01)
    assert half.low == pytest.approx(1.0 / 60.0)  # the same in seconds, one row a minute
    off = drift_bound(np.ones((5, 1)), np.arange(5.0), np.arange(5.0), 1e-12, 0.01, misfit=0.5)
    assert off.low == pytest.approx(1.0 - 0.5 * np.sqrt(5.0) / np.sqrt(10.0))  # ε√n over √(Σ(t − 2)²)


def test_a_declared_drift_is_compared_with_the_log():
    """5e-4 per row, told 1e-4: contradicted, with numbers and a way out that holds; told 5e-4, or nothing that moves:
    it is not."""
    x, z = drifting(0, 2000, 5e-4)
    little = finding(DRIFT, x, z, drift=1e-4)
    assert little.verdict == "fails" and "but Drift(0.0001) was declared" in little.evidence
    enough = little.way_out.split("declare Drift(")[1].split(")")[0]
    for told in (5e-4, float(enough)):
        assert finding(DRIFT, x, z, drift=told).verdict == "holds"
    assert finding(DRIFT, x, z).verdict == "fails"
    assert finding(DRIFT, *drifting(0, 2000, 0.0)).verdict == "holds"


@pytest.mark.parametrize("world", [drifting, wave])
def test_a_true_drift_is_not_contradicted_however_it_moves(world):
    """At level 0.1, over 60 logs; by an exact binomial bound."""
    fails = 0
    for seed in range(60):
        x, z = world(seed, 400, 1e-3)
        fails += drift_bound(x, z, np.arange(400.0), SIGMA, 0.1).low > 1e-3
    assert fails <= allowed(60, 0.1)


def test_a_declared_misfit_is_compared_with_the_log():
    """ε = 0.2 with 12 features seen 250 times each: told 0.02 is contradicted, told 0.25 is not."""
    x, z, *_ = repeated(0, 3000, 0.2)
    little = finding(MISFIT, x, z, misfit=0.02)
    assert little.verdict == "fails" and "but Misfit(0.02) was declared" in little.evidence
    enough = little.way_out.split("declare Misfit(")[1].split(")")[0]
    for told in (0.25, float(enough)):
        assert finding(MISFIT, x, z, misfit=told).verdict == "holds"


def test_a_declared_drift_is_not_taken_for_a_misfit():
    """Two features, one early and one late, of equal cost rate that moves: nothing static is linear in them, but a γ
    that moves as declared is."""
    x = np.repeat(np.array([[0.2, 0.3], [0.3, 0.45]]), 500, axis=0)  # on one line: c(x_2) = 1.5 c(x_1) if nothing moves
    z = np.repeat([0.3, 0.6], 500) + 0.01 * np.random.default_rng(0).standard_normal(1000)
    moved = 1e-3 * np.abs(np.arange(1000.0) - 499.5) * np.linalg.norm(x, axis=1)
    assert misfit_bound(x, z, 0.01, 0.01).low > 0.04
    assert misfit_bound(x, z, 0.01, 0.01, moved).low == 0.0


def test_drift_per_second_needs_times_and_uses_them():
    """One row a minute: 5e-4 per row is 8.3e-6 per second."""
    x, z = drifting(0, 1500, 5e-4)
    told = simplex_problem(drift=5e-4 / 60.0, drift_per="second")
    without = told.check(log_of(x, z))
    assert without[DRIFT].verdict == "cannot be known" and "no times" in without[DRIFT].evidence
    assert without["A3: noise on costs within σ"].verdict == "cannot be known"
    stamped = {**log_of(x, z), "time": 1.7e9 + 60.0 * np.arange(1500.0)}
    report = told.check(stamped)
    assert report[DRIFT].verdict == "holds" and "per second" in report[DRIFT].evidence
    assert report["A1: the same costs early and late"].verdict == "holds"
    slower = simplex_problem(drift=1e-4 / 60.0, drift_per="second")
    found = {one.name: one for one in estimates(slower, as_log(slower, stamped), 0.01, False)}[DRIFT]
    assert found.verdict == "fails" and "per second" in found.evidence


def test_a_norm_that_the_log_contradicts_fails_and_data_are_said_to_give_a_floor():
    """γ* = (200, 200), of length 283, where the second direction was never played: nearly 200 is demanded."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.random(500), np.zeros(500)])
    log = [Transition(0, 0, row, 0.5, float(200.0 * row[0] + 0.5 * rng.standard_normal())) for row in x]
    problem = Problem(
        horizon=1,
        constraints=Constraint(threshold=250.0, noise=0.5),
        dimension=2,
        actions=lambda state: StarActions([0.5, 0.0], [[0.5, 0.5]]),
        states=range(1),
    )
    small = problem.check(log)[NORM]
    assert small.verdict == "fails" and "data cannot bound it from above" in small.way_out
    assert "feature_effects=[…]" in small.way_out and "at least gamma_norm=" in small.way_out
    assert 150.0 < float(re.search("at least gamma_norm=([0-9.]+);", small.way_out).group(1)) <= 200.0
    told = restated(problem, gamma_norm=(), feature_effects=[210.0, 210.0]).check(log)[NORM]
    assert told.verdict == "cannot be known" and "√d" not in told.evidence


def test_noise_in_directions_that_were_hardly_played_does_not_become_a_norm():
    """A live log near the safe action: the second direction varies by 10⁻⁴, and σ = 0.5 there looks like 10⁴."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.random(400), 1e-4 * rng.random(400)])
    z = x @ np.array([3.0, 4.0]) + 0.5 * rng.standard_normal(400)
    found = simplex_log_norm(x, z)
    assert found.verdict == "cannot be known" and "hardly explores some directions" in found.evidence
    assert "‖γ*‖ <=" not in found.evidence and "data cannot bound it from above" in found.way_out
    floor = float(re.search("at least gamma_norm=([0-9.]+);", found.way_out).group(1))
    assert 1.0 < floor <= 5.0


def simplex_log_norm(x, z):
    problem = Problem(
        horizon=1,
        constraints=Constraint(threshold=4.0, noise=0.5, gamma_norm=5.0),
        dimension=2,
        actions=lambda state: StarActions([0.5, 0.0], [[0.5, 0.5]]),
        states=range(1),
    )
    return problem.check([Transition(0, 0, row, 0.5, float(cost)) for row, cost in zip(x, z, strict=True)])[NORM]


def test_the_floor_of_the_norm_is_under_the_truth():
    """Features follow the last noise; the level is 5 % in each of 100 logs."""
    level, runs, wrong, found = 0.05, 100, 0, []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        gamma, last, rows, costs = rng.standard_normal(3), 0.0, [], []
        for _ in range(150):
            rows.append(rng.standard_normal(3) * [1.0, 0.5, 0.3] * (0.5 if last > 0.0 else 1.0))
            last = rng.standard_normal()
            costs.append(rows[-1] @ gamma + last)
        found.append(norm_floor(np.array(rows), np.array(costs), 1.0, 0.0, level) / np.linalg.norm(gamma))
        wrong += found[-1] > 1.0
    assert wrong <= allowed(runs, level)
    assert np.median(found) > 0.2  # and it says something
