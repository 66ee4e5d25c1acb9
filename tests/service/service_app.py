"""The service around an advisor, in a thread of the test: a real server, real sockets, and tokens of every kind."""

import asyncio
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn

sys.path.append(str(Path(__file__).resolve().parents[1]))  # tests/live is a package of its own
from limits import kept
from tether.live.advisor import Advisor
from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria
from tether.service.app import create_app
from tether.service.auth import ROLES, add_token
from tether.service.config import ServiceConfig
from tether.service.run import server_options
from worlds import world_and_streams

WORLD = world_and_streams()[0]
PROBLEM = WORLD.problem


def new_advisor(store=None, problem=PROBLEM, **more):
    """An advisor that acts at once, on a log in memory unless told otherwise."""
    settings = {"mode": "live", "criteria": Criteria.none(), **more}
    return Advisor(problem, MemoryStore() if store is None else store, **kept(**settings))


class PromptServer(uvicorn.Server):
    """Looks every 5 ms whether it should end, not every 100: tests start some two hundred of them."""

    async def main_loop(self):
        await self.on_tick(0)  # the headers of every answer
        while not self.should_exit:
            await asyncio.sleep(0.005)


@contextmanager
def serving(advisor, **config):
    """A client of a service around this advisor, until the block ends."""
    told = ServiceConfig(problem="none:needed", **config)
    app, how = create_app(told, advisor), server_options(told)
    server = PromptServer(uvicorn.Config(app, port=0, log_config=None, access_log=False, **how))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
        if not thread.is_alive():
            raise RuntimeError("the service did not start")
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        with plain_client(address) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


PATIENT = {"timeout": 60.0, "verify": False}
"""For single requests: a machine may be busy, and to load the authorities of TLS takes longer than most tests."""


def until(condition, seconds=60.0):
    """Wait for what happens in another thread or process: by a clock, since nobody knows how busy the machine is."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def plain_client(address, **more):
    """A client without TLS."""
    return httpx.Client(base_url=address, **{**PATIENT, **more})


def tokens_of_every_kind(folder):
    """Name -> Authorization header (None: no header), in front of folder/tokens.json."""
    file = Path(folder) / "tokens.json"
    made = {role: add_token(file, role, (role,), None) for role in ROLES}
    made["expired"] = add_token(file, "expired", ROLES, time.time() - 1.0)
    good = made["admin"]
    headers = {name: f"Bearer {token}" for name, token in made.items()}
    return {
        **headers,
        "none": None,
        "garbage": "Bearer tether_garbage",
        "empty": "Bearer",
        "almost": f"Bearer {good[:-1]}{'A' if good[-1] != 'A' else 'B'}",
        "no scheme": good,
        "wrong scheme": f"Basic {good}",
    }


def decide(client, state=0, **more):
    """An answer to a request for a decision, which must be 200."""
    key = more.pop("key", None)
    answer = client.post(
        "/v1/decisions", json={"state": state, **more}, headers={} if key is None else {"Idempotency-Key": key}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def record(client, decision, cost=None, **more):
    """The response to a report of an outcome, at the true cost unless told otherwise."""
    if cost is None:
        cost = float(WORLD.true_gamma[0, 0] @ decision["certificate"]["feature"])
    return client.post("/v1/outcomes", json={"decision_id": decision["id"], "reward": 0.5, "cost": cost, **more})
