"""Guards: limits that the theorem does not know. Each one that objects gives the safe action, with the reason."""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from tether.errors import InputError, TetherError

if TYPE_CHECKING:
    from tether.live.replica import Ledger

LONGEST = 100_000
"""The longest window of a guard, in decisions or outcomes: the ledger keeps so many, whatever the guards are."""


@dataclass(frozen=True, kw_only=True)
class Guards:
    """What stands between a certified proposal and the system, besides the gate.

    Attributes:
        margin_share: guarded mode leaves this share of the gap τ − τ_h(s) unused; on rays by playing them shorter.
        guarded_rate: guarded mode plays anything but a_0 in at most this share of the last `rate_window` decisions.
        live_rate: the same for live mode; 1 is no limit.
        rate_window: how many decisions the rates look back on, at most `LONGEST`; also on those from before it was set.
        budget: largest sum of observed costs, one per constraint (or one number for all); None is no limit. A recorded
            outcome without a cost counts as τ. Once a proposal's bound no longer fits, a_0 is played.
        budget_window: the same for the budget, in outcomes; None is all of them.
        max_age: seconds after which an observation is too old to act on; None does not ask. With a limit, a request
            without `observed_at` counts as too old.
        max_ahead: seconds by which an observation may lie in the future, and a clock behind the log, before both are
            disbelieved.
    """

    margin_share: float = 0.25
    guarded_rate: float = 0.5
    live_rate: float = 1.0
    rate_window: int = 100
    budget: float | tuple[float, ...] | None = None
    budget_window: int | None = None
    max_age: float | None = None
    max_ahead: float = 5.0

    def __post_init__(self) -> None:
        for name in ("margin_share", "guarded_rate", "live_rate"):
            _check(name, getattr(self, name), 0.0, 1.0)
        for name in ("max_age", "max_ahead"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), 0.0, 1e12)
        for name in ("rate_window", "budget_window"):
            size = getattr(self, name)
            if size is None and name == "budget_window":
                continue
            if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LONGEST:
                raise InputError(f"{name} must be an integer from 1 to {LONGEST}, but is {size!r}.")
        if self.budget is not None:
            parts = self.budget if isinstance(self.budget, tuple | list) else (self.budget,)
            for part in parts:
                _check("budget", part, -1e300, 1e300)
            object.__setattr__(self, "budget", tuple(float(part) for part in parts))

    def budgets(self, constraints: int) -> tuple[float, ...] | None:
        """The budget of each constraint (M,), or None."""
        if self.budget is None or not isinstance(self.budget, tuple):
            return None
        parts = self.budget * constraints if len(self.budget) == 1 else self.budget
        if len(parts) != constraints:
            raise InputError(f"budget has {len(parts)} entries, but there are {constraints} constraints.")
        return parts

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the log."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The reverse of `to_json`."""
        parts: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in value.items()}
        return cls(**parts)


def stale(guards: Guards, observed_at: float | None, now: float, latest: float) -> str:
    """Why an input is too old, or its time cannot be believed; empty if it may be acted on.

    `now` is the advisor's clock, `latest` the newest time that the log knows: a clock far behind it has jumped back.
    """
    if guards.max_age is None:
        return ""
    if not math.isfinite(now) or latest - now > guards.max_ahead:
        return (
            f"the clock says {now:.3f}, but a decision was made at {latest:.3f}: it went back, ages mean nothing. If "
            "it was ahead then and is right now, say so by resume()"
        )
    if observed_at is None:
        return f"the request does not say when its state was observed, and max_age is {guards.max_age:g} s"
    age = now - observed_at
    if not age <= guards.max_age:
        return f"the state was observed {age:.3f} s ago, and max_age is {guards.max_age:g} s"
    if not age >= -guards.max_ahead:
        return f"the state was observed {-age:.3f} s in the future, and max_ahead is {guards.max_ahead:g} s"
    return ""


def over_rate(guards: Guards, mode: str, others: int) -> str:
    """Why one more decision other than a_0 would be too many, after `others` of them in the window; empty if not."""
    share = guards.live_rate if mode == "live" else guards.guarded_rate
    if share >= 1.0:
        return ""
    most = math.floor(share * guards.rate_window)
    if others < most:
        return ""
    return f"{others} of the last {guards.rate_window} decisions were not a_0, and {mode} mode allows {most}"


