"""Values at the edge of what a log can hold: refused at the door, or read back just as they were."""

import dataclasses
import json

import pytest

from tether import Advisor
from tether.errors import InputError
from tether.live.decisions import AlreadyRecorded
from tether.live.memory_store import MemoryStore
from tether.live.states import DEEPEST
from tether.live.store import Draft, text_of

from .live_worlds import finite_problem, live_advisor, small_world

WORLD, _ = small_world(0)


TAKEN = {
    "just beyond 64 bits": 2**63, "below them": -(2**63) - 1, "400 digits": 10**400, "minus zero": -0.0,
    "subnormal": 5e-324, "largest": 1.7976931348623157e308, "whole": 1e16, "tenth": 0.1, "letters": "é\x00😀",
    "word": "NaN", "nested": {"a": [None, True]},
}  # fmt: skip
REFUSED = {"nan": float("nan"), "inf": [float("inf")], "5000 digits": 10**5000, "a set": {"a": {1, 2}}, "bytes": b"x"}


@pytest.mark.parametrize("name", TAKEN)
def test_a_text_reads_back_as_what_was_handed_in(name):
    back = json.loads(text_of({"x": TAKEN[name]}))["x"]
    assert type(back) is type(TAKEN[name]) and repr(back) == repr(TAKEN[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_not_be_read_back_is_refused(name):
    with pytest.raises(InputError):
        Draft("note", {"x": REFUSED[name]})


def test_an_endless_number_or_state_leaves_the_log_as_it_was():
    store = MemoryStore()
    advisor = live_advisor(WORLD.problem, store)
    made, deep = advisor.decide(0), 1
    for _ in range(DEEPEST + 5):
        deep = (deep,)
    before = store.head()
    for call in (
        lambda: advisor.decide(0, 0, episode=10**5000),
        lambda: advisor.record(made.id, 0.1, 0.2, next_state=10**5000),
        lambda: advisor.record(made.id, 0.1, 0.2, next_state=deep),
    ):
        with pytest.raises(InputError):
            call()
    assert store.head() == before
    assert Advisor(WORLD.problem, store).replica.to_bytes() == advisor.replica.to_bytes()


@pytest.mark.parametrize("other", [True, 1.0])
def test_a_repeat_with_something_that_only_looks_the_same_is_no_repeat(other):
    advisor = live_advisor(WORLD.problem)
    made = advisor.decide(0)
    advisor.record(made.id, 0.5, 0.2, next_state=1)
    assert advisor.record(made.id, 0.5, 0.2, next_state=1).repeated
    with pytest.raises(AlreadyRecorded):
        advisor.record(made.id, 0.5, 0.2, next_state=other)


def test_a_repeat_with_its_keys_in_another_order_is_a_repeat():
    advisor = live_advisor(WORLD.problem)
    made = advisor.decide(0)
    advisor.record(made.id, 0.5, 0.2, next_state={"a": 1, "b": 2})
    assert advisor.record(made.id, 0.5, 0.2, next_state={"b": 2, "a": 1}).repeated


def test_a_limit_that_no_certificate_could_state_is_refused_before_a_log_is_made(tmp_path):
    problem, _ = finite_problem(constraints=2)
    endless = dataclasses.replace(problem, threshold=(problem.threshold[0], float("inf")))
    with pytest.raises(InputError, match="finite"):
        Advisor(endless, tmp_path / "log.db")
    assert not (tmp_path / "log.db").exists()
