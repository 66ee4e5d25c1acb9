"""Any state space, lean: states of every kind, memory that grows with visits alone, rare plans, honest files."""

import json
import tracemalloc
import zipfile
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from agents.test_state_file import load, npy, repack
from limits import stated
from tether import (
    FiniteActions,
    InputError,
    LsviUcb,
    Problem,
    RslucbQvi,
    SlucbConfig,
    SlucbQvi,
    StarActions,
    StateFileError,
)
from tether.agents.agent import GROWTH
from tether.agents.testing import changed, essence, snapshot
from tether.lab.simulate import simulate, simulate_stepwise
from tether.lab.worlds.linear_mdp import Streams
from worlds import many_actions, small_world

NOISE = 0.05


def gamma_of(d):
    """A cheap first entry, dear others: the safe action leans on the first."""
    gamma = np.linspace(0.3, 0.9, d)
    gamma[0] = 0.1
    return gamma


@cache
def shape_of(d, rays):
    """Centres of d soft cells, and what the rays add to them."""
    rng = np.random.default_rng(7)
    return rng.random((d, 2)), 0.5 * rng.dirichlet(np.ones(d), size=rays)


def star_at(point, d, rays):
    """D(s) of a point of the plane, computed on demand."""
    centres, spread = shape_of(d, rays)
    weights = np.exp(-8.0 * ((centres - point) ** 2).sum(axis=1))
    cells = weights / weights.sum()
    safe = 0.8 * np.eye(d)[0] + 0.2 * cells
    return StarActions(safe, 0.5 * cells + spread)


def plane(d=6, rays=8, horizon=3, *, point_of=np.asarray, **changes):
    """A problem over points of the unit square; `point_of` reads the point off a state."""
    gamma = gamma_of(d)
    told = {
        "horizon": horizon,
        "threshold": 0.5,
        "noise": NOISE,
        "dimension": d,
        "actions": lambda state: star_at(point_of(state), d, rays),
        "baseline_cost_error": 0.0,
        "baseline_cost": lambda step, state: float(gamma @ star_at(point_of(state), d, rays).phi_0),
    }
    return Problem(**stated(**{**told, **changes}))


def wander(agent, rng, episodes, make=lambda point: point):
    """Episodes over fresh points; every decision is checked against the true cost."""
    gamma, decisions = gamma_of(agent.problem.dimension), []
    for _ in range(episodes):
        agent.plan()
        point = rng.random(2)
        for step in range(agent.problem.horizon):
            decision = agent.act(step, make(point))
            assert decision.cost_bound <= decision.threshold
            true_cost = float(gamma @ decision.feature)
            assert true_cost <= 0.5
            point = rng.random(2)
            cost = true_cost + NOISE * rng.standard_normal()
            agent.observe(decision.outcome(reward=rng.random(), cost=cost, next_state=make(point)))
            decisions.append(decision)
    return decisions


def test_a_problem_that_lists_no_states_just_works_and_keeps_no_candidates():
    agent = SlucbQvi(plane())
    decisions = wander(agent, np.random.default_rng(1), 100)
    assert agent.config.backup == "lean"
    assert agent.config.replan == "on-growth"
    assert any(not d.is_baseline for d in decisions)
    assert len(agent.visited.states) == 200  # steps 0 and 1 of 100 episodes; what follows the last step is not needed
    assert int(agent.tables.slots[0]) == 0
    assert agent.current.values.shape[1] <= 4


def test_auto_means_tables_where_states_are_listed_and_what_was_asked_for_is_kept():
    listed = small_world().problem
    assert SlucbQvi(listed).config == SlucbConfig(backup="tables", replan="every-episode")
    assert SlucbQvi(listed, SlucbConfig(backup="lean")).config.replan == "on-growth"
    assert SlucbQvi(plane(), SlucbConfig(backup="tables")).config.replan == "every-episode"
    assert SlucbQvi(plane(), SlucbConfig(replan="on-doubling")).config.backup == "lean"
    assert LsviUcb(plane()).config.backup == "lean"


@dataclass(frozen=True)
class Spot:
    """A state as users write them."""

    x: float
    y: float
    name: str = "spot"


