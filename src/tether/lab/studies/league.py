"""The league: every safe learner on the same worlds, each by its own theorem and with one tuned scale.

Who has a `Row` is in it (tether.agents.relatives). Before the study runs, every rival is tuned: one number multiplies
its radii, taken from a grid that all share, on seeds that are not shown. Anchors, figures that others have published,
are run again first (studies/anchors.py), so that a row is believed before it is compared.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from html import escape
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tether.agents.relatives import Row, Track, methods
from tether.errors import InputError, TetherError, nearest
from tether.lab.books import Cell, Interval, Results, interval, load, paired, per_seed
from tether.lab.cells import build_agent, build_world, places_of
from tether.lab.engines import Engine
from tether.lab.plots import (
    INK,
    LOOK,
    QUIET,
    RAMPS,
    Chart,
    Guide,
    Panel,
    Series,
    Style,
    encoded,
    number,
    shares_of,
    spread,
)
from tether.lab.registry import AGENTS, row_of
from tether.lab.runner import run_study
from tether.lab.simulate import World
from tether.lab.specs import Choice, Study
from tether.lab.storage import make_folder, write_atomically
from tether.lab.studies import anchors
from tether.lab.studies.anchors import ANCHORS, OURS, Anchor, Played, Task
from tether.lab.view import Claim, Picture, Table, View, counted, html_table, table_files
from tether.lab.worlds.linear_mdp import SAFE_TOLERANCE, MisspecifiedMDP, Streams
from tether.problem.problem import Problem
from tether.records import Array

GRID = (0.03, 0.1, 0.3, 1.0, 3.0)
"""The scales that rivals are tuned over. All share it. Where 1 is the best, the theorem's row is the tuned one, too."""

UNTOLD = ("dosing-twin", "heating-twin", "ad-load-twin")
"""Worlds whose costs are not linear, which their learners are not told: no theorem speaks of them."""

NOT_LINEAR, NOT_SAFE = "costs are not linear, and no learner is told", "a₀ itself is over τ in some states"
"""Which assumption a world breaks on purpose."""

OVER = {
    "step": "violations per run",
    "episode": "episodes over the budget per run",
    "realised": "measured costs over τ per run, but for η",
}
"""How often a world's limit was broken, by what it limits."""

ENDS = ("regret_low", "regret_high")
"""Of an interval."""

AXES = "league-axes"
"""The study in which every method plays by its theorem alone, while one thing after the other gets harder."""

ABSENT = "absent.json"
"""Who cannot play where, and why: method -> world -> reason, "" where it plays."""

FIRST_TUNING_SEED = 10_000
"""From here on instances are used for tuning, one for every four that are shown, and shown nowhere."""

TRACKS: dict[Track, str] = {
    "step": "expected cost of every step",
    "coin": "expected cost of every step, over its own coin",
    "realised": "measured cost of every step",
    "episode": "expected cost of every episode",
    "none": "no promise",
}
SLUCB = Row(
    title="Tether (SLUCB-QVI)",
    citation="Amani, Thrampoulidis, Yang: ICML 2021, with docs/theory.md",
    track="step",
    constraint="⟨γ*, φ⟩ ≤ τ at every step",
    told="the reward noise σ_r",
    source="text",
    anchor="the paper's figures: tether reproduce figure1",
)
FRAMES: dict[str, Row] = {
    "slucb-qvi": SLUCB,
    "slucb-qvi, by theorems": replace(
        SLUCB,
        title="Tether (SLUCB-QVI), by theorems alone",
        told="for H = 1 the reward noise σ_r, else the number of episodes K",
        deviations=("c_β, the constant of β, is 1",),
    ),
    "rslucb-qvi": replace(
        SLUCB,
        title="Tether (RSLUCB-QVI)",
        track="coin",
        constraint="E⟨γ*, φ⟩ ≤ τ at every step",
        anchor="the paper's figures: tether reproduce figure2",
    ),
    "always-safe": Row(
        title="Always a₀",
        citation="the floor",
        track="step",
        constraint="⟨γ*, φ⟩ ≤ τ at every step",
        told="learns nothing",
        source="text",
        anchor="none needed",
    ),
    "lsvi-ucb-told": Row(
        title="LSVI-UCB told γ*: the ideal shield",
        citation="Jin, Yang, Wang, Jordan: COLT 2020",
        track="step",
        constraint="⟨γ*, φ⟩ ≤ τ at every step",
        told="γ* itself: a frame, not a rival; the reward noise σ_r",
        source="text",
        anchor="none needed",
    ),
    "lsvi-ucb": Row(
        title="LSVI-UCB, no constraint",
        citation="Jin, Yang, Wang, Jordan: COLT 2020",
        track="none",
        constraint="none",
        told="no cost; the reward noise σ_r",
        source="text",
        anchor="none needed",
    ),
}
"""Ours, and what frames the rivals: the floor, the ceiling, and what no constraint earns."""

OWN_METHODS = ("slucb-qvi", "slucb-qvi, by theorems", "rslucb-qvi")


def row_for(agent: str) -> Row:
    """What the league says of an agent."""
    about = FRAMES.get(agent) or row_of(agent)
    return about or Row(
        title=agent, citation="", track="step", constraint="not stated", told="not stated", source="memory", anchor=""
    )


# Before the study runs: who plays where, and with which scale


class Absent(InputError):
    """Nobody of those asked for can play in a study."""


def rivals() -> list[str]:
    """Every agent with a row, ours and others'."""
    return [name for name in AGENTS.names() if row_of(name) is not None]


def instances_of(study: Study) -> dict[str, tuple[World, int]]:
    """The first instance of every world, by its label, and for how many episodes it is played."""
    return {
        place.label or place.world: (
            build_world(place.world, place.options, place.episodes, Streams.from_seed(study.first_seed)),
            place.episodes,
        )
        for place in places_of(study)
    }


def refusals(
    instances: Mapping[str, tuple[World, int]], agent: str, options: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, str]:
    """World -> why an agent cannot be made for it or gives no first answer in it; "" where it can play."""
    reasons = {}
    for label, (world, episodes) in instances.items():
        try:
            made = build_agent(agent, options, world, episodes, Streams.from_seed(0))
            made.plan()
            made.act(0, 0)
            mixes = getattr(made, "mixes", False) and isinstance(world, MisspecifiedMDP)
            reasons[label] = "mixes, but costs are not linear here: a mean feature does not say what it costs" * mixes
        except TetherError as error:
            reasons[label] = str(error).replace(row_for(agent).title, "").replace(type_name(agent), "").strip()
    return reasons


def type_name(agent: str) -> str:
    """The name of a method's class, which its errors begin with."""
    found = [method.__name__ for method in methods() if method.kind == agent]
    return found[0] if found else agent


