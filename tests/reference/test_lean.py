"""The lean backup is the same algorithm as the tables: same values, same choices, same bounds, on the same data."""

from dataclasses import replace

import numpy as np
import pytest

from limits import restated
from tether import Constraint, InputError, LsviConfig, LsviUcb, Problem, SlucbConfig, SlucbQvi
from tether.agents.slucb import EXPLORERS
from tether.kernels.plan import BLOCK_NUMBERS, blocks_of, choose_block, one_row, scratch_for, tables_of, values_at
from worlds import small_world, two_constraints

STATES, D, HORIZON = 6, 3, 4
GAMMA = np.random.default_rng(2).uniform(0.3, 1.0, (HORIZON, 2, D))
GAMMA[:, :, 0] = 0.05
GAMMA[1:, :, 0] = 0.15
STILL = np.tile(GAMMA[1], (HORIZON, 1, 1))
"""Costs that do not depend on the step: what `pooled` is for."""

ENDED = {4: 0.7, 5: 0.0}
"""Trajectories end in states 4 and 5; each remaining step is worth this much."""


def problem_with_ends(*, finite, gamma=GAMMA):
    """Two constraints, and two states in which trajectories end."""
    rng = np.random.default_rng(3)
    phi_0 = 0.8 * np.eye(D)[0] + 0.2 * rng.dirichlet(np.ones(D), size=STATES)
    ends = rng.dirichlet(np.ones(D), size=(STATES, 5))
    if finite:
        features = np.concatenate([ends[:, :2], phi_0[:, None], ends[:, 2:]], axis=1)
        make, sets = Problem.from_table, {"features": features, "baseline_action": np.full(STATES, 2)}
    else:
        make, sets = Problem.from_rays, {"phi_0": phi_0, "endpoints": ends}
    return make(
        **sets,
        constraints=[
            Constraint(threshold=0.5, noise=0.02, safe_cost=gamma[:, 0] @ phi_0.T, gamma_norm=2.0),
            Constraint(threshold=0.55, noise=0.05, safe_cost=gamma[:, 1] @ phi_0.T, gamma_norm=2.0),
        ],
        horizon=HORIZON,
        final_reward=ENDED.get,
    )


def feed(agents, rng, episodes, *, ends_early=0.2, gamma=GAMMA):
    """The same transitions to every agent: features of D(s), some at a length; some costs missing, some ends early."""
    problem = agents[0].problem
    for _ in range(episodes):
        for agent in agents:
            agent.plan()
        state = int(rng.integers(4))
        for step in range(problem.horizon):
            actions = problem.actions(state)
            x = actions.endpoints[rng.integers(len(actions.endpoints))]
            if actions.is_star:
                x = actions.phi_0 + rng.random() * (x - actions.phi_0)
            follower = None if rng.random() < ends_early else int(rng.integers(STATES))
            reward, cost = rng.random(), tuple(gamma[step] @ x + 0.02 * rng.standard_normal(2))
            seen = agents[0].peek(step, state).outcome(reward=reward, cost=cost, next_state=follower)
            seen = replace(seen, feature=x, cost=None if rng.random() < 0.1 else cost, decision_id=None)
            for agent in agents:
                agent.observe(seen)
            if follower is None or follower in ENDED:
                break
            state = follower


