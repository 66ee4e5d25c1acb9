"""Quadratic forms of the candidates, the targets of the regression and the two stores of one plan.

By hand: f = (1, 0), x = (0.6, 0.8); both ridges are 1, so at first every form is a plain inner product. As laws: tables
kept up by rank-one updates are the direct forms, with or without remembered facts, and never round a width downwards.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.calls import affine, make_rules
from kernels.generators import exact_factor, exact_norm, exact_width, law, ridges, seeds, unit_ball
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.kernels.compiled import replaced
from tether.kernels.model import KNOWN, MEASURED, TOLD, add_state, new_plan, new_tables
from tether.kernels.plan import UPDATE_LIMIT, observe, refresh, scratch_for, target_moment
from tether.kernels.ridge import PENDING, new_costs, new_values, observe_cost, observe_value, remember, solve
from tether.problem.action_sets import FiniteActions, StarActions
from tether.problem.problem import KnownState
from tether.records import Transition
from worlds import two_arm_problem

F, X = np.array([1.0, 0.0]), np.array([0.6, 0.8])
PHI = np.array([0.6, 0.8])
NAMES = ("width2", "cross", "g00", "vxx", "v0x", "v00")


def sums(cost_ridge=1.0, value_ridge=1.0, d=2):
    return new_costs(1, d, 1, cost_ridge), new_values(1, d, value_ridge, 1)


def see(costs, values, x):
    """One outcome without cost or reward in either regression; None is skipped."""
    if costs is not None:
        observe_cost(costs, 0, x, np.zeros(1), np.zeros((3, len(x))))
    if values is not None:
        observe_value(values, 0, x, 0.0, -1, np.zeros((3, len(x))))


def refreshed(tables, costs, values, rules=None):
    refresh(costs, values, rules or make_rules(), tables, scratch_for(tables), 0)
    return tables


# Outcomes


def seen(*, rules=None, stage=1, reward=0.5, cost=0.3, following=2):
    """Sums of two stages after one outcome of φ = (0.6, 0.8)."""
    costs, values = new_costs(2, 2, 1, 0.5), new_values(2, 2, 1.0, 3)
    observe(costs, values, rules or make_rules(), stage, PHI, np.array([reward, cost]), following, np.zeros((3, 2)))
    return costs, values


def test_a_transition_enters_every_sum_of_its_stage():
    """φ = (0.6, 0.8), r = 0.5, z = 0.3, s' = 2: Σrφ = (0.3, 0.4), Σzφ = (0.18, 0.24), C[2] = φ."""
    costs, values = seen()
    np.testing.assert_allclose(values.reward_moment, [[0.0, 0.0], [0.3, 0.4]], rtol=1e-15)
    np.testing.assert_allclose(costs.moment[:, 0], [[0.0, 0.0], [0.18, 0.24]], rtol=1e-15)
    np.testing.assert_array_equal(values.transition_moment[1], [[0.0, 0.0], [0.0, 0.0], PHI])
    np.testing.assert_array_equal(values.transition_moment[0], 0.0)
    np.testing.assert_allclose(costs.gram[1], [[0.86, 0.48], [0.48, 1.14]], rtol=1e-15)
    np.testing.assert_allclose(values.factor[1].T @ values.factor[1], [[1.36, 0.48], [0.48, 1.64]], rtol=1e-15)


def test_a_missing_cost_enters_the_value_sums_only():
    costs, values = seen(cost=np.nan)
    np.testing.assert_array_equal(costs.gram[1], 0.5 * np.eye(2))
    np.testing.assert_array_equal(costs.moment, 0.0)
    assert (costs.log_det[1], costs.updates[1]) == (0.0, 0)
    np.testing.assert_allclose(values.factor[1].T @ values.factor[1], [[1.36, 0.48], [0.48, 1.64]], rtol=1e-15)
    np.testing.assert_allclose(values.reward_moment[1], [0.3, 0.4], rtol=1e-15)


