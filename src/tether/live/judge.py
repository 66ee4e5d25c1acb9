"""The judgment: from the state after some prefix of the log, and a question, to the record of a decision.

A pure function: the audit calls it again, and must get the same record, bit for bit. Outcomes are checked here, too:
everything about them before anything is written, so that nothing in the log fails to apply.
"""

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from tether.agents.agent import check_step, checked_costs, checked_feature, checked_reward
from tether.agents.own_bound import proofs_alone
from tether.errors import InputError, TetherError
from tether.live.answers import ImpossibleCost
from tether.live.binding import sketch
from tether.live.canary import Canary, coin_of, plays_proposal
from tether.live.certificate import Certificate, Limit, baseline_limits
from tether.live.gate import Verdict
from tether.live.learner import Learner
from tether.live.ledger import Ledger
from tether.live.live_agent import reward_estimate
from tether.live.mixtures import Drawn, diluted, drawn_row, parts_of
from tether.live.policy import FAR
from tether.live.records import DecisionMade, GateRefused, OutcomeRecorded, Stopped
from tether.live.replica import Replica
from tether.live.states import StateCodec, as_logged, detached, retyped, said_of
from tether.problem.action_sets import ActionSet, feature_of
from tether.problem.problem import KnownState, Problem
from tether.records import Action, Array, Decision, Radius, StarAction, State

log = logging.getLogger("tether.live")

LOOKS_AT_FIRST, LOOK_EVERY = 256, 128
"""How much of D(s) is certified is looked at in the first decisions, and then in one of so many. The number is for
people and takes a part of a decision's time: after a while it is seen in less than one decision in a hundred."""

SKETCH_EVERY = 8
"""One decision in so many holds a sketch of its state, where the log does not begin with one of every state."""

SHORTER = 1.0 - 1e-12
"""Lengths that are cut for the sake of a margin are cut by this much more: rounding goes toward a_0."""

CONTRADICTION = (
    "the declared cost of a_0 in this state contradicts the recorded costs: one of them, σ or B is wrong. Only a_0 is "
    "played at this step, whatever later costs say; when the mistake is found, start a new log, and hand the good data "
    "to warm_start. reset_alarm releases it, until the data contradict again"
)
"""Why an alarm leaves a_0 alone; what the learner adds to it names the B that the data demand."""

Objection = tuple[str, str]
"""What stands against a proposal: a reason in a word, and in a sentence. Both are empty if nothing does."""


@dataclass(slots=True)
class Question:
    """What somebody asks: at `step` in `state`, observed at `observed_at`, now.

    `logged_state` is the state as JSON; `original` is it as the caller gave it, for errors. `under_way` counts
    decisions other than a_0 that were made before and are not in the log yet: as of when it is judged.
    """

    id: str
    key: str | None
    episode: str | int | None
    step: int
    state: State
    logged_state: Any
    observed_at: float | None
    now: float
    original: State = None
    caller: str | None = None
    under_way: int = 0

    @classmethod
    def of(cls, made: DecisionMade, states: StateCodec) -> "Question":
        """What was asked, from the record of the decision."""
        state, now = states.decode(detached(made.state)), math.nan if made.decided_at is None else made.decided_at
        asked = cls(made.decision_id, made.key, made.episode, made.step, state, made.state, made.observed_at, now)
        return replace(asked, caller=made.caller, under_way=made.under_way)


def judge(replica: Replica, question: Question) -> tuple[DecisionMade, GateRefused | None]:
    """What is played, and why; and the gate's refusal, if there was one. Changes nothing."""
    learner, ledger = replica.learner, replica.ledger
    known = looked_up(learner.problem, question.step, question.state, learner.look_up)
    proposal: Decision | None = None
    verdict: Verdict | None = None
    try:
        proposal, verdict, objection = _examined(learner, ledger, known, question)
    except Exception as error:  # whatever failed in the learner or in the gate, a_0 needs nothing from them
        log.warning("decision %s failed, a_0 is played", question.id, exc_info=error)
        objection = ("failed", said_of(error))
    objection = _first_objection(replica, question, proposal, objection)
    canary: Canary | None = None
    if proposal is not None and not proposal.is_baseline and not objection[0]:
        canary, objection = _drawn_arm(replica, question, known, proposal)
    refused = None
    if proposal is not None and verdict is not None and verdict.why:
        refused = _refusal(question.id, proposal, verdict)
    return _record(replica, question, known, proposal, verdict, objection, canary), refused


