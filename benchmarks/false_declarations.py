"""What false declarations cost, and how soon the alarm comes: docs/check.md.

    python benchmarks/false_declarations.py [--runs 10] [--json] [--quick]

Each row declares one thing that is not so, and plays on: safe costs that are too low by a constant, or one regression
for all steps (`pooled=True`) where γ* of two steps differs. Printed: how many decisions had a true expected cost over
τ, how many of them came after the first alarm, and after how many decisions that came (median). Alarms are those of
the learner (the declared safe costs contradict its data) and, where tests are on, of `tether.Monitor`.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from results import on_all_cores, parsed, show

from tether import Advisor, Bounded, Constraint, Criteria, Monitor, Problem, SlucbConfig, SlucbQvi, StarActions
from tether.live.log.memory import MemoryStore
from tether.records import Array

TAU, STATES, RAYS, DIMENSION = 0.5, 6, 20, 5
OVER = 1e-9


class World(NamedTuple):
    """Rays on the simplex; the same safe costs at every step."""

    problem: Problem
    gamma: Array  # γ*_h (H, d)
    theta: Array  # (d,)
    yes_no: bool


class Run(NamedTuple):
    """Of one run: decisions, those over τ, those after the first alarm, and when that came (None: never)."""

    decisions: int
    over: int
    over_after: int
    alarm: int | None


def world(rng: np.random.Generator, *, low: float = 0.0, apart: float = 0.0, yes_no: bool = False) -> World:
    """A world whose declared safe costs are `low` below the true ones, or whose γ*_h differ by `apart` between two
    steps, across the one direction that all safe features lie in."""
    while True:
        gamma = rng.random((1, DIMENSION))
        gamma = (gamma - gamma.min()) / np.ptp(gamma)
        safe = rng.dirichlet(np.ones(DIMENSION), STATES)
        if apart:
            safe[:] = safe[0]
            across = rng.standard_normal(DIMENSION)
            across -= (across @ safe[0]) / (safe[0] @ safe[0]) * safe[0]
            across *= apart / np.linalg.norm(across)
            gamma = np.vstack([gamma - across / 2.0, gamma + across / 2.0])
        true = safe @ gamma.T  # (S, H)
        if true.max() <= TAU - 0.1 and true.min() >= 0.16 and np.ptp(true, axis=1).max() <= 1e-12 + OVER:
            break
    ends = rng.dirichlet(np.ones(DIMENSION), (STATES, RAYS))
    sets = [StarActions(*pair) for pair in zip(safe, ends, strict=True)]
    problem = Problem(
        horizon=len(gamma),
        dimension=DIMENSION,
        states=range(STATES),
        actions=lambda s: sets[s],
        constraints=Constraint(
            threshold=TAU,
            noise=Bounded() if yes_no else 0.1,
            safe_cost=lambda h, s: float(true[s, 0] - low),
            gamma_norm=float(np.sqrt(DIMENSION)),
        ),
    )
    return World(problem, gamma, rng.random(DIMENSION), yes_no)


def cost_of(place: World, rng: np.random.Generator, mean: float) -> float:
    """One outcome with this mean."""
    return float(rng.random() < mean) if place.yes_no else mean + 0.1 * float(rng.standard_normal())


class Counter:
    """What a run counts."""

    def __init__(self) -> None:
        self.decisions = self.over = self.after = 0
        self.alarm: int | None = None

    def count(self, mean: float, *, alarmed: bool) -> None:
        """One decision more, of this true cost; `alarmed`: an alarm was the reason for it."""
        self.decisions += 1
        if alarmed and self.alarm is None:
            self.alarm = self.decisions
        over = mean > TAU + OVER
        self.over += over
        self.after += over and self.alarm is not None

    def run(self) -> Run:
        """The counts."""
        return Run(self.decisions, self.over, self.after, self.alarm)


def play(place: World, agent: SlucbQvi, rng: np.random.Generator, episodes: int) -> Run:
    """Whole episodes."""
    counter = Counter()
    for _ in range(episodes):
        agent.plan()
        state = int(rng.integers(STATES))
        for step in range(place.problem.horizon):
            made = agent.act(step, state)
            mean = float(place.gamma[step] @ made.feature)
            counter.count(mean, alarmed=made.reason in ("alarm", "tripped"))
            reward, cost = float(place.theta @ made.feature), cost_of(place, rng, mean)
            state = int(rng.integers(STATES))
            agent.observe(made.outcome(reward=reward, cost=cost, next_state=state))
    return counter.run()


def learned(place: World, rng: np.random.Generator, episodes: int, *, watch: bool, pooled: bool = False) -> Run:
    """A learner, with or without its tests."""
    agent = SlucbQvi(place.problem, SlucbConfig(pooled=pooled))
    if watch:
        agent.watch = Monitor(place.problem, pooled=pooled)
    return play(place, agent, rng, episodes)


def advised(place: World, rng: np.random.Generator, episodes: int) -> Run:
    """A live advisor with its tests on, in live mode."""
    advisor, counter = Advisor(place.problem, MemoryStore()), Counter()
    for mode in ("guarded", "live"):
        advisor.promote(mode, by="benchmark", why="nobody can be harmed", criteria=Criteria.none())
    for _ in range(episodes):
        made = advisor.decide(int(rng.integers(STATES)))
        feature = np.array(made.certificate.feature)
        mean = float(place.gamma[0] @ feature)
        counter.count(mean, alarmed=made.certificate.reason in ("alarm", "tripped"))
        advisor.record(made.decision_id, reward=float(place.theta @ feature), cost=cost_of(place, rng, mean))
    return counter.run()


ROWS: dict[str, tuple[dict[str, Any], Callable[[World, np.random.Generator, int], Run], int]] = {
    f"{what} declared {low:g} too low, {how}": ({"low": low, "yes_no": what == "yes/no"}, playing, count)
    for what in ("σ", "yes/no")
    for low in (0.1, 0.15)
    for how, playing, count in (
        ("no tests", partial(learned, watch=False), 3000),
        ("tests on", partial(learned, watch=True), 3000),
        ("live, tests on", advised, 1000),
    )
} | {
    f"pooled, γ* differs by {apart:g}, {how}": ({"apart": apart}, partial(learned, watch=watch, pooled=True), 1500)
    for apart in (0.0, 0.3)
    for how, watch in (("no tests", False), ("tests on", True))
}


def row(name: str, runs: int) -> dict[str, Any]:
    """One row of the table."""
    kind, playing, episodes = ROWS[name]
    found = []
    for seed in range(runs):
        rng = np.random.default_rng([27, seed])
        found.append(playing(world(rng, **kind), rng, episodes))
    alarms = [run.alarm for run in found if run.alarm is not None]
    return {
        "declared": name,
        "decisions": sum(run.decisions for run in found),
        "over τ": sum(run.over for run in found),
        "of these after the first alarm": sum(run.over_after for run in found),
        "runs with an alarm": len(alarms),
        "decisions until the alarm (median)": int(np.median(alarms)) if alarms else None,
    }


def main() -> None:
    """One line per declaration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    given = parsed(parser, runs=2)
    names = [name for name in ROWS if given.only in name]
    rows = on_all_cores(row, [(name, given.runs) for name in names])
    lines = [["–" if value is None else f"{value:,}" if isinstance(value, int) else value for value in each.values()]
             for each in rows]  # fmt: skip
    values = {"after-the-alarm": sum(each["of these after the first alarm"] for each in rows)}
    show(given, f"{given.runs} runs each", values=values, table=(list(rows[0]), lines))


if __name__ == "__main__":
    main()