def tuning_of(study: Study, places: dict[str, list[str]]) -> Study:
    """Every rival at every scale of the grid, on the tuning seeds."""
    agents = [
        {"name": name, "label": name, "grid": {"scale": list(GRID)}, "only": only} for name, only in places.items()
    ]
    seeds = max(1, study.seeds // 4)
    changes = {"name": f"{study.name}-tuning", "first_seed": FIRST_TUNING_SEED, "seeds": seeds}
    return Study.model_validate({**study.model_dump(), **changes, "agents": agents})


def tuned_scales(results: Results) -> dict[tuple[str, str], float]:
    """(agent, world) -> the scale with the fewest violations; among equals that with the least regret, then 1."""
    best: dict[tuple[str, str], tuple[float, float, float, float]] = {}
    for cell in results.finished:
        key, scale = (cell.agent, _world(cell)), float(cell.options["scale"])
        over = float(np.maximum(broken(cell) - allowed(cell), 0.0).sum())
        judged = (over, float(per_seed(cell, "regret").mean()), abs(np.log(scale)), scale)
        best[key] = min(best.get(key, judged), judged)
    return {key: scale for key, (*_, scale) in best.items()}


def allowed(cell: Cell) -> float:
    """How many costs over τ a run's promise leaves open: the share η where it is about measured costs, else none."""
    realised = _problem(cell).realised
    if cell.own != "realised" or realised is None:
        return 0.0
    return realised.exceedance * float(cell["own_excess"].shape[1])


def broken(cell: Cell) -> Array:
    """How often each run breaks what the agent promises: its own constraint, if it has another than the step's."""
    if cell.own:
        counts: Array = (cell["own_excess"] > SAFE_TOLERANCE).sum(axis=1).astype(np.float64)
        return counts
    return per_seed(cell, "violations")


def entered(study: Study, folder: Path, engine: Engine, only: Sequence[str]) -> Study:
    """The study with every rival that fits: by its theorem, and with the scale that suits it best in each world.

    The tuning runs are kept in `folder`, and so is who cannot play where, with the reason. `only` names the rivals that
    enter; none named are all.
    """
    titles, instances = {name: row_for(name).title for name in rivals()}, instances_of(study)
    refused = {name: refusals(instances, name) for name in titles if not only or {name, titles[name]} & set(only)}
    places = {name: [label for label, why in reasons.items() if not why] for name, reasons in refused.items()}
    places = {name: labels for name, labels in places.items() if labels}
    agents = []
    for each in study.agents:
        there = {label: given for label, given in instances.items() if not each.only or label in each.only}
        refused[each.name] = refusals(there, each.name, each.options)
        if labels := [label for label, why in refused[each.name].items() if not why]:
            agents.append({**each.model_dump(), "only": labels})
    if not only:
        make_folder(folder)
        write_atomically(folder / ABSENT, json.dumps(refused, indent=1, ensure_ascii=False).encode())
    if study.name == AXES:
        agents += [{"name": name, "label": row_for(name).title, "only": labels} for name, labels in places.items()]
    elif places:
        run_study(tuning_of(study, places), folder / "tuning", engine)
        scales = tuned_scales(load(folder / "tuning"))
        for name, labels in places.items():
            title = row_for(name).title
            agents.append({"name": name, "label": title, "only": labels})
            chosen = {label: scales[name, label] for label in labels if (name, label) in scales}
            for scale in sorted(set(chosen.values()) - {1.0}):
                where = [label for label in labels if chosen.get(label) == scale]
                agents.append(
                    {"name": name, "label": f"{title} × {scale:g}", "options": {"scale": scale}, "only": where}
                )
    return Study.model_validate({**study.model_dump(), "agents": agents})


def prepared(study: Study, folder: Path, engine: Engine, quick: bool, only: Sequence[str]) -> Study:
    """What comes before the study: the anchors, unless one cell is asked for, and who enters with which scale.

    `only` names agents, by name or label; `Absent` is raised where none of them can play in this study.
    """
    if study.name == "league" and not only and len(study.worlds) > 1:
        anchors.run(folder / "anchors", quick, engine)
    ready = entered(study, folder, engine, only)
    labels = [label for each in [*study.agents, *ready.agents] for label in (each.name, each.label)]
    known = [*dict.fromkeys([*labels, *AGENTS.names(), *(row_for(name).title for name in rivals())])]
    for name in only:
        if name not in known:
            raise InputError(f"the league has no agent {name!r}{nearest(name, known)}")
    there = [name for name in only if name in {name for each in ready.agents for name in (each.name, each.label)}]
    if only and not there:
        where = "this world" if len(study.world_labels) == 1 else f"study {study.name!r}"
        reasons = {why for name in {*only} & {*rivals()} for why in refusals(instances_of(study), name).values()}
        raise Absent(f"{' and '.join(only)} cannot play in {where}: {'; '.join(sorted(reasons)) or 'it is not in it'}")
    return ready.narrowed(there, ())


# The table


@lru_cache(maxsize=2)
def rows_of(results: Results) -> list[dict[str, Any]]:
    """A row per finished cell, which says whether it is its method's tuned one: also the theorem's is, where 1 is the
    best scale. Tables and pictures share them."""
    rows = [row(cell, results) for cell in results.finished]
    scaled = {(one["world"], one["method"]) for one in rows if one["scale"] != 1.0}
    broken, cells = broken_assumptions(results), {(c.agent_label, _world(c)): c for c in results.finished}
    ours = {one["world"]: cells[one["agent"], one["world"]] for one in rows if one["method"] == "slucb-qvi"}
    for one in rows:
        rival = one["method"] not in FRAMES and results.study != AXES
        one["tuned"] = one["scale"] != 1.0 or (rival and (one["world"], one["method"]) not in scaled)
        one["breaks"] = broken.get(one["world"], "")
        own = ours.get(one["world"]) if rival else None
        one["earned"] = "" if own is None else earned(cells[one["agent"], one["world"]], own)
    return rows


def earned(cell: Cell, own: Cell) -> str:
    """Whether a rival earned more than ours, as much or less: as much where the interval of the difference, seed by
    seed, holds 0."""
    theirs, our = paired(cell, own, "value")
    _, low, high = over_seeds((theirs - our).sum(axis=1))
    return "more" if low > 0.0 else "less" if high < 0.0 else "as much"


def broken_assumptions(results: Results) -> dict[str, str]:
    """World -> which assumption it breaks on purpose. Worlds that keep all of them are left out."""
    found = {_world(cell): NOT_LINEAR for cell in results.finished if cell.world in UNTOLD}
    safe = [cell for cell in results.finished if cell.agent == "always-safe"]
    return found | {_world(cell): NOT_SAFE for cell in safe if cell["violations"].any()}


def bounded(one: Mapping[str, Any]) -> bool:
    """Whether a theorem bounds what the world limits: its radius is the theorem's and no assumption is broken."""
    return one["cost_radius_origin"] == "theorem" and not one["breaks"]


def over_seeds(values: Array) -> Interval:
    """Mean and Student's 95 % interval of (n,): a bootstrap's would be too short with few seeds. One seed has none."""
    from scipy.special import stdtrit

    mean, n = values.mean(), len(values)
    half = stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n) if n > 1 else np.array(np.nan)
    return Interval(mean, mean - half, mean + half)


