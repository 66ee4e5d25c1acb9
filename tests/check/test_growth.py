"""A5 by what matters: whether what can be certified grows, from the safe action, to other actions."""

import numpy as np
import pytest

from gym.small_envs import Shop
from gym.test_learn import SHOP, run
from limits import bridged_with, learned_with, stated
from tether import FiniteActions, Problem, SlucbQvi, StarActions, Transition
from tether.agents.certified import certified_set
from tether.check.growth import NAME
from tether.errors import AssumptionError
from tether.features import OneHot, PerAction

AVERAGE = "average over draws"


def problem(sets, costs, **told):
    """Horizon 1, σ = 0.05, τ = 0.5 over as many states as there are sets."""
    known = {"baseline_cost": None if costs is None else lambda step, state: costs[state]}
    settings = {"horizon": 1, "threshold": 0.5, "noise": 0.05, "dimension": sets[0].endpoints.shape[1], **known, **told}
    return Problem(actions=sets.__getitem__, states=range(len(sets)), **stated(**settings))


def certifies_another(problem, gamma, steps=1000):
    """Whether the learner certifies something but a_0 after so many plays of it, where costs are ⟨γ, φ⟩ plus noise."""
    agent, rng = SlucbQvi(problem), np.random.default_rng(0)
    for step in range(steps):
        state = step % len(problem.states)
        phi_0 = problem.look_up(state).actions.phi_0
        agent.observe(Transition(0, state, phi_0, 0.5, float(phi_0 @ gamma) + 0.05 * rng.standard_normal(), state))
    agent.plan()
    return any(len(certified_set(agent, 0, state).certified) > 1 for state in problem.states)


SHARED = [FiniteActions([[0.8, 0.1], [0.3, 0.3]], 0), FiniteActions([[0.1, 0.8], [0.3, 0.3]], 0)]
GAMMA = np.array([0.3, 0.4])
SHARED_COSTS = [float(GAMMA @ actions.phi_0) for actions in SHARED]
ONE_HOT = [FiniteActions(np.eye(3), 0)]


def test_shared_features_grow_although_no_set_is_star_convex():
    """Two safe features span the plane: what they cost says what the third costs."""
    shared = problem(SHARED, SHARED_COSTS)
    report = shared.check()
    assert report[NAME].verdict == "holds" and report.ok
    assert "star-convex in 0 of 2 states" in report[NAME].evidence and "grows" in report[NAME].evidence
    assert certifies_another(shared, GAMMA)


@pytest.mark.parametrize("costs", [[0.1], None], ids=["known", "unknown"])
def test_a_feature_for_each_action_does_not_grow(costs):
    alone = problem(ONE_HOT, costs)
    finding = alone.check()[NAME]
    assert finding.verdict == "fails" and "does not grow" in finding.evidence
    assert "wrong for temperatures" in finding.way_out and "StarActions" in finding.way_out
    assert not alone.check().ok
    assert not certifies_another(alone, np.array([0.1, 0.2, 0.2]), 500)


def test_an_average_over_draws_and_rays_grow_wherever_there_is_a_gap():
    assert problem(ONE_HOT, [0.1]).check(limit_on=AVERAGE)[NAME].verdict == "holds"
    assert problem([StarActions([1.0, 0.0], [[0.0, 1.0]])], [0.1]).check()[NAME].verdict == "holds"


def test_dear_actions_do_not_grow_even_where_their_costs_are_known():
    """(0.3, 0.3) costs 0.21, which is over τ = 0.2, and the safe costs say so."""
    dear = problem([FiniteActions([[0.4, 0.05], [0.9, 0.3]], 0), FiniteActions([[0.05, 0.4], [0.9, 0.3]], 0)],
                   [0.14, 0.175], threshold=0.2)  # fmt: skip
    assert dear.check()[NAME].verdict == "fails"
    assert not certifies_another(dear, GAMMA, 500)


def test_where_safe_costs_are_unknown_it_depends_on_the_costs():
    """Cheap costs let the learner out, dear ones do not: the report cannot know which."""
    depends = problem(SHARED, None)
    finding = depends.check()[NAME]
    assert finding.verdict == "cannot be known" and "depends on the costs" in finding.evidence
    assert depends.check().verdict == "holds"
    assert certifies_another(depends, np.array([0.1, 0.1]))
    assert not certifies_another(problem(SHARED, None, threshold=0.2), GAMMA)  # (0.3, 0.3) costs 0.21


def test_logged_costs_of_other_actions_may_let_it_grow():
    alone = problem(ONE_HOT, [0.1])
    finding = alone.check({"phi": np.eye(3)[[0, 1] * 20], "cost": [0.1, 0.2] * 20})[NAME]
    assert finding.verdict == "cannot be known" and "the log tells of 1 directions" in finding.evidence
    assert alone.check({"phi": np.eye(3)[[0] * 20], "cost": [0.1] * 20})[NAME].verdict == "fails"


def test_what_certified_play_reaches_is_followed_further():
    """a_0 spans (e1, e2); the action (e1 + e2)/2 teaches nothing new; rays of state 2 reach e3, so e3 of state 3 may
    follow; e4 never can."""
    sets = [
        FiniteActions(np.array([[0.8, 0, 0, 0], [0.3, 0.3, 0, 0]]), 0),
        FiniteActions(np.array([[0, 0.8, 0, 0], [0.3, 0.3, 0, 0]]), 0),
        StarActions(np.array([0.8, 0, 0, 0]), np.array([[0.2, 0, 0.8, 0]])),
        FiniteActions(np.array([[0.8, 0, 0, 0], [0.2, 0, 0.4, 0], [0, 0, 0, 1.0]]), 0),
    ]
    finding = problem(sets, [0.24, 0.32, 0.24, 0.24]).check()[NAME]
    assert finding.verdict == "holds"
    assert "4 of 5 other actions, and 3 of 4 directions" in finding.evidence


def test_a_learner_that_gains_under_its_limit_is_not_refused():
    gained = run(Shop(), 60, check=True, **SHOP)
    assert (gained.bound <= 0.5).all() and gained.returns[-10:].mean() > gained.returns[:1].mean() + 0.5
    alone = {**SHOP, "features": PerAction(OneHot(2), 3), "stationary": True, "gamma_norm": 1.5}
    with pytest.raises(AssumptionError, match="does not grow"):
        learned_with(Shop(), episodes=2, check=True, **alone)


def test_yes_no_costs_grow_if_what_is_declared_says_enough():
    """Costs in [0, 1]: safe ones of (1, 0) and (0, 1) bound that of (½, ½); one that shares nothing is bounded by 1."""
    told = {"cost_kind": "bounded", "noise": None}
    mixed = [FiniteActions([[1.0, 0.0], [0.5, 0.5]], 0), FiniteActions([[0.0, 1.0], [0.5, 0.5]], 0)]
    assert problem(mixed, [0.1, 0.3], **told).check()[NAME].verdict == "holds"
    alone = problem(ONE_HOT, [0.1], **told).check()[NAME]
    assert alone.verdict == "fails" and "shares a feature" in alone.evidence
    shares = [FiniteActions([[0.6, 0.0, 0.0], [0.6, 0.6, 0.0]], 0)]
    assert problem(shares, [0.1], **told).check()[NAME].verdict == "cannot be known"


def test_pooled_steps_teach_each_other_in_the_outlook():
    """H = 5: a step of its own needs five times as many plays as a pooled one."""
    deep = problem(SHARED, SHARED_COSTS, horizon=5)
    bridge = bridged_with(Shop(), **SHOP)
    assert deep.check(pooled=True).ok and bridge.check(plays=200, pooled=True).ok