def test_a_penalty_lowers_the_reward_by_the_cost():
    """r − λ'z = 0.5 − 2·0.3 = −0.1."""
    costs, values = seen(rules=make_rules(penalty=2.0))
    np.testing.assert_allclose(values.reward_moment[1], [-0.06, -0.08], rtol=1e-14)
    np.testing.assert_allclose(costs.moment[1, 0], [0.18, 0.24], rtol=1e-15)


def test_an_agent_that_is_told_gamma_regresses_no_cost():
    costs, values = seen(rules=make_rules(conditioning=TOLD))
    np.testing.assert_array_equal(costs.gram[1], 0.5 * np.eye(2))
    np.testing.assert_allclose(values.reward_moment[1], [0.3, 0.4], rtol=1e-15)


def moment_of(values, next_values, slots, stage=0):
    """b_h of one stage (d,), at the middle one of three steps: the values of every other step are wrong."""
    plan = new_plan(3, len(next_values), 1, values.reward_moment.shape[1])
    plan.values[:] = -100.0
    plan.values[2] = next_values
    target_moment(values, plan, stage, 1, slots)
    return plan.weights[1]


def test_the_target_moment_adds_next_values():
    """Two visits to s' = 2 with V = 3 and one without successor: Σrφ + 3·2φ = (0.5·3 + 6) φ = 7.5 φ."""
    values = new_values(2, 2, 1.0, 3)
    for following in (2, 2, -1):
        observe_value(values, 1, PHI, 0.5, following, np.zeros((3, 2)))
    np.testing.assert_allclose(moment_of(values, [7.0, 9.0, 3.0], 3, stage=1), 7.5 * PHI, rtol=1e-14)


def test_slots_beyond_those_in_use_do_not_count():
    _, values = seen()
    assert moment_of(values, [7.0, 9.0, 3.0], 2, stage=1) == pytest.approx([0.3, 0.4], rel=1e-14)


@law
@given(seeds, st.integers(0, 40))
def test_the_target_moment_is_the_sum_over_the_history(seed, count):
    """b_h = Σ φ (r + V_{h+1}(s')), with nothing for outcomes that have no next state."""
    rng, d, states = np.random.default_rng(seed), 3, 3
    values, next_values, expected = new_values(1, d, 1.0, states), rng.uniform(0.0, 2.0, states), np.zeros(d)
    for x in unit_ball(rng, count, d):
        reward, following = float(rng.uniform()), int(rng.integers(-1, states))
        observe_value(values, 0, x, reward, following, np.zeros((3, d)))
        expected += x * (reward + (next_values[following] if following >= 0 else 0.0))
    np.testing.assert_allclose(moment_of(values, next_values, states), expected, atol=1e-12)


@law
@given(seeds, st.integers(0, 40), st.floats(0.1, 5.0))
def test_a_penalty_shapes_the_reward_and_nothing_else(seed, count, penalty):
    """The objective r − λ'c enters the reward moment: Σ (r − λ'z) φ."""
    rng, d = np.random.default_rng(seed), 3
    plain, shaped = sums(d=d), sums(d=d)
    expected = np.zeros(d)
    for x in unit_ball(rng, count, d):
        reward, cost, following = float(rng.uniform()), float(rng.normal()), int(rng.integers(-1, 1))
        for (costs, values), rules in ((plain, make_rules()), (shaped, make_rules(penalty=penalty))):
            observe(costs, values, rules, 0, x, np.array([reward, cost]), following, np.zeros((3, d)))
        expected += (reward - penalty * cost) * x
    np.testing.assert_allclose(shaped[1].reward_moment[0], expected, atol=1e-11)
    np.testing.assert_array_equal(shaped[0].moment, plain[0].moment)
    np.testing.assert_array_equal(shaped[1].transition_moment, plain[1].transition_moment)


