"""Likelihood-ratio sets hold at all times: exact-binomial tests over fresh seeds, at feature choices that react."""

import numpy as np
import pytest
from scipy.stats import binom

from tether.kernels.likelihood import new_dual, new_trials, observe_trial, threshold_of

FALSE_ALARM = 1e-6
DELTA = 0.1
RUNS = 300
OUTCOMES = 400


def allowed_failures(runs: int, probability: float) -> int:
    """The most failures that a true failure probability explains with chance above FALSE_ALARM."""
    return int(binom.isf(FALSE_ALARM, runs, probability))


def event_fails(seed: int, *, events: float = 1.0 / DELTA, fractions: bool = False) -> bool:
    """Whether ℓ(γ*) < R at any time of one run, over single outcomes. Where to look next depends on what was seen.

    Bounds rest on the outcomes up to the last renewal: ℓ is that of as many.
    """
    rng = np.random.default_rng(seed)
    d = 3
    gamma, trials, dual = rng.uniform(0.0, 0.3, d), new_trials(1, d, 1.0, np.sqrt(d)), new_dual(d)
    corners, likelihoods = rng.dirichlet(np.ones(d), 5), [0.0]
    for _ in range(OUTCOMES):
        x = corners[int(np.argmin(corners @ trials.fit[0]))] if rng.random() < 0.5 else rng.dirichlet(np.ones(d))
        p = float(x @ gamma)
        z = float(rng.beta(2.0 * p, 2.0 * (1.0 - p))) if fractions else float(rng.random() < p)
        likelihoods.append(likelihoods[-1] + z * np.log(p) + (1.0 - z) * np.log(1.0 - p))
        observe_trial(trials, 0, np.array(x), z, dual)
        if likelihoods[int(trials.used_total[0])] < threshold_of(trials, 0, np.log(events)):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("fractions", [False, True])
def test_the_truth_stays_in_the_set_at_all_times_with_probability_one_minus_delta(fractions):
    """n = 300 runs, seeds 5000..5299, δ = 0.1, checked after each of 400 outcomes."""
    failures = sum(event_fails(seed, fractions=fractions) for seed in range(5000, 5000 + RUNS))
    assert failures <= allowed_failures(RUNS, DELTA)


@pytest.mark.slow
def test_the_measurement_notices_a_set_that_is_too_small():
    """R is raised by 6, as if log(events) were −3.7: more failures than δ explains."""
    failures = sum(event_fails(seed, events=np.exp(-6.0) / DELTA) for seed in range(5000, 5000 + RUNS))
    assert failures > allowed_failures(RUNS, DELTA)
