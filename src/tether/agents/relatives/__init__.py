"""The relatives of SLUCB-QVI: safe learners that others have published, one file each, as rows of the league.

A relative is an `Agent` made by `Method(problem, config, seed=0)`. Its class has a `row` that says what its numbers
cannot, and its config a field `scale`: 1 is the radius of its own theorem, any other number multiplies that radius and
is called tuned, also by its decisions. Every file ends with `METHODS`, the classes it brings: who drops a file in here
is in the league. So is who names `AgentKind.of_method(Method)` in the entry point group "tether.agents".

    class Method:
        '''Setting, rule in the paper's symbols, citation, deviations.'''

        kind = "method"  # its name in the registry
        row = Row(title="...", citation="...", track="step", constraint="...", told="...", source="code", anchor="...")
        config_type = MethodConfig

        def __init__(self, problem, config=None, *, seed=0): ...

    METHODS = (Method,)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal

from tether.errors import InputError

Track = Literal["step", "coin", "realised", "episode", "none"]
"""What is to stay under its limit: the expected cost of each step; that over the learner's own coin; the measured cost
of each step; the expected sum over an episode; nothing."""

Source = Literal["code", "text", "summary", "memory"]
"""Where the rule was read: the authors' code, the paper's text, somebody's summary of it; or nowhere, and it is written
from memory."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the league says of a method beside its numbers.

    Attributes:
        title: its name in the table.
        citation: authors, venue and year, arXiv number if there is one.
        track: among whom it is ranked.
        constraint: what it promises itself, in symbols.
        told: what it must know beside the Problem (φ, a_0, τ_s, τ, σ, δ, B), or what of that it does not use.
        source: where the rule was read.
        anchor: the figure of its authors that it reproduces, with both numbers; or why none could be reproduced.
        horizon: the only horizon that it is made for, or None.
        deviations: where it differs from what was published.
        memory: what of the rule is written from memory, in a few words for the tables.
    """

    title: str
    citation: str
    track: Track
    constraint: str
    told: str
    source: Source
    anchor: str
    horizon: int | None = None
    deviations: tuple[str, ...] = ()
    memory: str = ""

    def __post_init__(self) -> None:
        if self.source == "memory" and not self.memory:
            raise InputError(f"{self.title} was read nowhere (source='memory'): `memory` must say what is from memory.")


@dataclass(frozen=True, kw_only=True)
class RelativeConfig:
    """What the league sets. A method's own numbers are fields of a subclass, with the published values as defaults.

    A field `episodes: int | None = None` is filled with K by studies.
    """

    scale: float = 1.0


def methods() -> Iterator[Any]:
    """The classes of every file in this package, in the order of the files' names."""
    for module in iter_modules(__path__):
        yield from getattr(import_module(f"{__name__}.{module.name}"), "METHODS", ())
