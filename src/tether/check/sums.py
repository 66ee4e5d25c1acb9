"""What the online tests remember of one step h: sums, and copies of some of them from earlier times."""

from base64 import b64decode, b64encode
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from tether.check.evidence import Spectrum
from tether.errors import StateFileError
from tether.records import Array

FIRST_MARK, MARKS = 16, 6
"""Sums are copied after 16, 32, 64, … observations; the latest six copies are kept."""

LOOK_EVERY, LOOK_SHARE = 8, 32
"""The evidence is computed after 8 + d/4 + n/32 further observations: it is as valid when looked at seldom."""

EARLY = 0.1
"""λ of the estimates that only serve to choose what is tested next."""


@dataclass
class Sums:
    """Sums over n observations (x, q, z): x in R^d with ‖x‖ <= 1, q the extra features (p,), z the columns (C,) over σ.

    A leading 1 is put before x, so that `gram` holds n and Σx too. Of each q only q − Px is used, where P is what was
    known of Σqxᵀ V^{-1} at the last look: known before z, as the tests need, and nearly free of x, which sharpens them.
    """

    counts: Array  # n, the n at which to look next, and how many copies were ever made (3,)
    gram: Array  # Σ (1,x)(1,x)ᵀ (d+1, d+1)
    moment: Array  # Σ z (1,x) (C, d+1)
    square: Array  # Σ z² (C,)
    extra_square: Array  # Σ (q − Px)² (p,)
    extra_cross: Array  # Σ (q − Px) xᵀ (p, d)
    extra_moment: Array  # Σ (q − Px) z (C, p)
    plain_cross: Array  # Σ q xᵀ (p, d)
    known: Array  # P, as of the last look (p, d)
    fitted: Array  # direction of the last ridge estimate, as of the last look (C, d)
    mark_gram: Array  # `gram` as it was after 16·2^k observations, the latest last (6, d+1, d+1)
    mark_moment: Array  # (6, C, d+1)

    @classmethod
    def empty(cls, dimension: int, columns: int, extras: int) -> Self:
        """Nothing seen yet."""
        d, c, p = dimension, columns, extras
        return cls(
            np.array([0.0, LOOK_EVERY + d // 4, 0.0]),
            np.zeros((d + 1, d + 1)),
            np.zeros((c, d + 1)),
            np.zeros(c),
            np.zeros(p),
            np.zeros((p, d)),
            np.zeros((c, p)),
            np.zeros((p, d)),
            np.zeros((p, d)),
            np.zeros((c, d)),
            np.zeros((MARKS, d + 1, d + 1)),
            np.zeros((MARKS, c, d + 1)),
        )

    @property
    def count(self) -> int:
        """n."""
        return int(self.counts[0])

    @property
    def marks(self) -> range:
        """The numbers k of the copies that are kept, made after 16·2^k observations."""
        made = int(self.counts[2])
        return range(max(made - MARKS, 0), made)

    def add(self, x: Array, extra: Array, z: Array) -> None:
        """One observation: x (d,), q (p,), z (C,)."""
        led = np.concatenate(([1.0], x))
        self.gram += led[:, None] * led
        self.moment += z[:, None] * led
        self.square += z * z
        self.plain_cross += extra[:, None] * x
        rest = extra - self.known @ x
        self.extra_square += rest * rest
        self.extra_cross += rest[:, None] * x
        self.extra_moment += z[:, None] * rest
        self.counts[0] += 1.0
        if self.counts[0] == FIRST_MARK * 2.0 ** self.counts[2]:
            self.mark_gram = np.concatenate((self.mark_gram[1:], self.gram[None]))
            self.mark_moment = np.concatenate((self.mark_moment[1:], self.moment[None]))
            self.counts[2] += 1.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look at the evidence."""
        return bool(self.counts[0] >= self.counts[1])

    def looked(self, spectrum: Spectrum) -> None:
        """After a look: the time of the next one, and what it taught about P and about the columns' direction."""
        shrunk = spectrum.values + EARLY
        self.known = ((self.plain_cross @ spectrum.axes) / shrunk) @ spectrum.axes.T
        estimate = (spectrum.moment / shrunk) @ spectrum.axes.T
        self.fitted = estimate / np.maximum(np.linalg.norm(estimate, axis=1, keepdims=True), 1e-300)
        pause = LOOK_EVERY + len(shrunk) // 4 + self.count // LOOK_SHARE
        self.counts[1] = self.counts[0] + pause

    def to_json(self) -> dict[str, str]:
        """Every array as base64 of its little-endian bytes: exact."""
        return {name: b64encode(array.astype("<f8").tobytes()).decode() for name, array in self._arrays()}

    def take_json(self, saved: dict[str, Any]) -> None:
        """The reverse of `to_json`, into sums of the same shape."""
        for name, array in self._arrays():
            try:
                read = np.frombuffer(b64decode(saved[name], validate=True), dtype="<f8").astype(np.float64)
            except (KeyError, TypeError, ValueError) as error:
                raise StateFileError(f"the saved monitor's {name!r} cannot be read: {error!r}.") from error
            if read.size != array.size:
                raise StateFileError(f"the saved monitor's {name!r} has {read.size} numbers, not {array.size}.")
            setattr(self, name, read.reshape(array.shape))
        if not (np.isfinite(self.counts).all() and (self.counts >= 0.0).all() and (self.counts % 1.0 == 0.0).all()):
            raise StateFileError(f"the saved monitor's counts are {self.counts.tolist()}: they must be whole numbers.")

    def _arrays(self) -> list[tuple[str, Array]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]
