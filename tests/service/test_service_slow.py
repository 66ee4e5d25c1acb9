"""Callers that take their time, or never finish: each request has so many seconds to arrive, and no more."""

import contextlib
import resource
import select
import signal
import socket
import time
from contextlib import contextmanager

import pytest
from service_app import decide, new_advisor, plain_client, serving, until
from test_service_processes import configured
from test_service_start import started

SECONDS = 0.8
LATE = 15.0
"""Seconds after which a connection must have ended, however busy the machine is."""
HEAD = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {}\r\nContent-Length: 20\r\n\r\n"


@pytest.fixture(scope="module")
def client():
    with serving(new_advisor(), limits={"seconds": SECONDS}) as client:
        yield client


@contextmanager
def connected(client):
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=LATE) as line:
        yield line


def rest_of(line):
    """Everything that still comes until the service hangs up, which it must before it is LATE."""
    parts = []
    while part := line.recv(65536):
        parts.append(part)
    return b"".join(parts).decode()


def answer(line):
    """One answer whole, head and body, however it arrives."""
    received = b""
    while True:
        part = line.recv(65536)
        assert part, f"the service hung up after {received!r}"
        received += part
        head, found, body = received.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            return received


def drip(line, byte=b"x"):
    """Seconds until the service hangs up on somebody who sends a byte now and then."""
    began = time.monotonic()
    line.settimeout(SECONDS / 8)
    while time.monotonic() - began < 2 * LATE:
        try:
            line.sendall(byte)
            if not line.recv(65536):
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    return time.monotonic() - began


def test_a_request_with_two_lengths_is_refused_and_the_connection_closed(client):
    """A proxy may believe the other one, and take the rest for somebody else's request (RFC 9112, section 6.3)."""
    for method in ("POST", "GET"):
        with connected(client) as line:
            head = HEAD.replace("POST", method).format("/v1/decisions", "application/json").strip()
            line.sendall(f"{head}\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n".encode() + b'{"state":0}\r\n0\r\n\r\n')
            answer = rest_of(line)
        assert answer.startswith("HTTP/1.1 400 ") and "connection: close" in answer and "Content-Length" in answer


def test_a_body_that_does_not_arrive_is_a_408_and_the_end_of_the_connection(client):
    with contextlib.ExitStack() as lines:
        waiting, began = {}, time.monotonic()
        for path in ("/v1/decisions", "/v1/outcomes", "/v1/stop"):
            waiting[path] = lines.enter_context(connected(client))
            waiting[path].sendall(HEAD.format(path, "application/json").encode() + b'{"state"')
        for path, line in waiting.items():
            head, _, body = rest_of(line).partition("\r\n\r\n")
            assert SECONDS * 0.9 < time.monotonic() - began < LATE, path
            assert head.startswith("HTTP/1.1 408 ") and "content-type: application/problem+json" in head, path
            assert '"title":"too slow"' in body and f"{SECONDS} s" in body and "connection: close" in head, path


def test_an_answer_that_nobody_reads_ends_its_connection(client):
    """Else a few hundred of them take all the connections that there are, for as long as they like."""
    with connected(client) as line:
        line.setblocking(False)
        request, began, sent = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000, time.monotonic(), 0
        ended = select.poll()
        ended.register(line, select.POLLHUP | select.POLLERR)
        while not ended.poll(50) and time.monotonic() - began < 4 * LATE:
            try:
                sent += line.send(request[sent:]) if sent < len(request) else 0
            except BlockingIOError:
                continue
        assert SECONDS * 0.9 < time.monotonic() - began < 2 * LATE, "cut off, after its time"
    assert client.get("/healthz").status_code == 200


def test_one_address_cannot_have_all_connections():
    with serving(new_advisor(), limits={"connections_each": 3}) as client, contextlib.ExitStack() as lines:
        client.get("/healthz")
        for _ in range(2):
            line = lines.enter_context(connected(client))
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in answer(line)
        with connected(client) as fourth, pytest.raises((ConnectionError, AssertionError)):
            fourth.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer(fourth)
        lines.close()

        def is_served():
            with connected(client) as again, contextlib.suppress(ConnectionError, AssertionError):
                again.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return b" 200 " in answer(again)

        until(is_served)  # those that ended count no more


def test_a_body_that_drips_has_no_more_time_than_one_that_stops(client):
    with connected(client) as line:
        line.sendall(HEAD.replace("20", "200000").format("/v1/decisions", "application/json").encode())
        assert drip(line, b" ") < LATE


def test_a_body_in_two_parts_is_taken_if_it_comes_in_time():
    with serving(new_advisor()) as client, connected(client) as line:
        line.sendall(HEAD.format("/v1/decisions", "application/json").encode() + b'{"state": ')
        time.sleep(SECONDS / 4)
        line.sendall(b"0        }")
        assert answer(line).startswith(b"HTTP/1.1 200 ")


def test_a_connection_that_says_nothing_or_half_a_head_is_closed(client):
    with connected(client) as silent, connected(client) as half:
        half.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        assert rest_of(silent) == rest_of(half) == ""


def test_a_head_that_drips_is_closed_too_first_or_later(client):
    with connected(client) as line:
        assert drip(line) < LATE
    with connected(client) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer(line).startswith(b"HTTP/1.1 200 ")
        assert drip(line) < LATE


def test_the_body_of_a_request_that_was_refused_may_not_drip_for_ever(client):
    with connected(client) as line:
        line.sendall(HEAD.replace("20", "200000").format("/v1/decisions", "text/plain").encode())
        assert answer(line).startswith(b"HTTP/1.1 415 ")
        assert drip(line) < LATE


@pytest.mark.slow
def test_who_waits_for_news_or_keeps_a_connection_has_all_the_time(client):
    head = client.get("/v1/events").json()["head"]
    began = time.monotonic()
    told = client.get("/v1/events", params={"after": head, "wait": 3 * SECONDS})
    assert told.json() == {"head": head, "kinds": []} and time.monotonic() - began >= 3 * SECONDS
    with connected(client) as line:
        for _ in range(2):
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer(line).startswith(b"HTTP/1.1 200 ")
            time.sleep(2 * SECONDS)


def test_more_connections_than_there_are_files_leave_the_service_and_its_log_as_they_are(tmp_path):
    """A process of its own, which may open 200 files, and 260 who only connect."""
    address = configured(tmp_path)
    process = started(tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)))
    lines = []
    try:
        for said in process.stderr:
            if "the dashboard is at" in said:
                break
        with plain_client(address) as client:
            assert decide(client)["logged"]
            where = client.base_url.host, client.base_url.port
            for _ in range(26):  # asking in between: a connection that idles for long is closed, whoever else connects
                lines.extend(socket.create_connection(where, timeout=LATE) for _ in range(10))
                assert decide(client)["logged"]
            for _ in range(5):
                assert decide(client)["logged"]
                time.sleep(0.1)
    finally:
        for line in lines:
            line.close()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert "out of system resource" not in said and said.count("connections are open") == 1, said[-2000:]
