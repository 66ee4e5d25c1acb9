"""The sets D(s) = {φ(s, a) : a in A}: finitely many features, or finitely many rays from the safe one."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import AssumptionError, InputError
from tether.options import real_numbers
from tether.records import Action, Array, StarAction, settle

NORM_TOLERANCE = 1e-9
"""Slack on ‖φ‖ <= 1 for features that were normalised in floating point."""


@dataclass(frozen=True, slots=True, eq=False)
class FiniteActions:
    """N actions with features (N, d), one of which, `baseline`, is the safe action a_0(s)."""

    features: Array
    baseline: int

    def __post_init__(self) -> None:
        features = as_feature_rows(self.features, "features")
        if not (isinstance(self.baseline, int | np.integer) and 0 <= self.baseline < len(features)):
            raise InputError(
                f"baseline is action {self.baseline}, but there are {len(features)} actions: "
                f"give an index from 0 to {len(features) - 1}."
            )
        settle(self, features=features, baseline=int(self.baseline))

    @property
    def endpoints(self) -> Array:
        """The candidate features, (N, d)."""
        return self.features

    @property
    def phi_0(self) -> Array:
        """φ(s, a_0(s)), (d,)."""
        row: Array = self.features[self.baseline]
        return row

    @property
    def is_star(self) -> bool:
        """False: nothing between two features can be played."""
        return False

    def action(self, row: int, length: float) -> Action:
        """The index that stands for candidate `row` at `length` 0 or 1; row -1 is the safe action."""
        return self.baseline if row < 0 or length == 0.0 else row


@dataclass(frozen=True, slots=True, eq=False)
class StarActions:
    """A finite star-convex set (Definition 1): rays from phi_0 (d,) to each row of `endpoints` (N, d)."""

    phi_0: Array
    endpoints: Array

    def __post_init__(self) -> None:
        phi_0, endpoints = as_feature_rows([self.phi_0], "phi_0")[0], as_feature_rows(self.endpoints, "endpoints")
        if phi_0.shape != endpoints.shape[1:]:
            raise InputError(
                f"phi_0 has {phi_0.size} entries but endpoints have {endpoints.shape[1]}: both live in R^d."
            )
        settle(self, phi_0=phi_0, endpoints=endpoints)

    @property
    def baseline(self) -> int:
        """-1: the safe action is the centre of the star, not one of its endpoints."""
        return -1

    @property
    def is_star(self) -> bool:
        """True: every point of a ray can be played (Assumption 5)."""
        return True

    def action(self, row: int, length: float) -> Action:
        """Ray and length; row -1 or length 0 is the safe action."""
        return StarAction(-1, 0.0) if row < 0 or length == 0.0 else StarAction(row, length)


ActionSet = FiniteActions | StarActions


def feature_of(actions: ActionSet, action: Action) -> Array:
    """φ(s, a) of any action of the set: (d,)."""
    if isinstance(action, StarAction):
        if action.ray < 0:
            return actions.phi_0
        if not 0.0 <= action.length <= 1.0:
            raise InputError(f"a length lies in [0, 1], but this action has {action.length!r}.")
        point: Array = actions.phi_0 + action.length * (actions.endpoints[action.ray] - actions.phi_0)
        return point
    row: Array = actions.endpoints[action]
    return row


def as_feature_rows(values: ArrayLike, name: str) -> Array:
    """A read-only C-ordered float copy of (N, d) features, refused unless finite."""
    try:
        rows = np.ascontiguousarray(real_numbers(values))
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers of shape (N, d): {error}.") from error
    if rows.ndim != 2 or rows.size == 0:
        raise InputError(f"{name} must have shape (N, d) with N, d >= 1, but has shape {rows.shape}.")
    if not np.isfinite(rows).all():
        where = np.argwhere(~np.isfinite(rows))[0]
        raise InputError(f"{name}[{where[0]}, {where[1]}] is {rows[tuple(where)]}: features must be finite.")
    rows.flags.writeable = False
    return rows


def _squares(features: Array) -> Array:
    """‖x‖² of each row of (..., d); infinite where it overflows."""
    squares: Array = np.einsum("...d,...d", features, features)
    return squares


def check_norms(features: Array, limit: float, where: object) -> None:
    """Assumption 4: ‖φ(s, a)‖ <= limit (1 in the paper) for every row of (..., d)."""
    worst = sqrt(float(_squares(features).max()))
    if not worst <= limit * (1.0 + NORM_TOLERANCE):
        raise AssumptionError(
            f"Assumption 4 needs ‖φ(s, a)‖ <= {limit:.6g}, but {where} has a feature of norm {worst:.6g}. "
            f"Divide all features by the largest norm that any state can have, at least {worst:.6g}, or declare it: "
            f"feature_norm={worst:.6g} or more."
        )


def check_origin(costs: Array, error: Array, where: object) -> None:
    """A linear cost is 0 at φ = 0: a safe action there must be declared to cost 0, up to e + ε (M,); costs (H, M)."""
    if not (np.abs(costs) <= error).all():  # unknown costs are NaN
        known = costs[np.isfinite(costs)]
        declared = f"is declared to cost up to {np.abs(known).max():.6g}" if known.size else "has no declared cost"
        raise AssumptionError(
            f"Assumption 2 needs a safe action with a known cost, but φ(s, a_0(s)) is zero at {where}. Linear costs "
            f"are 0 there, and a_0 {declared}. Declare safe_cost=0.0 if so; else append a constant feature, so that "
            "every action has a non-zero one."
        )
