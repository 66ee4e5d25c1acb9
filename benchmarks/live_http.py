"""Requests per second over HTTP, logged durably, against an endpoint of the same server that returns a constant.

The constant stands behind the same doorway: token, role, limits, and a request body that is checked.

    python benchmarks/live_http.py [--seconds 6] [--clients 32] [--postgres] [--workers 2] [--features-take 5]

The server runs in a process of its own (one worker), the load in this one: so many connections, each of which sends its
next request when it has the answer to the last. The phases take turns, so that the ratio is fair on a busy machine. The
advisor is live, and its outcomes are those of a linear cost: nothing trips, and most decisions are not the safe action.

With `--features-take` every state is a new one, and the problem's own function needs so many milliseconds for its
actions, as those of users may: then deciding is the work, and one can see whether several workers share it, even on two
cores, which the load and the database need, too.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from results import note, parsed, show

ROOT = Path(__file__).resolve().parent.parent


def free_port():
    """A port that nobody listens on: two benchmarks may run on one machine."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


PORT = int(os.environ.setdefault("TETHER_BENCH_PORT", str(free_port())))  # the server's process finds it there
PROBLEM = '''
import os
import time

import numpy as np
from tether import Constraint, Problem, StarActions

TAKES = float(os.environ.get("TETHER_BENCH_FEATURES_TAKE", 0.0))
GAMMA, THETA = np.random.default_rng(1).uniform(size=(2, 20))

def problem():
    """N = 100 rays, d = 20, features on the simplex, H = 1."""
    rng = np.random.default_rng(0)
    phi_0 = rng.dirichlet(np.ones(20), size=50)
    costs = (phi_0 @ GAMMA)[None]
    rays = rng.dirichlet(np.full(20, 0.3), size=(50, 100))
    limit = Constraint(threshold=float(costs.max()) + 0.1, noise=0.05, safe_cost=costs)
    if not TAKES:
        return Problem.from_rays(phi_0=phi_0, endpoints=rays, constraints=limit, horizon=1)
    sets = [StarActions(*each) for each in zip(phi_0, rays, strict=True)]

    def actions(state):
        end = time.thread_time() + 1e-3 * TAKES
        while time.thread_time() < end:
            pass
        return sets[int(state)]

    limit = Constraint(threshold=limit.threshold, noise=0.05, safe_cost=lambda step, state: costs[0, int(state)])
    return Problem(dimension=20, actions=actions, constraints=limit, horizon=1)
'''


TRUTH = {}
exec(PROBLEM, TRUTH)  # what the advisor is not told


def serve(config_path):
    """The service itself, with one endpoint more."""
    import uvicorn

    from tether.service.app import create_app
    from tether.service.config import read_config
    from tether.service.http import Endpoint, Json
    from tether.service.models import DecisionRequest
    from tether.service.run import server_options

    config = read_config(Path(config_path))
    app = create_app(config)

    async def constant(request, asked):
        return Json(b'{"constant":true}')

    app.add(Endpoint("POST", "/v1/constant", constant, role="decide", takes=DecisionRequest))
    uvicorn.run(app, port=PORT, log_config=None, access_log=False, **server_options(config))


