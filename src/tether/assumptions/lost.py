"""Outcomes whose cost was never measured, and what they count as."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from tether.assumptions.relaxation import Relaxation
from tether.errors import InputError
from tether.options import real_numbers
from tether.records import settle


@dataclass(frozen=True)
class Lost(Relaxation):
    """Declare what a cost counts as that was never measured.

    Attributes:
        counts_as: "at-random": nothing. That is right only if losing a cost did not depend on it: certificates say so,
            and the online tests look for the opposite. "worst-case": the least favourable value within `cost_range`, so
            that nothing is assumed.
        cost_range: (lowest, highest) reading that there can be, for "worst-case". It is (0, 1) for a `Bounded` cost.
    """

    counts_as: Literal["at-random", "worst-case"]
    cost_range: Sequence[float] | None = None

    name: ClassVar[str] = "lost"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cost_range is not None:
            settle(self, cost_range=checked_range(self.cost_range))

    def sentence(self) -> str:
        """Say what a certificate rests on."""
        if self.counts_as == "worst-case":
            return "costs that were lost count as the least favourable reading"
        return "costs that were lost were lost by chance"


def checked_range(declared: Any) -> tuple[float, float]:
    """Return (lowest, highest) as finite numbers in this order, or raise an `InputError`."""
    try:
        low, high = real_numbers(declared, "cost_range").tolist()
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not -np.inf < low < high < np.inf:
        raise InputError(f"cost_range must be (lowest, highest), two finite numbers, but is {declared!r}.")
    return float(low), float(high)
