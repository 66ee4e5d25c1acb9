"""Certificates: everything that somebody needs who asks, later, why an action was thought safe."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, FiniteFloat, PlainSerializer, TypeAdapter

from tether import __version__
from tether.kernels.compiled import KERNEL
from tether.live.log.chain import canonical
from tether.problem.problem import Problem
from tether.records import CostBound, Drift, Origin, Proof, Radius


def _written(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _read(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


Number = Annotated[float, BeforeValidator(_read), PlainSerializer(_written)]
"""A float; in JSON, which has no infinities and no NaN, those are strings."""

Vector = Annotated[tuple[FiniteFloat, ...], Field(strict=False)]
"""Numbers (d,) or (M,); in JSON a list."""

STRICT = ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="constants")
"""Nothing is taken for something else. A NaN that should not be is written as one, which `Draft` refuses."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The evidence for one constraint: cost <= bound <= threshold, with this radius.

    Attributes:
        bound: upper bound on the cost of the action.
        threshold: τ.
        margin: τ − bound.
        radius: β.
        origin: where β comes from: "theorem", "default", "tuned" and so on.
        baseline_cost: τ_h(s), None if unknown.
        bounds: what is bounded: "cost", "expected cost" or "realised cost".
        gate_bound: what the independent gate computed; None for the safe action, which needs no data.
        facts: how many remembered safe costs the bound rests on, beside that of the state itself.
        assumptions: what the bound rests on beyond the paper's assumptions, a sentence for each.
        lost: how many costs were never measured.
        lost_as: what they count as.
        kind: how the bound was proven: by the radius, or (costs in [0, 1]) by a likelihood ratio. The radius has then
            only steered the choice.
        drift: what the bound rests on where costs were declared to drift.
        listed: how many listed actions are taken to cost between 0 and 1, played or not; 0 where the bound does not
            rest on that, or is of a log from before it was said.
        own_bound: if the action was drawn, the gate's bound on its cost by itself, which may lie over τ; else None.
    """

    __pydantic_config__ = STRICT

    bound: Number
    threshold: Number
    margin: Number
    radius: Number
    origin: Origin
    baseline_cost: Number | None
    bounds: str = "cost"
    gate_bound: Number | None = None
    facts: int = 0
    assumptions: Annotated[tuple[str, ...], Field(strict=False)] = ()
    lost: int = 0
    lost_as: str = "at-random"
    kind: Proof = "radius"
    drift: Drift | None = None
    listed: int = 0
    own_bound: Number | None = None

    @classmethod
    def of(cls, evidence: CostBound, gate_bound: float | None = None, own_bound: float | None = None) -> Self:
        """Return the evidence of an agent's Decision, with the gate's own bound."""
        known = None if math.isnan(evidence.baseline_cost) else evidence.baseline_cost
        radius = evidence.radius
        return cls(
            evidence.bound, evidence.threshold, evidence.margin, radius.value, radius.origin, known, evidence.bounds,
            gate_bound, evidence.facts, evidence.assumptions, evidence.lost, evidence.lost_as,
            evidence.kind, evidence.drift, evidence.listed, own_bound,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why an action may be played: φ (d,), a bound per constraint, and what the bounds rest on.

    Attributes:
        feature: φ (d,) of the action. If it was drawn, the mean over the mixture; the bounds are on the expected cost.
        limits: the evidence for each constraint.
        is_baseline: whether the action is a_0.
        reason: why this was played, in a word.
        detail: the same in a sentence.
        data_version: how many outcomes were used.
        seq: the entry of the log up to which they were used.
        head: the hash of that entry.
        model_hash: a hash of the numbers that the decision was computed from.
        mixture: if the action was drawn, (candidate, probability) of all that could have been but a_0, which has the
            rest.
        kernel: the version of the compiled numerics.
        library: the version of Tether.
        numpy: the version of NumPy.
    """

    __pydantic_config__ = STRICT

    feature: Vector
    limits: Annotated[tuple[Limit, ...], Field(strict=False)]
    is_baseline: bool
    reason: str
    detail: str
    data_version: int
    seq: int
    head: str
    model_hash: str
    mixture: Annotated[tuple[tuple[int, float], ...], Field(strict=False)] | None = None
    kernel: str = KERNEL
    library: str = __version__
    numpy: str = np.__version__

    @property
    def tightest(self) -> Limit:
        """Return the constraint with the smallest margin."""
        return min(self.limits, key=lambda limit: limit.margin)

    @property
    def margin(self) -> float:
        """Return τ − bound of the tightest constraint."""
        return self.tightest.margin

    @property
    def is_over_by_itself(self) -> bool:
        """Return whether the action was drawn, and its own bound is over τ: only the average is under it."""
        return any(limit.own_bound is not None and limit.own_bound > limit.threshold for limit in self.limits)

    @property
    def is_theorem(self) -> bool:
        """Return whether every radius is the theorem's; a tuned one forfeits the guarantee."""
        return all(limit.origin == "theorem" for limit in self.limits)

    @property
    def holds(self) -> bool:
        """Return whether this justifies its action: a_0(s), or finite bounds under τ that the gate confirmed."""
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
        """Return this as JSON. Numbers that are not finite become strings, as JSON has none."""
        value: dict[str, Any] = _CERTIFICATE.dump_python(self, mode="json")
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Certificate":
        """Do the reverse of `to_json`."""
        return _CERTIFICATE.validate_json(canonical(value))


_CERTIFICATE = TypeAdapter(Certificate)


def baseline_limits(problem: Problem, baseline_cost: Any, radii: tuple[Radius, ...]) -> tuple[Limit, ...]:
    """Return the evidence for a_0(s): its declared cost τ_h(s) (M,).

    Where that is unknown, the evidence is that it was declared safe. Where the cost is known up to an error bar, a_0
    costs at most the upper end of it, and at most τ.
    """
    realised, shown = problem.realised, []
    for j, (cost, radius) in enumerate(zip(map(float, baseline_cost), radii, strict=True)):
        tau, most = problem.threshold[j], cost + problem.baseline_cost_error[j] + float(problem.reserve[j])
        evidence = CostBound(tau if math.isnan(cost) else min(most, max(cost, tau)), tau, radius, cost)
        kind: Proof = "likelihood" if problem.bounded[j] else "radius"
        evidence = replace(evidence, assumptions=problem.sentences[j], kind=kind)
        if realised is not None:
            evidence = replace(evidence, bounds="realised cost")
        shown.append(Limit.of(evidence))
    return tuple(shown)