def test_weights_are_the_inverse_gram_matrix_times_the_moment():
    """U = [[2, 1], [0, 1]], A^{-1}(2, 2) = (0, 1)."""
    moment = np.array([2.0, 2.0])
    solve(np.array([[2.0, 1.0], [0.0, 1.0]]), moment, 2)
    np.testing.assert_array_equal(moment, [0.0, 1.0])


# Forms by hand


def star_tables(states=1):
    tables = new_tables(2, 1, 1, 1)
    for key in range(states):
        tables = add_state(tables, KnownState(key, StarActions(F, X[None]), np.full((1, 1), 0.1)))
    return tables


def forms(tables):
    return [float(getattr(tables, name)[0, 0]) for name in NAMES]


def test_before_any_data_the_forms_are_inner_products():
    """⟨f, x⟩ = 0.6, ‖x‖² = 1, ‖f‖² = 1: width² = 1 − 0.36 = 0.64."""
    np.testing.assert_allclose(forms(refreshed(star_tables(), *sums())), [0.64, 0.6, 1.0, 1.0, 0.6, 1.0], rtol=1e-15)


def test_where_safe_costs_are_not_known_the_width_is_the_whole_norm():
    """xᵀGx = 1 in the place of 0.64; the other forms are the same."""
    tables = refreshed(star_tables(), *sums(), make_rules(conditioning=MEASURED))
    np.testing.assert_allclose(forms(tables), [1.0, 0.6, 1.0, 1.0, 0.6, 1.0], rtol=1e-15)


def test_a_ridge_divides_every_form():
    """λ_c = 4, λ_v = 2."""
    tables = refreshed(star_tables(), *sums(4.0, 2.0))
    np.testing.assert_allclose(forms(tables), [0.16, 0.15, 0.25, 0.5, 0.3, 0.5], rtol=1e-14)


def test_one_observation_of_the_safe_feature_leaves_the_width_and_halves_the_rest():
    """A = diag(2, 1): G = diag(0.5, 1). g00 = 0.5, g0x = 0.3, gxx = 0.18 + 0.64 = 0.82, width² = 0.82 − 0.18 = 0.64."""
    costs, values = sums()
    tables = refreshed(star_tables(), costs, values)
    see(costs, values, F)
    refreshed(tables, costs, values)
    np.testing.assert_allclose(forms(tables), [0.64, 0.3, 0.5, 0.82, 0.3, 0.5], rtol=1e-14)
    assert tables.age[0] == 1  # by a rank-one update, not by a rebuild


def test_one_observation_where_safe_costs_are_not_known_shrinks_the_whole_norm():
    """The same in the plain form: gxx = 0.82."""
    (costs, values), rules = sums(), make_rules(conditioning=MEASURED)
    tables = refreshed(star_tables(), costs, values, rules)
    see(costs, values, F)
    refreshed(tables, costs, values, rules)
    np.testing.assert_allclose(forms(tables), [0.82, 0.3, 0.5, 0.82, 0.3, 0.5], rtol=1e-14)
    assert tables.age[0] == 1


def test_one_observation_across_the_safe_feature_shrinks_the_width():
    """φ = (0, 1): G = diag(1, 0.5). g00 = 1, g0x = 0.6, gxx = 0.36 + 0.32 = 0.68, width² = 0.32."""
    costs, values = sums()
    tables = refreshed(star_tables(), costs, values)
    see(costs, None, np.array([0.0, 1.0]))
    refreshed(tables, costs, values)
    np.testing.assert_allclose(forms(tables), [0.32, 0.6, 1.0, 1.0, 0.6, 1.0], rtol=1e-14)


def test_refreshing_twice_counts_an_observation_once():
    costs, values = sums()
    tables = refreshed(star_tables(), costs, values)
    see(costs, None, F)
    refreshed(refreshed(tables, costs, values), costs, values)
    assert tables.g00[0, 0] == pytest.approx(0.5, rel=1e-15)


