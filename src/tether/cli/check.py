"""`tether check`: a study's worlds, a problem of one's own, named as module:problem, or one still to be declared."""

import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import typer

from tether.cli import output
from tether.errors import InputError
from tether.problem.limit_on import ASK

if TYPE_CHECKING:
    from tether.check.report import Finding
    from tether.check.wizard import Answer, Question

EXIT_CODES = {"holds": 0, "fails": 1, "nothing examined": 3}
"""2 is for input that cannot be used."""

COLOURS = {"holds": "green", "fails": "bold red", "cannot be known": "yellow"}


def names_a_problem(spec: str) -> bool:
    """Whether the argument is module:problem rather than a study."""
    return ":" in spec and not spec.endswith(".toml")


def of_problem(spec: str, log: Path | None, json: bool, playing: dict[str, Any], **options: Any) -> int:
    """Check a problem of one's own, or an environment's Bridge by playing it; print the report; the exit code."""
    from tether.problem.problem import Problem, load

    thing = load(spec)
    plays_itself = not isinstance(thing, Problem) and hasattr(thing, "play") and hasattr(thing, "check")
    if plays_itself:
        report = thing.check(log, **playing, **options)
    else:
        report = getattr(thing, "problem", thing).check(log, **options)
    if json:
        output.print_json({"problem": spec, **report.to_json()})
    elif sys.stdout.isatty():
        show(spec, [("", finding) for finding in report.findings])
    else:
        typer.echo(f"{spec}\n{report}")
    return EXIT_CODES[report.verdict]


def of_study(spec: str, seed: int | None, json: bool) -> bool:
    """Check every world of a study, print what was found, say whether nothing fails."""
    from tether.lab import specs

    if spec.endswith(".py"):
        raise InputError(f"{spec} is a module: name the problem or bridge in it, {Path(spec).stem}:problem.")
    try:
        study = specs.find(spec).resized(first_seed=seed)
    except InputError as error:
        if Path(spec).exists() or spec.endswith(".toml") or not spec.replace(".", "").isidentifier():
            raise
        raise InputError(f"{error} To check a problem of your own, name it in its module: {spec}:problem.") from None
    from tether.check.report import Finding
    from tether.lab.cells import check_study

    rows, found = check_study(study)
    if json:
        output.print_json({"study": study.name, "checks": rows, "findings": found})
    else:
        table = [("holds" if row["holds"] else "FAILS", row["world"], row["assumption"], row["found"]) for row in rows]
        title = f"{study.name}: the spec is valid; assumptions of its worlds"
        output.show_table(title, ("", "world", "assumption", "found"), table)
        title = f"{study.name}: what its problems allow (first seed)"
        show(title, [(row["world"], Finding(**{k: v for k, v in row.items() if k != "world"})) for row in found])
    return all(row["holds"] for row in rows) and not any(row["verdict"] == "fails" for row in found)


def show(title: str, rows: "Sequence[tuple[str, Finding]]") -> None:
    """Findings as a table on a terminal, as plain paragraphs in a pipe; each with the world it is about, if any."""
    from tether.check.report import Report

    if not sys.stdout.isatty():
        typer.echo(f"\n{title}")
        for world in dict.fromkeys(world for world, _ in rows):
            typer.echo(f"{world}\n{Report(tuple(finding for about, finding in rows if about == world))}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", show_lines=True)
    for header, width in (("", 7), ("assumption", 26), ("evidence and way out", None)):
        table.add_column(header, min_width=width, max_width=width, overflow="fold")
    for world, finding in rows:
        text = Text(finding.evidence)
        if finding.way_out:
            text.append("\nway out: ", style="bold").append(finding.way_out)
        name = f"{world}\n{finding.name}" if world else finding.name
        verdict = "unknown" if finding.verdict == "cannot be known" else finding.verdict
        table.add_row(Text(verdict, style=COLOURS[finding.verdict]), Text(name), text)
    Console().print(table)
    typer.echo(Report(tuple(finding for _, finding in rows)).conclusion)


def by_questions(json: bool) -> bool:
    """Ask what is known, print the Problem to declare, say whether the guarantee covers it."""
    from tether.check.wizard import ALWAYS_SAFE, QUESTIONS, cell, declaration, measured, obstacles

    output.notice("Type the number of an answer.")
    answers = [_ask(question, f"{at} of {len(QUESTIONS)}") for at, question in enumerate(QUESTIONS, start=1)]
    column, against = QUESTIONS[0].answers.index(answers[0]), obstacles(answers)
    if json:
        said = [
            {
                "question": question.words,
                **answer._asdict(),
                "options": answer.options,
                "measured": measured(answer, column),
            }
            for question, answer in zip(QUESTIONS, answers, strict=True)
        ]
        output.print_json({"ok": not against, "declaration": declaration(answers), "answers": said, "against": against})
        return not against
    typer.echo(
        f"\n{declaration(answers)}\n\nThe numbers are examples: write yours. tether.learn takes the same constraints."
    )
    if any(answer.problem for answer in answers):
        typer.echo(fill("For tether.learn, reward_noise goes into tether.Bridge(env, …), which stands for env.", 98))
    if any(answer.agent for answer in answers):
        typer.echo(fill(f"In tether.learn, RslucbQvi is {ASK}.", 98))
    for question, answer in zip(QUESTIONS, answers, strict=True):
        if not answer.costs:
            continue
        typer.echo(f"\n{question.words}\n  {answer.words}")
        regret, share = measured(answer, column)
        figures = f"regret {regret} times that with exact safe costs and no option; certified share {share}"
        texts = ", ".join(answer.options), answer.costs, figures if regret else "", answer.drop
        for name, text in zip(("write", "costs", "measured", "to drop it"), texts, strict=True):
            if text:
                typer.echo(fill(text, 98, initial_indent=f"    {name:<12}", subsequent_indent=" " * 16))
    typer.echo(
        f"\nEach was measured alone (docs/choosing.md); always playing safe has regret {cell(ALWAYS_SAFE, column)[0]}."
    )
    for text in against:
        typer.echo(fill(text, 98, initial_indent="NOT COVERED   ", subsequent_indent=" " * 14))
    return not against


def _ask(question: "Question", place: str) -> "Answer":
    """One answer from standard input. After a wrong one, ask a terminal again; in a pipe refuse: lines would shift."""
    output.notice(f"\n{place}. {question.words}")
    for number, answer in enumerate(question.answers, start=1):
        output.notice(f"  {number}  {answer.words}")
    numbers = [str(number) for number in range(1, len(question.answers) + 1)]
    while True:
        line = sys.stdin.readline()
        if line.strip() in numbers:
            return question.answers[int(line) - 1]
        wrong = f"{line.strip()!r} is none of {', '.join(numbers)}" if line else "the answers ended"
        if not (line and sys.stdin.isatty()):
            raise InputError(f"question {place}: {wrong}. One line per question, with the number of an answer.")
        output.notice(f"{wrong}: type one of these numbers.")
