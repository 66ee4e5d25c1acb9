"""What stands against a promotion: each criterion that the log does not meet."""

from collections.abc import Iterator
from math import isfinite, sqrt

from tether.live.ledger import Counts, Ledger
from tether.live.policy import Criteria, Mode

REMEDY = "report it, or declare it lost"
"""What to do about a decision whose outcome others wait for."""


def unmet(
    ledger: Ledger, criteria: Criteria, noise: tuple[float, ...], alarm: str, mode: Mode = "guarded"
) -> tuple[str, ...]:
    """Return each criterion for a mode that the log does not meet, with its value and its limit.

    Args:
        ledger: as of the last entry.
        criteria: what is asked for.
        noise: σ of each constraint (M,).
        alarm: the alarm that is on, in words; empty if none is.
        mode: to be entered.
    """
    found = []
    if alarm:
        found.append(f"an alarm is on ({alarm}): reset_alarm first")
    if ledger.stopped is not None:
        found.append("the kill switch is on: resume first")
    found += _missing_evidence(ledger, criteria)
    found += _excess(ledger.since, criteria, noise)
    if mode == "live" and criteria.uplift is not None:
        found += filter(None, [ledger.uplift.unmet(criteria.uplift)])
    return tuple(found)


def _missing_evidence(ledger: Ledger, criteria: Criteria) -> Iterator[str]:
    """Say which counts are too small, or, of refusals, too large."""
    since = ledger.since
    waiting, first = ledger.queues.behind()
    behind = f" ({waiting} more wait for the outcome of decision {', '.join(first)}: {REMEDY})" if waiting else ""
    if since.outcomes < criteria.outcomes:
        yield f"{since.outcomes} outcomes took effect in this mode, the least is {criteria.outcomes}{behind}"
    answered = since.outcomes / since.decisions if since.decisions else 0.0
    if answered < criteria.answered:
        yield (
            f"{answered:.2f} of the decisions have an outcome that took effect, the least share is "
            f"{criteria.answered:.2f}"
        )
    costs = since.costs / since.outcomes if since.outcomes else 0.0
    if costs < criteria.costs:
        yield f"{costs:.2f} of the outcomes have a cost, the least share is {criteria.costs:.2f}"
    if since.refusals > criteria.refusals:
        yield f"{since.refusals} refusals by the gate, the most is {criteria.refusals}"


def _excess(since: Counts, criteria: Criteria, noise: tuple[float, ...]) -> Iterator[str]:
    """Say which costs lie above their bounds by more than chance explains."""
    if not since.compared or not isfinite(criteria.excess):
        return
    for j, sigma in enumerate(noise):
        mean = since.excess[j] / since.compared
        # noise alone, but for what was drawn, which scatters around its mixture's mean as well
        scatter = (since.compared - since.drawn) * sigma**2 + max(since.drawn * sigma**2, since.square[j])
        limit = criteria.excess * sqrt(scatter) / since.compared
        if not mean <= limit:
            yield (
                f"cost {j} exceeded its bounds by {mean:.4g} on average over {since.compared} outcomes, the most is "
                f"{limit:.4g}"
            )
