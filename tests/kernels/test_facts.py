"""Remembered facts (docs/theory.md sections 6 and 17): by hand, against constrained least squares, and contradicted.

The literal forms are those of textbooks, by numpy alone: constrained least squares by Lagrange, and A + wF.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernels.calls import fit, judged, make_rules
from kernels.generators import constrained, feed, law, ridges, seeds, unit_ball
from limits import stated
from tether import Constraint, SafeCost
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import AssumptionError
from tether.kernels.bound import choose_weight
from tether.kernels.model import ALARM, BEST, MEASURED, VISITED, new_scratch
from tether.kernels.ridge import MISFIT, new_costs, observe_cost, remember, remember_roughly
from tether.lab.worlds.linear_mdp import Streams
from tether.problem.action_sets import FiniteActions, StarActions
from tether.problem.problem import Problem
from tether.records import Transition
from worlds import uneven_world

LARGE = 10.0
"""B: larger than any γ* here."""

F1, F2 = np.array([1.0, 0.0]), np.array([0.6, 0.8])


def told(costs, f, cost):
    """Remember ⟨γ*, f⟩ = cost (a number or (M,)); returns whether it was news."""
    f, constraints = np.array(f, dtype=np.float64), costs.moment.shape[1]
    cost = np.broadcast_to(np.asarray(cost, dtype=np.float64), (constraints,)).copy()
    return bool(remember(costs, 0, f, cost, np.full(constraints, LARGE), np.zeros((3, len(f)))))


def seen(costs, x, cost):
    observe_cost(costs, 0, np.array(x), np.atleast_1d(np.float64(cost)), np.zeros((3, len(x))))


def rules_with(radius=1.0, constraints=1, **more):
    settings = {"threshold": np.full(constraints, 0.5), "gamma_norm": np.full(constraints, LARGE), **more}
    return make_rules(tuned_radius=radius, reduces_radius=True, **settings)


# By hand


def test_one_fact_by_hand():
    """λ = 1, no data, ⟨γ*, (1, 0)⟩ = 0.3: γ_known = (0.3, 0), (0, 1) is open, and m = ‖0 − (0.3, 0)‖² = 0.09."""
    costs = new_costs(1, 2, 1, 1.0)
    assert told(costs, F1, 0.3)
    facts = costs.facts
    assert (facts.rank[0], facts.count[0]) == (1, 1)
    np.testing.assert_allclose(facts.known[0, 0], [0.3, 0.0], atol=1e-15)
    np.testing.assert_allclose(np.abs(facts.basis[0, :, 0]), [0.0, 1.0], atol=1e-15)
    gamma_hat, radius, _ = fit(costs, rules_with(radius=0.5))
    np.testing.assert_allclose(gamma_hat[0], [0.3, 0.0], atol=1e-15)
    assert radius[0] == pytest.approx(0.4, rel=1e-12)  # √(0.25 − 0.09)


def test_one_fact_and_one_observation_by_hand():
    """Then z = 0.5 is seen at (0.6, 0.8). In the open direction: BᵀAB = 1 + 0.64, b − A γ_known = 0.8 (0.5 − 0.18).

    So η = 0.256/1.64, and the width of (0.6, 0.8) is 0.8/√1.64. With two facts more the second one determines γ*.
    """
    costs = new_costs(1, 2, 1, 1.0)
    told(costs, F1, 0.3)
    seen(costs, F2, 0.5)
    gamma_hat, _, _ = fit(costs, rules_with())
    np.testing.assert_allclose(gamma_hat[0], [0.3, 0.256 / 1.64], rtol=1e-14)
    state = judged(costs, rules_with(), StarActions(F1, F2[None]), [0.3])
    assert np.sqrt(state.width2[0]) == pytest.approx(0.8 / np.sqrt(1.64), rel=1e-14)
    assert state.tables.g00[0, 0] == 0.0  # the state's own fact is already known


def test_two_facts_determine_gamma_by_hand():
    """⟨γ*, (1, 0)⟩ = 0.3 and ⟨γ*, (0.6, 0.8)⟩ = 0.5: γ* = (0.3, (0.5 − 0.18)/0.8) = (0.3, 0.4). Nothing is open."""
    costs = new_costs(1, 2, 1, 1.0)
    assert told(costs, F1, 0.3)
    assert told(costs, F2, 0.5)
    assert costs.facts.rank[0] == 0
    gamma_hat, radius, margin = fit(costs, rules_with(radius=1.0))
    np.testing.assert_allclose(gamma_hat[0], [0.3, 0.4], atol=1e-15)
    assert radius[0] == pytest.approx(np.sqrt(1.0 - 0.25), rel=1e-12)  # m = ‖γ*‖² = 0.25
    assert 0.0 < margin[0] < 1e-12
    state = judged(costs, rules_with(), StarActions(F1, np.array([[0.0, 1.0]])), [0.3])
    assert state.width2[0] == 0.0
    assert state.bound(0) == pytest.approx(0.4, abs=1e-12)
    assert state.bound(0) >= 0.4


def test_two_constraints_remember_their_own_costs():
    costs = new_costs(1, 2, 2, 1.0)
    told(costs, F1, [0.3, -0.1])
    told(costs, F2, [0.5, 0.02])
    gamma_hat, _, _ = fit(costs, rules_with(constraints=2))
    np.testing.assert_allclose(gamma_hat, [[0.3, 0.4], [-0.1, 0.1]], atol=1e-15)


def test_a_fact_belongs_to_its_stage():
    costs = new_costs(2, 2, 1, 1.0)
    remember(costs, 1, F1, np.array([0.3]), np.ones(1), np.zeros((3, 2)))
    np.testing.assert_array_equal(costs.facts.rank, [2, 1])
    np.testing.assert_array_equal(costs.facts.count, [0, 1])
    np.testing.assert_array_equal(costs.facts.known[0], 0.0)
    gamma_hat, _, _ = fit(costs, rules_with(), stage=0)
    np.testing.assert_array_equal(gamma_hat[0], 0.0)


def test_an_error_bar_by_hand():
    """A = I, d = 1, no data; J = 1 fact 0.4 ± e at f = 1 with weight w: ĝ_w = 0.4w/(1 + w), width² = 1/(1 + w).

    m_w = min γ² + w(γ − 0.4)² = 0.16 w/(1 + w). With σ = e the first weight of the grid is 1/1024, the last 4096.
    """
    costs = new_costs(1, 1, 1, 1.0)
    remember_roughly(costs, 0, np.ones(1), np.array([0.4]))
    rules = rules_with(conditioning=MEASURED, memory=VISITED, cost_error=np.array([0.1]), noise=np.array([0.1]))
    choose_weight(costs, rules, new_scratch(1, 1, 1, 1), 0)
    w = costs.facts.weight[0]
    assert w in [4.0**k / 1024.0 for k in range(12)]
    gamma_hat, radius, _ = fit(costs, rules)
    assert gamma_hat[0, 0] == pytest.approx(0.4 * w / (1.0 + w), rel=1e-14)
    assert radius[0] == pytest.approx(np.sqrt(1.0 + w * 0.01 - 0.16 * w / (1.0 + w)), rel=1e-10)
    best = min([0.0] + [4.0**k / 1024.0 for k in range(12)], key=lambda v: (1.0 + v * 0.01) / (1.0 + v))
    assert w == best  # the smallest squared width of all in the grid


# Literal constrained least squares


@dataclass(frozen=True)
class Knowing:
    """n costs z at φ (n, d), and J true facts F γ* = c (J, d), (J,), with ridge λ: every quantity by its definition."""

    features: np.ndarray
    z: np.ndarray
    ridge: float
    facts: np.ndarray
    told: np.ndarray
    gamma: np.ndarray

    @property
    def gram(self):
        return self.ridge * np.eye(len(self.gamma)) + self.features.T @ self.features

    @property
    def plain(self):
        return np.linalg.solve(self.gram, self.features.T @ self.z)

    @cached_property
    def literal(self):
        return constrained(self.gram, self.features.T @ self.z, self.facts, self.told)

    @property
    def estimate(self):
        return self.literal[0]

    @property
    def moved2(self):
        return self.literal[1]

    def width(self, x):
        return self.literal[2](x)

    def weighted(self, weight):
        """(A + wF, ĝ_w, m_w) of the weighted form."""
        gram = self.gram + weight * self.facts.T @ self.facts
        estimate = np.linalg.solve(gram, self.features.T @ self.z + weight * self.facts.T @ self.told)
        away = self.plain - estimate
        return gram, estimate, away @ self.gram @ away + weight * ((self.facts @ estimate - self.told) ** 2).sum()

    def distance(self, gamma):
        """‖ĝ − γ‖_A."""
        away = self.plain - gamma
        return np.sqrt(away @ self.gram @ away)

    def costs(self, order=None):
        """The package's sums, with data and facts in the order given (data first)."""
        costs, n = new_costs(1, len(self.gamma), 1, self.ridge), len(self.features)
        for i in range(n + len(self.facts)) if order is None else order:
            if i < n:
                seen(costs, self.features[i], self.z[i])
            else:
                told(costs, self.facts[i - n], self.told[i - n])
        return costs


