"""learn: any Gymnasium environment, features, a safe action and a threshold; back comes what was learned."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from inspect import signature
from time import monotonic
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from tether.agents.agent import Agent, LeastSquaresAgent
from tether.agents.own_bound import own_bounds
from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.arguments import MOVED, explained
from tether.check.monitor import Monitor
from tether.check.problem_check import REWARD
from tether.errors import InputError
from tether.gym.bridge import Bridge
from tether.gym.callbacks import Callback, Episode, check_callbacks, progress_bar
from tether.gym.comparison import check_count
from tether.gym.comparison import compare as compare_with_safe
from tether.gym.result import LearningResult
from tether.gym.spaces import Actions, AnyFeatures
from tether.gym.step import check_takes, owned
from tether.problem.constraint import Constraint
from tether.problem.keys import rebuilt
from tether.problem.limit_on import CAVEAT, LimitOn, is_average
from tether.problem.problem import Problem
from tether.records import Array, Decision, Reason, Transition, settle

AgentFactory = Callable[[Problem, np.random.Generator], Agent]

VALUE_RIDGE = 1e-8
"""λ of the value regression where `learn` chooses it, about √(rounding): a direction of length 10⁻⁴ counts as seen."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """How `learn` runs: what is shown, called, tested and compared on the way.

    Attributes:
        progress: show a bar; None shows it on a terminal.
        on_step: called after each step with the decision and the transition.
        callbacks: called after each episode with an `Episode`; `TensorBoard` and `MLflow` of `tether.gym.callbacks`
            are ready to use.
        compare: episodes to play with what was learned, and as many with the safe action from the same seeds, after
            the run, so that `summary` can say what was gained; nothing is learned from them. None: a tenth of
            `episodes`, at least 5; 0: none.
        watch: test the assumptions online (`tether.Monitor`); an alarm leaves only the safe action.
        check: first play 1000 steps, the safe action and then certified ones, and run every test of `Bridge.check` on
            them; what fails is an AssumptionError, and nothing is learned.
    """

    progress: bool | None = None
    on_step: Callable[[Decision, Transition], None] | None = None
    callbacks: Sequence[Callback] = ()
    compare: int | None = None
    watch: bool = True
    check: bool = False

    def __post_init__(self) -> None:
        check_count("compare", 0 if self.compare is None else self.compare)
        settle(self, callbacks=check_callbacks(self.callbacks))
        if self.on_step is not None:
            if not callable(self.on_step):
                raise InputError(f"on_step must be a function, or None, but is {self.on_step!r}.")
            check_takes(self.on_step, "on_step", "decision", "transition")


MOVED_TO_RUN = {name.name: f"run=Run({name.name}=…)" for name in fields(Run)}
MOVED_TO_BRIDGE = {
    name: f"learn(tether.Bridge(env, …, {name}=…), …)"
    for name in ("reward_noise", "feature_norm", "key", "reset_options", "names")
}
MOVED_TO_AGENT = {one.name: f"agent=tether.SlucbConfig({one.name}=…)" for one in fields(SlucbConfig)}
AVERAGE = f"limit_on='average over draws'. Note: {CAVEAT}"
MOVED_HERE = {
    **MOVED_TO_AGENT, **MOVED, **MOVED_TO_RUN, **MOVED_TO_BRIDGE,
    "config": "agent=tether.SlucbConfig(…)", "mixtures": AVERAGE, "randomised": AVERAGE,
}  # fmt: skip
"""Where words stand that somebody may hand to `learn`."""


@explained(MOVED_HERE)
def learn(
    env: Any,
    *,
    features: AnyFeatures | None = None,
    safe_action: Any = None,
    constraints: Constraint | Sequence[Constraint] | None = None,
    episodes: int = 1000,
    seed: int = 0,
    horizon: int | None = None,
    actions: Actions | None = None,
    reward_range: tuple[float, float] | None = None,
    confidence: float = 0.01,
    limit_on: LimitOn = "single actions",
    stationary: bool = False,
    agent: SlucbConfig | AgentFactory | None = None,
    run: Run | None = None,
) -> LearningResult:
    """Learn on a Gymnasium environment, keeping every step's expected cost under the threshold.

    Args:
        env: the environment; Discrete actions, a Box of real numbers, or any space with listed `actions`. Or a Bridge,
            which has been told already what stands below up to `confidence`. Or several environments of one kind, a
            list or a SyncVectorEnv: episodes run in all of them at once, a step in turn, and one learner learns from
            all. The first of them is that of the result's bridge and comparison.
        features: φ(observation, action) as a function or ActionFeatures; or state features. Required.
        safe_action: a_0, or a function observation -> a_0(s). Required.
        constraints: `Constraint(threshold=…, noise=…, safe_cost=…)`, or several. Required.
        episodes: K.
        seed: seeds the environment and the agent; the same seed gives the same run.
        horizon: H; None takes env.spec.max_episode_steps.
        actions: the list of actions, a function observation -> those allowed there, `Mask(entry)`, or `Targets(points)`
            for the ends of the rays of a Box; None: all of them, and the walls of a Box.
        reward_range: (lo, hi), mapped to [0, 1]. Learning needs it, safety does not.
        confidence: δ, the probability with which the cost event may fail over the whole run.
        limit_on: "single actions": every action that is played keeps to the limit. "average over draws": actions are
            drawn with probabilities (RSLUCB-QVI), and only the average over the draw keeps to it. Single actions may
            then exceed the limit: right for risks, wrong for temperatures. Needs safe_cost.
        stationary: one regression for all steps; right if costs, rewards and dynamics do not depend on the step.
        agent: a `SlucbConfig` with every setting; by default plans are renewed in every episode for Discrete
            observations, and when the information has doubled for others, and values are explored by `learning_config`.
            Or a function (problem, rng) -> an agent of your own, or a restored one.
        run: what is shown, called, tested and compared on the way: `Run(progress=…, callbacks=…, compare=…)`.

    Returns:
        What was learned and what happened. Ctrl-C returns what was learned so far, with `interrupted=True`.
    """
    run = Run() if run is None else run
    if not isinstance(run, Run):
        raise InputError(f"run must be a tether.Run(…), but is {run!r}.")
    given = {
        "features": features, "safe_action": safe_action, "constraints": constraints, "horizon": horizon,
        "actions": actions, "reward_range": reward_range, "confidence": confidence,
    }  # fmt: skip
    bridge = _bridge(env, {name: one for name, one in given.items() if one is not _DEFAULTS[name]})
    for name, count in (("seed", seed), ("episodes", episodes)):
        check_count(name, count)
    averages = is_average(limit_on)
    if run.check:
        bridge.check(seed=seed, pooled=stationary, limit_on=limit_on).require(besides=(REWARD,))
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    learner: Agent
    if agent is None or isinstance(agent, SlucbConfig):
        learner = default_agent(bridge, rng, limit_on=limit_on, stationary=stationary, config=agent)
    elif not callable(agent):
        raise InputError(f"agent must be a tether.SlucbConfig(…) or a function (problem, rng), but is {agent!r}.")
    elif averages or stationary:
        raise InputError("limit_on and stationary choose Tether's agent, but agent=… brings its own.")
    else:
        learner = agent(bridge.problem, rng)
    if run.watch:
        attach_monitor(learner, bridge.problem)
    pairs = max(5, episodes // 10) if run.compare is None else run.compare
    bridges = [bridge, *(bridge.beside(other) for other in _several(env)[1:])]
    rows: list[_Row] = []
    bounds, began, interrupted = "cost", monotonic(), False
    with progress_bar(int(episodes), run.progress) as bar, _first_interrupt_waits() as asked:
        try:
            for row, decision, outcome in play(bridges, learner, int(episodes), seed):
                rows.append(row)
                bounds = decision.tightest.bounds
                if run.on_step is not None:
                    run.on_step(decision, outcome)
                if asked:
                    break
                if row.ends_episode and (bar or run.callbacks):
                    finished = _episode_of(rows[-bridge.problem.horizon * len(bridges) :], bridge.problem)
                    for listener in (*bar, *run.callbacks):
                        listener(finished)
        except KeyboardInterrupt:
            interrupted = True
    seconds = monotonic() - began
    rows.sort(key=lambda row: row.episode)  # several environments take turns; the steps of each stay in order
    episode, reward, costs, bound, own, is_baseline, reasons, _ = zip(*rows, strict=True) if rows else ((),) * 8
    stopped, m = interrupted or bool(asked), len(bridge.problem.constraints)
    comparison = None
    if not stopped and not all(is_baseline):
        with suppress(KeyboardInterrupt):  # what was learned is not lost
            comparison = compare_with_safe(bridge, learner, int(pairs), seed)
    return LearningResult(
        agent=learner,
        bridge=bridge,
        seed=seed,
        interrupted=stopped,
        seconds=seconds,
        episode=np.array(episode, dtype=np.int64),
        reward=np.array(reward, dtype=np.float64),
        cost=_measured(costs, bridge.problem),
        bound=np.array(bound, dtype=np.float64).reshape(-1, m),
        own_bound=np.array(own, dtype=np.float64).reshape(-1, m),
        is_baseline=np.array(is_baseline, dtype=np.bool_),
        reasons=dict(Counter(reasons)),
        bounds=bounds,
        alarms=_alarms(learner),
        comparison=comparison,
    )


REQUIRED = ("features", "safe_action", "constraints")
_DEFAULTS = {name: one.default for name, one in signature(learn).parameters.items()}


def _several(env: Any) -> list[Any]:
    """The environments that `learn` was given: of a list, of a vector whose parts can be stepped alone, or just one."""
    together = isinstance(env, VectorEnv) and hasattr(env, "envs")
    several = list(env) if isinstance(env, list | tuple) else list(env.envs) if together else [env]
    if not several:
        raise InputError("env is an empty list: give at least one environment.")
    made = [id(one) for one in several if not isinstance(one, type)]
    if len(set(made)) < len(made):
        raise InputError("env lists one environment twice, whose episodes would mix: make one for each place.")
    return several


def _bridge(env: Any, declared: dict[str, Any]) -> Bridge:
    """The environment, of several the first, as a problem, from the arguments of `learn` that were given."""
    if not isinstance(env, Bridge):
        missing = ", ".join(f"{name}=…" for name in REQUIRED if name not in declared)
        if missing:
            raise TypeError(f"learn() needs {missing}: see help(tether.learn), or docs/own-environment.md.")
        return Bridge(_several(env)[0], **declared)
    if declared:
        raise InputError(f"env is a Bridge already, so {sorted(declared)} belong to the Bridge, not to learn.")
    return env


def learning_config(*, listed: bool) -> SlucbConfig:
    """The settings that `learn` takes by itself; `listed`: whether observations are Discrete, so that they come back.

    Its own value radius and ridge (docs/own-environment.md): optimism for directions that were never seen, and what was
    seen is taken at its estimate. Features that a user scales to norm 1 are small in most directions, and a ridge of 1
    would hide them for thousands of steps.
    """
    config = SlucbConfig(value_radius="unseen", value_ridge=VALUE_RIDGE)
    return replace(config, backup="tables", replan="every-episode") if listed else config


def default_agent(
    bridge: Bridge, rng: np.random.Generator, *, limit_on: LimitOn, stationary: bool, config: SlucbConfig | None
) -> SlucbQvi:
    """SLUCB-QVI or RSLUCB-QVI with the settings that suit the environment."""
    listed = isinstance(bridge.env.observation_space, spaces.Discrete)
    chosen = config or learning_config(listed=listed)
    chosen = replace(chosen, pooled=chosen.pooled or stationary)
    return RslucbQvi(bridge.problem, chosen, rng=rng) if is_average(limit_on) else SlucbQvi(bridge.problem, chosen)


def attach_monitor(agent: Agent, problem: Problem) -> None:
    """Attach the online tests to an agent that can carry them, has none, and has learned nothing yet."""
    if isinstance(agent, LeastSquaresAgent) and agent.watch is None and agent.data_version == 0:
        pooled = bool(getattr(getattr(agent, "config", None), "pooled", False))
        agent.watch = Monitor(problem, pooled=pooled)


def _alarms(agent: Agent) -> list[str]:
    """The alarms of the agent and of its online tests, in words."""
    if not isinstance(agent, LeastSquaresAgent):
        return []
    found = [agent.tripped_by] if agent.tripped_by else []
    places = agent.alarms
    if places:
        (step, key), more = places[0], f", and in {len(places) - 1} more places" if len(places) > 1 else ""
        where = f"at step {step}, {agent.problem.names.place(rebuilt(key))}{more}"
        found.append(f"{where}, the declared cost of the safe action contradicts the data")
    return found


class _Row(NamedTuple):
    """What is kept of one step."""

    episode: int
    reward: float
    cost: Any
    bound: list[float]
    own_bound: Array
    is_baseline: bool
    reason: Reason
    ends_episode: bool


def _episode_of(rows: list[_Row], problem: Problem) -> Episode:
    """The episode of the last of these rows, which has just ended."""
    last = [row for row in rows if row.episode == rows[-1].episode]
    costs, bounds = _measured([row.cost for row in last], problem), np.array([row.bound for row in last])
    return Episode(
        number=rows[-1].episode,
        steps=len(last),
        total=sum(row.reward for row in last),
        cost=np.fmax.reduce(costs, axis=0),
        margin=(np.array(problem.threshold) - bounds).min(axis=0),
        baseline_share=sum(row.is_baseline for row in last) / len(last),
    )


def _measured(costs: Iterable[Any], problem: Problem) -> Array:
    """Observed costs (T, M), NaN where there was none."""
    m = len(problem.constraints)
    rows = [np.full(m, np.nan) if cost is None else np.reshape(cost, m) for cost in costs]
    return np.array(rows, dtype=np.float64).reshape(-1, m)


_Step = tuple[_Row, Decision, Transition]


def play(bridges: list[Bridge], agent: Agent, episodes: int, seed: int) -> Iterator[_Step]:
    """One episode per environment at a time, a step of each in turn; one that has ended makes room for the next."""
    numbers = iter(range(episodes))

    def one_after_another(bridge: Bridge, first: int | None) -> Iterator[_Step]:
        for number in numbers:
            yield from _episode(bridge, agent, number, first)
            first = None

    playing = [one_after_another(bridge, seed + place) for place, bridge in enumerate(bridges)]
    while playing:
        for each in list(playing):
            step = next(each, None)
            if step is None:
                playing.remove(each)
            else:
                yield step


def _episode(bridge: Bridge, agent: Agent, number: int, seed: int | None) -> Iterator[_Step]:
    """The three calls of every loop: plan, then act and observe until the horizon or the end of the episode."""
    state, horizon = bridge.start(seed), bridge.problem.horizon
    agent.plan()
    for step in range(horizon):
        decision = agent.act(step, state, **bridge.stamp)
        outcome, stepped = bridge.play(decision)
        own = own_bounds(agent, decision)
        agent.observe(outcome)
        ends = stepped.terminated or stepped.truncated or step == horizon - 1
        bound = [evidence.bound for evidence in decision.evidence]
        row = _Row(number, stepped.reward, outcome.cost, bound, own, decision.is_baseline, decision.reason, ends)
        state = owned(outcome.next_state)  # who is shown the outcome may write into it
        yield row, decision, outcome
        if ends:
            break


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