def over_budget(guards: Guards, spent: tuple[float, ...], bounds: tuple[float, ...]) -> str:
    """Why a proposal with these bounds (M,) no longer fits the budget, after `spent` (M,); empty if it does."""
    budgets = guards.budgets(len(spent))
    if budgets is None:
        return ""
    for j, (limit, total, bound) in enumerate(zip(budgets, spent, bounds, strict=True)):
        if not total + bound <= limit:
            span = f"the last {guards.budget_window} outcomes" if guards.budget_window else "all outcomes"
            return (
                f"cost {j} of {span} adds up to {total:.6g}; a bound of {bound:.6g} more passes the budget {limit:.6g}"
            )
    return ""


def _check(name: str, value: object, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= float(value) <= high:  # type: ignore[arg-type]
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, but is {value!r}.")


# Modes: shadow, guarded, live. Up only by an explicit call that meets the criteria, down at any time.

Mode = Literal["shadow", "guarded", "live"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""From the most careful up. shadow decides and logs, and a_0 acts; guarded acts within the guards' margin and rate."""


class PromotionRefused(TetherError):
    """The criteria for a mode are not met. `unmet` names each of them, with its value and its limit."""

    def __init__(self, mode: str, unmet: tuple[str, ...]) -> None:
        super().__init__(
            f"promotion to {mode!r} is refused: {'; '.join(unmet)}. Stay in the present mode until they are met."
        )
        self.unmet = unmet


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """What must have been seen since the last change of mode (or the last alarm) before the next one may be entered.

    Attributes:
        outcomes: outcomes recorded of decisions that were made since then, at least.
        answered: share of the decisions that have an outcome, at least.
        costs: share of the outcomes that have a cost, at least.
        refusals: refusals by the gate, at most.
        excess: how far the observed costs may lie above the certificates' bounds on average, in standard errors of σ
            (with RSLUCB-QVI, where a bound is on the mean of what may be drawn, in those that the costs show).
            An exact bound passes 3 but for one time in a thousand.
    """

    outcomes: int = 100
    answered: float = 0.5
    costs: float = 0.5
    refusals: int = 0
    excess: float = 3.0

    @classmethod
    def none(cls) -> "Criteria":
        """No criteria but that there is no alarm: for simulations and tests, where nobody can be harmed."""
        return cls(outcomes=0, answered=0.0, costs=0.0, refusals=2**53, excess=math.inf)

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the log."""
        return {name: value if math.isfinite(value) else repr(value) for name, value in asdict(self).items()}


def rank(mode: str) -> int:
    """0, 1, 2 for shadow, guarded, live."""
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(map(repr, MODES))}, but is {mode!r}.")
    return MODES.index(mode)


def unmet(criteria: Criteria, ledger: "Ledger", noise: tuple[float, ...], alarm: object) -> tuple[str, ...]:
    """Each criterion that the log does not meet, with its value and its limit."""
    since, found = ledger.since, []
    if alarm is not None:
        found.append(f"an alarm is on ({alarm}): reset_alarm first")
    if ledger.stopped is not None:
        found.append("the kill switch is on: resume first")
    if since.outcomes < criteria.outcomes:
        found.append(f"{since.outcomes} outcomes recorded in this mode, the least is {criteria.outcomes}")
    answered = since.outcomes / since.decisions if since.decisions else 0.0
    if answered < criteria.answered:
        found.append(f"{answered:.2f} of the decisions have an outcome, the least share is {criteria.answered:.2f}")
    costs = since.costs / since.outcomes if since.outcomes else 0.0
    if costs < criteria.costs:
        found.append(f"{costs:.2f} of the outcomes have a cost, the least share is {criteria.costs:.2f}")
    if since.refusals > criteria.refusals:
        found.append(f"{since.refusals} refusals by the gate, the most is {criteria.refusals}")
    for j, sigma in enumerate(noise):
        if since.compared and math.isfinite(criteria.excess):
            mean = since.excess[j] / since.compared
            # noise alone, but for what was drawn, which scatters around its mixture's mean as well
            scatter = (since.compared - since.drawn) * sigma**2 + max(since.drawn * sigma**2, since.square[j])
            limit = criteria.excess * math.sqrt(scatter) / since.compared
            if not mean <= limit:
                found.append(
                    f"cost {j} exceeded its bounds by {mean:.4g} on average over {since.compared} outcomes, the most "
                    f"is {limit:.4g}"
                )
    return tuple(found)
