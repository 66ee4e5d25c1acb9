"""What every agent does. It does not own the loop: the same calls serve a simulation, a test and a live system."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from tether.records import Decision, State, Transition


@runtime_checkable
class Agent(Protocol):
    """plan once per episode, then act and observe once per step."""

    def plan(self) -> None:
        """Prepare the policy of the next episode from everything observed so far."""

    def act(self, step: int, state: State) -> Decision:
        """Choose at `state`, with the evidence for the choice. Never changes what was learned."""

    def observe(self, transition: Transition) -> None:
        """Learn from one outcome. A refused outcome (an error) leaves the agent as it was."""

    def save(self, path: Path) -> None:
        """Write the whole state, so that a restored agent continues bit for bit."""
