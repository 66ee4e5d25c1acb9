"""`tether evaluate`: on a log whose decisions were drawn, on one without overlap, and on tables."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from limits import stated
from live.plant import Plant
from tether import Advisor, Problem, Upkeep
from tether.check.evaluate import evaluate
from tether.cli import app
from tether.live.audit import logged
from tether.live.policy import Criteria, Guards
from worlds import world_and_streams

WORLD = world_and_streams(3, horizon=1)[0]
HERE = __name__


def problem():
    """The world's, with a declared noise of rewards."""
    told = {name: getattr(WORLD.problem, name) for name in Problem.__dataclass_fields__}
    return Problem(**stated(**{**told, "reward_noise": 0.05}))


def safe(state):
    return problem().look_up(state).actions.action(-1, 0.0)


def reckless(state):
    return type(safe(state))(0, 1.0)


def broken(state):
    raise ValueError("no such state")


def run(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A log with 30 shadow and 150 guarded decisions, p = 1/2."""
    path = tmp_path_factory.mktemp("log") / "log.db"
    guards = Guards(canary=0.5, reward_range=(-2.0, 2.0), guarded_rate=1.0, margin_share=0.1)
    with Advisor(problem(), path, guards=guards, criteria=Criteria.none(), upkeep=Upkeep(refresh=None)) as advisor:
        plant = Plant(WORLD.true_gamma)
        plant.play(advisor, 30)
        advisor.promote("guarded", by="me", why="test")
        plant.play(advisor, 150)
        gain = advisor.status().uplift.reward
        seen = {name: logged(advisor.store, problem(), name) for name in ("proposal", "baseline")}
    return path, gain, seen


def test_drawn_decisions_tell_what_proposals_and_a_0_would_have_earned(drawn):
    path, gain, seen = drawn
    found = {name: evaluate(rows.where(rows.propensity < 1.0)) for name, rows in seen.items()}
    one, other = (found[name].estimates for name in ("proposal", "baseline"))
    assert [each.name for each in one] == ["IPS", "SNIPS", "DR"] and 60 < found["proposal"].decisions <= 150
    for mine, theirs in zip(one, other, strict=True):
        assert abs(mine.value - theirs.value - gain.estimate) < 5.0 * np.hypot(mine.error, theirs.error)
    shown = run(path, "--policy", "proposal", "--problem", f"{HERE}:problem")
    assert shown.exit_code == 0, shown.output
    assert "SNIPS" in shown.output and "If rewards are linear with noise 0.05" in shown.output
    told = json.loads(run(path, "--policy", f"{HERE}:safe", "--problem", f"{HERE}:problem", "--json").output)
    assert told["estimates"][0]["value"] == pytest.approx(other[0].value)
    value, low, high = told["linear"]["gain"]
    assert value == 0.0 and low == high == 0.0, "a_0 gains nothing over itself"


def test_without_overlap_it_is_refused_and_only_the_linear_value_is_left(drawn):
    path, *_ = drawn
    shown = run(path, "--policy", f"{HERE}:reckless", "--problem", f"{HERE}:problem")
    assert shown.exit_code == 0
    assert "No weighted estimate: in " in shown.output and "the log's policy never did there" in shown.output
    assert "gain over a_0" in shown.output and "IPS" not in shown.output


def test_a_log_of_the_safe_action_alone_says_nothing_of_proposals(tmp_path):
    with Advisor(problem(), tmp_path / "log.db", upkeep=Upkeep(refresh=None)) as advisor:
        Plant(WORLD.true_gamma).play(advisor, 40)
    told = json.loads(run(tmp_path / "log.db", "--policy", "proposal", "--problem", f"{HERE}:problem", "--json").output)
    assert told["estimates"] == [] and "the log's policy never did there" in told["refused"]


def test_a_table_is_evaluated_by_its_columns(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("reward,propensity,mine\n1,0.5,1\n0,0.5,0\n1,0.5,1\n0,0.5,0\n")
    shown = run(path, "--policy", "mine")
    assert shown.exit_code == 0 and "IPS" in shown.output and "No linear value: it needs --problem." in shown.output
    wrong = run(path, "--policy", "yours")
    assert wrong.exit_code == 2 and "no column 'yours'" in wrong.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "proposal"), "give --problem"),
        (("--policy", "best", "--problem", f"{HERE}:problem"), "module:function"),
        (("--policy", f"{HERE}:broken", "--problem", f"{HERE}:problem"), "ValueError: no such state"),
    ],
)
def test_what_cannot_be_used_exits_with_2_and_says_why(drawn, arguments, said):
    shown = run(drawn[0], *arguments)
    assert shown.exit_code == 2 and said in shown.output
