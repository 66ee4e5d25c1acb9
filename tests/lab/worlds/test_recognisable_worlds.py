"""Dosing, heating, ad load, bottling and twins: numbers that a person can work out, and what the twins change."""

import numpy as np
import pytest

from tether import Decision, InputError, LinearMDP, Radius, SlucbQvi, ad_load, bottling, certified_set, dosing, heating
from tether.lab.worlds import ad_load as ads
from tether.lab.worlds import bottling as bottles
from tether.lab.worlds import dosing as doses
from tether.lab.worlds import heating as heat
from tether.lab.worlds.linear_mdp import MisspecifiedMDP, Streams
from tether.lab.worlds.planning import optimal_safe_policy, policy_values, true_costs
from tether.problem.action_sets import feature_of
from tether.records import StarAction

BUILDERS = {"dosing": dosing, "heating": heating, "ad-load": ad_load, "bottling": bottling}
TWINS = {"dosing": doses.dosing_twin, "heating": heat.heating_twin, "ad-load": ads.ad_load_twin}
LARGEST = {"dosing": 0.25, "heating": 0.25, "ad-load": 0.3, "bottling": 0.3}


def decision(step, state, feature):
    return Decision(7, step, state, 0, feature, False, "best", (), Radius(0.0, "none"), 0.0, 0)


def costs_of(world, state, direction, length=1.0):
    x = feature_of(world.problem.actions(state), StarAction(direction, length))
    return world.true_gamma[0] @ x


@pytest.mark.parametrize("name", BUILDERS)
def test_every_member_of_the_population_keeps_the_declared_assumptions(name):
    """At the largest spread that is allowed: LinearMDP checks laws, ‖γ*‖ <= B and safe costs when it is built."""
    worlds = [BUILDERS[name](np.random.default_rng(seed), spread=LARGEST[name]) for seed in range(30)]
    for world in worlds:
        assert (world.phi_0 @ world.true_gamma[0].T < np.array(world.problem.threshold)).all()
        rewards = world.endpoints @ world.true_theta[0]
        assert rewards.min() >= 0.0
        assert rewards.max() <= 1.0
    assert len({world.true_gamma.tobytes() for world in worlds}) == len(worlds), "every draw differs"


@pytest.mark.parametrize("name", BUILDERS)
def test_a_wider_population_than_the_declared_norm_covers_is_refused(name):
    with pytest.raises(InputError, match="spread"):
        BUILDERS[name](np.random.default_rng(0), spread=0.5)


@pytest.mark.parametrize("name", BUILDERS)
def test_the_optimal_safe_policy_earns_more_than_the_default_and_costs_at_most_tau(name):
    world = BUILDERS[name](np.random.default_rng(1))
    best = optimal_safe_policy(world)
    default = np.tile(world.phi_0, (world.problem.horizon, 1, 1))
    assert (best.values[0] > policy_values(world, default)[0] + 0.1).all()
    tight = np.array(world.problem.threshold) - true_costs(world, best.features)
    assert -1e-9 <= tight.min() < 1e-9, "the constraint binds somewhere, else it would be no constraint"


def test_toxicity_of_the_standard_and_of_the_full_dose_by_hand():
    """A normal metaboliser in the moderate stage: natural course 0.2 remitting, 0.8 progressing.

    Standard dose: 0.8 (0.2 · 0.03 + 0.8 · 0.10) + 0.2 · 0.55 = 0.1788. All of A: 0.1 · 0.086 + 0.9 · 0.55 = 0.5036.
    """
    world, state = dosing(np.random.default_rng(0), spread=0.0), 1 * 4 + 2
    assert world.true_gamma[0, 0] @ world.phi_0[state] == pytest.approx(0.1788)
    assert costs_of(world, state, list(doses.DIRECTIONS).index("A"))[0] == pytest.approx(0.5036)
    half = costs_of(world, state, list(doses.DIRECTIONS).index("A"), 0.5)[0]
    assert half == pytest.approx((0.1788 + 0.5036) / 2), "half the escalation is half the change"


