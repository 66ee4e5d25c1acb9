"""What the advisor hands back: decisions with their certificates, acknowledgments, and where it stands."""

from dataclasses import dataclass
from typing import Any, Self

from tether.errors import InputError
from tether.live.certificate import Certificate
from tether.live.states import StateCodec, decode_action, detached
from tether.records import Action, State


class AlreadyRecorded(InputError):
    """A decision has an outcome already, with other content. The first one stands; nothing was changed."""


class ImpossibleCost(InputError):
    """A cost that B and σ do not allow: a sensor failed, or they were declared too small. It is not learned from."""


class UnknownDecision(InputError):
    """No such decision is in the log: it was made elsewhere, or it could not be logged."""


@dataclass(frozen=True, slots=True)
class LiveDecision:
    """An action to play now, with the certificate that justifies it.

    `proposed` is what the learner wanted; in shadow mode, or when something objected, `action` is a_0 all the same,
    `reason` says what objected, and `proposal` is the certificate of what was proposed. `logged` is False if the log
    could not be written: then the action is a_0, `id` is empty and no outcome can be recorded. `certified` is the share
    of D(s) that could be played, None between two looks at it (one in eight decisions).
    """

    id: str
    action: Action
    certificate: Certificate
    mode: str
    proposed: Action
    proposal: Certificate | None
    is_baseline: bool
    reason: str
    detail: str
    step: int
    state: State
    episode: str | int | None
    certified: float | None
    seq: int
    logged: bool
    drawn: tuple[float, ...] | None = None

    @property
    def feature(self) -> tuple[float, ...]:
        """φ of the action (d,); the certificate's own is a mean, if the action was drawn from a mixture."""
        return self.certificate.feature if self.drawn is None else self.drawn

    @classmethod
    def from_body(cls, body: dict[str, Any], states: StateCodec, seq: int) -> Self:
        """A decision as the log holds it, at entry `seq`."""
        proposal = None if body["proposal"] is None else Certificate.from_json(body["proposal"])
        return cls.made_of(
            body, Certificate.from_json(body["certificate"]), proposal, states.decode(detached(body["state"])), seq
        )

    @classmethod
    def unlogged(
        cls, action: Action, certificate: Certificate, mode: str, state: State, step: int, episode: str | int | None
    ) -> Self:
        """a_0 without an entry in the log; the certificate says why."""
        return cls(
            id="",
            action=action,
            certificate=certificate,
            mode=mode,
            proposed=action,
            proposal=None,
            is_baseline=True,
            reason=certificate.reason,
            detail=certificate.detail,
            step=step,
            state=state,
            episode=episode,
            certified=None,
            seq=0,
            logged=False,
        )

    @classmethod
    def made_of(
        cls, body: dict[str, Any], certificate: Certificate, proposal: Certificate | None, state: State, seq: int
    ) -> Self:
        """A decision from its body and the certificates in it."""
        return cls(
            id=body["decision_id"],
            action=decode_action(body["played"]),
            certificate=certificate,
            mode=body["mode"],
            proposed=decode_action(body["proposed"]),
            proposal=proposal,
            is_baseline=body["is_baseline"],
            reason=body["reason"],
            detail=body["detail"],
            step=body["step"],
            state=state,
            episode=body["episode"],
            certified=body["certified"],
            seq=seq,
            logged=seq > 0,
            drawn=None if body["drawn"] is None else tuple(body["drawn"]),
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """An outcome is in the log, durably, at entry `seq`; `repeated` if it was there before."""

    decision_id: str
    seq: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class Status:
    """Where an advisor stands, as of entry `seq` of its log.

    `outcomes` counts what was learned from, `baseline` and `proposed` how many decisions played a_0 and how many wanted
    something else, `unsynced` entries that have arrived out of order and wait for others. `model_hash` is of step 0.
    """

    mode: str
    stopped: str
    alarm: str
    seq: int
    head: str
    data_version: int
    model_hash: str
    decisions: int
    baseline: int
    proposed: int
    refusals: int
    outcomes: int
    costs: int
    spent: tuple[float, ...]
    certified: float
    unsynced: int
    store_error: str


def check_names(key: object, episode: object) -> None:
    """Refuse a key or an episode that no log could hold."""
    if key is not None and not (isinstance(key, str) and 1 <= len(key) <= 400):
        raise InputError(f"key must be a string of 1 to 400 characters, or None, but is {key!r:.80}.")
    if episode is not None and (not isinstance(episode, str | int) or isinstance(episode, bool)):
        raise InputError(f"episode must be a string, an integer or None, but is {episode!r:.80}.")


def check_same(body: dict[str, Any], state: Any, step: int, episode: str | int | None) -> None:
    """Refuse a key that a logged decision got for another question."""
    if (body["state"], body["step"], body["episode"]) != (detached(state), step, episode):
        raise InputError(
            f"key {body['key']!r} was used for another request (state {body['state']!r:.80}, step {body['step']}, "
            f"episode {body['episode']!r}): use a new key for a new request."
        )
