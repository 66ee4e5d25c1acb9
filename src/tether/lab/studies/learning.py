"""How fast our explorers learn beside LSVI-UCB that is told γ*: the tables of docs/learning.md, and their claims."""

from collections.abc import Sequence
from dataclasses import replace

from tether.lab.books import Cell, Interval, Results, interval, paired_difference, per_seed
from tether.lab.studies import figure1
from tether.lab.view import Claim, Table, View

PACE = 1.15
"""Regret up to this many times that of LSVI-UCB told γ* keeps pace with it."""
USUAL_GAP = 0.1
"""The least distance of safe costs from τ in the paper's synthetic problem, as Tether sets it."""
DEFAULT = "remaining"
"""The value radius of the default, H − h + 1."""
PLAIN_NAMES = {
    "told": "LSVI-UCB that knows the constraint γ*",
    "adaptive": "ours, adaptive",
    "directional": "ours, directional",
    "certified": "ours, certified",
    "paper": "SLUCB-QVI as published, one tuned β",
}


def name_of(cell: Cell) -> str:
    """Short: whose algorithm, and that nothing was tuned where nothing was."""
    kind = "told" if cell.cost_radius_origin == "exact" else cell.explorer
    if is_default(cell):
        return "ours, all defaults, nothing tuned by hand"
    return PLAIN_NAMES[kind] + (", same default" if cell.options.get("value_radius") == DEFAULT else "")


def is_default(cell: Cell) -> bool:
    """Whether it is the learner that everyone gets."""
    given = (cell.options.get("value_radius"), cell.options.get("condition_on", "all"))
    return cell.explorer == "adaptive" and cell.cost_radius_origin == "theorem" and given == (DEFAULT, "all")


def told_default(cell: Cell) -> bool:
    """Whether it is told γ*, with the value radius of the default."""
    return cell.cost_radius_origin == "exact" and cell.options.get("value_radius") == DEFAULT


def regret(cell: Cell) -> Interval:
    """Regret of a run, mean and interval over seeds."""
    return interval(per_seed(cell, "regret"))


def shown(found: Interval) -> str:
    """150 (136 to 163)."""
    return f"{float(found.mean):.0f} ({float(found.low):.0f} to {float(found.high):.0f})"


def line(cell: Cell) -> Sequence[str]:
    """One row of a table of one world."""
    violations, radius = per_seed(cell, "violations"), cell.options.get("value_radius")
    tuned = "H − h + 1" if radius == DEFAULT else f"{radius:g}"
    runs = int((violations > 0).sum())
    return (name_of(cell), tuned, shown(regret(cell)), str(int(violations.sum())), f"{runs} of {len(violations)}")


HEADS = ("algorithm", "value radius β_v", "regret (95%)", "steps over τ", "in runs")


def more(results: Results) -> dict[str, Table]:
    """Of one world: what everyone gets, and the best of the grid of each explorer. Of several: a row per world."""
    places = figure1.by_world(results)
    if len(places) != 1:
        compared = plain_or_adaptive(places)
        return ({"by-world": by_world(places)} if places else {}) | ({"explorers": compared} if compared.lines else {})
    cells, groups = places[0], dict[str, list[Cell]]()
    for cell in cells:
        if cell.options.get("value_radius") != DEFAULT:
            groups.setdefault("told" if cell.cost_radius_origin == "exact" else cell.explorer, []).append(cell)
    best = [min(group, key=lambda cell: float(regret(cell).mean)) for group in groups.values()]
    usual = [cell for cell in cells if cell.options.get("value_radius") == DEFAULT]
    head = [cell for cell in usual if is_default(cell) or told_default(cell)]
    head = sorted(head, key=told_default) + [cell for cell in best if cell.explorer == "paper"]
    return {
        "headline": Table([], HEADS, [line(cell) for cell in head], []),
        "best": Table([], HEADS, [line(cell) for cell in [*usual, *best]], []),
    }


def by_world(places: Sequence[Sequence[Cell]]) -> Table:
    """Regret of each algorithm, a row per world."""
    heads = ("world", *dict.fromkeys(cell.agent_label for cells in places for cell in cells), "steps over τ")
    lines = []
    for cells in places:
        found = {cell.agent_label: shown(regret(cell)) for cell in cells}
        over = sum(int(per_seed(cell, "violations").sum()) for cell in cells)
        lines.append((cells[0].world_label, *(found.get(head, "–") for head in heads[1:-1]), str(over)))
    return Table([], heads, lines, [])


