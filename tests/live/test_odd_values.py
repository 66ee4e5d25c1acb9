"""Values at the edge of what a log can hold: refused at the door, or read back just as they were."""

import enum
import json
from collections import namedtuple

import numpy as np
import pytest

from limits import restated, stated
from live.plant import live_advisor
from tether import Advisor
from tether.errors import InputError
from tether.live.answers import AlreadyRecorded
from tether.live.audit import replay
from tether.live.log.chain import Draft, text_of
from tether.live.log.memory import MemoryStore
from tether.live.states import DEEPEST, StateCodec, as_logged
from tether.problem.action_sets import FiniteActions
from tether.problem.problem import Problem
from worlds import finite_problem, world_and_streams

WORLD, _ = world_and_streams(0)


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
    endless = restated(problem, threshold=(problem.threshold[0], float("inf")))
    with pytest.raises(InputError, match="finite"):
        Advisor(endless, tmp_path / "log.db")
    assert not (tmp_path / "log.db").exists()


Room = namedtuple("Room", "temp open")


class Level(enum.IntEnum):
    LOW = 1


class Tank:
    def __init__(self, level):
        self.level = level


def told_by(rows, **more):
    """A problem told by functions: `rows` gives the features (N, 2) of a state's actions, the first of which is a_0."""
    told = {
        "horizon": 1,
        "threshold": 0.5,
        "noise": 0.05,
        "dimension": 2,
        "baseline_cost_error": 0.0,
        "baseline_cost": lambda step, state: 0.15,
    }
    return Problem(**stated(**{**told, "actions": lambda state: FiniteActions(np.array(rows(state)), 0), **more}))


def open_rooms(rows=lambda room: [[0.5, 0.0], [0.4, 0.1 + 0.1 * room.open]], **more):
    return told_by(rows, horizon=2, **more)


ROOMS = StateCodec(
    lambda room: None if room is None else list(room), lambda value: None if value is None else Room(*value)
)
TANKS = StateCodec(lambda tank: None if tank is None else vars(tank), lambda value: value and Tank(**value))


@pytest.mark.parametrize("state", [3, 0.25, "hall", None])
def test_plain_states_go_into_the_log_as_they_are(state):
    assert all(part is state for part in as_logged(StateCodec(), state))


@pytest.mark.parametrize(
    ("state", "back"),
    [
        (np.float32(0.1), float(np.float32(0.1))),
        (np.int64(3), 3),
        (Level.LOW, 1),
        (Room(20.0, 1), (20.0, 1)),
        ((Level.LOW, [np.float32(0.5)]), (1, [0.5])),
        (True, True),
    ],
    ids=str,
)
def test_what_is_decided_on_is_what_the_log_gives_back(state, back):
    logged, again = as_logged(StateCodec(), state)
    assert repr(again) == repr(StateCodec().decode(json.loads(text_of(logged)))) == repr(back)


def test_a_dict_keeps_the_order_of_its_names():
    logged, again = as_logged(StateCodec(), {"b": 1, "a": 2})
    assert list(again) == list(logged["dict"]) == ["b", "a"]


def test_an_array_comes_back_as_one_that_may_be_written_to():
    array = np.arange(6.0).reshape(2, 3).T
    _, again = as_logged(StateCodec(), array)
    again[0, 0] = 9.0
    assert array[0, 0] == 0.0 and np.array_equal(again[1:], array[1:])


def test_a_state_whose_type_the_log_does_not_keep_is_refused_with_the_way_out():
    store = MemoryStore()
    advisor = live_advisor(open_rooms(), store)
    before = store.head()
    for state in (Room(20.0, 1), (Room(20.0, 1), 0)):
        with pytest.raises(InputError, match=r"20\.0, .* Room .* tuple: .*StateCodec"):
            advisor.decide(state, 0, "e")
    with pytest.raises(InputError, match="AttributeError") as refused:
        advisor.decide((20.0, 1), 0, "e")
    assert "no attribute 'open'" in str(refused.value.__cause__)
    assert "StateCodec" not in str(refused.value)  # the log keeps it: it is the problem that does not know it
    assert store.head() == before


def test_a_next_state_whose_type_the_log_does_not_keep_is_refused_before_it_is_logged():
    store = MemoryStore()
    problem = open_rooms(lambda room: [[0.5, 0.0], [0.4, 0.2 if room == "start" else room.open]])
    advisor = live_advisor(problem, store)
    made, before = advisor.decide("start", 0, "e"), store.head()
    with pytest.raises(InputError, match=r"next_state .*21\.0.* Room .* tuple: .*StateCodec"):
        advisor.record(made.id, 0.5, 0.2, Room(21.0, 0))
    assert store.head() == before
    assert Advisor(problem, store).replica.to_bytes() == advisor.replica.to_bytes()


