"""The questions of `tether check --wizard`: they lead to problems that exist, and docs/choosing.md says the same."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import tether
from tether import Constraint, FiniteActions, Problem, StarActions
from tether.assumptions.relaxation import Relaxation
from tether.check.wizard import ALWAYS_SAFE, QUESTIONS, Answer, cell, declaration, measured, obstacles, page
from tether.errors import InputError

ROOT = Path(__file__).resolve().parent.parent.parent
ANSWERS = [answer for question in QUESTIONS for answer in question.answers]
BASICS = {"horizon", "dimension", "actions", "constraints", "threshold"}
NO_MATTER_OF_KNOWLEDGE = {
    "confidence", "gamma_norm", "feature_norm", "states", "key", "final_reward", "version", "names", "cost",
}  # fmt: skip
RELAXATIONS = {
    name: one
    for name in tether.__all__
    if isinstance(one := getattr(tether, name), type) and issubclass(one, Relaxation)
}
WORDS = {name: getattr(tether, name) for name in (*RELAXATIONS, "Bounded", "SafeCost")}
"""What may stand in a constraint."""
POINTS = np.array([[0.6, 0.2], [0.1, 0.8]])


@pytest.fixture
def written():
    """docs/choosing.md."""
    return (ROOT / "docs" / "choosing.md").read_text()


def declared(answers):
    """What the printed code makes: the problem and the agent."""
    finite = any(answer.agent for answer in answers)
    actions = FiniteActions(POINTS, 0) if finite else StarActions(POINTS[0], POINTS[1:])
    scope = {
        **{name: getattr(tether, name) for name in tether.__all__}, "np": np,
        "H": 1, "τ": 0.7, "σ": 0.1, "d": 2, "actions": lambda state: actions, "safe_cost": 0.1,
    }  # fmt: skip
    exec(declaration(answers), scope)
    return scope["problem"], scope["agent"]


@pytest.mark.parametrize("known", QUESTIONS[0].answers, ids=lambda answer: answer.words)
def test_what_is_printed_can_be_played_unless_an_obstacle_is_named(known):
    for others in product(*(question.answers for question in QUESTIONS[1:])):
        answers = (known, *others)
        if not all(answer.covered for answer in answers):
            assert any("no option covers" in text for text in obstacles(answers))
        elif obstacles(answers):
            with pytest.raises(InputError, match=r"RSLUCB-QVI|Bounded"):
                declared(answers)
        else:
            problem, agent = declared(answers)
            agent.plan()
            assert agent.act(0, 0, time=0.0).reason not in ("alarm", "tripped")
            (limit,) = problem.constraints
            assert limit.known.cost == (None if "safe_cost=None" in known.options else 0.1)
            assert limit.known.off_by == (0.01 if "error=" in known.options[0] else 0.0)
            assert list(limit.relax) == [eval(word, dict(WORDS)) for answer in answers for word in answer.relax]
            for record, words in ((limit, "constraint"), (problem, "problem")):
                for option in (option for answer in others for option in getattr(answer, words)):
                    name, _, value = option.partition("=")
                    wanted, found = eval(value, {**WORDS, "σ": 0.1}), getattr(record, name)
                    assert (list(found) if isinstance(wanted, list) else found) == wanted, option


def test_every_option_about_what_is_known_is_asked_for():
    written = " ".join(word for answer in ANSWERS for word in (*answer.constraint, *answer.relax))
    keywords = {option.partition("=")[0] for answer in ANSWERS for option in answer.options}
    asked = keywords | set(re.findall(r"([A-Z]\w+)\(", written))
    arguments = {field.name for declared in (Problem, Constraint) for field in fields(declared)}
    known = arguments - BASICS - NO_MATTER_OF_KNOWLEDGE | {*WORDS}
    assert asked == known, "a new option is one more answer in QUESTIONS, or no matter of what is known"


def test_the_first_answers_are_the_paper_s_problem():
    answers = [question.answers[0] for question in QUESTIONS]
    assert obstacles(answers) == []
    assert declaration(answers).splitlines() == [
        "problem = Problem(",
        "    horizon=H, dimension=d, actions=actions,",
        "    constraints=Constraint(",
        "        threshold=τ,",
        "        safe_cost=safe_cost,",
        "        noise=σ,",
        "    ),",
        ")",
        "agent = SlucbQvi(problem)",
    ]


def test_several_relaxations_stand_in_one_list():
    relaxing = [Answer("one", relax=("Misfit(0.01)",)), Answer("two", relax=("Drift(1e-4)",))]
    assert "        relax=[Misfit(0.01), Drift(1e-4)],\n" in declaration(relaxing)
    assert relaxing[0].options == ("relax=[Misfit(0.01)]",)


def test_the_page_shows_the_same_questions_answers_and_figures(written):
    for part in page().split("## Measured"):
        assert part.strip() in written, "copy what `python -m tether.check.wizard` prints into docs/choosing.md"


def test_the_pipe_on_the_page_has_an_answer_to_each_question(written):
    (line,) = [line for line in written.splitlines() if line.startswith("printf")]
    numbers = line.split("'")[1].split("\\n")[:-1]
    assert len(numbers) == len(QUESTIONS)
    for number, question in zip(numbers, QUESTIONS, strict=True):
        assert 1 <= int(number) <= len(question.answers)


def test_every_measured_answer_has_its_row():
    stored = json.loads((ROOT / "docs" / "results" / "options.json").read_text())["tables"]["table"]["lines"]
    first = [" / ".join(measured(QUESTIONS[0].answers[0], column)) for column in range(3)]
    assert first == stored[0][1:] and first[0].startswith("1.00 / ")
    assert " / ".join(cell(ALWAYS_SAFE, 2)) == stored[-1][3]
    for answer in ANSWERS:
        assert all(measured(answer, 2)) == bool(answer.row), answer.words
    assert measured(Answer("not measured"), 0) == ("", "")


def test_the_benchmark_makes_the_rows_that_are_stored():
    script = ROOT / "benchmarks" / "assumptions.py"
    command = [sys.executable, script, "--decisions", "5", "--seeds", "1", "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    stored = json.loads((ROOT / "docs" / "results" / "options.json").read_text())
    made, shown = found["tables"]["table"], stored["tables"]["table"]
    assert made["heads"] == shown["heads"]
    assert [line[0] for line in made["lines"]] == [line[0] for line in shown["lines"]]
    assert found["values"]["over"] == 0


def test_the_questions_need_no_numerics():
    script = "import sys, tether.check.wizard; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
