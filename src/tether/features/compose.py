"""Features made of features: side by side, or multiplied."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import InputError
from tether.features.actions import ActionFeatures
from tether.features.base import Features, check_dimension
from tether.records import Array, State

Block = TypeVar("Block", Features, ActionFeatures)


def concatenate(*parts: Block, weights: ArrayLike | None = None) -> Block:
    """(w_1 ψ_1, …, w_n ψ_n) with Σ w² = 1, so that ‖·‖ <= 1: of state features, or of features φ(s, a).

    Equal weights unless given; only their ratios count. A small weight says that little of the *cost* lies in a block:
    it then adds little to the radius, while a small value_ridge still lets the block carry values.
    """
    if not parts:
        raise InputError("concatenate needs at least one set of features.")
    given = np.ones(len(parts)) if weights is None else np.array(weights, dtype=np.float64)
    if given.shape != (len(parts),) or not ((given > 0.0) & (given < np.inf)).all():
        raise InputError(f"weights must be {len(parts)} positive numbers, but are {weights!r}.")
    scaled = given / np.linalg.norm(given)
    for kind, joined in ((Features, _Concatenated), (ActionFeatures, _ConcatenatedPairs)):
        if all(isinstance(part, kind) for part in parts):
            made: Any = joined
            result: Block = made(parts, scaled)
            return result
    kinds = sorted({type(part).__name__ for part in parts})
    raise InputError(f"concatenate joins state features, or features of (s, a), but not both kinds: {kinds}.")


def product(first: Features, second: Features) -> Features:
    """ψ_1(s) ⊗ ψ_2(s): all products of two entries, ‖·‖ = ‖ψ_1‖ ‖ψ_2‖ <= 1. k = k_1 k_2."""
    return _Product(first, second)


class _Concatenated(Features):
    def __init__(self, parts: Sequence[Features], weights: Array) -> None:
        self._parts, self._weights = parts, weights
        self.dimension = check_dimension(sum(part.dimension for part in parts), "concatenate", "the parts' sizes")

    def batch(self, states: Sequence[State]) -> Array:
        blocks = [weight * part.batch(states) for part, weight in zip(self._parts, self._weights, strict=True)]
        joined: Array = np.concatenate(blocks, axis=1)
        return joined

    def describe(self) -> str:
        return f"({' | '.join(part.describe() for part in self._parts)}): {self.dimension} features"


class _ConcatenatedPairs(ActionFeatures):
    def __init__(self, parts: Sequence[ActionFeatures], weights: Array) -> None:
        self._parts, self._weights = parts, weights
        self.dimension = check_dimension(sum(part.dimension for part in parts), "concatenate", "the parts' sizes")

    def batch(self, state: State, actions: Sequence[Any]) -> Array:
        blocks = [weight * part.batch(state, actions) for part, weight in zip(self._parts, self._weights, strict=True)]
        joined: Array = np.concatenate(blocks, axis=1)
        return joined

    def describe(self) -> str:
        return f"({' | '.join(part.describe() for part in self._parts)}): {self.dimension} features"


class _Product(Features):
    def __init__(self, first: Features, second: Features) -> None:
        self._first, self._second = first, second
        self.dimension = check_dimension(first.dimension * second.dimension, "product", "the factors' sizes")

    def batch(self, states: Sequence[State]) -> Array:
        rows = self._first.batch(states)[:, :, None] * self._second.batch(states)[:, None, :]
        return rows.reshape(len(states), self.dimension)

    def describe(self) -> str:
        return f"({self._first.describe()}) x ({self._second.describe()}): {self.dimension} features"
