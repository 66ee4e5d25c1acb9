"""Likelihood-ratio bounds of costs in [0, 1]: by hand, against a solver of convex programmes, and under attack."""

import numpy as np
import pytest

from tether.kernels.likelihood import (
    ATOMS,
    NEWTON_STEPS,
    add_trial,
    dual_value,
    keep_fact,
    largest_term,
    load_fact,
    load_rows,
    lose_trial,
    new_dual,
    new_trials,
    observe_trial,
    plug_in,
    renew,
    threshold_of,
    upper_cost,
)

EVENTS = np.log(300.0)


class Cell:
    """One stage and constraint, with its outcomes."""

    def __init__(self, dimension: int) -> None:
        self.trials, self.dual = new_trials(1, dimension, 1.0, np.sqrt(dimension)), new_dual(dimension)

    def see(self, feature, cost):
        observe_trial(self.trials, 0, np.array(feature, dtype=np.float64), float(cost), self.dual)
        return self

    def bound(self, x, facts=(), steps=NEWTON_STEPS, events=EVENTS):
        load_rows(self.trials, 0, self.dual)
        for phi_0, cost, error in facts:
            load_fact(self.trials, self.dual, np.array(phi_0, dtype=np.float64), cost, error)
        return upper_cost(self.trials, 0, np.array(x, dtype=np.float64), events, steps, self.dual)


def random_cell(rng, dimension, outcomes, rate):
    cell, gamma = Cell(dimension), rng.uniform(0.0, 2.0 * rate, dimension)
    for x in rng.dirichlet(np.ones(dimension), outcomes):
        cell.see(x, rng.random() < x @ gamma)
    return cell, gamma


def optimum(cell, x, facts=(), events=EVENTS):
    """max ⟨γ, x⟩ over the confidence set, by an interior-point solver of somebody else; at most 1."""
    cvxpy = pytest.importorskip("cvxpy")
    load_rows(cell.trials, 0, cell.dual)
    count = int(cell.dual.count[0] - cell.dual.count[1])
    rows, hits = cell.dual.rows[:count].copy(), cell.dual.hits[:count].copy()
    misses, gamma = cell.dual.misses[:count].copy(), cvxpy.Variable(len(x))
    likelihood = 0.0
    if (hits > 0).any():
        likelihood = likelihood + hits[hits > 0] @ cvxpy.log(rows[hits > 0] @ gamma)
    if (misses > 0).any():
        likelihood = likelihood + misses[misses > 0] @ cvxpy.log(1.0 - rows[misses > 0] @ gamma)
    limits = [rows @ gamma >= 0.0, rows @ gamma <= 1.0, likelihood >= threshold_of(cell.trials, 0, events)]
    for phi_0, cost, error in facts:
        limits += [phi_0 @ gamma <= cost + error, phi_0 @ gamma >= cost - error]
    problem = cvxpy.Problem(cvxpy.Maximize(x @ gamma), limits)
    problem.solve(solver="CLARABEL")
    return min(float(problem.value), 1.0) if problem.status == "optimal" else np.nan


# By hand


def test_the_first_guess_is_a_half_and_the_next_is_that_of_krichevsky_and_trofimov():
    """d = 1, φ = 1. q_1 = 1/2. After one trial without accident q = (0 + 1/2)/(1 + 1) = 1/4, after two 1/6."""
    cell, one = Cell(1), np.ones(1)
    assert plug_in(cell.trials, 0, one) == 0.5
    for n, q in ((1, 1 / 4), (2, 1 / 6)):
        cell.see(one, 0.0)
        assert plug_in(cell.trials, 0, one) == pytest.approx(q, rel=0.05), n


def test_evidence_is_what_the_guess_made_before_each_outcome_was_worth():
    """Outcomes 0, 1: Λ = log(1 − 1/2) + log(q) with q the guess after the first, which did not know the second."""
    cell = Cell(1).see([1.0], 0.0)
    guess = plug_in(cell.trials, 0, np.ones(1))
    assert cell.trials.evidence[0] == pytest.approx(np.log(0.5), abs=1e-12)
    cell.see([1.0], 1.0)
    assert cell.trials.evidence[0] == pytest.approx(np.log(0.5) + np.log(guess), abs=1e-12)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_table_that_is_sorted_by_what_it_says_gives_no_better_evidence(sign):
    """Accidents first, or last: guesses that are made row by row lose by it, on average over 30 tables of 200 rows."""
    rng, gained = np.random.default_rng(0), []
    for _ in range(30):
        features = np.eye(2)[rng.integers(0, 2, 200)]
        costs = (rng.random(200) < features @ rng.uniform(0.02, 0.98, 2)).astype(float)
        found = []
        for order in (np.arange(200), np.argsort(sign * costs, kind="stable")):
            trials, dual = new_trials(1, 2, 1.0, 2.0), new_dual(2)
            for row in order:
                observe_trial(trials, 0, features[row].copy(), float(costs[row]), dual)
            found.append(max(trials.evidence[0], trials.plain_evidence[0]))
        gained.append(found[1] - found[0])
    assert np.mean(gained) < -1.0


