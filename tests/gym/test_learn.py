"""Any Gymnasium environment as a problem: learn, Bridge, and what they keep to."""

import signal
from inspect import Parameter, signature
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gym.small_envs import Quit, Shop, Valve, shop_features
from limits import bridged_with, learned_with
from tether import Bounded, Bridge, Constraint, InputError, RslucbQvi, SlucbConfig, SlucbQvi, learn
from tether.agents.fixed import AlwaysSafe
from tether.features import AffineInAction, Constant, OneHot, PerAction, Polynomial
from tether.gym.bridge import Ended, unpack

SHOP = {
    "features": shop_features,
    "safe_action": 0,
    "threshold": 0.5,
    "noise": 0.02,
    "horizon": 4,
    "gamma_norm": 2.0,
    "baseline_cost": lambda step, state: Shop.COST[state, 0],
}
QUIT = {
    "features": OneHot(1),
    "safe_action": 0,
    "threshold": 0.5,
    "noise": 0.02,
    "horizon": 3,
    "baseline_cost": 0.1,
    "reward_range": (-1.0, 0.0),
    "gamma_norm": 1.0,
}
VALVE = {
    "features": Constant(),
    "safe_action": [0.0, 1.0],
    "threshold": 0.5,
    "noise": 0.02,
    "horizon": 3,
    "gamma_norm": 2.0,
    "baseline_cost": 0.2,
}


def run(env, episodes=60, **options):
    return learned_with(env, episodes=episodes, watch=False, **{"compare": 0, **options})


