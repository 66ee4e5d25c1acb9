"""The judgment: from the state after some prefix of the log, and a request, to what is played. A pure function.

The order of objections is fixed, so that a replay gives the same reason: kill switch, alarm, failure, stale input,
gate, and then, for what the gate let through, shadow mode, margin, rate and budget.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

from tether.agents.checks import check_step
from tether.errors import InputError, TetherError
from tether.live.certificate import Certificate, Limit, baseline_evidence
from tether.live.events import GateRefused
from tether.live.gate import Verdict
from tether.live.guards import over_budget, over_rate, stale
from tether.live.learner import Learner
from tether.live.ledger import Ledger
from tether.live.mixed import Drawn, parts_of
from tether.live.proposal import Proposal, coin_of, proposal_of, with_margin
from tether.live.states import encode_action
from tether.live.store import Head
from tether.problem.problem import KnownState, Problem
from tether.records import Radius, State

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


def judge(learner: Learner, ledger: Ledger, head: Head, request: Request) -> Judgment:
    """What is played, and why. Changes nothing; the same arguments give the same body, bit for bit."""
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
