"""Effects that come steps later: found where they are, not where they are not."""

import numpy as np
import pytest

from check.test_levels import allowed
from tether import Constraint, Problem
from tether.check.later import NAME, later_effects
from tether.check.logs import as_log

HORIZON = 5


def problem(noise=0.1):
    """Doses on a ray from (1, 0) / √2 to (1, 1) / √2."""
    root = np.sqrt(2.0)
    return Problem.from_rays(
        phi_0=np.array([[1.0, 0.0]]) / root,
        endpoints=np.array([[[1.0, 1.0]]]) / root,
        constraints=Constraint(threshold=0.9, noise=noise),
        horizon=HORIZON,
    )


def doses(seed, episodes, late, lag=1):
    """z = 0.2 + 0.3 dose + late · dose of `lag` steps before + noise; the dose follows the last noise."""
    rng, phi, cost, step = np.random.default_rng(seed), [], [], []
    last = 0.0
    for _ in range(episodes):
        given = [0.0] * lag
        for h in range(HORIZON):
            dose = float(np.clip(0.5 + 2.0 * last + 0.2 * rng.standard_normal(), 0.0, 1.0))
            last = 0.1 * rng.standard_normal()
            phi.append([1.0, dose])
            cost.append(0.2 + 0.3 * dose + late * given[-lag] + last)
            step.append(h)
            given.append(dose)
    return {"phi": np.array(phi) / np.sqrt(2.0), "cost": np.array(cost), "step": np.array(step)}


@pytest.mark.parametrize("lag", [1, 3])
def test_a_dose_that_works_steps_later_is_found_with_its_delay(lag):
    found = problem().check(doses(0, 400, 0.3, lag), pooled=True)[NAME]
    assert found.verdict == "fails"
    assert f"what was played {lag} step" in found.evidence
    assert "later-effects" in found.way_out


def test_costs_of_their_own_step_are_not_accused():
    assert problem().check(doses(0, 400, 0.0), pooled=True)[NAME].verdict == "holds"
    assert problem().check(doses(0, 100, 0.0))[NAME].verdict == "holds"


def test_single_steps_say_nothing_about_later_ones():
    log = doses(0, 40, 0.3)
    found = problem().check({**log, "step": np.zeros(len(log["step"]))})[NAME]
    assert found.verdict == "cannot be known" and "only 0 measured outcomes" in found.evidence


def test_a_false_finding_is_no_more_likely_than_the_level():
    """n = 150 logs of 150 outcomes, seeds 0..149, level 0.3; doses follow the last noise."""
    told = problem()
    found = [later_effects(told, as_log(told, doses(seed, 30, 0.0)), 0.3, True).verdict for seed in range(150)]
    assert found.count("fails") <= allowed(150, 0.3)
