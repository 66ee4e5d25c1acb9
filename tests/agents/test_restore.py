"""Restoring equals continuing, bit for bit: for every agent, at every kind of moment, for every kind of state."""

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest

from agents.cases import CASES
from limits import stated
from tether import Constraint, InputError, Problem, SlucbConfig, SlucbQvi
from tether.agents.testing import MOMENTS, changed, essence, play, restoring_equals_continuing, snapshot
from tether.lab.worlds.linear_mdp import Streams
from worlds import small_world


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", CASES)
def test_restoring_equals_continuing(name, moment, tmp_path):
    """And what is restored is the same at once, not only in what it does."""
    case = CASES[name]
    agent = case.make()

    def restore(path, problem):
        restored = case.restore(path, problem)
        assert changed(snapshot(agent), snapshot(restored)) == []
        return restored

    traced = replace(case, make=lambda: agent, restore=restore)
    restoring_equals_continuing(traced, moment, tmp_path / "agent.tether")


def test_a_warm_up_in_progress_survives_a_restore(tmp_path):
    """Some (h, s) have passed, some are being measured, some are untouched: all three go on as they were."""
    case = CASES["unknown-appendix"]
    agent, streams = case.make(), Streams.from_seed(52)
    play(case.world, agent, streams, 2)
    costs = agent.tables.baseline_cost[:, : int(agent.tables.slots[0])]
    assert np.isnan(costs).any()
    assert agent.warmup
    agent.save(tmp_path / "agent.tether")
    restored = case.restore(tmp_path / "agent.tether", case.world.problem)
    assert essence(restored.warmup) == essence(agent.warmup)
    there = copy.deepcopy(streams)
    first, second = play(case.world, agent, streams, 20), play(case.world, restored, there, 20)
    assert [essence(d) for d in first] == [essence(d) for d in second]
    assert {d.reason for d in first} > {"warm-up"}
    assert essence(restored.warmup) == essence(agent.warmup)


def test_saving_again_and_again_loses_nothing(tmp_path):
    """Save and restore between every two steps of twelve episodes."""
    case = CASES["explorer-adaptive"]
    (plain, tired), streams = (case.make(), case.make()), Streams.from_seed(53)
    there = copy.deepcopy(streams)
    expected = play(case.world, plain, streams, 12)
    made = []
    for _ in range(12):
        state = case.world.reset(there)
        tired.plan()
        for step in range(case.world.problem.horizon):
            tired.save(tmp_path / "agent.tether")
            tired = case.restore(tmp_path / "agent.tether", case.world.problem)
            decision = tired.act(step, state)
            seen = case.world.step(decision, there)
            tired.observe(seen)
            made.append(decision)
            state = seen.next_state
    assert [essence(d) for d in made] == [essence(d) for d in expected]


@dataclass(frozen=True)
class Position:
    """A state as users write them."""

    row: int
    name: str
    load: float


@dataclass(frozen=True)
class Nested:
    position: Position
    sensors: tuple[float, ...]


KINDS = {
    "int": lambda i: 10 * i - 5,
    "numpy integer": lambda i: np.int64(i),
    "string": lambda i: f"room {i} ‘é’",
    "float": lambda i: i / 3,
    "bytes": lambda i: bytes([0, 255 - i]),
    "tuple": lambda i: (i, "x", (0.1 * i, None)),
    "tuple of numpy integers": lambda i: (np.int64(i), np.int32(2)),
    "float array": lambda i: np.array([0.1 * i, -1.0]),
    "integer matrix": lambda i: np.array([[i, 1], [2, 3]]),
    "frozen dataclass": lambda i: Position(i, "hall", 0.5 * i),
    "nested dataclass": lambda i: Nested(Position(i, "hall", 0.5), (0.25, float(i))),
}


def _problem_over(make, **changes):
    """The small world, whose states are called something else."""
    world = small_world()
    index_of = {}
    plain = Problem(horizon=1, constraints=Constraint(threshold=1.0, noise=1.0), dimension=1, actions=lambda s: None)
    for i in range(world.state_count):
        index_of[plain.key_of(make(i))] = i
    return world, Problem(
        horizon=world.problem.horizon,
        dimension=world.problem.dimension,
        actions=lambda s: world.problem.actions(index_of[plain.key_of(s)]),
        **stated(
            threshold=world.problem.threshold,
            noise=world.problem.noise,
            baseline_cost_error=0.0,
            baseline_cost=lambda h, s: world.problem.baseline_cost(h, index_of[plain.key_of(s)]),
            gamma_norm=world.problem.gamma_norm,
            **changes,
        ),
    )


WAY_BACK = {
    "frozen dataclass": lambda key: Position(*key[1:]),
    "nested dataclass": lambda key: Nested(Position(*key[1][1:]), key[2]),
}
"""What a lean backup needs to rebuild states from saved keys; other kinds come back by themselves."""


def _play_renamed(world, agent, streams, make, episodes):
    decisions = []
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(world.problem.horizon):
            decision = agent.act(step, make(state))
            seen = world.step(decision, streams)
            agent.observe(decision.outcome(reward=seen.reward, cost=seen.cost, next_state=make(seen.next_state)))
            decisions.append(decision)
            state = seen.next_state
    return decisions


