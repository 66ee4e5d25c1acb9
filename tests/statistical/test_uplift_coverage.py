"""The interval of the uplift (docs/theory.md section 16) holds at all times: low <= mean gain so far <= high, whenever
one looks at a run, with probability 1 − α/2 for the first comparison of a log (α = `ERROR`).

A run is wrong if it ever fails. Of `RUNS` runs per case (seeds 0..) at most `allowed` may be: the exact binomial
quantile that an honest interval passes with chance below 1e-6. In every case what is gained depends on what was seen
before, as with a learner that changes, and what was expected of the two arms is far off; rewards are yes or no, skewed,
or heavy-tailed; outcomes come late, or get lost, where they are bad.
"""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from tether.live.canary import Canary
from tether.live.uplift import ERROR, Uplift

RUNS, DECISIONS, LOOK_EVERY, FALSE_ALARM = 120, 240, 4, 1e-6


def allowed(runs):
    """The most wrong runs that α/2 explains with chance above 1e-6."""
    return int(binom.isf(FALSE_ALARM, runs, ERROR / 2))


def yes_or_no(rng, mean):
    return float(rng.random() < mean)


def skewed(rng, mean):
    """A lognormal, capped: most are far under the mean."""
    return float(min(mean * np.exp(1.5 * rng.normal() - 1.125), 1.0))


def heavy(rng, mean):
    """Pareto with exponent 1.2, capped: the variance comes from the cap."""
    return float(min(0.2 * mean * (1.0 + rng.pareto(1.2)), 1.0))


def run(seed, draw, share, *, late=0, loses=False):
    """Whether the interval was ever wrong, and ΣY − Σgain at the end."""
    rng = np.random.default_rng(seed)
    uplift, open_ones, gains, seen, wrong = Uplift(reward_range=(0.0, 1.0)), [], [], [0.5], False
    for number in range(DECISIONS):
        good = sum(seen[-20:]) / len(seen[-20:])  # the learner, and the world, follow what was seen
        played, instead = draw(rng, 0.2 + 0.6 * good), draw(rng, 0.5 - 0.2 * good)
        proposal = bool(rng.random() < share)
        uplift.expect(str(number), Canary(share, (0.9, 0.1)), played=proposal)
        gains.append(played - instead)
        open_ones.append((str(number), played if proposal else instead))
        while len(open_ones) > late:
            id, reward = open_ones.pop(max(range(len(open_ones)), key=lambda i: open_ones[i][1]))  # bad ones wait
            lost = loses and reward < 0.3 and rng.random() < 0.3
            uplift.settle(id, None if lost else reward, None)
            seen.append(reward)
        if uplift.compared and number % LOOK_EVERY == 0:
            found = uplift.status().reward
            wrong |= not found.low <= sum(gains[: uplift.compared]) / uplift.compared <= found.high
    return wrong, uplift.reward.low.total - sum(gains[: uplift.compared])


CASES = {
    "yes or no": (yes_or_no, 0.5, {}),
    "yes or no, a tenth": (yes_or_no, 0.1, {}),
    "skewed": (skewed, 0.5, {}),
    "skewed, nine tenths": (skewed, 0.9, {}),
    "heavy tails": (heavy, 0.5, {}),
    "heavy tails, a tenth": (heavy, 0.1, {}),
    "bad ones come late": (yes_or_no, 0.5, {"late": 30}),
    "bad ones get lost": (skewed, 0.5, {"loses": True}),
}


@cache
def runs_of(name):
    draw, share, more = CASES[name]
    return [run(seed, draw, share, **more) for seed in range(RUNS)]


@pytest.mark.parametrize("name", CASES)
def test_the_interval_holds_at_all_times(name):
    assert sum(wrong for wrong, _ in runs_of(name)) <= allowed(RUNS)


@pytest.mark.parametrize("name", [name for name in CASES if "bad" not in name])
def test_pseudo_outcomes_have_the_gain_as_their_mean(name):
    """ΣY − Σgain is a martingale: over all runs its mean is within five standard errors of 0."""
    off = np.array([off for _, off in runs_of(name)])
    assert abs(off.mean()) < 5.0 * off.std() / np.sqrt(RUNS)


def test_the_interval_is_of_use():
    """A gain of 0.3 with yes-or-no rewards is shown after 600 decisions in nearly every run."""
    rng, shown = np.random.default_rng(1), 0
    for _ in range(20):
        uplift = Uplift(reward_range=(0.0, 1.0))
        for number in range(600):
            proposal = bool(rng.random() < 0.5)
            uplift.expect(str(number), Canary(0.5, (0.7, 0.4)), played=proposal)
            uplift.settle(str(number), yes_or_no(rng, 0.7 if proposal else 0.4), None)
        shown += uplift.status().reward.low > 0.0
    assert shown >= 18
