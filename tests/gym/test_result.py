"""A run as a table and as a figure."""

import sys

import numpy as np
import pytest

from gym.small_envs import Shop
from gym.test_callbacks import fake
from gym.test_learn import SHOP, run
from limits import learned_with
from tether import MissingExtra, Names


def test_a_table_has_one_row_per_step(monkeypatch):
    """What a DataFrame is made of; pandas itself is an extra."""
    fake(monkeypatch, "pandas", DataFrame=dict)
    result = run(Shop(), 5, **SHOP)
    table = result.to_pandas()
    assert list(table) == ["episode", "step", "reward", "is_baseline", "cost", "bound", "threshold"]
    assert table["step"].tolist() == [0, 1, 2, 3] * 5 and table["threshold"] == 0.5
    np.testing.assert_array_equal(table["bound"], result.bound[:, 0])
    assert all(len(column) == 0 for column in list(run(Shop(), 0, **SHOP).to_pandas().values())[:-1])
    told = {**SHOP, "threshold": (0.5, 0.6), "baseline_cost": None, "cost": ("cost", "cost")}
    columns = list(run(Shop(), 2, **told).to_pandas())
    assert columns[4:] == [f"{name}_{j}" for j in (0, 1) for name in ("cost", "bound", "threshold")]


def test_a_result_at_the_prompt_is_one_line():
    assert repr(run(Shop(), 5, **SHOP)).startswith("<LearningResult: 5 episodes, 20 steps; summary()")


def test_units_of_the_user_stand_in_the_summary_and_at_the_axes():
    pytest.importorskip("matplotlib")
    names = Names(constraints=["noise"], cost_units=["dB"], reward_unit="euros")
    result = learned_with(Shop(), episodes=40, **SHOP, stationary=True, names=names)
    assert ", in euros\n" in result.summary()
    labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in result.plot().axes]
    assert labels == [("episode", "euros"), ("step", "dB"), ("episode", ""), ("pair", "euros")]


def test_without_pandas_the_table_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r'pip install "tether-rl\[pandas\]"'):
        run(Shop(), 1, **SHOP).to_pandas()


def test_a_figure_shows_returns_costs_against_the_threshold_the_share_and_the_gain(tmp_path):
    pytest.importorskip("matplotlib")
    result = learned_with(Shop(), episodes=40, **SHOP, stationary=True)
    figure = result.plot()
    figure.savefig(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000
    titles = [axes.get_title() for axes in figure.axes]
    share, gain = "share of steps beyond the safe action", "return over the safe action"
    assert titles == ["return", "cost of each step", share, gain]
    run(Shop(), 1, **SHOP).plot().savefig(tmp_path / "short.png")  # never compared
