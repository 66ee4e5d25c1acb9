"""Costs that change with time: γ* moves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tether.assumptions.relaxation import Relaxation, finite
from tether.errors import InputError
from tether.options import Limit

Clock = str | Callable[[Any, dict[str, Any]], float]


@dataclass(frozen=True)
class Drift(Relaxation):
    """Declare how fast the costs may change: ‖γ*_{t+1} − γ*_t‖ ≤ ρ.

    Bounds then rest on recent decisions only. Of safe costs they use only that of the present state, as declared at the
    moment of the decision.

    Attributes:
        rate: ρ, how far γ* may move with each decision, or in each second.
        per: "decision", or "second". With "second" every decision has a time stamp, `act(step, state, time=…)`, and in
            live use the advisor's clock.
        time: with per="second" and an environment: the entry of `info` that holds the environment's own time in
            seconds, or a function (observation, info) -> seconds.
    """

    rate: float
    per: Literal["decision", "second"] = "decision"
    time: Clock | None = None

    name: ClassVar[str] = "drift"
    limits: ClassVar[dict[str, Limit]] = {
        "rate": finite("It is how far γ* may move from one decision to the next, or in a second (per).")
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.time is None or isinstance(self.time, str) or callable(self.time)):
            raise InputError(
                f"time must name an entry of info, or be a function (observation, info), but is {self.time!r}."
            )
        if self.time is not None and self.per == "decision":
            raise InputError("Drift(time=…) says when a decision is made, which counts with per='second' only.")

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON; where the time comes from is the environment's matter."""
        return {"name": self.name, "rate": self.rate, "per": self.per}

    def sentence(self) -> str:
        """Say what a certificate rests on."""
        return f"γ* moves by at most {self.rate!r} per {self.per}"
