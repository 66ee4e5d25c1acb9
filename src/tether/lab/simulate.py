"""Play episodes of an agent in a LinearMDP and keep the exact books: regret, violations, optimism.

`simulate` runs whole blocks of episodes in compiled code; `simulate_stepwise` makes the same calls one by one, as a
live system would. Both go through the same kernels, and a test holds them equal bit for bit.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from tether.agents.agent import Agent, LeastSquaresAgent
from tether.agents.fixed import AlwaysSafe
from tether.agents.rslucb import RslucbQvi
from tether.errors import InputError
from tether.kernels.ridge import refresh_spectrum
from tether.lab.episodes import LAST_PLAN, Run, Truth, new_run, note_step, run_block, start_episode
from tether.lab.worlds.linear_mdp import SAFE_TOLERANCE, LinearMDP, Streams
from tether.lab.worlds.planning import optimal_safe_mixture, optimal_safe_policy, policy_values
from tether.records import Array, Decision, StarAction

EPISODES_A_BLOCK = 500
"""Episodes between two reports of progress."""


class Books(NamedTuple):
    """What a run is judged by, one entry per episode (K,)."""

    reward: Array  # realised return
    value: Array  # V_1^{π_k}(s_1^k), exact
    optimal_value: Array  # V*_1(s_1^k), exact
    violations: Array  # steps whose true cost exceeds τ
    worst_cost: Array  # largest true cost over its τ, as a difference c − τ
    optimism: Array  # V_1^k(s_1^k) − V*_1(s_1^k); negative means optimism failed
    length: Array  # mean certified length of the played actions (0 is the safe action)
    baseline: Array  # share of steps that played the safe action

    @property
    def regret(self) -> Array:
        """Terms of R_K, Eq. (6)."""
        return self.optimal_value - self.value


def new_books(episodes: int) -> Books:
    """Empty books."""
    return Books(*np.zeros((len(Books._fields), episodes)))


def truth_of(world: LinearMDP) -> Truth:
    """The arrays of a world, with its exact optimum."""
    return Truth(
        theta=np.ascontiguousarray(world.true_theta),
        gamma=np.ascontiguousarray(world.true_gamma),
        mu=np.ascontiguousarray(world.true_mu),
        noise=np.array(world.noise_scale),
        initial=np.array(world.initial),
        threshold=np.array(world.problem.threshold),
        optimal=optimal_safe_policy(world).values[0].copy(),
    )


def simulate(
    world: LinearMDP,
    agent: LeastSquaresAgent,
    episodes: int,
    streams: Streams,
    progress: Callable[[int], None] | None = None,
) -> Books:
    """Run `episodes` episodes, in compiled blocks unless the agent watches single outcomes."""
    _check_deterministic(agent)
    agent.register(range(world.state_count))
    if agent.watches_outcomes:
        return simulate_stepwise(world, agent, episodes, streams, progress)
    if list(agent.known_states) != list(range(world.state_count)):
        raise InputError(
            "a compiled run needs an agent that knows the states 0..S-1 in this order; use a new agent, or "
            "simulate_stepwise."
        )
    truth, books = truth_of(world), np.zeros((len(Books._fields), episodes))
    horizon, constraints = world.problem.horizon, world.problem.constraints
    for first, last in _blocks(episodes):
        uniforms = streams.transitions.random((last - first, horizon + 1))
        normals = streams.noise.standard_normal((last - first, horizon, constraints))
        part = np.zeros((len(books), last - first))
        run = new_run(truth, uniforms, normals, part, agent.planned_growth, agent.replans_rarely)
        model = agent.costs, agent.values, agent.rules, agent.tables, agent.current, agent.scratch
        while not run_block(*model, truth, run):
            refresh_spectrum(agent.costs)
        books[:, first:last] = part
        agent.note_block(last - first, int(run.counters[LAST_PLAN]))
        if progress is not None:
            progress(last - first)
    return Books(*books)


def simulate_stepwise(
    world: LinearMDP,
    agent: LeastSquaresAgent,
    episodes: int,
    streams: Streams,
    progress: Callable[[int], None] | None = None,
) -> Books:
    """The same run through plan, act and observe. It reads like Algorithm 1 and is what a live system does."""
    _check_deterministic(agent)
    agent.register(range(world.state_count))
    truth, books = truth_of(world), np.zeros((len(Books._fields), episodes))
    nothing = np.zeros((0, 0))
    run: Run = new_run(truth, nothing, nothing[:, :, None], books, agent.planned_growth, False)
    for episode in range(episodes):
        state = world.reset(streams)
        agent.plan()
        run.slots[:] = [agent.slot_of(s) for s in range(world.state_count)]
        start_episode(agent.tables, agent.current, truth, run, state, episode)
        for step in range(world.problem.horizon):
            decision = agent.act(step, state)
            transition = world.step(decision, streams)
            agent.observe(transition)
            length = agent.current.length[step, run.slots[state]]
            note_step(truth, run, step, episode, np.array(decision.feature), transition.reward, length)
            state = transition.next_state
        if progress is not None:
            progress(1)
    return Books(*books)


def _check_deterministic(agent: LeastSquaresAgent) -> None:
    if agent.mixes:
        raise InputError("these books are for deterministic policies: use any_agent.simulate_any for a mixing agent.")


def _blocks(episodes: int) -> Iterator[tuple[int, int]]:
    for first in range(0, episodes, EPISODES_A_BLOCK):
        yield first, min(first + EPISODES_A_BLOCK, episodes)


# Play any Agent, not only those with compiled kernels: plan, act, observe, with the same exact books.


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
    if isinstance(agent, RslucbQvi | AlwaysSafe):
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
