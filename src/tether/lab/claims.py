"""The claims of the paper's text (section 5.1), and ours, each judged on the results at hand.

A claim is evaluated wherever the agents that it speaks of were run. `holds` is a verdict on this run, and the evidence
says on how many seeds it rests.
"""

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tether.lab.books import Cell, Interval, Results, paired_difference, per_seed


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds here, and what says so."""

    id: str
    text: str
    holds: bool
    evidence: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def evaluate(results: Results) -> list[Claim]:
    """Every claim that these results can decide, per world."""
    if results.counts_units:
        from tether.lab.studies import figure2

        return figure2.evaluate(results)
    from tether.lab.studies.worlds import beside_default

    found: list[Claim] = []
    places = list(dict.fromkeys((cell.world, str(cell.world_options)) for cell in results.cells))
    for number, place in enumerate(places):
        cells = [cell for cell in results.cells if (cell.world, str(cell.world_options)) == place and cell.seeds]
        here = [*_told_beats(cells), *_penalties(cells), *_zero_violations(cells), *beside_default(cells)]
        suffix = f"@{place[0]}-{number + 1}" if len(places) > 1 else ""
        found += [Claim(claim.id + suffix, claim.text, claim.holds, claim.evidence) for claim in here]
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


def _penalties(cells: list[Cell]) -> list[Claim]:
    """Whether reward and violations fall as λ' grows: step by step, and surely from the smallest to the largest."""
    penalised = sorted(
        (cell for cell in cells if cell.agent == "lsvi-ucb" and cell.options.get("penalty", 0.0) > 0.0),
        key=lambda cell: float(cell.options["penalty"]),
    )
    if len(penalised) < 2:
        return []
    claims = []
    for column, what in (("reward", "reward per episode"), ("violations", "number of violations")):
        steps = [(a, b, paired_difference(b, a, column)) for a, b in pairwise(penalised)]
        overall = paired_difference(penalised[-1], penalised[0], column)
        falls = all(difference.mean < 0.0 for _, _, difference in steps) and bool(overall.high < 0.0)
        parts = [f"{_penalty(a)} to {_penalty(b)}: {difference}" for a, b, difference in steps]
        claims.append(
            Claim(
                f"larger-penalty-lowers-{column}",
                f"LSVI-UCB on r − λ'c: a larger λ' gives a smaller {what}.",
                falls,
                f"change of the {what} per run, paired, from λ' = {'; '.join(parts)}; from the smallest to the "
                f"largest: {overall} over {_runs(penalised)}{_undecided(overall)}",
            )
        )
    return claims


def _zero_violations(cells: list[Cell]) -> list[Claim]:
    """Count true violations of every agent that is neither told γ* nor unconstrained."""
    claims = []
    names: dict[str, int] = {}
    for cell in cells:
        if cell.cost_radius_origin not in ("tuned", "theorem"):
            continue
        name = "slucb" if cell.explorer == "paper" else cell.explorer
        names[name] = names.get(name, 0) + 1
        violations = per_seed(cell, "violations")
        broken, steps = int((violations > 0).sum()), int(violations.sum())
        who = "SLUCB-QVI as published" if cell.explorer == "paper" else f"Ours, {cell.explorer},"
        claims.append(
            Claim(
                f"{name}-zero-violations" + (f"-{names[name]}" if names[name] > 1 else ""),
                f"{who} never violates the constraint ({cell.cost_radius_origin} β in the safe set).",
                steps == 0,
                f"{cell.label}: {steps} violating steps in {broken} of {_runs([cell])}; largest true cost minus τ: "
                f"{float(cell['worst_cost'].max()):.3g}",
            )
        )
    return claims


def _penalty(cell: Cell) -> str:
    return f"{cell.options['penalty']:g}"


def _undecided(difference: Interval) -> str:
    """A verdict that more seeds could turn is said to be one."""
    return "; undecided: the interval contains 0" if difference.low <= 0.0 <= difference.high else ""


def _runs(cells: list[Cell]) -> str:
    count = min(len(cell.seeds) for cell in cells)
    return f"{count} run{'' if count == 1 else 's'}"