@st.composite
def knowings(draw, most=25, fewest=1):
    """Facts whose features are independent enough for the literal forms (condition number under 30)."""
    rng = np.random.default_rng(draw(seeds))
    d = draw(st.integers(2, 6))
    count, n = draw(st.integers(fewest, d)), draw(st.integers(0, most))
    while True:
        facts = unit_ball(rng, count, d)
        if np.linalg.cond(facts) < 30.0:
            break
    gamma = rng.standard_normal(d)
    features = unit_ball(rng, n, d)
    z = features @ gamma + 0.1 * rng.standard_normal(n)
    return Knowing(features, z, draw(ridges), facts, facts @ gamma, gamma)


@law
@given(knowings(), seeds)
def test_the_estimate_and_the_widths_are_constrained_least_squares(case, seed):
    """min ‖ĝ − γ‖_A subject to the facts, and the supremum over the ellipsoid within them."""
    rng = np.random.default_rng(seed)
    costs = case.costs()
    assert costs.facts.count[0] == len(case.facts)
    beta = np.sqrt(case.moved2) + 1.0
    gamma_hat, radius, _ = fit(costs, rules_with(beta))
    np.testing.assert_allclose(gamma_hat[0], case.estimate, rtol=1e-9, atol=1e-9)
    assert radius[0] == pytest.approx(np.sqrt(beta**2 - case.moved2), rel=1e-9)
    ends = unit_ball(rng, 4, len(case.gamma))
    f, cost = case.facts[0], case.told[0]
    state = judged(costs, rules_with(beta, threshold=np.array([99.0])), StarActions(f, ends), [cost])
    scale = 1.0 / np.sqrt(case.ridge)
    for i, x in enumerate(ends):
        assert np.sqrt(state.width2[i]) == pytest.approx(case.width(x), abs=1e-9 * scale, rel=1e-7)
        expected = case.estimate @ x + np.sqrt(beta**2 - case.moved2) * case.width(x)
        assert state.bound(i) == pytest.approx(expected, abs=1e-7 * (1.0 + beta) * scale)


@law
@given(knowings(), seeds)
def test_a_decision_adds_the_fact_of_its_own_state(case, seed):
    """Conditioning on the remembered facts and then on f is conditioning on all of them at once."""
    assume(len(case.facts) < len(case.gamma))
    rng = np.random.default_rng(seed)
    f, *ends = unit_ball(rng, 4, len(case.gamma))
    whole = replace(case, facts=np.vstack([case.facts, f]), told=np.append(case.told, f @ case.gamma))
    assume(np.linalg.cond(whole.facts) < 30.0)
    beta = case.distance(case.gamma) * 1.01
    rules = rules_with(beta, threshold=np.array([99.0]))
    state = judged(case.costs(), rules, StarActions(f, np.array(ends)), [f @ case.gamma])
    scale = 1.0 / np.sqrt(case.ridge)
    for i, x in enumerate(ends):
        expected = whole.estimate @ x + np.sqrt(beta**2 - whole.moved2) * whole.width(x)
        assert state.bound(i) == pytest.approx(expected, abs=1e-7 * (1.0 + beta) * scale)


