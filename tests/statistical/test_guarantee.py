"""The theorems, as exact-binomial tests over fresh seeds.

Each test states n, its seeds and the false-alarm rate: if the claimed failure probability is true, the test goes red
by chance in fewer than one of a million runs (`allowed_failures`). The companions named "…notices…" plant a radius that
is too small and check that the same measurement then turns red, so none of these tests is one that cannot fail.
"""

import numpy as np
import pytest
from scipy.stats import binom

from tether import LsviConfig, LsviUcb, SlucbConfig, SlucbQvi, synthetic
from tether.kernels.radius import classical_radius, cost_radius, mixture_radius
from tether.lab.simulate import simulate
from tether.lab.worlds.linear_mdp import Streams

FALSE_ALARM = 1e-6


def allowed_failures(runs: int, probability: float) -> int:
    """The most failures that a true failure probability explains with chance above FALSE_ALARM."""
    return int(binom.isf(FALSE_ALARM, runs, probability))


def event_fails(seed: int, *, noise_told: float = 0.1, episodes: int = 400) -> bool:
    """Whether ‖ĝ_h − γ*_h‖_A > β_c at any step of any episode of one run (σ = 0.1, δ = 0.1)."""
    streams = Streams.from_seed(seed)
    sizes = {"states": 3, "rays": 8, "dimension": 3, "horizon": 2}
    world = synthetic(streams.instance, **sizes, noise=0.1, confidence=0.1)
    told = synthetic(Streams.from_seed(seed).instance, **sizes, noise=noise_told, confidence=0.1)
    agent = SlucbQvi(told.problem)
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(2):
            transition = world.step(agent.act(step, state), streams)
            agent.observe(transition)
            state = transition.next_state
            costs = agent.costs
            estimate = np.linalg.solve(costs.gram[step], costs.moment[step, 0])
            error = estimate - world.true_gamma[step, 0]
            if error @ costs.gram[step] @ error > cost_radius(costs, agent.rules, step, 0) ** 2:
                return True
    return False


@pytest.mark.slow
def test_the_cost_event_is_covered_at_all_times_with_probability_one_minus_delta():
    """n = 300 runs, seeds 1000..1299, δ = 0.1, checked after every one of 800 observations."""
    failures = sum(event_fails(seed) for seed in range(1000, 1300))
    assert failures <= allowed_failures(300, 0.1)


@pytest.mark.slow
def test_the_coverage_test_notices_a_noise_level_that_is_told_too_small():
    """The same measurement with σ told as a quarter of its true size must exceed the same limit."""
    failures = sum(event_fails(seed, noise_told=0.025) for seed in range(1000, 1060))
    assert failures > allowed_failures(60, 0.1)


def runs_with_violations(config: SlucbConfig, seeds: range, **sizes: object) -> tuple[int, float]:
    """How many runs ever exceed τ in truth, and the mean regret of an episode in the last tenth over the first."""
    broken, early, late = 0, 0.0, 0.0
    for seed in seeds:
        streams = Streams.from_seed(seed)
        world = synthetic(streams.instance, **sizes)
        books = simulate(world, SlucbQvi(world.problem, config), 2000, streams)
        broken += bool(books.violations.sum())
        early += books.regret[:200].mean()
        late += books.regret[-200:].mean()
    return broken, late / early


@pytest.mark.slow
@pytest.mark.parametrize("explorer", ["certified", "directional"])
@pytest.mark.parametrize("noise", [0.01, 0.1])
@pytest.mark.parametrize("condition_on", ["state", "visited"])
def test_theorem_radius_keeps_every_step_of_every_run_under_the_threshold(explorer, noise, condition_on):
    """n = 60 runs, seeds 2000..2059, K = 2000, δ = 0.01. Facts with error bars: test_facts_coverage.py."""
    config = SlucbConfig(explorer=explorer, condition_on=condition_on)
    broken, _ = runs_with_violations(config, range(2000, 2060), states=6, rays=30, noise=noise)
    assert broken <= allowed_failures(60, 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_the_average_regret_of_the_default_learner_falls(noise):
    """Mean over 60 runs, seeds 2000..2059: an episode of the last tenth costs less than half of one of the first."""
    _, trend = runs_with_violations(SlucbConfig(), range(2000, 2060), states=6, rays=30, noise=noise)
    assert trend < 0.5


@pytest.mark.slow
def test_the_violation_test_notices_a_tuned_radius_that_is_too_small():
    """The paper's practice, β tuned to 0.1 at λ = 1, breaks the constraint in most runs of the same measurement."""
    config = SlucbConfig.paper(0.1)
    broken, _ = runs_with_violations(config, range(2000, 2030), states=6, rays=30)
    assert broken > allowed_failures(30, 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("known", ["state", "all"])
def test_unknown_and_fully_known_safe_costs_keep_the_guarantee(known):
    """n = 40 runs each: τ_h(s) unknown (certified form), and conditioning on all known safe costs."""
    seeds = range(3000, 3040)
    if known == "all":
        broken, _ = runs_with_violations(SlucbConfig(condition_on="all"), seeds, states=3, rays=20)
    else:
        broken, _ = runs_with_violations(SlucbConfig(), seeds, states=3, rays=20, known_costs=False)
    assert broken <= allowed_failures(40, 0.01)


@pytest.mark.slow
def test_certified_values_are_optimistic():
    """V* <= V^k in every episode of 30 runs (seeds 4000..4029) with a generous value radius: Lemma 1's claim."""
    pessimistic = 0
    for seed in range(4000, 4030):
        streams = Streams.from_seed(seed)
        world = synthetic(streams.instance, states=5, rays=20)
        config = SlucbConfig(explorer="certified", value_radius=4.0)
        books = simulate(world, SlucbQvi(world.problem, config), 1000, streams)
        pessimistic += bool((books.optimism < -1e-9).any())
    assert pessimistic <= allowed_failures(30, 0.01)


@pytest.mark.slow
def test_the_optimism_test_notices_a_missing_bonus():
    """Without a bonus the told-γ* learner's values do fall below V*."""
    pessimistic = 0
    for seed in range(4000, 4010):
        streams = Streams.from_seed(seed)
        world = synthetic(streams.instance, states=5, rays=20)
        agent = LsviUcb(world.problem, LsviConfig(value_radius=0.0), true_gamma=world.true_gamma)
        pessimistic += bool((simulate(world, agent, 1000, streams).optimism < -1e-9).any())
    assert pessimistic > allowed_failures(10, 0.01)


def test_the_default_radius_is_never_above_the_classical_one():
    for log_det in (0.0, 1.0, 50.0, 1e4):
        for ridge in (1e-8, 1e-2, 1.0, 1e3):
            ours = mixture_radius(log_det, 0.3, 300.0, ridge, 2.0)
            assert ours <= classical_radius(log_det, 0.3, 300.0, ridge, 2.0)
