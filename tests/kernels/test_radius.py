"""Radii, κ and the warm-up rule as numbers; the order of the radii, and what they may depend on (theory, section 4)."""

from math import e, exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.calls import make_rules
from kernels.generators import costs_of, feed, law, ridges, seeds, unit_ball
from tether.agents.agent import value_radius
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import InputError
from tether.kernels.model import CLASSICAL, MIXTURE, SMALLEST, TOLD, TUNED
from tether.kernels.radius import (
    classical_radius,
    cost_radius,
    default_cost_ridge,
    grid_radius,
    kappa,
    mixture_radius,
    paper_value_term,
    warmup_gap,
    warmup_passed,
)
from tether.kernels.ridge import (
    GRID,
    add_bias,
    new_costs,
    observe_cost,
    observe_value,
    refresh_spectrum,
    remember,
)
from worlds import two_arm_problem

LOG_DET, NOISE = st.floats(0.0, 200.0), st.floats(1e-3, 10.0)
EVENTS, NORM = st.floats(2.0, 1e6), st.floats(0.01, 10.0)


# By hand


def test_the_mixture_radius_has_both_parts_under_one_root():
    """σ = 2, log det = 5, events = e²: 4 (5 + 4) = 36; λB² = 7·4 = 28: √64 = 8."""
    assert mixture_radius(5.0, 2.0, e**2, 7.0, 2.0) == pytest.approx(8.0, rel=1e-15)


def test_the_classical_radius_has_two_roots():
    """The same numbers: √36 + √28 = 6 + 2√7."""
    assert classical_radius(5.0, 2.0, e**2, 7.0, 2.0) == pytest.approx(6.0 + 2.0 * sqrt(7.0), rel=1e-15)


def test_a_grid_radius_by_hand():
    """v = 3, λ = 1, λ_j = 9, σ = 2, log det = 5, events = e²: √(12/4) · 6 + 1·B/√4 with B = 2: 6√3 + 1."""
    assert grid_radius(5.0, 3.0, 9.0, 2.0, e**2, 1.0, 2.0) == pytest.approx(6.0 * sqrt(3.0) + 1.0, rel=1e-15)


def test_a_grid_ridge_below_the_estimators_proves_nothing():
    assert grid_radius(5.0, 3.0, 0.5, 2.0, e**2, 1.0, 2.0) == float("inf")


def test_theorem_1s_second_term():
    """c_β = 0.5, d = 2, H = 3, T = 50, δ = 0.1: 0.5 · 2 · 3 √log(1000) = 3 √log(1000)."""
    assert paper_value_term(2, 3, 50, 0.1, 0.5) == pytest.approx(3.0 * sqrt(log(1000.0)), rel=1e-15)


def test_kappa_by_hand():
    """H = 3, τ − τ_s = 0.5: 2·3/0.5 + 1 = 13."""
    assert kappa(3, 0.5) == 13.0


def test_the_default_ridge_by_hand():
    """σ = 0.1, B = 2, d = 8: 0.01·8/4 = 0.02. A second constraint with σ = 0.2 asks for more; the smaller wins."""
    assert default_cost_ridge((0.1,), (2.0,), 8) == pytest.approx(0.02, rel=1e-15)
    assert default_cost_ridge((0.2, 0.1), (2.0, 2.0), 8) == pytest.approx(0.02, rel=1e-15)


def test_the_warm_up_ends_when_the_upper_estimate_is_under_the_threshold():
    """K = e⁴, σ = 0.1, n = 16: 6 · 0.1 · √(4/16) = 0.3. τ̂ = 0.2 passes τ = 0.5 exactly; 0.21 does not."""
    episodes = round(exp(4.0))
    margin = 0.6 * sqrt(log(episodes) / 16)
    assert warmup_passed(0.5 - margin - 1e-12, 0.1, episodes, 16, 0.5)
    assert not warmup_passed(0.5 - margin + 1e-3, 0.1, episodes, 16, 0.5)
    assert margin == pytest.approx(0.3, abs=0.001)


def test_the_gap_after_the_warm_up():
    """4 · 0.1 · √(log K/16) with K = 55: 0.2002."""
    assert warmup_gap(0.1, 55, 16) == pytest.approx(0.4 * sqrt(log(55.0)) / 4.0, rel=1e-15)
    assert warmup_gap(0.1, 55, 16) == pytest.approx(0.2, abs=0.001)


