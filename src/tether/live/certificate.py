"""Certificates: everything that somebody needs who asks, later, why an action was thought safe."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from tether import __version__
from tether.kernels.compiled import KERNEL
from tether.problem.problem import Problem
from tether.records import CostBound, Origin, Radius


@dataclass(frozen=True, slots=True)
class Limit:
    """The evidence for one constraint: cost <= bound <= threshold, with this radius.

    `bounds` says what is bounded ("cost" or "expected cost"), `gate_bound` is what the independent gate computed
    (None for the safe action, which needs no data), `baseline_cost` is τ_h(s), None if unknown. `facts` is how many
    remembered safe costs the bound rests on, beside that of the state itself.
    """

    bound: float
    threshold: float
    radius: float
    origin: Origin
    baseline_cost: float | None
    bounds: str = "cost"
    gate_bound: float | None = None
    facts: int = 0

    @property
    def margin(self) -> float:
        """τ − bound: what is left under the threshold."""
        return self.threshold - self.bound

    @classmethod
    def of(cls, evidence: CostBound, gate_bound: float | None = None) -> Self:
        """The evidence of a Decision, with the gate's own bound."""
        known = None if math.isnan(evidence.baseline_cost) else evidence.baseline_cost
        return cls(
            evidence.bound,
            evidence.threshold,
            evidence.radius.value,
            evidence.radius.origin,
            known,
            evidence.bounds,
            gate_bound,
            evidence.facts,
        )


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why an action may be played: φ (d,), a bound per constraint, and what the bounds rest on.

    If the action was drawn, `mixture` holds (candidate, probability) of all that could have been but a_0, which has the
    rest; φ is then the mean over it, and the bounds are on the expected cost.

    `seq` and `head` name the entry of the log up to which outcomes were used, `data_version` counts those outcomes,
    `model_hash` is a hash of the numbers that the decision was computed from.
    """

    feature: tuple[float, ...]
    limits: tuple[Limit, ...]
    is_baseline: bool
    reason: str
    detail: str
    data_version: int
    seq: int
    head: str
    model_hash: str
    mixture: tuple[tuple[int, float], ...] | None = None
    kernel: str = KERNEL
    library: str = __version__
    numpy: str = np.__version__

    @property
    def tightest(self) -> Limit:
        """The constraint with the smallest margin."""
        return min(self.limits, key=lambda limit: limit.margin)

    @property
    def margin(self) -> float:
        """τ − bound of the tightest constraint."""
        return self.tightest.margin

    @property
    def is_theorem(self) -> bool:
        """Whether every radius is the theorem's; a tuned one forfeits the guarantee."""
        return all(limit.origin == "theorem" for limit in self.limits)

    @property
    def holds(self) -> bool:
        """Whether this justifies its action: a_0(s), or finite bounds under τ that the gate confirmed."""
        if self.reason == "gate-refused":
            return self.is_baseline
        return self.is_baseline or all(
            limit.gate_bound is not None
            and math.isfinite(limit.bound)
            and math.isfinite(limit.gate_bound)
            and limit.bound <= limit.threshold
            for limit in self.limits
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON. Numbers that are not finite become strings, as JSON has none."""
        return {
            "feature": list(self.feature),
            "limits": [
                {
                    "bound": _number(limit.bound),
                    "threshold": _number(limit.threshold),
                    "margin": _number(limit.margin),
                    "radius": _number(limit.radius),
                    "origin": limit.origin,
                    "baseline_cost": _number(limit.baseline_cost),
                    "bounds": limit.bounds,
                    "gate_bound": _number(limit.gate_bound),
                    "facts": limit.facts,
                }
                for limit in self.limits
            ],
            "is_baseline": self.is_baseline,
            "reason": self.reason,
            "detail": self.detail,
            "data_version": self.data_version,
            "seq": self.seq,
            "head": self.head,
            "model_hash": self.model_hash,
            "mixture": None if self.mixture is None else [list(part) for part in self.mixture],
            "kernel": self.kernel,
            "library": self.library,
            "numpy": self.numpy,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The reverse of `to_json`."""
        limits = tuple(
            Limit(
                float(entry["bound"]),
                float(entry["threshold"]),
                float(entry["radius"]),
                entry["origin"],
                _maybe(entry["baseline_cost"]),
                entry["bounds"],
                _maybe(entry["gate_bound"]),
                int(entry.get("facts", 0)),
            )
            for entry in value["limits"]
        )
        mixture = None if value["mixture"] is None else tuple((int(row), float(p)) for row, p in value["mixture"])
        return cls(**{**value, "feature": tuple(value["feature"]), "limits": limits, "mixture": mixture})

    def because(self, reason: str, detail: str) -> Self:
        """The same evidence with another reason."""
        return replace(self, reason=reason, detail=detail)


def baseline_evidence(problem: Problem, baseline_cost: Any, radii: tuple[Radius, ...]) -> tuple[CostBound, ...]:
    """The evidence for a_0(s): its declared cost τ_h(s) (M,), or, where that is unknown, that it was declared safe.

    Where the cost is known up to an error bar, a_0 costs at most the upper end of it, and at most τ.
    """
    errors = problem.baseline_cost_error
    return tuple(
        CostBound(tau if math.isnan(cost) else min(cost + error, max(cost, tau)), tau, radius, cost)
        for cost, error, tau, radius in zip(map(float, baseline_cost), errors, problem.threshold, radii, strict=True)
    )


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else repr(value)


def _maybe(value: float | str | None) -> float | None:
    return None if value is None else float(value)
