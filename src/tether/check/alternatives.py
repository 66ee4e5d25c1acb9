"""What a cost could depend on besides the features: one number each, known before the cost is seen."""

from zlib import crc32

import numpy as np

from tether.records import Array, StateKey

SQUARES, MIXES, WAVES, BUCKETS = 16, 8, 8, 16
"""Squares of single features, squares of signed sums, cosines, and groups of states."""

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
WAVE_LENGTHS = (2.0, 6.0)
"""Cosines turn by at most so much per unit of the feature's norm, alternating."""


class Alternatives:
    """The extra features of one problem: fixed formulas, no randomness, so that a restored monitor has the same."""

    def __init__(self, dimension: int, columns: int) -> None:
        self.squares = min(dimension, SQUARES)
        rows = np.arange(1, MIXES + WAVES + 1)[:, None] * np.arange(1, dimension + 1)
        spread = np.modf(rows * GOLDEN + rows[:, :1] * np.sqrt(2.0))[0]  # quasi-random in [0, 1)
        self.signs: Array = np.where(spread[:MIXES] < 0.5, 1.0, -1.0) / np.sqrt(dimension)
        directions = spread[MIXES:] - 0.5
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        self.waves: Array = directions * np.resize(WAVE_LENGTHS, WAVES)[:, None]
        self.columns = columns
        self.count = self.squares + MIXES + WAVES + columns + BUCKETS

    def names(self) -> list[str]:
        """What each extra feature is, in words."""
        return [
            *(f"the square of feature {i}" for i in range(self.squares)),
            *("a product of features" for _ in range(MIXES)),
            *("a wave along the features" for _ in range(WAVES)),
            *("the square of the predicted value" for _ in range(self.columns)),
            *("a group of states" for _ in range(BUCKETS)),
        ]

    def of(self, x: Array, fitted: Array, key: StateKey | None) -> Array:
        """(p,) from x (d,) with ‖x‖ <= 1, the last fit of each column (C, d), and the state's key if it is told."""
        extra = np.zeros(self.count)
        at = self.squares
        extra[:at] = x[:at] ** 2
        extra[at : at + MIXES] = (self.signs @ x) ** 2
        at += MIXES
        extra[at : at + WAVES] = np.cos(self.waves @ x + 1.0)
        at += WAVES
        extra[at : at + self.columns] = (fitted @ x) ** 2
        if key is not None:
            at += self.columns
            extra[at + crc32(repr(key).encode("utf-8", "surrogatepass")) % BUCKETS] = 1.0
        return extra
