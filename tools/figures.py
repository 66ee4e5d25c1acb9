"""Write every figure of README and docs from stored results: no one types a number there.

    python tools/figures.py run figure2      # run the study or script (it goes on where it stopped), store, write
    python tools/figures.py run benchmarks   # the scripts of benchmarks/, about ten minutes on two quiet cores
    python tools/figures.py run all          # every source that needs no environment of its own: `make figures`
    python tools/figures.py store figure2    # only take the numbers and pictures of out/figure2
    python tools/figures.py write            # only write the pages from docs/results
    python tools/figures.py check            # say which pages and stored results differ; exit code 1 if any does
    python tools/figures.py outputs          # run the code blocks whose output a page shows, and write it
    python tools/figures.py run all --environment real   # the sources that need `make real`'s packages

A page holds three kinds of marks, which neither GitHub, PyPI nor MkDocs show:

    <!-- figures: figure2 -->              the table "table" of docs/results/figure2.json, and the command that makes it
    <!-- figures: learning.best -->        another table of a file
    <!-- /figures -->                      the end of either
    <!-- =figure2.rows.a0-alone.seeds -->10<!-- / -->              one value, by its place in the file
    <!-- =figure2.rows.a0-alone.success_last3 .1% -->0.0%<!-- / -->   the same with a format of Python
    <!-- output --> ... <!-- /output -->   the whole output of the Python block above it
    <!-- output: varies --> ...            the same, where each run has other numbers
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
STORED = DOCS / "results"
MOST_BYTES = 1_000_000
DIGITS = 7
"""Significant digits of a stored number: more than any page shows."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A command whose results are shown.

    A study's command begins with `tether` and ends with the study's name. A script prints one JSON object with `tables`
    ({name: {"heads": [...], "lines": [[...], ...]}}), `values` (numbers and texts by name) and `sizes` (a sentence).
    """

    command: str
    pictures: Mapping[str, str] = field(default_factory=dict)
    """Files in docs. Of a study, also which file of its folder `figures` each is. A script writes them there."""
    fails: tuple[str, ...] = ()
    """Ids of claims that fail, and are shown to fail."""
    environment: str = ""
    """The environment of the Makefile that it needs, if not the first."""
    prints: bool = True
    """Whether a script prints JSON, or draws pictures alone."""
    flags: tuple[str, ...] = ()
    """Of a script: what it takes besides to print JSON."""

    @property
    def is_study(self) -> bool:
        """Whether `tether` runs it."""
        return self.command.startswith("tether ")


def same(*names: str) -> dict[str, str]:
    """Pictures that have the same name in docs."""
    return {f"{name}.png": f"{name}.png" for name in names}


BENCHMARKS = {
    "options": "assumptions.py",
    "lost-outcomes": "lost_outcomes.py",
    "rounded-costs": "rounded_costs.py",
    "drift": "drift.py",
    "realised": "realised.py",
    "yes-no": "yes_no.py",
    "monitor": "monitor_delay.py",
    "false-declarations": "false_declarations.py",
    "lock-in": "lock_in.py",
    "live-decide": "live_decide.py",
    "live-http": "live_http.py --postgres",
    "live-stop": "live_stop.py",
    "live-archive": "live_archive.py",
    "continuous": "continuous.py",
}
"""Scripts that print JSON with --json, and by whose figures a user decides: `make figures-benchmarks`."""
WATCHES = ("a test per step", "one pooled test")
GALLERY = ("synthetic", "dosing", "heating", "ad-load", "bottling", "cliff", "taxi", "pendulum", "frozen-lake")
SOURCES = {
    "figure1": Source(command="tether reproduce figure1", pictures=same("figure1"), fails=("slucb-zero-violations",)),
    "figure2": Source(
        command="tether reproduce figure2",
        pictures=same("figure2", "figure2-lake"),
        fails=("zero-falls", "text-literal-learns-nothing"),
    ),
    "figure2-readings": Source(
        command="tether reproduce figure2-readings",
        fails=("zero-falls", "text-literal-learns-nothing", "theory-small-violates", "expected-cost-bernoulli"),
    ),
    "learning": Source(command="tether reproduce learning", fails=("slucb-zero-violations",)),
    "learning-wide": Source(command="tether reproduce learning-wide"),
    "learning-grid": Source(command="tether reproduce learning-grid"),
    "worlds": Source(
        command="tether reproduce worlds", pictures=same("worlds-dosing", "worlds-heating", "worlds-ad-load")
    ),
    "twins": Source(
        command="tether reproduce twins",
        pictures=same("twins"),
        fails=(
            *(f"in-time@{world}, {watch}" for world in ("dosing", "heating", "ad-load") for watch in WATCHES),
            "twin-noticed@ad-load, a test per step",
        ),
    ),
    "league": Source(
        command="tether reproduce league",
        pictures={
            **same("league-overall", "league-pareto", "league-profiles"),
            "league-anchors.png": "anchor-hutchinson-large-b.png",
        },
        environment="real",
    ),
    "league-mdp": Source(
        command="tether reproduce league-mdp",
        pictures=same("league-mdp-overall", "league-mdp-pareto", "league-mdp-profiles"),
        environment="real",
    ),
    "league-axes": Source(command="tether reproduce league-axes", pictures=same("league-axes"), environment="real"),
    "real": Source(
        command="tether reproduce real",
        pictures=same("real-motor", "real-motor-twin", "real-reactor", "real-buildings", "real-bolus"),
        environment="real",
    ),
    "real-buildings": Source(
        command="tether reproduce real-buildings", pictures=same("real-buildings-map"), environment="real"
    ),
    "real-patients": Source(
        command="tether reproduce real-patients",
        pictures=same("real-patients-map"),
        fails=("no-loss",),
        environment="real",
    ),
    "examples": Source(command="python benchmarks/examples.py"),
    "defaults": Source(command="python benchmarks/learn_defaults.py --seeds 2", flags=("--json",)),
    "gallery": Source(
        command="python tools/gallery.py docs/gallery",
        pictures=same(*(f"gallery/{name}" for name in GALLERY)),
        prints=False,
    ),
    "safe-set": Source(
        command="python examples/safe_set.py docs/safe-set.gif", pictures={"safe-set.gif": "safe-set.gif"}, prints=False
    ),
    "motor": Source(command="python benchmarks/motor.py", environment="real"),
    "cisr": Source(command="python -m tether.lab.cisr.curves"),
    "bottling": Source(command="python benchmarks/yes_no.py --world"),
    **{name: Source(command=f"python benchmarks/{script}", flags=("--json",)) for name, script in BENCHMARKS.items()},
}
"""Every command whose figures a page shows: add yours here."""


# Results to small files


def run(name: str, out: Path, stored: Path, quick: bool) -> None:
    """Run a source, and store what it found."""
    source = SOURCES[name]
    if source.is_study:
        command = [sys.executable, "-m", "tether", *source.command.split()[1:], "--no-figures", "--out", str(out)]
        subprocess.run(command + (["--quick"] if quick else []), check=True, cwd=ROOT)
        store(name, out, stored, quick)
    else:
        command = [sys.executable, *source.command.split()[1:], *source.flags, *(["--quick"] if quick else [])]
        said = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
        drawn = {here: hashlib.sha256((stored.parent / here).read_bytes()).hexdigest() for here in source.pictures}
        keep(name, {**(json.loads(said) if source.prints else {}), "pictures": drawn}, stored, quick)


def store(name: str, out: Path, stored: Path, quick: bool) -> None:
    """Take a study's tables, rows, runs, claims and pictures from its folder."""
    from tether.lab import report
    from tether.lab import stored as lab
    from tether.lab.books import load

    source, folder = SOURCES[name], out / (f"{name}-quick" if quick else name)
    results = load(folder)
    if results.missing:
        sys.exit(f"{folder} lacks {len(results.missing)} runs: run `{source.command}` first.")
    found = lab.stored(results)
    pictures: dict[str, str] = {}
    if source.pictures:
        report.draw(results, folder / "figures")
    for here, there in source.pictures.items():
        data = (folder / "figures" / there).read_bytes()
        pictures[here] = hashlib.sha256(data).hexdigest()
        shutil.copyfile(folder / "figures" / there, stored.parent / here)
    keep(name, {**found, "pictures": pictures}, stored, quick)


