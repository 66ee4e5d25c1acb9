"""A shortened student: a few hundred PPO steps. `make test-cisr` has what it needs."""

import tempfile
from dataclasses import replace

import numpy as np
import pytest

from tether.lab.cisr.env import HR, NONE, SR2
from tether.lab.cisr.student import Student, StudentSpec

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed here; `make test-cisr` has it")

TINY = replace(StudentSpec(), rounds=2, round_steps=256, horizon=64, epochs=2)
"""Two rounds of 256 steps a unit."""


def test_the_defaults_are_the_authors():
    spec = StudentSpec()
    assert (spec.environments, spec.horizon, spec.epochs, spec.rounds, spec.round_steps) == (4, 128, 9, 2, 4800)
    assert (spec.learning_rate, spec.entropy, spec.clip, spec.discount, spec.trace) == (1e-3, 0.05, 0.2, 0.99, 0.95)
    assert spec.round_steps // spec.batch == 9


def test_the_seed_decides_the_student():
    """Two units with a change of intervention, so the optimiser and the environments are made anew once."""
    tables, logs = [], []
    for seed in (3, 3, 4):
        student = Student(TINY, seed)
        logs.append([student.train_unit(SR2), student.train_unit(HR)])
        tables.append(student.action_probabilities())
    np.testing.assert_array_equal(tables[0], tables[1])
    assert logs[0] == logs[1]
    assert np.abs(tables[0] - tables[2]).max() > 1e-3


def test_training_changes_the_policy():
    student = Student(TINY, 0)
    student.train_unit(SR2)
    before = student.action_probabilities()
    student.train_unit(SR2)
    after = student.action_probabilities()
    assert np.abs(after - before).max() > 1e-2
    np.testing.assert_allclose(after.sum(axis=1), 1.0)
    assert after.min() > 0.0


def test_a_teacher_prevents_every_fall_that_happens_without_one():
    soft, hard, none = (Student(TINY, 1).train_unit(intervention) for intervention in (SR2, HR, NONE))
    assert (soft.failures, hard.failures) == (0, 0)
    assert soft.interventions > 10 and hard.interventions > 10
    assert none.failures > 10 and none.interventions == 0
    assert soft.steps == 512


def test_the_multipliers_follow_the_violations():
    """Without a teacher only danger is violated: its multiplier rises, the other two weights fall together."""
    student = Student(TINY, 2)
    student.train_unit(NONE)
    danger, intervened, slack = student.weights
    assert danger > 0.5 / 3 > intervened
    assert intervened == pytest.approx(slack)
    assert student.weights.sum() == pytest.approx(0.5)
    assert all(env.multipliers == pytest.approx([danger, intervened]) for env in student._envs)


def test_a_round_is_judged_by_its_own_episodes_only():
    student = Student(TINY, 2)
    student.train_unit(NONE)
    assert [env.episodes for env in student._envs] == [[]] * 4


def test_weights_and_multipliers_outlive_a_change_of_intervention_and_the_optimiser_does_not():
    student = Student(TINY, 5)
    student.train_unit(SR2)
    policy, weights = student.action_probabilities(), student.weights
    assert len(student._model.policy.optimizer.state) > 0
    student._move_to(HR)
    np.testing.assert_array_equal(student.action_probabilities(), policy)
    np.testing.assert_array_equal(student.weights, weights)
    assert len(student._model.policy.optimizer.state) == 0
    assert all(env.env.intervention is HR for env in student._envs)
    assert all(env.multipliers == pytest.approx(weights[:-1]) for env in student._envs)


def test_the_same_intervention_twice_keeps_the_optimiser():
    student = Student(TINY, 5)
    student.train_unit(SR2)
    model = student._model
    student.train_unit(SR2)
    assert student._model is model


def test_computing_each_cell_once_changes_neither_features_nor_gradients():
    import torch
    from gymnasium import spaces

    from tether.lab.cisr.env import pictures
    from tether.lab.cisr.network import LakeCnn

    torch.manual_seed(0)
    network = LakeCnn(spaces.Box(0.0, 1.0, (1, 10, 10), np.float32))
    batch = torch.as_tensor(pictures("map")[[5, 17, 5, 99, 17, 5]])
    weights = torch.randn(6, 32)
    gradients = []
    for features in (network(batch), network.net(batch)):
        network.zero_grad()
        (features * weights).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in network.parameters()])
    torch.testing.assert_close(network(batch), network.net(batch))
    for once, plainly in zip(*gradients, strict=True):
        torch.testing.assert_close(once, plainly, rtol=1e-4, atol=1e-5)


def test_a_student_without_a_unit_has_no_policy():
    from tether.errors import TetherError

    with pytest.raises(TetherError, match="train_unit"):
        Student(TINY, 0).action_probabilities()


def test_an_interrupted_training_goes_on_where_it_stopped(tmp_path, monkeypatch):
    from tether.lab.cisr import train

    monkeypatch.setattr(train, "StudentSpec", lambda: TINY)
    monkeypatch.setattr(train, "jobs", lambda: iter([("SR2", 0.9, "map", 0), ("bandit", 0.8, "planes", 1)]))
    assert train.train_jobs(tmp_path, stop_after=-1.0, units=2) == 0
    assert train.train_jobs(tmp_path, stop_after=1.0, units=2) == 2
    first = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(first) == ["SR2-0.9-map-0.json", "bandit-0.8-planes-1.json"]
    (tmp_path / "SR2-0.9-map-0.json").unlink()
    assert train.train_jobs(tmp_path, stop_after=1.0, units=2) == 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == first, "the seed decides the file"


def test_the_search_returns_the_best_of_its_points():
    pytest.importorskip("optuna", reason="Optuna is not installed here; `make test-cisr` has it")
    from tether.lab.cisr.train import search_curriculum

    found, objective = search_curriculum(0, TINY, random_points=2, further_points=1, units=1)
    again, same = search_curriculum(0, TINY, random_points=2, further_points=1, units=1)
    assert (found, objective) == (again, same)
    assert -2.0 <= objective < 6.0
    assert all(-0.5 <= least <= 5.5 and 0.0 <= most <= 0.2 for least, most in found.thresholds)


def test_training_leaves_nothing_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    Student(TINY, 0).train_unit(SR2)
    assert not list(tmp_path.iterdir())
