"""Buildings: SustainGym's BuildingEnv (Caltech), 16 reference buildings in 17 climates, with the comfort band as limit.

Thermostats hold every zone of a building at 22 °C. A learner may shift their set-points, so that less heat has to be
moved, while every zone stays within 22 ± 2 °C at every step of five minutes: two constraints a zone. The weather is
observed one step late, and what people are doing not at all: no feature makes up for that, so it is declared as misfit.
"""

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tether.assumptions.misfit import Misfit
from tether.features.actions import ActionFeatures
from tether.gym.spaces import Targets
from tether.lab.real import RealWorld
from tether.problem.constraint import Constraint
from tether.problem.names import Names
from tether.records import Array

BUILDINGS = (
    "ApartmentHighRise",
    "ApartmentMidRise",
    "Hospital",
    "HotelLarge",
    "HotelSmall",
    "OfficeLarge",
    "OfficeMedium",
    "OfficeSmall",
    "OutPatientHealthCare",
    "RestaurantFastFood",
    "RestaurantSitDown",
    "RetailStandalone",
    "RetailStripmall",
    "SchoolPrimary",
    "SchoolSecondary",
    "Warehouse",
)
CLIMATES = {
    "Honolulu": "USA_HI_Honolulu.Intl.AP.911820_TMY3.epw",
    "Tampa": "USA_FL_Tampa-MacDill.AFB.747880_TMY3.epw",
    "Tucson": "USA_AZ_Tucson-Davis-Monthan.AFB.722745_TMY3.epw",
    "Atlanta": "USA_GA_Atlanta-Hartsfield.Jackson.Intl.AP.722190_TMY3.epw",
    "ElPaso": "USA_TX_El.Paso.Intl.AP.722700_TMY3.epw",
    "SanDiego": "USA_CA_San.Deigo-Brown.Field.Muni.AP.722904_TMY3.epw",
    "NewYork": "USA_NY_New.York-John.F.Kennedy.Intl.AP.744860_TMY3.epw",
    "Albuquerque": "USA_NM_Albuquerque.Intl.Sunport.723650_TMY3.epw",
    "Seattle": "USA_WA_Seattle-Tacoma.Intl.AP.727930_TMY3.epw",
    "Chicago": "USA_IL_Chicago-OHare.Intl.AP.725300_TMY3.epw",
    "Buffalo": "USA_NY_Buffalo.Niagara.Intl.AP.725280_TMY3.epw",
    "Denver": "USA_CO_Denver-Aurora-Buckley.AFB.724695_TMY3.epw",
    "PortAngeles": "USA_WA_Port.Angeles-William.R.Fairchild.Intl.AP.727885_TMY3.epw",
    "Rochester": "USA_MN_Rochester.Intl.AP.726440_TMY3.epw",
    "GreatFalls": "USA_MT_Great.Falls.Intl.AP.727750_TMY3.epw",
    "InternationalFalls": "USA_MN_International.Falls.Intl.AP.727470_TMY3.epw",
    "Fairbanks": "USA_AK_Fairbanks.Intl.AP.702610_TMY3.epw",
}
"""The weather files of the package, from the warmest climate to the coldest."""

SET_POINT, BAND, LARGEST_SHIFT = 22.0, 2.0, 3.0
"""°C, K and K: the thermostats' set-point, how far a zone may be from it, and how far it may be shifted."""

GAIN = 0.25
"""Of the thermostats: the part of its error that a zone makes up for in one step, were it alone."""

AREA_OF_A_PERSON, DAY_HEAT, NIGHT_HEAT = 20.0, 120.0, 80.0
"""m², and the activity of people in W, from 8 to 18 h and else."""

STEPS_A_DAY, SECONDS, SENSOR_NOISE = 288, 300, 0.01
"""Of five minutes. Temperatures are read exactly; σ = 0.01 K is declared."""

MOST_ZONES = 12
"""So many zones are learned, those that need most power; the others of a larger building are left at 22 °C."""