def row(cell: Cell, results: Results) -> dict[str, Any]:
    """One method in one world."""
    method = "slucb-qvi, by theorems" if cell.agent == "slucb-qvi" and "value_radius" in cell.options else cell.agent
    about, violations, own = row_for(method), per_seed(cell, "violations"), broken(cell)
    limits = "realised" if cell.own == "realised" else cell.limits  # of the world: all are judged by what it limits
    over = violations if limits == "step" else np.ceil(np.maximum(own - allowed(cell), 0.0))
    regret, seconds = over_seeds(per_seed(cell, "regret")), float(np.median(cell["plan_seconds"]))
    horizon = 1 if about.horizon == 1 else _problem(cell).horizon
    return {
        "world": _world(cell),
        "instance": cell.instance,
        "track": about.track,
        "agent": cell.agent_label,
        "name": f"{cell.agent_label} in {_world(cell)}",
        "method": method,
        "scale": float(cell.options.get("scale", 1.0)),
        "cost_radius_origin": cell.cost_radius_origin,
        "value_radius_origin": cell.value_radius_origin,
        "regret_mean": float(regret.mean),
        "regret_low": float(regret.low),
        "regret_high": float(regret.high),
        "violations_total": int(violations.sum()),
        "violating_runs": int((violations > 0).sum()),
        "worst_cost": float(cell["worst_cost"].max()),
        "constraint": about.constraint,
        "own_broken": int(own.sum()),
        "own_broken_runs": int((own > 0).sum()),
        "broken": int(over.sum()),
        "broken_runs": int((over > 0).sum()),
        "limits": limits,
        "own_allowed": round(allowed(cell) * len(cell.seeds)),
        "seeds": len(cell.seeds),
        "episodes": cell.episodes or results.episodes,
        "decisions_per_second": horizon / seconds if seconds > 0.0 else float("nan"),
        "told": about.told,
        "source": about.source,
        "memory": about.memory,
        "anchor": about.anchor,
        "citation": about.citation,
        "command": command(cell, results),
    }


def _world(cell: Cell) -> str:
    return cell.world_label or cell.world


def _problem(cell: Cell) -> Problem:
    """Of some instance of the cell's world."""
    return build_world(cell.world, cell.world_options, 1, Streams.from_seed(0)).problem


def command(cell: Cell, results: Results) -> str:
    """What makes this cell, by its theorem and tuned."""
    quick = " --quick" if results.folder.name.endswith("-quick") else ""
    return f'tether reproduce league{quick} --agent {cell.agent} --world "{_world(cell)}"'


LINE_HEADS = (
    "world", "method", "promises", "regret", "95% interval", "violations", "in runs", "worst excess",
    "own limit broken", "decisions per second", "radius",
)  # fmt: skip
"""Of the table with a line per method and world."""


def table(results: Results) -> Table:
    """A table per world, the methods by their track and then by regret."""
    order, places = list(TRACKS), _places(rows_of(results))
    rows = sorted(
        rows_of(results),
        key=lambda one: (places.index(one["world"]), order.index(one["track"]), one["regret_mean"]),
    )
    heads = (
        "Method", "Regret", "Violations", "Runs affected", "Worst excess", "Own constraint broken",
        "Decisions per second", "Promises", "Radius", "Told besides the Problem", "Rule read in",
    )  # fmt: skip
    pages, absent = [], absentees(results)
    for world in _places(rows):
        here = [one for one in rows if one["world"] == world]
        best = "the best policy with that budget per episode" if here[0]["limits"] == "episode" else "the safe optimum"
        caption = (
            f"{world} (instance {here[0]['instance']}), {here[0]['episodes']:,} episodes. Regret of a run against "
            f"{best}, exact, mean and 95% interval over seeds; violations are steps whose true expected cost "
            "exceeds τ, in all runs together. Decisions per second of processor time, with the study's bookkeeping."
        )
        body = "\n".join(_page_row(one) for one in here)
        pages.append(html_table(f"League in {world}", caption, heads, body, words=4))
        missing = "".join(f"<li>{escape(' · '.join(who))}: {escape(why)}</li>" for why, who in absent[world].items())
        pages.append(f"<details><summary>Who cannot play in {escape(world)}</summary><ul>{missing}</ul></details>")
    return Table(rows, LINE_HEADS, [_line(one) for one in rows], [*pages, _commands(rows)])


def absentees(results: Results) -> dict[str, dict[str, list[str]]]:
    """World -> reason -> the methods that cannot play there for this reason."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    path = results.folder / ABSENT
    for method, reasons in (json.loads(path.read_text("utf-8")) if path.is_file() else {}).items():
        for world, why in reasons.items():
            if why:
                found[world][why].append(row_for(method).title)
    return found


def _places(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(one["world"] for one in rows))


def _radius(one: dict[str, Any]) -> str:
    origin = one["cost_radius_origin"]
    if one["method"] == "always-safe":
        return "none needed"
    if one["method"] in FRAMES and origin in ("exact", "none"):
        return {"exact": "told γ*", "none": "none"}[origin]
    tuned = "tuned" in (origin, one["value_radius_origin"])
    whose = f"tuned × {one['scale']:g}" if one["scale"] != 1.0 else "tuned" if tuned else "theorem"
    if whose == "theorem" and one["value_radius_origin"] == "default":
        whose = "theorem for costs, a rule for values"
    best = "; no scale is better" if one["tuned"] and one["scale"] == 1.0 else ""
    return whose + (", certifies nothing" if origin == "none" else "") + best


def _line(one: dict[str, Any]) -> Sequence[str]:
    return (
        one["world"] + (f" (broken: {one['breaks']})" if one["breaks"] else ""),
        one["agent"] + _remembered(one["method"]),
        one["track"],
        number(one["regret_mean"]),
        f"{number(one['regret_low'])} to {number(one['regret_high'])}",
        f"{one['violations_total']:,}",
        f"{one['violating_runs']} of {one['seeds']}",
        number(_excess(one)),
        _own(one),
        number(one["decisions_per_second"]),
        _radius(one),
    )


def dagger(about: Row) -> str:
    """Its title, with a mark where some of its rule is from memory."""
    return about.title + (" †" if about.memory else "")


def _remembered(method: str) -> str:
    """What of a method's rule is from memory, to stand behind its name."""
    about = row_for(method).memory
    return f" [from memory: {about}]" if about else ""


def _own(one: dict[str, Any]) -> str:
    """How often a promise was broken, with what it leaves open; a dash where nothing was promised."""
    if one["track"] == "none":
        return "–"
    return f"{one['own_broken']:,}" + (f" ({one['own_allowed']:,} allowed)" if one["own_allowed"] else "")


def _excess(one: dict[str, Any]) -> float:
    """The largest c − τ of a step that was over τ."""
    return float(one["worst_cost"]) if one["violations_total"] else 0.0


