"""The search for a curriculum, an option: the authors' Bayesian optimisation, done with Optuna."""

from typing import Any

import numpy as np

from tether.errors import TetherError
from tether.lab.cisr.env import BY_NAME, TEACHERS_CHOICE
from tether.lab.cisr.student import Student, StudentSpec
from tether.lab.cisr.teacher import EXCESS_RANGE, RETURN_RANGE, Curriculum, CurriculumTeacher
from tether.lab.cisr.training import UNITS, train_under

RANDOM_POINTS, FURTHER_POINTS = 10, 20


def search_curriculum(
    seed: int,
    spec: StudentSpec | None = None,
    *,
    random_points: int = RANDOM_POINTS,
    further_points: int = FURTHER_POINTS,
    units: int = UNITS,
) -> tuple[Curriculum, float]:
    """The best curriculum found, and its objective: the return of a fresh student over 10,000 steps without teacher.

    Random points first, then a Gaussian process. Each point trains a student, so 30 points take about an hour.
    """
    optuna = _require_optuna()
    student_spec = spec or StudentSpec()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=random_points)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    children = np.random.SeedSequence(seed).spawn(random_points + further_points)

    def objective(trial: Any) -> float:
        student_seed, evaluation_seed = (int(word) for word in children[trial.number].generate_state(2))
        teacher = CurriculumTeacher(suggested(trial))
        rng = np.random.default_rng(evaluation_seed)
        rows = train_under(Student(student_spec, student_seed), teacher, units, rng)
        return float(rows[-1]["mean_return"])

    study.optimize(objective, n_trials=random_points + further_points)
    return suggested(study.best_trial), float(study.best_value)


def suggested(trial: Any) -> Curriculum:
    """The curriculum that an Optuna trial stands for: three interventions and two pairs of thresholds."""
    names = [intervention.name for intervention in TEACHERS_CHOICE]
    first, second, third = (BY_NAME[trial.suggest_categorical(f"intervention_{stage}", names)] for stage in range(3))
    pairs = [
        (
            float(trial.suggest_float(f"return_{stage}", *RETURN_RANGE)),
            float(trial.suggest_float(f"excess_{stage}", *EXCESS_RANGE)),
        )
        for stage in range(2)
    ]
    return Curriculum((first, second, third), (pairs[0], pairs[1]))


def _require_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise TetherError("The search for a curriculum needs Optuna: pip install 'tether-rl[cisr]'.") from error
    return optuna
