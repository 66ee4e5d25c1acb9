"""What every relaxation promises, for all of them: one suite."""

import json
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from tether import (
    AssumptionError,
    Bounded,
    Constraint,
    Drift,
    InputError,
    Lost,
    Misfit,
    Problem,
    Realised,
    SafeCost,
    SlucbConfig,
    SlucbQvi,
    StarActions,
)
from tether.assumptions.relaxation import Relaxation
from tether.assumptions.safe_cost import typed_error

KINDS = {
    "misfit": Misfit(0.02),
    "drift": Drift(1e-4),
    "drift by the clock": Drift(1e-6, per="second", time=lambda observation, info: info["t"]),
    "lost": Lost("worst-case", cost_range=(0.0, 2.0)),
    "lost by chance": Lost("at-random"),
    "realised": Realised(0.1),
    "realised, scaled": Realised(0.1, noise_scales=True),
}


@pytest.mark.parametrize("one", KINDS.values(), ids=KINDS)
def test_it_is_a_frozen_record_with_a_name_a_sentence_and_a_form_in_json(one):
    assert isinstance(one, Relaxation) and one.name and one.name == one.name.lower()
    assert one.sentence() and not one.sentence().endswith(".")
    assert json.loads(json.dumps(one.to_json())) == one.to_json() and one.to_json()["name"] == one.name
    with pytest.raises(FrozenInstanceError):
        setattr(one, fields(one)[0].name, 0.5)


@pytest.mark.parametrize("one", KINDS.values(), ids=KINDS)
def test_what_it_changes_is_a_number_that_is_not_negative(one):
    for value in (one.sample_error, one.point_error, one.reserve(0.3), one.end_reserve(0.3)):
        assert 0.0 <= value < np.inf


@pytest.mark.parametrize("one", KINDS.values(), ids=KINDS)
def test_a_constraint_takes_it_alone_or_in_a_list_and_once(one):
    plain = Constraint(threshold=0.5, noise=0.1)
    assert replace(plain, relax=one).relax == replace(plain, relax=[one]).relax == (one,)
    with pytest.raises(InputError, match=f"declares {one.name} twice"):
        replace(plain, relax=[one, one])


NUMBERS = [
    (one, each.name) for one in KINDS.values() for each in fields(one) if isinstance(getattr(one, each.name), float)
]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.1, "0.1", True, None, [0.1]], ids=repr)
@pytest.mark.parametrize(("one", "field"), NUMBERS, ids=[f"{type(one).__name__}.{field}" for one, field in NUMBERS])
def test_a_number_that_is_none_is_refused_by_its_name(one, field, wrong):
    with pytest.raises(InputError, match=rf"{type(one).__name__}\({field}=…\) must be"):
        replace(one, **{field: wrong})


def test_a_constraint_without_relaxations_is_the_papers():
    plain = Constraint(threshold=0.5, noise=0.1, safe_cost=0.2)
    assert plain.relax == () and plain.misfit.error == plain.drift.rate == 0.0 and plain.realised is None
    assert plain.lost.counts_as == "at-random" and plain.known.off_by == 0.0 and not plain.by_likelihood


@pytest.mark.parametrize("one", [Misfit(0.1), Drift(0.1), Realised()])
def test_likelihood_ratios_go_with_exactly_linear_costs_that_stand_still(one):
    with pytest.raises(InputError, match=r"Bounded\('radius'\), which goes with every"):
        Constraint(threshold=0.5, noise=Bounded(), relax=[one])
    assert Constraint(threshold=0.5, noise=Bounded("radius"), relax=[one]).sigma == 0.5


@pytest.mark.parametrize(
    ("costs", "error"),
    [
        (0.25, 0.0),  # short: taken as exact
        (0.1 + 0.2, 0.0),  # computed
        (0.123457, 5e-7),
        (61.2345, 5e-5),
        ([0.12345, 0.123457, 12.3457], 5e-5),  # the sixth digit of the largest
        ([0.5, 1.0 / 3.0], 0.0),
        (round(1.0 / 3.0, 12), 5e-13),
        ([0.0, 0.0], 0.0),
        (1234567.0, 0.5),
        (-0.123457, 5e-7),
    ],
)
def test_a_cost_that_was_typed_is_off_by_half_a_unit_of_its_last_digit(costs, error):
    assert typed_error(np.asarray(costs)) == pytest.approx(error, rel=1e-9)
    assert SafeCost(costs).off_by == pytest.approx(error, rel=1e-9)
    assert SafeCost(costs, error=0.0).off_by == 0.0 and SafeCost(costs, error=0.01).off_by == 0.01


