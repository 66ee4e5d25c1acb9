"""For all states: features keep their norm bound, a batch equals single calls, and rays are straight."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernels.generators import law
from tether import StarAction
from tether.features import (
    ActionRays,
    AffineInAction,
    Constant,
    Fourier,
    PerAction,
    PerDirection,
    Polynomial,
    RandomFourier,
    SoftAggregation,
    Standardised,
    Tiles,
    concatenate,
    product,
)
from tether.problem.action_sets import NORM_TOLERANCE, feature_of

LOW, HIGH = np.array([-3.0, 0.5]), np.array([-1.0, 1e3])

BUILDERS = {
    "polynomial": Polynomial(LOW, HIGH, degree=4, outside="clip"),
    "fourier": Fourier(LOW, HIGH, order=4, outside="clip"),
    "random fourier": RandomFourier(LOW, HIGH, 17, rng=np.random.default_rng(3), outside="clip"),
    "tiles": Tiles(LOW, HIGH, bins=5, tilings=3, outside="clip"),
    "soft aggregation": SoftAggregation.grid(LOW, HIGH, (3, 4)),
    "standardised": Standardised(Polynomial([-3, -3], [3, 3], outside="clip"), mean=[1.0, 5.0], scale=[2.0, 0.1]),
    "concatenated": concatenate(
        Constant(),
        Fourier(LOW, HIGH, order=1, outside="clip"),
        Tiles(LOW, HIGH, 2, outside="clip"),
        weights=(1, 7, 0.1),
    ),
    "product": product(Polynomial(LOW, HIGH, outside="clip"), Fourier(LOW, HIGH, order=2, outside="clip")),
}

wild = arrays(np.float64, (5, 2), elements=st.floats(-1e6, 1e6))
inside = arrays(np.float64, 2, elements=st.floats(0.0, 1.0)).map(lambda t: LOW + t * (HIGH - LOW))


@pytest.mark.parametrize("name", BUILDERS)
@law
@given(states=wild)
def test_no_state_has_features_longer_than_one(name, states):
    rows = BUILDERS[name].batch(list(states))
    assert rows.shape == (5, BUILDERS[name].dimension)
    assert np.linalg.norm(rows, axis=1).max() <= 1.0 + NORM_TOLERANCE


@pytest.mark.parametrize("name", BUILDERS)
@law
@given(states=wild)
def test_a_batch_equals_single_calls_bit_for_bit(name, states):
    psi = BUILDERS[name]
    np.testing.assert_array_equal(psi.batch(list(states)), [psi(state) for state in states])


@pytest.mark.parametrize("name", BUILDERS)
@law
@given(state=inside)
def test_features_never_vanish(name, state):
    """Assumption 2 needs φ(s, a_0) ≠ 0: a constant is among the features, or in their span."""
    assert np.linalg.norm(BUILDERS[name](state)) > 0.1


@pytest.mark.parametrize("name", BUILDERS)
def test_a_description_names_the_dimension(name):
    assert f"{BUILDERS[name].dimension} features" in BUILDERS[name].describe()


@pytest.mark.parametrize("name", ["polynomial", "fourier"])
def test_the_norm_bound_is_tight(name):
    """A bound that is never reached would waste part of the unit ball: some corner has norm exactly 1."""
    corners = [np.array([x, y]) for x in (LOW[0], HIGH[0]) for y in (LOW[1], HIGH[1])]
    assert np.linalg.norm(BUILDERS[name].batch(corners), axis=1).max() == pytest.approx(1.0, abs=1e-12)


@law
@given(state=inside, safe=st.floats(-1, 1), ends=arrays(np.float64, (3, 1), elements=st.floats(-1, 1)))
def test_features_of_actions_keep_the_norm_bound_and_are_straight_along_rays(state, safe, ends):
    psi = BUILDERS["fourier"]
    phi = AffineInAction(psi, [-1.0], [1.0])
    rays = ActionRays(phi, [safe], ends)
    star = rays(state)
    assert np.linalg.norm(star.endpoints, axis=1).max() <= 1.0 + NORM_TOLERANCE
    for ray in range(3):
        point = rays.action(state, StarAction(ray, 0.3))
        np.testing.assert_allclose(phi(state, point), feature_of(star, StarAction(ray, 0.3)), atol=1e-12)
    centre, tips = PerDirection(psi, 3).star(state)
    assert max(np.linalg.norm(centre), np.linalg.norm(tips, axis=1).max()) <= 1.0 + NORM_TOLERANCE
    listed = PerAction(psi, 4).batch(state, range(4))
    np.testing.assert_allclose(np.linalg.norm(listed, axis=1), np.linalg.norm(psi(state)))
    np.testing.assert_allclose(listed @ listed.T, np.eye(4) * (listed[0] @ listed[0]), atol=1e-15)
