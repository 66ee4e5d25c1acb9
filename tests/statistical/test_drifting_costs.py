"""Costs that drift no faster than declared stay under their bounds (docs/theory.md section 13): coverage.

One run is a fresh world with one or two steps, in which γ*_h moves by exactly ρ with every decision, in the direction
of an adversary who sees what was played: always dearer along it, after a quiet time, after luring the learner out, or
at random. In every other world the declared safe costs move, too, and are declared anew. "By the clock" it moves by ρ
in every second, and decisions come at random times, a second apart on average, with pauses of up to a minute. At every
decision the true cost of what is played (for a mixture: its expectation) is compared with the bound and with τ.

n = 300 runs of 200 decisions for each case, seeds 9000..9299, δ = 0.01. By an exact binomial bound a true failure
probability of δ explains at most `allowed_failures(300, 0.01)` = 14 failures or alarms, except with chance 1e-6. The
radii are conservative enough that none of these runs fails, and the tests ask for 0 (0 of 300 proves a failure
probability under 4.5 %, 0.955^300 < 1e-6). The companion declares no drift on the same worlds.
"""

import numpy as np
import pytest
from test_facts_coverage import DELTA, ROUNDING, RUNS, allowed_failures

from limits import stated
from tether import FiniteActions, Monitor, Problem, RslucbQvi, SlucbConfig, SlucbQvi, StarActions

DECISIONS, STATES, RAYS, DIMENSION, NOISE, BOUND = 200, 2, 8, 5, 0.02, 2.0
RATES = (5e-4, 2e-3)


class World:
    """Costs ⟨γ*_h, φ⟩ that an adversary moves; told that it is by up to `told` with each decision, or second."""

    def __init__(self, seed, told, *, horizon=1, constraints=1, finite=False, known=True, same=False, **more):
        self.rng = rng = np.random.default_rng(seed)
        self.by_the_clock, self.now = more.get("drift_per") == "second", 0.0
        self.kind, self.free, self.rate = seed % 4, seed // 4 % 2, RATES[seed // 8 % 2]
        self.phi_0 = rng.dirichlet(np.ones(DIMENSION), STATES)
        self.rays = rng.dirichlet(np.full(DIMENSION, 0.5), (STATES, RAYS))
        if finite:
            self.rays[:, 0] = self.phi_0
            self.rays[:, 1:] = self.phi_0[:, None] + 0.3 * (self.rays[:, 1:] - self.phi_0[:, None])
        self.gamma = rng.uniform(0.1, 0.8, (horizon, constraints, DIMENSION))
        self.same = same  # one γ* for all steps
        self.gamma[:] = self.gamma[0] if same else self.gamma
        self.safe = np.linalg.qr(self.phi_0.T)[0]
        self.tau = np.einsum("hmd,sd->hsm", self.gamma, self.phi_0).max(axis=(0, 1)) + 0.1
        sets = [
            FiniteActions(rows, 0) if finite else StarActions(f, rows)
            for f, rows in zip(self.phi_0, self.rays, strict=True)
        ]
        self.problem = Problem(
            horizon=horizon,
            dimension=DIMENSION,
            actions=lambda state: sets[state],
            states=range(STATES),
            confidence=DELTA,
            **stated(
                threshold=self.tau,
                noise=NOISE,
                baseline_cost_error=0.0,
                baseline_cost=(lambda step, state: self.gamma[step] @ self.phi_0[state]) if known else None,
                gamma_norm=BOUND,
                drift=told * self.rate,
                **more,
            ),
        )

    def gap(self):
        """How much time passes until the next decision."""
        if not self.by_the_clock:
            return 1.0
        gap = self.rng.uniform(20.0, 60.0) if self.rng.random() < 0.01 else self.rng.exponential()
        self.now += gap
        return gap

    def move(self, made, decision):
        """γ* moves by ρ in each unit of time, in every step and constraint."""
        rate = self.rate * self.gap()
        away = decision.mean_feature - self.phi_0[decision.state]
        sign = {0: 1.0, 1: float(made >= 120), 2: 1.0 if made >= 120 else -1.0, 3: 1.0}[self.kind]
        for gamma in self.gamma.reshape(-1, DIMENSION):
            u = self.rng.normal(size=DIMENSION) if self.kind == 3 or not away.any() else away
            u = u if self.free else u - self.safe @ (self.safe.T @ u)
            new = gamma + sign * rate * u / max(np.linalg.norm(u), 1e-12)
            if np.linalg.norm(new) <= BOUND and (self.phi_0 @ new <= self.tau.min() - 0.02).all():
                gamma[:] = new
        self.gamma[:] = self.gamma[0] if self.same else self.gamma

    def expected(self, decision):
        """The true expected cost of a decision, (M,)."""
        return self.gamma[decision.step] @ decision.mean_feature


