"""THEORY section 3: tables kept up by rank-one updates are the direct forms, and never round a width downwards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.generators import exact_factor, exact_whiten, exact_width, feed, law, ridges, seeds, unit_ball
from reference.kernels import affine
from tether.learning.ridge import PENDING, add_observation, inverse_norm, new_ridge, relative_error
from tether.learning.safe_sets import ROUNDING
from tether.learning.tables import UPDATE_LIMIT, add_state, new_tables, refresh
from tether.problem.action_sets import FiniteActions, StarActions
from tether.problem.problem import KnownState

ENDS = 4


def tables_of(rng, states, d, *, finite=False):
    """Tables over `states` states with ENDS candidates each, one stage."""
    tables = new_tables(d, 1, 1, 1)
    for key in range(states):
        ends, f = unit_ball(rng, ENDS, d), unit_ball(rng, 1, d)[0]
        actions = FiniteActions(ends, key % ENDS) if finite else StarActions(f, ends)
        tables = add_state(tables, KnownState(key, actions, np.zeros((1, 1))))
    return tables


def bring_up_to_date(tables, cost, value):
    refresh(tables, cost, value, 0, True, np.empty((3, tables.features.shape[1])))


def direct_forms(tables, cost_gram, value_gram):
    """(width2, cross, g00, vxx, v0x, v00) by matrix inversion."""
    slots = int(tables.slots[0])
    g, v = np.linalg.inv(cost_gram), np.linalg.inv(value_gram)
    x, f = tables.features[:, : tables.start[slots]].T, tables.phi_0[:, :slots].T
    own = f[np.repeat(np.arange(slots), np.diff(tables.start[: slots + 1]))]  # the safe feature of each row

    def form(left, matrix, right):
        return np.einsum("ni,ij,nj->n", left, matrix, right)

    g00, cross = form(own, g, own), form(own, g, x)
    return form(x, g, x) - cross**2 / g00, cross, form(f, g, f), form(x, v, x), form(own, v, x), form(f, v, f)


def kept_forms(tables):
    slots = int(tables.slots[0])
    rows = tables.start[slots]
    return (
        tables.width2[0, :rows], tables.cross[0, :rows], tables.g00[0, :slots],
        tables.vxx[0, :rows], tables.v0x[0, :rows], tables.v00[0, :slots],
    )  # fmt: skip


NAMES = ("width2", "cross", "g00", "vxx", "v0x", "v00")


@law
@given(seeds, st.integers(1, 5), st.integers(1, 4), ridges, ridges, st.lists(st.integers(0, PENDING + 2), max_size=25))
def test_tables_after_any_updates_are_the_direct_forms(seed, d, states, cost_ridge, value_ridge, bursts):
    """Bursts of observations between refreshes: none, a few (owed updates), or too many (a rebuild)."""
    rng = np.random.default_rng(seed)
    tables = tables_of(rng, states, d)
    cost, value = new_ridge(1, cost_ridge, np.eye(d)), new_ridge(1, value_ridge, np.eye(d))
    cost_gram, value_gram = cost_ridge * np.eye(d), value_ridge * np.eye(d)
    bring_up_to_date(tables, cost, value)
    for burst in bursts:
        for x in unit_ball(rng, burst, d):
            add_observation(value, 0, x)
            value_gram += np.outer(x, x)
            if rng.random() < 0.7:  # some costs are not measured
                add_observation(cost, 0, x)
                cost_gram += np.outer(x, x)
        bring_up_to_date(tables, cost, value)
        for name, kept, direct in zip(
            NAMES, kept_forms(tables), direct_forms(tables, cost_gram, value_gram), strict=True
        ):
            scale = 1.0 / min(cost_ridge, value_ridge)
            np.testing.assert_allclose(kept, direct, rtol=1e-9, atol=1e-11 * scale, err_msg=name)


@law
@given(seeds, st.integers(2, 4), st.integers(1, 8))
def test_a_state_met_late_has_the_same_forms_as_one_known_from_the_start(seed, d, count):
    rng = np.random.default_rng(seed)
    early, rows = tables_of(rng, 2, d), unit_ball(rng, count, d)
    late = new_tables(d, 1, 1, 1)
    first = KnownState(0, StarActions(early.phi_0[:, 0], early.features[:, :ENDS].T), np.zeros((1, 1)))
    second = KnownState(1, StarActions(early.phi_0[:, 1], early.features[:, ENDS : 2 * ENDS].T), np.zeros((1, 1)))
    late = add_state(late, first)
    sums = [(new_ridge(1, 0.5, np.eye(d)), new_ridge(1, 1.0, np.eye(d))) for _ in range(2)]
    for x in rows:
        for tables, (cost, value) in zip((early, late), sums, strict=True):
            bring_up_to_date(tables, cost, value)
            add_observation(cost, 0, x)
            add_observation(value, 0, x)
    late = add_state(late, second)
    bring_up_to_date(early, *sums[0])
    bring_up_to_date(late, *sums[1])
    for name, ours, theirs in zip(NAMES, kept_forms(early), kept_forms(late), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-14, err_msg=name)


@law
@given(seeds, st.integers(1, 4))
def test_the_baseline_row_of_a_finite_set_has_no_width(seed, states):
    rng = np.random.default_rng(seed)
    tables = tables_of(rng, states, 3, finite=True)
    cost, value = new_ridge(1, 0.1, np.eye(3)), new_ridge(1, 1.0, np.eye(3))
    for x in unit_ball(rng, 40, 3):
        add_observation(cost, 0, x)
        add_observation(value, 0, x)
        bring_up_to_date(tables, cost, value)
    for slot in range(states):
        row = tables.start[slot] + tables.baseline_row[slot]
        assert tables.width2[0, row] <= 1e-20
        assert tables.cross[0, row] == pytest.approx(tables.g00[0, slot], rel=1e-12)


def inflated_and_exact(rng, count, d, ridge, condition, *, every):
    """Widths as the safe sets use them, beside the exact ones, after `count` updates refreshed every few."""
    tables = tables_of(rng, 3, d)
    cost, value = new_ridge(1, ridge, np.eye(d)), new_ridge(1, 1.0, np.eye(d))
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    scale = np.logspace(0.0, -np.log10(condition), d)
    rows = (unit_ball(rng, count, d) * scale) @ basis.T
    for n, x in enumerate(rows):
        add_observation(cost, 0, x)
        add_observation(value, 0, x)
        if n % every == 0:
            bring_up_to_date(tables, cost, value)
    bring_up_to_date(tables, cost, value)
    truth = exact_factor(rows, ridge)
    for slot in range(3):
        part = slice(tables.start[slot], tables.start[slot + 1])
        zeros = np.zeros(ENDS)
        _, _, width = affine(
            mean=zeros, width2=tables.width2[0, part], cross=tables.cross[0, part], g00=tables.g00[0, slot],
            residual=0.0, baseline_cost=0.0, threshold=1.0, radius=1.0,
        )  # fmt: skip
        f = tables.phi_0[:, slot]
        for i, x in enumerate(tables.features[:, part].T):
            whole = exact_whiten(truth, x)
            yield width[i], exact_width(truth, f, x), np.sqrt((whole * whole).sum())


@law
@given(seeds, st.integers(2, 5), st.integers(0, 3 * UPDATE_LIMIT), ridges, st.floats(0.0, 6.0), st.integers(1, 6))
def test_a_width_with_its_allowance_is_never_below_the_exact_width(seed, d, count, ridge, digits, every):
    for width, exact, norm in inflated_and_exact(
        np.random.default_rng(seed), count, d, ridge, 10.0**digits, every=every
    ):
        assert width >= exact
        assert width <= exact + 1e-8 * norm


def drifted(ridge, count=30_000, d=5, digits=8.0):
    """The kept sums after many updates, their exact factor, and candidates; condition number 1e8."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = (unit_ball(rng, count, d) * np.logspace(0.0, -digits, d)) @ basis.T
    state = new_ridge(1, ridge, np.eye(d))
    feed(state, rows)
    return state, exact_factor(rows, ridge), np.vstack([basis.T, unit_ball(rng, 20, d)])


