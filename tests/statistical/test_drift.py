"""A million rank-one updates with features of condition number 1e8, and as many of one feature: do factor, determinant
and widths stay true, and does `relative_error` bound what they miss?

The truth is a QR factorisation in extended precision (18 digits), block by block; no Gram matrix is ever formed for it,
because that would square the condition number. Deterministic: seed 0, no false-alarm rate.
"""

import numpy as np
import pytest

from kernels.calls import affine, make_rules
from kernels.generators import exact_norm, exact_whiten, exact_width, merged
from tether.kernels.model import add_state, new_tables
from tether.kernels.plan import refresh, scratch_for
from tether.kernels.ridge import (
    inverse_norm,
    new_costs,
    new_values,
    observe_cost,
    observe_value,
    relative_error,
    remember,
)
from tether.problem.action_sets import StarActions
from tether.problem.problem import KnownState

UPDATES, BLOCK, D, STATES, RAYS = 1_000_000, 20_000, 5, 3, 6
RIDGES = (1.0, 1e-4)


def learn(costs, values, tables, rows, scratch):
    """Observe every row and bring the tables up to date after each, as a planner would."""
    rules, nothing, work = make_rules(), np.zeros(1), np.zeros((3, rows.shape[1]))
    for x in rows:
        observe_cost(costs, 0, x, nothing, work)
        observe_value(values, 0, x, 0.0, -1, work)
        refresh(costs, values, rules, tables, scratch, 0)


def start(ridge):
    """(costs, values, their exact factors) before any data."""
    costs, values = new_costs(1, D, 1, ridge), new_values(1, D, 1.0, 1)
    exact = (np.sqrt(np.longdouble(r)) * np.eye(D, dtype=np.longdouble) for r in (ridge, 1.0))
    return costs, values, *exact


