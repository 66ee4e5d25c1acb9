"""A mixture that is kept from one step to the one before is as good, and as certain, as one found anew."""

import numpy as np
import pytest

from kernels import mixture_calls as calls
from limits import stated
from tether import Problem, RslucbQvi, SlucbConfig
from tether.kernels.mixture_plan import constrain_step, keep_mixture, new_step_problems, pose, score_step
from tether.kernels.mixture_solver import CLOSED
from tether.kernels.model import BEST
from tether.kernels.plan import observe, prepare_step

H, S, N, D = 12, 12, 4, 10


def agent_with_data(*, varying=False, explorer="plain", constraints=1, observations=60):
    """A pooled agent after some random transitions; `varying` gives the safe actions another cost at every step."""
    rng = np.random.default_rng(5)
    features = rng.dirichlet(np.ones(D), size=(S, N))
    gamma = rng.uniform(0.0, 0.3, (constraints, D))
    costs = np.einsum("md,snd->snm", gamma, features)
    safe = costs.max(axis=2).argmin(axis=1)
    baseline = np.tile(costs[np.arange(S), safe], (H, 1, 1))
    problem = Problem.from_table(
        features=features,
        baseline_action=safe,
        horizon=H,
        **stated(
            baseline_cost_error=0.0,
            baseline_cost=baseline,
            threshold=(0.17,) * constraints,
            noise=(0.05,) * constraints,
            gamma_norm=(1.0,) * constraints,
        ),
    )
    config = SlucbConfig(explorer=explorer, cost_radius=0.3, value_radius=0.2, cost_ridge=1.0, pooled=True)
    agent = RslucbQvi(problem, config, rng=rng)
    agent.register(range(S))
    if varying:  # declared costs that differ by step cannot be pooled; what kernels do with such tables is tested here
        agent.tables.baseline_cost[:, :S] -= 0.002 * np.arange(H)[:, None, None]
    for _ in range(observations):
        state, action, arrived = rng.integers(S), rng.integers(N), int(rng.integers(S))
        x = features[state, action]
        noisy = costs[state, action] + 0.05 * rng.standard_normal(constraints)
        numbers = np.array([rng.random(), *noisy])
        observe(agent.costs, agent.values, agent.rules, 0, x.copy(), numbers, arrived, agent.scratch.vectors)
    agent.plan()
    return agent


def problems_at(agent, step):
    """The inner problems of every state at one step, set up anew: nothing is kept."""
    rules, tables, plan, scratch = agent.rules, agent.tables, agent.current, agent.scratch
    problems = new_step_problems(tables)
    prepare_step(agent.costs, agent.values, rules, tables, plan, scratch, step, 0)
    constrain_step(rules, tables, plan, scratch, problems, step, 0, False)
    score_step(rules, tables, plan, scratch, problems, step, step, 0)
    return problems


def problems_anew(agent):
    """(step, slot, score of a_0, numbers of the inner problem) of every state at every step: nothing is kept."""
    for step in range(H - 1, -1, -1):
        problems = problems_at(agent, step)
        for slot in range(S):
            pose(agent.tables, problems, 0, slot)
            one, n = problems.current, int(problems.current.size[0])
            numbers = {
                "gain": one.gain[:n].copy(),
                "rise": one.rise[:, :n].copy(),
                "joint": one.joint[:n, :n].copy(),
                "radius": one.radius.copy(),
                "slack": one.slack.copy(),
            }
            yield step, slot, float(problems.score_0[slot]), numbers


def others(agent, step, slot):
    """Probabilities of the actions besides a_0, as planned."""
    first, last = agent.tables.start[slot], agent.tables.start[slot + 1]
    return np.delete(agent.current.mixture[step, first:last], agent.tables.baseline_row[slot])


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("varying", [False, True])
def test_every_planned_mixture_is_the_best_of_its_own_step(varying, constraints):
    agent = agent_with_data(varying=varying, constraints=constraints)
    plan, mixed = agent.current, 0
    for step, slot, score_0, numbers in problems_anew(agent):
        x, largest = others(agent, step, slot), max(float(numbers["gain"].max()), 0.0)
        _, best, solved = calls.certified_optimum(**numbers)
        if solved:
            assert plan.score[step, slot] == pytest.approx(score_0 + best, abs=3.0 * CLOSED * largest + 1e-12)
        assert numbers["gain"] @ x == pytest.approx(plan.score[step, slot] - score_0, abs=1e-12)
        mixed += x.sum() > 0.0 and x.max() < 1.0
    assert mixed > H * S / 10


