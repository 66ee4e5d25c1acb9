"""Assumption 2: what you know of the safe action's cost: exactly, up to an error, or only that it is under τ."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from tether.assumptions.relaxation import finite
from tether.errors import AssumptionError, InputError
from tether.options import check_options, real_numbers
from tether.records import Array, State, settle

CostOfSafe = float | ArrayLike | Callable[[int, State], float] | None

LIMITS = {
    "error": finite(
        "It is how far the declared cost of a safe action may be off. Where that cost is not known at all, give "
        "safe_cost=None."
    )
}


@dataclass(frozen=True, eq=False)
class SafeCost:
    """Declare what is known of τ_h(s), the cost of the safe action.

    `Constraint(safe_cost=61.0)` is short for `safe_cost=SafeCost(61.0)`.

    Attributes:
        cost: one number for all steps and states, a function (step, state) -> τ_h(s), or a table (H, S) where the
            problem has states=range(S). None if the costs are unknown. They must still be under τ.
        error: e, how far `cost` may be off. 0 means that it is known exactly, to all digits. None: as it looks. A
            number or a table with 5 to 13 digits was typed or rounded, and is off by half a unit of its last digit.
            One with fewer digits, such as 0.25, or with more is taken as exact. So is a function, with a warning if its
            costs look typed. A measured cost is not exact: declare by how much it may be off.
        gap_floor: a known lower bound on τ − τ_h(s), used where τ_h(s) itself is unknown.
        if_tight: what happens in a state whose safe cost is not under τ. "error" refuses the state. "safe action" plays
            the safe action there without learning.
    """

    cost: CostOfSafe
    error: float | None = None
    gap_floor: float = 0.0
    if_tight: Literal["error", "safe action"] = "error"
    _rounded: float = field(default=0.0, repr=False)  # what the type of the numbers has rounded away; copies keep it

    def __post_init__(self) -> None:
        check_options(self, LIMITS, called="SafeCost({}=…)")
        if self.cost is None or callable(self.cost):
            return
        try:
            costs = real_numbers(self.cost, "safe_cost")
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError(
                f"safe_cost must be a function (step, state) -> cost, a number, a table (H, S), or None, but is "
                f"{self.cost!r}."
            ) from error
        costs.flags.writeable = False
        rounded = max(self._rounded, rounding_of(self.cost))
        settle(self, _rounded=rounded, cost=float(costs) if costs.ndim == 0 else costs)

    @cached_property
    def off_by(self) -> float:
        """How far the cost may be off: as declared, or as a typed number shows."""
        if self.error is not None:
            return self.error
        if self.cost is None or callable(self.cost):
            return 0.0
        return max(self._rounded, typed_error(np.asarray(self.cost)))

    @property
    def declared_error(self) -> float:
        """How far the cost may be off as far as that was declared: nothing is accepted because of a guess."""
        return self.error or 0.0

    def table(self, horizon: int, states: Sequence[State] | None) -> Array | None:
        """Return the costs as a table (H, S), checked against the problem's states, or None where there is none."""
        if not isinstance(self.cost, np.ndarray):
            return None
        shape = (horizon, len(states) if isinstance(states, range) else 0)
        if self.cost.shape != shape:
            raise InputError(
                f"safe_cost must have shape (H, S) = {shape}, but has {self.cost.shape}. S is the length of "
                "states=range(S). Give each constraint a table of its own."
            )
        return self.cost


FEWEST_DIGITS, MOST_DIGITS = 5, 13
"""Significant digits of a number that was typed or rounded. Of computed numbers, fewer than one in 1000 has so few."""

MOST_LOOKED_AT = 4096
"""Numbers of a table that are looked at."""


def typed_error(costs: Array) -> float:
    """Return half a unit of the last digit of costs that were typed or rounded, 0 for exact ones.

    All must have at most 13 significant digits, and one at least 5. The digits of the longest are counted from the
    first digit of the largest.
    """
    sizes = np.unique(np.abs(costs[np.isfinite(costs)]))
    sizes = sizes[sizes > 0.0][-MOST_LOOKED_AT:]
    digits = max((len(Decimal(repr(size)).normalize().as_tuple().digits) for size in sizes.tolist()), default=0)
    if not FEWEST_DIGITS <= digits <= MOST_DIGITS:
        return 0.0
    return 0.5 * 10.0 ** (Decimal(repr(float(sizes[-1]))).adjusted() - digits + 1)


STATES_LOOKED_AT = 20
"""States whose safe costs are looked at for typed digits."""


class TypedCosts:
    """Warn once if a function's safe costs look typed.

    Args:
        unsaid: constraints whose costs are functions, of which no error was declared.
    """

    def __init__(self, unsaid: list[int]) -> None:
        self.unsaid, self.left = unsaid, STATES_LOOKED_AT if unsaid else 0

    def look_at(self, costs: Array, state: State) -> None:
        """Look at the safe costs of one state, (H, M)."""
        if not self.left:
            return
        self.left -= 1
        error = max(typed_error(costs[:, j]) for j in self.unsaid)
        if error > 0.0:
            self.left = 0
            warnings.warn(
                f"the safe costs of state {state!r}, {costs.tolist()}, look typed or rounded: declare "
                f"SafeCost(…, error={error:.1g}), or error=0.0 if they are right to all digits.",
                stacklevel=5,
            )


def check_safe_cost(costs: Array, threshold: Sequence[float], strict: Sequence[bool], where: object) -> None:
    """Check Assumption 2, τ_h(s) < τ at every step; costs (H, M)."""
    if not np.isfinite(costs).all():
        raise InputError(f"the cost of the safe action at {where} is {costs.tolist()}: it must be finite.")
    limit = np.where(strict, np.asarray(threshold), inf)
    for step, constraint in np.argwhere(~(costs < limit)):
        raise AssumptionError(
            f"Assumption 2 needs tau_h(s) < tau, but at step {step}, {where}, the safe action costs "
            f"{costs[step, constraint]:.6g} and tau is {threshold[constraint]:.6g}. Name a safer action, raise "
            "the threshold, or declare SafeCost(…, if_tight='safe action') to play the safe action there without "
            "learning."
        )


def rounding_of(given: Any) -> float:
    """Return how much numbers with less than 64 bits have lost: half the distance of the largest from the next."""
    numbers = np.asarray(given)
    if numbers.dtype.kind != "f" or numbers.dtype.itemsize >= 8 or not numbers.size:
        return 0.0
    return 0.5 * float(np.spacing(np.abs(numbers).max()))


def cost_at(cost: Any, step: int, state: State, *, is_exact: bool) -> float:
    """Return what a user's function says of one step and state, as one number.

    Args:
        cost: the function.
        step: h.
        state: s.
        is_exact: whether its numbers are taken as exact, as no error was declared: those of few bits are warned of.
    """
    given = cost(step, state)
    declared = real_numbers(given, "safe_cost")
    if is_exact and rounding_of(given) > 0.0:
        warnings.warn(
            "a safe_cost function returns numbers of fewer than 64 bits: declare SafeCost(…, error=…).", stacklevel=6
        )
    if declared.size != 1:
        raise InputError(
            f"the safe action of state {state!r} has {declared.size} costs at step {step}, but a constraint has one: "
            "give each constraint a safe_cost of its own."
        )
    return float(declared.reshape(()))
