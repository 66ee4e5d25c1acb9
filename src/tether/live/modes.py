"""Modes: shadow, guarded, live. Up only by an explicit call that meets the criteria, down at any time."""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from tether.errors import InputError, TetherError

if TYPE_CHECKING:
    from tether.live.ledger import Ledger

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
