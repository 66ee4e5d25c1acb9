"""An alarm names the least B that safe costs and data demand, in the decision and in a warning."""

import re
import warnings

import numpy as np
import pytest

from limits import stated
from tether import Constraint, Problem, RslucbQvi, SlucbQvi, StarActions
from tether.agents.demands import Learned, demanded_norm

GAMMA = np.array([3.0, -2.5])
SAFE = np.array([[0.6, 0.6], [0.8, 0.3]])


def two_states(gamma_norm, wrong=0.0):
    """Safe costs of two states, which determine γ* = (3, −2.5), of length 3.905."""
    return Problem(
        horizon=1,
        constraints=Constraint(
            threshold=3.0,
            noise=0.05,
            safe_cost=lambda step, state: float(SAFE[state] @ GAMMA) + wrong,
            gamma_norm=gamma_norm,
        ),
        dimension=2,
        actions=lambda state: StarActions(SAFE[state], [[0.9, 0.1]]),
        states=range(2),
    )


def played(agent, decisions, gamma=GAMMA, states=2, seed=0):
    """Decisions in turn in each state; costs with noise of σ = 0.05."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(decisions):
        agent.plan()
        made.append(agent.act(0, number % states))
        cost = float(gamma @ made[-1].feature + 0.05 * rng.standard_normal())
        agent.observe(made[-1].outcome(reward=0.5, cost=cost))
    return made


def learned_by(agent):
    return Learned(agent.rules, agent.costs, agent.values)


def least_said(detail):
    return float(re.search(r"at least B = (\d(?:[\d.e+]*\d)?)", detail).group(1))


def test_safe_costs_that_together_need_a_larger_gamma_name_it_in_the_decision_and_in_a_warning():
    agent = SlucbQvi(two_states(3.0))
    with pytest.warns(UserWarning, match=r"only the safe action is played: .* if B = 3 is right") as caught:
        last = played(agent, 8)[-1]
    assert (last.reason, last.is_baseline) == ("alarm", True)
    assert least_said(last.detail) == pytest.approx(np.linalg.norm(GAMMA), rel=5e-3)
    assert "feature_effects=[…]" in last.detail
    assert len(caught) == 1, "it is said once"


def test_with_the_b_that_is_named_there_is_no_alarm():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {decision.reason for decision in played(SlucbQvi(two_states(3.91)), 8)} <= {"best", "baseline-best"}


def test_data_that_contradict_a_safe_cost_name_the_least_b_that_would_explain_them():
    """The ray's cost grows by 3.2 to its end, which no γ of length 1 gives."""
    gamma, f = np.array([0.1, 8.0]), np.array([0.9, 0.0])
    problem = Problem(
        horizon=1,
        constraints=Constraint(threshold=1.0, noise=0.05, safe_cost=float(f @ gamma), gamma_norm=1.0),
        dimension=2,
        actions=lambda state: StarActions(f, [[0.9, 0.4]]),
    )
    with pytest.warns(UserWarning, match="if B = 1 is right"):
        made = played(SlucbQvi(problem), 5, gamma, states=1)
    alarm = next(decision for decision in made if decision.reason == "alarm")
    assert 1.0 < least_said(alarm.detail) <= np.linalg.norm(gamma)


def test_the_least_b_is_never_over_the_truth_where_safe_costs_are_right():
    """It is a lower bound with probability 1 − δ: δ = .01 in each of 40 runs, none fails by more than chance allows."""
    gamma, f = np.array([0.1, 8.0]), np.array([0.9, 0.0])
    problem = Problem(
        horizon=1,
        constraints=Constraint(threshold=1.0, noise=0.05, safe_cost=float(f @ gamma), gamma_norm=1.0),
        dimension=2,
        actions=lambda state: StarActions(f, [[0.9, 0.4]]),
    )
    wrong = 0
    for seed in range(40):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = played(SlucbQvi(problem), 5, gamma, states=1, seed=seed)
        alarms = [decision.detail for decision in made if decision.reason == "alarm"]
        said = [least_said(detail) for detail in alarms if "at least B" in detail]
        assert said, seed
        wrong += max(said) > np.linalg.norm(gamma)
    assert wrong <= 5  # P(more | .01) < 1e-6


def test_where_no_b_helps_the_safe_costs_are_named():
    """A third state whose safe feature lies between those of the others, with a cost that does not: no γ gives all."""
    features = np.vstack([SAFE, SAFE.mean(axis=0)])
    costs = features @ GAMMA + np.array([0.0, 0.0, 0.2])
    problem = Problem(
        horizon=1,
        constraints=Constraint(
            threshold=3.0, noise=0.05, safe_cost=lambda step, state: float(costs[state]), gamma_norm=5.0
        ),
        dimension=2,
        actions=lambda state: StarActions(features[state], [[0.9, 0.1]]),
        states=range(3),
    )
    with pytest.warns(UserWarning, match="Correct safe_cost"):
        last = played(SlucbQvi(problem), 9, states=3)[-1]
    assert last.reason == "alarm" and "whatever B is: correct safe_cost" in last.detail


def test_a_constraint_is_named_by_its_number_where_there_are_several():
    problem = Problem(
        horizon=1,
        dimension=2,
        actions=lambda state: StarActions(SAFE[state], [[0.9, 0.1]]),
        states=range(2),
        **stated(
            threshold=(3.0, 3.0),
            noise=0.05,
            baseline_cost=lambda step, state: (0.5 * float(SAFE[state] @ GAMMA), float(SAFE[state] @ GAMMA)),
            gamma_norm=3.0,
            baseline_cost_error=0.0,
        ),
    )
    agent = SlucbQvi(problem)
    with pytest.warns(UserWarning, match="the declared safe cost 1 contradicts"):
        rng = np.random.default_rng(0)
        for number in range(6):
            agent.plan()
            decision = agent.act(0, number % 2)
            truth = float(GAMMA @ decision.feature) + 0.05 * rng.standard_normal()
            agent.observe(decision.outcome(reward=0.5, cost=(0.5 * truth, truth)))
    assert demanded_norm(learned_by(agent), 0, problem.look_up(0)).tolist()[0] == 0.0


def test_asking_for_the_least_b_changes_nothing():
    agent = SlucbQvi(two_states(3.0))
    with pytest.warns(UserWarning):
        played(agent, 8)
    before = {name: array.copy() for name, array in agent.arrays().items()}
    demanded_norm(learned_by(agent), 0, agent.problem.look_up(1))
    assert all(np.array_equal(array, before[name], equal_nan=True) for name, array in agent.arrays().items())


def test_mixtures_name_it_as_well():
    agent = RslucbQvi(two_states(3.0), rng=np.random.default_rng(0))
    with pytest.warns(UserWarning, match="if B = 3 is right"):
        last = played(agent, 8)[-1]
    assert last.reason == "alarm" and least_said(last.detail) == pytest.approx(np.linalg.norm(GAMMA), rel=5e-3)


def test_an_alarm_that_stays_still_names_the_b_that_would_explain_the_data():
    """A latched alarm is one for every B: it must not be read as safe costs that no B explains."""
    agent = SlucbQvi(two_states(3.0))
    with pytest.warns(UserWarning):
        made = played(agent, 8)
    assert agent.costs.facts.alarm.any()
    assert least_said(made[-1].detail) == pytest.approx(np.linalg.norm(GAMMA), rel=5e-3)
