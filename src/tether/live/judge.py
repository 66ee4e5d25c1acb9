"""What the learner wants to play, with its evidence; and, for a margin, less of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from tether.agents.agent import check_step, checked_costs, checked_feature, checked_reward
from tether.errors import InputError, TetherError
from tether.live.gate import Drawn, Verdict, diluted, drawn_row, parts_of
from tether.live.log.store import Head
from tether.live.policy import over_budget, over_rate, stale
from tether.live.records import (
    Certificate,
    GateRefused,
    ImpossibleCost,
    Limit,
    StateCodec,
    as_logged,
    baseline_evidence,
    checked_action,
    detached,
    encode_action,
    retyped,
)
from tether.live.replica import Learner, Ledger, Replica
from tether.problem.action_sets import feature_of
from tether.problem.problem import KnownState, Problem
from tether.records import Action, Array, CostBound, Decision, Mixture, Radius, StarAction, State

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


# The judgment: from the state after some prefix of the log, and a request, to what is played. A pure function.

LOOK_EVERY = 8
"""One decision in so many looks at how much of D(s) is certified: for people, and a tenth of a decision's time."""


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks: at `step` in `state`, observed at `observed_at`, now. `logged_state` is the state as JSON."""

    id: str
    key: str | None
    episode: str | int | None
    step: int
    state: State
    logged_state: Any
    observed_at: float | None
    now: float


class Judgment(NamedTuple):
    """The body of a decision for the log, its certificates, and the gate's refusal, if there was one.

    `proposal` is the certificate of what was proposed, where that is not what is played.
    """

    body: dict[str, Any]
    certificate: Certificate
    proposal: Certificate | None
    refused: GateRefused | None


def looked_up(
    problem: Problem, step: int, state: State, look_up: Callable[[State], KnownState] | None = None
) -> KnownState:
    """D(s), a_0(s) and τ_h(s). A state that the problem does not know, or where nothing is played, is an InputError."""
    check_step(step, problem.horizon)
    try:
        known = (look_up or problem.look_up)(state)
    except TetherError:
        raise
    except Exception as error:  # the problem's functions are the caller's: whatever they raise, the state is unusable
        raise InputError(
            f"state {state!r:.120} is not one that this problem knows: {type(error).__name__}: {error}. "
            "No action can be named for it, not even a_0."
        ) from error
    if not math.isnan(known.final_reward):
        raise InputError(f"the trajectory has ended in state {state!r:.120}: there is nothing to decide.")
    return known


def judge(replica: Replica, request: Request) -> Judgment:
    """What is played, and why. Changes nothing; the same arguments give the same body, bit for bit."""
    learner, ledger, head = replica.learner, replica.ledger, replica.head
    known = looked_up(learner.problem, request.step, request.state, learner.look_up)
    proposal: Proposal | None = None
    verdict: Verdict | None = None
    try:
        proposal, verdict, objection = _examined(learner, ledger, known, request)
    except Exception as error:  # whatever failed in the learner or in the gate, a_0 needs nothing from them
        objection = ("failed", f"{type(error).__name__}: {error}")
    objection = _first_objection(learner, ledger, request, proposal, objection)
    return _judgment(learner, ledger, head, request, known, proposal, verdict, objection)


def _examined(
    learner: Learner, ledger: Ledger, known: KnownState, request: Request
) -> tuple[Proposal, Verdict | None, tuple[str, str]]:
    """The learner's proposal, cut for its margin in guarded mode, the gate's verdict, and what speaks against it."""
    coin = coin_of(request.id) if learner.agent.mixes else 0.0
    proposal, objection = proposal_of(learner.propose(request.step, request.state, known, coin)), ("", "")
    if proposal.is_baseline:
        return proposal, None, objection
    if ledger.mode == "guarded":
        proposal, short = with_margin(proposal, known, request.step, learner.problem, ledger.guards.margin_share, coin)
        objection = ("margin", short) if short else objection
    drawn = None if proposal.mixture is None else Drawn(proposal.mixture, coin)
    verdict = learner.gate.check(request.step, known, proposal.action, proposal.feature, proposal.evidence, drawn)
    return proposal, verdict, ("gate-refused", verdict.why) if verdict.why else objection


def halt(learner: Learner, ledger: Ledger) -> tuple[str, str]:
    """(reason, detail) of what forbids everything but a_0, whatever was proposed; empty if nothing does."""
    if ledger.stopped is not None:
        return "stopped", f"by {ledger.stopped['by']}: {ledger.stopped['why']}"
    if learner.alarm is not None or ledger.tripped is not None:
        return "tripped", str(learner.alarm or (ledger.tripped or {})["message"])
    return "", ""


def _first_objection(
    learner: Learner, ledger: Ledger, request: Request, proposal: Proposal | None, found: tuple[str, str]
) -> tuple[str, str]:
    """(reason, detail) of the first thing that stands against the proposal; empty if nothing does."""
    halted = halt(learner, ledger)
    if halted[0]:
        return halted
    late = stale(ledger.guards, request.observed_at, request.now, ledger.latest)
    if proposal is None:
        return found
    if late:
        return "stale-input", late
    if proposal.is_baseline or found[0] == "gate-refused":
        return found
    if ledger.mode == "shadow":
        return "shadow", "shadow mode: decided and logged, a_0 acts"
    if found[0]:
        return found
    rate = over_rate(ledger.guards, ledger.mode, ledger.others())
    if rate:
        return "rate", rate
    bounds = tuple(shown.bound for shown in proposal.evidence)
    budget = over_budget(ledger.guards, ledger.in_window(), bounds)
    return ("budget", budget) if budget else ("", "")


def _judgment(
    learner: Learner,
    ledger: Ledger,
    head: Head,
    request: Request,
    known: KnownState,
    proposal: Proposal | None,
    verdict: Verdict | None,
    objection: tuple[str, str],
) -> Judgment:
    """The body that the log gets: certificates of what is played, and of what was proposed if that is not the same."""
    rests_on = (learner.version, *head, learner.model_hash(request.step))
    offered = None if proposal is None or verdict is None else _offered(known, proposal, verdict, objection, rests_on)
    if offered is not None and proposal is not None and not objection[0]:
        certificate, played = offered, proposal.action
    else:
        certificate = _of_the_safe_action(learner.problem, known, request.step, proposal, objection, rests_on)
        played = known.actions.action(-1, 0.0)
    refused = None
    if proposal is not None and verdict is not None and verdict.why:
        refused = _refusal(request.id, proposal, verdict)
    offered = None if offered is certificate else offered
    body = {
        "decision_id": request.id,
        "key": request.key,
        "episode": request.episode,
        "step": request.step,
        "state": request.logged_state,
        "mode": ledger.mode,
        "proposed": encode_action(played if proposal is None else proposal.action),
        "played": encode_action(played),
        "is_baseline": certificate.is_baseline,
        "reason": certificate.reason,
        "detail": certificate.detail,
        "certificate": certificate.to_json(),
        "observed_at": request.observed_at,
        "decided_at": request.now if math.isfinite(request.now) else None,
        "proposal": None if offered is None else offered.to_json(),
        "certified": _certified(learner, ledger, request, known),
        "drawn": None if proposal is None or certificate.mixture is None else proposal.feature.tolist(),
        "safe_feature": known.actions.phi_0.tolist() if learner.remembers else None,
    }
    return Judgment(body, certificate, offered, refused)


def _certified(learner: Learner, ledger: Ledger, request: Request, known: KnownState) -> float | None:
    """How much of D(s) is certified, or None. The first decision looks, then one in `LOOK_EVERY`, picked by its id, as
    many decisions that are made at once see the same ledger. A number for people: no decision may fail for it."""
    if ledger.ever.decisions and crc32(request.id.encode(errors="replace")) % LOOK_EVERY:
        return None
    try:
        share = learner.gate.certified(request.step, known)
    except Exception:
        return None
    return share if math.isfinite(share) else None


RestsOn = tuple[int, int, str, str]
"""What a certificate rests on: data version, seq and hash of the log, model hash."""


def _offered(
    known: KnownState, proposal: Proposal, verdict: Verdict, objection: tuple[str, str], rests_on: RestsOn
) -> Certificate:
    """The certificate of what was proposed, with the gate's bounds."""
    limits = tuple(Limit.of(shown, own) for shown, own in zip(proposal.evidence, verdict.bounds, strict=True))
    reason, detail = objection if objection[0] else (proposal.reason, proposal.detail)
    mixture = proposal.mixture
    if mixture is None:
        return Certificate(tuple(proposal.feature.tolist()), limits, False, reason, detail, *rests_on)
    feature = tuple(mixture.mean_feature.tolist())
    return Certificate(feature, limits, False, reason, detail, *rests_on, mixture=parts_of(known.actions, mixture))