def test_no_rounds_never_pass_the_warm_up():
    assert not warmup_passed(-100.0, 0.1, 10, 0, 0.5)


# What an agent makes of them


def test_the_remaining_value_radius_is_the_number_of_steps_left():
    """H = 3: 3, 2, 1."""
    assert value_radius(two_arm_problem(horizon=3), SlucbConfig(value_radius="remaining"), 1.0).tolist() == [
        3.0,
        2.0,
        1.0,
    ]


def test_noisy_rewards_enlarge_the_remaining_value_radius_by_twice_their_noise():
    """H = 2, σ_r = 0.3: 2.6, 1.6."""
    problem = two_arm_problem(horizon=2, reward_noise=0.3)
    assert value_radius(problem, SlucbConfig(), 1.0) == pytest.approx([2.6, 1.6], rel=1e-15)


def test_the_mixture_value_radius_is_for_bandits_only():
    with pytest.raises(InputError, match="H = 1, but H = 2"):
        SlucbQvi(two_arm_problem(horizon=2), SlucbConfig(value_radius="mixture"))


def test_the_mixture_value_radius_follows_the_reward_data():
    """One unit feature, σ_r = 0.5, d = 2, δ = 0.01: β_v² = ¼(log(1 + 1/λ) + 2 log 100) + 2, where λB² stays 2.

    λ = 1 with feature_norm 1; λ = 4 and half of B with feature_norm 2.
    """
    for norm in (1.0, 2.0):
        config = SlucbConfig(value_radius="mixture")
        agent = SlucbQvi(two_arm_problem(horizon=1, reward_noise=0.5, feature_norm=norm), config)
        observe_value(agent.values, 0, np.array([1.0, 0.0]), 0.7, -1, np.zeros((3, 2)))
        expected = sqrt(0.25 * (log(1.0 + 1.0 / norm**2) + 2.0 * log(100.0)) + 2.0)
        decision = agent.propose(0, 0)
        assert decision.value_radius.value == pytest.approx(expected, rel=1e-14)
        assert decision.value_radius.origin == "theorem"


def test_samples_that_are_off_enlarge_every_theorems_radius_by_the_root_of_their_squares():
    """Two samples off by up to 0.3 and one by 0.4: √(0.09 + 0.09 + 0.16) more; a tuned radius is what it is."""
    costs = new_costs(1, 2, 1, 1.0)
    for kind in (SMALLEST, MIXTURE, CLASSICAL, TUNED):
        costs.bias[0, 0] = 0.0
        before = cost_radius(costs, radius_rules(kind), 0, 0)
        for bias in (0.3, 0.3, 0.4):
            add_bias(costs, 0, np.array([bias]))
        more = 0.0 if kind == TUNED else sqrt(0.34)
        assert cost_radius(costs, radius_rules(kind), 0, 0) == pytest.approx(before + more, rel=1e-8)


def test_a_number_is_the_value_radius_of_every_step():
    assert value_radius(two_arm_problem(horizon=2), SlucbConfig(value_radius=0.7), 1.0).tolist() == [0.7, 0.7]


def test_the_theorems_value_radius_uses_all_steps_of_all_episodes():
    """d = 2, H = 3, K = 10: T = 30, δ = 0.01."""
    expected = 0.5 * 2 * 3 * sqrt(log(2 * 30 / 0.01))
    config = SlucbConfig(value_radius="theorem", episodes=10, c_beta=0.5)
    assert value_radius(two_arm_problem(horizon=3), config, 1.0) == pytest.approx([expected] * 3, rel=1e-15)


def test_the_theorems_value_radius_cannot_do_without_the_number_of_episodes():
    with pytest.raises(InputError, match="episodes"):
        value_radius(two_arm_problem(), SlucbConfig(value_radius="theorem"), 1.0)


def test_the_unseen_value_radius_gives_a_new_unit_feature_a_bonus_of_twice_the_horizon():
    """H = 3, λ = 0.04: β_v = 2·3·0.2 = 1.2, and ‖x‖ in A^{-1} = I/λ is 5 at first: 6 = 2H."""
    config = SlucbConfig(value_radius="unseen")
    assert value_radius(two_arm_problem(horizon=3), config, 0.04) == pytest.approx([1.2] * 3, rel=1e-15)
    noisy = two_arm_problem(horizon=3, reward_noise=0.3)  # and twice the error of a mean beyond what was seen: 2·0.3
    assert value_radius(noisy, config, 0.04) == pytest.approx([1.8] * 3, rel=1e-15)


