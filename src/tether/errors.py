"""What Tether raises. Every message names the value, the limit, the assumption and the way out."""

from difflib import get_close_matches
from importlib import import_module
from typing import Any


class TetherError(Exception):
    """Any error that Tether raises on purpose."""


class AssumptionError(TetherError, ValueError):
    """An assumption of the paper does not hold, so no guarantee could be given."""


class InputError(TetherError, ValueError):
    """A value handed to Tether cannot be used: wrong shape, not finite, out of range, or sent twice."""


class EmptySafeSet(TetherError):
    """No action, not even the safe one, has a bound under the threshold."""


class MissingExtra(TetherError, ImportError):
    """A package that only some need is not installed; the message has the line that installs it."""


class StateFileError(TetherError):
    """A saved state is truncated, altered, foreign or of another problem. Nothing was changed."""


class StoreError(TetherError):
    """The log cannot be read or written now. Nothing was acknowledged; try again, with the same keys."""

    @staticmethod
    def of(error: BaseException) -> "StoreError":
        """What a store raised; an error of a kind that no store should raise counts as a StoreError, too."""
        return error if isinstance(error, StoreError) else StoreError(f"the log failed: {type(error).__name__}.")


class StoreBusy(StoreError):
    """More waits to be logged than the limit allows. Nothing was taken; try again later."""


class AlteredLog(StoreError):
    """The log is not what was written: the entry `seq` (0: the log as a whole) does not fit."""

    def __init__(self, message: str, seq: int = 0) -> None:
        super().__init__(message)
        self.seq = seq


def nearest(name: str, names: list[str]) -> str:
    """The end of an error message: the nearest right name, or all of them."""
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(names)}."


def imported(module: str, extra: str) -> Any:
    """A package that only some need; where it is missing, an error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtra(f'this needs {error.name}: pip install "tether-rl[{extra}]".') from None
