"""`tether twins`: how well the alarms notice that a model is wrong, on the misspecified twins of three worlds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tether.cli import output

if TYPE_CHECKING:
    from tether.lab.claims import Claim
    from tether.lab.studies.twins import TwinRow


def twins(
    quick: Annotated[bool, typer.Option("--quick", help="Few seeds and episodes.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("out"),
    workers: Annotated[int | None, typer.Option(min=0, help="Processes; all cores unless given.")] = None,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the figure.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Play worlds whose cost model is wrong, and count what the alarms notice and what is broken before."""
    with output.plain_failures(debug):
        from tether.lab import storage
        from tether.lab.engines import make_engine
        from tether.lab.studies import twins as twin_study

        episodes = twin_study.QUICK_EPISODES if quick else twin_study.EPISODES
        count = twin_study.QUICK_SEEDS if quick else twin_study.SEEDS
        runs = twin_study.measure(episodes, range(seed, seed + count), make_engine("local", workers))
        folder = out / ("twins-quick" if quick else "twins")
        paths, table = [twin_study.save(runs, folder)], twin_study.rows(runs)
        if figures:
            from tether.lab.plots import FORMATS, render

            for kind, content in render(twin_study.chart(runs), tuple(FORMATS)).items():
                paths.append(folder / f"twins.{kind}")
                storage.write_atomically(paths[-1], content)
        _show(table, twin_study.claims(table), paths, json)


def _show(table: "list[TwinRow]", claims: "list[Claim]", paths: list[Path], json: bool) -> None:
    """The table, the verdicts and the files; or all of it as one object."""
    if json:
        told = {"table": [row.as_dict() for row in table], "claims": [claim.as_dict() for claim in claims]}
        output.print_json({"study": "twins", **told, "artifacts": [str(path) for path in paths]})
        return
    heads = ("world", "costs", "watch", "tripped", "steps until", "violations without", "with", "worst cost / τ")
    lines = [
        (
            row.world,
            "twin's" if row.twin else "true",
            row.watch,
            f"{row.tripped} of {row.runs}",
            "" if row.median_steps is None else f"{row.median_steps:.0f}",
            f"{row.violations_without:.1f}",
            f"{row.violations_with:.1f}",
            f"{row.worst_cost:.2f}",
        )
        for row in table
    ]
    output.show_table("twins: what the alarms notice, per run", heads, lines)
    verdicts = [("holds" if claim.holds else "FAILS", claim.text, claim.evidence) for claim in claims]
    output.show_table("Claims", ("here it", "claim", "evidence"), verdicts)
    output.show_paths(paths, False)
