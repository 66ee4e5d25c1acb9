"""`tether`: parses, calls, prints. Whatever takes time to import is imported by the command that needs it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tether.cli import output
from tether.cli.audit import audit, merge
from tether.cli.evaluate import evaluate
from tether.cli.examples import examples
from tether.cli.output import Debug, Json
from tether.cli.serve import serve, token
from tether.errors import TetherError, nearest
from tether.problem.limit_on import CAVEAT

if TYPE_CHECKING:
    from tether.lab.books import Results

app = typer.Typer(
    name="tether",
    help="Reinforcement learning that keeps the expected cost of every step under a threshold while it learns.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(audit, name="audit")
app.add_typer(token, name="token")
app.add_typer(examples, name="examples")
app.command()(serve)
app.command()(evaluate)
app.command()(merge)
FIGURES = {
    "figure1": "SLUCB-QVI on synthetic environments (section 5.1)",
    "figure2": "RSLUCB-QVI on Frozen Lake (section 5.2)",
}

PARTS = {"league": ("league", "league-mdp", "league-axes")}
"""Studies that run together under one name: bandits and planners have other sizes."""


def _studies() -> list[str]:
    """The paper's figures, and the other studies that ship."""
    from tether.lab import specs

    return [*FIGURES, *(name for name in specs.shipped() if name not in FIGURES)]


def _complete(incomplete: str) -> list[str]:
    return [name for name in (*_studies(), "all") if name.startswith(incomplete)]


def _folder(out: Path, name: str, quick: bool) -> Path:
    return out / (f"{name}-quick" if quick else name)


Seed = Annotated[int | None, typer.Option(min=0, help="First seed; the spec's unless given.")]
Out = Annotated[Path, typer.Option(help="Folder for results; each study has one of its own inside.")]
Workers = Annotated[
    int | None, typer.Option(min=0, help="Processes; all cores unless given. 0 runs in this process, for debuggers.")
]
EngineName = Annotated[str, typer.Option("--engine", help="local or ray.")]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster to join, e.g. auto; a local one is started unless given.")
]
Pictures = Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the figures and write the report.")]
Folders = Annotated[list[Path] | None, typer.Argument(help="Study folders; every study in --out unless given.")]


@app.callback(invoke_without_command=True)
def _version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if show:
        from tether import __version__

        typer.echo(f"tether {__version__}")
        raise typer.Exit


@app.command()
def reproduce(
    figure: Annotated[
        str, typer.Argument(help="figure1, figure2, another shipped study, or all figures.", autocompletion=_complete)
    ] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="Few seeds and episodes: seconds instead of minutes.")] = False,
    seed: Seed = None,
    out: Out = Path("out"),
    workers: Workers = None,
    engine: EngineName = "local",
    address: Address = None,
    also: Annotated[
        list[str] | None, typer.Option(help="A registered agent to run beside the study's own; may be repeated.")
    ] = None,
    agent: Annotated[list[str] | None, typer.Option(help="Only this agent, by name or label; may be repeated.")] = None,
    world: Annotated[list[str] | None, typer.Option(help="Only this world, by label; may be repeated.")] = None,
    with_cisr: Annotated[
        bool, typer.Option("--with-cisr", help="Train CISR's students anew for figure 2; needs tether-rl[cisr].")
    ] = False,
    figures: Pictures = True,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run the paper's studies, judge its claims, draw its figures."""
    if figure not in (known := [*_studies(), "all"]):
        raise typer.BadParameter(f"there is no {figure!r}{nearest(figure, known)}")
    with output.plain_failures(debug):
        from tether.cli.study import Conducted, conduct, show
        from tether.lab import specs
        from tether.lab.engines import make_engine

        studies = [specs.paper_study(name) for name in (FIGURES if figure == "all" else PARTS.get(figure, (figure,)))]
        asked = [study for study in studies if not world or set(world) & set(study.world_labels)] or studies[:1]
        made = make_engine(engine, workers, address)
        conducted: list[Conducted] = []
        for study in asked:
            study = study.narrowed((), world or ()).resized(quick=quick, first_seed=seed).joined_by(also or [])
            folder = _folder(out, study.name, quick)
            if with_cisr and study.name == "figure2":
                from tether.lab.studies.figure2 import train_cisr

                train_cisr(folder, quick)
            if study.name in PARTS["league"]:
                from tether.lab.studies import league

                try:
                    study = league.prepared(study, folder, made, quick, agent or [])
                except league.Absent:  # a bandit rule does not plan: it plays in another study of the league
                    if study.name == asked[-1].name and not conducted:
                        raise
                    continue
            else:
                study = study.narrowed(agent or (), ())
            conducted.append(conduct(study, folder, made, figures))
        show(conducted, merged=len(conducted) > 1, json=json)


