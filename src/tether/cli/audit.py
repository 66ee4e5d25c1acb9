"""`tether audit`: prove that a log was not altered, compute its decisions again, compare versions, export tables.

Exit codes: 0 all is well; 1 the log was altered, or decisions differ; 2 the input cannot be used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tether.cli import output
from tether.cli.output import Debug, Json
from tether.errors import AlteredLog, InputError, TetherError

if TYPE_CHECKING:
    from tether.live.log.chain import Head, Store

audit = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Verify, replay, compare and export a live log.")

Log = Annotated[str, typer.Argument(help="The log: an SQLite file, or postgresql://…")]
ProblemName = Annotated[str, typer.Option("--problem", help="module:function of the Problem that the log is about.")]


@audit.command()
def verify(
    log: Log,
    head: Annotated[str, typer.Option(help="A head noted earlier, SEQ:HASH: finds a cut tail or a new chain.")] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Prove that no entry was changed, dropped, added or moved."""
    with _failures(debug):
        from tether.live.log.chain import verify_store

        store = opened(log)
        verdict = verify_store(store, _head(head) if head else None)
        if verdict.fault is None:
            _check_head(verdict.head)
        if json:
            fault = None if verdict.fault is None else {"seq": verdict.fault.seq, "why": verdict.fault.why}
            output.print_json({"log": store.identity(), "head": list(verdict.head), "fault": fault})
        elif verdict.fault is None:
            typer.echo(f"{verdict.head.seq} entries, none altered. Note this head elsewhere:")
            typer.echo(f"{verdict.head.seq}:{verdict.head.hash}")
        else:
            typer.echo(f"ALTERED at entry {verdict.fault.seq}: {verdict.fault.why}")
            typer.echo(
                f"The log is good up to entry {verdict.head.seq}. Keep the file as it is; restore from a backup."
            )
        if verdict.fault is not None:
            raise typer.Exit(1)


@audit.command()
def replay(log: Log, problem: ProblemName, json: Json = False, debug: Debug = False) -> None:
    """Compute every decision again from the log, and compare bit for bit."""
    with _failures(debug):
        from tether.problem.problem import load_problem

        store, told = opened(log), load_problem(problem)
        from tether.live import audit as audits

        _check_head(store.head())
        report = audits.replay(store, told)
        if json:
            shown = [str(difference) for difference in report.differences]
            counts = {name: getattr(report, name) for name in ("decisions", "outcomes", "different", "versions")}
            output.print_json({"log": store.identity(), **counts, "differences": shown})
        else:
            typer.echo(f"{report.decisions} decisions computed again from {report.outcomes} outcomes.")
            if report.versions:
                typer.echo(f"{report.versions} of them were made by another version of Tether, its kernels or numpy.")
            typer.echo("All are equal, bit for bit." if report.holds else f"{report.different} DIFFER. The first:")
            for difference in report.differences[:1]:
                typer.echo(f"  {difference}")
        if not report.holds:
            raise typer.Exit(1)


@audit.command()
def diff(
    log: Log,
    problem: ProblemName,
    against: Annotated[
        Path | None, typer.Option(help="Decisions that another version wrote; the log's own else.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write this version's decisions here, for the other version.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare the decisions of this version with those of another, or with the log's own."""
    with _failures(debug):
        from tether.problem.problem import load_problem

        store, told = opened(log), load_problem(problem)
        from tether.live import audit as audits

        theirs, until = (None, None) if against is None else audits.read_decisions(against, store.identity())
        until = _check_head(until or store.head())
        mine = audits.decisions_by_this_version(store, told, until=until)
        if write is not None:
            audits.write_decisions(mine, write, store.identity(), until)
        found = audits.compare(mine, audits.decisions_in_the_log(store, until) if theirs is None else theirs)
        if json:
            names = ("decisions", "actions", "reasons", "bounds", "largest", "first")
            output.print_json({"log": store.identity(), **{name: getattr(found, name) for name in names}})
        else:
            typer.echo(
                f"{found.decisions} decisions: {found.actions} differ in the action, {found.reasons} in the reason, "
                f"{found.bounds} in a bound (by at most {found.largest:.3g})."
            )
            if found.first:
                typer.echo(f"The first: {found.first}")
        if not found.same:
            raise typer.Exit(1)


@audit.command()
def report(log: Log, json: Json = False, debug: Debug = False) -> None:
    """What a log says in numbers: how often a_0 was played, and what the proposals gained over it."""
    with _failures(debug):
        from dataclasses import asdict

        from tether.live.audit import summary

        store = opened(log)
        _check_head(store.head())
        found = summary(store)
        if json:
            told = {"mode": found.mode, **asdict(found.counts)}
            told["comparisons"] = [each.to_json() for each in found.comparisons]
            output.print_json({"log": store.identity(), **told})
            return
        counts = found.counts
        typer.echo(f"{counts.decisions} decisions, {counts.baseline} of them a_0; the mode is {found.mode}.")
        typer.echo(f"{counts.outcomes} outcomes, {counts.costs} with a cost; {counts.refusals} refusals by the gate.")
        for number, each in enumerate(found.comparisons, start=1):
            typer.echo(f"Comparison {number}: {each}")


@audit.command()
def export(
    log: Log,
    folder: Annotated[Path, typer.Argument(help="Folder for decisions.parquet and outcomes.parquet.")],
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write decisions and outcomes as Parquet tables."""
    with _failures(debug):
        from tether.live.audit import export as write_tables

        store = opened(log)
        _check_head(store.head())
        counts = write_tables(store, folder)
        if json:
            output.print_json({"folder": str(folder), **counts})
        else:
            typer.echo(f"{counts['decision']} decisions and {counts['outcome']} outcomes in {folder}.")


@contextmanager
def _failures(debug: bool) -> Iterator[None]:
    """Errors as everywhere, but 1 says that the log was altered: a server that is down must not raise that alarm."""
    with output.plain_failures(debug):
        try:
            yield
        except AlteredLog:
            raise
        except TetherError as error:
            raise InputError(str(error)) from error


def opened(log: str) -> "Store":
    """The store, for reading only: an audit makes no new one, and leaves every byte as it is."""
    from tether.live.log import POSTGRES, open_store

    if not log.startswith(POSTGRES) and not Path(log).is_file():
        raise InputError(f"there is no log at {log}: give the SQLite file of an Advisor, or postgresql://…")
    return open_store(log, read_only=True)


def _check_head(head: "Head") -> "Head":
    """The head, unless it is that of an empty log: an audit of nothing must not look like a good one."""
    if head.seq == 0:
        raise InputError("this log has no entries: there is nothing to audit. Give the log that an Advisor wrote to.")
    return head


def _head(text: str) -> "Head":
    from tether.live.log.chain import Head

    seq, _, digest = text.partition(":")
    if not seq.isdigit() or len(digest) != 64:
        raise InputError(f"--head must be SEQ:HASH as `tether audit verify` prints it, but is {text!r}.")
    return Head(int(seq), digest.lower())