@pytest.mark.parametrize("backup", ["tables", "lean"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_state_is_recognised_again_after_a_restore(kind, backup, tmp_path):
    make = KINDS[kind]
    world, problem = _problem_over(make, state_of=WAY_BACK.get(kind))
    agent, streams = SlucbQvi(problem, SlucbConfig(backup=backup)), Streams.from_seed(54)
    _play_renamed(world, agent, streams, make, 10)
    agent.save(tmp_path / "agent.tether")
    restored = SlucbQvi.restore(tmp_path / "agent.tether", problem)
    assert list(restored.known_states) == list(agent.known_states)
    assert len(list(agent.known_states)) == 4
    there = copy.deepcopy(streams)
    first, second = (
        _play_renamed(world, agent, streams, make, 8),
        _play_renamed(world, restored, there, make, 8),
    )
    assert [essence(d) for d in first] == [essence(d) for d in second]
    assert changed(snapshot(agent), snapshot(restored)) == []


@pytest.mark.parametrize("backup", ["tables", "lean"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_state_is_called_does_not_change_the_run(kind, backup):
    make = KINDS[kind]
    world, problem = _problem_over(make)
    config = SlucbConfig(backup=backup, replan="every-episode")
    renamed = _play_renamed(world, SlucbQvi(problem, config), Streams.from_seed(55), make, 15)
    plain = play(world, SlucbQvi(world.problem, config), Streams.from_seed(55), 15)
    assert [essence((d.action, d.evidence, d.score)) for d in renamed] == [
        essence((d.action, d.evidence, d.score)) for d in plain
    ]


def test_a_state_that_cannot_be_saved_says_so_and_names_the_way_out(tmp_path):
    _, problem = _problem_over(lambda i: frozenset([i]))
    agent = SlucbQvi(problem, SlucbConfig(backup="tables"))
    agent.register([frozenset([0])])
    before = snapshot(agent)
    with pytest.raises(InputError, match=r"frozenset.*key="):
        agent.save(tmp_path / "agent.tether")
    assert list(tmp_path.iterdir()) == []
    assert changed(before, snapshot(agent)) == []


NUMPY_SETTINGS = {
    "episodes": (np.int64(100), {}),
    "value_radius": (np.float32(2.0), {}),
    "cost_ridge": (np.float32(0.5), {}),
    "c_beta": (np.float32(0.5), {"value_radius": "theorem", "episodes": 10}),
}


@pytest.mark.parametrize("field", NUMPY_SETTINGS)
def test_settings_that_are_numpy_numbers_can_be_saved(field, tmp_path):
    value, more = NUMPY_SETTINGS[field]
    problem = small_world().problem
    SlucbQvi(problem, SlucbConfig(**{field: value, **more})).save(tmp_path / "agent.tether")
    restored = SlucbQvi.restore(tmp_path / "agent.tether", problem)
    assert getattr(restored.config, field) == value


def _one_set_for_all(**changes):
    """Every state has the actions of the small world's state 0."""
    plain = small_world().problem
    told = {
        "horizon": 3,
        "threshold": 0.5,
        "noise": 0.02,
        "dimension": 3,
        "actions": lambda state: plain.actions(0),
        "baseline_cost_error": 0.0,
        "baseline_cost": lambda step, state: plain.baseline_cost(step, 0),
    }
    return Problem(**stated(**{**told, **changes}))


ODD = {
    "large integers": ([10**30, -(10**40)], {}),
    "awkward floats": ([0.1 + 0.2, 5e-324, 1.7976931348623157e308, -1.5e-300], {}),
    "control characters": (["a\x00b", "", "\n"], {}),
    "half a surrogate pair": (["\ud800 from a file name"], {}),
    "truth values": ([True, False, None, (True, None)], {}),
    "long double": ([np.longdouble(1.5)], {}),
    "an infinite threshold": ([0], {"threshold": np.inf}),
    "a confidence in single precision": ([0], {"confidence": np.float32(0.01)}),
    "a state that the list does not name": (["a", "b"], {"states": ["a"]}),
    "a state outside the range": ([0, 7], {"states": range(2)}),
}


@pytest.mark.parametrize("backup", ["tables", "lean"])
@pytest.mark.parametrize("name", ODD)
def test_what_can_be_learned_from_and_saved_can_be_restored(name, backup, tmp_path):
    """A save that succeeds and cannot be read back is the worst of both: refuse at the door, or restore."""
    states, changes = ODD[name]
    agent = SlucbQvi(_one_set_for_all(**changes), SlucbConfig(backup=backup))
    try:
        for state in states:
            agent.observe(agent.act(0, 0).outcome(reward=0.5, cost=0.3, next_state=state))
        agent.plan()
        agent.act(0, states[0])
        agent.save(tmp_path / "agent.tether")
    except InputError:
        assert list(tmp_path.iterdir()) == []
        return
    restored = SlucbQvi.restore(tmp_path / "agent.tether", agent.problem)
    assert changed(snapshot(agent), snapshot(restored)) == []


def _another_position():
    @dataclass(frozen=True)
    class Position:
        row: int
        name: str
        load: float

    return Position(1, "hall", 0.5)


def test_different_things_never_share_a_slot():
    """A slot is a set of actions and a safe cost: two states in one slot would get each other's bounds."""
    point = np.array([1.0, 2.0])
    things = [
        Position(1, "hall", 0.5),
        _another_position(),  # another class of the same name
        ("Position", 1, "hall", 0.5),
        (1, "hall", 0.5),
        point,
        point.reshape(1, 2),
        point.astype(np.float32),
        point.tobytes(),
        (1.0, 2.0),
        "1",
        1,
    ]
    tables, lean = (SlucbQvi(_one_set_for_all(), SlucbConfig(backup=backup)) for backup in ("tables", "lean"))
    tables.register(things)
    assert int(tables.tables.slots[0]) == len(things)
    for thing in things:
        lean.observe(lean.act(0, 0).outcome(reward=0.5, cost=0.3, next_state=thing))
    assert len(lean.visited.states) == len(things)
    assert [type(kept) for kept in lean.visited.states] == [type(thing) for thing in things]
