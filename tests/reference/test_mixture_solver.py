"""Is the closed form the optimum? Against Clarabel on random and degenerate instances, written independently.

Tolerances. A certificate counts as closed at CLOSED = 1e-8 of max p. Clarabel is asked for a gap and feasibility of
1e-11 of max |p|; from its answer a feasible point and a dual bound are made, so that the optimum lies between them up
to rounding. Where they are further apart than 3e-9 of max |p| it did not converge and the value is not compared.
Feasibility of ours has no tolerance: x >= 0, Σx <= 1 and g(x) <= δ hold as computed.
"""

from collections import Counter

import cvxpy
import numpy as np
import pytest

from kernels import mixture_calls as calls
from reference.cones import KINDS, USEFUL, Instance, conic_optimum, draw
from tether.kernels.mixture_solver import CLOSED, ENUMERATED, LARGEST, SOLVED

SIZES = (1, 2, 3, 4, 7, 15, 24)
FULL_RANK = ("full", "huge radius", "only a_0", "cheap")


def assert_feasible(problem, x):
    """Exactly, by the rounded-up formula and by the definition with the residuals themselves (to rounding)."""
    assert (x >= 0.0).all()
    assert x.sum() <= 1.0
    for j in range(len(problem.slack)):
        assert calls.cost_rise(problem.rise[j], problem.joint, problem.radius[j], x) <= problem.slack[j]
    rounding = 1e-14 * (np.abs(problem.rise) @ x + problem.radius * (np.abs(problem.residuals).sum(axis=0) @ x))
    assert (problem.rises(x) <= problem.slack + rounding).all()


def judge(problem, kind, seen):
    """One instance through the closed form and, where its certificate stays open, the interior-point method."""
    group = "few" if problem.size <= ENUMERATED else "many"
    seen["all", kind, group] += 1
    x, bound = calls.best_mixture(**problem.single)
    value, largest, unit = float(problem.gain @ x), problem.largest, float(np.abs(problem.gain).max())
    assert_feasible(problem, x)
    assert bound >= value - 1e-15 * unit
    lowest, highest = conic_optimum(problem)
    assert bound >= lowest - 1e-12 * unit, "an upper bound below the optimum"
    assert value <= highest + 1e-12 * unit, "a feasible point above the optimum"
    if highest - lowest > USEFUL * unit:
        seen["no reference", kind, group] += 1
    if bound - value <= CLOSED * largest:
        seen["closed", kind, group] += 1
        assert value >= lowest - 1e-8 * unit, "closed, but not optimal"
        return
    x, bound = calls.conic_mixture(**problem.several)
    value = float(problem.gain @ x)
    assert_feasible(problem, x)
    # its bound takes a root of C = RᵀR: dependent residuals cost it half the digits, below what it is used for
    assert bound >= lowest - SOLVED * unit, "an upper bound of the interior-point method below the optimum"
    if bound - value <= SOLVED * largest:
        seen["by interior point", kind, group] += 1
        assert value >= lowest - 1.01 * SOLVED * unit
    else:
        seen["refused", kind, group] += 1


def judge_many(seed, each):
    rng, seen = np.random.default_rng(seed), Counter()
    for kind in KINDS:
        for size in SIZES:
            for _ in range(each):
                judge(draw(rng, kind, size), kind, seen)
    return seen


def share(seen, what, kinds=KINDS, groups=("few", "many")):
    of = [(kind, group) for kind in kinds for group in groups]
    return sum(seen[what, *key] for key in of) / sum(seen["all", *key] for key in of)


def check_shares(seen):
    assert share(seen, "no reference") < 0.03
    assert share(seen, "closed", FULL_RANK, ("few",)) >= 0.95
    assert share(seen, "closed", FULL_RANK, ("many",)) >= 0.9
    assert share(seen, "closed") >= 0.85
    assert share(seen, "refused", FULL_RANK) == 0.0
    assert share(seen, "refused") < 0.02
    assert sum(seen["by interior point", kind, group] for kind in KINDS for group in ("few", "many")) > 0


def test_closed_forms_agree_with_clarabel_on_a_thousand_instances():
    seen = judge_many(seed=1, each=12)
    assert sum(count for key, count in seen.items() if key[0] == "all") == 1008
    check_shares(seen)


@pytest.mark.slow
def test_closed_forms_agree_with_clarabel_on_ten_thousand_instances():
    seen = judge_many(seed=2, each=120)
    assert sum(count for key, count in seen.items() if key[0] == "all") == 10_080
    check_shares(seen)


