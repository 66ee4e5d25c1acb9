"""From a study to its cells: build worlds and agents by name, and label them by what their decisions say."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tether.errors import InputError, TetherError
from tether.lab.books import CellInfo
from tether.lab.registry import AGENTS, WORLDS, checked_options
from tether.lab.specs import Choice, Study, spec_hash
from tether.lab.worlds.linear_mdp import LinearMDP, Streams
from tether.records import Radius

if TYPE_CHECKING:
    from tether.agents.agent import Agent


def build_world(name: str, options: Mapping[str, Any], streams: Streams) -> LinearMDP:
    """The instance of a world that a seed's streams draw."""
    return WORLDS.get(name).build(streams.instance, **options)


def build_agent(name: str, options: Mapping[str, Any], world: LinearMDP, episodes: int, streams: Streams) -> "Agent":
    """A new agent; those that need K are told it, those that draw get a stream of their own."""
    kind = AGENTS.get(name)
    told = {"episodes": episodes} if "episodes" in kind.options else {}
    return kind.build(world, {**told, **options}, *([streams.agent] if kind.draws else []))


def cells_of(study: Study) -> list[CellInfo]:
    """Every cell of the study, checked: its options are known, its world and its agent can be built."""
    cells = []
    for world in study.worlds:
        for options, varied in world.combinations():
            checked = checked_options(f"world {world.name!r}", options, WORLDS.get(world.name).options)
            place = _label(world, varied) if len(study.worlds) > 1 or world.grid else ""
            cells += _cells_in(study, world.name, checked, f" in {place}" if place else "")
    for label, count in Counter(cell.label for cell in cells).items():
        if count > 1:
            raise InputError(f"two cells of study {study.name!r} are called {label!r}: give them different labels.")
    return cells


def _cells_in(study: Study, world: str, world_options: dict[str, Any], place: str) -> list[CellInfo]:
    """The study's agents in one world; an agent may ask for another variant of it."""
    cells = []
    instances: dict[str, LinearMDP] = {}
    for agent in study.agents:
        allowed = AGENTS.get(agent.name).options
        own = checked_options(f"world {world!r}", {**world_options, **agent.world_options}, WORLDS.get(world).options)
        try:
            key = spec_hash(own)
            if key not in instances:
                instances[key] = build_world(world, own, Streams.from_seed(study.first_seed))
        except TetherError as error:
            raise type(error)(f"world {place.removeprefix(' in ') or world}: {error}") from error
        for options, varied in agent.combinations():
            checked = checked_options(f"agent {agent.name!r}", options, allowed)
            label = _label(agent, varied) + place
            cells.append(_described(study, label, instances[key], world, own, agent, checked))
    return cells


def _label(choice: Choice, varied: Mapping[str, Any]) -> str:
    """The given label with {option} filled in; varied options that it does not mention are appended."""
    template = choice.label or choice.name
    try:
        text = template.format(**{**choice.options, **varied})
    except (KeyError, IndexError, ValueError) as error:
        raise InputError(f"label {template!r} names an option that is not set: {error}") from None
    unsaid = [f"{name}={value}" for name, value in varied.items() if "{" + name not in template]
    return " ".join([text, *unsaid])


def _described(
    study: Study,
    label: str,
    instance: LinearMDP,
    world: str,
    world_options: dict[str, Any],
    choice: Choice,
    options: dict[str, Any],
) -> CellInfo:
    """Ask a new agent for one decision: the radii it rests on say where they come from."""
    agent, units = choice.name, choice.units or study.units
    try:
        made = build_agent(agent, options, instance, study.episodes, Streams.from_seed(study.first_seed))
        made.plan()
        decision = made.act(0, 0)
    except TetherError as error:
        raise type(error)(f"{label}: {error}") from error
    cost, value = decision.cost_radius, decision.value_radius
    chosen = [_chosen(agent, options, name) for name in ("cost_radius", "value_radius")]
    identity = {
        "world": world,
        "world_options": world_options,
        "agent": agent,
        "options": options,
        "episodes": study.episodes,
    }
    if units is not None:
        identity["units"] = units.model_dump()
    return CellInfo(
        key=spec_hash(identity),
        label=f"{label} ({radius_note(_named(cost, chosen[0]), _named(value, chosen[1]), cost.origin)})",
        agent=agent,
        explorer=AGENTS.get(agent).explorer(options),
        world=world,
        options=options,
        world_options=world_options,
        cost_radius_origin=cost.origin,
        value_radius_origin=value.origin,
        units=None if units is None else units.model_dump(),
        repeats=choice.repeats,
        first=choice.first,
    )


def radius_note(cost: str, value: str, cost_origin: str) -> str:
    """Whether β is the theorem's or tuned, in a few words for a legend."""
    if cost_origin in ("exact", "none") or cost == value:
        return value
    return f"cost {cost}, value {value}"


def _chosen(agent: str, options: Mapping[str, Any], name: str) -> Any:
    """A radius as the spec gives it, or the agent's default."""
    allowed = AGENTS.get(agent).options
    return options.get(name, allowed[name].default if name in allowed else None)


def _named(radius: Radius, chosen: Any) -> str:
    """A tuned β by its number, or by the name of the rule that sets it."""
    if radius.origin != "tuned":
        return f"β {radius.origin}"
    return f"β {chosen}, tuned" if isinstance(chosen, str) else f"β={radius.value:g} tuned"
