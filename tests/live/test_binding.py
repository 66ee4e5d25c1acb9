"""A log belongs to one problem: what its functions say must be what they said when the data came in."""

from zlib import crc32

import numpy as np
import pytest

from limits import stated
from live.plant import Plant, live_advisor
from tether import Advisor, FiniteActions, InputError, Problem, StarActions, Upkeep
from tether.live import binding, judge
from tether.live.binding import sketch
from tether.live.log.memory import MemoryStore
from worlds import world_and_streams

WORLD, _ = world_and_streams(3)
TOLD = {name: getattr(WORLD.problem, name) for name in ("horizon", "threshold", "noise", "dimension", "gamma_norm")}


def functions(
    change=lambda actions: actions, cost=lambda step, state: WORLD.problem.baseline_cost(step, state), **more
):
    """The world's problem as functions, of which one may be changed."""
    return Problem(
        actions=lambda state: change(WORLD.problem.actions(state)),
        **stated(baseline_cost_error=0.0, baseline_cost=cost, **{**TOLD, **more}),
    )


def star(change):
    """A change of all features (N, d) of a star."""
    return lambda actions: StarActions(change(actions.phi_0[None])[0], change(actions.endpoints))


SWAPPED = star(lambda rows: rows[:, [1, 0, *range(2, rows.shape[1])]])
CHANGES = {
    "two columns are swapped": {"change": SWAPPED},
    "features have another scale": {"change": star(lambda rows: 0.999 * rows)},
    "an action is left out": {"change": lambda actions: StarActions(actions.phi_0, actions.endpoints[:-1])},
    "two actions are swapped": {"change": lambda actions: StarActions(actions.phi_0, actions.endpoints[::-1])},
    "safe costs are others": {"cost": lambda step, state: 0.5 * np.asarray(WORLD.problem.baseline_cost(step, state))},
    "the version is another": {"version": "2"},
}


@pytest.fixture(scope="module")
def log():
    """A log of 60 decisions."""
    store = MemoryStore()
    Plant(WORLD.true_gamma).play(live_advisor(functions(), store), 60)
    return store


@pytest.mark.parametrize("changed", CHANGES)
def test_a_problem_that_was_changed_is_refused(log, changed):
    with pytest.raises(InputError, match=r"another problem|not the one that the log was written for"):
        Advisor(functions(**CHANGES[changed]), log, upkeep=Upkeep(refresh=None))


def test_the_same_problem_but_for_rounding_is_taken(log):
    assert (
        Advisor(functions(star(lambda rows: rows * (1.0 + 1e-13))), log, upkeep=Upkeep(refresh=None)).decide(1).logged
    )


def test_listed_states_are_compared_before_anything_is_decided():
    store = MemoryStore()
    Advisor(functions(states=range(4)), store)
    with pytest.raises(InputError, match="listed states"):
        Advisor(functions(SWAPPED, states=range(4)), store)
    Advisor(functions(star(lambda rows: rows * (1.0 + 1e-13)), states=range(4)), store)
    assert [entry.kind for entry in store.read()] == ["configured"], "rounding is nothing to write down"


def test_functions_that_are_down_at_the_start_are_compared_before_the_first_decision(log):
    is_down, changed = [True], functions(SWAPPED)

    def actions(state):
        if is_down[0]:
            raise ConnectionError("the catalogue is down")
        return changed.actions(state)

    advisor = Advisor(
        Problem(actions=actions, **stated(baseline_cost_error=0.0, baseline_cost=WORLD.problem.baseline_cost, **TOLD)),
        log,
        upkeep=Upkeep(refresh=None),
    )
    with pytest.raises(InputError):
        advisor.decide(1)
    is_down[0] = False
    with pytest.raises(InputError, match="not the one that the log was written for"):
        advisor.decide(1)


def test_a_state_that_is_known_no_more_is_passed_over(log):
    def fewer(state):
        if state == 0:
            raise KeyError(state)
        return WORLD.problem.actions(state)

    problem = Problem(
        actions=fewer, **stated(baseline_cost_error=0.0, baseline_cost=WORLD.problem.baseline_cost, **TOLD)
    )
    assert Advisor(problem, log, upkeep=Upkeep(refresh=None)).decide(1).logged


@pytest.mark.parametrize(("kept", "holds"), [(4, 0), (3, 5)])
def test_decisions_hold_sketches_where_the_first_entry_does_not(monkeypatch, kept, holds):
    """Four states: a log that begins with all their sketches needs no more, one with three takes one in two."""
    monkeypatch.setattr(binding, "LISTED", kept)
    monkeypatch.setattr(judge, "SKETCH_EVERY", 2)
    names = [name for name in map(str, range(100)) if crc32(name.encode()) % 2 == 0][:5]
    advisor = Advisor(WORLD.problem, upkeep=Upkeep(refresh=None, ids=iter(names).__next__))
    assert sum(advisor.decide(1).sketch is not None for _ in names) == holds


def test_a_sketch_tells_states_apart():
    rows, costs = np.array([[0.1, 0.2], [0.3, 0.4], [0.3, 0.1]]), np.array([[0.1]])
    sets = [
        FiniteActions(rows, 0),
        FiniteActions(rows, 1),
        FiniteActions(rows[[0, 2, 1]], 0),
        StarActions(rows[0], rows),
    ]
    known = [binding.KnownState(0, each, costs) for each in sets]
    known += [binding.KnownState(0, sets[0], np.array([[0.2]])), binding.KnownState(0, sets[0], np.array([[np.nan]]))]
    numbers = [sketch(each) for each in known]
    assert np.abs(np.subtract.outer(numbers, numbers))[~np.eye(len(numbers), dtype=bool)].min() > 1e-6
