"""`tether serve` at its two ends: it says where it is once it can answer, it is warm, and Ctrl-C ends it at once."""

import asyncio
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from functools import partial
from http.client import HTTPConnection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import httpx
import pytest
from service_app import PATIENT
from test_service_processes import both_workers, configured, served

from tether.errors import InputError
from tether.live.replica import Replica
from tether.service.app import make_advisor
from tether.service.config import read_config
from tether.service.run import WorkerSocket, check_start, claim_port


def started(folder, **more):
    command = [sys.executable, "-m", "tether", "serve", str(folder / "service.toml")]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **more)


def test_the_service_extra_can_do_what_the_tutorial_asks_for():
    told = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert any(each.startswith("pyarrow") for each in told["project"]["optional-dependencies"]["service"])


def test_the_address_is_said_when_it_can_be_opened(tmp_path):
    address = configured(tmp_path)
    process = started(tmp_path)
    try:
        for line in process.stderr:
            if "the dashboard is at" in line:
                break
        assert f"{address}/" in line and httpx.get(f"{address}/healthz", **PATIENT).status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_each_worker_has_a_socket_of_its_own_whose_answers_leave_at_once():
    """One that all share goes to whoever is awake first, and asyncio turns Nagle's algorithm off for TCP alone."""

    async def connected(sockets, times):
        found = [[] for _ in sockets]
        servers = [
            await asyncio.get_running_loop().create_server(partial(Accepted, taken), sock=each)
            for each, taken in zip(sockets, found, strict=True)
        ]
        lines = [await asyncio.open_connection(*sockets[0].getsockname()) for _ in range(times)]
        while sum(map(len, found)) < times:
            await asyncio.sleep(0.001)
        for _, writer in lines:
            writer.close()
        for server in servers:
            server.close()
        return found

    with WorkerSocket("127.0.0.1", 0) as bound:
        workers = [pickle.loads(ForkingPickler.dumps(bound)) for _ in range(2)]
        assert {each.getsockname() for each in workers} == {bound.getsockname()}
        found = asyncio.run(connected(workers, 64))
    assert min(map(len, found)) > 8, "of 64 connections 32 are expected, and less than 9 in 2e-10 of all cases"
    assert all(nodelay for taken in found for nodelay in taken)