def test_a_codec_keeps_the_type_and_everything_works():
    store, problem = MemoryStore(), open_rooms(state_of=lambda key: Room(*key))
    advisor = live_advisor(problem, store, states=ROOMS)
    made = advisor.decide(Room(20.0, 1), 0, "e")
    advisor.record(made.id, 0.5, 0.2, Room(21.0, 0))
    last = advisor.decide(Room(21.0, 0), 1, "e")
    advisor.record(last.id, 0.5, 0.2)
    assert advisor.status().outcomes == 2
    assert replay(store, problem, ROOMS).holds
    assert Advisor(problem, store, states=ROOMS).replica.to_bytes() == advisor.replica.to_bytes()


WRONG = {
    "decode fails": (ROOMS.encode, lambda value: Room(*value, *value)),
    "None comes back as something": (lambda room: [] if room is None else list(room), lambda value: "a wall"),
    "encode fails": (lambda room: [room.temp, room.shut], ROOMS.decode),
    "no JSON": (lambda room: {1, 2}, lambda value: Room(1.0, 1)),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("next_state", [None, Room(21.0, 0)], ids=["last", "next"])
def test_a_codec_that_is_wrong_about_next_states_leaves_the_log_as_it_was(name, next_state):
    """Nothing follows the last step: None is a next state, too, which a codec must give back."""
    store, problem = MemoryStore(), open_rooms()
    made, before = live_advisor(problem, store, states=ROOMS).decide(Room(20.0, 1), 0, "e"), store.head()
    advisor = Advisor(problem, store, states=StateCodec(*WRONG[name]))
    with pytest.raises(InputError):
        advisor.record(made.id, 0.5, 0.2, next_state)
    assert store.head() == before


def test_where_nothing_ever_follows_a_codec_is_not_asked_about_nothing():
    problem = told_by(lambda tank: [[0.5, 0.0], [0.1, 0.1 * tank.level]], key=lambda tank: tank.level)
    advisor = live_advisor(problem, states=StateCodec(vars, lambda value: Tank(**value)))
    advisor.record(advisor.decide(Tank(1)).id, 0.5, 0.2)
    assert advisor.store.read()[-1].body["next_state"] is None


def test_a_state_of_that_leads_elsewhere_is_refused_before_anything_is_logged():
    codec = StateCodec(lambda tank: tank and tank.level, lambda value: value and Tank(value))
    problem = told_by(
        lambda tank: [[0.5, 0.0], [0.4, 0.1]],
        horizon=2,
        key=lambda tank: tank.level,
        state_of=lambda key: Tank(key + 1),
    )
    store = MemoryStore()
    advisor = live_advisor(problem, store, states=codec)
    made, before = advisor.decide(Tank(1), 0, "e"), store.head()
    with pytest.raises(InputError, match=r"next_state .*another key"):
        advisor.record(made.id, 0.1, 0.2, Tank(2))
    assert store.head() == before
    assert not advisor.record(made.id, 0.1, 0.2).repeated


def test_what_is_learned_is_what_was_decided_on_though_the_plant_moved_on():
    """The codec hands out the object's own dict: what the log keeps must not move with it."""
    problem = told_by(lambda tank: [[0.5, 0.0], [0.1, 0.1 * tank.level]], key=lambda tank: tank.level)
    store = MemoryStore()
    advisor = live_advisor(problem, store, states=TANKS)
    tank = Tank(1)
    made = advisor.decide(tank)
    tank.level = 9
    advisor.record(made.id, 0.5, 0.2, applied=1)
    bodies = [json.loads(entry.text) for entry in store.read()[-2:]]
    assert [body["state"] for body in bodies] == [{"level": 1}] * 2
    assert bodies[1]["feature"] == [0.1, 0.1]
    assert replay(store, problem, TANKS).holds


def test_the_same_key_gets_the_same_decision_whatever_the_codec_made_of_the_state():
    """JSON has no tuples: the log gives back a list."""
    codec = StateCodec(lambda tank: (tank.level, True), lambda value: Tank(value[0]))
    problem = told_by(lambda tank: [[0.5, 0.0], [0.1, 0.1 * tank.level]], key=lambda tank: tank.level)
    advisor = live_advisor(problem, states=codec)
    assert advisor.decide(Tank(1), key="k").id == advisor.decide(Tank(1), key="k").id
    with pytest.raises(InputError, match="another request"):
        advisor.decide(Tank(2), key="k")


def test_what_is_handed_out_again_is_not_the_logs_own():
    whole = StateCodec(lambda state: state, lambda value: value)
    problem = told_by(lambda state: [[0.5, 0.0], [0.1, 0.1 * state["level"]]], key=lambda state: state["level"])
    advisor = live_advisor(problem, states=whole)
    for _ in range(2):
        made = advisor.decide({"level": 1}, key="k")
        made.state["level"] = 9
    advisor.record(made.id, 0.5, 0.2, applied=1)
    assert advisor.store.read()[-1].body["feature"] == [0.1, 0.1]


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.float16])
def test_decisions_on_numpys_numbers_come_out_the_same_again(kind):
    """The log gives back Python's: so that is what must have been decided on."""
    problem = told_by(lambda state: [[0.5, 0.1 * state], [0.4, state * state * state]])
    store, rng = MemoryStore(), np.random.default_rng(0)
    advisor = live_advisor(problem, store)
    for _ in range(20):
        made = advisor.decide(kind(rng.uniform(0.2, 0.8)))
        advisor.record(made.id, made.feature[1], 0.15 + 0.05 * rng.standard_normal())
    assert replay(store, problem).differences == []