def same(first, second):
    for name in ("episode", "reward", "cost", "bound", "is_baseline"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_costs_that_are_not_measured_count_as_declared():
    """Every third is None. Certificates say so; in the worst case m of them widen the radius by at most √m/2 ranges."""
    last = {}
    for lost in ("at-random", "worst-case"):
        asked, seen = iter(range(1000)), []

        def cost(state, action, next_state, info, asked=asked):
            return None if next(asked) % 3 == 0 else info["cost"]

        options = {"lost": lost, "cost_range": (0.0, 1.0), "baseline_cost_error": 1e-3, "cost": cost}
        result = run(Shop(), 20, **SHOP, **options, on_step=lambda made, _, seen=seen: seen.append(made))
        assert result.agent.problem.lost == lost and result.agent.problem.baseline_cost_error == (1e-3,)
        assert {shown.lost_as for made in seen for shown in made.evidence} == {lost}
        last[lost] = seen[-1].evidence[0]
    assert last["worst-case"].lost == last["at-random"].lost > 0
    widened = last["worst-case"].radius.value - last["at-random"].radius.value
    assert 0.1 < widened <= 0.5 * np.sqrt(last["worst-case"].lost)


def test_learning_improves_on_the_safe_action_and_no_bound_exceeds_the_threshold():
    """Action 1 is safe everywhere, action 2 nowhere; features are shared, so single actions can be certified.

    The paper's value radius: pay is not linear in these features, and `learn` would take it at its estimate.
    """
    played = []
    config = SlucbConfig(backup="tables", replan="every-episode", pooled=True)
    result = run(Shop(), 80, **SHOP, config=config, on_step=lambda d, t: played.append((d.state, d.action)))
    assert {(0, 1), (1, 0), (1, 1)} <= set(played) <= {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert result.returns[-10:].mean() == pytest.approx(1.8)
    assert result.returns[:1].mean() < 1.8
    assert (result.bound <= 0.5).all()
    assert (result.bound >= [[Shop.COST[pair]] for pair in played]).all()
    assert result.baseline_share[-10:].mean() == 0.0
    assert (result.lengths == 4).all()
    assert result.violations == 0


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    first, again, other = (run(Shop(), seed=seed, **SHOP) for seed in (3, 3, 4))
    same(first, again)
    assert not np.array_equal(first.cost, other.cost)


def test_a_cost_is_the_same_wherever_it_is_reported():
    plain = run(Shop(), **SHOP)
    same(plain, run(Shop(name="harm"), cost="harm", **SHOP))
    same(plain, run(Shop(), cost=lambda observation, action, following, info: info["cost"], **SHOP))
    same(plain, run(Shop(style="six"), **SHOP))


def test_a_cost_function_sees_the_step_that_it_is_about():
    seen = []

    def cost(observation, action, following, info):
        seen.append((observation, action, following))
        return float(Shop.COST[observation, action])

    run(Shop(style="nowhere"), 10, cost=cost, **SHOP)
    assert len(seen) == 40
    assert all(following == 1 - observation for observation, _, following in seen)
    assert {action for _, action, _ in seen} <= {0, 1}


def test_several_costs_have_a_threshold_each():
    told = {
        **SHOP,
        "threshold": (0.5, 0.25),
        "noise": (0.02, 0.02),
        "baseline_cost": lambda h, s: [Shop.COST[s, 0], 0.1],
    }
    result = run(Shop(), cost=lambda o, a, n, info: (info["cost"], 0.1 + 0.1 * a), **told)
    assert result.cost.shape == result.bound.shape == (240, 2)
    assert (result.bound <= [0.5, 0.25]).all()

    class Both(Shop):
        def step(self, action):
            *rest, info = super().step(action)
            return *rest, {**info, "second": 0.1 + 0.1 * action}

    same(result, run(Both(), cost=("cost", "second"), **told))


def test_ending_early_is_worth_the_zero_reward_of_the_remaining_steps():
    """r = -1 becomes 0 and the 0 after the end becomes 1 per step: quitting at once is worth 0 + 1 + 1 = 2 of 3."""
    result = run(Quit(), 60, limit_on="average over draws", stationary=True, **QUIT)
    agent = result.agent
    ended = agent.slot_of(Ended())
    np.testing.assert_allclose(agent.current.values[:3, ended], [3.0, 2.0, 1.0])
    assert result.lengths[-10:].max() == 1
    assert result.returns[-10:].mean() == -1.0


def test_without_a_shift_the_end_is_worth_nothing_and_needs_no_state():
    bridge = Bridge(
        Quit(),
        features=OneHot(1),
        safe_action=0,
        constraints=Constraint(threshold=0.5, noise=Bounded("radius")),
        horizon=3,
    )
    agent = SlucbQvi(bridge.problem)
    decision = agent.act(0, bridge.start(seed=1))
    ended = bridge.transition(decision, unpack((0, 0.5, True, False, {"cost": 0.3})), 1)
    assert ended.next_state is None
    goes_on = bridge.transition(decision, unpack((0, 0.5, False, True, {"cost": 0.3})), 1)
    assert goes_on.next_state == 0  # truncated: the state still has a value


def test_a_truncated_episode_is_cut_and_so_is_one_that_reaches_the_horizon():
    told = {"features": OneHot(1), "safe_action": 0, "threshold": 0.5, "reward_range": (-1.0, 0.0)}
    assert set(run(Quit(truncates_after=2), 5, horizon=4, **told).lengths) == {2}
    assert set(run(Quit(), 5, horizon=4, **told).lengths) == {4}
    limited = gymnasium.wrappers.TimeLimit(Quit(), 3)
    limited.unwrapped.spec = gymnasium.envs.registration.EnvSpec("Quit-v0", max_episode_steps=3)
    assert bridged_with(limited, **told).problem.horizon == 3


def test_masks_and_functions_restrict_what_is_played():
    """Action 2 is allowed in state 1 only; τ = 1.0 makes it safe there."""
    told = {**SHOP, "threshold": 1.0}
    played = {0: set(), 1: set()}
    note = lambda d, t: played[d.state].add(bridge.env_action(d))  # noqa: E731
    bridge = bridged_with(Shop(), mask="action_mask", **told)
    masked = run(bridge, on_step=note)
    assert played[0] <= {0, 1}
    assert 2 in played[1]
    allowed = lambda state: [0, 1, 2] if state == 1 else [0, 1]  # noqa: E731
    same(masked, run(Shop(), actions=allowed, **told))


def test_listed_actions_of_any_space_can_be_played():
    class Levers(Shop):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.MultiDiscrete([2, 2])

        def step(self, action):
            return super().step(int(action[0] + action[1]))

    listed = [np.array([0, 0]), np.array([0, 1]), np.array([1, 1])]
    told = {**SHOP, "features": lambda s, a: shop_features(s, int(a.sum())), "safe_action": listed[0]}
    same(run(Shop(), **SHOP), run(Levers(), actions=listed, **told))


def test_one_hot_pairs_in_a_finite_set_teach_nothing_but_mixtures_of_them_do():
    """The paper's remark on star-convexity: a_0 says nothing about other pairs, so no single one is ever certified."""
    told = {**SHOP, "features": PerAction(OneHot(2), 3), "stationary": True, "gamma_norm": 1.5}
    stuck = run(Shop(), 150, **told)
    assert stuck.is_baseline.all()
    mixed = run(Shop(), 150, limit_on="average over draws", config=SlucbConfig(value_radius=0.3), **told)
    assert isinstance(mixed.agent, RslucbQvi)
    assert mixed.bounds == "expected cost"
    assert mixed.returns[-20:].mean() > stuck.returns.mean() + 0.5
    assert (mixed.bound <= 0.5).all()


def test_a_box_becomes_rays_to_its_walls_and_single_precision_never_lengthens_a_step():
    env = Valve()
    decisions = []
    result = run(env, 100, **VALVE, stationary=True, on_step=lambda d, t: decisions.append(d))
    assert result.bridge.has_rays
    np.testing.assert_allclose(
        result.bridge.action_sets.points(np.zeros(2))[1], [[1, 1], [-1, 1], [0, 4], [0, 0]], atol=1e-12
    )
    safe = np.array([0.0, 1.0])
    ends = np.array([[1, 1], [-1, 1], [0, 4], [0, 0]], dtype=float)
    for decision, action in zip(decisions, env.played, strict=True):
        assert action.dtype == np.float32
        assert env.action_space.contains(action)
        wanted = decision.action.length * np.abs(ends[decision.action.ray] - safe) if decision.action.ray >= 0 else 0.0
        moved = np.abs(action.astype(float) - safe)
        assert (moved <= wanted).all()
        assert (moved >= wanted - 1e-6).all()
        assert Valve.expected(action) <= 0.5
    assert result.returns[-20:].mean() > result.returns[:5].mean() + 0.2


def test_observations_are_kept_apart_although_the_environment_reuses_its_array():
    transitions = []
    run(Valve(), 3, **VALVE, on_step=lambda d, t: transitions.append((d.state, t.next_state)))
    states = {tuple(state) for state, _ in transitions}
    assert len(states) == 9
    for (_, following), (state, _) in pairwise(transitions[:3]):
        np.testing.assert_array_equal(following, state)
        assert following is not state


def test_targets_and_features_of_the_action_itself_can_be_given():
    """One ray toward (1, 4), features affine in the action: the cost along it is affine as well."""
    told = {**VALVE, "features": AffineInAction(Constant(), [-1.0, 0.0], [1.0, 4.0]), "targets": [[1.0, 4.0]]}
    env = Valve(np.float64)
    run(env, 60, **told, stationary=True)
    moves = np.array(env.played) - [0.0, 1.0]
    np.testing.assert_allclose(moves[:, 1], 3.0 * moves[:, 0], atol=1e-12)
    assert 0.1 < moves[:, 0].max() <= 0.3 / 1.1  # 0.2 + 1.1 α <= 0.5


def test_an_unknown_safe_cost_is_allowed_and_known_to_be_unknown():
    result = run(Shop(), 200, stationary=True, **{**SHOP, "baseline_cost": None})
    assert result.problem.baseline_cost is None
    assert result.returns[-10:].mean() > result.returns[:10].mean()
    played = ~result.is_baseline
    assert (result.bound[played] <= 0.5).all()


def test_the_agent_can_be_anyones():
    result = run(Shop(), 5, **SHOP, agent=lambda problem, rng: AlwaysSafe(problem))
    assert result.is_baseline.all()
    np.testing.assert_allclose(result.returns, 0.6)


def test_the_safe_action_alone_needs_no_cost_of_its_own():
    result = learned_with(
        Shop(), episodes=5, agent=lambda problem, rng: AlwaysSafe(problem), **{**SHOP, "baseline_cost": None}
    )
    assert result.is_baseline.all() and np.isnan(result.bound).all()
    assert "largest certified bound unknown" in result.summary()


def test_settings_reach_the_agent_and_plans_are_rare_where_states_are_many():
    own = {"value_radius": "unseen", "value_ridge": 1e-8}
    assert run(Shop(), 1, **SHOP).agent.config == SlucbConfig(backup="tables", replan="every-episode", **own)
    assert run(Valve(), 1, **VALVE).agent.config == SlucbConfig(backup="lean", replan="on-growth", **own)
    chosen = run(Shop(), 1, stationary=True, config=SlucbConfig(explorer="plain"), **SHOP).agent.config
    assert (chosen.explorer, chosen.pooled) == ("plain", True)


class Sale(gymnasium.Env):
    """A surcharge a in [0, 1] costs 0.1 + 0.2a and earns 0.4 + 0.2a, give or take: the second customer buys nothing."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Discrete(1), spaces.Box(0.0, 1.0, (1,), np.float64)
        self.asked = 0

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        surcharge = float(action[0])
        luck = {0: 0.3, 1: -0.4}.get(self.asked, 0.0) if surcharge else 0.0
        self.asked += surcharge > 0.0
        return 0, 0.4 + 0.2 * surcharge + luck, True, False, {"cost": 0.1 + 0.2 * surcharge}


def test_noisy_rewards_that_are_declared_do_not_end_the_search_after_a_bad_one():
    told = {**VALVE, "features": lambda state, action: [0.5, 0.5 * action[0]], "safe_action": [0.0]}
    told |= {"horizon": 1, "baseline_cost": 0.1}
    exact, noisy = Sale(), Sale()
    run(exact, 100, **told)
    run(noisy, 100, reward_noise=0.3, **told)
    assert exact.asked == 2 and noisy.asked > 90


def test_an_option_of_learn_and_of_a_bridge_has_the_same_default_and_the_others_are_named():
    """`learn` forwards them; the three that a Bridge requires may be missing only because `env` may be a Bridge."""
    own, of_bridge = signature(learn), signature(Bridge)
    assert len(own.parameters) <= 14 and len(of_bridge.parameters) <= 14
    for name, option in of_bridge.parameters.items():
        if name not in own.parameters:
            with pytest.raises(TypeError, match=f"tether.Bridge\\(env, …, {name}=…\\)"):
                learn(Shop(), **{name: None})
        elif option.default is not Parameter.empty:
            assert own.parameters[name].default == option.default
            assert own.parameters[name].annotation == option.annotation
        else:
            assert name == "env" or own.parameters[name].default is None


def test_owning_the_loop_gives_the_same_run_as_learn():
    bridge = bridged_with(Shop(), **SHOP)
    agent = SlucbQvi(bridge.problem, SlucbConfig(backup="tables", replan="every-episode"))
    bounds, rewards = [], []
    for episode in range(20):
        state = bridge.start(7 if episode == 0 else None)
        agent.plan()
        for step in range(4):
            decision = agent.act(step, state)
            action = bridge.env_action(decision)
            stepped = unpack(bridge.env.step(action))
            outcome = bridge.transition(decision, stepped, action)
            agent.observe(outcome)
            bounds.append([decision.cost_bound])
            rewards.append(stepped.reward)
            state = outcome.next_state
    result = run(Shop(), 20, seed=7, **SHOP)
    np.testing.assert_array_equal(result.bound, bounds)
    np.testing.assert_array_equal(result.reward, rewards)


@pytest.mark.parametrize("key", [None, lambda state: f"cell {state}"], ids=["own keys", "a key function"])
def test_a_learner_can_be_saved_and_go_on_in_another_bridge(key, tmp_path):
    """Episodes end early, so the state after the end is saved as well."""
    told = {**QUIT, "key": key}
    first = run(Quit(), 40, limit_on="average over draws", stationary=True, **told)
    first.agent.save(tmp_path / "learner.tether")
    restore = lambda problem, rng: RslucbQvi.restore(tmp_path / "learner.tether", problem)  # noqa: E731
    second = run(Quit(), 10, agent=restore, **told)
    assert second.agent.data_version == len(first.reward) + len(second.reward)
    same(second, run(bridged_with(Quit(), **told), 10, agent=lambda problem, rng: first.agent))


@pytest.fixture
def keyboard():
    """Python's own handling of Ctrl-C: a suite that was itself started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("keyboard")
def test_ctrl_c_returns_what_was_learned_so_far():
    seen = []

    def press(decision, transition):
        seen.append(decision)
        if len(seen) == 10:
            signal.raise_signal(signal.SIGINT)

    result = run(Shop(), **SHOP, on_step=press)
    assert result.interrupted
    assert len(result.reward) == result.agent.data_version == 10
    assert result.episodes == 3
    assert "INTERRUPTED" in result.summary()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_from_inside_the_environment_loses_nothing_either():
    class Stops(Shop):
        def step(self, action):
            if self.steps == 2:
                raise KeyboardInterrupt
            return super().step(action)

    result = run(Stops(), **SHOP)
    assert result.interrupted
    assert len(result.reward) == result.agent.data_version == 2


@pytest.mark.usefixtures("keyboard")
def test_a_second_ctrl_c_interrupts_at_once():
    pressed = []

    def press(decision, transition):
        pressed.append(0)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    assert run(Shop(), **SHOP, on_step=press).interrupted
    assert len(pressed) == 1


def test_failing_assumptions_trip_the_learner_and_are_reported():
    """The declared σ is 0.02, the real one 0.5: the online tests notice, and only the safe action is left."""
    result = learned_with(Shop(noise=0.5), episodes=80, **SHOP)
    assert result.agent.watch is not None
    assert any("noise" in alarm for alarm in result.alarms)
    assert result.is_baseline[-40:].all()
    assert result.reasons["tripped"] >= 40
    assert "ALARM" in result.summary()
    assert learned_with(Shop(), episodes=40, **SHOP).alarms == []


def test_the_summary_names_what_matters():
    text = run(Shop(), 50, **SHOP).summary()
    for word in ("50 episodes, 200 steps", "mean return", "safe action played", "τ = 0.5", "largest certified bound"):
        assert word in text
    assert run(Shop(), 0, **SHOP).summary() == "no step was played."


def test_a_bar_is_shown_only_when_it_is_wanted(capfd):
    run(Shop(), 3, **SHOP, progress=None)
    assert capfd.readouterr().err == ""
    run(Shop(), 3, **SHOP, progress=True)
    assert capfd.readouterr().err != ""  # what rich draws depends on the terminal


def test_a_world_of_ours_can_be_learned_like_any_other_environment():
    """Synthetic through Gymnasium: its own features, unit vectors as targets; true costs are revealed for the audit."""
    import tether.lab.worlds.gym_env  # noqa: F401

    env = gymnasium.make("tether/Synthetic-v0", rays=8, states=4, reveal=True, observe_step=False)
    world = env.unwrapped.world
    ends = world.endpoints

    def features(state, action):
        return world.phi_0[state] + action @ (ends[state] - world.phi_0[state])

    audited = []

    def cost(observation, action, following, info):
        audited.append(info["true_cost"])
        return info["cost"]

    told = {"safe_action": np.zeros(8), "targets": np.eye(8), "threshold": 0.5, "noise": 0.01, "horizon": 3}
    known = lambda step, state: float(world.true_gamma[step, 0] @ world.phi_0[state])  # noqa: E731
    result = run(env, 300, features=features, cost=cost, baseline_cost=known, compare=100, **told)
    assert max(audited) <= 0.5
    assert result.returns[-50:].mean() > result.returns[:20].mean()
    assert result.comparison.interval[0] > 0.0  # it gains, though a_0 is best in some states


def test_gymnasiums_own_pendulum_is_read_from_its_spaces():
    env = gymnasium.make("Pendulum-v1")
    psi = Polynomial(env.observation_space.low, env.observation_space.high)
    cost = lambda o, a, n, i: 0.2 + 0.1 * abs(float(a[0]))  # noqa: E731
    told = {"noise": 0.02, "baseline_cost": 0.2, "reward_range": (-16.3, 0.0), "horizon": 5}
    result = run(env, 8, features=psi, safe_action=[0.0], threshold=0.3, cost=cost, **told)
    assert result.problem.dimension == 4 * 3
    assert len(result.reward) == 40
    assert result.summary().startswith("Pendulum-v1: H = 5, rays in a box of actions")  # without the chain of wrappers
    assert (result.cost <= 0.3).all()


def test_features_of_a_box_are_called_as_the_user_called_them():
    def heat_of(observation, torque):
        return [0.7, 0.1 * float(torque[0])]

    told = {"safe_action": [0.0], "targets": [[2.0]], "threshold": 0.6, "noise": 0.05, "horizon": 2}
    bridge = bridged_with(gymnasium.make("Pendulum-v1"), features=heat_of, cost=lambda o, a, n, i: 0.5, **told)
    assert bridge.describe() == "Pendulum-v1: H = 2, rays in a box of actions, heat_of(state, action): 2 features"


def test_several_environments_share_one_learner_and_take_turns():
    """Three shops, five episodes: the learner sees all, and the result lists the steps episode by episode."""
    order, finished = [], []
    shops = [Shop() for _ in range(3)]
    note = lambda decision, outcome: order.append(decision.step)  # noqa: E731
    result = run(shops, 5, **SHOP, stationary=True, on_step=note, callbacks=[finished.append])
    assert order[:6] == [0, 0, 0, 1, 1, 1] and len(order) == 20
    assert result.agent.data_version == 20 and not result.agent.open_decisions
    assert result.episode.tolist() == [number for number in range(5) for _ in range(4)]
    assert sorted(each.number for each in finished) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose([e.total for e in sorted(finished)], result.returns)
    assert len({round(float(shop.np_random.random()), 12) for shop in shops}) == 3  # each has a seed of its own


def test_one_environment_in_a_list_or_a_synchronous_vector_is_that_environment():
    alone = run(Shop(), 8, **SHOP)
    same(alone, run([Shop()], 8, **SHOP))
    same(alone, run(gymnasium.vector.SyncVectorEnv([Shop]), 8, **SHOP))
    masked = run([Shop(), Shop()], 8, **{**SHOP, "threshold": 1.0}, mask="action_mask")
    assert masked.agent.data_version == 32


@pytest.mark.parametrize(
    ("envs", "words"), [([], "empty list"), ([Shop(), Quit()], "same spaces"), (lambda: 0, "must be a Gymnasium")]
)
def test_environments_that_do_not_go_together_are_refused(envs, words):
    with pytest.raises(InputError, match=words):
        run(envs, 1, **SHOP)


class Clocked(gymnasium.Wrapper):
    """Says in `info` what time it is: ten seconds a step, an hour between episodes."""

    now = 0.0

    def reset(self, **options):
        observation, info = super().reset(**options)
        self.now += 3600.0
        return observation, {**info, "seconds": self.now}

    def step(self, action):
        *rest, info = super().step(action)
        self.now += 10.0
        return (*rest, {**info, "seconds": self.now})


def test_drift_per_second_takes_the_environments_own_time():
    stamps, options = [], {**VALVE, "drift": 1e-6, "drift_per": "second"}
    result = run(
        Clocked(Valve()), 4, **options, time="seconds", compare=2, on_step=lambda d, t: stamps.append((d.time, t.time))
    )
    gaps = np.diff([made for made, _ in stamps])
    assert set(gaps.tolist()) == {10.0, 3610.0} and all(made == seen for made, seen in stamps)
    assert result.agent.blocks.clock[0] == sum(gaps)
    env = Clocked(Valve())
    by_function = run(env, 4, **options, time=lambda observation, info: env.now)
    same(result, by_function)
    with pytest.raises(InputError, match="say what time it is"):
        run(Clocked(Valve()), 1, **options)
    with pytest.raises(InputError, match="info has no 'clock'"):
        run(Clocked(Valve()), 1, **options, time="clock")
