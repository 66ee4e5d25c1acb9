"""A mixture that is kept from one step to the one before is as good, and as certain, as one found anew."""

import numpy as np
import pytest

from reference import kernels
from tether import Problem, RslucbQvi, SlucbConfig
from tether.learning.backup import prepare_step
from tether.learning.mixture_choice import Sheet, inner_problems, new_desk, put_on_desk
from tether.learning.mixture_reuse import keep_mixture
from tether.learning.mixture_search import CLOSED
from tether.learning.statistics import BEST, observe

H, S, N, D = 12, 12, 4, 10


def agent_with_data(*, varying=False, explorer="plain", constraints=1, observations=60):
    """A pooled agent after some random transitions; `varying` gives the safe actions another cost at every step."""
    rng = np.random.default_rng(5)
    features = rng.dirichlet(np.ones(D), size=(S, N))
    gamma = rng.uniform(0.0, 0.3, (constraints, D))
    costs = np.einsum("md,snd->snm", gamma, features)
    safe = costs.max(axis=2).argmin(axis=1)
    baseline = np.tile(costs[np.arange(S), safe], (H, 1, 1))
    if varying:
        baseline -= 0.002 * np.arange(H)[:, None, None]
    problem = Problem.from_table(
        features=features,
        baseline_action=safe,
        baseline_cost=baseline,
        horizon=H,
        threshold=(0.17,) * constraints,
        noise=(0.05,) * constraints,
        gamma_norm=(1.0,) * constraints,
    )
    config = SlucbConfig(explorer=explorer, cost_radius=0.3, value_radius=0.2, cost_ridge=1.0, pooled=True)
    agent = RslucbQvi(problem, config, rng=rng)
    agent.register(range(S))
    for _ in range(observations):
        state, action, arrived = rng.integers(S), rng.integers(N), int(rng.integers(S))
        x = features[state, action]
        noisy = costs[state, action] + 0.05 * rng.standard_normal(constraints)
        observe(agent.memory, agent.rules, 0, 0, x, float(rng.random()), noisy, True, arrived)
    agent.plan()
    return agent


def problems_anew(agent):
    """(step, slot, score of a_0, inner problem, rows of the others, where it is solved): nothing is kept."""
    plan, tables, (sheet, _) = agent.current, agent.tables, agent._stationery(agent.tables)
    for step in range(H - 1, -1, -1):
        prepare_step(agent.memory, agent.rules, tables, plan, agent.scratch, step, 0)
        reasons = plan.reason[step].copy()
        bounds = plan.bound[step].copy()
        inner_problems(agent.rules, tables, plan, agent.scratch, step, 0, False, sheet)
        plan.reason[step], plan.bound[step] = reasons, bounds
        for slot in range(S):
            desk = new_desk(agent.problem.constraints, tables.joint.shape[2])
            n = put_on_desk(tables, sheet, 0, slot, desk)
            told = {
                "gain": desk.gain[:n],
                "rise": desk.rise[:, :n],
                "joint": desk.joint[:n, :n],
                "radius": desk.facts[1],
                "slack": desk.facts[2],
            }
            yield step, slot, float(sheet.score_0[slot]), told


def others(agent, step, slot):
    """Probabilities of the actions besides a_0, as planned."""
    first, last = agent.tables.start[slot], agent.tables.start[slot + 1]
    return np.delete(agent.current.mixture[step, first:last], agent.tables.baseline_row[slot])


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("varying", [False, True])
def test_every_planned_mixture_is_the_best_of_its_own_step(varying, constraints):
    agent = agent_with_data(varying=varying, constraints=constraints)
    plan, mixed = agent.current, 0
    for step, slot, score_0, told in problems_anew(agent):
        x, largest = others(agent, step, slot), max(float(told["gain"].max()), 0.0)
        _, best, solved = kernels.certified_optimum(**told)
        if solved:
            assert plan.score[step, slot] == pytest.approx(score_0 + best, abs=3.0 * CLOSED * largest + 1e-12)
        assert told["gain"] @ x == pytest.approx(plan.score[step, slot] - score_0, abs=1e-12)
        mixed += x.sum() > 0.0 and x.max() < 1.0
    assert mixed > H * S / 10


@pytest.mark.parametrize("varying", [False, True])
def test_every_planned_bound_is_that_of_its_own_step_and_under_the_threshold(varying):
    agent = agent_with_data(varying=varying)
    for step, slot, _, told in problems_anew(agent):
        x = others(agent, step, slot)
        if x.sum() == 0.0:
            continue
        rise = kernels.cost_rise(told["rise"][0], told["joint"], told["radius"][0], x)
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


def one_held(agent):
    """The sheet of step 0 with a state whose mixture of step 1 may be looked at again, and that state."""
    sheet: Sheet = agent._stationery(agent.tables)[0]
    prepare_step(agent.memory, agent.rules, agent.tables, agent.current, agent.scratch, 0, 0)
    inner_problems(agent.rules, agent.tables, agent.current, agent.scratch, 0, 0, False, sheet)
    slot = next(s for s in range(S) if others(agent, 1, s).sum() > 0.0 and others(agent, 1, s).max() < 1.0)
    first, last = agent.tables.start[slot], agent.tables.start[slot + 1]
    safe = first + agent.tables.baseline_row[slot]
    sheet.held[slot] = 1
    sheet.slope[0, first:last] = 10.0 * sheet.facts[slot, 2, 0]  # a minorant under which little can be gained
    sheet.slope[0, safe] = 0.0
    sheet.gain[first:last] = 1.0
    sheet.gain[safe] = 0.0
    return sheet, slot, slice(first, last)


def test_a_kept_mixture_brings_its_bound_and_its_own_score():
    agent = agent_with_data()
    sheet, slot, rows = one_held(agent)
    plan = agent.current
    plan.mixture[0, rows], plan.bound[0, slot], plan.reason[0, slot] = 0.0, 7.0, -1
    assert keep_mixture(agent.tables, plan, 0, slot, sheet)
    np.testing.assert_array_equal(plan.mixture[0, rows], plan.mixture[1, rows])
    assert plan.bound[0, slot, 0] == plan.bound[1, slot, 0] <= agent.rules.threshold[0]
    assert plan.reason[0, slot] == BEST
    assert plan.score[0, slot] == pytest.approx(sheet.score_0[slot] + others(agent, 1, slot).sum(), rel=1e-14)
    assert sheet.held[slot] == 0


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["gain", "score_0"])
def test_nothing_is_kept_where_a_number_is_not_finite(name, broken):
    agent = agent_with_data()
    sheet, slot, rows = one_held(agent)
    row = next(r for r in range(rows.start, rows.stop) if sheet.gain[r] > 0.0)
    getattr(sheet, name)[row if name == "gain" else slot] = broken
    assert not keep_mixture(agent.tables, agent.current, 0, slot, sheet)


def test_nothing_is_kept_from_an_older_step_or_without_a_closed_certificate():
    agent = agent_with_data()
    sheet, slot, rows = one_held(agent)
    sheet.held[slot] = 2
    assert not keep_mixture(agent.tables, agent.current, 0, slot, sheet)
    sheet.held[slot] = 1
    sheet.slope[0, rows] = 0.0  # now everything could be gained
    assert not keep_mixture(agent.tables, agent.current, 0, slot, sheet)
