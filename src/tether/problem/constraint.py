"""Constraint: one cost, its limit, and what is known of both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

from tether.arguments import explained
from tether.assumptions.drift import Drift
from tether.assumptions.lost import Lost
from tether.assumptions.misfit import Misfit
from tether.assumptions.noise import BOUNDED_NOISE, Bounded
from tether.assumptions.realised import Realised
from tether.assumptions.relaxation import Relaxation
from tether.assumptions.safe_cost import CostOfSafe, SafeCost
from tether.errors import AssumptionError, InputError
from tether.options import Limit, check_options, number
from tether.problem.effects import norm_of_effects, numbers
from tether.records import settle

CostSource = str | Callable[[Any, Any, Any, dict[str, Any]], Any]

LIMITS = {
    "threshold": Limit("a number τ", lambda tau: tau > -inf),
    "gamma_norm": Limit("> 0 and finite (Assumption 4)", lambda norm: 0.0 < norm < inf, error=AssumptionError),
}

NO_RANGE = (-inf, inf)

NOISE = Limit(
    "> 0 and finite (Assumption 3)",
    lambda sigma: 0.0 < sigma < inf,
    "If costs are observed without noise, give a small positive σ (it is an upper bound).",
    AssumptionError,
)


@explained()
@dataclass(frozen=True, kw_only=True, eq=False)
class Constraint:
    """A cost and the limit that every step keeps to. Without `relax` it is the paper's.

    Attributes:
        threshold: τ. Each *step* must keep its expected cost under it.
        noise: σ of the sub-Gaussian noise on observed costs (Assumption 3), or `Bounded()` for costs in [0, 1], such as
            accidents, which need no σ.
        safe_cost: τ_h(s), the cost of the safe action: a number, a function (step, state) -> cost, a table (H, S) where
            the problem has states=range(S), or None if it is unknown. A number means that it is known exactly, to all
            digits. `SafeCost(61.0, error=0.5)` says how far it may be off.
        gamma_norm: B ≥ ‖γ*‖. The paper's √d unless given: right for costs and features of about 1, wrong for °C.
        feature_effects: in place of `gamma_norm`, what one unit of each feature can change the cost by at most (d,). B
            is then its Euclidean norm.
        relax: assumptions of the paper that this cost does without: `Misfit`, `Drift`, `Lost`, `Realised`.
        cost: with an environment: the entry of `info` that holds this cost, or a function (observation, action,
            next_observation, info) -> cost. Unless given it is "cost", or the third of six values that `step` returns.

    Example:
        >>> Constraint(threshold=80.0, noise=0.5, safe_cost=61.0).threshold
        80.0
    """

    threshold: float
    noise: float | Bounded | None = None
    safe_cost: CostOfSafe | SafeCost = None
    gamma_norm: float | None = None
    feature_effects: Sequence[float] | None = None
    relax: Sequence[Relaxation] = ()
    cost: CostSource | None = None

    def __post_init__(self) -> None:
        check_options(self, LIMITS)
        if self.noise is None:
            raise AssumptionError(
                "a constraint needs its noise (Assumption 3): state an upper bound σ on the noise of its costs, or, if "
                "they lie in [0, 1], noise=Bounded()."
            )
        if not isinstance(self.noise, Bounded):
            settle(self, noise=number("noise", self.noise, NOISE))
        if isinstance(self.feature_effects, list):
            settle(self, feature_effects=tuple(self.feature_effects))
        if not isinstance(self.safe_cost, SafeCost):
            settle(self, safe_cost=SafeCost(self.safe_cost))
        self._check_relaxations()

    def _check_relaxations(self) -> None:
        """Refuse relaxations of one kind twice, and those that exclude each other."""
        given = (self.relax,) if isinstance(self.relax, Relaxation) else self.relax
        relax = tuple(given) if isinstance(given, list | tuple) else (given,)
        for one in relax:
            if not isinstance(one, Relaxation):
                raise InputError(
                    f"relax must list what this cost does without, such as [Misfit(0.02)], but has {one!r}."
                )
        names = [one.name for one in relax]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"relax declares {name} twice: give one of the two.")
        settle(self, relax=relax)
        for one in relax:
            changes = one.changes(self.sigma)
            if not all(0.0 <= change < inf for change in changes):
                raise InputError(f"{one!r} changes bounds by {changes}: each must be finite and >= 0.")
            if self.by_likelihood and (any(changes) or isinstance(one, Realised) or self.drift.rate):
                raise InputError(
                    "Bounded() is certified by the likelihood of costs whose mean is exactly linear and stands still: "
                    f"it does not go with {one!r}. Use noise=Bounded('radius'), which goes with every relaxation."
                )
        if self.lost.counts_as == "worst-case" and self.cost_range == NO_RANGE:
            raise InputError(
                "Lost('worst-case') counts a missing cost as the least favourable one there can be: say which readings "
                "there are, cost_range=(lowest, highest)."
            )

    @property
    def sigma(self) -> float:
        """σ of the noise, 1/2 for costs in [0, 1]."""
        return BOUNDED_NOISE if isinstance(self.noise, Bounded) else float(self.noise or 0.0)

    @property
    def known(self) -> SafeCost:
        """What is known of the safe action's cost."""
        return self.safe_cost if isinstance(self.safe_cost, SafeCost) else SafeCost(self.safe_cost)

    @property
    def in_unit_interval(self) -> bool:
        """Whether every reading was declared to lie in [0, 1]."""
        return isinstance(self.noise, Bounded)

    @property
    def by_likelihood(self) -> bool:
        """Whether bounds on this cost are certified by likelihood ratios."""
        return isinstance(self.noise, Bounded) and self.noise.proof == "likelihood"

    @property
    def misfit(self) -> Misfit:
        """The declared misfit, or none."""
        return next((one for one in self.relax if isinstance(one, Misfit)), Misfit(0.0))

    @property
    def drift(self) -> Drift:
        """The declared drift, or none."""
        return next((one for one in self.relax if isinstance(one, Drift)), Drift(0.0))

    @property
    def lost(self) -> Lost:
        """What lost costs count as."""
        return next((one for one in self.relax if isinstance(one, Lost)), Lost("at-random"))

    @property
    def realised(self) -> Realised | None:
        """The limit on the measured cost, or None."""
        return next((one for one in self.relax if isinstance(one, Realised)), None)

    @property
    def cost_range(self) -> tuple[float, float]:
        """The lowest and highest reading that there can be, infinite if that was not declared."""
        declared = self.lost.cost_range
        if declared is None:
            return (0.0, 1.0) if self.in_unit_interval else NO_RANGE
        return float(declared[0]), float(declared[1])

    def norm(self, dimension: int) -> float:
        """Return B: from `feature_effects` if given, else `gamma_norm`, else the paper's √d."""
        if self.feature_effects is None:
            return sqrt(dimension) if self.gamma_norm is None else self.gamma_norm
        norm = norm_of_effects(self.feature_effects, dimension)
        if self.gamma_norm is not None and self.gamma_norm != norm:
            raise InputError(
                f"feature_effects say B = {numbers([norm])}, and gamma_norm says B = {numbers([self.gamma_norm])}: "
                "give one of the two."
            )
        return norm


class OneOrMore:
    """A field of a dataclass that is given as one `Constraint` or several, and read as a tuple."""

    def __get__(self, record: object | None, kind: type | None = None) -> tuple[Constraint, ...]:
        """Return the constraints of a record."""
        if record is None:
            raise AttributeError("constraints")  # a class has none: the field is required
        constraints: tuple[Constraint, ...] = record.__dict__["constraints"]
        return constraints

    def __set__(self, record: object, given: Constraint | Sequence[Constraint]) -> None:
        """Keep one or several constraints, and refuse anything else."""
        several = (given,) if isinstance(given, Constraint) else given
        if not (isinstance(several, list | tuple) and several and all(isinstance(one, Constraint) for one in several)):
            raise InputError(
                "constraints must be a tether.Constraint(threshold=…, noise=…, safe_cost=…), or a list of them, but "
                f"is {given!r}."
            )
        record.__dict__["constraints"] = tuple(several)
