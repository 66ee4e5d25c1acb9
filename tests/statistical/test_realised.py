"""A limit on the realised cost (docs/theory.md section 15): measured costs exceed τ in at most a share η of the steps.

On the cost event every step exceeds τ with conditional probability at most η, so the number of exceedances in N steps
is dominated by a Binomial(N, η). Pooled over a case's runs (N = 60 · 100 = 6,000 steps, seeds 8000..8059) the limit is
the exact binomial quantile that is passed with chance below 1e-6, `allowed(N, η)`. δ = 1e-9 here, so that the event
itself never fails. The noise is Gaussian.
"""

import numpy as np
import pytest
from scipy.stats import binom

from limits import stated
from tether import Problem, SlucbConfig, SlucbQvi
from tether.agents.outcome_order import CostOutcome

RUNS, ROUNDS, FALSE_ALARM = 60, 100, 1e-6
TAU, NOISE, OLD = 0.5, 0.05, 3000


def allowed(steps, eta):
    """The most exceedances that η explains with chance above 1e-6."""
    return int(binom.isf(FALSE_ALARM, steps, eta))


def run(seed, eta, scales, told, finite=False, known=True):
    """(steps, steps over τ, steps that left a_0) of a bandit whose constraint binds: a_0 costs about 0.2, its rays lead
    to 0.8 and 1, τ = 0.5. The more an action costs, the more it pays."""
    rng = np.random.default_rng(seed)
    gamma, phi_0, ends = np.array([0.2, 0.8, 1.0]) + rng.uniform(-0.05, 0.05, 3), np.eye(3)[:1], np.eye(3)[1:]
    limit = {"limit": "realised", "exceedance": eta, "noise_scales": scales} if told else {}
    shape = {"horizon": 1, "threshold": TAU, "noise": NOISE, "confidence": 1e-9, "feature_norm": 1.0, **limit}
    costs = [[gamma[0]]] if known else None
    if finite:
        steps = np.linspace(0.0, 0.6, 25)[:, None]
        rows = np.vstack([phi_0 + steps * (end - phi_0) for end in ends])
        problem = Problem.from_table(
            features=rows[None], baseline_action=[0], **stated(baseline_cost_error=0.0, baseline_cost=costs, **shape)
        )
    else:
        problem = Problem.from_rays(
            phi_0=phi_0, endpoints=ends[None], **stated(baseline_cost_error=0.0, baseline_cost=costs, **shape)
        )
    agent, counts = SlucbQvi(problem, SlucbConfig()), np.zeros(3, dtype=int)
    for x in np.repeat(np.eye(3), OLD, axis=0):  # old data, so that the constraint binds within a few rounds
        agent.learn_cost(CostOutcome(0, x, np.array([gamma @ x + NOISE * rng.normal()])))
    for _ in range(ROUNDS):
        agent.plan()
        decision = agent.act(0, 0)
        amount = getattr(decision.action, "length", 1.0) if scales else 1.0
        cost = float(gamma @ decision.feature) + amount * NOISE * rng.normal()
        counts += [1, cost > TAU, not decision.is_baseline]
        agent.observe(decision.outcome(reward=float(gamma @ decision.feature), cost=cost))
    return counts


def measured(eta, scales, told=True, **case):
    return np.sum([run(seed, eta, scales, told, **case) for seed in range(8000, 8000 + RUNS)], axis=0)


CASES = {
    "additive": (0.05, False, {}),
    "scaled": (0.05, True, {}),
    "scaled, rare": (0.01, True, {}),
    "finite": (0.05, False, {"finite": True}),
    "unknown safe costs": (0.05, False, {"known": False}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_measured_costs_exceed_tau_no_more_often_than_declared(name):
    """N = 6,000 steps each, seeds 8000..8059."""
    eta, scales, sizes = CASES[name]
    steps, over, left = measured(eta, scales, **sizes)
    assert over <= allowed(steps, eta)
    assert left > 0.05 * steps  # else there was nothing to certify


@pytest.mark.slow
@pytest.mark.parametrize("scales", [False, True])
def test_the_count_notices_a_limit_that_is_on_the_mean(scales):
    steps, over, _ = measured(0.05, scales, told=False)
    assert over > allowed(steps, 0.05)
