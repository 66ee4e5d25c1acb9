"""Costs take effect in the order of decisions, stage by stage; what is lost counts as the problem says."""

from dataclasses import replace

import numpy as np
import pytest

from agents.cases import CASES
from limits import restated
from tether import InputError, Monitor, SlucbConfig, SlucbQvi
from tether.agents.outcome_order import CostOutcome, OutcomeOrder
from tether.agents.testing import essence
from tether.lab.worlds.linear_mdp import Streams
from worlds import small_world, two_arm_problem, two_constraints

WORLD = small_world()
ORDERED = ("explorer-adaptive", "explorer-paper", "condition-on-all", "unknown-certified", "rslucb-star", "lean")
X = np.array([0.5, 0.5])


def seen(number, step=0):
    return CostOutcome(step, X, np.array([float(number)]))


def numbers(outcomes):
    return [float(each.cost[0]) for each in outcomes]


def test_what_comes_early_waits_for_all_before_it():
    """Decisions 0 to 4 at one step; 3, 1, 0 and 4 come; 2 is withdrawn."""
    order = OutcomeOrder(1)
    for id in range(5):
        order.expect(id, 0, X)
    assert order.settle(3, seen(3)) == order.settle(1, seen(1)) == []
    assert (order.waiting, list(order.open)) == (2, [0, 2, 4])
    assert [(b.id, b.waiting) for b in order.blocked] == [(0, 2)]
    assert numbers(order.settle(0, seen(0))) == [0.0, 1.0]
    assert order.settle(4, seen(4)) == []
    assert numbers(order.withdraw(2)) == [3.0, 4.0]
    assert (order.waiting, order.open, order.blocked) == (0, {}, [])


def test_stages_do_not_wait_for_each_other_and_pooled_steps_do():
    for stages, expected in ((2, [7.0]), (1, [])):
        order = OutcomeOrder(stages)
        order.expect("a", 0, X)
        order.expect("b", 1, X)
        assert numbers(order.settle("b", seen(7, step=1))) == expected


def test_a_lost_outcome_lets_the_others_pass_and_brings_its_feature():
    order = OutcomeOrder(1)
    order.expect(0, 0, X, since=5.0)
    order.expect(1, 0, 2 * X, since=6.0)
    order.settle(1, seen(1))
    assert order.older_than(5.0) == []
    assert order.older_than(9.0) == [0]
    lost, other = order.lose(0)
    assert lost.cost is None and np.array_equal(lost.feature, X)
    assert numbers([other]) == [1.0]


@pytest.mark.parametrize("id", [0, 3, 7, None, [1]])
def test_an_outcome_of_no_open_decision_is_refused(id):
    """0 has taken effect; 3 has its outcome, which waits for that of 2."""
    order = OutcomeOrder(1)
    for each in (0, 2, 3):
        order.expect(each, 0, X)
    order.settle(0, seen(0))
    order.settle(3, seen(0))
    for call in (order.expected, order.withdraw, order.lose, lambda id: order.settle(id, seen(0))):
        with pytest.raises(InputError, match="no outstanding outcome"):
            call(id)


def test_an_order_is_restored_as_it_was():
    order, again = OutcomeOrder(2), OutcomeOrder(2)
    for id in range(4):
        order.expect(id, id % 2, id * X, since=float(id))
    order.settle(2, seen(2))
    order.settle(3, replace(seen(3, step=1), cost=None, key=("a", 1)))
    again.take_json(order.to_json(), 2, 1)
    assert again.to_json() == order.to_json()
    assert numbers(again.settle(0, seen(0))) == [0.0, 2.0]


def test_the_counts_are_those_of_the_queues_whatever_comes():
    """Against a count over the saved entries, also after a restore."""
    rng, order = np.random.default_rng(0), OutcomeOrder(2)
    for id in range(300):
        order.expect(id, id % 2, X)
        if order.open and rng.random() < 0.9:
            one = int(rng.choice(list(order.open)))
            if rng.random() < 0.2:
                order.withdraw(one)
            else:
                order.settle(one, seen(id, step=one % 2))
        if id % 50 == 0:
            saved, order = order.to_json(), OutcomeOrder(2)
            order.take_json(saved, 2, 1)
        here = [each["outcome"] is not None for each in order.to_json()]
        assert (len(order), order.waiting) == (len(here) - sum(here), sum(here))
        assert sum(each.waiting for each in order.blocked) == order.waiting


@pytest.mark.parametrize("name", ORDERED)
def test_the_bounds_rest_on_a_prefix_whatever_comes_first(name):
    """Twelve decisions; the outcomes of the later eleven change nothing before that of the first is here."""
    case = CASES[name]
    agent, streams = case.make(), Streams.from_seed(3)
    agent.plan()
    states = list(range(case.world.state_count)) * 3
    outcomes = [case.world.step(agent.act(0, state), streams) for state in states]
    before = agent.costs.gram.copy(), agent.costs.moment.copy(), agent.data_version
    for outcome in outcomes[1:]:
        agent.observe(outcome)
    assert np.array_equal(agent.costs.gram, before[0]) and np.array_equal(agent.costs.moment, before[1])
    assert (agent.data_version, agent.order.waiting) == (before[2], len(states) - 1)
    agent.observe(outcomes[0])
    assert (agent.data_version, agent.order.waiting) == (before[2] + len(states), 0)
    x, z = np.array([each.feature for each in outcomes]), np.array([each.cost for each in outcomes])
    np.testing.assert_allclose(agent.costs.moment[0, 0] - before[1][0, 0], z @ x, rtol=1e-12, atol=1e-14)


