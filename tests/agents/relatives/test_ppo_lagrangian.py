"""PPO with a Lagrangian: how its prices move, and where PyTorch is installed, that it keeps the contract and learns."""

import sys

import numpy as np
import pytest

from tether import Constraint, MissingExtra, Problem
from tether.agents.relatives import methods
from tether.agents.relatives.ppo_lagrangian import PpoConfig, PpoLagrangian, Price
from tether.agents.testing import SmallWorld, check_agent, play


def test_a_price_moves_by_its_rate_toward_the_excess():
    """Adam's first step is ± the rate whatever the size: λ = 1 is u = log(e − 1)."""
    price = Price(2, first=1.0, rate=0.05)
    assert np.allclose(price.values, 1.0)
    price.follow(np.array([3.0, -0.01]))
    assert np.allclose(price.u - np.log(np.e - 1.0), [0.05, -0.05], atol=1e-6)
    assert price.values[0] > 1.0 > price.values[1] > 0.0


def test_without_pytorch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install \"tether-rl\[league-deep\]\""):
        PpoLagrangian(SmallWorld(finite=True).problem)
    assert PpoLagrangian in list(methods()), "its row is there all the same"


@pytest.fixture
def deep():
    """PyTorch and Stable-Baselines3 are an extra of their own, which the default environment does not have."""
    pytest.importorskip("stable_baselines3", reason="needs the extra league-deep: make test-cisr has it")


@pytest.mark.parametrize("world", [SmallWorld(), SmallWorld(finite=True), SmallWorld(constraints=2)])
def test_it_keeps_the_contract_of_every_agent(world, tmp_path, deep):
    check_agent(lambda problem: PpoLagrangian(problem, PpoConfig(rollout=12)), tmp_path, worlds=(world,), draws=True)


def test_it_learns_to_stay_under_its_budget_and_calls_nothing_certified(deep):
    """One step, two actions: worth 1 at cost 1, worth 0 at cost 0; τ = ¼. At λ = 1 both are worth the same."""
    features = np.eye(2)[None]
    problem = Problem.from_table(
        features=features,
        baseline_action=[1],
        constraints=Constraint(threshold=0.25, noise=0.01, safe_cost=np.zeros((1, 1))),
        horizon=1,
    )
    agent, costs = PpoLagrangian(problem, PpoConfig(rollout=64, first_price=0.01, scale=20.0)), []
    for _ in range(4000):
        agent.plan()
        decision = agent.act(0, 0)
        costs.append(float(decision.feature[0]))
        agent.observe(decision.outcome(reward=costs[-1], cost=costs[-1], next_state=0))
    assert np.mean(costs[:1000]) > 0.4, "a price that is low at first is no brake"
    assert np.mean(costs[-1000:]) < 0.4
    assert decision.cost_radius.origin == "none" and decision.value_radius.origin == "tuned"


def test_the_global_generators_are_left_as_they_were(deep):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    world = SmallWorld(finite=True)
    play(world, PpoLagrangian(world.problem, PpoConfig(rollout=9)), np.random.default_rng(1), 5)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
