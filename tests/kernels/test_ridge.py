"""Gram matrices, factors, sums and rank-one updates: on 2 x 2 numbers, and as laws.

By hand, A = [[4, 2], [2, 2]] = UᵀU with U = [[2, 1], [0, 1]], and A^{-1} = [[0.5, -0.5], [-0.5, 1]].
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.calls import fit, make_rules
from kernels.generators import exact_factor, exact_norm, feed, law, regressions, seeds, unit_ball
from tether.kernels.ridge import (
    PENDING,
    add_products,
    add_rows,
    condition_number,
    dot,
    factorise_gram,
    gram_residual,
    inner,
    into_subspace,
    inverse_norm,
    new_costs,
    new_values,
    observe_cost,
    observe_value,
    out_of_subspace,
    product_error,
    project_rows,
    refresh_spectrum,
    relative_error,
    unwhiten,
    update_factor,
    whiten,
    whiten_columns,
)

U = np.array([[2.0, 1.0], [0.0, 1.0]])
PHI = np.array([0.6, 0.8])
RNG = np.random.default_rng(3)


def seen_cost(costs, feature, cost=0.0, *, stage=0):
    """One observation of the cost regression."""
    size = costs.gram.shape[1]
    observe_cost(costs, stage, np.array(feature), np.atleast_1d(np.float64(cost)), np.zeros((3, size)))
    return costs


def seen_value(values, feature, reward=0.0, following=-1, *, stage=0):
    """One observation of the value regression."""
    observe_value(values, stage, np.array(feature), reward, following, np.zeros((3, values.factor.shape[1])))
    return values


def gram_of(values, stage=0):
    return values.factor[stage].T @ values.factor[stage]


# Products along memory


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 11])
def test_rows_are_added_one_by_one_in_their_order(rows):
    """Four in one pass, but each sum in the order of a plain loop: equal, not close."""
    matrix, weights, out = RNG.normal(size=(14, 9)), RNG.normal(size=14), RNG.normal(size=6)
    expected = out.copy()
    for k in range(2, 2 + rows):
        expected = expected - weights[k] * matrix[k, 3:9]
    add_rows(matrix, 2, 2 + rows, 3, weights, -1.0, out)
    np.testing.assert_array_equal(out, expected)


def test_rows_are_projected_on_a_vector():
    """Columns (1, 2) and (3, 4) on (10, 1): 12 and 34; nothing past the count is written."""
    out = np.full(3, -1.0)
    project_rows(np.array([[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]), 2, np.array([10.0, 1.0]), out)
    np.testing.assert_array_equal(out, [12.0, 34.0, -1.0])


def test_a_projection_is_the_inner_product_with_each_column():
    """600 columns are more than one block."""
    features, vector, out = RNG.normal(size=(7, 600)), RNG.normal(size=7), np.full(600, np.nan)
    project_rows(features, 590, vector, out)
    expected = features[0] * vector[0]
    for k in range(1, 7):
        expected = expected + features[k] * vector[k]
    np.testing.assert_array_equal(out[:590], expected[:590])
    assert np.isnan(out[590:]).all()


def test_a_dot_product():
    assert dot(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 11.0


def test_an_inner_product_reads_one_column():
    """Column 1 of [[1, 3], [2, 4]] on (10, 1) is 34."""
    assert inner(np.array([[1.0, 3.0], [2.0, 4.0]]), 1, np.array([10.0, 1.0])) == 34.0


# Triangles


def test_whitening_solves_with_the_transposed_factor():
    """Uᵀv = (2, 2): v_1 = 2/2 = 1, v_2 = 2 − 1·1 = 1. And ‖v‖² = 2 = xᵀA^{-1}x."""
    x = np.array([2.0, 2.0])
    whiten(U, x, 2)
    np.testing.assert_array_equal(x, [1.0, 1.0])


def test_unwhitening_solves_with_the_factor():
    """U y = (1, 1): y_2 = 1, y_1 = (1 − 1·1)/2 = 0."""
    v = np.array([1.0, 1.0])
    unwhiten(U, v, 2)
    np.testing.assert_array_equal(v, [0.0, 1.0])


def test_whitening_and_unwhitening_is_the_inverse_times_the_moment():
    """A^{-1}(2, 2) = (1 − 1, −1 + 2) = (0, 1)."""
    moment = np.array([2.0, 2.0])
    whiten(U, moment, 2)
    unwhiten(U, moment, 2)
    np.testing.assert_array_equal(moment, [0.0, 1.0])


def test_only_the_leading_part_of_a_triangle_is_used():
    """The first 2 rows and entries; what lies beyond is neither read nor written."""
    factor = np.full((4, 4), np.nan)
    factor[:2, :2] = U
    x = np.array([2.0, 2.0, 7.0, 7.0])
    whiten(factor, x, 2)
    np.testing.assert_array_equal(x, [1.0, 1.0, 7.0, 7.0])
    unwhiten(factor, x, 2)
    np.testing.assert_array_equal(x, [0.0, 1.0, 7.0, 7.0])


@pytest.mark.parametrize("size", [1, 4, 7, 8, 9, 13, 40])
def test_large_triangles_are_solved_like_small_ones(size):
    """From d = 8 on rows are taken four at a time; the answer is the one of numpy's own solver."""
    rng = np.random.default_rng(size)
    factor = np.triu(rng.normal(size=(size, size))) + 5.0 * np.eye(size)
    x = rng.normal(size=size)
    whitened, unwhitened = x.copy(), x.copy()
    whiten(factor, whitened, size)
    unwhiten(factor, unwhitened, size)
    np.testing.assert_allclose(factor.T @ whitened, x, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(factor @ unwhitened, x, rtol=1e-12, atol=1e-13)
    unwhiten(factor, whitened, size)
    np.testing.assert_allclose(whitened, np.linalg.solve(factor.T @ factor, x), rtol=1e-9, atol=1e-12)


def test_columns_are_whitened_as_each_of_them_alone():
    """Whichever loop is the inner one, each sum keeps its order; only the first columns are touched."""
    factor = np.triu(RNG.normal(size=(11, 11))) + 4.0 * np.eye(11)
    columns = RNG.normal(size=(11, 6))
    expected = columns.copy()
    for i in range(5):
        alone = columns[:, i].copy()
        whiten(factor, alone, 11)
        expected[:, i] = alone
    whiten_columns(factor, 11, columns, 5)
    np.testing.assert_array_equal(columns, expected)


def test_the_inverse_norm_is_the_root_of_the_quadratic_form():
    """(1, 0): √0.5. (0, 1): 1. (2, 2): √2."""
    norms = inverse_norm(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]), U)
    np.testing.assert_allclose(norms, [np.sqrt(0.5), 1.0, np.sqrt(2.0)], rtol=1e-15)