def safe_decision(replica: Replica, question: Question, reason: str, detail: str) -> DecisionMade:
    """a_0 for a reason that lies outside the learner. It has no id, and is not for the log."""
    known = looked_up(replica.learner.problem, question.step, question.state)
    return _record(replica, replace(question, id="", key=None), known, None, None, (reason, detail))


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
        log.info("a state that this problem does not know", exc_info=error)
        raise InputError(
            f"state {state!r:.120} is not one that this problem knows: {said_of(error)}. "
            "No action can be named for it, not even a_0."
        ) from error
    if not math.isnan(known.final_reward):
        raise InputError(f"the trajectory has ended in state {state!r:.120}: there is nothing to decide.")
    return known


def _examined(
    learner: Learner, ledger: Ledger, known: KnownState, question: Question
) -> tuple[Decision, Verdict | None, Objection]:
    """The learner's proposal, cut for its margin in guarded mode, the gate's verdict, and what speaks against it."""
    coin = coin_of(question.id) if learner.agent.mixes else 0.0
    with learner.at(question.now):
        proposal, objection = proposal_of(learner.propose(question.step, question.state, known, coin)), ("", "")
        if proposal.is_baseline:
            return proposal, None, objection
        if ledger.mode == "guarded":
            proposal, short = with_margin(proposal, known, learner.problem, ledger.guards.margin_share, coin)
            objection = ("margin", short) if short else objection
        drawn = None
        if proposal.mixture is not None:
            row = drawn_row(known.actions, proposal.mixture.probabilities, coin)[0]
            drawn = Drawn(proposal.mixture, coin, proofs_alone(learner.agent, question.step, known, row))
        verdict = learner.gate.check(question.step, known, proposal.action, proposal.feature, proposal.evidence, drawn)
    return proposal, verdict, ("gate-refused", verdict.why) if verdict.why else objection


def proposal_of(decision: Decision) -> Decision:
    """What the learner decided, as a proposal: a mixture is a_0 only if nothing else can be drawn, and a contradiction
    is explained."""
    mixture, detail = decision.mixture, decision.detail
    if mixture is None and decision.reason != "alarm":
        return decision
    safe = decision.is_baseline if mixture is None else mixture.baseline >= 1.0
    if decision.reason == "alarm":
        detail = f"{CONTRADICTION}. {detail}" if detail else CONTRADICTION
    return replace(decision, is_baseline=safe, detail=detail)


