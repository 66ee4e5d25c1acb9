"""Retention over years: how large a log and its archive become, and how long a restart takes, as decisions add up.

    python benchmarks/live_archive.py [FOLDER] [--until 50000] [--cold N] [--json]

One process decides and records, in batches of 500 (d = 4, 6 rays, 20 states, H = 1, SQLite). At each milestone all
that may leave is archived, and another process opens the log: before and after that, with 5000 entries to fold beyond
the newest snapshot, the most there are by default; and, at --cold decisions, without any snapshot, which folds
everything once and saves one, and then again. Seconds are those of `Advisor(…)`, after imports: on the clock, and of
the processor. The folder of an earlier run is gone on with; without one a temporary one is used.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from results import note, parsed, show

from tether import Constraint, Upkeep
from tether.live.advisor import Advisor
from tether.live.archive import archive
from tether.live.judge import Outcome
from tether.live.log import open_store
from tether.live.policy import Criteria
from tether.problem.problem import Problem

STATES, RAYS, DIMENSION, NOISE, BATCH, TAIL = 20, 6, 4, 0.05, 500, 2500
MILESTONES = (10_000, 50_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)


def problem_and_gamma():
    """Features on the simplex, and a linear cost that the advisor is not told: (problem, γ*)."""
    rng = np.random.default_rng(0)
    gamma, phi_0 = rng.uniform(size=DIMENSION), rng.dirichlet(np.ones(DIMENSION), size=STATES)
    costs, rays = (phi_0 @ gamma)[None], rng.dirichlet(np.full(DIMENSION, 0.3), size=(STATES, RAYS))
    limit = Constraint(threshold=float(costs.max()) + 0.1, noise=NOISE, safe_cost=costs)
    return Problem.from_rays(phi_0=phi_0, endpoints=rays, constraints=limit, horizon=1), gamma


def play(advisor, gamma, rng, decisions):
    """So many decisions, each with its outcome, `BATCH` of them by one commit."""
    for _ in range(decisions // BATCH):
        asked = advisor.prepare([advisor.question(int(state)) for state in rng.integers(STATES, size=BATCH)])
        made = advisor.commit(asked, advisor.store.append(asked.drafts))
        costs = [float(d.feature @ gamma) + NOISE * rng.standard_normal() for d in made]
        seen = advisor.prepare([Outcome(d.id, 0.5, cost, None, None) for d, cost in zip(made, costs, strict=True)])
        advisor.commit(seen, advisor.store.append(seen.drafts))


def restart(path):
    """Seconds until an advisor stands at the end of the log, in this process; and entries that it had to fold."""
    problem, _ = problem_and_gamma()
    began, busy = time.perf_counter(), time.process_time()
    advisor = Advisor(problem, path, upkeep=Upkeep(refresh=None, snapshot_every=5001))
    took, busy = time.perf_counter() - began, time.process_time() - busy
    folded = advisor.replica.head.seq - advisor.replica.saved_at
    print(json.dumps({"s": took, "cpu_s": busy, "folded": folded}))


def asked_elsewhere(path):
    done = subprocess.run(
        [sys.executable, __file__, str(path), "--restart"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def cold(path):
    """Restart without a snapshot, twice: the first saves one."""
    store = open_store(path)
    store._write(lambda connection: connection.execute("DELETE FROM snapshots"))
    store.close()
    return asked_elsewhere(path), asked_elsewhere(path)


def size_of(*paths):
    return sum(path.stat().st_size for path in paths) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--until", type=int, default=50_000)
    parser.add_argument("--cold", type=int, default=0)
    parser.add_argument("--restart", action="store_true", help=argparse.SUPPRESS)
    options = parsed(parser, until=10_000)
    if options.restart:
        restart(options.folder)
        return
    temporary = None if options.folder else tempfile.TemporaryDirectory()
    options.folder = options.folder or Path(temporary.name)
    lines = []
    options.folder.mkdir(parents=True, exist_ok=True)
    path, files = options.folder / "log.db", options.folder / "archive"
    problem, gamma = problem_and_gamma()
    advisor = Advisor(
        problem, path, mode="live", criteria=Criteria.none(), upkeep=Upkeep(refresh=None, snapshot_every=10_000)
    )
    decided = advisor.status().decisions  # of an earlier run, which goes on
    rng = np.random.default_rng([1, decided])
    for milestone in (each for each in MILESTONES if decided < each <= options.until):
        began, busy = time.perf_counter(), time.process_time()
        play(advisor, gamma, rng, milestone - TAIL - decided)
        advisor.snapshot()
        play(advisor, gamma, rng, TAIL)
        played, busy, rows = time.perf_counter() - began, time.process_time() - busy, milestone - decided
        decided = milestone
        found = {"decisions": decided, "us_per_decision": 1e6 * played / rows, "cpu_us_per_decision": 1e6 * busy / rows}
        found["log_mb_before"] = size_of(path)
        found |= {f"restart_{name}": value for name, value in asked_elsewhere(path).items()}
        if milestone == options.cold:
            for what, told in zip(("cold", "after_cold"), cold(path), strict=True):
                found |= {f"{what}_{name}": value for name, value in told.items()}
        began, busy = time.perf_counter(), time.process_time()
        done = archive(advisor.store, files, before=np.inf)
        found |= {"archive_s": time.perf_counter() - began, "archive_cpu_s": time.process_time() - busy}
        found |= {"archived": done.last, "deleted": done.deleted, "archive_mb": size_of(*files.glob("*.gz"))}
        found |= {f"restart_archived_{name}": value for name, value in asked_elsewhere(path).items()}
        note(json.dumps({name: round(value, 3) for name, value in found.items()}))
        lines.append(
            [
                f"{decided:,}",
                f"{found['restart_cpu_s']:.2f}",
                f"{found['restart_archived_cpu_s']:.2f}",
                f"{found['log_mb_before']:.0f}",
                f"{found['archive_mb']:.1f}",
                f"{found['archive_cpu_s']:.1f}",
                f"{found['cpu_us_per_decision'] / 1e3:.2f}",
            ]
        )
    heads = [
        "decisions", "restart, s", "restart after archiving, s", "log before, MB", "archive, MB", "to archive, s",
        "a decision with its outcome, ms",
    ]  # fmt: skip
    show(options, "processor time", timed=True, table=(heads, lines))


if __name__ == "__main__":
    main()
