"""The two baselines beside a learner: the default action on stars, and the penalised objective for several costs."""

import numpy as np
import pytest

from tether import Constraint, InputError, LsviConfig, LsviUcb, Problem, SlucbQvi
from tether.agents.fixed import AlwaysSafe, DefaultAction
from tether.agents.lsvi import PenalisedLsvi, penalised
from tether.agents.testing import check_agent
from tether.lab.registry import AGENTS
from tether.lab.simulate import simulate, simulate_stepwise
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import policy_values
from worlds import many_actions, small_world, two_constraints


@pytest.mark.parametrize("registered", [False, True])
def test_the_default_action_is_played_everywhere_with_its_declared_cost_as_the_bound(registered):
    world = two_constraints()
    agent, streams = DefaultAction(world.problem), Streams.from_seed(1)
    agent.register(range(world.state_count if registered else 0))  # then its plan covers them
    for _ in range(3):
        state = world.reset(streams)
        agent.plan()
        for step in range(world.problem.horizon):
            decision = agent.act(step, state)
            assert decision.is_baseline
            assert decision.cost_radius.origin == "exact"
            np.testing.assert_array_equal(decision.feature, world.phi_0[state])
            told = world.problem.look_up(state).baseline_cost[step]
            assert [bound.bound for bound in decision.evidence] == told.tolist()
            outcome = world.step(decision, streams)
            agent.observe(outcome)
            with pytest.raises(InputError, match="exactly once"):
                agent.observe(outcome)
            state = outcome.next_state


def test_the_books_of_the_default_action_are_exact_and_its_rival_is_the_same_optimum():
    """AlwaysSafe is judged among mixtures, whose optimum on a star is a larger one; the default action is not."""
    world = small_world()
    books = simulate(world, DefaultAction(world.problem), 40, Streams.from_seed(2))
    rival = simulate(world, SlucbQvi(world.problem), 40, Streams.from_seed(2))
    default = np.tile(world.phi_0, (world.problem.horizon, 1, 1))
    assert set(np.round(books.value, 12)) <= set(np.round(policy_values(world, default)[0], 12))
    np.testing.assert_array_equal(books.optimal_value, rival.optimal_value)
    assert books.violations.sum() == 0.0
    assert (books.baseline == 1.0).all()
    assert (books.length == 0.0).all()


def test_a_study_takes_the_default_action_on_stars_and_always_safe_elsewhere():
    made = {name: AGENTS.get("always-safe").build(world, {}) for name, world in
            (("star", small_world()), ("finite", many_actions()))}  # fmt: skip
    assert type(made["star"]).__name__ == "DefaultAction"
    assert type(made["finite"]).__name__ == "AlwaysSafe"


@pytest.mark.parametrize("kind", [DefaultAction, AlwaysSafe])
def test_the_safe_action_keeps_the_contract_of_agents(kind, tmp_path):
    check_agent(kind, tmp_path)


def test_the_penalised_baseline_keeps_the_contract_of_agents(tmp_path):
    check_agent(lambda problem: PenalisedLsvi(problem, LsviConfig(penalty=0.5)), tmp_path)


@pytest.mark.parametrize("told", [False, True])
def test_lsvi_ucb_knows_where_trajectories_end(told):
    """State 1 ends: nothing is decided there, and it is worth its final reward at each of the steps that remain."""
    problem = Problem.from_rays(
        phi_0=[[0.5, 0.5]] * 2,
        endpoints=[[[1.0, 0.0]]] * 2,
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=np.full((3, 2), 0.1)),
        horizon=3,
        final_reward=lambda state: 0.25 if state == 1 else None,
    )
    agent = LsviUcb(problem, true_gamma=np.full((3, 2), 0.1) if told else None)
    agent.register([0, 1])
    agent.plan()
    np.testing.assert_allclose(agent.current.values[:, agent.slot_of(1)], [0.75, 0.5, 0.25, 0.0])
    with pytest.raises(InputError, match="ended in state 1"):
        agent.act(0, 1)


def test_without_its_cost_the_default_action_is_played_without_a_bound():
    world = small_world(known_costs=False)
    decision = DefaultAction(world.problem).act(0, 1)
    assert decision.is_baseline and np.isnan(decision.cost_bound) and decision.cost_radius.origin == "none"


def test_a_saved_default_action_comes_back(tmp_path):
    world = small_world()
    agent = DefaultAction(world.problem)
    simulate(world, agent, 3, Streams.from_seed(0))
    agent.save(tmp_path / "default.tether")
    again = DefaultAction.restore(tmp_path / "default.tether", world.problem)
    assert again.data_version == agent.data_version == 3 * world.problem.horizon
    assert again.act(0, 1).evidence == agent.act(0, 1).evidence


def test_a_penalty_in_units_of_the_threshold_is_the_papers_penalty_for_one_constraint():
    """r − λ' c/τ with λ' = 0.4 is LSVI-UCB on r − (0.4/τ) c, number for number: once by kernels, once by hand."""
    world, config = small_world(), LsviConfig(penalty=0.4)
    fast = penalised(world.problem, config)
    assert type(fast) is LsviUcb
    assert fast.config.penalty == pytest.approx(0.4 / world.problem.threshold[0])
    slow = PenalisedLsvi(world.problem, config)
    books = [simulate_stepwise(world, agent, 30, Streams.from_seed(3)) for agent in (fast, slow)]
    np.testing.assert_allclose(books[0].value, books[1].value, atol=1e-9)
    np.testing.assert_array_equal(books[0].reward, books[1].reward)


def test_a_penalty_counts_every_constraint():
    """λ' = 2, τ = (0.55, 0.5), z = (0.11, 0.2): the reward 0.9 is learned as 0.9 − 2 (0.2 + 0.4) = −0.3."""
    world = two_constraints()
    agent = penalised(world.problem, LsviConfig(penalty=2.0))
    assert type(agent) is PenalisedLsvi
    agent.plan()
    decision = agent.act(0, 0)
    agent.observe(decision.outcome(reward=0.9, cost=(0.11, 0.2), next_state=1))
    np.testing.assert_allclose(agent.values.reward_moment[0], -0.3 * decision.feature, atol=1e-12)
    with pytest.raises(InputError, match="needs a cost"):
        agent.observe(agent.act(0, 0).outcome(reward=0.9, cost=None, next_state=1))


def test_a_saved_penalised_agent_keeps_its_price(tmp_path):
    world = two_constraints()
    agent = PenalisedLsvi(world.problem, LsviConfig(penalty=2.0))
    simulate(world, agent, 5, Streams.from_seed(0))
    agent.save(tmp_path / "penalised.tether")
    again = PenalisedLsvi.restore(tmp_path / "penalised.tether", world.problem)
    first, second = (simulate(world, one, 5, Streams.from_seed(1)) for one in (agent, again))
    np.testing.assert_array_equal(first.value, second.value)
    assert again.config.penalty == 2.0
