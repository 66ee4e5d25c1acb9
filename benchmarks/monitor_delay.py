"""How late the alarm comes on play: false alarms on true worlds, power on wrong ones.

    python benchmarks/monitor_delay.py [--runs 12] [--json]

The table of docs/check.md. Violations are steps whose true cost exceeds τ, the mean over all runs.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from results import note, on_all_cores, parsed, show

from tether import SlucbConfig, SlucbQvi, StarAction, synthetic
from tether.check.monitor import Monitor
from tether.lab.worlds.linear_mdp import Streams

NOISE = 0.05


def length_of(decision):
    return decision.action.length if isinstance(decision.action, StarAction) else 0.0


TWINS = {
    "true": lambda cost, decision, late: cost,
    "bends up with the length: + 2σ α²": lambda cost, decision, late: cost + 0.1 * length_of(decision) ** 2,
    "hump along the length: + 3σ α(1 − α)": lambda cost, decision, late: (
        cost + 0.15 * length_of(decision) * (1.0 - length_of(decision))
    ),
    "one state of six costs σ more": lambda cost, decision, late: cost + NOISE * (decision.state == 0),
    "costs grow by 10 % half-way": lambda cost, decision, late: cost * (1.1 if late else 1.0),
    "noise 1.3σ": lambda cost, decision, late: cost,
}
"""True cost as a function of the linear cost, the decision, and whether the second half of the run has begun."""


@dataclass
class Outcome:
    """One run: outcomes until the alarm (None: no alarm), its test, and steps whose true cost exceeded τ."""

    alarm: int | None
    test: str
    violations: int


def run(seed, twin, *, episodes=1500, watch=True, stop=False):
    """SLUCB-QVI, re-planning on doubling, on a synthetic world (S = 6, N = 12, d = 4, H = 2, δ = 0.01)."""
    streams, rng = Streams.from_seed(seed), np.random.default_rng([seed, 77])
    world = synthetic(streams.instance, states=6, rays=12, dimension=4, horizon=2, noise=NOISE)
    agent = SlucbQvi(world.problem, SlucbConfig(replan="on-doubling"))
    agent.watch = Monitor(world.problem) if watch else None
    scatter = 1.3 * NOISE if twin == "noise 1.3σ" else NOISE
    outcome = Outcome(None, "", 0)
    for episode in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(2):
            decision = agent.act(step, state)
            seen = world.step(decision, streams)
            true = TWINS[twin](float(world.true_gamma[step, 0] @ decision.feature), decision, 2 * episode >= episodes)
            outcome.violations += true > world.problem.threshold[0] + 1e-9
            cost = true + scatter * rng.standard_normal()
            agent.observe(decision.outcome(reward=seen.reward, cost=cost, next_state=seen.next_state))
            state = seen.next_state
            if watch and outcome.alarm is None and (agent.watch.alarm or agent.standing_alarms):
                found = agent.watch.alarm  # else the learner's own: safe costs that contradict the data
                outcome.alarm, outcome.test = agent.watch.observations, found.test if found else "contradiction"
        if stop and outcome.alarm is not None:
            break
    return outcome


def run_alone(seed, twin):
    """`run` without a monitor."""
    return run(seed, twin, watch=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=12)
    given = parsed(parser, runs=1)
    lines = []
    for twin in TWINS:
        note(twin)
        cases = [(seed, twin) for seed in range(given.runs)]
        watched, alone = on_all_cores(run, cases), on_all_cores(run_alone, cases)
        delays = [outcome.alarm for outcome in watched if outcome.alarm is not None]
        since = 1500 if "half-way" in twin else 0
        median = f"{np.median(delays) - since:.0f}" if delays else "–"
        tests = [outcome.test for outcome in watched if outcome.test]
        found = ", ".join(f"{name} {tests.count(name)}" for name in sorted(set(tests))) or "–"
        over = [f"{np.mean([outcome.violations for outcome in group]):.1f}" for group in (watched, alone)]
        lines.append([twin, f"{len(delays)} of {given.runs}", median, found, *over])
    heads = ["the true cost", "tripped", "median outcomes until it", "found by", "violations, watched", "not watched"]
    show(given, f"{given.runs} runs a row, 3,000 outcomes each", table=(heads, lines))


if __name__ == "__main__":
    main()
