"""Guards: budgets, rates, stale inputs and clocks that jump. Each objection is the safe action, with the reason."""

import json
import math
from functools import reduce
from operator import add

import numpy as np
import pytest

from live.plant import Plant, live_advisor
from tether import Advisor, Upkeep
from tether.errors import InputError
from tether.live.audit import replay
from tether.live.learner import Learner
from tether.live.ledger import Ledger
from tether.live.log.memory import MemoryStore
from tether.live.policy import LONGEST, Guards
from tether.live.replica import Replica
from tether.live.windows import Window
from worlds import world_and_streams


@pytest.fixture(scope="module")
def world():
    return world_and_streams(3, horizon=1)[0]


def learned(world, **more):
    """A live advisor after 30 outcomes, and a state where it wants something else than a_0."""
    advisor = live_advisor(world.problem, **more)
    Plant(world.true_gamma).play(advisor, 30)
    proposes = advisor.replica.learner.propose
    return advisor, next(state for state in range(4) if not proposes(0, state).is_baseline)


def test_a_rate_counts_what_was_not_the_safe_action_in_the_window():
    guards = Guards(live_rate=0.3, guarded_rate=0.1, rate_window=10)
    assert guards.over_rate("live", 2) == ""
    assert "3 of the last 10 decisions were not a_0, and live mode allows 3" in guards.over_rate("live", 3)
    assert guards.over_rate("guarded", 0) == ""
    assert guards.over_rate("guarded", 1) != ""
    assert Guards().over_rate("live", 10**6) == ""


def test_the_window_of_the_next_decision_leaves_out_the_oldest_one():
    """Window 3: after 1, 0, 0 the next decision's window is 0, 0 and itself; before it is full, nothing is left out."""
    ledger = Ledger((0.5,))
    ledger.recent.resize(2)
    others = []
    for played in (1, 0, 0, 1):
        ledger.recent.append(played)
        others.append(ledger.others())
    assert others == [1, 1, 0, 1]


def test_a_window_holds_the_exact_sum_of_its_last_values_whatever_has_passed_through():
    rng = np.random.default_rng(0)
    values = [*(rng.standard_normal(40) * 10.0 ** rng.integers(-300, 280, size=40)).tolist(), 1e100, 0.1, 0.2, 5e-324]
    window = Window(3)
    for n, value in enumerate(values):
        window.append(value)
        assert window.sum() == math.fsum(values[max(0, n - 2) : n + 1])
    assert window.sum() == 0.1 + 0.2
    window.resize(20)
    assert window.sum() == math.fsum(values[-20:])
    window.resize(0)
    assert window.sum() == 0.0
    window.append(7.0)
    assert window.sum() == 0.0
    assert list(window.values) == [*values, 7.0]


def test_the_longest_window_can_be_set_at_any_time():
    window = Window(1)
    for n in range(LONGEST + 2):
        window.append(n)
    window.resize(LONGEST)
    assert window.sum() == sum(range(2, LONGEST + 2))
    window.append(1)
    assert window.sum() == sum(range(3, LONGEST + 2)) + 1


def test_a_budget_that_is_set_on_an_old_log_counts_what_the_log_holds(world):
    """As if it had been set from the start: over a window, over a wider one, and after a snapshot."""
    store = MemoryStore()
    advisor = live_advisor(world.problem, store, guards=Guards(budget=1000.0, budget_window=3))
    Plant(world.true_gamma).play(advisor, 60)
    costs = [entry.body["cost"][0] for entry in store.read() if entry.kind == "outcome"]
    advisor.snapshot()
    added = reduce(add, costs)  # one after the other: `sum` is compensated from Python 3.12 on
    for window, spent in ((50, math.fsum(costs[-50:])), (None, added), (7, math.fsum(costs[-7:]))):
        again = Advisor(
            world.problem, store, guards=Guards(budget=spent, budget_window=window), upkeep=Upkeep(refresh=None)
        )
        assert again.status().spent == (spent,)
        reasons = {again.decide(state).reason for state in range(4)}
        assert "budget" in reasons


def test_a_rate_that_is_set_on_an_old_log_counts_what_the_log_holds(world):
    store = MemoryStore()
    advisor = live_advisor(world.problem, store, guards=Guards(rate_window=10))
    Plant(world.true_gamma).play(advisor, 60)
    guards = Guards(live_rate=0.2, rate_window=50)
    again = Advisor(world.problem, store, guards=guards, upkeep=Upkeep(refresh=None))
    for _ in range(30):
        again.decide(1)
    others = [not entry.body["is_baseline"] for entry in store.read() if entry.kind == "decision"]
    assert sum(others[10:60]) > 10
    assert not any(others[60:70])
    assert Advisor(world.problem, store).replica.to_bytes() == again.replica.to_bytes()


