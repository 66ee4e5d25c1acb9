"""Play episodes of an agent in a LinearMDP and keep the exact books: regret, violations, optimism.

`simulate` runs whole blocks of episodes in compiled code; `simulate_stepwise` makes the same calls one by one, as a
live system would. Both go through the same kernels, and a test holds them equal bit for bit.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.agents.least_squares import LeastSquaresAgent
from tether.compiled import compiled
from tether.errors import InputError
from tether.learning.backup import Plan, make_plan
from tether.learning.statistics import Memory, Rules, observe
from tether.learning.tables import Tables
from tether.records import Array
from tether.world.linear_mdp import SAFE_TOLERANCE, LinearMDP, Streams, draw, play
from tether.world.planning import optimal_safe_policy

BLOCK = 500
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
    return Books(*(np.zeros(episodes) for _ in Books._fields))


class Truth(NamedTuple):
    """The world as arrays."""

    theta: Array
    gamma: Array
    mu: Array
    noise: Array
    initial: Array
    threshold: Array
    optimal: Array  # V*_1 (S,)


def truth_of(world: LinearMDP) -> Truth:
    """The arrays of a world, with its exact optimum."""
    return Truth(
        world.true_theta,
        world.true_gamma,
        world.true_mu,
        world.noise_scale,
        world.initial,
        np.array(world.problem.threshold),
        optimal_safe_policy(world).values[0],
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
    truth, books = truth_of(world), new_books(episodes)
    horizon, constraints = world.problem.horizon, world.problem.constraints
    for first, last in _blocks(episodes):
        uniforms = streams.transitions.random((last - first, horizon + 1))
        normals = streams.noise.standard_normal((last - first, horizon, constraints))
        part = Books(*(column[first:last] for column in books))
        last_plan = run_block(
            agent.memory, agent.rules, agent.tables, agent.current, agent.scratch, truth, uniforms, normals,
            agent.replans_rarely, agent.planned_log_det, part,
        )  # fmt: skip
        agent.note_block(last - first, last_plan)
        if progress is not None:
            progress(last - first)
    return books


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
    truth, books = truth_of(world), new_books(episodes)
    for episode in range(episodes):
        state = world.reset(streams)
        agent.plan()
        slots = np.array([agent.slot_of(s) for s in range(world.state_count)])
        start_episode(agent.tables, agent.current, truth, slots, state, episode, books)
        for step in range(world.problem.horizon):
            decision = agent.act(step, state)
            transition = world.step(decision, streams)
            agent.observe(transition)
            length = agent.current.length[step, slots[state]]
            note_step(truth, step, decision.feature, transition.reward, length, episode, books)
            state = transition.next_state
        if progress is not None:
            progress(1)
    return books


def _check_deterministic(agent: LeastSquaresAgent) -> None:
    if agent.mixes:
        raise InputError("these books are for deterministic policies: use any_agent.simulate_any for a mixing agent.")


def _blocks(episodes: int) -> Iterator[tuple[int, int]]:
    for first in range(0, episodes, BLOCK):
        yield first, min(first + BLOCK, episodes)


@compiled
def run_block(
    memory: Memory,
    rules: Rules,
    tables: Tables,
    plan: Plan,
    scratch: Array,
    truth: Truth,
    uniforms: Array,
    normals: Array,
    rarely: bool,
    planned_log_det: Array,
    books: Books,
) -> int:
    """Episodes of plan, act, observe where a state's slot is its index; returns the last that planned, or -1."""
    stages = memory.value.gram.shape[0]
    costs = np.empty(rules.threshold.shape[0])
    feature = np.empty(truth.theta.shape[1])
    last_plan = -1
    slots = np.arange(truth.mu.shape[2])
    for episode in range(uniforms.shape[0]):
        state = draw(truth.initial, uniforms[episode, 0])
        if is_due(memory, rarely, planned_log_det):
            make_plan(memory, rules, tables, plan, scratch)
            for stage in range(stages):
                planned_log_det[0, stage] = memory.cost.log_det[stage]
                planned_log_det[1, stage] = memory.value.log_det[stage]
            last_plan = episode
        start_episode(tables, plan, truth, slots, state, episode, books)
        for step in range(rules.horizon):
            chosen_feature(tables, plan, step, state, feature)
            reward, next_state = play(
                truth.theta[step], truth.gamma[step], truth.mu[step], truth.noise, feature,
                normals[episode, step], uniforms[episode, step + 1], costs,
            )  # fmt: skip
            last = step == rules.horizon - 1 and stages > 1
            stage = step if stages > 1 else 0
            next_slot = -1 if last else next_state
            observe(memory, rules, stage, step, feature, reward, costs, True, next_slot)
            note_step(truth, step, feature, reward, plan.length[step, state], episode, books)
            state = next_state
    return last_plan