def test_a_rank_one_update_of_the_identity():
    """I + (1, 1)(1, 1)ᵀ = [[2, 1], [1, 2]]: U_11 = √2, U_12 = 1/√2, U_22 = √(2 − 1/2)."""
    factor = np.eye(2)
    update_factor(factor, np.array([1.0, 1.0]), 2)
    np.testing.assert_allclose(factor, [[np.sqrt(2.0), np.sqrt(0.5)], [0.0, np.sqrt(1.5)]], rtol=1e-15)


def test_a_rank_one_update_of_a_tiny_ridge_keeps_its_digits():
    """λ = 1e-12: 1e-12 I + (1, 1)(1, 1)ᵀ has U_11² = 1 + λ and U_22² = λ(2 + λ)/(1 + λ), so U_22 = √2·1e-6 almost."""
    factor = 1e-6 * np.eye(2)
    update_factor(factor, np.array([1.0, 1.0]), 2)
    assert factor[0, 0] == pytest.approx(1.0, rel=1e-11)
    assert factor[1, 1] == pytest.approx(np.sqrt(2.0) * 1e-6, rel=1e-9)


@law
@given(regressions(most=15))
def test_the_factor_after_rank_one_updates_is_the_factor_of_the_sum(regression):
    state = regression.sums
    np.testing.assert_allclose(state.factor[0].T @ state.factor[0], regression.gram, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(state.gram[0], regression.gram, rtol=0.0, atol=1e-13)
    assert state.log_det[0] == pytest.approx(
        np.linalg.slogdet(regression.gram / regression.ridge)[1], rel=1e-9, abs=1e-12
    )


def test_a_weighted_sum_of_two_gram_matrices_is_factorised():
    """[[3, 2], [2, 1]] + 0.5 [[2, 0], [0, 2]] = [[4, 2], [2, 2]] = UᵀU."""
    factor = np.full((2, 2), np.nan)
    assert factorise_gram(np.array([[3.0, 2.0], [2.0, 1.0]]), 0.5, 2.0 * np.eye(2), factor)
    np.testing.assert_array_equal(factor, U)


def test_a_matrix_that_is_not_positive_definite_is_refused():
    assert not factorise_gram(np.array([[1.0, 2.0], [2.0, 1.0]]), 0.0, np.eye(2), np.empty((2, 2)))
    assert not factorise_gram(np.full((2, 2), np.nan), 0.0, np.eye(2), np.empty((2, 2)))


def test_a_subspace_is_entered_and_left_by_its_basis():
    """Basis (0, 1): φ = (0.6, 0.8) has the coordinate 0.8, and 2 of it is (0, 2)."""
    basis, inside, lifted = np.array([[0.0, 9.0], [1.0, 9.0]]), np.full(2, np.nan), np.full(2, np.nan)
    into_subspace(basis, 1, PHI, inside)
    assert inside[0] == 0.8
    assert np.isnan(inside[1])
    out_of_subspace(basis, 1, np.array([2.0, 7.0]), lifted)
    np.testing.assert_array_equal(lifted, [0.0, 2.0])


def test_an_empty_subspace_holds_only_the_origin():
    lifted = np.full(2, np.nan)
    out_of_subspace(np.eye(2), 0, np.full(2, np.nan), lifted)
    np.testing.assert_array_equal(lifted, [0.0, 0.0])


# Sums that lose nothing


def test_a_compensated_sum_keeps_what_a_plain_sum_loses():
    """1 + 1e-20 is 1 in floating point; a thousand of them leave 1e-17 in the low part."""
    high, low = np.ones((1, 1, 1)), np.zeros((1, 1, 1))
    for _ in range(1000):
        add_products(high, low, 0, 0, 1e-10, np.array([1e-10]))
    assert high[0, 0, 0] == 1.0
    assert low[0, 0, 0] == pytest.approx(1e-17, rel=1e-12, abs=0.0)


@law
@given(seeds, st.integers(1, 60))
def test_a_compensated_sum_is_the_exact_sum_of_its_rounded_products(seed, count):
    rng = np.random.default_rng(seed)
    factors, x = 10.0 ** rng.uniform(-8.0, 8.0, count) * rng.choice([-1.0, 1.0], count), rng.normal(size=(count, 2))
    high, low = np.zeros((1, 1, 2)), np.zeros((1, 1, 2))
    for factor, row in zip(factors, x, strict=True):
        add_products(high, low, 0, 0, factor, row)
    for i in range(2):
        terms = [Fraction(factor * row[i]) for factor, row in zip(factors, x, strict=True)]
        size = float(sum(abs(term) for term in terms))
        kept = Fraction(high[0, 0, i]) + Fraction(low[0, 0, i])
        assert abs(float(kept - sum(terms))) <= count**2 * 2.0**-105 * size


@law
@given(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100))
def test_the_error_of_a_product_is_exact(a, b):
    if abs(a) > 1e-100 and abs(b) > 1e-100:
        assert Fraction(product_error(a, b, a * b)) == Fraction(a) * Fraction(b) - Fraction(a * b)


