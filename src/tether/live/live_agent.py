"""Which agent runs live, with which defaults, and what it estimates for people."""

import numpy as np

from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.live.records import Algorithm
from tether.problem.problem import Problem
from tether.records import Array


def live_agent(algorithm: Algorithm, problem: Problem, config: SlucbConfig) -> SlucbQvi:
    """Make the agent that the log names. Callers of `propose` pass the coin, so that a replay draws the same."""
    if algorithm == "rslucb-qvi":
        return RslucbQvi(problem, config, rng=np.random.default_rng(0))
    return SlucbQvi(problem, config)


def live_config(problem: Problem, algorithm: Algorithm = "slucb-qvi") -> SlucbConfig:
    """Return the default configuration for live use.

    At H = 1 a plan is one regression, and is made after every outcome. Otherwise plans are made rarely. If states
    are not listed, next states are kept lean. Mixtures need tables, and so do states that no key can bring back.
    """
    if algorithm == "rslucb-qvi" and problem.reward_noise > 0.0:
        return SlucbConfig(explorer="plain", replan="on-doubling")
    if algorithm == "rslucb-qvi":
        return SlucbConfig(explorer="plain", value_radius="unseen", value_ridge="cost", replan="on-doubling")
    if problem.horizon == 1:
        return SlucbConfig(replan="every-episode")
    if problem.states is not None or (problem.own_key is not None and problem.state_of is None):
        return SlucbConfig(backup="tables", replan="on-doubling")
    return SlucbConfig(backup="lean", replan="on-growth")


def reward_estimate(agent: SlucbQvi, step: int) -> Array:
    """Return the ridge estimate of the reward, θ̂_h = A_h^{-1} Σ rφ, (d,)."""
    stage = agent.stage_of(step)
    factor = agent.values.factor[stage]  # U, A = UᵀU
    estimate: Array = np.linalg.solve(factor, np.linalg.solve(factor.T, agent.values.reward_moment[stage]))
    return estimate
