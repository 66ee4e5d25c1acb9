"""The advisor: decisions with certificates, outcomes exactly once, late, out of order, missing or overridden."""

import dataclasses
import threading
from zlib import crc32

import numpy as np
import pytest

from limits import restated
from live.plant import Plant, another_action, live_advisor
from tether import Advisor, Constraint, Upkeep
from tether.errors import InputError, StoreError, TetherError
from tether.live import judge
from tether.live.answers import AlreadyRecorded, ImpossibleCost, LiveDecision, UnknownDecision
from tether.live.audit import replay
from tether.live.certificate import Certificate
from tether.live.log.chain import Draft
from tether.live.log.memory import MemoryStore
from tether.live.policy import Guards
from tether.live.records import DecisionMade, OutcomeLost, Withheld, event_of
from tether.live.states import StateCodec, decode_state, encode_state
from tether.problem.action_sets import FiniteActions, feature_of
from tether.problem.problem import Problem
from tether.records import StarAction
from worlds import finite_problem, world_and_streams


@pytest.fixture(scope="module")
def world():
    return world_and_streams(3, horizon=1)[0]


def test_three_lines_are_enough_for_the_safe_bandit(world, tmp_path):
    advisor = Advisor(world.problem, tmp_path / "log.db")
    decision = advisor.decide(2)
    recorded = advisor.record(decision.id, 0.5, 0.3)
    assert decision.mode == "shadow"
    assert decision.is_baseline
    assert (recorded.decision_id, recorded.repeated) == (decision.id, False)
    assert advisor.status().outcomes == 1


def test_a_certificate_says_everything_about_its_action(world):
    advisor = live_advisor(world.problem)
    Plant(world.true_gamma).play(advisor, 30)
    decision = next(d for d in (advisor.decide(state) for state in range(4)) if not d.is_baseline)
    certificate, known = decision.certificate, world.problem.look_up(decision.state)
    (limit,) = certificate.limits
    assert np.allclose(certificate.feature, feature_of(known.actions, decision.action), rtol=0, atol=1e-15)
    assert limit.threshold == 0.5 == world.problem.threshold[0]
    assert limit.bound <= 0.5
    assert limit.margin == 0.5 - limit.bound
    assert limit.baseline_cost == known.baseline_cost[0, 0]
    assert (limit.origin, limit.bounds) == ("theorem", "cost")
    assert limit.gate_bound <= limit.bound + 1e-9
    assert certificate.is_theorem
    assert certificate.data_version == 30
    assert certificate.head == advisor.store.read(certificate.seq - 1, 1)[0].hash
    assert certificate.model_hash == advisor.replica.learner.model_hash(0)
    assert certificate.kernel.startswith(("cython-", "python-"))
    assert certificate.numpy == np.__version__
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_every_entry_of_the_log_is_one_of_the_documented_events(world):
    advisor = live_advisor(world.problem)
    Plant(world.true_gamma).play(advisor, 10)
    advisor.stop(by="me", why="lunch")
    advisor.resume(by="me", why="back")
    kinds = [event_of(entry).kind for entry in advisor.store.read()]
    assert kinds[:2] == ["configured", "mode"]
    assert kinds.count("decision") == kinds.count("outcome") == 10
    assert kinds[-2:] == ["stopped", "resumed"]


def test_what_is_handed_out_is_what_the_log_holds(world):
    advisor = live_advisor(world.problem)
    for decision in Plant(world.true_gamma).play(advisor, 20):
        entry = advisor.store.find(f"decision:{decision.id}")
        assert LiveDecision.of(DecisionMade.read(entry), decision.state, entry) == decision


def test_an_outcome_counts_once_and_a_repeat_is_acknowledged(world):
    advisor = live_advisor(world.problem)
    decision = advisor.decide(1)
    first = advisor.record(decision.id, 0.5, 0.3)
    sums = advisor.replica.learner.agent.costs.gram.copy()
    again = advisor.record(decision.id, 0.5, (0.3,))
    assert (again.seq, again.repeated) == (first.seq, True)
    assert np.array_equal(advisor.replica.learner.agent.costs.gram, sums)
    assert advisor.status().outcomes == 1