class Accepted(asyncio.Protocol):
    """Notes whether what is written leaves at once."""

    def __init__(self, taken):
        self.taken = taken

    def connection_made(self, transport):
        line = transport.get_extra_info("socket")
        self.taken.append(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def test_a_port_that_is_taken_is_said_in_plain_words(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        configured(tmp_path, port=taken.getsockname()[1])
        process = started(tmp_path)
        _, said = process.communicate(timeout=90)
    assert process.returncode == 2 and "cannot listen on 127.0.0.1" in said
    assert "Traceback" not in said and "the dashboard is at" not in said


def test_two_services_that_start_at_the_same_moment_do_not_share_a_port(tmp_path):
    """Neither listens yet, and workers share a port: half of all requests, stops too, would reach another log."""
    configured(tmp_path)
    config = read_config(tmp_path / "service.toml")
    with claim_port(config):
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(InputError, match="Is a service running there"):
                claim_port(config.model_copy(update={"host": host}))
        claim_port(config.model_copy(update={"host": "127.0.0.2"})).close()
    claim_port(config).close()


def test_a_check_writes_nothing_to_a_log_that_a_service_may_be_using(tmp_path):
    """A rehearsal with other guards must not take those of the running service away."""
    configured(tmp_path)
    path, command = tmp_path / "service.toml", [sys.executable, "-m", "tether", "serve", "--check"]
    told = path.read_text()
    path.write_text(f"{told}\n[guards]\nmax_age = 60.0\n")
    advisor = make_advisor(read_config(path))
    advisor.decide(0)
    path.write_text(f"{told}\n[guards]\nlive_rate = 0.9\n")
    before = advisor.store.head()
    done = subprocess.run([*command, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert advisor.store.head() == before
    changed = make_advisor(read_config(path))  # a real start does: the section holds as a whole
    assert (changed.replica.ledger.guards.max_age, changed.replica.ledger.guards.live_rate) == (None, 0.9)
    path.write_text(told)
    assert make_advisor(read_config(path)).replica.ledger.guards == changed.replica.ledger.guards


def test_a_cold_start_folds_the_log_once_and_leaves_a_snapshot_for_every_worker(tmp_path, monkeypatch):
    configured(tmp_path)
    config = read_config(tmp_path / "service.toml")
    with make_advisor(config) as advisor:  # 5000 entries before it saves anything
        for _ in range(12):
            advisor.record(advisor.decide(0).id, 0.5, 0.1)
        hashes = [entry.hash for entry in advisor.store.read()]
    folded, apply = [], Replica.apply
    monkeypatch.setattr(Replica, "apply", lambda *given: (folded.append(given[1].hash), apply(*given)))
    monkeypatch.setattr("tether.service.run.MUCH", 10)
    check_start(config, saves=True)
    make_advisor(config).close()
    make_advisor(config).close()
    assert [each for each in folded if each in hashes] == hashes  # the rest is of a small log, to warm up with


def ends_at_once(folder, address, ready=str, **environment):
    """Ctrl-C while somebody waits for news: (seconds, return code, what the wait was answered)."""
    with served(folder, address, **environment) as process:
        ready(address)
        head = httpx.get(f"{address}/v1/status", **PATIENT).json()["head"]["seq"]
        waits = [HTTPConnection(address.removeprefix("http://"), timeout=60) for _ in "ab"]
        for each in waits:
            each.request("GET", f"/v1/events?after={head}&wait=20")
        time.sleep(2.0)  # both are sent, and now taken
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
        seconds = time.monotonic() - began
        answers = [each.getresponse() for each in waits]
        told = [(answer.status, json.load(answer)["head"]) for answer in answers]
    return seconds, code, told, head


def test_ctrl_c_ends_at_once_though_a_dashboard_is_open(tmp_path):
    seconds, code, answers, head = ends_at_once(tmp_path, configured(tmp_path))
    said = (tmp_path / "err").read_text()
    assert seconds < 10.0 and code == 0 and answers == [(200, head)] * 2
    assert "Traceback" not in said and "ERROR" not in said and "WARNING" in said  # no tokens are set


@pytest.mark.slow
def test_several_workers_end_at_once_too(tmp_path, database):
    address = configured(tmp_path, store_from="TETHER_TEST_STORE", workers=2)
    seconds, code, answers, head = ends_at_once(
        tmp_path,
        address,
        lambda address: both_workers(address, lambda fresh: fresh.get("/v1/status")),
        TETHER_TEST_STORE=database.address,
    )
    said = (tmp_path / "err").read_text()
    assert seconds < 10.0 and code == 0 and answers == [(200, head)] * 2
    assert "Traceback" not in said and "ERROR" not in said


WARM = """
import gc
import json
import sys

import numpy as np

from tether import Constraint
from tether.live.advisor import Advisor
from tether.live.policy import Criteria
from tether.problem.action_sets import FiniteActions, StarActions
from tether.problem.problem import Problem
from tether.service.app import warm_up

kind, horizon, listed = json.loads(sys.argv[1])
rows = np.array([[0.5, 0.0, 0.0], [0.4, 0.5, 0.0], [0.4, 0.0, 0.5]])
asked = []


def actions(state):
    asked.append(state)
    return StarActions(rows[0], rows[1:]) if kind == "star" else FiniteActions(rows, 0)


problem = Problem(
    horizon=horizon,
    constraints=Constraint(threshold=0.5, noise=0.05, safe_cost=lambda step, state: 0.1),
    dimension=3,
    actions=actions,
    states=range(3) if listed else None,
)
advisor = Advisor(problem)
before, seen = advisor.store.head(), len(asked)
warm_up(advisor)
assert advisor.store.head() == before and len(asked) == seen


def kernels():
    dispatchers = [each for each in gc.get_objects() if type(each).__name__ == "CPUDispatcher"]
    return {
        f"{each.py_func.__module__}.{each.py_func.__name__}": len(each.signatures) for each in dispatchers
    }


had = kernels()
for step in range(horizon):
    decision = advisor.decide(1, step, "day")
    advisor.record(decision.id, 0.5, 0.1, 2)
print(json.dumps([name for name, number in kernels().items() if number != had.get(name)]))
"""


@pytest.mark.parametrize("case", [["star", 1, True], ["finite", 3, True], ["star", 3, False]])
def test_after_the_start_no_decision_or_outcome_waits_for_a_kernel(case):
    done = subprocess.run(
        [sys.executable, "-c", WARM, json.dumps(case)], capture_output=True, text=True, timeout=300, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


NOWHERE = """
mount --bind "$1" "$1" && mount -o remount,bind,ro / || exit 77
exec env -i PATH=/usr/bin:/bin setpriv --reuid 65534 --regid 65534 --clear-groups "$2" -m tether serve "$1/service.toml"
"""


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs a mount namespace")
def test_it_starts_as_nobody_without_a_home_on_a_read_only_root(tmp_path):
    """As in a hardened container: only the folder of the log can be written to. The second time from a snapshot."""
    address = configured(tmp_path, snapshot_every=1)
    for folder in (tmp_path, *(parent for parent in tmp_path.parents if "pytest" in str(parent))):
        folder.chmod(0o777)
    command = ["unshare", "--mount", "sh", "-c", NOWHERE, "sh", str(tmp_path), sys.executable]
    for _ in range(2):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            said = next((line for line in process.stderr if "the dashboard is at" in line), "")
            if not said and process.wait(60) in (1, 77, 126, 127):
                pytest.skip("no mount namespace here, or nobody may not run this Python")
            made = httpx.post(f"{address}/v1/decisions", json={"state": 0}, **PATIENT).json()
            outcome = {"decision_id": made["id"], "reward": 0.1, "cost": 0.1}
            assert httpx.post(f"{address}/v1/outcomes", json=outcome, **PATIENT).status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        assert "no snapshot could be saved" not in said and "Finished server" in said, said[-2000:]
