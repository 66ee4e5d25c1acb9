"""Figure 1 (section 5.1) and every other study that counts episodes: learning curves, the paper's claims, regret.

A claim is evaluated wherever the agents that it speaks of were run, and its evidence says on how many seeds it rests.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tether.lab.books import Cell, Interval, Results, interval, paired_difference, per_seed
from tether.lab.plots import (
    Chart,
    Guide,
    Panel,
    Series,
    even_grid,
    in_turns,
    log_grid,
    moving_average,
    number,
    radius_note,
    role,
    running_sum,
    styles,
)
from tether.lab.registry import meaning_of
from tether.lab.view import Claim, Table, View, agent_head, counted, html_table, numbered, origin_columns
from tether.lab.worlds.linear_mdp import SAFE_TOLERANCE
from tether.records import Array

MOST_CURVES, MOST_WORLDS = 12, 8
"""More curves in a figure, or more figures of a study, say nothing; the tables hold them all."""


def by_world(results: Results) -> list[list[Cell]]:
    """Finished cells, one list per world."""
    places: dict[str, list[Cell]] = {}
    for cell in results.finished:
        places.setdefault(f"{cell.world} {sorted(cell.world_options.items())}", []).append(cell)
    return list(places.values())


# Charts: reward, violations and regret over episodes, for every world of the study


def charts(results: Results) -> list[Chart]:
    """What there is to draw: one chart per world of the study."""
    made, places = [], by_world(results)
    for index, cells in enumerate(places[:MOST_WORLDS]):
        name = results.study if len(places) == 1 else f"{results.study}-{index + 1}"
        title = results.title or results.study
        title += "" if len(places) == 1 else f" · {_place(cells[0], results)}"
        shown = most_telling(cells)
        panels = (reward_panel(shown), violations_panel(shown), regret_panel(shown))
        caption = _caption(results, cells, shown)
        if index + 1 == MOST_WORLDS < len(places):
            caption += f" {len(places) - MOST_WORLDS} more worlds are in the table."
        made.append(Chart(name, title, caption, panels))
    return made


def _place(cell: Cell, results: Results) -> str:
    """A world by the options in which it differs from the others of the study."""
    differing = [
        f"{name}={value}"
        for name, value in cell.world_options.items()
        if any(other.world_options.get(name) != value for other in results.cells)
    ]
    return " ".join([cell.world, *differing])


def _caption(results: Results, cells: Sequence[Cell], shown: Sequence[Cell]) -> str:
    counts = sorted({len(cell.seeds) for cell in cells})
    runs = counted(counts[0], "run") if len(counts) == 1 else f"{counts[0]} to {counted(counts[-1], 'run')}"
    length = counted(results.episodes, "episode")
    text = f"{runs} of {length} each, the same instances for every agent; bands: 95% over seeds."
    if len(shown) < len(cells):
        text += f" {len(shown)} of {len(cells)} agents: the lowest regrets of every kind; the table has all."
    if results.missing:
        text += f" {counted(len(results.missing), 'run')} missing."
    return text


def most_telling(cells: Sequence[Cell]) -> list[Cell]:
    """At most MOST_CURVES cells in their order: of every kind of agent the ones with the lowest regret, in turns."""
    if len(cells) <= MOST_CURVES:
        return list(cells)
    regrets = [float(cell["regret"].sum(axis=1).mean()) for cell in cells]
    return [cells[index] for index in in_turns([role(cell) for cell in cells], regrets, MOST_CURVES)]


def reward_panel(cells: Sequence[Cell]) -> Panel:
    """Moving average of the realised return; the optimum of the same instances is exact and has no band of its own."""
    episodes = cells[0]["reward"].shape[1]
    at = log_grid(episodes)
    at = at[at >= min(10, episodes)]  # single episodes of a few seeds are only noise
    series, optimum = [], float(np.mean([cell["optimal_value"].mean() for cell in cells]))
    for cell, style in zip(cells, styles(cells), strict=True):
        reward, best = cell["reward"], cell["optimal_value"]
        centre = moving_average(reward, at).mean(axis=0)
        gap = interval(moving_average(reward - best, at))
        band = (centre, gap.low + (centre - gap.mean), gap.high + (centre - gap.mean))
        series.append(Series(cell.name, radius_note(cell), style, at, *band, total=float(reward.sum())))
    return Panel(
        key="reward",
        title="Reward per episode",
        subtitle="Average over the last quarter of the episodes so far. Band: 95% over seeds, of the gap to the same "
        "instance's optimum.",
        x_title="episode",
        y_title="reward",
        x_scale="log",
        series=tuple(series),
        guides=(Guide(f"optimal safe policy (exact): {optimum:.3f}", at[[0, -1]], np.full(2, optimum)),),
    )


def violations_panel(cells: Sequence[Cell]) -> Panel:
    """Steps whose true cost exceeds τ, cumulated: the point of the paper."""
    seeds = max(len(cell.seeds) for cell in cells)
    series = _running_sums(cells, "violations", even_grid)
    clean = [(curve, len(cell.seeds)) for curve, cell in zip(series, cells, strict=True) if curve.total == 0.0]
    where = counted(seeds, "run") + " each" if {runs for _, runs in clean} == {seeds} else "all finished runs"
    return Panel(
        key="violations",
        title="True violations so far",
        subtitle="Steps whose true cost exceeds τ, mean per run. The axis is logarithmic above one violation in all "
        "runs, so that 0 is on it.",
        x_title="episode",
        y_title="violations per run",
        y_scale="count",
        unit=1.0 / seeds,
        series=series,
        notes=(f"0 violations in {where}: {' · '.join(curve.name for curve, _ in clean)}",) if clean else (),
        prints_note=True,
    )


def regret_panel(cells: Sequence[Cell]) -> Panel:
    """Exact pseudo-regret against the best safe policy, on log-log axes beside the slope of √K."""
    series = _running_sums(cells, "regret", log_grid)
    negative = [curve.name for curve in series if (curve.y <= 0.0).any()]
    unsafe = any(cell.cost_radius_origin == "none" for cell in cells)
    subtitle = "Mean per run, beside the slope of √K."
    if unsafe or negative:
        subtitle = (
            "Agents that break the constraint can earn more than the safe optimum; log axes cannot show regret ≤ 0 or "
            "bands that reach it."
        )
    return Panel(
        key="regret",
        title="Pseudo-regret so far",
        subtitle=subtitle,
        x_title="episode K",
        y_title="regret vs. the safe optimum",
        x_scale="log",
        y_scale="log",
        series=series,
        guides=_root_guide(series),
        notes=(f"Partly ≤ 0, and on log axes not drawn there: {' · '.join(negative)}.",) if negative else (),
    )


def _root_guide(series: Sequence[Series]) -> tuple[Guide, ...]:
    """√K from a tenth of the episodes on, placed under the lowest curve so that it crosses none."""
    x = series[0].x
    if len(x) < 2 or x[-1] < 10.0:
        return ()
    span = np.array([max(1.0, x[-1] / 30.0), x[-1]])
    ends = [np.interp(span, x, curve.y) for curve in series if (curve.y > 0.0).all()]
    if not ends:
        return ()
    scale = min(float((end / np.sqrt(span)).min()) for end in ends)
    return (Guide("√K", span, 0.55 * scale * np.sqrt(span)),)


def _running_sums(cells: Sequence[Cell], column: str, grid: Callable[[int], Array]) -> tuple[Series, ...]:
    pairs = zip(cells, styles(cells), strict=True)
    return tuple(running_sum(cell.name, radius_note(cell), style, cell[column], grid) for cell, style in pairs)


# Claims of section 5.1, and ours


def claims(results: Results) -> list[Claim]:
    """Every claim that these results can decide, per world."""
    found: list[Claim] = []
    places = list(dict.fromkeys((cell.world, str(cell.world_options)) for cell in results.cells))
    for place, (world, options) in enumerate(places):
        cells = [cell for cell in results.finished if (cell.world, str(cell.world_options)) == (world, options)]
        here = [*_told_beats(cells), *_penalties(cells), *_zero_violations(cells), *beside_default(cells)]
        suffix = f"@{world}-{place + 1}" if len(places) > 1 else ""
        found += [replace(claim, id=claim.id + suffix) for claim in here]
    return found


def _told_beats(cells: list[Cell]) -> list[Claim]:
    """LSVI-UCB that knows the safe set against the published algorithm that must learn it."""
    told = [cell for cell in cells if cell.cost_radius_origin == "exact"]
    paper = [cell for cell in cells if cell.explorer == "paper"]
    if not told or not paper:
        return []
    reward = paired_difference(told[0], paper[0], "reward")
    return [
        Claim(
            "told-beats-slucb",
            "LSVI-UCB that is told γ* earns more per episode than SLUCB-QVI, which is not.",
            bool(reward.low > 0.0),
            f"reward per episode, told minus SLUCB-QVI: {reward} over {_runs(paper)}{_undecided(reward)}",
        )
    ]


def penalised(cells: Sequence[Cell]) -> list[Cell]:
    """LSVI-UCB with a penalty, by its λ'."""
    found = [cell for cell in cells if cell.cost_radius_origin == "none" and cell.options.get("penalty")]
    return sorted(found, key=lambda cell: float(cell.options["penalty"]))


