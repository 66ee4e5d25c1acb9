"""The lake with a teacher in it: moves, rewards, reactions, prices."""

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tether.errors import InputError
from tether.lab.cisr.env import HR, NONE, SR1, SR2, TIME_OUT, LagrangianLake, LakeEnv, pictures, successors
from tether.lab.worlds.lake import CELLS, DANGER, GOAL, START, cell, transition_law

LEFT, RIGHT, DOWN, UP = range(4)
ALL = (SR1, SR2, HR, NONE)


def walk(env, actions):
    """The steps of a walk from a reset."""
    env.reset(seed=0)
    return [env.step(np.int64(action)) for action in actions]


@pytest.mark.parametrize("picture", ["map", "planes"])
@pytest.mark.parametrize("intervention", ALL, ids=lambda i: i.name)
def test_gymnasium_accepts_the_environment(intervention, picture):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*spec is None.*")
        warnings.filterwarnings("ignore", message=".*render.*")
        check_env(LakeEnv(0.8, intervention, picture), skip_render_check=True)


@pytest.mark.parametrize("intended", [0.8, 0.9, 1.0])
def test_sampling_follows_the_transition_law_exactly(intended):
    """The uniform draw is cut at the cumulative probabilities, so each next cell owns its share of [0, 1)."""
    law, table = transition_law(intended), successors(intended)
    for state in range(CELLS):
        for action in range(4):
            cells, cumulative = table[state][action]
            shares = np.zeros(CELLS)
            shares[cells] = np.diff([0.0, *cumulative, 1.0])
            np.testing.assert_allclose(shares, law[state, action], atol=1e-12)
            middles = np.convolve([0.0, *cumulative, 1.0], [0.5, 0.5], "valid")
            assert [table[state][action].at(draw) for draw in middles] == cells
            assert table[state][action].at(np.nextafter(1.0, 0.0)) == cells[-1]


def test_without_a_teacher_danger_ends_the_episode_and_pays_nothing():
    first, second = walk(LakeEnv(1.0), [DOWN, DOWN])
    assert first[1:4] == (-0.01, False, False)
    assert second[1:4] == (0.0, True, False)
    assert second[4] == {"entered": cell(2, 0), "danger": True, "goal": False, "intervened": False}


def test_the_goal_ends_the_episode_and_pays_six():
    env = LakeEnv(1.0)
    steps = walk(env, [RIGHT] * 9 + [DOWN] * 9 + [LEFT] * 6)
    assert [step[1] for step in steps] == [-0.01] * 23 + [6.0]
    assert steps[-1][2] and steps[-1][4]["goal"] and env.cell == GOAL


def test_a_soft_teacher_puts_the_student_back_where_it_came_from():
    """(1,1) is two from danger, (2,1) one: SR2 lets the first pass and returns the student from the second to it."""
    env = LakeEnv(1.0, SR2)
    steps = walk(env, [RIGHT, DOWN, DOWN])
    assert [step[4]["intervened"] for step in steps] == [False, False, True]
    assert steps[-1][1:4] == (-0.01, False, False)
    assert steps[-1][4]["entered"] == cell(2, 1)
    assert env.cell == cell(1, 1)
    np.testing.assert_array_equal(steps[-1][0], pictures("map")[cell(1, 1)])


def test_the_wider_soft_teacher_steps_in_one_cell_earlier():
    env = LakeEnv(1.0, SR1)
    steps = walk(env, [RIGHT, DOWN])
    assert steps[-1][4]["intervened"]
    assert env.cell == cell(0, 1)


def test_a_hard_teacher_ends_the_episode():
    steps = walk(LakeEnv(1.0, HR), [RIGHT, DOWN, DOWN])
    assert [step[2] for step in steps] == [False, False, True]
    assert steps[-1][1] == -0.01
    assert steps[-1][4]["intervened"] and not steps[-1][4]["danger"]


def test_an_episode_times_out_after_200_steps():
    steps = walk(LakeEnv(1.0), [UP] * TIME_OUT)
    assert TIME_OUT == 200
    assert [step[3] for step in steps] == [False] * 199 + [True]
    assert not any(step[2] for step in steps)


def test_a_step_after_the_end_is_refused():
    env = LakeEnv(1.0)
    walk(env, [DOWN, DOWN])
    with pytest.raises(InputError, match="reset"):
        env.step(np.int64(UP))


