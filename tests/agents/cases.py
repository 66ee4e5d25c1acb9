"""Every agent of the package by name, with the world it plays in, and literal forms of what they compute."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from tether import LsviConfig, LsviUcb, RslucbQvi, SlucbConfig, SlucbQvi
from tether.agents.agent import arrays_in
from tether.agents.slucb import EXPLORERS
from tether.agents.testing import Contract, essence
from tether.lab.worlds.linear_mdp import Streams
from worlds import many_actions, small_world, stationary_world, two_constraints, uneven_world


@dataclass(frozen=True, kw_only=True)
class Case(Contract):
    """One agent of the package; `origin` is what the radius behind its decisions must be called."""

    origin: str
    streams: Any = Streams.from_seed


def _case(world, make, origin, **told):
    kind = type(make())
    return Case(
        world=world, make=make, origin=origin, draws=kind.mixes,
        restore=lambda path, problem: kind.restore(path, problem, **told),
    )  # fmt: skip


def _slucb(world, origin="theorem", **settings):
    config = SlucbConfig(**settings)
    return _case(world, lambda: SlucbQvi(world.problem, config), origin)


def _lsvi(world, origin, *, told=False, **settings):
    secret = {"true_gamma": world.true_gamma} if told else {}
    return _case(world, lambda: LsviUcb(world.problem, LsviConfig(**settings), **secret), origin, **secret)


def _rslucb(world, origin="theorem", **settings):
    config = SlucbConfig(**settings)
    return _case(world, lambda: RslucbQvi(world.problem, config, rng=np.random.default_rng(11)), origin)


def _cases():
    star, unknown, still = small_world(), small_world(known_costs=False), stationary_world()
    paper = SlucbConfig.paper(1.0)
    return {
        **{f"explorer-{name}": _slucb(star, explorer=name) for name in EXPLORERS},
        "radius-mixture": _slucb(star, cost_radius="mixture"),
        "radius-classical": _slucb(star, cost_radius="classical"),
        "radius-tuned": _slucb(star, "tuned", cost_radius=0.3),
        "paper-with-one-beta": _case(star, lambda: SlucbQvi(star.problem, paper), "tuned"),
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
        **_bounded_cases(),
        "drift": _slucb(uneven_world(7, drift=1e-3)),
        "drift-two-constraints": _slucb(uneven_world(7, drift=(1e-3, 0.0), constraints=2, known_costs=False)),
        "rslucb-drift": _rslucb(uneven_world(7, drift=1e-3, finite=True)),
    }


def _bounded_cases():
    """Costs in [0, 1], certified by likelihood ratios: every kind of action set and of knowledge of safe costs."""
    yes_no = {"seed": 7, "cost_kind": "bounded"}
    return {
        "bounded": _slucb(uneven_world(**yes_no)),
        "bounded-finite": _slucb(uneven_world(**yes_no, finite=True, threshold=0.6), condition_on="all"),
        "bounded-unknown": _slucb(uneven_world(**yes_no, known_costs=False, threshold=0.95)),
        "bounded-roughly": _slucb(uneven_world(**yes_no, cost_error=0.02)),
        "bounded-lean": _slucb(uneven_world(**yes_no), backup="lean"),
        "bounded-and-gaussian": _slucb(uneven_world(7, constraints=2, cost_kind=("bounded", "gaussian"))),
        "bounded-pooled": _slucb(uneven_world(**yes_no, same_stages=True), pooled=True, condition_on="state"),
        "rslucb-bounded": _rslucb(uneven_world(**yes_no, finite=True)),
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


LEAN = [name for name in CASES if name.startswith(("lean", "bounded-lean"))]
"""Agents that keep no plan per state, so that no state can be registered and no study can read one off."""


MOVING = [name for name in CASES if "drift" in name]
"""Agents whose bounds change with every decision, and that keep blocks of outcomes: tests/agents/test_drift.py."""


def make_known(agent, states):
    """Let every plan cover these states, where plans cover states at all."""
    if agent.visited is None:
        agent.register(states)


def learned(agent):
    """The sums, and whatever is kept with them, by name."""
    groups = {"costs": agent.costs, "values": agent.values}
    if agent.likelihoods is not None:
        groups["trials"] = agent.likelihoods.trials
    flat = {name: essence(array) for part, group in groups.items() for name, array in arrays_in(group, part)}
    return {**flat, "visited": essence(agent.visited)}


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
