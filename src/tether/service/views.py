"""What the dashboard and other readers see: status, decisions and columns, all read from the log."""

import threading
import time
from dataclasses import replace
from typing import Any

from tether import __version__
from tether.errors import AlteredLog, StoreError
from tether.live.advisor import Advisor
from tether.live.decisions import Status, UnknownDecision
from tether.live.events import decision_key, outcome_key, withheld_key
from tether.service.config import ServiceConfig
from tether.service.journal import Journal, held, row_of
from tether.service.tokens import Caller


class View:
    """Answers for readers. It never touches what is decided; one lock, since several threads may ask."""

    def __init__(self, advisor: Advisor, config: ServiceConfig, *, has_tokens: bool) -> None:
        self._advisor, self._config, self._has_tokens = advisor, config, has_tokens
        self._lock = threading.Lock()
        self._journal: Journal | None = None

    def _followed(self) -> Journal:
        """The journal up to now; read on first use, so that a service that nobody watches pays nothing."""
        if self._journal is None:
            self._journal = Journal(self._advisor)
        self._journal.follow()
        return self._journal

    def _latest(self) -> tuple[Journal, str]:
        """The journal up to now; up to before, and why, while the log is out of reach. An altered log is refused."""
        try:
            journal = self._followed()
            self._advisor.sync()
        except AlteredLog:
            raise
        except StoreError as error:
            if self._journal is None:
                raise
            return self._journal, str(error)
        return journal, ""

    def standing(self) -> Status:
        """The advisor's status at the end of the log; as of before, and why, while the log is out of reach."""
        try:
            self._advisor.sync()
        except StoreError as error:
            return replace(self._advisor.status(), store_error=str(error))
        return self._advisor.status()

    def kinds(self, after: int) -> list[str]:
        """Kinds of the entries after `after`, of the first page of them."""
        return list(dict.fromkeys(entry.kind for entry in self._advisor.store.read(after, 200)))

    def status(self, caller: Caller) -> dict[str, Any]:
        """Where the service stands, for this caller."""
        with self._lock:
            journal, error = self._latest()
            status, ledger = self._advisor.status(), self._advisor.replica.ledger
            radius = journal.last_radius()
        problem, labels = self._advisor.problem, self._config.labels
        names = [*labels.constraints, *[None] * problem.constraints][: problem.constraints]
        stopped, tripped = ledger.stopped, ledger.tripped
        return {
            "you": {"name": caller.name, "roles": list(caller.roles)},
            "open": not self._has_tokens,
            "problem": labels.title or self._config.problem,
            "horizon": problem.horizon,
            "library_version": __version__,
            "time": time.time(),
            "mode": status.mode,
            "mode_since": journal.times.get("mode"),
            "stopped": None if stopped is None else {**stopped, "time": journal.times.get("stopped")},
            "alarm": None if not status.alarm else {
                "test": "" if tripped is None else tripped["test"],
                "message": status.alarm,
                "time": journal.times.get("tripped"),
            },
            "head": {"seq": status.seq, "hash": status.head},
            "data_version": status.data_version,
            "model_hash": status.model_hash,
            "counts": {
                "decisions": status.decisions,
                "baseline": status.baseline,
                "outcomes": status.outcomes,
                "costs": status.costs,
                "gate_refusals": status.refusals,
            },
            "constraints": [
                {"name": name, "threshold": tau} for name, tau in zip(names, problem.threshold, strict=True)
            ],
            "radius": radius,
            "bounds": self._advisor.replica.learner.agent.bounds,
            "certified_share": status.certified if status.decisions else None,
            "history": journal.history,
            "store_error": error or status.store_error,
            "units": {"reward": labels.reward_unit or None, "cost": labels.cost_units or None},
        }  # fmt: skip

    def decisions(self, limit: int, before: int | None, kind: str) -> dict[str, Any]:
        """A page of the last decisions, newest first."""
        with self._lock:
            rows, following = self._followed().page(limit, before, kind)
        return {"decisions": rows, "next": following}

    def decision(self, id: str) -> dict[str, Any]:
        """One decision, whole, wherever in the log it is."""
        entry = self._advisor.store.find(decision_key(id)) if 0 < len(id) <= 200 else None
        if entry is None:
            raise UnknownDecision(f"decision {id!r:.80} is not in this log.")
        outcome = self._advisor.store.find(outcome_key(id))
        body, row, withheld = entry.body, row_of(entry), self._advisor.store.find(withheld_key(id))
        del row["a_0"]
        if withheld is not None:
            row |= held(withheld)
        if outcome is not None:
            told = outcome.body
            row["outcome"] = {name: told[name] for name in ("reward", "cost", "applied")} | {"time": outcome.time}
        return {
            **row,
            **{name: body[name] for name in ("certificate", "proposal", "drawn", "key", "observed_at")},
            "entry": {"seq": entry.seq, "time": entry.time, "hash": entry.hash, "previous": entry.previous},
            "outcome_entry": None if outcome is None else {"seq": outcome.seq, "hash": outcome.hash},
        }

    def series(self, window: int, points: int) -> dict[str, Any]:
        """Columns for charts."""
        with self._lock:
            return self._followed().series(window, points)
