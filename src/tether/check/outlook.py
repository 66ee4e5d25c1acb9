"""How far safe play alone gets: certified lengths after n steps of a_0. No data are needed, only the declared costs.

Under a_0 the Gram matrix is A = λI + n·mean(φ_0φ_0ᵀ), the radius depends on A alone, and the estimate is, on average,
A^{-1} n·mean(τ_h(s)φ_0). So the bounds of Eq. (9) can be computed before anything is played.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.check.report import Finding
from tether.check.survey import Survey
from tether.problem.problem import Problem
from tether.records import Array

MOST_SETS = 100
"""Of more states, this many evenly chosen ones are looked at."""

SHARE = 0.1
"""On a ray, this part of its length counts as a new action."""

USABLE = 0.01
"""A certified length under this part of a ray teaches next to nothing."""

FOREVER = 2**40


class SafePlay(NamedTuple):
    """Everything that does not change with n, in the eigenvectors' coordinates of mean(φ_0φ_0ᵀ)."""

    ridge: float  # λ
    values: Array  # eigenvalues of mean(φ_0φ_0ᵀ) (d,)
    phi_0: Array  # (S, d)
    rows: list[Array]  # the other actions of each state (N, d)
    costs: Array  # τ_h(s) (S, H, M)
    moment: Array  # mean(τ_h(s)φ_0) (H, M, d)
    stars: list[bool]
    states: list[object]


class Reach(NamedTuple):
    """Certified lengths after n steps of safe play: the smallest over steps and constraints, per state (N,)."""

    lengths: list[Array]
    radius: float


def prepare(problem: Problem, seen: Survey, randomised: bool = False) -> SafePlay:
    """Turn the features once. `randomised`: mixtures of a_0 and an action count as rays (Eq. 14)."""
    from tether.learning.confidence import default_cost_ridge

    chosen = np.unique(np.linspace(0, len(seen.sets) - 1, min(len(seen.sets), MOST_SETS)).round().astype(int))
    phi_0, costs = seen.phi_0, seen.costs
    values, axes = np.linalg.eigh(phi_0.T @ phi_0 / len(phi_0))
    rows = []
    for i in chosen:
        actions = seen.sets[i]
        others = np.abs(actions.endpoints - actions.phi_0).max(axis=1) > 0.0
        rows.append(actions.endpoints[others] @ axes)
    return SafePlay(
        default_cost_ridge(problem.noise, problem.gamma_norm, problem.dimension),
        np.maximum(values, 0.0),
        phi_0[chosen] @ axes,
        rows,
        costs[chosen],
        np.einsum("shm,sd->hmd", costs, phi_0 @ axes) / len(phi_0),
        [randomised or seen.sets[i].is_star for i in chosen],
        [seen.states[i] for i in chosen],
    )


def radius_after(problem: Problem, ridge: float, values: Array, count: float) -> Array:
    """β_c of cost_radius="theorem" when V = count · (eigenvalues), one per constraint (M,)."""
    from tether.learning.confidence import grid_radius, mixture_radius
    from tether.learning.ridge import GRID

    events = problem.horizon * problem.constraints / problem.confidence * (1 + len(GRID))
    grown = count * values
    best = []
    for noise, norm in zip(problem.noise, problem.gamma_norm, strict=True):
        radii = [mixture_radius(float(np.log1p(grown / ridge).sum()), noise, events, ridge, norm)]
        least = float(grown.min())
        for mixture in GRID:
            log_det = float(np.log1p(grown / mixture).sum())
            radii.append(grid_radius(log_det, least, mixture, noise, events, ridge, norm))
        best.append(min(radii))
    return np.array(best)