class Connection(asyncio.Protocol):
    """One keep-alive connection that asks and waits, with as little work as can be: the load shares the machine."""

    def __init__(self, token):
        self.head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}\r\n"
        self.received, self.answer = b"", None

    async def open(self):
        """Connect."""
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", PORT)

    async def post(self, path, body):
        """The body of the answer; anything but 200 ends the benchmark."""
        return await self.ask("POST", path, json.dumps(body))

    async def ask(self, method, path, text=""):
        """The same for any method."""
        self.answer = asyncio.get_running_loop().create_future()
        request = f"{method} {path} HTTP/1.1\r\n{self.head}Content-Length: {len(text)}\r\n\r\n{text}"
        self.transport.write(request.encode())
        status, answer = await self.answer
        if status != 200:
            raise SystemExit(f"{path} answered {status}: {answer[:300].decode()}")
        return answer

    def data_received(self, data):
        """A part of an answer, or all of it."""
        self.received += data
        header, found, rest = self.received.partition(b"\r\n\r\n")
        if found and len(rest) == int(header.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            self.received = b""
            self.answer.set_result((int(header[9:12]), rest))

    def connection_lost(self, error):
        """The server hung up; whoever waits for an answer is told."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionError("the server hung up"))


async def phase(clients, seconds, work):
    """Let every connection repeat `work` (which returns its requests' times): requests per second, and all times."""
    latencies, end = [], time.perf_counter() + seconds

    async def one(connection, number):
        rng = np.random.default_rng(number)
        while time.perf_counter() < end:
            latencies.extend(await work(connection, rng))

    began = time.perf_counter()
    await asyncio.gather(*(one(connection, number) for number, connection in enumerate(clients)))
    return len(latencies) / (time.perf_counter() - began), np.array(latencies)


def new_state(rng):
    """One of fifty, or any number below."""
    return float(rng.uniform(0.0, 50.0)) if TRUTH["TAKES"] else int(rng.integers(50))


async def constant(connection, rng):
    began = time.perf_counter()
    await connection.post("/v1/constant", {"state": int(rng.integers(50)), "step": 0})
    return [time.perf_counter() - began]


async def decide(connection, rng):
    began = time.perf_counter()
    await connection.post("/v1/decisions", {"state": new_state(rng), "step": 0})
    return [time.perf_counter() - began]


async def decide_and_record(connection, rng):
    began = time.perf_counter()
    answer = json.loads(await connection.post("/v1/decisions", {"state": new_state(rng), "step": 0}))
    between = time.perf_counter()
    told = {"decision_id": answer["id"], **outcome_of(answer["certificate"]["feature"], rng)}
    await connection.post("/v1/outcomes", told)
    return [between - began, time.perf_counter() - between]


def outcome_of(feature, rng):
    """What the world of PROBLEM answers to an action with this feature."""
    cost = float(TRUTH["GAMMA"] @ feature) + 0.05 * float(rng.standard_normal())
    return {"reward": float(TRUTH["THETA"] @ feature), "cost": cost}


PHASES = {"constant": constant, "decide": decide, "decide and record in turn": decide_and_record}


async def measure(args, token, server):
    """All phases in turn, `rounds` times, so that what else runs on the machine disturbs them alike."""
    clients = [Connection(token) for _ in range(args.clients)]
    for client in clients:
        await client.open()
    await phase(clients, 3.0, decide_and_record)
    await clients[0].post("/v1/mode", {"mode": "live", "why": "the benchmark, after its shadow", "override": True})
    phases = PHASES if args.workers == 1 else {name: PHASES[name] for name in PHASES if name != "constant"}
    rates, times, cpu = ({name: [] for name in phases} for _ in range(3))
    for _ in range(args.rounds):
        for name, work in phases.items():
            before = cpu_seconds(server)
            rate, latencies = await phase(clients, args.seconds / args.rounds, work)
            rates[name].append(rate)
            times[name].append(latencies)
            cpu[name].append(1e6 * (cpu_seconds(server) - before) / len(latencies))
    status = json.loads(await clients[0].ask("GET", "/v1/status"))
    counts, alarm = status["counts"], status["alarm"]
    others = 1.0 - counts["baseline"] / counts["decisions"]
    note(f"{counts['decisions']} decisions, {others:.0%} of them not a_0; {alarm['message'] if alarm else 'no alarm'}")
    base = np.array(rates.get("constant", np.nan))
    lines = []
    for name in phases:
        p50, p99 = 1e3 * np.quantile(np.concatenate(times[name]), [0.5, 0.99])
        ratio, rate = np.median(np.array(rates[name]) / base), np.mean(rates[name])
        share = f"{ratio:.2f}" if np.isfinite(ratio) else "–"
        more = [f"{p50:.0f} ms", f"{p99:.0f} ms", f"{np.median(cpu[name]):.0f} µs"]
        lines.append([name, f"{rate:.0f}", share, *more])
    return lines


def cpu_seconds(server):
    """What the server's processes have used so far, on all of their threads. Other programs do not disturb this."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in (server.pid, *children)]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def run(args, store):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "bench_problem.py").write_text(PROBLEM)
        from tether.service.auth import add_token

        token = add_token(folder / "tokens.json", "bench", ("decide", "record", "read", "admin"), None)
        config = f'problem = "bench_problem:problem"\ntokens = "tokens.json"\nport = {PORT}\n'
        config += 'store = "log.db"\n' if store is None else 'store_from = "TETHER_BENCH_STORE"\n'
        config += f"workers = {args.workers}\n"
        (folder / "service.toml").write_text(config)
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as `tether serve` sets it
        environment = {**os.environ, **one_thread, "TETHER_BENCH_STORE": store or ""}
        here = [__file__, "--serve"] if args.workers == 1 else ["-m", "tether", "serve", "--no-access-log"]
        server = subprocess.Popen([sys.executable, *here, folder / "service.toml"], env=environment, stdout=sys.stderr)
        try:
            wait_for_server(server)
            return asyncio.run(measure(args, token, server))
        finally:
            server.terminate()
            server.wait(30)


def run_on_postgres(args):
    sys.path.insert(0, str(ROOT / "tests"))
    from live.postgres import Server

    database = Server()
    database.start()
    try:
        return run(args, database.address)
    finally:
        database.remove()


def wait_for_server(server):
    import httpx

    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit("the server did not start")
        try:
            httpx.get(f"http://127.0.0.1:{PORT}/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each phase")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--workers", type=int, default=1, help="more than one: PostgreSQL only, without the constant")
    parser.add_argument("--features-take", type=float, default=0.0, help="milliseconds of a core per decision")
    args = parsed(parser, seconds=0.5, rounds=1)
    if args.serve:
        serve(args.serve)
        raise SystemExit
    os.environ["TETHER_BENCH_FEATURES_TAKE"] = str(args.features_take)
    exec(PROBLEM, TRUTH)  # once more, as these options want it
    lines = [[f"{name}, SQLite", *rest] for name, *rest in run(args, None)] if args.workers == 1 else []
    if args.postgres:
        lines += [[f"{name}, PostgreSQL", *rest] for name, *rest in run_on_postgres(args)]
    heads = ["", "requests per second", "as a share of the constant's", "p50", "p99", "processor"]
    sizes = f"{args.clients} clients, {args.workers} worker{'s' * (args.workers > 1)}, {args.seconds:g} s a phase"
    show(args, f"{sizes}, every answer synced to disk", timed=True, table=(heads, lines))
