"""What callbacks are told after each episode, and the loggers that come with Tether."""

import sys
from types import ModuleType

import numpy as np
import pytest

from gym.small_envs import Shop
from gym.test_learn import SHOP, run
from tether import InputError, MissingExtra
from tether.gym.callbacks import Episode, MLflow, TensorBoard, progress_bar


def test_every_episode_is_told_once_with_its_own_numbers():
    told = []
    result = run(Shop(), 12, **SHOP, callbacks=[told.append])
    assert [episode.number for episode in told] == list(range(12))
    np.testing.assert_allclose([episode.total for episode in told], result.returns)
    np.testing.assert_allclose([episode.baseline_share for episode in told], result.baseline_share)
    by_episode = result.cost[:, 0].reshape(12, 4), result.bound[:, 0].reshape(12, 4)
    np.testing.assert_array_equal([episode.cost[0] for episode in told], by_episode[0].max(axis=1))
    np.testing.assert_array_equal([episode.margin[0] for episode in told], (0.5 - by_episode[1]).min(axis=1))
    assert set(told[0].numbers()) == {"return", "steps", "safe_action_share", "largest_cost", "smallest_margin"}


def test_a_callback_that_cannot_be_called_is_refused_before_the_first_step():
    with pytest.raises(InputError, match="cannot be called"):
        run(Shop(), 1, **SHOP, callbacks=["tensorboard"])
    with pytest.raises(InputError, match=r"the callback <lambda> is called with \(episode\), but cannot be"):
        run(Shop(), 1, **SHOP, callbacks=[lambda result, number: None])


def test_the_bar_shows_what_rounding_leaves_of_a_margin_as_0(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # to rich, a terminal
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar(1, True) as (show,):
        show(Episode(0, 1, 1.0, np.array([0.5]), np.array([2.2e-16]), 0.0))
    assert "cost up to 0.5, margin 0, safe action 0%" in capsys.readouterr().err


def fake(monkeypatch, name, **contents):
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def test_tensorboard_gets_a_point_per_number_and_episode(monkeypatch):
    points = []

    class Writer:
        def __init__(self, folder, flush_secs):
            assert flush_secs == 1  # or what is written last is not seen for two minutes
            points.append(folder)

        def add_scalar(self, name, value, number):
            points.append((name, value, number))

    fake(monkeypatch, "tensorboardX", SummaryWriter=Writer)
    result = run(Shop(), 3, **SHOP, callbacks=[TensorBoard("runs/shop")])
    assert points[0] == "runs/shop"
    assert [(value, number) for name, value, number in points[1:] if name == "tether/return"] == [
        (pytest.approx(total), number) for number, total in enumerate(result.returns)
    ]


def test_mlflow_gets_the_numbers_that_were_measured(monkeypatch):
    logged, started = [], []
    calls = {"active_run": lambda: None, "start_run": lambda: started.append(len(logged))}
    fake(monkeypatch, "mlflow", log_metrics=lambda numbers, step: logged.append((numbers, step)), **calls)
    run(Shop(), 3, **SHOP, cost=lambda *_: None, callbacks=[MLflow()])
    assert started == [0] and [step for _, step in logged] == [0, 1, 2]
    assert "return" in logged[0][0] and "largest_cost" not in logged[0][0]


@pytest.mark.parametrize(
    ("make", "module"), [(lambda: TensorBoard("x"), "tensorboardX"), (MLflow, "mlflow")], ids=["tensorboard", "mlflow"]
)
def test_a_logger_that_is_not_installed_says_how_to_install_it(make, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf'needs {module}: pip install "tether-rl\[{module[:6]}'):
        make()
