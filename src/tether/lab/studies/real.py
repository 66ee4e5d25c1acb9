"""Worlds that nobody here wrote: what each method gains over the safe action, what it breaks, and a picture of it."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.lab.books import Cell, Results, interval, paired
from tether.lab.plots import INK, LOOK, QUIET, Chart, Panel, encoded, running_sum, styles
from tether.lab.real import RealWorld, described
from tether.lab.view import Claim, Picture, Table, View, counted, plain_table, table_files
from tether.records import Array

OURS, SAFE, RIVAL = "slucb-qvi", "always-safe", "lsvi-ucb"
TWINS = ("motor-twin",)
"""Worlds that are not what was declared: what counts there is the alarm, not the gain."""
HEADS = (
    "world", "method", "gain over the safe action", "in the last quarter", "violations", "worst excess", "alarms",
    "ms a step", "lines",
)  # fmt: skip


def places(results: Results) -> list[tuple[RealWorld, list[Cell]]]:
    """Every world with its finished cells, in the order of the spec."""
    found: dict[str, list[Cell]] = {}
    for cell in results.finished:
        found.setdefault(cell.world, []).append(cell)
    return [(described(name), cells) for name, cells in found.items()]


def episodes(world: RealWorld, steps: Array) -> Array:
    """Sums over as many steps as an episode has at most: (n, T) -> (n, T/H)."""
    sums: Array = steps.reshape(len(steps), -1, world.horizon).sum(axis=2)
    return sums


def gains(world: RealWorld, cell: Cell, safe: Cell) -> Array:
    """What an episode gained over the safe action's from the same start, in the world's unit: (n, K)."""
    ours, theirs = paired(cell, safe, "reward")
    gained: Array = world.reward_scale * (episodes(world, ours) - episodes(world, theirs))
    if world.relative:
        gained /= paired(cell, safe, "signal_1")[1].mean(axis=1, keepdims=True)
    return gained


def broken_steps(world: RealWorld, cell: Cell) -> NDArray[np.bool_]:
    """Steps with a cost over its τ, or with the limited quantity beyond its limits: (n, T).

    In a building the latter is the worst of all zones, learned or not.
    """
    low, high = world.limits
    over = cell["violations"] > 0.0
    if world.signals:
        signal = cell["signal_0"]
        over |= ~((signal >= (-np.inf if low is None else low)) & (signal <= (np.inf if high is None else high)))
    return over


def row(world: RealWorld, cell: Cell, safe: Cell | None) -> dict[str, Any]:
    """The numbers of one method in one world."""
    broken = broken_steps(world, cell).sum(axis=1)
    made: dict[str, Any] = {
        "name": f"{world.name} {cell.agent}",
        "world": world.name,
        "title": world.title,
        "method": cell.agent,
        "label": cell.agent_label,
        "runs": len(cell.seeds),
        "steps": int(cell["reward"].shape[1]),
        "unit": world.gain,
        "violations": int(broken.sum()),
        "violating_runs": int((broken > 0).sum()),
        "worst_excess": float(cell["excess"].max()),
        "truth": world.truth,
        "ended": int(cell["ended"].sum()),
        "alarms": int(cell["alarm"].any(axis=1).sum()),
        "milliseconds": 1000.0 * float(np.median(cell["plan_seconds"].mean(axis=1))),
        "lines": lines_of(world, cell.agent),
    }
    if safe is not None and cell.agent != SAFE:
        gained = gains(world, cell, safe)
        quarter = max(1, gained.shape[1] // 4)
        for name, part in (("gain", gained), ("last", gained[:, -quarter:])):
            found = interval(part.mean(axis=1))  # of the mean over episodes, over runs
            made |= {name: float(found.mean), f"{name}_low": float(found.low), f"{name}_high": float(found.high)}
    return made


def rows(results: Results) -> list[dict[str, Any]]:
    """One line per world and method."""
    made = []
    for world, cells in places(results):
        safe = next((cell for cell in cells if cell.agent == SAFE), None)
        made += [row(world, cell, safe) for cell in cells]
    return made


def lines_of(world: RealWorld, method: str) -> int:
    """Lines of code that a user writes beside the environment with its costs, without comments and docstrings."""
    from tether.lab.real import play

    parts = {
        SAFE: (),
        OURS: world.setup,
        "lsvi-ucb": (*world.setup, play.Priced, play.lsvi_ucb),
        "ppo": (play.Priced, play.train_ppo),
        "ppo-lagrangian": (play.Priced, play.train_ppo),
    }
    return sum(code_lines(inspect.getsource(part)) for part in parts[method]) + 1  # and the call


def code_lines(source: str) -> int:
    """Lines that are neither blank, nor comments, nor within docstrings."""
    count, inside = 0, False
    for line in map(str.strip, source.splitlines()):
        quotes = line.count('"""')
        if not inside and line and not line.startswith(("#", '"""')):
            count += 1
        inside ^= quotes == 1
    return count


