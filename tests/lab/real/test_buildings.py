"""Buildings: the design data by hand on two zones, and with the package that what is declared is true."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from limits import learned_with
from tether.lab.real import buildings
from tether.lab.real.buildings import Plant, SetPoints, ZoneFeatures, coasting, ground_temperatures, heat_of_people


def two_zones() -> Plant:
    """A zone that loses 10 W per K below 22 °C of air, and one that the sun heats by 100 W; 1 W is 0.001 K a step."""
    return Plant(
        parameters={},
        names=["North", "South"],
        chosen=np.array([0, 1]),
        power=np.array([1000.0, 1000.0]),
        slope=np.array([0.001, 0.001]),
        balance=np.array([[-10.0, 0.0, 0.0, 220.0], [0.0, 0.0, -100.0, 0.0]]),
        capacity=np.array([3.6e5, 3.6e5]),
        misfit=np.array([0.1, 0.2]),
    )


def test_design_data_by_hand() -> None:
    own = two_zones()
    needed = own.needed(np.array([12.0, 0.0, 0.5]))
    assert needed.tolist() == [100.0, -50.0]  # heat for the north, cold for the south
    assert own.wanted(needed).tolist() == [0.2, -0.1]  # 100 W · 0.001 K/W over 0.25 · 2 K
    assert own.stored(np.array([-1.0, 1.0]), needed) == pytest.approx(-0.03)  # both let go: 0.1 kWh/K · (0.2 + 0.1)


def test_the_ray_ends_where_every_unit_rests() -> None:
    own = two_zones()
    observed = np.array([22.0, 23.0, 12.0, 0.0, 0.5, 0.0, 100.0, -50.0])
    (ends,) = coasting(own)(observed)
    assert ends == pytest.approx([-0.4, 1.2])
    power = observed[6:] + buildings.GAIN * (ends - (observed[:2] - 22.0)) / own.slope
    assert power == pytest.approx([0.0, 0.0])
    (far,) = coasting(own)(np.array([22.0, 22.0, -60.0, 0.0, 0.0, 0.0, 820.0, 0.0]))
    assert far.tolist() == [-3.0, 0.0]  # no farther than the largest shift


def test_features_by_hand() -> None:
    features = ZoneFeatures(two_zones())
    row = features(np.array([21.0, 30.0, 12.0, 22.0, 0.5, 0.0, 100.0, -50.0]), [1.5, -3.0])
    stored, cut = 0.15 * (0.2 * -0.5 + -0.1 * 1.5), 0.15 * (0.2 * 0.5 + -0.1 * -1.0)
    assert row == pytest.approx([1.0, -0.5, 1.5, -0.2, 0.0, 0.5, stored, 0.5, -1.0, cut])
    assert features.dimension == len(row)


def test_there_are_272_cells_and_ten_seeds_meet_ten_buildings_in_ten_climates() -> None:
    cells = buildings.WORLD.cells
    assert len(set(cells)) == len(cells) == 16 * 17
    assert {len({cell.split("/")[side] for cell in cells[:10]}) for side in (0, 1)} == {10}


def test_people_bend_the_line_by_what_they_do() -> None:
    """A heat of 10 − T + activity/10 is 12 and 8 W around 10 − T: a straight line, and 2 W that no feature knows."""
    model = SimpleNamespace(_calc_occupower=lambda temperature, activity: activity / 10.0 - temperature)
    mean, uneven = heat_of_people(model)
    assert mean == pytest.approx(10.0 - 22.0)
    assert uneven == pytest.approx(2.0)


def test_ground_temperatures_are_those_of_the_first_depth(tmp_path) -> None:
    months = [float(month) for month in range(12)]
    head = "GROUND TEMPERATURES,2,.5,,,," + ",".join(map(str, months)) + ",2,,,," + ",".join(["9.0"] * 12)
    file = tmp_path / "place.epw"
    file.write_text(f"LOCATION,Somewhere\n{head}\n")
    assert ground_temperatures(file) == months


class Boxes:
    """Stands in for BuildingEnv: each zone moves by 0.001 K per W beyond what holds it, and weather stays as it is."""

    def __init__(self, parameters: dict) -> None:
        self.epoch, self.length_of_weather = 0, 10_000
        self.own = two_zones()

    def reset(self, *, seed=None):
        self.state = np.array([22.0, 22.0, 12.0, 0.0, 0.5, 0.0])
        return self.state, {}

    def step(self, share):
        needed = self.own.needed(self.state[2:5])
        self.state = self.state.copy()
        self.state[:2] += self.own.slope * (share * self.own.power - needed)
        return self.state, 0.0, False, False, {}


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> SetPoints:
    stub = ModuleType("sustaingym.envs.building")
    stub.BuildingEnv = Boxes  # type: ignore[attr-defined]
    for name in ("sustaingym", "sustaingym.envs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "sustaingym.envs.building", stub)
    monkeypatch.setattr(buildings, "plant", lambda cell: two_zones())
    return SetPoints("any")


def test_the_thermostats_hold_22_degrees_and_save_nothing(boxes: SetPoints) -> None:
    boxes.reset(seed=1)
    seen, saved, *_, info = boxes.step(np.zeros(2))
    assert seen[:2].tolist() == [22.0, 22.0] and saved == 0.0
    assert info["cost"].tolist() == [0.0] * 4 and info["signals"] == pytest.approx((22.0, 0.15, 0.15))


def test_letting_the_zones_go_saves_their_power_less_what_was_borrowed(boxes: SetPoints) -> None:
    observed, _ = boxes.reset(seed=1)
    (ends,) = coasting(boxes.plant)(observed)
    seen, saved, *_, info = boxes.step(ends)
    assert seen[:2] == pytest.approx([21.9, 22.05])  # 100 W and −50 W were left out
    assert info["cost"] == pytest.approx([-0.1, 0.05, 0.1, -0.05])
    borrowed = 0.1 * (0.2 * 0.1 + 0.1 * 0.05)  # kWh
    assert saved == pytest.approx(150.0 * 300.0 / 3.6e6 - borrowed)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["OfficeSmall/Chicago", "RestaurantFastFood/Fairbanks", "HotelLarge/Denver"])
def test_the_declared_misfit_and_norm_are_true(cell: str) -> None:
    """γ° from the package's own matrices: every step of random shifts is within ε of it, and ‖γ°‖ <= B."""
    pytest.importorskip("sustaingym", reason="SustainGym is in .venv-real: make real")
    env, told = SetPoints(cell), buildings.declare(cell)
    own, model, features = env.plant, env.building, told["features"]
    n, chosen = own.zones, own.chosen
    by_watt = model.BD_d[:, 3 : 3 + n] / own.power
    error = np.linspace(-2.0, 2.0, 81)
    heat = np.mean([model._calc_occupower(22.0 + error, activity) for activity in (120.0, 80.0)], axis=0)
    people = np.outer(model.BD_d[:, 0], np.full(n, np.polyfit(error, heat, 1)[0] / n))
    gamma = np.zeros((n, features.dimension))
    gamma[:, 1 : n + 1] = 2.0 * (model.A_d - buildings.GAIN * by_watt / own.slope + people)
    gamma[:, n + 5 : -1] = 3.0 * (buildings.GAIN * by_watt / own.slope)[:, chosen]
    assert np.linalg.norm(gamma[chosen], axis=1).max() <= buildings.LARGEST_EFFECT
    rng, target = np.random.default_rng(0), told["targets"]
    for episode in range(40):
        observed, _ = env.reset(seed=episode)
        for _ in range(24):
            action = np.clip(target(observed)[0], -1.8, 1.8) * rng.uniform()
            phi = features(observed, action)
            observed, *_, info = env.step(action)
            missed = np.abs(gamma[chosen] @ phi - info["cost"][: len(chosen)])
            assert (missed <= own.misfit[chosen]).all()
            assert np.linalg.norm(phi) <= told["feature_norm"]


@pytest.mark.slow
def test_a_building_is_learned_without_leaving_the_band() -> None:
    pytest.importorskip("sustaingym", reason="SustainGym is in .venv-real: make real")

    world, cell = buildings.WORLD, "Warehouse/Seattle"
    told = {**world.declare(cell), **world.learning}
    found = learned_with(world.make_env(cell, 0), **told, horizon=world.horizon, episodes=40, compare=30)
    assert found.violations == 0 and not found.alarms
    assert found.comparison is not None and found.comparison.interval[0] > 0.0