@dataclass(frozen=True, eq=False)
class Plant:
    """A building in its climate, with thermostats: what `SetPoints` plays, and the design data that `declare` uses.

    Attributes:
        parameters: of BuildingEnv.
        names: of its n zones.
        chosen: the zones whose set-points may be shifted (k,).
        power: what the unit of each zone can heat or cool, in W (n,).
        slope: K that one W raises its own zone by in a step (n,).
        balance: from air, ground, sun and 1 to the power in W that holds each zone at the set-point (n, 4).
        capacity: heat in J that warms each zone by one K (n,).
        misfit: how far the next temperature of each zone may be from linear, in K (n,).
    """

    parameters: dict[str, Any]
    names: list[str]
    chosen: NDArray[np.intp]
    power: Array
    slope: Array
    balance: Array
    capacity: Array
    misfit: Array

    @property
    def zones(self) -> int:
        """n."""
        return len(self.power)

    def needed(self, outside: Array) -> Array:
        """The power that holds each zone at the set-point, in W (n,), as air, ground and sun (3,) are observed."""
        watts: Array = self.balance[:, :3] @ outside + self.balance[:, 3]
        return watts

    def wanted(self, needed: Array) -> Array:
        """From -1, where cold is needed, to 1, where heat is (n,)."""
        return np.clip(needed * self.slope / (GAIN * BAND), -1.0, 1.0)

    def stored(self, errors: Array, needed: Array) -> float:
        """kWh in store: warmth while heat is needed, cold while cold is; less than 0 is borrowed from the building."""
        return float((self.wanted(needed) * errors) @ self.capacity) / 3.6e6


@lru_cache(maxsize=4)
def plant(cell: str) -> Plant:
    """The building of a cell such as "OfficeSmall/Tucson", with units that are large enough for the whole band."""
    from sustaingym.envs.building import BuildingEnv, ParameterGenerator
    from sustaingym.envs.building import utils as files

    building, climate = cell.split("/")
    folder = Path(files.__file__).parents[2] / "data" / "building"
    _, n, zones = files.get_zones(str(folder / files.BUILDINGS[building][0]))
    people = np.array([zone.FloorArea for zone in zones]) / AREA_OF_A_PERSON
    ground = files.GROUND_TEMP.get(climate) or ground_temperatures(folder / CLIMATES[climate])
    told: dict[str, Any] = {"ground_temp": ground, "full_occ": people, "max_power": 1.0, "root": str(folder)}
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its zones
        watt = ParameterGenerator(building, CLIMATES[climate], "", **told)
    model = BuildingEnv(watt)
    by_people, by_power, by_outside = model.BD_d[:, 0], model.BD_d[:, 3 : 3 + n], model.BD_d[:, [2, 1, 3 + n]]
    outside = np.column_stack([watt["out_temp"], watt["ground_temp"], watt["ghi"]])  # (T, 3)
    mean_heat, uneven_heat = heat_of_people(model)
    still = (model.A_d.sum(axis=1) - 1.0) * SET_POINT + by_people * mean_heat
    balance = -np.linalg.solve(by_power, np.column_stack([by_outside, still]))
    needed = np.abs(outside @ balance[:, :3].T + balance[:, 3])  # (T, n)
    slope, capacity = np.diag(by_power).copy(), 1.0 / np.diag(watt["B"][:, 2 : 2 + n])
    power = 1.1 * (needed.max(axis=0) + GAIN * (LARGEST_SHIFT + BAND) / slope)
    hour = np.arange(len(outside)) * SECONDS / 3600.0 % 24.0
    activity = np.where((hour >= 8.0) & (hour < 18.0), DAY_HEAT, NIGHT_HEAT)
    by_unit = watt["B"].copy()
    by_unit[:, 2 : 2 + n] *= power
    parameters = {**watt, "B": by_unit, "max_power": power, "metabolism": activity}
    late = np.abs(np.diff(outside, axis=0) @ by_outside.T).max(axis=0)
    chosen = np.sort(np.argsort(-needed.mean(axis=0), kind="stable")[:MOST_ZONES])
    names = [zone.name.title() for zone in zones]
    return Plant(parameters, names, chosen, power, slope, balance, capacity, late + by_people * uneven_heat)


