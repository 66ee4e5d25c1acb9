"""A soak: decisions of the dosing world through the service, for as long as one likes; every true cost is looked at.

    python benchmarks/live_soak.py [--decisions 1000000] [--clients 8] [--out soak.json] [--figure soak.png]

Every client treats one patient after another: it asks for a decision, draws what happens from the world, reports it.
The service runs in a process of its own with an SQLite log, synchronous=FULL. The true cost of each step is computed
from γ*, which only the world knows. Memory is the server's resident set, sampled as it goes.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import live_http
from live_http import Connection, wait_for_server

PROBLEM = """
import numpy as np
from tether.lab.worlds.dosing import dosing

WORLD = dosing(np.random.default_rng(0))
problem = WORLD.problem
"""


class Ledger:
    """What the soak is judged by."""

    def __init__(self, world, pid, goal):
        self.world, self.pid, self.goal, self.began = world, pid, goal, time.perf_counter()
        self.decisions = self.violations = self.baseline = 0
        self.worst, self.reward, self.samples = -np.inf, 0.0, []

    def note(self, cost, reward, is_baseline):
        """One step."""
        self.decisions += 1
        self.worst = max(self.worst, cost)
        self.violations += cost > self.world.problem.threshold[0] + 1e-9
        self.baseline += is_baseline
        self.reward += reward
        if self.decisions % max(200, self.goal // 400) == 0:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            memory = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
            seconds = time.perf_counter() - self.began
            mean = self.reward / self.decisions
            self.samples.append((self.decisions, seconds, memory, mean, self.baseline / self.decisions, self.worst))

    def report(self):
        """Everything as plain data."""
        seconds = time.perf_counter() - self.began
        return {
            "decisions": self.decisions, "violations": int(self.violations), "largest_true_cost": float(self.worst),
            "threshold": self.world.problem.threshold[0], "seconds": seconds, "samples": self.samples,
            "baseline_share": self.baseline / self.decisions, "mean_reward": self.reward / self.decisions,
        }  # fmt: skip


async def treat(connection, number, ledger):
    """One client: patients, one after another."""
    from tether.problem.action_sets import feature_of
    from tether.records import StarAction

    world, rng = ledger.world, np.random.default_rng([1, number])
    patient = 0
    while ledger.decisions < ledger.goal:
        state = int(rng.choice(world.state_count, p=world.initial))
        for step in range(world.problem.horizon):
            asked = {"state": state, "step": step, "episode": f"{number}-{patient}"}
            answer = json.loads(await connection.post("/v1/decisions", asked))
            action = StarAction(answer["action"]["ray"], answer["action"]["length"])
            feature = feature_of(world.problem.actions(state), action)
            cost = float(world.true_gamma[step, 0] @ feature)
            reward = float(world.true_theta[step] @ feature)
            law = np.clip(feature @ world.true_mu[step], 0.0, None)
            following = int(rng.choice(len(law), p=law / law.sum()))
            seen = cost + float(world.noise_scale[0] * rng.standard_normal())
            told = {"decision_id": answer["id"], "reward": reward, "cost": seen, "next_state": following}
            await connection.post("/v1/outcomes", told)
            ledger.note(cost, reward, answer["is_baseline"])
            state = following
        patient += 1


async def soak(args, world, pid):
    """Shadow until the criteria are met, then live, until the goal."""
    connections = [Connection("") for _ in range(args.clients)]
    for connection in connections:
        await connection.open()
    warm_up = Ledger(world, pid, 300)
    await asyncio.gather(*(treat(connection, 1000 + i, warm_up) for i, connection in enumerate(connections)))
    await connections[0].post(
        "/v1/mode", {"mode": "live", "why": "the soak, after a warm-up in shadow", "override": True}
    )
    ledger = Ledger(world, pid, args.decisions)
    work = asyncio.gather(*(treat(connection, i, ledger) for i, connection in enumerate(connections)))
    while not work.done():
        await asyncio.wait({work}, timeout=30.0)
        print(f"  {ledger.decisions} decisions, {ledger.violations} violations", flush=True)
        args.out.write_text(json.dumps(ledger.report()))
    await work
    args.out.write_text(json.dumps(ledger.report()))
    return ledger.report()


def draw(report, path):
    """Memory, reward and the largest true cost over the decisions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    decisions, _, memory, reward, _, worst = (np.array(column) for column in zip(*report["samples"], strict=True))
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), constrained_layout=True)
    panels = (
        (memory, "Memory of the service", "MiB"),
        (reward, "Mean reward so far", "quality of life per visit"),
        (worst, "Largest true cost so far", "toxicity score"),
    )
    for axis, (values, title, unit) in zip(axes, panels, strict=True):
        axis.plot(decisions / 1000, values, color="#004d9f", linewidth=2)
        axis.set(title=title, xlabel="thousand decisions", ylabel=unit)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#dfe3e8")
    axes[0].set_ylim(0, 1.25 * memory.max())
    axes[2].axhline(report["threshold"], color="#b3261e", linestyle="--")
    axes[2].annotate("τ", (decisions[-1] / 1000, report["threshold"]), color="#b3261e", ha="right", va="bottom")
    axes[2].set_ylim(0, 1.15 * report["threshold"])
    figure.savefig(path, dpi=140)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("out/soak.json"))
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    live_http.PORT = 8766
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "soak_problem.py").write_text(PROBLEM)
        (folder / "service.toml").write_text('problem = "soak_problem:problem"\nstore = "log.db"\nport = 8766\n')
        sys.path.insert(0, name)
        from soak_problem import WORLD

        command = [sys.executable, "-m", "tether", "serve", str(folder / "service.toml"), "--no-access-log"]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_for_server(server)
            report = asyncio.run(soak(args, WORLD, server.pid))
        finally:
            server.terminate()
            server.wait(60)
        size = (folder / "log.db").stat().st_size / 2**20
    print(f"{report['decisions']} decisions in {report['seconds']:.0f} s; log {size:.0f} MiB")
    largest = report["largest_true_cost"]
    print(f"  violations: {report['violations']}; largest true cost {largest:.4f}, τ = {report['threshold']}")
    first, last = report["samples"][len(report["samples"]) // 10][2], report["samples"][-1][2]
    print(f"  memory: {first:.0f} MiB after a tenth, {last:.0f} MiB at the end; a_0 in {report['baseline_share']:.1%}")
    if args.figure:
        draw(report, args.figure)
    if report["violations"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
