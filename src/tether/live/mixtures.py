"""Actions and mixtures as the judge and the gate see them: plain sums, apart from the code that plans them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tether.live.gate_facts import ULP, norm_of
from tether.problem.action_sets import ActionSet, feature_of
from tether.problem.problem import KnownState
from tether.records import Action, Array, Mixture, Multipliers, StarAction


class Drawn(NamedTuple):
    """What an action was drawn from, the number in [0, 1) that drew it, and proofs of what it costs by itself."""

    mixture: Mixture
    coin: float
    proofs: Mapping[int, Multipliers] = MappingProxyType({})


def weights_of(actions: ActionSet, probabilities: Array) -> Array:
    """The probabilities (N,) of the candidates, that of a_0 set to 0: a_0 has whatever they leave over."""
    weights = probabilities.copy()
    if actions.baseline >= 0:
        weights[actions.baseline] = 0.0
    return weights


def mean_feature(actions: ActionSet, probabilities: Array) -> Array:
    """φ^θ(s) = φ_0 + Σ θ_a (φ(s, a) − φ_0): (d,)."""
    mean: Array = actions.phi_0 + weights_of(actions, probabilities) @ (actions.endpoints - actions.phi_0)
    return mean


def drawn_row(actions: ActionSet, probabilities: Array, coin: float) -> tuple[int, float]:
    """(row, length) of the candidate that a number in [0, 1) falls on, in the order of D(s); (-1, 0) is a_0."""
    row = int(np.searchsorted(np.cumsum(probabilities), coin, side="right"))
    return (-1, 0.0) if row in (len(probabilities), actions.baseline) else (row, 1.0)


def diluted(actions: ActionSet, mixture: Mixture, kept: float) -> Mixture:
    """The mixture with `kept` of every probability but that of a_0, which gets the rest."""
    probabilities = kept * weights_of(actions, mixture.probabilities)
    rest = 1.0 - float(probabilities.sum())
    if actions.baseline >= 0:
        probabilities[actions.baseline] = rest
    return Mixture(probabilities, rest, mean_feature(actions, probabilities))


def parts_of(actions: ActionSet, mixture: Mixture) -> tuple[tuple[int, float], ...]:
    """(candidate, probability) wherever it is not 0, without a_0, which has the rest."""
    weights = weights_of(actions, mixture.probabilities)
    return tuple((int(row), float(weights[row])) for row in np.flatnonzero(weights))


def not_drawn(actions: ActionSet, row: int, drawn: Drawn) -> str:
    """Why this candidate (-1: a_0) is not what was drawn from a mixture over D(s); empty if it is."""
    mixture, coin = drawn.mixture, drawn.coin
    p = mixture.probabilities
    if p.shape != (len(actions.endpoints),) or not (np.isfinite(p).all() and (p >= 0.0).all()):
        return "the mixture is not one over D(s)"
    total = float(p.sum())
    if not (total <= 1.0 + 1e-12 and (actions.is_star or total >= 1.0 - 1e-12)):
        return f"the probabilities sum to {total!r}"
    if not 0.0 <= coin < 1.0 or drawn_row(actions, p, coin)[0] != row:
        return f"{coin!r} does not draw candidate {row}"
    rounding = 1e-12 * float(np.abs(actions.endpoints).max())
    if not np.abs(mixture.mean_feature - mean_feature(actions, p)).max() <= rounding:
        return "the mean feature is not that of the mixture"
    return ""


def row_of(known: KnownState, action: Action) -> int:
    """The candidate that an action is, -1 for a_0, -2 for a point within a ray, which is none."""
    if isinstance(action, StarAction) and action.ray >= 0 and action.length != 1.0:
        return -2
    row = action.ray if isinstance(action, StarAction) else int(action)
    return -1 if row == known.actions.baseline else row


def is_safe_action(known: KnownState, action: Action) -> bool:
    """Whether this is a_0(s), which needs no bound: it was declared safe."""
    if isinstance(action, StarAction):
        return action.ray < 0 or action.length == 0.0
    return action == known.actions.baseline


def not_in(known: KnownState, action: Action, feature: Array, limit: float) -> str:
    """Why this is not an action of D(s) with this feature; empty if it is. `limit` bounds the size of features."""
    actions = known.actions
    if isinstance(action, StarAction):
        inside = actions.is_star and -1 <= action.ray < len(actions.endpoints) and 0.0 <= action.length <= 1.0
    else:
        inside = not actions.is_star and 0 <= action < len(actions.endpoints)
    if not inside:
        return f"{action!r} is not in D(s)"
    expected = feature_of(actions, action)
    rounding = 4.0 * ULP * max(1.0, limit)
    if feature.shape != expected.shape or not norm_of(feature - expected) <= rounding:
        return f"the feature is not that of {action!r}"
    return ""