def test_a_new_state_brings_its_forms_and_leaves_the_others():
    costs, values = sums()
    tables = refreshed(star_tables(), costs, values)
    see(costs, None, F)
    tables = add_state(tables, KnownState(1, StarActions(X, F[None]), np.full((1, 1), 0.2)))
    refreshed(tables, costs, values)
    assert tables.slots[0] == 2
    np.testing.assert_allclose(tables.g00[0, :2], [0.5, 0.82], rtol=1e-14)
    np.testing.assert_allclose(tables.cross[0, :2], [0.3, 0.3], rtol=1e-14)


def test_one_remembered_fact_leaves_the_other_direction():
    """c(f) = τ_s is remembered: γ* is known along f. What is open of x is 0.8 e_2, and f itself has no form left."""
    costs, values = sums()
    tables = refreshed(star_tables(), costs, values)
    assert remember(costs, 0, F, np.array([0.1]), np.ones(1), np.zeros((3, 2)))
    refreshed(tables, costs, values)
    np.testing.assert_allclose(forms(tables), [0.64, 0.0, 0.0, 1.0, 0.6, 1.0], atol=1e-15)
    see(costs, values, np.array([0.0, 1.0]))
    refreshed(tables, costs, values)
    np.testing.assert_allclose(forms(tables), [0.32, 0.0, 0.0, 0.68, 0.6, 1.0], atol=1e-15)
    assert tables.age[0] == 1


def test_once_facts_determine_gamma_no_width_is_left():
    """Two facts in two dimensions: every cost is known, and the forms must say so at the next refresh."""
    costs, values = sums()
    tables = star_tables()
    for f in (F, X):
        refreshed(tables, costs, values)
        see(None, values, f)  # the tables owe the value side a little, the cost side everything
        assert remember(costs, 0, f, np.array([0.1]), np.ones(1), np.zeros((3, 2)))
    refreshed(tables, costs, values)
    np.testing.assert_array_equal(forms(tables)[:3], 0.0)


# Laws: tables after any updates are the direct forms

ENDS = 4


def tables_of(rng, states, d, *, finite=False):
    """Tables over `states` states with ENDS candidates each, one stage."""
    tables = new_tables(d, 1, 1, 1)
    for key in range(states):
        ends, f = unit_ball(rng, ENDS, d), unit_ball(rng, 1, d)[0]
        actions = FiniteActions(ends, key % ENDS) if finite else StarActions(f, ends)
        tables = add_state(tables, KnownState(key, actions, np.zeros((1, 1))))
    return tables


def direct_forms(tables, cost_gram, value_gram, rules, facts=()):
    """(width2, cross, g00, vxx, v0x, v00) by matrix inversion, with the facts' directions projected out."""
    slots, d = int(tables.slots[0]), len(cost_gram)
    g, v = np.linalg.inv(cost_gram), np.linalg.inv(value_gram)
    if len(facts):
        basis = np.linalg.qr(np.array(facts).T, mode="complete")[0][:, len(facts) :]
        g = basis @ np.linalg.inv(basis.T @ cost_gram @ basis) @ basis.T if len(facts) < d else np.zeros((d, d))
    x, f = tables.features[:, : tables.start[slots]].T, tables.phi_0[:, :slots].T
    own = f[np.repeat(np.arange(slots), np.diff(tables.start[: slots + 1]))]  # the safe feature of each row

    def form(left, matrix, right):
        return np.einsum("ni,ij,nj->n", left, matrix, right)

    g00, cross = form(own, g, own), form(own, g, x)
    explained = cross**2 / g00 if rules.conditioning == KNOWN and len(facts) < d else 0.0
    return form(x, g, x) - explained, cross, form(f, g, f), form(x, v, x), form(own, v, x), form(f, v, f)


def kept_forms(tables):
    slots = int(tables.slots[0])
    rows = tables.start[slots]
    return (
        tables.width2[0, :rows], tables.cross[0, :rows], tables.g00[0, :slots],
        tables.vxx[0, :rows], tables.v0x[0, :rows], tables.v00[0, :slots],
    )  # fmt: skip


