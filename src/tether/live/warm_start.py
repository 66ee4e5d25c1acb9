"""Warm start: data from before the log, checked row by row. The cost model needs only (φ, z), no propensities."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tether.agents.checks import check_step, checked_costs, checked_feature, checked_reward
from tether.errors import InputError, TetherError
from tether.live.events import WarmStarted
from tether.live.outcomes import check_next
from tether.live.states import StateCodec
from tether.live.store import canonical
from tether.problem.problem import Problem

MOST_ROWS = 100_000
"""Rows of one warm start: they are one atomic batch in the log."""

ROWS_PER_ENTRY = 1000
FAR = 10.0
"""A cost further than this many σ outside ±B‖φ‖ contradicts the declared B or σ: most likely another unit."""

Duplicates = Literal["refuse", "drop", "keep"]


def warm_start_events(
    problem: Problem,
    states: StateCodec,
    features: Any,
    costs: Any,
    *,
    rewards: Any = None,
    steps: Any = None,
    seen_states: Sequence[Any] | None = None,
    next_states: Sequence[Any] | None = None,
    duplicates: Duplicates = "refuse",
    source: str = "",
) -> list[WarmStarted]:
    """The events of a warm start, or an InputError that names the first row that cannot be used.

    features (n, d), costs (n,) or (n, M). Rows without a reward teach the cost alone. `steps` (n,) may be left out at
    H = 1. `duplicates` says what to do with rows that are equal in every number: where costs are continuous, two equal
    rows are one row exported twice; where costs are 0 or 1, "keep" them.
    """
    if duplicates not in ("refuse", "drop", "keep"):
        raise InputError(f"duplicates is 'refuse', 'drop' or 'keep', not {duplicates!r}.")
    columns = {"costs": costs, "rewards": rewards, "steps": steps, "states": seen_states, "next_states": next_states}
    count = _check_lengths(features, columns)
    if steps is None and problem.horizon > 1:
        raise InputError(f"with H = {problem.horizon} each row needs its step: pass steps (n,).")
    rows = []
    for n in range(count):
        picked = {name: None if column is None else column[n] for name, column in columns.items()}
        try:
            rows.append(_row(problem, states, features[n], picked))
        except TetherError as error:
            raise InputError(f"row {n} of the warm start cannot be used: {error}") from error
    return _events(_without_duplicates(rows, duplicates), source)


def _check_lengths(features: Any, columns: dict[str, Any]) -> int:
    """n, the same for every column."""
    try:
        count = len(features)
        lengths = {name: len(column) for name, column in columns.items() if column is not None}
    except TypeError as error:
        raise InputError(f"a warm start needs features (n, d) and costs (n,) or (n, M): {error}.") from error
    if not 1 <= count <= MOST_ROWS:
        raise InputError(f"a warm start has 1 to {MOST_ROWS} rows, but these are {count}: split it into several.")
    for name, length in lengths.items():
        if length != count:
            raise InputError(f"there are {count} features but {length} {name}: each row needs one of each.")
    if "costs" not in lengths:
        raise InputError("a warm start needs costs: they are what it is for.")
    return count


def _row(problem: Problem, states: StateCodec, feature: Any, picked: dict[str, Any]) -> dict[str, Any]:
    """One row as the log holds it, checked."""
    step = 0 if picked["steps"] is None else picked["steps"]
    check_step(step, problem.horizon)
    x = checked_feature(feature, problem)
    z = checked_costs(picked["costs"], problem, needed=False)
    reward = None if picked["rewards"] is None else checked_reward(picked["rewards"])
    if z is None and reward is None:
        raise InputError("it has neither a cost nor a reward, so it says nothing.")
    if z is not None:
        limit = np.array(problem.gamma_norm) * float(np.linalg.norm(x)) + FAR * np.array(problem.noise)
        if not (np.abs(z) <= limit).all():
            raise InputError(
                f"its cost is {z.tolist()}, but with ‖γ*‖ <= B and noise σ it stays within ±{limit.tolist()} "
                f"(B‖φ‖ + {FAR:g}σ). Is it in another unit? Else raise gamma_norm or noise."
            )
    if picked["states"] is None and problem.baseline_cost is None and reward is not None:
        raise InputError("the cost of the safe action is unknown here, so rows with rewards need their states.")
    if picked["next_states"] is not None and problem.horizon > 1:
        check_next(problem, picked["next_states"])
    return {
        "step": int(step),
        "state": states.encode(picked["states"]),
        "feature": x.tolist(),
        "reward": reward,
        "cost": None if z is None else z.tolist(),
        "next_state": states.encode(picked["next_states"]),
    }


def _without_duplicates(rows: list[dict[str, Any]], duplicates: Duplicates) -> list[dict[str, Any]]:
    if duplicates == "keep":
        return rows
    texts = [canonical(row) for row in rows]
    repeated = {text: times for text, times in Counter(texts).items() if times > 1}
    if not repeated:
        return rows
    if duplicates == "refuse":
        first = next(n for n, text in enumerate(texts) if text in repeated)
        again = texts.index(texts[first], first + 1)
        raise InputError(
            f"rows {first} and {again} of the warm start are equal in every number, and {len(repeated)} rows occur "
            "more than once: counting a measurement twice makes bounds too small. Pass duplicates='drop' to count each "
            "once, or duplicates='keep' if equal rows are separate measurements (costs of 0 or 1, say)."
        )
    return list(dict(zip(texts, rows, strict=True)).values())


def _events(rows: list[dict[str, Any]], source: str) -> list[WarmStarted]:
    """Rows in entries of a readable size, each with a digest that may occur once in a log."""
    whole = hashlib.sha256(canonical(rows).encode()).hexdigest()
    parts = [rows[first : first + ROWS_PER_ENTRY] for first in range(0, len(rows), ROWS_PER_ENTRY)]
    return [WarmStarted(digest=f"{whole}:{n}", rows=part, source=source) for n, part in enumerate(parts)]
