"""learn: any Gymnasium environment, features, a safe action and a threshold; back comes what was learned."""

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from inspect import signature
from itertools import takewhile
from types import FrameType
from typing import Any, Literal, NamedTuple, Never

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from tether.agents.agent import Agent, LeastSquaresAgent
from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.check.monitor import Monitor
from tether.errors import InputError, nearest
from tether.gym.bridge import AnyFeatures, Bridge, CostSource
from tether.problem.problem import Problem
from tether.records import Array, Decision, Reason, State, Transition

AgentFactory = Callable[[Problem, np.random.Generator], Agent]


@dataclass(frozen=True, eq=False)
class LearningResult:
    """T steps in K episodes. Arrays over steps share their order; `episode` says which step belongs where.

    Attributes:
        agent: the learner, ready to go on; `agent.save(path)` keeps it.
        bridge: the environment as a problem.
        seed: what the run was seeded with.
        interrupted: whether it was stopped by Ctrl-C before all episodes were played.
        seconds: how long it took.
        episode: number of the episode of each step, (T,).
        reward: the environment's own reward, (T,).
        cost: the observed, noisy cost, (T, M); NaN where it was not measured.
        bound: the certified bound on the step's cost, (T, M).
        is_baseline: whether the safe action was played, (T,).
        reasons: how often each reason was given.
        bounds: what the bounds speak of: "cost", "expected cost" over the agent's own coin, or "realised cost".
        alarms: declared safe costs that contradict the data, and what the online tests of the assumptions found.
    """

    agent: Agent
    bridge: Bridge
    seed: int
    interrupted: bool
    seconds: float
    episode: NDArray[np.int64]
    reward: Array
    cost: Array
    bound: Array
    is_baseline: NDArray[np.bool_]
    reasons: dict[Reason, int]
    bounds: str
    alarms: list[str]

    @property
    def problem(self) -> Problem:
        """What the learner was told."""
        return self.bridge.problem

    @property
    def episodes(self) -> int:
        """Episodes that were begun."""
        return int(self.episode[-1]) + 1 if len(self.episode) else 0

    @property
    def returns(self) -> Array:
        """The sum of rewards of each episode, (K,)."""
        total: Array = np.bincount(self.episode, self.reward, self.episodes).astype(np.float64)
        return total

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each episode, (K,)."""
        return np.bincount(self.episode, minlength=self.episodes)

    @property
    def baseline_share(self) -> Array:
        """The share of steps of each episode on which the safe action was played, (K,)."""
        share: Array = np.bincount(self.episode, self.is_baseline, self.episodes) / np.maximum(self.lengths, 1)
        return share

    @property
    def violations(self) -> int:
        """Steps whose *observed* cost was over τ. Noise alone can do that; the certificate speaks of expected cost."""
        return int((self.cost > np.array(self.problem.threshold)).any(axis=1).sum())

    def summary(self) -> str:
        """The run in a few lines for people."""
        if not self.episodes:
            return "no step was played."
        part = max(1, self.episodes // 10)
        early, late = slice(None, part), slice(-part, None)
        earned, safe = self.returns, self.baseline_share
        lines = [
            self.bridge.describe(),
            f"{self.episodes} episodes, {len(self.reward)} steps in {self.seconds:.1f} s, seed {self.seed}"
            + (", INTERRUPTED" if self.interrupted else ""),
            f"mean return: {earned[early].mean():.4g} in the first {part} episodes, "
            f"{earned[late].mean():.4g} in the last {part}",
            f"safe action played: {safe[early].mean():.0%} of steps at first, {safe[late].mean():.0%} at the end",
            f"{self.bounds}: largest certified bound {_largest(self.bound)}, τ = "
            f"{_largest(np.array([self.problem.threshold]))}",
            f"largest observed (noisy) cost {_largest(self.cost)}; {self.violations} steps observed over τ",
        ]
        if self.bridge.odd_rewards:
            lines.append(f"{self.bridge.odd_rewards} rewards lay outside reward_range: learning may suffer, safety not")
        lines += [f"ALARM: {alarm}" for alarm in self.alarms]
        return "\n".join(lines)


def _largest(numbers: Array) -> str:
    """The largest of each column (T, M) that is known, in words."""
    largest = np.where(np.isnan(numbers), -np.inf, numbers).max(axis=0)
    return ", ".join(f"{number:.4g}" for number in largest)


def learn(
    env: Any,
    *,
    features: AnyFeatures | None = None,
    safe_action: Any = None,
    threshold: float | Sequence[float] | None = None,
    episodes: int = 1000,
    seed: int = 0,
    cost: CostSource = "cost",
    noise: float | Sequence[float] | None = None,
    baseline_cost: float | Sequence[float] | Callable[[int, State], float | Sequence[float]] | None = None,
    horizon: int | None = None,
    actions: Sequence[Any] | Callable[[State], Sequence[Any]] | None = None,
    mask: str | None = None,
    targets: ArrayLike | Callable[[State], ArrayLike] | None = None,
    reward_range: tuple[float, float] | None = None,
    confidence: float = 0.01,
    gamma_norm: float | Sequence[float] | None = None,
    feature_norm: float = 1.0,
    tight_baseline: Literal["error", "baseline"] = "error",
    gap_floor: float = 0.0,
    misfit: float | Sequence[float] = 0.0,
    reward_noise: float = 0.0,
    limit: Literal["expected", "realised"] = "expected",
    exceedance: float = 0.05,
    noise_scales: bool = False,
    key: Callable[[State], Hashable] | None = None,
    reset_options: dict[str, Any] | None = None,
    mixtures: bool = False,
    stationary: bool = False,
    config: SlucbConfig | None = None,
    agent: AgentFactory | None = None,
    watch: bool = True,
    progress: bool | None = None,
    on_step: Callable[[Decision, Transition], None] | None = None,
    **misspelt: Never,
) -> LearningResult:
    """Learn on a Gymnasium environment, keeping every step's expected cost under the threshold.

    Args:
        env: the environment; Discrete actions, a Box of real numbers, or any space with listed `actions`. Or a Bridge,
            which has been told already what stands below from `features` to `reset_options`.
        features: φ(observation, action) as a function or ActionFeatures; or state features. Required.
        safe_action: a_0, or a function observation -> a_0(s). Required.
        threshold: τ of every *step's* expected cost, or one per constraint. Required.
        episodes: K.
        seed: seeds the environment and the agent; the same seed gives the same run.
        cost: the entry of `info` that holds the cost, a tuple of entries, or a function (observation, action,
            next_observation, info) -> cost.
        noise: σ of the cost's noise; None means costs in [0, 1].
        baseline_cost: the known cost of a_0: a number, or a function (step, observation); None if unknown.
        horizon: H; None takes env.spec.max_episode_steps.
        actions: the list of actions, or a function observation -> those allowed there.
        mask: the entry of `info` that says which Discrete actions are allowed.
        targets: where the rays of a Box end; None: at its walls.
        reward_range: (lo, hi), mapped to [0, 1]. Learning needs it, safety does not.
        confidence, gamma_norm, feature_norm, tight_baseline, gap_floor, misfit, limit, exceedance, noise_scales: δ, B,
            ε, what τ limits, and others, as in Problem.
        reward_noise: σ_r of the environment's own rewards, in their units; 0 if they are exact.
        key: observation -> something hashable, for dictionaries and the like.
        reset_options: handed to every env.reset.
        mixtures: RSLUCB-QVI instead of SLUCB-QVI: plays an action with a probability, and bounds the *expected* cost
            over its own coin. What a finite set without shared features needs to get anywhere. Needs baseline_cost.
        stationary: one regression for all steps; right if costs, rewards and dynamics do not depend on the step.
        config: every setting of the agent; by default plans are renewed in every episode for Discrete observations, and
            when the information has doubled for others.
        agent: (problem, rng) -> an agent of your own, or a restored one, instead.
        watch: test the assumptions online (`tether.Monitor`); an alarm leaves only the safe action.
        progress: show a bar; None shows it on a terminal.
        on_step: called after each step with the decision and the transition.

    Ctrl-C returns what was learned so far, with `interrupted=True`.
    """
    bridge = _bridge(locals())
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    if agent is None:
        learner = _default_agent(bridge, rng, mixtures, stationary, config)
    elif mixtures or stationary or config is not None:
        raise InputError("mixtures, stationary and config choose Tether's agent, but agent=… brings its own.")
    else:
        learner = agent(bridge.problem, rng)
    if watch:
        _watch(learner, bridge.problem)
    if not (isinstance(episodes, int | np.integer) and episodes >= 0):
        raise InputError(f"episodes must be an integer >= 0, but is {episodes!r}.")
    rows: list[_Row] = []
    bounds, began, interrupted = "cost", time.monotonic(), False
    with _progress_bar(int(episodes), progress) as show, _first_interrupt_waits() as asked:
        try:
            for row, decision, outcome in _play(bridge, learner, int(episodes), seed):
                rows.append(row)
                bounds = decision.tightest.bounds
                if on_step is not None:
                    on_step(decision, outcome)
                if asked:
                    break
                if row.ends_episode:
                    show(rows)
        except KeyboardInterrupt:
            interrupted = True
    episode, reward, costs, bound, is_baseline, reasons, _ = zip(*rows, strict=True) if rows else ((),) * 7
    m = bridge.problem.constraints
    measured = [np.full(m, np.nan) if z is None else np.reshape(z, m) for z in costs]
    return LearningResult(
        agent=learner,
        bridge=bridge,
        seed=seed,
        interrupted=interrupted or bool(asked),
        seconds=time.monotonic() - began,
        episode=np.array(episode, dtype=np.int64),
        reward=np.array(reward, dtype=np.float64),
        cost=np.array(measured, dtype=np.float64).reshape(-1, m),
        bound=np.array(bound, dtype=np.float64).reshape(-1, m),
        is_baseline=np.array(is_baseline, dtype=np.bool_),
        reasons=dict(Counter(reasons)),
        bounds=bounds,
        alarms=_alarms(learner),
    )


def _bridge(given: dict[str, Any]) -> Bridge:
    """The environment as a problem, from the arguments of `learn`."""
    allowed = signature(learn).parameters
    for name in given["misspelt"]:
        raise TypeError(f"learn() got an unexpected keyword argument {name!r}{nearest(name, list(allowed)[:-1])}")
    env, names = given["env"], [one.name for one in fields(Bridge) if one.init and one.name != "env"]
    told = {name: given[name] for name in names if given[name] is not allowed[name].default}
    if not isinstance(env, Bridge):
        return Bridge(env, **told)
    if told:
        raise InputError(f"env is a Bridge already, so {sorted(told)} belong to the Bridge, not to learn.")
    return env


def _default_agent(
    bridge: Bridge, rng: np.random.Generator, mixtures: bool, stationary: bool, config: SlucbConfig | None
) -> Agent:
    """SLUCB-QVI or RSLUCB-QVI with the settings that suit the environment."""
    listed = isinstance(bridge.env.observation_space, spaces.Discrete)
    chosen = config or (SlucbConfig(backup="tables", replan="every-episode") if listed else SlucbConfig())
    chosen = replace(chosen, pooled=chosen.pooled or stationary)
    return RslucbQvi(bridge.problem, chosen, rng=rng) if mixtures else SlucbQvi(bridge.problem, chosen)


def _watch(agent: Agent, problem: Problem) -> None:
    """Attach the online tests to an agent that can carry them, has none, and has learned nothing yet."""
    if isinstance(agent, LeastSquaresAgent) and agent.watch is None and agent.data_version == 0:
        pooled = bool(getattr(getattr(agent, "config", None), "pooled", False))
        agent.watch = Monitor(problem, pooled=pooled)


def _alarms(agent: Agent) -> list[str]:
    """What the agent and its online tests have to say, in words."""
    if not isinstance(agent, LeastSquaresAgent):
        return []
    contradicted = [
        f"at step {step}, state {key!r}, the declared cost of the safe action contradicts the data"
        for step, key in agent.alarms
    ]
    return contradicted + ([agent.tripped_by] if agent.tripped_by else [])


class _Row(NamedTuple):
    """What is kept of one step."""

    episode: int
    reward: float
    cost: Any
    bound: list[float]
    is_baseline: bool
    reason: Reason
    ends_episode: bool


def _play(bridge: Bridge, agent: Agent, episodes: int, seed: int) -> Iterator[tuple[_Row, Decision, Transition]]:
    """The three calls of every loop: plan, then act and observe until the horizon or the end of the episode."""
    horizon = bridge.problem.horizon
    for episode in range(episodes):
        state = bridge.start(seed if episode == 0 else None)
        agent.plan()
        for step in range(horizon):
            decision = agent.act(step, state)
            outcome, stepped = bridge.play(decision)
            agent.observe(outcome)
            ends = stepped.terminated or stepped.truncated or step == horizon - 1
            bound = [evidence.bound for evidence in decision.evidence]
            row = _Row(episode, stepped.reward, outcome.cost, bound, decision.is_baseline, decision.reason, ends)
            yield row, decision, outcome
            if ends:
                break
            state = outcome.next_state


@contextmanager
def _first_interrupt_waits() -> Iterator[list[int]]:
    """A list that the first Ctrl-C fills, so that nothing learned is lost; a second one interrupts at once, as usual.

    Outside the main thread, or where somebody else handles the signal, nothing is changed.
    """
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    replaced = usual and threading.current_thread() is threading.main_thread()
    if replaced:
        signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        if replaced:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _progress_bar(total: int, wanted: bool | None) -> Iterator[Callable[[list[_Row]], None]]:
    """What to call after each episode. `wanted` None: shown only if stderr is a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("learning", total=total)

        def show(rows: list[_Row]) -> None:
            last = list(takewhile(lambda row: row.episode == rows[-1].episode, reversed(rows)))
            earned, safe = sum(row.reward for row in last), sum(row.is_baseline for row in last) / len(last)
            bar.update(task, advance=1, description=f"return {earned:.4g}, safe action {safe:.0%}")

        yield show
