"""A real world variant by variant: the map, its claims and its files, on the stub of tests/lab/real."""

from types import SimpleNamespace

import numpy as np
import pytest

from lab.real.stub import STUB
from tether.lab import real
from tether.lab.books import Cell, load
from tether.lab.engines import InProcess
from tether.lab.real import play
from tether.lab.runner import run_study
from tether.lab.specs import parse
from tether.lab.studies import real as shown
from tether.lab.studies import real_cells, view_of

SPEC = """
name = "real-patients"
episodes = 8
seeds = 2
[[worlds]]
name = "valve"
[[agents]]
name = "always-safe"
[[agents]]
name = "slucb-qvi"
[[agents]]
name = "lsvi-ucb"
"""


def test_every_variant_is_compared_with_its_own_safe_action(monkeypatch, tmp_path):
    """The safe action earns 0, so that a gain is ten times the mean return of the last four of eight episodes."""
    monkeypatch.setattr(real, "NAMES", ("valve",))
    for module in (real, shown):
        monkeypatch.setattr(module, "described", lambda name: STUB)
    monkeypatch.setattr(play, "source_hash", lambda names: "")
    monkeypatch.setattr(real_cells, "LEAST", {})
    run_study(parse(SPEC, "test"), tmp_path, InProcess())
    results = load(tmp_path)
    assert view_of(results) is real_cells.VIEW
    left, right = real_cells.variants(results)
    returns = results.finished[1]["reward"].reshape(2, 8, 4).sum(axis=2)[:, 4:]
    assert [left["row"], right["row"]] == ["left", "right"]
    assert [left["gain"], right["gain"]] == pytest.approx((10.0 * returns.mean(axis=1)).tolist())
    assert left["gain_low"] <= left["gain"] <= left["gain_high"] and left["violations"] == 0
    assert all(claim.holds for claim in real_cells.claims(results))
    lines = real_cells.table(results).lines
    assert [line[0] for line in lines] == ["left", "right", "all"] and lines[-1][4] == "2 of 2"
    over = [int(run.sum() > 0) for run in results.finished[2]["violations"]]
    assert [line[8] for line in lines] == [f"{over[0]} of 1", f"{over[1]} of 1", f"{sum(over)} of 2"] and any(over)
    assert real_cells.values(results)["rival-cells"] == sum(over)
    (picture,) = real_cells.pictures(results)
    assert picture.draw(40).startswith(b"\x89PNG") and "violations in 0 cells" in picture.words
    files = real_cells.files(results)
    assert files["real-patients.csv"].decode().count("\n") == 3
    assert files["real-patients.md"].decode().splitlines()[-1].startswith("| all | 2 | +")


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({}, []),
        ({"violations": 1}, ["safe"]),
        ({"gain": -3.0, "gain_low": -4.0}, ["gains", "headline"]),
        ({"gain": 16.9}, ["headline"]),
        ({"gain_low": -2.0, "gain_high": -1.0}, ["no-loss"]),
    ],
)
def test_each_claim_fails_by_its_own_number(monkeypatch, change, broken):
    row = {"row": "left", "column": "", "unit": "%", "violations": 0, "gain": 22.0, "gain_low": 1.0, "gain_high": 23.0}
    monkeypatch.setattr(real_cells, "variants", lambda results: [{**row, **change}, {**row, **change}])
    results = SimpleNamespace(study="real-buildings")
    assert [claim.id for claim in real_cells.claims(results) if not claim.holds] == broken


def test_a_loss_of_nearly_nothing_is_no_minus_zero_on_the_map(monkeypatch):
    monkeypatch.setattr(real_cells, "encoded", lambda figure, kind, dpi: figure.axes[0].texts)
    one = {"row": "child", "unit": "%", "violations": 0, "gain_low": -1.0}
    texts = real_cells.draw([{**one, "column": str(gain), "gain": gain} for gain in (0.1, -0.0008, -1.6)], 40)
    assert [text.get_text() for text in texts] == ["0", "0", "-2"]


def test_energy_is_told_as_a_share_of_what_the_thermostats_use(monkeypatch):
    """6 kW all day are 144 kWh; 14.4 kWh a day saved, 1.2 in each episode of two hours, are 10 %."""

    def books(**columns):
        told = {
            "agent": "",
            "agent_label": "",
            "world": "buildings",
            "explorer": "",
            "options": {},
            "world_options": {},
        }
        return Cell(key="", cost_radius_origin="", value_radius_origin="", seeds=(5,), columns=columns, **told)

    world = real.described("buildings")
    columns = {name: np.zeros((1, 48)) for name in ("violations", "excess", "alarm", "baseline", "signal_0")}
    columns["signal_0"] = np.full((1, 48), 23.0)
    columns["signal_0"][0, 3:5] = 24.1, 19.9  # too warm and too cold in zones that are not learned
    columns["signal_1"] = np.full((1, 48), 6.0)
    ours, safe = books(**columns, reward=np.full((1, 48), 0.05)), books(**columns, reward=np.zeros((1, 48)))
    ours["reward"][0, :24] = 9.0  # the first half does not count
    found = real_cells._variant(world, ours, safe, 5)
    assert (found["row"], found["column"]) == tuple(world.cells[5].split("/"))
    assert found["gain"] == pytest.approx(10.0) and found["violations"] == 2
