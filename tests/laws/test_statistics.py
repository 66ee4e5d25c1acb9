"""What was learned is a sum: additive, free of order, and enough to recover every sum over the history."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.generators import law, seeds, unit_ball
from reference.kernels import make_rules
from tether.learning.ridge import new_ridge
from tether.learning.statistics import Memory, fit_cost, observe, target_moment

STAGES, STATES, D = 2, 3, 3
RULES = make_rules(known_gamma=np.zeros((2, 1, 3)))
SUMS = ("cost_moment", "reward_moment", "transition_moment")


def new_memory(cost_ridge=0.5, value_ridge=1.0):
    return Memory(
        cost=new_ridge(STAGES, cost_ridge, np.eye(D)),
        value=new_ridge(STAGES, value_ridge, np.eye(D)),
        cost_moment=np.zeros((STAGES, 1, D)),
        reward_moment=np.zeros((STAGES, D)),
        transition_moment=np.zeros((STAGES, STATES, D)),
    )


@st.composite
def histories(draw, most=40):
    """Rows (stage, feature, reward, cost or None, next state or -1)."""
    rng = np.random.default_rng(draw(seeds))
    rows = []
    for x in unit_ball(rng, draw(st.integers(0, most)), D):
        cost = None if rng.random() < 0.2 else float(rng.normal())
        rows.append((int(rng.integers(STAGES)), x, float(rng.uniform()), cost, int(rng.integers(-1, STATES))))
    return rows


def learn(rows, rules=RULES):
    memory = new_memory()
    for stage, x, reward, cost, following in rows:
        vector = np.array([0.0 if cost is None else cost])
        observe(memory, rules, stage, stage, x, reward, vector, cost is not None, following)
    return memory


def assert_equal_sums(first, second):
    for name in SUMS:
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), atol=1e-12, err_msg=name)
    for ours, theirs in ((first.cost, second.cost), (first.value, second.value)):
        np.testing.assert_allclose(ours.gram, theirs.gram, atol=1e-12)
        np.testing.assert_allclose(ours.log_det, theirs.log_det, atol=1e-11)
        np.testing.assert_allclose(np.abs(ours.factor), np.abs(theirs.factor), atol=1e-11)


@law
@given(histories(), seeds)
def test_what_was_learned_does_not_depend_on_the_order(rows, seed):
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    assert_equal_sums(learn(rows), learn(shuffled))


@law
@given(histories(), st.integers(0, 40))
def test_two_halves_add_up_to_the_whole(rows, cut):
    whole, first, second = learn(rows), learn(rows[:cut]), learn(rows[cut:])
    for name in SUMS:
        total = getattr(first, name) + getattr(second, name)
        np.testing.assert_allclose(total, getattr(whole, name), atol=1e-12, err_msg=name)
    for kind in ("cost", "value"):
        parts = [getattr(memory, kind) for memory in (first, second, whole)]
        prior = parts[0].ridge * np.eye(D)
        np.testing.assert_allclose(parts[0].gram + parts[1].gram - prior, parts[2].gram, atol=1e-12)


@law
@given(histories(), seeds)
def test_the_target_moment_is_the_sum_over_the_history(rows, seed):
    """b_h = Σ φ (r + V_{h+1}(s')), with nothing for outcomes that have no next state."""
    values = np.random.default_rng(seed).uniform(0.0, 2.0, STATES)
    memory = learn(rows)
    for stage in range(STAGES):
        expected = np.zeros(D)
        for at, x, reward, _, following in rows:
            if at == stage:
                expected += x * (reward + (values[following] if following >= 0 else 0.0))
        np.testing.assert_allclose(target_moment(memory, stage, values, STATES), expected, atol=1e-12)


@law
@given(histories())
def test_the_cost_estimate_is_ridge_regression_on_the_measured_costs_alone(rows):
    memory = learn(rows)
    for stage in range(STAGES):
        measured = [(x, cost) for at, x, _, cost, _ in rows if at == stage and cost is not None]
        x = np.array([row[0] for row in measured]).reshape(-1, D)
        z = np.array([row[1] for row in measured])
        expected = np.linalg.solve(0.5 * np.eye(D) + x.T @ x, x.T @ z)
        gamma_hat, radius = np.empty((1, D)), np.empty(1)
        fit_cost(memory, RULES, stage, stage, gamma_hat, radius)
        np.testing.assert_allclose(gamma_hat[0], expected, atol=1e-10)
        assert radius[0] == pytest.approx(1.0, rel=1e-9)


@law
@given(histories(), seeds)
def test_a_known_part_of_gamma_is_subtracted_before_and_added_after(rows, seed):
    """ĝ = known + A^{-1} Σ (z − ⟨known, φ⟩) φ, the known part of each step its own."""
    known = np.random.default_rng(seed).normal(size=(2, 1, D))
    rules = RULES._replace(known_gamma=known)
    memory = learn(rows, rules)
    for stage in range(STAGES):
        measured = [(x, cost) for at, x, _, cost, _ in rows if at == stage and cost is not None]
        x = np.array([row[0] for row in measured]).reshape(-1, D)
        z = np.array([row[1] for row in measured]) - x @ known[stage, 0]
        expected = known[stage, 0] + np.linalg.solve(0.5 * np.eye(D) + x.T @ x, x.T @ z)
        gamma_hat, radius = np.empty((1, D)), np.empty(1)
        fit_cost(memory, rules, stage, stage, gamma_hat, radius)
        np.testing.assert_allclose(gamma_hat[0], expected, atol=1e-10)


@law
@given(histories(), st.floats(0.1, 5.0))
def test_a_penalty_shapes_the_reward_and_nothing_else(rows, penalty):
    """The objective r − λ'c enters the reward moment: Σ (r − λ'z) φ."""
    rows = [row for row in rows if row[3] is not None]
    plain, shaped = learn(rows), learn(rows, RULES._replace(penalty=penalty))
    for stage in range(STAGES):
        expected = np.zeros(D)
        for at, x, reward, cost, _ in rows:
            if at == stage:
                expected += (reward - penalty * cost) * x
        np.testing.assert_allclose(shaped.reward_moment[stage], expected, atol=1e-11)
    np.testing.assert_array_equal(shaped.cost_moment, plain.cost_moment)
    np.testing.assert_array_equal(shaped.transition_moment, plain.transition_moment)


@law
@given(histories())
def test_log_det_counts_the_growth_of_the_gram_matrix(rows):
    memory = learn(rows)
    for ridge in (memory.cost, memory.value):
        for stage in range(STAGES):
            expected = np.linalg.slogdet(ridge.gram[stage] / ridge.ridge)[1]
            assert ridge.log_det[stage] == pytest.approx(expected, abs=1e-10)
