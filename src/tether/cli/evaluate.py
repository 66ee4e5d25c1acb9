"""`tether evaluate`: what another policy would have earned, from a log of an Advisor or from a table."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tether.cli import output
from tether.cli.audit import opened
from tether.cli.output import Debug, Json
from tether.errors import InputError

if TYPE_CHECKING:
    from tether.check.evaluate import Evaluation, Logged
    from tether.problem.problem import Problem

TABLES = (".csv", ".npz", ".parquet")


def evaluate(
    log: Annotated[
        str, typer.Argument(help="A log (an SQLite file, postgresql://…), or a table: .csv, .npz, .parquet.")
    ],
    policy: Annotated[
        str,
        typer.Option(
            help="proposal, baseline, or module:function, state -> action; of a table, the column with its "
            "probability of what was played."
        ),
    ],
    problem: Annotated[str, typer.Option(help="module:function of the Problem; a log of an Advisor needs it.")] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Estimate what a policy would have earned (IPS, SNIPS, DR), if the log overlaps with it, and its linear value."""
    with output.plain_failures(debug):
        from tether.check.evaluate import evaluate as estimated
        from tether.check.evaluate import linear_value
        from tether.problem.problem import load_problem

        declared = load_problem(problem) if problem else None
        everything, drawn = _read(log, policy, declared)
        found, linear, why = estimated(drawn), None, "it needs --problem."
        if declared is not None:
            try:
                linear = linear_value(declared, everything)
            except InputError as error:
                why = str(error)
        lines = _lines(found)
        if linear is None:
            lines.append(f"No linear value: {why}")
        else:
            lines.append(
                f"If rewards are linear with noise {linear.noise:g}: value {_interval(linear.value)}"
                + ("" if linear.gain is None else f", gain over a_0 {_interval(linear.gain)}")
                + f", with probability {linear.confidence:g}; contexts as logged."
            )
        estimates = {**asdict(found), "linear": None if linear is None else asdict(linear), "no_linear": why}
        output.show(json, {"log": log, "policy": policy, **estimates}, lines)


def _read(log: str, policy: str, problem: "Problem | None") -> "tuple[Logged, Logged]":
    """All decisions, and those to be weighted: of an Advisor's log, those that were drawn, if any were."""
    if log.endswith(TABLES):
        from tether.check.evaluate import logged_table
        from tether.check.logs import read_columns

        table = logged_table(read_columns(Path(log)), policy)
        return table, table
    if problem is None:
        raise InputError("a log of an Advisor is evaluated with its problem: give --problem module:function.")
    from tether.live.audit import logged

    everything = logged(opened(log), problem, _policy(policy))
    drawn = everything.propensity < 1.0
    return everything, everything.where(drawn) if drawn.any() else everything


def _policy(name: str) -> Any:
    """The policy behind a name; whatever it raises is the caller's."""
    if name in ("proposal", "baseline"):
        return name
    if ":" not in name:
        raise InputError(f"--policy is proposal, baseline or module:function, but is {name!r}.")
    from tether.problem.problem import load_name

    function: Callable[[Any], Any] = load_name(name)

    def asked(state: Any) -> Any:
        try:
            return function(state)
        except Exception as error:
            raise InputError(f"{name} failed in state {state!r:.120}: {type(error).__name__}: {error}.") from error

    return asked


def _lines(found: "Evaluation") -> list[str]:
    missing = f" ({found.missing} more have none: taken as missing by chance)" if found.missing else ""
    lines = [f"{found.decisions} decisions with a reward{missing}, {found.observed:.6g} on average."]
    if found.refused:
        return [*lines, f"No weighted estimate: {found.refused}"]
    lines += [f"{each.name:<6}{each.value:>12.6g}  ± {each.error:.2g}" for each in found.estimates]
    return [
        *lines,
        f"± is one standard error, for one look; the weights say as much as {found.effective:.0f} equal ones.",
    ]


def _interval(value: tuple[float, float, float]) -> str:
    return f"{value[0]:.4g} ({value[1]:.4g} to {value[2]:.4g})"
