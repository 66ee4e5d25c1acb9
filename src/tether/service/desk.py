"""The desk: decisions and outcomes, from the bytes of a request to the bytes of its answer.

These two are asked so often that the web framework's way to a handler would cost as much as the decision itself. So the
doorway hands them over here directly, and the framework only describes them.
"""

from tether.errors import InputError
from tether.service.answers import answer_of
from tether.service.hub import Hub
from tether.service.metrics import Metrics
from tether.service.models import DecisionRequest, OutcomeAnswer, OutcomeRequest

LONGEST_KEY = 400
"""Characters of an Idempotency-Key."""


class Desk:
    """Answers as (status, JSON); what cannot be answered is raised."""

    def __init__(self, hub: Hub, metrics: Metrics) -> None:
        self._hub, self._metrics = hub, metrics

    async def decide(self, body: bytes, key: str | None) -> tuple[int, bytes]:
        """A decision: 200; 503 with the safe action if the log cannot be written."""
        asked = DecisionRequest.model_validate_json(body)
        if key is not None and not 1 <= len(key) <= LONGEST_KEY:
            raise InputError(f"Idempotency-Key must have 1 to {LONGEST_KEY} characters, not {len(key)}.")
        decision, logged = await self._hub.decide(asked, key)
        self._metrics.decided(decision)
        return 200 if decision.logged else 503, answer_of(decision, logged)

    async def record(self, body: bytes, key: str | None) -> tuple[int, bytes]:
        """An outcome was recorded. The decision's id is its key: a header says nothing more."""
        recorded = await self._hub.record(OutcomeRequest.model_validate_json(body))
        self._metrics.recorded(recorded.repeated)
        answer = OutcomeAnswer(decision_id=recorded.decision_id, seq=recorded.seq, repeated=recorded.repeated)
        return 200, answer.model_dump_json().encode()
