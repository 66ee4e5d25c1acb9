"""The learner is a fold over the log: order, bytes, purity, and what a missing cost must not do."""

from dataclasses import replace

import numpy as np
import pytest

from tether import Constraint
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import InputError, StateFileError
from tether.live.learner import Learner
from tether.live.live_agent import live_config
from tether.live.log.memory import MemoryStore
from tether.live.records import AlarmReset, Measured, OutcomeRecorded, event_of
from tether.problem.problem import Problem
from tether.records import Transition
from worlds import finite_problem, world_and_streams


def outcome(n, step, state, feature, cost, reward=0.4, after=1, known=None):
    """`known` is what the problem says of the state, if its safe cost is to be remembered."""
    return OutcomeRecorded(
        decision_id=f"d{n}",
        step=step,
        state=state,
        feature=[float(part) for part in feature],
        applied=None,
        reward=reward,
        cost=cost,
        next_state=after,
        safe_feature=None if known is None else known.actions.phi_0.tolist(),
        safe_cost=None if known is None else known.baseline_cost[step].tolist(),
    )


def fold(learner, entry):
    """Apply an entry; the decision that an outcome belongs to is taken as made just before."""
    event = event_of(entry)
    if isinstance(event, OutcomeRecorded):
        id, step, feature = event.decision_id, event.step, np.array(event.feature)
        learner.agent.order.expect(id, step, feature)
        learner.gate.turns.expect(learner.agent.stage_of(step), id, feature)
    learner.apply(entry.seq, event)


def some_entries(world, count, *, missing=(), seed=2):
    """Entries of a log with `count` outcomes; those in `missing` have no cost."""
    rng = np.random.default_rng(seed)
    store = MemoryStore()
    for n in range(count):
        step, state = n % world.problem.horizon, int(rng.integers(4))
        feature = world.endpoints[state, int(rng.integers(5))]
        cost = None if n in missing else [float(world.true_gamma[step, 0] @ feature + 0.05 * rng.standard_normal())]
        told = (float(rng.uniform()), int(rng.integers(4)), world.problem.look_up(state))
        store.append([outcome(n, step, state, feature, cost, *told).draft()])
    return store.read(0, 10_000)


@pytest.fixture(scope="module")
def world():
    return world_and_streams(3, horizon=2)[0]


def test_proposals_are_those_of_slucb_qvi_bit_for_bit(world):
    """The advisor's own agent only saves work: same algorithm, same numbers."""
    learner = Learner(world.problem, watch=False)
    plain = SlucbQvi(world.problem, live_config(world.problem))
    plain.plan()
    for entry in some_entries(world, 60):
        fold(learner, entry)
        body = entry.body
        plain.observe(
            Transition(
                body["step"],
                body["state"],
                np.array(body["feature"]),
                body["reward"],
                body["cost"][0],
                body["next_state"],
            )
        )
        if plain.plans_are_due:
            plain.plan()
        for state in range(4):
            known = world.problem.look_up(state)
            mine, theirs = learner.propose(body["step"], state, known), plain.propose(body["step"], state)
            assert (mine.action, mine.evidence, mine.score, mine.reason) == (
                theirs.action, theirs.evidence, theirs.score, theirs.reason,
            )  # fmt: skip
            assert np.array_equal(mine.feature, theirs.feature)


def test_a_table_is_looked_up_once_and_functions_every_time(world):
    """A table never changes; what functions answer may, and is checked at every decision."""
    learner = Learner(world.problem, watch=False)
    assert learner.look_up(2) is learner.look_up(2)
    assert np.array_equal(learner.look_up(2).actions.endpoints, world.problem.look_up(2).actions.endpoints)
    with pytest.raises(InputError):
        learner.look_up(99)
    asked = []
    told = Problem(
        horizon=1,
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=lambda step, state: 0.1),
        dimension=3,
        actions=lambda state: asked.append(state) or world.problem.actions(state),
    )
    functions = Learner(told, watch=False)
    functions.look_up(2)
    functions.look_up(2)
    assert asked == [2, 2]


def test_proposing_changes_nothing(world):
    learner = Learner(world.problem)
    for entry in some_entries(world, 40):
        fold(learner, entry)
    before = learner.to_bytes()
    for step in range(2):
        for state in range(4):
            learner.propose(step, state, world.problem.look_up(state))
            learner.model_hash(step)
            learner.gate.certified(step, world.problem.look_up(state))
    assert learner.to_bytes() == before


def test_a_missing_cost_never_changes_the_cost_sums(world):
    """The same outcomes, some without a cost: the cost regression is the one of the others alone."""
    entries = some_entries(world, 40, missing=range(0, 40, 3))
    learner, expected = Learner(world.problem, watch=False), Learner(world.problem, watch=False)
    for entry in entries:
        cost, gate = learner.agent.costs.moment.copy(), learner.gate.gram.copy()
        fold(learner, entry)
        if entry.body["cost"] is None:
            assert np.array_equal(learner.agent.costs.moment, cost)
            assert np.array_equal(learner.gate.gram, gate)
        else:
            expected.learn(event_of(entry))
    assert np.array_equal(learner.agent.costs.gram, expected.agent.costs.gram)
    assert np.array_equal(learner.agent.costs.moment, expected.agent.costs.moment)
    assert np.array_equal(learner.gate.moment, expected.gate.moment)
    assert learner.gate.count.sum() == 26
    assert learner.version == 40
    assert not np.array_equal(learner.agent.values.reward_moment, expected.agent.values.reward_moment)


