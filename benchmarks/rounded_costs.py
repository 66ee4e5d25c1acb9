"""How far a cost is over its bound where safe costs were rounded, and what the allowance costs: docs/guarantee.md.

    python benchmarks/rounded_costs.py [--worlds 200] [--json]

Bounds. Three states: the safe features of two differ by a small step, and their facts are remembered. That of the
third, where one stands, reaches far along that step, and by another small one out of their plane. The facts amplify an
error by up to 1e4, and so does the state's own cost; a world takes steps from around those limits upward, so that both
may be met at once. Every declared cost is off by as much as rounding can do, with every combination of signs. Shown:
the largest true cost − bound over all certified rays (negative: all bounds hold), where costs are declared as exact,
and where that amount is declared.

Price. Regret on the paper's synthetic problem and success on Frozen Lake, with safe costs declared as exact, and with
the same costs typed with six digits and that error declared.
"""

import argparse
from dataclasses import replace
from itertools import product

import numpy as np
from results import Table, note, parsed, show

from tether import (
    Constraint,
    LinearMDP,
    Problem,
    RslucbQvi,
    SafeCost,
    SlucbConfig,
    SlucbQvi,
    StarActions,
    Streams,
    frozen_lake,
    synthetic,
)
from tether.agents.certified import CertifiedSet, certified_set
from tether.lab.simulate import simulate, simulate_units
from tether.lab.specs import Schedule
from tether.records import Array

DIMENSION, RAYS = 3, 20
DIGITS = "6 digits"
ERRORS = {"all digits of a double": 0.0, "12 decimals": 5e-13, "9 decimals": 5e-10, DIGITS: None}
"""What declared costs are off by, besides their rounding to doubles; None is half a unit of their sixth digit."""
SIX = 5e-6
"""Half a unit of the sixth digit, as a part of the number: that of 1.00000."""

EPISODES, SEEDS = 2000, 5
LAKE = {
    "explorer": "plain",
    "value_radius": "unseen",
    "condition_on": "all",
    "pooled": True,
    "replan": "on-doubling",
    "feature_size": 1.0,
}
UNITS, LAKES = 10, 3


def half_a_unit(costs: Array) -> Array:
    """Half a unit of the sixth significant digit of each cost."""
    places = np.floor(np.log10(np.maximum(np.abs(costs), 1e-300)))
    return np.where(costs == 0.0, 0.0, 0.5 * 10.0 ** (places - 5.0))


def typed_digits(name: str, costs: Array) -> Array:
    """Costs as somebody would type them, with so many digits or decimals."""
    if name == DIGITS:
        return np.array([float(f"{cost:.6g}") for cost in costs])
    return costs.round(int(name.split()[0])) if name[0].isdigit() else costs


def certified_with(
    seed: int, signs: Array, error: float | None, declared: float | None, typed: str = ""
) -> tuple[CertifiedSet, Array]:
    """The certified set of the third state of one world, and γ* (d,).

    Costs are off by `error` times `signs` (3,), or typed as `typed` says, and `declared` is said of it.
    """
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((DIMENSION, DIMENSION)))[0]
    near, far = 10.0 ** rng.uniform(-4.3, -2.0, 2)  # facts are used from 1e-4 on, about
    aside = rng.uniform(-0.8, 0.8) * axes[1]  # times what the step between the other two leaves open of γ*
    safe = 0.5 * axes[0] + np.array([np.zeros(DIMENSION), near * axes[1], far * axes[2] + aside])
    gamma = rng.uniform(-1.0, 1.0, DIMENSION)
    ends = rng.standard_normal((RAYS, DIMENSION))
    ends /= 1.0001 * np.linalg.norm(ends, axis=1)[:, None]
    exact, sets = safe @ gamma, [StarActions(each, ends) for each in safe]
    costs = exact + (half_a_unit(exact) if error is None else error) * np.asarray(signs)
    if typed:
        costs = typed_digits(typed, exact)
    problem = Problem(
        horizon=1,
        constraints=Constraint(
            threshold=float(costs.max() + 0.2),
            noise=1e-3,
            safe_cost=SafeCost(costs[None], error=declared),
            gamma_norm=2.0,
        ),
        dimension=DIMENSION,
        states=range(3),
        actions=lambda state: sets[state],
    )
    agent = SlucbQvi(problem)
    for state in range(2):
        agent.remember(0, safe[state], costs[state : state + 1])
    return certified_set(agent, 0, 2), gamma