def test_a_ledger_with_the_longest_windows_is_saved_and_restored_bit_for_bit():
    """Two constraints and full windows: 8 bytes a cost and one a decision, times 4/3 for base 64, are 2.3 MB."""
    ledger = Ledger((0.5, 0.5))
    rng = np.random.default_rng(0)
    for cost in rng.standard_normal((LONGEST + 5, 2)).tolist():
        for window, value in zip(ledger.spending.last, cost, strict=True):
            window.append(value)
        ledger.recent.append(int(cost[0] > 0))
    data = json.dumps(ledger.to_json())
    assert len(data) < 2.3e6
    again = Ledger.from_json((0.5, 0.5), json.loads(data))
    assert json.dumps(again.to_json()) == data
    for each in (ledger, again):
        each.recent.resize(LONGEST - 1)
        each.spending.last[1].resize(LONGEST)
    assert again.others() == ledger.others() > 0
    assert again.spending.last[1].sum() == ledger.spending.last[1].sum() != 0.0


@pytest.mark.parametrize("mode", ["guarded", "live"])
def test_the_rate_guard_holds_in_every_window(world, mode):
    guards = Guards(live_rate=0.4, guarded_rate=0.4, rate_window=10, canary=1.0)
    advisor = live_advisor(world.problem, mode=mode, guards=guards)
    others = [not decision.is_baseline for decision in Plant(world.true_gamma).play(advisor, 60)]
    windows = [sum(others[first : first + 10]) for first in range(51)]
    assert max(windows) == 4
    assert "rate" in {entry.body["reason"] for entry in advisor.store.read() if entry.kind == "decision"}


def test_a_budget_is_spent_by_observed_costs_and_missing_ones_count_as_the_threshold():
    guards = Guards(budget=(1.0, 2.0))
    assert guards.over_budget((0.5, 1.0), (0.4, 0.4)) == ""
    assert "cost 0" in guards.over_budget((0.7, 1.0), (0.4, 0.4))
    assert "cost 1" in guards.over_budget((0.5, 1.7), (0.4, 0.4))
    assert guards.over_budget((0.5, float("nan")), (0.4, 0.4)) != ""


