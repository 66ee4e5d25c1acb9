"""How far safe play alone gets: certified lengths after n steps of a_0. No data are needed, only the declared costs.

Under a_0 the Gram matrix is A = λI + n·mean(φ_0φ_0ᵀ), the radius depends on A alone, and the estimate is, on average,
A^{-1} n·mean(τ_h(s)φ_0). So the bounds of Eq. (9) can be computed before anything is played.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.check.report import Finding
from tether.check.survey import Survey
from tether.problem.action_sets import ActionSet, FiniteActions, StarActions
from tether.problem.problem import Problem
from tether.records import Array

if TYPE_CHECKING:
    from tether.kernels.model import Rules
    from tether.kernels.ridge import Costs

MOST_SETS = 100
"""Of more states, this many evenly chosen ones are looked at."""

SHARE = 0.1
"""On a ray, this part of its length counts as a new action."""

USABLE = 0.01
"""A certified length under this part of a ray teaches next to nothing."""

FOREVER = 2**40


class SafePlay(NamedTuple):
    """What does not change with n."""

    ridge: float  # λ
    gram: Array  # mean(φ_0φ_0ᵀ) (d, d)
    moment: Array  # mean(τ_h(s)φ_0) (H, M, d)
    every_phi_0: Array  # safe features in the order in which a_0 is played (S, d)
    every_cost: Array  # τ_h(s) (S, H, M)
    sets: list[ActionSet]  # of the states that are looked at: their other actions, a_0 last where they are finite
    rows: list[Array]  # those other actions (N, d)
    costs: Array  # τ_h(s) of those states (., H, M)
    stars: list[bool]
    states: list[object]


class Reach(NamedTuple):
    """Certified lengths after n steps of safe play: the smallest over steps and constraints, per state (N,)."""

    lengths: list[Array]
    radius: float


def prepare(problem: Problem, seen: Survey, randomised: bool = False) -> SafePlay:
    """The sums of safe play, per step. `randomised`: mixtures of a_0 and an action count as rays (Eq. 14)."""
    from tether.kernels.radius import default_cost_ridge

    chosen = np.unique(np.linspace(0, len(seen.sets) - 1, min(len(seen.sets), MOST_SETS)).round().astype(int))
    stars = [randomised or seen.sets[i].is_star for i in chosen]
    rows, sets = [], list[ActionSet]()
    for i, star in zip(chosen, stars, strict=True):
        actions = seen.sets[i]
        others = actions.endpoints[np.abs(actions.endpoints - actions.phi_0).max(axis=1) > 0.0]
        rows.append(others)
        with_safe = np.vstack([others, actions.phi_0])
        sets.append(StarActions(actions.phi_0, with_safe) if star else FiniteActions(with_safe, len(others)))
    return SafePlay(
        default_cost_ridge(problem.noise, problem.gamma_norm, problem.dimension),
        seen.phi_0.T @ seen.phi_0 / len(seen.phi_0),
        np.einsum("shm,sd->hmd", seen.costs, seen.phi_0) / len(seen.phi_0),
        seen.phi_0,
        seen.costs,
        sets,
        rows,
        seen.costs[chosen],
        stars,
        [seen.states[i] for i in chosen],
    )


def learner_after(problem: Problem, play: SafePlay, steps: int) -> tuple["Rules", "Costs"]:
    """The default learner's rules and cost data after so many steps of a_0 over the states in turn, without noise."""
    from tether.kernels.model import ADAPTIVE, KNOWN, SMALLEST, VISITED, Rules
    from tether.kernels.ridge import new_costs, refresh_spectrum, remember

    horizon, constraints, dimension = problem.horizon, problem.constraints, problem.dimension
    rules = Rules(
        horizon=horizon,
        explorer=ADAPTIVE,
        conditioning=KNOWN,
        memory=VISITED,
        radius_kind=SMALLEST,
        reduces_radius=True,
        threshold=np.array(problem.threshold),
        noise=np.array(problem.noise),
        gamma_norm=np.array(problem.gamma_norm),
        feature_norm=problem.feature_norm,
        cost_error=np.zeros(constraints),
        events=horizon * constraints / problem.confidence,
        tuned_radius=0.0,
        value_radius=np.zeros(horizon),
        kappa=np.nan,
        gap_floor=0.0,
        warms_up=False,
        penalty=0.0,
        known_gamma=np.zeros((0, constraints, dimension)),
    )
    costs = new_costs(horizon, dimension, constraints, play.ridge, problem.feature_norm)
    count = steps / horizon  # observations of each step h
    costs.gram[:] += count * play.gram
    costs.moment[:] = count * play.moment
    costs.factor[:] = np.linalg.cholesky(costs.gram[0]).T
    costs.log_det[:] = 2.0 * np.log(np.diagonal(costs.factor[0])).sum() - dimension * np.log(play.ridge)
    costs.updates[:] = int(count)
    refresh_spectrum(costs)
    work = np.zeros((3, dimension))
    for step in range(horizon):
        for state in range(min(len(play.every_phi_0), int(np.ceil(count)))):
            f, cost = np.array(play.every_phi_0[state]), np.array(play.every_cost[state, step])
            remember(costs, step, f, cost, rules.gamma_norm, work)
    return rules, costs


def reach_after(problem: Problem, play: SafePlay, steps: int) -> Reach:
    """Certified lengths (Eq. 9) at every step and state after so many steps of a_0, by the learner's own kernels."""
    from tether.kernels.bound import examine, fit_costs, limit_lengths
    from tether.kernels.model import BEST, new_plan
    from tether.kernels.plan import build, scratch_for, tables_of
    from tether.kernels.radius import cost_radius
    from tether.kernels.ridge import new_values, project_rows

    rules, costs = learner_after(problem, play, steps)
    constraints = range(problem.constraints)
    values = new_values(problem.horizon, problem.dimension, 1.0, 0)
    lengths = [np.ones(len(rows)) for rows in play.rows]
    for step in range(problem.horizon):
        tables = tables_of(play.sets, play.costs[:, step], np.full(len(play.sets), np.nan))
        scratch = scratch_for(tables)
        plan = new_plan(1, len(play.sets), problem.constraints, problem.dimension)
        fit_costs(costs, rules, plan, scratch, step, 0, step)
        build(costs, values, rules, tables, scratch, 0, step)
        for j in constraints:
            project_rows(tables.features, int(tables.start[-1]), plan.gamma_hat[0, j], scratch.projected[1 + j])
        for slot, best in enumerate(lengths):
            scratch.work[:2] = 1.0
            if examine(rules, tables, plan, scratch, 0, 0, slot) != BEST:
                best[:] = 0.0
                continue
            for j in constraints:
                limit_lengths(rules, tables, scratch, 0, slot, j)
            np.minimum(best, scratch.work[0, : len(best)], out=best)
    radii = [cost_radius(costs, rules, step, j) for step in range(problem.horizon) for j in constraints]
    return Reach(lengths, float(max(radii)))


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
    values, axes = np.linalg.eigh(play.gram)
    dark = values <= 1e-12 * values.max()
    best = (0, 0.0, np.inf)
    for state, others in enumerate(play.rows):
        f, rows = play.sets[state].phi_0 @ axes, others @ axes
        rest = rows - np.outer(rows @ f / max(float(f @ f), 1e-300), f)
        hidden = np.linalg.norm(rest[:, dark], axis=1)
        for part, size in zip(hidden, np.linalg.norm(rest, axis=1), strict=True):
            if part < best[2]:
                best = (state, float(part / size) if size > 0.0 else 0.0, float(part))
    return best[0], best[1]
