"""The unit of features does not matter: theory, section 4.

Features times s, with feature_norm, gamma_norm and drift declared to match, describe the same problem. Two agents play
it in lockstep and must choose alike. Where s is a power of two, no bit of a bound may change; for other numbers, where
the rounding differs, bounds agree up to rounding.
"""

from dataclasses import replace

import numpy as np
import pytest

from limits import restated
from live.plant import Plant, live_advisor
from tether import FiniteActions, LsviConfig, LsviUcb, RslucbQvi, SlucbConfig, SlucbQvi, StarActions, Transition
from tether.agents.certified import CertifiedAgent
from tether.agents.slucb import EXPLORERS
from tether.check.monitor import Monitor
from tether.errors import InputError
from tether.gym.learn import VALUE_RIDGE
from worlds import uneven_world

HORIZON = {"states": 3, "rays": 5, "dimension": 3, "horizon": 2}
EXACT, ROUNDED = (2.0**-10, 2.0**10), (1e-3, 1e3)


def scaled(problem, s):
    """The same problem with features times s."""

    def actions(state):
        found = problem.actions(state)
        if found.is_star:
            return StarActions(found.phi_0 * s, found.endpoints * s)
        return FiniteActions(found.features * s, found.baseline)

    return restated(
        problem,
        actions=actions,
        feature_norm=problem.feature_norm * s,
        gamma_norm=tuple(norm / s for norm in problem.gamma_norm),
        drift=tuple(rho / s for rho in problem.drift),
    )


class Widest(CertifiedAgent):
    """Plays where least is known of the value."""

    def choose(self, options):
        return options.best(options.values + options.widths)


def slucb(**settings):
    return lambda problem, gamma: SlucbQvi(problem, SlucbConfig(**settings))


def rslucb(**settings):
    return lambda problem, gamma: RslucbQvi(problem, SlucbConfig(**settings), rng=np.random.default_rng(4))


def lsvi(*, told=False, **settings):
    return lambda problem, gamma: LsviUcb(problem, LsviConfig(**settings), **({"true_gamma": gamma} if told else {}))


def world(seed=7, **more):
    return uneven_world(seed, **{**HORIZON, **more})


def declared(change, **more):
    """A world whose problem says more than `uneven_world` does."""
    made = world(**more)
    return replace(made, problem=restated(made.problem, **change))


YES_NO = {"cost_kind": "bounded"}
CASES = {
    **{f"explorer {name}": (world(), slucb(explorer=name)) for name in EXPLORERS},
    "radius mixture": (world(), slucb(cost_radius="mixture")),
    "radius classical": (world(), slucb(cost_radius="classical")),
    "paper": (world(), lambda problem, gamma: SlucbQvi(problem, SlucbConfig.paper(0.3))),
    "one state": (world(), slucb(condition_on="state")),
    "all facts": (world(), slucb(condition_on="all")),
    "lean": (world(), slucb(backup="lean")),
    "learn": (world(), slucb(value_radius="unseen", value_ridge=VALUE_RIDGE)),
    "live": (world(), slucb(explorer="plain", value_radius="unseen", value_ridge="cost")),
    "reward's theorem": (world(horizon=1), slucb(value_radius="mixture")),
    "value theorem": (world(), slucb(value_radius="theorem", episodes=40, c_beta=0.01)),
    "ridges": (world(), slucb(cost_ridge=0.01, value_ridge=0.1)),
    "pooled": (world(same_stages=True), slucb(pooled=True)),
    "unknown": (world(known_costs=False), slucb()),
    "appendix": (world(known_costs=False, threshold=0.9), slucb(unknown_cost="appendix", episodes=40)),
    "error": (world(cost_error=0.01), slucb()),
    "misfit": (declared({"misfit": 0.005}), slucb()),
    "realised": (declared({"limit": "realised", "noise": 0.02}), slucb()),
    "drift": (world(drift=1e-4), slucb()),
    "two costs": (world(constraints=2), slucb()),
    "finite": (world(finite=True, threshold=0.6), slucb()),
    "finite, lean": (world(finite=True, threshold=0.6), slucb(backup="lean")),
    "yes/no": (world(**YES_NO), slucb()),
    "yes/no, finite": (world(finite=True, threshold=0.6, **YES_NO), slucb()),
    "yes/no, all facts": (world(finite=True, threshold=0.6, **YES_NO), slucb(condition_on="all")),
    "yes/no, mixtures": (world(finite=True, **YES_NO), rslucb()),
    "mixtures": (world(finite=True), rslucb()),
    "mixtures, certified": (world(finite=True, constraints=2), rslucb(explorer="certified", value_radius=0.3)),
    "mixtures, one state": (world(finite=True), rslucb(condition_on="state", explorer="directional")),
    "LSVI-UCB": (world(), lsvi()),
    "LSVI-UCB, told": (world(), lsvi(told=True)),
    "LSVI-UCB, penalised": (world(), lsvi(penalty=0.9)),
    "an agent of one's own": (world(), lambda problem, gamma: Widest(problem)),
}  # fmt: skip


