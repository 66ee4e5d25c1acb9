"""Laws of whole agents: the safe action is always allowed, evidence is honest, and plans are rare when asked to be."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.generators import constrained, law, seeds
from tether import Constraint
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.lab.worlds.linear_mdp import Streams
from tether.problem.action_sets import StarActions
from tether.problem.problem import Problem
from tether.records import Transition
from worlds import uneven_world

few = settings(law, max_examples=15)
EXPLORER = st.sampled_from(["paper", "certified", "directional", "adaptive"])


def play(world, agent, streams, episodes):
    """Run episodes and yield every decision with its transition."""
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(world.problem.horizon):
            decision = agent.act(step, state)
            transition = world.step(decision, streams)
            agent.observe(transition)
            yield decision, transition
            state = transition.next_state


@few
@given(seeds, EXPLORER, st.booleans(), st.booleans(), st.integers(1, 2))
def test_no_decision_has_a_bound_over_its_threshold(seed, explorer, finite, known, constraints):
    world = uneven_world(seed, states=3, rays=4, finite=finite, known_costs=known, constraints=constraints)
    agent = SlucbQvi(world.problem, SlucbConfig(explorer=explorer))
    for decision, _ in play(world, agent, Streams.from_seed(seed % 1000), 12):
        assert len(decision.evidence) == constraints
        for bound in decision.evidence:
            assert bound.bound <= bound.threshold


def literal_fit(agent, step, states):
    """Constrained least squares from an agent's sums and the safe costs of these states."""
    known = [agent.problem.look_up(s) for s in states]
    facts = np.array([entry.actions.phi_0 for entry in known])
    told = np.array([entry.baseline_cost[step, 0] for entry in known])
    return constrained(agent.costs.gram[step], agent.costs.moment[step, 0], facts, told)


def literal_radius2(agent, step, states, beta):
    """β² − m."""
    return beta**2 - literal_fit(agent, step, states)[1]


def literal_bound(agent, step, feature, states, beta):
    """The left side of Eq. (9) at a feature, from the sums and the safe costs of these states: (d,) -> scalar."""
    estimate, _, width = literal_fit(agent, step, states)
    reduced = np.sqrt(literal_radius2(agent, step, states, beta)) if agent.rules.reduces_radius else beta
    return estimate @ feature + reduced * width(feature)


@few
@given(seeds, EXPLORER, st.sampled_from(["state", "visited", "all"]))
def test_the_evidence_is_the_left_side_of_equation_9_at_the_feature_played(seed, explorer, condition_on):
    """Recomputed from the sums and the facts by the plain form, which shares no code with the tables."""
    world = uneven_world(seed, states=3, rays=4, dimension=4)
    config = SlucbConfig(explorer=explorer, cost_radius=0.7, cost_ridge=0.3, condition_on=condition_on)
    agent, visited, compared = SlucbQvi(world.problem, config), set(), 0
    agent.register(range(3))
    streams = Streams.from_seed(seed % 1000)
    for decision, _ in play(world, agent, streams, 3):
        visited.add((decision.step, decision.state))
    agent.plan()
    for step in range(3):
        for state in range(3):
            decision = agent.act(step, state)
            also = {"state": [], "visited": [s for s in range(3) if (step, s) in visited], "all": range(3)}
            states = [state] + [s for s in also[condition_on] if s != state]
            if decision.reason == "alarm":  # a tuned β may be too small for the facts
                assert literal_radius2(agent, step, states, 0.7) < 1e-9
                continue
            expected = literal_bound(agent, step, decision.feature, states, 0.7)
            assert decision.cost_bound == pytest.approx(expected, abs=1e-7)
            compared += 1
    assert compared >= 5


@few
@given(seeds, EXPLORER, st.booleans())
def test_the_safe_action_is_the_answer_when_nothing_else_is_certified(seed, explorer, known):
    """A radius of a million leaves no other discrete action, and a_0 keeps its declared bound.

    (Facts of three visited states would determine γ* in three dimensions, whatever the radius: nothing is remembered.)
    """
    world = uneven_world(seed, states=3, rays=4, finite=True, known_costs=known)
    agent = SlucbQvi(world.problem, SlucbConfig(explorer=explorer, cost_radius=1e6, condition_on="state"))
    for decision, _ in play(world, agent, Streams.from_seed(1), 3):
        assert decision.is_baseline
        assert decision.reason == "only-baseline"
        expected = decision.evidence[0].baseline_cost if known else 0.5
        assert decision.cost_bound == expected