def _of_the_safe_action(
    problem: Problem,
    known: KnownState,
    step: int,
    proposal: Proposal | None,
    objection: tuple[str, str],
    rests_on: RestsOn,
) -> Certificate:
    """The certificate of a_0(s), which needs nothing from the learner but a reason."""
    radii = (Radius(math.inf, "none"),) * problem.constraints
    reason, detail = objection
    if proposal is not None:
        radii = tuple(shown.radius for shown in proposal.evidence)
        reason, detail = objection if reason else (proposal.reason, proposal.detail)
    evidence = baseline_evidence(problem, known.baseline_cost[step], radii)
    limits = tuple(Limit.of(shown) for shown in evidence)
    return Certificate(tuple(known.actions.phi_0.tolist()), limits, True, reason, detail, *rests_on)


def _refusal(id: str, proposal: Proposal, verdict: Verdict) -> GateRefused:
    """Both sets of numbers, as text: some of them may not be finite."""
    shown = proposal.evidence
    theirs: dict[str, Any] = {
        "bounds": [str(each.bound) for each in shown],
        "radii": [str(each.radius.value) for each in shown],
        "facts": [each.facts for each in shown],
    }
    mine: dict[str, Any] = {
        "bounds": [str(own) for own in verdict.bounds],
        "rounding": [str(x) for x in verdict.doubts],
    }
    return GateRefused(decision_id=id, mine=mine, theirs=theirs, why=verdict.why)


