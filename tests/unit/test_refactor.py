"""The factor computed afresh from the Gram matrix.

A = [[4, 2], [2, 2]] = UᵀU with U = [[2, 1], [0, 1]].
"""

import numpy as np
import pytest

from tether.learning.ridge import cholesky, new_ridge, refactor

A = np.array([[4.0, 2.0], [2.0, 2.0]])
U = np.array([[2.0, 1.0], [0.0, 1.0]])


def test_the_factor_of_a_is_upper_triangular_with_product_a():
    """U_11 = √4 = 2; U_12 = 2/2 = 1; U_22 = √(2 − 1²) = 1."""
    factor = np.full((2, 2), 9.0)
    assert cholesky(A, factor)
    np.testing.assert_array_equal(factor, U)


def test_a_matrix_that_is_not_positive_definite_is_refused():
    """[[1, 2], [2, 1]] has eigenvalue −1: the second pivot is 1 − 2² = −3."""
    assert not cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]), np.empty((2, 2)))


def test_a_matrix_with_a_nan_is_refused():
    assert not cholesky(np.array([[1.0, 0.0], [0.0, np.nan]]), np.empty((2, 2)))


def test_refactoring_a_sound_matrix_gives_its_determinant():
    """A = [[4, 2], [2, 2]], λ = 2: det(A/λ) = (8 − 4)/4 = 1, so log det is 0."""
    ridge = new_ridge(1, 2.0, np.eye(2))
    ridge.gram[0], ridge.factor[0] = A, U
    ridge.log_det[0] = 0.3
    refactor(ridge, 0)
    assert ridge.log_det[0] == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(np.abs(ridge.factor[0]), U, rtol=1e-15)


def test_refactoring_never_replaces_a_good_factor_by_a_bad_one():
    ridge = new_ridge(1, 2.0, np.eye(2))
    ridge.gram[0] = np.array([[1.0, 2.0], [2.0, 1.0]])  # rounding gone wild
    refactor(ridge, 0)
    np.testing.assert_allclose(ridge.factor[0], np.sqrt(2.0) * np.eye(2), rtol=1e-15)
