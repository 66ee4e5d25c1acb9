"""`tether merge`: logs of several sites into one, for one certified learner."""

from dataclasses import asdict
from typing import Annotated

import typer

from tether.cli import output
from tether.cli.audit import ProblemName, opened
from tether.cli.output import Debug, Json


def merge(
    logs: Annotated[list[str], typer.Argument(help="Logs of sites with one γ*: SQLite files, or postgresql://…")],
    into: Annotated[str, typer.Option(help="The log that learns from all of them; made if there is none.")],
    problem: ProblemName,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Take the outcomes of several sites into one log, in one order, each once."""
    with output.plain_failures(debug):
        from tether.problem.problem import load_problem

        sources, told = [opened(log) for log in logs], load_problem(problem)
        from tether.live.advisor import Advisor
        from tether.live.merge import merge as taken

        with Advisor(told, into, refresh=None) as advisor:
            found = taken(sources, advisor.store, told)
            advisor.sync()
            outcomes = advisor.status().data_version
        counts = zip(logs, found.used, found.read, strict=True)
        lines = [f"{log}: {used} of {read} decisions" for log, used, read in counts]
        lines.append(f"{found.new} outcomes are new; the learner of {into} rests on {outcomes}.")
        if found.lost:
            lines.append(f"{found.lost} outcomes were lost, and are taken as lost by chance.")
        if found.waits_for:
            lines.append(f"The rest waits for the outcome of decision {found.waits_for}.")
        output.show(json, {"into": into, **asdict(found), "data_version": outcomes}, lines)
