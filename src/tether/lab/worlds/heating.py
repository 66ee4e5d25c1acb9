"""Building heating: set-backs from the default thermostat, with the felt deviation from comfort under τ at every step.

The reward is the energy that is saved. A set-back while nobody is at home is felt later: the room is cool on return.
"""

from itertools import product

import numpy as np

from tether.errors import InputError
from tether.lab.worlds.courses import CourseModel, perturbed
from tether.lab.worlds.linear_mdp import LinearMDP, MisspecifiedMDP
from tether.records import Array

DIRECTIONS = {
    "living rooms": (4.0, 0.0, 0.0),
    "bedrooms": (0.0, 4.0, 0.0),
    "flow": (0.0, 0.0, 2.0),
    "all rooms": (3.0, 3.0, 0.0),
    "rooms and flow": (2.0, 2.0, 1.5),
    "bedrooms and flow": (0.0, 3.0, 2.0),
}
"""Set-back in K at full length: of the set-points of living rooms and bedrooms; a lower flow cools both."""

HOURS = 3.0
"""Hours per step."""
LOSS = 0.2
"""Heat loss of the house in kW per K between inside and outside."""
SHARES = np.array([0.6, 0.4, 1.0])
"""Part of the house that each lever cools."""
FELT = np.array([0.75, 0.35, 0.80])
"""K below comfort that people at home feel per K of each lever."""
AWAY = 0.1
"""The part of it that counts while nobody is at home: pets, plants, early returns."""
COOLNESS = np.array([0.0, 0.5, 1.0])
"""K below comfort in each band of the room when the step begins."""
DEPTH = np.array([0.10, 0.06, 0.18])
"""Share of the step governed by cooling down, per K of each lever."""
DEFAULT_K = 0.2
"""K below comfort at the default setting, whatever the room."""
KELVIN = 5.0
"""K per unit of cost."""

NEXT_OUTSIDE = np.array([[0.8, 0.2, 0.0], [0.15, 0.7, 0.15], [0.0, 0.3, 0.7]])
NEXT_ROOM = np.array([
    [[0.85, 0.14, 0.01], [0.50, 0.40, 0.10], [0.15, 0.50, 0.35]],  # mild: holding warm, holding cool, cooling down
    [[0.80, 0.18, 0.02], [0.40, 0.45, 0.15], [0.08, 0.42, 0.50]],  # cold
    [[0.72, 0.24, 0.04], [0.30, 0.50, 0.20], [0.03, 0.32, 0.65]],  # freezing
])  # fmt: skip
"""Law of the room's next band by outside band and course."""
COOL_SHARE = np.array([0.05, 0.5, 0.95])
"""Share of "holding cool" in the default course of each band of the room."""
AT_HOME = np.array([0.95, 0.95, 0.85, 0.30, 0.25, 0.45, 0.85, 0.95])
"""Chance that somebody is at home in each step of the day, from midnight on."""


def heating(
    rng: np.random.Generator,
    *,
    threshold: float = 2.0,
    noise: float = 0.5,
    reward_noise: float = 0.05,
    confidence: float = 0.01,
    spread: float = 0.2,
) -> LinearMDP:
    """One day of a house: 3 bands outside (mild first) × 3 inside (warm first) × away or home, H = 8 steps of 3 h.

    `threshold` and `noise` are in K: ISO 7730 allows 22 ± 2 °C in winter for its category B, and a person's vote on the
    temperature is good to about half a K (chosen). Costs are K / 5, so that they lie in [0, 1].
    Energy follows from the heat balance: a house that is ΔT K cooler loses LOSS × ΔT kW less, whatever it is
    outside. φ = (shares of 3 courses for each outside band, set-back of each lever, the same while at home, coolness,
    coolness at home): d = 17. `spread` varies per house what people feel of each lever and what each lever saves.
    A meter shows what other appliances use, too: what was saved in a step is known to a twentieth of the most that
    could be (`reward_noise`).
    """
    if not 0.0 <= spread <= 0.25:
        raise InputError(f"spread must lie in [0, 0.25], which the declared norm covers, but is {spread}.")
    laws = np.array([_laws(chance) for chance in np.roll(AT_HOME, -1)])  # a step's law says who is there in the next
    cases = list(product(range(3), range(3), range(2)))
    felt, saved = perturbed(rng, FELT, spread), perturbed(rng, SHARES, 0.5 * spread) * LOSS * HOURS
    model = CourseModel(
        start=np.array([_amounts(*case, np.zeros(3)) for case in cases]),
        ends=np.array([[_amounts(*case, np.array(setback)) for setback in DIRECTIONS.values()] for case in cases]),
        laws=laws,
        theta=np.concatenate([np.zeros(9), saved / MOST_SAVED, np.zeros(5)]),
        gamma=_discomfort(felt)[None] / KELVIN,
        gamma_norm=(float(np.linalg.norm(_discomfort(1.25 * FELT))) / KELVIN,),
    )
    initial = np.einsum("o,r,p->orp", [0.3, 0.5, 0.2], [0.6, 0.3, 0.1], [0.05, 0.95]).ravel()
    limits = {"threshold": (threshold / KELVIN,), "noise": (noise / KELVIN,)}
    return model.world("heating", initial, confidence=confidence, reward_noise=reward_noise, **limits)


def heating_twin(rng: np.random.Generator, *, opens: int = 1000, draught: float = 1.8) -> MisspecifiedMDP:
    """The same house, but from day `opens` on a window does not close any more.

    People at home then feel each K of a set-back as `draught` K. The default setting makes up for the window, so that
    its declared comfort stays true.
    """
    world = heating(rng)
    felt = world.true_gamma[0, 0, 12:15]  # per unit of the scaled drivers "set-back while at home"

    def extra(step: int, state: int, feature: Array, episode: int) -> Array:
        return np.array([(draught - 1.0) * float(felt @ feature[12:15]) if episode >= opens else 0.0])

    story = f"a window stays open from day {opens} on"
    return MisspecifiedMDP(linear=world, extra=extra, story=story, phases=(0, opens))


MOST_SAVED = 1.125 * LOSS * HOURS * float(max(np.array(pull) @ SHARES for pull in DIRECTIONS.values()))
"""kWh that a step can save at most, in any house: rewards are kWh over this, so that they lie in [0, 1]."""


def _discomfort(felt: Array) -> Array:
    """K below comfort per unit of (p, x), (17,)."""
    return np.concatenate([np.full(9, DEFAULT_K), AWAY * felt, (1.0 - AWAY) * felt, [0.3, 0.7]])


def _amounts(outside: int, room: int, home: int, setback: Array) -> Array:
    """(p, x) of one state under a set-back in K per lever (3,): shares of the courses, then the drivers, (17,)."""
    down = float(DEPTH @ setback)
    shares = np.zeros((3, 3))
    shares[outside] = (1.0 - down) * (1.0 - COOL_SHARE[room]), (1.0 - down) * COOL_SHARE[room], down
    return np.concatenate([shares.ravel(), setback, home * setback, [COOLNESS[room], home * COOLNESS[room]]])


def _laws(chance: float) -> Array:
    """Law of the next state under each outside band's courses when somebody is at home with this chance, (9, 18)."""
    law: Array = np.einsum("oO,ocR,P->ocORP", NEXT_OUTSIDE, NEXT_ROOM, [1.0 - chance, chance])
    flat: Array = law.reshape(9, 18)
    return flat
