"""The journal: the last decisions as rows and columns, for the dashboard. A fold over the end of the log.

Nothing here touches a decision. Memory is bounded: only the last `KEPT` decisions are held.
"""

from collections import OrderedDict
from typing import Any

import numpy as np

from tether.live.advisor import Advisor
from tether.live.store import Entry
from tether.records import Array

KEPT = 20_000
"""Decisions that the journal holds."""

HISTORY = 20
"""Changes of mode, stops, alarms and refusals that the journal holds."""

TEXTS = {
    "mode": "mode set to {mode}: {why}",
    "stopped": "stopped: {why}",
    "resumed": "resumed: {why}",
    "tripped": "{message}",
    "alarm-reset": "alarm reset: {why}",
    "gate-refused": "the gate refused a certificate: {why}",
    "withheld": "decision {decision_id} did not leave, a_0 did: {reason}",
    "warm-start": "warm start: {source}",
    "configured": "started, library {library}",
}


class Journal:
    """Rows of the last decisions, with their outcomes, and the last changes of everything else."""

    def __init__(self, advisor: Advisor) -> None:
        self._advisor = advisor
        head = advisor.store.head().seq
        self.seq = max(0, head - 3 * KEPT)
        self.rows: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.history: list[dict[str, Any]] = []
        self.times: dict[str, float] = {}
        self._forgotten = 0
        self.follow()

    def follow(self) -> list[str]:
        """Take in what the log holds by now; returns the kinds of the new entries."""
        kinds = []
        while page := self._advisor.store.read(self.seq, 1000):
            for entry in page:
                self._take(entry)
                kinds.append(entry.kind)
            self.seq = page[-1].seq
        return list(dict.fromkeys(kinds))

    def _take(self, entry: Entry) -> None:
        body = entry.body
        if entry.kind == "decision":
            self.rows[body["decision_id"]] = row_of(entry)
            if len(self.rows) > KEPT:
                self.rows.popitem(last=False)
                self._forgotten += 1
        elif entry.kind == "outcome":
            row = self.rows.get(body["decision_id"])
            if row is not None:
                row["outcome"] = {name: body[name] for name in ("reward", "cost", "applied")} | {"time": entry.time}
                row["a_0"] = self._a_0_instead(row, body)
        elif entry.kind == "withheld" and body["decision_id"] in self.rows:
            self.rows[body["decision_id"]].update(held(entry))
        if entry.kind in TEXTS:
            self.times[entry.kind] = entry.time
            text = TEXTS[entry.kind].format_map({**{"why": "", "source": "", "library": ""}, **body})
            event = {"seq": entry.seq, "time": entry.time, "kind": entry.kind, "by": body.get("by"), "text": text}
            self.history = [event, *self.history][:HISTORY]

    def _a_0_instead(self, row: dict[str, Any], body: dict[str, Any]) -> float | Array | None:
        """What is known of a_0's reward there: the reward itself if a_0 acted, else φ_0(s), to estimate it from."""
        if row["is_baseline"] and body["applied"] == row["played"]:
            return float(body["reward"])
        try:
            phi_0 = self._advisor.problem.look_up(self._advisor.states.decode(body["state"])).actions.phi_0
        except Exception:  # a picture's number: whatever fails in the caller's functions, there is none
            return None
        return float(body["reward"]) if np.array_equal(phi_0, body["feature"]) else phi_0

    def _baseline_rewards(self, rows: list[dict[str, Any]]) -> list[float | None]:
        """a_0's reward at each row: as seen, or ⟨θ̂_h, φ_0(s)⟩ with the newest θ̂, and so a function of the log alone."""
        agent, estimates = self._advisor.replica.learner.agent, dict[int, Array]()
        rewards: list[float | None] = []
        for row in rows:
            known = row["a_0"]
            if isinstance(known, np.ndarray):
                step = row["step"]
                if step not in estimates:
                    estimates[step] = reward_estimate(agent, step)
                known = float(estimates[step] @ known)
            rewards.append(known if known is not None and np.isfinite(known) else None)
        return rewards

    def last_radius(self) -> dict[str, Any]:
        """Value and origin of the newest radius: a proposal that failed has none."""
        for row in reversed(self.rows.values()):
            if row["radius_origin"] != "none":
                return {"value": row["radius"], "origin": row["radius_origin"]}
        return {"value": None, "origin": None}

    def page(self, limit: int, before: int | None, kind: str) -> tuple[list[dict[str, Any]], int | None]:
        """Up to `limit` rows before entry `before`, newest first, and where the next page begins."""
        found: list[dict[str, Any]] = []
        for row in reversed(self.rows.values()):
            if before is not None and row["seq"] >= before:
                continue
            if kind != "all" and counts_as_safe(row) != (kind == "baseline"):
                continue
            if len(found) == limit:
                return found, found[-1]["seq"]
            found.append({name: value for name, value in row.items() if name != "a_0"})
        return found, None

    def series(self, window: int, points: int) -> dict[str, Any]:
        """Columns over the last `window` decisions (0: all that are held), in at most `points` buckets."""
        rows = list(self.rows.values())
        rows = [{**row, "a_0": a_0} for row, a_0 in zip(rows, self._baseline_rewards(rows), strict=True)]
        chosen = rows[-window:] if window else rows
        skipped = len(rows) - len(chosen)
        size = max(1, -(-len(chosen) // points))
        buckets = [chosen[first : first + size] for first in range(0, len(chosen), size)]
        first = self._forgotten + skipped
        columns: dict[str, Any] = {name: [] for name in BUCKET_COLUMNS}
        for number, bucket in enumerate(buckets):
            for name, value in bucket_of(bucket).items():
                columns[name].append(value)
            columns["index"].append(first + number * size + len(bucket))
        whole = self._forgotten == 0
        earlier = bucket_of(rows[:skipped]) if whole and skipped else None
        before = {name: 0.0 if earlier is None else earlier[name] for name in ("reward_sum", "baseline_reward_sum")}
        return {
            "window": len(chosen),
            "total": self._forgotten + len(rows),
            **columns,
            "threshold": self._advisor.problem.threshold[0],
            "baseline_reward_source": "estimated: where another action acted, ⟨θ̂, φ(s, a_0(s))⟩ with the newest θ̂",
            "before": before if whole else None,
        }


BUCKET_COLUMNS = (
    "index", "time", "count", "id", "baseline", "margin_min", "margin_mean", "certified_share", "outcomes",
    "reward_sum", "baseline_reward_sum",
)  # fmt: skip


def bucket_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a run of consecutive decisions says together."""
    shares = [row["certified_share"] for row in rows if row["certified_share"] is not None]
    margins = [row["margin"] for row in rows if row["margin"] is not None]
    seen = [row for row in rows if row["outcome"] is not None]
    compared = [row["a_0"] for row in seen if row["a_0"] is not None]
    return {
        "time": rows[-1]["time"],
        "count": len(rows),
        "id": rows[0]["id"] if len(rows) == 1 else None,
        "baseline": sum(counts_as_safe(row) for row in rows),
        "margin_min": min(margins) if margins else None,
        "margin_mean": sum(margins) / len(margins) if margins else None,
        "certified_share": sum(shares) / len(shares) if shares else None,
        "outcomes": len(seen),
        "reward_sum": sum(row["outcome"]["reward"] for row in seen),
        "baseline_reward_sum": sum(compared) if len(compared) == len(seen) else None,
    }


def counts_as_safe(row: dict[str, Any]) -> bool:
    """Whether a row stands for a_0: by what was played; in shadow mode, where that is always a_0, by the proposal."""
    return bool(row["proposed_is_baseline"] if row["mode"] == "shadow" else row["is_baseline"])


def row_of(entry: Entry) -> dict[str, Any]:
    """One decision as the dashboard's table shows it. In shadow mode the numbers are those of the proposal."""
    body = entry.body
    shown = body["proposal"] if body["mode"] == "shadow" and body["proposal"] is not None else body["certificate"]
    limits = [{name: finite(value) for name, value in limit.items()} for limit in shown["limits"]]
    tightest = min(range(len(limits)), key=lambda j: np.inf if limits[j]["margin"] is None else limits[j]["margin"])
    limit = limits[tightest]
    return {
        "id": body["decision_id"],
        "seq": entry.seq,
        "time": entry.time,
        **{name: body[name] for name in ("episode", "step", "state", "mode", "proposed", "played", "is_baseline")},
        "proposed_is_baseline": body["is_baseline"] and body["proposal"] is None,
        "reason": body["reason"],
        "detail": body["detail"],
        **{name: limit[name] for name in ("bound", "threshold", "margin", "bounds")},
        "constraint": tightest,
        "radius_origin": limit["origin"],
        "radius": limit["radius"],
        "facts": limit.get("facts", 0),
        "certified_share": body["certified"],
        "outcome": None,
        "a_0": None,
    }


def held(entry: Entry) -> dict[str, Any]:
    """What the row of a decision says once it was withheld: it was a_0 that acted."""
    return {"reason": entry.body["reason"], "detail": entry.body["detail"], "is_baseline": True}


def finite(value: Any) -> Any:
    """A logged number, or None where it is not finite (the log writes those as strings)."""
    return None if value in ("inf", "-inf", "nan") else value


def reward_estimate(agent: Any, step: int) -> Array:
    """θ̂_h = A_h^{-1} Σ rφ, (d,): the ridge estimate of the reward."""
    moment = agent.values.reward_moment
    stage = step if len(moment) > 1 else 0
    factor = agent.values.factor[stage]  # U, A = UᵀU
    estimate: Array = np.linalg.solve(factor, np.linalg.solve(factor.T, moment[stage]))
    return estimate
