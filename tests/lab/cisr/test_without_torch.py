"""What a user without PyTorch meets: a sentence that says what to install."""

import sys

import pytest

from tether.errors import TetherError
from tether.lab.cisr.student import Student, StudentSpec
from tether.lab.cisr.train import search_curriculum


def test_a_student_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(TetherError, match=r"tether-rl\[cisr\]"):
        Student(StudentSpec(), 0)


def test_the_search_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(TetherError, match=r"tether-rl\[cisr\]"):
        search_curriculum(0)
