"""From a study to its cells: worlds and agents by name, each cell described by what a first decision says, and the
paper's assumptions looked up in every world and seed."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tether.errors import AssumptionError, InputError, TetherError
from tether.lab.books import CellInfo
from tether.lab.real import is_real
from tether.lab.registry import AGENTS, WORLDS, checked_options
from tether.lab.simulate import World, linear_of
from tether.lab.specs import Choice, Study, spec_hash
from tether.lab.worlds.linear_mdp import LinearMDP, MisspecifiedMDP, Streams
from tether.records import Radius

if TYPE_CHECKING:
    from tether.agents.agent import Agent


def build_world(name: str, options: Mapping[str, Any], episodes: int, streams: Streams) -> World:
    """The instance of a world that a seed's streams draw; those that change with time are built for K episodes."""
    kind = WORLDS.get(name)
    length = {"episodes": episodes} if "episodes" in kind.options else {}
    return kind.build(streams.instance, **{**length, **options})


def build_agent(name: str, options: Mapping[str, Any], world: World, episodes: int, streams: Streams) -> "Agent":
    """A new agent; those that need K are given it, those that draw get a stream of their own."""
    kind = AGENTS.get(name)
    length = {"episodes": episodes} if "episodes" in kind.options else {}
    return kind.build(linear_of(world), {**length, **options}, *([streams.agent] if kind.draws else []))


class Place(NamedTuple):
    """A world of a study, its options checked. `label` is empty where the study has no other."""

    world: str
    options: dict[str, Any]
    label: str
    description: str
    episodes: int


def places_of(study: Study) -> Iterator[Place]:
    """Every world of the study at every point of its grid."""
    if is_real(study):
        raise InputError(
            f"nothing is known of the worlds of study {study.name!r} but by playing them: use Bridge.check."
        )
    for choice in study.worlds:
        for options, varied in choice.combinations():
            checked = checked_options(f"world {choice.name!r}", options, WORLDS.get(choice.name).options)
            label = choice.named(varied) if choice.label or choice.grid or len(study.worlds) > 1 else ""
            description = " ".join([choice.name, *(f"{key}={value}" for key, value in varied.items())])
            yield Place(choice.name, checked, label, description, choice.episodes or study.episodes)


def cells_of(study: Study) -> list[CellInfo]:
    """Every cell of the study, checked: its options are known, its world and its agent can be built."""
    if is_real(study):
        from tether.lab.real.play import cells_of as real_cells

        return real_cells(study)
    cells = []
    for place in places_of(study):
        instances: dict[str, World] = {}
        for agent in study.agents:
            if agent.only and (place.label or place.world) not in agent.only:
                continue
            wanted = {**place.options, **agent.world_options}  # an agent may ask for another variant of the world
            own = place._replace(
                options=checked_options(f"world {place.world!r}", wanted, WORLDS.get(place.world).options)
            )
            key = spec_hash(own.options)
            if key not in instances:
                try:
                    streams = Streams.from_seed(study.first_seed)
                    instances[key] = build_world(place.world, own.options, place.episodes, streams)
                except TetherError as error:
                    raise type(error)(f"world {place.label or place.world}: {error}") from error
            for options, varied in agent.combinations():
                checked = checked_options(f"agent {agent.name!r}", options, AGENTS.get(agent.name).options)
                cells.append(_cell(study, own, instances[key], agent, checked, agent.named(varied)))
    for label, count in Counter(cell.label for cell in cells).items():
        if count > 1:
            raise InputError(f"two cells of study {study.name!r} are called {label!r}: give them different labels.")
    return cells


def _cell(study: Study, place: Place, instance: World, choice: Choice, options: dict[str, Any], label: str) -> CellInfo:
    """Ask a new agent for one decision: the radii it rests on say where they come from."""
    kind, units = AGENTS.get(choice.name), choice.units or study.units
    try:
        agent = build_agent(choice.name, options, instance, place.episodes, Streams.from_seed(study.first_seed))
        agent.plan()
        decision = agent.act(0, 0)
    except TetherError as error:
        where = f" in {place.label}" if place.label else ""
        raise type(error)(f"{label}{where}: {error}") from error
    names = {}
    for name, radius in (("cost_radius", decision.cost_radius), ("value_radius", decision.value_radius)):
        default = kind.options[name].default if name in kind.options else None
        names[name] = _radius_name(radius, options.get(name, default))
    cost, value, origin = names["cost_radius"], names["value_radius"], decision.cost_radius.origin
    identity: dict[str, Any] = {
        "world": place.world,
        "world_options": place.options,
        "agent": choice.name,
        "options": options,
        "episodes": place.episodes,
    }
    if units is not None:
        identity["units"] = units.model_dump()
    if choice.watches:
        identity["watches"] = choice.watches
    own = "" if instance.problem.realised is None else "realised"
    if linear_of(instance).limits == "episode" or (not own and kind.row is not None and kind.row.track == "episode"):
        own = "episode"
    return CellInfo(
        key=spec_hash(identity),
        agent=choice.name,
        agent_label=label,
        world=place.world,
        world_label=place.label,
        note=value if origin in ("exact", "none") or cost == value else f"cost {cost}, value {value}",
        explorer=kind.explorer(options),
        options=options,
        world_options=place.options,
        cost_radius_origin=origin,
        value_radius_origin=decision.value_radius.origin,
        episodes=place.episodes,
        units=None if units is None else units.model_dump(),
        watches=tuple(choice.watches),
        own=own,
        limits=linear_of(instance).limits,
        instance=instance_hash(linear_of(instance)),
        repeats=choice.repeats,
        first=choice.first,
    )


