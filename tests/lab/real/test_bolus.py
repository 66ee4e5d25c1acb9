"""Bolus: the kept answers, what is declared of all 30 patients, and with simglucose that the answers are its own."""

import sys

import numpy as np
import pytest
from scipy.optimize import linprog

from tether.lab.real import bolus
from tether.lab.real.bolus import (
    HIGHEST,
    LARGEST_EFFECT,
    LOWEST,
    MISFIT,
    PATIENTS,
    SHARES,
    Meals,
    curves,
    features,
    kept_answers,
    simulate,
    without_gym,
)

MEALS = [(carbohydrates, start) for carbohydrates in bolus.CARBOHYDRATES for start in bolus.STARTS]


def test_every_patient_and_meal_is_kept_and_met_again_at_every_share() -> None:
    answers = kept_answers()
    assert set(answers) == {(patient, *meal) for patient in PATIENTS for meal in MEALS}
    for key, rows in answers.items():
        glucose, in_range = curves(*key)
        assert np.exp(glucose(SHARES)) == pytest.approx(rows[:, :3]), key
        assert in_range(SHARES) == pytest.approx(rows[:, 3]), key


def test_half_the_textbooks_bolus_is_safe_for_everybody() -> None:
    lowest = {key: rows[0, :2].min() for key, rows in kept_answers().items()}
    assert min(lowest.values()) > LOWEST


def test_features_by_hand() -> None:
    assert features(np.array([90.0, 120.0]), np.array([1.25])) == pytest.approx(
        [1, 1, -0.5, 1, 0.75, 0.75, -0.375, 0.75, -0.5]
    )


@pytest.mark.parametrize("patient", PATIENTS)
def test_the_declared_misfit_and_norm_hold_wherever_glucose_is_high_enough(patient: str) -> None:
    """Some γ with ‖γ‖ <= B is within ε of every cost of every meal and share that keep to τ: a linear programme."""
    shares = np.linspace(SHARES[0], SHARES[-1], 21)
    rows = np.array([features(np.array(meal, dtype=float), np.array([share])) for meal in MEALS for share in shares])
    costs = np.log(HIGHEST) - np.concatenate([curves(patient, *meal)[0](shares)[:, :2] for meal in MEALS])
    safe = (costs <= np.log(HIGHEST / LOWEST)).all(axis=1)
    for cost in costs[safe].T:
        phi = np.column_stack([rows[safe], -np.ones(safe.sum())])
        lower = np.column_stack([-rows[safe], -np.ones(safe.sum())])
        bounds = [(None, None)] * rows.shape[1] + [(0.0, None)]
        found = linprog([0.0] * rows.shape[1] + [1.0], np.vstack([phi, lower]), np.append(cost, -cost), bounds=bounds)
        assert found.x[-1] <= MISFIT
        assert np.linalg.norm(found.x[:-1]) <= LARGEST_EFFECT


def test_a_meal_costs_what_the_meter_reads_and_the_truth_is_told_apart() -> None:
    env = Meals("adult#001")
    meal, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    assert meal.tolist() == again.tolist()
    _, in_range, terminated, _, info = env.step(np.array([1.0]))
    answer = kept_answers()[("adult#001", *meal.tolist())][SHARES.index(1.0)]
    assert terminated and in_range == pytest.approx(answer[3])
    assert info["true_cost"] == pytest.approx(np.log(180.0 / answer[:2]))
    assert 0.0 < np.abs(info["cost"] - info["true_cost"]).max() < 6 * bolus.METER_NOISE


def test_the_stand_ins_leave_nothing_behind() -> None:
    before = {name: sys.modules.get(name) for name in ("gym", "gym.envs.registration", "pkg_resources")}
    with without_gym():
        from gym.envs.registration import register

        register(id="any")
    assert {name: sys.modules.get(name) for name in before} == before


@pytest.mark.slow
@pytest.mark.parametrize("patient", ["adult#001", "adolescent#008", "child#001"])
def test_the_answers_are_those_of_simglucose_and_what_lies_between_is_close(patient: str) -> None:
    pytest.importorskip("pandas", reason="pandas and simglucose are in .venv-real: make real")
    if bolus.find_spec("simglucose") is None:
        pytest.skip("simglucose is in .venv-real: make real")
    assert simulate(patient, 60, 130, 1.0) == pytest.approx(kept_answers()[patient, 60, 130][SHARES.index(1.0)])
    for share in (0.55, 0.875, 1.375):
        exact, (glucose, in_range) = simulate(patient, 60, 130, share), curves(patient, 60, 130)
        assert np.exp(glucose(share))[:2] == pytest.approx(exact[:2], rel=0.002)
        assert in_range(share) == pytest.approx(exact.in_range, abs=0.05)  # of the reward; no cost depends on it
