"""Play any Agent, not only those with compiled kernels: plan, act, observe, with the same exact books.

Slower than `simulate`, because the policy is asked for its choice in every state to know its exact value.
"""

from collections.abc import Callable

import numpy as np

from tether.agents.base import Agent
from tether.agents.rslucb_qvi import RslucbQvi
from tether.experiments.simulate import EPISODES_A_BLOCK, Books, new_books
from tether.records import Array, Decision, StarAction
from tether.world.linear_mdp import SAFE_TOLERANCE, LinearMDP, Streams
from tether.world.planning import optimal_safe_mixture, optimal_safe_policy, policy_values


def simulate_any(
    world: LinearMDP, agent: Agent, episodes: int, streams: Streams, progress: Callable[[int], None]
) -> Books:
    """Run `episodes` episodes. `optimism` is NaN: the protocol does not ask an agent for its own estimate of V."""
    best = optimal_safe_mixture if getattr(agent, "mixes", False) else optimal_safe_policy
    books, optimal = new_books(episodes), best(world).values[0]
    books.optimism[:] = np.nan
    horizon = world.problem.horizon
    for episode in range(episodes):
        state = world.reset(streams)
        agent.plan()
        books.value[episode] = policy_values(world, _features(world, agent))[0, state]
        books.optimal_value[episode] = optimal[state]
        books.worst_cost[episode] = -np.inf
        for step in range(horizon):
            decision = agent.act(step, state)
            transition = world.step(decision, streams)
            agent.observe(transition)
            _note(books, episode, decision, transition.reward, world)
            state = transition.next_state
        if (episode + 1) % EPISODES_A_BLOCK == 0 or episode + 1 == episodes:
            progress(episode % EPISODES_A_BLOCK + 1)
    return books


def _features(world: LinearMDP, agent: Agent) -> Array:
    """What the agent would play everywhere, on average: (H, S, d)."""
    if isinstance(agent, RslucbQvi):
        return agent.planned_features(range(world.state_count))
    steps, states = range(world.problem.horizon), range(world.state_count)
    return np.array([[agent.act(step, state).mean_feature for state in states] for step in steps])


def _note(books: Books, episode: int, decision: Decision, reward: float, world: LinearMDP) -> None:
    """Reward, true cost and length of one played step."""
    horizon = world.problem.horizon
    over = world.true_gamma[decision.step] @ decision.mean_feature - np.array(world.problem.threshold)
    length = decision.action.length if isinstance(decision.action, StarAction) else float(not decision.is_baseline)
    books.reward[episode] += reward
    books.length[episode] += length / horizon
    books.baseline[episode] += float(length == 0.0) / horizon
    books.violations[episode] += float(over.max() > SAFE_TOLERANCE)
    books.worst_cost[episode] = max(books.worst_cost[episode], float(over.max()))
