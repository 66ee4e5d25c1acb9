"""Every agent of the package by name, with the world it plays in; and how to compare two agents bit for bit."""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import scipy.linalg

from tether import LsviConfig, LsviUcb, RslucbQvi, SlucbConfig, SlucbQvi
from tether.agents.agent import arrays_in
from tether.agents.slucb import EXPLORERS
from tether.kernels.plan import Visited
from tether.lab.worlds.linear_mdp import Streams
from tether.problem.problem import Problem

from .worlds import many_actions, small_world, stationary_world, two_constraints


@dataclass(frozen=True)
class Case:
    """One agent: how to make it, what the radius behind its decisions must be called, and whether it is safe."""

    world: Any
    make: Any
    origin: str
    told: dict[str, Any]

    def restore(self, path):
        return type(self.make()).restore(path, self.world.problem, **self.told)


def _slucb(world, origin="theorem", **settings):
    config = SlucbConfig(**settings)
    return Case(world, lambda: SlucbQvi(world.problem, config), origin, {})


def _lsvi(world, origin, *, told=False, **settings):
    secret = {"true_gamma": world.true_gamma} if told else {}
    return Case(world, lambda: LsviUcb(world.problem, LsviConfig(**settings), **secret), origin, secret)


def _rslucb(world, origin="theorem", **settings):
    config = SlucbConfig(**settings)
    return Case(world, lambda: RslucbQvi(world.problem, config, rng=np.random.default_rng(11)), origin, {})


def _cases():
    star, unknown, still = small_world(), small_world(known_costs=False), stationary_world()
    paper = SlucbConfig.paper(1.0)
    return {
        **{f"explorer-{name}": _slucb(star, explorer=name) for name in EXPLORERS},
        "radius-mixture": _slucb(star, cost_radius="mixture"),
        "radius-classical": _slucb(star, cost_radius="classical"),
        "radius-tuned": _slucb(star, "tuned", cost_radius=0.3),
        "paper-with-one-beta": Case(star, lambda: SlucbQvi(star.problem, paper), "tuned", {}),
        "value-radius-theorem": _slucb(star, value_radius="theorem", episodes=100, c_beta=0.01),
        "condition-on-all": _slucb(star, condition_on="all"),
        "unknown-certified": _slucb(unknown, unknown_cost="certified"),
        "unknown-appendix": _slucb(unknown, "any", unknown_cost="appendix", episodes=60),
        "unknown-appendix-paper": _slucb(unknown, "any", unknown_cost="appendix", episodes=60, explorer="paper"),
        "replan-on-doubling": _slucb(star, replan="on-doubling"),
        "pooled": _slucb(still, pooled=True),
        "two-constraints": _slucb(two_constraints(), explorer="certified"),
        "two-constraints-finite": _slucb(two_constraints(finite=True)),
        "two-constraints-unknown": _slucb(two_constraints(known_costs=False)),
        "rslucb-star": _rslucb(star, condition_on="state"),
        "rslucb-visited": _rslucb(many_actions()),
        "rslucb-finite": _rslucb(many_actions(), condition_on="state"),
        "rslucb-paper": _rslucb(many_actions(), explorer="paper", value_radius=0.3),
        "rslucb-certified": _rslucb(many_actions(), explorer="certified", value_radius=0.3),
        "rslucb-directional-rare": _rslucb(many_actions(), explorer="directional", replan="on-doubling"),
        "rslucb-tuned-kappa": _rslucb(
            many_actions(), "tuned", explorer="paper", cost_radius=0.2, kappa=0.5, condition_on="state"
        ),
        "rslucb-two-constraints": _rslucb(two_constraints(finite=True), explorer="certified"),
        "rslucb-pooled": _rslucb(two_constraints(finite=True, same_stages=True), pooled=True, condition_on="state"),
        "lsvi-unconstrained": _lsvi(star, "none"),
        "lsvi-told": _lsvi(star, "exact", told=True),
        "lsvi-told-finite": _lsvi(two_constraints(finite=True), "exact", told=True, replan="on-doubling"),
        "lsvi-penalised": _lsvi(star, "none", penalty=0.9),
        **_lean_cases(star, unknown, still),
    }


def _lean_cases(star, unknown, still):
    often = {"backup": "lean", "replan": "every-episode"}
    return {
        "lean": _slucb(star, backup="lean"),  # plans on growth
        "lean-often": _slucb(star, **often),
        "lean-pooled": _slucb(still, pooled=True, **often),
        "lean-finite": _slucb(two_constraints(finite=True), explorer="certified", **often),
        "lean-unknown": _slucb(unknown, "any", unknown_cost="appendix", episodes=60, **often),
        "lean-lsvi-told": _lsvi(star, "exact", told=True, backup="lean"),
    }


CASES = _cases()
SAFE = [name for name, case in CASES.items() if case.origin in ("theorem", "any")]
"""Agents that claim a guarantee, or that follow the paper's rule for unknown costs."""

RANDOMISED = [name for name in CASES if name.startswith("rslucb")]
"""Agents that draw their actions: one number of their own stream per decision, so being asked moves the stream."""