def _penalties(cells: list[Cell]) -> list[Claim]:
    """Whether reward and violations fall as λ' grows: step by step, and surely from the smallest to the largest."""
    on_costs = [cell for cell in penalised(cells) if cell.agent == "lsvi-ucb" and cell.options["penalty"] > 0.0]
    if len(on_costs) < 2:
        return []
    made = []
    for column, what in (("reward", "reward per episode"), ("violations", "number of violations")):
        steps = [(a, b, paired_difference(b, a, column)) for a, b in pairwise(on_costs)]
        overall = paired_difference(on_costs[-1], on_costs[0], column)
        falls = all(difference.mean < 0.0 for _, _, difference in steps) and bool(overall.high < 0.0)
        parts = [f"{a.options['penalty']:g} to {b.options['penalty']:g}: {difference}" for a, b, difference in steps]
        made.append(
            Claim(
                f"larger-penalty-lowers-{column}",
                f"LSVI-UCB on r − λ'c: a larger λ' gives a smaller {what}.",
                falls,
                f"change of the {what} per run, paired, from λ' = {'; '.join(parts)}; from the smallest to the "
                f"largest: {overall} over {_runs(on_costs)}{_undecided(overall)}",
            )
        )
    return made


def _zero_violations(cells: list[Cell]) -> list[Claim]:
    """Count true violations of every agent that is neither told γ* nor unconstrained."""
    made, seen = [], dict[str, int]()
    for cell in cells:
        if cell.cost_radius_origin not in ("tuned", "theorem"):
            continue
        name, who = ("slucb", "SLUCB-QVI as published")
        if cell.explorer != "paper":
            name, who = cell.explorer, f"Ours, {cell.explorer},"
        violations = per_seed(cell, "violations")
        steps = int(violations.sum())
        made.append(
            Claim(
                numbered(f"{name}-zero-violations", seen),
                f"{who} never violates the constraint ({cell.cost_radius_origin} β in the safe set).",
                steps == 0,
                f"{cell.label}: {steps} violating steps in {int((violations > 0).sum())} of {_runs([cell])}; largest "
                f"true cost minus τ: {float(cell['worst_cost'].max()):.3g}",
            )
        )
    return made


