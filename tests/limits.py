"""Constraints from tables of words, for tests that vary one word at a time."""

from dataclasses import replace

import numpy as np

from tether import (
    Bounded,
    Bridge,
    Constraint,
    Drift,
    Lost,
    Mask,
    Misfit,
    Realised,
    Run,
    SafeCost,
    StateKeys,
    Targets,
    Upkeep,
    learn,
)
from tether.arguments import IN_UPKEEP

IN_RUN = ("progress", "on_step", "callbacks", "compare", "watch", "check")
IN_BRIDGE = {"feature_norm", "names", "key", "reset_options", "reward_noise"}
IN_LEARN = ("episodes", "seed", "limit_on", "stationary", "agent")
WORDS = frozenset({
    "threshold", "noise", "cost_kind", "baseline_cost", "baseline_cost_error", "gap_floor", "tight_baseline", "misfit",
    "drift", "drift_per", "time", "lost", "cost_range", "limit", "exceedance", "noise_scales", "gamma_norm",
    "feature_effects", "cost",
})  # fmt: skip
"""What one table says of all constraints: one value, or a sequence with one for each."""


def stated(**words):
    """Arguments of a Problem from such a table; other words are passed on."""
    said = {name: words.pop(name) for name in WORDS & words.keys()}
    if "constraints" in words:
        said = {}
    key, back = words.pop("key", None), words.pop("state_of", None)
    given = words if key is None and back is None else {**words, "key": StateKeys(key, back) if back else key}
    return {**given, "constraints": limits(**said)} if said else given


def limits(*, threshold, baseline_cost=None, **words):
    """The constraints of a table."""
    count = np.size(threshold)
    return [
        limit(
            threshold=of(threshold, j, count),
            baseline_cost=safe_cost(baseline_cost, j, count),
            **{name: of(value, j, count, name) for name, value in words.items()},
        )
        for j in range(count)
    ]


def of(value, j, count, name=""):
    """What a table says of constraint j."""
    if name == "cost_range":
        return value[j] if np.shape(value) == (count, 2) else value
    if name == "feature_effects":
        return value[j] if count > 1 and np.ndim(value) == 2 else value
    if name == "cost" and callable(value) and count > 1:
        return lambda *step: np.ravel(value(*step))[j]
    if isinstance(value, str | dict | np.ma.MaskedArray) or callable(value) or value is None or np.ndim(value) == 0:
        return value
    return None if len(value) == 0 else value[0] if len(value) == 1 else value[j]


def safe_cost(value, j, count):
    """τ_h(s) of constraint j: from a number each, a function of all, or a table (H, S) or (H, S, M)."""
    if callable(value):
        return value if count == 1 else lambda step, state: np.ravel(value(step, state))[j]
    if value is None or np.ndim(value) == 0:
        return value
    if isinstance(value, np.ma.MaskedArray):
        return value
    table = np.asarray(value)
    if table.ndim == 1 and len(table) == count:
        return float(table[j])
    return table[:, :, j] if table.ndim == 3 and table.shape[2] == count else value


def limit(
    *,
    threshold,
    noise=None,
    cost_kind="gaussian",
    baseline_cost=None,
    baseline_cost_error=None,
    gap_floor=0.0,
    tight_baseline="error",
    misfit=0.0,
    drift=0.0,
    drift_per="decision",
    time=None,
    lost="at-random",
    cost_range=None,
    limit="expected",
    exceedance=0.05,
    noise_scales=False,
    gamma_norm=None,
    feature_effects=None,
    cost=None,
):
    """One constraint."""
    relax = [
        *([Misfit(misfit)] if misfit else []),
        *([Drift(drift, drift_per, time)] if drift else []),
        *([Lost(lost, cost_range)] if lost != "at-random" or cost_range is not None else []),
        *([Realised(exceedance, noise_scales)] if limit == "realised" else []),
    ]
    tight = "safe action" if tight_baseline == "baseline" else tight_baseline
    return Constraint(
        threshold=threshold,
        noise=Bounded() if cost_kind == "bounded" else noise,
        safe_cost=SafeCost(baseline_cost, baseline_cost_error, gap_floor, tight),
        gamma_norm=gamma_norm,
        feature_effects=feature_effects,
        relax=relax,
        cost=cost,
    )


def words_of(one):
    """The table of one constraint."""
    known, realised = one.known, one.realised
    return {
        "threshold": one.threshold,
        "noise": None if one.by_likelihood else one.sigma,
        "cost_kind": "bounded" if one.by_likelihood else "gaussian",
        "baseline_cost": known.cost,
        "baseline_cost_error": known.error,
        "gap_floor": known.gap_floor,
        "tight_baseline": "baseline" if known.if_tight == "safe action" else "error",
        "misfit": one.misfit.error,
        "drift": one.drift.rate,
        "drift_per": one.drift.per,
        "time": one.drift.time,
        "lost": one.lost.counts_as,
        "cost_range": one.lost.cost_range,
        "limit": "expected" if realised is None else "realised",
        "exceedance": 0.05 if realised is None else realised.exceedance,
        "noise_scales": realised is not None and realised.noise_scales,
        "gamma_norm": one.gamma_norm,
        "feature_effects": one.feature_effects,
        "cost": one.cost,
    }


def restated(problem, **changes):
    """A problem with other words about its constraints, or other fields."""
    said = {name: changes.pop(name) for name in WORDS & changes.keys()}
    count = np.size(said["threshold"]) if "threshold" in said else len(problem.constraints)
    several = []
    for j, one in enumerate(problem.constraints):
        new = {
            name: safe_cost(value, j, count) if name == "baseline_cost" else of(value, j, count, name)
            for name, value in said.items()
        }
        several.append(limit(**{**words_of(one), **new}))
    return replace(problem, constraints=several, **changes)


def bridged_with(env, **words):
    """A Bridge from such a table. Without noise, costs lie in [0, 1]."""
    return Bridge(env, **arguments(**words))


def arguments(**words):
    """Arguments of a Bridge."""
    mask, targets = words.pop("mask", None), words.pop("targets", None)
    if mask is not None:
        words["actions"] = Mask(mask)
    if targets is not None:
        words["actions"] = Targets(targets)
    if (
        words.get("noise") is None
        and isinstance(kind := words.get("cost_kind", "gaussian"), str)
        and kind == "gaussian"
    ):
        words["noise"] = Bounded("radius")
    return stated(**words)


def learned_with(env, **words):
    """`learn` from such a table."""
    if "config" in words:
        words["agent"] = words.pop("config")
    run = Run(**{name: words.pop(name) for name in IN_RUN if name in words})
    how = {name: words.pop(name) for name in IN_LEARN if name in words}
    if isinstance(env, Bridge):
        return learn(env, run=run, **how, **words)
    if IN_BRIDGE & words.keys():
        return learn(bridged_with(env, **words), run=run, **how)
    return learn(env, run=run, **how, **arguments(**words))


def kept(**settings):
    """Arguments of an Advisor, of which those of its `Upkeep` are one."""
    said = {name: settings.pop(name) for name in IN_UPKEEP if name in settings}
    return {**settings, "upkeep": Upkeep(**said)} if said else settings
