"""A stand-in for the service that speaks its JSON, for what a real one does not show on demand: alarms, outages.

Behind it is a small safe linear bandit, so that the curves look as they do in life: heating with τ on discomfort.
"""

import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np

import tether

STATIC = Path(tether.__file__).parent / "service" / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ROLES = {"reader": ["read"], "chief": ["read", "admin"], "caller": ["decide"]}
TAU, SAFE_COST, DIMENSION, ACTIONS = 0.5, 0.2, 5, 24


def digest(text):
    return hashlib.sha256(str(text).encode()).hexdigest()


class Bandit:
    """θ and γ unknown, a0 first in each set, ridge estimates, and a bound conditioned on a0's cost."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.gram = np.eye(DIMENSION)
        self.rewards, self.costs = np.zeros(DIMENSION), np.zeros(DIMENSION)
        self.theta, self.gamma = np.array([0.1, 0.5, 0.3, 0.8, 0.2]), np.array([SAFE_COST, 0.7, 0.1, 0.95, 0.35])

    def choose(self):
        """(state, features (N, d), chosen, bounds (N,), estimated rewards (N,))."""
        outside = float(8 + 7 * np.sin(self.rng.uniform(0, 6.3)) + self.rng.normal())
        others = self.rng.dirichlet(np.ones(DIMENSION) * 0.6, ACTIONS - 1)
        features = np.vstack([np.eye(DIMENSION)[0], others])
        inverse = np.linalg.inv(self.gram)
        share = features @ inverse[0] / inverse[0, 0]
        gamma = inverse @ self.costs
        mean = features @ gamma - share * (gamma[0] - SAFE_COST)
        rest = features - share[:, None] * features[0]
        width = np.sqrt(np.maximum(np.einsum("nd,de,ne->n", rest, inverse, rest), 0))
        bounds = mean + 0.9 * width
        bounds[0] = SAFE_COST
        worth = features @ (inverse @ self.rewards)
        scores = np.where(
            bounds <= TAU, worth + 0.4 * np.sqrt(np.einsum("nd,de,ne->n", features, inverse, features)), -9
        )
        return {"outdoor_c": round(outside, 1), "room": "north"}, features, int(scores.argmax()), bounds, worth

    def feel(self, feature):
        """Reward and cost of playing this, and what is learned from them."""
        reward = float(feature @ self.theta + 0.05 * self.rng.normal())
        cost = float(feature @ self.gamma + 0.05 * self.rng.normal())
        self.gram += np.outer(feature, feature)
        self.rewards += reward * feature
        self.costs += cost * feature
        return reward, cost


class Stub:
    """The service's state, and its answers by path."""

    def __init__(self, *, origin="theorem", bounds="cost", listed=0, is_open=False, seed=0, tick=60.0):
        self.bandit, self.origin, self.bounds, self.is_open, self.tick = Bandit(seed), origin, bounds, is_open, tick
        self.listed = listed
        self.seq, self.rows, self.history, self.asked = 0, [], [], []
        self.mode, self.stopped, self.alarm, self.broken = "live", None, None, False
        self.start, self.revoked, self.actions = time.time(), set(), []
        self.changed = threading.Condition()
        self.orders, self.uplift = [], None
        self.waiting, self.early = None, 0

    def note(self, kind, text, by="chief"):
        """Logs something that is neither a decision nor an outcome."""
        with self.changed:
            self.seq += 1
            self.history.insert(0, {"seq": self.seq, "time": time.time(), "kind": kind, "by": by, "text": text})
            self.changed.notify_all()

    def decide(self, *, outcome=True, at=None):
        """One more decision, as a client of the service would cause it."""
        with self.changed:
            state, features, best, bounds, worth = self.bandit.choose()
            halted = (self.stopped and "stopped") or (self.alarm and "tripped")
            proposed = 0 if halted else best
            played = 0 if self.mode == "shadow" else proposed
            reason = halted or ("best" if best else "baseline-best")
            self.seq += 1
            row = self._row(state, features, proposed, played, reason, bounds)
            row["time"] = time.time() if at is None else at
            if outcome:
                reward, cost = self.bandit.feel(features[played])
                self.seq += 1
                missing = self.bandit.rng.random() < 0.03
                row["outcome"] = {
                    "reward": reward,
                    "cost": None if missing else [cost],
                    "applied": played,
                    "time": row["time"] + 5,
                }
                row["baseline_reward"] = float(worth[0])
            self.rows.append(row)
            self.changed.notify_all()
            return row["id"]

    def certificate(self, features, chosen, bound, reason, detail):
        """As live/records.py writes it."""
        limit = {
            "bound": bound,
            "threshold": TAU,
            "margin": TAU - bound,
            "radius": 2.713,
            "origin": self.origin,
            "baseline_cost_error": 0.0,
            "baseline_cost": SAFE_COST,
            "bounds": self.bounds,
            "listed": self.listed,
            "gate_bound": bound + 1e-12 if chosen else None,
        }
        return {
            "feature": features[chosen].tolist(),
            "limits": [limit],
            "is_baseline": chosen == 0,
            "reason": reason,
            "detail": detail,
            "data_version": len(self.rows),
            "seq": self.seq - 1,
            "head": digest(self.seq - 1),
            "model_hash": digest(("model", self.seq)),
            "kernel": digest("kernel")[:16],
            "library": tether.__version__,
            "numpy": np.__version__,
        }

    def _row(self, state, features, proposed, played, reason, bounds):
        reason = "shadow" if proposed != played else reason
        detail = (self.stopped or {}).get("why", "") if reason == "stopped" else (self.alarm or {}).get("message", "")
        bound = float(bounds[proposed])
        certificate = self.certificate(features, played, float(bounds[played]), reason, detail)
        proposal = None if proposed == played else self.certificate(features, proposed, bound, reason, detail)
        return {
            "id": digest(self.seq)[:16],
            "seq": self.seq,
            "time": 0.0,
            "episode": f"day-{len(self.rows) // 24}",
            "step": 0,
            "state": state,
            "mode": self.mode,
            "proposed": proposed,
            "played": played,
            "is_baseline": played == 0,
            "proposed_is_baseline": proposed == 0,
            "reason": reason,
            "detail": detail,
            "bound": bound,
            "threshold": TAU,
            "margin": TAU - bound,
            "constraint": 0,
            "radius_origin": self.origin,
            "bounds": self.bounds,
            "certified_share": float(np.mean(bounds <= TAU)),
            "outcome": None,
            "certificate": certificate,
            "proposal": proposal,
            "entry": {"seq": self.seq, "hash": digest(self.seq), "previous": digest(self.seq - 1)},
        }

    def status(self, who):
        done = [row for row in self.rows if row["outcome"]]
        return {
            "you": {"name": who, "roles": ROLES.get(who, ["decide", "record", "read", "admin"])},
            "open": self.is_open,
            "problem": "Heating of the north wing",
            "horizon": 1,
            "library_version": tether.__version__,
            "time": time.time(),
            "mode": self.mode,
            "mode_since": self.start,
            "stopped": self.stopped,
            "alarm": self.alarm,
            "head": {"seq": self.seq, "hash": digest(self.seq)},
            "data_version": len(done),
            "model_hash": digest(("model", self.seq)),
            "counts": {
                "decisions": len(self.rows),
                "baseline": sum(row["is_baseline"] for row in self.rows),
                "outcomes": len(done),
                "costs": sum(row["outcome"]["cost"] is not None for row in done),
                "gate_refusals": 0,
                "open": len(self.rows) - len(done),
                "waiting": self.early,
            },
            "waiting": self.waiting,
            "constraints": [{"name": "Discomfort", "threshold": TAU}],
            "radius": {"value": 2.713, "origin": self.origin},
            "bounds": self.bounds,
            "certified_share": self.rows[-1]["certified_share"] if self.rows else None,
            "uplift": self.uplift,
            "history": self.history[:20],
            "units": {"reward": "kWh", "cost": ["K"]},
            "actions": self.actions,
        }

    def series(self, window, points):
        chosen = self.rows[-window:] if window else self.rows
        size = max(1, -(-len(chosen) // points))
        runs = [chosen[i : i + size] for i in range(0, len(chosen), size)]
        first, done = len(self.rows) - len(chosen), [[row for row in run if row["outcome"]] for run in runs]
        earlier = [row for row in self.rows[:first] if row["outcome"]]
        total = lambda rows, key: sum(row["outcome"]["reward"] if key == "reward" else row[key] for row in rows)  # noqa: E731
        return {
            "window": window,
            "total": len(self.rows),
            "threshold": TAU,
            "baseline_reward_source": "estimated",
            "index": [min(first + (i + 1) * size, len(self.rows)) for i in range(len(runs))],
            "time": [run[-1]["time"] for run in runs],
            "count": [len(run) for run in runs],
            "id": [run[0]["id"] if len(run) == 1 else None for run in runs],
            "baseline": [sum(row["proposed_is_baseline"] for row in run) for run in runs],
            "margin_min": [min(row["margin"] for row in run) for run in runs],
            "margin_mean": [sum(row["margin"] for row in run) / len(run) for run in runs],
            "certified_share": [sum(row["certified_share"] for row in run) / len(run) for run in runs],
            "outcomes": [len(run) for run in done],
            "reward_sum": [total(run, "reward") for run in done],
            "baseline_reward_sum": [total(run, "baseline_reward") if run else None for run in done],
            "before": {
                "reward_sum": total(earlier, "reward"),
                "baseline_reward_sum": total(earlier, "baseline_reward"),
            },
        }

    def page(self, limit, before, kind):
        wanted = {"all": (True, False), "baseline": (True,), "other": (False,)}[kind]
        found = [row for row in reversed(self.rows) if row["seq"] < before and row["proposed_is_baseline"] in wanted]
        rows = [
            {key: row[key] for key in row if key not in ("certificate", "proposal", "entry")} for row in found[:limit]
        ]
        return {"decisions": rows, "next": rows[-1]["seq"] if len(found) > limit else None}

    def wait(self, after, seconds):
        with self.changed:
            self.changed.wait_for(lambda: self.seq > after or self.broken, timeout=min(seconds, self.tick))
            return {"head": self.seq, "kinds": []}

    def do(self, path, body, who):
        """A POST of an admin: (status code, answer)."""
        why = str(body.get("why", ""))
        self.orders.append(body)
        if not why:
            return 422, {"title": "A reason is missing", "detail": "why must not be empty."}
        if path == "/v1/mode" and body["mode"] == "live" and len(self.rows) < 100:
            unmet = [f"outcomes recorded: {len(self.rows)}, needed: 100"]
            return 409, {"title": "Promotion refused", "detail": "Promotion to live is refused.", "unmet": unmet}
        fact = {"by": who, "why": why, "time": time.time()}
        if path == "/v1/stop":
            self.stopped = fact
        elif path == "/v1/resume":
            self.stopped = None
        elif path == "/v1/alarm/reset":
            self.alarm = None
        elif path == "/v1/mode":
            self.mode = body["mode"]
        kind = {"/v1/stop": "stopped", "/v1/resume": "resumed", "/v1/alarm/reset": "alarm-reset", "/v1/mode": "mode"}[
            path
        ]
        self.note(kind, f"{body.get('mode', '')} {why}".strip(), who)
        return 200, self.status(who)


class Handler(BaseHTTPRequestHandler):
    """HTTP around a Stub."""

    protocol_version = "HTTP/1.1"
    stub: Stub

    def log_message(self, *_):
        pass

    def send(self, code, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(data))),
            ("Content-Security-Policy", POLICY),
        ):
            self.send_header(name, value)
        try:
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:  # the page that asked has gone
            self.close_connection = True

    def do_GET(self):
        address = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        name = "index.html" if address.path == "/" else address.path.removeprefix("/static/")
        if address.path == "/" or address.path.startswith("/static/"):
            return self.send(200, (STATIC / name).read_bytes(), TYPES[Path(name).suffix])
        return self.answer(lambda who: self.read(address.path, query, who))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return self.answer(lambda who: self.stub.do(self.path, body, who), role="admin")

    def answer(self, work, role="read"):
        who = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self.stub.broken:
            return self.close_connection_rudely()
        if self.path == "/healthz":
            return self.send(200, {"status": "ok", "open": self.stub.is_open})
        if (who not in ROLES or who in self.stub.revoked) and not self.stub.is_open:
            return self.send(401, {"title": "Unauthorized", "status": 401})
        if not self.stub.is_open and role not in ROLES[who]:
            return self.send(403, {"title": "Forbidden", "status": 403})
        return self.send(*work(who))

    def close_connection_rudely(self):
        self.close_connection = True
        self.connection.close()

    def read(self, path, query, who):
        stub = self.stub
        if path == "/v1/status":
            return 200, stub.status(who)
        if path == "/v1/series":
            return 200, stub.series(int(query["window"]), int(query["points"]))
        if path == "/v1/decisions":
            return 200, stub.page(int(query["limit"]), int(query.get("before", 10**12)), query["kind"])
        if path == "/v1/events":
            return 200, stub.wait(int(query["after"]), float(query["wait"]))
        found = [row for row in stub.rows if path == f"/v1/decisions/{row['id']}"]
        return (200, found[0]) if found else (404, {"title": "Not found", "detail": "no such decision"})


def serve(stub):
    """A running server for this stub; call .shutdown() and .server_close() at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"stub": stub}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