@pytest.mark.parametrize("other", [{"reward": 0.6}, {"cost": 0.31}, {"cost": None}, {"applied": StarAction(0, 0.25)}])
def test_another_outcome_for_the_same_decision_is_refused(world, other):
    advisor = live_advisor(world.problem)
    decision = advisor.decide(1)
    advisor.record(decision.id, 0.5, 0.3)
    before = advisor.replica.to_bytes()
    with pytest.raises(AlreadyRecorded, match="exactly once"):
        advisor.record(decision.id, **{"reward": 0.5, "cost": 0.3, **other})
    assert advisor.replica.to_bytes() == before


def test_costs_take_effect_in_the_order_of_decisions(world):
    """What came early waits for what was decided before it; what is lost is waited for no longer."""
    now = [1000.0]
    advisor = live_advisor(world.problem, clock=lambda: now[0])
    plant = Plant(world.true_gamma)
    decisions = []
    for _ in range(12):
        decisions.append(advisor.decide(plant.state()))
        now[0] += 1.0

    def record(*numbers):
        for n in numbers:
            advisor.record(decisions[n].id, 0.1, plant.measure(0, decisions[n].feature))

    status = advisor.status()
    assert (status.outcomes, status.open, status.waiting) == (0, 12, 0), "a sensor that is silent holds up as much"
    assert (status.waiting_for, status.waiting_since) == (decisions[0].id, 1000.0)
    record(8, 9, 10, 11, 2, 3, 4, 5)
    status = advisor.status()
    assert (status.outcomes, status.decisions, status.open, status.waiting) == (8, 12, 4, 8)
    assert (status.waiting_for, status.waiting_since) == (decisions[0].id, 1000.0)
    assert advisor.replica.learner.version == advisor.replica.learner.gate.count.sum() == 0
    record(0)
    assert advisor.replica.learner.version == 1
    record(1)
    assert advisor.decide(0).certificate.data_version == 6, "0 to 5: the costs of 8 to 11 wait for 6"
    advisor.lose(decisions[6].id, by="me", why="the sensor was off")
    assert advisor.replica.learner.version == 7
    with pytest.raises(AlreadyRecorded, match=r"declared lost.*'the sensor was off'"):
        record(6)
    with pytest.raises(AlreadyRecorded, match="has an outcome already"):
        advisor.lose(decisions[5].id, by="me", why="a mistake")
    record(7)
    status = advisor.status()
    assert (status.waiting, status.open, status.lost, status.data_version) == (0, 1, 1, 12), "one more was decided"
    last = advisor.decide(0)
    assert {limit.lost for limit in last.certificate.limits} == {0 if last.is_baseline else 1}
    again = Advisor(world.problem, advisor.store)
    assert again.replica.to_bytes() == advisor.replica.to_bytes()


@pytest.mark.parametrize("first", ["lost", "withheld"])
def test_a_decision_that_was_lost_and_withheld_counts_as_what_came_first(world, first):
    """A process that withholds a decision logs that later than another may declare it lost."""
    advisor = live_advisor(world.problem)
    decision, after = advisor.decide(0), advisor.decide(1)
    advisor.record(after.id, 0.1, 0.2)
    events = [
        OutcomeLost(decision_id=decision.id, by="me", why="gone"),
        Withheld(decision_id=decision.id, reason="stopped", detail="by me"),
    ]
    for event in events if first == "lost" else reversed(events):
        advisor.store.append([event.draft()])
    advisor.sync()
    status = advisor.status()
    assert (status.waiting, status.lost, status.data_version) == (0, int(first == "lost"), 1 + (first == "lost"))