@few
@given(seeds, st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_every_certified_set_shrinks_as_beta_grows(seed, beta, more):
    """Same data, two radii: no choice of the cautious agent is longer on the same ray than the bold one allows."""
    world = uneven_world(seed, states=3, rays=4)
    bold, careful = (SlucbQvi(world.problem, SlucbConfig.paper(b)) for b in (beta, beta + more))
    bold.register(range(3))
    careful.register(range(3))
    streams = Streams.from_seed(2)
    for _, transition in play(world, bold, streams, 8):
        careful.observe(replace(transition, decision_id=None))
    bold.plan()
    careful.plan()
    for step in range(3):
        for state in range(3):
            feature = careful.act(step, state).feature
            assert literal_bound(bold, step, feature, [state], beta) <= 0.5 + 1e-9


@few
@given(seeds, st.sampled_from(["certified", "directional", "adaptive"]))
def test_a_safe_cost_that_contradicts_the_data_raises_the_alarm_and_plays_safe(seed, explorer):
    """The learner is told τ_s = 0.1, but the safe action really costs 0.4: 200 measurements at σ = 0.1 settle it."""
    rng = np.random.default_rng(seed)
    f, ends = np.array([0.6, 0.4]), rng.dirichlet(np.ones(2), 3)
    problem = Problem(
        horizon=1,
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=lambda step, state: 0.1),
        dimension=2,
        actions=lambda state: StarActions(f, ends),
        states=range(1),
    )
    agent = SlucbQvi(problem, SlucbConfig(explorer=explorer))
    assert agent.alarms == []
    for z in 0.4 + 0.1 * rng.standard_normal(200):
        agent.observe(Transition(0, 0, f, 0.0, float(z), 0))
    agent.plan()
    decision = agent.act(0, 0)
    assert agent.alarms == [(0, 0)]
    assert (decision.reason, decision.is_baseline) == ("alarm", True)
    np.testing.assert_array_equal(decision.feature, f)


@few
@given(seeds, st.sampled_from(["certified", "directional", "adaptive"]))
def test_a_safe_cost_that_agrees_with_the_data_raises_no_alarm(seed, explorer):
    world = uneven_world(seed, states=3, rays=4, noise=0.1)
    agent = SlucbQvi(world.problem, SlucbConfig(explorer=explorer))
    for _ in play(world, agent, Streams.from_seed(seed % 1000), 40):
        pass
    agent.plan()
    assert agent.alarms == []


@pytest.mark.parametrize("ridge", [1.0, 0.01])
def test_plans_on_doubling_are_logarithmically_few(ridge):
    """Each plan after the first needs a factor 2 in some det(A_h): at most 1 + Σ_h log2 det(A_h/λ) over both sums,
    and each of those is at most d log2(1 + K/(dλ)): O(dH log K) plans."""
    world, streams = uneven_world(3, states=3, rays=4), Streams.from_seed(4)
    config = SlucbConfig(replan="on-doubling", cost_ridge=ridge, value_ridge=1.0)
    agent = SlucbQvi(world.problem, config)
    agent.register(range(3))
    plans, episodes, d, horizon = 0, 400, 3, 3
    for _ in range(episodes):
        state = world.reset(streams)
        facts = agent.costs.facts.count.astype(float)
        grown = np.array([agent.costs.log_det, agent.values.log_det, facts]) - agent.planned_growth
        assert agent.plans_are_due == bool((grown > np.log(2.0)).any())
        plans += agent.plans_are_due
        agent.plan()
        assert not agent.plans_are_due
        for step in range(horizon):
            transition = world.step(agent.act(step, state), streams)
            agent.observe(transition)
            state = transition.next_state
    dets = (agent.costs.log_det.sum() + agent.values.log_det.sum()) / np.log(2.0)
    worst = 1.0 + d * horizon * sum(np.log2(1.0 + episodes / (d * one)) for one in (ridge, 1.0))
    assert 3 < plans <= 1.0 + dets <= worst
    assert plans < episodes / 4
    assert plans == agent.current.made[0]


@few
@given(seeds, st.sampled_from(["every-episode", "on-doubling"]))
def test_asking_never_changes_what_is_answered_later(seed, replan):
    """`act` at states that no plan covers, any number of times, leaves every later plan equal bit for bit."""
    world = uneven_world(seed, states=30, rays=4)
    quiet, asked = (SlucbQvi(world.problem, SlucbConfig(replan=replan)) for _ in range(2))
    streams = Streams.from_seed(5)
    for n, (decision, transition) in enumerate(play(world, quiet, streams, 25)):
        if decision.step == 0:
            asked.plan()
        asked.expect(f"of the quiet one {n}", decision.step, decision.feature)
        asked.observe(replace(transition, decision_id=f"of the quiet one {n}"))
        for state in range(0, 30, 3):
            asked.withdraw(asked.act(decision.step, state).id)
    quiet.plan()
    asked.plan()
    np.testing.assert_array_equal(quiet.current.radius, asked.current.radius)
    np.testing.assert_array_equal(quiet.current.length, asked.current.length)
    np.testing.assert_array_equal(quiet.current.values, asked.current.values)


@few
@given(seeds, EXPLORER, st.booleans())
def test_a_state_that_no_plan_covers_gets_the_choice_a_plan_would_make(seed, explorer, finite):
    """Asked right after planning, an unregistered state is judged by the same sums and the same weights."""
    world = uneven_world(seed, states=3, rays=4, finite=finite)
    config = SlucbConfig(explorer=explorer, cost_radius="mixture")
    told, untold = SlucbQvi(world.problem, config), SlucbQvi(world.problem, config)
    told.register(range(3))
    for state, step in ((0, 2), (1, 2), (0, 2)):  # the last step: values beyond it are zero for both
        feature = world.problem.look_up(state).actions.phi_0
        for agent in (told, untold):
            agent.observe(Transition(step, state, feature, 0.3, 0.2))
    told.plan()
    untold.plan()
    for state in range(3):
        first, second = told.act(2, state), untold.act(2, state)
        assert first.is_baseline == second.is_baseline
        np.testing.assert_allclose(first.feature, second.feature, rtol=0.0, atol=1e-9)
        assert first.cost_bound == pytest.approx(second.cost_bound, abs=1e-9)
        assert first.score == pytest.approx(second.score, abs=1e-9)
