"""`tether serve` as a process of its own: start, stop, logs; and several workers on one PostgreSQL."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from service_app import PATIENT, plain_client, tokens_of_every_kind, until  # also puts tests/ on the path

from live.postgres import _children  # isort: skip

from tether.live.log.chain import verify_store
from tether.live.log.postgres import PostgresStore
from tether.live.log.sqlite import SqliteStore
from tether.service.run import STARTUP

MODULE = """
import numpy as np

from tether import Constraint, Problem


def problem():
    return Problem.from_rays(
        phi_0=np.eye(3)[:1],
        endpoints=np.eye(3)[None, 1:],
        constraints=Constraint(threshold=0.5, noise=0.05, safe_cost=np.array([[0.1]])),
        horizon=1,
    )
"""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def configured(folder, **more):
    (folder / "process_problem.py").write_text(MODULE)
    told = {"problem": "process_problem:problem", "port": free_port(), **more}
    lines = [f"{name} = {json.dumps(value)}" for name, value in told.items()]
    (folder / "service.toml").write_text("\n".join(lines) + "\n")
    return f"http://127.0.0.1:{told['port']}"


@contextmanager
def served(folder, address, *options, **environment):
    """The process, once it is ready; ended with SIGTERM. Its standard error goes to folder/err."""
    command = [sys.executable, "-m", "tether", "serve", str(folder / "service.toml"), *options]
    with (folder / "err").open("ab") as err:
        process = subprocess.Popen(command, stderr=err, stdout=err, env={**os.environ, **environment})
    try:
        give_up = time.monotonic() + 90
        while True:
            if process.poll() is not None or time.monotonic() > give_up:
                raise AssertionError((folder / "err").read_text())
            try:
                if httpx.get(f"{address}/readyz", **PATIENT).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_a_service_starts_stops_in_order_and_starts_again_where_it_was(tmp_path):
    headers = tokens_of_every_kind(tmp_path)
    address = configured(tmp_path, tokens="tokens.json")

    def ask(role, method, path, **more):
        return httpx.request(method, address + path, headers={"Authorization": headers[role]}, **PATIENT, **more)

    with served(tmp_path, address):
        made = ask("decide", "POST", "/v1/decisions", json={"state": 0}).json()
        assert ask("decide", "POST", "/v1/decisions?why=a-secret", json={"state": "a-secret"}).status_code == 400
        before = ask("read", "GET", "/v1/status").json()
        assert before["mode"] == "shadow" and not before["open"] and made["is_baseline"]
        assert "server" not in ask("read", "GET", "/v1/status").headers
    with served(tmp_path, address):
        after = ask("read", "GET", "/v1/status").json()
        assert (after["head"], after["counts"]) == (before["head"], before["counts"])
        told = {"decision_id": made["id"], "reward": 0.5, "cost": 0.1}
        assert ask("record", "POST", "/v1/outcomes", json=told).json()["repeated"] is False
    store = SqliteStore(tmp_path / "decisions.db", read_only=True)
    assert verify_store(store).fault is None and store.latest_snapshot().seq == store.head().seq
    text = (tmp_path / "err").read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert {"decide", "read", "record"} <= {line.get("caller") for line in lines}
    known = ("{", "compiling kernels", "the dashboard is at")
    words = [line for line in text.splitlines() if not line.startswith(known)]
    assert words == [] and "a-secret" not in text
    assert not any(header.split(" ")[-1] in text for name, header in headers.items() if name in ("decide", "read"))


def test_it_refuses_to_start_open_to_the_world_without_tokens(tmp_path):
    configured(tmp_path, host="0.0.0.0")
    command = [sys.executable, "-m", "tether", "serve", str(tmp_path / "service.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    said = done.stderr + done.stdout
    assert done.returncode != 0 and "no tokens are set" in said and "Traceback" not in said
    assert not (tmp_path / "decisions.db").exists()


def both_workers(address, ask, seconds=60.0):
    """Ask on new connections until both processes have answered: {process: answers}. Request ids tell them apart.

    The service is ready when one worker is; the other may take seconds longer to listen on a busy machine.
    """
    found, give_up = {}, time.monotonic() + seconds
    while time.monotonic() < give_up:
        with plain_client(address) as fresh:
            answer = ask(fresh)
        assert answer.status_code == 200, answer.text
        found.setdefault(answer.headers["x-request-id"].split("-")[0], []).append(answer.json())
        if len(found) == 2:
            return found
    raise AssertionError("one worker never answered")


@pytest.mark.slow
def test_two_workers_share_one_log_and_the_switch_reaches_both_at_once(tmp_path, database):
    address = configured(tmp_path, store_from="TETHER_TEST_STORE", workers=2)
    with served(tmp_path, address, TETHER_TEST_STORE=database.address):
        first = both_workers(address, lambda fresh: fresh.post("/v1/decisions", json={"state": 0}))
        made = [answer for answers in first.values() for answer in answers]
        for _ in range(6):  # whichever worker answers, it counts for both
            told = httpx.get(f"{address}/metrics", **PATIENT).text
            assert sum(map(float, re.findall(r"^tether_answers_total{.*} (.+)$", told, re.MULTILINE))) == len(made)
            assert "pid=" not in told and re.search(r"^process_resident_memory_bytes ", told, re.MULTILINE)
        for decision in made:  # each outcome through whichever worker takes it, then once more until the other has, too
            told = {"decision_id": decision["id"], "reward": 0.5, "cost": 0.1}
            counted = both_workers(address, lambda fresh, told=told: fresh.post("/v1/outcomes", json=told))
            assert [answer["repeated"] for answers in counted.values() for answer in answers].count(False) == 1
        for round in range(3):
            order = "/v1/stop" if round % 2 == 0 else "/v1/resume"
            assert httpx.post(address + order, json={"why": "a test"}, **PATIENT).status_code == 200
            seen = both_workers(address, lambda fresh: fresh.post("/v1/decisions", json={"state": 0}))
            reasons = {answer["reason"] for answers in seen.values() for answer in answers}
            assert reasons == {"stopped"} if round % 2 == 0 else not reasons & {"stopped"}
        keyed = {"Idempotency-Key": "one"}
        same = both_workers(address, lambda fresh: fresh.post("/v1/decisions", json={"state": 0}, headers=keyed))
        assert len({answer["id"] for answers in same.values() for answer in answers}) == 1
        states = both_workers(address, lambda fresh: fresh.get("/v1/status"))
        heads = {json.dumps([a["head"], a["data_version"], a["model_hash"]]) for s in states.values() for a in s}
        assert len(heads) == 1 and json.loads(heads.pop())[1] == len(made)
    store = PostgresStore(database.address, read_only=True)
    assert verify_store(store).fault is None
    store.close()
    assert "secret" not in (tmp_path / "err").read_text()


def workers_of(process):
    """The worker processes that a supervisor has started."""
    found = []
    for pid in _children(process.pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            found += [pid] if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text() else []
    return found


@pytest.mark.slow
def test_a_worker_that_cannot_start_takes_no_other_with_it(tmp_path, database):
    """One is killed while the database is away: the other goes on with a_0, and there are two when it is back."""
    address = configured(tmp_path, store_from="TETHER_TEST_STORE", workers=2)
    counts = tmp_path / "counts"
    counts.mkdir()
    told = {"TETHER_TEST_STORE": database.address, "PROMETHEUS_MULTIPROC_DIR": str(counts)}
    with served(tmp_path, address, **told) as process:
        both_workers(address, lambda fresh: fresh.get("/v1/status"))
        database.stop()
        victim, other = workers_of(process)
        before = {*counts.iterdir()}
        os.kill(victim, signal.SIGKILL)
        until(lambda: (tmp_path / "err").read_text().count("this worker cannot start") >= 2)
        assert process.poll() is None and other in workers_of(process)
        answer = httpx.post(f"{address}/v1/decisions", json={"state": 0}, **PATIENT)
        assert (answer.status_code, answer.json()["reason"]) == (503, "not-logged")

        def none_left():  # else each attempt would leave some
            left = {file.name.rpartition("_")[2] for file in {*counts.iterdir()} - before}
            return left <= {f"{pid}.db" for pid in (other, *workers_of(process))}

        until(none_left)
        database.start()
        both_workers(address, lambda fresh: fresh.get("/v1/status"))


@pytest.mark.slow
def test_a_worker_that_dies_while_it_is_asked_whether_it_lives_is_replaced_at_once(tmp_path, database):
    """It may take a minute to answer, but not when it is dead."""
    address = configured(tmp_path, store_from="TETHER_TEST_STORE", workers=2)
    with served(tmp_path, address, TETHER_TEST_STORE=database.address) as process:
        both_workers(address, lambda fresh: fresh.get("/v1/status"))
        victim = workers_of(process)[0]
        os.kill(victim, signal.SIGSTOP)
        time.sleep(1.5)  # every half second it is asked
        os.kill(victim, signal.SIGKILL)
        until(lambda: len({*workers_of(process)} - {victim}) == 2, seconds=STARTUP / 2)


@pytest.mark.slow
def test_workers_end_with_their_supervisor(tmp_path, database):
    """Killed with signal 9: else they would keep the port, and nobody could replace them."""
    address = configured(tmp_path, store_from="TETHER_TEST_STORE", workers=2)
    with served(tmp_path, address, TETHER_TEST_STORE=database.address) as process:
        until(lambda: len(workers_of(process)) == 2)
        workers = workers_of(process)
        process.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    with served(tmp_path, address, TETHER_TEST_STORE=database.address):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--access-log", "--no-access-log"])
def test_workers_write_an_access_log_or_none_as_they_were_told(tmp_path, database, option):
    address = configured(tmp_path, store_from="TETHER_TEST_STORE", workers=2)
    with served(tmp_path, address, option, TETHER_TEST_STORE=database.address):
        both_workers(address, lambda fresh: fresh.get("/v1/status"))
    said = (tmp_path / "err").read_text()
    assert ('"path": "/v1/status"' in said) == (option == "--access-log") and "Started server process" in said