def test_what_is_late_beyond_the_limit_is_lost(world):
    now = [0.0]
    advisor = live_advisor(world.problem, guards=Guards(lost_after=60.0), clock=lambda: now[0])
    first, second = advisor.decide(0), advisor.decide(1)
    advisor.record(second.id, 0.1, 0.2)
    now[0] = 61.0
    third = advisor.decide(0)
    assert third.certificate.data_version == 0, "the loss is logged after it"
    assert (advisor.status().lost, advisor.status().data_version) == (1, 2)
    lost = [entry.body for entry in advisor.store.read() if entry.kind == "lost"]
    assert lost == [{"decision_id": first.id, "by": "lost_after", "why": "no outcome within 60 s"}]
    with pytest.raises(AlreadyRecorded, match="too late"):
        advisor.record(first.id, 0.1, 0.2)


def test_a_missing_cost_never_changes_the_cost_sums(world):
    advisor = live_advisor(world.problem)
    Plant(world.true_gamma).play(advisor, 10)
    costs = advisor.replica.learner.agent.costs
    gram, moment = costs.gram.copy(), costs.moment.copy()
    decision = advisor.decide(0)
    advisor.record(decision.id, 0.5, None)
    after = advisor.replica.learner.agent.costs
    assert np.array_equal(after.gram, gram)
    assert np.array_equal(after.moment, moment)
    assert advisor.replica.learner.gate.count.sum() == 10
    assert advisor.replica.learner.version == 11


@pytest.mark.parametrize("kind", ["star", "finite"])
def test_an_overridden_action_is_learned_under_its_own_feature(world, kind):
    problem = world.problem if kind == "star" else finite_problem()[0]
    advisor = live_advisor(problem)
    decision = advisor.decide(1)
    done = another_action(problem, 1, decision)
    feature = feature_of(problem.look_up(1).actions, done)
    assert not np.array_equal(feature, decision.feature)
    advisor.record(decision.id, 0.5, 0.25, applied=done)
    gate, ridge = advisor.replica.learner.gate, advisor.replica.learner.gate.terms.ridge
    assert np.allclose(gate.gram[0], ridge * np.eye(3) + np.outer(feature, feature), rtol=1e-14)
    assert np.allclose(gate.moment[0, 0], 0.25 * feature, rtol=1e-14)
    (entry,) = [entry for entry in advisor.store.read() if entry.kind == "outcome"]
    assert entry.body["bound"] is None  # the certificate spoke of another action


def test_a_feature_may_say_what_was_applied(world):
    advisor = live_advisor(world.problem)
    decision = advisor.decide(1)
    feature = np.array([0.2, 0.3, 0.1])
    advisor.record(decision.id, 0.5, 0.25, applied=feature)
    assert np.allclose(advisor.replica.learner.gate.moment[0, 0], 0.25 * feature, rtol=1e-14)


@pytest.mark.parametrize(
    "wrong",
    [
        {"reward": float("nan")},
        {"reward": "a lot"},
        {"cost": float("inf")},
        {"cost": (0.1, 0.2)},
        {"cost": "cheap"},
        {"reward": -1e200},
        {"applied": 0},  # an index, but this state has rays
        {"applied": StarAction(99, 0.5)},
        {"applied": StarAction(0, 1.5)},
        {"applied": [0.1, 0.2]},
        {"applied": [9.0, 9.0, 9.0]},
        {"applied": "the usual"},
        {"next_state": object()},
    ],
    ids=lambda value: str(value).split(" object at")[0],
)
def test_an_outcome_that_cannot_be_used_is_refused_and_may_be_sent_again(world, wrong):
    advisor = live_advisor(world.problem)
    decision = advisor.decide(1)
    before = advisor.replica.to_bytes()
    with pytest.raises(TetherError):
        advisor.record(decision.id, **{"reward": 0.5, "cost": 0.3, **wrong})
    assert advisor.replica.to_bytes() == before
    assert not advisor.record(decision.id, 0.5, 0.3).repeated


def impossible(problem, feature, constraint=0):
    """The largest cost of φ that B and σ allow, and the smallest that they do not."""
    limit = problem.gamma_norm[constraint] * np.linalg.norm(feature) + 10 * problem.noise[constraint]
    return limit * (1 - 1e-12), limit * (1 + 1e-12)


