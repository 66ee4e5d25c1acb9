"""`tether audit`: prove that a log was not altered, compute its decisions again, compare versions, export tables; and
keep it for years: archive, back up, stop. `tether merge`: logs of several sites into one.

Exit codes: 0 all is well; 1 the log was altered, or decisions differ; 2 the input cannot be used.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tether.cli import output
from tether.cli.output import Debug, Json
from tether.errors import AlteredLog, InputError, TetherError

if TYPE_CHECKING:
    from tether.live.log.chain import Head, Store
    from tether.live.log.sql import SqlStore

audit = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Verify, replay, compare, export and keep a live log."
)

Log = Annotated[str, typer.Argument(help="The log: an SQLite file, or postgresql://…")]
KeyFile = Annotated[
    Path | None, typer.Option(help="File with a secret key that archives are signed with.", envvar="TETHER_ARCHIVE_KEY")
]
ProblemName = Annotated[str, typer.Option("--problem", help="module:function of the Problem that the log is about.")]


@audit.command()
def verify(
    log: Log,
    head: Annotated[str, typer.Option(help="A head noted earlier, SEQ:HASH: finds a cut tail or a new chain.")] = "",
    key: KeyFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Prove that no entry was changed, dropped, added or moved, in the log and in its archive."""
    with _failures(debug):
        from tether.live.archive import checker
        from tether.live.log.chain import verify_store

        store = opened(log)
        verdict = verify_store(store, _head(head) if head else None, also=checker(store, _key(key)))
        end, fault = verdict.head, verdict.fault
        if fault is None:
            _check_head(end)
            where = f" ({store.archived()} of them in the archive)" if store.archived() else ""
            lines = [f"{end.seq} entries{where}, none altered. Note this head elsewhere:", f"{end.seq}:{end.hash}"]
        else:
            good = f"The log is good up to entry {end.seq}. Keep the file as it is; restore from a backup."
            lines = [f"ALTERED at entry {fault.seq}: {fault.why}", good]
        found_fault = None if fault is None else {"seq": fault.seq, "why": fault.why}
        output.show(json, {"log": store.identity(), "head": list(end), "fault": found_fault}, lines)
        if fault is not None:
            raise typer.Exit(1)


@audit.command()
def replay(log: Log, problem: ProblemName, json: Json = False, debug: Debug = False) -> None:
    """Compute every decision again from the log, and compare bit for bit."""
    with _failures(debug):
        from tether.problem.problem import load_problem

        store, declared = _filled(log), load_problem(problem)
        from tether.live import audit as audits

        report = audits.replay(store, declared)
        shown = [str(difference) for difference in report.differences]
        names = ("decisions", "outcomes", "different", "versions", "checkpoints")
        counts = {name: getattr(report, name) for name in names}
        lines = [f"{report.decisions} decisions computed again from {report.outcomes} outcomes."]
        if report.versions:
            lines.append(f"{report.versions} of them were made by another version of Tether, its kernels or numpy.")
        if report.checkpoints:
            lines.append(f"{report.checkpoints} checkpoints of archives computed again.")
        lines.append("All are equal, bit for bit." if report.holds else f"{report.different} DIFFER. The first:")
        lines += [f"  {difference}" for difference in shown[:1]]
        output.show(json, {"log": store.identity(), **counts, "differences": shown}, lines)
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

        store, declared = opened(log), load_problem(problem)
        from tether.live import audit as audits

        theirs, until = (None, None) if against is None else audits.read_decisions(against, store.identity())
        until = until or store.head()
        _check_head(until)
        mine = audits.decisions_by_this_version(store, declared, until=until)
        if write is not None:
            audits.write_decisions(mine, write, store.identity(), until)
        found = audits.compare(mine, audits.decisions_in_the_log(store, until) if theirs is None else theirs)
        names = ("decisions", "actions", "reasons", "bounds", "largest", "first")
        counts = (
            f"{found.decisions} decisions: {found.actions} differ in the action, {found.reasons} in the reason, "
            f"{found.bounds} in a bound (by at most {found.largest:.3g})."
        )
        content = {"log": store.identity(), **{name: getattr(found, name) for name in names}}
        output.show(json, content, [counts, f"The first: {found.first}"] if found.first else [counts])
        if not found.same:
            raise typer.Exit(1)


