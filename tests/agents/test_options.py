"""What a problem may declare beyond the paper, by hand: misfit, realised limits, the origin, pooled safe costs."""

from math import log, sqrt

import numpy as np
import pytest

from limits import restated, stated
from tether import AssumptionError, Constraint, InputError, Misfit, Problem, Realised, RslucbQvi, SlucbConfig, SlucbQvi
from tether.agents.outcome_order import CostOutcome
from tether.kernels.ridge import observe_value
from worlds import two_arm_problem

Q = 0.1 * sqrt(2.0 * log(20.0))
"""σ = 0.1, η = 0.05."""


def told(agent, cost=0.3, times=400):
    """An agent that has seen both arms of `two_arm_problem` often, without noise."""
    for x, z in (([1.0, 0.0], 0.1), ([0.0, 1.0], cost)) * times:
        agent.learn_cost(CostOutcome(0, np.array(x), np.array([z])))
        observe_value(agent.values, 0, np.array(x), z, -1, np.zeros((3, 2)))  # what costs more pays more
    return agent


def ray(agent):
    """The decision in state 0; its bound at length α, less the same at the end of the ray."""
    agent.plan()
    decision = agent.propose(0, 0)
    assert not decision.is_baseline
    return decision.action.length, decision.evidence[0]


def model_bound(agent, x):
    """⟨ĝ, x⟩ + β‖x‖_G without facts, from the agent's sums and its own β."""
    gram, moment = agent.costs.gram[0], agent.costs.moment[0, 0]
    radius = agent.propose(0, 0).evidence[0].radius.value
    return float(np.linalg.solve(gram, moment) @ x + radius * np.sqrt(x @ np.linalg.solve(gram, x)))


def test_a_ray_begins_two_misfits_over_the_safe_cost_and_ends_one_over_the_model():
    """ε = 0.05, τ_s = 0.1: bound(α) = (1 − α)(0.1 + 2ε) + α(U + ε) = τ at the certified length; a_0 shows 0.1."""
    config = SlucbConfig(condition_on="state", explorer="plain", value_radius=0.0)
    agent = told(SlucbQvi(two_arm_problem(horizon=1, misfit=0.05), config), cost=0.9)
    length, shown = ray(agent)
    upper = model_bound(agent, np.array([0.0, 1.0])) + 0.05
    tied = (0.5 - 0.2) / (upper - 0.2)
    assert length >= tied * (1.0 - 1e-9)  # the bound without a_0 may allow more
    x = np.array([1.0 - length, length])
    expected = min(0.2 + length * (upper - 0.2), model_bound(agent, x) + 0.05)
    assert shown.bound == pytest.approx(expected, abs=1e-7)
    assert shown.bound <= 0.5 and shown.assumptions == (Misfit(0.05).sentence(),)


def test_the_radius_grows_with_the_root_of_the_number_of_samples():
    """800 samples off by up to ε = 0.05 each: √(800 · 0.0025) = √2 more than the same data without a misfit."""
    radii = []
    for misfit in (0.0, 0.05):
        config = SlucbConfig(condition_on="state", cost_radius="mixture")
        agent = told(SlucbQvi(two_arm_problem(horizon=1, misfit=misfit, baseline_cost=None), config))
        radii.append(agent.propose(0, 0).evidence[0].radius.value)
    assert radii[1] - radii[0] == pytest.approx(sqrt(2.0), rel=1e-6)


def test_no_misfit_is_todays_problem():
    agents = [told(SlucbQvi(two_arm_problem(horizon=1, **more))) for more in ({}, {"misfit": 0.0})]
    first, second = (ray(agent) for agent in agents)
    assert first == second


def test_additive_noise_takes_its_quantile_off_the_threshold():
    """bound + q = τ where the ray is cut; a_0 shows τ_s + q."""
    config = SlucbConfig(condition_on="state", explorer="plain", value_radius=0.0)
    agent = told(SlucbQvi(two_arm_problem(horizon=1, limit="realised"), config), cost=0.9)
    plain = told(SlucbQvi(two_arm_problem(horizon=1, threshold=0.5 - Q), config), cost=0.9)
    length, shown = ray(agent)
    assert length == pytest.approx(ray(plain)[0], rel=1e-9)
    assert shown.bound == pytest.approx(0.5, abs=1e-9) and shown.bound <= shown.threshold == 0.5
    assert (shown.bounds, shown.assumptions) == ("realised cost", (Realised(0.05).sentence(),))


def test_noise_that_scales_with_the_length_is_charged_at_the_end_of_the_ray():
    """(1 − α)τ_s + α(bound(x) + q) = τ: with w = bound(x) from the same data, α = 0.4/(w − 0.1 + q)."""
    config = SlucbConfig(condition_on="state", explorer="plain", value_radius=0.0)
    agent = told(SlucbQvi(two_arm_problem(horizon=1, limit="realised", noise_scales=True), config), cost=0.9)
    plain = told(SlucbQvi(two_arm_problem(horizon=1), config), cost=0.9)
    end = 0.1 + 0.4 / ray(plain)[0]  # bound(x), as 0.4 = α(bound(x) − 0.1)
    assert ray(agent)[0] == pytest.approx(0.4 / (end - 0.1 + Q), rel=1e-9)