def test_the_threshold_is_the_better_evidence_less_log_two_and_log_events():
    cell = Cell(1)
    cell.trials.evidence[0], cell.trials.plain_evidence[0] = -5.0, -7.0
    assert threshold_of(cell.trials, 0, EVENTS) == pytest.approx(-np.log(2.0) - EVENTS, abs=1e-12)  # not renewed yet
    renew(cell.trials, 0)
    assert threshold_of(cell.trials, 0, EVENTS) == pytest.approx(-5.0 - np.log(2.0) - EVENTS, abs=1e-12)
    assert threshold_of(cell.trials, 0, EVENTS) < -5.0 - np.log(2.0) - EVENTS
    cell.trials.plain_evidence[0] = -4.0
    renew(cell.trials, 0)
    assert threshold_of(cell.trials, 0, EVENTS) == pytest.approx(-4.0 - np.log(2.0) - EVENTS, abs=1e-12)


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_without_accidents_the_bound_falls_like_one_over_n(n):
    """n log(1 − p) >= Λ − log events gives p <= 1 − exp((Λ − log events)/n), and Λ >= −½ log n − log 2 (KT)."""
    cell = Cell(1)
    for _ in range(n):
        cell.see([1.0], 0.0)
    renew(cell.trials, 0)
    bound = cell.bound([1.0])
    assert bound == pytest.approx(1.0 - np.exp(threshold_of(cell.trials, 0, EVENTS) / n), rel=0.005)
    assert bound <= 1.01 * (EVENTS + 0.5 * np.log(n) + 2.0 * np.log(2.0)) / n  # one log 2 for two guesses


def test_each_maximum_of_the_dual_is_in_closed_form():
    grid = np.linspace(1e-9, 1.0 - 1e-9, 200_001)
    for price, hits, misses, y in [
        (0.1, 3, 0, -2.0),
        (0.1, 3, 0, 0.4),
        (0.2, 0, 5, 3.0),
        (0.2, 0, 5, 0.3),
        (0.1, 0, 2, -1),
    ]:
        values = price * (hits * np.log(grid) + misses * np.log(1.0 - grid)) + y * grid
        assert largest_term(price, float(hits), float(misses), float(y)) == pytest.approx(values.max(), abs=1e-6)


def test_an_exact_fact_alone_bounds_what_lies_along_it():
    """⟨γ, (1, 0)⟩ = 0.03 and nothing else: x = (0.5, 0) costs 0.015; of (0, 1) nothing is known."""
    cell = Cell(2)
    fact = ([1.0, 0.0], 0.03, 0.0)
    assert cell.bound([0.5, 0.0], [fact]) == pytest.approx(0.015, abs=2e-6)
    assert cell.bound([0.0, 1.0], [fact]) == 1.0


def test_the_error_of_a_fact_is_counted():
    cell = Cell(2)
    assert cell.bound([0.5, 0.0], [([1.0, 0.0], 0.03, 0.01)]) >= 0.02 - 1e-12


def test_a_contradiction_of_facts_is_below_zero():
    """Nobody has cost 0.2 and 0.1 at once; the dual is unbounded below, and a negative bound says so."""
    cell = Cell(1)
    for _ in range(50):
        cell.see([1.0], 0.0)
    assert cell.bound([1.0], [([1.0], 0.9, 0.0)]) < 0.0