def table(results: Results) -> Table:
    """Gains, violations, time and lines of every method in every world."""
    made = rows(results)
    lines = [_line(one) for one in made]
    units = "; ".join(f"{title}: {unit}" for title, unit in {one["title"]: one["unit"] for one in made}.items())
    caption = (
        f"Gains are paired by start, per episode, with 95% over runs ({units}). A violation is a step with a cost over "
        "its τ: the true cost, or the observed one where the truth is not known; the worst excess is in units of the "
        "cost. Time is the method's own, without the simulator's. Lines are what a user writes beside the environment."
    )
    return plain_table(results.study, caption, made, HEADS, lines)


def _line(one: dict[str, Any]) -> Sequence[str]:
    spans = [
        f"{one[name]:+.3g} ({one[f'{name}_low']:+.3g} to {one[f'{name}_high']:+.3g})" if name in one else ""
        for name in ("gain", "last")
    ]
    return (
        one["title"],
        one["label"],
        *spans,
        violations_of(one),
        f"{one['worst_excess']:.3g}" if one["violations"] else "none",
        f"{one['alarms']} of {one['runs']}" if one["method"] == OURS else "",
        f"{one['milliseconds']:.2g}" if one["method"] != SAFE else "",
        str(one["lines"]),
    )


def violations_of(one: dict[str, Any]) -> str:
    """How many, whether of the true cost or of the observed one, and in how many runs."""
    kind = "true" if one["truth"] else "observed"
    return f"{one['violations']:,} {kind}, in {one['violating_runs']} of {one['runs']} runs"


def claims(results: Results) -> list[Claim]:
    """Ours breaks nothing anywhere; it gains in four of five worlds; a twin raises the alarm."""
    made, ours = [], [one for one in rows(results) if one["method"] == OURS]
    for one in ours:
        kind = "true" if one["truth"] else "observed"
        text = f"{one['title']}: no {kind} violation by SLUCB-QVI."
        found = f"{one['violations']:,} of {one['runs'] * one['steps']:,} steps over τ"
        made.append(Claim(f"safe@{one['world']}", text, one["violations"] == 0, found))
        if one["world"] in TWINS:
            every = one["alarms"] == one["runs"]
            text = f"{one['title']}: the change is noticed in every run."
            made.append(
                Claim(f"noticed@{one['world']}", text, every, f"alarms in {one['alarms']} of {one['runs']} runs")
            )
    free = {one["title"]: one["violations"] for one in rows(results) if one["method"] == RIVAL}
    if free:
        text = "LSVI-UCB with a penalty breaks the limit in every world."
        found = "; ".join(f"{title}: {count:,} steps" for title, count in free.items())
        made.append(Claim("rival-breaks", text, all(count > 0 for count in free.values()), found))
    honest = [one for one in ours if one["world"] not in TWINS and "gain" in one]
    winners = [one["title"] for one in honest if one["gain_low"] > 0.0]
    if honest:
        text = "SLUCB-QVI gains over the safe action in all worlds but one at most, its interval above 0."
        found = f"{len(winners)} of {len(honest)}: {', '.join(winners) or 'none'}"
        made.append(Claim("gains", text, len(winners) >= max(1, len(honest) - 1), found))
    return made


