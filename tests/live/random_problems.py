"""Random problems whose truth the tests know, and outcomes of them as a log holds them."""

import numpy as np

from tether.agents.slucb import SlucbConfig
from tether.live.learner import Learner
from tether.live.records import Measured
from worlds import random_problem


def random_config(rng, memory, pooled):
    """Any radius with a guarantee, some explorer."""
    radius = ("theorem", "theorem", "mixture", "classical")[int(rng.integers(4))]
    explorer = ("adaptive", "adaptive", "directional", "paper")[int(rng.integers(4))]
    return SlucbConfig(cost_radius=radius, explorer=explorer, condition_on=memory, pooled=pooled, replan="on-doubling")


def outcome_body(problem, gamma, rng, step, state, feature):
    """An outcome as the log holds it, with what is declared of a_0 in its state."""
    known = problem.look_up(state)
    noise = np.array(problem.noise) * rng.standard_normal(len(problem.constraints))
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
