"""SLUCB-QVI: Algorithm 1, with the explorers, radii and conditionings of docs/theory.md sections 4 to 7 and 17."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar, Literal, Self

import numpy as np

from tether.agents.agent import (
    Fact,
    LeastSquaresAgent,
    LeastSquaresConfig,
    checked_costs,
    plain_rules,
    value_origin,
)
from tether.agents.outcome_order import CostOutcome
from tether.errors import AssumptionError, InputError
from tether.kernels.model import (
    ADAPTIVE,
    ALL,
    CERTIFIED,
    CLASSICAL,
    DIRECTIONAL,
    KNOWN,
    MEASURED,
    MIXTURE,
    MOVING,
    PAPER,
    PLAIN,
    SMALLEST,
    STATE,
    TUNED,
    VISITED,
    Rules,
)
from tether.kernels.radius import default_cost_ridge, warmup_gap, warmup_passed
from tether.kernels.ridge import MISFIT
from tether.problem.problem import KnownState, Problem
from tether.records import Array, StateKey, Transition

EXPLORERS = {
    "paper": PAPER,
    "certified": CERTIFIED,
    "directional": DIRECTIONAL,
    "adaptive": ADAPTIVE,
    "plain": PLAIN,
}
RADII = {"theorem": SMALLEST, "mixture": MIXTURE, "classical": CLASSICAL}
MEMORY = {"state": STATE, "visited": VISITED, "all": ALL}


@dataclass(frozen=True, kw_only=True)
class SlucbConfig(LeastSquaresConfig):
    """Every choice of SLUCB-QVI. The defaults need nothing beyond the Problem.

    Attributes:
        explorer: where optimism comes from (docs/theory.md section 5); "adaptive" tempers `directional`, see
            `optimism_share`; "plain" is the value bonus alone, without what makes up for the unknown constraint.
        cost_radius: β in the safe set. "theorem" (the smallest radius we can prove), "mixture" (one root) and
            "classical" are guarantees; a number is tuned, forfeits the guarantee, and every decision says so.
        value_radius: β in the bonus; it touches exploration only. "remaining" is H − h + 1 at step h: what is uncertain
            in the regression target is at most the value of the remaining steps; 2σ_r more where rewards are noisy.
            "unseen" is 2H√λ + 2σ_r, with λ in units of feature_size²: a feature of that size in a direction that was
            never seen gets a bonus of 2H, and what was seen is soon taken at its estimate; where rewards are noisy, at
            two standard errors above it.
            "theorem" is the paper's c_β dH√log(dT/δ). "mixture", for bandits (H = 1) alone, is a confidence radius of
            the reward regression that follows the data (docs/theory.md section 11). A number counts as tuned.
        cost_ridge: λ of the cost regression, in units of feature_size²; None takes σ²d/B².
        value_ridge: λ of the value regression, in units of feature_size²; "cost" takes that of the cost regression.
        condition_on: which known safe costs are remembered as facts about γ*. "visited": those of every (h, s) with an
            outcome. "state": none but τ_h(s) where one stands, as in the paper. "all": those of every listed state.
            Where costs drift, "visited" is "state".
        unknown_cost: what to do when τ_h(s) is unknown: "certified" never conditions, "appendix" is the paper's
            warm-up rule (needs `episodes`).
        backup: "tables" keeps the candidates of every known state, for states that come back; "lean" keeps Σφ by next
            state and asks the problem for candidates again, for states that hardly ever do. "auto" takes tables where
            the problem lists its states, else lean.
        replan: "every-episode"; "on-doubling" of some det(A_h); or "on-growth", which also waits for a quarter more
            outcomes, so that all plans together cost five times the last. "auto" is "every-episode" with tables and
            "on-growth" with a lean backup. It touches exploration only: safety never waits for a plan.
        pooled: one regression for all steps; only for worlds whose γ*_h, θ*_h and μ*_h do not depend on h.
        episodes: K, needed by "theorem" value radii and by the appendix's rule.
        c_beta: the paper's unspecified absolute constant.
        feature_size: the size of features that ridges and "unseen" are relative to; None takes feature_norm. Where a
            few features are much longer than the others, say how long most are. The guarantee holds for every size.
        kappa: factor of the value radius in the bonus of "paper": Lemma 1's κ_h(s) = 2H/(τ − τ_s) + 1, or a number.
    """

    explorer: Literal["paper", "certified", "directional", "adaptive", "plain"] = "adaptive"
    cost_radius: float | Literal["theorem", "mixture", "classical"] = "theorem"
    cost_ridge: float | None = None
    condition_on: Literal["visited", "state", "all"] = "visited"
    unknown_cost: Literal["certified", "appendix"] = "certified"
    kappa: float | Literal["theorem"] = "theorem"

    @classmethod
    def paper(cls, beta: float, *, ridge: float = 1.0) -> Self:
        """The published algorithm with its one tuned β and one λ, as in the paper's experiments."""
        return cls(
            explorer="paper",
            cost_radius=beta,
            value_radius=beta,
            cost_ridge=ridge,
            value_ridge=ridge,
            condition_on="state",
        )


