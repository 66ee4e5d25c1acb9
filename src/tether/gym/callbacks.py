"""What reports each episode of `learn`: a bar on the terminal, TensorBoard, MLflow, or a function of yours."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from tether.errors import InputError, imported
from tether.gym.step import check_takes
from tether.records import Array


class Episode(NamedTuple):
    """One finished episode, as callbacks get it.

    Attributes:
        number: 0, 1, 2, …
        steps: how many it had.
        total: its return, the sum of the environment's rewards.
        cost: the largest observed cost of a step, (M,); NaN where none was measured.
        margin: the smallest τ − bound of a step, (M,): what its certificates left unused.
        baseline_share: the share of its steps on which the safe action was played.
    """

    number: int
    steps: int
    total: float
    cost: Array
    margin: Array
    baseline_share: float

    def numbers(self) -> dict[str, float]:
        """By name, for a logger: one entry per constraint where there are several."""
        named = {"return": self.total, "steps": float(self.steps), "safe_action_share": self.baseline_share}
        for name, values in (("largest_cost", self.cost), ("smallest_margin", self.margin)):
            named |= {name if len(values) == 1 else f"{name}_{j}": float(value) for j, value in enumerate(values)}
        return named


Callback = Callable[[Episode], object]


class TensorBoard:
    """Writes every episode into a folder that `tensorboard --logdir` shows: pip install "tether-rl[tensorboard]"."""

    def __init__(self, folder: str) -> None:
        # its own flush() leaves what a thread has not taken yet: the last episode would be seen two minutes later
        self._writer = imported("tensorboardX", "tensorboard").SummaryWriter(folder, flush_secs=1)

    def __call__(self, episode: Episode) -> None:
        """One point per number."""
        for name, value in episode.numbers().items():
            self._writer.add_scalar(f"tether/{name}", value, episode.number)


class MLflow:
    """Logs every episode to the active MLflow run, or to one that it starts: pip install "tether-rl[mlflow]".

    The run is started at once: a store that MLflow cannot use fails here, not after the first episode.
    """

    def __init__(self) -> None:
        self._mlflow = imported("mlflow", "mlflow")
        if self._mlflow.active_run() is None:
            self._mlflow.start_run()

    def __call__(self, episode: Episode) -> None:
        """One metric per number; those that were not measured are left out."""
        numbers = {name: value for name, value in episode.numbers().items() if value == value}
        self._mlflow.log_metrics(numbers, step=episode.number)


@contextmanager
def progress_bar(total: int, wanted: bool | None) -> Iterator[Sequence[Callback]]:
    """The callback that moves a bar; none if it is not wanted. `wanted` None: shown only if stderr is a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield ()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("learning", total=total)

        def show(episode: Episode) -> None:
            shown = np.round((episode.cost, episode.margin), 9)  # a margin of 1e-16 is what rounding leaves of 0
            cost, margin = (", ".join(f"{value:.3g}" for value in values) for values in shown)
            words = f"return {episode.total:.4g}, cost up to {cost}, margin {margin}"
            bar.update(task, advance=1, description=f"{words}, safe action {episode.baseline_share:.0%}")

        yield (show,)


def check_callbacks(callbacks: Any) -> Sequence[Callback]:
    """Functions, or objects that can be called, refused before the first step."""
    if callable(callbacks):
        raise InputError(f"callbacks is a list: callbacks=[{getattr(callbacks, '__name__', '…')}].")
    if not isinstance(callbacks, list | tuple):
        raise InputError(f"callbacks is a list, an empty one if there are none, but is {callbacks!r}.")
    listed = list(callbacks)
    for callback in listed:
        if not callable(callback):
            raise InputError(f"callbacks are called with every Episode, but {callback!r} cannot be called.")
        check_takes(callback, f"the callback {getattr(callback, '__name__', callback)}", "episode")
    return listed
