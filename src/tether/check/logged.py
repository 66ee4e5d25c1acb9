"""What logged outcomes say: noise, linearity, drift, norms, declared safe costs, conditioning."""

from math import log as ln

import numpy as np

from tether.check.evidence import SCALES, log_mean
from tether.check.logs import Log
from tether.check.monitor import MESSAGES, SHARES, Monitor
from tether.check.report import Finding
from tether.check.survey import rank_of
from tether.errors import TetherError
from tether.problem.action_sets import NORM_TOLERANCE
from tether.problem.problem import Problem
from tether.records import Array

NAMES = {
    "shape": "A1: costs are linear in φ",
    "drift": "A1: the same costs early and late",
    "noise": "A3: noise on costs within σ",
    "norm": "A4: ‖γ*‖ <= B",
}
REWARD = "A1: rewards are linear in φ (safety does not need it)"

PASS = "pass a log (log=…, or --log FILE)"
NO_LOG = {
    "shape": ("no log was given", f"{PASS}; a cost that bends with the features would break every bound"),
    "drift": ("no log was given", f"{PASS}, and let agent.watch look on: old data certify new costs wrongly"),
    "noise": ("σ is your upper bound", f"{PASS}; a σ too small makes every bound too small"),
    "norm": (
        "B is your upper bound",
        f"{PASS}; a B too small makes early bounds too small",
    ),
}


def without_log() -> list[Finding]:
    """What stays open when there are no data."""
    found = [Finding(NAMES[test], "cannot be known", why, way_out) for test, (why, way_out) in NO_LOG.items()]
    return [*found, Finding(REWARD, "cannot be known", "no log was given", f"{PASS} with rewards")]


def from_log(problem: Problem, log: Log, level: float, pooled: bool) -> list[Finding]:
    """Every finding that logged outcomes allow."""
    usable = log.measured
    if not usable.any():
        return [*without_log(), Finding("log", "fails", "no outcome has a measured cost", "log the costs")]
    in_unit = not np.isnan(log.reward).any() and log.reward.min() >= 0.0 and log.reward.max() <= 1.0
    monitor = Monitor(problem, level=level, pooled=pooled, reward_noise=0.5 if in_unit else None)
    for row in np.flatnonzero(usable):
        key = None if log.states is None else problem.key_of(log.states[row])
        reward = float(log.reward[row]) if in_unit else 0.0
        monitor.observe(int(log.step[row]), log.feature[row], log.cost[row], reward, key)
    monitor.look()
    found = [_tested(test, monitor, problem, log, pooled) for test in SHARES]
    return [
        *sorted(found, key=lambda finding: finding.name),
        _reward(monitor) if in_unit else Finding(REWARD, "cannot be known", "no rewards, or not all in [0, 1]"),
        _norms(problem, log),
        *_declared_costs(problem, log, level),
        _conditioning(problem, log, pooled),
    ]


def _tested(test: str, monitor: Monitor, problem: Problem, log: Log, pooled: bool) -> Finding:
    """The verdict of one of the monitor's tests on the costs."""
    parts = [entry[test] for entry in monitor.evidence()[: problem.constraints]]
    alarm = monitor.alarm
    if alarm is not None and alarm.test in (test, "numbers"):
        return Finding(NAMES[test], "fails", str(alarm), MESSAGES[alarm.test].split(". ")[-1].format(extra="it"))
    worst, limit = max(parts), monitor.limit
    numbers = f"log evidence {worst:.1f}, limit {limit:.1f}, level {monitor.level:g} at any time"
    if worst >= limit:
        message = MESSAGES[test].format(extra="something", since="some earlier one")
        return Finding(NAMES[test], "fails", f"{message.split('. ')[0]} ({numbers})", message.split(". ")[-1])
    seen = f"not contradicted by {int(log.measured.sum())} costs ({numbers})"
    if test in ("noise", "shape"):
        seen += _held_out(problem, log, pooled)
    return Finding(NAMES[test], "holds", seen)


def _held_out(problem: Problem, log: Log, pooled: bool) -> str:
    """Root mean square of later residuals under a fit of the earlier half, in units of σ, for the worst constraint."""
    rows = np.flatnonzero(log.measured)
    early, late = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    sigma = np.asarray(problem.noise)
    squares: list[Array] = []
    for step in range(1 if pooled else problem.horizon):
        a = early if pooled else early[log.step[early] == step]
        b = late if pooled else late[log.step[late] == step]
        if len(a) >= 2 * problem.dimension and len(b):
            x = log.feature[a]
            gamma = np.linalg.solve(x.T @ x + 1e-6 * np.eye(problem.dimension), x.T @ log.cost[a])
            squares.append(((log.cost[b] - log.feature[b] @ gamma) / sigma) ** 2)
    if not squares:
        return ""
    size = np.sqrt(np.concatenate(squares).mean(axis=0)).max()
    return f"; held-out residuals are {size:.2f} σ"