def keep(name: str, found: Mapping[str, Any], stored: Path, quick: bool) -> None:
    """Write a stored file, one line per entry of the second level."""
    from tether import __version__

    whole = {"command": SOURCES[name].command, "version": __version__, "quick": quick, **rounded(found)}
    text = laid_out(whole) + "\n"
    if len(text.encode()) > MOST_BYTES:
        sys.exit(f"{name}: {len(text.encode()):,} bytes, but a stored file has at most {MOST_BYTES:,}: store less.")
    stored.mkdir(parents=True, exist_ok=True)
    (stored / f"{name}.json").write_text(text, "utf-8")


def laid_out(value: Any, depth: int = 0) -> str:
    """JSON with a line per line of a table, per row and per claim, so that a change of one is a change of one line."""
    if not isinstance(value, dict | list) or not value or depth > 3 or not holds_more(value):
        return json.dumps(value, ensure_ascii=False)
    pairs = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    named = (
        ("" if key is None else f"{json.dumps(key, ensure_ascii=False)}: ") + laid_out(each, depth + 1)
        for key, each in pairs
    )
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{' ' * (depth + 1)}" + f",\n{' ' * (depth + 1)}".join(named) + f"\n{' ' * depth}{last}"


def holds_more(value: Any) -> bool:
    """Whether something in it holds something."""
    return any(isinstance(each, dict | list) for each in (value.values() if isinstance(value, dict) else value))


