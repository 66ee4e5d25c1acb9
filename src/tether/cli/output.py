"""What the command line prints: results on standard output, everything else on standard error."""

import json as json_format
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tether.errors import InputError, TetherError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

EXTRAS = {"pyarrow": "experiments", "matplotlib": "experiments", "plotly": "experiments", "ray": "ray"}
STOPPED = "stopped. Finished runs are kept; the same command continues."


def notice(text: str) -> None:
    """A line for the person, never mixed into the results."""
    typer.echo(text, err=True)


@contextmanager
def plain_failures(debug: bool, *, stopped: str = STOPPED) -> Iterator[None]:
    """Errors as one sentence and an exit code: 2 for wrong input or a missing package, 1 for failure, 130: Ctrl-C."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        notice(stopped)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        raise typer.Exit(1) from None
    except Exception as error:
        if debug:
            raise
        notice(f"error: {_in_words(error)}")
        raise typer.Exit(2 if isinstance(error, InputError | ImportError) else 1) from None


def _in_words(error: Exception) -> str:
    if isinstance(error, TetherError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f'this needs {error.name}: pip install "tether-rl[{EXTRAS[error.name]}]".'
    return f"{type(error).__name__}: {error}. This should not happen; --debug shows where."


def print_json(content: Any) -> None:
    """One object, and nothing else, on standard output."""
    typer.echo(json_format.dumps(content, indent=2, ensure_ascii=False))


def show(json: bool, content: dict[str, Any], lines: Iterable[str]) -> None:
    """A result: one JSON object, or lines for people."""
    if json:
        print_json(content)
        return
    for line in lines:
        typer.echo(line)


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


def show_paths(paths: Sequence[Path], json: bool) -> None:
    """Files that were written."""
    named = [str(path) for path in paths]
    show(json, {"artifacts": named}, named)
