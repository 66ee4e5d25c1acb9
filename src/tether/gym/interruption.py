"""Ctrl-C between two steps instead of in the middle of one, so that nothing learned is lost."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interruption:
    """While entered, the first Ctrl-C only sets `asked`; a second one interrupts at once, as usual.

    Outside the main thread, or where somebody else handles the signal, nothing is changed.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Self:
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