@app.command()
def run(
    spec: Annotated[str, typer.Argument(help="A study in a TOML file, or the name of a shipped one.")],
    quick: Annotated[bool, typer.Option("--quick", help="The spec's quick sizes.")] = False,
    seed: Seed = None,
    out: Out = Path("out"),
    workers: Workers = None,
    engine: EngineName = "local",
    address: Address = None,
    figures: Pictures = True,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a study from a TOML file, or continue it."""
    with output.plain_failures(debug):
        from tether.lab import specs

        study = specs.find(spec).resized(quick=quick, first_seed=seed)
        from tether.cli.study import conduct, show
        from tether.lab.engines import make_engine

        done = conduct(study, _folder(out, study.name, quick), make_engine(engine, workers, address), figures)
        show([done], merged=False, json=json)


@app.command()
def twins(
    quick: Annotated[bool, typer.Option("--quick", help="Few seeds and episodes.")] = False,
    seed: Seed = None,
    out: Out = Path("out"),
    workers: Workers = None,
    figures: Pictures = True,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure the alarms on worlds whose cost model is wrong: the same as `tether reproduce twins`."""
    reproduce("twins", quick=quick, seed=seed, out=out, workers=workers, figures=figures, json=json, debug=debug)


@app.command(name="list")
def list_(json: Json = False, debug: Debug = False) -> None:
    """Name the worlds, agents and figures, with their options."""
    with output.plain_failures(debug):
        from tether.cli.study import show_catalogue

        show_catalogue(FIGURES, json)


@app.command()
def plot(folders: Folders = None, out: Out = Path("out"), json: Json = False, debug: Debug = False) -> None:
    """Draw the figures of finished studies again."""
    with output.plain_failures(debug):
        from tether.lab.report import draw

        paths = [path for loaded in _loaded(folders, out) for path in draw(loaded, loaded.folder / "figures")]
        output.show_paths(paths, json)


@app.command()
def report(folders: Folders = None, out: Out = Path("out"), json: Json = False, debug: Debug = False) -> None:
    """Write one self-contained HTML page about finished studies."""
    with output.plain_failures(debug):
        from tether.lab.report import write

        output.show_paths([write(_loaded(folders, out), out / "report.html")], json)


def _loaded(folders: list[Path] | None, out: Path) -> "list[Results]":
    """The given studies, or all that `out` holds."""
    from tether.lab.books import MANIFEST, load

    found = folders or sorted(path.parent for path in out.glob(f"*/{MANIFEST}"))
    if not found:
        raise TetherError(f"{out} holds no study: run `tether reproduce figure1` first, or name a folder.")
    return [load(folder) for folder in found]


@app.command()
def check(
    spec: Annotated[
        str | None, typer.Argument(help="A study (TOML file or shipped name), or module:problem, your own.")
    ] = None,
    wizard: Annotated[bool, typer.Option("--wizard", help="Ask what you know, say which Problem to declare.")] = False,
    seed: Seed = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Logged outcomes of your problem: .npz, .csv, .parquet, or the folder of an export."),
    ] = None,
    plays: Annotated[int, typer.Option(min=1, help="Steps to play where a Bridge is checked without a log.")] = 1000,
    explore: Annotated[
        bool,
        typer.Option("--explore/--no-explore", help="Play certified actions, too: --no-explore for real equipment."),
    ] = True,
    steps: Annotated[int, typer.Option(min=1, help="Steps of safe play that you can afford at first.")] = 10_000,
    level: Annotated[float | None, typer.Option(help="Level of the tests on the log; δ unless given.")] = None,
    limit_on: Annotated[
        str, typer.Option(help=f"'single actions', or 'average over draws': {CAVEAT}.")
    ] = "single actions",
    pooled: Annotated[bool, typer.Option("--pooled", help="Costs do not depend on the step h.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Test the assumptions of a study's worlds, or of your own problem. Exit code 3: nothing could be examined."""
    if (spec is None) != wizard:
        raise typer.BadParameter(
            "name a study or a problem (module:problem) to check, or ask for --wizard, which takes none."
        )
    with output.plain_failures(debug):
        from tether.cli import check as checking

        if spec is None:
            code = 0 if checking.by_questions(json) else 1
        elif checking.names_a_problem(spec):
            playing = {"plays": plays, "explore": explore, "seed": seed or 0}
            options = {"steps": steps, "level": level, "limit_on": limit_on, "pooled": pooled}
            code = checking.of_problem(spec, log, json, playing, **options)
        else:
            code = 0 if checking.of_study(spec, seed, json) else 1
        if code:
            raise typer.Exit(code)


@app.command()
def bench(json: Json = False, debug: Debug = False) -> None:
    """Measure speed and memory by ratio; needs a source checkout."""
    with output.plain_failures(debug):
        import tether

        script = Path(tether.__file__).parents[2] / "benchmarks" / "run.py"
        if not script.is_file():
            raise TetherError("bench needs a source checkout: benchmarks/ is not part of the installed package.")
        raise typer.Exit(
            subprocess.run([sys.executable, script, *(["--json"] if json else [])], check=False).returncode
        )


def main(run_app: Callable[[], None] = app) -> None:
    """The entry point: one BLAS thread (small matrices run slower on more), then the command."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    run_app()


if __name__ == "__main__":
    main()
