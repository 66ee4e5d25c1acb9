"""A limit on the measured cost, noise included, in place of the expected cost."""

from dataclasses import dataclass
from math import log, sqrt
from typing import ClassVar

from tether.assumptions.relaxation import Relaxation
from tether.errors import InputError
from tether.options import Limit


@dataclass(frozen=True)
class Realised(Relaxation):
    """Ask that each *measured* cost stays under τ with probability at least 1 − η.

    The safe action must keep to that, too.

    Attributes:
        exceedance: η, how often a measured cost may exceed τ at most: 0.05 is one step in twenty.
        noise_scales: whether the noise on a cost has the size σα where a ray is played at length α, so that the safe
            action has none.
    """

    exceedance: float = 0.05
    noise_scales: bool = False

    name: ClassVar[str] = "realised"
    limits: ClassVar[dict[str, Limit]] = {
        "exceedance": Limit(
            "an η in (0, 1)",
            lambda eta: 0.0 < eta < 1.0,
            "It is how often a measured cost may exceed τ at most, so 0.05 means one step in twenty.",
        )
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.noise_scales, bool):
            raise InputError(f"noise_scales must be True or False, but is {self.noise_scales!r}.")

    def quantile(self, noise: float) -> float:
        """Return q = σ√(2 log(1/η)), which the noise exceeds with probability at most η."""
        return noise * sqrt(2.0 * log(1.0 / self.exceedance))

    def reserve(self, noise: float) -> float:
        """Return q, or 0 if the noise grows with the length played."""
        return 0.0 if self.noise_scales else self.quantile(noise)

    def end_reserve(self, noise: float) -> float:
        """Return q if the noise grows with the length played, else 0."""
        return self.quantile(noise) if self.noise_scales else 0.0

    def sentence(self) -> str:
        """Say what a certificate rests on."""
        scaled = ", and the safe action has no noise" if self.noise_scales else ""
        return f"the bound holds for the measured cost, except with probability {self.exceedance!r}{scaled}"