def excesses(worlds: int, error: float | None, declared: float | None, typed: str = "") -> Array:
    """True cost − bound over so many worlds, all signs and all certified rays."""
    found = []
    for seed in range(worlds):
        for signs in [(0.0, 0.0, 0.0)] if error == 0.0 or typed else product((-1.0, 1.0), repeat=3):
            options, gamma = certified_with(seed, np.array(signs), error, declared, typed)
            found.append((options.features[:-1] @ gamma - options.bounds[:-1, 0])[options.lengths > 0.0])
    return np.concatenate(found)


def largest_excess(worlds: int, error: float | None, declared: float | None, typed: str = "") -> float:
    """The largest of them; −∞ where no ray is certified."""
    return float(excesses(worlds, error, declared, typed).max(initial=-np.inf))


def typed(world: LinearMDP) -> LinearMDP:
    """The same world, whose safe costs were typed with six digits, which is declared."""
    exact = np.einsum("hmd,sd->hsm", world.true_gamma, world.phi_0)
    costs = np.array([float(f"{cost:.6g}") for cost in exact.ravel()]).reshape(exact.shape)
    known = SafeCost(costs[:, :, 0], error=SIX * float(np.abs(exact).max()))
    limit = replace(world.problem.constraints[0], safe_cost=known)
    return replace(world, problem=replace(world.problem, constraints=limit))


def regret(noise: float, *, digits: bool) -> tuple[float, float]:
    """Mean regret on the synthetic problem, and steps over τ."""
    total, over = 0.0, 0.0
    for seed in range(SEEDS):
        streams = Streams.from_seed(seed)
        world = synthetic(streams.instance, noise=noise)
        world = typed(world) if digits else world
        books = simulate(world, SlucbQvi(world.problem), EPISODES, streams)
        total += float((books.optimal_value - books.value).sum()) / SEEDS
        over += float(books.violations.sum())
    return total, over


def success(costs: str, *, digits: bool) -> tuple[float, float]:
    """Mean success on the lake over all units, and steps over τ."""
    total, over = 0.0, 0.0
    for seed in range(LAKES):
        streams = Streams.from_seed(seed)
        world = frozen_lake(streams.instance, costs=costs)
        world = typed(world) if digits else world
        config = SlucbConfig(**LAKE, value_ridge="cost" if costs == "gaussian" else 1e-5)
        agent = RslucbQvi(world.problem, config, rng=np.random.default_rng(seed))
        books = simulate_units(world, agent, UNITS, streams, Schedule(steps=1000, plan_each="step", look_every=25))
        total += float(books.success.mean()) / LAKES
        over += float(books.violations.sum())
    return total, over


def shown(excess: float) -> str:
    """A cell: how far a cost was over its bound."""
    return "never over" if excess <= 0.0 else f"{excess:.1e}"


def bounds_table(worlds: int) -> Table:
    """One line per precision."""
    lines = []
    for name, error in ERRORS.items():
        largest = SIX if error is None else error  # of costs up to 1
        cells = [shown(largest_excess(worlds, error, declared)) for declared in (0.0, largest)]
        by_default = shown(largest_excess(5 * worlds, 0.0, None, name))
        lines.append([name, cells[0], by_default, cells[1]])
        note(lines[-1])
    return ["declared costs have", "taken as exact", "typed, nothing said", "error declared"], lines


def price_table() -> Table:
    """One line per setting: exact, and typed with six digits."""
    lines = []
    for noise in (0.01, 0.1, 0.3):
        (exact, one), (six, other) = (regret(noise, digits=digits) for digits in (False, True))
        lines.append([f"synthetic, σ = {noise:g}, regret", f"{exact:.1f}", f"{six:.1f}", f"{one + other:.0f}"])
        note(lines[-1])
    for costs in ("gaussian", "bounded"):
        (exact, one), (six, other) = (success(costs, digits=digits) for digits in (False, True))
        kind = "yes/no costs" if costs == "bounded" else "σ = 0.01"
        lines.append([f"Frozen Lake, {kind}, success", f"{exact:.3f}", f"{six:.3f}", f"{one + other:.0f}"])
        note(lines[-1])
    heads = ["setting", "exact", "six digits, declared", "steps over τ"]
    return heads, lines


def main() -> None:
    """Print both tables: as Markdown, or as JSON for the docs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=200)
    given = parsed(parser, worlds=5)
    sizes = f"{given.worlds} worlds, all signs; {SEEDS} × {EPISODES} episodes; {LAKES} lakes × {UNITS} units"
    show(given, sizes, bounds=bounds_table(given.worlds), price=price_table())


if __name__ == "__main__":
    main()
