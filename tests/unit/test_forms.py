"""Products of many rows and columns at once are those of the plain loops, bit for bit."""

import numpy as np
import pytest

from tether.learning.forms import add_rows, project_columns, project_rows, turned, whiten_columns
from tether.learning.ridge import whiten

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 11])
def test_rows_are_added_one_by_one_in_their_order(rows):
    """Four in one pass, but each sum in the order of a plain loop: equal, not close."""
    matrix, weights, out = RNG.normal(size=(14, 9)), RNG.normal(size=14), RNG.normal(size=6)
    expected = out.copy()
    for k in range(2, 2 + rows):
        expected = expected - weights[k] * matrix[k, 3:9]
    add_rows(matrix, 2, 2 + rows, 3, weights, -1.0, out)
    np.testing.assert_array_equal(out, expected)


def test_a_projection_is_the_inner_product_with_each_column():
    """600 columns are more than one block."""
    features, vector, out = RNG.normal(size=(7, 600)), RNG.normal(size=7), np.full(600, np.nan)
    project_rows(features, 590, vector, out)
    expected = features[0] * vector[0]
    for k in range(1, 7):
        expected = expected + features[k] * vector[k]
    np.testing.assert_array_equal(out[:590], expected[:590])
    assert np.isnan(out[590:]).all()


def test_columns_are_whitened_as_each_of_them_alone():
    factor = np.triu(RNG.normal(size=(11, 11))) + 4.0 * np.eye(11)
    columns = RNG.normal(size=(11, 6))
    expected = columns.copy()
    for i in range(6):
        alone = columns[:, i].copy()
        whiten(factor, alone)
        expected[:, i] = alone
    lower = turned(factor)
    np.testing.assert_array_equal(lower, factor.T)
    whiten_columns(lower, columns)
    np.testing.assert_array_equal(columns, expected)


def test_columns_are_projected_on_the_basis():
    basis, columns = np.linalg.qr(RNG.normal(size=(9, 5)))[0], RNG.normal(size=(9, 4))
    np.testing.assert_allclose(project_columns(np.ascontiguousarray(basis), columns), basis.T @ columns, atol=1e-14)
