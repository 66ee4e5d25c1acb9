"""Random problems whose truth the tests know, and outcomes of them as a log holds them."""

import numpy as np

from tether.agents.slucb import SlucbConfig
from tether.live.records import Measured
from tether.live.replica import Learner
from tether.problem.problem import Problem


def random_problem(rng, *, error=0.0, known=True, kind=None):
    """(problem, γ* (H, M, d), pooled, states): stars or single actions, M to 2, d to 6, σ from .01 to .3."""
    d, states, actions = int(rng.integers(2, 7)), int(rng.integers(2, 7)), int(rng.integers(3, 8))
    horizon, constraints, pooled = int(rng.integers(1, 4)), int(rng.integers(1, 3)), bool(rng.integers(2))
    gamma = rng.uniform(0.0, 0.9, size=(1 if pooled else horizon, constraints, d))
    gamma *= rng.choice([-1.0, 1.0, 1.0, 1.0], size=gamma.shape)
    gamma = np.broadcast_to(gamma, (horizon, constraints, d)).copy()
    rows = rng.dirichlet(np.full(d, 0.7), size=(states, actions))
    if rng.integers(2):
        rows = rng.standard_normal((states, actions, d)) / (1.5 * np.sqrt(d))
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=2))[..., None]
    safe = np.einsum("hmd,snd->sn", gamma, rows).argmin(axis=1)
    is_star = kind == "star" if kind else bool(rng.integers(2))
    phi_0 = 0.9 * rng.dirichlet(np.ones(d), size=states) if is_star else rows[np.arange(states), safe]
    if is_star and not rng.integers(4):
        phi_0[:] = phi_0[:1] * (1.0 + 1e-3 * rng.standard_normal((states, d)))  # nearly the same everywhere
    costs = np.einsum("hmd,sd->hsm", gamma, phi_0)
    declared = costs + error * rng.uniform(-1.0, 1.0, size=costs.shape)
    told = {
        "horizon": horizon,
        "threshold": tuple(costs.max(axis=(0, 1)) + error + rng.uniform(0.05, 0.6, size=constraints)),
        "noise": (float(10.0 ** rng.uniform(-2.0, np.log10(0.3))),) * constraints,
        "gamma_norm": float(np.linalg.norm(gamma, axis=2).max() * rng.uniform(1.0, 2.0)),
        "baseline_cost": declared if known else None,
        "baseline_cost_error": (error,) * constraints,
    }
    if is_star:
        return Problem.from_rays(phi_0=phi_0, endpoints=rows, **told), gamma, pooled, states
    return Problem.from_table(features=rows, baseline_action=safe, **told), gamma, pooled, states


def random_config(rng, memory, pooled):
    """Any radius with a guarantee, some explorer."""
    radius = ("theorem", "theorem", "mixture", "classical")[int(rng.integers(4))]
    explorer = ("adaptive", "adaptive", "directional", "paper")[int(rng.integers(4))]
    return SlucbConfig(cost_radius=radius, explorer=explorer, condition_on=memory, pooled=pooled, replan="on-doubling")


def outcome_body(problem, gamma, rng, step, state, feature):
    """An outcome as the log holds it, with what is declared of a_0 in its state."""
    known = problem.look_up(state)
    noise = np.array(problem.noise) * rng.standard_normal(problem.constraints)
    return {
        "step": step,
        "state": state,
        "feature": feature.tolist(),
        "reward": float(rng.uniform()),
        "cost": (gamma[step] @ feature + noise).tolist(),
        "next_state": int(rng.integers(len(problem.states))),
        "safe_feature": known.actions.phi_0.tolist(),
        "safe_cost": known.baseline_cost[step].tolist() if problem.baseline_cost is not None else None,
    }


def taught(seed, steps=40, *, memory="visited", error=0.0, known=True, kind=None):
    """Yields (learner, γ*, step, states) after each of `steps` outcomes of a random problem."""
    rng = np.random.default_rng(seed)
    problem, gamma, pooled, states = random_problem(rng, error=error, known=known, kind=kind)
    learner = Learner(problem, random_config(rng, memory, pooled), watch=False)
    for count in range(steps):
        step, state = count % problem.horizon, int(rng.integers(states))
        yield learner, gamma, step, states
        proposed = learner.propose(step, state)
        feature = proposed.feature if rng.integers(3) else problem.look_up(state).actions.phi_0
        learner.learn(Measured(**outcome_body(problem, gamma, rng, step, state, feature)))