def _page_row(one: dict[str, Any]) -> str:
    low, high = number(one["regret_low"]), number(one["regret_high"])
    mark = "zero" if one["violations_total"] == 0 else "some"
    return (
        f'<tr><th scope="row">{escape(one["agent"])}<small>{escape(one["citation"] + _remembered(one["method"]))}'
        f"</small></th>"
        f"<td>{number(one['regret_mean'])}<small>{low} to {high}</small></td>"
        f'<td class="{mark}">{one["violations_total"]:,}</td><td>{one["violating_runs"]} of {one["seeds"]}</td>'
        f"<td>{number(_excess(one))}</td><td>{_own(one)}</td><td>{number(one['decisions_per_second'])}</td>"
        f'<td class="text">{escape(TRACKS[one["track"]])}<small>{escape(one["constraint"])}</small></td>'
        f'<td class="text">{escape(_radius(one))}</td><td class="text">{escape(one["told"])}</td>'
        f'<td class="text">{escape(one["source"])}</td></tr>'
    )


def _commands(rows: Sequence[dict[str, Any]]) -> str:
    """Every cell's command, once per method and world."""
    lines = dict.fromkeys(one["command"] for one in rows)
    return (
        "<details><summary>The command of every cell</summary><pre><code>"
        + escape("\n".join(lines))
        + "</code></pre></details>"
    )


def summary(results: Results, rows: list[dict[str, Any]]) -> str:
    """How much was run."""
    runs, methods = sum(one["seeds"] for one in rows), len({one["method"] for one in rows})
    text = (
        f"{methods} methods in {counted(len(_places(rows)), 'world')}: {runs:,} runs of {results.episodes:,} episodes."
    )
    unread = sorted({f"{row_for(one['method']).title} ({one['memory']})" for one in rows if one["memory"]})
    return text + (f" Written from memory of their papers: {', '.join(unread)}." if unread else "")


def files(results: Results) -> dict[str, bytes]:
    """The table as Parquet and as Markdown."""
    made = table(results)
    return table_files(results.study, made, _plain(made.markdown))


def more(results: Results) -> dict[str, Table]:
    """Over all worlds that keep the assumptions, and over those that break one on purpose; who cannot play where; what
    is to be known of each method; of the bandits' study also the anchors."""
    found = {"absent": absent_table(results)}
    if results.study != AXES:
        rows = rows_of(results)
        found = {name: totals_table(some) for name, some in groups(rows).items()} | found
        found["methods"] = methods_table(_methods(rows))
    if results.study == "league":
        found["anchors"] = anchors_table(results.folder / "anchors")
    return {name: one for name, one in found.items() if one.lines}


def values(results: Results) -> dict[str, float | str]:
    """How much was run, in how many worlds, and in how many of them each rival by its theorem earned more than ours."""
    rows, made = rows_of(results), dict[str, float | str]()
    made |= {"runs": sum(one["seeds"] for one in rows), "methods": len(_methods(rows))}
    for name, some in groups(rows).items():
        ours = {one["world"]: one for one in some if one["method"] == "slucb-qvi"}
        made[f"{name}-worlds"] = len(_places(some))
        for one in totals(some) if results.study != AXES else []:
            key = f"{one.method}{'-tuned' if one.tuned else ''}".replace(", ", "-").replace(" ", "-")
            made[f"{name}-{key}-broken-runs"] = f"{one.broken_runs} of {one.runs}"
            made[f"{name}-{key}-regret"] = one.regret
            if one.method not in FRAMES and all(row["world"] in ours for row in one.rows):
                made[f"{name}-{key}-earned-more"] = f"{one.worlds(ours)['more']} of {len(one.rows)}"
    return made | anchor_values(results)


def _methods(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(one["method"] for one in rows))


