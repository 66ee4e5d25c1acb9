"""Success and return of a policy without a teacher."""

import numpy as np
import pytest

from tether.errors import InputError
from tether.lab.cisr.train import evaluate
from tether.lab.worlds.lake import CELLS, DANGER, ENDS, GOAL, SIZE, START, transition_law

LEFT, RIGHT, DOWN, UP = range(4)


def always(action):
    policy = np.zeros((CELLS, 4))
    policy[:, action] = 1.0
    return policy


def around():
    """Right along the top, down the right side, left along the bottom: 24 moves."""
    policy = always(RIGHT)
    policy[SIZE - 1 :: SIZE] = np.eye(4)[DOWN]
    policy[CELLS - SIZE :] = np.eye(4)[LEFT]
    return policy


def test_a_path_to_the_goal_by_hand():
    """23 steps at −.01 and 6 at the goal; 10,000 steps hold 416 whole episodes of 24."""
    score = evaluate(around(), np.random.default_rng(0), intended=1.0)
    assert (score.success, score.falls, score.episodes) == (1.0, 0, 416)
    assert score.mean_return == pytest.approx(6.0 - 0.23)


def test_a_fall_by_hand():
    score = evaluate(always(DOWN), np.random.default_rng(0), intended=1.0)
    assert (score.success, score.falls, score.episodes) == (0.0, 5000, 5000)
    assert score.mean_return == pytest.approx(-0.01)


def test_a_time_out_by_hand():
    score = evaluate(always(UP), np.random.default_rng(0), intended=1.0)
    assert (score.success, score.falls, score.episodes) == (0.0, 0, 50)
    assert score.mean_return == pytest.approx(-2.0)


def test_a_random_policy_agrees_with_the_exact_chain():
    """Success by 200 steps of the exact chain, within 5 standard errors: false alarm 6e-7 a number, seed fixed."""
    rng = np.random.default_rng(5)
    policy = rng.dirichlet(np.ones(4), size=CELLS) * 0.5 + around() * 0.5
    chain = np.einsum("sa,sat->st", policy, transition_law(0.8))
    reached = np.zeros(CELLS)
    reached[START] = 1.0
    for _ in range(200):
        reached = reached @ chain
    score = evaluate(policy, np.random.default_rng(6), intended=0.8, steps=300_000)
    success, fall = reached[GOAL], reached[list(DANGER)].sum()
    assert 0.05 < success < 0.95, "the case must be able to tell right from wrong"
    for seen, exact in ((score.success, success), (score.falls / score.episodes, fall)):
        assert abs(seen - exact) < 5.0 * np.sqrt(exact * (1.0 - exact) / score.episodes)


def test_the_same_stream_gives_the_same_score():
    policy = np.full((CELLS, 4), 0.25)
    scores = [evaluate(policy, np.random.default_rng(seed), steps=2000) for seed in (1, 1, 2)]
    assert scores[0] == scores[1] != scores[2]


def test_the_cells_where_an_episode_ends_do_not_matter():
    changed = around()
    changed[list(ENDS)] = np.eye(4)[UP]
    assert evaluate(changed, np.random.default_rng(2)) == evaluate(around(), np.random.default_rng(2))


def test_a_policy_of_another_size_is_refused():
    with pytest.raises(InputError, match="policy"):
        evaluate(np.full((16, 4), 0.25), np.random.default_rng(0))