def test_what_is_masked_was_not_measured():
    """numpy turns a masked number into what stands behind the mask, usually 0."""
    advisor = live_advisor(WORLD.problem)
    made, before = advisor.decide(0), advisor.store.head()
    for call in (
        lambda: advisor.record(made.id, 0.1, np.ma.masked),
        lambda: advisor.record(made.id, np.ma.masked, 0.1),
        lambda: advisor.record(made.id, 0.1, 0.1, applied=np.ma.masked_array(made.feature, [True, False, False])),
        lambda: advisor.warm_start([made.feature], np.ma.masked_array([0.1], [True])),
        lambda: advisor.warm_start(np.ma.masked_array([made.feature], [[True, False, False]]), [0.1]),
    ):
        with pytest.raises(InputError):
            call()
    assert advisor.store.head() == before


def test_a_declared_cost_that_the_data_contradict_is_explained():
    told = {"horizon": 1, "threshold": 0.5, "noise": 0.01, "gamma_norm": 1.0}
    problem = Problem.from_table(
        features=[[[0.9, 0.1], [0.1, 0.9]]],
        baseline_action=[0],
        **stated(baseline_cost_error=0.0, baseline_cost=[[0.1]], **told),
    )
    advisor = live_advisor(problem, watch=False)  # without the monitor, which would trip first
    for _ in range(60):
        made = advisor.decide(0)
        advisor.record(made.id, 0.1, 0.4)
    assert made.is_baseline and made.reason == "alarm" and "contradicts the recorded costs" in made.detail


@pytest.mark.parametrize("rows", [np.ma.array([[0.1, 0.2]], mask=[[False, True]]), np.array([[0.1, 0.2 + 0.5j]])])
def test_features_that_are_masked_or_complex_are_refused(rows):
    """numpy would take what is under the mask, or the real part, without a word."""
    with pytest.raises(InputError, match="given and real"):
        FiniteActions(rows, 0)


@pytest.mark.parametrize(
    "features",
    [np.ma.array([[[0.5, 0.0], [0.4, 0.1]]], mask=[[[0, 0], [0, 1]]]), np.array([[[0.5, 0.0], [0.4, 0.1j]]])],
)
def test_tables_of_features_that_are_masked_or_complex_are_refused(features):
    """numpy would take what is under the mask, and drop the imaginary part."""
    told = {"baseline_cost_error": 0.0, "baseline_cost": [[0.1]], "horizon": 1, "threshold": 0.5, "noise": 0.05}
    with pytest.raises(InputError, match="masked or complex"):
        Problem.from_table(features=features, baseline_action=[0], **stated(**told))
    with pytest.raises(InputError, match="masked or complex"):
        Problem.from_rays(phi_0=[[0.5, 0.0]], endpoints=features, **stated(**told))


def test_yes_and_no_are_costs_only_where_costs_are_bounded():
    told = {
        "features": [[[0.5, 0.0], [0.4, 0.1]]],
        "baseline_action": [0],
        "baseline_cost_error": 0.0,
        "baseline_cost": [[0.1]],
        "horizon": 1,
    }
    measured = Advisor(Problem.from_table(**stated(**told, threshold=0.5, noise=0.05)))
    with pytest.raises(InputError, match="True and False are costs"):
        measured.record(measured.decide(0).id, 0.1, True)
    counted = Advisor(Problem.from_table(**stated(**told, threshold=0.5, cost_kind="bounded")))
    assert not counted.record(counted.decide(0).id, 0.1, np.True_).repeated