@law
@given(knowings(), seeds)
def test_the_weighted_form_has_the_facts_as_its_limit(case, seed):
    """A + Σ w f fᵀ at w = 1e8: ĝ_w, the widths and m_w."""
    x = unit_ball(np.random.default_rng(seed), 1, len(case.gamma))[0]
    costs = case.costs()
    gram, estimate, moved2 = case.weighted(1e8)
    beta = np.sqrt(case.moved2) + 1.0
    gamma_hat, radius, _ = fit(costs, rules_with(beta))
    np.testing.assert_allclose(gamma_hat[0], estimate, atol=1e-4)
    assert radius[0] ** 2 == pytest.approx(beta**2 - moved2, abs=1e-4 * beta**2)
    rules = rules_with(beta, threshold=np.array([99.0]))
    state = judged(costs, rules, StarActions(case.facts[0], x[None]), [case.told[0]])
    assert state.width2[0] == pytest.approx(x @ np.linalg.solve(gram, x), rel=1e-4, abs=1e-5)


@law
@given(knowings(), seeds)
def test_the_order_of_facts_and_data_does_not_matter(case, seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(case.features) + len(case.facts))
    first, second = case.costs(), case.costs(order)
    beta = np.sqrt(case.moved2) + 1.0
    for one, two in zip(fit(first, rules_with(beta))[:2], fit(second, rules_with(beta))[:2], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
    f, *ends = unit_ball(rng, 4, len(case.gamma))
    states = [
        judged(costs, rules_with(2.0 * beta + 9.0), StarActions(f, np.array(ends)), [f @ case.gamma])
        for costs in (first, second)
    ]
    np.testing.assert_allclose(states[0].width2, states[1].width2, rtol=1e-9, atol=1e-9 / case.ridge)
    np.testing.assert_allclose(first.facts.known, second.facts.known, atol=1e-11)
    assert first.log_det[0] == pytest.approx(second.log_det[0], rel=1e-11, abs=1e-11)


@settings(law, max_examples=20)
@given(seeds, st.integers(3, 9), ridges)
def test_the_basis_and_its_factor_hold_through_hundreds_of_updates(seed, d, ridge):
    """BᵀB = I, B ⊥ facts, and UᵀU = BᵀAB, with facts in between; d = 8 and 9 use the long loops."""
    rng = np.random.default_rng(seed)
    costs, held, gamma = new_costs(1, d, 1, ridge), [], rng.standard_normal(d)
    for x in unit_ball(rng, 400, d):
        seen(costs, x, gamma @ x)
        f = unit_ball(rng, 1, d)[0]
        if rng.random() < 0.02 and len(held) < d - 1 and np.linalg.cond(np.array([*held, f])) < 100.0:
            assert told(costs, f, gamma @ f)
            held.append(f)
    facts, p = costs.facts, costs.facts.rank[0]
    assert p == d - len(held)
    basis = facts.basis[0]
    np.testing.assert_allclose(basis.T @ basis, np.eye(d), atol=1e-12)
    if held:
        assert np.abs(np.array(held) @ basis[:, :p]).max() <= 1e-12
        factor = np.triu(facts.inside[0, :p, :p])
        np.testing.assert_array_equal(factor, facts.inside[0, :p, :p])
        expected = basis[:, :p].T @ costs.gram[0] @ basis[:, :p]
        np.testing.assert_allclose(factor.T @ factor, expected, rtol=0.0, atol=1e-10 * np.abs(expected).max())
        np.testing.assert_allclose(np.array(held) @ facts.known[0, 0], np.array(held) @ gamma, atol=1e-12 * 100.0)
        np.testing.assert_allclose(facts.known[0, 0] @ basis[:, :p], 0.0, atol=1e-12 * 100.0)


@law
@given(knowings(), seeds)
def test_a_fact_in_the_span_changes_nothing(case, seed):
    """It is compared with what is known and left alone; only rounding may be noted."""
    rng = np.random.default_rng(seed)
    costs = case.costs()
    before = {name: np.array(value) for name, value in costs.facts.fields.items() if name != "misfit"}
    owed = costs.owed.count[0]
    for _ in range(3):
        mix = rng.standard_normal(len(case.facts))
        f = mix @ case.facts / max(np.linalg.norm(mix @ case.facts), 1.0)
        assert not told(costs, f, f @ case.gamma)
    assert not told(costs, case.facts[0], case.told[0])
    for name, value in before.items():
        np.testing.assert_array_equal(value, getattr(costs.facts, name), err_msg=name)
    assert costs.facts.misfit.max() <= 1e-13
    assert costs.owed.count[0] == owed


def test_a_feature_of_length_zero_is_no_fact():
    costs = new_costs(1, 2, 1, 1.0)
    assert not told(costs, np.zeros(2), 0.0)
    assert (costs.facts.count[0], costs.facts.rank[0]) == (0, 2)
    gamma_hat, radius, _ = fit(costs, rules_with())
    assert np.isfinite(gamma_hat).all()
    assert np.isfinite(radius).all()


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_fact_that_is_not_finite_certifies_nothing(broken):
    """Neither its feature nor its cost may make anything else look certain."""
    for f, cost in ((np.array([1.0, broken]), 0.1), (F1, broken)):
        costs = new_costs(1, 2, 1, 1.0)
        told(costs, f, cost)
        state = judged(costs, rules_with(0.01), StarActions(F1, np.array([[0.0, 1.0]])), [0.1])
        if costs.facts.count[0] > 0:
            assert state.reason != BEST
        assert not state.width2[0] < 1.0


# Contradictions


@dataclass(frozen=True)
class Off:
    """Two facts in R³ and a third in their span whose cost is off by so much."""

    by: float

    def costs(self):
        costs = new_costs(1, 3, 1, 1.0)
        gamma = np.array([0.2, 0.3, 0.1])
        for f in ([1.0, 0.0, 0.0], [0.6, 0.8, 0.0]):
            assert told(costs, f, gamma @ f)
        third = np.array([0.0, 0.9, 0.0])
        assert not told(costs, third, gamma @ third + self.by)
        return costs


END = np.array([[0.1, 0.1, 0.9]])


@pytest.mark.parametrize("by", [1e-3, -1e-3, 0.1])
def test_contradicting_facts_raise_the_alarm_and_play_safe(by):
    costs = Off(by).costs()
    gamma_hat, radius, _ = fit(costs, rules_with(0.5))
    assert np.isnan(radius[0])
    assert np.isfinite(gamma_hat).all()
    for actions in (StarActions(np.array([1.0, 0.0, 0.0]), END), FiniteActions(np.vstack([END, [1.0, 0.0, 0.0]]), 1)):
        state = judged(costs, rules_with(0.5), actions, [0.2])
        assert (state.plan.row[0, 0], state.plan.length[0, 0], state.reason) == (-1, 0.0, ALARM)
        assert state.plan.bound[0, 0, 0] == 0.2


@pytest.mark.parametrize("by", [1e-9, -1e-9])
def test_facts_that_are_off_by_rounding_do_not_alarm_but_enlarge_the_margin(by):
    exact, off = fit(Off(0.0).costs(), rules_with(0.5)), fit(Off(by).costs(), rules_with(0.5))
    assert np.isfinite(off[1][0])
    assert exact[2][0] <= 1e-12
    assert 1e-9 <= off[2][0] <= 1e-7
    assert off[1][0] >= exact[1][0]
    actions = StarActions(np.array([1.0, 0.0, 0.0]), END)
    states = [judged(Off(off).costs(), rules_with(0.5), actions, [0.2], weights=np.ones(3)) for off in (0.0, by)]
    assert [state.reason for state in states] == [BEST, BEST]
    assert states[1].bound(0) > states[0].bound(0)


def test_facts_that_need_a_larger_gamma_than_was_declared_are_an_alarm():
    """Assumption 4 bounds ‖γ*‖ by B = 0.3, but c(1, 0) = 0.4."""
    costs = new_costs(1, 2, 1, 1.0)
    remember(costs, 0, F1, np.array([0.4]), np.array([0.3]), np.zeros((3, 2)))
    assert np.isnan(fit(costs, rules_with(0.5, gamma_norm=np.array([0.3])))[1][0])
    assert np.isfinite(fit(costs, rules_with(0.5, gamma_norm=np.array([0.4])))[1][0])


def test_facts_that_contradict_the_data_are_an_alarm():
    """m = ‖ĝ − γ_c‖²_A > β²: 100 costs of 0.1 at f, and the fact 0.3. 0.2² · 100 = 4."""
    costs = new_costs(1, 2, 1, 1e-6)
    feed(costs, np.tile(F1, (100, 1)), np.full((100, 1), 0.1))
    told(costs, F1, 0.3)
    assert np.isnan(fit(costs, rules_with(1.99))[1][0])
    assert fit(costs, rules_with(2.01))[1][0] == pytest.approx(np.sqrt(2.01**2 - 4.0), rel=1e-4)


# More facts, smaller bounds


@law
@given(knowings(fewest=2), seeds)
def test_bounds_with_more_facts_are_never_larger(case, seed):
    """On one event: each fact makes the set of possible γ* smaller, so every bound falls, and the truth stays below.

    β just covers ĝ. The state's own fact alone is "state"; with some of the facts "visited"; with all "all".
    """
    assume(len(case.facts) < len(case.gamma))
    rng = np.random.default_rng(seed)
    f, *ends = unit_ball(rng, 5, len(case.gamma))
    beta = case.distance(case.gamma) * (1.0 + 1e-6)
    none = replace(case, facts=case.facts[:0], told=case.told[:0])
    some = replace(case, facts=case.facts[:1], told=case.told[:1])
    own = f @ case.gamma
    bounds, before = [], beta**2
    for known in (none, some, case):
        costs = known.costs()
        _, radius, _ = fit(costs, rules_with(beta))
        moved2 = known.moved2 if len(known.facts) else 0.0
        assert radius[0] ** 2 == pytest.approx(beta**2 - moved2, abs=1e-9 * (1.0 + beta**2))
        assert radius[0] ** 2 <= before + 1e-9 * (1.0 + beta**2)
        before = radius[0] ** 2
        state = judged(costs, rules_with(beta, threshold=np.array([99.0])), StarActions(f, np.array(ends)), [own])
        assert state.reason != ALARM
        bounds.append([state.bound(i) for i in range(4)])
    slack = 1e-9 * (1.0 + beta) * (1.0 + 1.0 / np.sqrt(case.ridge))
    truth = np.array(ends) @ case.gamma
    assert (np.array(bounds[1]) <= np.array(bounds[0]) + 8.0 * slack).all()
    assert (np.array(bounds[2]) <= np.array(bounds[1]) + 8.0 * slack).all()
    assert (truth <= np.array(bounds[2]) + slack).all()


# Error bars


def rough(case, error, rng, *, repeats=1):
    """Sums with the facts of a case known up to `error`, each told `repeats` times, really off by up to it."""
    costs = replace(case, facts=case.facts[:0], told=case.told[:0]).costs()
    off = case.told + error * rng.choice([-1.0, 1.0, 0.3], len(case.told))
    for _ in range(repeats):
        for f, cost in zip(case.facts, off, strict=True):
            remember_roughly(costs, 0, f.copy(), np.array([cost]))
    return costs, off


def rough_rules(beta, error, **more):
    return rules_with(beta, conditioning=MEASURED, memory=VISITED, cost_error=np.array([error]), **more)


def outward(case, weight):
    """What rounding outward may add to the square of a radius, relatively: 1e-7 unless A + wF is badly conditioned."""
    return 1e-7 + 1e-11 * weight / case.ridge


@law
@given(knowings(), seeds)
def test_a_huge_error_gets_no_weight_and_a_tiny_one_a_large_weight(case, seed):
    """No weight is section 7: as if the costs were unknown. A large one is nearly the exact fact."""
    rng, beta = np.random.default_rng(seed), case.distance(case.gamma) + 0.5
    for error in (1e6, 1e-7):
        costs, _ = rough(case, error, rng)
        choose_weight(costs, rough_rules(beta, error), new_scratch(len(case.gamma), 1, 1, 1), 0)
        gamma_hat, radius, _ = fit(costs, rough_rules(beta, error))
        if error > 1.0:
            assert costs.facts.weight[0] == 0.0
            np.testing.assert_allclose(gamma_hat[0], case.plain, rtol=1e-9, atol=1e-9)
            assert radius[0] == pytest.approx(beta, rel=1e-9)
        else:
            assert costs.facts.weight[0] >= 1e6
            np.testing.assert_allclose(gamma_hat[0], case.estimate, atol=1e-3)


@law
@given(knowings(), seeds, st.floats(-2.5, -0.5).map(lambda e: 10.0**e), st.integers(1, 3))
def test_the_radius_of_an_error_bar_is_its_identity(case, seed, error, repeats):
    """β_w² = β² + wJe² − m_w, ĝ_w and xᵀ(A + wF)^{-1}x against their definitions, at the weight that was chosen."""
    rng, beta = np.random.default_rng(seed), case.distance(case.gamma) + 0.5
    costs, off = rough(case, error, rng, repeats=repeats)
    rules = rough_rules(beta, error, threshold=np.array([99.0]))
    choose_weight(costs, rules, new_scratch(len(case.gamma), 1, 1, 1), 0)
    w = costs.facts.weight[0]
    literal = replace(case, facts=np.tile(case.facts, (repeats, 1)), told=np.tile(off, repeats))
    gram, estimate, moved2 = literal.weighted(w)
    assert moved2 <= beta**2 + w * len(literal.facts) * error**2  # γ* is possible
    gamma_hat, radius, _ = fit(costs, rules)
    np.testing.assert_allclose(gamma_hat[0], estimate, rtol=1e-7, atol=1e-7)
    expected = beta**2 + w * len(literal.facts) * error**2 - moved2
    assert expected * (1.0 - 1e-9) <= radius[0] ** 2 <= expected * (1.0 + outward(case, w))
    f, *ends = unit_ball(rng, 4, len(case.gamma))
    state = judged(costs, rules, StarActions(f, np.array(ends)), [f @ case.gamma + 9.0])
    forms = np.einsum("ni,ij,nj->n", np.array(ends), np.linalg.inv(gram), np.array(ends))
    np.testing.assert_allclose(state.width2, forms, rtol=1e-6, atol=1e-8)


@law
@given(knowings(), seeds, st.floats(-2.5, -0.5).map(lambda e: 10.0**e))
def test_observations_after_the_weight_was_chosen_keep_the_identity(case, seed, error):
    """The factor of A + wF follows new data by rotations; facts that come later wait for the next weight."""
    rng, beta = np.random.default_rng(seed), case.distance(case.gamma) + 0.5
    costs, off = rough(case, error, rng)
    rules = rough_rules(beta, error, threshold=np.array([99.0]))
    choose_weight(costs, rules, new_scratch(len(case.gamma), 1, 1, 1), 0)
    w, more = costs.facts.weight[0], unit_ball(rng, 30, len(case.gamma))
    for x in more:
        seen(costs, x, x @ case.gamma)
    remember_roughly(costs, 0, case.facts[0].copy(), np.array([99.0]))  # not yet in use
    later = replace(case, features=np.vstack([case.features, more]), z=np.append(case.z, more @ case.gamma), told=off)
    gram, estimate, moved2 = later.weighted(w)
    gamma_hat, radius, _ = fit(costs, rules)
    np.testing.assert_allclose(gamma_hat[0], estimate, rtol=1e-7, atol=1e-7)
    expected = beta**2 + w * len(off) * error**2 - moved2
    assert expected * (1.0 - 1e-9) <= radius[0] ** 2 <= expected * (1.0 + outward(case, w))
    ends = more[:3]
    state = judged(costs, rules, StarActions(case.facts[0], ends), [98.0])
    forms = np.einsum("ni,ij,nj->n", ends, np.linalg.inv(gram), ends)
    np.testing.assert_allclose(state.width2, forms, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("error", [1.0, 0.1, 1e-2, 1e-4, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-15])
def test_an_error_bar_is_never_worse_than_no_knowledge(error):
    """w = 0 is in the grid. And w must not be so large that A + wF, as a floating-point matrix, forgets A."""
    rng = np.random.default_rng(0)
    facts, gamma = unit_ball(rng, 2, 5), rng.standard_normal(5)
    features = unit_ball(rng, 60, 5)
    case = Knowing(features, features @ gamma + 0.1 * rng.standard_normal(60), 0.01, facts, facts @ gamma, gamma)
    beta = case.distance(gamma) + 0.5
    costs, off = rough(case, error, rng, repeats=30)
    rules = rough_rules(beta, error, threshold=np.array([99.0]))
    choose_weight(costs, rules, new_scratch(5, 1, 1, 1), 0)
    plain = replace(case, facts=facts[:0], told=case.told[:0]).costs()
    unknown = rough_rules(beta, np.inf, threshold=np.array([99.0]))
    actions = StarActions(facts[0], unit_ball(rng, 20, 5))
    knowing, free = judged(costs, rules, actions, [off[0]]), judged(plain, unknown, actions, [np.nan])
    share = (knowing.radius[0] * knowing.widths).mean() / (free.radius[0] * free.widths).mean()
    assert share <= 1.1  # w is chosen by the widths of what was played, not of these
    if error <= 1e-2:
        assert share <= 0.98  # two facts in five dimensions are worth something


def worst_truths(case, off, beta, error, directions, rng):
    """γ with ‖ĝ − γ‖_A <= β and |⟨γ, f_j⟩ − τ_j| <= e that try to be large along the directions: pulled from γ*."""
    root = np.linalg.cholesky(case.gram).T

    def possible(gamma):
        return case.distance(gamma) <= beta and (np.abs(case.facts @ gamma - off) <= error * (1.0 + 1e-12)).all()

    assert possible(case.gamma)
    found = [case.gamma]
    for x in directions:
        best = case.gamma
        for attempt in range(25):
            pull = np.linalg.solve(case.gram, x) if attempt == 0 else np.linalg.solve(root, rng.standard_normal(len(x)))
            pull = pull * np.sign(pull @ x) * 2.0 * beta / max(np.linalg.norm(root @ pull), 1e-300)
            low, high = 0.0, 1.0
            for _ in range(30):
                middle = (low + high) / 2.0
                low, high = (middle, high) if possible(best + middle * pull) else (low, middle)
            best = best + low * pull
        found.append(best)
    return found


@settings(law, max_examples=40)
@given(knowings(most=12), seeds, st.floats(-3.0, -0.5).map(lambda e: 10.0**e), st.integers(1, 3))
def test_no_possible_truth_costs_more_than_its_bound(case, seed, error, repeats):
    """Random search for a γ* inside the ellipsoid, whose safe costs are within e of those declared: none beats a bound.

    The bound is that of Eq. (9) at any point of a ray, with the weight that the code chose.
    """
    rng, beta = np.random.default_rng(seed), case.distance(case.gamma) * 1.1 + 0.05
    costs, off = rough(case, error, rng, repeats=repeats)
    rules = rough_rules(beta, error, threshold=np.array([99.0]))
    choose_weight(costs, rules, new_scratch(len(case.gamma), 1, 1, 1), 0)
    f, ends = case.facts[0], unit_ball(rng, 3, len(case.gamma))
    state = judged(costs, rules, StarActions(f, ends), [off[0]])
    assert state.reason != ALARM
    closest = -np.inf
    for gamma in worst_truths(case, off, beta, error, ends, rng):
        for i, end in enumerate(ends):
            for alpha in (0.05, 0.4, 1.0):
                over = gamma @ (f + alpha * (end - f)) - state.bound(i, alpha)
                closest = max(closest, over)
    assert closest <= 1e-9


@settings(law, max_examples=40)
@given(knowings(most=12), seeds)
def test_no_possible_truth_that_keeps_the_facts_costs_more_than_its_bound(case, seed):
    """The same for exact facts: γ* on the plane of the facts, anywhere in the ellipsoid."""
    rng, beta = np.random.default_rng(seed), case.distance(case.gamma) * 1.1 + 0.05
    costs, ends = case.costs(), unit_ball(rng, 3, len(case.gamma))
    f = case.facts[0]
    state = judged(costs, rules_with(beta, threshold=np.array([99.0])), StarActions(f, ends), [case.told[0]])
    open_basis = np.linalg.qr(case.facts.T, mode="complete")[0][:, len(case.facts) :]
    reach = np.sqrt(max(beta**2 - case.moved2, 0.0))
    for i, x in enumerate(ends):
        inside = np.linalg.inv(open_basis.T @ case.gram @ open_basis) if open_basis.shape[1] else np.zeros((0, 0))
        step = open_basis @ inside @ open_basis.T @ x
        norm = np.sqrt(step @ case.gram @ step)
        if norm < 1e-8:
            continue  # the facts say what x costs
        worst = case.estimate + reach * (1.0 - 1e-9) * step / norm
        np.testing.assert_allclose(case.facts @ worst, case.told, atol=1e-8)
        assert worst @ x <= state.bound(i) + 1e-9
        assert worst @ x >= state.bound(i) - 1e-5 * (1.0 + reach / np.sqrt(case.ridge))  # and it is no larger than that


def test_a_wrong_error_bar_raises_the_alarm():
    """Declared 0.5 ± 0.001 at f; 400 data at σ = 0.01 say 0.1: β_w² < 0."""
    costs = new_costs(1, 2, 1, 1e-4)
    feed(costs, np.tile(F1, (400, 1)), np.full((400, 1), 0.1))
    for _ in range(5):
        remember_roughly(costs, 0, F1, np.array([0.5]))
    rules = rough_rules(0.5, 1e-3, noise=np.array([0.01]))
    choose_weight(costs, rules, new_scratch(2, 1, 1, 1), 0)
    assert costs.facts.weight[0] > 0.0
    state = judged(costs, rules, StarActions(F1, np.array([[0.0, 1.0]])), [0.5 - 1e-2])
    assert np.isnan(state.radius[0])
    assert (state.plan.row[0, 0], state.reason) == (-1, ALARM)


def test_a_weight_is_chosen_anew_when_a_tenth_more_is_known():
    """10 visits, then an 11th (no more than a tenth), then a 12th."""
    costs, rules, scratch = new_costs(1, 2, 1, 1.0), rough_rules(1.0, 0.01), new_scratch(2, 1, 1, 1)
    used = []
    for _ in range(12):
        remember_roughly(costs, 0, F1, np.array([0.1]))
        choose_weight(costs, rules, scratch, 0)
        used.append(costs.facts.used_visits[0])
    assert used[9:] == [10.0, 10.0, 12.0]
    np.testing.assert_array_equal(costs.facts.used_gram[0], costs.facts.gram[0])
    assert costs.facts.square[0, 0] == pytest.approx(12 * 0.01, rel=1e-14)
    np.testing.assert_allclose(costs.facts.moment[0, 0], [1.2, 0.0], rtol=1e-14)


# Agents


def spanning_problem(rng, states, d, horizon=2, *, wrong=0.0, **more):
    """γ* and a problem whose `states` safe features span that many directions of R^d."""
    gamma = rng.uniform(0.0, 0.6, (horizon, 1, d))
    phi_0 = rng.dirichlet(np.ones(d), size=states)
    costs = np.einsum("hmd,sd->hs", gamma, phi_0)
    costs[0, 0] += wrong
    problem = Problem.from_rays(
        phi_0=phi_0,
        endpoints=rng.dirichlet(np.ones(d), size=(states, 5)),
        horizon=horizon,
        **stated(baseline_cost=costs, threshold=0.7, noise=0.1, **{"baseline_cost_error": 0.0, **more}),
    )
    return problem, gamma


@law
@given(seeds, st.integers(1, 4), st.integers(5, 6), st.integers(0, 30))
def test_conditioning_on_all_facts_is_generic_gaussian_conditioning(seed, states, d, count):
    """mean = ⟨ĝ,x⟩ − xᵀGFᵀ(FGFᵀ)⁻¹(Fĝ − c) and width² = xᵀGx − xᵀGFᵀ(FGFᵀ)⁻¹FGx, F the safe features."""
    rng = np.random.default_rng(seed)
    problem, gamma = spanning_problem(rng, states, d)
    agent = SlucbQvi(problem, SlucbConfig(condition_on="all", cost_ridge=0.3))
    agent.register(range(states))
    rows = unit_ball(rng, count, d)
    z = rows @ gamma[1, 0] + 0.1 * rng.standard_normal(count)
    for x, cost in zip(rows, z, strict=True):
        agent.observe(Transition(1, 0, x, 0.0, float(cost)))
    agent.plan()
    g = np.linalg.inv(0.3 * np.eye(d) + rows.T @ rows)
    plain = g @ (rows.T @ z)
    known = [problem.look_up(s) for s in range(states)]
    facts = np.array([entry.actions.phi_0 for entry in known])
    costs = np.array([entry.baseline_cost[1, 0] for entry in known])
    gain = g @ facts.T @ np.linalg.inv(facts @ g @ facts.T)
    conditioned = plain - gain @ (facts @ plain - costs)
    covariance = g - gain @ facts @ g
    np.testing.assert_allclose(agent.current.gamma_hat[1, 0], conditioned, atol=1e-6)
    for slot, entry in enumerate(known):
        ends = entry.actions.endpoints
        expected = np.einsum("ni,ij,nj->n", ends, covariance, ends)
        first = agent.tables.start[slot]
        np.testing.assert_allclose(agent.tables.width2[1, first : first + 5], expected, atol=1e-7)


@law
@given(seeds, st.integers(2, 4))
def test_safe_features_that_span_everything_determine_gamma_before_the_first_step(seed, d):
    rng = np.random.default_rng(seed)
    problem, gamma = spanning_problem(rng, d + 2, d)
    facts = np.array([problem.look_up(s).actions.phi_0 for s in range(d + 2)])
    agent = SlucbQvi(problem, SlucbConfig(condition_on="all"))
    taken = facts[:d]
    assume(np.linalg.cond(taken) < 100.0)
    agent.register(range(d + 2))
    agent.plan()
    np.testing.assert_array_equal(agent.costs.facts.rank, 0)
    accuracy = 1e-13 * np.linalg.cond(taken)
    np.testing.assert_allclose(agent.current.gamma_hat, gamma, atol=accuracy)
    np.testing.assert_array_equal(agent.tables.width2[:, : agent.tables.start[d + 2]], 0.0)


def test_the_known_part_and_the_open_part_are_orthogonal_and_complete():
    problem, gamma = spanning_problem(np.random.default_rng(3), 3, 5)
    facts = SlucbQvi(problem, SlucbConfig(condition_on="all")).costs.facts
    np.testing.assert_array_equal(facts.rank, 2)
    for step in range(2):
        basis, known = facts.basis[step, :, :2], facts.known[step, 0]
        np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
        np.testing.assert_allclose(known @ basis, 0.0, atol=1e-12)
        np.testing.assert_allclose(known + basis @ (basis.T @ gamma[step, 0]), gamma[step, 0], atol=1e-10)


def test_facts_that_barely_span_a_direction_never_certify_a_cost_over_the_threshold():
    """Two safe features 4e-9 apart: their costs fix γ* only to 1e-16/4e-9, far above rounding."""
    worst = -np.inf
    for seed in range(20):
        rng = np.random.default_rng(seed)
        gamma = rng.uniform(0.1, 0.9, (1, 1, 2))
        phi_0 = np.array([[0.5 + 4e-9, 0.5 - 4e-9], [0.5 - 4e-9, 0.5 + 4e-9]])
        costs = np.einsum("hmd,sd->hs", gamma, phi_0)
        problem = Problem.from_rays(
            phi_0=phi_0,
            endpoints=np.tile(np.eye(2), (2, 1, 1)),
            constraints=Constraint(threshold=float(costs.max()) + 0.05, noise=0.1, safe_cost=costs),
            horizon=1,
        )
        agent = SlucbQvi(problem, SlucbConfig(condition_on="all"))
        agent.register(range(2))
        agent.plan()
        for state in range(2):
            decision = agent.act(0, state)
            worst = max(worst, gamma[0, 0] @ decision.feature - decision.cost_bound)
    assert worst <= 1e-9


@pytest.mark.parametrize("condition_on", ["all", "visited"])
@pytest.mark.parametrize("d", [2, 4])
def test_costs_that_were_rounded_to_nine_decimals_stay_under_the_threshold(d, condition_on):
    """Declared as exact. Safe features are about 1e-5 apart: two such facts would enlarge 5e-10 by 1e5 or more."""
    worst = -np.inf
    for seed in range(40):
        rng = np.random.default_rng(seed)
        gamma, phi_0 = rng.uniform(0.0, 1.0, d), 0.4 + 1e-5 * rng.standard_normal((6, d))
        costs = np.round(phi_0 @ gamma, 9)
        problem = Problem.from_rays(
            phi_0=phi_0,
            endpoints=rng.uniform(-0.5, 0.5, (6, 5, d)),
            constraints=Constraint(
                threshold=float(costs.max()) + 0.05, noise=0.05, safe_cost=SafeCost(costs[None], error=0.0)
            ),
            horizon=1,
        )
        agent = SlucbQvi(problem, SlucbConfig(condition_on=condition_on))
        for _ in range(60):
            agent.plan()
            decision = agent.act(0, int(rng.integers(6)))
            cost = float(gamma @ decision.feature)
            worst = max(worst, cost - problem.threshold[0])
            noisy = cost + 0.05 * float(rng.standard_normal())
            agent.observe(decision.outcome(reward=float(rng.uniform()), cost=noisy, next_state=0))
    assert worst <= 1e-6


@pytest.mark.parametrize("condition_on", ["all", "visited"])
@pytest.mark.parametrize("nudge", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 0.0])
def test_consistent_facts_are_never_refused_however_close_the_safe_features_are(nudge, condition_on):
    """Three states whose safe features almost coincide, with their true costs: nothing contradicts linearity."""
    gamma, centre = np.array([0.1, 0.3, 0.8]), np.array([0.5, 0.3, 0.2])
    phi_0 = centre + nudge * np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.0], [0.0, -1.0, 1.0]])
    problem = Problem.from_rays(
        phi_0=phi_0,
        endpoints=np.tile(np.eye(3), (3, 1, 1)),
        constraints=Constraint(threshold=0.6, noise=0.1, safe_cost=(phi_0 @ gamma)[None]),
        horizon=1,
    )
    agent = SlucbQvi(problem, SlucbConfig(condition_on=condition_on))
    agent.register(range(3))
    for turn in range(2):
        agent.plan()
        for state in range(3):
            decision = agent.act(0, state)
            assert decision.reason != "alarm"
            assert gamma @ decision.feature <= decision.cost_bound + 1e-9
            cost = float(gamma @ decision.feature)
            agent.observe(decision.outcome(reward=float(turn), cost=cost, next_state=state))