def heat_of_people(model: Any) -> tuple[float, float]:
    """Heat of a person in W: at the set-point, and how far it may be from a straight line within the band.

    BuildingEnv's formula bends with the mean temperature, and depends on the activity, which no feature knows.
    """
    error = np.linspace(-BAND, BAND, 81)
    heat = np.stack([model._calc_occupower(SET_POINT + error, activity) for activity in (DAY_HEAT, NIGHT_HEAT)])
    slope, middle = np.polyfit(error, heat.mean(axis=0), 1)
    return float(middle), float(np.abs(heat - middle - slope * error).max())


def ground_temperatures(weather: Path) -> list[float]:
    """Monthly temperatures of the ground, from the head of an EPW file: the package has none for Chicago."""
    with weather.open(encoding="utf-8", errors="replace") as lines:
        fields = next(line for line in lines if line.startswith("GROUND TEMPERATURES")).strip().split(",")
    return [float(field) for field in fields[6:18]]


class SetPoints(gymnasium.Env[Array, Array]):
    """A building with its thermostats, as a Gymnasium environment: the action shifts k set-points, in K (k,).

    Observed are the temperatures of the zones (n,), air, ground, sun and heat of people, which BuildingEnv reports one
    step late, and the power in W that holds each zone at 22 °C (n,). An episode starts at some moment of the year. The
    reward is the kWh that are saved against holding 22 °C; heat borrowed from the building itself is none saved.
    """

    def __init__(self, cell: str) -> None:
        from sustaingym.envs.building import BuildingEnv

        self.plant = plant(cell)
        self.building = BuildingEnv(self.plant.parameters)
        n, k = self.plant.zones, len(self.plant.chosen)
        self.action_space = gymnasium.spaces.Box(-LARGEST_SHIFT, LARGEST_SHIFT, (k,), dtype=np.float64)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2 * n + 4,), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Some moment of the year, every zone at the set-point."""
        if seed is not None:
            self.building.reset(seed=seed)  # seeds its generator, and starts at the day of that number
        state, _ = self.building.reset()  # starts anywhere
        while self.building.epoch > self.building.length_of_weather - STEPS_A_DAY:  # else the year might end meanwhile
            state, _ = self.building.reset()
        return self._observe(state), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Five minutes with shifted set-points. A thermostat adds GAIN of its error to the power that holds 22 °C."""
        own, before, needed = self.plant, self.errors, self.needed
        shifts = np.zeros(own.zones)
        shifts[own.chosen] = action
        watts = np.clip(needed + GAIN * (shifts - before) / own.slope, -own.power, own.power)
        state, *_ = self.building.step(watts / own.power)
        seen, used, held = self._observe(state), float(np.abs(watts).sum()), float(np.abs(needed).sum())
        saved = (held - used) * SECONDS / 3.6e6 + own.stored(self.errors, self.needed) - own.stored(before, needed)
        errors = self.errors[own.chosen]
        worst = SET_POINT + float(self.errors[np.abs(self.errors).argmax()])
        info = {"cost": np.concatenate([errors, -errors]), "signals": (worst, used / 1000.0, held / 1000.0)}
        return seen, float(saved), False, False, info

    def _observe(self, state: Array) -> Array:
        n, seen = self.plant.zones, np.asarray(state, dtype=np.float64)
        self.errors, self.needed = seen[:n] - SET_POINT, self.plant.needed(seen[n : n + 3])
        return np.concatenate([seen, self.needed])


