"""What slow, silent and lossy sensors do to the guarantee: the four ways of losing of docs/theory.md section 18.

    python benchmarks/lost_outcomes.py [--runs 10] [--steps 3000] [--json]

"As they come" is what folding outcomes on arrival does (transitions without a decision_id, which is what version 0.1
did with all of them); "in order" is what agents do now. Counts decisions whose *true* cost is over τ.
"""

import argparse
import warnings
from collections import deque
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from results import note, on_all_cores, parsed, show

from tether import Lost, Monitor, SlucbQvi, Streams, synthetic
from tether.records import Transition

LATE = 700
"""Decisions after which a late cost is reported."""

WAYS = {
    "never": "costs above τ are never reported",
    "missing": "costs above τ are reported as not measured",
    "late": f"costs above τ are reported {LATE} decisions late",
    "last in, first out": "outcomes come in reverse order, 20 at a time; the next contexts depend on them",
    "sorted old data": "a table of old data, the highest costs last, with decisions in between",
    "by chance": "30 % of the costs are lost by chance",
}


def bandit(seed, noise=0.1, relax=()):
    """One step, ten contexts, safe costs unknown: where nothing but measured costs protects. The world, its streams."""
    streams = Streams.from_seed(seed)
    world = synthetic(streams.instance, horizon=1, noise=noise)
    limit = replace(world.problem.constraints[0], safe_cost=None, relax=relax)
    return replace(world, problem=replace(world.problem, constraints=limit)), streams


class Found(NamedTuple):
    """Of one run: decisions over τ and the largest excess, those over their own bound, the alarm's test, costs lost."""

    over: int
    excess: float
    false_bounds: int
    alarm: str
    lost: int


class Run:
    """One agent in one world; `in_order` says whether its outcomes carry the ids of their decisions."""

    def __init__(self, seed, in_order, relax):
        self.world, self.streams = bandit(seed, relax=relax)
        self.agent = SlucbQvi(self.world.problem)
        self.agent.watch = Monitor(self.world.problem)
        self.in_order, self.over, self.excess, self.false_bounds = in_order, 0, 0.0, 0
        self.tau, self.gamma = self.world.problem.threshold[0], self.world.true_gamma[0, 0]

    def play(self, state=None):
        """One decision and what is seen after it."""
        state = self.world.reset(self.streams) if state is None else state
        self.agent.plan()
        decision = self.agent.act(0, state)
        cost = float(self.gamma @ decision.feature)
        excess, self.false_bounds = cost - self.tau, self.false_bounds + (cost > decision.cost_bound + 1e-9)
        if excess > 1e-9:
            self.over, self.excess = self.over + 1, max(self.excess, excess)
        return self.world.step(decision, self.streams)

    def report(self, outcome):
        """Tell the agent; as they come, nothing says which decision it belongs to, which agents refuse by now."""
        if not self.in_order:
            self.agent.has_acted = False
        self.agent.observe(outcome if self.in_order else replace(outcome, decision_id=None))


def over_threshold(way, seed, steps, in_order, relax=()):
    """What is found in one run."""
    run = Run(seed, in_order, relax)
    rng, waiting, pending = np.random.default_rng([seed, 9]), deque(), []
    if way == "sorted old data":
        return _sorted_table(run, steps)
    for step in range(steps):
        reacts = way == "last in, first out" and pending
        state = int(np.argmax([seen.cost for seen in pending])) % run.world.state_count if reacts else None
        seen = run.play(state)
        high = seen.cost > run.tau
        while waiting and waiting[0][0] <= step:
            run.report(waiting.popleft()[1])
        if way == "last in, first out":
            pending.append(seen)
            if len(pending) == 20:
                for each in reversed(pending):
                    run.report(each)
                pending = []
        elif way == "by chance":
            run.report(replace(seen, cost=None) if rng.uniform() < 0.3 else seen)
        elif way == "missing":
            run.report(replace(seen, cost=None) if high else seen)
        elif not high:
            run.report(seen)
        elif way == "late":
            waiting.append((step + LATE, seen))
    return _told(run)


def _sorted_table(run, steps):
    """Old rows, played at random lengths, come sorted by cost, one after each decision (or first, as a whole)."""
    run.agent.watch = None  # it takes a table that was sorted for one that drifts
    rng, rows = np.random.default_rng([run.streams.instance.integers(1 << 30), 8]), []
    for _ in range(steps // 2):
        actions = run.world.problem.actions(int(rng.integers(run.world.state_count)))
        end = actions.endpoints[rng.integers(len(actions.endpoints))]
        x = actions.phi_0 + rng.uniform(0, 1) * (end - actions.phi_0)
        rows.append((x, float(run.gamma @ x + run.world.problem.noise[0] * rng.standard_normal())))
    rows.sort(key=lambda row: row[1])
    table = [Transition(0, 0, x, 0.0, z) for x, z in rows]
    if run.in_order:
        for row in table:
            run.agent.observe(row)
        table = []
    for step in range(steps):
        seen = run.play()
        run.report(seen)
        if step < len(table):
            run.agent.has_acted = False
            run.agent.observe(table[step])
    return _told(run)


def _told(run):
    alarm = run.agent.tripped_by.partition(" test")[0]
    return Found(run.over, run.excess, run.false_bounds, alarm, int(run.agent.lost.sum()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3000)
    given = parsed(parser, runs=1, steps=200)
    lines = []
    for way, words in WAYS.items():
        note(words)
        kinds = [(False, []), (True, [])]
        if way in ("missing", "by chance"):
            kinds.append((True, [Lost("worst-case", cost_range=(-0.5, 1.5))]))
        cells = ["", "", ""]
        for column, (in_order, relax) in enumerate(kinds):
            cases = [(way, seed, given.steps, in_order, relax) for seed in range(given.runs)]
            cells[column] = in_words(on_all_cores(found_in, cases))
        lines.append([words, *cells])
    heads = ["what happens to outcomes", "counted as they come", "in the order of decisions", "the same, worst case"]
    sizes = f"{given.runs} runs of {given.steps:,} decisions; decisions over τ in so many runs, runs with an alarm"
    show(given, sizes, table=(heads, lines))


def found_in(way, seed, steps, in_order, relax):
    """`over_threshold` for another process."""
    warnings.filterwarnings("ignore", message=".*outcomes wait")
    return over_threshold(way, seed, steps, in_order, relax)


def in_words(found):
    """Decisions over τ and their runs, and runs with an alarm; 0 alone where there is neither."""
    over, broken = sum(f.over for f in found), sum(f.over > 0 for f in found)
    alarms = sum(bool(f.alarm) for f in found)
    text = f"{over:,} in {broken}" if over else "0"
    return f"{text}; alarm in {alarms}" if alarms else text


if __name__ == "__main__":
    main()
