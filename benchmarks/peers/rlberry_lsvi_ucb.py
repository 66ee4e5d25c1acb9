"""Time rlberry-scool's LSVI-UCB agent on a random finite linear MDP.

Prints one JSON line on standard output, with the CPU time of ``fit`` alone and the mean episode
reward at the start and at the end of learning.  Install ``requirements.txt`` first (its header says how).
"""

import os

# BLAS libraries size their thread pools when they are loaded, so this must precede the numpy import.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import time
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rlberry.envs import FiniteMDP
from rlberry_scool.agents.features import FeatureMap
from rlberry_scool.agents.linear import LSVIUCBAgent

N_STATES, N_ACTIONS, DIM, HORIZON = 20, 10, 5, 3

FloatArray = NDArray[np.float64]


class TableFeatureMap(FeatureMap):
    """Feature map that looks a state-action pair up in an array of shape (S, A, d)."""

    def __init__(self, features: FloatArray) -> None:
        super().__init__()
        self.features = features
        self.shape = features.shape[2:]

    def map(self, observation: int, action: int) -> FloatArray:
        """Return the feature vector of one state-action pair."""
        return self.features[observation, action]


def build_mdp(seed: int) -> tuple[FiniteMDP, FloatArray]:
    """Return a random linear MDP and its features, which are points of the simplex.

    The ``DIM`` measures are distributions over states and the reward parameters are in [0, 1], so every
    transition row is a distribution and every reward is in [0, 1].  Nothing depends on the stage,
    because the agent fits one regression to the transitions of all stages.
    """
    rng = np.random.default_rng(seed)
    features = rng.dirichlet(np.ones(DIM), size=(N_STATES, N_ACTIONS))
    measures = rng.dirichlet(np.ones(N_STATES), size=DIM)
    rewards = features @ rng.uniform(size=DIM)
    env = FiniteMDP(rewards, features @ measures, initial_state_distribution=0)
    # FiniteMDP sets (min, max) of the rewards, and the agent clips values at H * (max - min).  Where the
    # least reward is positive that can be below the optimal value, so the range is widened to [0, 1].
    env.reward_range = (0.0, 1.0)
    return env, features


def run(episodes: int, seed: int) -> dict[str, Any]:
    """Fit the agent for ``episodes`` episodes and return the benchmark record."""
    env, features = build_mdp(seed)
    # gamma=1 is the undiscounted episodic problem; the bonus and the regularisation keep their defaults.
    agent = LSVIUCBAgent(
        env, horizon=HORIZON, feature_map_fn=lambda _: TableFeatureMap(features), gamma=1.0, seeder=seed
    )
    # The default writer logs every episode; without it only the algorithm is timed.
    agent.set_writer(None)
    start = time.process_time()
    agent.fit(budget=episodes)
    cpu_seconds = time.process_time() - start
    # There is no public record of episode rewards, but the reward history is public, HORIZON per episode.
    returns = agent.reward_hist.reshape(episodes, HORIZON).sum(axis=1)
    tenth = max(1, episodes // 10)
    return {
        # The distribution's version is asked for: ``rlberry_scool.__version__`` is that of rlberry.
        "library": "rlberry-scool", "version": version("rlberry-scool"),
        "S": N_STATES, "A": N_ACTIONS, "d": DIM, "H": HORIZON, "K": episodes,
        "cpu_seconds": round(cpu_seconds, 3),
        "reward_first": float(returns[:tenth].mean()), "reward_last": float(returns[-tenth:].mean()),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=2000, help="episodes K; the time grows as K squared")
    parser.add_argument("--seed", type=int, default=0, help="seed of the MDP and of its transitions")
    arguments = parser.parse_args()
    if arguments.episodes < 1:
        parser.error("--episodes must be at least 1")
    print(json.dumps(run(arguments.episodes, arguments.seed)))
