"""Sums over the last decisions or outcomes, exact to the last bit."""

from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable
from itertools import islice

import numpy as np

from tether.live.policy import LONGEST

UNIT = 2**1074
"""Number of smallest doubles in 1."""


def in_units(value: float) -> int:
    """Return a double as an integer, in units of the smallest one."""
    top, bottom = value.as_integer_ratio()  # the latter a power of two
    return top << (UNIT.bit_length() - bottom.bit_length())


class Window:
    """Keep the last `LONGEST` numbers, and the sum of the last `size` of them.

    More numbers are kept than the window has, so that it can be widened later. The sum is an exact integer in units of
    the smallest double. So it depends on the window's content alone: a number that leaves takes all of itself away.
    Integers ("u1") are their own units.
    """

    def __init__(self, size: int, dtype: str = "<f8") -> None:
        self.size, self.dtype, self.values = size, dtype, deque[float](maxlen=LONGEST + 1)
        self._units, self._unit = 0, 1 if dtype == "u1" else UNIT
        self._in_units: Callable[[float], int] = int if dtype == "u1" else in_units

    def append(self, value: float) -> None:
        """Add a number; the oldest one leaves the window."""
        self.values.append(value)
        self._units += self._in_units(value)
        if len(self.values) > self.size:
            self._units -= self._in_units(self.values[-1 - self.size])

    def resize(self, size: int) -> None:
        """Look at the last `size` numbers from now on."""
        if size != self.size:
            self.size = size
            self._units = sum(map(self._in_units, islice(reversed(self.values), size)))

    def sum(self) -> float:
        """Return the sum over the window, rounded once."""
        return self._units / self._unit

    def to_text(self) -> str:
        """Return the numbers in base 64: JSON takes far longer for them, and more room."""
        return b64encode(np.fromiter(self.values, self.dtype, len(self.values)).tobytes()).decode()

    def take_text(self, text: str) -> None:
        """Read the numbers of `to_text`."""
        self.values.extend(np.frombuffer(b64decode(text), self.dtype).tolist())
        self._units = sum(map(self._in_units, islice(reversed(self.values), self.size)))