# Outcomes: everything about them is checked before anything is written, so that nothing in the log fails to apply.

LARGEST = 1e100
"""Costs and rewards beyond this are refused at the door: their squares overflow, and what is logged must apply."""

FAR = 10.0
"""A cost further than this many σ outside ±B‖φ‖ contradicts the declared B or σ: a sensor failed, or another unit."""


def outcome_body(
    learner: Learner, decision: dict[str, Any], reward: Any, cost: Any, next_state: State, applied: Any
) -> dict[str, Any]:
    """The body of an outcome of this logged decision, or an InputError that names what cannot be used."""
    problem, states = learner.problem, learner.states
    costs = checked_costs(cost, problem, needed=False)
    if abs(checked_reward(reward)) > LARGEST:
        raise InputError(f"reward {reward!r:.80} is beyond ±{LARGEST:g}, whose squares overflow: a broken sensor?")
    feature = decision["drawn"] or decision["certificate"]["feature"]
    done, bound = decision["played"], bounds_of(decision)
    if applied is not None:
        known = looked_up(problem, decision["step"], states.decode(decision["state"]))
        if hasattr(applied, "__len__"):
            feature, done, bound = checked_feature(applied, problem).tolist(), None, None
        else:
            action = checked_action(known.actions, applied)
            done = encode_action(action)
            if done != decision["played"]:
                feature, bound = feature_of(known.actions, action).tolist(), None
    if costs is not None:
        _check_range(problem, decision["decision_id"], feature, costs)
    return {
        "decision_id": decision["decision_id"],
        "step": decision["step"],
        "state": decision["state"],
        "feature": feature,
        "applied": done,
        "reward": checked_reward(reward),
        "cost": None if costs is None else costs.tolist(),
        "next_state": checked_next(problem, states, next_state, is_lean=learner.agent.visited is not None),
        "bound": bound,
        "drawn": bound is not None and decision["drawn"] is not None,
        "rests_on": decision["certificate"]["seq"],
        "safe_feature": decision["safe_feature"],
        "safe_cost": safe_cost_of(decision),
    }


def cost_limit(problem: Problem, feature: Any) -> Array:
    """B‖φ‖ + 10σ: costs (M,) of an action with φ (d,) stay within ± this, or B or σ was declared too small."""
    return np.array(problem.gamma_norm) * float(np.linalg.norm(feature)) + FAR * np.array(problem.noise)


def _check_range(problem: Problem, id: str, feature: Any, costs: Array) -> None:
    limit = np.minimum(cost_limit(problem, feature), LARGEST)
    if not (np.abs(costs) <= limit).all():
        raise ImpossibleCost(
            f"cost {costs.tolist()} of decision {id!r} is beyond ±{limit.tolist()} (B‖φ‖ + {FAR:g}σ): with ‖γ*‖ <= B = "
            f"{problem.gamma_norm} and noise σ = {problem.noise}, Assumptions 3 and 4, no cost lies there. If a sensor "
            "failed, record cost=None, and reset_alarm. If such costs do happen, σ or B was declared too small, and "
            "nothing certified so far holds: declare larger ones (noise, gamma_norm) and start a new log."
        )


def bounds_of(decision: dict[str, Any]) -> list[float] | None:
    """The bounds (M,) of a logged decision's certificate, None if one is not a number."""
    bounds = [limit["bound"] for limit in decision["certificate"]["limits"]]
    return None if any(isinstance(bound, str) for bound in bounds) else bounds


def safe_cost_of(decision: dict[str, Any]) -> list[float] | None:
    """τ_s (M,) as it was declared when the decision was made; None if it is unknown, or not to be remembered."""
    costs = [limit["baseline_cost"] for limit in decision["certificate"]["limits"]]
    return None if decision["safe_feature"] is None or None in costs else costs


def checked_next(problem: Problem, states: StateCodec, state: State, *, is_lean: bool) -> Any:
    """A next state as the log will hold it; refused now if the learner could not use what it will read there."""
    if problem.horizon == 1:  # nothing follows: it is logged, and never read
        return None if state is None else detached(states.encode(state))
    logged, again = as_logged(states, state)
    if again is None:
        return logged
    try:
        problem.key_of(again)
        problem.look_up(problem.kept(again) if is_lean else again)
    except Exception as error:  # the problem's functions are the caller's
        raise InputError(
            f"next_state {state!r:.120} is not one that this problem knows: {error}.{retyped(state, again)}"
        ) from error
    return logged