def test_once_the_budget_is_spent_the_safe_action_is_played(world):
    advisor, state = learned(world, guards=Guards(budget=12.0), watch=False)
    spent = advisor.status().spent[0]
    assert 8.0 < spent < 11.0
    while advisor.status().spent[0] + 0.5 <= 12.0:
        decision = advisor.decide(state)
        assert decision.reason != "budget"
        advisor.record(decision.id, 0.1, None)  # not measured: counts as τ = 0.5
    assert advisor.status().spent[0] == pytest.approx(spent + 0.5 * ((12.0 - spent) // 0.5))
    refused = advisor.decide(state)
    bound = refused.proposal.limits[0].bound
    assert (refused.is_baseline, refused.reason) == (True, "budget") or advisor.status().spent[0] + bound <= 12.0
    advisor.record(refused.id, 0.1, 0.6)
    last = advisor.decide(state)
    assert (last.is_baseline, last.reason) == (True, "budget")
    assert "the budget 12 " in last.detail + " "


def test_decisions_without_an_outcome_count_toward_the_budget_by_their_bounds(world):
    """Nobody reports anything: what was handed out must fit the budget all the same, whatever it will cost."""
    advisor, state = learned(world, guards=Guards(budget=100.0), watch=False)
    spent = advisor.status().spent[0]
    advisor = Advisor(
        world.problem, advisor.store, guards=Guards(budget=spent + 2.2), watch=False, upkeep=Upkeep(refresh=None)
    )
    made = [advisor.decide(state) for _ in range(12)]
    claimed, played = spent, [one for one in made if not one.is_baseline]
    for one in made:
        bound = one.certificate.limits[0].bound
        assert one.is_baseline == (one.reason == "budget")
        assert one.is_baseline or claimed + bound <= spent + 2.2
        claimed += bound
    assert played and made[-1].reason == "budget" and "without one" in made[-1].detail
    assert advisor.replica.ledger.spending.claimed(0) == pytest.approx((claimed,))
    assert advisor.replica.ledger.spending.claimed(2) == pytest.approx((claimed + 2 * 0.5,))
    for one in made[:4]:
        advisor.record(one.id, 0.1, 0.0)
    advisor.lose(made[4].id, by="us", why="the sensor")
    left = sum(one.certificate.limits[0].bound for one in made[5:])
    assert advisor.replica.ledger.spending.claimed(0) == pytest.approx((spent + 0.5 + left,)), (
        "a lost one counts as τ = 0.5"
    )
    again = Replica.from_bytes(advisor.replica.to_bytes(), Learner(world.problem, watch=False))
    assert again.ledger.spending.claimed(0) == advisor.replica.ledger.spending.claimed(0)


def test_measured_costs_above_the_threshold_are_counted(world):
    advisor, state = learned(world, watch=False)
    before = advisor.status().over
    for cost in (0.5, 0.51, None, 0.7):
        advisor.record(advisor.decide(state).id, 0.1, cost)
    assert advisor.status().over == (before[0] + 2,)


def test_a_budget_over_a_window_comes_back(world):
    advisor, state = learned(world, guards=Guards(budget=1.5, budget_window=3), watch=False)
    for _ in range(3):
        decision = advisor.decide(state)
        advisor.record(decision.id, 0.1, 0.6)
    assert advisor.status().spent[0] == pytest.approx(1.8)
    assert advisor.decide(state).reason == "budget"
    for _ in range(3):
        decision = advisor.decide(state)
        advisor.record(decision.id, 0.1, 0.1)
    assert advisor.status().spent[0] == pytest.approx(0.3)
    assert not advisor.decide(state).is_baseline


def test_ages_are_judged_by_hand():
    guards = Guards(max_age=10.0, max_ahead=2.0)
    assert guards.stale(95.0, 100.0, 0.0) == ""
    assert "observed 10.500 s ago" in guards.stale(89.5, 100.0, 0.0)
    assert guards.stale(101.5, 100.0, 0.0) == ""
    assert "3.000 s in the future" in guards.stale(103.0, 100.0, 0.0)
    assert "does not say when" in guards.stale(None, 100.0, 0.0)
    assert guards.stale(95.0, 100.0, 101.0) == ""
    assert "it went back" in guards.stale(95.0, 100.0, 103.0)
    assert "went back" in guards.stale(95.0, float("nan"), 0.0)
    assert Guards().stale(None, float("nan"), 1e12) == ""


def test_a_stale_input_gives_the_safe_action_with_the_reason(world):
    time = {"now": 1000.0}
    advisor = live_advisor(world.problem, guards=Guards(max_age=5.0), clock=lambda: time["now"])
    plant = Plant(world.true_gamma)
    for _ in range(30):
        decision = advisor.decide(plant.state(), observed_at=time["now"] - 1.0)
        advisor.record(decision.id, 0.1, plant.measure(0, decision.feature))
    state = next(s for s in range(4) if not advisor.decide(s, observed_at=999.0).is_baseline)
    for observed, words in ((990.0, "10.000 s ago"), (1010.0, "in the future"), (None, "does not say")):
        decision = advisor.decide(state, observed_at=observed)
        assert (decision.is_baseline, decision.reason) == (True, "stale-input")
        assert words in decision.detail
        assert decision.certificate.holds


def test_a_clock_that_jumps_back_gives_the_safe_action_until_it_is_right_again(world):
    time = {"now": 1000.0}
    store = MemoryStore()
    advisor = live_advisor(world.problem, store, guards=Guards(max_age=5.0), clock=lambda: time["now"])
    plant = Plant(world.true_gamma)
    for _ in range(30):
        decision = advisor.decide(plant.state(), observed_at=time["now"])
        advisor.record(decision.id, 0.1, plant.measure(0, decision.feature))
    state = next(s for s in range(4) if not advisor.decide(s, observed_at=1000.0).is_baseline)
    time["now"] = 400.0
    again = Advisor(world.problem, store, upkeep=Upkeep(clock=lambda: time["now"]))
    for each in (advisor, again):
        decision = each.decide(state, observed_at=400.0)
        assert (decision.reason, decision.is_baseline) == ("stale-input", True)
        assert "went back" in decision.detail
    time["now"] = 1001.0
    assert not advisor.decide(state, observed_at=1001.0).is_baseline
    seqs = [entry.seq for entry in store.read()]
    assert seqs == list(range(1, len(seqs) + 1))


def test_without_an_age_limit_the_clock_decides_nothing(world):
    advisor, state = learned(world, clock=lambda: -1e9)
    assert not advisor.decide(state).is_baseline
    assert not advisor.decide(state, observed_at=5e9).is_baseline


@pytest.mark.parametrize(
    "wrong",
    [
        {"margin_share": 1.5},
        {"guarded_rate": -0.1},
        {"live_rate": float("nan")},
        {"rate_window": 0},
        {"rate_window": 2.5},
        {"budget": "much"},
        {"budget": float("nan")},
        {"budget_window": 0},
        {"max_age": -1.0},
        {"margin_share": True},
    ],
    ids=str,
)
def test_guards_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError):
        Guards(**wrong)


def test_a_budget_for_other_constraints_is_refused(world):
    with pytest.raises(InputError, match="budget has 2 entries, but there are 1 constraints"):
        Advisor(world.problem, guards=Guards(budget=(1.0, 2.0)))


def test_guards_survive_the_log():
    guards = Guards(budget=(1.5, 2.0), budget_window=7, max_age=3.0, live_rate=0.2)
    assert Guards.from_json(guards.to_json()) == guards


def test_a_frozen_sensor_does_not_become_fresh_when_the_clock_is_set_back(world):
    advisor, state = learned(world, clock=lambda: 999.0)
    time = {"now": 1000.0}
    watched = Advisor(
        world.problem,
        advisor.store,
        guards=Guards(max_age=5.0, max_ahead=1.0),
        upkeep=Upkeep(clock=lambda: time["now"], refresh=None),
    )
    assert not watched.decide(state, observed_at=1000.0).is_baseline
    for time["now"] in (4600.0, 1000.0):
        assert watched.decide(state, observed_at=1000.0).reason == "stale-input"


def test_after_a_clock_that_was_ahead_somebody_must_say_that_it_is_right(world):
    advisor, state = learned(world, clock=lambda: 999.0)
    time = {"now": 1000.0}
    watched = Advisor(
        world.problem, advisor.store, guards=Guards(max_age=5.0), upkeep=Upkeep(clock=lambda: time["now"], refresh=None)
    )
    time["now"] = 1e6
    assert watched.decide(state, observed_at=1000.0).reason == "stale-input"
    time["now"] = 1001.0
    stuck = watched.decide(state, observed_at=1001.0)
    assert stuck.reason == "stale-input" and "say so by resume()" in stuck.detail
    watched.resume(by="ann", why="the clock was a year ahead, and is right now")
    assert not watched.decide(state, observed_at=1001.0).is_baseline


def rest(advisor):
    """A dozen decisions that play a_0, so that no guard remembers others."""
    advisor.stop(by="me", why="a rest")
    for _ in range(12):
        advisor.decide(0)
    advisor.resume(by="me", why="enough")


@pytest.mark.parametrize("together", [1, 20])
def test_the_rate_guard_counts_what_is_under_way(world, together):
    """Whether one after the other or all at once: at most 3 of 10 are not a_0."""
    advisor, state = learned(world, guards=Guards(live_rate=0.3, rate_window=10))
    rest(advisor)
    others = []
    for _ in range(20 // together):
        batch = advisor.prepare([advisor.question(state) for _ in range(together)])
        others += [not made.is_baseline for made in advisor.commit(batch, advisor.store.append(batch.drafts))]
    assert max(sum(others[first : first + 10]) for first in range(11)) == 3
    assert advisor.notes() == ()  # none was logged first, to be found one too many there
    assert replay(advisor.store, world.problem).holds
    assert not advisor._batches.under_way


NOW = {"stale-input": {"max_age": 5.0}, "rate": {"live_rate": 0.1, "rate_window": 10}, "guarded": {}}


@pytest.mark.parametrize(
    ("how", "reason"),
    [("repeated", "stale-input"), ("repeated", "rate"), ("repeated", "guarded"),
     ("under way", "stale-input"), ("under way", "guarded")],
)  # fmt: skip
def test_what_was_decided_before_obeys_the_guards_as_of_now(world, how, reason):
    """A repeat by key, and a decision that waits for the log while time goes on or the mode changes."""
    clock, store = [1000.0], MemoryStore()
    _, state = learned(world, store=store, clock=lambda: clock[0])
    advisor = Advisor(
        world.problem, store, guards=Guards(**NOW[reason]), upkeep=Upkeep(clock=lambda: clock[0], refresh=None)
    )
    rest(advisor)
    batch = advisor.prepare([advisor.question(state, key="k", observed_at=1000.0)])
    appended = store.append(batch.drafts)
    assert not batch.items[0].events[-1].is_baseline
    if how == "repeated":
        (first,) = advisor.commit(batch, appended)
        assert not first.is_baseline and advisor.decide(state, key="k", observed_at=1000.0) == first
    if reason == "stale-input":
        clock[0] = 1006.0
    elif reason == "guarded":
        advisor.demote("guarded", by="me", why="smoke")
    else:
        rest(advisor)
        assert not advisor.decide(state).is_baseline
    again = advisor.decide(state, key="k", observed_at=1000.0) if how == "repeated" else None
    made = again or advisor.commit(batch, appended)[0]
    assert made.is_baseline and (made.reason, made.id) == (reason, "")


def test_a_key_belongs_to_its_caller(world):
    advisor, state = learned(world)
    asked = [advisor.question(state, key="k", caller=name) for name in ("one", "two", "one")]
    batch = advisor.prepare(asked)
    first, second, again = advisor.commit(batch, advisor.store.append(batch.drafts))
    assert first.id == again.id != second.id and (first.caller, second.caller) == ("one", "two")


def test_a_cold_start_saves_a_snapshot_at_once(world):
    store = MemoryStore()
    Plant(world.true_gamma).play(live_advisor(world.problem, store), 10)
    assert store.latest_snapshot() is None
    advisor = Advisor(world.problem, store, upkeep=Upkeep(snapshot_every=10))
    assert store.latest_snapshot().seq == store.head().seq == advisor.replica.head.seq


def asked_at_once(world, mode, room):
    """Two processes judge one question each, before either has read the other's; then both write. `room` makes guards
    of the ledger after 30 outcomes. Returns the log, and the answers in its order."""
    store = MemoryStore()
    first = live_advisor(world.problem, store, mode=mode)
    Plant(world.true_gamma).play(first, 30)
    guards = room(first.replica.ledger)
    both = [Advisor(world.problem, store, guards=guards, upkeep=Upkeep(refresh=None)) for _ in range(2)]
    both[0].sync()
    batches = [each.prepare([each.question(1, key=f"key {number}")]) for number, each in enumerate(both)]
    answers = [each.commit(batch, store.append(batch.drafts))[0] for each, batch in zip(both, batches, strict=True)]
    return store, both, answers


def room_for_one(ledger, **more):
    """A rate that leaves room for one decision other than a_0."""
    share = (ledger.others() + 1) / 64
    return Guards(live_rate=share, guarded_rate=share, rate_window=64, **more)


def test_a_rate_holds_for_all_processes_together(world):
    """Each sees room for one more when it judges. The second in the log is one too many, and does not leave."""
    store, (_, two), (first, second) = asked_at_once(world, "live", room_for_one)
    assert not first.is_baseline and first.id
    assert second.is_baseline and second.reason == "rate" and not second.id
    third = Advisor(world.problem, store, upkeep=Upkeep(refresh=None))
    third.snapshot()  # before the log says that it did not leave
    fourth = Advisor(world.problem, store, upkeep=Upkeep(refresh=None))
    assert [each.decide(1, key="key 1").reason for each in (third, fourth)] == ["rate"] * 2
    store.append([note.draft() for note in two.notes()])
    assert third.decide(1, key="key 1").reason == "rate" and replay(store, world.problem).holds
    assert third.replica.ledger.surplus and not (third.sync() and third.replica.ledger.surplus)


def test_a_budget_holds_for_all_processes_together(world):
    """Room for one bound, of τ = 0.5 at most, and not for two."""
    _, _, (first, second) = asked_at_once(world, "live", lambda ledger: Guards(budget=ledger.spending.total[0] + 0.6))
    assert not first.is_baseline and first.id
    assert second.is_baseline and second.reason == "budget" and not second.id


@pytest.mark.parametrize("second_is_drawn", [True, False])
def test_what_is_one_too_many_does_not_leave_in_either_arm_of_the_canary(world, monkeypatch, second_is_drawn):
    """Else only decisions that were drawn one way would be compared. The draw: the proposal, then either."""
    draws = iter([True, second_is_drawn])
    monkeypatch.setattr("tether.live.judge.plays_proposal", lambda id, share: next(draws) if share == 0.25 else True)
    store, (_, two), (first, second) = asked_at_once(
        world, "guarded", lambda ledger: room_for_one(ledger, canary=0.25, reward_range=(0.0, 2.0))
    )
    assert not first.is_baseline and first.id and (second.reason, second.id) == ("rate", "")
    (note,) = two.notes()
    assert (note.reason, note.is_baseline) == ("rate", not second_is_drawn)
    store.append([note.draft()])
    two.sync()
    assert len(two.replica.ledger.uplift.trials) == 1
