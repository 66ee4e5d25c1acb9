"""The base of every relaxed assumption: what it may change, with the paper's values as defaults."""

from dataclasses import dataclass, fields
from math import inf
from typing import Any, ClassVar

from tether.options import Limit, check_options


@dataclass(frozen=True)
class Relaxation:
    """One assumption of the paper that a constraint does without.

    A subclass is a frozen dataclass in a file of its own under `tether.assumptions`. It overrides what it changes.

    Attributes:
        name: the word for it in files, errors and certificates.
        limits: what its numbers must satisfy, by field.
    """

    name: ClassVar[str]
    limits: ClassVar[dict[str, Limit]] = {}

    def __post_init__(self) -> None:
        check_options(self, self.limits, called=f"{type(self).__name__}({{}}=…)")

    @property
    def sample_error(self) -> float:
        """How far the mean of a measured cost may lie from a linear one."""
        return 0.0

    @property
    def point_error(self) -> float:
        """How far the expected cost of an action may lie from a linear one."""
        return 0.0

    def reserve(self, noise: float) -> float:
        """Return what every bound on a mean leaves for noise of size σ = `noise`."""
        return 0.0

    def end_reserve(self, noise: float) -> float:
        """Return what a bound leaves for the noise at the end of a ray, in proportion to the length played."""
        return 0.0

    def changes(self, noise: float) -> tuple[float, ...]:
        """Return all that it changes in bounds, for noise of size σ = `noise`."""
        return self.sample_error, self.point_error, self.reserve(noise), self.end_reserve(noise)

    def sentence(self) -> str:
        """Say in one sentence what a certificate rests on because of this."""
        raise TypeError(f"{type(self).__name__} does not say what a certificate rests on: define sentence().")

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON, under the name of the class."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {"name": self.name} | {name: list(one) if isinstance(one, tuple) else one for name, one in given.items()}


def finite(advice: str) -> Limit:
    """Return the limit of a number that must be finite and ≥ 0, with what an error advises."""
    return Limit("finite and >= 0", lambda number: 0.0 <= number < inf, advice)
