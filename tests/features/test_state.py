"""Feature builders on cases that a person can do by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from tether import AssumptionError, InputError, StarAction
from tether.features import (
    ActionList,
    ActionRays,
    AffineInAction,
    Constant,
    Fourier,
    FunctionFeatures,
    OneHot,
    PairFeatures,
    PerAction,
    PerDirection,
    Polynomial,
    RandomFourier,
    Reading,
    SoftAggregation,
    Standardised,
    Tiles,
    concatenate,
    product,
)


def test_a_one_hot_has_a_single_one_at_the_place_of_the_state():
    psi = OneHot(["a", "b", "c"])
    np.testing.assert_array_equal(psi("b"), [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(OneHot(3)(np.int64(2)), [0.0, 0.0, 1.0])
    with pytest.raises(InputError, match="'d' is not one of the 3"):
        psi("d")
    with pytest.raises(InputError, match="not one of"):
        psi([1, 2])


def test_a_polynomial_lists_all_monomials_of_the_scaled_coordinates():
    """x = (3, 0) in [1, 5] x [-2, 2] is u = (0, 0); (5, 1) is u = (1, 1/2). Order: 1, u1, u2, u1², u1u2, u2²; /√6."""
    psi = Polynomial([1.0, -2.0], [5.0, 2.0], degree=2)
    assert psi.dimension == 6
    np.testing.assert_allclose(psi([3.0, 0.0]) * np.sqrt(6), [1, 0, 0, 0, 0, 0], atol=1e-15)
    np.testing.assert_allclose(psi([5.0, 1.0]) * np.sqrt(6), [1, 1, 0.5, 1, 0.5, 0.25], atol=1e-15)


def test_the_fourier_basis_is_cosines_of_half_waves():
    """x = 1/3 of the range, order 2: cos 0, cos π/3, cos 2π/3 over √3."""
    psi = Fourier(0.0, 3.0, order=2)
    np.testing.assert_allclose(psi(1.0) * np.sqrt(3), [1.0, 0.5, -0.5], atol=1e-15)
    assert Fourier([0, 0, 0], [1, 1, 1], order=3).dimension == 64


def test_random_fourier_features_approximate_their_kernel():
    """⟨ψ(x), ψ(y)⟩ = (1 + Σ cos⟨ω, u − v⟩) / (n + 1) -> exp(−‖u − v‖² / (2 width²)); n = 4000, six standard errors."""
    psi = RandomFourier([-1.0, -1.0], [1.0, 1.0], 4000, width=0.7, rng=np.random.default_rng(1))
    x, y = np.array([0.2, -0.3]), np.array([-0.1, 0.4])
    kernel = np.exp(-((x - y) ** 2).sum() / (2 * 0.7**2))
    assert psi(x) @ psi(y) == pytest.approx(kernel, abs=6 * np.sqrt(0.5 / 4000))
    again = RandomFourier([-1.0, -1.0], [1.0, 1.0], 4000, width=0.7, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(psi(x), again(x))


def test_tile_coding_has_one_active_tile_per_tiling_and_neighbours_share_tiles():
    """4 tilings of 4 bins on [0, 1]: points 1/16 apart are cut by exactly one of the four grids."""
    psi = Tiles(0.0, 1.0, bins=4, tilings=4)
    assert psi.dimension == 20
    here, near, far = psi(0.53), psi(0.53 + 1 / 16), psi(0.98)
    np.testing.assert_allclose(np.sort(here)[-4:], 0.5)
    assert np.count_nonzero(here) == 4
    assert here @ near == pytest.approx(3 / 4)
    assert here @ far == 0.0


def test_soft_aggregation_is_a_distribution_that_follows_the_distance():
    """Centres 0 and 2, width 1, x = 0.5: weights e^(-1/8) : e^(-9/8), that is 1 : e^-1."""
    psi = SoftAggregation([0.0, 2.0], 1.0)
    np.testing.assert_allclose(psi(0.5), np.array([1.0, np.exp(-1.0)]) / (1.0 + np.exp(-1.0)), atol=1e-15)
    np.testing.assert_array_equal(psi(1e9), [0.0, 1.0])
    with pytest.raises(InputError, match="too far"):
        psi(1e200)
    grid = SoftAggregation.grid([0.0, 0.0], [1.0, 2.0], (2, 3), spread=0.3)
    assert grid.dimension == 6
    assert grid([1.0, 2.0]).argmax() == 5


def test_outside_the_declared_range_is_an_error_or_the_edge():
    psi, clipping = Polynomial(0.0, 1.0), Polynomial(0.0, 1.0, outside="clip")
    with pytest.raises(InputError, match=r"outside the declared range \[0, 1\].*outside='clip'"):
        psi(1.5)
    np.testing.assert_array_equal(clipping(1.5), clipping(1.0))
    low = Polynomial(-1.2, 0.6)
    np.testing.assert_array_equal(low(np.float32(-1.2)), low(-1.2))  # -1.20000005: where MountainCar's wall is
    with pytest.raises(InputError, match="outside the declared range"):
        low(-1.2000003)
    for strange in (np.nan, np.inf):
        with pytest.raises(InputError, match="not finite"):
            clipping(strange)


def test_ranges_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="low must lie below high"):
        Polynomial([0.0, 1.0], [1.0, 1.0])
    with pytest.raises(InputError, match="outside='clip'"):
        Polynomial(-np.inf, 1.0)
    with pytest.raises(InputError, match="read 2 coordinates"):
        Polynomial([0.0, 0.0], [1.0, 1.0])([0.5])
    with pytest.raises(InputError, match="Reading"):
        Polynomial(0.0, 1.0)("warm")
    with pytest.raises(InputError, match="100000000"):
        Fourier([0.0] * 8, [1.0] * 8, order=9)


def test_standardised_features_are_fitted_once_and_frozen():
    """Logged 0, 2 and 4: mean 2, standard deviation √(8/3)."""
    logged = np.array([[0.0], [2.0], [4.0]])
    psi = Standardised.fit(logged, Polynomial(-3.0, 3.0, outside="clip"))
    u = (4.0 - 2.0) / np.sqrt(8 / 3) / 3.0
    np.testing.assert_allclose(psi(4.0) * np.sqrt(2), [1.0, u], atol=1e-15)
    logged[:] = 100.0
    np.testing.assert_allclose(psi(4.0) * np.sqrt(2), [1.0, u], atol=1e-15)
    with pytest.raises(ValueError, match="read-only"):
        psi.mean[0] = 1.0
    with pytest.raises(InputError, match=r"coordinates \[1\] never vary"):
        Standardised.fit([[0.0, 1.0], [1.0, 1.0]], Polynomial([-3, -3], [3, 3]))


def test_any_function_is_scaled_by_its_bound_and_checked_against_it():
    psi = FunctionFeatures(lambda s: [s, 3.0], 2, bound=5.0)
    np.testing.assert_allclose(psi(4.0), [0.8, 0.6])
    with pytest.raises(AssumptionError, match=r"norm 5\.83.*bound=5\.83"):
        psi(5.0)
    with pytest.raises(InputError, match=r"2 numbers.*shape \(1,\)"):
        FunctionFeatures(lambda s: [s], 2)(0.5)
    with pytest.raises(InputError, match="not finite"):
        psi(np.nan)


@dataclass(frozen=True)
class Patient:
    age: float
    kind: str


def test_parts_of_a_dataclass_can_be_read_and_joined():
    """Weights 3 : 4 become 0.6 and 0.8."""
    psi = concatenate(
        Reading(lambda p: p.kind, OneHot(["x", "y"])), Reading(lambda p: p.age / 100, Constant()), weights=(3.0, 4.0)
    )
    np.testing.assert_allclose(psi(Patient(30.0, "y")), [0.0, 0.6, 0.8])


def test_a_product_is_all_products_of_entries():
    psi = product(OneHot(2), Polynomial(0.0, 2.0))
    with pytest.raises(InputError):
        psi(5)
    both = product(Reading(lambda s: s[0], OneHot(2)), Reading(lambda s: s[1], Polynomial(0.0, 2.0)))
    np.testing.assert_allclose(both((1, 2.0)) * np.sqrt(2), [0.0, 0.0, 1.0, 1.0])


def test_per_action_puts_the_state_features_at_the_place_of_the_action():
    phi = PerAction(OneHot(2), ["stay", "go"])
    np.testing.assert_array_equal(phi(1, "go"), [0.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(phi.batch(0, ["go", "stay"]), [[0, 0, 1, 0], [1, 0, 0, 0]])
    with pytest.raises(InputError, match="'run' is not one of the 2"):
        phi(0, "run")


def test_affine_features_are_the_state_times_one_and_the_scaled_action():
    """a = (3, 0) in [0, 4]² is u = (1/2, -1); scale √3; ψ(1) = (0, 1) selects the second copies."""
    phi = AffineInAction(OneHot(2), [0.0, 0.0], [4.0, 4.0])
    np.testing.assert_allclose(phi(1, [3.0, 0.0]) * np.sqrt(3), [0, 0, 0, 1.0, 0.5, -1.0])


def test_directions_have_a_slope_each():
    """ψ = (1,), two rays: the centre is (1, 0, 0)/√2 and the ends are (1, 1, 0)/√2 and (1, 0, 1)/√2."""
    centre, ends = PerDirection(Constant(), 2).star(None)
    np.testing.assert_allclose(centre * np.sqrt(2), [1, 0, 0])
    np.testing.assert_allclose(ends * np.sqrt(2), [[1, 1, 0], [1, 0, 1]])


def test_a_list_of_actions_becomes_a_finite_set_in_its_own_order():
    choice = ActionList(PerAction(OneHot(2), 3), lambda s: [2, 0] if s == 0 else [0, 1, 2], safe_action=0)
    d = choice(0)
    assert (d.baseline, d.features.shape) == (1, (2, 6))
    assert choice.action(0, 0) == 2
    assert choice(1).baseline == 0
    with pytest.raises(InputError, match="safe action 5 is not among"):
        ActionList(PerAction(OneHot(2), 3), [0, 1], safe_action=5)(0)
    with pytest.raises(InputError, match="no allowed action"):
        ActionList(PerAction(OneHot(2), 3), lambda s: [], safe_action=0)(0)


def test_rays_become_a_star_and_lengths_become_points():
    rays = ActionRays(AffineInAction(Constant(), [0.0, 0.0], [4.0, 4.0]), [1.0, 0.0], [[4.0, 0.0], [1.0, 4.0]])
    star = rays(None)
    np.testing.assert_allclose(star.phi_0 * np.sqrt(3), [1.0, -0.5, -1.0])
    np.testing.assert_allclose(star.endpoints * np.sqrt(3), [[1.0, 1.0, -1.0], [1.0, -0.5, 1.0]])
    np.testing.assert_allclose(rays.action(None, StarAction(0, 0.5)), [2.5, 0.0])
    np.testing.assert_array_equal(rays.action(None, StarAction(-1, 0.0)), [1.0, 0.0])


@pytest.mark.parametrize("power", [2, 3])
@pytest.mark.parametrize("units", [(1.0, 1.0), (1e-7, 1e-7), (1.0, 1e-7)])
def test_features_that_bend_along_a_ray_are_refused(power, units):
    """a³ on [-1, 1] agrees with the straight line in the middle: only the middle would be a poor check. In a small unit
    they bend as much, also beside a column in a large one: a cost of 1.0 was played under 0.5."""
    bent = PairFeatures(lambda s, a: [0.5 * units[0], 0.5 * units[1] * a[0] ** power], 2)
    with pytest.raises(AssumptionError, match=r"Assumption 5.*misses the straight line"):
        ActionRays(bent, [-1.0], [[1.0]])(None)


def test_features_that_are_straight_but_for_rounding_are_taken():
    """In 32 bits, and in a column that is zero but for rounding."""
    slopes = np.array([0.5, 1e-7, 0.3], np.float32)
    straight = PairFeatures(lambda s, a: [*slopes * np.float32(a[0]), a[0] / 3.0 * 3.0 - a[0]], 4)
    assert len(ActionRays(straight, [-0.7], [[0.9], [-0.1]])(None).endpoints) == 2


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(InputError, match="not both kinds"):
        concatenate(OneHot(2), PerAction(OneHot(2), 2))
    with pytest.raises(InputError, match="2 positive numbers"):
        concatenate(OneHot(2), Constant(), weights=(1.0, -1.0))
    with pytest.raises(InputError, match="3 targets, but the features have 2 directions"):
        ActionRays(PerDirection(Constant(), 2), [0.0], [[1.0], [2.0], [3.0]])(None)
    with pytest.raises(InputError, match="shape"):
        ActionRays(PerDirection(Constant(), 2), [0.0], [[1.0, 2.0]])(None)
