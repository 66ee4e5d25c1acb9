"""learn: any Gymnasium environment, features, a safe action and a threshold; back comes what was learned."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from inspect import signature
from time import monotonic
from types import FrameType
from typing import Any, Literal, NamedTuple, Never

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from tether.agents.agent import Agent, LeastSquaresAgent
from tether.agents.own_bound import own_bounds
from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.check.monitor import Monitor
from tether.check.problem_check import REWARD
from tether.errors import InputError, nearest
from tether.gym.bridge import AnyFeatures, Bridge, CostSource, check_takes, owned
from tether.gym.callbacks import Callback, Episode, check_callbacks, progress_bar
from tether.gym.comparison import check_count
from tether.gym.comparison import compare as compare_with_safe
from tether.gym.result import LearningResult
from tether.problem.keys import rebuilt
from tether.problem.limit_on import CAVEAT, LimitOn, is_average
from tether.problem.names import NO_NAMES, Names
from tether.problem.problem import Problem
from tether.records import Array, Decision, Reason, State, Transition

AgentFactory = Callable[[Problem, np.random.Generator], Agent]

SYMBOLS = {
    "phi": "features", "a_0": "safe_action", "tau": "threshold", "sigma": "noise", "delta": "confidence",
    "H": "horizon", "K": "episodes", "B": "gamma_norm", "epsilon": "misfit", "rho": "drift", "eta": "exceedance",
    "effects": "feature_effects",
    "safe_cost": "baseline_cost", "steps": "episodes", "timesteps": "episodes", "total_timesteps": "episodes",
    "verbose": "progress", "reward_bounds": "reward_range", "reward_scale": "reward_range", "cost_limit": "threshold",
}  # fmt: skip
"""What the docs write as a symbol or in words, or other libraries call it, and somebody may write as an argument."""

VALUE_RIDGE = 1e-8
"""λ of the value regression where `learn` chooses it, about √(rounding): a direction of length 10⁻⁴ counts as seen."""


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
    baseline_cost_error: float | Sequence[float] = 0.0,
    horizon: int | None = None,
    actions: Sequence[Any] | Callable[[State], Sequence[Any]] | None = None,
    mask: str | None = None,
    targets: ArrayLike | Callable[[State], ArrayLike] | None = None,
    reward_range: tuple[float, float] | None = None,
    confidence: float = 0.01,
    gamma_norm: float | Sequence[float] | None = None,
    feature_effects: Sequence[Any] | None = None,
    feature_norm: float = 1.0,
    tight_baseline: Literal["error", "baseline"] = "error",
    gap_floor: float = 0.0,
    misfit: float | Sequence[float] = 0.0,
    drift: float | Sequence[float] = 0.0,
    drift_per: Literal["decision", "second"] = "decision",
    time: str | Callable[[State, dict[str, Any]], float] | None = None,
    reward_noise: float = 0.0,
    limit: Literal["expected", "realised"] = "expected",
    exceedance: float = 0.05,
    noise_scales: bool = False,
    lost: Literal["at-random", "worst-case"] = "at-random",
    cost_range: Sequence[float] | Sequence[Sequence[float]] | None = None,
    cost_kind: str | Sequence[str] = "gaussian",
    key: Callable[[State], Hashable] | None = None,
    reset_options: dict[str, Any] | None = None,
    names: Names = NO_NAMES,
    limit_on: LimitOn = "single actions",
    stationary: bool = False,
    config: SlucbConfig | None = None,
    agent: AgentFactory | None = None,
    watch: bool = True,
    check: bool = False,
    progress: bool | None = None,
    on_step: Callable[[Decision, Transition], None] | None = None,
    callbacks: Sequence[Callback] = (),
    compare: int | None = None,
    **misspelt: Never,
) -> LearningResult:
    """Learn on a Gymnasium environment, keeping every step's expected cost under the threshold.

    Args:
        env: the environment; Discrete actions, a Box of real numbers, or any space with listed `actions`. Or a Bridge,
            which has been told already what stands below from `features` to `names`. Or several environments of one
            kind, a list or a SyncVectorEnv: episodes run in all of them at once, a step in turn, and one learner learns
            from all. The first of them is that of the result's bridge and comparison.
        features: φ(observation, action) as a function or ActionFeatures; or state features. Required.
        safe_action: a_0, or a function observation -> a_0(s). Required.
        threshold: τ of every *step's* expected cost, or one per constraint. Required.
        episodes: K.
        seed: seeds the environment and the agent; the same seed gives the same run.
        cost: the entry of `info` that holds the cost, a tuple of entries, or a function (observation, action,
            next_observation, info) -> cost.
        noise: σ of the cost's noise; None means costs in [0, 1].
        baseline_cost: the known cost of a_0: a number, or a function (step, observation); None if unknown.
        baseline_cost_error: e, how far that may be off; 0 where it is known to all digits.
        horizon: H; None takes env.spec.max_episode_steps.
        actions: the list of actions, or a function observation -> those allowed there.
        mask: the entry of `info` that says which Discrete actions are allowed.
        targets: where the rays of a Box end; None: at its walls.
        reward_range: (lo, hi), mapped to [0, 1]. Learning needs it, safety does not.
        confidence: δ, as in Problem, and so are the others up to noise_scales.
        gamma_norm: B ≥ ‖γ*‖, or one per constraint; None takes √d.
        feature_effects: in place of gamma_norm, what one unit of each feature can change the cost by at most.
        feature_norm: an upper bound on ‖φ‖.
        tight_baseline: what to do where the safe action leaves no gap under τ.
        gap_floor: a gap under τ that the safe action is known to leave where its cost is unknown.
        misfit: ε, how far costs may be from linear.
        drift: ρ, how far γ* may move with each decision, or each second.
        drift_per: "decision" or "second".
        time: where drift is per second, the entry of `info` that holds the environment's own time in seconds, or a
            function (observation, info) -> seconds.
        limit: what τ limits, the expected cost or the realised one.
        exceedance: η, how often a realised cost may exceed τ.
        noise_scales: whether the noise grows with the length that is played.
        lost: what a step's cost counts as that is None: "at-random" leaves it out, which is right only if losing it did
            not depend on it; "worst-case" takes the least favourable value within cost_range.
        cost_range: (lowest, highest) cost, or one such pair per constraint.
        reward_noise: σ_r of the environment's own rewards, in their units; 0 if they are exact.
        cost_kind: "bounded" for costs in [0, 1] such as accidents, certified by likelihood ratios.
        key: observation -> something hashable, for objects of your own that are no dataclasses.
        reset_options: handed to every env.reset.
        names: what people call costs, actions, features and states, and the units: `tether.Names`.
        limit_on: "single actions": every action that is played keeps to the limit. "average over draws": actions are
            drawn with probabilities (RSLUCB-QVI), and only the average over the draw keeps to it. Single actions may
            then exceed the limit: right for risks, wrong for temperatures. Needs baseline_cost.
        stationary: one regression for all steps; right if costs, rewards and dynamics do not depend on the step.
        config: every setting of the agent; by default plans are renewed in every episode for Discrete observations, and
            when the information has doubled for others, and values are explored by `learning_config`.
        agent: (problem, rng) -> an agent of your own, or a restored one, instead.
        watch: test the assumptions online (`tether.Monitor`); an alarm leaves only the safe action.
        check: first play 1000 steps, the safe action and then certified ones, and run every test of `Bridge.check` on
            them; what fails is an AssumptionError, and nothing is learned.
        progress: show a bar; None shows it on a terminal.
        on_step: called after each step with the decision and the transition.
        callbacks: called after each episode with an `Episode`; `TensorBoard` and `MLflow` of `tether.gym.callbacks`
            are ready to use.
        compare: episodes to play with what was learned, and as many with the safe action from the same seeds, after
            the run, so that `summary` can say what was gained; nothing is learned from them. None: a tenth of
            `episodes`, at least 5; 0: none.

    Ctrl-C returns what was learned so far, with `interrupted=True`.
    """
    bridge = _bridge(locals())
    for name, count in (("seed", seed), ("episodes", episodes), ("compare", 0 if compare is None else compare)):
        check_count(name, count)
    listeners, averages = check_callbacks(callbacks), is_average(limit_on)
    for name, function in (("agent", agent), ("on_step", on_step)):
        if function is not None and not callable(function):
            raise InputError(f"{name} must be a function, or None, but is {function!r}.")
    if on_step is not None:
        check_takes(on_step, "on_step", "decision", "transition")
    if check:
        bridge.check(seed=seed, pooled=stationary, limit_on=limit_on).require(besides=(REWARD,))
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    if not isinstance(config, SlucbConfig | None):
        raise InputError(f"config must be a tether.SlucbConfig(…), but is {config!r}.")
    learner: Agent
    if agent is None:
        learner = default_agent(bridge, rng, limit_on=limit_on, stationary=stationary, config=config)
    elif averages or stationary or config is not None:
        raise InputError("limit_on, stationary and config choose Tether's agent, but agent=… brings its own.")
    else:
        learner = agent(bridge.problem, rng)
    if watch:
        attach_monitor(learner, bridge.problem)
    pairs = max(5, episodes // 10) if compare is None else compare
    bridges = [bridge, *(bridge.beside(other) for other in _several(env)[1:])]
    rows: list[_Row] = []
    bounds, began, interrupted = "cost", monotonic(), False
    with progress_bar(int(episodes), progress) as bar, _first_interrupt_waits() as asked:
        try:
            for row, decision, outcome in play(bridges, learner, int(episodes), seed):
                rows.append(row)
                bounds = decision.tightest.bounds
                if on_step is not None:
                    on_step(decision, outcome)
                if asked:
                    break
                if row.ends_episode and (bar or listeners):
                    finished = _episode_of(rows[-bridge.problem.horizon * len(bridges) :], bridge.problem)
                    for listener in (*bar, *listeners):
                        listener(finished)
        except KeyboardInterrupt:
            interrupted = True
    seconds = monotonic() - began
    rows.sort(key=lambda row: row.episode)  # several environments take turns; the steps of each stay in order
    episode, reward, costs, bound, own, is_baseline, reasons, _ = zip(*rows, strict=True) if rows else ((),) * 8
    stopped, m = interrupted or bool(asked), bridge.problem.constraints
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


def _bridge(given: dict[str, Any]) -> Bridge:
    """The environment, of several the first, as a problem, from the arguments of `learn`."""
    allowed = signature(learn).parameters
    for name in given["misspelt"]:
        if name in ("mixtures", "randomised"):
            raise TypeError(f"learn() has no {name!r}; did you mean limit_on='average over draws'? Note: {CAVEAT}.")
        if name in {one.name for one in fields(SlucbConfig)}:
            raise TypeError(
                f"learn() has no {name!r}: it is a setting of the agent, config=tether.SlucbConfig({name}=…)."
            )
        raise TypeError(
            f"learn() got an unexpected keyword argument {name!r}{nearest(SYMBOLS.get(name, name), list(allowed)[:-1])}"
        )
    env, names = given["env"], [one.name for one in fields(Bridge) if one.init and one.name != "env"]
    declared = {name: given[name] for name in names if given[name] is not allowed[name].default}
    if not isinstance(env, Bridge):
        missing = ", ".join(f"{name}=…" for name in ("features", "safe_action", "threshold") if given[name] is None)
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
    m = problem.constraints
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
