"""Policy: modes, what may be entered when, and limits that the theorem does not know.

Each guard that objects gives the safe action, with the reason. Modes go up only by an explicit call that meets the
criteria, and down at any time.
"""

import math
from dataclasses import asdict
from functools import wraps
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from tether.errors import InputError, TetherError

LONGEST = 100_000
"""The longest window of a guard, in decisions or outcomes: the ledger keeps so many, whatever the guards are."""

FAR = 10.0
"""A cost further than this many σ outside ±B‖φ‖ contradicts the declared B or σ: a sensor failed, or another unit."""

Mode = Literal["shadow", "guarded", "live"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""From the most careful up. shadow decides and logs, and a_0 acts; guarded acts within the guards' margin and rate."""

T = TypeVar("T")

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0, le=1e12)]
Window = Annotated[int, Field(ge=1, le=LONGEST)]
Budget = Annotated[float, Field(ge=-1e300, le=1e300)]


def rank(mode: str) -> int:
    """0, 1, 2 for shadow, guarded, live."""
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(map(repr, MODES))}, but is {mode!r}.")
    return MODES.index(mode)


def in_plain_words(cls: type[T]) -> type[T]:
    """Settings that do not fit their declaration are an InputError that names the field and the value."""
    build = cls.__init__

    @wraps(build)
    def checked(self: T, *given: Any, **named: Any) -> None:
        try:
            build(self, *given, **named)
        except ValidationError as error:
            first = error.errors()[0]
            name, why = ".".join(str(part) for part in first["loc"]), first["msg"]
            raise InputError(f"{name} is {first['input']!r:.80}: {why[:1].lower()}{why[1:]}.") from None

    cls.__init__ = checked  # type: ignore[method-assign, assignment]
    return cls


SETTINGS = ConfigDict(strict=True, extra="forbid")


def _several(given: Any) -> Any:
    """A budget as a tuple: one number stands for all constraints."""
    if given is None or isinstance(given, tuple | list):
        return None if given is None else tuple(given)
    return (given,)


