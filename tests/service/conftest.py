"""A PostgreSQL server for the service's tests, which may stop it."""

import os

import pytest
import service_app  # noqa: F401  # puts tests/ on the path

from live.postgres import NoServer, Server  # isort: skip


@pytest.fixture(scope="module")
def running():
    """A server for the tests of one file; skipped without PostgreSQL, unless TETHER_NEED_POSTGRES is set, as in CI."""
    try:
        server = Server()
        server.start()
    except NoServer as error:
        if os.environ.get("TETHER_NEED_POSTGRES"):
            raise
        pytest.skip(f"no PostgreSQL server: {error}")
    yield server
    server.remove()


@pytest.fixture
def database(running):
    """A server for a test that stops it: running again afterwards, for the others."""
    yield running
    if running.process is None:
        running.start()
