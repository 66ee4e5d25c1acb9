"""Draw the pictures of docs/gallery.md: `python tools/gallery.py docs/gallery`, about two minutes.

Each shows the true expected cost of every step against the threshold, which only a simulation knows: of the safe
learner, and in Tether's own worlds of LSVI-UCB, which knows no constraint, on the same instance.
"""

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tether import LinearMDP, LsviUcb, SlucbQvi, Streams, ad_load, bottling, dosing, heating, synthetic
from tether.agents.agent import Agent

EXAMPLES = Path(__file__).parents[1] / "examples"
WORLDS = {"synthetic": synthetic, "dosing": dosing, "heating": heating, "ad-load": ad_load, "bottling": bottling}
GYM = {"cliff": "gym_cliff_walking", "taxi": "gym_taxi", "pendulum": "gym_continuous", "frozen-lake": "gym_frozen_lake"}
SAFE, FREE = "#1f5f9e", "#d9822b"


def true_costs(world: LinearMDP, agent: Agent, streams: Streams, episodes: int) -> list[float]:
    """The true expected cost of each step as a share of τ, the largest over constraints."""
    tau, seen = np.array(world.problem.threshold), []
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(world.problem.horizon):
            decision = agent.act(step, state)
            outcome = world.step(decision, streams)
            agent.observe(outcome)
            seen.append(float((world.true_gamma[step] @ decision.mean_feature / tau).max()))
            state = outcome.next_state
    return seen


def draw(path: Path, series: dict[str, Sequence[float]]) -> None:
    """Dots of each step, as shares of the threshold, and the threshold as a line."""
    figure = Figure(figsize=(4.2, 2.6), layout="constrained")
    axes = figure.subplots()
    for (label, values), colour in zip(series.items(), (SAFE, FREE), strict=False):
        axes.plot(np.arange(1, len(values) + 1), values, ".", markersize=2, color=colour, label=label)
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set(xlabel="step", ylabel="true cost, in thresholds", xscale="log")
    axes.set_ylim(-0.05, max(1.1, axes.get_ylim()[1]))
    axes.legend(fontsize="small", markerscale=5, ncols=2, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    figure.savefig(path, dpi=100)


def main(folder: Path) -> None:
    """Every picture into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in WORLDS.items():
        world, series = make(Streams.from_seed(0).instance), {}
        for label, agent in (("LSVI-UCB", LsviUcb(world.problem)), ("safe learner", SlucbQvi(world.problem))):
            series[label] = true_costs(world, agent, Streams.from_seed(0), 300)
        draw(folder / f"{name}.png", dict(reversed(series.items())))
    for name, script in GYM.items():
        ran = runpy.run_path(str(EXAMPLES / f"{script}.py"))
        draw(folder / f"{name}.png", {"safe learner": np.array(ran["exact"]) / ran["result"].problem.threshold[0]})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
