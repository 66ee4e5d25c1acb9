"""Fuzz a running service and the advisor: requests from the OpenAPI description, bent bodies, calls in odd orders.

    python benchmarks/fuzz.py [--requests 100000] [--seed 0]

No answer may be a 5xx, every answer to a decision must carry a valid certificate, callers without a token must change
nothing, and the log's chain must hold at the end. Two fifths of the requests are bodies bent here, two fifths come from
schemathesis, and a fifth are calls of two advisors on one log that fails (tests/live/test_advisor_machine.py).
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.stateful import run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "service"))
from service_app import new_advisor, serving, tokens_of_every_kind

from live.test_advisor_machine import AdvisorMachine
from tether.live.advisor import Advisor
from tether.live.certificate import Certificate
from tether.live.log.chain import verify_store

ODD = [None, True, -1, 0, 3, 7, 1e308, -0.0, 2**70, "", "0", "\x00", "é" * 50, [], [[0]], {}, {"tuple": [1]}, [0.5] * 3]
PATHS = ("/v1/decisions", "/v1/outcomes", "/v1/mode", "/v1/stop", "/v1/resume", "/v1/alarm/reset")


class Tally:
    """What was answered, and the first thing that must not be."""

    def __init__(self):
        self.statuses, self.wrong = Counter(), []

    def look(self, path, method, response):
        """Note one answer."""
        self.statuses[response.status_code] += 1
        if response.status_code >= 500:
            self.wrong.append((method, path, response.status_code, response.text[:200]))
        if path == "/v1/decisions" and method == "POST" and response.status_code == 200:
            made = response.json()
            certificate = Certificate.from_json(made["certificate"])
            if not (certificate.holds and made["logged"] and certificate.is_baseline == made["is_baseline"]):
                self.wrong.append((method, path, "no valid certificate", response.text[:200]))


def from_the_description(client, count, header, tally, number):
    """So many requests by schemathesis, spread over all operations but the one that waits."""
    schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations() if found.ok().path != "/v1/events"]
    for operation in operations:

        @seed(number)
        @settings(
            max_examples=max(1, count // len(operations)),
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy())
        def ask(case):
            tally.look(case.operation.path, case.method, case.call(headers={"Authorization": header}))

        ask()


def bent(rng, known):
    """A path and a body near what is right: fields dropped, doubled, replaced, or bytes flipped."""
    path = PATHS[rng.integers(len(PATHS))] if rng.random() < 0.3 else PATHS[rng.integers(2)]
    body = {
        "/v1/decisions": {"state": int(rng.integers(4)), "step": 0, "episode": "e"},
        "/v1/outcomes": {"decision_id": known[rng.integers(len(known))], "reward": 0.5, "cost": 0.2},
        "/v1/mode": {"mode": "live", "why": "fuzz"},
    }.get(path, {"why": "fuzz"})
    for name in list(body):
        dice = rng.random()
        if dice < 0.1:
            del body[name]
        elif dice < 0.3:
            body[name] = ODD[rng.integers(len(ODD))]
        elif dice < 0.33:
            body[name + "x"] = body[name]
    text = bytearray(json.dumps(body).encode())
    if rng.random() < 0.15:
        for place in rng.integers(len(text), size=3):
            text[place] = rng.integers(256)
    return path, bytes(text)


def from_here(client, count, headers, store, tally, number):
    """So many bent requests; a tenth of them without a valid token, after which the log must be what it was."""
    rng, known = np.random.default_rng(number), ["none"]
    for _ in range(count):
        path, body = bent(rng, known)
        told = {"Content-Type": "application/json", "Authorization": headers["all"]}
        if rng.random() < 0.1:
            before, told["Authorization"] = store.head(), headers["garbage"]
            response = client.post(path, content=body, headers=told)
            if response.status_code != 401 or store.head() != before:
                tally.wrong.append(("POST", path, "changed without a token", response.text[:200]))
        else:
            response = client.post(path, content=body, headers=told)
            if path == "/v1/decisions" and response.status_code == 200:
                known = [*known[-50:], response.json()["id"]]
        tally.look(path, "POST", response)


def against_the_advisor(count, tally, number):
    """At least so many calls of `decide` and `record`, in whatever order hypothesis thinks of; the machine asserts."""
    plain = Advisor.decide, Advisor.record

    def counted(call):
        def asked(*args, **named):
            tally.statuses["advisor"] += 1
            return call(*args, **named)

        return asked

    Advisor.decide, Advisor.record = map(counted, plain)
    how = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    try:
        while tally.statuses["advisor"] < count:
            machine = seed(number + tally.statuses["advisor"])(AdvisorMachine)
            run_state_machine_as_test(machine, settings=settings(max_examples=50, stateful_step_count=50, **how))
    finally:
        Advisor.decide, Advisor.record = plain


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began, tally, advisor = time.perf_counter(), Tally(), new_advisor()
    with tempfile.TemporaryDirectory() as folder:
        headers = tokens_of_every_kind(folder)
        from tether.service.auth import ROLES, add_token

        headers["all"] = "Bearer " + add_token(Path(folder) / "tokens.json", "all", ROLES, None)
        with serving(advisor, tokens="tokens.json", folder=Path(folder)) as client:
            from_here(client, 2 * args.requests // 5, headers, advisor.store, tally, args.seed)
            from_the_description(client, 2 * args.requests // 5, headers["all"], tally, args.seed)
            fault = verify_store(advisor.store).fault
            flying = advisor._follower.in_flight
    against_the_advisor(args.requests - sum(tally.statuses.values()), tally, args.seed)
    counts = {str(status): number for status, number in sorted(tally.statuses.items(), key=str)}
    print(f"{sum(counts.values())} requests in {time.perf_counter() - began:.0f} s: {counts}")
    print(f"{len(tally.wrong)} wrong answers; {flying} requests left half done; the chain: {fault or 'holds'}")
    for each in tally.wrong[:10]:
        print("  ", each)
    raise SystemExit(bool(tally.wrong or fault or flying))


if __name__ == "__main__":
    main()
