"""CISR beside RSLUCB-QVI: the shipped curves of our students, and the one that its authors published."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tether.cisr.curves import load_curves
from tether.cisr.published import published
from tether.errors import TetherError
from tether.records import Array

STEPS = 9600
"""Training steps in one of CISR's interaction units."""
INTENDED = 0.9
"""Probability of the intended move in the Tether paper's lake; the authors ran CISR at 0.8."""
STUDENTS = 30
"""Of the authors: 3 teachers × 10 students."""


@dataclass(frozen=True, eq=False)
class CisrRun:
    """CISR with its optimised teacher, one row per student (n, U); NaN where nothing was published."""

    name: str
    note: str
    success: Array
    earned: Array
    falls: Array
    final_return: float
    by_authors: bool = False


def trained_folder(study: Path) -> Path:
    """Where `--with-cisr` keeps the students that it trains for a study."""
    return study / "cisr"


def cisr_runs(study: Path) -> list[CisrRun]:
    """Our students on the paper's lake (trained for this study, else shipped), then the authors' mean."""
    return [*_ours(study), _authors()]


def _ours(study: Path) -> list[CisrRun]:
    own = trained_folder(study)
    try:
        anew = own if any(own.glob("*.json")) else None
        curves = load_curves("optimised", intended=INTENDED, folder=anew)
    except (OSError, ValueError, TetherError):  # not every installation brings the trained curves
        return []
    if not curves:
        return []
    students = f"{len(curves)} student{'' if len(curves) == 1 else 's'}"
    earned = np.array([curve.mean_return for curve in curves])
    return [
        CisrRun(
            "CISR, run by us" if anew is None else "CISR, trained anew",
            f"{students}, moves succeed with {INTENDED}; {STEPS:,} steps a unit",
            np.array([curve.success for curve in curves]),
            earned,
            np.array([curve.training_failures for curve in curves], dtype=np.float64),
            float(earned[:, -1].mean()),
        )
    ]


def _authors() -> CisrRun:
    told = published()
    success = np.array([told.optimised_success])
    return CisrRun(
        "CISR, its authors' logs",
        f"{STUDENTS} students, moves succeed with {told.intended}; {STEPS:,} steps a unit",
        success,
        np.full(success.shape, np.nan),
        np.zeros(success.shape),  # 0 in all of training
        told.row("optimised").mean_return,
        by_authors=True,
    )
