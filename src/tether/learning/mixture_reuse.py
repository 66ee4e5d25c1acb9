"""Keep a mixture from one step of the plan to the step before it, as long as its certificate still closes.

Where steps share one regression and τ_s, the inner problem of a state differs between two steps in its gains p alone.
What was feasible stays feasible, with the same bound; and a linear minorant of g does not know of p. So one linear
program over the minorant that touches g at the old mixture says whether it is still the best, to the same tolerance.
"""

import numpy as np

from tether.compiled import inlined
from tether.learning.backup import Plan
from tether.learning.mixture_choice import Desk, Sheet
from tether.learning.mixture_search import CLOSED
from tether.learning.mixtures import linear_optimum, slope_at
from tether.learning.statistics import BEST
from tether.learning.tables import Tables


@inlined
def note_slope(tables: Tables, plan: Plan, step: int, slot: int, n: int, desk: Desk, sheet: Sheet) -> None:
    """Note minorants that touch each g_j at the mixture on the desk, if the plan has taken it as the best."""
    if plan.reason[step, slot] != BEST or not plan.length[step, slot] > 0.0:
        return
    first, last = tables.start[slot], tables.start[slot + 1]
    slope = desk.trial[:n]
    for j in range(desk.rise.shape[0]):
        slope_at(desk.rise[j, :n], desk.joint[:n, :n], desk.facts[1, j], desk.x[:n], slope)
        k = 0
        for row in range(first, last):
            if row - first == tables.baseline_row[slot]:
                sheet.slope[j, row] = 0.0
            else:
                if not np.isfinite(slope[k]):
                    return  # what is not a number bounds nothing
                sheet.slope[j, row] = slope[k]
                k += 1
    sheet.held[slot] = step


@inlined
def keep_mixture(tables: Tables, plan: Plan, step: int, slot: int, sheet: Sheet) -> bool:
    """Take over the mixture of the step after, with its bound, if a certificate shows that it is best here too.

    Its score goes into the plan; the caller clips the value. `sheet.held` says that the constraint has not changed.
    """
    if sheet.held[slot] != step + 1:
        return False
    first, last = tables.start[slot], tables.start[slot + 1]
    gain = sheet.gain[first:last]
    value, largest = 0.0, 0.0
    for i in range(gain.shape[0]):
        value += gain[i] * plan.mixture[step + 1, first + i]
        largest = max(largest, gain[i])
    bound = np.inf
    for j in range(sheet.slope.shape[0]):
        bound = min(bound, linear_optimum(gain, sheet.slope[j, first:last], sheet.facts[slot, 2, j])[0])
    score = sheet.score_0[slot] + value
    if not (bound - value <= CLOSED * largest and np.isfinite(score)):  # also if some gain is not finite
        return False
    for row in range(first, last):
        plan.mixture[step, row] = plan.mixture[step + 1, row]
    for j in range(plan.bound.shape[2]):
        plan.bound[step, slot, j] = plan.bound[step + 1, slot, j]
    plan.length[step, slot] = plan.length[step + 1, slot]
    plan.score[step, slot] = score
    plan.reason[step, slot] = BEST
    sheet.held[slot] = step
    return True
