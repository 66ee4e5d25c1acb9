"""The misfit of a twin: by hand, never under the truth, and enough to keep a learner under τ."""

from dataclasses import replace

import numpy as np
import pytest

from limits import stated
from tether import Problem, SlucbQvi
from tether.lab.simulate import Witness, simulate_stepwise
from tether.lab.worlds.ad_load import ad_load_twin
from tether.lab.worlds.dosing import dosing_twin
from tether.lab.worlds.heating import heating_twin
from tether.lab.worlds.linear_mdp import LinearMDP, MisspecifiedMDP, Streams
from tether.lab.worlds.misfit import knowing_misfit, misfit_of

TWINS = {"dosing": dosing_twin, "heating": lambda rng: heating_twin(rng, opens=20), "ad-load": ad_load_twin}


def bent(extra, threshold=1.0, phases=(0,)):
    """One state, one ray from (1, 0) to (1, 1) / √2 in units of √2: the cost is 0.2 + 0.4α + extra(α, episode)."""
    root = np.sqrt(2.0)
    problem = Problem.from_rays(
        phi_0=np.array([[1.0, 0.0]]) / root,
        endpoints=np.array([[[1.0, 1.0]]]) / root,
        horizon=1,
        **stated(
            baseline_cost_error=0.0, baseline_cost=np.array([[0.2]]), threshold=threshold, noise=0.1, gamma_norm=2.0
        ),
    )
    linear = LinearMDP(
        name="bent", problem=problem, true_theta=np.array([[0.0, root]]), true_gamma=root * np.array([[[0.2, 0.4]]]),
        true_mu=np.zeros((1, 2, 1)), initial=np.ones(1),
    )  # fmt: skip
    cost = lambda step, state, feature, episode: np.array([extra(root * feature[1], episode)])  # noqa: E731
    return MisspecifiedMDP(linear=linear, extra=cost, story="bent", phases=phases)


def test_a_parabola_is_missed_by_an_eighth_by_the_best_line():
    """α² on [0, 1] against a + bα: the best line is α − 1/8, off by 1/8 at 0, 1/2 and 1 (Chebyshev)."""
    assert misfit_of(bent(lambda length, _: length**2, threshold=2.0))[0] == pytest.approx(0.125, rel=0.1)
    assert misfit_of(bent(lambda length, _: length**2, threshold=2.0))[0] >= 0.125


def test_what_costs_more_than_the_threshold_need_not_be_linear():
    """0.2 + 0.4α + α² reaches 0.4 at α = √0.24 − 0.2: up to there a line is off by an eighth of that, squared."""
    reach = np.sqrt(0.24) - 0.2
    twin = bent(lambda length, _: length**2, threshold=0.4)
    assert misfit_of(twin)[0] == pytest.approx(reach**2 / 8.0, rel=0.1)
    assert misfit_of(twin)[0] >= reach**2 / 8.0
    assert misfit_of(twin, whole=True)[0] >= 0.125


def test_where_a_cost_is_over_the_threshold_the_model_with_the_misfit_says_so_too():
    """First 0.2 − 0.15α; later 0.2 + 6.4α, over τ = 0.25 nearly at once: up to there 0.225 − 0.15α misses by 0.025. But
    at α = 1 that line is 0.075, so with ε < 0.175 what then costs 6.6 could be certified.
    """
    twin = bent(lambda length, episode: (6.0 if episode >= 5 else -0.55) * length, threshold=0.25, phases=(0, 5))
    assert misfit_of(twin)[0] >= 0.17
    assert misfit_of(replace(twin, phases=(0,)))[0] < 0.01


def test_costs_that_change_are_missed_by_half_the_change():
    """From episode 5 on 0.3α more: no line is nearer than 0.15 to both ends."""
    twin = bent(lambda length, episode: 0.3 * length * (episode >= 5), threshold=2.0, phases=(0, 5))
    assert misfit_of(twin)[0] == pytest.approx(0.15, rel=0.05)
    assert misfit_of(replace(twin, phases=(0,)))[0] == pytest.approx(0.0, abs=1e-2)


@pytest.mark.parametrize("name", list(TWINS))
def test_a_learner_that_knows_the_misfit_of_a_twin_keeps_to_tau_and_is_not_alarmed(name):
    twin = TWINS[name](Streams.from_seed(3).instance)
    known = knowing_misfit(twin)
    share = np.divide(known.problem.misfit, twin.problem.threshold)
    assert (share > 0.05).all() and (share < 0.5).all()
    assert known.linear.true_gamma.tobytes() == twin.linear.true_gamma.tobytes()
    witness = Witness(known, ["per-step", "pooled"], 60)
    simulate_stepwise(known, SlucbQvi(known.problem), 60, Streams.from_seed(3), witness=witness)
    assert witness.columns()["violations"].sum() == 0.0
    assert witness.alarms == {}