@pytest.fixture(scope="module", params=RIDGES, ids=lambda ridge: f"ridge {ridge:g}")
def run(request):
    """(costs, tables, exact factors of both sums, candidates) after all updates, for one λ of the cost side."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((D, D)))[0]
    scale = np.logspace(0.0, -8.0, D)
    tables = new_tables(D, 1, 1, 1)
    for key in range(STATES):
        f, ends = rng.dirichlet(np.ones(D)), rng.dirichlet(np.ones(D), RAYS)
        tables = add_state(tables, KnownState(key, StarActions(f, ends), np.zeros((1, 1))))
    costs, values, exact, plain = start(request.param)
    scratch = scratch_for(tables)
    for _ in range(UPDATES // BLOCK):
        rows = rng.standard_normal((BLOCK, D))
        rows = np.ascontiguousarray((rows / np.linalg.norm(rows, axis=1, keepdims=True) * scale) @ basis.T)
        learn(costs, values, tables, rows, scratch)
        exact, plain = merged(exact, rows), merged(plain, rows)
    return costs, tables, exact, plain, np.vstack([basis.T, np.eye(D), rng.dirichlet(np.ones(D), 10)])


def missed(costs, exact, candidates):
    """The largest relative error of ‖x‖_G over the candidates."""
    true = np.array([exact_norm(exact, x) for x in candidates])
    return float(np.abs(inverse_norm(candidates, costs.factor[0]) / true - 1.0).max())


@pytest.mark.slow
def test_the_features_really_have_condition_1e8(run):
    costs, _, exact, _, candidates = run
    norms = [float(exact_norm(exact, x)) for x in candidates[:D]]
    assert costs.updates[0] == UPDATES
    assert max(norms) / min(norms) > 0.1 * np.sqrt(UPDATES / D)  # one direction seen a million times, one never


@pytest.mark.slow
def test_the_declared_rounding_error_covers_the_true_one(run):
    """What safety needs: the radius is enlarged by `relative_error`, so no norm is certified below the truth."""
    costs, _, exact, _, candidates = run
    assert missed(costs, exact, candidates) <= relative_error(costs, 0)


@pytest.mark.slow
def test_norms_from_the_factor_stay_true_to_eight_digits(run):
    costs, _, exact, _, candidates = run
    assert missed(costs, exact, candidates) <= 1e-9


@pytest.mark.slow
def test_the_determinant_stays_true(run):
    """The radius depends on it through a logarithm: 1e-9 is far below anything that matters."""
    costs, _, exact, _, _ = run
    true = float(2.0 * np.log(np.diag(exact)).sum() - D * np.log(np.longdouble(costs.ridge)))
    assert costs.log_det[0] == pytest.approx(true, abs=1e-9)


@pytest.mark.slow
def test_no_width_of_the_tables_is_ever_below_the_truth(run):
    _, tables, exact, _, _ = run
    for slot in range(STATES):
        part = slice(tables.start[slot], tables.start[slot + 1])
        _, _, width = affine(
            mean=np.zeros(RAYS), width2=tables.width2[0, part], cross=tables.cross[0, part], g00=tables.g00[0, slot],
            residual=0.0, baseline_cost=0.0, threshold=1.0, radius=1.0,
        )  # fmt: skip
        for i, x in enumerate(tables.features[:, part].T):
            true = exact_width(exact, tables.phi_0[:, slot], x)
            assert width[i] >= true
            assert width[i] <= true + 1e-8 * exact_norm(exact, x)


@pytest.mark.slow
def test_the_value_tables_stay_true(run):
    """vxx, v0x and v00 only steer exploration; they stay within 1e-8 all the same."""
    _, tables, _, exact, _ = run
    for slot in range(STATES):
        e = exact_whiten(exact, tables.phi_0[:, slot])
        assert tables.v00[0, slot] == pytest.approx(float(e @ e), rel=1e-8)
        for i in range(tables.start[slot], tables.start[slot + 1]):
            v = exact_whiten(exact, tables.features[:, i])
            assert tables.vxx[0, i] == pytest.approx(float(v @ v), rel=1e-8)
            size = float(np.sqrt((v @ v) * (e @ e)))
            assert tables.v0x[0, i] == pytest.approx(float(v @ e), rel=1e-8, abs=1e-8 * size)


@pytest.mark.slow
@pytest.mark.parametrize("ridge", RIDGES)
def test_the_declared_rounding_error_covers_the_factor_given_a_fact(ridge):
    """BᵀAB, with one fact f: width(x) in the exact A is ‖x − share f‖. It is remembered after a tenth of the data."""
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.standard_normal((D, D)))[0]
    f = rng.dirichlet(np.ones(D))
    costs, _, exact, _ = start(ridge)
    nothing, work = np.zeros(1), np.zeros((3, D))
    for block in range(10):
        rows = rng.standard_normal((UPDATES // 10, D)) * np.logspace(0.0, -8.0, D)
        rows = np.ascontiguousarray(rows / 10.0 @ basis.T)
        for x in rows:
            observe_cost(costs, 0, x, nothing, work)
        exact = merged(exact, rows)
        if block == 0:
            assert remember(costs, 0, f, nothing, np.ones(1), work)
    facts, worst = costs.facts, 0.0
    inside = np.ascontiguousarray(facts.inside[0, : D - 1, : D - 1])
    for x in np.vstack([basis.T, np.eye(D)]):
        kept = inverse_norm((x @ facts.basis[0, :, : D - 1])[None], inside)[0]
        worst = max(worst, float(abs(kept / exact_width(exact, f, x) - 1.0)))
    assert worst <= relative_error(costs, 0)


@pytest.mark.slow
@pytest.mark.parametrize("ridge", [1.0, 1e-4, 1e-10])
def test_the_declared_rounding_error_covers_a_million_updates_of_one_feature(ridge):
    """The errors of n rotations then all point the same way. A = λI + nφφᵀ, so ‖x‖_G has a closed form."""
    costs, work = new_costs(1, D, 1, ridge), np.zeros((3, D))
    phi = np.random.default_rng(1).dirichlet(np.ones(D))
    for n in range(UPDATES):
        observe_cost(costs, 0, phi, np.zeros(1), work)
        if n + 1 in (1_000, 30_000, UPDATES):
            assert missed_of_one(costs, phi, n + 1) <= relative_error(costs, 0)
    assert relative_error(costs, 0) < 1.0


def missed_of_one(costs, phi, count):
    """The largest relative error of ‖x‖_G where A = λI + count·φφᵀ: the parts of x along and across φ, extended."""
    rng, worst, x_phi = np.random.default_rng(2), 0.0, phi.astype(np.longdouble)
    square, ridge = (x_phi * x_phi).sum(), np.longdouble(costs.ridge)
    for x in np.vstack([phi, np.eye(D), rng.standard_normal((10, D))]):
        long = x.astype(np.longdouble)
        share = (long * x_phi).sum() / square
        across = long - share * x_phi
        norm = np.sqrt((across * across).sum() / ridge + share * share * square / (ridge + count * square))
        worst = max(worst, float(abs(inverse_norm(x[None], costs.factor[0])[0] / norm - 1.0)))
    return worst
