"""Tokens: who may do what. A file holds their SHA-256, never the tokens; 256 random bits need no slower hash."""

import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tether.errors import InputError
from tether.files import written_whole
from tether.sections import mistakes

Role = Literal["decide", "record", "read", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""decide asks for decisions, record reports outcomes, read sees everything, admin sets mode and switch."""

PREFIX = "tether_"
"""Makes a leaked token easy to find by scanners."""

LONGEST_NAME = 100
MOST_DAYS = 36_500
"""Days that a token may live if it is to expire at all: a century."""

LAST_EXPIRY = 253_402_214_400.0
"""The last day that a calendar of four-digit years can show, since 1970."""


class Token(BaseModel):
    """One token as the file keeps it: its hash, its owner's name, its roles, when it expires (since 1970)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    roles: Annotated[tuple[Role, ...], Field(min_length=1)]
    expires: float | None = None

    @field_validator("name")
    @classmethod
    def _readable(cls, name: str) -> str:
        if name.strip() and name.isprintable() and len(name) <= LONGEST_NAME:
            return name
        raise ValueError(f"it must have 1 to {LONGEST_NAME} printable characters, not only spaces, not {len(name)}")

    @field_validator("expires")
    @classmethod
    def _in_a_calendar(cls, expires: float | None) -> float | None:
        if expires is None or 0.0 <= expires <= LAST_EXPIRY:  # NaN is refused too
            return expires
        raise ValueError(f"a token expires 0 to {LAST_EXPIRY:.0f} seconds since 1970, or never (None), not {expires:g}")

    def has_expired(self, now: float) -> bool:
        """Whether it is of no use any more."""
        return self.expires is not None and not now < self.expires


class TokenFile(BaseModel):
    """The file: a format and the tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["tether-tokens-1"] = "tether-tokens-1"
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling: the name and roles of a token."""

    name: str
    roles: tuple[Role, ...]


LOCAL = Caller("local", ROLES)
"""Any caller of a service without tokens, which only this machine can reach."""


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of a file, for a service: one that nobody could call is refused."""
    tokens, now = kept_tokens(path), time.time()
    if all(token.has_expired(now) for token in tokens):
        what = f"every token in {path} has expired" if tokens else f"{path} holds no token"
        raise InputError(f"{what}, so nobody could call the service: make one with `tether token new`.")
    return tokens


def kept_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of a file, whatever their number and age."""
    try:
        return TokenFile.model_validate_json(path.read_bytes()).tokens
    except OSError as error:
        raise InputError(f"cannot read the tokens in {path}: {error.strerror or error}.") from error
    except ValidationError as error:
        raise InputError(
            f"{path} is not a file of tokens ({mistakes(error)[0]}): restore it, or move it away and make tokens with "
            "`tether token new`."
        ) from None


def expiry(days: float, now: float) -> float:
    """When a token that is made now, for so many days, expires."""
    if not 0.0 < days <= MOST_DAYS:  # NaN is refused too
        raise InputError(
            f"a token may live more than 0 and at most {MOST_DAYS} days, not {days:g}; without --days it never expires."
        )
    return now + 86400.0 * days


def add_token(path: Path, name: str, roles: tuple[str, ...], expires: float | None) -> str:
    """A new token, returned only here; the file, made if need be and readable by its owner only, gets its hash."""
    secret = PREFIX + secrets.token_urlsafe(32)
    try:
        new = Token.model_validate({"name": name, "sha256": _digest(secret), "roles": roles, "expires": expires})
    except ValidationError as error:
        what = f"a token named {name[:LONGEST_NAME]!r} with the roles {', '.join(roles) or 'none'}"
        raise InputError(f"{what} cannot be made: {mistakes(error)[0]}.") from None
    old = kept_tokens(path) if path.exists() else ()
    if any(token.name == name for token in old):
        raise InputError(f"{path} has a token named {name!r} already: use another name, or remove it first.")
    _write(path, (*old, new))
    return secret


def remove_token(path: Path, name: str) -> None:
    """Remove a token; a running service, which has read the file, needs a restart."""
    old = kept_tokens(path)
    left = tuple(token for token in old if token.name != name)
    if len(left) == len(old):
        names = ", ".join(token.name for token in old) or "none"
        raise InputError(f"{path} has no token named {name!r}; it has {names}.")
    _write(path, left)


def _write(path: Path, tokens: tuple[Token, ...]) -> None:
    text = json.dumps(TokenFile(tokens=tokens).model_dump(mode="json"), indent=1) + "\n"
    try:
        with written_whole(path, permissions=0o600) as file:
            file.write(text.encode())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from error


def caller_of(tokens: tuple[Token, ...], header: str | None, now: float) -> Caller | None:
    """Who sent this Authorization header; None if the token is unknown or has expired.

    Every token is compared, in constant time, so that the time taken says nothing.
    """
    scheme, _, secret = (header or "").partition(" ")
    digest = _digest(secret.strip())
    found: Token | None = None
    for token in tokens:
        if hmac.compare_digest(token.sha256, digest):
            found = token
    if found is None or scheme.lower() != "bearer" or found.has_expired(now):
        return None
    return Caller(found.name, found.roles)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
