"""The closed forms against the definitions: mixtures of tilts, minimised over γ."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

from tether.check.monitor import (
    PRICES,
    RIDGES,
    SCALES,
    TEMPERS,
    extra_evidence,
    log_mean,
    noise_evidence,
    norm_evidence,
    spectrum_of,
)


def draw(seed, *, d=3, n=40, bound=20.0):
    """Features, one extra feature that x knows in part, and costs in units of σ."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) / np.sqrt(2 * d) + 0.2
    q = (x[:, 0] ** 2 + 0.3 * x[:, -1] + 0.1 * rng.normal(size=n))[:, None]
    gamma = rng.normal(size=d)
    gamma *= 0.9 * bound / np.linalg.norm(gamma)
    return x, q, x @ gamma + rng.normal(size=n), gamma


def spectrum(x, z, bound=20.0):
    return spectrum_of(x.T @ x, (x.T @ z)[None], np.array([z @ z]), np.array([bound]))


def mixture(x, q, noise, ridge, scale):
    """log of the mixture over (a, b) of Π exp(tilt·ε − ½tilt²), from the (d+1)-dimensional Gaussian integral."""
    psi = np.hstack([x, q])
    prior = np.diag([*[ridge] * x.shape[1], scale])
    total = psi.T @ psi + prior
    push = psi.T @ noise
    return 0.5 * push @ np.linalg.solve(total, push) - 0.5 * (np.linalg.slogdet(total)[1] - np.linalg.slogdet(prior)[1])


def least_mixture(x, q, z, ridge, scale):
    """Its smallest value over all γ, by least squares in the metric of the exponent."""
    psi = np.hstack([x, q])
    prior = np.diag([*[ridge] * x.shape[1], scale])
    root = np.linalg.cholesky(np.linalg.inv(psi.T @ psi + prior)).T
    gamma = np.linalg.lstsq(root @ psi.T @ x, root @ psi.T @ z, rcond=None)[0]
    return mixture(x, q, z - x @ gamma, ridge, scale)