def test_the_union_is_over_steps_and_constraints():
    """H = 3, M = 2, δ = 0.01: H·M/δ = 600; pooled steps are one event: 200."""
    problem = two_arm_problem(horizon=3, threshold=(0.5, 0.6))
    assert SlucbQvi(problem).rules.events == pytest.approx(600.0, rel=1e-15)
    assert SlucbQvi(problem, SlucbConfig(pooled=True)).rules.events == pytest.approx(200.0, rel=1e-15)


def test_before_any_data_the_mixture_radius_of_an_agent_is_noise_and_prior():
    """log det = 0, σ = 0.1, H = 2, δ = 0.01, λ = 0.5, B = √2: √(0.01 · 2 log 200 + 0.5 · 2)."""
    agent = SlucbQvi(two_arm_problem(), SlucbConfig(cost_radius="mixture", cost_ridge=0.5))
    expected = sqrt(0.01 * 2.0 * log(200.0) + 1.0)
    assert cost_radius(agent.costs, agent.rules, 0, 0) == pytest.approx(expected, rel=1e-15)


def test_before_any_data_the_default_radius_pays_for_its_six_sets():
    """As above, but λ = σ²d/B² = 0.01, and the one root has half of δ: √(0.01 · 2 log 400 + 0.01 · 2)."""
    agent = SlucbQvi(two_arm_problem())
    expected = sqrt(0.01 * 2.0 * log(400.0) + 0.02)
    assert cost_radius(agent.costs, agent.rules, 0, 0) == pytest.approx(expected, rel=1e-15)


# Laws


@law
@given(LOG_DET, NOISE, EVENTS, ridges, NORM)
def test_one_root_is_never_larger_than_two_and_at_least_their_root_mean_square(log_det, noise, events, ridge, norm):
    """√(a² + b²) <= a + b <= √2 √(a² + b²)."""
    one = mixture_radius(log_det, noise, events, ridge, norm)
    two = classical_radius(log_det, noise, events, ridge, norm)
    assert one <= two * (1.0 + 1e-15)
    assert two <= np.sqrt(2.0) * one * (1.0 + 1e-12)


@law
@given(LOG_DET, NOISE, EVENTS, ridges, NORM, st.sampled_from([mixture_radius, classical_radius]))
def test_a_radius_grows_with_data_noise_union_ridge_and_norm(log_det, noise, events, ridge, norm, radius):
    base = radius(log_det, noise, events, ridge, norm)
    assert radius(log_det + 1.0, noise, events, ridge, norm) > base
    assert radius(log_det, 2.0 * noise, events, ridge, norm) > base
    assert radius(log_det, noise, 2.0 * events, ridge, norm) > base
    assert radius(log_det, noise, events, 2.0 * ridge, norm) > base
    assert radius(log_det, noise, events, ridge, 2.0 * norm) > base


def radius_rules(kind, gamma_norm=1.5):
    return make_rules(radius_kind=kind, noise=np.array([0.3]), gamma_norm=np.array([gamma_norm]), events=200.0)


@law
@given(seeds, st.integers(1, 5), st.integers(0, 60), ridges)
def test_each_kind_of_radius_is_its_formula_at_the_determinant_of_the_gram_matrix(seed, d, count, ridge):
    rows = unit_ball(np.random.default_rng(seed), count, d)
    costs = costs_of(rows, ridge)
    log_det = np.linalg.slogdet(np.eye(d) + rows.T @ rows / ridge)[1]
    noise_part = 0.3**2 * (log_det + 2.0 * np.log(200.0))
    mixture = cost_radius(costs, radius_rules(MIXTURE), 0, 0)
    classical = cost_radius(costs, radius_rules(CLASSICAL), 0, 0)
    assert mixture == pytest.approx(np.sqrt(noise_part + ridge * 1.5**2), rel=1e-10)
    assert classical == pytest.approx(np.sqrt(noise_part) + np.sqrt(ridge) * 1.5, rel=1e-10)


