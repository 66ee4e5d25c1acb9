"""The service's configuration: one TOML file, strict, with safe defaults.

problem = "building:problem"        # module:name of a Problem, or of a function that returns one
store = "decisions.db"              # an SQLite file next to this one
# store_from = "TETHER_STORE"       # or: the environment variable that holds postgresql://user:secret@host/name
tokens = "tokens.json"              # made by `tether token`; without it the service only listens on this machine

host = "127.0.0.1"
port = 8080

[guards]
max_age = 60.0                      # seconds after which an observation is too old to act on
"""

import ipaddress
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from tether.errors import InputError
from tether.problem.limit_on import CAVEAT, LimitOn
from tether.sections import Section, mistakes


class GuardsSection(Section):
    """Limits beside the theorem's: those of `tether.live.policy.Guards`. The section holds as a whole, with the default
    for what it does not name; without it, the log's own guards stand."""

    margin_share: float | None = Field(default=None, ge=0.0, le=1.0)
    canary: float | None = Field(default=None, ge=0.001, le=1.0)
    reward_range: list[float] | None = Field(default=None, min_length=2, max_length=2)
    guarded_rate: float | None = Field(default=None, ge=0.0, le=1.0)
    live_rate: float | None = Field(default=None, ge=0.0, le=1.0)
    rate_window: int | None = Field(default=None, ge=1, le=100_000)
    budget: float | list[float] | None = None
    budget_window: int | None = Field(default=None, ge=1, le=100_000)
    max_age: float | None = Field(default=None, gt=0.0)
    max_ahead: float | None = Field(default=None, ge=0.0)
    lost_after: Annotated[float, Field(gt=0.0)] | Literal["never"] | None = None  # None asks at each start


class LimitsSection(Section):
    """What one client may ask of the service."""

    body_bytes: int = Field(default=262_144, ge=1024, le=2**26)
    seconds: float = Field(default=10.0, gt=0.0, le=600.0)  # for the head of a request, for its body, and for the log
    waiting: int = Field(default=10_000, ge=1)  # entries that may wait for the log before requests are refused
    connections_each: int | None = Field(default=None, ge=1)  # of one address; None: half of all that are allowed
    readers: int = Field(default=64, ge=1)  # requests of readers that may wait for their turn, of all clients
    readers_each: int = Field(default=32, ge=1)  # and of one: a token at an address


class LabelsSection(Section):
    """Names for people, on the dashboard."""

    title: str = ""
    constraints: list[str] = Field(default=[])
    reward_unit: str = ""
    cost_units: list[str] = Field(default=[])


class ServiceConfig(Section):
    """Everything that `tether serve` needs to know. `folder` is where the file lies; paths are relative to it."""

    problem: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
    limit_on: LimitOn | None = None  # None: the log's own, or single actions
    store: str = "decisions.db"
    store_from: str | None = None
    head_note: str | None = None  # None: beside the log, or, with PostgreSQL, postgres.head
    tokens: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    workers: int = Field(default=1, ge=1, le=64)
    watch: bool = True
    when_store_fails: Literal["baseline", "refuse"] = "baseline"
    snapshot_every: int = Field(default=5000, ge=1)
    traces: bool = False  # spans to where OTEL_EXPORTER_OTLP_ENDPOINT says; needs the extra `traces`
    guards: GuardsSection = GuardsSection()
    limits: LimitsSection = LimitsSection()
    labels: LabelsSection = LabelsSection()
    folder: Path = Field(default=Path(), exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _says_what_the_limit_is_on(cls, data: Any) -> Any:
        if isinstance(data, dict) and "algorithm" in data:
            raise ValueError(
                "unknown key 'algorithm'; did you mean limit_on = \"single actions\" (slucb-qvi) or limit_on = "
                f'"average over draws" (rslucb-qvi)? With the latter, {CAVEAT}'
            )
        return data

    @model_validator(mode="after")
    def _has_tokens_and_a_log_that_fit(self) -> Self:
        if self.tokens is None and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host!r} is open to other machines, but no tokens are set: make some with `tether token` "
                "and name the file as tokens = ..., or listen on 127.0.0.1"
            )
        if self.workers > 1 and self.store_from is None and not is_postgres(self.store):
            raise ValueError(f"{self._needs_postgres()}. With SQLite use one worker")
        return self

    def _needs_postgres(self) -> str:
        return f"workers = {self.workers} need a log that processes share across restarts: a PostgreSQL store"

    def store_address(self) -> str:
        """Where the log is: an SQLite path, or postgresql://…, which may hold a password and is never printed."""
        if self.store_from is not None:
            address = os.environ.get(self.store_from, "")
            if not address:
                raise InputError(f"store_from names the environment variable {self.store_from!r}, which is not set.")
            if self.workers > 1 and not is_postgres(address):
                words = f"the environment variable {self.store_from!r} names an SQLite file: with it use one worker."
                raise InputError(f"{self._needs_postgres()}, but {words}")
        else:
            address = self.store
        return address if is_postgres(address) else str(self.folder / address)

    def note_file(self) -> Path:
        """Where the head of the log is noted: beside an SQLite log; beside this configuration where it is elsewhere."""
        address = self.store_address()
        if self.head_note is not None:
            return self.folder / self.head_note
        return self.folder / "postgres.head" if is_postgres(address) else Path(f"{address}.head")


def is_postgres(address: str) -> bool:
    """Whether a log is a PostgreSQL database, not an SQLite file."""
    return address.startswith(("postgresql://", "postgres://"))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_config(path: Path) -> ServiceConfig:
    """The configuration in a TOML file; every mistake is named with its place."""
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    if "folder" in data:
        raise InputError(f"{path}: unknown key 'folder': paths are relative to the file itself.")
    try:
        return ServiceConfig.model_validate({**data, "folder": Path(path).resolve().parent})
    except ValidationError as error:
        raise InputError("\n".join(f"{path}: {mistake}." for mistake in mistakes(error))) from None
