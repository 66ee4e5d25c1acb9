"""Upkeep: how an advisor keeps its log."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tether.errors import InputError
from tether.live.records import new_id
from tether.options import check_options

WhenStoreFails = Literal["baseline", "refuse"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Upkeep:
    """How an advisor keeps its log: the clock, ids, snapshots, and what happens when the log fails.

    Attributes:
        clock: seconds since 1970, for ages and for people. The order of things never depends on it.
        ids: makes the ids of decisions. They must never repeat.
        when_store_fails: "baseline" answers with the safe action and logged=False. "refuse" raises the StoreError.
        snapshot_every: entries of the log after which `record` saves a snapshot. If more decisions than that have no
            outcome, as many as there are.
        refresh: seconds after which the advisor looks for entries of other processes. None: only when you call `sync`.
    """

    clock: Callable[[], float] = time.time
    ids: Callable[[], str] = new_id
    when_store_fails: WhenStoreFails = "baseline"
    snapshot_every: int = 5000
    refresh: float | None = 0.25

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("clock", "ids"):
            if not callable(getattr(self, name)):
                raise InputError(f"{name} must be a function without arguments, but is {getattr(self, name)!r}.")
