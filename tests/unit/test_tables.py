"""Quadratic forms of one state's candidates, before and after one observation, by hand.

f = (1, 0), x = (0.6, 0.8); both ridges are 1, so at first every form is a plain inner product.
"""

import numpy as np
import pytest

from tether.learning.forms import project_rows
from tether.learning.ridge import add_observation, new_ridge
from tether.learning.tables import add_state, new_tables, refresh
from tether.problem.action_sets import FiniteActions, StarActions
from tether.problem.problem import KnownState

F, X = np.array([1.0, 0.0]), np.array([0.6, 0.8])


def star_tables(states=1):
    tables = new_tables(2, 1, 1, 1)
    for key in range(states):
        tables = add_state(tables, KnownState(key, StarActions(F, X[None]), np.full((1, 1), 0.1)))
    return tables


def refreshed(tables, cost, value):
    refresh(tables, cost, value, 0, True, np.empty((3, tables.features.shape[1])))
    return tables


def forms(tables):
    names = ("width2", "cross", "g00", "vxx", "v0x", "v00")
    return [float(getattr(tables, name)[0, 0]) for name in names]


def test_before_any_data_the_forms_are_inner_products():
    """⟨f, x⟩ = 0.6, ‖x‖² = 1, ‖f‖² = 1: width² = 1 − 0.36 = 0.64."""
    tables = refreshed(star_tables(), new_ridge(1, 1.0, np.eye(2)), new_ridge(1, 1.0, np.eye(2)))
    np.testing.assert_allclose(forms(tables), [0.64, 0.6, 1.0, 1.0, 0.6, 1.0], rtol=1e-15)


def test_a_ridge_divides_every_form():
    """λ_c = 4, λ_v = 2."""
    tables = refreshed(star_tables(), new_ridge(1, 4.0, np.eye(2)), new_ridge(1, 2.0, np.eye(2)))
    np.testing.assert_allclose(forms(tables), [0.16, 0.15, 0.25, 0.5, 0.3, 0.5], rtol=1e-14)


def test_one_observation_of_the_safe_feature_leaves_the_width_and_halves_the_rest():
    """A = diag(2, 1): G = diag(0.5, 1). g00 = 0.5, g0x = 0.3, gxx = 0.18 + 0.64 = 0.82, width² = 0.82 − 0.18 = 0.64."""
    cost, value = new_ridge(1, 1.0, np.eye(2)), new_ridge(1, 1.0, np.eye(2))
    tables = refreshed(star_tables(), cost, value)
    add_observation(cost, 0, F)
    add_observation(value, 0, F)
    refreshed(tables, cost, value)
    np.testing.assert_allclose(forms(tables), [0.64, 0.3, 0.5, 0.82, 0.3, 0.5], rtol=1e-14)
    assert tables.age[0] == 1  # by a rank-one update, not by a rebuild


def test_one_observation_across_the_safe_feature_shrinks_the_width():
    """φ = (0, 1): G = diag(1, 0.5). g00 = 1, g0x = 0.6, gxx = 0.36 + 0.32 = 0.68, width² = 0.32."""
    cost, value = new_ridge(1, 1.0, np.eye(2)), new_ridge(1, 1.0, np.eye(2))
    tables = refreshed(star_tables(), cost, value)
    add_observation(cost, 0, np.array([0.0, 1.0]))
    refreshed(tables, cost, value)
    np.testing.assert_allclose(forms(tables), [0.32, 0.6, 1.0, 1.0, 0.6, 1.0], rtol=1e-14)


def test_refreshing_twice_counts_an_observation_once():
    cost, value = new_ridge(1, 1.0, np.eye(2)), new_ridge(1, 1.0, np.eye(2))
    tables = refreshed(star_tables(), cost, value)
    add_observation(cost, 0, F)
    refreshed(refreshed(tables, cost, value), cost, value)
    assert tables.g00[0, 0] == pytest.approx(0.5, rel=1e-15)


def test_a_new_state_brings_its_forms_and_leaves_the_others():
    cost, value = new_ridge(1, 1.0, np.eye(2)), new_ridge(1, 1.0, np.eye(2))
    tables = refreshed(star_tables(), cost, value)
    add_observation(cost, 0, F)
    tables = add_state(tables, KnownState(1, StarActions(X, F[None]), np.full((1, 1), 0.2)))
    refreshed(tables, cost, value)
    assert tables.slots[0] == 2
    np.testing.assert_allclose(tables.g00[0, :2], [0.5, 0.82], rtol=1e-14)
    np.testing.assert_allclose(tables.cross[0, :2], [0.3, 0.3], rtol=1e-14)


def test_room_grows_with_the_states_and_keeps_what_was_there():
    tables = star_tables(states=100)
    assert tables.slots[0] == 100
    np.testing.assert_array_equal(tables.phi_0[:, :100], np.tile(F[:, None], 100))
    np.testing.assert_array_equal(tables.features[:, :100], np.tile(X[:, None], 100))
    np.testing.assert_array_equal(tables.start[:101], np.arange(101))


def test_a_finite_set_remembers_which_row_is_the_safe_action():
    tables = new_tables(2, 1, 1, 1)
    tables = add_state(tables, KnownState(0, FiniteActions(np.array([X, F]), 1), np.zeros((1, 1))))
    assert (tables.baseline_row[0], bool(tables.is_star[0])) == (1, False)
    np.testing.assert_array_equal(tables.phi_0[:, 0], F)


def test_rows_are_projected_on_a_vector():
    """Columns (1, 2) and (3, 4) on (10, 1): 12 and 34; nothing past the count is written."""
    out = np.full(3, -1.0)
    project_rows(np.array([[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]), 2, np.array([10.0, 1.0]), out)
    np.testing.assert_array_equal(out, [12.0, 34.0, -1.0])