def check_same(tables, lean):
    """Weights, radii and the decision at every step in every state that can be asked about."""
    assert tables.current.made == lean.current.made
    np.testing.assert_allclose(lean.current.weights, tables.current.weights, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(lean.current.gamma_hat, tables.current.gamma_hat, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(lean.current.radius, tables.current.radius, rtol=1e-9)
    np.testing.assert_allclose(lean.current.margin, tables.current.margin, rtol=1e-6)
    np.testing.assert_array_equal(lean.current.facts, tables.current.facts)
    chosen = 0
    for step in range(tables.problem.horizon):
        for state in range(4):
            one, two = tables.peek(step, state), lean.peek(step, state)
            assert one.reason == two.reason
            assert getattr(one.action, "ray", one.action) == getattr(two.action, "ray", two.action)
            np.testing.assert_allclose(two.feature, one.feature, rtol=1e-8)
            assert two.score == pytest.approx(one.score, rel=1e-9, abs=1e-9)
            for mine, yours in zip(two.evidence, one.evidence, strict=True):
                assert mine.bound == pytest.approx(yours.bound, rel=1e-8)
                assert mine.radius.value == pytest.approx(yours.radius.value, rel=1e-9)
                assert mine.threshold == yours.threshold
                assert mine.facts == yours.facts
            check_alone(tables, step, state, one)
            check_alone(lean, step, state, two)
            chosen += not two.is_baseline
    return chosen


def check_alone(agent, step, state, decision):
    """A proposal from the newest data, outside any plan, is the planned decision: the data are those of the plan."""
    alone = agent.propose(step, state)
    assert getattr(alone.action, "ray", alone.action) == getattr(decision.action, "ray", decision.action)
    assert alone.reason == decision.reason
    np.testing.assert_allclose(alone.feature, decision.feature, rtol=1e-8)
    assert alone.score == pytest.approx(decision.score, rel=1e-9, abs=1e-9)
    for mine, yours in zip(alone.evidence, decision.evidence, strict=True):
        assert mine.bound == pytest.approx(yours.bound, rel=1e-8)
        assert mine.radius.value == pytest.approx(yours.radius.value, rel=1e-12)
        assert mine.facts == yours.facts


SETTINGS = {
    **{f"explorer {name}": {"explorer": name} for name in EXPLORERS},
    "pooled": {"pooled": True},
    "pooled certified": {"pooled": True, "explorer": "certified"},
    "pooled on the state": {"pooled": True, "condition_on": "state"},
    "conditioned on all": {"condition_on": "all"},
    "conditioned on the state": {"condition_on": "state"},
    "one tuned beta": {"explorer": "paper", "cost_radius": 0.1, "value_radius": 0.1, "cost_ridge": 1.0},
    "on doubling": {"replan": "on-doubling"},
    "on growth": {"replan": "on-growth"},
    "value ridge of the costs": {"value_ridge": "cost", "value_radius": "unseen"},
}


@pytest.mark.parametrize("finite", [False, True], ids=["star", "finite"])
@pytest.mark.parametrize("name", SETTINGS)
def test_lean_and_tables_make_the_same_plan(name, finite):
    settings = {"replan": "every-episode", **SETTINGS[name]}
    gamma = STILL if settings.get("pooled") else GAMMA
    problem = problem_with_ends(finite=finite, gamma=gamma)
    agents = [SlucbQvi(problem, SlucbConfig(backup=backup, **settings)) for backup in ("tables", "lean")]
    rng, chosen = np.random.default_rng(8), 0
    for _ in range(4):
        feed(agents, rng, 8, gamma=gamma)
        for agent in agents:
            agent.plan_version = -1  # a plan now, whatever the rule: so that both have seen the same data
            agent.plan()
        chosen += check_same(*agents)
    assert chosen > 0


@pytest.mark.parametrize("unknown", ["certified", "appendix"])
def test_lean_and_tables_agree_where_safe_costs_are_unknown(unknown):
    world = small_world(known_costs=False)
    config = SlucbConfig(unknown_cost=unknown, episodes=60, backup="tables", replan="every-episode")
    agents = [SlucbQvi(world.problem, replace(config, backup=backup)) for backup in ("tables", "lean")]
    rng, reasons = np.random.default_rng(9), set()
    for episode in range(60):
        for agent in agents:
            agent.plan()
        if episode % 6 == 0:
            check_same(*agents)
        state = int(rng.integers(4))
        for step in range(world.problem.horizon):
            decision = agents[0].peek(step, state)
            reasons.add(decision.reason)
            cost = float(world.true_gamma[step, 0] @ decision.feature) + 0.02 * rng.standard_normal()
            seen = decision.outcome(reward=rng.random(), cost=cost, next_state=int(rng.integers(4)))
            for agent in agents:
                agent.observe(replace(seen, decision_id=None))
            state = seen.next_state
    assert "best" in reasons
    assert ("warm-up" in reasons) == (unknown == "appendix")


@pytest.mark.parametrize("condition_on", ["state", "visited", "all"])
@pytest.mark.parametrize("finite", [False, True], ids=["star", "finite"])
def test_lean_and_tables_agree_where_safe_costs_have_an_error_bar(finite, condition_on):
    problem = restated(problem_with_ends(finite=finite), baseline_cost_error=0.01)
    config = SlucbConfig(condition_on=condition_on, backup="tables", replan="every-episode")
    agents = [SlucbQvi(problem, replace(config, backup=backup)) for backup in ("tables", "lean")]
    rng, chosen = np.random.default_rng(15), 0
    for _ in range(4):
        feed(agents, rng, 30)
        for agent in agents:
            agent.plan()
        chosen += check_same(*agents)
    assert chosen > 0
    weights = [agent.costs.facts.weight for agent in agents]
    np.testing.assert_array_equal(*weights)
    assert (weights[0] > 0.0).any() == (condition_on != "state")


@pytest.mark.parametrize("told", [False, True], ids=["unconstrained", "told"])
@pytest.mark.parametrize("settings", [{}, {"pooled": True}, {"penalty": 0.9}], ids=str)
def test_lean_and_tables_agree_for_the_baseline_too(told, settings):
    world = two_constraints(finite=True, same_stages=True)
    secret = {"true_gamma": world.true_gamma} if told else {}
    configs = [LsviConfig(backup=backup, replan="every-episode", **settings) for backup in ("tables", "lean")]
    agents = [LsviUcb(world.problem, config, **secret) for config in configs]
    rng = np.random.default_rng(10)
    for episode in range(25):
        for agent in agents:
            agent.plan()
        if episode % 6 == 0:
            check_same(*agents)
        for step in range(world.problem.horizon):
            decision = agents[0].peek(step, int(rng.integers(4)))
            follower = int(rng.integers(4)) if rng.random() < 0.8 else None
            seen = decision.outcome(reward=rng.random(), cost=tuple(rng.random(2)), next_state=follower)
            for agent in agents:
                agent.observe(replace(seen, decision_id=None))


def test_the_values_of_the_backup_are_those_of_the_tables():
    """V_h at every state that step h - 1 led to, ended ones included: the targets of the regression."""
    problem = problem_with_ends(finite=False)
    agents = [SlucbQvi(problem, SlucbConfig(backup=b, replan="every-episode")) for b in ("tables", "lean")]
    feed(agents, np.random.default_rng(11), 50)
    for agent in agents:
        agent.plan()
    tables, lean = agents
    compared = 0
    for step in range(1, problem.horizon):
        members = lean.visited.members(step - 1)
        model = (lean.costs, lean.values, lean.rules)
        blocks = blocks_of(problem, lean.visited, members)
        values, _ = values_at(model, lean.visited, blocks, lean.current, step, lean.current.made)
        for state, value in zip(members, values, strict=True):
            slot = tables.slot_of(lean.visited.states[state])
            assert value == pytest.approx(tables.current.values[step, slot], rel=1e-9, abs=1e-10)
            if lean.visited.states[state] in ENDED:
                assert value == pytest.approx(ENDED[lean.visited.states[state]] * (problem.horizon - step))
            compared += 1
    assert compared >= 15


def block_of(agent, sets, costs, ends, step=1):
    """The choices of some states at one step, in one block."""
    tables, plan = tables_of(sets, costs, ends), one_row(agent.current, step, len(sets), np.array([5]))
    choose_block(agent.costs, agent.values, agent.rules, tables, plan, scratch_for(tables), step, step)
    return plan


def test_a_block_of_many_states_answers_as_each_of_them_alone():
    """Sets of different size, star and finite side by side."""
    star, finite = problem_with_ends(finite=False), problem_with_ends(finite=True)
    agent = SlucbQvi(star, SlucbConfig(backup="lean"))
    feed([agent], np.random.default_rng(12), 20)
    agent.plan()
    sets = [problem.look_up(state) for state in range(4) for problem in (star, finite)]
    costs, ends = np.array([told.baseline_cost[1] for told in sets]), np.array([told.final_reward for told in sets])
    together = block_of(agent, [told.actions for told in sets], costs, ends)
    for number, told in enumerate(sets):
        alone = block_of(agent, [told.actions], costs[number, None], ends[number, None])
        assert together.row[0, number] == alone.row[0, 0]
        assert together.length[0, number] == pytest.approx(alone.length[0, 0], rel=1e-12)
        assert together.reason[0, number] == alone.reason[0, 0]
        assert together.values[0, number] == pytest.approx(alone.values[0, 0], rel=1e-12)
        np.testing.assert_allclose(together.bound[0, number], alone.bound[0, 0], rtol=1e-12)
    assert len(set(together.row[0])) > 1


def test_more_states_than_one_block_holds_change_nothing(monkeypatch):
    problem = problem_with_ends(finite=False)
    agents = [SlucbQvi(problem, SlucbConfig(backup="lean", replan="every-episode")) for _ in range(2)]
    feed(agents, np.random.default_rng(13), 20)
    assert BLOCK_NUMBERS > 6 * 5 * 3
    agents[0].plan()
    monkeypatch.setattr("tether.kernels.plan.BLOCK_NUMBERS", 20)  # two states of 5 candidates in 3 dimensions
    agents[1].plan()
    np.testing.assert_allclose(agents[1].current.weights, agents[0].current.weights, rtol=1e-12, atol=1e-13)


def test_alarms_are_found_in_the_same_places():
    """A declared safe cost that the data contradict: the plan says where, and decisions there are a_0."""
    world = small_world(noise=0.02)
    lying = restated(world.problem, baseline_cost=lambda step, state: 0.45 if state == 2 else 0.05)
    agents = [SlucbQvi(lying, SlucbConfig(backup=b, replan="every-episode")) for b in ("tables", "lean")]
    rng = np.random.default_rng(14)
    for _ in range(120):
        for agent in agents:
            agent.plan()
        for step in range(3):
            decision = agents[0].peek(step, int(rng.integers(4)))
            cost = float(world.true_gamma[step, 0] @ decision.feature)
            seen = decision.outcome(reward=0.5, cost=cost, next_state=int(rng.integers(4)))
            for agent in agents:
                agent.observe(replace(seen, decision_id=None))
    for agent in agents:
        agent.plan()
    later = {(step, state) for step, state in agents[0].alarms if step > 0}
    assert later
    assert set(agents[1].alarms) == later  # nothing leads to step 0, so a lean plan has no states there
    for step, state in agents[0].alarms:
        decision = agents[1].peek(step, state)
        assert decision.is_baseline
        assert decision.reason == "alarm"


def test_an_ended_state_has_nothing_to_decide_in_either_backup():
    problem = problem_with_ends(finite=True)
    for backup in ("tables", "lean"):
        agent = SlucbQvi(problem, SlucbConfig(backup=backup))
        with pytest.raises(InputError, match="ended in state 4"):
            agent.act(1, 4)