def instance_hash(world: LinearMDP) -> str:
    """Eight digits that change when an instance does: its features, its truth, and what the learner knows."""
    problem = world.problem
    limit = "expected" if problem.realised is None else "realised"
    known = (problem.horizon, problem.threshold, problem.noise, problem.reward_noise, problem.confidence, limit)
    truth = (world.phi_0, world.endpoints, world.true_theta, world.true_gamma, world.true_mu, world.initial)
    return spec_hash([known, [hashlib.sha256(array.tobytes()).hexdigest() for array in truth]])[:8]


def _radius_name(radius: Radius, chosen: Any) -> str:
    """A tuned β by its number, one that nobody tuned by the name of the rule that sets it."""
    if radius.origin == "tuned":
        return f"β={radius.value:g} tuned"
    return f"β {chosen}, default" if radius.origin == "default" else f"β {radius.origin}"


# `tether check STUDY`


def check_study(study: Study) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Build every world for every seed, and every agent once.

    Returns a row per world and assumption, and what `Problem.check` finds in the first instance of each world, without
    what only a log could tell.
    """
    rows: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    mixes = all(choice.name != "slucb-qvi" for choice in study.agents)
    for place in places_of(study):
        try:
            worlds = [
                build_world(place.world, place.options, place.episodes, Streams.from_seed(seed))
                for seed in study.seed_list
            ]
        except AssumptionError as error:
            rows.append({"world": place.description, "assumption": "all", "holds": False, "found": str(error)})
            continue
        rows += [{"world": place.description, **row} for row in _assumptions(worlds)]
        report = worlds[0].problem.check(limit_on="average over draws" if mixes else "single actions")
        known = [finding for finding in report.findings if finding.verdict != "cannot be known"]
        findings += [{"world": place.description, **asdict(finding)} for finding in known]
    if not any(row["assumption"] == "all" for row in rows):
        cells_of(study)
    return rows, findings


def _assumptions(instances: list[World]) -> list[dict[str, Any]]:
    """What the instances of one world show. Building them has already enforced 1 to 4 of what the learner knows."""
    worlds, first = [linear_of(world) for world in instances], instances[0]
    gaps = [_smallest_gap(world) for world in worlds]
    norms = [np.linalg.norm(world.true_gamma, axis=2).max() for world in worlds]
    rewards = [(world.endpoints @ world.true_theta.T) for world in worlds]
    low, high = min(float(r.min()) for r in rewards), max(float(r.max()) for r in rewards)
    stars = sum(world.is_star for world in worlds)
    seen = f"in {len(worlds)} instance(s)"
    wrong = f"costs are not linear: {first.story}" if isinstance(first, MisspecifiedMDP) else ""
    found = [
        ("1: linear MDP, transition laws are distributions", not wrong, wrong or seen),
        ("2: the safe action costs less than τ", min(gaps) > 0.0, f"smallest gap τ − τ_h(s) = {min(gaps):.4g} {seen}"),
        (
            "4: ‖γ*_h‖ within its declared bound B",
            True,
            f"largest ‖γ*_h‖ = {max(norms):.4g}, B = {max(worlds[0].problem.gamma_norm):.4g}",
        ),
        (
            "5: star-convex action sets",
            True,
            f"{stars} of {len(worlds)} instance(s); finite sets may grow, too: see A5",
        ),
        ("rewards in [0, 1]", low >= -1e-9 and high <= 1.0 + 1e-9, f"from {low:.4g} to {high:.4g}"),
    ]
    return [{"assumption": name, "holds": holds, "found": text} for name, holds, text in found]


def _smallest_gap(world: LinearMDP) -> float:
    costs = np.einsum("hmd,sd->hsm", world.true_gamma, world.phi_0)
    return float((np.array(world.problem.threshold) - costs).min())
