"""Bolus: insulin before a meal for the 30 virtual patients of simglucose (UVA/Padova, 2008). Do not dose people.

Each meal is a decision: which share of the textbook's bolus is given, from half of it, the safe action, to one and a
half. Glucose four and six hours later must be 70 mg/dL at least; what is earned is the time within 70 to 180 mg/dL. The
textbook's bolus itself is too much for most of the virtual children. Every meal starts from basal insulin, so that one
does not reach into the next.

A meal takes simglucose a second, so its answers are kept in bolus.csv: every patient, meal and six shares, made by
`python -m tether.lab.real.bolus`. What lies between two shares is interpolated.
"""

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from scipy.interpolate import CubicSpline, PchipInterpolator

from tether.assumptions.misfit import Misfit
from tether.gym.spaces import Targets
from tether.lab.real import RealWorld
from tether.problem.constraint import Constraint
from tether.problem.names import Names
from tether.records import Array

PATIENTS = tuple(f"{kind}#{number:03d}" for number in range(1, 11) for kind in ("adult", "adolescent", "child"))
CARBOHYDRATES, STARTS = (30, 60, 90), (110, 130, 150)
"""g of a meal, and mg/dL before it."""

SHARES = (0.5, 0.6, 0.75, 1.0, 1.25, 1.5)
"""Of the textbook's bolus, which is carbohydrates / CR, and (glucose − 120) / CF where that is positive."""

LOWEST, HIGHEST, AIM = 70.0, 180.0, 120.0
"""mg/dL."""

MINUTES, MEASURED = 360, (240, 360)
"""That are simulated from a meal on, and the ones after which glucose is measured."""

METER_NOISE, MISFIT, LARGEST_EFFECT = 0.05, 0.07, 3.0
"""σ of a meter that is good to 5 %; ε, how far log glucose may be from the features: 7 %; and B."""

ANSWERS = Path(__file__).with_suffix(".csv")


# The package, and what is kept of its answers.


class Answer(NamedTuple):
    """Glucose in mg/dL after four and six hours and at its lowest, and the share of minutes within 70 to 180."""

    after_4h: float
    after_6h: float
    lowest: float
    in_range: float


@contextmanager
def without_gym() -> Iterator[None]:
    """Stand-ins for what simglucose imports but is not needed here: Gym 0.9 and pkg_resources.

    It announces environments to a Gym that Python 3.12 cannot import, and finds its tables by a module that setuptools
    has dropped. Nothing of them stays behind.
    """

    def file_of(package: str, name: str) -> str:
        return str(_folder(package) / name)

    stand_ins: dict[str, Any] = {
        "gym": ModuleType("gym"),
        "gym.envs": ModuleType("gym.envs"),
        "gym.envs.registration": SimpleNamespace(register=lambda **announced: None),
        "pkg_resources": SimpleNamespace(resource_filename=file_of),
    }
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def simulate(patient: str, carbohydrates: float, start: float, share: float) -> Answer:
    """Six hours after a meal, minute by minute, by the package's own patient.

    Its parameters are handed over as plain numbers instead of a pandas series: the same answers, far sooner.
    """
    with without_gym():
        from simglucose.patient.t1dpatient import Action, T1DPatient
    parameters, rule = (_row(name, patient) for name in ("vpatient_params.csv", "Quest.csv"))
    state = parameters.iloc[2:15].to_numpy(dtype=np.float64)
    state[[3, 4, 12]] *= start * parameters.Vg / state[12]  # glucose in plasma, in tissue and under the skin
    body = T1DPatient(parameters, init_state=state)
    body._params = SimpleNamespace(**parameters.to_dict())
    basal = parameters.u2ss * parameters.BW / 6000.0
    bolus = share * (carbohydrates / rule.CR + max(start - AIM, 0.0) / rule.CF)
    glucose = np.empty(MINUTES)
    for minute in range(MINUTES):
        eaten, injected = (carbohydrates, basal + bolus) if minute == 0 else (0.0, basal)
        body.step(Action(CHO=eaten, insulin=injected))
        glucose[minute] = body.observation.Gsub
    early, late = (float(glucose[minute - 1]) for minute in MEASURED)
    within = (glucose >= LOWEST) & (glucose <= HIGHEST)
    return Answer(early, late, float(glucose.min()), float(within.mean()))


def _folder(package: str) -> Path:
    return Path(str(find_spec(package).origin)).parent  # type: ignore[union-attr]


def _row(table: str, patient: str) -> Any:
    import pandas

    return pandas.read_csv(_folder("simglucose") / "params" / table).set_index("Name", drop=False).loc[patient]


