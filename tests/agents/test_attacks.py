"""Attempts to get an action without a valid bound: tiny noise, collinear facts, states outside the list, odd rays."""

import numpy as np
import pytest

from agents.cases import literal_bound
from tether import (
    AssumptionError,
    Constraint,
    FiniteActions,
    InputError,
    Problem,
    SlucbConfig,
    SlucbQvi,
    StarActions,
    Transition,
)
from tether.agents.slucb import EXPLORERS
from tether.lab.simulate import simulate
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.synthetic import synthetic
from worlds import two_constraints


@pytest.mark.parametrize("explorer", EXPLORERS)
@pytest.mark.parametrize("noise", [1e-6, 1e-9, 1e-12])
def test_tiny_noise_does_not_break_the_arithmetic_behind_the_bound(noise, explorer):
    """ "If costs are observed without noise, give a small positive σ": the default ridge σ²d/B² then falls under the
    rounding of A = λI + Σφφᵀ, and widths become noise. Four worlds, 100 episodes: no step may cost more than τ."""
    for seed in range(4):
        streams = Streams.from_seed(seed)
        world = synthetic(streams.instance, states=3, rays=10, dimension=3 + seed, horizon=2, noise=noise)
        books = simulate(world, SlucbQvi(world.problem, SlucbConfig(explorer=explorer)), 100, streams)
        assert books.violations.sum() == 0, f"seed {seed}: {books.worst_cost.max():.3g} over the threshold"


@pytest.mark.parametrize("ridge", [1e-16, 1e-18, 1e-24, 1e-300])
def test_a_ridge_below_the_rounding_of_the_gram_matrix_is_refused_or_safe(ridge):
    for seed in range(8):
        streams = Streams.from_seed(seed)
        world = synthetic(streams.instance, states=3, rays=10, dimension=3 + seed % 4, horizon=2, noise=1e-9)
        try:
            agent = SlucbQvi(world.problem, SlucbConfig(cost_ridge=ridge))
        except InputError as refused:
            assert "cost_ridge" in str(refused)
            continue
        books = simulate(world, agent, 100, streams)
        assert books.violations.sum() == 0, f"seed {seed}: {books.worst_cost.max():.3g} over the threshold"


def _literal_all(agent, problem, history, d):
    """The bound at a played point when the regression lives in the complement of the known facts, by hand."""
    listed = [problem.actions(state).phi_0 for state in problem.states]
    costs = [problem.baseline_cost(0, state)[0] for state in problem.states]
    f, start = problem.actions(d.state).phi_0, problem.baseline_cost(0, d.state)[0]
    told = (agent.costs.ridge, np.array(listed), np.array(costs), f, start)
    return literal_bound(told, history, d.feature, d.cost_radius.value, True)


@pytest.mark.parametrize("state", [0, 1])
def test_conditioning_on_all_listed_states_is_sound_in_states_that_are_not_listed(state):
    """State 0 is listed and gives one exact equation; state 1 is met later. In both, each stated bound must be the
    one that the history gives: the tables must not treat state 1's safe cost as if it were in the equations."""
    gamma, rng = np.array([0.3, 0.6, 0.9]), np.random.default_rng(1)
    starts = np.array([[0.8, 0.1, 0.1], [0.5, 0.4, 0.1]])
    stars = [StarActions(f, np.random.default_rng(s).dirichlet(np.ones(3), size=5)) for s, f in enumerate(starts)]
    problem = Problem(
        horizon=1,
        constraints=Constraint(
            threshold=0.6, noise=0.05, safe_cost=lambda h, s: float(starts[s] @ gamma), gamma_norm=1.2
        ),
        dimension=3,
        actions=lambda s: stars[s],
        states=[0],
    )
    agent, history, audited = SlucbQvi(problem, SlucbConfig(condition_on="all")), [], 0
    agent.register([0, 1])
    for _ in range(60):
        agent.plan()
        d = agent.act(0, state)
        assert gamma @ d.feature <= 0.6 + 1e-12
        if not d.is_baseline:
            literal = _literal_all(agent, problem, history, d)
            assert d.cost_bound >= literal - 1e-9
            assert d.cost_bound == pytest.approx(literal, abs=1e-6)
            audited += 1
        cost = float(gamma @ d.feature) + 0.05 * rng.standard_normal()
        agent.observe(d.outcome(reward=rng.random(), cost=cost, next_state=state))
        history.append((d.feature, cost))
    assert audited > 15


def test_facts_that_almost_coincide_are_not_trusted_beyond_their_digits():
    """Two safe features that differ by 3e-9, with costs declared to ten digits (the world accepts nine): the quotient
    of the two differences says nothing about γ*. No action may cost more than τ by more than a rounding error."""
    worst = 0.0
    for seed in range(250):
        rng = np.random.default_rng(seed)
        gamma, f = rng.uniform(0.05, 0.95, 2), rng.dirichlet([1.0, 1.0])
        starts = np.array([f, f + 3e-9 * np.array([1.0, -1.0])])
        costs = starts @ gamma + 1e-10 * rng.uniform(-1.0, 1.0, 2)
        if starts.min() < 0.0 or costs.max() > 0.45:
            continue
        problem = Problem.from_rays(
            phi_0=starts,
            endpoints=np.tile([[0.0, 1.0], [1.0, 0.0]], (2, 1, 1)),
            constraints=Constraint(threshold=0.5, noise=0.01, safe_cost=costs[None], gamma_norm=2.0),
            horizon=1,
        )
        try:
            agent = SlucbQvi(problem, SlucbConfig(condition_on="all"))
        except AssumptionError:
            continue
        worst = max(worst, *(float(gamma @ agent.act(0, s).feature) - 0.5 for s in range(2)))
    assert worst <= 1e-7


