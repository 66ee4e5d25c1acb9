"""Is it worth it? What was learned against the safe action, from the same starts where the environment allows it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from tether.agents.agent import Agent
from tether.errors import InputError
from tether.gym.bridge import Bridge
from tether.problem.limit_on import ASK
from tether.records import Array, Reason, State, StateKey

LEVEL = 0.95
"""Of the interval around the gain."""

WHY_SAFE: dict[Reason, str] = {
    "only-baseline": "no other action could be certified. Bounds are tighter with a known safe_cost, which helps "
    "most, a larger gap between τ and the safe cost, fewer or shared features, more episodes, and with a smaller noise "
    "σ, gamma_norm or misfit if that is still true. Yes/no costs have noise=Bounded(). If the limit may hold on "
    f"average only, finite actions with features of their own have {ASK}",
    "baseline-best": "others were certified, but none was expected to earn more: it may be the best there is, or the "
    "rewards are not linear in these features, or noisier than the declared reward_noise",
    "alarm": "the declared cost of the safe action contradicts the data: correct safe_cost, or leave it out",
    "no-slack": "its own cost is not under the threshold (Assumption 2): name a safer action or raise the threshold",
    "warm-up": "its cost was still being measured: play more episodes, or declare safe_cost",
    "tripped": "a test of the assumptions failed, see the alarm",
    "bad-numbers": "some numbers were not finite, so nothing else could be justified",
    "unsolved": "no mixture could be certified as the best one",
}
"""Why the safe action was all that was played, and what to do about it."""


def amount(value: float, sign: str = "") -> str:
    """Four digits, but thousands as people write them: 17540, not 1.754e+04."""
    return f"{value:{sign}.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:{sign}.4g}"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Returns of the learner, which learns nothing meanwhile, and of the safe action, n episodes each.

    Attributes:
        learner, safe: return of each episode, (n,), (n,).
        paired: whether episode i of both began alike, by the same seed; else the two samples are independent.
    """

    learner: Array
    safe: Array
    paired: bool

    @property
    def gain(self) -> float:
        """Mean return of the learner minus that of the safe action."""
        return float(self.learner.mean() - self.safe.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Student's interval around the gain (Welch's where episodes are not paired); infinite for one episode."""
        n = len(self.learner)
        if n < 2:
            return -np.inf, np.inf
        if self.paired:
            variance, freedom = float((self.learner - self.safe).var(ddof=1)) / n, n - 1.0
        else:
            parts = np.array([self.learner.var(ddof=1), self.safe.var(ddof=1)]) / n
            variance = float(parts.sum())
            freedom = (n - 1) * variance**2 / float((parts**2).sum()) if variance > 0.0 else n - 1.0
        reach = float(stdtrit(freedom, 0.5 + LEVEL / 2.0)) * variance**0.5
        return self.gain - reach, self.gain + reach

    def describe(self) -> str:
        """One line for people, which says so where the learner is worse or cannot be told apart."""
        low, high = self.interval
        how = "paired by seed" if self.paired else "not paired: a seed does not repeat a start here"
        gain, low_, high_ = (amount(value, "+") for value in (self.gain, low, high))
        if len(self.learner) == 1:
            return f"against the safe action: {gain} in one episode each, which shows nothing: compare=5 or more"
        line = (
            f"against the safe action: {gain} a return ({LEVEL:.0%} interval {low_} to {high_}; "
            f"{len(self.learner)} episodes each, {how})"
        )
        if high < 0.0:
            return (
                f"{line}. WARNING: worse than the safe action. It still explores, or its values are not linear in "
                "these features: play more episodes or change the features, and keep the safe action until then"
            )
        return line if low > 0.0 else f"{line}. No gain is shown"


def check_count(name: str, count: Any) -> None:
    """Refuse what is no number of things."""
    if not (isinstance(count, int | np.integer) and count >= 0):
        raise InputError(f"{name} must be an integer >= 0, but is {count!r}.")


def compare(bridge: Bridge, agent: Agent, episodes: int, seed: int) -> Comparison | None:
    """Play so many more episodes with the agent as it is, and with the safe action from the same seeds.

    Every step of both is certified or safe, as any other; nothing is learned from them. None if there are no episodes,
    or the agent cannot be asked without playing, or costs drift with each decision: bounds do not age by a peek.
    """
    check_count("episodes", episodes)
    peek, problem = getattr(agent, "peek", None), bridge.problem
    if peek is None or not episodes or (any(problem.drift) and problem.drift_per == "decision"):
        return None
    seeds = np.random.SeedSequence([seed, 2]).generate_state(episodes).tolist()
    coin = getattr(agent, "rng", None)  # a peek tosses it: what comes after must not depend on a comparison
    before = None if coin is None else coin.bit_generator.state
    agent.plan()  # the last plan does not know the last episode, and may still explore what that one has found out
    learned = [
        _episode(bridge, one, lambda step, state: bridge.env_action(peek(step, state, **bridge.stamp))) for one in seeds
    ]
    if coin is not None:
        coin.bit_generator.state = before
    safe = [_episode(bridge, one, lambda step, state: bridge.safe_env_action(state)) for one in seeds]
    paired = all(mine[0] == other[0] for mine, other in zip(learned, safe, strict=True))
    return Comparison(np.array([total for _, total in learned]), np.array([total for _, total in safe]), paired)


def _episode(bridge: Bridge, seed: int, policy: Callable[[int, State], object]) -> tuple[StateKey, float]:
    """The key of the first state, and the return."""
    state = bridge.start(int(seed) >> 1)  # seeds of environments fit into 31 bits
    first, total = bridge.problem.key_of(state), 0.0
    for step in range(bridge.problem.horizon):
        stepped = bridge.step(policy(step, state))
        total += stepped.reward
        if stepped.terminated or stepped.truncated:
            break
        state = bridge.state_of(stepped.observation, stepped.info)
    return first, total
