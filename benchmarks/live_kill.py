"""Kill the service with signal 9 at random moments under load, again and again, and look at what is left.

    python benchmarks/live_kill.py [--kills 300] [--clients 8] [--seed 0] [--postgres]

Nothing that was acknowledged may be lost, nothing may be counted twice, the chain must hold, and the next decision must
be that of a twin which was never interrupted: a fresh learner that is given the same outcomes, one by one, in memory.
The advisor is live, and its outcomes are those of a linear cost: nothing trips, and each state has its own decision.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from tether import Upkeep

sys.path.insert(0, str(Path(__file__).resolve().parent))
from live_http import PROBLEM, outcome_of

STATES = 50


class Service:
    """`tether serve` in a process of its own, started again after every kill."""

    def __init__(self, folder, store):
        self.port, self.folder, self.process = free_port(), folder, None
        (folder / "bench_problem.py").write_text(PROBLEM)
        where = 'store = "log.db"' if store is None else 'store_from = "TETHER_BENCH_STORE"'
        config = f'problem = "bench_problem:problem"\n{where}\nport = {self.port}\nsnapshot_every = 50\n'
        (folder / "service.toml").write_text(config)
        self.environment = {**os.environ, "TETHER_BENCH_STORE": store or ""}
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        """Start it; returns at once."""
        command = [sys.executable, "-m", "tether", "serve", str(self.folder / "service.toml"), "--no-access-log"]
        self.process = subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL)

    def answers(self):
        """Whether somebody listens."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=0.2):
            return True
        return False

    def kill(self):
        """Signal 9: no handler runs, nothing is flushed."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def free_port():
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Caller(threading.Thread):
    """One client: decides and records, repeats with the same key what got no answer, notes what was acknowledged."""

    def __init__(self, number, url, over):
        super().__init__(daemon=True)
        self.rng, self.number, self.url, self.over = np.random.default_rng(number), number, url, over
        self.decisions, self.outcomes, self.repeats = {}, {}, 0

    def run(self):
        """Until it is over."""
        from tether.service.client import Client

        with Client(self.url, retries=0, timeout=5.0) as client:
            count = 0
            while not self.over.is_set():
                key, state = f"{self.number}-{count}", int(self.rng.integers(STATES))
                made = self.until_answered(lambda key=key, state=state: client.decide(state, key=key))
                count += 1
                if made is None or not made.logged:  # its key may be logged all the same: take another
                    continue
                self.decisions[key] = made.id
                reward, cost = outcome_of(made.certificate["feature"], self.rng).values()
                told = self.until_answered(lambda made=made, r=reward, z=cost: client.record(made.id, r, z))
                if told is not None:
                    self.outcomes[made.id] = (reward, cost)

    def until_answered(self, call):
        """The answer, however often it takes; None when it is over first."""
        from tether.service.client import ServiceError

        while not self.over.is_set():
            try:
                return call()
            except ServiceError as error:
                if error.status not in (0, 503):
                    raise
                self.repeats += 1
                time.sleep(0.02)
        return None


def torment(service, kills, clients, seed):
    """Let the callers run while the service is killed; returns them."""
    rng, over = np.random.default_rng(seed), threading.Event()
    service.start()
    callers = [Caller(number, service.url, over) for number in range(clients)]
    for caller in callers:
        caller.start()
    promote(service, callers)
    for number in range(kills):
        while not service.answers():
            if service.process.poll() is not None:
                raise SystemExit("the service did not come back")
            time.sleep(0.02)
        time.sleep(float(rng.uniform(0.0, 0.6)))
        service.kill()
        service.start()
        if (number + 1) % 20 == 0:
            print(f"  {number + 1} kills, {sum(len(c.outcomes) for c in callers)} outcomes acknowledged", flush=True)
    while not service.answers():
        time.sleep(0.02)
    time.sleep(1.0)
    over.set()
    for caller in callers:
        caller.join(30)
    service.process.terminate()
    service.process.wait(60)
    return callers


def promote(service, callers):
    """To live, once the criteria are met: a shadow that plays the safe action only would be an easy case."""
    from tether.service.client import Client

    while sum(len(caller.outcomes) for caller in callers) < 300:
        time.sleep(0.05)
    with Client(service.url) as client:
        client.set_mode("live", why="the benchmark: shadow criteria are met", override=True)


def judge(callers, address, folder):
    """Compare what was acknowledged with what the log holds; raises on any difference."""
    from tether.live.advisor import Advisor
    from tether.live.log import open_store
    from tether.live.log.chain import Draft, verify_store
    from tether.live.log.memory import MemoryStore
    from tether.problem.problem import load_problem

    store, problem = open_store(address), load_problem("bench_problem:problem", folder)
    verdict = verify_store(store)
    if verdict.fault is not None:
        raise SystemExit(f"the chain is broken: {verdict.fault}")
    entries, after = [], 0
    while page := store.read(after):
        entries += page
        after = page[-1].seq
    decided = [entry.body for entry in entries if entry.kind == "decision"]
    seen = [entry.body for entry in entries if entry.kind == "outcome"]
    ids, told = [body["decision_id"] for body in decided], {body["decision_id"]: body for body in seen}
    keys = [body["key"] for body in decided]
    checks = {
        "a decision twice": len(ids) - len(set(ids)),
        "a key twice": len(keys) - len(set(keys)),
        "an outcome twice": len(seen) - len(told),
        "an acknowledged decision lost": sum(id not in set(ids) for c in callers for id in c.decisions.values()),
        "an acknowledged outcome lost": sum(id not in told for c in callers for id in c.outcomes),
        "an outcome altered": sum(
            (told[id]["reward"], told[id]["cost"]) != (reward, [cost])
            for c in callers
            for id, (reward, cost) in c.outcomes.items()
            if id in told
        ),
    }
    twin_store = MemoryStore()
    twin = Advisor(problem, twin_store, upkeep=Upkeep(refresh=None))
    for entry in entries[1:]:
        twin_store.append([Draft(entry.kind, entry.body, entry.unique)])
        twin.sync()
    survivor = Advisor(problem, store)
    different = others = 0
    for state in range(STATES):
        one, two = survivor.decide(state), twin.decide(state)
        others += not one.is_baseline
        same = one.proposed == two.proposed and one.certificate.limits == two.certificate.limits
        proposals = [None if each.proposal is None else each.proposal.limits for each in (one, two)]
        different += not (same and proposals[0] == proposals[1])
    checks["a next decision that differs from the twin's"] = different
    for what, count in checks.items():
        print(f"  {what}: {count}")
    print(f"  (of the {STATES} next decisions {others} are not a_0; mode {survivor.status().mode})")
    repeats = sum(c.repeats for c in callers)
    print(f"  {len(decided)} decisions and {len(seen)} outcomes in {len(entries)} entries; {repeats} requests repeated")
    return not any(checks.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, server = Path(name), None
        if args.postgres:
            sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
            from live.postgres import Server

            server = Server()
            server.start()
        try:
            service = Service(folder, None if server is None else server.address)
            callers = torment(service, args.kills, args.clients, args.seed)
            address = str(folder / "log.db") if server is None else server.address
            print(f"{args.kills} x kill -9, {args.clients} clients, {'PostgreSQL' if args.postgres else 'SQLite'}")
            if not judge(callers, address, folder):
                raise SystemExit(1)
        finally:
            if server is not None:
                server.remove()


if __name__ == "__main__":
    main()