@law
@given(regressions(most=15, least_dimension=2), seeds)
def test_the_residual_has_twice_the_digits(regression, seed):
    """b − Ax in exact arithmetic, at an x for which almost everything cancels."""
    costs = regression.sums
    x = regression.estimate + 1e-14 * np.random.default_rng(seed).normal(size=regression.dimension)
    out = np.full(regression.dimension, np.nan)
    gram_residual(costs, 0, 0, x, out, np.full(regression.dimension, np.nan))
    for k in range(regression.dimension):
        exact, size = Fraction(costs.moment[0, 0, k]) + Fraction(costs.moment_low[0, 0, k]), abs(costs.moment[0, 0, k])
        for i in range(regression.dimension):
            entry = Fraction(costs.gram[0, k, i]) + Fraction(costs.gram_low[0, k, i])
            exact -= entry * Fraction(x[i])
            size += abs(costs.gram[0, k, i] * x[i])
        assert out[k] == pytest.approx(float(exact), rel=1e-12, abs=1e-29 * size + 1e-300)


# Observations


def test_an_observation_adds_its_outer_product_and_its_determinant():
    """λ = 2, φ = (1, 0): A = diag(3, 2), U = diag(√3, √2), log det(A/λ) = log 1.5."""
    costs, values = seen_cost(new_costs(1, 2, 1, 2.0), [1.0, 0.0]), seen_value(new_values(1, 2, 2.0, 1), [1.0, 0.0])
    np.testing.assert_array_equal(costs.gram[0], np.diag([3.0, 2.0]))
    for sums in (costs, values):
        np.testing.assert_allclose(sums.factor[0], np.diag(np.sqrt([3.0, 2.0])), rtol=1e-15)
        assert sums.log_det[0] == pytest.approx(np.log(1.5), rel=1e-15)
        assert sums.updates[0] == 1