@pytest.mark.parametrize("intervention", ALL, ids=lambda i: i.name)
def test_under_a_teacher_danger_is_never_entered(intervention):
    """20,000 random steps; without a teacher the same steps fall in hundreds of times."""
    env = LakeEnv(0.8, intervention)
    rng = np.random.default_rng(1)
    env.reset(seed=1)
    falls = 0
    for action in rng.integers(4, size=20_000):
        _, _, terminated, truncated, info = env.step(action)
        falls += info["danger"]
        if terminated or truncated:
            env.reset()
    assert falls > 300 if intervention is NONE else falls == 0


def test_the_authors_picture_has_one_plane_with_five_values():
    seen = pictures("map")
    assert seen.shape == (CELLS, 1, 10, 10)
    here = cell(3, 7)
    flat = seen[here].ravel()
    assert flat[here] == 1.0
    assert (flat[GOAL], flat[START]) == (np.float32(0.2), np.float32(0.6))
    assert (flat[list(DANGER)] == np.float32(0.4)).all()
    assert np.count_nonzero(flat) == 3 + len(DANGER)


@pytest.mark.parametrize("picture", ["map", "planes"])
def test_plane_0_shows_where_the_student_is(picture):
    seen = pictures(picture)
    np.testing.assert_array_equal(seen[:, 0].reshape(CELLS, -1).argmax(axis=1), np.arange(CELLS))


def test_the_planes_are_one_hot():
    seen = pictures("planes").reshape(CELLS, 3, CELLS)
    assert set(np.unique(seen)) == {0.0, 1.0}
    assert (seen.sum(axis=2) == [1, len(DANGER), 1]).all()
    assert (seen[:, 1][:, list(DANGER)] == 1.0).all() and (seen[:, 2, GOAL] == 1.0).all()


def test_the_price_of_an_episode_is_lambda_times_the_means_minus_their_limits():
    """SR2, two interventions in 200 steps: means (0, .01) − (0, .1); λ = (.2, .3) charges .3 · (−.09) = −.027."""
    lake = LagrangianLake(LakeEnv(1.0, SR2), np.array([0.2, 0.3]))
    steps = walk(lake, [DOWN, DOWN] + [UP] * 198)
    assert sum(step[1] for step in steps) == pytest.approx(-2.0 + 0.027)
    assert steps[0][1] == pytest.approx(-0.01 - 0.3 * (1.0 - 0.1)), "the first step pays its whole running mean"
    assert steps[2][1] == pytest.approx(-0.01 - 0.3 * (2 / 3 - 1.0))
    (episode,) = lake.episodes
    assert episode.earned == pytest.approx(-2.0)
    np.testing.assert_allclose(episode.violation, [0.0, -0.09])
    assert (lake.failures, lake.interventions) == (0, 2)


def test_danger_is_charged_and_counted():
    """Two steps, the second into danger: the mean of 1{danger} is 1/2 and λ_1 = .2 charges .1."""
    lake = LagrangianLake(LakeEnv(1.0, NONE), np.array([0.2, 0.3]))
    steps = walk(lake, [DOWN, DOWN])
    assert [step[1] for step in steps] == [pytest.approx(-0.01), pytest.approx(0.0 - 0.1)]
    np.testing.assert_allclose(lake.episodes[0].violation, [0.5, 0.0])
    assert (lake.failures, lake.interventions) == (1, 0)


def test_the_student_sees_a_time_out_as_an_ordinary_end():
    lake = LagrangianLake(LakeEnv(1.0), np.array([0.2, 0.3]))
    assert walk(lake, [UP] * TIME_OUT)[-1][2:4] == (True, False)


def test_prices_start_afresh_with_each_episode():
    lake = LagrangianLake(LakeEnv(1.0, HR), np.array([0.2, 0.3]))
    first = [step[1] for step in walk(lake, [DOWN])]
    assert [step[1] for step in walk(lake, [DOWN])] == first == [pytest.approx(-0.01 - 0.3)]
    assert len(lake.episodes) == 2


def test_impossible_settings_are_refused():
    with pytest.raises(InputError, match="probability"):
        LakeEnv(1.5)
    with pytest.raises(InputError, match="picture"):
        LakeEnv(0.8, NONE, "photo")
