"""What people call things, in alarms, summaries, tables and the service's status; what has no name has a number."""

import numpy as np
import pytest

from gym.small_envs import Shop, Valve
from gym.test_callbacks import fake
from gym.test_learn import SHOP, VALVE, run
from limits import learned_with
from tether import InputError, Monitor, Names, StarAction
from worlds import simplex_problem, small_world

SHOPS = Names(
    constraints=["complaints"], cost_units=["per visit"], actions=["quiet", "banner", "pop-up"], safe_action="quiet",
    state=lambda state: ("morning", "evening")[state],
)  # fmt: skip


def test_actions_costs_and_states_are_called_by_their_names_and_else_by_their_numbers():
    assert [SHOPS.action(1), SHOPS.action(7), SHOPS.action(0, is_baseline=True)] == ["banner", "action 7", "quiet"]
    rays = Names(actions=["set-point +2 K"])
    assert rays.action(StarAction(0, 0.16)) == "set-point +2 K at 16%"
    assert rays.action(StarAction(3, 0.5)) == "ray 3 at 50%" and rays.action(StarAction(-1, 0.0)) == "the safe action"
    assert (SHOPS.constraint(0), SHOPS.cost(0, 0.25), SHOPS.place(1)) == ("complaints", "0.25 per visit", "evening")
    assert (Names(features=["wind"]).feature(0), rays.feature(3)) == ("wind", "feature 3")
    assert (rays.constraint(0), rays.cost(0, 0.25), rays.place((1, 2))) == ("cost 0", "0.25", "state (1, 2)")


@pytest.mark.parametrize("wrong", [{"constraints": "heat"}, {"actions": [1, 2]}, {"cost_units": "K"}])
def test_names_that_are_no_list_of_words_are_refused(wrong):
    with pytest.raises(InputError, match="list of words"):
        Names(**wrong)


def test_an_alarm_about_the_shape_names_the_feature():
    """The cost bends with the second of eight features, by little against the noise: its square is what is missing."""
    names = Names(features=["constant", "wind", *(f"reading {i}" for i in range(6))])
    monitor, rng = Monitor(simplex_problem(8, noise=0.02, gamma_norm=4.0, names=names)), np.random.default_rng(0)
    while monitor.alarm is None:
        x = np.array([0.3, *rng.uniform(-0.3, 0.3, 7)])
        monitor.observe(0, x, np.array([0.6 * x[1] ** 2 + 0.02 * rng.standard_normal()]), 0.5)
    assert monitor.alarm.message.startswith("the costs also depend on the square of wind")


def test_there_is_a_name_for_every_feature_or_for_none():
    with pytest.raises(InputError, match=r"names\.features has 1 names, but there are d = 2 features"):
        run(Shop(), 1, **SHOP, names=Names(features=["wind"]))


@pytest.mark.parametrize("wrong", [Names(constraints=["a", "b"]), {"constraints": ["a"]}])
def test_there_is_a_name_for_every_cost_or_for_none(wrong):
    with pytest.raises(InputError, match=r"names must be tether.Names.*each of the 1 costs"):
        run(Shop(), 1, **SHOP, names=wrong)


def test_alarms_summaries_and_tables_use_the_names(monkeypatch):
    result = learned_with(Shop(noise=0.5), episodes=80, **SHOP, names=SHOPS)
    assert any("test of complaints" in alarm for alarm in result.alarms)
    quiet = run(Shop(), 20, **SHOP, names=SHOPS)
    assert "τ = complaints 0.5 per visit" in quiet.summary()
    fake(monkeypatch, "pandas", DataFrame=dict)
    assert {"cost_complaints", "bound_complaints", "threshold_complaints"} <= set(quiet.to_pandas())


def test_a_safe_cost_that_contradicts_the_data_is_reported_once_with_the_names_of_its_place():
    lying = {
        **SHOP,
        "baseline_cost": lambda step, state: (0.1, 0.45)[state],
        "features": lambda s, a: np.eye(2)[s] * 0.9,
    }
    result = run(Shop(), 40, **lying, names=SHOPS)
    (alarm,) = result.alarms
    assert alarm.startswith("at step 0, morning, and in 7 more places") and "contradicts the data" in alarm


def test_names_change_no_number():
    plain, named = run(Valve(), 20, **VALVE), run(Valve(), 20, **VALVE, names=Names(constraints=["flow"]))
    np.testing.assert_array_equal(plain.bound, named.bound)
    assert small_world().problem.names == Names()
