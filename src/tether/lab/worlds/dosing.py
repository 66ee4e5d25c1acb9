"""Dose titration: a direction (which drug) and an amount, with an expected toxicity score under τ at every visit.

Star-shaped by nature: a_0 is the standard low dose, a ray is a way to escalate, the length is how far.
"""

from itertools import product

import numpy as np

from tether.errors import InputError
from tether.lab.worlds.courses import CourseModel, perturbed, scale_of
from tether.lab.worlds.linear_mdp import LinearMDP, MisspecifiedMDP
from tether.records import Array

TYPES = ("poor", "normal", "rapid")
"""How fast a patient clears drug A; known from a test, and constant."""
STAGES = ("remission", "mild", "moderate", "severe")
COURSES = ("remitting", "progressing", "under A", "under B")
"""What a month may be like; a dose is the share of the month that its drug governs."""
DIRECTIONS = {
    "A": (0.70, 0.00),
    "B": (0.00, 0.75),
    "A and B": (0.40, 0.40),
    "mostly A": (0.55, 0.20),
    "mostly B": (0.20, 0.55),
    "B instead of A": (-0.20, 0.85),
}
"""What is added to the standard dose at full length, as shares of the month under A and under B."""

STANDARD = 0.2
"""Share of the month under drug A at the standard dose."""
UTILITY = np.array([0.90, 0.70, 0.45, 0.20])
"""Quality of life in each stage, 1 is full health. Reward is its expectation a visit later: quality-adjusted months."""

PROGRESS = np.array([0.30, 0.55, 0.80, 0.95])
"""Share of "progressing" in the natural course of each stage."""
NEXT_STAGE = np.array([
    [0.70, 0.25, 0.05, 0.00],  # remitting
    [0.00, 0.10, 0.30, 0.60],  # progressing
    [0.50, 0.32, 0.13, 0.05],  # under A
    [0.55, 0.30, 0.11, 0.04],  # under B
])  # fmt: skip
"""Law of the next stage under each course, for the average patient."""
TOXICITY = {
    "poor": (0.03, 0.10, 0.80, 0.52),
    "normal": (0.03, 0.10, 0.55, 0.46),
    "rapid": (0.03, 0.10, 0.36, 0.42),
}
"""Expected toxicity score of a month spent wholly in each course: 0 is none, 1 is dose-limiting."""


def dosing(
    rng: np.random.Generator,
    *,
    visits: int = 6,
    threshold: float = 0.3,
    noise: float = 0.05,
    reward_noise: float = 0.1,
    confidence: float = 0.01,
    spread: float = 0.2,
) -> LinearMDP:
    """One draw of a population: 3 responder types × 4 severity stages, 6 directions, H monthly visits.

    φ(s, a) is the mixture of courses of the patient's type: d = 3 × 4 = 12, on the simplex. The part of the month that
    no drug governs takes its natural course, which the stage decides. `spread` varies every toxicity and each drug's
    power per draw. The numbers are chosen, not measured: τ = 0.3 is in the range of the target toxicity levels of
    dose-finding trials; a poor metaboliser suffers about twice what a rapid one does from drug A; and the standard
    dose is safe for everybody, the full dose of A for hardly anybody. Quality of life is what a patient reports, which
    is good to about a tenth of the scale (`reward_noise`).
    """
    model = _model(rng, visits, spread)
    initial = np.tile(np.array([0.0, 0.2, 0.4, 0.4]), len(TYPES)) * np.repeat([0.25, 0.5, 0.25], len(STAGES))
    limits = {"threshold": (threshold,), "noise": (noise,)}
    return model.world("dosing", initial, confidence=confidence, reward_noise=reward_noise, **limits)


def dosing_twin(
    rng: np.random.Generator, *, relief: float = 0.9, turn: float = 0.25, steep: float = 1.5
) -> MisspecifiedMDP:
    """The same patients, but toxicity is convex in the dose: a little more is well tolerated, much more is not.

    With Δ the share of the month by which a drug's dose exceeds the standard, its toxicity does not grow by tox · Δ but
    by tox · (1 − relief) per unit up to `turn`, and by tox · (1 + steep) beyond.
    """
    world = dosing(rng)
    scale = scale_of(world, len(world.phi_0[0]))
    tox = world.true_gamma[0, 0].reshape(len(TYPES), len(COURSES))[:, 2:] / scale

    def extra(step: int, state: int, feature: Array, episode: int) -> Array:
        kind = state // len(STAGES)
        shares = scale * feature.reshape(len(TYPES), len(COURSES))[kind, 2:]
        above = np.maximum(shares - (STANDARD, 0.0), 0.0)
        bent = steep * np.maximum(above - turn, 0.0) - relief * np.minimum(above, turn)
        return np.array([float(tox[kind] @ bent)])

    return MisspecifiedMDP(linear=world, extra=extra, story="toxicity is convex in the dose")


def _model(rng: np.random.Generator, visits: int, spread: float) -> CourseModel:
    """The draw: toxicities first, then what the drugs do."""
    if not 0.0 <= spread <= 0.25:
        raise InputError(f"spread must lie in [0, 0.25], so that the standard dose stays under τ, but is {spread}.")
    toxicity = perturbed(rng, np.array([TOXICITY[kind] for kind in TYPES]), spread).ravel()
    stages = _next_stages(rng, spread)  # (types, courses, stages)
    kinds, courses, states = len(TYPES), len(COURSES), len(TYPES) * len(STAGES)
    laws = np.zeros((kinds * courses, states))
    for kind, course in product(range(kinds), range(courses)):
        laws[kind * courses + course, kind * len(STAGES) : (kind + 1) * len(STAGES)] = stages[kind, course]
    cases = list(product(range(kinds), range(len(STAGES))))
    return CourseModel(
        start=np.array([_mixture(kind, stage, STANDARD, 0.0) for kind, stage in cases]),
        ends=np.array(
            [[_mixture(kind, stage, STANDARD + a, b) for a, b in DIRECTIONS.values()] for kind, stage in cases]
        ),
        laws=np.tile(laws, (visits, 1, 1)),
        theta=(stages @ UTILITY).ravel(),
        gamma=toxicity[None],
        gamma_norm=(float(np.linalg.norm(1.25 * np.array(list(TOXICITY.values())))),),
    )


def _mixture(kind: int, stage: int, dose_a: float, dose_b: float) -> Array:
    """p(s, a): shares of the courses of one type, (12,)."""
    natural = 1.0 - dose_a - dose_b
    shares = np.zeros((len(TYPES), len(COURSES)))
    shares[kind] = natural * (1.0 - PROGRESS[stage]), natural * PROGRESS[stage], dose_a, dose_b
    return shares.ravel()


def _next_stages(rng: np.random.Generator, spread: float) -> Array:
    """Laws of the next stage by type and course, (3, 4, 4): a drug may work better or worse in this draw.

    A share of each drug's month, up to `spread`, is moved to remitting or to progressing, at random for each type.
    """
    laws = np.tile(NEXT_STAGE, (len(TYPES), 1, 1))
    shift = rng.uniform(-spread, spread, (len(TYPES), 2))
    for kind, drug in product(range(len(TYPES)), range(2)):
        other = NEXT_STAGE[0 if shift[kind, drug] > 0.0 else 1]
        share = abs(shift[kind, drug])
        laws[kind, 2 + drug] = (1.0 - share) * NEXT_STAGE[2 + drug] + share * other
    return laws