def _undecided(difference: Interval) -> str:
    """A verdict that more seeds could turn is said to be one."""
    return "; undecided: the interval contains 0" if difference.low <= 0.0 <= difference.high else ""


def _runs(cells: Sequence[Cell]) -> str:
    return counted(min(len(cell.seeds) for cell in cells), "run")


# Claims about a learner beside its safe action, in worlds that have a meaning: what it gains, and what those break
# who have no safe set


def default_of(cells: Sequence[Cell]) -> Cell | None:
    """The cell that plays the safe action and nothing else, if the study has one."""
    return next((cell for cell in cells if cell.agent == "always-safe"), None)


def best_penalty(cells: Sequence[Cell]) -> Cell | None:
    """The penalty with the fewest violations; among equals the one that earns most."""
    return min(
        penalised(cells),
        key=lambda cell: (float(per_seed(cell, "violations").sum()), -float(per_seed(cell, "reward").mean())),
        default=None,
    )


def gain_over_default(cell: Cell, default: Cell) -> Interval:
    """Reward per episode above the default's on the same instances, in the world's own units."""
    meaning = meaning_of(cell.world)
    factor = 1.0 if meaning is None else meaning.reward
    return Interval(*(factor * part for part in paired_difference(cell, default, "reward")))


def beside_default(cells: list[Cell]) -> list[Claim]:
    """What can be said where a learner with the theorem's radius ran beside the safe action; else nothing."""
    default = default_of(cells)
    learner = next((cell for cell in cells if cell.cost_radius_origin == "theorem"), None)
    meaning = None if default is None else meaning_of(default.world)
    if default is None or learner is None or meaning is None:
        return []
    gain = gain_over_default(learner, default)
    made = [
        Claim(
            "learner-beats-default",
            "The safe learner earns more than the safe action, while it learns.",
            bool(gain.low > 0.0),
            f"{learner.label} minus the default, in {meaning.gain}: {gain} over {len(learner.seeds)} runs",
        )
    ]
    free = next((cell for cell in cells if cell.cost_radius_origin == "none" and not cell.options.get("penalty")), None)
    if free is not None:
        broken = per_seed(free, "violations")
        excess = meaning.cost * float(free["worst_cost"].max())
        made.append(
            Claim(
                "unconstrained-breaks-the-constraint",
                "LSVI-UCB without a constraint breaks it in every run.",
                bool((broken > 0).all()),
                f"{broken.mean():.0f} violating steps per run; largest excess over τ: {excess:.3g} {meaning.harm}",
            )
        )
    ours, parts, rivals = float(per_seed(learner, "reward").mean()), [], 0
    for cell in penalised(cells):
        violations, theirs = per_seed(cell, "violations"), gain_over_default(cell, default)
        rivals += bool(violations.sum() == 0 and per_seed(cell, "reward").mean() >= ours)
        parts.append(
            f"λ' = {cell.options['penalty']:g}: {violations.mean():.0f} violations, gain {float(theirs.mean):.3g}"
        )
    if parts:
        made.append(
            Claim(
                "no-penalty-is-a-substitute",
                "No penalty of the grid earns as much as the safe learner without breaking the constraint.",
                rivals == 0,
                f"per run, gain in {meaning.gain} (the safe learner: 0 violations claimed above, gain "
                f"{float(gain.mean):.3g}): {'; '.join(parts)}",
            )
        )
    return made


