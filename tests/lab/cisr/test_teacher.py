"""Who chooses the next intervention."""

from collections import Counter

import numpy as np
import pytest

from tether.errors import InputError
from tether.lab.cisr.env import HR, NONE, SR1, SR2
from tether.lab.cisr.teacher import (
    STORED,
    BanditTeacher,
    Curriculum,
    CurriculumTeacher,
    FixedTeacher,
    UnitLog,
    make_teacher,
)

ORDERED = Curriculum((SR1, SR2, HR), ((2.0, 0.05), (1.0, 0.02)))


def choices(teacher, observations):
    """What a teacher chooses before each unit, given what it sees after it."""
    chosen = []
    for seen in observations:
        chosen.append(teacher.choose().name)
        teacher.observe(UnitLog(*seen))
    return chosen


def test_the_stored_solution_is_the_authors():
    assert [i.name for i in STORED.interventions] == ["SR2", "HR", "HR"]
    assert STORED.thresholds == ((2.777, 0.0987), (1.773, 0.0694))


def test_a_stage_is_left_only_when_both_thresholds_are_met():
    seen = [(1.9, 0.0), (2.0, 0.06), (2.0, 0.05), (0.9, 0.0), (1.0, 0.02), (9.0, 0.0), (9.0, 0.0)]
    assert choices(CurriculumTeacher(ORDERED), seen) == ["SR1", "SR1", "SR1", "SR2", "SR2", "HR", "HR"]


def test_at_most_one_stage_is_left_in_a_unit():
    assert choices(CurriculumTeacher(ORDERED), [(9.0, -1.0)] * 4) == ["SR1", "SR2", "HR", "HR"]


def test_before_the_first_unit_the_teacher_has_seen_zeros():
    """As in the authors' code: a first threshold that (0, 0) meets skips the first intervention."""
    skipping = Curriculum((SR1, SR2, HR), ((0.0, 0.0), (1.0, 0.0)))
    assert CurriculumTeacher(skipping).choose() is SR2
    assert CurriculumTeacher(ORDERED).choose() is SR1


def test_a_fixed_teacher_never_changes():
    assert choices(FixedTeacher(NONE), [(9.0, -1.0)] * 3) == ["none"] * 3


def test_the_bandit_tries_everything_twice_before_it_compares():
    for seed in range(5):
        tried = choices(BanditTeacher(np.random.default_rng(seed)), [(0.0, 0.0)] * 6)
        assert Counter(tried) == {"SR1": 2, "SR2": 2, "HR": 2}


def after_two_visits_each(**options):
    """Second visits change the return by 0.1 (SR1), −3 (SR2) and 1 (HR)."""
    change = {"SR1": 0.1, "SR2": -3.0, "HR": 1.0}
    teacher, visits = BanditTeacher(np.random.default_rng(0), **options), Counter()
    for _ in range(6):
        name = teacher.choose().name
        teacher.observe(UnitLog(change[name] * visits[name], 0.0))
        visits[name] += 1
    return teacher


def test_the_bandit_then_follows_the_largest_change_up_or_down():
    """|−3| wins."""
    assert after_two_visits_each().choose() is SR2


def test_the_bandit_forgets_what_is_older_than_its_window():
    """Window 1: once SR2 has stopped changing, HR's change of 1 wins."""
    teacher = after_two_visits_each(window=1)
    assert teacher.choose() is SR2
    teacher.observe(UnitLog(-3.0, 0.0))
    assert teacher.choose() is HR


def test_the_bandit_draws_only_from_its_own_stream():
    seen = [(float(k % 3), 0.0) for k in range(20)]
    first, again, other = (choices(make_teacher("bandit", np.random.default_rng(seed)), seen) for seed in (3, 3, 4))
    assert first == again != other


def test_teachers_go_by_name():
    rng = np.random.default_rng(0)
    assert make_teacher("optimised", rng).choose() is SR2
    assert make_teacher("HR", rng).choose() is HR
    with pytest.raises(InputError, match="strict"):
        make_teacher("strict", rng)
