"""Gram matrices, factors and rank-one updates on 2 x 2 numbers.

Throughout A = [[4, 2], [2, 2]] = UᵀU with U = [[2, 1], [0, 1]], and A^{-1} = [[0.5, -0.5], [-0.5, 1]].
"""

import numpy as np
import pytest

from tether.learning.ridge import (
    PENDING,
    add_observation,
    inverse_norm,
    lift,
    new_ridge,
    project,
    solve,
    unwhiten,
    update_factor,
    whiten,
)

U = np.array([[2.0, 1.0], [0.0, 1.0]])


def test_whitening_solves_with_the_transposed_factor():
    """Uᵀv = (2, 2): v_1 = 2/2 = 1, v_2 = 2 − 1·1 = 1. And ‖v‖² = 2 = xᵀA^{-1}x."""
    x = np.array([2.0, 2.0])
    whiten(U, x)
    np.testing.assert_array_equal(x, [1.0, 1.0])


def test_unwhitening_solves_with_the_factor():
    """U y = (1, 1): y_2 = 1, y_1 = (1 − 1·1)/2 = 0."""
    v = np.array([1.0, 1.0])
    unwhiten(U, v)
    np.testing.assert_array_equal(v, [0.0, 1.0])


def test_a_solution_is_the_inverse_times_the_moment():
    """A^{-1}(2, 2) = (1 − 1, −1 + 2) = (0, 1), and the moment itself is left alone."""
    moment = np.array([2.0, 2.0])
    np.testing.assert_array_equal(solve(U, moment), [0.0, 1.0])
    np.testing.assert_array_equal(moment, [2.0, 2.0])


def test_the_inverse_norm_is_the_root_of_the_quadratic_form():
    """(1, 0): √0.5. (0, 1): 1. (2, 2): √2."""
    norms = inverse_norm(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]), U)
    np.testing.assert_allclose(norms, [np.sqrt(0.5), 1.0, np.sqrt(2.0)], rtol=1e-15)


def test_a_rank_one_update_of_the_identity():
    """I + (1, 1)(1, 1)ᵀ = [[2, 1], [1, 2]]: U_11 = √2, U_12 = 1/√2, U_22 = √(2 − 1/2)."""
    factor = np.eye(2)
    update_factor(factor, np.array([1.0, 1.0]))
    np.testing.assert_allclose(factor, [[np.sqrt(2.0), np.sqrt(0.5)], [0.0, np.sqrt(1.5)]], rtol=1e-15)


def test_a_rank_one_update_of_a_tiny_ridge_keeps_its_digits():
    """λ = 1e-12: 1e-12 I + (1, 1)(1, 1)ᵀ has U_11² = 1 + λ and U_22² = λ(2 + λ)/(1 + λ), so U_22 = √2·1e-6 almost."""
    factor = 1e-6 * np.eye(2)
    update_factor(factor, np.array([1.0, 1.0]))
    assert factor[0, 0] == pytest.approx(1.0, rel=1e-11)
    assert factor[1, 1] == pytest.approx(np.sqrt(2.0) * 1e-6, rel=1e-9)


def test_an_observation_adds_its_outer_product_and_its_determinant():
    """λ = 2, φ = (1, 0): A = diag(3, 2), U = diag(√3, √2), log det(A/λ) = log 1.5."""
    ridge = new_ridge(1, 2.0, np.eye(2))
    add_observation(ridge, 0, np.array([1.0, 0.0]))
    np.testing.assert_array_equal(ridge.gram[0], np.diag([3.0, 2.0]))
    np.testing.assert_allclose(ridge.factor[0], np.diag(np.sqrt([3.0, 2.0])), rtol=1e-15)
    assert ridge.log_det[0] == pytest.approx(np.log(1.5), rel=1e-15)
    assert ridge.updates[0] == 1


def test_an_observation_leaves_other_stages_alone():
    ridge = new_ridge(3, 2.0, np.eye(2))
    add_observation(ridge, 1, np.array([0.6, 0.8]))
    np.testing.assert_array_equal(ridge.gram[[0, 2]], [2.0 * np.eye(2)] * 2)
    np.testing.assert_array_equal(ridge.log_det[[0, 2]], 0.0)