def expected_noise(problem: Problem) -> tuple[float, ...]:
    """σ of each cost; of a bounded one, that of a yes/no cost whose mean is τ."""
    limits = zip(problem.noise, problem.threshold, problem.bounded, strict=True)
    return tuple(sqrt(min(max(tau * (1.0 - tau), 1e-6), 0.25)) if bounded else sigma for sigma, tau, bounded in limits)


def slucb_rules(problem: Problem, config: SlucbConfig, cost_ridge: float) -> Rules:
    """The rules of Algorithms 1 and 2."""
    m, known, error = len(problem.constraints), problem.baseline_cost is not None, np.array(problem.baseline_cost_error)
    drifts = any(problem.drift)
    radius, kappa = config.cost_radius, config.kappa
    kind = RADII[radius] if isinstance(radius, str) else TUNED
    return plain_rules(
        problem,
        config,
        cost_ridge,
        explorer=EXPLORERS[config.explorer],
        conditioning=KNOWN if known and problem.is_exact else MEASURED,
        memory=MEMORY[config.condition_on] if known and not drifts else STATE,
        radius_kind=MOVING if drifts and kind == SMALLEST else kind,
        reduces_radius=config.explorer != "paper",
        cost_error=error if known else np.full(m, np.inf),
        point_error=problem.point_error,
        sample_error=problem.sample_error,
        events=config.stages(problem) * m / problem.confidence,
        tuned_radius=0.0 if isinstance(radius, str) else radius,
        kappa=np.nan if isinstance(kappa, str) else kappa,
        gap_floor=problem.gap_floor,
        warms_up=not known and config.unknown_cost == "appendix",
        known_gamma=np.zeros((0, m, problem.dimension)),
    )


def check_drift(problem: Problem, config: SlucbConfig) -> None:
    """What does not go with costs that drift is refused: it rests on a γ* that stands still."""
    rho = max(problem.drift)
    if config.condition_on == "all":
        raise InputError(
            f"condition_on='all' takes every declared safe cost for a fact for ever, but with drift = {rho:g} it is "
            "one when it is declared. Use condition_on='visited' or 'state': both use that of the present state."
        )
    if config.cost_radius == "mixture":
        raise InputError(
            f"cost_radius='mixture' is proven for a γ* that stands still, but drift = {rho:g}. Use 'theorem' or "
            "'classical'."
        )


def all_facts(problem: Problem) -> list[KnownState]:
    """Every listed state where something is played, those first whose safe features lie farthest from the others' span.

    In this order (QR with column pivoting) more facts can be remembered before they amplify errors too much.
    """
    from scipy.linalg import qr  # loads for long, and few need it

    playable = [state for state in problem.states or () if np.isnan(problem.final_reward_of(state))]
    known = [problem.look_up(state) for state in playable]
    if not known:
        return []
    order = qr(np.array([each.actions.phi_0 for each in known]).T, mode="r", pivoting=True)[-1]
    return [known[number] for number in order]