def test_a_safe_action_whose_noise_passes_the_limit_is_refused_at_the_door():
    """τ_s + q = 0.3 + 0.245 > 0.5; where a_0 has no noise it is fine. tight_baseline does not help: it would play
    a_0."""
    for tight in ("error", "baseline"):
        with pytest.raises(AssumptionError, match=r"Realised\(\) asks.*noise_scales=True"):
            two_arm_problem(baseline_cost=0.3, limit="realised", tight_baseline=tight).look_up(0)
    two_arm_problem(baseline_cost=0.3, limit="realised", noise_scales=True).look_up(0)


def test_mixtures_cannot_limit_what_is_realised():
    with pytest.raises(InputError, match="an average over its draw"):
        RslucbQvi(two_arm_problem(finite=True, limit="realised"), rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Realised(0.0), r"Realised\(exceedance=…\) must be an η in \(0, 1\)"),
        (lambda: Realised(noise_scales=1), "noise_scales must be True or False"),
        (lambda: Misfit(-1), r"Misfit\(error=…\) must be finite and >= 0"),
        (lambda: Constraint(threshold=0.5, noise=0.1, relax=[Misfit(0.1), Misfit(0.2)]), "misfit twice"),
        (lambda: Constraint(threshold=0.5, noise=0.1, relax=[0.1]), "relax must list"),
    ],
)
def test_options_that_mean_nothing_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("unit", [1.0, 1e-10])
def test_safe_costs_that_differ_by_step_cannot_be_pooled(unit):
    """0.1 and 0.2 at the two steps, in any unit: one γ* cannot give both, unless each is only known up to 0.05."""
    problem = {
        "threshold": 0.5 * unit,
        "noise": 0.1 * unit,
        "horizon": 2,
        "baseline_cost_error": 0.0,
        "baseline_cost": [[0.1 * unit], [0.2 * unit]],
    }
    arms = {"phi_0": [[1.0, 0.0]], "endpoints": [[[0.0, 1.0]]]}
    agent = SlucbQvi(Problem.from_rays(**stated(**arms, **problem)), SlucbConfig(pooled=True))
    for ask in (lambda: agent.act(0, 0), lambda: agent.propose(0, 0, agent.problem.look_up(0))):
        with pytest.raises(AssumptionError, match="do not depend on the step"):
            ask()
    SlucbQvi(Problem.from_rays(**stated(**arms, **problem)), SlucbConfig()).act(0, 0)
    rough = Problem.from_rays(**stated(**arms, **{**problem, "baseline_cost_error": 0.05 * unit}))
    SlucbQvi(rough, SlucbConfig(pooled=True)).act(0, 0)


def test_the_origin_must_be_declared_to_cost_nothing():
    arms = {"phi_0": [[0.0, 0.0]], "endpoints": [[[0.0, 1.0]]], "threshold": 0.5, "noise": 0.1, "horizon": 1}
    for cost in (0.1, None):
        with pytest.raises(AssumptionError, match="zero"):
            Problem.from_rays(
                **stated(**arms, baseline_cost_error=0.0, baseline_cost=None if cost is None else [[cost]])
            )
    Problem.from_rays(**stated(**arms, baseline_cost=[[0.01]], baseline_cost_error=0.02))
    for config in (SlucbConfig(), SlucbConfig(condition_on="all"), SlucbConfig(explorer="paper", cost_radius=1.0)):
        agent = SlucbQvi(Problem.from_rays(**stated(**arms, baseline_cost_error=0.0, baseline_cost=[[0.0]])), config)
        for _ in range(50):
            agent.plan()
            decision = agent.act(0, 0)
            agent.observe(decision.outcome(reward=1.0 - decision.is_baseline, cost=0.3 * decision.feature[1]))
        assert not decision.is_baseline


@pytest.mark.parametrize(
    "options",
    [{"misfit": 0.02}, {"limit": "realised"}, {"reward_noise": 0.3}],
    ids=["misfit", "realised", "reward noise"],
)
def test_a_restored_agent_continues_and_another_problem_is_refused(options, tmp_path):
    problem = two_arm_problem(horizon=1, **options)
    agent = told(SlucbQvi(problem))
    agent.plan()
    agent.save(tmp_path / "agent")
    again = SlucbQvi.restore(tmp_path / "agent", problem)
    assert again.costs.bias.tolist() == agent.costs.bias.tolist()
    assert again.propose(0, 0).evidence == agent.propose(0, 0).evidence
    word = "reward_noise" if "reward_noise" in options else "relax"
    with pytest.raises(Exception, match=f"its {word} is"):
        SlucbQvi.restore(tmp_path / "agent", two_arm_problem(horizon=1))


def test_one_safe_cost_for_all_states_is_checked_again_where_the_threshold_changes():
    """A number is checked at the door; a copy of the problem with another τ knows it as a function."""
    problem = two_arm_problem(baseline_cost=0.3)
    assert problem.look_up(0).baseline_cost.tolist() == [[0.3]] * problem.horizon
    with pytest.raises(AssumptionError, match=r"safe action costs 0.3 and tau is 0.2"):
        restated(problem, threshold=0.2).look_up(0)
