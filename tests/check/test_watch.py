"""agent.watch: fed once per outcome, trips to a_0 with its reason, is saved with the agent."""

from dataclasses import replace

import numpy as np
import pytest

from limits import restated
from tether import RslucbQvi, SlucbConfig, SlucbQvi
from tether.agents.testing import play
from tether.check.monitor import Alarm, Monitor
from tether.errors import InputError
from tether.lab.worlds.linear_mdp import Streams
from tether.records import Transition
from worlds import many_actions, simplex_problem, small_world, two_constraints

ALARM = Alarm("noise", "the costs scatter", 9.0, 5.0, 40, 0)


def watched(world=None, **settings):
    """A default learner with a monitor, after three episodes."""
    world = world or small_world()
    agent = SlucbQvi(world.problem, SlucbConfig(**settings))
    agent.watch = Monitor(world.problem)
    play(world, agent, Streams.from_seed(1), 3)
    return agent


def test_every_outcome_reaches_the_monitor_once():
    agent = watched()
    assert agent.watch.observations == agent.data_version == 9
    assert [sums.count for sums in agent.watch._sums] == [3, 3, 3]
    features = sum(sums.gram[1:, 1:] for sums in agent.watch._sums)
    gram = agent.costs.gram - agent.costs.ridge * np.eye(3)
    assert features == pytest.approx(gram.sum(axis=0), abs=1e-12)


def test_a_refused_outcome_does_not_reach_the_monitor():
    agent = watched()
    decision = agent.act(0, 1)
    for bad in (Transition(0, 1, decision.feature, np.nan, 0.1), Transition(0, 1, decision.feature, 0.5, np.inf)):
        with pytest.raises(InputError):
            agent.observe(bad)
    with pytest.raises(InputError, match="not hashable"):
        agent.observe(Transition(0, {"a": []}, decision.feature, 0.5, 0.1, 1))
    with pytest.raises(InputError):
        agent.observe(Transition(0, 1, decision.feature, 0.5, 0.1, 99))
    assert agent.watch.observations == agent.data_version == 9


def test_a_missing_cost_is_learned_from_but_not_tested():
    agent = watched()
    agent.observe(agent.act(0, 1).outcome(reward=0.5, cost=None, next_state=2))
    assert (agent.watch.observations, agent.data_version) == (9, 10)


@pytest.mark.parametrize("ask", ["act", "propose"])
def test_with_an_alarm_the_safe_action_is_played_and_says_why(ask):
    agent = watched()
    free = getattr(agent, ask)(1, 2)
    assert free.reason != "tripped" and free.detail == ""
    agent.watch.alarm = ALARM
    decision = getattr(agent, ask)(1, 2)
    known = agent.problem.look_up(2)
    assert decision.is_baseline and decision.reason == "tripped" and decision.detail == str(ALARM)
    assert np.array_equal(decision.feature, known.actions.phi_0)
    assert [bound.bound for bound in decision.evidence] == known.baseline_cost[1].tolist()
    assert decision.cost_bound < decision.threshold
    agent.watch.reset("understood")
    assert getattr(agent, ask)(1, 2).reason != "tripped"


def test_with_an_alarm_states_that_no_plan_covers_get_their_safe_action_too():
    world = small_world()
    agent = SlucbQvi(world.problem)
    agent.watch = Monitor(world.problem)
    agent.watch.alarm = ALARM
    assert [agent.act(0, state).reason for state in range(4)] == ["tripped"] * 4


def test_a_tripped_learner_goes_on_observing():
    agent = watched()
    agent.watch.alarm = ALARM
    play(small_world(), agent, Streams.from_seed(2), 2)
    assert agent.data_version == 15 and agent.watch.observations == 15 and agent.watch.alarm is ALARM


def test_a_tripped_learner_plans_nothing_until_it_is_reset():
    agent = watched()
    made = int(agent.current.made[0])
    agent.watch.alarm = ALARM
    agent.plan()
    assert not agent.plans_are_due and int(agent.current.made[0]) == made
    agent.watch.reset("understood")
    agent.plan()
    assert int(agent.current.made[0]) == made + 1


@pytest.mark.parametrize("error", [0.01, 5.0])
def test_the_bound_of_a_safe_cost_with_an_error_bar_counts_it_when_tripped(error):
    """At most τ_s + e, and at most τ: a_0 was declared safe."""
    world = small_world()
    agent = SlucbQvi(restated(world.problem, baseline_cost_error=error))
    agent.watch = Monitor(agent.problem)
    agent.watch.alarm = ALARM
    shown = agent.act(0, 0).evidence[0]
    assert shown.bound == min(shown.baseline_cost + error, shown.threshold)


