"""The log is bound to its problem: what the problem says of φ, D(s) and τ_h(s) must be what it said when data came in.

Sums of φφᵀ and zφ certify nothing once φ means something else. Settings are compared by `fingerprint`; what functions
say is compared here, on listed states and on states of logged decisions, at every start.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tether.errors import AssumptionError, InputError
from tether.live.log.chain import Store
from tether.live.records import DecisionMade
from tether.live.states import StateCodec
from tether.problem.action_sets import feature_of
from tether.problem.problem import KnownState, Problem
from tether.records import Array

SAME = 1e-9
"""Numbers of one problem, computed on another machine, differ by less than this, as a part of themselves or of their
size: feature_norm for features, else 1."""

LISTED = 128
"""Listed states of which the log keeps a sketch, evenly spaced."""

PLACES, PER_PLACE = 24, 8
"""Where the log is looked at when it is opened, evenly spaced, its end included; and entries that are read at each."""

WAY_OUT = (
    "The log's data certify nothing for another problem. Use the problem that it was written for, or start a new log, "
    "and hand the old measurements, with features as they are now, to warm_start."
)


def sketch(known: KnownState) -> float:
    """One number of what is known of a state: D(s) and a_0(s) with their features, and τ_h(s) (H, M).

    A weighted sum, with weights that no two entries share: what is changed, moved or left out changes it.
    """
    actions = known.actions
    costs = np.nan_to_num(known.baseline_cost.ravel(), nan=-1.0)
    shape = [len(actions.endpoints), actions.baseline, float(actions.is_star)]
    values = np.concatenate([actions.endpoints.ravel(), actions.phi_0, costs, shape])
    return float(values @ _weights(len(values)))


@lru_cache(maxsize=64)
def _weights(count: int) -> Array:
    """Numbers between 1 and 2 that are far apart: 1 + the fractional part of n times the golden ratio."""
    weights: Array = 1.0 + np.modf(np.arange(1, count + 1) * ((1.0 + 5.0**0.5) / 2.0))[0]
    return weights


def listed_sketches(problem: Problem) -> list[float]:
    """A sketch of each of up to `LISTED` listed states, evenly spaced; none where states are not listed."""
    states = problem.states or ()
    chosen = np.unique(np.linspace(0, len(states) - 1, min(LISTED, len(states))).astype(np.int64))
    return [sketch(problem.look_up(states[int(number)])) for number in chosen]


def sketches_all(problem: Problem) -> bool:
    """Whether `listed_sketches` leaves no state out."""
    return problem.states is not None and len(problem.states) <= LISTED


def is_same(one: Sequence[float], two: Sequence[float], size: float = 1.0) -> bool:
    """Whether two lists of numbers agree but for rounding; unknown numbers (NaN) agree with each other."""
    return len(one) == len(two) and bool(np.isclose(one, two, rtol=SAME, atol=SAME * size, equal_nan=True).all())


def check_decisions(store: Store, problem: Problem, states: StateCodec) -> bool:
    """Refuse a problem that says something else of logged decisions than it said then: φ of what was played, τ_h(s),
    and, where it was logged, the sketch of D(s). A state that it does not know says nothing. False if nothing could be
    compared, since the problem knows none of them now.
    """
    unknown, known = 0, 0
    for made in _sampled(store):
        try:
            found = problem.look_up(states.decode(made.state))
        except AssumptionError as error:
            words = f"state {made.state!r:.80} of a logged decision now breaks an assumption: {error}"
            raise InputError(f"{words} {WAY_OUT}") from error
        except Exception:  # the problem's functions are the caller's
            unknown += 1
            continue
        known += 1
        if what := _difference(found, made, problem.feature_norm):
            raise InputError(
                f"this problem is not the one that the log was written for: in state {made.state!r:.80}, of the logged "
                f"decision {made.decision_id}, {what}. {WAY_OUT}"
            )
    return known > 0 or unknown == 0


class Binding:
    """Compare the decisions of a log with the problem: when it is opened, and again where the problem knew none."""

    def __init__(self, store: Store, problem: Problem, states: StateCodec, *, is_new: bool) -> None:
        self._store, self._problem, self._states = store, problem, states
        self._is_compared = is_new or check_decisions(store, problem, states)

    def check(self) -> None:
        """Compare now, if that has not been done yet: the problem's functions may have failed at the start.

        Raises:
            InputError: the problem still knows none of the logged states, or is another one.
        """
        if not self._is_compared:
            self._is_compared = check_decisions(self._store, self._problem, self._states)
            if not self._is_compared:
                raise InputError(f"this problem knows none of the logged states that were looked up. {WAY_OUT}")


def _difference(found: KnownState, made: DecisionMade, feature_norm: float) -> str:
    """What the problem now says otherwise than a logged decision; empty if nothing."""
    try:
        feature = feature_of(found.actions, made.played).tolist()
    except (LookupError, InputError):
        return f"D(s) no longer holds the action {made.played!r}"
    if not is_same(feature, made.feature, feature_norm):
        return f"φ of the action {made.played!r} is no longer {list(made.feature)!r:.120}, but {feature!r:.120}"
    then = [np.nan if limit.baseline_cost is None else limit.baseline_cost for limit in made.certificate.limits]
    now = found.baseline_cost[made.step].tolist()
    if not is_same(now, then):
        return f"τ_h(s) at step {made.step} is no longer {then}, but {now}"
    if made.sketch is not None and not is_same([sketch(found)], [made.sketch]):
        return "D(s) or its features are no longer the same"
    return ""


def _sampled(store: Store) -> list[DecisionMade]:
    """Decisions at evenly spaced places of the log, as far as it is not archived."""
    start, end = store.archived(), store.head().seq
    places = np.unique(np.linspace(start, max(start, end - PER_PLACE), PLACES).astype(np.int64)).tolist()
    entries = [entry for place in places for entry in store.read(place, PER_PLACE)]
    return [DecisionMade.read(entry.genuine()) for entry in entries if entry.kind == DecisionMade.kind]
