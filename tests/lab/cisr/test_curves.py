"""The shipped curves, and how a file of curves is made."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from tether.errors import InputError
from tether.lab.cisr.curves import (
    PER_UNIT,
    SCHEMA,
    Curve,
    collect,
    final_table,
    load_curves,
    published,
    summarise,
    unit_table,
)
from tether.lab.cisr.env import BY_NAME
from tether.lab.cisr.teacher import TEACHERS, CurriculumTeacher, UnitLog
from tether.lab.cisr.train import jobs, write_collected

FILE = resources.files("tether.lab.cisr") / "curves.json"
EVERY = load_curves(picture=None)
ids = [f"{curve.teacher}-{curve.intended}-{curve.picture}-{curve.seed}" for curve in EVERY]


def test_the_file_is_small_and_says_how_it_was_made():
    assert len(FILE.read_bytes()) < 100_000
    made = json.loads(FILE.read_text())
    assert made["schema"] == SCHEMA
    assert made["command"] == "make cisr"
    assert made["units"] == 11
    assert made["evaluation_steps"] == 10_000
    assert set(made["versions"]) == {"stable_baselines3", "torch", "gymnasium", "numpy"}
    assert (made["spec"]["environments"], made["spec"]["horizon"], made["spec"]["epochs"]) == (4, 128, 9)


def test_the_list_of_students_is_the_list_of_curves():
    listed = Counter(
        (row["teacher"], row["intended"], row["picture"], seed)
        for row in json.loads(FILE.read_text())["students"]
        for seed in row["seeds"]
    )
    assert listed == Counter((c.teacher, c.intended, c.picture, c.seed) for c in EVERY)
    assert max(listed.values()) == 1


def test_the_optimised_teacher_has_several_students_at_both_slips():
    assert len(load_curves("optimised", intended=0.9)) >= 3
    assert len(load_curves("optimised", intended=0.8)) >= 3


def test_the_shipped_students_are_those_that_the_command_trains():
    assert sorted((c.teacher, c.intended, c.picture, c.seed) for c in EVERY) == sorted(jobs())


@pytest.mark.parametrize("curve", EVERY, ids=ids)
def test_a_curve_is_complete_and_possible(curve):
    assert curve.teacher in TEACHERS
    assert {len(getattr(curve, name)) for name in (*PER_UNIT, "intervention")} == {11}
    assert all(0.0 <= success <= 1.0 for success in curve.success)
    assert all(-2.0 <= value < 6.0 for value in (*curve.mean_return, *curve.training_return))
    assert set(curve.intervention) <= set(BY_NAME)
    for success, value in zip(curve.success, curve.mean_return, strict=True):
        assert 6.0 * success - 2.0 <= value <= 6.0 * success


@pytest.mark.parametrize("curve", EVERY, ids=ids)
def test_only_without_a_teacher_does_anyone_fall_in_training(curve):
    if curve.teacher == "none":
        assert min(curve.training_failures) > 0
        assert set(curve.interventions) == {0}
    else:
        assert set(curve.training_failures) == {0}
        assert sum(curve.interventions) > 0


@pytest.mark.parametrize("curve", EVERY, ids=ids)
def test_the_recorded_interventions_are_what_the_teacher_would_choose(curve):
    """Replay what the teacher saw. A bandit's draws are not recorded, but it tries everything twice first."""
    if curve.teacher == "bandit":
        assert Counter(curve.intervention[:6]) == {"SR1": 2, "SR2": 2, "HR": 2}
    elif curve.teacher == "optimised":
        teacher = CurriculumTeacher()
        for name, value, excess in zip(curve.intervention, curve.training_return, curve.excess, strict=True):
            assert teacher.choose().name == name
            teacher.observe(UnitLog(value, excess))
    else:
        assert set(curve.intervention) == {curve.teacher}


def test_curves_are_selected_by_teacher_slip_and_picture():
    chosen = load_curves("optimised", intended=0.9)
    assert {(c.teacher, c.intended, c.picture) for c in chosen} == {("optimised", 0.9, "map")}
    assert len(load_curves(None)) > len(load_curves("optimised")) > len(chosen)
    assert load_curves("nobody") == ()


