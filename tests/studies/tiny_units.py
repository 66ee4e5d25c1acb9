"""A lake study small enough to check by hand: curves made of arrays, no run behind them."""

from dataclasses import replace

import numpy as np
import tiny_results

from tether.lab.books import Cell
from tether.lab.specs import parse

UNITS, AGENTS = 10, 5
RAMP = np.array([0.0, 0.1, 0.3, 0.6, 0.8, 0.9, 0.95, 0.96, 0.96, 0.96])
SPEC = """
name = "tiny-lake"
title = "A tiny lake"
episodes = 10
seeds = 5
units = { steps = 1000 }

[[worlds]]
name = "frozen-lake"

[[agents]]
name = "rslucb-qvi"
options = { pooled = true }
"""
MANY = {"steps": 1000, "restarts": True, "receding": False, "plan_each": "trajectory"}
ONE = {**MANY, "restarts": False, "plan_each": "unit"}


def cell(
    label, *, level=1.0, origin="theorem", agent="rslucb-qvi", options=None, world_options=None, units=None, worst=0.0,
    planned=0.0, violations=0, falls=1.0, repeats=2, noise=0.01,
):  # fmt: skip
    """Success `level` × RAMP, plus each agent's own shift of a few `noise`; `worst` and `planned` are over τ."""
    runs = AGENTS * repeats
    shift = noise * (np.arange(runs) // repeats - (AGENTS - 1) / 2)[:, None]
    success = np.clip(level * RAMP + shift * (RAMP > 0), 0.0, 1.0) if level else np.zeros((runs, UNITS))
    flat = np.ones((runs, UNITS))
    columns = {
        "success": success,
        "average_return": 6.0 * success + 0.01 * (1.0 - success),
        "trajectories": 40.0 * flat,
        "goals": 40.0 * success,
        "falls": falls * flat,
        "reward": 500.0 * flat,
        "violations": float(violations) * flat,
        "worst_cost": worst * flat,
        "planned_worst_cost": planned * flat,
        "baseline": 0.5 * flat,
        "plans": 40.0 * flat,
        "plan_seconds": flat,
    }
    chosen = {"pooled": True} if options is None else options
    name, _, note = label.partition(" (")
    return Cell(
        key=label, agent=agent, agent_label=name, note=note.removesuffix(")"), world="frozen-lake", explorer="paper",
        options=chosen, world_options=world_options or {}, cost_radius_origin=origin, value_radius_origin="tuned",
        units=units or MANY, repeats=repeats, seeds=tuple(range(runs)), columns=columns,
    )  # fmt: skip


def certified(**changes):
    return cell("Ours, certified (cost β theorem, value β=3 tuned)", **changes)


def cells():
    """The kinds of row that figure 2 compares."""
    tuned = {"pooled": True, "cost_radius": 0.12}
    literal, small = ({"pooled": False, "cost_radius": radius} for radius in (4.3e5, 10.4))
    rows = {
        "B, as tuned (cost β=0.12 tuned, value β=0.5 tuned)": {"options": tuned},
        "A, the paper's table (β=0.06 tuned)": {"level": 0.99, "options": tuned, "world_options": {"reward": "table"}},
        "Theory, literally (β=4.3e+05 tuned)": {"level": 0.0, "options": literal, "falls": 0.2},
        "Text, literally (β=0.12 tuned)": {"level": 0.04, "options": tuned, "units": ONE},
        "Theory, β=10.4 (β=10.4 tuned)": {
            "level": 0.1, "options": small, "worst": 0.6, "planned": 0.85, "violations": 1,
        },
    }  # fmt: skip
    return (
        certified(),
        *(cell(label, origin="tuned", **row) for label, row in rows.items()),
        cell(
            "a₀ alone (β=100 tuned)", agent="always-safe", origin="exact", level=0.0, options={}, falls=0.2, repeats=1
        ),
        cell("Bernoulli costs (cost β theorem, value β=3 tuned)", level=0.4, world_options={"costs": "bernoulli"}),
    )


def results(made=None, *, missing=()):
    """A study of those rows."""
    rows, spec = cells() if made is None else made, parse(SPEC, "tiny-lake.toml").model_dump()
    about = {"study": "tiny-lake", "title": "A tiny lake", "episodes": UNITS, "spec": spec}
    return replace(tiny_results.results(rows, missing=missing, folder="tiny-lake"), **about)