# Against the exact optimum


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_never_below_the_optimum_and_close_to_it(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.choice([2, 3, 5, 8]))
    cell, gamma = random_cell(rng, d, int(10 ** rng.uniform(1, 2.7)), 10 ** rng.uniform(-2, -0.5))
    for count in range(min(3, d)):
        features = rng.dirichlet(np.ones(d), count)
        facts = [(f, float(f @ gamma), 0.0 if seed % 2 else 0.002) for f in features]
        x = rng.dirichlet(np.ones(d))
        exact, found = optimum(cell, x, facts), cell.bound(x, facts)
        if exact == exact:
            assert exact * (1.0 - 1e-5) <= found <= 1.03 * exact + 1e-6


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13])
def test_a_search_that_is_stopped_early_still_gives_a_bound(steps):
    rng = np.random.default_rng(5)
    cell, gamma = random_cell(rng, 3, 150, 0.05)
    f = rng.dirichlet(np.ones(3))
    for x in rng.dirichlet(np.ones(3), 4):
        facts = [(f, float(f @ gamma), 0.0)]
        assert cell.bound(x, facts, steps=steps) >= optimum(cell, x, facts) * (1.0 - 1e-5)


def test_any_price_and_any_multipliers_give_a_bound():
    """Weak duality: y that satisfies x = Σ y φ̄ but is far from the best one."""
    rng = np.random.default_rng(2)
    cell, _ = random_cell(rng, 2, 60, 0.1)
    x = rng.dirichlet(np.ones(2))
    exact = optimum(cell, x)
    load_rows(cell.trials, 0, cell.dual)
    rows = cell.dual.rows[: cell.dual.count[0]]
    for _ in range(50):
        y = np.zeros(len(cell.dual.y))
        guess = rng.normal(size=len(rows)) * 0.1
        y[: len(rows)] = guess + rows @ np.linalg.solve(rows.T @ rows, x - rows.T @ guess)
        price, least = float(10 ** rng.uniform(-4, 0)), threshold_of(cell.trials, 0, EVENTS)
        assert dual_value(cell.trials, cell.dual, x, y, price, least) >= exact * (1.0 - 1e-5)


def test_multipliers_that_miss_x_bound_nothing():
    cell = Cell(2).see([1.0, 0.0], 0.0)
    load_rows(cell.trials, 0, cell.dual)
    least, y = threshold_of(cell.trials, 0, EVENTS), np.zeros(len(cell.dual.y))
    assert dual_value(cell.trials, cell.dual, np.array([1.0, 0.0]), y, 0.1, least) == np.inf
    y[0] = 1.0
    assert dual_value(cell.trials, cell.dual, np.array([1.0, 0.0]), y, 0.1, least) < np.inf
    assert dual_value(cell.trials, cell.dual, np.array([1.0, 0.0]), y, -0.1, least) == np.inf


# Atoms


def test_merging_never_lowers_a_bound(monkeypatch):
    """400 different features: with 128 atoms, with all of them, and Λ the same by construction."""
    rng = np.random.default_rng(0)
    features, draws = rng.dirichlet(np.ones(3), 400), rng.random(400)
    gamma = np.array([0.02, 0.1, 0.05])
    merged, whole = Cell(3), Cell(3)
    for x, u in zip(features, draws, strict=True):
        merged.see(x, u < x @ gamma)
    renew(merged.trials, 0)
    assert merged.trials.atoms[0] == ATOMS and merged.trials.used_weight[0].sum() == 400.0
    rows = np.concatenate([features[draws < features @ gamma], features[draws >= features @ gamma]])
    hits = int((draws < features @ gamma).sum())
    cvxpy = pytest.importorskip("cvxpy")
    for x in rng.dirichlet(np.ones(3), 3):
        variable = cvxpy.Variable(3)
        likelihood = cvxpy.sum(cvxpy.log(rows[:hits] @ variable)) + cvxpy.sum(cvxpy.log(1.0 - rows[hits:] @ variable))
        limits = [likelihood >= threshold_of(merged.trials, 0, EVENTS), rows @ variable >= 0.0]
        exact = cvxpy.Problem(cvxpy.Maximize(x @ variable), limits).solve(solver="CLARABEL")
        assert exact * (1.0 - 1e-6) <= merged.bound(x) <= 1.1 * exact
    assert whole.trials.atoms[0] == 0


def test_equal_features_share_one_atom():
    cell = Cell(2)
    for z in (0.0, 1.0, 0.25):
        cell.see([0.6, 0.4], z)
    assert cell.trials.atoms[0] == 1
    np.testing.assert_allclose(cell.trials.weight[0, :2], [1.25, 1.75])
    np.testing.assert_allclose(cell.trials.sums[0, 0], [0.75, 0.5])
    np.testing.assert_allclose(cell.trials.sums[0, 1], [1.05, 0.7])