def test_an_outcome_enters_every_sum_of_its_stage():
    """φ = (0.6, 0.8), r = 0.5, z = (0.3, −2), s' = 2: Σrφ = (0.3, 0.4), Σzφ and Σ|z|‖φ‖ per constraint, C[2] = φ."""
    costs, values = new_costs(2, 2, 2, 0.5), new_values(2, 2, 1.0, 3)
    seen_cost(costs, PHI, [0.3, -2.0], stage=1)
    seen_value(values, PHI, 0.5, 2, stage=1)
    np.testing.assert_allclose(costs.moment[1], [[0.18, 0.24], [-1.2, -1.6]], rtol=1e-15)
    np.testing.assert_allclose(costs.size[1], [0.3, 2.0], rtol=1e-15)
    np.testing.assert_allclose(costs.gram[1], [[0.86, 0.48], [0.48, 1.14]], rtol=1e-15)
    np.testing.assert_allclose(gram_of(values, 1), [[1.36, 0.48], [0.48, 1.64]], rtol=1e-15)
    np.testing.assert_allclose(values.reward_moment, [[0.0, 0.0], [0.3, 0.4]], rtol=1e-15)
    np.testing.assert_array_equal(values.transition_moment[1], [[0.0, 0.0], [0.0, 0.0], PHI])


def test_an_observation_leaves_other_stages_alone():
    costs, values = seen_cost(new_costs(3, 2, 1, 2.0), PHI, 1.0, stage=1), new_values(3, 2, 2.0, 1)
    seen_value(values, PHI, 1.0, 0, stage=1)
    np.testing.assert_array_equal(costs.gram[[0, 2]], [2.0 * np.eye(2)] * 2)
    for array in (costs.moment, costs.size, values.reward_moment, values.transition_moment):
        np.testing.assert_array_equal(array[[0, 2]], 0.0)
    for sums in (costs, values):
        np.testing.assert_array_equal(sums.factor[0], sums.factor[2])
        np.testing.assert_array_equal(sums.log_det[[0, 2]], 0.0)
        np.testing.assert_array_equal(sums.updates, [0, 1, 0])


def test_the_last_step_has_no_next_state():
    values = seen_value(new_values(1, 2, 1.0, 3), PHI, 0.5, -1)
    np.testing.assert_array_equal(values.transition_moment, 0.0)


def test_an_observation_leaves_its_direction_and_scale_for_the_tables():
    """Once tables exist, g = A^{-1}φ = (0.5, 0) and D = 1 + φᵀg = 1.5 are what they owe."""
    costs, values = new_costs(1, 2, 1, 2.0), new_values(1, 2, 2.0, 1)
    costs.owed.count[0] = values.owed.count[0] = 0
    for owed in (seen_cost(costs, [1.0, 0.0]).owed, seen_value(values, [1.0, 0.0]).owed):
        assert owed.count[0] == 1
        np.testing.assert_allclose(owed.direction[0, 0], [0.5, 0.0], rtol=1e-15)
        assert owed.scale[0, 0] == pytest.approx(1.5, rel=1e-15)
        assert owed.growth[0] == pytest.approx(np.log(1.5), rel=1e-15)


def test_more_owed_updates_than_fit_ask_for_a_rebuild():
    costs, values = new_costs(1, 2, 1, 2.0), new_values(1, 2, 2.0, 1)
    costs.owed.count[0] = values.owed.count[0] = 0
    for _ in range(PENDING + 3):
        seen_cost(costs, [1.0, 0.0])
        seen_value(values, [1.0, 0.0])
    assert costs.owed.count[0] == values.owed.count[0] == PENDING + 1