@audit.command()
def report(log: Log, json: Json = False, debug: Debug = False) -> None:
    """What a log says in numbers: how often a_0 was played, and what the proposals gained over it."""
    with _failures(debug):
        from tether.live.audit import summary
        from tether.live.status import Waits

        store = _filled(log)
        found = summary(store)
        counts, compared = found.counts, found.comparisons
        lines = [
            f"{counts.decisions} decisions, {counts.baseline} of them a_0; the mode is {found.mode}.",
            f"{counts.outcomes} outcomes, {counts.costs} with a cost; {counts.refusals} refusals by the gate.",
            *([Waits(found.waiting, found.waiting_for, 0.0).said(0.0)] if found.waiting else []),
            *(f"Comparison {number}: {each}" for number, each in enumerate(compared, start=1)),
        ]
        if counts.over_by_itself:
            lines.append(
                f"{counts.over_by_itself} played actions were drawn and have an own bound over τ, apart from noise: "
                "the limit is on the average over the draw."
            )
        waits = {"waiting": found.waiting, "waiting_for": list(found.waiting_for)}
        shown = {"mode": found.mode, **asdict(counts), **waits, "comparisons": [each.to_json() for each in compared]}
        output.show(json, {"log": store.identity(), **shown}, lines)


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

        counts = write_tables(_filled(log), folder)
        line = f"{counts['decision']} decisions and {counts['outcome']} outcomes in {folder}."
        output.show(json, {"folder": str(folder), **counts}, [line])


@audit.command()
def archive(
    log: Log,
    to: Annotated[Path, typer.Option(help="Folder for the files. It must hold those of earlier runs.")],
    keep: Annotated[float, typer.Option(help="Days that entries stay in the log at least.", min=0.0)] = 7.0,
    key: KeyFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Move old entries to compressed files, from which verify, replay and export read them."""
    with _failures(debug):
        from tether.live.archive import archive as moved

        done = moved(_writable(log), to, before=time.time() - 86400.0 * keep, key=_key(key))
        line = f"Nothing was moved; {done.deleted} rows of an earlier run were deleted."
        if done.files:
            line = (
                f"Entries {done.first} to {done.last} are in {to}: {done.files} files, {done.bytes / 1e6:.1f} MB. "
                f"{done.deleted} rows were deleted; a restart goes on from entry {done.checkpoint}."
            )
        output.show(json, {"folder": str(to), **asdict(done)}, [line, f"No more was moved: {done.why_no_more}."])


@audit.command()
def backup(
    log: Log,
    copy: Annotated[Path, typer.Argument(help="The copy, which must not exist yet.")],
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy an SQLite log while it is written to. The copy is compact, verified, and ends with a stop."""
    with _failures(debug):
        from tether.live.backup import backup as copied

        head = copied(opened(log), copy)
        line = f"{copy} holds the log up to entry {head.seq}, and a stop after it. Its head was"
        output.show(json, {"copy": str(copy), "head": list(head)}, [line, f"{head.seq}:{head.hash}"])


@audit.command()
def stop(
    log: Log,
    why: Annotated[str, typer.Option(help="Why, for those who find it stopped.")],
    by: Annotated[str, typer.Option(help="Who.")] = "tether audit stop",
    debug: Debug = False,
) -> None:
    """Throw the kill switch of a log that no service runs on, such as one that was restored."""
    with _failures(debug):
        from tether.live.backup import stop as thrown

        entry = thrown(_writable(log), by=by, why=why)
        typer.echo(f"Stopped (entry {entry.seq}): only a_0 is played until somebody resumes.")


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

        sources, declared = [opened(log) for log in logs], load_problem(problem)
        from tether.live.advisor import Advisor
        from tether.live.merge import merge as taken
        from tether.live.upkeep import Upkeep

        with Advisor(declared, into, upkeep=Upkeep(refresh=None)) as advisor:
            found = taken(sources, advisor.store, declared)
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


def _filled(log: str) -> "Store":
    """The store of a log that has entries, for reading only."""
    store = opened(log)
    _check_head(store.head())
    return store


def _writable(log: str) -> "SqlStore":
    """The store of a log that exists, to be written to."""
    from tether.live.log import open_store

    with closing(opened(log)):
        pass
    return cast("SqlStore", open_store(log))


def _key(path: Path | None) -> bytes | None:
    """The bytes of a key's file, without white space around them."""
    if path is None:
        return None
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise InputError(f"the key {path} cannot be read: {error.strerror or error}.") from error
    if len(key) < 16:
        raise InputError(f"the key in {path} has {len(key)} bytes: it needs 16 at least, of a random source.")
    return key


def _check_head(head: "Head") -> None:
    """Refuse an empty log: an audit of nothing must not look like a good one."""
    if head.seq == 0:
        raise InputError("this log has no entries: there is nothing to audit. Give the log that an Advisor wrote to.")


def _head(text: str) -> "Head":
    from tether.live.log.chain import Head

    seq, _, digest = text.partition(":")
    if not seq.isdigit() or len(digest) != 64:
        raise InputError(f"--head must be SEQ:HASH as `tether audit verify` prints it, but is {text!r}.")
    return Head(int(seq), digest.lower())
