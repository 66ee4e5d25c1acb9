"""A bottling line: stations that run faster than their default speed, with the chance of a stoppage under τ every hour.

The cost is yes or no, the line stopped or it did not, and no σ is declared: certificates are likelihood ratios.
"""

from itertools import product

import numpy as np

from tether.errors import InputError
from tether.lab.worlds.courses import CourseModel, perturbed
from tether.lab.worlds.linear_mdp import LinearMDP
from tether.records import Array

FRAGILITY = np.array([0.5, 1.0, 0.75])
"""How easily PET, light glass and glass break or jam, relative to light glass: known from the supplier, a feature."""
ORDERS = np.array([0.5, 0.2, 0.3])
"""Kinds in an hour's orders."""
WORN = np.array([0.1, 0.5, 0.9])
"""Share of "wearing" in the default course of a fresh line, a worn one and one that is due for service."""
STATIONS = ("filler", "capper", "packer")
DIRECTIONS = {
    "filler": (0.6, 0.0, 0.0),
    "capper": (0.0, 0.5, 0.0),
    "packer": (0.0, 0.0, 0.6),
    "filler and packer": (0.4, 0.0, 0.4),
    "all three": (0.3, 0.2, 0.3),
}
"""What each ray adds to the default speed of the stations at full length, as a share of the hour run fast."""

COURSES = ("settling", "wearing", *STATIONS)
NEXT_WEAR = np.array([
    [0.80, 0.18, 0.02],  # settling: adjusted and cleaned
    [0.10, 0.50, 0.40],  # wearing
    [0.40, 0.45, 0.15],  # under a fast filler
    [0.15, 0.45, 0.40],  # under a fast capper
    [0.50, 0.40, 0.10],  # under a fast packer
])  # fmt: skip
OUTPUT = np.array([0.40, 0.30, 0.75, 0.95, 0.60])
"""Bottles of an hour wholly in each course, as a share of 6,000."""
STOPPAGES = np.array([0.005, 0.025, 0.010, 0.010, 0.010, 0.010, 0.15, 0.55, 0.06])
"""Chance of a stoppage: by course, then per unit of fragility, and of fragility × share run fast of each station."""


def bottling(
    rng: np.random.Generator,
    *,
    hours: int = 4,
    threshold: float = 0.1,
    reward_noise: float = 0.05,
    confidence: float = 0.01,
    spread: float = 0.25,
) -> LinearMDP:
    """One line: 3 kinds of bottle × 3 levels of wear, 5 ways to run faster, H hours between two services.

    φ = (shares of 5 courses, fragility, fragility × share run fast per station), d = 9. The chances are chosen: 1 to 4%
    at the default speed, up to 30% with the capper at full speed. `spread` varies every chance per line. Output is
    counted to a twentieth of its range (`reward_noise`).
    """
    if not 0.0 <= spread <= 0.3:
        raise InputError(f"spread must lie in [0, 0.3], so that the default speed stays under τ, but is {spread}.")
    laws = np.einsum("cw,b->cbw", NEXT_WEAR, ORDERS).reshape(len(COURSES), -1)  # the next hour's order is drawn anew
    cases = list(product(FRAGILITY, WORN))
    model = CourseModel(
        start=np.array([_amounts(*case, np.zeros(3)) for case in cases]),
        ends=np.array([[_amounts(*case, np.array(fast)) for fast in DIRECTIONS.values()] for case in cases]),
        laws=np.tile(laws, (hours, 1, 1)),
        theta=np.concatenate([perturbed(rng, OUTPUT, 0.2 * spread), np.zeros(4)]),
        gamma=perturbed(rng, STOPPAGES, spread)[None],
        gamma_norm=(float(1.3 * np.linalg.norm(STOPPAGES)),),
    )
    initial = np.outer(ORDERS, [0.9, 0.1, 0.0]).ravel()
    told = {"confidence": confidence, "reward_noise": reward_noise}
    return model.world("bottling", initial, threshold=(threshold,), noise=None, **told)


def _amounts(fragility: float, worn: float, fast: Array) -> Array:
    """(p, x) of one hour with a share run fast per station (3,): shares of the courses, then the drivers, (9,)."""
    natural = 1.0 - fast.sum()
    return np.array([natural * (1.0 - worn), natural * worn, *fast, fragility, *(fragility * fast)])
