"""Record the golden runs again: `python tests/golden/regenerate.py`. A change needs a line in CHANGELOG.md.

Two tiny runs, step by step as a live system makes them. Everything that could move a decision differs between them:
explorer, radius, world, horizon, number of constraints, kind of action set, re-planning rule.
"""

import json
from pathlib import Path

import numpy as np

from limits import stated
from tether import LinearMDP, Problem, SlucbConfig, SlucbQvi, synthetic
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import optimal_safe_policy, policy_values

FOLDER = Path(__file__).parent
EPISODES = 80


def star_run():
    """The package's own synthetic world, with the defaults written out: they may change, this run may not."""
    streams = Streams.from_seed(2024)
    world = synthetic(streams.instance, states=4, rays=8, dimension=4, horizon=3, noise=0.01)
    config = SlucbConfig(
        explorer="directional", cost_radius="mixture", value_radius=2.0, cost_ridge=1e-3, value_ridge=1.0
    )
    return world, SlucbQvi(world.problem, config), streams


def finite_run():
    """Isolated actions under two constraints, H = 2, the certified bonus, the classical radius, rare re-planning."""
    rng = np.random.default_rng(8)
    states, actions, d, horizon = 3, 6, 3, 2
    gamma = rng.uniform(0.1, 0.8, (horizon, 2, d))
    features = rng.dirichlet(np.ones(d), size=(states, actions))
    costs = np.einsum("hmd,snd->hmsn", gamma, features)
    safe = costs.max(axis=(0, 1)).argmin(axis=1)  # the action whose worst cost is least
    problem = Problem.from_table(
        features=features,
        baseline_action=safe,
        horizon=horizon,
        **stated(
            baseline_cost_error=0.0,
            baseline_cost=np.einsum("hmd,sd->hsm", gamma, features[np.arange(states), safe]),
            threshold=(0.55, 0.6),
            noise=(0.01, 0.02),
            gamma_norm=1.2,
        ),
    )
    world = LinearMDP(
        name="golden-finite",
        problem=problem,
        true_theta=rng.random((horizon, d)),
        true_gamma=gamma,
        true_mu=rng.dirichlet(np.ones(states), size=(horizon, d)),
        initial=np.full(states, 1.0 / states),
    )
    config = SlucbConfig(
        explorer="certified", cost_radius="classical", value_radius=1.0, cost_ridge=1e-2, replan="on-doubling"
    )
    return world, SlucbQvi(world.problem, config), Streams.from_seed(7)


RUNS = {"star": star_run, "finite": finite_run}


def record(name):
    """Play one run; returns what is compared: choices exactly, numbers to a relative 1e-9."""
    world, agent, streams = RUNS[name]()
    agent.register(range(world.state_count))
    best = optimal_safe_policy(world).values[0]
    rows = {key: [] for key in ("start", "state", "ray", "length", "bound", "score", "reason", "regret")}
    for _ in range(EPISODES):
        state = world.reset(streams)
        agent.plan()
        rows["start"].append(state)
        rows["regret"].append(float(best[state] - policy_values(world, _policy(world, agent))[0, state]))
        for step in range(world.problem.horizon):
            decision = agent.act(step, state)
            star = world.is_star
            rows["state"].append(state)
            rows["ray"].append(decision.action.ray if star else decision.action)
            rows["length"].append(decision.action.length if star else 1.0)
            rows["bound"].append(decision.cost_bound)
            rows["score"].append(decision.score)
            rows["reason"].append(decision.reason)
            seen = world.step(decision, streams)
            agent.observe(seen)
            state = seen.next_state
    return rows


def _policy(world, agent):
    """The planned features of every step and state, (H, S, d)."""
    horizon, states = world.problem.horizon, world.state_count
    features = np.empty((horizon, states, world.problem.dimension))
    for h in range(horizon):
        for s in range(states):
            row, length = agent.current.row[h, s], agent.current.length[h, s]
            end = world.endpoints[s, max(row, 0)]
            features[h, s] = world.phi_0[s] + (length if row >= 0 else 0.0) * (end - world.phi_0[s])
    return features


def path_of(name):
    """Where a run is kept."""
    return FOLDER / f"{name}.json"


if __name__ == "__main__":
    for name in RUNS:
        path_of(name).write_text(json.dumps(record(name), indent=None, separators=(",", ":")) + "\n")
        print(f"{path_of(name)}: {path_of(name).stat().st_size} bytes")