def test_the_gates_sums_are_the_learners_own(world):
    learner = Learner(world.problem, watch=False)
    for entry in some_entries(world, 200):
        fold(learner, entry)
    assert np.allclose(learner.gate.gram, learner.agent.costs.gram, rtol=1e-13, atol=0)
    assert np.allclose(learner.gate.moment, learner.agent.costs.moment, rtol=1e-12, atol=1e-15)
    assert learner.gate.count.tolist() == [100, 100]


@pytest.mark.parametrize("watch", [True, False])
def test_bytes_restore_everything_and_the_future_is_the_same(world, watch):
    entries = some_entries(world, 90)
    learner = Learner(world.problem, watch=watch)
    for entry in entries[:50]:
        fold(learner, entry)
    again = Learner(world.problem).restored(learner.to_bytes())
    assert (again.seq, again.version) == (50, 50)
    assert again.to_bytes() == learner.to_bytes()
    for entry in entries[50:]:
        fold(learner, entry)
        fold(again, entry)
        assert again.model_hash(0) == learner.model_hash(0)
    assert again.to_bytes() == learner.to_bytes()
    decision, other = learner.propose(0, 2), again.propose(0, 2)
    assert (decision.action, decision.evidence) == (other.action, other.evidence)


def test_the_same_entries_give_the_same_bytes_and_others_do_not(world):
    entries = some_entries(world, 30)
    one, two, shorter = (Learner(world.problem) for _ in range(3))
    for entry in entries:
        fold(one, entry)
        fold(two, entry)
    for entry in entries[:-1]:
        fold(shorter, entry)
    assert one.to_bytes() == two.to_bytes() != shorter.to_bytes()
    assert one.model_hash(1) == two.model_hash(1) != shorter.model_hash(1)


def test_bytes_of_another_problem_configuration_or_nonsense_are_refused(world):
    data = Learner(world.problem).to_bytes()
    other, _ = world_and_streams(3, horizon=2, noise=0.06)
    for problem, config, content in (
        (other.problem, None, data),
        (world.problem, SlucbConfig(cost_radius="classical"), data),
        (world.problem, None, data[: len(data) // 2]),
        (world.problem, None, b""),
    ):
        with pytest.raises(StateFileError):
            Learner(problem, config).restored(content)


def test_a_gap_in_the_log_is_refused(world):
    entries = some_entries(world, 3)
    learner = Learner(world.problem)
    fold(learner, entries[0])
    with pytest.raises(InputError, match="entry 3 cannot follow entry 1"):
        fold(learner, entries[2])
    assert learner.seq == 1


def test_an_outcome_that_does_not_fit_the_problem_says_so_and_changes_nothing(world):
    store = MemoryStore()
    store.append([outcome(0, 0, 0, [0.1, 0.2, 0.3, 0.4], [0.2]).draft()])  # d = 4, not 3
    learner = Learner(world.problem)
    learner.agent.order.expect("d0", 0, np.zeros(3))
    before = learner.to_bytes()
    with pytest.raises(InputError, match=r"entry 1 .*does not fit this problem.*new log"):
        learner.apply(1, event_of(store.read()[0]))
    assert learner.to_bytes() == before


def test_plans_follow_the_log_and_nothing_else():
    """At H = 1 a plan is made after every outcome; else when some determinant has doubled."""
    bandit, _ = finite_problem()
    assert live_config(bandit).replan == "every-episode"
    episodic, _ = finite_problem(horizon=2)
    assert live_config(episodic).replan == "on-doubling"
    learner = Learner(bandit, watch=False)
    assert int(learner.agent.current.made[0]) == 1
    feature = bandit.look_up(0).actions.phi_0
    learner.learn(Measured(step=0, state=0, feature=feature.tolist(), reward=1.0, cost=[0.1], next_state=5))
    assert int(learner.agent.current.made[0]) == 2
    assert list(learner.agent.known_states) == []  # nothing follows at H = 1: next states fill no tables


def test_mixtures_take_one_look_for_enough_only_where_rewards_are_exact():
    exact, _ = finite_problem()
    noisy = replace(exact, reward_noise=0.3)
    assert live_config(exact, "rslucb-qvi").value_radius == "unseen"
    assert live_config(noisy, "rslucb-qvi").value_radius == "remaining"


def test_an_alarm_is_part_of_the_state_and_ends_with_its_reset():
    world, _ = world_and_streams(3, horizon=1)
    store = MemoryStore()
    x = world.endpoints[0, 0]
    for n in range(64):
        store.append([outcome(n, 0, 0, x, [0.3 if n % 2 else 3.0]).draft()])  # scatters 27 σ
    learner = Learner(world.problem)
    for entry in store.read():
        fold(learner, entry)
    assert learner.alarm is not None
    restored = Learner(world.problem).restored(learner.to_bytes())
    assert restored.alarm == learner.alarm
    assert restored.propose(0, 0).reason == "tripped"
    store.append([AlarmReset(by="me", why="the sensor was broken").draft()])
    fold(restored, store.read(64)[0])
    assert restored.alarm is None
    assert restored.propose(0, 0).reason != "tripped"


def test_a_proposal_is_kept_until_something_is_learned_and_no_longer(world, monkeypatch):
    learner, asked = Learner(world.problem), []
    plain = learner.agent.propose
    monkeypatch.setattr(learner.agent, "propose", lambda *args: asked.append(args) or plain(*args))
    entries = some_entries(world, 40)
    for count, entry in enumerate(entries, start=1):
        fold(learner, entry)
        fresh = plain(0, 1, learner.look_up(1), 0.0)
        for _ in range(3):
            kept = learner.propose(0, 1)
            assert (kept.action, kept.evidence, kept.data_version) == (fresh.action, fresh.evidence, fresh.data_version)
        assert len(asked) == count
    learner.propose(0, np.int64(1))  # not the very key of the table: asked, not looked up
    learner.propose(0, 2)
    assert len(asked) == len(entries) + 2
