"""The sums after one or two transitions, by hand."""

import numpy as np
import pytest

from reference.kernels import make_rules
from tether.learning.ridge import new_ridge
from tether.learning.safe_sets import EXACT
from tether.learning.statistics import Memory, fit_cost, observe, target_moment

PHI = np.array([0.6, 0.8])


def new_memory():
    return Memory(
        cost=new_ridge(2, 0.5, np.eye(2)),
        value=new_ridge(2, 1.0, np.eye(2)),
        cost_moment=np.zeros((2, 1, 2)),
        reward_moment=np.zeros((2, 2)),
        transition_moment=np.zeros((2, 3, 2)),
    )


def seen(memory, *, rules=None, stage=1, reward=0.5, cost=0.3, known=True, following=2):
    observe(memory, rules or make_rules(), stage, stage, PHI, reward, np.array([cost]), known, following)
    return memory


def test_a_transition_enters_every_sum_of_its_stage():
    """φ = (0.6, 0.8), r = 0.5, z = 0.3, s' = 2: Σrφ = (0.3, 0.4), Σzφ = (0.18, 0.24), C[2] = φ."""
    memory = seen(new_memory())
    np.testing.assert_allclose(memory.reward_moment, [[0.0, 0.0], [0.3, 0.4]], rtol=1e-15)
    np.testing.assert_allclose(memory.cost_moment[:, 0], [[0.0, 0.0], [0.18, 0.24]], rtol=1e-15)
    np.testing.assert_array_equal(memory.transition_moment[1], [[0.0, 0.0], [0.0, 0.0], PHI])
    np.testing.assert_array_equal(memory.transition_moment[0], 0.0)
    np.testing.assert_allclose(memory.cost.gram[1], [[0.86, 0.48], [0.48, 1.14]], rtol=1e-15)
    np.testing.assert_allclose(memory.value.gram[1], [[1.36, 0.48], [0.48, 1.64]], rtol=1e-15)


def test_a_missing_cost_enters_the_value_sums_only():
    memory = seen(new_memory(), cost=0.0, known=False)
    np.testing.assert_array_equal(memory.cost.gram[1], 0.5 * np.eye(2))
    np.testing.assert_array_equal(memory.cost_moment, 0.0)
    assert memory.cost.log_det[1] == 0.0
    np.testing.assert_allclose(memory.value.gram[1], [[1.36, 0.48], [0.48, 1.64]], rtol=1e-15)
    np.testing.assert_allclose(memory.reward_moment[1], [0.3, 0.4], rtol=1e-15)


def test_the_last_step_has_no_next_state():
    memory = seen(new_memory(), following=-1)
    np.testing.assert_array_equal(memory.transition_moment, 0.0)


def test_a_penalty_lowers_the_reward_by_the_cost():
    """r − λ'z = 0.5 − 2·0.3 = −0.1."""
    memory = seen(new_memory(), rules=make_rules(penalty=2.0))
    np.testing.assert_allclose(memory.reward_moment[1], [-0.06, -0.08], rtol=1e-14)


def test_an_agent_that_is_told_gamma_regresses_no_cost():
    memory = seen(new_memory(), rules=make_rules(conditioning=EXACT))
    np.testing.assert_array_equal(memory.cost.gram[1], 0.5 * np.eye(2))


def test_the_known_part_of_gamma_is_not_regressed_again():
    """known = (0.2, 0.1): ⟨known, φ⟩ = 0.2, so z − 0.2 = 0.1 enters: (0.06, 0.08)."""
    known = np.zeros((2, 1, 2))
    known[1, 0] = [0.2, 0.1]
    memory = seen(new_memory(), rules=make_rules(known_gamma=known))
    np.testing.assert_allclose(memory.cost_moment[1, 0], [0.06, 0.08], rtol=1e-14)


def test_the_estimate_after_one_observation():
    """λ = 0.5, ‖φ‖ = 1: ĝ = zφ/(λ + 1) = 0.2 φ = (0.12, 0.16)."""
    gamma_hat, radius = np.empty((1, 2)), np.empty(1)
    fit_cost(seen(new_memory()), make_rules(tuned_radius=0.7), 1, 1, gamma_hat, radius)
    np.testing.assert_allclose(gamma_hat[0], [0.12, 0.16], rtol=1e-14)
    assert radius[0] == pytest.approx(0.7, rel=1e-12)  # rounded outward
    assert radius[0] >= 0.7


def test_the_target_moment_adds_next_values():
    """Two visits to s' = 2 with V = 3 and one without successor: Σrφ + 3·2φ = (0.5·3 + 6) φ = 7.5 φ."""
    memory = new_memory()
    for following in (2, 2, -1):
        seen(memory, following=following)
    moment = target_moment(memory, 1, np.array([7.0, 9.0, 3.0]), 3)
    np.testing.assert_allclose(moment, 7.5 * PHI, rtol=1e-14)


def test_slots_beyond_those_in_use_do_not_count():
    memory = seen(new_memory())
    assert target_moment(memory, 1, np.array([7.0, 9.0, 3.0]), 2) == pytest.approx([0.3, 0.4], rel=1e-14)
