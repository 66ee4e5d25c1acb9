"""What people call things. Messages, summaries, tables and the dashboard use it; no calculation does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tether.errors import InputError
from tether.records import Action, StarAction, State, settle


@dataclass(frozen=True, kw_only=True)
class Names:
    """Names and units that the user gave; what has none is called by its number.

    Attributes:
        constraints: of each cost, such as "room temperature".
        cost_units: of each cost, such as "°C".
        reward_unit: of the reward.
        actions: of each action of a list, or of each ray, such as "set-point +2 K"; the same in all states.
        features: of each entry of φ, such as "outdoor temperature".
        safe_action: of a_0.
        state: state -> its name.
    """

    constraints: Sequence[str] = ()
    cost_units: Sequence[str] = ()
    reward_unit: str = ""
    actions: Sequence[str] = ()
    features: Sequence[str] = ()
    safe_action: str = "the safe action"
    state: Callable[[State], str] | None = None

    def __post_init__(self) -> None:
        for name in ("constraints", "cost_units", "actions", "features"):
            given = getattr(self, name)
            if isinstance(given, str) or not all(isinstance(each, str) for each in given):
                raise InputError(f"names.{name} must be a list of words, one each, but is {given!r}.")
            settle(self, **{name: tuple(given)})

    def constraint(self, number: int) -> str:
        """A cost by its name."""
        return self.constraints[number] if number < len(self.constraints) else f"cost {number}"

    def cost(self, number: int, value: float) -> str:
        """An amount of a cost, with its unit."""
        return f"{value:.4g} {self.cost_units[number]}" if number < len(self.cost_units) else f"{value:.4g}"

    def action(self, action: Action, *, is_baseline: bool = False) -> str:
        """An action by its name, a ray with how far along it one goes."""
        if is_baseline or (isinstance(action, StarAction) and action.ray < 0):
            return self.safe_action
        number = action.ray if isinstance(action, StarAction) else action
        kind = "ray" if isinstance(action, StarAction) else "action"
        name = self.actions[number] if number < len(self.actions) else f"{kind} {number}"
        return f"{name} at {action.length:.0%}" if isinstance(action, StarAction) else name

    def feature(self, number: int) -> str:
        """An entry of φ by its name."""
        return self.features[number] if number < len(self.features) else f"feature {number}"

    def place(self, state: State) -> str:
        """A state by its name."""
        return f"state {state}" if self.state is None else self.state(state)


NO_NAMES = Names()
"""Everything by its number."""
