"""Between the two halves of a call: what goes to the log, and what comes back."""

from dataclasses import dataclass

from tether.errors import InputError
from tether.live.events import decision_key, request_key
from tether.live.judge import Judgment, Request
from tether.live.store import Appended, Draft, Entry


@dataclass(frozen=True, slots=True)
class Pending:
    """Drafts on their way to the log: append them in one batch, then call `finish_decide` or `finish_record`.

    `refused` is what the caller is told once they are there: an outcome was not taken, and the log must say so first.
    """

    drafts: tuple[Draft, ...]
    request: Request | None = None
    judgment: Judgment | None = None
    refused: InputError | None = None


def drafts_of(judgment: Judgment, request: Request) -> tuple[Draft, ...]:
    """The decision for the log, after the gate's refusal if there was one."""
    keys = () if request.key is None else (request_key(request.key),)
    decision = Draft("decision", judgment.body, (*keys, decision_key(request.id)))
    return (decision,) if judgment.refused is None else (judgment.refused.draft(), decision)


def fresh_entries(drafts: tuple[Draft, ...], appended: list[Appended]) -> list[Entry]:
    """The entries that were written now. Their bodies are the drafts', which spares reading them back from JSON."""
    entries = []
    for draft, (entry, fresh) in zip(drafts, appended, strict=True):
        if fresh:
            entry.__dict__.setdefault("body", draft.body)
            entries.append(entry)
    return entries
