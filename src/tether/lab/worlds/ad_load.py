"""Ad load: levers pulled from the default load, with the complaint rate and the churn rate under their own τ every day.

Two constraints at once: what annoys people into complaining is not what makes them leave.
"""

from itertools import product

import numpy as np

from tether.errors import InputError
from tether.lab.worlds.courses import CourseModel, perturbed, scale_of
from tether.lab.worlds.linear_mdp import LinearMDP, MisspecifiedMDP
from tether.records import Array

SEGMENTS = ("new", "casual", "regular", "loyal")
SENSITIVITY = np.array([1.0, 0.8, 0.6, 0.45])
"""How strongly each segment reacts to ads, relative to new users: known from surveys, a feature."""
MIX = np.array([0.25, 0.35, 0.25, 0.15])
"""Segments of a day's audience."""
FATIGUE = ("fresh", "used", "tired")
TIREDNESS = np.array([0.1, 0.5, 0.9])
"""Share of "tiring" in the natural course of each level of fatigue."""
DIRECTIONS = {
    "display": (0.60, 0.00, 0.00),
    "video": (0.00, 0.50, 0.00),
    "notifications": (0.00, 0.00, 0.50),
    "display and video": (0.40, 0.35, 0.00),
    "display and notifications": (0.40, 0.00, 0.35),
    "video and notifications": (0.00, 0.35, 0.35),
    "all three": (0.30, 0.25, 0.25),
}
"""What each ray adds to the default load at full length, as a share of the day's impressions per lever."""

COURSES = ("resting", "tiring", "display", "video", "notifications")
NEXT_FATIGUE = np.array([
    [0.80, 0.17, 0.03],  # resting
    [0.10, 0.45, 0.45],  # tiring
    [0.30, 0.45, 0.25],  # under extra display
    [0.15, 0.40, 0.45],  # under extra video
    [0.05, 0.35, 0.60],  # under extra notifications
])  # fmt: skip
REVENUE = np.array([0.30, 0.20, 0.62, 0.95, 0.85])
"""Revenue of a day wholly in each course, as a share of 10 euros per cohort."""
COMPLAINTS = np.array([0.002, 0.006, 0.002, 0.002, 0.002, 0.006, 0.020, 0.075, 0.040])
"""Complaints per session: by course, then per unit of sensitivity, and of sensitivity × extra load of each lever."""
CHURN = np.array([0.001, 0.004, 0.001, 0.001, 0.001, 0.002, 0.006, 0.012, 0.034])
"""The same for the share of users that leave."""


def ad_load(
    rng: np.random.Generator,
    *,
    days: int = 7,
    threshold: float = 0.03,
    churn_threshold: float = 0.015,
    cohort: int = 500,
    reward_noise: float = 0.05,
    confidence: float = 0.01,
    spread: float = 0.25,
) -> LinearMDP:
    """One draw: 4 segments × 3 levels of fatigue, 7 ways to raise the load, H days; complaints and churn (M = 2).

    φ = (shares of 5 courses, sensitivity, sensitivity × load per lever), d = 9: what one segment teaches holds for all.
    A decision is for a cohort of sessions of one segment, and σ is the standard deviation √(τ (1 − τ) / cohort) of a
    rate that is observed on so many sessions when it is at its τ; it is smaller below. (Here the noise is Gaussian.)
    The rates are chosen: defaults at about a third of τ for tired new users, full levers at up to three times τ.
    The revenue of a cohort is observed with a standard deviation of a twentieth of its range (`reward_noise`).
    """
    if not 0.0 <= spread <= 0.3:
        raise InputError(f"spread must lie in [0, 0.3], so that the default load stays under τ, but is {spread}.")
    tau = (threshold, churn_threshold)
    rates = np.array([COMPLAINTS, CHURN])
    laws = np.einsum("cf,s->csf", NEXT_FATIGUE, MIX).reshape(len(COURSES), -1)  # the next day's segment is drawn anew
    cases = list(product(range(len(SEGMENTS)), range(len(FATIGUE))))
    model = CourseModel(
        start=np.array([_amounts(segment, tired, np.zeros(3)) for segment, tired in cases]),
        ends=np.array(
            [[_amounts(segment, tired, np.array(pull)) for pull in DIRECTIONS.values()] for segment, tired in cases]
        ),
        laws=np.tile(laws, (days, 1, 1)),
        theta=np.concatenate([perturbed(rng, REVENUE, 0.2 * spread), np.zeros(4)]),
        gamma=perturbed(rng, rates, spread),
        gamma_norm=tuple(1.3 * np.linalg.norm(rates, axis=1)),
    )
    initial = np.outer(MIX, [0.5, 0.4, 0.1]).ravel()
    noise = tuple(float(np.sqrt(limit * (1.0 - limit) / cohort)) for limit in tau)
    limits = {"threshold": tau, "noise": noise}
    return model.world("ad-load", initial, confidence=confidence, reward_noise=reward_noise, **limits)


def ad_load_twin(
    rng: np.random.Generator, *, patience: float = 0.25, complaints: float = 0.12, churn: float = 0.04
) -> MisspecifiedMDP:
    """The same audience, but it bears extra load up to `patience` (all levers together) and then no more.

    Beyond it, complaints and churn rise faster per unit of load × sensitivity: no linear feature shows a threshold.
    """
    world = ad_load(rng)
    scale = scale_of(world, len(COURSES))

    def extra(step: int, state: int, feature: Array, episode: int) -> Array:
        load = scale * float(feature[2 : len(COURSES)].sum())
        over = max(0.0, load - patience) * SENSITIVITY[state // len(FATIGUE)]
        return np.array([complaints * over, churn * over])

    return MisspecifiedMDP(linear=world, extra=extra, story="patience ends at a threshold of the load")


def _amounts(segment: int, tired: int, load: Array) -> Array:
    """(p, x) of one cohort under an extra load per lever (3,): shares of the courses, then the drivers, (9,)."""
    natural, sensitivity = 1.0 - load.sum(), SENSITIVITY[segment]
    shares = [natural * (1.0 - TIREDNESS[tired]), natural * TIREDNESS[tired], *load]
    return np.array([*shares, sensitivity, *(sensitivity * load)])
