"""What every agent promises, as checks for those who write their own. Any test runner can call them.

    def test_my_agent_keeps_the_contract(tmp_path):
        check_agent(MyAgent, tmp_path)

Each check raises an AssertionError that says which promise was broken. Tether's own agents pass the same ones.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from struct import pack
from typing import Any, Literal, Protocol

import numpy as np

from tether.agents.agent import Agent
from tether.errors import InputError, TetherError
from tether.kernels.plan import Visited
from tether.problem.constraint import Constraint
from tether.problem.problem import Problem
from tether.records import Decision, State, Transition

Moment = Literal["new", "planned", "between-episodes", "deciding", "mid-episode", "decisions-open"]
MOMENTS: tuple[Moment, ...] = ("new", "planned", "between-episodes", "deciding", "mid-episode", "decisions-open")
"""When an agent is saved."""

NOT_MEASURED: tuple[Any, ...] = (float("nan"), float("inf"), -float("inf"), "high", (0.1,) * 9)
"""Costs that no sensor reads. A cost that was not measured is None."""

PLAIN = frozenset({bool, int, str, bytes, type(None)})
"""Types whose values are equal exactly when they are the same."""


class World(Protocol):
    """Where agents are played: everything random is drawn from `streams`. `problem` lists its states."""

    @property
    def problem(self) -> Problem:
        """What the agent knows."""

    def reset(self, streams: Any) -> State:
        """The first state of an episode."""

    def step(self, decision: Decision, streams: Any) -> Transition:
        """What follows a decision."""


class SmallWorld:
    """A random linear MDP: H = 3, four states, d = 3. Its γ* (H, M, d) is known here, and not to the agent."""

    def __init__(self, *, finite: bool = False, constraints: int = 1, confidence: float = 1e-6) -> None:
        rng, horizon, states, d = np.random.default_rng(17), 3, 4, 3
        self.true_gamma = rng.uniform(0.2, 1.0, (horizon, constraints, d))
        self.true_gamma[:, :, 0] = rng.uniform(0.0, 0.2, (horizon, constraints))
        self._theta, self._mu = rng.random((horizon, d)), rng.dirichlet(np.ones(states), size=(horizon, d))
        phi_0 = 0.7 * np.eye(d)[0] + 0.3 * rng.dirichlet(np.ones(d), size=states)
        ends = rng.dirichlet(np.ones(d), size=(states, 5))
        known: dict[str, Any] = {
            "horizon": horizon,
            "confidence": confidence,
            "constraints": [
                Constraint(threshold=tau, noise=sigma, safe_cost=self.true_gamma[:, j] @ phi_0.T, gamma_norm=1.8)
                for j, (tau, sigma) in enumerate(
                    zip(np.linspace(0.55, 0.5, constraints), np.linspace(0.02, 0.05, constraints), strict=True)
                )
            ],
        }
        if finite:
            features = np.concatenate([phi_0[:, None], ends], axis=1)
            self.problem = Problem.from_table(features=features, baseline_action=np.zeros(states, dtype=int), **known)
        else:
            self.problem = Problem.from_rays(phi_0=phi_0, endpoints=ends, **known)

    def reset(self, streams: np.random.Generator) -> int:
        """A state at random."""
        return int(streams.integers(len(self._mu[0, 0])))

    def step(self, decision: Decision, streams: np.random.Generator) -> Transition:
        """The linear reward, the linear cost with its noise, and the next state."""
        x, h = decision.feature, decision.step
        cost = self.true_gamma[h] @ x + np.array(self.problem.noise) * streams.standard_normal(len(self.true_gamma[h]))
        following = int(streams.choice(len(self._mu[0, 0]), p=x @ self._mu[h] / (x @ self._mu[h]).sum()))
        return decision.outcome(reward=float(self._theta[h] @ x), cost=tuple(cost.tolist()), next_state=following)


@dataclass(frozen=True, kw_only=True)
class Contract:
    """An agent, the world it is tried in, and how it comes back from a file."""

    world: World
    make: Callable[[], Agent]
    restore: Callable[[Path, Problem], Agent]
    streams: Callable[[int], Any] = np.random.default_rng
    draws: bool = False  # whether being asked moves a stream of its own


def check_agent(
    make: Callable[[Problem], Agent],
    folder: Path,
    *,
    restore: Callable[[Path, Problem], Agent] | None = None,
    worlds: Sequence[World] = (),
    draws: bool = False,
) -> None:
    """All checks, in stars, finite sets and under two constraints, or in your own `worlds`; files go to `folder`.

    `make` returns a new agent for a problem; `restore` is its class's own unless given. `draws`: whether it draws from
    a stream at every question, so that asking twice may give two answers.
    """
    for world in worlds or (SmallWorld(), SmallWorld(finite=True), SmallWorld(constraints=2)):
        problem = world.problem
        kind: Any = type(make(problem))
        contract = Contract(world=world, make=partial(make, problem), restore=restore or kind.restore, draws=draws)
        for check in CHECKS:
            check(contract)
        for moment in MOMENTS:
            restoring_equals_continuing(contract, moment, Path(folder) / "agent.tether")


# The checks


def the_same_seed_gives_the_same_run(contract: Contract, seed: int = 31) -> None:
    """Two agents made alike, in equal worlds, decide alike and end in the same state, bit for bit."""
    one, two = contract.make(), contract.make()
    first, second = (play(contract.world, agent, contract.streams(seed), 25) for agent in (one, two))
    _require_same(first, second, "two runs with the same seed")
    _require_unchanged(snapshot(one), snapshot(two), "two runs with the same seed left different agents")


def questions_do_not_change_later_answers(contract: Contract, states: Sequence[State] | None = None) -> None:
    """An agent that is asked about every state all the time plays as its twin that is not."""
    problem, curious = contract.world.problem, contract.make()
    asked = (problem.states or ()) if states is None else states

    def ask() -> None:
        for state, step in product(asked, range(problem.horizon)):
            getattr(curious, "peek", curious.act)(step, state)

    plain = play(contract.world, contract.make(), contract.streams(34), 20)
    answers = play(contract.world, curious, contract.streams(34), 20, before=ask)
    if not contract.draws:
        _require_same(
            [replace(d, id=0) for d in answers], [replace(d, id=0) for d in plain], "with and without questions"
        )


def observing_changes_no_decision(contract: Contract) -> None:
    """What was decided, and what was seen, stay as they were."""
    pairs: list[tuple[Any, Any]] = []

    def keep(decision: Decision, seen: Transition) -> Transition:
        pairs.extend([(decision, copy.deepcopy(decision)), (seen, copy.deepcopy(seen))])
        return seen

    play(contract.world, contract.make(), contract.streams(35), 15, outcome=keep)
    _require_same([now for now, _ in pairs], [then for _, then in pairs], "before and after observing")


def every_action_is_certified(contract: Contract, seed: int = 36, episodes: int = 40) -> list[Decision]:
    """Each decision has a bound for every constraint; what is not a_0 has bounds under τ. Returns the decisions."""
    problem = contract.world.problem
    decisions = play(contract.world, contract.make(), contract.streams(seed), episodes)
    for d in decisions:
        where = f"the decision at step {d.step}, state {d.state!r}"
        _require(len(d.evidence) == len(problem.constraints), f"{where} has evidence for {len(d.evidence)} constraints")
        for tau, bound in zip(problem.threshold, d.evidence, strict=True):
            wanted = np.inf if bound.radius.origin == "none" else tau
            _require(bound.threshold == wanted, f"{where} names the threshold {bound.threshold}, not {wanted}")
            _require(d.is_baseline or bound.bound <= bound.threshold, f"{where} has a bound of {bound.bound} over τ")
            _require(bound.radius.value >= 0.0, f"{where} has the radius {bound.radius.value}")
        actions = problem.actions(d.state)
        if d.is_baseline:
            _require(np.array_equal(d.feature, actions.phi_0), f"{where} says a_0, but plays another feature")
    return decisions


def bounds_are_true(contract: Contract, seed: int = 37, episodes: int = 60) -> list[Decision]:
    """What is played costs no more than its bound, on average, where the world knows the cost and a theorem says so."""
    gamma: Any = getattr(contract.world, "true_gamma", None)  # (H, M, d)
    decisions = play(contract.world, contract.make(), contract.streams(seed), episodes)
    for d in decisions if gamma is not None else ():
        for cost, bound in zip(gamma[d.step] @ d.mean_feature, d.evidence, strict=True):
            limit = bound.threshold if d.is_baseline else bound.bound
            true = bound.radius.origin not in ("theorem", "exact") or cost <= limit + 1e-12
            _require(true, f"at step {d.step}, state {d.state!r} the true cost is {cost}, over {limit} ({d.reason})")
    return decisions


def the_safe_action_is_always_allowed(contract: Contract) -> None:
    """Whatever the data say, there is a decision; costs far over τ leave a_0, or what is still certified."""
    agent, problem = contract.make(), contract.world.problem
    absurd = tuple(
        1.0 if yes_no else 100.0 * tau for tau, yes_no in zip(problem.threshold, problem.bounded, strict=True)
    )
    play(contract.world, agent, contract.streams(38), 12, outcome=lambda _, seen: replace(seen, cost=absurd))
    agent.plan()
    for state, step in product(problem.states or (), range(problem.horizon)):
        d = agent.act(step, state)
        certified = all(bound.bound <= bound.threshold for bound in d.evidence)
        _require(d.is_baseline or certified, f"after absurd costs it plays {d.action} in state {state!r}")


def an_outcome_counts_exactly_once(contract: Contract) -> None:
    """The second time it is refused, and leaves no trace."""
    agent, streams = contract.make(), contract.streams(41)
    play(contract.world, agent, streams, 3)
    agent.plan()
    seen = contract.world.step(agent.act(0, contract.world.reset(streams)), streams)
    agent.observe(seen)
    _require_refused(agent, seen, "the same outcome again")


def a_cost_is_a_number_or_none(contract: Contract) -> None:
    """A cost that was not measured is None (refused where every cost is needed); NaN and the like leave no trace."""
    agent, streams = contract.make(), contract.streams(42)
    play(contract.world, agent, streams, 3)
    agent.plan()
    seen = contract.world.step(agent.act(0, contract.world.reset(streams)), streams)
    for cost in NOT_MEASURED:
        _require_refused(agent, replace(seen, cost=cost), f"a cost of {cost!r}")
    try:
        agent.observe(replace(seen, cost=None))
    except InputError as error:
        _require("needs a cost" in str(error), f"an outcome without a cost was refused: {error}")
    agent.plan()
    agent.act(0, seen.state)


CHECKS = (
    the_same_seed_gives_the_same_run,
    questions_do_not_change_later_answers,
    observing_changes_no_decision,
    every_action_is_certified,
    bounds_are_true,
    the_safe_action_is_always_allowed,
    an_outcome_counts_exactly_once,
    a_cost_is_a_number_or_none,
)


def restoring_equals_continuing(contract: Contract, moment: Moment, path: Path) -> None:
    """Saved at some moment and restored, an agent goes on as the one that was not, bit for bit."""
    agent, streams, world = contract.make(), contract.streams(51), contract.world
    where, late = bring_to(moment, world, agent, streams)
    before = snapshot(agent)
    agent.save(path)
    _require_unchanged(before, snapshot(agent), "saving changed the agent")
    restored, later = contract.restore(path, world.problem), copy.deepcopy(streams)
    runs = []
    for each, rest in ((agent, streams), (restored, later)):
        for seen in reversed(late):
            each.observe(seen)
        finished = [] if where is None else play_from(*where, world, each, rest)
        runs.append(finished + play(world, each, rest, 8))
    _require_same(runs[0], runs[1], f"continued and restored ({moment})")
    _require_unchanged(snapshot(agent), snapshot(restored), f"continued and restored ({moment}) end differently")


def bring_to(
    moment: Moment, world: World, agent: Agent, streams: Any
) -> tuple[tuple[int, State] | None, list[Transition]]:
    """Play up to a moment: the step and state at which an open episode goes on, and outcomes that are still to come."""
    if moment not in ("new", "planned"):
        play(world, agent, streams, 9)
    if moment in ("new", "between-episodes"):
        return None, []
    agent.plan()
    if moment == "planned":
        return None, []
    state = world.reset(streams)
    if moment == "deciding":
        getattr(agent, "peek", agent.act)(0, state)
        return (0, state), []
    seen = world.step(agent.act(0, state), streams)
    if moment == "decisions-open":  # their outcomes arrive after the restore
        others = list(world.problem.states or [state] * 3)[1:3]
        return None, [seen, *(world.step(agent.act(0, other), streams) for other in others)]
    agent.observe(seen)
    return (1, seen.next_state), []


# Playing and comparing


def play(world: World, agent: Agent, streams: Any, episodes: int, **hooks: Any) -> list[Decision]:
    """Whole episodes through plan, act and observe; returns every decision. `hooks` are those of `play_from`."""
    decisions: list[Decision] = []
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        decisions += play_from(0, state, world, agent, streams, **hooks)
    return decisions


def play_from(
    step: int,
    state: State,
    world: World,
    agent: Agent,
    streams: Any,
    *,
    before: Callable[[], None] = lambda: None,
    outcome: Callable[[Decision, Transition], Transition] = lambda decision, seen: seen,
) -> list[Decision]:
    """The rest of an episode. `before` is called before each decision; `outcome` says what is observed after it."""
    decisions: list[Decision] = []
    for now in range(step, world.problem.horizon):
        before()
        decisions.append(agent.act(now, state))
        seen = world.step(decisions[-1], streams)
        agent.observe(outcome(decisions[-1], seen))
        state = seen.next_state
    return decisions


def snapshot(agent: Any) -> dict[str, Any]:
    """Everything that the agent's future can depend on, by the names of its attributes."""
    return {name: essence(value) for name, value in vars(agent).items() if name not in getattr(agent, "buffers", ())}


