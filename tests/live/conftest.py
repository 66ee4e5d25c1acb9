"""Fixtures of the live tests: a PostgreSQL server per session, and a fresh place for a log per test."""

import os
import uuid

import pytest

from live.places import MemoryPlace, PostgresPlace, SqlitePlace
from live.postgres import NoServer, Server


@pytest.fixture(scope="session")
def postgres_server():
    """A running server. Without PostgreSQL its tests are skipped, unless TETHER_NEED_POSTGRES is set, as in CI."""
    server = None
    try:
        server = Server()
        server.start()
    except NoServer as error:
        if server is not None:
            server.remove()
        if os.environ.get("TETHER_NEED_POSTGRES"):
            raise
        pytest.skip(f"no PostgreSQL server: {error}")
    yield server
    server.remove()


def make_place(kind, request):
    """A place of this kind that no other test uses."""
    if kind == "memory":
        return MemoryPlace()
    if kind == "sqlite":
        return SqlitePlace(request.getfixturevalue("tmp_path") / "log.db")
    return PostgresPlace(request.getfixturevalue("postgres_server"), f"log_{uuid.uuid4().hex}")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request):
    """Somewhere to keep a log: in memory, in a file, on a server."""
    return make_place(request.param, request)


@pytest.fixture(params=["sqlite", "postgres"])
def lasting_place(request):
    """Somewhere that outlives a process."""
    return make_place(request.param, request)


@pytest.fixture
def sqlite_place(request):
    return make_place("sqlite", request)


@pytest.fixture
def postgres_place(request):
    return make_place("postgres", request)


@pytest.fixture
def own_server(postgres_server):
    """The server for tests that stop it: running again afterwards, for the others."""
    yield postgres_server
    if postgres_server.process is None:
        postgres_server.start()