def with_margin(
    proposal: Decision, known: KnownState, problem: Problem, share: float, coin: float
) -> tuple[Decision, str]:
    """A proposal that leaves `share` of the gap unused: a ray cut shorter, a mixture with more of a_0, else the reason.

    bound((1−α)f + αx) is affine in α where τ_s is known (docs/theory.md section 2), so the cut has a closed form. Where
    it is known up to e, a_0 costs at most τ_s + e, and c is linear: the chord from there is a bound. With a misfit ε
    the chord of a ray begins at τ_s + e + 2ε (section 12); a mixture plays a_0 itself.
    """
    misfits = 0.0 if proposal.mixture is not None else 2.0
    beyond = np.array(problem.baseline_cost_error) + misfits * problem.point_error + problem.reserve
    starts = (known.baseline_cost[proposal.step] + beyond).tolist()
    divisible = proposal.mixture is not None or isinstance(proposal.action, StarAction)
    keep = 1.0
    for j, (shown, declared) in enumerate(zip(proposal.evidence, starts, strict=True)):
        gap = shown.threshold - declared if math.isfinite(declared) else problem.constraints[j].known.gap_floor
        if not gap > 0.0:
            return (
                proposal,
                f"the gap under τ of constraint {j} is unknown: declare its safe_cost or SafeCost(None, gap_floor=…)",
            )
        if shown.margin >= share * gap:
            continue
        if not (divisible and math.isfinite(declared)):
            return proposal, f"the margin {shown.margin:.4g} of constraint {j} is under {share:g} of the gap {gap:.4g}"
        keep = min(keep, (1.0 - share) * gap / (shown.bound - declared))
    if keep == 0.0:
        return proposal, f"to leave {share:g} of the gap unused leaves nothing to play but a_0"
    if keep == 1.0:
        return proposal, ""
    kept, action, mixture = keep * SHORTER, proposal.action, proposal.mixture
    if mixture is not None:
        mixture = diluted(known.actions, mixture, kept)
        action = known.actions.action(*drawn_row(known.actions, mixture.probabilities, coin))
    elif isinstance(action, StarAction):
        shorter = StarAction(action.ray, action.length * kept)
        kept, action = shorter.length / action.length, shorter
    evidence = []
    for shown, start in zip(proposal.evidence, starts, strict=True):
        by = None if shown.multipliers is None else shown.multipliers.scaled_back(kept)
        evidence.append(replace(shown, bound=start + (shown.bound - start) * kept, multipliers=by))
    detail = f"cut to {kept:.4f} of its certified length, to leave {share:g} of the gap unused"
    feature, bounds = feature_of(known.actions, action), tuple(evidence)
    return replace(proposal, action=action, feature=feature, evidence=bounds, detail=detail, mixture=mixture), ""


def halt(replica: Replica, latch: Stopped | None = None) -> Objection:
    """What forbids everything but a_0, whatever was proposed; empty if nothing does. `latch` is a stop that was ordered
    and is not in the log yet."""
    stopped, alarm = latch or replica.ledger.stopped, replica.alarm
    if stopped is not None:
        return "stopped", f"by {stopped.by}: {stopped.why}"
    return ("tripped", alarm) if alarm else ("", "")


def _first_objection(replica: Replica, question: Question, proposal: Decision | None, found: Objection) -> Objection:
    """The first thing that stands against the proposal; `found` is what the margin or the gate said of it."""
    ledger = replica.ledger
    guards, halted = ledger.guards, halt(replica)
    if halted[0]:
        return halted
    if proposal is None:
        return found
    late = guards.stale(question.observed_at, question.now, ledger.latest)
    if late:
        return "stale-input", late
    if proposal.is_baseline or found[0] == "gate-refused":
        return found
    if ledger.mode == "shadow":
        return "shadow", "shadow mode: decided and logged, a_0 acts"
    if found[0]:
        return found
    return ledger.too_many(tuple(shown.bound for shown in proposal.evidence), question.under_way)


def _drawn_arm(
    replica: Replica, question: Question, known: KnownState, proposal: Decision
) -> tuple[Canary | None, Objection]:
    """In guarded mode, the draw between a proposal that nothing objects to and a_0; for a_0 an objection."""
    ledger, share = replica.ledger, replica.ledger.guards.canary
    if ledger.mode != "guarded" or share >= 1.0:
        return None, ("", "")
    expected = (0.0, 0.0)
    with suppress(np.linalg.LinAlgError):  # any guess will do, and none is worth a failure
        theta = reward_estimate(replica.learner.agent, question.step)
        guess = float(theta @ proposal.mean_feature), float(theta @ known.actions.phi_0)
        expected = guess if all(map(math.isfinite, guess)) else expected
    canary = Canary(share, expected)
    if plays_proposal(question.id, share):
        return canary, ("", "")
    return canary, (
        "canary",
        f"drawn for the comparison with a_0, which is played in a share {1.0 - share:g} of the decisions",
    )