def rounded(value: Any) -> Any:
    """Plain data with numbers of `DIGITS` digits."""
    if isinstance(value, Mapping):
        return {str(key): rounded(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [rounded(each) for each in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.{DIGITS}g}")
    return value


def read(name: str, stored: Path = STORED) -> dict[str, Any]:
    """One stored file."""
    try:
        found: dict[str, Any] = json.loads((stored / f"{name}.json").read_text("utf-8"))
    except FileNotFoundError:
        raise KeyError(f"docs/results/{name}.json does not exist: `make figures-{name}` makes it") from None
    return found


# Small files to pages

BLOCK = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- /figures -->)", re.DOTALL)
VALUE = re.compile(r"(<!-- =(\S+)(?: (\S+))? -->)(.*?)(<!-- / -->)")
OUTPUT = re.compile(
    r"(```python\n((?:(?!```).)*?)```\n(?:(?!```).)*?<!-- output(: varies)? -->\n)(.*?)(<!-- /output -->)", re.DOTALL
)


def pages(root: Path = ROOT) -> list[Path]:
    """Where marks may stand."""
    wizard = root / "src" / "tether" / "check" / "wizard.py"  # which prints a table of docs/choosing.md
    return [root / "README.md", *([wizard] if wizard.exists() else []), *sorted((root / "docs").glob("*.md"))]


def written(text: str, stored: Callable[[str], dict[str, Any]] = read, missing: list[str] | None = None) -> str:
    """A page with its blocks and values as the stored results say.

    A mark that leads nowhere is a KeyError, or with `missing` is named there and stays as it is.
    """

    def filled(mark: re.Match[str], content: Callable[[], str]) -> str:
        try:
            return mark[1] + content() + mark[len(mark.groups())]
        except KeyError as error:
            if missing is None:
                raise
            missing.append(str(error.args[0]))
            return mark[0]

    text = BLOCK.sub(lambda mark: filled(mark, lambda: block(mark[2], stored)), text)
    return VALUE.sub(lambda mark: filled(mark, lambda: value(mark[2], mark[3] or "", stored)), text)


def block(place: str, stored: Callable[[str], dict[str, Any]]) -> str:
    """A table, and the command that makes it."""
    name, _, which = place.partition(".")
    found = stored(name)
    try:
        table = found["tables"][which or "table"]
    except KeyError:
        raise KeyError(f"{name}.json has no table {which or 'table'!r}; it has {', '.join(found['tables'])}") from None
    return f"{markdown(table['heads'], table['lines'])}\n{made_by(found)}\n"


def made_by(found: Mapping[str, Any]) -> str:
    """The line below a table."""
    sizes = ", ".join(part for part in (found.get("sizes"), "quick sizes" if found["quick"] else "") if part)
    return f"`{found['command']}`{': ' + sizes if sizes else ''} (Tether {found['version']})."


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table whose stars are stars, and whose bars are no columns."""
    cells = [[re.sub(r"(?<=[γθμ])\*", r"\\*", cell).replace("|", r"\|") for cell in row] for row in (heads, *lines)]
    rows = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([rows[0], "|" + "---|" * len(heads), *rows[1:]]) + "\n"


def value(place: str, form: str, stored: Callable[[str], dict[str, Any]]) -> str:
    """One number or text of a stored file."""
    name, *keys = place.split(".")
    found: Any = stored(name)
    for key in keys:
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError):
            known = ", ".join(found) if isinstance(found, dict) else f"0 to {len(found) - 1}"
            raise KeyError(f"{name}.json has no {place!r}: there is no {key!r} among {known}") from None
    if isinstance(found, dict | list):
        raise KeyError(f"{place!r} is no value but holds {', '.join(map(str, found))}")
    shown = format(found, form) if form else f"{found:g}" if isinstance(found, float) else str(found)
    return re.sub(r"^-", "−", shown)


def write(root: Path = ROOT) -> list[Path]:
    """Write every page from the stored results, and say which marks lead nowhere; returns the pages that changed."""
    changed, missing = [], list[str]()
    for page in pages(root):
        before = page.read_text("utf-8")
        after = written(before, lambda name: read(name, root / "docs" / "results"), missing)
        if after != before:
            page.write_text(after, "utf-8")
            changed.append(page)
    for one in dict.fromkeys(missing):
        print(f"not written: {one}", file=sys.stderr)
    return changed


def check(root: Path = ROOT) -> list[str]:
    """What is wrong between pages and stored results, in sentences."""
    found = []
    for page in pages(root):
        text, name = page.read_text("utf-8"), page.name
        try:
            if written(text, lambda stored: read(stored, root / "docs" / "results")) != text:
                found.append(f"{name} differs from docs/results: `python tools/figures.py write`")
        except (KeyError, ValueError) as error:
            found.append(f"{name}: {error.args[0]}")
        marks = {
            kind: len(re.findall(f"<!-- {kind}", text))
            for kind in ("figures: ", "/figures", "=", "/ ", "output", "/output")
        }
        pairs = (("figures: ", "/figures", BLOCK), ("=", "/ ", VALUE), ("output", "/output", OUTPUT))
        for first, last, pattern in pairs:
            if not marks[first] == marks[last] == len(pattern.findall(text)):
                found.append(f"{name}: a mark <!-- {first.strip()} … has no end, or lacks what must stand before it")
        if re.search(r"^<!-- =", text, re.MULTILINE):
            found.append(f"{name}: a line begins with the mark of a value, which ends the paragraph; let a word lead")
    for file in sorted((root / "docs" / "results").glob("*.json")):
        stored = json.loads(file.read_text("utf-8"))
        for picture, digest in stored.get("pictures", {}).items():
            if hashlib.sha256((root / "docs" / picture).read_bytes()).hexdigest() != digest:
                found.append(f"docs/{picture} is not the picture that came with {file.name}")
        if file.stem not in SOURCES:
            found.append(f"{file.name} has no entry in SOURCES")
    return found


# Outputs of the code that pages show

PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
NEXT = "\x1e"
"""Printed between two blocks."""


def with_outputs(text: str) -> str:
    """A page with the whole output of each marked block, as it prints today; a change of times alone is none.

    Where numbers vary from run to run, a change of numbers is none, either. A block that needs a package which this
    environment lacks stays as it is: `make figures-real` has them.
    """

    def shown(mark: re.Match[str]) -> str:
        said = printed([*without_others(text[: mark.start()]), mark[2]])
        content = mark[4] if said is None else f"```text\n{said}```\n"
        alike = without_numbers if mark[3] else without_times
        return mark[0] if alike(content) == alike(mark[4]) else mark[1] + content + mark[5]

    return OUTPUT.sub(shown, text)


def without_others(text: str) -> list[str]:
    """The blocks of Python above a mark, whose output the page shows by no mark."""
    return PYTHON.findall(OUTPUT.sub("", text))


def printed(blocks: Sequence[str]) -> str | None:
    """What the last of some blocks prints, after the others in a fresh interpreter and a folder of its own.

    None: it needs a package that is not installed.
    """
    import tether

    code = f"\nprint({NEXT!r}, end='')\n".join(blocks)
    environment = {**os.environ, "PYTHONPATH": str(Path(tether.__file__).parents[1])}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        sys.exit(f"the code of a page fails:\n{done.stderr}")
    return done.stdout.split(NEXT)[-1].rstrip() + "\n"


def without_times(text: str) -> str:
    """The same whatever the machine: seconds are taken out."""
    return re.sub(r" in [\d.]+ s,", ",", text)


def without_numbers(text: str) -> str:
    """The same without the numbers that vary: an exact 0 stays."""
    return re.sub(r"[−+-]?\b(?!0\b(?!\.))\d[\d.,e-]*", "#", without_times(text))


def outputs(root: Path = ROOT) -> list[Path]:
    """Write every output; returns the pages that changed."""
    changed = []
    for page in pages(root):
        before = page.read_text("utf-8")
        after = with_outputs(before)
        if after != before:
            page.write_text(after, "utf-8")
            changed.append(page)
    return changed


def main() -> None:
    """See the top of this file."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("run", "store", "write", "check", "outputs", "check-outputs"))
    asked.add_argument("names", nargs="*", help=f"all, benchmarks, or some of {', '.join(SOURCES)}")
    asked.add_argument("--out", type=Path, default=ROOT / "out", help="where the studies' folders are")
    asked.add_argument("--quick", action="store_true", help="the studies' quick sizes; the pages say so")
    asked.add_argument("--environment", default="", help="of what `all` means: real, or the first")
    given = asked.parse_args()
    named = [name for name, one in SOURCES.items() if one.environment == given.environment]
    names = {"all": named, "benchmarks": [*BENCHMARKS]}.get(given.names[0], given.names) if given.names else []
    for name in names:
        if name not in SOURCES:
            sys.exit(f"there is no {name!r}; there are all, benchmarks, {', '.join(SOURCES)}")
        {"run": run, "store": store}[given.what](name, given.out.resolve(), STORED, given.quick)
    if given.what in ("run", "store", "write"):
        print(*(f"wrote {page.relative_to(ROOT)}" for page in write()), sep="\n")
    if given.what == "outputs":
        print(*(f"wrote {page.relative_to(ROOT)}" for page in outputs()), sep="\n")
    if given.what == "check-outputs":
        for page in pages():
            if with_outputs(page.read_text("utf-8")) != page.read_text("utf-8"):
                sys.exit(f"{page.relative_to(ROOT)} shows another output than its code prints")
    if given.what == "check" and (wrong := check()):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
