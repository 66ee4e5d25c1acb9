"""Appendix A.4 and docs/theory.md section 7: what SLUCB-QVI does when nobody told it τ_h(s)."""

from math import log, sqrt

import numpy as np
import pytest

from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import InputError
from tether.lab.simulate import simulate_stepwise
from tether.lab.worlds.linear_mdp import Streams
from tether.records import Transition
from worlds import OTHER, SAFE, two_arm_problem, uneven_world

K = 100
APPENDIX = SlucbConfig(explorer="paper", unknown_cost="appendix", episodes=K, cost_radius=0.1)


def warmed(agent, costs, *, step=0, state=0, feature=SAFE):
    """Let the agent act and see these costs of one action."""
    for z in costs:
        agent.plan()
        made = agent.act(step, state)
        agent.observe(Transition(step, state, feature, 0.0, float(z), state, made.id))
    agent.plan()


def rounds_needed(mean, noise=0.1, threshold=0.5):
    """Smallest n with mean + 6σ √(log K/n) <= τ."""
    return int(np.ceil((6.0 * noise / (threshold - mean)) ** 2 * log(K) * (1.0 - 1e-12)))


def test_the_rule_needs_the_number_of_episodes():
    with pytest.raises(InputError, match="episodes=K"):
        SlucbQvi(two_arm_problem(baseline_cost=None), SlucbConfig(unknown_cost="appendix"))


def test_the_safe_action_is_played_until_the_rule_passes():
    """σ = 0.1, K = 100, constant cost 0.2, τ = 0.5: n >= (0.6/0.3)² log 100 = 18.4, so 19 rounds."""
    assert rounds_needed(0.2) == 19
    agent = SlucbQvi(two_arm_problem(baseline_cost=None), APPENDIX)
    warmed(agent, [0.2] * 18)
    assert agent.act(0, 0).reason == "warm-up"
    assert agent.act(0, 0).is_baseline
    warmed(agent, [0.2])
    assert agent.act(0, 0).reason != "warm-up"


def test_the_estimated_gap_is_four_widths_of_the_mean():
    """n = 19: the gap is 4σ √(log K/19), the declared safe cost τ minus that."""
    agent = SlucbQvi(two_arm_problem(baseline_cost=None), APPENDIX)
    warmed(agent, [0.2] * 25)
    assert agent.tables.baseline_cost[0, 0, 0] == pytest.approx(0.5 - 0.4 * sqrt(log(K) / 19), rel=1e-14)


def test_the_rule_uses_the_empirical_mean():
    """Costs 0.3 and 0.1 in turn: 18 rounds average 0.2 and do not pass, 20 rounds do."""
    agent = SlucbQvi(two_arm_problem(baseline_cost=None), APPENDIX)
    warmed(agent, [0.3, 0.1] * 9)
    assert agent.act(0, 0).reason == "warm-up"
    warmed(agent, [0.3, 0.1])
    assert agent.act(0, 0).reason != "warm-up"


def test_each_step_and_state_is_warmed_up_on_its_own():
    agent = SlucbQvi(two_arm_problem(baseline_cost=None), APPENDIX)
    warmed(agent, [0.2] * 19)
    assert agent.act(0, 0).reason != "warm-up"
    assert agent.act(1, 0).reason == "warm-up"
    assert agent.act(0, 1).reason == "warm-up"


def test_other_actions_and_unmeasured_costs_do_not_count_as_rounds():
    agent = SlucbQvi(two_arm_problem(baseline_cost=None), APPENDIX)
    warmed(agent, [0.2] * 30, feature=OTHER)
    agent.observe(Transition(0, 0, SAFE, 0.0, None, 0))
    agent.plan()
    assert agent.act(0, 0).reason == "warm-up"


def test_two_constraints_must_both_pass():
    """Thresholds 0.5 and 0.4 at cost 0.2: the second needs (0.6/0.2)² log 100 = 41.4 rounds."""
    agent = SlucbQvi(two_arm_problem(baseline_cost=None, threshold=(0.5, 0.4)), APPENDIX)
    for n in range(42):
        assert n < 42
        agent.plan()
        assert agent.act(0, 0).reason == "warm-up"
        agent.observe(Transition(0, 0, SAFE, 0.0, (0.2, 0.2), 0))
    agent.plan()
    assert agent.act(0, 0).reason != "warm-up"


@pytest.mark.parametrize("explorer", ["certified", "directional", "adaptive"])
def test_an_estimated_safe_cost_is_not_a_declared_one_and_raises_no_alarm(explorer):
    """τ − gap is an estimate from above. Data that disagree with it are no misspecification."""
    world = uneven_world(1, states=3, rays=4, known_costs=False)
    config = SlucbConfig(explorer=explorer, unknown_cost="appendix", episodes=400)
    agent = SlucbQvi(world.problem, config)
    simulate_stepwise(world, agent, 400, Streams.from_seed(1))
    agent.plan()
    assert agent.alarms == []


