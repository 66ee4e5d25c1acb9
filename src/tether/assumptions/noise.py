"""Assumption 3 and the other kind of cost: readings in [0, 1], such as accidents, which need no σ."""

from dataclasses import dataclass
from typing import Literal

from tether.options import check_options

BOUNDED_NOISE = 0.5
"""σ of any cost in [0, 1] around its mean (Hoeffding's lemma)."""


@dataclass(frozen=True)
class Bounded:
    """Declare that every reading of a cost lies in [0, 1], such as 1 for an accident and 0 for none.

    Such a cost needs no σ. Readings outside [0, 1] are refused.

    Attributes:
        proof: "likelihood": certificates are likelihood ratios, much tighter for rare accidents (theory, 14). They need
            `gamma_norm` for rounding errors alone (‖γ*‖ ≤ 1000 B), and costs that are exactly linear and stand still.
            "radius": the paper's certificates with σ = 1/2, which Hoeffding's lemma gives. They go with every
            relaxation.
    """

    proof: Literal["likelihood", "radius"] = "likelihood"

    def __post_init__(self) -> None:
        check_options(self, called="Bounded({}=…)")