def test_the_mixture_is_the_integral_over_tilts():
    """d = 1, no extra feature at work: quadrature over a of exp(aΣxε − ½a²Σx²) under N(0, 1/ℓ)."""
    x, noise = np.array([[0.5], [1.0], [0.2]]), np.array([1.0, -0.4, 2.0])
    push, size, ridge = float(x[:, 0] @ noise), float(x[:, 0] @ x[:, 0]), 2.0
    value, _ = quad(lambda a: np.exp(a * push - 0.5 * a * a * (size + ridge)) * np.sqrt(ridge / 2 / np.pi), -30, 30)
    assert mixture(x, np.zeros((3, 1)), noise, ridge, 1.0) == pytest.approx(np.log(value), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_evidence_of_an_extra_feature_is_the_smallest_mixture_over_gamma(seed):
    x, q, z, _ = draw(seed)
    found = extra_evidence(spectrum(x, z), q.T @ x, (q**2).sum(axis=0), (q.T @ z)[None])
    table = np.array([[[least_mixture(x, q, z, ridge, scale) for scale in SCALES] for ridge in RIDGES]])
    exact = log_mean(table.reshape(1, -1))
    assert found.shape == (1, 1)
    assert found[0, 0] <= exact[0] + 1e-9
    assert found[0, 0] == pytest.approx(exact[0], abs=0.05)


@pytest.mark.parametrize("seed", range(30))
def test_no_evidence_exceeds_its_supermartingale_at_the_true_gamma(seed):
    """What makes the tests valid, on every sample path: log evidence <= log mixture at γ*, with γ* in the ball."""
    n = [3, 10, 200][seed % 3]
    x, q, z, gamma = draw(seed, n=n, d=1 + seed % 4)
    noise, s = z - x @ gamma, spectrum(x, z)
    extra = extra_evidence(s, q.T @ x, (q**2).sum(axis=0), (q.T @ z)[None])
    table = np.array([[mixture(x, q, noise, ridge, scale) for scale in SCALES] for ridge in RIDGES])
    assert extra[0, 0] <= log_mean(table.reshape(1, -1))[0] + 1e-9
    scatter = 0.5 * n * np.log1p(-TEMPERS) + 0.5 * TEMPERS * (noise @ noise)
    assert (noise_evidence(s, n)[0] <= scatter + 1e-9).all()
    nothing = np.zeros((n, 1))
    plain = np.array([mixture(x, nothing, noise, ridge, 1.0) for ridge in RIDGES])
    assert (norm_evidence(s)[0] <= plain + 1e-9).all()


def test_noise_evidence_uses_the_residuals_of_the_best_fit():
    x, _, z, _ = draw(1)
    best = z - x @ np.linalg.lstsq(x, z, rcond=None)[0]
    exact = 0.5 * len(z) * np.log1p(-TEMPERS) + 0.5 * TEMPERS * (best @ best)
    assert noise_evidence(spectrum(x, z), len(z))[0] == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("law", ["gauss", "coin", "uniform"])
@pytest.mark.parametrize("s", TEMPERS)
def test_the_noise_factor_has_mean_at_most_one_for_sub_gaussian_noise(law, s):
    """(1−s)^{1/2} E exp(½sε²): equal to 1 for the Gaussian, less for ±1 and for uniform noise on [−1, 1]."""
    if law == "coin":
        mean = np.exp(0.5 * s)
    else:
        spread, height, reach = (1.0, 1 / np.sqrt(2 * np.pi), 60.0) if law == "gauss" else (0.0, 0.5, 1.0)
        mean = 2.0 * quad(lambda e: np.exp(0.5 * (s - spread) * e * e) * height, 0.0, reach)[0]
    factor = np.sqrt(1.0 - s) * mean
    assert factor == pytest.approx(1.0, abs=1e-6) if law == "gauss" else factor < 1.0


def test_norm_evidence_is_the_smallest_mixture_in_the_ball():
    """γ* is three times too long; the dual bound on a grid comes within 5 % of the constrained minimum."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)) / 2
    z = x @ np.array([5.0, -3.0]) + rng.normal(size=60)
    s = spectrum(x, z, bound=2.0)
    found = norm_evidence(s)[0]
    for i, ridge in enumerate(RIDGES):

        def value(gamma, ridge=ridge):
            return mixture(x, np.zeros((60, 1)), z - x @ gamma, ridge, 1.0)

        inside = {"type": "ineq", "fun": lambda gamma: 4.0 - gamma @ gamma}
        exact = minimize(value, np.array([1.0, -1.0]), constraints=[inside], tol=1e-12).fun
        assert found[i] <= exact + 1e-6
        price = 0.5 * np.log1p(s.values / ridge).sum()
        assert found[i] + price >= 0.95 * (exact + price) - 1e-9


def test_a_gamma_inside_the_ball_is_never_evidence_against_it():
    x, _, z, _ = draw(4, n=400)
    assert (norm_evidence(spectrum(x, z, bound=1e3)) <= 0.0).all()


def test_a_feature_that_x_already_contains_is_no_evidence():
    """q = x_0 exactly: its residual is rounding, and must not be mistaken for a signal, however large the costs are."""
    rng = np.random.default_rng(2)
    x = rng.dirichlet(np.ones(4), size=5000)
    z = x @ np.array([300.0, 10.0, -50.0, 80.0]) + rng.normal(size=5000)
    found = extra_evidence(spectrum(x, z, 400.0), x.T @ x, (x**2).sum(axis=0), (x.T @ z)[None])
    assert (found < 0.0).all()


def test_log_mean_is_the_log_of_the_mean_and_survives_large_numbers():
    assert log_mean(np.log([[1.0, 3.0]])) == pytest.approx([np.log(2.0)])
    assert log_mean(np.array([[1000.0, 1000.0]])) == pytest.approx([1000.0])


def test_the_grids_are_positive_and_increasing():
    for grid in (RIDGES, SCALES, TEMPERS, PRICES):
        assert grid[0] > 0.0 and (np.diff(grid) > 0.0).all()
