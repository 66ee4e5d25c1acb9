"""Did behaviour move? Two recorded runs; `python tests/golden/regenerate.py` records them again."""

import json

import numpy as np
import pytest

from golden import regenerate

EXACT = ("start", "state", "ray", "reason")
CLOSE = ("length", "bound", "score", "regret")


@pytest.fixture(scope="module", params=regenerate.RUNS)
def runs(request):
    """(what was recorded, what happens now)."""
    return json.loads(regenerate.path_of(request.param).read_text()), regenerate.record(request.param)


@pytest.mark.parametrize("column", EXACT)
def test_choices_are_exactly_those_recorded(runs, column):
    recorded, now = runs
    moved = [k for k, (old, new) in enumerate(zip(recorded[column], now[column], strict=True)) if old != new]
    assert moved == []


@pytest.mark.parametrize("column", CLOSE)
def test_numbers_are_those_recorded_up_to_rounding(runs, column):
    recorded, now = runs
    np.testing.assert_allclose(now[column], recorded[column], rtol=1e-9, atol=1e-12)


def test_cumulative_regret_is_the_one_recorded(runs):
    recorded, now = runs
    assert sum(now["regret"]) == pytest.approx(sum(recorded["regret"]), rel=1e-9)


def test_the_recorded_runs_do_something(runs):
    """A run that only plays the safe action, or one action for ever, would notice nothing."""
    recorded, _ = runs
    assert len(set(recorded["ray"])) >= 5
    assert len(set(recorded["reason"])) >= 2
    assert recorded["reason"].count("best") > 40
    quarter = len(recorded["regret"]) // 4
    assert np.mean(recorded["regret"][-quarter:]) < np.mean(recorded["regret"][:quarter])
    assert min(recorded["regret"]) >= -1e-12


def test_the_records_are_small_and_complete():
    files = [regenerate.path_of(name) for name in regenerate.RUNS]
    assert sum(file.stat().st_size for file in files) < 50_000
    for file in files:
        assert sorted(json.loads(file.read_text())) == sorted((*EXACT, *CLOSE))