def played(made, make, s, *, steps=120, declared=None):
    """The agent, and what it chose at each step with its bounds, where features are times s."""
    problem, horizon = scaled(declared or made.problem, s), made.problem.horizon
    agent, rng, found = make(problem, made.true_gamma / s), np.random.default_rng(3), []
    if declared:
        agent.watch = Monitor(problem)
    for count in range(steps):
        step = count % horizon
        if step == 0:
            state = int(rng.integers(len(made.initial)))
            agent.plan()
        decision = agent.act(step, state)
        x = decision.feature / s
        mean = made.true_gamma[step] @ x
        noise, uniform = rng.standard_normal(len(mean)), rng.random()
        cost = (rng.random(len(mean)) < mean) * 1.0 if any(made.problem.bounded) else mean + 0.05 * noise
        law = np.maximum(x @ made.true_mu[step], 0.0)
        following = int(min(np.searchsorted(np.cumsum(law / law.sum()), uniform), len(law) - 1))
        then = following if step < horizon - 1 else None
        reward = float(round(made.true_theta[step] @ x, 6))  # whatever the unit, the same reward
        agent.observe(Transition(step, state, decision.feature, reward, tuple(np.round(cost, 6)), then, decision.id))
        bounds = [shown.bound for shown in decision.evidence]
        found.append((decision.action, decision.reason, bounds, decision.feature / s))
        state = following
    return agent, found


def the_same(first, again, *, exact, bounded):
    """Both agents chose alike. A likelihood's solver stops once it is close enough, which depends on rounding."""
    for (action, reason, bounds, feature), (other, why, theirs, x) in zip(first, again, strict=True):
        assert why == reason
        if exact:
            assert (other, theirs) == (action, bounds)
            assert np.array_equal(x, feature)
        else:
            near = 1e-3 if bounded else 1e-6
            assert getattr(other, "ray", other) == getattr(action, "ray", action)
            np.testing.assert_allclose(theirs, bounds, rtol=near, atol=1e-9)
            np.testing.assert_allclose(x, feature, rtol=near, atol=near)


@pytest.mark.parametrize("size", [0.0, -1.0, np.inf, np.nan])
def test_a_size_of_features_that_is_no_length_is_refused(size):
    """An infinite bonus would follow from 0."""
    with pytest.raises(InputError, match="feature_size must be a finite number > 0"):
        SlucbConfig(feature_size=size)


@pytest.mark.parametrize("name", CASES)
def test_choices_do_not_depend_on_the_unit_of_features(name):
    made, make = CASES[name]
    _, first = played(made, make, 1.0)
    assert any(action != first[0][0] for action, *_ in first), "an agent that never moves says nothing"
    for s in EXACT + ROUNDED:
        _, again = played(made, make, s)
        the_same(first, again, exact=s in EXACT, bounded=any(made.problem.bounded))


