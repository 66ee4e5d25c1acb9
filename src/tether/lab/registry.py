"""Worlds and agents by name, with their options. Third parties add their own through entry points.

A package registers a `WorldKind` in the group "tether.worlds" or an `AgentKind` in "tether.agents":

    [project.entry-points."tether.agents"]
    mine = "my_package:MY_AGENT"     # MY_AGENT = AgentKind.of(MyConfig, build, summary="...")
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from tether.errors import InputError, TetherError

if TYPE_CHECKING:
    import numpy as np

    from tether.agents.agent import Agent
    from tether.lab.worlds.linear_mdp import LinearMDP

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Option:
    """One option of a world or an agent: its type and its default."""

    annotation: Any
    default: Any

    @property
    def type_name(self) -> str:
        """The type as a reader would write it: float | 'theorem' | 'classical'."""
        return " | ".join(_alternatives(self.annotation))


def _alternatives(annotation: Any) -> list[str]:
    """The members of unions and literals, one by one."""
    members = get_args(annotation)
    if get_origin(annotation) is Literal:
        return [repr(member) for member in members]
    if members:
        return [text for member in members for text in _alternatives(member)]
    return [getattr(annotation, "__name__", str(annotation)).replace("NoneType", "None")]


@dataclass(frozen=True)
class WorldKind:
    """A family of LinearMDPs: build(rng, **options), where rng is the seed's "instance" stream."""

    summary: str
    options: Mapping[str, Option]
    build: "Callable[..., LinearMDP]"

    @classmethod
    def of(cls, function: "Callable[..., LinearMDP]", *, summary: str = "") -> "WorldKind":
        """From a function (rng, *, option=default, ...) -> LinearMDP; its docstring's first line is the summary."""
        hints = get_type_hints(function)
        parameters = inspect.signature(function).parameters.values()
        options = {p.name: Option(hints.get(p.name, Any), p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
        return cls(summary or (function.__doc__ or "").split("\n")[0], options, function)


@dataclass(frozen=True)
class AgentKind:
    """A family of agents: build(world, options), where options holds what the spec gives, plus `episodes` if it is one.

    With `draws` it is build(world, options, rng), where rng is the seed's "agent" stream.
    An agent is any object with plan, act and observe (tether.agents.agent.Agent). `explorer` names where its optimism
    comes from; whether its radii are the theorem's or tuned is read from its own decisions.
    """

    summary: str
    options: Mapping[str, Option]
    build: "Callable[..., Agent]"
    explorer: Callable[[Options], str] = lambda options: "plain"
    draws: bool = False

    @classmethod
    def of(
        cls,
        config: type[Any],
        build: "Callable[..., Agent]",
        *,
        summary: str,
        explorer: Callable[[Options], str] = lambda options: "plain",
        draws: bool = False,
    ) -> "AgentKind":
        """From a frozen dataclass whose fields are the options."""
        hints = get_type_hints(config)
        options = {
            field.name: Option(hints[field.name], None if field.default is MISSING else field.default)
            for field in fields(config)
        }
        return cls(summary, options, build, explorer, draws)


Kind = TypeVar("Kind", bound=WorldKind | AgentKind)


class Registry(Generic[Kind]):
    """Names to kinds. Nothing is imported before it is asked for."""

    def __init__(self, what: str, kind: type[Kind], group: str, shipped: Mapping[str, Callable[[], Kind]]) -> None:
        self.what, self.kind, self.group, self.shipped = what, kind, group, dict(shipped)

    def names(self) -> list[str]:
        """What is shipped, then what other packages add."""
        return [*self.shipped, *(point.name for point in self._plugins() if point.name not in self.shipped)]

    def get(self, name: str) -> Kind:
        """The kind of that name, or an error that names the nearest one."""
        if name in self.shipped:
            return self.shipped[name]()
        for point in self._plugins():
            if point.name == name:
                return self._loaded(point)
        raise InputError(f"unknown {self.what} {name!r}{nearest(name, self.names())}")

    def _plugins(self) -> list[EntryPoint]:
        return sorted(entry_points(group=self.group), key=lambda point: point.name)

    def _loaded(self, point: EntryPoint) -> Kind:
        try:
            found = point.load()
        except Exception as error:
            raise TetherError(f"the {self.what} {point.name!r} ({point.value}) cannot be loaded: {error}") from error
        if not isinstance(found, self.kind):
            raise TetherError(
                f"the {self.what} {point.name!r} ({point.value}) is a {type(found).__name__}, "
                f"but the entry point group {self.group!r} takes a {self.kind.__name__}."
            )
        return found


def nearest(name: str, names: list[str]) -> str:
    """The end of an error message: the nearest right name, or all of them."""
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(names)}."


def checked_options(where: str, options: Options, allowed: Mapping[str, Option]) -> dict[str, Any]:
    """Options with known names and right types, canonical: 1 for a float becomes 1.0, so that equal ones hash equal."""
    from pydantic import TypeAdapter, ValidationError

    checked = {}
    for name, value in options.items():
        if name not in allowed:
            raise InputError(f"{where} has no option {name!r}{nearest(name, list(allowed))}")
        try:
            checked[name] = TypeAdapter(allowed[name].annotation).validate_python(value, strict=True)
        except ValidationError:
            raise InputError(f"{where}: option {name!r} must be {allowed[name].type_name}, but is {value!r}.") from None
    return checked


def _synthetic() -> WorldKind:
    from tether.lab.worlds.synthetic import synthetic

    return WorldKind.of(synthetic, summary="Random instances on the simplex: the paper's section 5.1.")


def _not_star_convex() -> WorldKind:
    from tether.lab.worlds.synthetic import not_star_convex

    def build(rng: "np.random.Generator", **options: Any) -> "LinearMDP":
        return not_star_convex(**options)

    summary = "Two actions that teach nothing about each other: why Assumption 5 is needed."
    return WorldKind(summary, WorldKind.of(not_star_convex).options, build)


def _slucb() -> AgentKind:
    from tether.agents.slucb import SlucbConfig, SlucbQvi

    return AgentKind.of(
        SlucbConfig,
        lambda world, options: SlucbQvi(world.problem, SlucbConfig(**options)),
        summary="SLUCB-QVI, Algorithm 1: explorer paper, or ours: certified, directional, adaptive.",
        explorer=lambda options: str(options.get("explorer", SlucbConfig.explorer)),
    )


def _rslucb() -> AgentKind:
    from tether.agents.rslucb import RslucbQvi
    from tether.agents.slucb import SlucbConfig

    return AgentKind.of(
        SlucbConfig,
        lambda world, options, rng: RslucbQvi(world.problem, SlucbConfig(**options), rng=rng),
        summary="RSLUCB-QVI, Algorithm 2: mixtures of actions whose expected cost is certified.",
        explorer=lambda options: str(options.get("explorer", SlucbConfig.explorer)),
        draws=True,
    )


def _always_safe() -> AgentKind:
    from tether.agents.fixed import AlwaysSafe, DefaultAction

    def build(world: "LinearMDP", options: Options) -> "Agent":  # AlwaysSafe is a mixture, judged among mixtures
        return DefaultAction(world.problem) if world.is_star else AlwaysSafe(world.problem)

    summary = "The safe action a_0(s) and nothing else: what every learner has to beat."
    return AgentKind(summary, {}, build, lambda options: "none")


def _frozen_lake() -> WorldKind:
    from tether.lab.worlds.lake import frozen_lake

    return WorldKind.of(frozen_lake, summary="The 10 × 10 Frozen Lake with solved features: the paper's section 5.2.")


def _dosing() -> WorldKind:
    from tether.lab.worlds.dosing import dosing

    return WorldKind.of(dosing, summary="Dose titration: toxicity under τ at every visit, reward is quality of life.")


def _heating() -> WorldKind:
    from tether.lab.worlds.heating import heating

    return WorldKind.of(heating, summary="Heating set-backs: felt cold under τ at every step, reward is energy saved.")


def _ad_load() -> WorldKind:
    from tether.lab.worlds.ad_load import ad_load

    return WorldKind.of(ad_load, summary="Ad load: complaint and churn rate each under its τ, reward is revenue.")


def _lsvi() -> AgentKind:
    from tether.agents.lsvi import LsviConfig, LsviUcb

    return AgentKind.of(
        LsviConfig,
        lambda world, options: LsviUcb(world.problem, LsviConfig(**options)),
        summary="LSVI-UCB without a constraint, on r − λ'c with penalty λ' (0: on r). Unsafe.",
    )


def _lsvi_penalised() -> AgentKind:
    from tether.agents.lsvi import LsviConfig, penalised

    return AgentKind.of(
        LsviConfig,
        lambda world, options: penalised(world.problem, LsviConfig(**options)),
        summary="LSVI-UCB on r − λ' Σ c/τ: every cost in units of its threshold, so that one grid suits all. Unsafe.",
    )


def _lsvi_told() -> AgentKind:
    from tether.agents.lsvi import LsviConfig, LsviUcb

    return AgentKind.of(
        LsviConfig,
        lambda world, options: LsviUcb(world.problem, LsviConfig(**options), true_gamma=world.true_gamma),
        summary="LSVI-UCB that is told γ*, and so knows the safe set: the reference, not a rival.",
    )


WORLDS = Registry(
    "world",
    WorldKind,
    "tether.worlds",
    {
        "synthetic": _synthetic,
        "frozen-lake": _frozen_lake,
        "not-star-convex": _not_star_convex,
        "dosing": _dosing,
        "heating": _heating,
        "ad-load": _ad_load,
    },
)
AGENTS = Registry(
    "agent",
    AgentKind,
    "tether.agents",
    {
        "slucb-qvi": _slucb,
        "rslucb-qvi": _rslucb,
        "lsvi-ucb": _lsvi,
        "lsvi-ucb-penalised": _lsvi_penalised,
        "lsvi-ucb-told": _lsvi_told,
        "always-safe": _always_safe,
    },
)