def test_contradictory_facts_are_refused_in_the_words_of_the_assumption():
    problem, _ = spanning_problem(np.random.default_rng(4), 6, 3, wrong=0.05)
    with pytest.raises(AssumptionError, match="linear in the safe features"):
        SlucbQvi(problem, SlucbConfig(condition_on="all"))


def test_contradictory_facts_that_are_met_one_by_one_raise_the_alarm_of_their_step_only():
    """States 0 to 5 in R³, and state 0 is off by 0.05 at step 0: once four of them were visited, step 0 knows."""
    problem, gamma = spanning_problem(np.random.default_rng(4), 6, 3, wrong=0.05)
    agent = SlucbQvi(problem)
    agent.register(range(6))
    for state in range(4):
        for step in range(2):
            f = problem.look_up(state).actions.phi_0
            cost = float(gamma[step, 0] @ f) if state else None  # nobody measured the cost that is wrong
            agent.observe(Transition(step, state, f, 0.0, cost, 0 if step == 0 else None))
    agent.plan()
    assert {step for step, _ in agent.alarms} == {0}
    assert len(agent.alarms) == 6
    decision = agent.act(0, 3)
    assert (decision.reason, decision.is_baseline) == ("alarm", True)
    assert agent.act(1, 3).reason != "alarm"


