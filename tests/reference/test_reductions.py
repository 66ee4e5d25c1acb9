"""Known algorithms at the ends of Tether's range, and two ways to run it that must be one."""

from dataclasses import replace

import numpy as np
import pytest

from limits import restated
from tether import Constraint
from tether.agents.lsvi import LsviConfig, LsviUcb
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import InputError
from tether.lab.simulate import simulate, simulate_stepwise
from tether.lab.worlds.linear_mdp import LinearMDP, Streams
from tether.problem.problem import Problem
from worlds import uneven_world


def assert_same_run(first, second, books, others):
    """Books, sums, tables and plans equal bit for bit."""
    for name in books._fields:
        np.testing.assert_array_equal(getattr(books, name), getattr(others, name), err_msg=name)
    ours, theirs = first.arrays(), second.arrays()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def choices(agent):
    count = agent.tables.slots[0]
    return agent.current.row[:, :count], agent.current.length[:, :count]


@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize("explorer", ["certified", "directional", "adaptive"])
@pytest.mark.parametrize("radius", [0.1, 2.0])
def test_without_a_threshold_slucb_qvi_is_lsvi_ucb_action_for_action(explorer, finite, radius):
    world = uneven_world(1, threshold=np.inf, finite=finite)
    safe = SlucbQvi(world.problem, SlucbConfig(explorer=explorer, value_radius=radius))
    free = LsviUcb(world.problem, LsviConfig(value_radius=radius))
    books = simulate(world, safe, 120, Streams.from_seed(3))
    others = simulate(world, free, 120, Streams.from_seed(3))
    for column in ("reward", "value", "length", "baseline"):
        np.testing.assert_array_equal(getattr(books, column), getattr(others, column))
    # the claimed values agree to rounding only: the cost side makes the tables be rebuilt at other times
    np.testing.assert_allclose(books.optimism, others.optimism, rtol=0.0, atol=1e-12)
    for ours, theirs in zip(choices(safe), choices(free), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_with_a_threshold_beyond_reach_directional_exploration_is_lsvi_ucb():
    world = uneven_world(2, threshold=1e6)
    safe = SlucbQvi(world.problem, SlucbConfig(explorer="directional", value_radius=1.0))
    free = LsviUcb(world.problem, LsviConfig(value_radius=1.0))
    books = simulate(world, safe, 120, Streams.from_seed(4))
    others = simulate(world, free, 120, Streams.from_seed(4))
    np.testing.assert_array_equal(books.value, others.value)
    for ours, theirs in zip(choices(safe), choices(free), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def tabular_world(rng, states=3, count=4, horizon=2):
    """One coordinate per (state, action): φ(s, a) is one-hot and a linear MDP is any MDP."""
    d = states * count
    gamma = rng.uniform(0.0, 0.9, (horizon, 1, d))
    gamma[:, :, ::count] = rng.uniform(0.1, 0.3, (horizon, 1, states))  # action 0 of each state is safe
    features = np.eye(d).reshape(states, count, d)
    problem = Problem.from_table(
        features=features,
        baseline_action=np.zeros(states, dtype=int),
        constraints=Constraint(threshold=0.6, noise=0.01, safe_cost=gamma[:, 0, ::count], gamma_norm=4.0),
        horizon=horizon,
    )
    return LinearMDP(
        name="tabular",
        problem=problem,
        true_theta=rng.uniform(size=(horizon, d)),
        true_gamma=gamma,
        true_mu=rng.dirichlet(np.ones(states), size=(horizon, d)),
        initial=np.full(states, 1.0 / states),
    )


def test_one_hot_features_give_visit_counts():
    """A_h is diagonal: λ + n(s, a). So ‖x‖ = 1/√(λ + n), width = 1/√(λ_c + n), det(A/λ) = Π (1 + n/λ)."""
    world = tabular_world(np.random.default_rng(0))
    agent, streams = LsviUcb(world.problem, LsviConfig(value_ridge=0.5)), Streams.from_seed(1)
    slucb = SlucbQvi(world.problem, SlucbConfig(cost_ridge=0.25, value_ridge=0.5, condition_on="state"))
    counts, costs = np.zeros((2, 12)), np.zeros((2, 12))
    for _ in range(150):
        state = world.reset(streams)
        agent.plan()
        for step in range(2):
            transition = world.step(agent.act(step, state), streams)
            agent.observe(transition)
            slucb.observe(replace(transition, decision_id=None))
            counts[step] += transition.feature
            costs[step] += transition.feature * transition.cost
            state = transition.next_state
    slucb.register(range(3))
    slucb.plan()
    assert (counts > 0).sum() > 12
    safe = np.arange(12) % 4 == 0
    # slots are made in the order of first sight: put the rows back in the order of the states
    order = np.concatenate([np.arange(4 * s, 4 * s + 4) for s in slucb.slots])
    for step in range(2):
        seen = counts[step][order]
        np.testing.assert_allclose(slucb.tables.vxx[step, :12], 1.0 / (0.5 + seen), rtol=1e-12)
        expected = np.where(safe[order], 0.0, 1.0 / (0.25 + seen))
        np.testing.assert_allclose(slucb.tables.width2[step, :12], expected, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(slucb.current.gamma_hat[step, 0], costs[step] / (0.25 + counts[step]), rtol=1e-12)
        assert slucb.costs.log_det[step] == pytest.approx(np.log1p(counts[step] / 0.25).sum(), rel=1e-12)


def test_one_hot_weights_are_averages_of_reward_and_next_value():
    """w_h(s, a) = Σ (r + V_{h+1}(s')) / (λ + n(s, a))."""
    world = tabular_world(np.random.default_rng(5))
    agent, streams = SlucbQvi(world.problem, SlucbConfig(value_ridge=0.5)), Streams.from_seed(2)
    agent.register(range(3))
    history = []
    for _ in range(40):
        state = world.reset(streams)
        agent.plan()
        for step in range(2):
            transition = world.step(agent.act(step, state), streams)
            agent.observe(transition)
            history.append(transition)
            state = transition.next_state
    agent.plan()
    for step in range(2):
        total, count = np.zeros(12), np.full(12, 0.5)
        for t in history:
            if t.step == step:
                where = int(t.feature.argmax())
                total[where] += t.reward + agent.current.values[step + 1, t.next_state]
                count[where] += 1.0
        np.testing.assert_allclose(agent.current.weights[step], total / count, rtol=1e-12, atol=1e-15)


EXPLORERS = ("paper", "certified", "directional", "adaptive")
CONFIGS = {
    "default": SlucbConfig(),
    **{f"{e}": SlucbConfig(explorer=e, value_radius=1.0) for e in EXPLORERS},
    **{f"{e}, pooled": SlucbConfig(explorer=e, value_radius=1.0, pooled=True) for e in EXPLORERS},
    **{f"{e}, on doubling": SlucbConfig(explorer=e, value_radius=1.0, replan="on-doubling") for e in EXPLORERS},
    "as published": SlucbConfig.paper(0.3),
    "pooled, on doubling": SlucbConfig(pooled=True, replan="on-doubling"),
    "conditioned on all": SlucbConfig(condition_on="all"),
    "conditioned on the state": SlucbConfig(condition_on="state"),
    "mixture": SlucbConfig(cost_radius="mixture"),
    "classical": SlucbConfig(cost_radius="classical"),
}
VARIANTS = {
    "star": {},
    "finite": {"finite": True},
    "unknown": {"known_costs": False},
    "two": {"constraints": 2},
    "error bar": {"error": 0.02},
    "two error bars": {"error": 0.02, "constraints": 2},
}


def variant_world(seed, *, error=0.0, **settings):
    """A small world whose safe costs are known up to an error."""
    world = uneven_world(seed, **settings)
    return replace(world, problem=restated(world.problem, baseline_cost_error=error)) if error else world


RUNS = [(name, kind) for name in CONFIGS for kind in VARIANTS if (name, kind) != ("conditioned on all", "unknown")]


@pytest.mark.parametrize(("name", "variant"), RUNS)
def test_a_compiled_run_equals_the_stepwise_run_bit_for_bit(name, variant):
    config = CONFIGS[name]
    world = variant_world(3, states=3, rays=4, dimension=4, same_stages=config.pooled, **VARIANTS[variant])
    fast, slow = SlucbQvi(world.problem, config), SlucbQvi(world.problem, config)
    books = simulate(world, fast, 90, Streams.from_seed(7))
    assert_same_run(fast, slow, books, simulate_stepwise(world, slow, 90, Streams.from_seed(7)))


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("replan", ["every-episode", "on-doubling"])
@pytest.mark.parametrize("pooled", [False, True])
def test_a_compiled_run_of_lsvi_ucb_equals_the_stepwise_run_bit_for_bit(told, replan, pooled):
    world = uneven_world(4, states=3, rays=4, same_stages=pooled)
    config = LsviConfig(penalty=0.0 if told else 0.3, replan=replan, pooled=pooled)
    gamma = world.true_gamma if told else None
    fast, slow = LsviUcb(world.problem, config, true_gamma=gamma), LsviUcb(world.problem, config, true_gamma=gamma)
    books = simulate(world, fast, 90, Streams.from_seed(8))
    assert_same_run(fast, slow, books, simulate_stepwise(world, slow, 90, Streams.from_seed(8)))


@pytest.mark.parametrize("replan", ["every-episode", "on-doubling"])
def test_after_a_compiled_run_a_decision_names_the_data_it_rests_on(replan):
    world = uneven_world(5, states=3, rays=4)
    fast, slow = (SlucbQvi(world.problem, SlucbConfig(replan=replan)) for _ in range(2))
    simulate(world, fast, 25, Streams.from_seed(9))
    simulate_stepwise(world, slow, 25, Streams.from_seed(9))
    assert fast.peek(1, 2).data_version == slow.peek(1, 2).data_version


def test_a_compiled_run_refuses_an_agent_that_numbers_the_states_otherwise():
    world, streams = uneven_world(6), Streams.from_seed(10)
    agent = SlucbQvi(world.problem)
    agent.register([2, 0])
    with pytest.raises(InputError, match="state"):
        simulate(world, agent, 3, streams)


def test_told_gamma_the_whole_certified_length_is_the_true_one():
    """LSVI-UCB that is told γ* cuts each ray exactly where its true cost reaches τ."""
    world = uneven_world(7)
    agent = LsviUcb(world.problem, true_gamma=world.true_gamma)
    agent.register(range(4))
    agent.plan()
    cut = 0
    for step in range(3):
        for state in range(4):
            row, length = agent.current.row[step, state], agent.current.length[step, state]
            if row < 0:
                continue
            base = world.true_gamma[step, 0] @ world.phi_0[state]
            cost = world.true_gamma[step, 0] @ world.endpoints[state, row]
            expected = 1.0 if cost <= 0.5 else (0.5 - base) / (cost - base)
            assert length == pytest.approx(expected, rel=1e-12)
            cut += length < 1.0
    assert cut > 0