def _reward(monitor: Monitor) -> Finding:
    """Rewards in [0, 1] are ½-sub-Gaussian around their mean, whatever their law: no scale need be declared."""
    if monitor.warning is not None:
        way_out = "learning may be slow or poor, bounds on costs are not touched: add a feature"
        return Finding(REWARD, "fails", str(monitor.warning), way_out)
    worst = max(monitor.evidence()[-1].values())
    text = f"not contradicted (log evidence {worst:.1f}, noise up to 0.5 allowed, as for any reward in [0, 1])"
    return Finding(REWARD, "holds", text)


def _norms(problem: Problem, log: Log) -> Finding:
    worst = float(np.linalg.norm(log.feature, axis=1).max())
    fine = worst <= problem.feature_norm * (1.0 + NORM_TOLERANCE)
    way_out = "" if fine else f"divide by {worst:.4g}, or declare feature_norm={worst:.4g}; agents refuse such outcomes"
    text = f"the largest logged norm is {worst:.4g}; the limit {problem.feature_norm:.4g}"
    return Finding("A4: logged ‖φ‖ within its limit", "holds" if fine else "fails", text, way_out)


def _declared_costs(problem: Problem, log: Log, level: float) -> list[Finding]:
    """z − τ_h(s) where a_0(s) was played is noise alone: its sums at each (h, s) must stay within σ.

    Mixing exp(λΣε − ½nλ²) over λ ~ N(0, 1/ρ) gives ½S²/(n+ρ) − ½log(1+n/ρ): an e-process for each (h, s), and their
    mean over the (h, s) that were met is one for all.
    """
    if problem.baseline_cost is None or log.states is None:
        return []
    sums: dict[tuple[int, object], tuple[Array, int]] = {}
    for row in np.flatnonzero(log.measured):
        try:
            known = problem.look_up(log.states[row])
        except TetherError:
            continue  # a state that the problem refuses is reported with the assumption it breaks
        step = int(log.step[row])
        if np.array_equal(log.feature[row], known.actions.phi_0) and not np.isnan(known.baseline_cost[step]).any():
            total, count = sums.get((step, known.key), (np.zeros(problem.constraints), 0))
            noise = (log.cost[row] - known.baseline_cost[step]) / np.asarray(problem.noise)
            sums[step, known.key] = (total + noise, count + 1)
    name = "A2: safe costs as declared"
    if not sums:
        return [Finding(name, "cannot be known", "the log has no outcome of a safe action")]
    totals = np.array([entry[0] for entry in sums.values()])  # (K, M)
    counts = np.array([entry[1] for entry in sums.values()])
    table = 0.5 * (totals[..., None] ** 2 / (counts[:, None, None] + SCALES) - np.log1p(counts[:, None, None] / SCALES))
    each = log_mean(table)  # (K, M)
    evidence, limit = float(log_mean(each.T).max()), ln(problem.constraints / level)
    plays = f"{int(counts.sum())} outcomes of safe actions"
    numbers = f"log evidence {evidence:.1f}, limit {limit:.1f}, level {level:g}"
    if evidence < limit:
        return [Finding(name, "holds", f"not contradicted by {plays} ({numbers})")]
    worst = int(each.max(axis=1).argmax())
    (step, key), mean = list(sums)[worst], totals[worst] * np.asarray(problem.noise) / counts[worst]
    where = f"at step {step}, state {key!r} costs are off by {mean.round(4).tolist()} on average"
    return [
        Finding(name, "fails", f"{where}, over {plays} ({numbers})", "correct baseline_cost, or declare it unknown")
    ]


def _conditioning(problem: Problem, log: Log, pooled: bool) -> Finding:
    """How uneven A = λI + Σφφᵀ is, and what its rounding does to bounds."""
    from tether.kernels.radius import default_cost_ridge

    name, ridge = (
        "conditioning of the Gram matrix",
        default_cost_ridge(problem.noise, problem.gamma_norm, problem.dimension),
    )
    worst, ranks = 1.0, []
    for step in range(1 if pooled else problem.horizon):
        rows = log.feature[log.measured & (pooled | (log.step == step))]
        values = np.linalg.eigvalsh(rows.T @ rows) if len(rows) else np.zeros(problem.dimension)
        worst = max(worst, (values[-1] + ridge) / (max(values[0], 0.0) + ridge))
        ranks.append(rank_of(rows))
    error = 4.0 * 2.0**-52 * float(np.sqrt((1 + len(log.feature)) * worst * problem.dimension))
    text = (
        f"condition {worst:.2g} with λ = {ridge:.2g}; bounds are widened by {error:.1g} of themselves for rounding; "
        f"logged features span {min(ranks)} of {problem.dimension} directions"
    )
    fine = error < 1e-3
    return Finding(name, "holds" if fine else "fails", text, "" if fine else "rescale features, or raise cost_ridge λ")