@law
@given(seeds, st.integers(2, 5), st.integers(0, 60), st.sampled_from([SMALLEST, MIXTURE, CLASSICAL]))
def test_remembered_facts_add_nothing_to_the_radius(seed, d, count, kind):
    """Section 17: the event is about the fact-free A, with or without facts."""
    rng = np.random.default_rng(seed)
    rows = unit_ball(rng, count, d)
    plain, knowing = costs_of(rows, 0.3), new_costs(1, d, 1, 0.3)
    for f in unit_ball(rng, 2, d):
        assert remember(knowing, 0, f, np.array([0.1]), np.array([1.5]), np.zeros((3, d)))
    feed(knowing, rows)
    assert cost_radius(knowing, radius_rules(kind), 0, 0) == cost_radius(plain, radius_rules(kind), 0, 0)


def certified_sets(rows, ridge):
    """The radii among which the default takes the smallest, each at its exact spectrum: own mixture first."""
    d = rows.shape[1]
    v = rows.T @ rows
    own = mixture_radius(np.linalg.slogdet(np.eye(d) + v / ridge)[1], 0.3, 2.0 * 200.0, ridge, 1.5)
    events = 200.0 * 2.0 * len(GRID)
    grid = GRID * (rows[0] @ rows[0] if len(rows) else 1.0)
    least = max(np.linalg.eigvalsh(v)[0], 0.0)
    dets = [np.linalg.slogdet(np.eye(d) + v / level)[1] for level in grid]
    pairs = zip(dets, grid, strict=True)
    return [own] + [grid_radius(det, least, level, 0.3, events, ridge, 1.5) for det, level in pairs]


@law
@given(seeds, st.integers(1, 4), st.integers(0, 300), ridges)
def test_the_smallest_radius_is_the_smallest_of_its_certified_sets(seed, d, count, ridge):
    """Six sets hold at once: the one root spends half of δ, the others a tenth each; at a fresh spectrum it is their
    exact minimum."""
    rows = unit_ball(np.random.default_rng(seed), count, d)
    costs = costs_of(rows, ridge)
    costs.grid_at[0] = -np.inf  # no spectrum is recent
    refresh_spectrum(costs)
    radius = cost_radius(costs, radius_rules(SMALLEST), 0, 0)
    assert radius == pytest.approx(min(certified_sets(rows, ridge)), rel=1e-8)


def test_the_grid_is_in_units_of_the_first_features_squared_norm_and_then_stays():
    """‖(0.3, 0.4)‖² = 0.25; what comes later changes nothing, nor does it after a zero, which says nothing of sizes."""
    for first, unit in (([0.3, 0.4], 0.25), ([0.0, 0.0], 1.0), ([3e-9, 4e-9], 2.5e-17), ([1e-160, 0.0], 1e-200)):
        costs = new_costs(1, 2, 1, 1.0)
        for x in (first, [0.0, 0.5], [3e-9, 4e-9]):
            observe_cost(costs, 0, np.array(x), np.zeros(1), np.zeros((3, 2)))
            np.testing.assert_allclose(costs.grid[0], unit * GRID, rtol=1e-14)


@law
@given(seeds, st.integers(1, 4), st.integers(1, 200), st.floats(-4.0, 3.0).map(lambda e: 10.0**e))
def test_the_radius_does_not_depend_on_the_unit_of_features(seed, d, count, unit):
    """Features in another unit, and λ and B with them: the same problem, the same radius. Fixed ridges inflated it by
    12 to 24 % at features × 0.03 (docs/theory.md section 17)."""
    rows = unit_ball(np.random.default_rng(seed), count, d)
    radii = []
    for scale in (1.0, unit):
        costs = costs_of(scale * rows, 0.01 * scale**2)
        costs.grid_at[0] = -np.inf
        refresh_spectrum(costs)
        radii.append(cost_radius(costs, radius_rules(SMALLEST, 1.5 / scale), 0, 0))
    assert radii[1] == pytest.approx(radii[0], rel=1e-6)


@law
@given(seeds, st.integers(1, 4), st.integers(1, 200), st.integers(1, 200), st.floats(-3.0, -1.0).map(lambda e: 10.0**e))
def test_a_lagging_spectrum_never_makes_the_radius_too_small(seed, d, before, after, ridge):
    """V grows between two looks at its spectrum: the radius may be larger than the exact minimum, never smaller."""
    rows = unit_ball(np.random.default_rng(seed), before + after, d)
    costs = costs_of(rows[:before], ridge)
    costs.grid_at[0] = -np.inf
    refresh_spectrum(costs)
    feed(costs, rows[before:])
    radius = cost_radius(costs, radius_rules(SMALLEST), 0, 0)
    exact = certified_sets(rows, ridge)
    assert min(exact) * (1.0 - 1e-9) <= radius <= exact[0] * (1.0 + 1e-9)


