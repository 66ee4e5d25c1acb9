"""The paper's assumptions, looked up in every world and seed that a study names."""

from dataclasses import asdict
from typing import Any

import numpy as np

from tether.errors import AssumptionError
from tether.lab.cells import build_world, cells_of
from tether.lab.registry import WORLDS, checked_options
from tether.lab.specs import Study
from tether.lab.worlds.linear_mdp import LinearMDP, Streams


def findings_of(study: Study) -> list[dict[str, Any]]:
    """What `Problem.check` finds in the first instance of each world, without what only a log could tell."""
    mixes = all(choice.name != "slucb-qvi" for choice in study.agents)
    found: list[dict[str, Any]] = []
    for choice in study.worlds:
        for options, varied in choice.combinations():
            checked = checked_options(f"world {choice.name!r}", options, WORLDS.get(choice.name).options)
            try:
                world = build_world(choice.name, checked, Streams.from_seed(study.seed_list[0]))
            except AssumptionError:
                continue  # check_study has said so
            name = " ".join([choice.name, *(f"{key}={value}" for key, value in varied.items())])
            report = world.problem.check(randomised=mixes)
            told = [finding for finding in report.findings if finding.verdict != "cannot be known"]
            found += [{"world": name, **asdict(finding)} for finding in told]
    return found


def check_study(study: Study) -> list[dict[str, Any]]:
    """Build every world for every seed, and every agent once; a row per world and assumption."""
    rows: list[dict[str, Any]] = []
    for choice in study.worlds:
        allowed = WORLDS.get(choice.name).options
        for options, varied in choice.combinations():
            checked = checked_options(f"world {choice.name!r}", options, allowed)
            name = " ".join([choice.name, *(f"{key}={value}" for key, value in varied.items())])
            try:
                worlds = [build_world(choice.name, checked, Streams.from_seed(seed)) for seed in study.seed_list]
            except AssumptionError as error:
                rows.append({"world": name, "assumption": "all", "holds": False, "found": str(error)})
                continue
            rows += [{"world": name, **row} for row in _assumptions(worlds)]
    if not any(row["assumption"] == "all" for row in rows):
        cells_of(study)
    return rows


def _assumptions(worlds: list[LinearMDP]) -> list[dict[str, Any]]:
    """What the instances of one world show. Building them has already enforced 1 to 4."""
    gaps = [_smallest_gap(world) for world in worlds]
    norms = [np.linalg.norm(world.true_gamma, axis=2).max() for world in worlds]
    rewards = [(world.endpoints @ world.true_theta.T) for world in worlds]
    low, high = min(float(r.min()) for r in rewards), max(float(r.max()) for r in rewards)
    stars = sum(world.is_star for world in worlds)
    seen = f"in {len(worlds)} instance(s)"
    return [
        {"assumption": "1: linear MDP, transition laws are distributions", "holds": True, "found": seen},
        {
            "assumption": "2: the safe action costs less than τ",
            "holds": min(gaps) > 0.0,
            "found": f"smallest gap τ − τ_h(s) = {min(gaps):.4g} {seen}",
        },
        {
            "assumption": "4: ‖γ*_h‖ within its declared bound B",
            "holds": True,
            "found": f"largest ‖γ*_h‖ = {max(norms):.4g}, B = {max(worlds[0].problem.gamma_norm):.4g}",
        },
        {
            "assumption": "5: star-convex action sets",
            "holds": stars == len(worlds),
            "found": f"{stars} of {len(worlds)} instance(s)",
        },
        {
            "assumption": "rewards in [0, 1]",
            "holds": low >= -1e-9 and high <= 1.0 + 1e-9,
            "found": f"from {low:.4g} to {high:.4g}",
        },
    ]


def _smallest_gap(world: LinearMDP) -> float:
    costs = np.einsum("hmd,sd->hsm", world.true_gamma, world.phi_0)
    return float((np.array(world.problem.threshold) - costs).min())