def test_what_is_merged_keeps_every_sum():
    rng = np.random.default_rng(1)
    trials, features, costs = new_trials(1, 4, 1.0, 2.0), rng.dirichlet(np.ones(4), 700), rng.random(700)
    for x, z in zip(features, costs, strict=True):
        add_trial(trials, 0, x, float(z))
    np.testing.assert_allclose(trials.sums[0, 0::2].sum(axis=0), costs @ features, rtol=1e-12)
    np.testing.assert_allclose(trials.sums[0, 1::2].sum(axis=0), (1.0 - costs) @ features, rtol=1e-12)
    assert trials.total[0] == 700.0 and trials.atoms[0] == ATOMS


# What goes wrong


def test_a_lost_outcome_costs_what_the_worst_one_would():
    cell = Cell(1).see([1.0], 0.0).see([1.0], 0.0)
    before, q = cell.trials.evidence[0], plug_in(cell.trials, 0, np.ones(1))
    lose_trial(cell.trials, 0, np.ones(1))
    assert cell.trials.evidence[0] == pytest.approx(before + np.log(min(q, 1.0 - q)))
    assert cell.trials.total[0] == 2.0


def test_a_feature_that_nothing_speaks_about_has_the_trivial_bound():
    cell = Cell(2)
    assert cell.bound([0.3, 0.7]) == 1.0
    assert cell.see([1.0, 0.0], 0.0).bound([0.3, 0.7]) == 1.0
    for column in (1e-3, 1e-6, 1e-9, 1e-11):  # nor has one that differs from what is known by so little
        assert Cell(2).bound([0.9, column], [([0.9, 0.0], 0.05, 0.0)]) == 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_numbers_that_are_not_finite_certify_nothing(bad):
    cell = Cell(2).see([1.0, 0.0], 0.0).see([0.0, 1.0], 0.0)
    assert cell.bound([bad, 0.5]) == 1.0
    assert cell.bound([0.5, 0.5], [([1.0, 0.0], bad, 0.0)]) == 1.0
    for evidence in (cell.trials.evidence, cell.trials.plain_evidence):
        evidence[0] = bad
    renew(cell.trials, 0)
    assert cell.bound([0.5, 0.5]) in (1.0, -np.inf) or cell.bound([0.5, 0.5]) < 0.0  # nothing, or a contradiction


@pytest.mark.parametrize("least", [5e-324, 1.5e-323, 1e-320])
def test_a_reading_too_small_for_its_digits_says_nothing_about_other_features(least):
    """z = 5e-324 makes zφ = (1, 1) z of φ = (0.6, 0.6): no row may say that (1, 1) costs at most 1, or (0.5, 0.5) a
    half. By hand: what is left of the outcome is one success of φ, which allows ⟨γ, φ⟩ = 1 − δ' at δ' = 1/1200."""
    cell = Cell(2).see([0.6, 0.6], least)
    assert cell.bound([0.5, 0.5]) == pytest.approx((1.0 - 0.5 / 600.0) / 1.2, rel=2e-3)
    assert cell.bound([1.0, 1.0]) == 1.0


def test_a_fact_is_kept_once_and_only_if_it_is_a_number():
    cell = Cell(2)
    for cost in (np.nan, 0.1, 0.1):
        keep_fact(cell.trials, 0, np.array([1.0, 0.0]), cost, 0.0)
    assert cell.trials.fact_count[0] == 1 and cell.trials.fact_cost[0, 0] == 0.1


def test_bounds_are_renewed_with_each_outcome_at_first_and_then_with_a_sixteenth_more():
    """17 = 1.0625 · 16 is due, but 18 is not: 1.0625 · 17 = 18.06. The next is 19, and so on by two."""
    trials, dual = new_trials(1, 1, 1.0, 1.0), new_dual(1)
    renewed = []
    for _ in range(30):
        observe_trial(trials, 0, np.ones(1), 0.0, dual)
        if trials.used_total[0] == trials.total[0]:
            renewed.append(int(trials.total[0]))
            assert trials.used_evidence[0] == max(trials.evidence[0], trials.plain_evidence[0])
            assert trials.used_weight[0, 1] == trials.total[0]
    assert renewed == [*range(1, 18), 19, 21, 23, 25, 27, 29]