def test_an_unknown_safe_cost_is_not_invented_when_tripped():
    agent = watched(small_world(known_costs=False))
    agent.watch.alarm = ALARM
    decision = agent.act(0, 0)
    assert decision.reason == "tripped" and np.isnan(decision.evidence[0].bound)


def test_a_randomised_learner_trips_to_its_safe_action_for_sure():
    world = many_actions()
    agent = RslucbQvi(world.problem, rng=np.random.default_rng(0))
    agent.watch = Monitor(world.problem)
    play(world, agent, Streams.from_seed(1), 5)
    agent.watch.alarm = ALARM
    for state in range(4):
        decision = agent.act(2, state)
        actions = world.problem.actions(state)
        assert decision.action == actions.baseline and decision.is_baseline
        assert np.array_equal(decision.mean_feature, actions.phi_0)


def test_both_constraints_are_watched():
    world = two_constraints()
    agent = SlucbQvi(world.problem)
    agent.watch = Monitor(world.problem)
    play(world, agent, Streams.from_seed(1), 4)
    assert len(agent.watch.evidence()) == 2
    agent.watch.alarm = ALARM
    assert len(agent.act(0, 0).evidence) == 2


def test_a_watch_keeps_episodes_out_of_blocks():
    agent = SlucbQvi(small_world().problem)
    assert not agent.watches_outcomes
    agent.watch = Monitor(agent.problem)
    assert agent.watches_outcomes


@pytest.mark.parametrize("alarm", [None, ALARM])
def test_a_restored_agent_has_its_watch_again_and_goes_on_alike(tmp_path, alarm):
    agent, world = watched(), small_world()
    agent.watch.alarm = alarm
    agent.save(tmp_path / "agent.tether")
    again = SlucbQvi.restore(tmp_path / "agent.tether", world.problem)
    assert again.watch.to_json() == agent.watch.to_json() and again.watch.alarm == alarm
    assert again.watches_outcomes
    first, second = (play(world, one, Streams.from_seed(3), 5) for one in (agent, again))
    assert [d.reason for d in first] == [d.reason for d in second]
    assert again.watch.to_json() == agent.watch.to_json()


def test_an_agent_without_a_watch_is_saved_without_one(tmp_path):
    agent = SlucbQvi(small_world().problem)
    agent.save(tmp_path / "agent.tether")
    assert SlucbQvi.restore(tmp_path / "agent.tether", agent.problem).watch is None


def test_a_wrong_cost_model_trips_a_learner_in_play():
    """Costs scatter three times as much as σ says: the learner ends at a_0, by itself."""
    world = small_world()
    agent = SlucbQvi(world.problem)
    agent.watch = Monitor(world.problem)
    rng, streams, reasons = np.random.default_rng(0), Streams.from_seed(4), []
    for _ in range(60):
        state = world.reset(streams)
        agent.plan()
        for step in range(3):
            decision = agent.act(step, state)
            seen = world.step(decision, streams)
            cost = float(world.true_gamma[step, 0] @ decision.feature) + 0.06 * rng.standard_normal()
            agent.observe(decision.outcome(reward=seen.reward, cost=cost, next_state=seen.next_state))
            reasons.append(decision.reason)
            state = seen.next_state
    assert "tripped" not in reasons[:20] and set(reasons[-30:]) == {"tripped"}
    assert agent.watch.alarm.test == "noise"


def test_an_unsafe_safe_action_trips_an_agent_that_was_told_nothing_of_its_cost():
    """The mean cost of a_0 is half a σ over τ = 0.6; only outcomes of a_0 as it was decided count."""
    problem, rng = simplex_problem(baseline_cost=None), np.random.default_rng(0)
    agent = SlucbQvi(problem)
    agent.watch = Monitor(problem)
    for _ in range(300):
        decision = agent.act(0, 0)
        if decision.reason == "tripped":
            break
        assert decision.is_baseline
        agent.observe(decision.outcome(reward=0.5, cost=0.65 + 0.1 * rng.standard_normal()))
    assert decision.is_baseline and "safe test of cost 0: the safe action itself costs more than τ" in decision.detail


def test_an_outcome_of_another_action_than_was_decided_is_not_one_of_the_safe_action():
    problem = simplex_problem(baseline_cost=None)
    agent = SlucbQvi(problem)
    agent.watch = Monitor(problem)
    decision = agent.act(0, 0)
    agent.observe(replace(decision.outcome(reward=0.5, cost=0.9), feature=np.array([0.4, 0.2, 0.2, 0.2])))
    agent.observe(agent.act(0, 0).outcome(reward=0.5, cost=0.9))
    assert agent.watch._safe.counts[0] == 1.0
