"""A small typed client: decide, record, and what an operator needs. Every request can be retried safely."""

import json
import re
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError, TetherError
from tether.live.records import new_id
from tether.records import Action, StarAction
from tether.service.auth import PREFIX
from tether.service.models import DecisionAnswer, LostAnswer, OutcomeAnswer, StarActionModel

Answer = TypeVar("Answer")
Number = float | np.floating[Any]

TRANSIENT = (408, 429, 502, 503, 504)
UNSENDABLE = (httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.InvalidURL, ValueError, OverflowError)
"""Errors that a retry cannot help; a socket raises the last two for names and ports that it cannot use."""

LAST_PORT = 65_535
TOKEN = re.compile("[!-~]+")
KEY = re.compile("[!-~]([ -~]*[!-~])?")
"""What a header carries unchanged: printable ASCII; spaces at the ends would be lost on the way."""


class ServiceError(TetherError):
    """The service refused, could not be reached, or something else answered. `status` is 0 if nothing did."""

    def __init__(self, message: str, status: int = 0, unmet: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status, self.unmet = status, unmet


class Client:
    """Talks to one service.

    `decide` sends an idempotency key of its own, so that a retry after a lost answer gets the same decision; an outcome
    is counted once by its decision's id. `retries` is how often a request is sent again that got no answer, or a 503
    because the log could not be used just then. Numbers, states and actions may be numpy's. What cannot be sent is an
    InputError; everything that goes wrong afterwards is a ServiceError.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 15.0, retries: int = 3, pause: float = 0.2
    ) -> None:
        address = _checked_address(url)
        headers = {} if token is None else {"Authorization": f"Bearer {_checked_token(token)}"}
        self._http = httpx.Client(base_url=address, headers=headers, timeout=timeout)
        self._retries, self._pause = retries, pause
        # for messages: without a password
        self._address = f"{address.scheme}://{address.netloc.decode()}{address.path}"

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
        headers = {"Idempotency-Key": new_id() if key is None else _checked_key(key)}
        return self._send("POST", "/v1/decisions", DecisionAnswer.model_validate, body, headers)

    def record(
        self,
        decision_id: str,
        reward: Number,
        cost: Number | Sequence[Number] | NDArray[Any] | None,
        next_state: Any = None,
        applied: Action | StarActionModel | Sequence[Number] | NDArray[Any] | None = None,
    ) -> OutcomeAnswer:
        """Report what was seen, exactly once however often it is sent. `cost` is None if it was not measured."""
        seen = {"reward": reward, "cost": cost, "next_state": next_state, "applied": applied}
        body = {"decision_id": decision_id, **seen}
        return self._send("POST", "/v1/outcomes", OutcomeAnswer.model_validate, body)

    def lose(self, decision_id: str, why: str) -> None:
        """Say that the outcome of a decision will never come."""
        self._send("POST", "/v1/lost", LostAnswer.model_validate, {"decision_id": decision_id, "why": why})

    def status(self) -> dict[str, Any]:
        """Mode, switch, alarm, counts."""
        return self._send("GET", "/v1/status", _status_of)

    def set_mode(self, mode: str, why: str, override: bool = False) -> dict[str, Any]:
        """Promote (the criteria must be met: ServiceError.unmet names those that are not) or demote. `override` enters
        live mode without evidence of a gain over a_0."""
        body = {"mode": mode, "why": why, "override": override}
        return self._send("POST", "/v1/mode", _status_of, body, once=True)

    def stop(self, why: str) -> dict[str, Any]:
        """Throw the kill switch."""
        return self._send("POST", "/v1/stop", _status_of, {"why": why})

    def resume(self, why: str) -> dict[str, Any]:
        """Release the kill switch."""
        return self._send("POST", "/v1/resume", _status_of, {"why": why}, once=True)

    def reset_alarm(self, why: str) -> dict[str, Any]:
        """Start the tests of the assumptions anew, after an alarm was understood."""
        return self._send("POST", "/v1/alarm/reset", _status_of, {"why": why}, once=True)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(
        self,
        method: str,
        path: str,
        read: Callable[[dict[str, Any]], Answer],
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        *,
        once: bool = False,
    ) -> Answer:
        """The answer, after retries. A decision that could not be logged is an answer too (503 with a body).

        What may allow more is sent `once`: sent again, it could release what somebody has forbidden in between.
        """
        content = None if body is None else _json_bytes(body)
        headers = {"Content-Type": "application/json", **(headers or {})}
        failure = ServiceError(f"{method} {path} was not sent.")
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(self._pause * 2 ** (attempt - 1))
            try:
                response = self._http.request(method, path, content=content, headers=headers)
            except UNSENDABLE as error:
                words = f"{method} {path} cannot be sent to {self._address}: {type(error).__name__}. Check the address."
                raise ServiceError(words) from None  # the error itself may quote a header, and so the token
            except httpx.RequestError as error:
                failure = ServiceError(f"{method} {path}: no answer from {self._address} ({error}).")
                if once and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    break
                continue
            answer = _json_of(response)
            if response.status_code == 200 or "logged" in answer:
                try:
                    return read(answer)
                except ValueError:
                    words = "the answer is not Tether's: is something else, or another version, at"
                    failure = _refusal(method, path, response.status_code, {"detail": f"{words} {self._address}?"})
                    raise failure from None
            failure = _refusal(method, path, response.status_code, answer)
            if once or response.status_code not in TRANSIENT:
                break
        raise failure


def action_of(answer: DecisionAnswer) -> Action:
    """The action of an answer as Tether's own type."""
    action = answer.action
    return StarAction(action.ray, action.length) if isinstance(action, StarActionModel) else action


def _checked_address(url: str) -> httpx.URL:
    """Where the service is. Of a wrong address only the beginning is quoted: it may be a token in the wrong place."""
    text, example = str(url).strip(), "as in http://127.0.0.1:8080"
    try:
        address = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InputError(f"the address of the service cannot be read: {error}. It must be one {example}.") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise InputError(
            f"the address of the service must begin with http:// or https:// and name a host, {example}; "
            f"this one begins with {text[: len(PREFIX)]!r}."
        )
    if address.port is not None and address.port > LAST_PORT:
        raise InputError(
            f"the address of the service has the port {address.port}, over {LAST_PORT}: give one {example}."
        )
    return address


def _checked_token(token: str) -> str:
    """A token without the newline of the file that it was read from. A wrong one is refused, and never quoted."""
    stripped = token.strip() if isinstance(token, str) else ""
    if not TOKEN.fullmatch(stripped):
        raise InputError(
            "the token must be what `tether token new` printed: printable ASCII without spaces, and without `Bearer`. "
            "This one is empty, no string, or holds something else."
        )
    return stripped


def _checked_key(key: str) -> str:
    if not (isinstance(key, str) and KEY.fullmatch(key)):
        what = f"{key!r:.80}" if isinstance(key, str) else type(key).__name__
        raise InputError(
            f"key must be a string of printable ASCII that neither begins nor ends with a space, not {what}: it goes "
            "into a header. None makes one."
        )
    return key


def _json_bytes(body: dict[str, Any]) -> bytes:
    """A body as JSON, numpy's numbers and arrays included. What JSON does not know is refused by name."""
    parts = []
    for name, value in body.items():
        try:
            text = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
            parts.append(f'"{name}":{text}'.encode())
        except (TypeError, ValueError, RecursionError) as error:
            what = f"{name} = {value}" if isinstance(value, float | np.floating) else name
            raise InputError(
                f"{what} cannot be sent: {error}. What is sent is JSON: finite numbers, strings, booleans, None, "
                "lists, dicts with string keys, and numpy's numbers and arrays."
            ) from error
    return b"{" + b",".join(parts) + b"}"


def _plain(value: Any) -> Any:
    """What is not JSON, as JSON: actions by their fields, numpy's values as Python's."""
    if isinstance(value, StarAction | StarActionModel):
        return {"ray": value.ray, "length": value.length}
    if isinstance(value, np.floating):  # first: numpy's own long double stays what it is in `tolist`
        return float(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not known to JSON")


def _status_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The status, which answers every order too."""
    if "mode" not in answer:
        raise ValueError("a status has a mode")
    return answer


def _json_of(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _refusal(method: str, path: str, status: int, answer: dict[str, Any]) -> ServiceError:
    detail = answer.get("detail") or answer.get("title") or "no reason given"
    unmet = answer.get("unmet")
    return ServiceError(f"{method} {path}: {status}, {detail}", status, tuple(unmet) if isinstance(unmet, list) else ())