def reach_after(problem: Problem, play: SafePlay, steps: int) -> Reach:
    """Certified lengths (Eq. 9) at every step and state, after n = `steps` steps of a_0 over the states in turn."""
    count = steps / problem.horizon  # observations of each step h
    radius = radius_after(problem, play.ridge, play.values, count)
    gram = play.ridge + count * play.values
    gamma = count * play.moment / gram  # (H, M, d)
    scale = 1.0 / np.sqrt(gram)
    lengths = []
    for state, rows in enumerate(play.rows):
        e, v = play.phi_0[state] * scale, rows * scale
        g00 = max(float(e @ e), 1e-300)  # a safe feature of zero is another finding's business
        share = v @ e / g00  # (N,)
        width = np.linalg.norm(v - share[:, None] * e, axis=1)
        best = np.ones(len(rows))
        known = play.costs[state]  # (H, M)
        residual = gamma @ play.phi_0[state] - known
        reduced = np.sqrt(np.maximum(radius**2 - residual**2 / g00, 0.0))
        upper = gamma @ rows.T - residual[:, :, None] * share + reduced[:, :, None] * width  # (H, M, N)
        slack = (np.asarray(problem.threshold) - known)[:, :, None]
        over = upper - known[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(over <= slack, 1.0, np.where(play.stars[state], slack / over, 0.0))
        best = np.where(slack > 0.0, part, 0.0).min(axis=(0, 1)) if len(rows) else best
        lengths.append(best)
    return Reach(lengths, float(radius.max()))


def first_new(problem: Problem, play: SafePlay) -> int | None:
    """The fewest steps of safe play after which some action (a tenth of some ray) is certified; None if never."""

    def there(steps: int) -> bool:
        found = zip(reach_after(problem, play, steps).lengths, play.stars, strict=True)
        return any(len(lengths) and lengths.max() >= (SHARE if star else 1.0) for lengths, star in found)

    if there(0):
        return 0
    high = 1
    while not there(high):
        if high >= FOREVER:
            return None
        high *= 2
    low = high // 2
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if there(middle) else (middle, high)
    return high


def from_safe_play(problem: Problem, seen: Survey, steps: int, randomised: bool) -> list[Finding]:
    """The findings about the radius and about how soon something new is certified."""
    names = ("radius: H, d and δ leave a usable one", "outlook: steps of safe play to something new")
    if not seen.sets or problem.baseline_cost is None or not np.isfinite(seen.costs).all():
        why = "it needs states, and what their safe actions cost"
        return [Finding(name, "cannot be known", why, "declare states and baseline_cost") for name in names]
    play = prepare(problem, seen, randomised)
    if not any(map(len, play.rows)):
        return [Finding(name, "fails", "a_0 is the only action", "declare other actions") for name in names]
    return [_radius(problem, play, steps, names[0]), _outlook(problem, play, steps, names[1])]


def _radius(problem: Problem, play: SafePlay, steps: int, name: str) -> Finding:
    before, after = reach_after(problem, play, 0), reach_after(problem, play, steps)
    gap = float((np.asarray(problem.threshold) - play.costs).min())
    evidence = f"β = {before.radius:.3g} at first, {after.radius:.3g} after {steps} steps of a_0; least gap {gap:.3g}. "
    evidence += "; then ".join(_spread(reach) for reach in (before, after))
    usable = max(float(lengths.max(initial=0.0)) for reach in (before, after) for lengths in reach.lengths) >= USABLE
    if usable:
        return Finding(name, "holds", evidence)
    return Finding(
        name,
        "fails",
        evidence,
        "a smaller σ, d or B, a larger gap, safe costs of all states (condition_on='all'), logs",
    )


def _spread(reach: Reach) -> str:
    every = np.concatenate(reach.lengths)
    low, middle, high = np.quantile(every, [0.0, 0.5, 1.0])
    return f"certified lengths {low:.2g} to {high:.2g}, median {middle:.2g}"


def _outlook(problem: Problem, play: SafePlay, steps: int, name: str) -> Finding:
    needed, what = first_new(problem, play), " or ".join(_kinds(play.stars))
    if needed is not None and needed <= steps:
        when = "from the first step on" if needed == 0 else f"after {needed} steps of a_0"
        return Finding(name, "holds", f"{what} certified {when}; every further outcome also helps other states")
    state, share = _hardest(play)
    when = f"only after {needed} steps of a_0, more than {steps}" if needed is not None else "never by a_0 alone"
    why = f"{what} certified {when}"
    if needed is None and share > 0.0:
        why += (
            f": in state {play.states[state]!r} {share:.0%} of the way to the nearest action lies outside the "
            "span of safe features, where a_0 teaches nothing"
        )
    first = reach_after(problem, play, 0).lengths
    longest = max(
        (float(some.max(initial=0.0)) for some, star in zip(first, play.stars, strict=True) if star), default=0.0
    )
    if longest >= USABLE:
        return Finding(name, "holds", f"lengths up to {longest:.2g} of a ray are certified at once, and teach; {why}")
    way_out = "play rays or mixtures (small lengths teach), vary a_0, condition_on='all', or start from logged costs"
    return Finding(name, "fails", why, way_out)


def _kinds(stars: list[bool]) -> Iterator[str]:
    if any(stars):
        yield f"{SHARE:.0%} of some ray is"
    if not all(stars):
        yield "another action is"


def _hardest(play: SafePlay) -> tuple[int, float]:
    """The state, and the part of x − share·φ_0 in the null space of mean(φ_0φ_0ᵀ) for its nearest action."""
    dark = play.values <= 1e-12 * play.values.max()
    best = (0, 0.0, np.inf)
    for state, rows in enumerate(play.rows):
        f = play.phi_0[state]
        rest = rows - np.outer(rows @ f / max(float(f @ f), 1e-300), f)
        hidden = np.linalg.norm(rest[:, dark], axis=1)
        for part, size in zip(hidden, np.linalg.norm(rest, axis=1), strict=True):
            if part < best[2]:
                best = (state, float(part / size) if size > 0.0 else 0.0, float(part))
    return best[0], best[1]
