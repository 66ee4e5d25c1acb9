"""Results small enough to check by hand: made of arrays, no run behind them."""

from pathlib import Path

import numpy as np

from tether.lab.books import Cell, Results
from tether.lab.specs import parse

EPISODES, SEEDS = 60, 3
SPEC = """
name = "tiny"
title = "A tiny study <of> & more"
episodes = 60
seeds = 3

[[worlds]]
name = "synthetic"

[[agents]]
name = "slucb-qvi"
"""


def cell(label, *, agent, explorer, origin, regret, violations, options=None, seeds=SEEDS, world_options=None):
    """An agent with a constant regret and a constant number of violations per episode, plus its seed's own level."""
    level = 2.0 + 0.1 * np.arange(seeds)[:, None] + np.zeros((1, EPISODES))
    lost = np.full((seeds, EPISODES), float(regret)) * (1.0 + 0.1 * np.arange(seeds)[:, None])
    columns = {
        "optimal_value": level,
        "value": level - lost,
        "reward": level - lost + 0.05 * np.sin(np.arange(EPISODES)),
        "regret": lost,
        "violations": np.full((seeds, EPISODES), float(violations)),
        "worst_cost": np.full((seeds, EPISODES), 0.1 if violations else -0.1),
        "optimism": np.zeros((seeds, EPISODES)),
        "length": np.ones((seeds, EPISODES)),
        "baseline": np.zeros((seeds, EPISODES)),
        "plan_seconds": np.zeros((seeds, EPISODES)),
    }
    name, _, note = label.partition(" (")
    return Cell(
        key=label, agent=agent, agent_label=name, note=note.removesuffix(")"), world="synthetic", explorer=explorer,
        options=options or {}, world_options=world_options or {}, cost_radius_origin=origin,
        value_radius_origin="tuned", seeds=tuple(range(seeds)), columns=columns,
    )  # fmt: skip


def cells():
    """The kinds of agent that Figure 1 compares."""
    penalised = {"agent": "lsvi-ucb", "explorer": "plain", "origin": "none"}
    return (
        cell("Published (β=1 tuned)", agent="slucb-qvi", explorer="paper", origin="tuned", regret=0.5, violations=1),
        cell("Told γ* (β=2 tuned)", agent="lsvi-ucb-told", explorer="plain", origin="exact", regret=0.1, violations=0),
        cell("r − 0.8c (β=2 tuned)", **penalised, regret=-0.2, violations=20, options={"penalty": 0.8}),
        cell("r − 0.9c (β=2 tuned)", **penalised, regret=0.2, violations=10, options={"penalty": 0.9}),
        cell(
            "Ours (cost β theorem, value β=2 tuned)",
            agent="slucb-qvi", explorer="directional", origin="theorem", regret=0.15, violations=0,
        ),
    )  # fmt: skip


def results(made=None, *, missing=(), folder="tiny"):
    """A study of those agents."""
    return Results(
        study="tiny",
        title="A tiny study <of> & more",
        episodes=EPISODES,
        spec=parse(SPEC, "tiny.toml").model_dump(),
        cells=tuple(made if made is not None else cells()),
        missing=tuple(missing),
        version="9.8.7",
        platform="Some-Platform",
        kernel="some-kernel",
        folder=Path(folder),
    )