# The table


def row(cell: Cell, episodes: int) -> dict[str, Any]:
    """One agent. Regret is R_K, summed over the episodes of a run."""
    rewards, regrets, violations = (per_seed(cell, name) for name in ("reward", "regret", "violations"))
    reward, regret = interval(rewards), interval(regrets)
    return {
        "agent": cell.label,
        "explorer": cell.explorer,
        "world": cell.world,
        "seeds": len(cell.seeds),
        "episodes": episodes,
        "reward_mean": float(reward.mean),
        "reward_ci": (float(reward.low), float(reward.high)),
        "regret_mean": float(regret.mean),
        "regret_ci": (float(regret.low), float(regret.high)),
        "regret_median": float(np.median(regrets)),
        "regret_worst": float(regrets.max()),
        "violations_total": int(violations.sum()),
        "violating_runs": int((violations > 0).sum()),
        "worst_cost": float(cell["worst_cost"].max()),
        "cost_radius_origin": cell.cost_radius_origin,
        "value_radius_origin": cell.value_radius_origin,
    }


def table(results: Results) -> Table:
    """A row per agent: reward, regret with its spread over seeds, violations, and whose β it is."""
    rows = [row(cell, results.episodes) for cell in results.finished]
    body = "\n".join(_page_row(one, cell) for one, cell in zip(rows, results.finished, strict=True))
    caption = (
        "Means over runs with 95% bootstrap intervals over seeds. Regret is the exact pseudo-regret of a whole run "
        "against the best safe policy; it can be negative for an agent that breaks the constraint. Violations are "
        "steps whose true cost exceeds τ, in all runs together."
    )
    heads = (
        "Agent", "Runs", "Reward per episode", "Regret", "Median regret", "Worst seed", "Violations",
        "Runs with violations", "Largest true cost − τ", "Cost\u00a0β", "Value\u00a0β",
    )  # fmt: skip
    page = html_table(f"Numbers of {results.study}", caption, heads, body, words=2)
    return Table(
        rows,
        ("agent", "seeds", "reward", "regret", "95% interval", "median", "worst seed", "violations", "in runs"),
        [_line(one) for one in rows],
        [page, *_differences(results)],
    )


