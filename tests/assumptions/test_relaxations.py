"""What every relaxation promises, for all of them: one suite."""

import json
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from tether import Bounded, Constraint, Drift, InputError, Lost, Misfit, Realised, SafeCost
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
    with pytest.raises(InputError, match=r"Bounded\('radius'\), which goes with all"):
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


def test_no_rounding_to_six_digits_is_more_than_what_is_read_off():
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 1e4):
        exact = scale * rng.random((200, 30))
        typed = np.array([[float(f"{cost:.6g}") for cost in row] for row in exact])
        for true, said in zip(exact, typed, strict=True):
            assert np.abs(true - said).max() <= typed_error(said) * (1.0 + 1e-9)
