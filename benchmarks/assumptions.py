"""What each option of a Problem costs, on one world: the figures of docs/choosing.md.

    python benchmarks/assumptions.py [--decisions 3000] [--seeds 6] [--json]

The paper's synthetic world with H = 1, σ = 0.1 and safe actions at least 0.3 under τ, so that `Realised()` is
possible at all; a decision every 100 s. The world of a seed is the same in all cells; what the learner knows of it, or
gets to see, is not.
Cells: regret over that of the first cell / certified share after the last decision, the mean over all rays of all
states of the length that may be played (0: only safe actions, 1: every ray to its end).
"""

import argparse
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from results import note, on_all_cores, parsed, show

from tether import Bounded, Drift, Lost, Misfit, Problem, Realised, SlucbQvi, Streams, synthetic
from tether.agents.certified import certified_set
from tether.lab.worlds.linear_mdp import SAFE_TOLERANCE, LinearMDP
from tether.lab.worlds.planning import optimal_safe_policy
from tether.records import Array, Decision, Transition

NOISE, GAP, RANGE, EVERY = 0.1, 0.3, (-0.5, 1.5), 100.0
ALWAYS_SAFE, UNKNOWN = "only safe actions are played", "–"
SAFE_COSTS: dict[str, dict[str, Any]] = {
    "known exactly": {}, "known to ± 0.01": {"cost_error": 0.01}, "unknown": {"known_costs": False},
}  # fmt: skip
"""The columns: what is known about the costs of safe actions, as options of the world."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SensedMDP(LinearMDP):
    """A world whose sensor loses a share of the costs by chance, or says yes or no: 1 with the mean cost as chance."""

    loss: float = 0.0
    yes_no: bool = False

    def step(self, decision: Decision, streams: Streams) -> Transition:
        """As in any world, but perhaps without the cost, or with yes or no for it."""
        seen = super().step(decision, streams)
        if self.yes_no:
            mean = self.true_gamma[decision.step, 0] @ decision.feature
            seen = replace(seen, cost=float(streams.agent.random() < mean))
        return replace(seen, cost=None) if streams.agent.random() < self.loss else seen


@dataclass(frozen=True)
class Row:
    """One line of the table: words of the Constraint, σ_r as declared, and what is so in the world."""

    known: dict[str, Any]
    told_reward_noise: float = 0.0
    loss: float = 0.0
    reward_noise: float = 0.0
    yes_no: bool = False


ROWS = {
    "nothing else": Row({}),
    "yes/no costs, `noise=Bounded()`": Row({"noise": Bounded()}, yes_no=True),
    "yes/no costs, `noise=0.5`": Row({"noise": 0.5}, yes_no=True),
    "`Misfit(0.01)`": Row({"relax": [Misfit(0.01)]}),
    "`Misfit(0.03)`": Row({"relax": [Misfit(0.03)]}),
    "`Drift(1e-4)`": Row({"relax": [Drift(1e-4)]}),
    '`Drift(1e-6, per="second")`, a decision every 100 s': Row({"relax": [Drift(1e-6, per="second")]}),
    '10 % of costs lost, `Lost("at-random")`': Row({}, loss=0.1),
    '10 % of costs lost, `Lost("worst-case")`': Row({"relax": [Lost("worst-case", cost_range=RANGE)]}, loss=0.1),
    "`reward_noise=0.5`, and rewards are so noisy": Row({}, told_reward_noise=0.5, reward_noise=0.5),
    "`reward_noise=0.5`, but rewards are exact": Row({}, told_reward_noise=0.5),
    "`Realised()`": Row({"relax": [Realised(0.05)]}),
}


def world_of(row: Row, safe_costs: dict[str, Any], streams: Streams) -> SensedMDP:
    """The world of this seed, with what the learner of this cell knows and sees."""
    made = synthetic(streams.instance, horizon=1, noise=NOISE, gap=GAP, **safe_costs)
    declared: Problem = made.problem
    truth = {name: getattr(made, name) for name in ("name", "true_theta", "true_gamma", "true_mu", "initial")}
    limit = replace(declared.constraints[0], **row.known)
    problem = replace(declared, constraints=limit, reward_noise=row.told_reward_noise)
    return SensedMDP(**truth, problem=problem, loss=row.loss, true_reward_noise=row.reward_noise, yes_no=row.yes_no)


def best_values(world: LinearMDP) -> Array:
    """V* (S,) under a limit on the mean, which all cells are compared with: regret is also what an option forbids."""
    expected = replace(world.problem.constraints[0], relax=[])
    return optimal_safe_policy(replace(world, problem=replace(world.problem, constraints=expected))).values[0]


def play(row: Row, safe_costs: dict[str, Any], seed: int, decisions: int) -> tuple[float, float, int]:
    """One run with the default agent: its regret, the certified share at its end, decisions with a cost over τ."""
    streams = Streams.from_seed(seed)
    world = world_of(row, safe_costs, streams)
    agent, best = SlucbQvi(world.problem), best_values(world)
    regret, over = 0.0, 0
    for count in range(decisions):
        state = world.reset(streams)
        agent.plan()
        decision = agent.act(0, state, time=EVERY * count)
        agent.observe(world.step(decision, streams))
        regret += best[state] - world.true_theta[0] @ decision.feature
        over += bool(world.true_gamma[0, 0] @ decision.feature > world.problem.threshold[0] + SAFE_TOLERANCE)
    with agent.at(EVERY * decisions):
        share = np.mean([certified_set(agent, 0, state).lengths for state in range(world.state_count)])
    return regret, float(share), over


def limits(seed: int, decisions: int) -> tuple[float, float, float]:
    """The regret of always playing safe, and that of the best under `Realised()`: no learning, γ* and θ* known;
    and the share of the rays whose costs are at most τ."""
    world = world_of(ROWS["`Realised()`"], {}, Streams.from_seed(seed))
    best = best_values(world)
    gaps = best - world.phi_0 @ world.true_theta[0], best - optimal_safe_policy(world).values[0]
    safe, realised = (float(decisions * (world.initial @ gap)) for gap in gaps)
    start, costs = (features @ world.true_gamma[0, 0] for features in (world.phi_0, world.endpoints))
    room = (world.problem.threshold[0] - start)[:, None] / np.maximum(costs - start[:, None], 1e-12)
    return safe, realised, float(np.minimum(room, 1.0).mean())


def main() -> None:
    """Print the table of docs/choosing.md, which the wizard has, too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=6)
    given = parsed(parser, decisions=50, seeds=1)
    lines, plain, over = [], 0.0, 0
    for name, row in ROWS.items():
        note(name)
        cells = []
        for safe_costs in SAFE_COSTS.values():
            cases = [(row, safe_costs, seed, given.decisions) for seed in range(given.seeds)]
            runs = on_all_cores(play, cases)
            regret, share, broken = np.mean(runs, axis=0)
            plain, over = plain or float(regret), over + round(broken * given.seeds)
            cells.append(f"{regret / plain:.2f} / {share:.2f}")
        lines.append([name, *cells])
    safe, realised, share = np.mean([limits(seed, given.decisions) for seed in range(given.seeds)], axis=0)
    best = f"{realised / plain:.2f} / {UNKNOWN}"
    lines += [["`Realised()`, everything known", best, best, best]]
    lines += [[ALWAYS_SAFE, *[f"{safe / plain:.2f} / 0.00"] * len(SAFE_COSTS)]]
    show(
        given,
        f"{given.decisions:,} decisions, mean of {given.seeds} seeds",
        table=(["", *(f"safe costs {name}" for name in SAFE_COSTS)], lines),
        values={"first": plain, "under": share, "over": over},
    )


if __name__ == "__main__":
    main()
