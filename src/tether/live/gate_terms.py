"""What the gate is told beside the data, and how it adds: sums that keep what rounding drops."""

from dataclasses import dataclass
from typing import Literal

from tether.records import Array

ULP = 2.0**-52


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """The theorem's constants, and which safe costs are known: constants of the problem, never a learner's number.

    `radius` names the theorem's radius or is a tuned number; `reduces` says whether facts reduce its square
    (docs/theory.md sections 4 and 17). `memory` says which safe costs are remembered beside that of the state one
    stands in: none, those of states with an outcome, or those of all listed states.
    """

    memory: Literal["state", "visited", "all"]
    error: Array | None  # e: safe costs are known up to this (M,); None if they are unknown
    radius: float | str
    reduces: bool
    threshold: Array  # τ (M,)
    noise: Array  # σ (M,)
    gamma_norm: Array  # B (M,)
    feature_norm: float  # the limit on ‖φ‖
    confidence: float  # δ
    stages: int  # G: H, or 1 where steps are pooled
    dimension: int  # d
    ridge: float  # λ

    @property
    def exact(self) -> bool:
        """Whether safe costs are known exactly: then they are conditioned on."""
        return self.error is not None and not self.error.any()


def add_to(total: Array, rest: Array, term: Array) -> None:
    """total += term, with what rounding drops kept in `rest` for the next time (Kahan), in place."""
    term = term - rest
    larger = total + term
    rest[...] = (larger - total) - term
    total[...] = larger