def test_conditioning_on_all_facts_never_certifies_less_than_conditioning_on_one():
    """More facts, smaller width; the radius is the same tuned number, so every bound is lower on average."""
    world, streams = uneven_world(5, states=2, dimension=4, noise=0.1), Streams.from_seed(1)
    tuned = {"explorer": "paper", "cost_radius": 1.0, "cost_ridge": 0.5}
    names = ("state", "visited", "all")
    agents = [SlucbQvi(world.problem, SlucbConfig(condition_on=name, **tuned)) for name in names]
    one = agents[0]
    for agent in agents:
        agent.register(range(2))
    for _ in range(10):
        state = world.reset(streams)
        for step in range(3):
            transition = world.step(one.act(step, state), streams)
            one.observe(transition)
            for other in agents[1:]:
                other.observe(replace(transition, decision_id=None))
            state = transition.next_state
    for agent in agents:
        agent.plan()
    rows = one.tables.start[2]
    widths = [agent.tables.width2[:, :rows] for agent in agents]
    assert (widths[1] <= widths[0] + 1e-12).all()
    assert (widths[2] <= widths[1] + 1e-12).all()
    assert (widths[1] < 0.9 * widths[0]).any()


def test_a_visited_state_is_remembered_with_the_outcome_and_named_in_the_evidence():
    """Also where its cost was not measured; at its own step; and once."""
    world = uneven_world(5, states=3, dimension=4)
    agents = {name: SlucbQvi(world.problem, SlucbConfig(condition_on=name)) for name in ("state", "visited", "all")}
    for agent in agents.values():
        for _ in range(2):
            agent.observe(Transition(1, 2, world.phi_0[2], 0.5, None, 0))
        agent.plan()
    assert agents["state"].costs.facts.count.tolist() == [0, 0, 0]
    assert agents["visited"].costs.facts.count.tolist() == [0, 1, 0]
    assert agents["all"].costs.facts.count.tolist() == [3, 3, 3]
    for name, facts in (("state", 0), ("visited", 1), ("all", 3)):
        assert agents[name].act(1, 0).evidence[0].facts == facts
        assert agents[name].propose(1, 0).evidence[0].facts == facts