def charts(results: Results) -> list[Chart]:
    """Per world: what was gained so far, and what was broken so far."""
    made = []
    for world, cells in places(results):
        safe = next((cell for cell in cells if cell.agent == SAFE), None)
        if safe is None:
            continue
        gained, broken = [], []
        for cell, style in zip(cells, styles(cells), strict=True):
            note = world.title
            gained.append(running_sum(cell.agent_label, note, style, gains(world, cell, safe)))
            counts = episodes(world, broken_steps(world, cell).astype(np.float64))
            broken.append(running_sum(cell.agent_label, note, style, counts))
        zero = [curve.name for curve in broken if curve.total == 0.0]
        runs, length = min(len(cell.seeds) for cell in cells), len(gained[0].x)
        caption = f"{world.title}: {runs} runs of {length} × {world.horizon} steps. Bands: 95% over runs."
        unit = f"{world.gain}, summed over episodes"
        panels = (
            Panel(key="gain", title="Gained over the safe action so far", subtitle=unit, x_title="episode",
                  y_title="gain, summed", series=tuple(gained)),
            Panel(key="violations", title="Steps over the limit so far", subtitle="Mean per run.", x_title="episode",
                  y_title="steps over τ per run", y_scale="count", unit=1.0 / runs, series=tuple(broken),
                  notes=(f"0 violations: {' · '.join(zero)}",) if zero else (), prints_note=True),
        )  # fmt: skip
        made.append(Chart(f"{results.study}-{world.name}-curves", world.title, caption, panels))
    return made


def pictures(results: Results) -> list[Picture]:
    """Per world the limited quantity in one run of every method, with what was over the limit marked."""
    made = []
    for world, cells in places(results):
        if not world.signals:
            continue
        seed = shown_seed(world, cells)
        made.append(
            Picture(
                f"{results.study}-{world.name}",
                f"{world.title}: one run of each method",
                f"{chosen(world, cells)} "
                + "; ".join(f"{cell.agent_label}: {_over(world, cell, seed)}" for cell in cells),
                lambda dpi, world=world, cells=cells, seed=seed: draw(world, cells, seed, dpi),  # type: ignore[misc]
            )
        )
    return made


def broken_runs(world: RealWorld, cell: Cell) -> dict[int, int]:
    """Seed -> steps over the limit, of the runs that have any."""
    counts = broken_steps(world, cell).sum(axis=1)
    return {seed: int(count) for seed, count in zip(cell.seeds, counts, strict=True) if count}


