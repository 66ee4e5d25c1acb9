"""Errors for arguments that do not exist: the nearest right one, or where a word has moved."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, cast

from tether.errors import nearest

Called = TypeVar("Called", bound=Callable[..., Any])

IN_CONSTRAINT = "constraints=Constraint(threshold=…, noise=…, safe_cost=…)"

MOVED = {
    "threshold": IN_CONSTRAINT,
    "noise": IN_CONSTRAINT,
    "safe_cost": IN_CONSTRAINT,
    "cost": "Constraint(cost=…)",
    "gamma_norm": "Constraint(gamma_norm=…)",
    "feature_effects": "Constraint(feature_effects=…)",
    "baseline_cost": "Constraint(safe_cost=…)",
    "baseline_cost_error": "Constraint(safe_cost=SafeCost(…, error=…))",
    "gap_floor": "Constraint(safe_cost=SafeCost(None, gap_floor=…))",
    "tight_baseline": "Constraint(safe_cost=SafeCost(…, if_tight='safe action'))",
    "cost_kind": "Constraint(noise=Bounded())",
    "misfit": "Constraint(relax=[Misfit(…)])",
    "drift": "Constraint(relax=[Drift(…)])",
    "drift_per": "Constraint(relax=[Drift(…, per='second')])",
    "time": "Constraint(relax=[Drift(…, per='second', time=…)])",
    "lost": "Constraint(relax=[Lost('worst-case', cost_range=(…, …))])",
    "cost_range": "Constraint(relax=[Lost('worst-case', cost_range=(…, …))])",
    "limit": "Constraint(relax=[Realised(…)])",
    "exceedance": "Constraint(relax=[Realised(…)])",
    "noise_scales": "Constraint(relax=[Realised(…, noise_scales=True)])",
    "state_of": "key=StateKeys(key, state_of)",
    "mask": "actions=Mask(…)",
    "targets": "actions=Targets(…)",
}
"""Where a word stands that somebody may write beside the constraints."""

IN_UPKEEP = {
    name: f"upkeep=Upkeep({name}=…)" for name in ("clock", "ids", "when_store_fails", "snapshot_every", "refresh")
}
"""Where a word stands that somebody may hand to an `Advisor`."""

SYMBOLS = {
    "phi": "features", "a_0": "safe_action", "tau": "threshold", "sigma": "noise", "delta": "confidence",
    "H": "horizon", "K": "episodes", "B": "gamma_norm", "epsilon": "misfit", "rho": "drift", "eta": "exceedance",
    "effects": "feature_effects", "steps": "episodes", "timesteps": "episodes", "total_timesteps": "episodes",
    "verbose": "progress", "reward_bounds": "reward_range", "reward_scale": "reward_range", "cost_limit": "threshold",
    "constraint": "constraints",
}  # fmt: skip
"""What the docs write as a symbol or in words, or other libraries call it, and somebody may write as an argument."""


def explained(moved: Mapping[str, str] = MOVED) -> Callable[[Called], Called]:
    """Decorate a function or a dataclass: an argument that it does not have is refused in helpful words."""

    def decorate(called: Called) -> Called:
        takes = signature(called)
        if isinstance(called, type):
            called.__init__ = _checking(called.__init__, called.__name__, takes, moved)  # type: ignore[misc]
            return called
        return cast(Called, _checking(called, getattr(called, "__name__", "it"), takes, moved))

    return decorate


def _checking(function: Any, name: str, takes: Signature, moved: Mapping[str, str]) -> Any:
    """The function, preceded by a look at the names of what it is given."""
    names = [one for one, how in takes.parameters.items() if how.kind is not Parameter.POSITIONAL_ONLY]

    @wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        for given in named:
            if given not in names:
                raise TypeError(wrong(name, given, names, moved))
        return function(*arguments, **named)

    return checked


def wrong(name: str, given: str, names: list[str], moved: Mapping[str, str]) -> str:
    """Return the error about an argument that `name` does not have."""
    meant = SYMBOLS.get(given, given)
    if meant not in names and meant in moved:
        return f"{name}() has no {given!r}: write {moved[meant]}"
    close = get_close_matches(meant, [*names, *moved], n=1)
    if close and close[0] not in names:
        return f"{name}() has no {given!r}; did you mean {close[0]!r}? Write {moved[close[0]]}"
    return f"{name}() got an unexpected keyword argument {given!r}{nearest(meant, names)}"
