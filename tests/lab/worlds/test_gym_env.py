"""Every world as a Gymnasium environment: Gymnasium's checker, seeds, what is told, what an episode is worth."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tether import InputError, StarAction
from tether.lab.worlds.gym_env import IDS, WorldEnv
from tether.lab.worlds.planning import policy_values
from tether.problem.action_sets import feature_of
from worlds import WORLDS, world_named

NAMES = sorted(IDS)
CHEAP = {"tether/FrozenLake-v0": {"horizon": 12}}


def made(name, **options):
    return gymnasium.make(name, **{**CHEAP.get(name, {}), **options})


@pytest.mark.parametrize("name", NAMES)
def test_a_registered_world_passes_gymnasiums_checker_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made(name).unwrapped)


@pytest.mark.parametrize("name", WORLDS)
def test_any_linear_mdp_passes_gymnasiums_checker(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*alternative render modes.*")  # it has no id to be made again by
        check_env(WorldEnv(world_named(name)))
        check_env(WorldEnv(world_named(name), observe_step=False, render_mode="rgb_array"))


def test_ids_exist_in_a_fresh_process_by_naming_the_module():
    command = (
        "import gymnasium; env = gymnasium.make('tether.lab.worlds.gym_env:tether/Synthetic-v0', states=4, rays=3); "
        "print(env.action_space.shape, env.unwrapped.world.state_count)"
    )
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["(3,)", "4"]


def rollout(env, seed):
    env.action_space.seed(seed)
    seen = [env.reset(seed=seed)[0].tolist()]
    over = False
    while not over:
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        over = terminated or truncated
        seen.append((observation.tolist(), reward, terminated, np.asarray(info["cost"]).tolist()))
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_episode_and_another_seed_another(name):
    first, again, other = rollout(made(name), 5), rollout(made(name), 5), rollout(made(name), 6)
    assert first == again
    assert first != other


def test_options_reach_the_world_and_the_instance_has_a_seed_of_its_own():
    first, second = made("tether/Synthetic-v0", instance=3, states=7), made("tether/Synthetic-v0", instance=4, states=7)
    assert first.unwrapped.world.state_count == 7
    assert not np.array_equal(first.unwrapped.world.true_gamma, second.unwrapped.world.true_gamma)
    same = made("tether/Synthetic-v0", instance=3, states=7)
    np.testing.assert_array_equal(first.unwrapped.world.true_gamma, same.unwrapped.world.true_gamma)


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_terminates_at_the_horizon_or_where_the_trajectory_ends_and_is_never_truncated(name):
    env = made(name)
    world = env.unwrapped.world
    for seed in range(5):
        (state, step), _ = env.reset(seed=seed)
        assert step == 0
        terminated = False
        while not terminated:
            assert not world.ended[state]
            (state, seen_step), _, terminated, truncated, _ = env.step(env.action_space.sample())
            step += 1
            assert (seen_step, truncated) == (step, False)
            assert terminated == (step == world.problem.horizon or bool(world.ended[state]))
        with pytest.raises(InputError, match="call reset"):
            env.unwrapped.step(env.action_space.sample())


def test_the_truth_does_not_leak_unless_it_is_asked_for():
    env = made("tether/AdLoad-v0")
    env.reset(seed=1)
    info = env.step(env.action_space.sample())[4]
    assert set(info) == {"cost", "threshold", "safe_action"}
    assert info["cost"].shape == (2,)
    shown = made("tether/AdLoad-v0", reveal=True)
    shown.action_space.seed(0)
    shown.reset(seed=1)
    action = shown.action_space.sample()
    info = shown.step(action)[4]
    world = shown.unwrapped.world
    state = shown.unwrapped.reset(seed=1)[0][0]
    feature = feature_of(world.problem.actions(state), shown.unwrapped.decode(action))
    np.testing.assert_allclose(info["true_cost"], world.true_gamma[0] @ feature, atol=1e-12)
    assert np.abs(info["cost"] - info["true_cost"]).max() > 0.0


def test_the_observed_cost_scatters_around_the_true_one_with_the_declared_scale():
    """n = 3000 steps, seed 2, σ = 0.01: the mean error is N(0, 1/n); six standard errors."""
    env = made("tether/Synthetic-v0", reveal=True, observe_step=False)
    errors = []
    env.reset(seed=2)
    for _ in range(3000):
        *_, terminated, _, info = env.step(env.action_space.sample())
        errors.append((info["cost"] - info["true_cost"]) / 0.01)
        if terminated:
            env.reset()
    assert abs(np.mean(errors)) < 6 / np.sqrt(3000)
    assert np.std(errors) == pytest.approx(1.0, abs=6 / np.sqrt(2 * 3000))


def test_a_binary_cost_is_whether_the_step_led_into_danger():
    env = made("tether/FrozenLake-v0", costs="bernoulli", horizon=40)
    world, seen = env.unwrapped.world, set()
    env.action_space.seed(3)
    for seed in range(30):
        env.reset(seed=seed)
        terminated = False
        while not terminated:
            (state, _), _, terminated, _, info = env.step(env.action_space.sample())
            assert info["cost"] == world.arrival_cost[0, state]
            seen.add(info["cost"])
    assert seen == {0.0, 1.0}


def test_rewards_that_are_not_linear_are_paid_from_their_table():
    env = made("tether/FrozenLake-v0", reward="table", horizon=5)
    world = env.unwrapped.world
    (state, _), _ = env.reset(seed=0)
    for action in (1, 2, 3):
        (following, _), reward, *_ = env.step(action)
        assert reward == world.rewards[state, action]
        state = following


def test_the_mean_return_is_the_value_that_planning_computes():
    """Always "down" from the cell above the goal: 9 of 10 arrive at once, and the remaining 11 steps are worth 1 each.

    n = 1500 episodes: six standard errors around the exact value.
    """
    env = made("tether/FrozenLake-v0", horizon=12).unwrapped
    features = np.tile(env.world.endpoints[:, 2], (12, 1, 1))
    exact = float(policy_values(env.world, features)[0][83])
    returns = []
    for episode in range(1500):
        env.reset(seed=7 if episode == 0 else None, options={"state": 83})
        total, terminated = 0.0, False
        while not terminated:
            _, reward, terminated, _, _ = env.step(2)
            total += reward
        returns.append(total)
    assert exact > 11.0
    assert np.mean(returns) == pytest.approx(exact, abs=6 * np.std(returns) / np.sqrt(len(returns)))


def test_star_actions_are_written_and_read_and_never_lengthened():
    env = made("tether/Synthetic-v0", rays=4).unwrapped
    assert env.decode(np.zeros(4, np.float32)) == StarAction(-1, 0.0)
    assert env.decode(np.array([0.1, 0.5, 0.2, 0.0], np.float32)) == StarAction(1, 0.5)
    for length in np.random.default_rng(0).random(200):
        back = env.decode(env.encode(StarAction(2, length)))
        assert back.ray == 2
        assert length - 1e-7 <= back.length <= length
    assert env.decode(env.encode(StarAction(-1, 0.0))) == StarAction(-1, 0.0)
    for wrong in (np.full(4, 1.5), np.full(3, 0.5), np.full(4, np.nan)):
        with pytest.raises(InputError, match="one length in"):
            env.decode(wrong)
    with pytest.raises(InputError, match="not in Discrete"):
        made("tether/NotStarConvex-v0").unwrapped.decode(2)


def test_info_names_the_safe_action_in_the_form_of_the_space():
    for name in NAMES:
        env = made(name, reveal=True)
        (state, _), info = env.reset(seed=4)
        world = env.unwrapped.world
        assert env.action_space.contains(info["safe_action"])
        told = env.step(info["safe_action"])[4]
        expected = world.true_gamma[0] @ world.phi_0[state]
        np.testing.assert_allclose(told["true_cost"], expected if expected.size > 1 else expected[0], atol=1e-12)


def test_the_lake_is_drawn_as_a_map_and_follows_the_walker():
    env = made("tether/FrozenLake-v0", render_mode="ansi", intended=1.0)
    env.reset(seed=1)
    assert env.render().splitlines()[0] == "@........."
    env.step(1)
    lines = env.render().splitlines()
    assert lines[0] == "S@........"
    assert lines[2][0] == "*"
    assert lines[9][3] == "G"
    assert lines[10].startswith("step 1 of 12: right -> state 1")
    picture = made("tether/FrozenLake-v0", render_mode="rgb_array", intended=1.0)
    picture.reset(seed=1)
    before = picture.render()
    picture.step(1)
    after = picture.render()
    assert before.shape == after.shape == (240, 240, 3)
    changed = np.argwhere((before != after).any(axis=2))
    assert changed[:, 0].max() < 24  # only the first row of cells
    assert changed[:, 1].max() < 48  # only the first two columns


def test_other_worlds_are_drawn_as_states_and_costs_over_time():
    env = made("tether/Dosing-v0", render_mode="ansi")
    env.reset(seed=1)
    env.step(np.array([0, 0, 0.25, 0, 0, 0], np.float32))
    env.step(np.zeros(6, np.float32))
    text = env.render().splitlines()
    assert len(text) == 3
    assert "ray 2 at 0.25" in text[1]
    assert "safe action" in text[2]
    picture = made("tether/Dosing-v0", render_mode="rgb_array")
    picture.reset(seed=1)
    blank = picture.render()
    picture.step(np.ones(6, np.float32))
    assert blank.dtype == np.uint8
    assert (picture.render() != blank).any()


def test_unknown_settings_are_refused():
    with pytest.raises(InputError, match="render_mode"):
        WorldEnv(world_named("synthetic"), render_mode="human")
    env = made("tether/Synthetic-v0", states=4)
    assert env.reset(seed=1, options={"state": 3})[0][0] == 3
    with pytest.raises(InputError, match=r"states are 0\.\.3"):
        env.reset(options={"state": 4})
