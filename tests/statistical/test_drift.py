"""A million rank-one updates with features of condition number 1e8: do factor, determinant and widths stay true?

The truth is a QR factorisation in extended precision (18 digits), block by block; no Gram matrix is ever formed for it,
because that would square the condition number. Deterministic: seed 0, no false-alarm rate.
"""

import numpy as np
import pytest

from tether.compiled import compiled
from tether.learning.ridge import add_observation, inverse_norm, new_ridge, relative_error
from tether.learning.safe_sets import ROUNDING, affine_lengths
from tether.learning.tables import add_state, new_tables, refresh
from tether.problem.action_sets import StarActions
from tether.problem.problem import KnownState

UPDATES, BLOCK, D, STATES, RAYS = 1_000_000, 20_000, 5, 3, 6
RIDGES = (1.0, 1e-4)


@compiled
def learn(cost, value, tables, rows, scratch):
    """Observe every row and bring the tables up to date after each, as a planner would."""
    for n in range(rows.shape[0]):
        add_observation(cost, 0, rows[n])
        add_observation(value, 0, rows[n])
        refresh(tables, cost, value, 0, True, scratch)


def merged(factor, rows):
    """U' with U'ᵀU' = UᵀU + ΣφφT, by Householder reflections in extended precision."""
    stack = np.vstack([factor, rows.astype(np.longdouble)])
    for k in range(D):
        column = stack[k:, k].copy()
        norm = np.sqrt((column * column).sum())
        column[0] += norm if column[0] >= 0 else -norm
        stack[k:, k:] -= np.outer(column, (column @ stack[k:, k:]) * (2 / (column * column).sum()))
    return stack[:D] * np.sign(np.diag(stack[:D]))[:, None]


def whitened(factor, x):
    v = x.astype(np.longdouble)
    for k in range(D):
        v[k] /= factor[k, k]
        v[k + 1 :] -= factor[k, k + 1 :] * v[k]
    return v


def norm_of(v):
    return np.sqrt((v * v).sum())


@pytest.fixture(scope="module", params=RIDGES, ids=lambda ridge: f"ridge {ridge:g}")
def run(request):
    """(cost sums, tables, exact factors of both sums, candidates) after all updates, for one λ of the cost side."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((D, D)))[0]
    scale = np.logspace(0.0, -8.0, D)
    tables = new_tables(D, 1, 1, 1)
    for key in range(STATES):
        f, ends = rng.dirichlet(np.ones(D)), rng.dirichlet(np.ones(D), RAYS)
        tables = add_state(tables, KnownState(key, StarActions(f, ends), np.zeros((1, 1))))
    cost, value = new_ridge(1, request.param, np.eye(D)), new_ridge(1, 1.0, np.eye(D))
    scratch = np.empty((3, tables.features.shape[1]))
    exact, plain = (np.sqrt(np.longdouble(ridge)) * np.eye(D, dtype=np.longdouble) for ridge in (request.param, 1.0))
    for _ in range(UPDATES // BLOCK):
        rows = rng.standard_normal((BLOCK, D))
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True) * scale) @ basis.T
        learn(cost, value, tables, rows, scratch)
        exact, plain = merged(exact, rows), merged(plain, rows)
    return cost, tables, exact, plain, np.vstack([basis.T, np.eye(D), rng.dirichlet(np.ones(D), 10)])


@pytest.mark.slow
def test_the_features_really_have_condition_1e8(run):
    cost, _, exact, _, candidates = run
    norms = [float(norm_of(whitened(exact, x))) for x in candidates[:D]]
    assert cost.updates[0] == UPDATES
    assert max(norms) / min(norms) > 0.1 * np.sqrt(UPDATES / D)  # one direction seen a million times, one never


@pytest.mark.slow
def test_the_declared_rounding_error_covers_the_true_one(run):
    """What safety needs: the radius is enlarged by `relative_error`, so no norm is certified below the truth."""
    cost, _, exact, _, candidates = run
    kept = inverse_norm(candidates, cost.factor[0])
    true = np.array([norm_of(whitened(exact, x)) for x in candidates])
    assert float(np.abs(kept / true - 1.0).max()) <= ROUNDING + relative_error(cost, 0)


@pytest.mark.slow
def test_norms_from_the_factor_stay_true_to_eight_digits(run):
    cost, _, exact, _, candidates = run
    kept = inverse_norm(candidates, cost.factor[0])
    true = np.array([norm_of(whitened(exact, x)) for x in candidates])
    assert float(np.abs(kept / true - 1.0).max()) <= 1e-9


@pytest.mark.slow
def test_the_determinant_stays_true(run):
    """The radius depends on it through a logarithm: 1e-9 is far below anything that matters."""
    cost, _, exact, _, _ = run
    true = float(2.0 * np.log(np.diag(exact)).sum() - D * np.log(np.longdouble(cost.ridge)))
    assert cost.log_det[0] == pytest.approx(true, abs=1e-9)


@pytest.mark.slow
def test_no_width_of_the_tables_is_ever_below_the_truth(run):
    _, tables, exact, _, _ = run
    for slot in range(STATES):
        part = slice(tables.start[slot], tables.start[slot + 1])
        width, length, hope = np.empty(RAYS), np.ones(RAYS), np.ones(RAYS)
        numbers = (np.float64(0.0), np.float64(0.0), np.float64(1.0), np.float64(1.0))
        affine_lengths(
            np.zeros(RAYS), tables.width2[0, part], tables.cross[0, part], tables.g00[0, slot], *numbers, True, width,
            length, hope,
        )  # fmt: skip
        e = whitened(exact, tables.phi_0[:, slot])
        for i, x in enumerate(tables.features[:, part].T):
            v = whitened(exact, x)
            true = norm_of(v - (v @ e) / (e @ e) * e)
            assert width[i] >= true
            assert width[i] <= true + 1e-8 * norm_of(v)


@pytest.mark.slow
def test_the_value_tables_stay_true(run):
    """vxx, v0x and v00 only steer exploration; they stay within 1e-8 all the same."""
    _, tables, _, exact, _ = run
    for slot in range(STATES):
        e = whitened(exact, tables.phi_0[:, slot])
        assert tables.v00[0, slot] == pytest.approx(float(e @ e), rel=1e-8)
        for i in range(tables.start[slot], tables.start[slot + 1]):
            v = whitened(exact, tables.features[:, i])
            assert tables.vxx[0, i] == pytest.approx(float(v @ v), rel=1e-8)
            assert tables.v0x[0, i] == pytest.approx(float(v @ e), rel=1e-8, abs=1e-8 * float(norm_of(v) * norm_of(e)))