def test_an_observation_leaves_its_direction_and_scale_for_the_tables():
    """Once tables exist, g = A^{-1}φ = (0.5, 0) and D = 1 + φᵀg = 1.5 are what they owe."""
    ridge = new_ridge(1, 2.0, np.eye(2))
    ridge.pending_count[0] = 0
    add_observation(ridge, 0, np.array([1.0, 0.0]))
    assert ridge.pending_count[0] == 1
    np.testing.assert_allclose(ridge.pending[0, 0], [0.5, 0.0], rtol=1e-15)
    assert ridge.pending_scale[0, 0] == pytest.approx(1.5, rel=1e-15)
    assert ridge.growth[0] == pytest.approx(np.log(1.5), rel=1e-15)


def test_more_owed_updates_than_fit_ask_for_a_rebuild():
    ridge = new_ridge(1, 2.0, np.eye(2))
    ridge.pending_count[0] = 0
    for _ in range(PENDING + 3):
        add_observation(ridge, 0, np.array([1.0, 0.0]))
    assert ridge.pending_count[0] == PENDING + 1


def test_a_regression_inside_a_subspace_sees_the_projected_feature():
    """Basis (0, 1): φ = (0.6, 0.8) has coordinate 0.8, so A = 1 + 0.64 and the first axis is known."""
    ridge = new_ridge(1, 1.0, np.array([[0.0], [1.0]]))
    add_observation(ridge, 0, np.array([0.6, 0.8]))
    assert ridge.gram[0, 0, 0] == pytest.approx(1.64, rel=1e-15)
    np.testing.assert_array_equal(project(ridge.basis, np.array([0.6, 0.8])), [0.8])
    np.testing.assert_array_equal(lift(ridge.basis, np.array([2.0])), [0.0, 2.0])


def test_an_empty_subspace_has_nothing_to_learn():
    ridge = new_ridge(1, 1.0, np.eye(2)[:, :0])
    add_observation(ridge, 0, np.array([0.6, 0.8]))
    assert ridge.log_det[0] == 0.0
    np.testing.assert_array_equal(lift(ridge.basis, np.zeros(0)), [0.0, 0.0])


def test_the_determinant_is_taken_afresh_every_4096_updates():
    """λ = 2, φ = (1, 0): log det(A/λ) = log 1.5, whatever rounding had made of it before."""
    ridge = new_ridge(1, 2.0, np.eye(2))
    ridge.updates[0], ridge.log_det[0], ridge.pending_count[0] = 4095, 0.3, 0
    add_observation(ridge, 0, np.array([1.0, 0.0]))
    assert ridge.log_det[0] == pytest.approx(np.log(1.5), rel=1e-14)
    assert ridge.pending_count[0] == 1  # U itself is as it was: the tables owe this one update and no more


@pytest.mark.parametrize("size", [1, 4, 7, 8, 9, 13, 40])
def test_large_triangles_are_solved_like_small_ones(size):
    """From d = 8 on rows are taken four at a time; the answer is the one of numpy's own solver."""
    rng = np.random.default_rng(size)
    factor = np.triu(rng.normal(size=(size, size))) + 5.0 * np.eye(size)
    x = rng.normal(size=size)
    whitened, unwhitened = x.copy(), x.copy()
    whiten(factor, whitened)
    unwhiten(factor, unwhitened)
    np.testing.assert_allclose(factor.T @ whitened, x, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(factor @ unwhitened, x, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(solve(factor, x), np.linalg.solve(factor.T @ factor, x), rtol=1e-9, atol=1e-12)


def test_an_observation_that_finds_no_room_for_its_direction_still_counts_the_same():
    """A^{-1}φ is only worked out while the tables may still ask for it; det(A) and U do not depend on that."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(PENDING + 5, 9))
    ridge = new_ridge(1, 0.5, np.eye(9))
    ridge.pending_count[0] = 0
    for feature in features:
        add_observation(ridge, 0, feature)
    gram = 0.5 * np.eye(9) + features.T @ features
    assert ridge.pending_count[0] == PENDING + 1
    assert ridge.log_det[0] == pytest.approx(np.linalg.slogdet(gram / 0.5)[1], rel=1e-13)
    np.testing.assert_allclose(ridge.factor[0].T @ ridge.factor[0], gram, rtol=1e-12, atol=1e-12)