@pytest.mark.parametrize("options", [{}, {"drift": 1e-4}, {"cost_kind": "bounded"}, {"pooled": True}], ids=str)
def test_the_monitors_evidence_does_not_depend_on_the_unit_of_features(options):
    """The declared safe costs are .1 too low, so that there is something to see."""
    pooled = {"pooled": True} if "pooled" in options else {}
    told = {name: value for name, value in options.items() if name != "pooled"}
    made = world(same_stages=bool(pooled), **told)
    true = made.problem.baseline_cost
    lower = restated(made.problem, baseline_cost=lambda step, state: true(step, state) - 0.1)
    evidence = []
    for s in (1.0, *EXACT, *ROUNDED):
        agent, found = played(made, slucb(**pooled), s, declared=lower)
        evidence.append((agent.watch.evidence(), found))
    for s, (numbers, found) in zip(EXACT + ROUNDED, evidence[1:], strict=True):
        the_same(evidence[0][1], found, exact=s in EXACT, bounded=any(made.problem.bounded))
        for one, other in zip(evidence[0][0], numbers, strict=True):
            assert one.keys() == other.keys()
            if s in EXACT:
                assert one == other
            else:
                assert list(other.values()) == pytest.approx(list(one.values()), rel=1e-3, abs=1e-6)


class ScaledPlant(Plant):
    """Pays and measures the same, whatever the unit of features."""

    def __init__(self, gamma, s, *, in_unit_interval, **more):
        super().__init__(gamma, **more)
        self.s, self.in_unit_interval = s, in_unit_interval

    def true_cost(self, step, feature):
        return np.round(super().true_cost(step, np.asarray(feature) / self.s), 9)

    def measure(self, step, feature):
        seen = np.array(super().measure(step, feature))
        return tuple(np.clip(seen, 0.0, 1.0).tolist() if self.in_unit_interval else seen.tolist())

    def reward(self, feature):
        return round(super().reward(np.asarray(feature) / self.s), 9)


LIVE = {
    "stars": ({}, {}),
    "all facts": ({}, {"config": SlucbConfig(condition_on="all", value_ridge=0.1)}),
    "error": ({"cost_error": 0.01}, {}),
    "unknown": ({"known_costs": False}, {}),
    "drift": ({"drift": 1e-4}, {}),
    "finite": ({"finite": True, "threshold": 0.6}, {}),
    "mixtures": ({"finite": True}, {"limit_on": "average over draws"}),
    "yes/no": ({"cost_kind": "bounded", "finite": True, "threshold": 0.6}, {}),
}


@pytest.mark.parametrize("name", LIVE)
def test_the_gate_recomputes_the_same_bounds_in_any_unit_of_features(name):
    told, settings = LIVE[name]
    made, found = world(**told), []
    for s in (1.0, *EXACT, *ROUNDED):
        ids = map("{:032x}".format, range(10_000))  # mixtures are drawn by them
        advisor = live_advisor(scaled(made.problem, s), watch=False, ids=lambda ids=ids: next(ids), **settings)
        plant = ScaledPlant(made.true_gamma, s, in_unit_interval=any(made.problem.bounded), states=3)
        decisions = plant.play(advisor, 60, horizon=2)
        assert advisor.status().refusals == 0
        found.append([
            (each.action, each.reason, [limit.bound for limit in each.certificate.limits],
             [limit.gate_bound for limit in each.certificate.limits], np.asarray(each.feature) / s)
            for each in decisions
        ])  # fmt: skip
    assert sum(not decision.is_baseline for decision in decisions) > 5
    for s, again in zip(EXACT + ROUNDED, found[1:], strict=True):
        without = [(action, reason, bounds, x) for action, reason, bounds, _, x in again]
        first = [(action, reason, bounds, x) for action, reason, bounds, _, x in found[0]]
        the_same(first, without, exact=s in EXACT, bounded=any(made.problem.bounded))
        near = 1e-3 if any(made.problem.bounded) else 1e-6
        for one, other in zip(found[0], again, strict=True):
            assert np.array(other[3], dtype=float) == pytest.approx(
                np.array(one[3], dtype=float), rel=near, nan_ok=True
            )
