"""THEORY section 4: the radii, their order, and what they may depend on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.generators import law, ridges, seeds, unit_ball
from reference.kernels import make_rules
from tether.learning.confidence import (
    classical_radius,
    default_cost_ridge,
    grid_radius,
    kappa,
    mixture_radius,
    warmup_gap,
    warmup_passed,
)
from tether.learning.ridge import GRID, add_observation, new_ridge, refresh_spectrum
from tether.learning.safe_sets import EXACT
from tether.learning.statistics import CLASSICAL, MIXTURE, SMALLEST, Memory, cost_radius

LOG_DET, NOISE = st.floats(0.0, 200.0), st.floats(1e-3, 10.0)
EVENTS, NORM = st.floats(2.0, 1e6), st.floats(0.01, 10.0)


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


def memory_after(rows, ridge):
    d = rows.shape[1]
    memory = Memory(
        cost=new_ridge(1, ridge, np.eye(d)),
        value=new_ridge(1, 1.0, np.eye(d)),
        cost_moment=np.zeros((1, 1, d)),
        reward_moment=np.zeros((1, d)),
        transition_moment=np.zeros((1, 1, d)),
    )
    for x in rows:
        add_observation(memory.cost, 0, x)
    return memory


def radius_rules(kind, d):
    return make_rules(radius_kind=kind, noise=np.array([0.3]), gamma_norm=np.array([1.5]), events=200.0)._replace(
        known_gamma=np.zeros((2, 1, d))
    )


@law
@given(seeds, st.integers(1, 5), st.integers(0, 60), ridges)
def test_each_kind_of_radius_is_its_formula_at_the_determinant_of_the_gram_matrix(seed, d, count, ridge):
    rows = unit_ball(np.random.default_rng(seed), count, d)
    memory = memory_after(rows, ridge)
    log_det = np.linalg.slogdet(np.eye(d) + rows.T @ rows / ridge)[1]
    noise_part = 0.3**2 * (log_det + 2.0 * np.log(200.0))
    mixture = cost_radius(memory, radius_rules(MIXTURE, d), 0, 0)
    classical = cost_radius(memory, radius_rules(CLASSICAL, d), 0, 0)
    assert mixture == pytest.approx(np.sqrt(noise_part + ridge * 1.5**2), rel=1e-10)
    assert classical == pytest.approx(np.sqrt(noise_part) + np.sqrt(ridge) * 1.5, rel=1e-10)


def certified_sets(rows, ridge):
    """The radii among which the default takes the smallest, each at its exact spectrum: own mixture first."""
    d = rows.shape[1]
    v = rows.T @ rows
    events = 200.0 * (1 + len(GRID))
    own = mixture_radius(np.linalg.slogdet(np.eye(d) + v / ridge)[1], 0.3, events, ridge, 1.5)
    least = max(np.linalg.eigvalsh(v)[0], 0.0)
    dets = [np.linalg.slogdet(np.eye(d) + v / level)[1] for level in GRID]
    pairs = zip(dets, GRID, strict=True)
    return [own] + [grid_radius(det, least, level, 0.3, events, ridge, 1.5) for det, level in pairs]


@law
@given(seeds, st.integers(1, 4), st.integers(0, 300), ridges)
def test_the_smallest_radius_is_the_smallest_of_its_certified_sets(seed, d, count, ridge):
    """Six sets hold at once, so each spends a sixth of δ; at a fresh spectrum it is their exact minimum."""
    rows = unit_ball(np.random.default_rng(seed), count, d)
    memory = memory_after(rows, ridge)
    memory.cost.grid_at[0] = -np.inf  # no spectrum is recent
    refresh_spectrum(memory.cost, 0)
    radius = cost_radius(memory, radius_rules(SMALLEST, d), 0, 0)
    assert radius == pytest.approx(min(certified_sets(rows, ridge)), rel=1e-8)


@law
@given(seeds, st.integers(1, 4), st.integers(1, 200), st.integers(1, 200), st.floats(-3.0, -1.0).map(lambda e: 10.0**e))
def test_a_lagging_spectrum_never_makes_the_radius_too_small(seed, d, before, after, ridge):
    """V grows between two looks at its spectrum: the radius may be larger than the exact minimum, never smaller."""
    rows = unit_ball(np.random.default_rng(seed), before + after, d)
    memory = memory_after(rows[:before], ridge)
    memory.cost.grid_at[0] = -np.inf
    refresh_spectrum(memory.cost, 0)
    for x in rows[before:]:
        add_observation(memory.cost, 0, x)
    radius = cost_radius(memory, radius_rules(SMALLEST, d), 0, 0)
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
    assert cost_radius(memory_after(np.eye(2), 1.0), make_rules(conditioning=EXACT), 0, 0) == 0.0


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


def test_no_rounds_never_pass_the_warm_up():
    assert not warmup_passed(-100.0, 0.1, 10, 0, 0.5)