def kinds_of(store):
    return [entry.kind for entry in store.read()]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_cost_that_cannot_be_is_refused_and_everybody_plays_a_0_until_the_alarm_is_reset(world, sign):
    """The theorem's bound rests on every cost: one that cannot be would move it, and one left out, bias it."""
    store = MemoryStore()
    advisor = live_advisor(world.problem, store)
    Plant(world.true_gamma).play(advisor, 30)
    state = next(state for state in range(4) if not advisor.decide(state).is_baseline)
    made = advisor.decide(state)
    wrong = sign * impossible(world.problem, made.feature)[1]
    for _ in range(2):
        with pytest.raises(ImpossibleCost, match=r"σ = \(0\.05,\).*cost=None.*new log") as refused:
            advisor.record(made.id, 0.5, wrong)
    assert str(wrong) in str(refused.value) and "B = (1.7" in str(refused.value)
    assert kinds_of(store).count("tripped") == 1
    assert advisor.replica.learner.version == 30 and advisor._follower.in_flight == 0
    assert store.read()[-1].body == {"test": "range", "message": str(refused.value), "number": 0}
    for each in (advisor, Advisor(world.problem, store)):
        after = each.decide(state)
        assert (after.is_baseline, after.reason, after.certificate.holds) == (True, "tripped", True)
        assert each.status().alarm == str(refused.value)
    assert not advisor.record(made.id, 0.5, None).repeated  # the way out for a sensor that failed
    advisor.reset_alarm(by="me", why="a loose contact")
    assert advisor.status().alarm == "" and advisor.decide(state).reason != "tripped"
    last = advisor.decide(state)
    with pytest.raises(ImpossibleCost):
        advisor.record(last.id, 0.5, wrong)
    assert kinds_of(store).count("tripped") == 2 and advisor.decide(state).reason == "tripped"
    again = Advisor(world.problem, store)
    assert again.replica.to_bytes() == advisor.replica.to_bytes()
    assert replay(store, world.problem).holds


def test_a_cost_at_the_limit_is_taken(world):
    advisor = live_advisor(world.problem)
    made = advisor.decide(1)
    assert not advisor.record(made.id, 0.5, impossible(world.problem, made.feature)[0]).repeated
    assert "tripped" not in kinds_of(advisor.store)


def test_the_limit_is_that_of_what_was_applied():
    """With ‖γ*‖ <= B, an action with a small φ cannot cost as much as one with a large φ."""
    problem, _ = finite_problem(constraints=2)
    advisor = live_advisor(problem)
    made, small = advisor.decide(0), np.array([0.01, 0.0, 0.0])
    large, _ = impossible(problem, made.feature, 1)
    with pytest.raises(ImpossibleCost):
        advisor.record(made.id, 0.5, (0.0, large), applied=small)
    assert not advisor.record(made.id, 0.5, (0.0, large)).repeated


@pytest.mark.parametrize("cost", [1e308, -1e101])
def test_a_cost_whose_square_overflows_trips_too(world, cost):
    advisor = live_advisor(world.problem)
    with pytest.raises(ImpossibleCost):
        advisor.record(advisor.decide(1).id, 0.5, cost)
    assert advisor.decide(1).reason == "tripped"


def test_an_alarm_that_another_process_reset_since_does_not_hide_a_new_one(world):
    """Alarms are numbered: the one who has not read the log yet would give its own the number of an old one."""
    store = MemoryStore()
    advisor, other = live_advisor(world.problem, store), Advisor(world.problem, store, upkeep=Upkeep(refresh=None))
    mine, theirs = advisor.decide(1), other.decide(1)
    with pytest.raises(ImpossibleCost):
        other.record(theirs.id, 0.5, 1000.0)
    other.reset_alarm(by="me", why="a loose contact")
    with pytest.raises(ImpossibleCost):
        advisor.record(mine.id, 0.5, 1000.0)
    assert kinds_of(store)[-3:] == ["tripped", "alarm-reset", "tripped"]
    assert advisor.decide(1).reason == "tripped"