KINDS = {
    "array": (np.asarray, lambda p: p),
    "single precision": (lambda s: s.astype(float), lambda p: p.astype(np.float32).astype(np.float32)),
    "dataclass": (lambda s: np.array([s.x, s.y]), lambda p: Spot(float(p[0]), float(p[1]))),
    "string": (lambda s: np.array([float(part) for part in s.split()]), lambda p: f"{float(p[0])!r} {float(p[1])!r}"),
    "tuple": (np.array, lambda p: (float(p[0]), np.float64(p[1]))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_states_are_made_of_does_not_matter(kind):
    point_of, make = KINDS[kind]
    exact = kind != "single precision"
    agents = [SlucbQvi(plane(point_of=point_of)), SlucbQvi(plane())]
    one = wander(agents[0], np.random.default_rng(2), 20, make)
    two = wander(agents[1], np.random.default_rng(2), 20)
    assert len(agents[0].visited.states) == len(agents[1].visited.states) == 40
    if exact:
        assert [essence((d.action, d.evidence, d.score)) for d in one] == [
            essence((d.action, d.evidence, d.score)) for d in two
        ]


def test_a_buffer_that_is_written_again_does_not_change_what_was_visited():
    """Simulators hand out the same array at every step; each visit must still be its own state."""
    buffer = np.zeros(2)

    def reused(point):
        buffer[:] = point
        return buffer

    agents = [SlucbQvi(plane()), SlucbQvi(plane())]
    wander(agents[0], np.random.default_rng(3), 15, reused)
    wander(agents[1], np.random.default_rng(3), 15)
    assert essence(agents[0].visited) == essence(agents[1].visited)
    for agent in agents:
        agent.plan_version = -1
        agent.plan()
    assert essence(agents[0].current) == essence(agents[1].current)


def kept_bytes(rays, episodes, d=12):
    """What Python and numpy hold after so many episodes, and the peak of one plan, in bytes."""
    agent, rng = SlucbQvi(plane(d=d, rays=rays)), np.random.default_rng(4)
    wander(agent, rng, 5)
    tracemalloc.start()
    wander(agent, rng, episodes)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    agent.plan_version = -1
    agent.plan()
    peak = tracemalloc.get_traced_memory()[1] - held
    tracemalloc.stop()
    return held / len(agent.visited.states), peak


@pytest.fixture
def forgetful(monkeypatch):
    """No candidates are kept: as in a run that has used up its room for them."""
    monkeypatch.setattr("tether.kernels.plan.KEPT_NUMBERS", 0)


def test_memory_grows_with_d_for_each_visited_state_and_not_with_the_number_of_actions(forgetful):
    few, _ = kept_bytes(4, 60)
    many, peak = kept_bytes(150, 60)
    assert many <= 1.1 * few + 200
    assert many <= 8 * (3 * 12 + 40) + 1200  # sums with room to double, costs, the state, its key
    assert many < 150 * 12 * 8 / 4  # its candidates alone would take four times as much
    assert peak < 3_000_000


@pytest.mark.parametrize("pooled", [False, True])
def test_candidates_are_asked_for_once_and_kept_as_long_as_there_is_room(pooled, monkeypatch):
    """A pooled plan visits each state at every step; forgetting half of them changes no bit."""
    asked = []
    basic = plane(baseline_cost=lambda step, state: float(gamma_of(6) @ star_at(np.asarray(state), 6, 8).phi_0))
    counting = replace(basic, actions=lambda state: asked.append(state.tobytes()) or basic.actions(state))
    config = SlucbConfig(pooled=pooled, replan="every-episode")
    agent = SlucbQvi(counting, config)
    decisions = wander(agent, np.random.default_rng(23), 20)
    visited = [state.tobytes() for state in agent.visited.states]
    assert sorted(asked.count(key) for key in set(asked)) == [1] * len(set(asked))
    assert set(visited) < set(asked)  # and the first state of each episode, which nothing led to
    room = len(visited) // 2 * (8 + 1) * 6
    monkeypatch.setattr("tether.kernels.plan.KEPT_NUMBERS", room)
    half = SlucbQvi(basic, config)
    again = wander(half, np.random.default_rng(23), 20)
    assert sum(kept.endpoints.size + kept.phi_0.size for kept in half.visited.kept.values()) == room
    assert [essence((d.action, d.evidence, d.score)) for d in decisions] == [
        essence((d.action, d.evidence, d.score)) for d in again
    ]


def test_a_key_that_is_coarser_than_the_state_leaves_the_decision_to_the_state_at_hand():
    """Two points of one cell: what was kept of the first must not certify an action of the second."""
    problem = plane(key=lambda state: (round(float(state[0]), 1), round(float(state[1]), 1)))
    agent = SlucbQvi(problem)
    first, second = np.array([0.31, 0.52]), np.array([0.34, 0.48])
    agent.observe(agent.act(0, np.array([0.9, 0.9])).outcome(reward=0.5, cost=0.2, next_state=first))
    assert list(agent.visited.kept) == [0] and problem.key_of(first) == problem.key_of(second)
    decision = agent.act(1, second)
    assert decision.is_baseline
    np.testing.assert_array_equal(decision.feature, problem.actions(second).phi_0)


def test_a_plan_of_many_states_needs_no_more_room_than_a_plan_of_few(forgetful):
    _, few = kept_bytes(150, 30)
    _, many = kept_bytes(150, 90)
    assert many < 1.3 * few + 20_000


def test_plans_on_growth_are_a_quarter_apart_and_cost_five_times_the_last_at_most():
    agent, rng = SlucbQvi(plane()), np.random.default_rng(5)
    planned = []
    for _ in range(150):
        due, before = agent.plans_are_due, int(agent.current.made[0])
        wander(agent, rng, 1)
        assert (agent.current.made[0] > before) == due
        if due:
            planned.append(agent.plan_version)
    steps = np.diff(planned[1:]) / planned[1:-1]
    assert len(planned) > 15
    assert (steps >= GROWTH - 1e-12).all()
    assert sum(planned) <= (1 + GROWTH) / GROWTH * planned[-1]
    assert planned[-1] >= agent.data_version / (1 + GROWTH) - 3


def test_growth_alone_is_no_reason_to_plan_when_nothing_was_learned():
    """Missing costs and a feature that is already well known: no determinant doubles, so the plan stays."""
    agent, rng = SlucbQvi(plane(horizon=1), SlucbConfig(cost_ridge=1.0, condition_on="state")), np.random.default_rng(6)
    for _ in range(400):
        agent.plan()
        agent.observe(agent.act(0, np.full(2, 0.5)).outcome(reward=0.5, cost=0.2))
    made, seen = int(agent.current.made[0]), agent.plan_version
    assert made < 40
    for _ in range(int(0.3 * seen)):
        agent.plan()
        agent.observe(replace(agent.act(0, rng.random(2)).outcome(reward=0.5, cost=None), feature=np.zeros(6)))
    assert agent.data_version > (1 + GROWTH) * seen
    assert int(agent.current.made[0]) == made


def test_an_old_plan_never_makes_a_bound_stale():
    """Between plans every decision rests on all outcomes so far: safety does not wait for a plan."""
    agent = SlucbQvi(plane())
    for number, decision in enumerate(wander(agent, np.random.default_rng(7), 60)):
        assert decision.data_version == number
    assert int(agent.current.made[0]) < 30


def test_a_bandit_keeps_no_states_at_all():
    agent = SlucbQvi(plane(horizon=1))
    wander(agent, np.random.default_rng(8), 30)
    assert agent.visited.states == []


def test_only_states_that_something_led_to_are_asked_about(forgetful):
    asked = []
    basic = plane()
    counting = replace(basic, actions=lambda state: asked.append(state.tobytes()) or basic.actions(state))
    agent = SlucbQvi(counting)
    wander(agent, np.random.default_rng(9), 10)
    agent.plan_version = -1
    asked.clear()
    agent.plan()
    assert sorted(asked) == sorted(state.tobytes() for state in agent.visited.states)  # each of them once


# --- what is refused --------------------------------------------------------------------------------------------------


def test_features_that_are_not_finite_are_refused_wherever_they_come_up(forgetful):
    spoilt = []
    basic = plane()

    def actions(state):
        good = basic.actions(state)
        if not spoilt:
            return good
        return StarActions(good.phi_0, np.where(np.arange(6) == 2, np.nan, good.endpoints))

    agent = SlucbQvi(replace(basic, actions=actions))
    wander(agent, np.random.default_rng(10), 6)
    agent.plan_version = -1
    before = snapshot(agent)
    spoilt.append(True)
    seen = agent.problem.horizon
    with pytest.raises(InputError, match="finite"):
        agent.plan()
    with pytest.raises(InputError, match="finite"):
        agent.act(0, np.array([0.1, 0.2]))
    spoilt.clear()
    decision = agent.propose(0, np.array([0.1, 0.2]))
    spoilt.append(True)
    outcome = replace(decision.outcome(reward=0.5, cost=0.2, next_state=np.array([0.3, 0.4])), decision_id=None)
    with pytest.raises(InputError, match="finite"):
        agent.observe(outcome)
    assert changed(before, snapshot(agent)) == []
    assert agent.data_version == 6 * seen


def test_features_that_change_their_dimension_are_named(forgetful):
    basic, other = plane(), []
    small = FiniteActions(np.eye(2), 0)
    agent = SlucbQvi(replace(basic, actions=lambda state: small if other else basic.actions(state)))
    wander(agent, np.random.default_rng(11), 3)
    agent.plan_version = -1
    other.append(True)
    with pytest.raises(InputError, match=r"dimension 2.*d = 6.*answer alike"):
        agent.plan()


def test_a_lean_agent_says_that_it_registers_no_states_and_plays_in_no_study():
    world = small_world()
    agent = SlucbQvi(world.problem, SlucbConfig(backup="lean"))
    for attempt in (
        lambda: agent.register([0]),
        lambda: simulate(world, agent, 3, Streams.from_seed(1)),
        lambda: simulate_stepwise(world, agent, 3, Streams.from_seed(1)),
    ):
        with pytest.raises(InputError, match=r"lean.*tables"):
            attempt()


def test_mixtures_need_tables():
    problem = many_actions().problem
    with pytest.raises(InputError, match=r"lean.*RSLUCB-QVI.*tables"):
        RslucbQvi(problem, SlucbConfig(backup="lean"), rng=np.random.default_rng(0))
    limit = replace(problem.constraints[0], safe_cost=lambda step, state: problem.baseline_cost(step, state))
    unlisted = replace(problem, states=None, constraints=limit)
    assert RslucbQvi(unlisted, rng=np.random.default_rng(0)).config.backup == "tables"


@pytest.mark.parametrize(("option", "value"), [("backup", "small"), ("replan", "sometimes"), ("backup", None)])
def test_misspelt_options_are_refused_by_naming_the_right_ones(option, value):
    with pytest.raises(InputError, match=rf"{option}.*'auto'.*{value}"):
        SlucbConfig(**{option: value})


def test_a_study_with_plans_on_growth_runs_step_by_step():
    """Whole blocks know doubling only; on growth, `simulate` goes through plan, act and observe, and says the same."""
    world = small_world()
    one, two = (SlucbQvi(world.problem, SlucbConfig(replan="on-growth")) for _ in range(2))
    first = simulate(world, one, 30, Streams.from_seed(12))
    second = simulate_stepwise(world, two, 30, Streams.from_seed(12))
    for column, here, there in zip(first._fields, first, second, strict=True):
        assert here.tobytes() == there.tobytes(), column
    assert int(one.current.made[0]) == int(two.current.made[0]) < 25


# --- saved and restored -----------------------------------------------------------------------------------------------


def saved(agent, tmp_path):
    path = tmp_path / "agent.tether"
    agent.save(path)
    return path


def test_continuing_and_restoring_are_the_same_run_over_fresh_states(tmp_path):
    problem = plane()
    agent = SlucbQvi(problem)
    wander(agent, np.random.default_rng(13), 40)
    restored = SlucbQvi.restore(saved(agent, tmp_path), problem)
    assert changed(snapshot(agent), snapshot(restored)) == []
    one, two = (wander(a, np.random.default_rng(14), 30) for a in (agent, restored))
    assert [essence(d) for d in one] == [essence(d) for d in two]
    assert changed(snapshot(agent), snapshot(restored)) == []


def test_states_with_a_key_of_their_own_are_saved_by_their_content(tmp_path):
    """The key is coarser than the state: what comes back is the state that was visited first."""
    problem = plane(key=lambda state: (round(float(state[0]), 1), round(float(state[1]), 1)))
    agent = SlucbQvi(problem)
    wander(agent, np.random.default_rng(15), 80)
    assert len(agent.visited.states) < 122 < agent.data_version
    restored = SlucbQvi.restore(saved(agent, tmp_path), problem)
    assert changed(snapshot(agent), snapshot(restored)) == []
    assert essence(restored.visited.states) == essence(agent.visited.states)


def test_a_state_that_its_key_does_not_hold_is_not_saved_and_the_way_out_is_named(tmp_path):
    point_of, make = KINDS["dataclass"]
    agent = SlucbQvi(plane(point_of=point_of))
    wander(agent, np.random.default_rng(16), 3, make)
    with pytest.raises(InputError, match=r"Spot.*StateKeys\(key, state_of\).*backup='tables'"):
        agent.save(tmp_path / "agent.tether")
    assert list(tmp_path.iterdir()) == []
    way_back = plane(point_of=point_of, state_of=lambda key: Spot(*key[1:]))
    agent = SlucbQvi(way_back)
    wander(agent, np.random.default_rng(16), 3, make)
    restored = SlucbQvi.restore(saved(agent, tmp_path), way_back)
    assert restored.visited.states == agent.visited.states
    assert isinstance(restored.visited.states[0], Spot)


def test_sums_over_other_features_are_not_restored(tmp_path):
    agent = SlucbQvi(plane())
    wander(agent, np.random.default_rng(17), 10)
    path = saved(agent, tmp_path)
    shifted = plane(point_of=lambda state: 0.9 * np.asarray(state))
    with pytest.raises(StateFileError, match="other features"):
        SlucbQvi.restore(path, shifted)


def test_another_key_is_not_restored(tmp_path):
    agent = SlucbQvi(plane())
    wander(agent, np.random.default_rng(18), 10)
    path = saved(agent, tmp_path)
    with pytest.raises(StateFileError, match="keys"):
        SlucbQvi.restore(path, plane(key=lambda state: state.tobytes()))


def _first_entry(array):
    array[0] = 10**6
    return array


SPOILT = {
    "next states out of range": ("visited.0.member", _first_entry),
    "the same next state twice": ("visited.0.member", lambda a: np.zeros_like(a)),
    "moments of another dimension": ("visited.1.moment", lambda a: a[:, :3]),
    "too few moments": ("visited.1.moment", lambda a: a[:-1]),
    "moments that are not finite": ("visited.0.moment", lambda a: a * np.nan),
    "costs of fewer states": ("visited.baseline_cost", lambda a: a[:-1]),
    "ends of fewer states": ("visited.final_reward", lambda a: a[:-1]),
    "whole numbers": ("visited.0.moment", lambda a: a.astype(np.int64)),
    "alarms elsewhere": ("visited.alarms", lambda a: np.array([[1, 10**6]])),
}


@pytest.mark.parametrize("what", SPOILT)
def test_arrays_that_no_agent_has_saved_are_refused(what, tmp_path):
    name, spoil = SPOILT[what]
    agent, problem = SlucbQvi(plane()), plane()
    wander(agent, np.random.default_rng(19), 6)
    path = saved(agent, tmp_path)
    before = path.read_bytes()
    path.write_bytes(repack(before, arrays={name: npy(spoil(load(before, name).copy()))}))
    with pytest.raises(StateFileError, match=r"agent\.tether"):
        SlucbQvi.restore(path, problem)


def test_a_file_grows_with_what_was_visited_and_not_with_the_actions(tmp_path):
    sizes = []
    for rays in (3, 100):
        agent = SlucbQvi(plane(rays=rays))
        wander(agent, np.random.default_rng(20), 40)
        path = saved(agent, tmp_path)
        with zipfile.ZipFile(path) as archive:
            names = {name for name in archive.namelist() if name.startswith("visited")}
            keys = json.loads(archive.read("manifest.json"))["visited"]["keys"]
        assert len(names) == 4 + 2 * 3
        assert len(keys) == 80
        sizes.append(path.stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 5000


@pytest.mark.slow
def test_five_hundred_dimensions_work(tmp_path):
    """d = 500, N = 200: a few hundred transitions, every decision certified and truly safe; saved and restored."""
    problem = plane(d=500, rays=200, horizon=3, gamma_norm=20.0)
    agent = SlucbQvi(problem)
    decisions = wander(agent, np.random.default_rng(21), 80)
    assert len(decisions) == 240
    assert int(agent.current.made[0]) >= 10
    restored = SlucbQvi.restore(saved(agent, tmp_path), problem)
    one, two = (wander(a, np.random.default_rng(22), 2) for a in (agent, restored))
    assert [essence(d) for d in one] == [essence(d) for d in two]