LEAN = [name for name in CASES if name.startswith("lean")]
"""Agents that keep no plan per state, so that no state can be registered and no study can read one off."""


def make_known(agent, states):
    """Let every plan cover these states, where plans cover states at all."""
    if agent.visited is None:
        agent.register(states)


def play(world, agent, streams, episodes, *, register=False):
    """Whole episodes through plan, act and observe; returns every decision."""
    if register:
        agent.register(range(world.state_count))
    decisions = []
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(world.problem.horizon):
            decision = agent.act(step, state)
            seen = world.step(decision, streams)
            agent.observe(seen)
            decisions.append(decision)
            state = seen.next_state
    return decisions


def essence(thing):
    """A value that is equal for two things exactly when they are equal bit for bit (NaN equals NaN)."""
    if isinstance(thing, np.ndarray):
        return ("array", thing.dtype.str, thing.shape, thing.tobytes())
    if isinstance(thing, np.generic):
        return essence(np.asarray(thing))
    if isinstance(thing, float):
        return ("float", np.float64(thing).tobytes())
    if isinstance(thing, dict):
        return ("dict", tuple((essence(key), essence(value)) for key, value in thing.items()))
    if isinstance(thing, set | frozenset):
        return ("set", frozenset(essence(entry) for entry in thing))
    if isinstance(thing, np.random.Generator):
        return ("generator", repr(thing.bit_generator.state))
    if isinstance(thing, Visited):
        told = (thing.index, thing.states, thing.baseline_cost, thing.final_reward, thing.alarms)
        return ("Visited", essence(told), essence([(thing.members(g), thing.moment(g)) for g in range(thing.stages)]))
    if hasattr(thing, "fields") and isinstance(thing.fields, dict):
        return (type(thing).__name__, essence(dict(thing.fields)))
    if isinstance(thing, Problem) or callable(thing):
        return ("same object", id(thing))
    if is_dataclass(thing):
        return (type(thing).__name__, tuple((f.name, essence(getattr(thing, f.name))) for f in fields(thing)))
    if isinstance(thing, tuple | list):
        names = getattr(thing, "_fields", range(len(thing)))
        return (type(thing).__name__, tuple((name, essence(entry)) for name, entry in zip(names, thing, strict=True)))
    return thing


SCRATCH = ("scratch", "lone", "last_question")
"""Buffers that are overwritten before they are read; a shortcut to what the problem says of the last state."""


def whole_state(agent):
    """Everything that the agent's future can depend on."""
    return {name: essence(value) for name, value in vars(agent).items() if name not in SCRATCH}


def learned(agent):
    """The sums, and whatever is kept with them, by name."""
    groups = {"costs": agent.costs, "values": agent.values}
    flat = {name: essence(array) for part, group in groups.items() for name, array in arrays_in(group, part)}
    return {**flat, "visited": essence(agent.visited)}


def changed(before, after):
    """Names of the parts in which two whole states differ."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def choices(decisions):
    """What was decided and why, without the running number."""
    return [
        essence((d.step, d.state, d.action, d.feature, d.is_baseline, d.reason, d.evidence, d.score)) for d in decisions
    ]


def twin_streams(seed):
    """Two equal sets of streams."""
    return Streams.from_seed(seed), Streams.from_seed(seed)


def literal_bound(told, seen, x, radius, reduces):
    """The left side of Eq. (9) at x for one constraint, by whole matrices: nothing of the tables is used.

    `told` is (λ, facts (J, d), their costs (J,), f, τ_s), `seen` the observed (φ, z). `radius` is β given the facts;
    with `reduces` the state's own fact shrinks it further to β_s (docs/theory.md sections 4 and 17).
    """
    ridge, facts, costs, f, cost_0 = told
    size = len(f)
    gram = ridge * np.eye(size) + sum((np.outer(phi, phi) for phi, _ in seen), np.zeros((size, size)))
    moment = sum((z * phi for phi, z in seen), np.zeros(size))
    basis = scipy.linalg.null_space(facts, rcond=1e-9) if len(facts) else np.eye(size)
    known = np.linalg.lstsq(facts, costs, rcond=1e-9)[0] if len(facts) else np.zeros(size)
    root = np.linalg.cholesky(basis.T @ gram @ basis)

    def whitened(y):
        return np.linalg.solve(root, basis.T @ y)

    gamma_hat = known + basis @ np.linalg.solve(root.T, whitened(moment - gram @ known))
    e, v = whitened(f), whitened(x)
    if np.linalg.norm(basis.T @ f) <= 1e-9:  # the remembered facts determine this cost
        return gamma_hat @ x + radius * np.linalg.norm(v)
    residual, share = gamma_hat @ f - cost_0, v @ e / (e @ e)
    beta = np.sqrt(radius**2 - residual**2 / (e @ e)) if reduces else radius
    width = np.linalg.norm(v - share * e) if len(v) > 1 else 0.0
    return gamma_hat @ x - share * residual + beta * width