def _record(
    replica: Replica,
    question: Question,
    known: KnownState,
    proposal: Decision | None,
    verdict: Verdict | None,
    objection: Objection,
    canary: Canary | None = None,
) -> DecisionMade:
    """The record: the certificate of what is played, and that of what was proposed if it is not the same."""
    learner, ledger, actions = replica.learner, replica.ledger, known.actions
    reason, detail = objection if objection[0] or proposal is None else (proposal.reason, proposal.detail)
    certify = partial(
        Certificate,
        reason=reason,
        detail=detail,
        data_version=learner.version,
        seq=replica.head.seq,
        head=replica.head.hash,
        model_hash=learner.model_hash(question.step),
    )
    offered: Certificate | None = None
    if proposal is not None and verdict is not None:  # with the gate's bounds
        alone = verdict.own or (None,) * len(verdict.bounds)
        limits = tuple(map(Limit.of, proposal.evidence, verdict.bounds, alone))
        mixed = None if proposal.mixture is None else parts_of(actions, proposal.mixture)
        feature = tuple(proposal.mean_feature.tolist())
        offered = certify(feature, limits, False, mixture=mixed)
    phi_0 = tuple(actions.phi_0.tolist())
    if proposal is not None and offered is not None and not objection[0]:
        certificate, played, offered = offered, proposal.action, None
    else:  # a_0 needs nothing from the learner but a reason
        costs = known.baseline_cost[question.step]
        none = Radius(math.inf, "none")
        radii = (none,) * len(costs) if proposal is None else tuple(shown.radius for shown in proposal.evidence)
        limits = baseline_limits(learner.problem, costs, radii)
        certificate, played = certify(phi_0, limits, True), actions.action(-1, 0.0)
    drawn = None if proposal is None or certificate.mixture is None else tuple(proposal.feature.tolist())
    # picked by the id, as many decisions that are made at once see the same ledger; what is not logged has none
    number, before = crc32(question.id.encode(errors="replace")), ledger.ever.decisions
    looks = question.id and (before < LOOKS_AT_FIRST or number % LOOK_EVERY == 0)
    sketches = question.id and not learner.is_listed and (before == 0 or number % SKETCH_EVERY == 0)
    return DecisionMade.trusted(
        {
            "decision_id": question.id,
            "key": question.key,
            "episode": question.episode,
            "step": question.step,
            "state": question.logged_state,
            "mode": ledger.mode,
            "proposed": played if proposal is None else proposal.action,
            "played": played,
            "is_baseline": certificate.is_baseline,
            "reason": certificate.reason,
            "detail": certificate.detail,
            "certificate": certificate,
            "observed_at": question.observed_at,
            "decided_at": question.now if math.isfinite(question.now) else None,
            "proposal": offered,
            "certified": _certified(learner, question, known) if looks else None,
            "drawn": drawn,
            "safe_feature": phi_0 if learner.remembers else None,
            "canary": canary,
            "sketch": sketch(known) if sketches else None,
            "caller": question.caller,
            "under_way": question.under_way,
        }
    )


def _certified(learner: Learner, question: Question, known: KnownState) -> float | None:
    """How much of D(s) is certified, or None. A number for people: no decision may fail for it."""
    try:
        share = learner.gate.certified(question.step, known)
    except Exception:
        return None
    return share if math.isfinite(share) else None


def _refusal(id: str, proposal: Decision, verdict: Verdict) -> GateRefused:
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


# Outcomes

LARGEST = 1e100
"""Costs and rewards beyond this are refused at the door: their squares overflow, and what is logged must apply."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What somebody says was seen after a decision; `applied` is what was done, if that was not its action."""

    decision_id: str
    reward: Any
    cost: Any
    next_state: State = None
    applied: Any = None


