"""Opening: a log belongs to one problem and one configuration, and says what each advisor was started with."""

import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

import numpy as np

from tether import __version__
from tether.agents.slucb import SlucbConfig
from tether.agents.state_file import fingerprint
from tether.errors import InputError
from tether.kernels.compiled import KERNEL
from tether.live.binding import WAY_OUT, Binding, is_same, listed_sketches
from tether.live.following import Follower
from tether.live.learner import Learner
from tether.live.live_agent import live_config
from tether.live.log.chain import Store
from tether.live.policy import Guards
from tether.live.records import Algorithm, Configured, limit_of
from tether.live.replica import settings_of
from tether.live.states import StateCodec
from tether.problem.problem import Problem

log = logging.getLogger("tether.live")

FIRST = "configured:first"
"""The key of the entry that a log begins with: only one problem and configuration can be the first."""


class Opened(NamedTuple):
    """A log that this problem and configuration may use.

    Attributes:
        first: what the log was started with; None if it is empty.
        settings: what this advisor was started with, but for the guards.
        binding: of the log to the problem.
        new_learner: makes a learner that has read nothing yet.
    """

    first: Configured | None
    settings: Configured
    binding: Binding
    new_learner: Callable[[], Learner]


def open_log(
    store: Store,
    problem: Problem,
    states: StateCodec,
    *,
    config: SlucbConfig | None,
    algorithm: Algorithm | None,
    watch: bool,
) -> Opened:
    """Compare a log with the problem and the configuration. Nothing is written.

    Args:
        store: the log.
        problem: what the learner knows.
        states: how states become JSON.
        config: of the algorithm; None for the log's own, or for a new log the default.
        algorithm: likewise.
        watch: whether the tests of the assumptions run along.

    Raises:
        InputError: the log was started with another problem or configuration.
    """
    first = settings_of(store)
    algorithm = algorithm or ("slucb-qvi" if first is None else first.algorithm)
    if config is None:
        config = live_config(problem, algorithm) if first is None else SlucbConfig(**first.config)
    listed = listed_sketches(problem)
    if first is not None and is_same(listed, first.listed):
        listed = first.listed  # but for rounding
    settings = Configured(
        problem=fingerprint(problem),
        listed=listed,
        algorithm=algorithm,
        config=asdict(config),
        guards=Guards().to_json(),
        watch=watch,
        library=__version__,
        kernel=KERNEL,
        numpy=np.__version__,
    )
    if first is not None:
        check_settings(first, settings)
    binding = Binding(store, problem, states, is_new=first is None)
    new_learner = partial(Learner, problem, config, algorithm=algorithm, watch=watch, states=states)
    return Opened(first, settings, binding, new_learner)


def configure(follower: Follower, opened: Opened, guards: Guards | None) -> None:
    """Log what this advisor was started with, if the log does not say so yet.

    Args:
        follower: of this log.
        opened: the same log, when it was opened.
        guards: to be in force from here on; the log's own unless given.
    """
    ledger = follower.replica.ledger
    wanted = guards or ledger.guards
    settings = opened.settings.model_copy(update={"guards": wanted.to_json()})
    if follower.store.read_only or settings == ledger.settings:
        return
    if ledger.settings is not None and wanted != ledger.guards:
        log.warning("the guards of this log change from %s to %s", ledger.guards, wanted)
    written = follower.write(settings, *([FIRST] if opened.first is None else []))
    if not written.fresh:  # another process started this log at the same time
        check_settings(Configured.read(written.entry), settings)


def check_settings(first: Configured, settings: Configured) -> None:
    """Refuse another problem or configuration than the log's: its data certify nothing there."""
    if first.listed != settings.listed:
        raise InputError(
            "this log was started with another problem: its listed states have other features, actions or safe costs. "
            + WAY_OUT
        )
    for part in ("problem", "algorithm", "config", "watch"):
        before, now = getattr(first, part), getattr(settings, part)
        if before != now:
            if part == "algorithm":
                part, before, now = "limit_on", limit_of(before), limit_of(now)
            if isinstance(before, dict) and isinstance(now, dict):  # only what differs
                names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
                before, now = ({name: side.get(name) for name in names} for side in (before, now))
            raise InputError(
                f"this log was started with another {part}: {before}, not {now}. Use the same, or start "
                "a new log and hand the old data to warm_start."
            )