def assert_direct(tables, cost_gram, value_gram, rules, scale, facts=()):
    direct = direct_forms(tables, cost_gram, value_gram, rules, facts)
    for name, kept, expected in zip(NAMES, kept_forms(tables), direct, strict=True):
        np.testing.assert_allclose(kept, expected, rtol=1e-9, atol=1e-11 * scale, err_msg=name)


@law
@given(
    seeds, st.integers(1, 5), st.integers(1, 4), ridges, ridges, st.sampled_from([KNOWN, MEASURED]),
    st.lists(st.integers(0, PENDING + 2), max_size=25),
)  # fmt: skip
def test_tables_after_any_updates_are_the_direct_forms(seed, d, states, cost_ridge, value_ridge, conditioning, bursts):
    """Bursts of observations between refreshes: none, a few (owed updates), or too many (a rebuild)."""
    rng, rules = np.random.default_rng(seed), make_rules(conditioning=conditioning)
    tables, (costs, values) = tables_of(rng, states, d), sums(cost_ridge, value_ridge, d)
    cost_gram, value_gram = cost_ridge * np.eye(d), value_ridge * np.eye(d)
    refreshed(tables, costs, values, rules)
    for burst in bursts:
        for x in unit_ball(rng, burst, d):
            value_gram += np.outer(x, x)
            measured = rng.random() < 0.7  # some costs are not measured
            cost_gram += np.outer(x, x) if measured else 0.0
            see(costs if measured else None, values, x)
        refreshed(tables, costs, values, rules)
        assert_direct(tables, cost_gram, value_gram, rules, 1.0 / min(cost_ridge, value_ridge))


@law
@given(seeds, st.integers(2, 5), st.integers(1, 3), ridges, st.lists(st.integers(0, PENDING + 2), max_size=20))
def test_tables_with_facts_in_between_are_the_direct_forms_of_the_reduced_regression(seed, d, states, ridge, bursts):
    """A fact is remembered now and then, until one direction is left; B(BᵀAB)⁻¹Bᵀ takes the place of A⁻¹."""
    rng, rules, facts = np.random.default_rng(seed), make_rules(), []
    tables, (costs, values) = tables_of(rng, states, d), sums(ridge, 1.0, d)
    cost_gram, value_gram = ridge * np.eye(d), np.eye(d)
    refreshed(tables, costs, values, rules)
    for burst in bursts:
        for x in unit_ball(rng, burst, d):
            see(costs, values, x)
            cost_gram += np.outer(x, x)
            value_gram += np.outer(x, x)
        if rng.random() < 0.3 and len(facts) < d - 1:
            f = unit_ball(rng, 1, d)[0]
            if np.linalg.cond(np.array([*facts, f])) < 20.0:
                facts.append(f)
                assert remember(costs, 0, f, np.zeros(1), np.ones(1), np.zeros((3, d)))
        refreshed(tables, costs, values, rules)
        assert_direct(tables, cost_gram, value_gram, rules, 1e2 / ridge, facts)


@law
@given(seeds, st.integers(2, 4), st.integers(1, 8))
def test_a_state_met_late_has_the_same_forms_as_one_known_from_the_start(seed, d, count):
    rng = np.random.default_rng(seed)
    early, rows = tables_of(rng, 2, d), unit_ball(rng, count, d)
    late = new_tables(d, 1, 1, 1)
    first = KnownState(0, StarActions(early.phi_0[:, 0], early.features[:, :ENDS].T), np.zeros((1, 1)))
    second = KnownState(1, StarActions(early.phi_0[:, 1], early.features[:, ENDS : 2 * ENDS].T), np.zeros((1, 1)))
    late = add_state(late, first)
    learned = [sums(0.5, 1.0, d) for _ in range(2)]
    for x in rows:
        for tables, (costs, values) in zip((early, late), learned, strict=True):
            refreshed(tables, costs, values)
            see(costs, values, x)
    late = add_state(late, second)
    refreshed(early, *learned[0])
    refreshed(late, *learned[1])
    for name, ours, theirs in zip(NAMES, kept_forms(early), kept_forms(late), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-14, err_msg=name)