def recorded(learner: Learner, made: DecisionMade, seen: Outcome) -> OutcomeRecorded:
    """The record of an outcome of this decision, or an InputError that names what cannot be used."""
    problem, states = learner.problem, learner.states
    costs, reward = checked_costs(seen.cost, problem, needed=False), checked_reward(seen.reward)
    if abs(reward) > LARGEST:
        raise InputError(f"reward {seen.reward!r:.80} is beyond ±{LARGEST:g}, whose squares overflow: a broken sensor?")
    feature, limits = made.feature, made.certificate.limits
    done: Action | None = made.played
    bound = tuple(limit.bound for limit in limits) if all(math.isfinite(limit.bound) for limit in limits) else None
    if seen.applied is not None:
        known = looked_up(problem, made.step, states.decode(made.state))
        if hasattr(seen.applied, "__len__"):
            feature, done, bound = tuple(checked_feature(seen.applied, problem).tolist()), None, None
        else:
            done = action = checked_action(known.actions, seen.applied)
            if action != made.played:
                feature, bound = tuple(feature_of(known.actions, action).tolist()), None
    if costs is not None:
        _check_range(problem, made.decision_id, feature, costs)
    safe = [limit.baseline_cost for limit in limits if limit.baseline_cost is not None]
    return OutcomeRecorded.trusted(
        {
            "decision_id": made.decision_id,
            "step": made.step,
            "state": made.state,
            "feature": feature,
            "applied": done,
            "reward": reward,
            "cost": None if costs is None else tuple(costs.tolist()),
            "next_state": checked_next(problem, states, seen.next_state, is_lean=learner.agent.visited is not None),
            "bound": bound,
            "drawn": bound is not None and made.drawn is not None,
            "rests_on": made.certificate.seq,
            "safe_feature": made.safe_feature,
            "safe_cost": tuple(safe) if made.safe_feature is not None and len(safe) == len(limits) else None,
        }
    )


def checked_action(actions: ActionSet, action: Any) -> Action:
    """An action that is really in D(s), refused by name otherwise."""
    count = len(actions.endpoints)
    if isinstance(action, StarAction):
        if not (actions.is_star and _is_index(action.ray, -1, count) and _is_length(action.length)):
            kind = f"{count} rays, lengths 0 to 1" if actions.is_star else f"{count} single actions, no rays"
            raise InputError(f"action {action!r} is not in D(s): this state has {kind}.")
        return StarAction(int(action.ray), float(action.length))
    if actions.is_star or not _is_index(action, 0, count):
        kind = "rays: give a StarAction(ray, length)" if actions.is_star else f"actions 0 to {count - 1}"
        raise InputError(f"action {action!r} is not in D(s): this state has {kind}.")
    return int(action)


def _is_index(value: Any, least: int, count: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value < count)


def _is_length(value: Any) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and bool(0.0 <= value <= 1.0)


def cost_limit(problem: Problem, feature: Any) -> Array:
    """B‖φ‖ + ε + 10σ: costs (M,) of an action with φ (d,) stay within ± this, or B or σ was declared too small."""
    around = problem.sample_error + FAR * np.array(problem.noise)
    return np.array(problem.gamma_norm) * float(np.linalg.norm(feature)) + around


def _check_range(problem: Problem, id: str, feature: Any, costs: Array) -> None:
    limit = np.minimum(cost_limit(problem, feature), LARGEST)
    if not (np.abs(costs) <= limit).all():
        raise ImpossibleCost(
            f"cost {costs.tolist()} of decision {id!r} is beyond ±{limit.tolist()} (B‖φ‖ + {FAR:g}σ): with ‖γ*‖ <= B = "
            f"{problem.gamma_norm} and noise σ = {problem.noise}, Assumptions 3 and 4, no cost lies there. If a sensor "
            "failed, record cost=None, and reset_alarm. If such costs do happen, σ or B was declared too small, and "
            "nothing certified so far holds: declare larger ones (noise, gamma_norm) and start a new log."
        )


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
            f"next_state {state!r:.120} is not one that this problem knows: {said_of(error)}.{retyped(state, again)}"
        ) from error
    return logged
