"""Play misspecified twins and the worlds they are twins of, and ask the watches beside the learner what they notice.

The learner itself is not stopped: its trajectory up to an alarm is the one that a watched learner has, and from there
on the watched learner plays the safe action. So one run tells what happens with and without each watch.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tether.agents.slucb import SlucbQvi
from tether.check.monitor import Monitor
from tether.errors import TetherError
from tether.lab import storage
from tether.lab.books import interval
from tether.lab.claims import Claim
from tether.lab.engines import Engine
from tether.lab.plots import RAMPS, Chart, Panel, Series, Style, even_grid
from tether.lab.worlds.ad_load import ad_load, ad_load_twin
from tether.lab.worlds.dosing import dosing, dosing_twin
from tether.lab.worlds.heating import heating, heating_twin
from tether.lab.worlds.linear_mdp import SAFE_TOLERANCE, LinearMDP, MisspecifiedMDP, Streams
from tether.problem.problem import Problem
from tether.records import Array, Decision, Transition

WORLDS: dict[str, Callable[[np.random.Generator], LinearMDP]] = {
    "dosing": dosing,
    "heating": heating,
    "ad-load": ad_load,
}
TWINS: dict[str, Callable[[np.random.Generator, int], MisspecifiedMDP]] = {
    "dosing": lambda rng, episodes: dosing_twin(rng),
    "heating": lambda rng, episodes: heating_twin(rng, opens=episodes // 2),
    "ad-load": lambda rng, episodes: ad_load_twin(rng),
}
"""The same instances as WORLDS for the same seed, with another truth about costs; what drifts, drifts half-way."""

WATCHES: dict[str, Callable[[Problem], Monitor]] = {
    "a test per step": Monitor,
    "one pooled test": partial(Monitor, pooled=True),
}
"""The pooled test may be used where γ*_h is the same at every step h, as in these worlds."""


@dataclass(frozen=True)
class Trip:
    """When a watch tripped: after so many steps, what it said; steps = -1 if it never did."""

    steps: int
    alarm: str


@dataclass(frozen=True, eq=False)
class TwinRun:
    """One run of an unwatched learner: true violations and largest true cost over τ (a ratio) per episode, (K,)."""

    violations: Array
    worst_cost: Array
    horizon: int
    trips: dict[str, Trip]

    def violations_with(self, watch: str) -> Array:
        """Violations per episode if this watch had stood beside the learner: none after its alarm, (K,)."""
        steps = self.trips[watch].steps
        if steps < 0:
            return self.violations
        kept = self.violations.copy()
        kept[steps // self.horizon + 1 :] = 0.0  # the episode of the alarm counts as a whole: a little too much
        return kept


def play_twin(world: LinearMDP | MisspecifiedMDP, episodes: int, streams: Streams) -> TwinRun:
    """SLUCB-QVI with all defaults for `episodes` episodes, every watch beside it."""
    problem = world.problem
    agent, watches = SlucbQvi(problem), {name: make(problem) for name, make in WATCHES.items()}
    trips = dict.fromkeys(WATCHES, Trip(-1, ""))
    violations, worst = np.zeros((2, episodes))
    threshold = np.array(problem.threshold)
    for episode in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(problem.horizon):
            decision = agent.act(step, state)
            outcome, cost = _play(world, decision, streams, episode)
            agent.observe(outcome)
            violations[episode] += float((cost > threshold + SAFE_TOLERANCE).any())
            worst[episode] = max(worst[episode], float((cost / threshold).max()))
            for name, watch in watches.items():
                if trips[name].steps < 0:
                    watch.observe(
                        step,
                        decision.feature,
                        np.atleast_1d(np.asarray(outcome.cost, dtype=np.float64)),
                        outcome.reward,
                        state,
                    )
                    if watch.alarm is not None:
                        trips[name] = Trip(episode * problem.horizon + step + 1, str(watch.alarm))
            state = outcome.next_state
    return TwinRun(violations, worst, problem.horizon, trips)


def _play(
    world: LinearMDP | MisspecifiedMDP, decision: Decision, streams: Streams, episode: int
) -> tuple[Transition, Array]:
    """The outcome of a decision and its true cost (M,)."""
    if isinstance(world, MisspecifiedMDP):
        cost = world.true_cost(decision.step, decision.state, decision.feature, episode)
        return world.step(decision, streams, episode), cost
    true: Array = world.true_gamma[decision.step] @ decision.feature
    return world.step(decision, streams), true


# Twins measured: on what share of them do the alarms trip, how late, what is broken before, and do they ever cry wolf?

EPISODES, SEEDS = 2000, 10
QUICK_EPISODES, QUICK_SEEDS = 200, 2
TITLES = {
    "dosing": "Dosing: toxicity is convex in the dose",
    "heating": "Heating: a window stays open from half-way on",
    "ad-load": "Ad load: patience ends at a threshold",
}


class TwinUnit(NamedTuple):
    """One run, ready to be sent to another process."""

    world: str
    twin: bool
    seed: int
    episodes: int


@dataclass(frozen=True)
class TwinRow:
    """One world and watch, over its runs; `twin` says whether its costs are the misspecified ones."""

    world: str
    twin: bool
    watch: str
    runs: int
    episodes: int
    tripped: int  # runs in which the watch tripped
    median_steps: float | None  # until it did, of those
    violations_without: float  # per run, without any watch
    violations_with: float  # per run, with this watch
    violating_runs: int  # with this watch
    worst_cost: float  # largest true cost of a run without watch, over τ

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run_unit(unit: TwinUnit, tell: Callable[[int], None]) -> TwinRun:
    """Play one run. The twin of a seed is the same instance as its world, with the same noise."""
    streams = Streams.from_seed(unit.seed)
    world = TWINS[unit.world](streams.instance, unit.episodes) if unit.twin else WORLDS[unit.world](streams.instance)
    run = play_twin(world, unit.episodes, streams)
    tell(unit.episodes)
    return run


def measure(episodes: int, seeds: Sequence[int], engine: Engine) -> dict[TwinUnit, TwinRun]:
    """Every world and twin on every seed."""
    units = [TwinUnit(world, twin, seed, episodes) for seed in seeds for world in TWINS for twin in (True, False)]
    found: dict[TwinUnit, TwinRun] = {}
    for index, run in engine.run(run_unit, units, lambda index, done: None):
        if not isinstance(run, TwinRun):
            raise TetherError(f"a run of the twins failed: {run}")
        found[units[index]] = run
    return {unit: found[unit] for unit in units}


def rows(runs: dict[TwinUnit, TwinRun]) -> list[TwinRow]:
    """The table: twins first, then the true worlds, one line per watch."""
    made = []
    for twin in (True, False):
        for world in TWINS:
            members = [run for unit, run in runs.items() if (unit.world, unit.twin) == (world, twin)]
            made += [_row(world, twin, watch, members) for watch in WATCHES if members]
    return made


def _row(world: str, twin: bool, watch: str, members: list[TwinRun]) -> TwinRow:
    steps = [run.trips[watch].steps for run in members if run.trips[watch].steps >= 0]
    left = np.array([run.violations_with(watch).sum() for run in members])
    return TwinRow(
        world=world,
        twin=twin,
        watch=watch,
        runs=len(members),
        episodes=len(members[0].violations),
        tripped=len(steps),
        median_steps=float(np.median(steps)) if steps else None,
        violations_without=float(np.mean([run.violations.sum() for run in members])),
        violations_with=float(left.mean()),
        violating_runs=int((left > 0).sum()),
        worst_cost=float(max(run.worst_cost.max() for run in members)),
    )


def claims(table: Sequence[TwinRow]) -> list[Claim]:
    """Verdicts: no false alarm on true worlds; every twin noticed; and whether that was in time."""
    made = []
    for row in table:
        who = f"{row.world}, {row.watch}"
        if not row.twin:
            text = "No alarm on the true world."
            made.append(Claim(f"no-false-alarm@{who}", f"{who}: {text}", row.tripped == 0, _share(row)))
            continue
        delay = "" if row.median_steps is None else f"; median delay {row.median_steps:.0f} steps"
        broken = (
            f"{row.violations_with:.1f} violations per run with the watch (in {row.violating_runs} of {row.runs} "
            f"runs), {row.violations_without:.1f} without"
        )
        every, none = row.tripped == row.runs, row.violating_runs == 0
        made.append(
            Claim(f"twin-noticed@{who}", f"{who}: the twin is noticed in every run.", every, _share(row) + delay)
        )
        made.append(Claim(f"in-time@{who}", f"{who}: the alarm comes before any violation.", none, broken))
    return made


def _share(row: TwinRow) -> str:
    return f"{row.tripped} of {row.runs} runs of {row.episodes:,} episodes tripped"


def save(runs: dict[TwinUnit, TwinRun], folder: Path) -> Path:
    """One JSON file with everything that tables and figures need."""
    content = [
        {
            **unit._asdict(),
            "horizon": run.horizon,
            "violations": run.violations.tolist(),
            "worst_cost": run.worst_cost.tolist(),
            "trips": {name: asdict(trip) for name, trip in run.trips.items()},
        }
        for unit, run in runs.items()
    ]
    storage.make_folder(folder)
    path = folder / "twins.json"
    storage.write_atomically(path, json.dumps(content).encode())
    return path


def load(folder: Path) -> dict[TwinUnit, TwinRun]:
    """The reverse of `save`."""
    path = folder / "twins.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(_entry(entry) for entry in content)
    except FileNotFoundError:
        raise TetherError(f"{folder} holds no twins.json: run `tether twins` first.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise TetherError(f"{path} is not what `tether twins` wrote: {error}.") from error


def _entry(entry: dict[str, Any]) -> tuple[TwinUnit, TwinRun]:
    unit = TwinUnit(entry["world"], entry["twin"], entry["seed"], entry["episodes"])
    trips = {name: Trip(**trip) for name, trip in entry["trips"].items()}
    return unit, TwinRun(np.array(entry["violations"]), np.array(entry["worst_cost"]), entry["horizon"], trips)


def chart(runs: dict[TwinUnit, TwinRun]) -> Chart:
    """Violations so far on each twin: without a watch, and with each of them."""
    count = len({unit.seed for unit in runs})
    panels = tuple(_panel(name, [run for u, run in runs.items() if u.twin and u.world == name]) for name in TWINS)
    caption = (
        f"{count} instances per twin, SLUCB-QVI with all defaults. After an alarm the safe action is played, whose "
        "cost the twins leave as declared. Bands: 95% over instances."
    )
    return Chart("twins", "When the model is wrong", caption, panels)


def _panel(name: str, members: list[TwinRun]) -> Panel:
    curves: dict[str, list[np.ndarray[Any, Any]]] = {"no watch": [run.violations for run in members]}
    curves |= {watch: [run.violations_with(watch) for run in members] for watch in WATCHES}
    notes = ("no alarm", "stops at its alarm: level δ over all steps", "stops at its alarm: level δ, steps pooled")
    series = []
    for (label, counts), ramp, note in zip(curves.items(), ("unconstrained", "paper", "adaptive"), notes, strict=True):
        sums = np.cumsum(np.array(counts), axis=1)
        at = even_grid(sums.shape[1])
        light, dark, dash, marker = RAMPS[ramp].light[0], RAMPS[ramp].dark[0], RAMPS[ramp].dash, RAMPS[ramp].marker
        style = Style(light, dark, dash, marker, 1.9)
        middle, low, high = interval(sums[:, at.astype(int) - 1])
        series.append(Series(label, note, style, at, middle, low, high, float(sums[:, -1].sum())))
    zero = [curve.name for curve in series if curve.total == 0.0]
    head, _, tail = TITLES[name].partition(": ")
    return Panel(
        key="violations",
        title=f"{head} twin",
        subtitle=f"{tail[0].upper()}{tail[1:]}. Steps whose true cost exceeds τ, mean per run.",
        x_title="episode",
        y_title="violations per run",
        x_scale="linear",
        y_scale="count",
        unit=1.0 / max(len(members), 1),
        series=tuple(series),
        notes=(f"0 violations: {' · '.join(zero)}",) if zero else (),
    )