@law
@given(seeds, st.integers(1, 4))
def test_the_baseline_row_of_a_finite_set_has_no_width(seed, states):
    rng = np.random.default_rng(seed)
    tables, (costs, values) = tables_of(rng, states, 3, finite=True), sums(0.1, 1.0, 3)
    for x in unit_ball(rng, 40, 3):
        see(costs, values, x)
        refreshed(tables, costs, values)
    for slot in range(states):
        row = tables.start[slot] + tables.baseline_row[slot]
        assert tables.width2[0, row] <= 1e-20
        assert tables.cross[0, row] == pytest.approx(tables.g00[0, slot], rel=1e-12)


def inflated_and_exact(rng, count, d, ridge, condition, *, every):
    """Widths as the safe sets use them, beside the exact ones, after `count` updates refreshed every few."""
    tables, (costs, values) = tables_of(rng, 3, d), sums(ridge, 1.0, d)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    scale = np.logspace(0.0, -np.log10(condition), d)
    rows = np.ascontiguousarray((unit_ball(rng, count, d) * scale) @ basis.T)
    for n, x in enumerate(rows):
        see(costs, values, x)
        if n % every == 0:
            refreshed(tables, costs, values)
    refreshed(tables, costs, values)
    truth = exact_factor(rows, ridge)
    for slot in range(3):
        part = slice(tables.start[slot], tables.start[slot + 1])
        _, _, width = affine(
            mean=np.zeros(ENDS), width2=tables.width2[0, part], cross=tables.cross[0, part], g00=tables.g00[0, slot],
            residual=0.0, baseline_cost=0.0, threshold=1.0, radius=1.0,
        )  # fmt: skip
        f = tables.phi_0[:, slot]
        for i, x in enumerate(tables.features[:, part].T):
            yield width[i], exact_width(truth, f, x), exact_norm(truth, x)


@law
@given(seeds, st.integers(2, 5), st.integers(0, 3 * UPDATE_LIMIT), ridges, st.floats(0.0, 6.0), st.integers(1, 6))
def test_a_width_with_its_allowance_is_never_below_the_exact_width(seed, d, count, ridge, digits, every):
    for width, exact, norm in inflated_and_exact(
        np.random.default_rng(seed), count, d, ridge, 10.0**digits, every=every
    ):
        assert width >= exact
        assert width <= exact + 1e-8 * norm


# The plan


def test_pooled_steps_share_one_estimate_and_radius():
    """One regression for all steps: what the last step fitted is carried to the first."""
    agent = SlucbQvi(two_arm_problem(horizon=3), SlucbConfig(pooled=True))
    agent.register([0])
    agent.observe(Transition(1, 0, PHI, 0.5, 0.3, 0))
    agent.plan()
    assert (agent.current.margin > 0.0).all()
    assert (agent.current.facts == 1).all()
    for array in (agent.current.gamma_hat, agent.current.radius, agent.current.margin, agent.current.facts):
        np.testing.assert_array_equal(array, np.tile(array[:1], (3, *[1] * (array.ndim - 1))))


def test_a_plan_covers_every_known_state_and_counts_itself():
    agent = SlucbQvi(two_arm_problem())
    agent.register(range(3))
    for plans in (1, 2):
        agent.plan()
        assert (agent.current.planned[0], agent.current.made[0]) == (3, plans)


def test_a_record_is_changed_by_making_another():
    plan = new_plan(1, 1, 1, 2)
    other = replaced(plan, made=np.array([7], dtype=np.int64))
    assert (plan.made[0], other.made[0]) == (0, 7)
    assert other.weights is plan.weights
