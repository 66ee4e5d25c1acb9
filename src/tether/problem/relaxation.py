"""What a relaxed assumption may change: the base of every class in `tether.assumptions`.

The engine reads the few numbers below and nothing else, so that it never asks which assumption was relaxed.
"""

from typing import Any, ClassVar


class Relaxation:
    """One assumption of the paper that a constraint does without, with what that costs.

    A subclass is a frozen dataclass in a file of its own under `tether.assumptions`. It overrides what it changes.

    Attributes:
        name: the word for it in files, errors and certificates.
        sample_error: how far the mean of an observed cost may lie from a linear one.
        point_error: how far the cost of what is played may lie over the linear one.
    """

    name: ClassVar[str]
    sample_error: float = 0.0
    point_error: float = 0.0

    def reserve(self, noise: float) -> float:
        """Return what every bound on a mean leaves for the noise, whose size is σ = `noise`."""
        return 0.0

    def end_reserve(self, noise: float) -> float:
        """Return what a bound leaves for the noise at the end of a ray, in proportion to the length played."""
        return 0.0

    def sentence(self) -> str:
        """Say in one sentence what a certificate rests on because of this."""
        raise TypeError(f"{type(self).__name__} does not say what a certificate rests on: define sentence().")

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON, under the name of the class."""
        return {"name": self.name, **{field: getattr(self, field) for field in self.__dataclass_fields__}}  # type: ignore[attr-defined]
