"""What the learner wants to play, with its evidence; and, for a margin, less of it."""

import math
from dataclasses import dataclass, replace
from hashlib import sha256

from tether.live.mixed import diluted, drawn_row
from tether.problem.action_sets import feature_of
from tether.problem.problem import KnownState, Problem
from tether.records import Action, Array, CostBound, Decision, Mixture, StarAction

SHORTER = 1.0 - 1e-12
"""Lengths that are cut for the sake of a margin are cut by this much more: rounding goes toward a_0."""

CONTRADICTION = (
    "the declared cost of a_0 in this state contradicts the recorded costs: one of them, σ or B is wrong. Only a_0 is "
    "played here; when the mistake is found, start a new log, and hand the good data to warm_start"
)


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """What the learner wants to play, φ of it (d,), and its evidence; `mixture` is what the action was drawn from."""

    action: Action
    feature: Array
    evidence: tuple[CostBound, ...]
    is_baseline: bool
    reason: str
    detail: str
    mixture: Mixture | None


def proposal_of(decision: Decision) -> Proposal:
    """What the learner decided, as a proposal. A mixture is a_0 only if nothing else can be drawn."""
    mixture = decision.mixture
    safe = decision.is_baseline if mixture is None else mixture.baseline >= 1.0
    detail = decision.detail or (CONTRADICTION if decision.reason == "alarm" else "")
    return Proposal(decision.action, decision.feature, decision.evidence, safe, decision.reason, detail, mixture)


def coin_of(id: str) -> float:
    """The number in [0, 1) that draws a decision's action: a hash of its id, so that a replay draws the same."""
    return (int.from_bytes(sha256(id.encode(errors="replace")).digest()[:8]) >> 11) * 2.0**-53


def with_margin(
    proposal: Proposal, known: KnownState, step: int, problem: Problem, share: float, coin: float
) -> tuple[Proposal, str]:
    """A proposal that leaves `share` of the gap unused: a ray cut shorter, a mixture with more of a_0, else the reason.

    bound((1−α)f + αx) is affine in α where τ_s is known (docs/theory.md section 2), so the cut has a closed form. Where
    it is known up to e, a_0 costs at most τ_s + e, and c is linear: the chord from there is a bound.
    """
    divisible = proposal.mixture is not None or isinstance(proposal.action, StarAction)
    keep = 1.0
    for j, shown in enumerate(proposal.evidence):
        declared = float(known.baseline_cost[step, j]) + problem.baseline_cost_error[j]
        gap = shown.threshold - declared if math.isfinite(declared) else problem.gap_floor
        if not gap > 0.0:
            return proposal, f"the gap under τ of constraint {j} is unknown: give Problem baseline_cost or gap_floor"
        if shown.margin >= share * gap:
            continue
        if not (divisible and math.isfinite(declared)):
            return proposal, f"the margin {shown.margin:.4g} of constraint {j} is under {share:g} of the gap {gap:.4g}"
        keep = min(keep, (1.0 - share) * gap / (shown.bound - declared))
    if keep == 0.0:
        return proposal, f"to leave {share:g} of the gap unused leaves nothing to play but a_0"
    if keep == 1.0:
        return proposal, ""
    return _shortened(proposal, known, keep * SHORTER, share, coin, problem.baseline_cost_error), ""


def _shortened(
    proposal: Proposal, known: KnownState, kept: float, share: float, coin: float, errors: tuple[float, ...]
) -> Proposal:
    """The proposal with `kept` of its way from a_0(s), and its bounds; `errors` e (M,) are those of τ_s."""
    action, mixture = proposal.action, proposal.mixture
    if mixture is not None:
        mixture = diluted(known.actions, mixture, kept)
        action = known.actions.action(*drawn_row(known.actions, mixture.probabilities, coin))
    elif isinstance(action, StarAction):
        shorter = StarAction(action.ray, action.length * kept)
        kept, action = shorter.length / action.length, shorter
    starts = [shown.baseline_cost + error for shown, error in zip(proposal.evidence, errors, strict=True)]
    evidence = tuple(
        replace(shown, bound=start + (shown.bound - start) * kept)
        for shown, start in zip(proposal.evidence, starts, strict=True)
    )
    cut = f"cut to {kept:.4f} of its certified length, to leave {share:g} of the gap unused"
    feature = feature_of(known.actions, action)
    return replace(proposal, action=action, feature=feature, evidence=evidence, detail=cut, mixture=mixture)