def test_an_unknown_safe_cost_is_no_fact():
    world = uneven_world(5, states=3, known_costs=False)
    agent = SlucbQvi(world.problem)
    agent.observe(Transition(1, 2, world.problem.look_up(2).actions.phi_0, 0.5, 0.2, 0))
    agent.plan()
    assert agent.costs.facts.count.tolist() == [0, 0, 0]
    assert agent.costs.facts.visits.tolist() == [0.0, 0.0, 0.0]


def test_facts_with_an_error_bar_are_counted_at_every_visit():
    problem, gamma = spanning_problem(np.random.default_rng(6), 3, 4, baseline_cost_error=0.01)
    agent = SlucbQvi(problem)
    for n in range(20):
        known = problem.look_up(n % 3)
        agent.observe(Transition(0, n % 3, known.actions.phi_0, 0.0, float(gamma[0, 0] @ known.actions.phi_0), 0))
    agent.plan()
    assert agent.costs.facts.visits.tolist() == [20.0, 0.0]
    assert agent.costs.facts.weight[0] > 0.0
    assert agent.act(0, 0).evidence[0].facts == 20
    assert agent.act(1, 0).evidence[0].facts == 0


def test_a_contradiction_must_exceed_rounding_by_far():
    """MISFIT is what separates a wrong declaration from a rounded one: float32 costs are a declaration to look at."""
    assert 1e-9 < MISFIT < 1e-5