def shown_seed(world: RealWorld, cells: Sequence[Cell]) -> int:
    """Which run is drawn: of those in which LSVI-UCB broke the limit the one with the median number of steps over it
    (the lower of two, the first seed of equals); where there is none, the first that all have played."""
    both = set.intersection(*(set(cell.seeds) for cell in cells))
    over = [broken_runs(world, cell) for cell in cells if cell.agent == RIVAL]
    broken = sorted((count, seed) for seed, count in (over[0] if over else {}).items() if seed in both)
    return broken[(len(broken) - 1) // 2][1] if broken else min(both)


def chosen(world: RealWorld, cells: Sequence[Cell]) -> str:
    """The rule of `shown_seed` in words, with how many runs it chose from."""
    rival = next((cell for cell in cells if cell.agent == RIVAL), None)
    broken = broken_runs(world, rival) if rival else {}
    if rival is None or not broken:
        return "Drawn: the first run."
    runs = f"{len(broken)} of {len(rival.seeds)} runs"
    return f"Drawn: the median of the {runs} in which {rival.agent_label} was beyond the limit."


def _over(world: RealWorld, cell: Cell, seed: int) -> str:
    broken = broken_runs(world, cell)
    here = counted(broken.get(seed, 0), "step")
    return f"{here} beyond the limit; beyond it in {len(broken)} of {counted(len(cell.seeds), 'run')}"


SHOWN, SHOWN_STEPS = 3, 40
"""Episodes at the end of a run that are shown in full, or as many as have so many steps."""


def draw(world: RealWorld, cells: Sequence[Cell], seed: int, dpi: int) -> bytes:
    """A row per method: its whole run with this seed, and the last episodes with what was to be followed. PNG."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(11.0, 1.0 + 1.35 * len(cells)), layout="constrained")
        grid = figure.subplots(len(cells), 2, squeeze=False, sharex="col", sharey="col", width_ratios=(3, 2))
        low, high = _range(world, cells, seed)
        shown_episodes = max(SHOWN, SHOWN_STEPS // world.horizon)
        follows = (1, 2) if len(world.signals) > 2 else (0, 1)  # what is shown at the end, and what it should be
        for (whole, end), cell, style in zip(grid, cells, styles(cells), strict=True):
            run = cell.seeds.index(seed)
            signal, over = cell["signal_0"][run], broken_steps(world, cell)[run]
            at = np.arange(len(signal))
            last = at[-shown_episodes * world.horizon :]
            for ax, part in ((whole, at), (end, last))[: 1 + (follows[0] == 0)]:
                _limits(ax, world, low, high)
                ax.plot(part, signal[part], color=style.light, linewidth=0.8 if ax is whole else 1.4)
                hit = part[over[part]]
                ax.plot(hit, np.clip(signal[hit], low, high), ".", color="#c62828", markersize=4, zorder=3)
                ax.set(ylim=(low, high), xlim=(part[0], part[-1]))
            if follows[0] > 0:
                end.plot(last, cell[f"signal_{follows[0]}"][run][last], color=style.light, linewidth=1.4)
                end.set(xlim=(last[0], last[-1]))
            if follows[1] < len(world.signals):
                end.plot(last, cell[f"signal_{follows[1]}"][run][last], color=INK, linewidth=1.0, linestyle=":")
            whole.set_ylabel(world.signals[0][1] or world.signals[0][0])
            end.set_ylabel(world.signals[follows[0]][1] or world.signals[follows[0]][0])
            words = f"{cell.agent_label} — {_over(world, cell, seed)}"
            whole.set_title(words, loc="left", fontsize=9.5, color="#c62828" if over.any() else INK)
        shown = [world.signals[place][0] for place in follows if place < len(world.signals)]
        dotted = f"\ndotted: {shown[1]}" if len(shown) > 1 else ""
        words = f"the last {shown_episodes} episodes: {shown[0]}{dotted}"
        grid[0][1].set_title(words, loc="left", fontsize=8.5, color=QUIET)
        for ax in grid[-1]:
            ax.set_xlabel("step")
        place = world.title if world.cell_of(seed) in world.title else f"{world.title}, {world.cell_of(seed)}"
        words = f"{place}: {world.signals[0][0]}, and its limits\n{chosen(world, cells)}"
        figure.suptitle(words, color=INK, fontsize=11)
        return encoded(figure, "png", dpi=dpi)


def _range(world: RealWorld, cells: Sequence[Cell], seed: int) -> tuple[float, float]:
    """What the axes show: both limits, and the signal as far as it is not wild."""
    known = [limit for limit in world.limits if limit is not None]
    seen = np.concatenate([cell["signal_0"][cell.seeds.index(seed)] for cell in cells])
    low, high = min([*known, float(np.nanquantile(seen, 0.01))]), max([*known, float(np.nanquantile(seen, 0.99))])
    room = 0.12 * (high - low or 1.0)
    return low - room, high + room


def _limits(ax: Any, world: RealWorld, low: float, high: float) -> None:
    for limit, side in zip(world.limits, (low, high), strict=True):
        if limit is not None:
            ax.axhspan(limit, side, color="#c62828", alpha=0.10, linewidth=0)
            ax.axhline(limit, color="#c62828", linewidth=0.8)


def files(results: Results) -> dict[str, bytes]:
    """The table as Parquet and as Markdown."""
    made = table(results)
    return table_files(results.study, made, made.markdown)


def summary(results: Results, made: list[dict[str, Any]]) -> str:
    """How much was run."""
    runs, steps = sum(one["runs"] for one in made), sum(one["runs"] * one["steps"] for one in made)
    worlds = counted(len({one["world"] for one in made}), "world")
    return f"{worlds} that nobody here wrote, {runs:,} runs, {steps:,} steps."


def values(results: Results) -> dict[str, float | str]:
    """In how many worlds ours gained, LSVI-UCB broke the limit and PPO did; and what ours broke. Twins do not count."""
    made = rows(results)
    own = [one for one in made if one["world"] not in TWINS]
    ppo = {one["world"] for one in own if one["method"].startswith("ppo") and one["violations"]}
    return {
        "worlds": len({one["world"] for one in own}),
        "gained": sum(one["gain_low"] > 0.0 for one in own if one["method"] == OURS and "gain_low" in one),
        "violations": sum(one["violations"] for one in made if one["method"] == OURS),
        "rival-worlds": sum(one["violations"] > 0 for one in own if one["method"] == RIVAL),
        "ppo-worlds": len(ppo),
    }


STORED = (
    "gain", "gain_low", "gain_high", "last", "last_low", "last_high", "violations", "violating_runs", "runs", "steps",
    "worst_excess", "alarms", "lines",
)  # fmt: skip
"""What pages of the documentation may name of a row."""

VIEW = View(
    charts=charts, claims=claims, table=table, summary=summary, pictures=pictures, files=files, values=values,
    stored=STORED,
)  # fmt: skip
