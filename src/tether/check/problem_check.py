"""`Problem.check`: every assumption that can be tested, from the problem alone and from logged outcomes."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tether.check.assumptions import from_problem
from tether.check.logged import from_log, without_log
from tether.check.logs import as_log
from tether.check.outlook import from_safe_play
from tether.check.report import Finding, Report
from tether.check.survey import survey
from tether.errors import InputError
from tether.problem.problem import Problem
from tether.records import State

UNKNOWABLE = (
    Finding(
        "A1: linear dynamics",
        "cannot be known",
        "P(s'|s,a) = ⟨μ*(s'), φ⟩ would need every next state; no bound on a cost rests on it",
        "if it fails, learning may be slow or poor, not unsafe",
    ),
    Finding(
        "A3: sub-Gaussian tails",
        "cannot be known",
        "rare large noise may not have shown yet; the noise test sees it only once it happens",
        "clip or bound the measured cost, so that the tails cannot be heavy",
    ),
)


def check_problem(
    problem: Problem,
    log: Any = None,
    *,
    states: Iterable[State] | None = None,
    steps: int = 10_000,
    level: float | None = None,
    pooled: bool = False,
    randomised: bool = False,
    rng: np.random.Generator | None = None,
) -> Report:
    """Test the assumptions of a problem; `print` the report.

    Args:
        problem: what the learner is told.
        log: outcomes in the order in which they happened: Transitions, or a mapping of arrays phi (n, d), cost (n, M),
            and if known reward (n,) and step (n,).
        states: what to look at, where the problem does not list its states.
        steps: how many steps of safe play you can afford before something new must be certified.
        level: the probability that tests on the log reject although everything holds; δ unless given. The tests of
            costs share one level, that of declared safe costs and that of rewards have one of their own.
        pooled: γ*_h does not depend on h.
        randomised: RSLUCB-QVI will be used, for which Assumption 5 is not needed.
        rng: draws states, where there are more than 500.
    """
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise InputError(f"steps must be an integer >= 1, but is {steps!r}.")
    level = problem.confidence if level is None else level
    if not 0.0 < level < 1.0:
        raise InputError(f"level must lie in (0, 1), but is {level}: it is the probability of a false alarm.")
    logged = None if log is None else as_log(problem, log)
    if states is None and problem.states is None and logged is not None and logged.states is not None:
        states = list({problem.key_of(state): state for state in logged.states}.values())
    seen = survey(problem, states, rng or np.random.default_rng(0))
    findings = from_problem(problem, seen, randomised)
    findings += without_log() if logged is None else from_log(problem, logged, level, pooled)
    findings += UNKNOWABLE
    return Report((*findings, *from_safe_play(problem, seen, int(steps), randomised)))