@pytest.mark.parametrize("explorer", ["paper", "certified", "directional", "adaptive"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_estimated_safe_cost_is_no_fact_to_condition_on(explorer, seed):
    """Conditioning on c(f) = τ − gap when the truth is lower bends every bound: with the theorem's radius no
    step may exceed τ (δ = 0.01 per run)."""
    world = uneven_world(seed, states=3, rays=4, known_costs=False)
    config = SlucbConfig(explorer=explorer, unknown_cost="appendix", episodes=400)
    books = simulate_stepwise(world, SlucbQvi(world.problem, config), 400, Streams.from_seed(seed))
    assert books.violations.sum() == 0.0


def test_after_the_warm_up_other_actions_are_played():
    world = uneven_world(2, states=3, rays=4, known_costs=False)
    config = SlucbConfig(explorer="adaptive", unknown_cost="appendix", episodes=400)
    books = simulate_stepwise(world, SlucbQvi(world.problem, config), 400, Streams.from_seed(2))
    assert books.baseline[:3].mean() == 1.0
    assert books.baseline[-50:].mean() < 0.5


def test_the_certified_form_starts_without_a_warm_up():
    """No conditioning: bound(x) = ⟨ĝ, x⟩ + β ‖x‖_G. Before any data β = B√λ·…, so a small gap of 0.5 proves nothing."""
    agent = SlucbQvi(two_arm_problem(baseline_cost=None))
    agent.plan()
    decision = agent.act(0, 0)
    assert decision.is_baseline
    assert decision.reason == "only-baseline"
    assert np.isnan(decision.evidence[0].baseline_cost)
    assert decision.cost_bound == 0.5  # declared, not proven


def test_the_certified_form_proves_the_safe_action_from_data():
    """After many rounds at cost 0.2 the bound of a_0 is what the data prove: ⟨ĝ, f⟩ + β ‖f‖_G, between 0.2 and 0.5."""
    agent = SlucbQvi(
        two_arm_problem(baseline_cost=None), SlucbConfig(explorer="directional", cost_radius=0.4, cost_ridge=1.0)
    )
    for _ in range(99):
        agent.observe(Transition(0, 0, SAFE, 0.0, 0.2, 0))
    agent.plan()
    agent.act(0, 0)
    slot = 0
    proven = 99 * 0.2 / 100 + 0.4 / 10.0  # ĝ = Σz/(λ + n), ‖f‖_G = 1/√(λ + n)
    assert agent.current.gamma_hat[0, 0] @ SAFE + 0.4 * np.sqrt(agent.tables.g00[0, slot]) == pytest.approx(proven)


def test_the_certified_form_plays_along_a_ray_as_far_as_the_quadratic_allows():
    """λ = 1, n = 99 rounds of f at 0.2, β = 0.4: ‖f‖² = 0.01, ‖x‖² = 1, means 0.198 and 0, τ = 0.5.

    0.198(1−α) + 0.4 √(0.01(1−α)² + α²) <= 0.5: at α = 1 the left side is 0.4 <= 0.5, so the whole ray.
    With β = 0.8 it is 0.8, and 0.64(0.01(1−α)² + α²) = (0.302 + 0.198α)² has its larger root at 0.56955.
    """
    roots = np.roots([0.64 * 1.01 - 0.198**2, -0.64 * 0.02 - 2 * 0.302 * 0.198, 0.0064 - 0.302**2])
    for beta, expected in ((0.4, 1.0), (0.8, max(roots))):
        config = SlucbConfig(explorer="directional", cost_radius=beta, cost_ridge=1.0)
        agent = SlucbQvi(two_arm_problem(baseline_cost=None), config)
        for _ in range(99):
            agent.observe(Transition(0, 0, SAFE, 0.0, 0.2, 0))
            agent.observe(Transition(0, 0, OTHER, 1.0, None, 0))  # a reward, so that the ray is worth playing
        agent.plan()
        decision = agent.act(0, 0)
        assert not decision.is_baseline
        assert decision.action.length == pytest.approx(expected, abs=1e-6)


def test_the_bonus_gap_is_the_known_floor_until_the_data_prove_more():
    """κ = 2H/gap + 1 with gap = max(floor, τ − bound(f)). Floor 0.2, H = 2: κ = 21; β = 0.3: 6.3 ‖f‖ = 6.3."""
    problem = two_arm_problem(baseline_cost=None, gap_floor=0.2)
    agent = SlucbQvi(problem, SlucbConfig(explorer="paper", cost_radius=0.5, value_radius=0.3))
    agent.plan()
    assert agent.act(1, 0).score == pytest.approx(6.3, rel=1e-12)