def own_explorers(cells: Sequence[Cell]) -> dict[str, Cell]:
    """Our own learners of one world with the theorem's cost radius, by explorer."""
    return {cell.explorer: cell for cell in cells if cell.cost_radius_origin == "theorem"}


def plain_or_adaptive(places: Sequence[Sequence[Cell]]) -> Table:
    """Where both are played: each one's regret over that of the best explorer of ours, and what plain saves, paired."""
    lines = []
    for cells in places:
        ours = own_explorers(cells)
        if not {"plain", "adaptive"} <= ours.keys():
            continue
        means = {name: float(regret(cell).mean) for name, cell in ours.items()}
        best, plain, adaptive = min(means.values()), ours["plain"], ours["adaptive"]
        ratios = [f"{means[name] / best:.2f}" for name in ("adaptive", "plain")]
        over = f"{price(cells):.2f}"
        lines.append((cells[0].world_label, *ratios, over, shown(paired_difference(adaptive, plain, "regret"))))
    heads = ("world", "adaptive / best", "plain / best", "adaptive / told γ*", "adaptive − plain (95%, paired)")
    return Table([], heads, lines, [])


def price(cells: Sequence[Cell]) -> float:
    """The default explorer's regret over that of the one told γ*, in one world."""
    (told,) = (cell for cell in cells if told_default(cell))
    return float(regret(own_explorers(cells)["adaptive"]).mean) / float(regret(told).mean)


def prices(results: Results) -> dict[str, float]:
    """`price` by what is known of safe costs and by σ, at the usual gap: told-state-0.1 and so on."""
    found = {}
    for cells in figure1.by_world(results):
        told, ours = cells[0].world_options, own_explorers(cells)
        if {"plain", "adaptive"} <= ours.keys() and told.get("gap") == USUAL_GAP:
            known = "one" if told.get("one_safe_feature") else "state" if told.get("known_costs", True) else "unknown"
            found[f"told-{known}-{round(100 * told['noise'])}"] = price(cells)
    return found


def paces(results: Results) -> list[tuple[str, Cell, Cell, float]]:
    """World, the default, the one that is told γ*, and the ratio of their mean regrets."""
    found = []
    for cells in figure1.by_world(results):
        ours, told = (next((c for c in cells if wanted(c)), None) for wanted in (is_default, told_default))
        if ours is not None and told is not None:
            ratio = float(regret(ours).mean) / float(regret(told).mean)
            found.append((cells[0].world_label, ours, told, ratio))
    return found


def claims(results: Results) -> list[Claim]:
    """Those of figure 1, and where safe costs are known exactly, that the default keeps pace with the one told γ*."""
    made = figure1.claims(results)
    for place, ours, told, ratio in paces(results):
        if not knows_safe_costs(ours):
            continue
        where = f" ({place})" if place else ""
        made.append(
            Claim(
                f"default-keeps-pace{'@' + place if place else ''}",
                f"The default's regret is at most {PACE:g} times that of LSVI-UCB told γ*{where}.",
                ratio <= PACE,
                f"{ratio:.3f} times: {shown(regret(ours))} against {shown(regret(told))}, {len(ours.seeds)} runs each",
            )
        )
    return made


def values(results: Results) -> dict[str, float | str]:
    """The default's regret over that of the one told γ*, least and most: safe costs known exactly, and not."""
    found: dict[str, float | str] = {}
    for name, known in (("known", True), ("unknown", False)):
        ratios = [ratio for _, ours, _, ratio in paces(results) if knows_safe_costs(ours) == known]
        found |= {f"over-told-least-{name}": min(ratios), f"over-told-most-{name}": max(ratios)} if ratios else {}
    lines = plain_or_adaptive(figure1.by_world(results)).lines
    for place, name in enumerate(("adaptive", "plain"), start=1):
        found |= {f"{name}-over-best-most": max(float(line[place]) for line in lines)} if lines else {}
    return found | prices(results)


def knows_safe_costs(cell: Cell) -> bool:
    """Whether the costs of safe actions are known exactly in its world."""
    return bool(cell.world_options.get("known_costs", True)) and not cell.world_options.get("cost_error")


VIEW: View = replace(figure1.VIEW, claims=claims, more=more, values=values)
