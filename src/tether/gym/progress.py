"""A progress bar on a terminal, and nothing elsewhere."""

import sys
from types import TracebackType
from typing import Any, Self


class Bar:
    """Episodes done, time left and the return of the last episode. `wanted` None: only if stderr is a terminal."""

    def __init__(self, total: int, wanted: bool | None) -> None:
        self._total, self._bar, self._task = total, None, None
        self._wanted = sys.stderr.isatty() if wanted is None else wanted

    def __enter__(self) -> Self:
        if self._wanted:
            from rich.console import Console
            from rich.progress import Progress

            bar: Any = Progress(console=Console(stderr=True), transient=True)
            bar.start()
            self._bar, self._task = bar, bar.add_task("learning", total=self._total)
        return self

    def advance(self, earned: float, safe: float) -> None:
        """One more episode: its return, and the share of safe actions in it."""
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=f"return {earned:.4g}, safe action {safe:.0%}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
