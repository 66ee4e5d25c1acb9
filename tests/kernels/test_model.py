"""Tables grow with the states and keep what was there."""

import numpy as np

from tether.kernels.model import add_state, new_tables
from tether.problem.action_sets import FiniteActions, StarActions
from tether.problem.problem import KnownState

F, X = np.array([1.0, 0.0]), np.array([0.6, 0.8])


def star_tables(states):
    tables = new_tables(2, 1, 1, 1)
    for key in range(states):
        tables = add_state(tables, KnownState(key, StarActions(F, X[None]), np.full((1, 1), 0.1 + key)))
    return tables


def test_room_grows_with_the_states_and_keeps_what_was_there():
    tables = star_tables(100)
    assert tables.slots[0] == 100
    np.testing.assert_array_equal(tables.phi_0[:, :100], np.tile(F[:, None], 100))
    np.testing.assert_array_equal(tables.features[:, :100], np.tile(X[:, None], 100))
    np.testing.assert_array_equal(tables.start[:101], np.arange(101))
    np.testing.assert_array_equal(tables.baseline_cost[0, :100, 0], 0.1 + np.arange(100))
    assert np.isnan(tables.final_reward).all()


def test_room_doubles_so_that_n_states_cost_few_copies():
    sizes, tables = set(), new_tables(2, 1, 1, 1)
    for key in range(1000):
        tables = add_state(tables, KnownState(key, StarActions(F, X[None]), np.zeros((1, 1))))
        sizes.add((tables.features.shape[1], tables.phi_0.shape[1]))
    assert len(sizes) <= 13  # 64 … 1024 candidates, 4 … 1024 states


def test_a_finite_set_remembers_which_row_is_the_safe_action():
    tables = new_tables(2, 1, 1, 1)
    tables = add_state(tables, KnownState(0, FiniteActions(np.array([X, F]), 1), np.zeros((1, 1))))
    assert (tables.baseline_row[0], bool(tables.is_star[0])) == (1, False)
    np.testing.assert_array_equal(tables.phi_0[:, 0], F)


def test_tables_of_mixtures_have_room_for_the_products_of_the_largest_state():
    tables = new_tables(2, 1, 2, 1, mixes=True)
    for key, count in enumerate((2, 5, 3)):
        ends = np.tile(X, (count, 1))
        tables = add_state(tables, KnownState(key, FiniteActions(np.vstack([F, ends]), 0), np.zeros((1, 1))))
    assert tables.joint.shape[0] == 2
    assert tables.joint.shape[2] >= 6
    assert new_tables(2, 1, 2, 1).joint.shape[2] == 0