def _line(one: dict[str, Any]) -> Sequence[str]:
    return (
        one["agent"],
        str(one["seeds"]),
        f"{one['reward_mean']:.4f}",
        f"{one['regret_mean']:.1f}",
        f"{one['regret_ci'][0]:.1f} to {one['regret_ci'][1]:.1f}",
        f"{one['regret_median']:.1f}",
        f"{one['regret_worst']:.1f}",
        str(one["violations_total"]),
        str(one["violating_runs"]),
    )


def _page_row(one: dict[str, Any], cell: Cell) -> str:
    (low, high), (least, most), worst = one["reward_ci"], one["regret_ci"], one["worst_cost"]
    violations = "zero" if one["violations_total"] == 0 else "some"
    return (
        f"<tr>{agent_head(cell)}<td>{one['seeds']:,}</td>"
        f"<td>{one['reward_mean']:.3f}<small>{low:.3f} to {high:.3f}</small></td>"
        f"<td>{number(one['regret_mean'])}<small>{number(least)} to {number(most)}</small></td>"
        f"<td>{number(one['regret_median'])}</td><td>{number(one['regret_worst'])}</td>"
        f'<td class="{violations}">{one["violations_total"]:,}</td><td>{one["violating_runs"]:,}</td>'
        f"<td>{number(worst if abs(worst) > SAFE_TOLERANCE else 0.0)}</td>"
        f"{origin_columns(cell.cost_radius_origin, cell.value_radius_origin)}</tr>"
    )


def _differences(results: Results) -> list[str]:
    """Regret and reward of each agent minus those of the one that is told γ*, on the same seeds."""
    told = [cell for cell in results.finished if cell.cost_radius_origin == "exact"]
    if len(told) != 1 or len(results.finished) < 2:
        return []
    reference, lines = told[0], []
    for cell in results.finished:
        if cell is reference or not set(cell.seeds) & set(reference.seeds):
            continue
        reward, regret = (paired_difference(cell, reference, column) for column in ("reward", "regret"))
        lines.append(
            f"<tr>{agent_head(cell)}<td>{signed(float(reward.mean), 4)}<small>{signed(float(reward.low), 4)} to "
            f"{signed(float(reward.high), 4)}</small></td><td>{number(float(regret.mean))}"
            f"<small>{number(float(regret.low))} to {number(float(regret.high))}</small></td></tr>"
        )
    caption = (
        f"Paired differences from {reference.name}: each agent minus the reference on the same instance and "
        "noise, so that what they share cancels. 95% bootstrap over seeds."
    )
    return [html_table("Paired differences", caption, ("Agent", "Reward per episode", "Regret"), "\n".join(lines))]


def signed(value: float, digits: int) -> str:
    """A difference with its sign, a true minus among them; what rounds to zero has none."""
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0.0:.{digits}f}"


def summary(results: Results, rows: list[dict[str, Any]]) -> str:
    """How much was run."""
    runs = sum(one["seeds"] for one in rows)
    return f"{len(rows)} agents, {runs:,} runs of {results.episodes:,} episodes, the same instances for all agents."


VIEW = View(charts=charts, claims=claims, table=table, summary=summary)
