"""`tether examples`: what ships with the package, and copies of it to start from."""

import ast
import shutil
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import output
from tether.cli.output import Debug, Json
from tether.errors import InputError, nearest

PACKAGE = Path(__file__).parents[1]
FOLDERS = (PACKAGE / "examples", PACKAGE.parents[1] / "examples")
"""Where a wheel has them, and where a clone does."""

examples = typer.Typer(rich_markup_mode=None, help="List the examples, or copy one to start from.")


def shipped() -> dict[str, Path]:
    """Every example by its name: a script, or a folder of files that belong together."""
    folder = next((place for place in FOLDERS if place.is_dir()), None)
    if folder is None:
        raise InputError("this installation has no examples: install the wheel again, or see the folder examples/.")
    found = {path.stem: path for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    return {name: found[name] for name in sorted(found) if not name.startswith((".", "_"))}


def first_line(path: Path) -> str:
    """What an example is about: the first line of its docstring; of a folder, that of its first script."""
    script = path if path.is_file() else min(path.glob("*.py"))
    return (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").partition("\n")[0]


@examples.callback(invoke_without_command=True)
def listed(context: typer.Context, json: Json = False, debug: Debug = False) -> None:
    """List the examples that ship with Tether."""
    if context.invoked_subcommand is not None:
        return
    with output.plain_failures(debug):
        rows = {name: first_line(path) for name, path in shipped().items()}
        if json:
            output.print_json(rows)
        else:
            output.show_table("examples", ("name", "about"), [list(row) for row in rows.items()])


@examples.command()
def copy(
    name: Annotated[str, typer.Argument(help="An example, as `tether examples` lists it; a part of its name will do.")],
    to: Annotated[Path, typer.Option(help="The folder to copy into.")] = Path(),
    debug: Debug = False,
) -> None:
    """Copy an example here, to run and to change. Nothing is overwritten."""
    with output.plain_failures(debug):
        known = shipped()
        fitting = [name] if name in known else [each for each in known if name in each]
        if len(fitting) != 1:
            several = f"; it may be any of {', '.join(fitting)}." if fitting else nearest(name, list(known))
            raise InputError(f"there is no single example {name!r}{several}")
        source = known[fitting[0]]
        target = to / source.name
        if target.exists():
            raise InputError(f"{target} exists already: move it away, or copy into another folder (--to).")
        to.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
        typer.echo(str(target))