def test_a_patient_keeps_the_type_and_quality_of_life_follows_the_next_stage():
    world = dosing(np.random.default_rng(2))
    law = world.endpoints[5, 3] @ world.true_mu[0]
    assert law.reshape(3, 4)[[0, 2]].sum() == pytest.approx(0.0, abs=1e-12)
    assert world.endpoints[5, 3] @ world.true_theta[0] == pytest.approx(law.reshape(3, 4)[1] @ doses.UTILITY)


def test_energy_saved_follows_the_heat_balance_by_hand():
    """Three K less in all rooms, 0.2 kW per K, 3 h: 1.8 kWh, whatever the weather; people at home feel 3.5 K more."""
    world = heating(np.random.default_rng(0), spread=0.0)
    row = list(heat.DIRECTIONS).index("all rooms")
    for state in range(18):
        assert heat.MOST_SAVED * world.endpoints[state, row] @ world.true_theta[0] == pytest.approx(1.8)
        felt = 3.0 * (0.75 + 0.35) * (1.0 if state % 2 else heat.AWAY)
        rise = costs_of(world, state, row)[0] - world.true_gamma[0, 0] @ world.phi_0[state]
        assert heat.KELVIN * rise == pytest.approx(felt)


def test_who_is_at_home_follows_the_clock_and_a_set_back_cools_the_room():
    world = heating(np.random.default_rng(0))
    for step in range(8):
        law = (world.phi_0[0] @ world.true_mu[step]).reshape(3, 3, 2)
        assert law[:, :, 1].sum() == pytest.approx(heat.AT_HOME[(step + 1) % 8])
    cool = [(x @ world.true_mu[0]).reshape(3, 3, 2)[:, 2].sum() for x in (world.phi_0[7], world.endpoints[7, 3])]
    assert cool[1] > cool[0] + 0.1


def test_complaints_and_churn_by_hand():
    """New users, fresh, video at full length: load 0.5, shares 0.45, 0.05, 0, 0.5, 0; sensitivity 1."""
    world = ad_load(np.random.default_rng(0), spread=0.0)
    complaints = 0.45 * 0.002 + 0.05 * 0.006 + 0.5 * 0.002 + 0.006 + 0.5 * 0.075
    churn = 0.45 * 0.001 + 0.05 * 0.004 + 0.5 * 0.001 + 0.002 + 0.5 * 0.012
    np.testing.assert_allclose(costs_of(world, 0, list(ads.DIRECTIONS).index("video")), [complaints, churn])
    assert len(world.problem.constraints) == 2
    assert world.problem.noise[0] == pytest.approx(np.sqrt(0.03 * 0.97 / 500))


def test_what_one_segment_teaches_is_certified_for_another():
    """Data of new users alone lengthen the certified step for loyal ones, where nothing was ever tried."""
    world, streams = ad_load(np.random.default_rng(0)), Streams.from_seed(4)
    agent = SlucbQvi(world.problem)
    loyal = 3 * 3
    before = certified_set(agent, 0, loyal).lengths
    for _ in range(150):
        agent.plan()
        agent.observe(world.step(agent.act(0, 0), streams))
    assert (certified_set(agent, 0, loyal).lengths >= before).all()
    assert certified_set(agent, 0, loyal).lengths.max() > 1.4 * before.max()


