"""What Tether raises. Every message names the value, the limit, the assumption and the way out."""


class TetherError(Exception):
    """Any error that Tether raises on purpose."""


class AssumptionError(TetherError, ValueError):
    """An assumption of the paper does not hold, so no guarantee could be given."""


class InputError(TetherError, ValueError):
    """A value handed to Tether cannot be used: wrong shape, not finite, out of range, or sent twice."""


class EmptySafeSet(TetherError):
    """No action, not even the safe one, has a bound under the threshold."""


class StateFileError(TetherError):
    """A saved state is truncated, altered, foreign or of another problem. Nothing was changed."""
