"""`tether check --wizard`: typed and piped answers, what is printed where, exit codes."""

import io
import json
import sys
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from tether import Bridge, Constraint
from tether.check.wizard import QUESTIONS, cell
from tether.cli import app, check

WORST_CASE = '10 % of costs lost, `Lost("worst-case")`'
PAPER, DRIFT, CLASH, YES_NO = "1111111111", "1111111411", "3111111131", "1212111111"
NO_NORM = "1111311111"


def wizard(numbers, *arguments, code):
    found = CliRunner().invoke(app, ["check", "--wizard", *arguments], input="".join(f"{n}\n" for n in numbers))
    assert found.exit_code == code, found.output
    assert "Traceback" not in found.output
    return found


def test_the_problem_is_on_standard_output_and_the_questions_are_not():
    found = wizard("2142213111", code=0)
    relax = 'relax=[Lost("worst-case", cost_range=(0.0, 1.0)), Misfit(0.01), Realised(0.05, noise_scales=True)]'
    for option in ("safe_cost=SafeCost(safe_cost, error=0.01)", "feature_effects=[2.0, 0.5]", relax):
        assert f"        {option},\n" in found.stdout
    assert "reward_noise" not in found.stdout
    assert (
        f"regret {cell(WORST_CASE, 1)[0]} times" in " ".join(found.stdout.split())
        and "certified share" in found.stdout
        and "to drop it  features that follow" in found.stdout
    )
    for question in QUESTIONS:
        assert f"{question.words}\n  1  " in found.stderr and f"{question.words}\n  1  " not in found.stdout


def test_every_option_that_is_printed_is_one_of_a_constraint_or_a_bridge():
    assert "tether.learn takes the same constraints" in wizard(PAPER, code=0).stdout
    answers = [answer for question in QUESTIONS for answer in question.answers]
    names = {word.partition("=")[0] for answer in answers for word in answer.constraint}
    assert names == {"safe_cost", "noise", "feature_effects"} and names <= {field.name for field in fields(Constraint)}
    beside = {word.partition("=")[0] for answer in answers for word in answer.problem}
    assert beside == {"reward_noise"} and beside <= {field.name for field in fields(Bridge)}
    assert "reward_noise goes into tether.Bridge" in wizard("1111121111", code=0).stdout


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (DRIFT, 'no option covers the answer "yes, in jumps or at an unknown rate"'),
        (NO_NORM, 'no option covers the answer "I cannot say"'),
        (CLASH, "RslucbQvi refuses safe_cost=None"),
        (YES_NO, "noise=Bounded() refuses Misfit(0.01)"),
    ],
)
def test_what_the_guarantee_does_not_cover_exits_with_1(numbers, words):
    assert f"NOT COVERED   {words}" in wizard(numbers, code=1).stdout
    found = json.loads(wizard(numbers, "--json", code=1).stdout)
    assert found["ok"] is False and words in found["against"][0]


def test_json_is_one_object_with_every_answer():
    found = json.loads(wizard(PAPER, "--json", code=0).stdout)
    assert found["ok"] is True and found["against"] == []
    assert [entry["question"] for entry in found["answers"]] == [question.words for question in QUESTIONS]
    assert found["declaration"].startswith("problem = Problem(") and found["answers"][0]["measured"][0] == "1.00"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ("111", "question 4 of 10: the answers ended"),
        ("", "question 1 of 10: the answers ended"),
        (["1", "5", *PAPER], "question 2 of 10: '5' is none of 1, 2"),
        (["1", "", *PAPER], "question 2 of 10: '' is none of"),
        (["yes", *PAPER], "question 1 of 10: 'yes' is none of"),
    ],
)
def test_a_pipe_with_a_wrong_answer_exits_with_2_and_declares_nothing(numbers, words):
    found = wizard(numbers, code=2)
    assert words in found.stderr and found.stdout == ""


def test_a_wrong_answer_at_a_terminal_is_asked_for_again(monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("9\n" + "\n".join(PAPER) + "\n"))
    assert check.by_questions(json=True) is True
    assert "'9' is none of 1, 2, 3: type one of these numbers." in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["check"], ["check", "figure1", "--wizard"]])
def test_a_name_and_the_wizard_exclude_each_other(arguments):
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 2 and "--wizard" in found.stderr
