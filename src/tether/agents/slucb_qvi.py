"""SLUCB-QVI: Algorithm 1, with the explorers, radii and conditionings of docs/theory.md sections 4 to 7 and 17."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np

from tether.agents import state_file
from tether.agents.backups import Backup, Replan, check_backup, settled
from tether.agents.checks import check_choice, checked_episodes, checked_number, checked_radius
from tether.agents.least_squares import LeastSquaresAgent
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
    PAPER,
    PLAIN,
    SMALLEST,
    STATE,
    TUNED,
    VISITED,
    Rules,
)
from tether.kernels.radius import default_cost_ridge, paper_value_term, warmup_gap, warmup_passed
from tether.kernels.ridge import MISFIT
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Origin, State, StateKey, Transition

Explorer = Literal["paper", "certified", "directional", "adaptive", "plain"]
EXPLORERS: dict[str, int] = {
    "paper": PAPER,
    "certified": CERTIFIED,
    "directional": DIRECTIONAL,
    "adaptive": ADAPTIVE,
    "plain": PLAIN,
}

VALUE_RADII = ("remaining", "unseen", "theorem")
RADII: dict[str, int] = {"theorem": SMALLEST, "mixture": MIXTURE, "classical": CLASSICAL}

MEMORY: dict[str, int] = {"state": STATE, "visited": VISITED, "all": ALL}


@dataclass(frozen=True, kw_only=True)
class SlucbConfig:
    """Every choice of SLUCB-QVI. The defaults need nothing beyond the Problem.

    Attributes:
        explorer: where optimism comes from (docs/theory.md section 5); "adaptive" tempers `directional`, see
            `optimism_share`; "plain" is the value bonus alone, without what makes up for the unknown constraint.
        cost_radius: β in the safe set. "theorem" (the smallest radius we can prove), "mixture" (one root) and
            "classical" are guarantees; a number is tuned, forfeits the guarantee, and every decision says so.
        value_radius: β in the bonus; it touches exploration only. "remaining" is H − h + 1 at step h: what is uncertain
            in the regression target is at most the value of the remaining steps. "unseen" is 2H√λ: a unit feature in
            a direction that was never seen gets a bonus of 2H, and what was seen is soon taken at its estimate.
            "theorem" is the paper's c_β dH√log(dT/δ). Anything but "theorem" counts as tuned.
        cost_ridge: λ of the cost regression; None takes σ²d/B².
        value_ridge: λ of the value regression; "cost" takes that of the cost regression.
        condition_on: which known safe costs are remembered as facts about γ*. "visited": those of every (h, s) with an
            outcome. "state": none but τ_h(s) where one stands, as in the paper. "all": those of every listed state.
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
        kappa: factor of the value radius in the bonus of "paper": Lemma 1's κ_h(s) = 2H/(τ − τ_s) + 1, or a number.
    """

    explorer: Explorer = "adaptive"
    cost_radius: float | Literal["theorem", "mixture", "classical"] = "theorem"
    value_radius: float | Literal["remaining", "unseen", "theorem"] = "remaining"
    cost_ridge: float | None = None
    value_ridge: float | Literal["cost"] = 1.0
    condition_on: Literal["visited", "state", "all"] = "visited"
    unknown_cost: Literal["certified", "appendix"] = "certified"
    backup: Backup = "auto"
    replan: Replan = "auto"
    pooled: bool = False
    episodes: int | None = None
    c_beta: float = 1.0
    kappa: float | Literal["theorem"] = "theorem"

    def __post_init__(self) -> None:
        check_choice("explorer", self.explorer, EXPLORERS)
        check_choice("condition_on", self.condition_on, MEMORY)
        check_choice("unknown_cost", self.unknown_cost, ("certified", "appendix"))
        check_backup(self.backup, self.replan)
        object.__setattr__(self, "cost_radius", checked_radius("cost_radius", self.cost_radius, RADII))
        object.__setattr__(self, "value_radius", checked_radius("value_radius", self.value_radius, VALUE_RADII))
        if self.cost_ridge is not None:
            object.__setattr__(self, "cost_ridge", checked_number("cost_ridge", self.cost_ridge))
        object.__setattr__(self, "value_ridge", checked_radius("value_ridge", self.value_ridge, ("cost",)))
        object.__setattr__(self, "c_beta", checked_number("c_beta", self.c_beta))
        object.__setattr__(self, "kappa", checked_radius("kappa", self.kappa, ("theorem",)))
        object.__setattr__(self, "episodes", checked_episodes(self.episodes))

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


class SlucbQvi(LeastSquaresAgent):
    """Safe Linear UCB Q/V Iteration. Never plays an action without a certified cost bound under τ."""

    kind = "slucb-qvi"

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        self.config = config = settled(config or SlucbConfig(), problem, self.mixes)
        stages = 1 if config.pooled else problem.horizon
        m, d = problem.constraints, problem.dimension
        known, error = problem.baseline_cost is not None, np.array(problem.baseline_cost_error)
        exact = known and not error.any()
        self._warms_up = not known and config.unknown_cost == "appendix"
        if self._warms_up and not config.episodes:
            raise InputError("unknown_cost='appendix' uses log K: set episodes=K in the configuration.")
        tuned = not isinstance(config.cost_radius, str)
        default_ridge = default_cost_ridge(problem.noise, problem.gamma_norm, d)
        cost_ridge = default_ridge if config.cost_ridge is None else config.cost_ridge
        value_ridge = cost_ridge if isinstance(config.value_ridge, str) else config.value_ridge
        rules = Rules(
            horizon=problem.horizon,
            explorer=EXPLORERS[config.explorer],
            conditioning=KNOWN if exact else MEASURED,
            memory=MEMORY[config.condition_on] if known else STATE,
            radius_kind=TUNED if tuned else RADII[str(config.cost_radius)],
            reduces_radius=config.explorer != "paper",
            threshold=np.array(problem.threshold),
            noise=np.array(problem.noise),
            gamma_norm=np.array(problem.gamma_norm),
            feature_norm=problem.feature_norm,
            cost_error=error if known else np.full(m, np.inf),
            events=stages * m / problem.confidence,
            tuned_radius=float(config.cost_radius) if tuned else 0.0,
            value_radius=value_radius(problem, config.value_radius, config.episodes, config.c_beta, value_ridge),
            kappa=np.nan if isinstance(config.kappa, str) else float(config.kappa),
            gap_floor=problem.gap_floor,
            warms_up=self._warms_up,
            penalty=0.0,
            known_gamma=np.zeros((0, m, d)),
        )
        origin: Origin = "tuned" if tuned else "theorem"
        super().__init__(
            problem,
            rules,
            stages=stages,
            cost_ridge=cost_ridge,
            value_ridge=value_ridge,
            cost_origin=origin,
            value_origin="theorem" if config.value_radius == "theorem" else "tuned",
            backup=config.backup,
            replan=config.replan,
            config=asdict(config),
        )
        self._warmup: dict[tuple[int, StateKey], tuple[int, Array]] = {}
        if config.condition_on == "all":
            self._remember_all()

    def _remember_all(self) -> None:
        """Every known τ_h(s) of a listed state is a linear equation in γ*_h, from the start (theory, section 6)."""
        problem = self.problem
        if problem.states is None or problem.baseline_cost is None:
            raise InputError(
                "condition_on='all' needs a list of states with known safe costs: give Problem its states and "
                "baseline_cost, or use condition_on='visited'."
            )
        for state in problem.states:
            if np.isnan(problem.final_reward_of(state)):
                known = problem.look_up(state)
                # pooled steps share one regression, where a fact counts once
                costs = known.baseline_cost if self._stages > 1 else np.unique(known.baseline_cost, axis=0)
                for stage, cost in enumerate(costs):
                    self.remember(stage if self._stages > 1 else 0, known.actions.phi_0, cost)
        facts = self.costs.facts
        if not facts.misfit.max() <= MISFIT * max(1.0, np.abs(self.rules.threshold).max()):
            raise AssumptionError(
                f"Assumption 1 needs the safe costs to be linear in the safe features, but they miss "
                f"by {facts.misfit.max():.3g}. Check baseline_cost, declare how far it may be off "
                "(baseline_cost_error), or use condition_on='state', which needs each of them only where it is used."
            )
        if not (np.linalg.norm(facts.known, axis=2) <= self.rules.gamma_norm * (1.0 + 1e-9)).all():
            raise AssumptionError(
                f"Assumption 4 bounds ‖γ*‖ by {self.rules.gamma_norm}, but the known safe costs alone need a larger "
                "γ*. Raise gamma_norm."
            )

    @classmethod
    def _from_config(cls, problem: Problem, config: dict[str, Any], **told: Any) -> Self:
        return cls(problem, SlucbConfig(**config), **told)

    @property
    def watches_outcomes(self) -> bool:
        """While safe costs are being measured, each outcome of a safe action counts."""
        return self._warms_up or super().watches_outcomes

    def _extra_manifest(self) -> dict[str, Any]:
        return {
            "warmup": [
                [step, state_file.encode_key(key), rounds, total.tolist()]
                for (step, key), (rounds, total) in self._warmup.items()
            ]
        }

    def _take_extra(self, manifest: dict[str, Any]) -> None:
        for step, key, rounds, total in manifest["warmup"]:
            self._warmup[step, state_file.decode_key(key)] = (rounds, np.array(total))

    def _told(self, state: State) -> KnownState:
        """What the problem says; while a_0's cost is unknown, τ minus the gap that the warm-up has established."""
        known = super()._told(state)
        if self._warms_up:
            known.baseline_cost[:] = [self._measured(step, known.key) for step in range(self.problem.horizon)]
        return known

    def _measured(self, step: int, key: StateKey) -> Array:
        """Appendix A.4: τ − 4σ√(log K/n) once τ̂ + 6σ√(log K/n) <= τ, NaN before. Used as a gap, never as a fact."""
        problem, episodes = self.problem, int(self.config.episodes or 0)
        rounds, total = self._warmup.get((step, key), (0, np.zeros(problem.constraints)))
        limits = list(zip(total / max(rounds, 1), problem.noise, problem.threshold, strict=True))
        if not all(warmup_passed(mean, noise, episodes, rounds, tau) for mean, noise, tau in limits):
            return np.full(problem.constraints, np.nan)
        return np.array([tau - warmup_gap(noise, episodes, rounds) for _, noise, tau in limits])

    def _prepare(self, transition: Transition, feature: Array, costs: Array | None) -> Callable[[], None]:
        """Average the cost of a_0(s) at (s, h) until the warm-up's test is passed; then stop counting."""
        if not self._warms_up or costs is None:
            return lambda: None
        step, known = transition.step, self._told(transition.state)
        if not np.isnan(known.baseline_cost[step]).any() or not np.array_equal(feature, known.actions.phi_0):
            return lambda: None
        rounds, total = self._warmup.get((step, known.key), (0, np.zeros_like(costs)))

        def count() -> None:
            self._warmup[step, known.key] = (rounds + 1, total + costs)
            slot = self._slot_of.get(known.key)
            if slot is not None:
                self.tables.baseline_cost[step, slot] = self._measured(step, known.key)
            if self.visited is not None and known.key in self.visited.index:
                self.visited.baseline_cost[self.visited.index[known.key], step] = self._measured(step, known.key)

        return count


def value_radius(problem: Problem, wanted: float | str, episodes: int | None, c_beta: float, ridge: float) -> Array:
    """β_v at each step (H,): H − h + 1, 2H√λ, a number as it is, or Theorem 1's second term with the caller's c_β."""
    if wanted == "unseen":
        return np.full(problem.horizon, 2.0 * problem.horizon * np.sqrt(ridge))
    if wanted == "remaining":
        return np.arange(problem.horizon, 0, -1, dtype=np.float64)
    if not isinstance(wanted, str):
        return np.full(problem.horizon, float(wanted))
    if not episodes:
        raise InputError("value_radius='theorem' uses log T with T = KH: set episodes=K in the configuration.")
    steps = episodes * problem.horizon
    radius = paper_value_term(problem.dimension, problem.horizon, steps, problem.confidence, c_beta)
    return np.full(problem.horizon, radius)