def run(seed, config, told, *, mixes=False, watched=False, decisions=DECISIONS, **case):
    """(over a bound, over τ, alarmed, share of decisions that left a_0) of one world."""
    world = World(seed, told, **case)
    problem, rng = world.problem, world.rng
    agent = RslucbQvi(problem, config, rng=np.random.default_rng(seed)) if mixes else SlucbQvi(problem, config)
    if watched:
        agent.watch = Monitor(problem, pooled=config.pooled)
    theta = world.gamma[0, 0] + rng.uniform(0.0, 0.3, DIMENSION)  # what costs more pays more
    broken, over, alarmed, left = False, False, False, []
    state = 0
    for made in range(decisions):
        step = made % problem.horizon
        if step == 0:
            agent.plan()
        decision = agent.act(step, state, time=world.now if world.by_the_clock else None)
        true = world.expected(decision)
        bounds = np.array([shown.bound for shown in decision.evidence])
        broken |= bool((true > bounds + ROUNDING).any())
        over |= bool((true > world.tau + ROUNDING).any())
        alarmed |= decision.reason in ("alarm", "tripped")
        left.append(not decision.is_baseline if decision.mixture is None else decision.mixture.baseline < 1.0)
        cost = world.gamma[step] @ decision.feature + NOISE * rng.normal(size=len(problem.constraints))
        state = int(rng.integers(STATES))
        seen = decision.outcome(reward=float(theta @ decision.feature), cost=tuple(cost), next_state=state)
        agent.observe(seen)
        world.move(made, decision)
    return broken, over, alarmed, float(np.mean(left))


def measured(runs, config, *, told=1.0, **case):
    """Runs over a bound, over τ and with an alarm, and the share that left a_0; `told` is the part of ρ declared."""
    found = [run(seed, config, told, **case) for seed in range(9000, 9000 + runs)]
    broken, over, alarmed, left = zip(*found, strict=True)
    return sum(broken), sum(over), sum(alarmed), float(np.mean(left))


CASES = {
    "rays": (SlucbConfig(), {}),
    "rays, two steps": (SlucbConfig(), {"horizon": 2}),
    "rays, two steps, lean": (SlucbConfig(backup="lean"), {"horizon": 2}),
    "rays, pooled steps": (SlucbConfig(pooled=True), {"horizon": 2, "same": True}),
    "rays, two constraints": (SlucbConfig(), {"constraints": 2}),
    "rays, two roots, misfit": (SlucbConfig(cost_radius="classical"), {"misfit": 0.01}),
    "rays, watched": (SlucbConfig(), {"watched": True}),
    "finite": (SlucbConfig(), {"finite": True}),
    "unknown safe costs": (SlucbConfig(), {"known": False}),
    "mixtures": (SlucbConfig(), {"finite": True, "mixes": True}),
    "rays, by the clock": (SlucbConfig(), {"drift_per": "second"}),
    "rays, two steps, by the clock, watched": (SlucbConfig(), {"horizon": 2, "watched": True, "drift_per": "second"}),
    "mixtures, by the clock": (SlucbConfig(), {"finite": True, "mixes": True, "drift_per": "second"}),
}
FLOOR = {"finite": 0.01, "unknown safe costs": 0.0}
"""Where little is certified from so few outcomes."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_choice_costs_more_than_its_bound_when_the_drift_is_declared(name):
    config, case = CASES[name]
    broken, over, alarmed, left = measured(RUNS, config, **case)
    assert (broken, over) == (0, 0)
    assert alarmed <= allowed_failures(RUNS, DELTA)
    assert left > FLOOR.get(name, 0.2)


@pytest.mark.slow
def test_a_learner_that_is_not_told_of_the_drift_breaks_the_limit_in_the_same_worlds():
    """60 of these worlds, 600 decisions each: over bounds and over τ in more runs than δ explains; told, in none."""
    broken, over, _, _ = measured(60, SlucbConfig(), told=0.0, decisions=600)
    assert broken > allowed_failures(60, DELTA)
    assert over > allowed_failures(60, DELTA)
    assert measured(60, SlucbConfig(), decisions=600)[:2] == (0, 0)
