"""Assumption 1 relaxed: costs that are linear in the features only up to an error."""

from dataclasses import dataclass
from typing import ClassVar

from tether.assumptions.relaxation import Relaxation, finite
from tether.options import Limit


@dataclass(frozen=True)
class Misfit(Relaxation):
    """Declare how far an expected cost may lie from a linear one.

    Safe costs are then facts up to their own error plus ε. Only the safe action can be certified in a state where
    τ − τ_h(s) ≤ 2ε. An action that costs more than τ may lie further off (guarantee.md).

    Attributes:
        error: ε, with |c(s, a) − ⟨γ*, φ(s, a)⟩| ≤ ε for every state and action.
    """

    error: float

    name: ClassVar[str] = "misfit"
    limits: ClassVar[dict[str, Limit]] = {
        "error": finite("It is how far an expected cost may be from linear in the features (Assumption 1).")
    }

    @property
    def sample_error(self) -> float:
        """Return ε: the mean of a measured cost may lie so far from linear."""
        return self.error

    @property
    def point_error(self) -> float:
        """Return ε: the expected cost of an action may lie so far from linear."""
        return self.error

    def sentence(self) -> str:
        """Say what a certificate rests on."""
        return f"expected costs are linear in the features up to {self.error!r}"