def test_an_alarm_that_could_not_be_logged_is_not_lost_the_caller_is_to_tell_again(world, monkeypatch):
    """Refused for good, a client would not send it again, and everything would go on as if nothing had been seen."""
    advisor = live_advisor(world.problem)
    made = advisor.decide(1)

    def full(drafts):
        raise StoreError("the disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(advisor.store, "append", full)
        with pytest.raises(StoreError):
            advisor.record(made.id, 0.5, 1000.0)
    with pytest.raises(ImpossibleCost):
        advisor.record(made.id, 0.5, 1000.0)
    assert kinds_of(advisor.store)[-1] == "tripped" and advisor.decide(1).reason == "tripped"


def test_an_impossible_second_outcome_is_a_second_outcome_and_no_alarm(world):
    advisor = live_advisor(world.problem)
    made = advisor.decide(1)
    advisor.record(made.id, 0.5, 0.2)
    with pytest.raises(AlreadyRecorded):
        advisor.record(made.id, 0.5, 1000.0)
    assert "tripped" not in kinds_of(advisor.store)


def test_a_log_of_another_edition_is_refused_and_not_misread(world):
    store = MemoryStore()
    Advisor(world.problem, store)
    first = store.read()[0]
    assert first.body["edition"] == 7
    editions = ({**first.body, "edition": edition} for edition in (1, 2, 3, 4, 5, 6))
    for told in (*editions, {name: each for name, each in first.body.items() if name != "edition"}):
        older = MemoryStore()
        older.append([Draft("configured", told)])
        with pytest.raises(InputError, match="another version of Tether"):
            Advisor(world.problem, older)


def test_an_outcome_names_the_entry_that_its_decision_rested_on(world):
    advisor = live_advisor(world.problem)
    plant = Plant(world.true_gamma)
    decisions = [advisor.decide(plant.state()), *plant.play(advisor, 5)]
    advisor.record(decisions[0].id, 0.5, 0.2)
    assert advisor.record(decisions[0].id, 0.5, 0.2).repeated
    rests_on = {d.id: d.certificate.seq for d in decisions}
    outcomes = [event_of(entry) for entry in advisor.store.read() if entry.kind == "outcome"]
    assert {outcome.decision_id: outcome.rests_on for outcome in outcomes} == rests_on
    assert len(set(rests_on.values())) > 3


def test_the_certified_share_is_looked_at_first_often_and_then_seldom(world, monkeypatch):
    monkeypatch.setattr(judge, "LOOKS_AT_FIRST", 3)
    monkeypatch.setattr(judge, "LOOK_EVERY", 2)
    names = [str(number) for number in range(20)]
    advisor = live_advisor(world.problem, ids=iter(names).__next__)
    looked = [advisor.decide(1).certified is not None for _ in names]
    assert looked == [number < 3 or crc32(name.encode()) % 2 == 0 for number, name in enumerate(names)]
    assert True in looked[3:] and False in looked[3:]


def test_a_decision_that_a_hundred_outcomes_wait_for_is_named_with_its_age_and_the_remedy(world, caplog):
    time = [1000.0]
    advisor = live_advisor(world.problem, clock=lambda: time[0])
    silent = advisor.decide(0)
    assert advisor.waits() is None
    time[0] += 3 * 3600.0
    Plant(world.true_gamma).play(advisor, 105)
    words = (
        f"Learning waits for the outcome of decision {silent.id}, made 3 h ago. %d outcomes wait behind it. Report it"
    )
    assert [record.getMessage() for record in caplog.records if "waits" in record.getMessage()] == [
        f"{words % 100}, or declare it lost."
    ]
    assert advisor.waits().said(time[0]).startswith(words % 105)
    advisor.lose(silent.id, by="me", why="gone")
    assert advisor.waits() is None


@pytest.mark.parametrize("id", ["", "nobody", "x" * 1000, None, 7])
def test_an_unknown_decision_has_no_outcome(world, id):
    advisor = live_advisor(world.problem)
    with pytest.raises(UnknownDecision):
        advisor.record(id, 0.5, 0.3)


def test_a_next_state_that_the_problem_does_not_know_is_refused_at_once():
    episodic, _ = world_and_streams(3, horizon=2)
    advisor = live_advisor(episodic.problem)
    decision = advisor.decide(0, 0, "a")
    with pytest.raises(InputError, match="next_state"):
        advisor.record(decision.id, 0.5, 0.3, next_state=77)
    assert advisor.status().outcomes == 0


@pytest.mark.parametrize("state", [99, -1, "nowhere", None, 1.5, [1]], ids=str)
def test_a_state_without_a_safe_action_is_a_clear_refusal(world, state):
    advisor = live_advisor(world.problem)
    with pytest.raises(InputError):
        advisor.decide(state)
    assert advisor.status().decisions == 0


def test_a_state_of_numbers_that_are_not_finite_is_refused():
    problem = Problem(
        horizon=1,
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=lambda step, state: 0.1),
        dimension=2,
        actions=lambda state: FiniteActions(np.eye(2), 0),
    )
    advisor = live_advisor(problem)
    for state in (float("nan"), (1.0, float("inf")), np.array([np.nan])):
        with pytest.raises(InputError, match="not finite"):
            advisor.decide(state)
    assert advisor.decide(np.array([0.5, 1.0])).certificate.holds


