"""How long `Advisor.decide` takes in process, and which parts of it: N = 100 rays, d = 20, H small.

    python benchmarks/live_decide.py [--decisions 3000] [--json]

Every decision is followed by an outcome, so that nothing is cached from the decision before. Prints p50 and p99 of wall
time and p50 of the thread's own CPU time (which other programs do not disturb), of the whole and of `record`, and in
microseconds on standard error also of its parts, measured alone.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from results import note, parsed, show
from threadpoolctl import threadpool_limits

from tether import Constraint, Upkeep
from tether.live.advisor import Advisor
from tether.live.judge import judge
from tether.live.policy import Criteria
from tether.problem.action_sets import StarActions
from tether.problem.problem import Problem

STATES, RAYS, DIMENSION, NOISE = 50, 100, 20, 0.05


def small_problem(horizon, table=True):
    """Features on the simplex, a linear cost and reward that the advisor is not told: (problem, γ*, θ*).

    Without `table` the same problem is told by functions, whose answers are checked at every decision.
    """
    rng = np.random.default_rng(0)
    gamma, theta = rng.uniform(size=DIMENSION), rng.uniform(size=DIMENSION)
    phi_0 = rng.dirichlet(np.ones(DIMENSION), size=STATES)
    costs = np.tile(phi_0 @ gamma, (horizon, 1))
    rays = rng.dirichlet(np.full(DIMENSION, 0.3), size=(STATES, RAYS))
    limit = Constraint(threshold=float(costs.max()) + 0.1, noise=NOISE, safe_cost=costs)
    if table:
        return Problem.from_rays(phi_0=phi_0, endpoints=rays, constraints=limit, horizon=horizon), gamma, theta
    sets = [StarActions(start, ends) for start, ends in zip(phi_0, rays, strict=True)]
    limit = replace(limit, safe_cost=lambda step, state: costs[step, state])
    return Problem(dimension=DIMENSION, actions=sets.__getitem__, constraints=limit, horizon=horizon), gamma, theta


def timed(call, times):
    start, busy = time.perf_counter(), time.thread_time()
    result = call()
    times.append((1e6 * (time.perf_counter() - start), 1e6 * (time.thread_time() - busy)))
    return result


def parts_of(advisor, state, step, parts):
    """Time the parts of one decision, each alone, on the advisor's present state."""
    learner, ledger, problem = advisor.replica.learner, advisor.replica.ledger, advisor.problem
    known = timed(lambda: problem.look_up(state), parts["look_up"])
    proposed = timed(lambda: learner.propose(step, state), parts["propose"])
    learner.gate._solved.clear()
    args = (step, known, proposed.action, proposed.feature, proposed.evidence)
    timed(lambda: learner.gate.check(*args), parts["gate, sums changed"])
    timed(lambda: learner.gate.check(*args), parts["gate, cached"])
    timed(lambda: learner.gate.certified(step, known), parts["certified share"])
    learner._hashes.clear()
    timed(lambda: learner.model_hash(step), parts["model hash"])
    question = advisor.question(state, step)
    made, _ = timed(lambda: judge(advisor.replica, question), parts["judge (all of the above, cached)"])
    timed(made.draft, parts["draft to JSON"])
    return ledger


def run(store, decisions, horizon, table=True):
    problem, gamma, theta = small_problem(horizon, table)
    rng = np.random.default_rng(1)
    advisor = Advisor(problem, store, mode="live", criteria=Criteria.none(), upkeep=Upkeep(refresh=None))
    names = ("look_up", "propose", "gate, sums changed", "gate, cached", "certified share", "model hash")
    parts = {name: [] for name in (*names, "judge (all of the above, cached)", "draft to JSON")}
    whole, records, others = [], [], 0
    for count in range(decisions):
        state, step = int(rng.integers(STATES)), count % horizon
        decision = timed(lambda at=(state, step): advisor.decide(*at), whole)
        if count % 4 == 0:
            parts_of(advisor, state, step, parts)
        x = np.array(decision.feature)
        others += not decision.is_baseline
        cost, after = float(gamma @ x) + NOISE * float(rng.standard_normal()), int(rng.integers(STATES))
        timed(lambda d=decision, x=x, z=cost, s=after: advisor.record(d.id, float(theta @ x), z, s), records)
    return whole, records, parts, others / decisions, advisor.status().refusals


def note_part(name, times):
    (p50, cpu50), (p99, cpu99) = np.percentile(times[len(times) // 10 :], [50, 99], axis=0)
    note(f"  {name:<34} p50 {p50:7.0f} µs   p99 {p99:7.0f} µs   CPU p50 {cpu50:6.0f}   p99 {cpu99:6.0f}")


def cells(times):
    """p50, p99 and processor time's p50 in milliseconds."""
    (p50, cpu50), (p99, _) = np.percentile(times[len(times) // 10 :], [50, 99], axis=0) / 1e3
    return [f"{p50:.2f}", f"{p99:.2f}", f"{cpu50:.2f}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--decisions", type=int, default=3000)
    parser.add_argument("--horizon", type=int, default=1)
    options = parsed(parser, decisions=200)
    lines = []
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        kinds = [
            ("log in memory, problem is a table", None, True),
            ("log in memory, problem given by functions", None, False),
            ("SQLite, full sync", Path(folder) / "log.db", True),
        ]
        for name, store, table in kinds:
            whole, records, parts, others, refusals = run(store, options.decisions, options.horizon, table)
            note(f"{name}: N = {RAYS}, d = {DIMENSION}, H = {options.horizon}, {options.decisions} decisions,")
            note(f"  {others:.0%} of them not a_0, {refusals} refused by the gate")
            note_part("decide", whole)
            for part, times in parts.items():
                note_part("  " + part, times)
            note_part("record", records)
            lines += [[f"`{what}`, {name}", *cells(times)] for what, times in (("decide", whole), ("record", records))]
    heads = ["", "p50, ms", "p99, ms", "processor time, p50, ms"]
    show(options, f"{options.decisions:,} decisions", timed=True, table=(heads, lines))


if __name__ == "__main__":
    main()