def test_waiting_outcomes_are_saved_and_restored(tmp_path):
    agent, streams = SlucbQvi(WORLD.problem), Streams.from_seed(4)
    agent.watch = Monitor(WORLD.problem)
    agent.plan()
    outcomes = [WORLD.step(agent.act(0, state), streams) for state in (0, 1, 2)]
    agent.observe(outcomes[2])
    agent.save(tmp_path / "waiting")
    again = SlucbQvi.restore(tmp_path / "waiting", WORLD.problem)
    for each in (agent, again):
        each.observe(outcomes[1])
        each.lose(outcomes[0].decision_id)
        each.plan()
    assert again.costs.gram.tobytes() == agent.costs.gram.tobytes()
    assert again.watch.to_json() == agent.watch.to_json()
    assert essence((again.lost, again.act(0, 0))) == essence((agent.lost, agent.act(0, 0)))


def test_old_data_count_until_something_but_the_safe_action_was_played(tmp_path):
    """A table in two pieces: after the safe action alone the second counts, too; after any other action it is refused,
    also by an agent that was restored, and nothing changes."""
    agent, streams = SlucbQvi(WORLD.problem), Streams.from_seed(4)
    row = replace(WORLD.step(agent.peek(0, 0), streams), decision_id=None)
    agent.expect("a_0", 0, WORLD.problem.look_up(0).actions.phi_0, is_baseline=True)
    agent.observe(row)
    assert agent.data_version == 1 and not agent.has_acted
    while agent.act(0, 0).is_baseline:
        agent.plan()
    agent.save(tmp_path / "acted")
    for each in (agent, SlucbQvi.restore(tmp_path / "acted", WORLD.problem)):
        with pytest.raises(InputError, match="names no decision, and other actions than the safe one"):
            each.observe(row)
        assert each.data_version == 1


def test_many_waiting_outcomes_are_worth_a_warning():
    agent, streams = SlucbQvi(WORLD.problem), Streams.from_seed(4)
    forgotten = agent.act(0, 0)
    with pytest.warns(UserWarning, match=rf"100 outcomes wait for that of decision {forgotten.id}.*withdraw.*peek"):
        for _ in range(100):
            agent.observe(WORLD.step(agent.act(0, 0), streams))
    agent.withdraw(forgotten.id)
    assert agent.order.waiting == 0


def test_a_cost_lost_at_random_is_left_out_and_counted():
    agent, streams = SlucbQvi(WORLD.problem), Streams.from_seed(4)
    gram = agent.costs.gram.copy()
    agent.observe(replace(WORLD.step(agent.act(0, 0), streams), cost=None))
    assert np.array_equal(agent.costs.gram, gram)
    evidence = agent.act(0, 1).tightest
    assert (evidence.lost, evidence.lost_as) == (1, "at-random")
    assert agent.act(1, 1).tightest.lost == 0


def test_in_the_worst_case_a_lost_cost_is_half_its_range_off():
    """cost_range (0, 0.6): z = 0.3 and b = 0.3, so β grows by √(2 · 0.3²) after two losses; pooled or not."""
    problem = restated(WORLD.problem, lost="worst-case", cost_range=(0.0, 0.6))
    config = SlucbConfig(condition_on="state", cost_radius="mixture", explorer="paper")
    agent, other, streams = SlucbQvi(problem, config), SlucbQvi(WORLD.problem, config), Streams.from_seed(4)
    for state in (0, 1):
        outcome = WORLD.step(agent.act(0, state), streams)
        agent.observe(replace(outcome, cost=None))
        other.act(0, state)
        other.observe(replace(outcome, cost=0.3))
    np.testing.assert_allclose(agent.costs.moment, other.costs.moment, rtol=1e-14)
    for each in (agent, other):
        each.plan()
    mine, theirs = agent.act(0, 0).tightest, other.act(0, 0).tightest
    assert mine.radius.value == pytest.approx(theirs.radius.value + 0.3 * np.sqrt(2.0), rel=1e-8)
    assert (mine.lost, mine.lost_as) == (2, "worst-case")


def test_the_lost_outcome_of_a_safe_action_counts_like_any_other():
    """Its feature is the problem's own, which nobody may write to, and still reaches the kernels."""
    agent = SlucbQvi(two_arm_problem(horizon=1, lost="worst-case", cost_range=(0.0, 0.6)))
    decision = agent.act(0, 0)
    assert decision.is_baseline and not decision.feature.flags.writeable
    agent.lose(decision.id)
    assert agent.costs.bias.tolist() == [[0.3**2]]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"lost": "worst-case"}, r"cost_range=\(lowest, highest\)"),
        ({"cost_range": (1.0, 0.0)}, "cost_range must be"),
        ({"cost_range": (0.0, np.inf)}, "cost_range must be"),
        ({"cost_range": [(0, 1), (0, 1), (0, 1)]}, "cost_range must be"),
        ({"lost": "never"}, r"Lost\(counts_as=…\) must be"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(told, words):
    with pytest.raises(InputError, match=words):
        restated(two_constraints().problem, **told)


def test_a_cost_outside_its_declared_range_is_refused():
    problem = restated(WORLD.problem, lost="worst-case", cost_range=(0.0, 0.6))
    agent = SlucbQvi(problem)
    decision = agent.act(0, 0)
    with pytest.raises(InputError, match=r"cost 0 is 0\.7, outside the declared cost_range of 0\.0 to 0\.6"):
        agent.observe(decision.outcome(reward=0.1, cost=0.7, next_state=1))
    assert agent.open_decisions == {decision.id: 0}
