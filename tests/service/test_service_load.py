"""Under load: what people order, and whether the service is well, does not wait behind readers."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from service_app import decide, new_advisor, plain_client, serving, until

from tether.errors import StoreError
from tether.live.log.memory import MemoryStore
from tether.service import hub
from tether.service.config import LimitsSection
from tether.service.http import Application, Endpoint, Json
from tether.service.models import DecisionRequest
from tether.service.views import Metrics, View

SOON = 5.0
"""Seconds for what takes milliseconds: far less than what a queue behind the readers takes here."""


@contextmanager
def stuck_readers(monkeypatch, client, count=60, waiting=32):
    """So many requests for charts, of which `waiting` do not end before the block does; yields their futures."""
    begun, go_on = threading.Event(), threading.Event()

    def series(self, window, points):
        begun.set()
        go_on.wait(60.0)
        return {}

    monkeypatch.setattr(View, "series", series)
    with plain_client(client.base_url) as readers, ThreadPoolExecutor(count) as pool:
        asked = [pool.submit(readers.get, "/v1/series") for _ in range(count)]
        try:
            assert begun.wait(60.0)
            until(lambda: sum(each.done() for each in asked) == count - waiting)  # the others were refused
            yield asked
        finally:
            go_on.set()


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
def test_probes_do_not_wait_behind_readers(monkeypatch, path):
    with serving(new_advisor()) as client, stuck_readers(monkeypatch, client):
        assert client.get(path, timeout=SOON).status_code == 200


def test_a_stop_does_not_wait_behind_readers(monkeypatch):
    with serving(new_advisor()) as client:
        with stuck_readers(monkeypatch, client):
            answer = client.post("/v1/stop", json={"why": "smoke"}, timeout=SOON)
            assert answer.status_code == 200 and answer.json()["stopped"]["why"] == "smoke"
            assert decide(client, 1)["reason"] == "stopped"
        assert client.get("/v1/status").json()["history"][0]["text"] == "stopped: smoke"


def test_readers_beyond_the_limit_are_told_to_come_back(monkeypatch):
    limits = {"readers": 4, "readers_each": 3}
    with serving(new_advisor(), limits=limits) as client:
        with stuck_readers(monkeypatch, client, count=6, waiting=3) as asked:
            pass
        answers = [each.result() for each in asked]
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 429, 429, 429]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["retry-after"] == "1" and "3" in refused.json()["detail"]
        assert client.get("/v1/series").status_code == 200, "those who have their answer count no more"


class Unwritable(MemoryStore):
    """A log that cannot be written while `fails`."""

    fails = False

    def append(self, drafts):
        if self.fails:
            raise StoreError("the disk is full")
        return super().append(drafts)

    def save_snapshot(self, seq, data):
        if self.fails:
            raise StoreError("the disk is full")
        super().save_snapshot(seq, data)


def test_a_stop_that_cannot_be_logged_holds_and_is_logged_when_a_probe_finds_the_log_well():
    log = Unwritable()
    with serving(new_advisor(log)) as client:
        log.fails = True
        answer = client.post("/v1/stop", json={"why": "smoke"})
        assert answer.status_code == 503 and "safe action only" in answer.json()["detail"]
        assert client.get("/v1/status").json()["stopped"]["why"] == "smoke"
        assert client.post("/v1/decisions", json={"state": 1}).json()["is_baseline"]
        assert client.get("/readyz").status_code == 503
        log.fails = False
        assert client.get("/readyz").status_code == 200
        until(lambda: any(entry.kind == "stopped" for entry in log.read()))
        assert decide(client, 1)["reason"] == "stopped"
        assert [entry.kind for entry in log.read() if entry.kind == "stopped"] == ["stopped"]


def test_a_stop_that_could_not_be_logged_is_logged_though_nobody_asks_for_anything(monkeypatch):
    """Else other processes on the log would not hear of it, nor this one after a restart."""
    monkeypatch.setattr(hub, "EVERY", 0.05)
    log = Unwritable()
    with serving(new_advisor(log)) as client:
        log.fails = True
        assert client.post("/v1/stop", json={"why": "smoke"}).status_code == 503
        until(lambda: client.get("/readyz").status_code == 503, seconds=15.0)
        log.fails = False
        until(lambda: any(entry.kind == "stopped" for entry in log.read()), seconds=15.0)
        assert decide(client, 1)["reason"] == "stopped"


def test_large_requests_take_turns_and_small_ones_pass_them(monkeypatch):
    """Each large body is parsed, hashed and logged by itself: eight at once would stand before everybody else."""
    monkeypatch.setattr("tether.service.http.MOST_HELD", 60_000)

    async def work():
        inside, most, go = 0, 0, asyncio.Event()

        async def handler(request, taken):
            nonlocal inside, most
            if len(taken.state) > 10:
                inside += 1
                most = max(most, inside)
                await go.wait()
                inside -= 1
            return Json({})

        endpoint = Endpoint("POST", "/x", handler, role=None, takes=DecisionRequest)
        told = {"tokens": (), "host": "127.0.0.1", "limits": LimitsSection(body_bytes=40_000), "lifespan": None}
        app = Application([endpoint], requests=Metrics().requests, **told)
        large = [asyncio.create_task(posted(app, {"state": "x" * 30_000})) for _ in range(3)]
        while not inside:
            await asyncio.sleep(0)
        assert await posted(app, {"state": "x"}) == 200, "before any of the large ones"
        assert await posted(app, {"state": "x" * 30_000}) == 503, "90 kB are here already"
        go.set()
        assert await asyncio.gather(*large) == [200] * 3 and most == 1
        return await posted(app, {"state": "x" * 30_000})

    assert asyncio.run(asyncio.wait_for(work(), 20.0)) == 200, "those are gone"


async def posted(app, body):
    """The status of a POST of this to /x, without a server."""
    parts, status = [json.dumps(body).encode()], []

    async def receive():
        return {"type": "http.request", "body": parts.pop(), "more_body": False}

    async def send(message):
        status.append(message.get("status"))

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    where = {"path": "/x", "raw_path": b"/x", "root_path": "", "query_string": b"", "scheme": "http"}
    scope = {"type": "http", "method": "POST", "headers": headers, "client": None, "server": None, **where}
    await app(scope, receive, send)
    return status[0]