def test_a_guessed_error_lets_no_safe_cost_over_the_threshold_pass():
    """12345 was rounded by up to 0.5, but nobody declared so: it is over τ = 12344.6."""
    for cost, tau in ((12345.0, 12344.6), (0.30001, 0.30001)):
        with pytest.raises(AssumptionError, match="Assumption 2"):
            one_ray(Constraint(threshold=tau, noise=1.0, gamma_norm=2e4, safe_cost=cost))
    steps = one_ray(Constraint(threshold=2e4, noise=1.0, gamma_norm=4e4, safe_cost=[[12345.0], [12346.0]]), horizon=2)
    with pytest.raises(AssumptionError, match="do not depend on the step"):
        SlucbQvi(steps, SlucbConfig(pooled=True)).act(0, 0)


def test_numbers_of_few_bits_are_off_by_what_their_type_rounds_away():
    exact = np.random.default_rng(0).random(50)
    for kind in (np.float32, np.float16):
        given = exact.astype(kind)
        off = SafeCost(given[None]).off_by
        assert np.abs(given.astype(float) - exact).max() <= off <= np.spacing(given.max())
        assert replace(SafeCost(given[None]), gap_floor=0.1).off_by == off  # a copy holds them in 64 bits
    actions = StarActions([0.5, 0.0], [[0.0, 0.5]])
    limit = Constraint(threshold=0.5, noise=0.1, safe_cost=lambda step, state: np.float32(0.2))
    with pytest.warns(UserWarning, match="fewer than 64 bits"):
        Problem(horizon=1, dimension=2, actions=lambda state: actions, constraints=limit).look_up(0)


def one_ray(*constraints, horizon=1):
    """A problem of one state with a ray."""
    return Problem.from_rays(phi_0=[[0.8, 0.0]], endpoints=[[[0.0, 0.5]]], constraints=constraints, horizon=horizon)


@pytest.mark.parametrize("other", [0.2, [[0.2]], lambda step, state: 0.2], ids=["number", "table", "function"])
@pytest.mark.parametrize("wrong", [[[0.9]], 0.9, np.inf, [[np.nan]]], ids=str)
def test_what_is_wrong_with_one_safe_cost_is_refused_at_the_door_beside_another_kind(other, wrong):
    pair = [Constraint(threshold=0.5, noise=0.1, safe_cost=cost) for cost in (other, wrong)]
    for both in (pair, pair[::-1]):
        with pytest.raises((AssumptionError, InputError), match="safe action"):
            one_ray(*both)


def test_likelihood_ratios_do_not_take_a_relaxation_that_they_do_not_know():
    """Whatever it changes in bounds would be ignored; one that changes nothing is taken."""
    for change in ("sample_error", "point_error"):
        kind = type("Other", (Relaxation,), {"name": "other", change: 0.1, "sentence": lambda self: "other"})
        with pytest.raises(InputError, match="does not go with Other"):
            Constraint(threshold=0.5, noise=Bounded(), relax=[kind()])
        assert Constraint(threshold=0.5, noise=Bounded("radius"), relax=[kind()]).relax
    bad = type("Bad", (Relaxation,), {"name": "bad", "point_error": np.nan})
    with pytest.raises(InputError, match="each must be finite"):
        Constraint(threshold=0.5, noise=0.1, relax=[bad()])


def test_a_clock_belongs_to_a_drift_per_second():
    with pytest.raises(InputError, match="per='second' only"):
        Drift(1e-4, time="t")


def test_a_log_with_readings_outside_their_range_is_refused():
    problem = one_ray(Constraint(threshold=0.5, noise=Bounded("radius")))
    columns = {"phi": np.full((3, 2), 0.4), "cost": np.array([[0.1], [1.7], [np.nan]])}
    with pytest.raises(InputError, match=r"cost 0 of row 1 is 1\.7, outside the declared range of 0 to 1"):
        problem.check(columns)


def test_each_gap_floor_is_that_of_its_own_constraint():
    floors = [Constraint(threshold=1.0, noise=0.1, safe_cost=SafeCost(None, gap_floor=floor)) for floor in (0.4, 0.01)]
    problem = one_ray(*floors)
    assert [one.known.gap_floor for one in problem.constraints] == [0.4, 0.01] and problem.gap_floor == 0.01


def test_no_rounding_to_six_digits_is_more_than_what_is_read_off():
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 1e4):
        exact = scale * rng.random((200, 30))
        typed = np.array([[float(f"{cost:.6g}") for cost in row] for row in exact])
        for true, said in zip(exact, typed, strict=True):
            assert np.abs(true - said).max() <= typed_error(said) * (1.0 + 1e-9)