def essence(thing: Any) -> Any:
    """A value that is equal for two things exactly when they are equal bit for bit (NaN equals NaN)."""
    if type(thing) in PLAIN:
        return thing
    if isinstance(thing, np.ndarray):
        return ("array", thing.dtype.str, thing.shape, thing.tobytes())
    if isinstance(thing, np.generic):
        return essence(np.asarray(thing))
    if isinstance(thing, float):
        return ("float", pack("d", thing))
    if isinstance(thing, dict):
        return ("dict", tuple((essence(key), essence(value)) for key, value in thing.items()))
    if isinstance(thing, set | frozenset):
        return ("set", frozenset(essence(entry) for entry in thing))
    if isinstance(thing, np.random.Generator):
        return ("generator", repr(thing.bit_generator.state))
    if isinstance(thing, Visited):
        known = (thing.index, thing.states, thing.baseline_cost, thing.final_reward, thing.alarms)
        return ("Visited", essence(known), essence([(thing.members(g), thing.moment(g)) for g in range(thing.stages)]))
    if isinstance(getattr(thing, "fields", None), dict):  # a record of the kernels
        return (type(thing).__name__, essence(dict(thing.fields)))
    if isinstance(thing, Problem) or callable(thing):
        return ("same object", id(thing))
    if is_dataclass(thing):
        return (type(thing).__name__, tuple((f.name, essence(getattr(thing, f.name))) for f in fields(thing)))
    if isinstance(thing, tuple | list):
        names = getattr(thing, "_fields", range(len(thing)))
        return (type(thing).__name__, tuple((name, essence(entry)) for name, entry in zip(names, thing, strict=True)))
    if hasattr(thing, "__dict__") and "__eq__" not in vars(type(thing)):
        return (type(thing).__name__, essence(snapshot(thing)))
    return thing


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of the attributes in which two snapshots differ."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _require(holds: Any, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _require_same(first: Sequence[Any], second: Sequence[Any], what: str) -> None:
    for number, (one, two) in enumerate(zip(first, second, strict=True)):
        if essence(one) != essence(two):
            raise AssertionError(f"{what}: number {number} differs, {one} and {two}")


def _require_unchanged(before: dict[str, Any], after: dict[str, Any], what: str) -> None:
    names = changed(before, after)
    _require(not names, f"{what}: {', '.join(names)} differ")


def _require_refused(agent: Agent, outcome: Transition, what: str) -> None:
    before = snapshot(agent)
    try:
        agent.observe(outcome)
    except TetherError:
        _require_unchanged(before, snapshot(agent), f"{what} was refused, but left a trace")
    else:
        raise AssertionError(f"{what} was not refused")