def norms(state, truth, candidates):
    """Kept and exact ‖x‖_G of each candidate."""
    exact = np.array([np.sqrt((exact_whiten(truth, x) ** 2).sum()) for x in candidates])
    return inverse_norm(candidates, state.factor[0]), exact


@pytest.mark.parametrize("ridge", [1.0, 1e-4, 1e-8])
def test_the_declared_rounding_error_covers_the_true_one_after_thirty_thousand_updates(ridge):
    """The radius is enlarged by `relative_error`, so that no norm, however drifted, is certified below the truth."""
    state, truth, candidates = drifted(ridge)
    kept, exact = norms(state, truth, candidates)
    assert float(np.abs(kept / exact - 1.0).max()) <= ROUNDING + relative_error(state, 0)


@pytest.mark.parametrize("ridge", [1.0, 1e-4])
def test_norms_do_not_drift_in_thirty_thousand_updates(ridge):
    """The slow suite (statistical/test_drift.py) goes to a million updates and to the tables."""
    state, truth, candidates = drifted(ridge)
    kept, exact = norms(state, truth, candidates)
    assert float(np.abs(kept / exact - 1.0).max()) <= 1e-9
    exact_log_det = float(2.0 * np.log(np.diag(truth)).sum() - 5.0 * np.log(np.longdouble(ridge)))
    assert state.log_det[0] == pytest.approx(exact_log_det, abs=1e-9)


def test_the_declared_rounding_error_stays_negligible_where_costs_are_almost_free_of_noise():
    """σ = 1e-5, B = √d: λ = σ²d/B² = 1e-10. A direction that was never played must not blow up every radius."""
    state, _, _ = drifted(1e-10, count=20_000)
    assert relative_error(state, 0) <= 1e-3