@pytest.mark.parametrize("varying", [False, True])
def test_every_planned_bound_is_that_of_its_own_step_and_under_the_threshold(varying):
    agent = agent_with_data(varying=varying)
    for step, slot, _, numbers in problems_anew(agent):
        x = others(agent, step, slot)
        if x.sum() == 0.0:
            continue
        rise = calls.cost_rise(numbers["rise"][0], numbers["joint"], numbers["radius"][0], x)
        bound = agent.current.bound[step, slot, 0]
        assert bound == pytest.approx(agent.tables.baseline_cost[step, slot, 0] + rise, abs=1e-9)
        assert bound <= agent.rules.threshold[0]


def kept(agent):
    """How often a state repeats the proper mixture of the step after, digit by digit."""
    pairs = [(others(agent, step, slot), others(agent, step + 1, slot)) for step in range(H - 1) for slot in range(S)]
    return sum(bool((x == y).all() and x.sum() > 0.0 and x.max() < 1.0) for x, y in pairs)


def test_mixtures_are_kept_while_the_constraint_stays_and_never_when_it_moves():
    assert kept(agent_with_data()) > H * S / 10
    assert kept(agent_with_data(varying=True)) == 0


def one_kept(agent):
    """The inner problems of step 0 with a state whose mixture of step 1 may be kept, that state, and its columns."""
    problems = problems_at(agent, 0)
    slot = next(s for s in range(S) if others(agent, 1, s).sum() > 0.0 and others(agent, 1, s).max() < 1.0)
    first, last = agent.tables.start[slot], agent.tables.start[slot + 1]
    safe = first + agent.tables.baseline_row[slot]
    problems.kept_row[slot] = 1
    problems.slope[0, first:last] = 10.0 * problems.slack[slot, 0]  # a minorant under which little can be gained
    problems.slope[0, safe] = 0.0
    problems.gain[first:last] = 1.0
    problems.gain[safe] = 0.0
    return problems, slot, slice(first, last)


def test_a_kept_mixture_brings_its_bound_and_its_own_score():
    agent = agent_with_data()
    problems, slot, rows = one_kept(agent)
    plan = agent.current
    plan.mixture[0, rows], plan.bound[0, slot], plan.reason[0, slot] = 0.0, 7.0, -1
    assert keep_mixture(agent.tables, plan, problems, 0, slot)
    np.testing.assert_array_equal(plan.mixture[0, rows], plan.mixture[1, rows])
    assert plan.bound[0, slot, 0] == plan.bound[1, slot, 0] <= agent.rules.threshold[0]
    assert plan.reason[0, slot] == BEST
    assert plan.score[0, slot] == pytest.approx(problems.score_0[slot] + others(agent, 1, slot).sum(), rel=1e-14)
    assert problems.kept_row[slot] == 0


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["gain", "score_0"])
def test_nothing_is_kept_where_a_number_is_not_finite(name, broken):
    agent = agent_with_data()
    problems, slot, rows = one_kept(agent)
    row = next(r for r in range(rows.start, rows.stop) if problems.gain[r] > 0.0)
    getattr(problems, name)[row if name == "gain" else slot] = broken
    assert not keep_mixture(agent.tables, agent.current, problems, 0, slot)


def test_nothing_is_kept_from_an_older_step_or_without_a_closed_certificate():
    agent = agent_with_data()
    problems, slot, rows = one_kept(agent)
    problems.kept_row[slot] = 2
    assert not keep_mixture(agent.tables, agent.current, problems, 0, slot)
    problems.kept_row[slot] = 1
    problems.slope[0, rows] = 0.0  # now everything could be gained
    assert not keep_mixture(agent.tables, agent.current, problems, 0, slot)