@pytest.mark.parametrize(
    "wrong",
    [{"step": 1}, {"step": -1}, {"step": 0.5}, {"key": ""}, {"key": 5}, {"episode": 1.5}, {"observed_at": "now"}],
)
def test_a_request_that_makes_no_sense_is_refused(world, wrong):
    advisor = live_advisor(world.problem)
    with pytest.raises(InputError):
        advisor.decide(0, **wrong)
    assert advisor.status().decisions == 0


def test_the_same_key_gets_the_same_decision_and_another_request_is_refused(world):
    advisor = live_advisor(world.problem)
    plant = Plant(world.true_gamma)
    first = advisor.decide(1, key="order 66")
    plant.play(advisor, 10)
    again = advisor.decide(1, key="order 66")
    assert again == first
    assert advisor.status().decisions == 11
    with pytest.raises(InputError, match="another request"):
        advisor.decide(2, key="order 66")
    other = Advisor(world.problem, advisor.store)
    assert other.decide(1, key="order 66") == first


def test_many_episodes_run_at_once():
    """Five episodes of two steps, interleaved: each outcome finds its own decision, step and state."""
    world, _ = world_and_streams(3, horizon=2)
    advisor = live_advisor(world.problem)
    plant = Plant(world.true_gamma)
    states = [plant.state() for _ in range(5)]
    first = [advisor.decide(state, 0, episode) for episode, state in enumerate(states)]
    after = {d.id: plant.state() for d in first}
    for decision in reversed(first[1:]):
        advisor.record(decision.id, 0.2, plant.measure(0, decision.feature), after[decision.id])
    second = [advisor.decide(after[d.id], 1, d.episode) for d in first]
    advisor.record(first[0].id, 0.2, plant.measure(0, first[0].feature), after[first[0].id])
    for decision in second:
        advisor.record(decision.id, 0.4, plant.measure(1, decision.feature))
    assert advisor.replica.learner.gate.count.tolist() == [5, 5]
    for stage, decisions in ((0, first), (1, second)):
        total = sum(np.outer(d.feature, d.feature) for d in decisions)
        ridge = advisor.replica.learner.gate.terms.ridge
        assert np.allclose(advisor.replica.learner.gate.gram[stage], ridge * np.eye(3) + total, rtol=1e-12)