def test_an_observation_that_finds_no_room_for_its_direction_still_counts_the_same():
    """A^{-1}φ is only worked out while the tables may still ask for it; det(A) and U do not depend on that."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(PENDING + 5, 9))
    costs, values = new_costs(1, 9, 1, 0.5), new_values(1, 9, 0.5, 1)
    costs.owed.count[0] = values.owed.count[0] = 0
    for feature in features:
        seen_cost(costs, feature)
        seen_value(values, feature)
    gram = 0.5 * np.eye(9) + features.T @ features
    for sums in (costs, values):
        assert sums.owed.count[0] == PENDING + 1
        assert sums.log_det[0] == pytest.approx(np.linalg.slogdet(gram / 0.5)[1], rel=1e-13)
        np.testing.assert_allclose(gram_of(sums), gram, rtol=1e-12, atol=1e-12)


def test_the_determinant_is_taken_afresh_every_4096_updates():
    """λ = 2, φ = (1, 0): log det(A/λ) = log 1.5, whatever rounding had made of it before."""
    costs, values = new_costs(1, 2, 1, 2.0), new_values(1, 2, 2.0, 1)
    for sums, see in ((costs, seen_cost), (values, seen_value)):
        sums.updates[0], sums.log_det[0], sums.owed.count[0] = 4095, 0.3, 0
        see(sums, [1.0, 0.0])
        assert sums.log_det[0] == pytest.approx(np.log(1.5), rel=1e-14)
        assert sums.owed.count[0] == 1  # U itself is as it was: the tables owe this one update and no more


# Laws: what was learned is a sum, additive and free of order

STAGES, STATES, D = 2, 3, 3
VALUE_SUMS = ("reward_moment", "transition_moment")


@st.composite
def histories(draw, most=40):
    """Rows (stage, feature, reward, cost or None, next state or -1)."""
    rng = np.random.default_rng(draw(seeds))
    rows = []
    for x in unit_ball(rng, draw(st.integers(0, most)), D):
        cost = None if rng.random() < 0.2 else float(rng.normal())
        rows.append((int(rng.integers(STAGES)), x, float(rng.uniform()), cost, int(rng.integers(-1, STATES))))
    return rows


def learn(rows):
    costs, values = new_costs(STAGES, D, 1, 0.5), new_values(STAGES, D, 1.0, STATES)
    for stage, x, reward, cost, following in rows:
        if cost is not None:
            seen_cost(costs, x, cost, stage=stage)
        seen_value(values, x, reward, following, stage=stage)
    return costs, values


@law
@given(histories(), seeds)
def test_what_was_learned_does_not_depend_on_the_order(rows, seed):
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    (costs, values), (other_costs, other_values) = learn(rows), learn(shuffled)
    for name in ("gram", "moment", "size"):
        np.testing.assert_allclose(getattr(costs, name), getattr(other_costs, name), atol=1e-12, err_msg=name)
    for name in VALUE_SUMS:
        np.testing.assert_allclose(getattr(values, name), getattr(other_values, name), atol=1e-12, err_msg=name)
    for ours, theirs in ((costs, other_costs), (values, other_values)):
        np.testing.assert_allclose(ours.log_det, theirs.log_det, atol=1e-11)
        np.testing.assert_allclose(np.abs(ours.factor), np.abs(theirs.factor), atol=1e-11)


@law
@given(histories(), st.integers(0, 40))
def test_two_halves_add_up_to_the_whole(rows, cut):
    whole, first, second = learn(rows), learn(rows[:cut]), learn(rows[cut:])
    prior = 0.5 * np.eye(D)
    np.testing.assert_allclose(first[0].gram + second[0].gram - prior, whole[0].gram, atol=1e-12)
    for stage in range(STAGES):
        parts = [gram_of(values, stage) for _, values in (first, second, whole)]
        np.testing.assert_allclose(parts[0] + parts[1] - np.eye(D), parts[2], atol=1e-12)
    for part, names in ((0, ("moment", "size")), (1, VALUE_SUMS)):
        for name in names:
            total = getattr(first[part], name) + getattr(second[part], name)
            np.testing.assert_allclose(total, getattr(whole[part], name), atol=1e-12, err_msg=name)


@law
@given(histories())
def test_the_cost_estimate_is_ridge_regression_on_the_measured_costs_alone(rows):
    costs, _ = learn(rows)
    for stage in range(STAGES):
        measured = [(x, cost) for at, x, _, cost, _ in rows if at == stage and cost is not None]
        x = np.array([row[0] for row in measured]).reshape(-1, D)
        z = np.array([row[1] for row in measured])
        expected = np.linalg.solve(0.5 * np.eye(D) + x.T @ x, x.T @ z)
        gamma_hat, radius, _ = fit(costs, make_rules(), stage=stage)
        np.testing.assert_allclose(gamma_hat[0], expected, atol=1e-10)
        assert radius[0] == pytest.approx(1.0, rel=1e-9)


@law
@given(histories())
def test_log_det_counts_the_growth_of_the_gram_matrix(rows):
    costs, values = learn(rows)
    for stage in range(STAGES):
        for sums, gram in ((costs, costs.gram[stage]), (values, gram_of(values, stage))):
            assert sums.log_det[stage] == pytest.approx(np.linalg.slogdet(gram / sums.ridge)[1], abs=1e-10)


# Laws: the factor does not drift


def test_the_declared_rounding_error_by_hand():
    """λ = 2, φ = (1, 0) once: trace 5, and no eigenvalue of V is proven: cond <= 2.5. With v = 1 proven, 5/3."""
    costs = seen_cost(new_costs(1, 2, 1, 2.0), [1.0, 0.0])
    assert condition_number(costs, 0) == pytest.approx(2.5, rel=1e-15)
    assert relative_error(costs, 0) == pytest.approx(8.0 * 2.0**-52 * 2.0 * np.sqrt(2.5), rel=1e-14, abs=0.0)
    costs.least[0] = 1.0
    assert condition_number(costs, 0) == pytest.approx(5.0 / 3.0, rel=1e-15)


@law
@given(regressions(most=60, least_dimension=2))
def test_the_condition_number_is_never_below_the_true_one(regression):
    costs = regression.sums
    for _ in range(2):
        assert condition_number(costs, 0) >= np.linalg.cond(regression.gram) * (1.0 - 1e-9)
        costs.grid_at[0] = -np.inf
        refresh_spectrum(costs)
    assert costs.least[0] <= max(np.linalg.eigvalsh(regression.features.T @ regression.features)[0], 0.0) + 1e-15


def drifted(ridge, count=30_000, d=5, digits=8.0):
    """The kept sums after many updates, their exact factor, and candidates; condition number 1e8."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = (unit_ball(rng, count, d) * np.logspace(0.0, -digits, d)) @ basis.T
    state = new_costs(1, d, 1, ridge)
    feed(state, rows)
    return state, exact_factor(rows, ridge), np.vstack([basis.T, unit_ball(rng, 20, d)])


