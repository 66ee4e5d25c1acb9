"""What the command line prints: results on standard output, everything else on standard error."""

import json as json_format
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from tether.errors import InputError, TetherError

EXTRAS = {"pyarrow": "experiments", "matplotlib": "experiments", "plotly": "experiments", "ray": "ray"}
PATIENCE = 4.0
"""Seconds after which kernels are evidently being compiled, not loaded."""


def notice(text: str) -> None:
    """A line for the person, never mixed into the results."""
    typer.echo(text, err=True)


@contextmanager
def plain_failures(debug: bool) -> Iterator[None]:
    """Errors as one sentence and an exit code: 2 for wrong input, 1 for failure, 130 for Ctrl-C."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        notice("stopped. Finished runs are kept; the same command continues.")
        raise typer.Exit(130) from None
    except BrokenPipeError:
        raise typer.Exit(1) from None
    except Exception as error:
        if debug:
            raise
        notice(f"error: {_in_words(error)}")
        raise typer.Exit(2 if isinstance(error, InputError) else 1) from None


def _in_words(error: Exception) -> str:
    if isinstance(error, TetherError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f'this needs {error.name}: pip install "tether-rl[{EXTRAS[error.name]}]".'
    return f"{type(error).__name__}: {error}. This should not happen; --debug shows where."


def print_json(content: Any) -> None:
    """One object, and nothing else, on standard output."""
    typer.echo(json_format.dumps(content, indent=2, ensure_ascii=False))


def show_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table: drawn on a terminal, aligned plain lines in a pipe."""
    if not sys.stdout.isatty():
        widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
        typer.echo(f"\n{title}")
        for row in [headers, *rows]:
            typer.echo("  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(Text(entry) for entry in row))
    Console().print(table)


def merged(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several studies as one object of the same form, with each of them inside."""
    together = ("claims", "table", "failures", "artifacts")
    return {
        "study": "all",
        "seconds": sum(report["seconds"] for report in reports),
        **{key: [entry for report in reports for entry in report[key]] for key in together},
        "studies": list(reports),
    }


def show_reports(whole: dict[str, Any], reports: Sequence[dict[str, Any]], json: bool) -> None:
    """The outcome of studies; exit code 1 if a run failed."""
    if json:
        print_json(whole)
    else:
        for report in reports:
            _show_report(report)
    if whole["failures"]:
        raise typer.Exit(1)


def _show_report(report: dict[str, Any]) -> None:
    show_table(f"{report['study']}: {report['title']}", *_columns(report["table"]))
    if report["claims"]:
        claims = [("holds" if c["holds"] else "FAILS", c["text"], c["evidence"]) for c in report["claims"]]
        show_table("Claims", ("here it", "claim", "evidence"), claims)
    for failure in report["failures"]:
        typer.echo(f"FAILED {failure['agent']}, seed {failure['seed']}: {failure['message']} ({failure['traceback']})")
    show_paths([Path(path) for path in report["artifacts"]], False)
    kept = f" ({report['kept']} kept from before)" if report["kept"] else ""
    typer.echo(f"{report['study']}: {report['ran']} runs{kept} in {report['seconds']:.1f} s")


def _columns(table: Sequence[dict[str, Any]]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows of a study's table: of episodes, or of interaction units."""
    if table and "success_last3" in table[0]:
        heads = ("agent", "agents", "runs", "success, last 3", "return, last 3", "largest expected cost", "violations",
                 "in runs", "falls per run", "cost β", "success by unit")  # fmt: skip
        return heads, [_unit_line(row) for row in table]
    headers = ("agent", "seeds", "reward", "regret", "95% interval", "median", "worst seed", "violations", "in runs")
    rows: list[Sequence[str]] = [
        (
            row["agent"],
            str(row["seeds"]),
            f"{row['reward_mean']:.4f}",
            f"{row['regret_mean']:.1f}",
            f"{row['regret_ci'][0]:.1f} to {row['regret_ci'][1]:.1f}",
            f"{row['regret_median']:.1f}",
            f"{row['regret_worst']:.1f}",
            str(row["violations_total"]),
            str(row["violating_runs"]),
        )
        for row in table
    ]
    return headers, rows


def _unit_line(row: dict[str, Any]) -> Sequence[str]:
    low, high = row["success_last3_ci"]
    return (
        row["agent"],
        str(row["seeds"]),
        str(row["runs"]),
        f"{row['success_last3']:.3f} ({low:.3f} to {high:.3f})",
        f"{row['return_last3']:.2f}",
        f"{row['max_expected_cost']:.4f}",
        str(row["violations_total"]),
        str(row["violating_runs"]),
        f"{row['falls_per_run']:.1f}",
        row["cost_radius_origin"],
        " ".join(f"{value:.2f}" for value in row["success_by_unit"]),
    )


def show_paths(paths: Sequence[Path], json: bool) -> None:
    """Files that were written."""
    if json:
        print_json({"artifacts": [str(path) for path in paths]})
        return
    for path in paths:
        typer.echo(str(path))


def show_catalogue(catalogue: dict[str, list[dict[str, Any]]], json: bool) -> None:
    """What can be named in a spec or on the command line."""
    if json:
        print_json(catalogue)
        return
    for what, entries in catalogue.items():
        if not entries:
            continue
        show_table(what, ("name", "what it is"), [(entry["name"], entry["summary"]) for entry in entries])
        for entry in entries:
            if entry.get("options"):
                rows = [(option["name"], option["type"], option["default"]) for option in entry["options"]]
                show_table(f"options of {entry['name']}", ("option", "type", "default"), rows)


def show_checks(study: str, rows: Sequence[dict[str, Any]], json: bool) -> None:
    """The assumptions, with what was found."""
    if json:
        print_json({"study": study, "checks": list(rows)})
        return
    table = [("holds" if row["holds"] else "FAILS", row["world"], row["assumption"], row["found"]) for row in rows]
    show_table(f"{study}: the spec is valid; assumptions of its worlds", ("", "world", "assumption", "found"), table)