@pytest.mark.parametrize(
    "state",
    [3, "a", None, True, 2.5, (1, "b", (2.0,)), b"raw", [1, [2]], {"x": [1, (2,)]}, np.arange(6.0).reshape(2, 3)],
    ids=lambda value: str(value).split(" object at")[0],
)
def test_states_survive_the_log(state):
    back = decode_state(encode_state(state))
    assert type(back) is type(state)
    assert np.array_equal(back, state) if isinstance(state, np.ndarray) else back == state


@dataclasses.dataclass(frozen=True)
class Room:
    name: str
    warmth: float


def test_states_of_ones_own_need_a_codec():
    problem = Problem(
        horizon=1,
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=lambda step, room: 0.1),
        dimension=2,
        actions=lambda room: FiniteActions(np.array([[1.0, 0.0], [room.warmth, 0.5]]), 0),
    )
    with pytest.raises(InputError, match="StateCodec"):
        live_advisor(problem).decide(Room("hall", 0.3))
    codec = StateCodec(encode=dataclasses.asdict, decode=lambda value: Room(**value))
    advisor = live_advisor(problem, states=codec)
    decision = advisor.decide(Room("hall", 0.3))
    assert decision.state == Room("hall", 0.3)
    assert advisor.store.find(f"decision:{decision.id}").body["state"] == {"name": "hall", "warmth": 0.3}


def test_threads_may_decide_and_record_at_the_same_time(world):
    """Eight threads, 25 decisions each: gap-free, each outcome once, and the state is that of a replay."""
    store = MemoryStore()
    advisor = live_advisor(world.problem, store)
    errors = []

    def work(seed):
        plant = Plant(world.true_gamma, seed=seed)
        try:
            for _ in range(25):
                decision = advisor.decide(plant.state())
                assert decision.certificate.holds
                advisor.record(decision.id, 0.3, plant.measure(0, decision.feature))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    advisor.sync()
    status = advisor.status()
    assert (status.decisions, status.outcomes, status.unsynced, status.refusals) == (200, 200, 0, 0)
    assert advisor.replica.to_bytes() == Advisor(world.problem, store).replica.to_bytes()


def test_no_true_cost_exceeds_its_bound_or_the_threshold(world):
    advisor = live_advisor(world.problem)
    plant = Plant(world.true_gamma)
    decisions = plant.play(advisor, 300)
    assert plant.worst <= 1e-9
    assert sum(not decision.is_baseline for decision in decisions) > 150
    assert max(float(plant.true_cost(0, d.feature)[0]) for d in decisions) <= 0.5 + 1e-9


def test_a_trip_by_an_impossible_cost_reads_the_same_after_a_snapshot(world):
    """A snapshot gives the body of the trip back with its keys in another order."""
    store = MemoryStore()
    advisor = live_advisor(world.problem, store)
    with pytest.raises(ImpossibleCost) as refused:
        advisor.record(advisor.decide(1).id, 0.5, 1000.0)
    advisor.snapshot()
    again = Advisor(world.problem, store)
    assert advisor.decide(1).detail == again.decide(1).detail == str(refused.value)
    assert replay(store, world.problem).differences == []


def test_an_unsafe_safe_action_trips_the_advisor_and_is_logged_even_after_another_alarm(world):
    """Its cost was not declared, and is τ + σ in every state: the linear model is true, and a_0 is not safe."""
    problem, store = restated(world.problem, baseline_cost=None), MemoryStore()
    advisor, rng = live_advisor(problem, store), np.random.default_rng(0)
    cost = problem.threshold[0] + problem.noise[0]
    for count in range(60):
        made = advisor.decide(int(rng.integers(4)), 0, f"e{count}")
        assert made.is_baseline
        advisor.record(made.id, 0.5, cost + 0.05 * rng.standard_normal(), int(rng.integers(4)))
        tests = [entry.body["test"] for entry in store.read() if entry.kind == "tripped"]
        if "safe" in tests:
            break
    assert tests[-1] == "safe" and tests.count("safe") == 1
    assert "the safe action itself costs more than τ" in advisor.status().alarm
    again = Advisor(problem, store)
    assert again.status().alarm == advisor.status().alarm
