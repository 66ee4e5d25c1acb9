"""How soon a stop takes effect, and whether /readyz answers, while many read and many decide.

    python benchmarks/live_stop.py [--deciders 32] [--readers 50] [--decisions 5000] [--rounds 5] [--workers 2]

The server runs in a process of its own (one worker with SQLite, several with PostgreSQL), with so many decisions in its
log. Readers ask for /v1/series and /v1/status in turn, as fast as they are answered. In each round somebody orders a
stop; it is in effect when the last action other than a_0 has arrived, from whichever worker. Then it is released, for
the next round.
"""

import argparse
import asyncio
import json
import time
from contextlib import suppress

import live_http as http
import numpy as np
from results import note, parsed, show


async def keep_deciding(connection, rng, learned):
    """Ask for decisions until the end; `learned` gets the time at which each action other than a_0 arrived."""
    while True:
        with suppress(SystemExit):  # 503 with a_0: under way when the stop came
            answer = await connection.post("/v1/decisions", {"state": int(rng.integers(50)), "step": 0})
            if not json.loads(answer)["is_baseline"]:
                learned.append(time.perf_counter())


async def keep_reading(connection, number):
    """Ask for charts or the status until the end, also where that is refused."""
    while True:
        try:
            await connection.ask("GET", "/v1/series" if number % 2 else "/v1/status")
        except SystemExit:
            await asyncio.sleep(1.0)  # Retry-After


async def measure(args, token, server):
    """The rounds, and their worst and middle times."""
    connections = [http.Connection(token) for _ in range(args.deciders + args.readers + 1)]
    for connection in connections:
        await connection.open()
    admin, deciders = connections[0], connections[1 : args.deciders + 1]
    await http.phase(deciders, 8.0, http.decide_and_record)
    await admin.post("/v1/mode", {"mode": "live", "why": "the benchmark, after its shadow", "override": True})
    while json.loads(await admin.ask("GET", "/v1/status"))["counts"]["decisions"] < args.decisions:
        await http.phase(deciders, 1.0, http.decide)
    learned, times = [], {"effect": [], "answer": [], "readyz": []}
    load = [keep_deciding(each, np.random.default_rng(n), learned) for n, each in enumerate(deciders)]
    load += [keep_reading(each, n) for n, each in enumerate(connections[args.deciders + 1 :])]
    tasks = [asyncio.create_task(each) for each in load]
    for _ in range(args.rounds):
        await asyncio.sleep(3.0)
        asked = time.perf_counter()
        await admin.ask("GET", "/readyz")
        began = time.perf_counter()
        await admin.post("/v1/stop", {"why": "the benchmark"})
        answered = time.perf_counter()
        await asyncio.sleep(2.0)
        times["readyz"].append(began - asked)
        times["answer"].append(answered - began)
        times["effect"].append(max([0.0, *(each - began for each in learned if each > began)]))
        await admin.post("/v1/resume", {"why": "the next round"})
    note(f"{len(learned)} actions other than a_0 arrived")
    for connection in connections:
        connection.transport.abort()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [[f"{1e3 * np.median(values):.0f} ms", f"{1e3 * max(values):.0f} ms"] for values in times.values()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--deciders", type=int, default=32)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--decisions", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    args = parsed(parser, deciders=4, readers=4, decisions=100, rounds=1)
    where = "SQLite, one worker" if args.workers == 1 else f"PostgreSQL, {args.workers} workers"
    http.measure = measure
    found = http.run(args, None) if args.workers == 1 else http.run_on_postgres(args)
    names = ("until a stop is in effect", "until the order is answered", "`/readyz` meanwhile")
    lines = [[name, *cells] for name, cells in zip(names, found, strict=True)]
    sizes = f"{where}, {args.rounds} stops beside {args.deciders} deciders and {args.readers} readers"
    show(args, sizes, timed=True, table=(["", "median", "worst"], lines))
