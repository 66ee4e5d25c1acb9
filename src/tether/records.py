"""The values that cross layers: actions, radii, decisions with their evidence, and transitions."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
State = Any
StateKey = Hashable
Origin = Literal["theorem", "default", "tuned", "exact", "none"]
Proof = Literal["radius", "likelihood"]

Bounded = Literal["cost", "expected cost", "realised cost"]
"""What a bound bounds: the mean cost of an action, its mean over the agent's own draw, or what will be measured."""

Reason = Literal[
    "best",  # the highest score within the certified set
    "baseline-best",  # the safe action itself had the highest score
    "only-baseline",  # no other action is certified, or the chosen ray has no certified length yet
    "alarm",  # the declared safe cost contradicts the data: misspecification (docs/theory.md section 4)
    "no-slack",  # Assumption 2 fails here: the safe action's cost is not under the threshold
    "warm-up",  # the cost of the safe action is still being measured (appendix A.4)
    "bad-numbers",  # something was not finite: nothing but the safe action can be justified
    "ended",  # the trajectory has ended in this state: nothing is played
    "unsolved",  # no mixture could be certified as the best one
    "tripped",  # a test of the assumptions has failed, or somebody stopped the learner: `detail` says which and why
]
"""Why a decision is what it is."""


def settle(record: Any, **values: Any) -> None:
    """Write fields of a frozen dataclass while it is being made: in `__post_init__`, and nowhere else."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


@dataclass(frozen=True, slots=True)
class StarAction:
    """A point of a star-convex set: feature = phi_0 + length * (endpoint of the ray - phi_0)."""

    ray: int
    length: float


Action = StarAction | int
DecisionId = int | str


@dataclass(frozen=True, slots=True)
class Radius:
    """A confidence radius β that knows where it comes from; the guarantee holds for "theorem" only.

    origin "default" is a rule of Tether's that nobody tuned, for the value radius alone, which safety does not rest on;
    "exact" marks a baseline that is told γ*, and "none" one that has no constraint at all.
    """

    value: float
    origin: Origin


@dataclass(frozen=True, slots=True)
class Drift:
    """Where γ* may move by `rate` with each decision: a bound rests on decisions from number `since` on, the beginning
    of one of the blocks of its `window`, and holds for decisions up to number `until`: docs/theory.md section 13. Where
    it moves so much `per` second, these are times instead."""

    rate: float
    window: float
    since: float
    until: float
    per: Literal["decision", "second"] = "decision"


NONE = np.zeros(0)


def _none() -> Array:
    return NONE


@dataclass(frozen=True, slots=True, eq=False)
class Multipliers:
    """Prove a bound on a cost in [0, 1] by weak duality: docs/theory.md section 14.

    The point is Σ multiplier · row, and each row is a feature whose cost is limited. Any multipliers and any price of 0
    or more give a bound, so that whoever reads them needs no solver. An empty array stands for zeros.

    Attributes:
        price: m, the price of the likelihood.
        outcomes: multipliers of the groups of outcomes, accidents and successes apart (R,).
        facts: multipliers of the remembered safe costs (F,).
        own: multiplier of the safe cost of the state itself.
        actions: multipliers of the candidates of D(s), each of which costs 0 to 1 (N,).
        listed: multipliers of the listed actions, each of which costs 0 to 1 (L,).
    """

    price: float = 0.0
    outcomes: Array = field(default_factory=_none)
    facts: Array = field(default_factory=_none)
    own: float = 0.0
    actions: Array = field(default_factory=_none)
    listed: Array = field(default_factory=_none)

    @classmethod
    def sum_of(cls, parts: Iterable[tuple[float, "Multipliers"]]) -> "Multipliers":
        """Add proofs with weights: they prove the weighted sum of what each one proves."""
        price, own, arrays = 0.0, 0.0, [NONE] * 4
        for weight, each in parts:
            price, own = price + weight * each.price, own + weight * each.own
            for place, more in enumerate((each.outcomes, each.facts, each.actions, each.listed)):
                if len(more):
                    arrays[place] = weight * more if not len(arrays[place]) else arrays[place] + weight * more
        outcomes, facts, actions, listed = arrays
        return cls(price, outcomes, facts, own, actions, listed)

    def scaled_back(self, kept: float) -> "Multipliers":
        """Return the proof for a point that keeps this part of the way from the safe action."""
        return Multipliers.sum_of(((kept, self), (1.0 - kept, SAFE)))


SAFE = Multipliers(own=1.0)
"""The proof that the safe action costs what was declared."""


@dataclass(frozen=True, slots=True)
class CostBound:
    """The evidence for one constraint: cost <= bound <= threshold with the stated radius.

    `bound` is the left side of Eq. (9) at the chosen feature, `baseline_cost` is τ_h(s) (NaN if unknown).
    `bounds` says what: the cost of the action, or (randomised agents, Eq. 14) the *expected* cost over the agent's own
    coin, so that a single action may cost more than τ. `facts` is how many remembered safe costs the bound rests on,
    beside that of the state itself. `assumptions` says in a sentence each what the bound rests on beyond the paper's
    assumptions. `drift` says which outcomes it rests on where costs were declared to drift. `lost` is how many costs it
    should rest on but were never measured; `lost_as` says what they count as. `kind` says how it was proven: by a
    radius, or, for a cost in [0, 1], by a likelihood ratio; the radius has then only steered the choice. `listed` is
    how many listed actions are taken to cost between 0 and 1, played or not; 0 where a bound does not rest on that.
    `multipliers` are the proof of a likelihood ratio's bound, from which the gate computes it again.
    """

    bound: float
    threshold: float
    radius: Radius
    baseline_cost: float
    bounds: Bounded = "cost"
    facts: int = 0
    assumptions: tuple[str, ...] = ()
    drift: Drift | None = None
    lost: int = 0
    lost_as: Literal["at-random", "worst-case"] = "at-random"
    kind: Proof = "radius"
    listed: int = 0
    multipliers: Multipliers | None = field(default=None, compare=False, repr=False)

    @property
    def margin(self) -> float:
        """τ − bound: what is left under the threshold."""
        return self.threshold - self.bound


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """The distribution θ that an action was drawn from, and its mean feature φ^θ(s) (d,).

    `probabilities` (N,) are in the order of D(s); `baseline` is a_0's, which in a finite set is one of them too.
    """

    probabilities: Array
    baseline: float
    mean_feature: Array


@dataclass(frozen=True, slots=True)
class Decision:
    """An action together with the bound that justified it: no path of Tether returns one without the other.

    `evidence` has one entry per constraint; `cost_bound`, `threshold` and `cost_radius` read the tightest.
    `score` is the optimistic value that won, `data_version` the number of outcomes the bounds rest on.
    `detail` says in words what a reason like "tripped" leaves open. `time` is when it was asked for, if that was said.
    """

    id: int
    step: int
    state: State
    action: Action
    feature: Array
    is_baseline: bool
    reason: Reason
    evidence: tuple[CostBound, ...]
    value_radius: Radius
    score: float
    data_version: int
    mixture: Mixture | None = None
    detail: str = ""
    time: float | None = None

    @property
    def mean_feature(self) -> Array:
        """What the decision plays on average: `feature`, unless the action was drawn from a mixture."""
        return self.feature if self.mixture is None else self.mixture.mean_feature

    @property
    def tightest(self) -> CostBound:
        """The constraint with the smallest margin."""
        return min(self.evidence, key=lambda bound: bound.margin)

    @property
    def cost_bound(self) -> float:
        """Upper bound on the cost of the action (of the mixture, on average), for the tightest constraint."""
        return self.tightest.bound

    @property
    def threshold(self) -> float:
        """τ of the tightest constraint."""
        return self.tightest.threshold

    @property
    def cost_radius(self) -> Radius:
        """β in the safe set, for the tightest constraint."""
        return self.tightest.radius

    def outcome(
        self, *, reward: float, cost: float | tuple[float, ...] | None, next_state: State = None
    ) -> "Transition":
        """What was seen after this decision, ready for `observe`. `cost` is None when it was not measured."""
        return Transition(self.step, self.state, self.feature, reward, cost, next_state, self.id, self.time)


@dataclass(frozen=True, slots=True)
class Transition:
    """One observed step (s, φ, r, z, s'). `decision_id` lets `observe` refuse the same outcome twice.

    `feature` is the φ of the action that was *applied*; `cost` is the noisy z (one per constraint), or None. `time` is
    when it was decided, in seconds, where somebody says so: an outcome without a decision needs it if drift is per
    second.
    """

    step: int
    state: State
    feature: Array
    reward: float
    cost: float | tuple[float, ...] | None
    next_state: State = None
    decision_id: DecisionId | None = None
    time: float | None = None