def norms(state, truth, candidates):
    """Kept and exact ‖x‖_G of each candidate."""
    return inverse_norm(candidates, state.factor[0]), np.array([exact_norm(truth, x) for x in candidates])


@pytest.mark.parametrize("ridge", [1.0, 1e-4, 1e-8])
def test_the_declared_rounding_error_covers_the_true_one_after_thirty_thousand_updates(ridge):
    """The radius is enlarged by `relative_error`, so that no norm, however drifted, is certified below the truth."""
    state, truth, candidates = drifted(ridge)
    kept, exact = norms(state, truth, candidates)
    assert float(np.abs(kept / exact - 1.0).max()) <= relative_error(state, 0)


@pytest.mark.parametrize("ridge", [1.0, 1e-4])
def test_norms_do_not_drift_in_thirty_thousand_updates(ridge):
    """The slow suite (statistical/test_drift.py) goes to a million updates and to the tables."""
    state, truth, candidates = drifted(ridge)
    kept, exact = norms(state, truth, candidates)
    assert float(np.abs(kept / exact - 1.0).max()) <= 1e-9
    exact_log_det = float(2.0 * np.log(np.diag(truth)).sum() - 5.0 * np.log(np.longdouble(ridge)))
    assert state.log_det[0] == pytest.approx(exact_log_det, abs=1e-9)


def test_the_declared_rounding_error_stays_negligible_where_costs_are_almost_free_of_noise():
    """σ = 1e-5, B = √d: λ = σ²d/B² = 1e-10. A direction that was never played must not blow up every radius."""
    state, _, _ = drifted(1e-10, count=20_000)
    assert relative_error(state, 0) <= 1e-3
