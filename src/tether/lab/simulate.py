"""Play an agent in a world and keep the exact books: regret, violations, optimism, per episode or interaction unit.

`simulate` and `simulate_units` run many steps at a time in compiled code; `simulate_stepwise` makes the same calls one
by one, as a live system would, and `simulate_any` does so for any Agent. A test holds compiled and single steps equal
bit for bit.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tether.agents.agent import Agent, LeastSquaresAgent
from tether.agents.fixed import AlwaysSafe
from tether.agents.rslucb import RslucbQvi
from tether.check.monitor import Monitor
from tether.errors import InputError
from tether.kernels.likelihood import new_dual, new_trials
from tether.kernels.ridge import refresh_spectrum
from tether.lab.episodes import (
    AT,
    FALLS,
    GOALS,
    LAST_PLAN,
    PLACE,
    STEP,
    TRAJECTORIES,
    UNIT,
    UNIT_BASELINE,
    UNIT_REWARD,
    UNIT_VIOLATIONS,
    UNIT_WORST,
    Lake,
    Run,
    Truth,
    UnitRun,
    new_run,
    note_step,
    run_block,
    run_steps,
    start_episode,
    worst_planned,
)
from tether.lab.specs import Schedule
from tether.lab.worlds.linear_mdp import SAFE_TOLERANCE, LinearMDP, MisspecifiedMDP, Streams
from tether.lab.worlds.planning import (
    optimal_episode_policy,
    optimal_safe_mixture,
    optimal_safe_policy,
    policy_costs,
    policy_values,
)
from tether.records import Array, Decision, StarAction, State, Transition

EPISODES_A_BLOCK = 500
"""Episodes between two reports of progress."""

World = LinearMDP | MisspecifiedMDP
Progress = Callable[[int], None]
"""Called with the number of episodes (units) that were played since the last call."""


def linear_of(world: World) -> LinearMDP:
    """The world itself, or the one that the learner of a misspecified world believes in."""
    return world.linear if isinstance(world, MisspecifiedMDP) else world


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


def best_values(world: LinearMDP, mixes: bool) -> Array:
    """V*_1 (S,): of the best policy within what the world limits; where that is every step, without mixtures or with
    them."""
    if world.limits == "episode":
        best = optimal_episode_policy(world)
    else:
        best = optimal_safe_mixture(world) if mixes else optimal_safe_policy(world)
    values: Array = best.values[0]
    return values


def truth_of(world: LinearMDP) -> Truth:
    """The arrays of a world, with its exact optimum."""
    return Truth(
        theta=np.ascontiguousarray(world.true_theta),
        gamma=np.ascontiguousarray(world.true_gamma),
        mu=np.ascontiguousarray(world.true_mu),
        noise=np.array(world.noise_scale),
        initial=np.array(world.initial),
        threshold=np.array(world.problem.threshold),
        optimal=best_values(world, mixes=False).copy(),
    )


def simulate(
    world: LinearMDP, agent: LeastSquaresAgent, episodes: int, streams: Streams, progress: Progress = lambda done: None
) -> Books:
    """Run `episodes` episodes, in compiled blocks unless the agent watches single outcomes."""
    _check_deterministic(agent)
    agent.register(range(world.state_count))
    if agent.decides_afresh or world.problem.noise_scales:
        # what is played is certified after it was planned: its value is found by asking; or noise follows the length
        return simulate_any(world, agent, episodes, streams, progress)
    if agent.watches_outcomes:
        return simulate_stepwise(world, agent, episodes, streams, progress)
    if list(agent.known_states) != list(range(world.state_count)):
        raise InputError(
            "a compiled run needs an agent that knows the states 0..S-1 in this order; use a new agent, or "
            "simulate_stepwise."
        )
    truth, books = truth_of(world), np.zeros((len(Books._fields), episodes))
    horizon = world.problem.horizon
    for first in range(0, episodes, EPISODES_A_BLOCK):
        count = min(EPISODES_A_BLOCK, episodes - first)
        uniforms = streams.transitions.random((count, horizon + 1))
        normals = streams.noise.standard_normal((count, horizon, len(world.noise_scale)))
        part = np.zeros((len(books), count))
        run = new_run(truth, uniforms, normals, part, agent.planned_growth, agent.replans_rarely)
        model = agent.costs, agent.values, agent.rules, agent.tables, agent.current, agent.scratch
        while not run_block(*model, truth, run):
            refresh_spectrum(agent.costs)
        books[:, first : first + count] = part
        agent.note_block(count, int(run.counters[LAST_PLAN]))
        progress(count)
    return Books(*books)


def simulate_stepwise(
    world: World,
    agent: LeastSquaresAgent,
    episodes: int,
    streams: Streams,
    progress: Progress = lambda done: None,
    witness: "Witness | None" = None,
) -> Books:
    """The same run through plan, act and observe. It reads like Algorithm 1 and is what a live system does."""
    _check_deterministic(agent)
    if agent.decides_afresh:
        raise InputError(
            "these books take values from the plan, but what is played is certified afterwards (bounded costs, or "
            "costs that drift): use simulate_any."
        )
    linear = linear_of(world)
    agent.register(range(linear.state_count))
    truth, books = truth_of(linear), np.zeros((len(Books._fields), episodes))
    nothing = np.zeros((0, 0))
    run: Run = new_run(truth, nothing, nothing[:, :, None], books, agent.planned_growth, False)
    for episode in range(episodes):
        state = world.reset(streams)
        agent.plan()
        run.slots[:] = [agent.slot_of(s) for s in range(linear.state_count)]
        start_episode(agent.tables, agent.current, truth, run, state, episode)
        for step in range(linear.problem.horizon):
            decision = agent.act(step, state)
            transition = _outcome(world, decision, streams, episode)
            agent.observe(transition)
            length = agent.current.length[step, run.slots[state]]
            note_step(truth, run, step, episode, np.array(decision.feature), transition.reward, length)
            if witness is not None:
                witness.see(episode, decision, transition)
            state = transition.next_state
        progress(1)
    return Books(*books)


def simulate_any(
    world: World,
    agent: Agent,
    episodes: int,
    streams: Streams,
    progress: Progress = lambda done: None,
    witness: "Witness | None" = None,
) -> Books:
    """Run any Agent. `optimism` is NaN: the protocol does not ask an agent for its own estimate of V."""
    linear, books = linear_of(world), Books(*np.zeros((len(Books._fields), episodes)))
    optimal = best_values(linear, getattr(agent, "mixes", False))
    books.optimism[:] = np.nan
    for episode in range(episodes):
        state = world.reset(streams)
        agent.plan()
        features = _features(linear, agent, state)
        books.value[episode] = policy_values(linear, features)[0, state]
        books.optimal_value[episode] = optimal[state]
        books.worst_cost[episode] = -np.inf
        if witness is not None:
            witness.plan(episode, state, features)
        for step in range(linear.problem.horizon):
            if linear.ended[state]:  # nothing is played any more
                books.reward[episode] += linear.problem.final_reward_of(state) * (linear.problem.horizon - step)
                break
            decision = agent.act(step, state)
            transition = _outcome(world, decision, streams, episode)
            agent.observe(transition)
            note_decision(books, episode, decision, transition.reward, linear)
            if witness is not None:
                witness.see(episode, decision, transition)
            state = transition.next_state
        if (episode + 1) % EPISODES_A_BLOCK == 0 or episode + 1 == episodes:
            progress(episode % EPISODES_A_BLOCK + 1)
    return books


def _check_deterministic(agent: LeastSquaresAgent) -> None:
    if agent.mixes:
        raise InputError("these books are for deterministic policies: use simulate_any for a mixing agent.")


def _outcome(world: World, decision: Decision, streams: Streams, episode: int) -> Transition:
    if isinstance(world, MisspecifiedMDP):
        return world.step(decision, streams, episode)
    return world.step(decision, streams)


def _features(world: LinearMDP, agent: Agent, first: int) -> Array:
    """What the agent would play everywhere, on average, in an episode that begins in the state `first`: (H, S, d)."""
    if hasattr(agent, "planned_features") and not getattr(agent, "decides_afresh", False):
        planned: Array = agent.planned_features(range(world.state_count))
        return planned
    if isinstance(agent, LeastSquaresAgent) and not world.ended.any():
        return agent.peek_features(range(world.state_count), first)
    features = np.zeros((world.problem.horizon, world.state_count, world.problem.dimension))
    if hasattr(agent, "peek_feature"):
        ask = agent.peek_feature
    else:  # one's own need not tell asking from playing, and may expect outcomes of all it is asked: ask a copy
        asked = agent.peek if hasattr(agent, "peek") else copy.deepcopy(agent).act

        def ask(step: int, state: State) -> Array:
            return asked(step, state).mean_feature

    for step in range(world.problem.horizon):
        for state in range(world.state_count) if step else (first,):
            features[step, state] = world.phi_0[state] if world.ended[state] else ask(step, state)
    return features


def note_decision(books: Books, episode: int, decision: Decision, reward: float, world: LinearMDP) -> None:
    """Reward, true cost and length of one played step."""
    horizon = world.problem.horizon
    over = world.true_gamma[decision.step] @ decision.mean_feature - np.array(world.problem.threshold)
    length = decision.action.length if isinstance(decision.action, StarAction) else float(not decision.is_baseline)
    books.reward[episode] += reward
    books.length[episode] += length / horizon
    books.baseline[episode] += float(length == 0.0) / horizon
    books.violations[episode] += float(over.max() > SAFE_TOLERANCE)
    books.worst_cost[episode] = max(books.worst_cost[episode], float(over.max()))


# Misspecified worlds, and watches of the cost model


class Witness:
    """Counts the true costs of a run, and asks watches beside the learner what they notice.

    The learner is not stopped: its trajectory up to an alarm is the one that a watched learner has, and from there on
    the watched learner plays the safe action. So one run tells what happens with and without each watch.
    """

    def __init__(self, world: World, watches: Sequence[str], episodes: int) -> None:
        self._world, self._threshold = world, np.array(world.problem.threshold)
        self._watches = {name: Monitor(world.problem, pooled=name == "pooled") for name in watches}
        self._alarms = dict.fromkeys(watches, 0)  # steps until the alarm; 0: none
        self._violations, self._ratio, self._default = np.zeros((3, episodes))
        self._excess = np.full(episodes, -np.inf)
        linear = linear_of(world)
        self._safe_values = policy_values(linear, np.tile(linear.phi_0, (linear.problem.horizon, 1, 1)))[0]  # (S,)

    def plan(self, episode: int, state: int, features: Array) -> None:
        """The policy of an episode (H, S, d), and where it starts: of no interest to a watch."""

    def see(self, episode: int, decision: Decision, outcome: Transition) -> None:
        """One step of the run."""
        cost = self._true_cost(decision, episode)
        if decision.step == 0:
            self._default[episode] = self._safe_values[decision.state]
        self._violations[episode] += float((cost > self._threshold + SAFE_TOLERANCE).any())
        self._excess[episode] = max(self._excess[episode], float((cost - self._threshold).max()))
        self._ratio[episode] = max(self._ratio[episode], float((cost / self._threshold).max()))
        seen = np.atleast_1d(np.asarray(outcome.cost, dtype=np.float64))
        for name, watch in self._watches.items():
            if watch.alarm is None:
                measured = decision.step, decision.feature, seen, outcome.reward, decision.state, decision.is_baseline
                watch.observe(*measured)
                if watch.alarm is not None:
                    self._alarms[name] = episode * self._world.problem.horizon + decision.step + 1

    def _true_cost(self, decision: Decision, episode: int) -> Array:
        """The expected cost of a decision, (M,)."""
        if isinstance(self._world, MisspecifiedMDP):
            return self._world.true_cost(decision.step, decision.state, decision.feature, episode)
        cost: Array = self._world.true_gamma[decision.step] @ decision.feature
        return cost

    def columns(self) -> dict[str, Array]:
        """Per episode (K,): true violations and costs, the exact value of always playing a_0, the largest known ε/τ;
        per watch its alarm, and the violations that it leaves."""
        made = {"violations": self._violations, "worst_cost": self._excess, "cost_ratio": self._ratio}
        misfit = float(np.max(np.divide(self._world.problem.point_error, self._threshold)))
        made |= {"safe_value": self._default, "misfit_ratio": np.full(len(self._default), misfit)}
        return made | alarm_columns(self._violations, self._alarms, self._world.problem.horizon)

    @property
    def alarms(self) -> dict[str, str]:
        """What each watch said, where it tripped."""
        return {name: str(watch.alarm) for name, watch in self._watches.items() if watch.alarm is not None}


class OwnConstraint(Witness):
    """By how much the constraint that an agent itself promises is exceeded: positive where it is broken.

    "episode": the exact expected cost of the episode's policy from its first state minus Hτ, the largest over the
    constraints. "realised": the largest measured cost of the episode minus τ.
    """

    def __init__(self, world: LinearMDP, own: str, episodes: int) -> None:
        super().__init__(world, (), episodes)
        self._linear, self._own = world, own
        self._own_excess = np.full(episodes, -np.inf)

    def plan(self, episode: int, state: int, features: Array) -> None:
        """The policy is known: so is its expected cost."""
        if self._own == "episode":
            expected = policy_costs(self._linear, features)[0, state]
            self._own_excess[episode] = (expected - self._linear.problem.horizon * self._threshold).max()

    def see(self, episode: int, decision: Decision, outcome: Transition) -> None:
        """What was measured."""
        if self._own == "realised":
            excess = float((np.atleast_1d(np.asarray(outcome.cost, dtype=np.float64)) - self._threshold).max())
            self._own_excess[episode] = max(self._own_excess[episode], excess)

    def columns(self) -> dict[str, Array]:
        """Per episode (K,)."""
        return {"own_excess": self._own_excess}


def alarm_columns(violations: Array, alarms: Mapping[str, int], horizon: int) -> dict[str, Array]:
    """Per watch (K,): the steps until its alarm (0: none), in the alarm's episode; and the violations with this watch.

    There are none after the alarm; its episode counts as a whole, which is a little too much.
    """
    made: dict[str, Array] = {}
    for name, steps in alarms.items():
        alarm, left = np.zeros(len(violations)), violations.copy()
        if steps:
            alarm[(steps - 1) // horizon] = steps
            left[steps // horizon + 1 :] = 0.0
        made |= {f"alarm_{name}": alarm, f"violations_{name}": left}
    return made


# Interaction units (section 5.2): so many steps, in trajectories that end at the goal, in danger or in time, and
# restart. Planning is the agent's own; the steps between two plans run in compiled code.

GOAL_RETURN, OTHER_RETURN = 6.0, 0.01
"""What the paper pays per trajectory: for reaching the goal, and otherwise."""


class UnitBooks(NamedTuple):
    """What a run is judged by, one entry per interaction unit (U,)."""

    trajectories: Array  # that ended in this unit
    goals: Array  # of which at the goal
    falls: Array  # of which in danger
    success: Array  # goals / trajectories, 0 if none ended
    average_return: Array  # per trajectory that ended; 0 if none did
    reward: Array  # Σ r over the steps of the unit
    violations: Array  # steps whose true expected cost exceeds τ
    worst_cost: Array  # largest true expected cost of a step taken, minus τ
    planned_worst_cost: Array  # the same over every (step, state) of every plan made in the unit
    baseline: Array  # mean probability of the safe action over the steps taken
    plans: Array  # plans made


def lake_of(world: LinearMDP) -> Lake:
    """The arrays of a stationary world."""
    p = world.problem
    if world.rewards is None and not (world.true_theta == world.true_theta[0]).all():
        raise InputError("interaction units need a world whose rewards, costs and dynamics do not depend on the step.")
    return Lake(
        theta=np.array(world.true_theta[0]),
        gamma=np.array(world.true_gamma[0]),
        mu=np.array(world.true_mu[0]),
        noise=np.array(world.noise_scale),
        initial=np.array(world.initial),
        final=np.array([p.final_reward_of(state) for state in range(world.state_count)]),
        rewards=np.zeros((0, 0)) if world.rewards is None else np.array(world.rewards),
        arrival_cost=np.zeros((0, 0)) if world.arrival_cost is None else np.array(world.arrival_cost),
    )


def simulate_units(
    world: LinearMDP,
    agent: RslucbQvi | AlwaysSafe,
    units: int,
    streams: Streams,
    schedule: Schedule,
    progress: Progress = lambda done: None,
) -> UnitBooks:
    """Run `units` interaction units of an agent that knows the states 0..S-1 in this order."""
    if agent.blocks is not None:
        raise InputError("interaction units play what was planned, which is not certified any more where costs drift.")
    agent.register(range(world.state_count))
    lake, books = lake_of(world), UnitBooks(*(np.zeros(units) for _ in UnitBooks._fields))
    counted = np.zeros((7, units))
    counted[UNIT_WORST] = books.planned_worst_cost[:] = -np.inf
    place = np.array([0, -1, 0, 0], dtype=np.int64)
    counts = agent.likelihoods if isinstance(agent, RslucbQvi) else None
    if counts is not None and agent.tables.is_star[: world.state_count].any():
        raise InputError(
            "interaction units play plans as they are, but with noise=Bounded() a plan of rays is a guess that "
            "each decision cuts to what is proven: use simulate_any, or finite sets of actions."
        )
    for unit in range(units):
        run = UnitRun(
            draws=streams.transitions.random((schedule.steps, 2)),
            normals=streams.noise.standard_normal((schedule.steps, len(world.noise_scale))),
            coins=agent.rng.random(schedule.steps),
            counters=place,
            receding=schedule.receding,
            look_every=schedule.look_every if schedule.plan_each == "step" else 0,
            planned_growth=agent.planned_growth,
            books=counted,
            trials=new_trials(0, 1, 1.0, 1.0) if counts is None else counts.trials,
            dual=new_dual(1) if counts is None else counts.dual,
            bounded=np.array([] if counts is None else counts.bounded, dtype=np.int64),
            feature=np.zeros(world.problem.dimension),
            numbers=np.zeros(1 + len(world.problem.constraints)),
        )
        place[AT], place[UNIT] = 0, unit
        while place[AT] < schedule.steps:
            at, begins = int(place[AT]), place[PLACE] < 0
            if schedule.plan_each == "step" or (begins and (schedule.plan_each == "trajectory" or at == 0)):
                _plan(agent, lake, unit, books)
            model = agent.costs, agent.values, agent.rules, agent.tables, agent.current, agent.scratch
            run_steps(*model, lake, run)
            agent.note_steps(int(place[AT]) - at)
            if place[PLACE] < 0 and not schedule.restarts:
                break
        if not schedule.restarts:
            place[PLACE], place[STEP] = -1, 0
        progress(1)
    ended, goals = counted[TRAJECTORIES], counted[GOALS]
    some = np.maximum(ended, 1.0)
    return books._replace(
        trajectories=ended,
        goals=goals,
        falls=counted[FALLS],
        success=goals / some,
        average_return=(GOAL_RETURN * goals + OTHER_RETURN * (ended - goals)) / some,
        reward=counted[UNIT_REWARD],
        violations=counted[UNIT_VIOLATIONS],
        worst_cost=counted[UNIT_WORST],
        baseline=counted[UNIT_BASELINE],
    )


def _plan(agent: RslucbQvi | AlwaysSafe, lake: Lake, unit: int, books: UnitBooks) -> None:
    """Plan if it is time, and audit every state of the plan against the truth."""
    made = int(agent.current.made[0])
    agent.plan()
    if agent.current.made[0] > made:
        books.plans[unit] += 1
        costs = np.empty(agent.tables.features.shape[1])
        worst = worst_planned(agent.tables, agent.current, lake, agent.rules.threshold, costs)
        books.planned_worst_cost[unit] = max(books.planned_worst_cost[unit], worst)