def groups(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of worlds that keep every assumption, "kept", and of those that break one on purpose, "broken"."""
    found = {"kept": [one for one in rows if not one["breaks"]], "broken": [one for one in rows if one["breaks"]]}
    return {name: some for name, some in found.items() if some}


class Total(NamedTuple):
    """A method over several worlds, by its theorem or tuned."""

    method: str
    tuned: bool
    rows: list[dict[str, Any]]
    runs: int
    broken_runs: int
    regret: float
    """Mean over the worlds, in units of always a_0's there."""

    @property
    def title(self) -> str:
        """Its name."""
        return row_for(self.method).title + (", tuned" if self.tuned else "")

    @property
    def bounded(self) -> bool:
        """Whether a theorem bounds it in each of these worlds."""
        return not self.tuned and all(map(bounded, self.rows))

    def worlds(self, ours: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """In how many worlds it broke the limit, Tether alone did, and of the others it earned more, as much, less."""
        found = {"broke": 0, "ours": 0, "more": 0, "as much": 0, "less": 0}
        for one in self.rows:
            own = ours[one["world"]]
            found["broke" if one["broken"] else "ours" if own["broken"] else one["earned"]] += 1
        return found


def totals(rows: Sequence[dict[str, Any]]) -> list[Total]:
    """Each method over its worlds: those that broke limits in the fewest runs first, then by regret."""
    floor, made = _relative(rows), []
    for method, tuned in dict.fromkeys((one["method"], tuned) for one in rows for tuned in (False, True)):
        mine = [one for one in rows if one["method"] == method and (one["tuned"] if tuned else one["scale"] == 1.0)]
        if not mine or (tuned and all(one["scale"] == 1.0 for one in mine)):  # no scale is better: the same again
            continue
        shares = [one["regret_mean"] / floor[one["world"]] for one in mine if one["world"] in floor]
        regret = float(np.mean(shares)) if shares else float("nan")
        runs, over = (sum(one[name] for one in mine) for name in ("seeds", "broken_runs"))
        made.append(Total(method, tuned, mine, runs, over, regret))
    return sorted(made, key=lambda one: (one.broken_runs / one.runs, one.regret))


TOTAL_HEADS = (
    "method", "worlds", "runs that broke the limit", "regret, always a₀ = 1", "worlds in which it broke the limit",
    "Tether alone did", "of the others: earned more", "as much", "less",
)  # fmt: skip


def totals_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The picture of the whole in numbers, and each rival against SLUCB-QVI with its defaults."""
    ours = {one["world"]: one for one in rows if one["method"] == "slucb-qvi"}
    lines: list[Sequence[str]] = []
    for one in totals(rows):
        rival = one.method not in FRAMES and all(row["world"] in ours for row in one.rows)
        duel = list(map(str, one.worlds(ours).values())) if rival else [""] * 5
        name = one.title + _remembered(one.method)
        over = f"{one.broken_runs} of {one.runs}"
        lines.append((name, str(len(one.rows)), over, number(one.regret), *duel))
    return Table([], TOTAL_HEADS, lines, [])


def absent_table(results: Results) -> Table:
    """Who cannot play where, and why."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for world, reasons in absentees(results).items():
        for why, who in reasons.items():
            found[" · ".join(who), why.partition(", but this problem has")[0]].append(world)
    lines: list[Sequence[str]] = [(who, " · ".join(worlds), why) for (who, why), worlds in found.items()]
    return Table([], ("method", "cannot play in", "because it"), lines, [])


def methods_table(methods: Sequence[str]) -> Table:
    """What each method promises and is told, where its rule was read, how it differs, what of it is from memory."""
    lines: list[Sequence[str]] = []
    for method in methods:
        about = row_for(method)
        promise = f"{TRACKS[about.track]}: {about.constraint}"
        lines.append((about.title, f"`{method.partition(',')[0]}`", about.citation, promise, about.told, about.source,
                      about.memory, "; ".join(about.deviations)))  # fmt: skip
    heads = ("method", "name", "whose", "promises", "told beside the Problem", "rule read in", "from memory", "differs")
    return Table([], heads, lines, [])


def _plain(text: str) -> str:
    """Text whose stars and indices Markdown leaves alone."""
    return text.replace("*", "\\*").replace("_", "\\_")


# Anchors: badges, claims and their figure

Badge = tuple[Task, Anchor, Played, float]
"""What was played for an anchor, with the number that the figure shows, as a mean over trials."""


def badges(folder: Path) -> Iterator[Badge]:
    """What was played for the anchors."""
    for task, played in anchors.kept(folder):
        anchor = ANCHORS[task.anchor]
        yield task, anchor, played, float(anchor.statistic(played.regret[:, -1], task.rounds).mean())


def anchor_claims(folder: Path) -> list[Claim]:
    """Does a row reproduce its authors' figure? Does ours beat ROFUL threefold on their draws, without a violation?"""
    made, found = [], list(badges(folder))
    for task, anchor, _, value in found:
        published = anchor.published.get(task.player)
        if published is None or task.rounds != anchor.rounds:
            continue
        off = abs(value / published - 1.0)
        made.append(
            Claim(
                f"anchor-{task.anchor}-{task.player.split()[0].strip(',').lower()}",
                f"{task.player} reproduces its published figure ({anchor.title}).",
                off <= anchor.within,
                f"{_shown(anchor)} after {task.rounds:,} rounds: {_digits(value)} here, {published:,g} published "
                f"({anchor.citation}; {anchor.read}); off by {off:.1%}, allowed {anchor.within:.0%}",
            )
        )
    for task, anchor, played, value in found:
        rival = _beside(found, task).get("ROFUL")
        if task.player != OURS or rival is None:
            continue
        clean = int((played.violations == 0).sum())
        made.append(
            Claim(
                f"ours-{task.anchor}",
                f"Tether's regret is at least three times below ROFUL's, each with its own settings ({anchor.title}), "
                "and no trial has a violation.",
                rival >= 3.0 * value and clean == anchor.trials,
                f"{_shown(anchor)} after {task.rounds:,} rounds: {value:.4g} against {rival:.4g}, {rival / value:.2f} "
                f"times less; {clean} of {anchor.trials} trials without a violation; largest c − τ "
                f"{played.worst.max():.2g}. At equal radii: {_equal(_beside(found, task))}",
            )
        )
    return made


def anchors_table(folder: Path) -> Table:
    """The anchors with both numbers, and ROFUL's regret over everybody's."""
    lines: list[Sequence[str]] = []
    found = list(badges(folder))
    heads = ("figure", "player", "published", "here", "mean regret", "ROFUL over it", "trials without a violation")
    for task, anchor, played, value in found:
        rival = _beside(found, task).get("ROFUL")
        published = anchor.published.get(task.player)
        cells = (
            f"{anchor.title}, {_shown(anchor)}, T = {task.rounds:,}",
            task.player,
            "" if published is None else f"{published:,g}",
            _digits(value),
            _digits(float(played.regret[:, -1].mean())),
            "" if rival is None else f"{rival / value:.2f}",
            f"{int((played.violations == 0).sum())} of {anchor.trials}",
        )
        lines.append(cells)
    return Table([], heads, lines, [])


def anchor_values(results: Results) -> dict[str, float | str]:
    """ROFUL's number over ours, by anchor."""
    if results.study != "league":
        return {}
    found = list(badges(results.folder / "anchors"))
    ours = [(task, value, _beside(found, task).get("ROFUL")) for task, _, _, value in found if task.player == OURS]
    return {f"roful-over-ours-{task.anchor}": rival / value for task, value, rival in ours if rival is not None}


def _beside(found: Sequence[Badge], task: Task) -> dict[str, float]:
    """The number of every player of the same anchor after the same rounds."""
    return {other.player: value for other, _, _, value in found if other[::2] == task[::2]}


def _equal(numbers: dict[str, float]) -> str:
    """ROFUL's number over ours where ours is given ROFUL's radii."""
    same = {name: value for name, value in numbers.items() if name.startswith("Tether, ") and name != OURS}
    parts = [f"{name.removeprefix('Tether, ')}: {numbers['ROFUL'] / value:.2f}" for name, value in same.items()]
    return "; ".join(parts) or "not played"


def _digits(value: float) -> str:
    """Four figures, thousands apart."""
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.4g}"


def _shown(anchor: Anchor) -> str:
    return "R_T/√T" if anchor.per_root else "R_T"


def anchor_charts(folder: Path) -> list[Chart]:
    """The published figures, drawn again: one chart per set of players, one panel per anchor."""
    found, made = list(badges(folder)), []
    for players in dict.fromkeys(tuple(ANCHORS[task.anchor].players) for task, *_ in found):
        shown = [name for name, anchor in ANCHORS.items() if tuple(anchor.players) == players]
        panels = []
        for name in shown:
            here = [(task, played, value) for task, _, played, value in found if task.anchor == name]
            if here:
                panels.append(_anchor_panel(name, shown, here))
        caption = (
            "The authors' own draws and noise; bands: 95% over trials. Dashed lines: the published values at the last "
            "round."
            if len(panels) > 1
            else "Bands: 95% over trials. Dashed: stored by the authors."
        )
        made.append(Chart(f"anchor-{panels[0].key}", "Anchors: published figures, run again", caption, tuple(panels)))
    return made


def _anchor_panel(name: str, beside: Sequence[str], here: Sequence[tuple[Task, Played, float]]) -> Panel:
    """One anchor; the legend says what is published of it and of those beside it."""
    anchor, looks = ANCHORS[name], styles_of([task.player for task, _, _ in here])
    series, rounds = [], here[0][0].rounds
    for (task, played, value), style in zip(here, looks, strict=True):
        shown = played.regret / np.sqrt(played.rounds) if anchor.per_root else played.regret
        band = interval(shown)
        told = [f"{ANCHORS[other].published.get(task.player, 0.0):,g}" for other in beside]
        note = f"published: {' and '.join(told)}" if task.player in anchor.published else "not published: ours"
        series.append(Series(task.player, note, style, played.rounds.astype(np.float64), *band, total=value))
    same = rounds == anchor.rounds
    cut = "" if same else f" A quick look: the figure has {anchor.rounds:,} rounds."
    clean = ", ".join(f"{task.player} {int((played.violations == 0).sum())}" for task, played, _ in here)
    return Panel(
        key=name,
        title=anchor.title,
        subtitle=f"{anchor.citation}.{cut}",
        notes=(f"Trials without a violation, of {anchor.trials}: {clean}.",),
        x_title="round t",
        y_title="R_t/√t" if anchor.per_root else "R_t",
        series=tuple(series),
        guides=tuple(
            Guide(
                f"{player.partition(',')[0]}: {value:,g}", np.array([0.55 * rounds, float(rounds)]), np.full(2, value)
            )
            for player, value in anchor.published.items()
            if same
        ),
    )


HUES = ("other", "paper", "certified", "penalised", "unconstrained", "told", "default")
"""Of rivals, in turns."""


def styles_of(names: Sequence[str]) -> list[Style]:
    """Ours in our hue, variants of it in shades of another, each rival in one of its own."""
    ours = [name for name in names if name.startswith("Tether")]
    others = [name for name in names if name not in ours]
    hues = [
        HUES[others.index(name) % len(HUES)] if name in others else "adaptive" if name == ours[0] else "directional"
        for name in names
    ]
    return [RAMPS[hue].style(share, 1.9) for hue, share in zip(hues, shares_of(hues), strict=True)]


# Pictures of the whole: who is where between regret and violations, and how often who is near the best


def charts(results: Results) -> list[Chart]:
    """Anchors, then performance profiles; axes of difficulty are a picture of their own."""
    if results.study == AXES:
        return []
    profiled = any(one["method"] in OWN_METHODS or one["method"] not in FRAMES for one in rows_of(results))
    return [*anchor_charts(results.folder / "anchors"), *([profile_chart(results)] if profiled else [])]


def profile_chart(results: Results) -> Chart:
    """For each method: the share of worlds in which its regret is within a factor of the best clean one's.

    Worlds that break an assumption on purpose are left out: no theorem speaks of them.
    """
    frames, apart = FRAMES.keys() - set(OWN_METHODS), groups(rows_of(results))
    rows = [one for one in apart.get("kept", apart.get("broken", [])) if one["method"] not in frames]
    best: dict[str, float] = {}
    for one in rows:
        if one["broken"] == 0:
            best[one["world"]] = min(best.get(one["world"], np.inf), max(one["regret_mean"], 1e-9))
    panels = []
    for key, title, theorem in (
        ("theorem", "By their theorems, or as published", True),
        ("tuned", "Rivals tuned on other seeds", False),
    ):
        shown = [one for one in rows if (one["scale"] == 1.0 if theorem else one["tuned"]) or one["method"] in FRAMES]
        panels.append(
            Panel(
                key=key,
                title=title,
                subtitle="Share of its worlds in which a method breaks nothing, with its regret within a factor of "
                "the least.",
                x_title="regret over the least regret without a violation",
                y_title="share of worlds",
                x_scale="log",
                series=_profiles(shown, best, [row_for(one["method"]).title for one in rows]),
                y_range=(0.0, 1.05),
                labels_ends=False,
            )
        )
    left = len(_places(apart["broken"])) if len(apart) == 2 else 0
    caption = "Every method over the worlds that it is made for" + (
        f", without {counted(left, 'world')} in which an assumption is broken on purpose." if left else "."
    )
    caption += " † from memory of the paper, in whole or in part." if any(one["memory"] for one in rows) else ""
    return Chart(f"{results.study}-profiles", "Performance profiles", caption, tuple(panels))


def _profiles(rows: Sequence[dict[str, Any]], best: dict[str, float], titles: Sequence[str]) -> tuple[Series, ...]:
    factors, named, made = np.geomspace(1.0, 100.0, 400), list(dict.fromkeys(titles)), []
    for name, style in zip(named, styles_of(named), strict=True):
        mine = [one for one in rows if row_for(one["method"]).title == name]
        clean = [one for one in mine if one["broken"] == 0]
        ratios = np.array([one["regret_mean"] / best[one["world"]] for one in clean])
        share: Array = (ratios[:, None] <= factors * (1.0 + 1e-9)).sum(axis=0) / max(1, len(mine))
        about = row_for((mine or rows)[0]["method"])
        made.append(
            Series(dagger(about), TRACKS[about.track], style, factors, share, share, share, total=float(share[-1]))
        )
    return tuple(made)


def pictures(results: Results) -> list[Picture]:
    """Regret against violations, a panel per world; none of a cell alone, without always a_0, whose regret is the
    unit."""
    if not _relative(rows_of(results)):
        return []
    if results.study == AXES:
        words = "Regret over always a₀'s as one thing after the other gets harder; hollow where a promise was broken."
        return [Picture(f"{results.study}", "Axes of difficulty", words, lambda dpi: axes_picture(results, dpi))]
    whole = (
        "Each method over the worlds that keep every assumption, and over those that break one on purpose: its mean "
        "regret over always a₀'s, and the share of its runs that broke a limit."
    )
    words = "Each method's regret and violations in every world; the numbers are in the tables."
    name, title = results.study, "Regret and violations"
    return [
        Picture(f"{name}-overall", f"{title}, over all worlds", whole, lambda dpi: overall(results, dpi)),
        Picture(f"{name}-pareto", f"{title}, world by world", words, lambda dpi: pareto(results, dpi)),
    ]


def _relative(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """World -> the regret of always a_0, the unit of pictures."""
    return {one["world"]: one["regret_mean"] for one in rows if one["method"] == "always-safe"}


def _hue(method: str) -> str:
    hue = "adaptive" if method in OWN_METHODS else "told" if method in FRAMES else "other"
    return RAMPS[hue].light[0]


FILLED = "filled: a theorem bounds what the limit is on, and its assumptions hold"
HOLLOW = "hollow: tuned, told γ*, no such bound, or an assumption is broken"


def _kinds() -> list[Any]:
    """What colours and fills of dots mean, for a legend."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], linestyle="", marker="o", color=hue, mfc=fill, label=label)
        for hue, fill, label in (
            (_hue("slucb-qvi"), _hue("slucb-qvi"), "Tether"),
            (_hue(""), _hue(""), "a rival"),
            (_hue("always-safe"), _hue("always-safe"), "a frame"),
            (QUIET, QUIET, FILLED),
            (QUIET, "white", HOLLOW),
        )
    ]


COMPARED = (-0.5, 1.5)
"""Mean regrets, in units of always a_0's, that are drawn where they are: those who break limits may be far beyond."""


GROUPS = {
    "kept": "Worlds that keep every assumption",
    "broken": "Worlds that break an assumption on purpose",
}


def overall(results: Results, dpi: int) -> bytes:
    """A dot per method by its theorem, one tuned: share of runs with a violation, mean regret over always a_0's.

    Worlds that keep every assumption and those that break one on purpose have a panel each.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    apart = {name: totals(rows) for name, rows in groups(rows_of(results)).items()}
    names = list(dict.fromkeys(one.title for some in apart.values() for one in some))
    with matplotlib.rc_context(LOOK):
        size = 5.6 * len(apart) + 5.4, max(7.0, 1.8 + 0.2 * len(names))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(apart), squeeze=False)[0]
        panels = [
            (ax, _overall_panel(ax, GROUPS[name], some, names))
            for ax, (name, some) in zip(axes, apart.items(), strict=True)
        ]
        marks, counts = [], {name: {one.title: one for one in some} for name, some in apart.items()}
        for place, title in enumerate(names, start=1):
            mine = [some.get(title) for some in counts.values()]
            worlds = " + ".join(str(len(one.rows) if one else 0) for one in mine)
            far = [number(one.regret) for one in mine if one and not COMPARED[0] <= one.regret <= COMPARED[1]]
            about = row_for(next(one.method for one in mine if one)).memory
            label = f"{place}  {title}{' †' if about else ''} ({worlds})" + (f": {', '.join(far)}" if far else "")
            marks.append(Line2D([], [], linestyle="", label=label))
        kinds = _kinds()
        kinds.append(Line2D([], [], linestyle="", marker="v", color=QUIET, mfc="white", label=BEYOND))
        axes[0].set_ylabel("regret, always a₀ = 1, mean over a method's worlds")
        head = f"method (worlds{' of each panel' if len(apart) > 1 else ''}); † see the notes below"
        figure.legend(handles=marks, loc="outside right upper", frameon=False, fontsize=8, handlelength=0.0, title=head,
                      title_fontsize=8, alignment="left")  # fmt: skip
        figure.legend(handles=kinds, loc="outside lower left", frameon=False, fontsize=8, ncols=2, title=MEMORY,
                      title_fontsize=8, alignment="left")  # fmt: skip
        figure.draw_without_rendering()  # lays it out
        for ax, dots in panels:
            _number_dots(ax, dots)
        return encoded(figure, "png", dpi=dpi)


BEYOND = "triangle: beyond the edge, at the regret beside its name"
MEMORY = "† the rule, or constants of it, is from memory of the paper: the table of methods says what"


def _overall_panel(ax: Any, title: str, some: Sequence[Total], names: Sequence[str]) -> list[tuple[float, float, int]]:
    """The methods over one group of worlds; their dots (x, y, number)."""
    inside = [one.regret for one in some if COMPARED[0] <= one.regret <= COMPARED[1]]
    low, high = min([0.0, *inside]), max([1.0, *inside])
    room, dots = 0.1 * (high - low), []
    ax.set(xlim=(-0.04, 1.08), ylim=(low - room, high + room))
    ax.axvspan(-0.04, 0.015, color=QUIET, alpha=0.12, lw=0)
    for one in some:
        x, y = one.broken_runs / one.runs, min(max(one.regret, low - 0.6 * room), high + 0.6 * room)
        hue, size = _hue(one.method), 11 if one.method in OWN_METHODS else 7
        shape = "o" if one.regret == y else "v" if one.regret < y else "^"
        ax.plot([x], [y], shape, color=hue, mfc=hue if one.bounded else "white", ms=size, zorder=3)
        dots.append((x, y, names.index(one.title) + 1))
    ax.set_title(title, loc="left", fontsize=10, fontweight="bold")
    ax.set_xlabel("share of runs that broke the world's limit at least once")
    return dots


def _number_dots(ax: Any, dots: Sequence[tuple[float, float, int]]) -> None:
    """A number beside each dot (x, y, number), once its figure is laid out. Those of dots that are close to each other
    are pushed apart, and stand to the right or left, higher or lower, where they meet no other dot or number."""
    to_axes = ax.transData + ax.transAxes.inverted()
    columns: list[list[tuple[float, float, int]]] = []
    for x, y, label in sorted({(*to_axes.transform((x, y)).tolist(), label) for x, y, label in dots}):
        if not columns or x - columns[-1][0][0] >= 0.025:
            columns.append([])
        columns[-1].append((x, y, label))
    room = np.array([12.0, 9.0]) * ax.figure.dpi / 72.0 / (ax.bbox.width, ax.bbox.height)  # of a number, in points
    taken = np.array([(x, y) for column in columns for x, y, _ in column])
    for column in columns:
        tries = []
        for shift, gap, side in product((0.0, 0.03, -0.03, 0.06, -0.06, 0.09, -0.09), (0.022, 0.04), (1.0, -1.0)):
            at = side * max(side * x for x, _, _ in column) + side * (gap + 0.5 * room[0])
            heights = [0.96 * y for y in spread([(y + shift) / 0.96 for _, y, _ in column], 0.035)]  # under the title
            places = np.column_stack([np.full(len(heights), at), heights])
            met = int((np.abs(places[:, None] - taken) < room).all(axis=2).sum()) + (not 0.0 < at < 1.0)
            tries.append((met, abs(shift) + gap, -side, places))
        _, _, left, places = min(tries, key=lambda one: one[:3])
        taken = np.vstack([taken, places])
        for (x, y, label), (at, height) in zip(column, places, strict=True):
            ends = [x - 0.01 * left, at + 0.5 * left * room[0]], [y, height]
            ax.plot(*ends, color=QUIET, lw=0.4, transform=ax.transAxes)
            ax.text(at, height, str(label), transform=ax.transAxes, fontsize=7, color=INK, ha="center", va="center")


def axes_of(results: Results) -> dict[str, list[tuple[Any, str]]]:
    """Axis -> (value, world) along it: every world of the spec with one varied option is a point of that axis."""
    found: dict[str, list[tuple[Any, str]]] = {}
    for world in results.spec["worlds"]:
        choice = Choice.model_validate(world)
        if len(choice.grid) == 1:
            (axis,) = choice.grid
            found[axis] = [(varied[axis], choice.named(varied)) for _, varied in choice.combinations()]
    return found


def axes_picture(results: Results, dpi: int) -> bytes:
    """A panel per axis: regret over always a_0's at each point, hollow where the method broke its world's limit."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows = [one for one in rows_of(results) if one["method"] != "always-safe"]
    floor, axes = _relative(rows_of(results)), axes_of(results)
    names = list(dict.fromkeys(row_for(one["method"]).title for one in rows))
    looks = dict(zip(names, styles_of(names), strict=True))
    across = min(4, max(1, len(axes)))
    with matplotlib.rc_context(LOOK):
        size = max(9.0, 3.4 * across), 3.0 * -(-len(axes) // across) + 1.0
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(-(-len(axes) // across), across, squeeze=False).ravel()
        for ax, points in zip(panels, axes.values(), strict=False):
            for turn, name in enumerate(names):
                mine, aside = {one["world"]: one for one in rows if row_for(one["method"]).title == name}, 0.025 * turn
                at = [(place + aside, mine[world]) for place, (_, world) in enumerate(points) if world in mine]
                ys = [one["regret_mean"] / floor[one["world"]] for _, one in at]
                bars = [[abs(one["regret_mean"] - one[end]) / floor[one["world"]] for _, one in at] for end in ENDS]
                look = looks[name]
                ax.errorbar([x for x, _ in at], ys, bars, color=look.light, lw=look.width, capsize=2, elinewidth=0.6)
                for (x, one), y in zip(at, ys, strict=True):
                    fill = look.light if one["broken"] == 0 else "white"
                    ax.plot([x], [y], "o", color=look.light, mfc=fill, ms=5, zorder=3)
            middle = 0.0125 * (len(names) - 1)  # methods stand side by side, so that their intervals can be told apart
            ax.set_xticks([place + middle for place in range(len(points))], [str(value) for value, _ in points])
            ax.set_title(
                points[0][1].removesuffix(str(points[0][0])).rstrip(" =:"), loc="left", fontsize=9, fontweight="bold"
            )
            ax.axhline(1.0, color=QUIET, lw=0.6)
            ax.set_ylim(-0.5, 2.0)
        for ax in panels[len(axes) :]:
            ax.set_axis_off()
        for ax in panels[: len(axes) : across]:
            ax.set_ylabel("regret, always a₀ = 1")
        shown = {row_for(one["method"]).title: dagger(row_for(one["method"])) for one in rows}
        marks = [Line2D([], [], color=looks[name].light, marker="o", label=shown[name]) for name in names]
        hollow = "hollow: broke the limit at least once"
        marks.append(Line2D([], [], linestyle="", marker="o", color=QUIET, mfc="white", label=hollow))
        note = MEMORY if any(one["memory"] for one in rows) else None
        figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False, fontsize=8, title=note,
                      title_fontsize=8)  # fmt: skip
        return encoded(figure, "png", dpi=dpi)


SHOWN = (-2.0, 2.0)
"""The same in a single world."""


def pareto(results: Results, dpi: int) -> bytes:
    """Violations per run across (0 has a place), regret in units of always-a_0's up; numbers name the methods."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows = [one for some in groups(rows_of(results)).values() for one in some]  # those that break assumptions last
    worlds, methods = _places(rows), _methods(rows)
    across = min(3, len(worlds))
    down = -(-len(worlds) // across)
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(5.0 * across, 4.2 * down + 0.5 + 0.2 * -(-len(methods) // 2)), layout="constrained")
        axes = figure.subplots(down, across, squeeze=False).ravel()
        panels = [
            (ax, _pareto_panel(ax, world, [one for one in rows if one["world"] == world], methods))
            for ax, world in zip(axes, worlds, strict=False)
        ]
        for ax in axes[len(worlds) :]:
            ax.set_axis_off()
        names = [f"{place + 1}  {dagger(row_for(method))}" for place, method in enumerate(methods)]
        names.append("a number twice: by its theorem, and tuned")
        marks = [Line2D([], [], linestyle="", label=name) for name in names]
        marks += _kinds()
        marks.append(
            Line2D([], [], linestyle="", marker="v", color=QUIET, mfc="white", label="triangle: beyond the edge")
        )
        figure.legend(handles=marks, loc="outside lower left", ncols=min(3, 1 + across), frameon=False, fontsize=9,
                      title=MEMORY, title_fontsize=9, alignment="left")  # fmt: skip
        figure.draw_without_rendering()
        for ax, dots in panels:
            _number_dots(ax, dots)
        return encoded(figure, "png", dpi=dpi)


def _pareto_panel(
    ax: Any, world: str, here: Sequence[dict[str, Any]], methods: Sequence[str]
) -> list[tuple[float, float, int]]:
    """One world; its dots (x, y, number)."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    floor = next((one["regret_mean"] for one in here if one["method"] == "always-safe"), 1.0)
    unit, steps = 1.0 / here[0]["seeds"], here[0]["episodes"]
    shares = [one["regret_mean"] / floor for one in here]
    low, high = max(SHOWN[0], min(0.0, *shares)), min(SHOWN[1], max(1.0, *shares))
    room, dots = 0.08 * (high - low), []
    for one, share in zip(here, shares, strict=True):
        x, y = one["broken"] * unit, min(max(share, low - 0.6 * room), high + 0.6 * room)
        colour, size = _hue(one["method"]), 9 if one["method"] in OWN_METHODS else 6
        shape = "o" if low <= share <= high else "v" if share < low else "^"
        fill = colour if bounded(one) else "white"
        ax.plot([x], [y], shape, color=colour, mfc=fill, ms=size, zorder=3, clip_on=False)
        dots.append((x, y, methods.index(one["method"]) + 1))
    ax.set_xscale("symlog", linthresh=unit)
    ax.xaxis.set_major_locator(FixedLocator([0.0, *(10.0**k for k in range(int(np.log10(steps)) + 2))]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.set_xlim(-0.15 * unit, 10.0 * max([1.0, *(x for x, *_ in dots)]))
    ax.set_ylim(low - room, high + room)
    breaks = here[0]["breaks"]
    ax.set_title(world, loc="left", fontsize=10, fontweight="bold", pad=16 if breaks else 6)
    if breaks:
        ax.text(0.0, 1.01, f"broken on purpose: {breaks}", transform=ax.transAxes, fontsize=8, color=QUIET, va="bottom")
    ax.set_xlabel(OVER[here[0]["limits"]])
    ax.set_ylabel("regret, always a₀ = 1")
    return dots


def claims(results: Results) -> list[Claim]:
    """Of the anchors; and that no method that has a theorem for every step broke it where its assumptions hold: not
    where a_0 itself is over τ, as in OPSE's linear instances, nor where costs are not what the Problem says, as in
    twins that nobody was told of."""
    made = anchor_claims(results.folder / "anchors")
    wrong = broken_assumptions(results)
    certified = [
        cell for cell in results.finished if cell.cost_radius_origin == "theorem" and _world(cell) not in wrong
    ]
    beside = f"; left out: {', '.join(sorted(wrong))}" if wrong else ""
    for method in dict.fromkeys(cell.agent for cell in certified):
        if row_for(method).track not in ("step", "coin"):
            continue
        counts = [(_world(cell), per_seed(cell, "violations")) for cell in certified if cell.agent == method]
        broken_in = [f"{world}: {int(count.sum()):,}" for world, count in counts if count.sum() > 0]
        runs, worlds = sum(len(count) for _, count in counts), len({world for world, _ in counts})
        made.append(
            Claim(
                f"{method}-keeps-its-theorem",
                f"{row_for(method).title} keeps the promise of its theorem in every world that it plays in.",
                not broken_in,
                f"violations in {counted(runs, 'run')} in {counted(worlds, 'world')}: {'; '.join(broken_in) or 0}"
                + beside,
            )
        )
    return made


STORED = ("regret_mean", "regret_low", "regret_high", "violations_total", "violating_runs", "seeds")
"""What pages of the documentation may name of a row."""

VIEW = View(
    charts=charts, claims=claims, table=table, summary=summary, pictures=pictures, files=files, more=more,
    values=values, stored=STORED,
)  # fmt: skip