def by_cvxpy(problem):
    """The optimum over the whole simplex by cvxpy at its own tolerance (1e-8): nothing of `cones` is used."""
    theta = cvxpy.Variable(problem.size + 1, nonneg=True)
    x = theta[1:]
    spread = cvxpy.norm(problem.residuals @ x, 2)
    limits = [
        b @ x + beta * spread <= delta
        for b, beta, delta in zip(problem.rise, problem.radius, problem.slack, strict=True)
    ]
    task = cvxpy.Problem(cvxpy.Maximize(problem.gain @ x), [cvxpy.sum(theta) == 1.0, *limits])
    return task.solve(solver=cvxpy.CLARABEL)


@pytest.mark.parametrize("constraints", [1, 2, 3])
def test_several_constraints_agree_with_cvxpy_or_are_left_to_the_interior_point_method(constraints):
    rng, closed, conic = np.random.default_rng(constraints), 0, 0
    for trial in range(60):
        problem = draw(rng, ("full", "cheap", "duplicates")[trial % 3], (2, 3, 4, 7)[trial % 4], constraints)
        unit = float(np.abs(problem.gain).max())
        optimum = by_cvxpy(problem)
        x, value, solved = calls.certified_optimum(**problem.several)
        if solved:
            closed += 1
            assert_feasible(problem, x)
            assert value == pytest.approx(problem.gain @ x, abs=1e-14 * unit)
        else:
            conic += 1
            x, bound = calls.conic_mixture(**problem.several)
            assert_feasible(problem, x)
            value = float(problem.gain @ x)
            assert bound - value <= SOLVED * problem.largest
        assert value == pytest.approx(optimum, abs=2e-6 * unit)
    assert closed >= 30
    assert conic > 0 or constraints == 1


def test_the_optimum_under_one_constraint_is_not_taken_for_the_optimum_under_all():
    """p = (1), b = (1) and (2), no width, δ = 1/2: the first allows x = 1/2, both allow 1/4."""
    two = Instance(np.ones(1), np.array([[1.0], [2.0]]), np.zeros((1, 1)), np.zeros(2), np.full(2, 0.5))
    x, value, solved = calls.certified_optimum(**two.several)
    assert solved
    assert value == pytest.approx(0.25, abs=1e-12)
    np.testing.assert_allclose(x, [0.25], atol=1e-12)


@pytest.mark.parametrize("kind", FULL_RANK)
@pytest.mark.parametrize("constraints", [1, 2])
def test_the_interior_point_method_alone_agrees_too(kind, constraints):
    rng = np.random.default_rng(7)
    for size in (1, 3, 8, 40):
        for _ in range(5):
            problem = draw(rng, kind, size, constraints)
            problem.gain[0] = abs(problem.gain[0])  # where nothing is better than a_0 there is nothing to solve
            lowest, highest = conic_optimum(problem)
            x, bound = calls.conic_mixture(**problem.several)
            unit = float(np.abs(problem.gain).max())
            assert_feasible(problem, x)
            assert bound - problem.gain @ x <= SOLVED * problem.largest
            assert lowest - 1e-7 * unit <= problem.gain @ x <= highest + 1e-12 * unit
            assert bound >= lowest - 1e-9 * unit


def test_more_actions_than_the_closed_forms_are_for_are_left_open():
    problem = draw(np.random.default_rng(3), "full", LARGEST + 1)
    x, value, solved = calls.certified_optimum(**problem.several)
    assert (value, solved) == (0.0, False)
    np.testing.assert_array_equal(x, 0.0)
    worse = Instance(-np.abs(problem.gain), problem.rise, problem.residuals, problem.radius, problem.slack)
    assert calls.certified_optimum(**worse.several)[1:] == (0.0, True)


def test_an_instance_without_a_finite_answer_is_refused_by_the_interior_point_method():
    problem = draw(np.random.default_rng(4), "full", 3)
    for broken in (np.nan, np.inf):
        rise = problem.rise.copy()
        rise[0, 1] = broken
        x, bound = calls.conic_mixture(**{**problem.several, "rise": rise})
        np.testing.assert_array_equal(x, 0.0)
        assert not bound - 0.0 <= SOLVED * problem.largest
        joint = problem.joint.copy()
        joint[0, 1] = joint[1, 0] = broken
        x, bound = calls.conic_mixture(**{**problem.several, "joint": joint})
        np.testing.assert_array_equal(x, 0.0)
        assert bound == np.inf
