"""No NaN, wherever it enters, ever yields a length above 0; nor does a bound of minus infinity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.generators import law, seeds
from reference.kernels import affine, choose, make_rules, unconditioned
from tether.learning.safe_sets import ALL, EXACT, STATE, UNKNOWN, bound_along, largest_unconditioned_step
from tether.learning.statistics import CERTIFIED, DIRECTIONAL, PAPER, PLAIN

COUNT = 4
ROWS = ("mean", "width2", "cross")
AFFINE = ("g00", "residual", "baseline_cost", "threshold", "radius")
UNCONDITIONED = ("g00", "mean_0", "threshold", "radius")


def safe_inputs(rng):
    """Inputs under which every ray is certified in full: cost about 0.1, threshold 0.5."""
    return {
        "mean": rng.uniform(0.0, 0.2, COUNT),
        "width2": rng.uniform(0.0, 0.01, COUNT),
        "cross": rng.uniform(-0.1, 0.1, COUNT),
        "g00": rng.uniform(0.5, 1.0),
        "residual": rng.uniform(-0.1, 0.1),
        "mean_0": rng.uniform(0.0, 0.1),
        "baseline_cost": rng.uniform(0.0, 0.2),
        "threshold": 0.5,
        "radius": 0.1,
    }


def affine_of(inputs, is_star):
    """Certified and optimistic lengths."""
    return affine(**{name: inputs[name] for name in ROWS + AFFINE}, is_star=is_star)[:2]


def unconditioned_of(inputs, is_star):
    """Certified and optimistic lengths."""
    return unconditioned(**{name: inputs[name] for name in ROWS + UNCONDITIONED}, is_star=is_star)[:2]


@law
@given(seeds, st.booleans())
def test_sound_inputs_certify_every_ray(seed, is_star):
    """Otherwise the laws below could not fail."""
    inputs = safe_inputs(np.random.default_rng(seed))
    np.testing.assert_array_equal(affine_of(inputs, is_star), 1.0)
    np.testing.assert_array_equal(unconditioned_of(inputs, is_star), 1.0)


@law
@given(
    seeds,
    st.booleans(),
    st.sampled_from([affine_of, unconditioned_of]),
    st.sampled_from(ROWS),
    st.integers(0, COUNT - 1),
)
def test_a_nan_of_one_candidate_leaves_it_without_length_and_the_others_untouched(seed, is_star, lengths, name, at):
    inputs = safe_inputs(np.random.default_rng(seed))
    inputs[name][at] = np.nan
    for result in lengths(inputs, is_star):
        assert result[at] == 0.0
        np.testing.assert_array_equal(np.delete(result, at), 1.0)


@pytest.mark.parametrize("name", AFFINE)
@pytest.mark.parametrize("is_star", [True, False])
def test_a_nan_shared_by_all_candidates_leaves_none_with_a_length(name, is_star):
    inputs = safe_inputs(np.random.default_rng(0))
    inputs[name] = np.nan
    length, _ = affine_of(inputs, is_star)
    np.testing.assert_array_equal(length, 0.0)


@pytest.mark.parametrize("name", UNCONDITIONED)
@pytest.mark.parametrize("is_star", [True, False])
def test_a_nan_shared_by_all_candidates_leaves_none_with_an_unconditioned_length(name, is_star):
    inputs = safe_inputs(np.random.default_rng(0))
    inputs[name] = np.nan
    length, _ = unconditioned_of(inputs, is_star)
    np.testing.assert_array_equal(length, 0.0)


@pytest.mark.parametrize("lengths", [affine_of, unconditioned_of])
@pytest.mark.parametrize("is_star", [True, False])
def test_a_bound_of_minus_infinity_certifies_nothing(lengths, is_star):
    """It is an overflow, not a cheap action."""
    inputs = safe_inputs(np.random.default_rng(0))
    inputs["mean"][1] = -np.inf
    length, _ = lengths(inputs, is_star)
    assert length[1] == 0.0


@pytest.mark.parametrize("position", range(7))
def test_a_nan_anywhere_gives_an_unconditioned_step_of_zero(position):
    inputs = np.array([0.1, 0.2, 1.0, 0.3, 1.0, 0.1, 0.9])
    assert largest_unconditioned_step(*inputs) == 1.0
    inputs[position] = np.nan
    assert largest_unconditioned_step(*inputs) == 0.0


@pytest.mark.parametrize("position", range(7))
def test_a_nan_anywhere_makes_the_bound_along_a_ray_nan(position):
    inputs = np.array([0.1, 0.2, 1.0, 0.3, 1.0, 0.1, 0.5])
    inputs[position] = np.nan
    assert np.isnan(bound_along(*inputs))


def rules_for(explorer, conditioning):
    return make_rules(
        horizon=3,
        explorer=explorer,
        conditioning=conditioning,
        reduces_radius=explorer != PAPER,
        threshold=np.array([0.5, 0.6]),
        noise=np.array([0.1, 0.1]),
        gamma_norm=np.ones(2),
        value_radius=np.ones(3),
        known_gamma=np.zeros((3, 2, 2)),
    )


def state_inputs(rng):
    """One state, two constraints, d = 2: everything that a choice reads."""
    return {
        "weights": rng.uniform(0.2, 1.0, 2),
        "gamma_hat": rng.uniform(0.0, 0.1, (2, 2)),
        "radius": np.array([0.2, 0.3]),
        "phi_0": rng.dirichlet(np.ones(2)),
        "baseline_cost": np.array([0.05, 0.1]),
        "width2": rng.uniform(0.001, 0.01, COUNT),
        "cross": rng.uniform(-0.1, 0.1, COUNT),
        "g00": 0.8,
        "vxx": rng.uniform(0.3, 0.5, COUNT),
        "v0x": rng.uniform(-0.1, 0.1, COUNT),
        "v00": 0.2,
        "projected": np.vstack([rng.uniform(0.5, 1.0, COUNT), rng.uniform(0.0, 0.1, (2, COUNT))]),
    }


def run_choice(rules, inputs, is_star):
    return choose(rules, **inputs, is_star=is_star, baseline_row=-1 if is_star else 0)


EXPLORER = st.sampled_from([PAPER, CERTIFIED, DIRECTIONAL, PLAIN])
CONDITIONING = st.sampled_from([STATE, ALL, UNKNOWN, EXACT])


@law
@given(seeds, EXPLORER, CONDITIONING, st.booleans())
def test_sound_inputs_let_some_candidate_be_played(seed, explorer, conditioning, is_star):
    rules, inputs = rules_for(explorer, conditioning), state_inputs(np.random.default_rng(seed))
    (row, length, score, _), bound = run_choice(rules, inputs, is_star)
    assert row >= 0
    assert length == 1.0
    assert np.isfinite(score)
    assert (bound <= rules.threshold).all()


@law
@given(
    seeds, EXPLORER, CONDITIONING, st.booleans(),
    st.sampled_from(["weights", "gamma_hat", "radius", "phi_0", "baseline_cost", "g00", "v00"]),
)  # fmt: skip
def test_a_nan_that_every_candidate_shares_leaves_only_the_safe_action(seed, explorer, conditioning, is_star, name):
    if name == "baseline_cost" and conditioning == UNKNOWN:
        return  # that is what unknown means
    if name == "gamma_hat" and conditioning in (ALL, EXACT):
        return  # enters through `projected` alone: next law
    rules, inputs = rules_for(explorer, conditioning), state_inputs(np.random.default_rng(seed))
    inputs[name] = np.full_like(inputs[name], np.nan)
    (row, length, _, _), _ = run_choice(rules, inputs, is_star)
    assert (row, length) == (-1, 0.0)


@law
@given(
    seeds, EXPLORER, CONDITIONING, st.booleans(), st.sampled_from(["width2", "cross", "projected", "vxx", "v0x"]),
    st.integers(0, 2),
)  # fmt: skip
def test_a_candidate_with_a_nan_is_never_played(seed, explorer, conditioning, is_star, name, line):
    """Let one candidate win by far, then make one of its numbers NaN: something else must win."""
    rules, inputs = rules_for(explorer, conditioning), state_inputs(np.random.default_rng(seed))
    inputs["projected"][0, 2] += 100.0
    assert run_choice(rules, inputs, is_star)[0][0] == 2
    broken = inputs[name][line] if name == "projected" else inputs[name]
    broken[2] = np.nan
    (row, _, score, _), bound = run_choice(rules, inputs, is_star)
    assert row != 2
    assert np.isfinite(score)
    assert np.isfinite(bound).all()