class SlucbQvi(LeastSquaresAgent):
    """Safe Linear UCB Q/V Iteration. Never plays an action without a certified cost bound under τ."""

    kind = "slucb-qvi"
    config_type: ClassVar[type[LeastSquaresConfig]] = SlucbConfig
    config: SlucbConfig

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        config = (config or SlucbConfig()).settled(problem, mixes=self.mixes)
        default = default_cost_ridge(expected_noise(problem), problem.gamma_norm, problem.dimension)
        cost_ridge = default if config.cost_ridge is None else config.absolute_ridge(problem, config.cost_ridge)
        if any(problem.drift):
            check_drift(problem, config)
        rules = slucb_rules(problem, config, cost_ridge)
        if rules.warms_up and not config.episodes:
            raise InputError("unknown_cost='appendix' uses log K: set episodes=K in the configuration.")
        super().__init__(
            problem,
            config,
            rules,
            cost_ridge=cost_ridge,
            origins=("theorem" if isinstance(config.cost_radius, str) else "tuned", value_origin(config)),
        )
        self.warmup: dict[tuple[int, StateKey], tuple[int, Array]] = {}  # rounds and Σz of a_0 at (h, s)
        if config.condition_on == "all":
            self._remember_all()

    def _remember_all(self) -> None:
        """Every known τ_h(s) of a listed state is a linear equation in γ*_h, from the start (theory, section 6)."""
        problem = self.problem
        if problem.states is None or problem.baseline_cost is None:
            raise InputError(
                "condition_on='all' needs a list of states with known safe costs: give Problem its states and "
                "safe_cost, or use condition_on='visited'."
            )
        for known in all_facts(problem):
            # pooled steps share one regression, where a fact counts once
            costs = np.unique(known.baseline_cost, axis=0) if self.config.pooled else known.baseline_cost
            for step, cost in enumerate(costs):
                self.remember(self.stage_of(step), known.actions.phi_0, cost)
        facts = self.costs.facts
        if not facts.misfit.max() <= MISFIT * max(1.0, np.abs(self.rules.threshold).max()):
            raise AssumptionError(
                f"Assumption 1 needs the safe costs to be linear in the safe features, but they miss "
                f"by {facts.misfit.max():.3g}. Check safe_cost, declare how far it may be off "
                "(SafeCost(…, error=…)), or use condition_on='state', which needs each of them only where it is used."
            )
        if not (np.linalg.norm(facts.known, axis=2) <= self.rules.gamma_norm * (1.0 + 1e-9)).all():
            raise AssumptionError(
                f"Assumption 4 bounds ‖γ*‖ by {self.rules.gamma_norm}, but the known safe costs alone need a larger "
                "γ*. Raise gamma_norm."
            )

    # The appendix's rule: a_0's cost is measured before anything else is played (A.4)

    @property
    def watches_outcomes(self) -> bool:
        """While safe costs are being measured, each outcome of a safe action counts."""
        return bool(self.rules.warms_up) or super().watches_outcomes

    def measured(self, known: KnownState) -> KnownState:
        """While a_0's cost is unknown: τ minus the gap that the warm-up has established."""
        costs = np.array([self._measured(step, known.key) for step in range(self.problem.horizon)])
        return replace(known, baseline_cost=costs)

    def _measured(self, step: int, key: StateKey) -> Array:
        """Appendix A.4: τ − 4σ√(log K/n) once τ̂ + 6σ√(log K/n) <= τ, NaN before. Used as a gap, never as a fact."""
        problem, episodes = self.problem, int(self.config.episodes or 0)
        rounds, total = self.warmup.get((step, key), (0, np.zeros(len(problem.constraints))))
        limits = list(zip(total / max(rounds, 1), problem.noise, problem.threshold, strict=True))
        if not all(warmup_passed(mean, noise, episodes, rounds, tau) for mean, noise, tau in limits):
            return np.full(len(problem.constraints), np.nan)
        return np.array([tau - warmup_gap(noise, episodes, rounds) for _, noise, tau in limits])

    def learn(self, transition: Transition, fact: Fact | None) -> list[CostOutcome]:
        """Also average the cost of a_0(s) at (s, h) until the warm-up's test is passed; then stop counting."""
        t = transition
        known = self.look_up(t.state) if self.rules.warms_up else None
        effective = super().learn(t, fact)
        costs = None if known is None else checked_costs(t.cost, self.problem, needed=False)
        if known is None or costs is None or not np.isnan(known.baseline_cost[t.step]).any():
            return effective
        if np.array_equal(t.feature, known.actions.phi_0):
            rounds, total = self.warmup.get((t.step, known.key), (0, np.zeros_like(costs)))
            self.warmup[t.step, known.key] = (rounds + 1, total + costs)
            measured, slot = self._measured(t.step, known.key), self.slots.get(known.key)
            if slot is not None:
                self.tables.baseline_cost[t.step, slot] = self.known[slot].baseline_cost[t.step] = measured
            if self.visited is not None and known.key in self.visited.index:
                self.visited.baseline_cost[self.visited.index[known.key], t.step] = measured
        return effective

    def extras(self) -> dict[str, Any]:
        """The warm-up's counts."""
        from tether.agents.state_file import encode_key

        counts = self.warmup.items()
        return {"warmup": [[step, encode_key(key), rounds, total.tolist()] for (step, key), (rounds, total) in counts]}

    def take_extras(self, extras: dict[str, Any]) -> None:
        """The reverse of `extras`."""
        from tether.agents.state_file import decode_key

        for step, key, rounds, total in extras["warmup"]:
            self.warmup[step, decode_key(key)] = (rounds, np.array(total))