@compiled
def is_due(memory: Memory, rarely: bool, planned_log_det: Array) -> bool:
    """Whether to plan: every episode, or when some det(A_h) has doubled since the last plan (THEORY section 3)."""
    if not rarely:
        return True
    for stage in range(memory.value.log_det.shape[0]):
        if memory.cost.log_det[stage] - planned_log_det[0, stage] > np.log(2.0):
            return True
        if memory.value.log_det[stage] - planned_log_det[1, stage] > np.log(2.0):
            return True
    return False


@compiled
def chosen_feature(tables: Tables, plan: Plan, step: int, slot: int, feature: Array) -> None:
    """φ of the planned choice, formed exactly as `act` forms it."""
    row, length = plan.row[step, slot], plan.length[step, slot]
    for k in range(feature.shape[0]):
        origin = tables.phi_0[k, slot]
        if row < 0:
            feature[k] = origin
        else:
            end = tables.features[k, tables.start[slot] + row]
            feature[k] = end if length == 1.0 else origin + length * (end - origin)


@compiled
def start_episode(
    tables: Tables, plan: Plan, truth: Truth, slots: NDArray[np.int64], state: int, episode: int, books: Books
) -> None:
    """The exact value of this episode's policy from its first state, beside the optimum and the plan's own claim."""
    horizon, dimension = truth.theta.shape
    count = truth.mu.shape[2]
    feature = np.empty(dimension)
    q = np.empty(dimension)
    values = np.zeros(count)
    fresh = np.zeros(count)
    for step in range(horizon - 1, -1, -1):
        for k in range(dimension):
            q[k] = truth.theta[step, k]
            for s in range(count):
                q[k] += truth.mu[step, k, s] * values[s]
        for s in range(count):
            if step > 0 or s == state:
                chosen_feature(tables, plan, step, slots[s], feature)
                fresh[s] = 0.0
                for k in range(dimension):
                    fresh[s] += q[k] * feature[k]
        for s in range(count):
            values[s] = fresh[s]
    books.value[episode] = values[state]
    books.optimal_value[episode] = truth.optimal[state]
    books.optimism[episode] = plan.values[0, slots[state]] - truth.optimal[state]
    books.worst_cost[episode] = -np.inf


@compiled
def note_step(
    truth: Truth, step: int, feature: Array, reward: float, length: float, episode: int, books: Books
) -> None:
    """Reward, true cost and length of one played step."""
    horizon = truth.theta.shape[0]
    books.reward[episode] += reward
    books.length[episode] += length / horizon
    if length == 0.0:
        books.baseline[episode] += 1.0 / horizon
    worst = -np.inf
    for j in range(truth.threshold.shape[0]):
        over = -truth.threshold[j]
        for k in range(feature.shape[0]):
            over += truth.gamma[step, j, k] * feature[k]
        worst = max(worst, over)
    if worst > SAFE_TOLERANCE:
        books.violations[episode] += 1.0
    books.worst_cost[episode] = max(books.worst_cost[episode], worst)