def test_the_authors_numbers_are_quoted_with_their_source():
    theirs = published()
    assert "Turchetta" in theirs.citation and "CISR_NeurIPS20" in theirs.citation
    assert theirs.intended == 0.8
    row = theirs.row("none")
    assert (row.success, row.mean_return, row.training_failures) == (0.768, 4.33, 3076.0)
    assert theirs.row("optimised").success == theirs.optimised_success[-1] == 0.96
    assert {row.teacher for row in theirs.rows} == set(TEACHERS)


def sample(seed=0, teacher="SR2", units=2):
    return Curve(
        teacher=teacher,
        intended=0.8,
        picture="map",
        seed=seed,
        intervention=("SR2",) * units,
        success=(0.123456,) * units,
        mean_return=(1.5,) * units,
        training_failures=(0,) * units,
        interventions=(7,) * units,
        training_return=(1.0,) * units,
        excess=(-0.05,) * units,
    )


def put(folder, name, curve, provenance=None):
    provenance = provenance or {"command": "make cisr", "units": 2}
    (folder / f"{name}.json").write_text(json.dumps({"provenance": provenance, "curve": curve.as_dict()}))


def test_students_are_collected_into_one_file(tmp_path):
    put(tmp_path, "b", sample(seed=1))
    put(tmp_path, "a", sample(seed=0))
    put(tmp_path, "c", sample(teacher="HR"))
    (tmp_path / ".half.json.unfinished").write_text("{")
    target = tmp_path / "made" / "curves.json"
    target.parent.mkdir()
    write_collected(tmp_path, target)
    made = json.loads(target.read_text())
    assert made == collect(tmp_path)
    assert made["students"] == [
        {"teacher": "HR", "intended": 0.8, "picture": "map", "seeds": [0]},
        {"teacher": "SR2", "intended": 0.8, "picture": "map", "seeds": [0, 1]},
    ]
    assert made["curves"][1]["success"] == [0.1235, 0.1235]
    assert Curve.from_dict(made["curves"][1]).interventions == (7, 7)


def test_students_of_different_specs_are_not_mixed(tmp_path):
    put(tmp_path, "a", sample())
    put(tmp_path, "b", sample(seed=1), {"command": "make cisr", "units": 3})
    with pytest.raises(InputError, match="different specs"):
        collect(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no trained student"):
        collect(tmp_path)


def test_columns_of_different_lengths_are_refused():
    stored = sample().as_dict()
    stored["success"] = [0.5]
    with pytest.raises(InputError, match="different lengths"):
        Curve.from_dict(stored)


def test_a_summary_by_hand():
    """Final success .1 and .5: mean .3, standard error .4/√2/√2 = .2; 14 interventions each."""
    pair = [
        replace(sample(seed=seed), success=(0.0, success), training_failures=(1, seed))
        for seed, success in ((0, 0.1), (1, 0.5))
    ]
    alone, both = summarise([*pair, sample(teacher="optimised")])
    assert (alone.teacher, alone.students, both.teacher, both.students) == ("optimised", 1, "SR2", 2)
    assert np.isnan(alone.success_error)
    assert both.success == pytest.approx(0.3)
    assert both.success_error == pytest.approx(0.2)
    assert (both.training_failures, both.interventions) == (1.5, 14.0)
    assert both.success_by_unit == pytest.approx((0.0, 0.3))


def test_the_tables_of_the_page_are_those_of_the_file():
    page = Path(__file__).parents[3] / "docs" / "cisr.md"
    summaries = summarise(EVERY)
    assert final_table(summaries).markdown in page.read_text()
    assert unit_table(summaries).markdown in page.read_text()


def test_the_curves_can_be_read_without_torch_and_gymnasium():
    command = (
        "import sys; from tether.lab.cisr.curves import load_curves; load_curves(); "
        "print({'torch', 'stable_baselines3', 'optuna', 'gymnasium'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
