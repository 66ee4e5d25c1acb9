"""A small typed client: decide, record, and what an operator needs. Safe to retry: every request is made repeatable."""

import time
from types import TracebackType
from typing import Any, Self

import httpx
from pydantic import ValidationError

from tether.errors import TetherError
from tether.live.ids import new_id
from tether.records import Action, StarAction
from tether.service.models import DecisionAnswer, OutcomeAnswer, StarActionModel

TRANSIENT = (502, 503, 504)


class ServiceError(TetherError):
    """The service refused, or could not be reached. `status` is 0 if there was no answer at all."""

    def __init__(self, message: str, status: int = 0, unmet: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status, self.unmet = status, unmet


class Client:
    """Talks to one service.

    `decide` sends an idempotency key of its own, so that a repeat after a lost answer gets the same decision; an
    outcome is counted once by its decision's id. `retries` is how often a request without an answer, or one that met a
    log that could not be used just then, is sent again.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 15.0, retries: int = 3, pause: float = 0.2
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._retries, self._pause = retries, pause

    def decide(
        self,
        state: Any,
        step: int = 0,
        episode: str | int | None = None,
        *,
        observed_at: float | None = None,
        key: str | None = None,
    ) -> DecisionAnswer:
        """An action with its certificate. If the log cannot be written, the safe action with `logged` False."""
        body = {"state": state, "step": step, "episode": episode, "observed_at": observed_at}
        headers = {"Idempotency-Key": key or new_id()}
        answer = self._send("POST", "/v1/decisions", body, headers)
        return DecisionAnswer.model_validate(answer)

    def record(
        self,
        decision_id: str,
        reward: float,
        cost: float | list[float] | None,
        next_state: Any = None,
        applied: Action | list[float] | None = None,
    ) -> OutcomeAnswer:
        """Report what was seen, exactly once however often it is sent. `cost` is None if it was not measured."""
        done: Any = {"ray": applied.ray, "length": applied.length} if isinstance(applied, StarAction) else applied
        body = {"decision_id": decision_id, "reward": reward, "cost": cost, "next_state": next_state, "applied": done}
        return OutcomeAnswer.model_validate(self._send("POST", "/v1/outcomes", body))

    def status(self) -> dict[str, Any]:
        """Mode, switch, alarm, counts."""
        return self._send("GET", "/v1/status")

    def set_mode(self, mode: str, why: str) -> dict[str, Any]:
        """Promote (the criteria must be met: ServiceError.unmet names those that are not) or demote."""
        return self._send("POST", "/v1/mode", {"mode": mode, "why": why})

    def stop(self, why: str) -> dict[str, Any]:
        """Throw the kill switch."""
        return self._send("POST", "/v1/stop", {"why": why})

    def resume(self, why: str) -> dict[str, Any]:
        """Release the kill switch."""
        return self._send("POST", "/v1/resume", {"why": why})

    def reset_alarm(self, why: str) -> dict[str, Any]:
        """Start the tests of the assumptions anew, after an alarm was understood."""
        return self._send("POST", "/v1/alarm/reset", {"why": why})

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """The answer as JSON, after retries. A decision that could not be logged is an answer too (503 with a body)."""
        failure = ServiceError(f"{method} {path} was not sent.")
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(self._pause * 2 ** (attempt - 1))
            try:
                response = self._http.request(method, path, json=body, headers=headers)
            except httpx.TransportError as error:
                failure = ServiceError(f"{method} {path}: no answer from {self._http.base_url} ({error}).")
                continue
            answer = _json_of(response)
            if response.status_code == 200 or "logged" in answer:
                return answer
            failure = _refusal(method, path, response.status_code, answer)
            if response.status_code not in TRANSIENT:
                break
        raise failure


def action_of(answer: DecisionAnswer) -> Action:
    """The action of an answer as Tether's own type."""
    action = answer.action
    return StarAction(action.ray, action.length) if isinstance(action, StarActionModel) else action


def _json_of(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except (ValueError, ValidationError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _refusal(method: str, path: str, status: int, answer: dict[str, Any]) -> ServiceError:
    detail = answer.get("detail") or answer.get("title") or "no reason given"
    return ServiceError(f"{method} {path}: {status}, {detail}", status, tuple(answer.get("unmet") or ()))
