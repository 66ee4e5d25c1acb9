"""Worlds and agents by name, with their options. Third parties add their own through entry points.

A package registers a `WorldKind` in the group "tether.worlds" or an `AgentKind` in "tether.agents":

    [project.entry-points."tether.agents"]
    mine = "my_package:MY_AGENT"     # MY_AGENT = AgentKind.of(MyConfig, build, summary="...")
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from tether.errors import InputError, TetherError, nearest

if TYPE_CHECKING:
    import numpy as np

    from tether.agents.agent import Agent
    from tether.agents.relatives import Row
    from tether.lab.worlds.linear_mdp import LinearMDP, MisspecifiedMDP
    from tether.records import Array

    World = LinearMDP | MisspecifiedMDP

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
class Meaning:
    """A world in its own words: `reward` units of gain per unit of reward, `cost` units of harm per unit of cost."""

    title: str
    episode: str  # what an episode is
    unit: str  # in which gain is counted
    gain: str  # the gain of one episode
    reward: float
    harm: str  # what an excess over τ is counted in
    cost: float


@dataclass(frozen=True)
class WorldKind:
    """A family of worlds: build(rng, **options), where rng is the seed's "instance" stream.

    A world with an option `episodes` is given the study's, unless the spec sets it.
    """

    summary: str
    options: Mapping[str, Option]
    build: "Callable[..., World]"
    meaning: Meaning | None = None

    @classmethod
    def of(cls, function: "Callable[..., World]", *, summary: str = "", meaning: Meaning | None = None) -> "WorldKind":
        """From a function ([rng,] *, option=default, ...); its docstring's first line is the summary."""
        hints = get_type_hints(function)
        parameters = inspect.signature(function).parameters.values()
        options = {p.name: Option(hints.get(p.name, Any), p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
        takes_rng = len(options) < len(parameters)
        build = function if takes_rng else lambda rng, **chosen: function(**chosen)
        return cls(summary or (function.__doc__ or "").split("\n")[0], options, build, meaning)


@dataclass(frozen=True)
class AgentKind:
    """A family of agents: build(world, options), where options holds what the spec gives, plus `episodes` if it is one.

    With `draws` it is build(world, options, rng), where rng is the seed's "agent" stream.
    An agent is any object with plan, act and observe (tether.agents.agent.Agent). `explorer` names where its optimism
    comes from; whether its radii are the theorem's or tuned is read from its own decisions. One with a `row` is in the
    league.
    """

    summary: str
    options: Mapping[str, Option]
    build: "Callable[..., Agent]"
    explorer: Callable[[Options], str] = lambda options: "plain"
    draws: bool = False
    row: "Row | None" = None

    @classmethod
    def of_method(cls, method: Any) -> "AgentKind":
        """From the class of a relative (tether.agents.relatives): Method(problem, config, seed=...) with a `row`."""

        def build(world: "LinearMDP", options: Options, rng: "np.random.Generator") -> "Agent":
            known: dict[str, Any] = {}
            if getattr(method, "needs_margin", False) and world.limits == "episode":
                known["safe_policy"], margin = _safe_policy(world)
                options = {"margin": margin, **options}
            agent: Agent = method(world.problem, method.config_type(**options), seed=int(rng.integers(2**63)), **known)
            return agent

        made = cls.of(
            method.config_type,
            build,
            summary=f"{method.row.title}: {method.row.citation}.",
            explorer=lambda options: "relative",
            draws=True,
        )
        return replace(made, row=method.row)

    @classmethod
    def of(
        cls,
        config: type[Any],
        build: "Callable[..., Agent]",
        *,
        summary: str,
        explorer: Callable[[Options], str] | None = None,
        draws: bool = False,
    ) -> "AgentKind":
        """From a frozen dataclass whose fields are the options; one called `explorer` names the explorer."""
        hints = get_type_hints(config)
        options = {
            field.name: Option(hints[field.name], None if field.default is MISSING else field.default)
            for field in fields(config)
        }
        usual = options["explorer"].default if "explorer" in options else "plain"
        return cls(summary, options, build, explorer or (lambda given: str(given.get("explorer", usual))), draws)


Kind = TypeVar("Kind", bound=WorldKind | AgentKind)


class Registry(Generic[Kind]):
    """Names to kinds. Nothing is imported before it is asked for.

    `more` finds further shipped ones; it is called for names that are not among those of `shipped`.
    """

    def __init__(
        self,
        what: str,
        kind: type[Kind],
        group: str,
        shipped: Mapping[str, Callable[[], Kind]],
        more: Callable[[], Mapping[str, Callable[[], Kind]]] = dict,
    ) -> None:
        self.what, self.kind, self.group, self.shipped, self.more = what, kind, group, dict(shipped), more

    def names(self) -> list[str]:
        """What is shipped, then what other packages add."""
        ours = [*self.shipped, *self.more()]
        return [*ours, *(point.name for point in self._plugins() if point.name not in ours)]

    def get(self, name: str) -> Kind:
        """The kind of that name, or an error that names the nearest one."""
        shipped = self.shipped if name in self.shipped else self.more()
        if name in shipped:
            return shipped[name]()
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


# What is shipped. A module is imported when its world or agent is asked for.


def _world(function: str, summary: str, meaning: Meaning | None = None) -> Callable[[], WorldKind]:
    """A world by "module:function" under tether.lab.worlds."""
    module, _, name = function.partition(":")

    def load() -> WorldKind:
        build = getattr(import_module(f"tether.lab.worlds.{module}"), name)
        return WorldKind.of(build, summary=summary, meaning=meaning)

    return load


def _heating() -> WorldKind:
    from tether.lab.worlds.heating import KELVIN, MOST_SAVED, heating

    meaning = Meaning(
        title="Heating",
        episode="house, one day",
        unit="kWh",
        gain="kWh saved per house and day",
        reward=MOST_SAVED,
        harm="K",
        cost=KELVIN,
    )
    summary = "Heating set-backs: felt cold under τ at every step, reward is energy saved."
    return WorldKind.of(heating, summary=summary, meaning=meaning)


def _heating_twin() -> WorldKind:
    from tether.lab.worlds.heating import heating_twin

    def build(rng: "np.random.Generator", *, episodes: int = 2000, draught: float = 1.8) -> "World":
        return heating_twin(rng, opens=episodes // 2, draught=draught)

    summary = "Heating whose model is wrong: a window stays open from half-way on."
    return _twin(WorldKind(summary, {"episodes": Option(int, 2000), "draught": Option(float, 1.8)}, build))


def _twin(kind: WorldKind) -> WorldKind:
    """A misspecified world with the option that its learner knows the misfit ε."""

    def build(rng: "np.random.Generator", *, knows_misfit: bool = False, **options: Any) -> "World":
        from tether.lab.worlds.misfit import knowing_misfit

        twin: Any = kind.build(rng, **options)
        made: World = knowing_misfit(twin) if knows_misfit else twin
        return made

    return replace(kind, options={**kind.options, "knows_misfit": Option(bool, False)}, build=build)


def _agent(
    module: str, config: str, build: "Callable[..., Agent]", summary: str, *, draws: bool = False
) -> Callable[[], AgentKind]:
    """An agent of tether.agents: build(its module, world, config[, rng])."""

    def load() -> AgentKind:
        home = import_module(f"tether.agents.{module}")
        settings = getattr(home, config)
        made = lambda world, options, *rng: build(home, world, settings(**options), *rng)  # noqa: E731
        return AgentKind.of(settings, made, summary=summary, draws=draws)

    return load


def _always_safe() -> AgentKind:
    from tether.agents.fixed import AlwaysSafe, DefaultAction

    def build(world: "LinearMDP", options: Options) -> "Agent":  # AlwaysSafe is a mixture, judged among mixtures
        return DefaultAction(world.problem) if world.is_star else AlwaysSafe(world.problem)

    summary = "The safe action a_0(s) and nothing else: what every learner has to beat."
    return AgentKind(summary, {}, build, lambda options: "none")


def _safe_policy(world: "LinearMDP") -> "tuple[Array, float]":
    """π_sf and its margin ξ, which methods with a budget per episode are told: the least costly policy's."""
    import numpy as np

    from tether.lab.worlds.planning import all_actions, least_costly_policy, policy_costs

    policy = least_costly_policy(world)
    costs = policy_costs(world, np.einsum("hsa,sad->hsd", policy, all_actions(world)))
    spent = float(world.initial @ costs[0, :, 0])
    return policy, world.problem.horizon * world.problem.threshold[0] - spent


def _relatives() -> dict[str, Callable[[], AgentKind]]:
    """The methods of others, each by its own `kind`."""
    from tether.agents.relatives import methods

    return {method.kind: partial(AgentKind.of_method, method) for method in methods()}


WORLDS = Registry(
    "world",
    WorldKind,
    "tether.worlds",
    {
        "synthetic": _world("synthetic:synthetic", "Random instances on the simplex: the paper's section 5.1."),
        "frozen-lake": _world(
            "lake:frozen_lake", "The 10 × 10 Frozen Lake with solved features: the paper's section 5.2."
        ),
        "synthetic-twin": _world(
            "synthetic:synthetic_twin", "Section 5.1 with costs that bend or drift, by as much as the learner is told."
        ),
        "not-star-convex": _world(
            "synthetic:not_star_convex",
            "Two actions that teach nothing about each other: why Assumption 5 is needed.",
        ),
        "streaming": _world("cmdp:streaming", "A media server whose budget of fast sends is one per episode."),
        "inventory": _world("cmdp:inventory", "A shop whose budget for orders and storage is one per episode."),
        "random-cmdp": _world("cmdp:random_cmdp", "Random linear MDPs with a budget per episode."),
        "dosing": _world(
            "dosing:dosing",
            "Dose titration: toxicity under τ at every visit, reward is quality of life.",
            Meaning(
                title="Dose titration",
                episode="patient, six monthly visits",
                unit="quality-adjusted months",
                gain="quality-adjusted months per patient",
                reward=1.0,
                harm="points of toxicity",
                cost=1.0,
            ),
        ),
        "heating": _heating,
        "ad-load": _world(
            "ad_load:ad_load",
            "Ad load: complaint and churn rate each under its τ, reward is revenue.",
            Meaning(
                title="Ad load",
                episode="cohort, one week",
                unit="euros",
                gain="euros per cohort and week",
                reward=10.0,  # euros per cohort and day, of which the world's reward is a share
                harm="percentage points",
                cost=100.0,
            ),
        ),
        "bottling": _world(
            "bottling:bottling",
            "Bottling line: the chance of a stoppage, seen as yes or no, under τ every hour; reward is output.",
            Meaning(
                title="Bottling line",
                episode="line, four hours between two services",
                unit="bottles",
                gain="bottles per four hours",
                reward=6000.0,  # per hour, of which the world's reward is a share
                harm="percentage points",
                cost=100.0,
            ),
        ),
        "dosing-twin": lambda: _twin(
            _world("dosing:dosing_twin", "Dosing whose model is wrong: toxicity is convex in the dose.")()
        ),
        "heating-twin": _heating_twin,
        "ad-load-twin": lambda: _twin(
            _world("ad_load:ad_load_twin", "Ad load whose model is wrong: patience ends at a threshold.")()
        ),
        "hutchinson": _world("hutchinson:hutchinson", "Bandits in the plane: the draws of Hutchinson et al. (2024)."),
        "contexts": _world("contexts:contexts", "A bandit with contexts whose measured costs are limited."),
        "circulant": _world(
            "circulant:circulant", "A bandit whose rays are shifts of one: Pacchiano et al.'s instance."
        ),
    },
)
AGENTS = Registry(
    "agent",
    AgentKind,
    "tether.agents",
    {
        "slucb-qvi": _agent(
            "slucb",
            "SlucbConfig",
            lambda home, world, config: home.SlucbQvi(world.problem, config),
            "SLUCB-QVI, Algorithm 1: explorer paper, or ours: certified, directional, adaptive.",
        ),
        "rslucb-qvi": _agent(
            "rslucb",
            "SlucbConfig",
            lambda home, world, config, rng: home.RslucbQvi(world.problem, config, rng=rng),
            "RSLUCB-QVI, Algorithm 2: mixtures of actions whose expected cost is certified.",
            draws=True,
        ),
        "lsvi-ucb": _agent(
            "lsvi",
            "LsviConfig",
            lambda home, world, config: home.LsviUcb(world.problem, config),
            "LSVI-UCB without a constraint, on r − λ'c with penalty λ' (0: on r). Unsafe.",
        ),
        "lsvi-ucb-penalised": _agent(
            "lsvi",
            "LsviConfig",
            lambda home, world, config: home.penalised(world.problem, config),
            "LSVI-UCB on r − λ' Σ c/τ: every cost in units of its threshold, so that one grid suits all. Unsafe.",
        ),
        "lsvi-ucb-told": _agent(
            "lsvi",
            "LsviConfig",
            lambda home, world, config: home.LsviUcb(world.problem, config, true_gamma=world.true_gamma),
            "LSVI-UCB that is told γ*, and so knows the safe set: the reference, not a rival.",
        ),
        "always-safe": _always_safe,
    },
    _relatives,
)


def row_of(agent: str) -> "Row | None":
    """What the league says of an agent; results may name agents that are not installed here."""
    try:
        return AGENTS.get(agent).row
    except TetherError:
        return None


def meaning_of(world: str) -> Meaning | None:
    """What rewards and costs mean in a world, if it says so; results may name worlds that are not installed here."""
    try:
        return WORLDS.get(world).meaning
    except TetherError:
        return None