@law
@given(seeds, st.integers(1, 4), st.integers(1, 200), ridges)
def test_a_grid_radius_covers_the_error_wherever_its_own_event_holds(seed, d, count, ridge):
    """‖ĝ − γ*‖_A <= √((v+λ_j)/(v+λ)) ‖S‖_{(V+λ_j)^{-1}} + λB/√(v+λ), for any noise."""
    rng = np.random.default_rng(seed)
    rows, gamma = unit_ball(rng, count, d), rng.normal(size=d)
    noise = rng.normal(size=count)
    v = rows.T @ rows
    gram = v + ridge * np.eye(d)
    error = np.linalg.solve(gram, rows.T @ (rows @ gamma + noise)) - gamma
    least, summed = np.linalg.eigvalsh(v)[0], rows.T @ noise
    for level in GRID:
        reach2 = summed @ np.linalg.solve(v + level * np.eye(d), summed)
        if level < ridge:
            assert grid_radius(1.0, least, level, 0.3, 10.0, ridge, 1.0) == np.inf
            continue
        # choose log_det so that σ²(log det + 2 log events) = ‖S‖²: the boundary of the event
        radius = grid_radius(reach2 - 2.0 * np.log(2.0), max(least, 0.0), level, 1.0, 2.0, ridge, np.linalg.norm(gamma))
        assert np.sqrt(error @ gram @ error) <= radius * (1.0 + 1e-7)


def test_being_told_gamma_needs_no_radius():
    assert cost_radius(costs_of(np.eye(2), 1.0), make_rules(conditioning=TOLD), 0, 0) == 0.0


@law
@given(st.integers(1, 50), st.floats(1e-3, 1.0))
def test_kappa_exceeds_one_and_falls_as_the_gap_grows(horizon, gap):
    assert kappa(horizon, gap) > 1.0
    assert kappa(horizon, gap) > kappa(horizon, 2.0 * gap)
    assert (kappa(horizon, gap) - 1.0) * gap == pytest.approx(2.0 * horizon, rel=1e-12)


@law
@given(st.lists(st.tuples(NOISE, NORM), min_size=1, max_size=3), st.integers(1, 20))
def test_the_default_ridge_is_the_smallest_that_any_constraint_asks_for(pairs, d):
    noise, norm = zip(*pairs, strict=True)
    expected = min(s**2 * d / b**2 for s, b in pairs)
    assert default_cost_ridge(noise, norm, d) == pytest.approx(expected, rel=1e-12)


@law
@given(st.floats(-1.0, 0.45), NOISE, st.integers(2, 10**6))
def test_the_warm_up_takes_between_16_and_64_log_k_rounds_of_the_squared_gap(cost, noise, episodes):
    """Appendix A.4, with the empirical mean anywhere in its confidence interval and σ scaled in."""
    gap = 0.5 - cost
    unit = noise**2 * np.log(episodes) / gap**2

    def mean(rounds, side):
        return cost + side * 2.0 * noise * np.sqrt(np.log(episodes) / rounds)

    latest = int(np.ceil(64.0 * unit * (1.0 + 1e-9)))
    assert warmup_passed(mean(latest, 1.0), noise, episodes, latest, 0.5)
    earliest = int(np.ceil(16.0 * unit)) - 1
    if earliest > 0:
        assert not warmup_passed(mean(earliest, -1.0), noise, episodes, earliest, 0.5 * (1.0 - 1e-12))


@law
@given(st.floats(-1.0, 0.45), NOISE, st.integers(2, 10**6), st.integers(1, 10**6))
def test_the_warm_ups_gap_is_conservative_once_it_has_passed(cost, noise, episodes, rounds):
    """If |τ̂ − τ_s| <= 2σ√(log K/n) and the rule passes, 4σ√(log K/n) <= τ − τ_s."""
    for side in (-1.0, 0.0, 1.0):
        mean = cost + side * 2.0 * noise * np.sqrt(np.log(episodes) / rounds)
        if warmup_passed(mean, noise, episodes, rounds, 0.5):
            assert warmup_gap(noise, episodes, rounds) <= (0.5 - cost) * (1.0 + 1e-9) + 1e-12