@in_plain_words
@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class Guards:
    """What stands between a certified proposal and the system, besides the gate.

    Attributes:
        margin_share: guarded mode leaves this share of the gap τ − τ_h(s) unused; on rays by playing them shorter.
        canary: p. Of the decisions that nothing objects to, guarded mode plays the proposal in this share, and a_0 in
            the rest, by a hash of the id: what the proposals gain over a_0 can then be told. 1 compares nothing.
        reward_range: (lowest, highest) reward there can be; without it rewards are compared without an interval.
        guarded_rate: guarded mode plays anything but a_0 in at most this share of the last `rate_window` decisions.
        live_rate: the same for live mode; 1 is no limit.
        rate_window: how many decisions the rates look back on, at most `LONGEST`; also on those from before it was set.
        budget: largest sum of observed costs, one per constraint (or one number for all); None is no limit. A recorded
            outcome without a cost counts as τ, a decision without an outcome as its bound. Once a proposal's bound no
            longer fits, a_0 is played.
        budget_window: the same for the budget, in outcomes; None is all of them.
        max_age: seconds after which an observation is too old to act on; None does not ask. With a limit, a request
            without `observed_at` counts as too old.
        max_ahead: seconds by which an observation may lie in the future, and a clock behind the log, before both are
            disbelieved.
        lost_after: seconds after which an outcome that has not come counts as lost (`Problem.lost` says what that
            means); None waits for ever, and so do the costs of all later decisions.
    """

    margin_share: Share = 0.25
    canary: Annotated[float, Field(ge=0.001, le=1.0)] = 0.5
    reward_range: Annotated[tuple[Budget, Budget] | None, BeforeValidator(_several)] = None
    guarded_rate: Share = 0.5
    live_rate: Share = 1.0
    rate_window: Window = 100
    budget: Annotated[float | tuple[Budget, ...] | None, BeforeValidator(_several)] = None
    budget_window: Window | None = None
    max_age: Seconds | None = None
    max_ahead: Seconds = 5.0
    lost_after: Seconds | None = None

    def __post_init__(self) -> None:
        if self.reward_range is not None and not self.reward_range[0] < self.reward_range[1]:
            raise InputError(
                f"reward_range is {self.reward_range}: give (lowest, highest), the first under the second."
            )

    def budgets(self, constraints: int) -> tuple[float, ...] | None:
        """The budget of each constraint (M,), or None."""
        if not isinstance(self.budget, tuple):
            return None
        parts = self.budget * constraints if len(self.budget) == 1 else self.budget
        if len(parts) != constraints:
            raise InputError(f"budget has {len(parts)} entries, but there are {constraints} constraints.")
        return parts

    def stale(self, observed_at: float | None, now: float, latest: float) -> str:
        """Why an input is too old, or its time cannot be believed; empty if it may be acted on.

        `now` is the advisor's clock, `latest` the newest time that the log knows: a clock far behind it has jumped
        back.
        """
        if self.max_age is None:
            return ""
        if not math.isfinite(now) or latest - now > self.max_ahead:
            return (
                f"the clock says {now:.3f}, but a decision was made at {latest:.3f}: it went back, ages mean nothing. "
                "If it was ahead then and is right now, say so by resume()"
            )
        if observed_at is None:
            return f"the request does not say when its state was observed, and max_age is {self.max_age:g} s"
        age = now - observed_at
        if not age <= self.max_age:
            return f"the state was observed {age:.3f} s ago, and max_age is {self.max_age:g} s"
        if not age >= -self.max_ahead:
            return f"the state was observed {-age:.3f} s in the future, and max_ahead is {self.max_ahead:g} s"
        return ""

    def over_rate(self, mode: str, others: int) -> str:
        """Why one more decision other than a_0 would be too many, after `others` of them in the window; else empty."""
        share = self.live_rate if mode == "live" else self.guarded_rate
        most = math.floor(share * self.rate_window)
        if share >= 1.0 or others < most:
            return ""
        return f"{others} of the last {self.rate_window} decisions were not a_0, and {mode} mode allows {most}"

    def over_budget(self, spent: tuple[float, ...], bounds: tuple[float, ...]) -> str:
        """Why a proposal with these bounds (M,) no longer fits the budget, after `spent` (M,); empty if it does."""
        for j, limit in enumerate(self.budgets(len(spent)) or ()):
            if not spent[j] + bounds[j] <= limit:
                span = f"the last {self.budget_window} outcomes" if self.budget_window else "all outcomes"
                return (
                    f"cost {j} of {span}, and bounds of decisions without one, add up to {spent[j]:.6g}; a bound of "
                    f"{bounds[j]:.6g} more passes the budget {limit:.6g}"
                )
        return ""

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the log."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The reverse of `to_json`. A log from before there was a canary has none."""
        return cls(**{"canary": 1.0, **value})


@in_plain_words
@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class Criteria:
    """What must have been seen since the last change of mode (or the last alarm) before the next one may be entered.

    Attributes:
        outcomes: outcomes that took effect, of decisions that were made since then, at least.
        answered: share of the decisions that have such an outcome, at least.
        costs: share of these outcomes that have a cost, at least.
        refusals: refusals by the gate, at most.
        excess: how far the observed costs may lie above the certificates' bounds on average, in standard errors of σ
            (with RSLUCB-QVI, where a bound is on the mean of what may be drawn, in those that the costs show).
            An exact bound passes 3 but for one time in a thousand.
        uplift: for live mode, what the proposals must be shown to earn over a_0 per decision: the lower end of the
            interval is above this. A loss that you accept is negative; None does not ask.
    """

    outcomes: int = 100
    answered: float = 0.5
    costs: float = 0.5
    refusals: int = 0
    excess: float = 3.0
    uplift: float | None = 0.0

    @classmethod
    def none(cls) -> Self:
        """No criteria but that there is no alarm: for simulations and tests, where nobody can be harmed."""
        return cls(outcomes=0, answered=0.0, costs=0.0, refusals=2**53, excess=math.inf, uplift=None)

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the log."""
        return {
            name: value if value is None or math.isfinite(value) else repr(value)
            for name, value in asdict(self).items()
        }


class PromotionRefused(TetherError):
    """The criteria for a mode are not met. `unmet` names each of them, with its value and its limit."""

    def __init__(self, mode: str, unmet: tuple[str, ...]) -> None:
        super().__init__(
            f"promotion to {mode!r} is refused: {'; '.join(unmet)}. Stay in the present mode until they are met."
        )
        self.unmet = unmet