def write_answers() -> None:
    """Ask the package everything that is kept: 30 patients, 9 meals, 6 shares, four minutes on one core."""
    with ANSWERS.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["patient", "carbohydrates", "start", "share", *Answer._fields])
        for patient in sorted(PATIENTS):
            for meal in ((carbohydrates, start) for carbohydrates in CARBOHYDRATES for start in STARTS):
                for share in SHARES:
                    table.writerow([patient, *meal, share, *(round(x, 6) for x in simulate(patient, *meal, share))])


@lru_cache(maxsize=1)
def kept_answers() -> dict[tuple[str, float, float], Array]:
    """The file: (patient, carbohydrates, start) -> answers by share, (6, 4)."""
    found: dict[tuple[str, float, float], list[list[float]]] = {}
    with ANSWERS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            meal = (row["patient"], float(row["carbohydrates"]), float(row["start"]))
            found.setdefault(meal, []).append([float(row[name]) for name in Answer._fields])
    return {meal: np.array(answers) for meal, answers in found.items()}


@cache
def curves(patient: str, carbohydrates: float, start: float) -> tuple[CubicSpline, PchipInterpolator]:
    """Share -> log glucose (after 4 h, after 6 h, at its lowest), and share -> time in range."""
    answers = kept_answers()[patient, carbohydrates, start]
    return CubicSpline(SHARES, np.log(answers[:, :3])), PchipInterpolator(SHARES, answers[:, 3])


# The world.


class Meals(gymnasium.Env[Array, Array]):
    """One meal an episode: (carbohydrates, glucose) is observed, a share of the textbook's bolus is chosen.

    A cost is log(180 / glucose), which is log(180 / 70) at 70 mg/dL: in logarithms insulin acts nearly linearly, and a
    meter that is good to 5 % has the same σ everywhere. The meter's noise is ours; the patients have none.
    """

    observation_space = gymnasium.spaces.Box(0.0, 200.0, (2,), dtype=np.float64)
    action_space = gymnasium.spaces.Box(SHARES[0], SHARES[-1], (1,), dtype=np.float64)

    def __init__(self, patient: str) -> None:
        self.patient, self.meal = patient, np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Draw a meal."""
        super().reset(seed=seed)
        self.meal = np.array([self.np_random.choice(CARBOHYDRATES), self.np_random.choice(STARTS)], dtype=np.float64)
        return self.meal, {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Six hours."""
        share = float(np.clip(action[0], SHARES[0], SHARES[-1]))
        glucose, in_range = curves(self.patient, *self.meal.tolist())
        early, late, lowest = glucose(share).tolist()
        true_cost = np.log(HIGHEST) - np.array([early, late])
        cost = true_cost + METER_NOISE * self.np_random.normal(size=2)
        info = {"cost": cost, "true_cost": true_cost, "signals": (float(np.exp(min(early, late))), np.exp(lowest))}
        return self.meal, float(in_range(share)), True, False, info


def features(meal: Array, bolus: Array) -> Array:
    """(1, c, g, c²) ⊗ (1, u) and cg, with c, g in [-1, 1] for the meal and u in [0, 1] for the bolus: (9,)."""
    c, g, u = (meal[0] - 60.0) / 30.0, (meal[1] - 130.0) / 20.0, bolus[0] - SHARES[0]
    return np.array([1.0, c, g, c * c, u, c * u, g * u, c * c * u, c * g])


def declare(cell: str) -> dict[str, Any]:
    """What is known of a patient: half the textbook's bolus is safe; the meter's error; how far from linear."""
    return {
        "features": features,
        "feature_norm": 3.0,
        "safe_action": [SHARES[0]],
        "actions": Targets([[SHARES[-1]]]),
        "constraints": [
            Constraint(
                threshold=np.log(HIGHEST / LOWEST), noise=METER_NOISE, gamma_norm=LARGEST_EFFECT, relax=[Misfit(MISFIT)]
            )
        ]
        * 2,
        "reward_range": (0.0, 1.0),
        "names": Names(
            constraints=["glucose after 4 h", "glucose after 6 h"],
            cost_units=["of log(180 / mg/dL)"] * 2,
            actions=["more bolus"],
        ),
    }


WORLD = RealWorld(
    name="bolus",
    title="Bolus (simglucose)",
    needs={},
    cells=PATIENTS,
    horizon=1,
    episodes=400,
    make_env=lambda cell, seed: Meals(cell),
    declare=declare,
    setup=(features, declare),
    truth="the patients have no noise, the meter has",
    gain="% of the time in 70 to 180 mg/dL",
    reward_scale=100.0,
    signals=(("glucose after 4 or 6 h, the lower one", "mg/dL"), ("lowest in between", "mg/dL")),
    limits=(LOWEST, None),
)

if __name__ == "__main__":
    write_answers()
