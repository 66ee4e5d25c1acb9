"""Do events come back from the log as they went in, and do their keys make each one count once?"""

import math
from dataclasses import replace

import pytest
from pydantic import ValidationError

from tether import InputError, StoreError
from tether.live.certificate import Certificate, Limit
from tether.live.log.chain import Draft
from tether.live.log.memory import MemoryStore
from tether.live.records import EVENTS, DecisionMade, Measured, OutcomeRecorded, Stopped, WarmStarted, event_of

LIMIT = Limit(0.25, 0.5, 0.25, math.inf, "none", None)
DECISION = {
    "decision_id": "d-1",
    "key": None,
    "episode": 3,
    "step": 0,
    "state": {"load": [0.1, 2]},
    "mode": "shadow",
    "proposed": 4,
    "played": 0,
    "is_baseline": True,
    "reason": "only-baseline",
    "detail": "",
    "certificate": Certificate((0.1, 1 / 3), (LIMIT,), True, "only-baseline", "", 3, 7, "head", "model"),
}
OUTCOME = {
    "decision_id": "d-1",
    "step": 0,
    "state": "s",
    "feature": [0.1, 1 / 3],
    "applied": 0,
    "reward": 0.5,
    "cost": None,
    "next_state": None,
}


def test_an_event_comes_back_as_it_went_in():
    store = MemoryStore()
    events = [DecisionMade(**DECISION), OutcomeRecorded(**OUTCOME), Stopped(by="ann", why="smoke")]
    store.append([event.draft() for event in events])
    assert [event_of(entry) for entry in store.read()] == events
    assert [entry.kind for entry in store.read()] == ["decision", "outcome", "stopped"]


def test_a_certificate_from_before_listed_actions_were_named_rests_on_none():
    told = DECISION["certificate"].to_json()
    assert told["limits"][0].pop("listed") == 0
    assert Certificate.from_json(told) == DECISION["certificate"]


def test_a_decision_an_outcome_and_a_warm_start_count_once_and_a_stop_as_often_as_it_comes():
    store = MemoryStore()
    row = Measured(step=0, state=None, feature=[1.0], reward=None, cost=[0.5], next_state=None)
    warm = WarmStarted(digest="abc", rows=[row])
    stop = Stopped(by="ann", why="smoke")
    for _ in range(2):
        events = [DecisionMade(**DECISION), OutcomeRecorded(**OUTCOME), warm, stop]
        fresh = [result.fresh for result in store.append([event.draft() for event in events])]
    assert fresh == [False, False, False, True]
    assert store.head().seq == 5


def test_a_repeated_request_gets_the_first_decision_back_whatever_its_new_id():
    store = MemoryStore()
    first = DecisionMade(**DECISION | {"key": "req"})
    store.append([first.draft()])
    again = store.append([DecisionMade(**DECISION | {"key": "req", "decision_id": "d-2"}).draft()])[0]
    assert not again.fresh
    assert event_of(again.entry) == first
    assert store.find("decision:d-2") is None


@pytest.mark.parametrize(
    "change",
    [{"certified": float("nan")}, {"step": -1}, {"step": 1.0}, {"is_baseline": 1}, {"extra": 1}, {"decision_id": 7}],
)
def test_a_field_of_the_wrong_kind_is_refused(change):
    with pytest.raises(ValidationError):
        DecisionMade(**DECISION | change)


def test_a_number_that_is_not_finite_deep_in_a_certificate_never_reaches_the_log():
    certificate = replace(DECISION["certificate"], feature=(0.1, float("inf")))
    event = DecisionMade(**DECISION | {"certificate": certificate})
    with pytest.raises((InputError, ValueError)):
        event.draft()


def test_an_unknown_kind_and_a_body_that_does_not_fit_are_named():
    store = MemoryStore()
    store.append([Draft("from-the-future", {}), Draft("stopped", {"by": "ann"})])
    unknown, wrong = store.read()
    with pytest.raises(InputError, match="entry 1 is of kind 'from-the-future'"):
        event_of(unknown)
    with pytest.raises(StoreError, match="entry 2 is not a 'stopped' event"):
        event_of(wrong)


def test_every_kind_is_a_name_that_the_log_takes():
    assert len(EVENTS) >= 9
    for kind, model in EVENTS.items():
        assert Draft(kind, {}).kind == model.kind