def test_the_chance_of_a_stoppage_by_hand_is_how_often_the_line_stops():
    """Glass, worn, capper at full speed: load 0.5, shares 0.25, 0.25, 0, 0.5, 0; fragility 0.75."""
    world, streams = bottling(np.random.default_rng(0), spread=0.0), Streams.from_seed(1)
    state, row = 2 * 3 + 1, list(bottles.DIRECTIONS).index("capper")
    chance = 0.25 * 0.005 + 0.25 * 0.025 + 0.5 * 0.010 + 0.75 * 0.010 + 0.75 * 0.5 * 0.55
    assert costs_of(world, state, row)[0] == pytest.approx(chance)
    assert world.problem.bounded == (True,)
    seen = [world.step(decision(0, state, world.endpoints[state, row]), streams).cost for _ in range(2000)]
    assert set(seen) == {0.0, 1.0}
    assert abs(np.mean(seen) - chance) < 5.0 * np.sqrt(chance * (1.0 - chance) / 2000)  # one in two million


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_is_the_same_instance_with_the_same_noise_and_only_costs_differ(name):
    twin, world = TWINS[name](np.random.default_rng(5)), BUILDERS[name](np.random.default_rng(5))
    assert isinstance(twin, MisspecifiedMDP)
    assert not isinstance(twin, LinearMDP), "nothing that relies on linear costs may take it for one"
    assert twin.linear.true_gamma.tobytes() == world.true_gamma.tobytes()
    late, state = 10**6, world.state_count - 1
    chosen = decision(0, state, world.endpoints[state, 0])
    seen, expected = twin.step(chosen, Streams.from_seed(1), late), world.step(chosen, Streams.from_seed(1))
    assert (seen.reward, seen.next_state, seen.decision_id) == (expected.reward, expected.next_state, 7)
    shift = np.atleast_1d(seen.cost) - np.atleast_1d(expected.cost)
    extra = twin.true_cost(0, state, chosen.feature, late) - world.true_gamma[0] @ chosen.feature
    np.testing.assert_allclose(shift, extra, atol=1e-15)
    assert (extra > 0.0).all(), "the model says less than the truth"


@pytest.mark.parametrize("name", TWINS)
def test_twins_leave_the_declared_cost_of_the_safe_action_true(name):
    twin = TWINS[name](np.random.default_rng(5))
    for state, phi_0 in enumerate(twin.linear.phi_0):
        told = twin.problem.look_up(state).baseline_cost[0]
        np.testing.assert_allclose(twin.true_cost(0, state, phi_0, 10**6), told, atol=1e-12)


def test_the_dosing_twin_is_convex_along_a_ray_and_cheaper_than_the_model_at_first():
    twin = doses.dosing_twin(np.random.default_rng(0))
    actions, lengths = twin.problem.actions(6), np.linspace(0.0, 1.0, 41)
    x = np.array([feature_of(actions, StarAction(0, a)) for a in lengths])
    true = np.array([twin.true_cost(0, 6, row, 0)[0] for row in x])
    model = x @ twin.linear.true_gamma[0, 0]
    assert (np.diff(true, 2) >= -1e-12).all()
    assert true[10] < model[10] - 0.01
    assert true[-1] > model[-1] + 0.1


def test_the_heating_twin_drifts_on_its_day_and_only_for_people_at_home():
    twin = heat.heating_twin(np.random.default_rng(0), opens=50, draught=1.8)
    home, away, row = 1, 0, 3
    x = twin.linear.endpoints
    model = x @ twin.linear.true_gamma[0, 0]
    assert twin.true_cost(0, home, x[home, row], 49)[0] == pytest.approx(model[home, row])
    assert twin.true_cost(0, away, x[away, row], 50)[0] == pytest.approx(model[away, row])
    base = twin.linear.phi_0[home] @ twin.linear.true_gamma[0, 0]
    rise = twin.true_cost(0, home, x[home, row], 50)[0] - base
    assert 1.6 < rise / (model[home, row] - base) < 1.8, "0.9 of what is felt at home is felt 1.8 times"


def test_the_ad_load_twin_is_the_model_up_to_its_threshold():
    twin = ads.ad_load_twin(np.random.default_rng(0), patience=0.25)
    actions = twin.problem.actions(0)
    for length, over in ((0.4, 0.0), (1.0, 0.35)):  # display adds 0.6 at full length
        x = feature_of(actions, StarAction(0, length))
        extra = twin.true_cost(0, 0, x, 0) - twin.linear.true_gamma[0] @ x
        np.testing.assert_allclose(extra, [0.12 * over, 0.04 * over], atol=1e-12)