class ZoneFeatures(ActionFeatures):
    """φ(s, u) = (1, error of each zone, air, ground, sun, shifts; what is stored, what is cut).

    A zone's next temperature is linear in all but the last two, up to the misfit; energy is nearly linear in those.
    """

    def __init__(self, own: Plant) -> None:
        self.own, self.share = own, VALUE_WEIGHT * own.capacity / own.capacity.sum()
        self.dimension, self.label = own.zones + len(own.chosen) + 6, f"{own.zones} zones, weather, shifts"

    def batch(self, state: Any, actions: Sequence[Any]) -> Array:
        """(N, d)."""
        n, chosen = self.own.zones, self.own.chosen
        shifts = np.array(actions, dtype=np.float64) / LARGEST_SHIFT
        errors = np.clip((state[:n] - SET_POINT) / BAND, -FAR, FAR)
        worth = self.share * self.own.wanted(state[n + 4 :])
        weather = [(state[n] - SET_POINT) / 50.0, (state[n + 1] - SET_POINT) / 50.0, state[n + 2]]
        rows = np.empty((len(shifts), self.dimension))
        rows[:, 0], rows[:, 1 : n + 1], rows[:, n + 1 : n + 4], rows[:, n + 4] = 1.0, errors, weather, worth @ errors
        rows[:, n + 5 : -1], rows[:, -1] = shifts, shifts @ worth[chosen]
        return rows


FAR, VALUE_WEIGHT = 1.5, 0.3
"""Errors of zones beyond 1.5 bands look alike; and the weight of what only energy depends on."""


def coasting(own: Plant) -> Callable[[Array], Array]:
    """Where the ray ends: the shifts with which the units rest in this step, or the largest: observation -> (1, k)."""

    def target(observed: Array) -> Array:
        coast = observed[: own.zones] - SET_POINT - observed[own.zones + 4 :] * own.slope / GAIN
        return np.clip(coast[own.chosen], -LARGEST_SHIFT, LARGEST_SHIFT)[None]

    return target


def declare(cell: str) -> dict[str, Any]:
    """What a user says of a building."""
    own = plant(cell)
    k = len(own.chosen)
    largest = float((GAIN * BAND / own.slope[own.chosen]).sum() * SECONDS / 3.6e6)
    return {
        "features": ZoneFeatures(own),
        "feature_norm": float(np.sqrt(4.5 + FAR**2 * own.zones + k)),
        "safe_action": [0.0] * k,
        "actions": Targets(coasting(own)),
        "constraints": [
            Constraint(threshold=BAND, noise=SENSOR_NOISE, gamma_norm=LARGEST_EFFECT, relax=[Misfit(error)])
            for error in own.misfit[own.chosen].tolist() * 2
        ],
        "reward_range": (-largest, largest),
        "names": Names(
            constraints=[f"{own.names[zone]}: {side} 22 °C" for side in ("above", "below") for zone in own.chosen],
            cost_units=["K"] * (2 * k),
            actions=["let the zones coast"],
        ),
    }


LARGEST_EFFECT = 4.0
"""B in K: neighbours, weather and shifts of set-points together move a zone by less within five minutes."""

WORLD = RealWorld(
    name="buildings",
    title="Buildings (SustainGym)",
    needs={"sustaingym": "sustaingym==0.1.7", "pvlib": "pvlib==0.11.2"},
    cells=tuple(f"{BUILDINGS[i % 16]}/{list(CLIMATES)[i % 17]}" for i in range(16 * 17)),
    horizon=24,
    episodes=60,
    make_env=lambda cell, seed: SetPoints(cell),
    declare=declare,
    learning={"stationary": True},
    setup=(ZoneFeatures, coasting, declare),
    truth="temperatures are read exactly",
    gain="% of the thermostats' energy",
    reward_scale=50.0,  # kWh of two hours -> % of kW
    relative=True,
    signals=(("zone farthest from 22 °C", "°C"), ("heating and cooling", "kW"), ("thermostats at 22 °C", "kW")),
    limits=(SET_POINT - BAND, SET_POINT + BAND),
)
"""Episodes of two hours."""
