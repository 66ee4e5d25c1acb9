"""Ctrl-C between two steps instead of in the middle of one, so that nothing learned is lost."""

import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Any, Self

import numpy as np
from gymnasium import spaces

from tether.agents.agent import Agent, LeastSquaresAgent
from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.check.monitor import Monitor
from tether.errors import InputError
from tether.gym.bridge import Bridge
from tether.gym.result import LearningResult, Recorder
from tether.problem.problem import Problem
from tether.records import Decision, Transition


class Interruption:
    """While entered, the first Ctrl-C only sets `asked`; a second one interrupts at once, as usual.

    Outside the main thread, or where somebody else handles the signal, nothing is changed.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Self:
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


# A progress bar on a terminal, and nothing elsewhere.


class Bar:
    """Episodes done, time left and the return of the last episode. `wanted` None: only if stderr is a terminal."""

    def __init__(self, total: int, wanted: bool | None) -> None:
        self._total, self._bar, self._task = total, None, None
        self._wanted = sys.stderr.isatty() if wanted is None else wanted

    def __enter__(self) -> Self:
        if self._wanted:
            from rich.console import Console
            from rich.progress import Progress

            bar: Any = Progress(console=Console(stderr=True), transient=True)
            bar.start()
            self._bar, self._task = bar, bar.add_task("learning", total=self._total)
        return self

    def advance(self, earned: float, safe: float) -> None:
        """One more episode: its return, and the share of safe actions in it."""
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=f"return {earned:.4g}, safe action {safe:.0%}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


# learn: any Gymnasium environment, features, a safe action and a threshold; back comes what was learned.

AgentFactory = Callable[[Problem, np.random.Generator], Agent]


def learn(
    env: Any,
    *,
    episodes: int = 1000,
    seed: int = 0,
    mixtures: bool = False,
    stationary: bool = False,
    config: SlucbConfig | None = None,
    agent: AgentFactory | None = None,
    watch: bool = True,
    progress: bool | None = None,
    on_step: Callable[[Decision, Transition], None] | None = None,
    **told: Any,
) -> LearningResult:
    """Learn on a Gymnasium environment, keeping every step's expected cost under the threshold.

    `told` is what `Bridge` takes: features, safe_action and threshold (required), cost, noise, baseline_cost, …

    Args:
        env: the environment, or a Bridge.
        episodes: K.
        seed: seeds the environment and the agent; the same seed gives the same run.
        mixtures: RSLUCB-QVI instead of SLUCB-QVI: plays an action with a probability, and bounds the *expected* cost
            over its own coin. What a finite set without shared features needs to get anywhere. Needs baseline_cost.
        stationary: one regression for all steps; right if costs, rewards and dynamics do not depend on the step.
        config: every choice of the agent; by default plans are renewed in every episode for Discrete observations, and
            when the information has doubled for others.
        agent: (problem, rng) -> an agent of your own, or a restored one, instead.
        watch: test the assumptions online (`tether.check.monitor.Monitor`); an alarm leaves only the safe action.
        progress: show a bar; None shows it on a terminal.
        on_step: called after each step with the decision and the transition.

    Ctrl-C returns what was learned so far, with `interrupted=True`.
    """
    bridge = _bridge(env, told)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    learner = _agent(bridge, rng, mixtures, stationary, config, agent)
    if watch:
        _watch(learner, bridge.problem)
    if not (isinstance(episodes, int | np.integer) and episodes >= 0):
        raise InputError(f"episodes must be an integer >= 0, but is {episodes!r}.")
    recorder, began, interrupted = Recorder(), time.monotonic(), False
    with Bar(int(episodes), progress) as bar, Interruption() as interruption:
        try:
            for episode in range(episodes):
                _play_episode(bridge, learner, episode, seed, recorder, on_step, interruption)
                if interruption.asked:
                    break
                bar.advance(*recorder.last(episode))
        except KeyboardInterrupt:
            interrupted = True
    return recorder.result(
        learner,
        bridge,
        seed=seed,
        interrupted=interrupted or interruption.asked,
        seconds=time.monotonic() - began,
        alarms=_alarms(learner),
    )


def _play_episode(
    bridge: Bridge,
    agent: Agent,
    episode: int,
    seed: int,
    recorder: Recorder,
    on_step: Callable[[Decision, Transition], None] | None,
    interruption: Interruption,
) -> None:
    """The three calls of every loop: plan, then act and observe until the horizon or the end of the episode."""
    state = bridge.start(seed if episode == 0 else None)
    agent.plan()
    for step in range(bridge.problem.horizon):
        if interruption.asked:
            return
        decision = agent.act(step, state)
        played = bridge.play(decision)
        agent.observe(played.transition)
        recorder.add(episode, decision, played)
        if on_step is not None:
            on_step(decision, played.transition)
        if played.over:
            return
        state = played.transition.next_state


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


def _bridge(env: Any, told: dict[str, Any]) -> Bridge:
    if not isinstance(env, Bridge):
        return Bridge(env, **told)
    if told:
        raise InputError(f"env is a Bridge already, so {sorted(told)} belong to the Bridge, not to learn.")
    return env


def _agent(
    bridge: Bridge,
    rng: np.random.Generator,
    mixtures: bool,
    stationary: bool,
    config: SlucbConfig | None,
    factory: AgentFactory | None,
) -> Agent:
    """The user's agent, or SLUCB-QVI or RSLUCB-QVI with the settings that suit the environment."""
    if factory is not None:
        if mixtures or stationary or config is not None:
            raise InputError("mixtures, stationary and config choose Tether's agent, but agent=… brings its own.")
        return factory(bridge.problem, rng)
    listed = isinstance(bridge.env.observation_space, spaces.Discrete)
    chosen = config or (SlucbConfig(backup="tables", replan="every-episode") if listed else SlucbConfig())
    chosen = replace(chosen, pooled=chosen.pooled or stationary)
    if mixtures:
        return RslucbQvi(bridge.problem, chosen, rng=rng)
    return SlucbQvi(bridge.problem, chosen)