@pytest.mark.parametrize("condition_on", ["state", "all"])
@pytest.mark.parametrize("explorer", EXPLORERS)
def test_rays_that_end_at_or_beside_the_safe_feature_are_harmless(explorer, condition_on):
    """Endpoints equal to f, parallel to f, and 1e-9 beside it: widths vanish, and nothing may become NaN or unsafe."""
    f, gamma = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.5, 0.9])
    away = np.array([0.0, 0.1, 0.9])
    ends = np.array([f, 0.5 * f, f + 1e-9 * (away - f), 1e-6 * f, away])
    problem = Problem.from_rays(
        phi_0=f[None],
        endpoints=ends[None],
        constraints=Constraint(threshold=0.5, noise=0.02, safe_cost=[[float(f @ gamma)]], gamma_norm=1.1),
        horizon=1,
    )
    agent, rng = SlucbQvi(problem, SlucbConfig(explorer=explorer, condition_on=condition_on)), np.random.default_rng(3)
    for _ in range(80):
        agent.plan()
        d = agent.act(0, 0)
        assert np.isfinite([d.cost_bound, d.score, *d.feature]).all()
        assert gamma @ d.feature <= 0.5 + 1e-12
        assert d.is_baseline or d.cost_bound <= 0.5
        cost = float(gamma @ d.feature) + 0.02 * rng.standard_normal()
        agent.observe(d.outcome(reward=float(d.feature[2]), cost=cost))


@pytest.mark.parametrize("explorer", EXPLORERS)
def test_outrageous_outcomes_never_loosen_the_safe_set(explorer):
    """Finite but absurd costs and rewards: sums overflow, and then only the safe action may be played."""
    world = two_constraints()
    agent = SlucbQvi(world.problem, SlucbConfig(explorer=explorer))
    agent.register(range(4))
    for k in range(6):
        agent.plan()
        d = agent.act(0, k % 4)
        agent.observe(d.outcome(reward=1e308, cost=(1e308, -1e308), next_state=1))
    agent.plan()
    for state in range(4):
        d = agent.act(0, state)
        assert d.is_baseline
        assert d.reason in ("alarm", "bad-numbers", "only-baseline")
        for bound, declared in zip(d.evidence, world.problem.look_up(state).baseline_cost[0], strict=True):
            assert bound.bound == declared


def test_a_false_declaration_raises_the_alarm_and_falls_back_to_the_safe_action():
    """The safe action is declared to cost 0.1 and costs 0.4: the data say so, and nothing else is played."""
    gamma = np.array([0.4, 0.9])
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]],
        endpoints=[[[0.0, 1.0]]],
        constraints=Constraint(threshold=0.5, noise=0.01, safe_cost=[[0.1]]),
        horizon=1,
    )
    agent, rng = SlucbQvi(problem), np.random.default_rng(4)
    agent.register([0])
    for _ in range(30):
        x = np.array([1.0, 0.0])
        agent.observe(Transition(0, 0, x, 0.5, float(gamma @ x) + 0.01 * rng.standard_normal()))
    agent.plan()
    d = agent.act(0, 0)
    assert (d.is_baseline, d.reason) == (True, "alarm")
    assert agent.alarms == [(0, 0)]


def test_a_constraint_that_only_the_middle_of_a_ray_satisfies_is_handled_with_two_constraints():
    """Unknown safe costs. Constraint 0 is proven only at the far end of the ray, constraint 1 only at its start: no
    common length exists, so the safe action is played, and its evidence is the declaration, never a NaN."""
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]],
        endpoints=[[[0.0, 1.0]]],
        constraints=[
            Constraint(threshold=0.5, noise=0.1, gamma_norm=1.0),
            Constraint(threshold=0.3, noise=0.001, gamma_norm=1.0),
        ],
        horizon=1,
    )
    agent, gamma = SlucbQvi(problem, SlucbConfig(cost_ridge=0.01)), np.array([[0.2, 0.1], [0.0, 0.9]])
    agent.register([0])
    for x, times in ((np.array([0.0, 1.0]), 200), (np.array([1.0, 0.0]), 1)):
        for _ in range(times):
            agent.observe(Transition(0, 0, x, float(x[1]), tuple((gamma @ x).tolist()), 0))
    agent.plan()
    d = agent.act(0, 0)
    assert d.is_baseline
    for bound in d.evidence:
        assert np.isfinite(bound.bound)
        assert bound.bound <= bound.threshold


def test_an_action_with_the_safe_feature_under_another_name_is_as_safe_as_the_safe_one():
    """Two rows of a finite set are equal: the duplicate's bound is the known cost."""
    rows = np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]])
    problem = Problem(
        horizon=1,
        constraints=Constraint(threshold=0.3, noise=0.1, safe_cost=lambda h, s: 0.2),
        dimension=2,
        actions=lambda s: FiniteActions(rows, 0),
    )
    agent = SlucbQvi(problem)
    d = agent.act(0, 0)
    assert d.action in (0, 1)
    assert d.cost_bound == pytest.approx(0.2, abs=1e-6)
