"""Effects that come steps later: does a cost depend on what was played before, beyond the features of its own step?

The test is that of the monitor's `shape` (docs/check.md), with the features of up to six steps before, in the same
episode, as what a cost could also depend on. They are known before the cost is seen, so the test is as valid.
"""

from math import inf
from math import log as ln

import numpy as np

from tether.check.logs import Log
from tether.check.monitor import extra_evidence, log_mean, spectrum_of
from tether.check.report import Finding, judged, unknown
from tether.problem.problem import Problem
from tether.records import Array

NAME = "A1: costs do not come steps later"
LAGS, WIDTH = 6, 8
"""How many steps back are looked at, and how many components of their features."""

FEWEST = 20
"""Outcomes with a step before them that a test needs."""


def earlier_features(log: Log, width: int) -> Array:
    """The features of one to six steps before in the same episode, 0 where there was none: (n, LAGS, width).

    An episode begins where the step does not go up by one.
    """
    lagged = np.zeros((len(log.step), LAGS, width))
    since = 0
    for row in range(1, len(log.step)):
        since = since + 1 if log.step[row] == log.step[row - 1] + 1 else 0
        for lag in range(1, min(since, LAGS) + 1):
            lagged[row, lag - 1] = log.feature[row - lag, :width]
    return lagged


def later_effects(problem: Problem, log: Log, level: float, pooled: bool) -> Finding:
    """Whether costs depend on earlier steps; with probability at most `level` it is found although they do not."""
    width = min(problem.dimension, WIDTH)
    lagged = earlier_features(log, width).reshape(len(log.step), -1) / problem.feature_norm
    followed = log.measured & lagged.any(axis=1)
    if followed.sum() < FEWEST:
        why = f"only {int(followed.sum())} measured outcomes have a step before them in the log"
        return unknown(NAME, why, "pass a log of whole episodes, in order, with the column step")
    sigma = np.array(problem.noise)
    bound, misfit = np.array(problem.gamma_norm) * problem.feature_norm / sigma, problem.sample_error / sigma
    stages = [log.measured] if pooled else [log.measured & (log.step == h) for h in range(problem.horizon)]
    evidence, where = -inf, 0
    for rows in stages:
        if not rows.any():
            continue
        x, z, q = log.feature[rows] / problem.feature_norm, log.cost[rows] / sigma, lagged[rows]
        spectrum = spectrum_of(x.T @ x, z.T @ x, (z**2).sum(axis=0), bound, misfit * np.sqrt(len(z)))
        each = extra_evidence(spectrum, q.T @ x, (q**2).sum(axis=0), z.T @ q)
        found = float(log_mean(each).max())
        if found > evidence:
            evidence, where = found, int(each.max(axis=0).argmax()) // width + 1
    limit = ln(len(stages) * len(problem.constraints) / level)
    numbers = f"log evidence {evidence:.1f}, limit {limit:.1f}, level {level:g}"
    if evidence < limit:
        count = int(followed.sum())
        return judged(NAME, True, f"not contradicted by {count} costs with a step before them ({numbers})")
    text = f"costs also depend on what was played {where} step{'s' if where > 1 else ''} before ({numbers})"
    way_out = "put what still works into the state, or later costs into the cost: docs/later-effects.md"
    return judged(NAME, False, text, way_out)
