"""A limit on the realised cost (docs/theory.md section 15): measured costs exceed τ in at most a share η of the steps.

On the cost event every step exceeds τ with conditional probability at most η, so the number of exceedances in N steps is
dominated by a Binomial(N, η). Pooled over a case's runs (N = 60 · 90 = 5400 steps, seeds 8000..8059) the limit is the
exact binomial quantile that is passed with chance below 1e-6, `allowed(N, η)`. δ = 1e-9 here, so that the event itself
never fails. The noise is Gaussian, the heaviest tail that σ allows in the bound's order.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from tether import SlucbConfig, SlucbQvi
from tether.lab.worlds.linear_mdp import Streams
from worlds import uneven_world

RUNS, EPISODES, FALSE_ALARM = 60, 30, 1e-6
SMALL = 0.05


def allowed(steps, eta):
    """The most exceedances that η explains with chance above 1e-6."""
    return int(binom.isf(FALSE_ALARM, steps, eta))


def run(seed, eta, scales, told, **sizes):
    """(steps, steps over τ, steps over τ − q in the mean, steps that left a_0) of one world."""
    linear = uneven_world(seed, **{"rays": 8, "states": 4, "dimension": 5, "noise": SMALL, "threshold": 0.6, **sizes})
    told = {"limit": "realised", "exceedance": eta, "noise_scales": scales} if told else {}
    problem = replace(linear.problem, confidence=1e-9, **told)
    agent, streams, counts = SlucbQvi(problem, SlucbConfig()), Streams.from_seed(seed), np.zeros(3, dtype=int)
    for _ in range(EPISODES):
        state = linear.reset(streams)
        agent.plan()
        for step in range(problem.horizon):
            decision = agent.act(step, state)
            seen = linear.step(decision, streams)
            mean = linear.true_gamma[step] @ decision.feature
            noise = np.atleast_1d(seen.cost) - mean
            amount = getattr(decision.action, "length", 1.0) if scales else 1.0
            cost = mean + amount * noise
            counts += [1, (cost > problem.threshold).any(), not decision.is_baseline]
            agent.observe(replace(seen, cost=tuple(cost.tolist())))
            state = seen.next_state
    return counts


def measured(eta, scales, told=True, **sizes):
    return np.sum([run(seed, eta, scales, told, **sizes) for seed in range(8000, 8000 + RUNS)], axis=0)


CASES = {
    "additive": (0.05, False, {}),
    "scaled": (0.05, True, {}),
    "scaled, rare": (0.01, True, {}),
    "finite": (0.05, False, {"finite": True}),
    "unknown safe costs": (0.05, False, {"known_costs": False}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_measured_costs_exceed_tau_no_more_often_than_declared(name):
    """N = 5400 steps each, seeds 8000..8059."""
    eta, scales, sizes = CASES[name]
    steps, over, left = measured(eta, scales, **sizes)
    assert over <= allowed(steps, eta)
    assert left > 0.05 * steps  # else there was nothing to certify


@pytest.mark.slow
@pytest.mark.parametrize("scales", [False, True])
def test_the_count_notices_a_limit_that_is_on_the_mean(scales):
    steps, over, _ = measured(0.05, scales, told=False)
    assert over > allowed(steps, 0.05)
