"""Is RSLUCB-QVI Algorithm 2? It must choose the mixtures and values of the literal transcription, at every state."""

import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from reference.literal_randomised import LiteralRandomised, Recipe2
from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig
from tether.lab.worlds.linear_mdp import Streams
from worlds import uneven_world

PROBABILITY = 1e-5
VALUE = 1e-6


def pair(beta, ridge, *, kappa=None, pooled=False):
    """One β and one λ for everything, as published."""
    config = replace(SlucbConfig.paper(beta, ridge=ridge), pooled=pooled, kappa="theorem" if kappa is None else kappa)
    return config, Recipe2(beta=beta, ridge=ridge, kappa=kappa, pooled=pooled)


def compare(world, config, recipe, episodes, seed=0):
    """Run the fast agent; the literal one sees the same outcomes, and both are asked everywhere at every plan."""
    agent, streams = RslucbQvi(world.problem, config, rng=np.random.default_rng(seed)), Streams.from_seed(seed)
    agent.register(range(world.state_count))
    literal, seen = LiteralRandomised(world.problem, world.state_count, recipe), Counter()
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # cvxpy on a tolerance that Clarabel nearly reached
            literal.plan()
        for step in range(world.problem.horizon):
            for s in range(world.state_count):
                decision = agent.peek(step, s)
                check_mixture(world, decision, literal.mixtures[step, s], seen)
                value = agent.current.values[step, agent.slot_of(s)]
                assert value == pytest.approx(literal.values[step, s], rel=VALUE, abs=VALUE)
            transition = world.step(agent.act(step, state), streams)
            agent.observe(transition)
            literal.observe(transition)
            state = transition.next_state
    return seen


def check_mixture(world, decision, mixed, seen):
    theta, spread = decision.mixture.probabilities, max(float(np.ptp(mixed.scores)), 1e-9)
    seen["compared"] += 1
    assert decision.score == pytest.approx(mixed.score, rel=VALUE, abs=VALUE)
    assert theta.sum() == pytest.approx(1.0, abs=1e-12)
    assert mixed.scores @ theta >= mixed.score - VALUE * spread, "worth less than the literal choice"
    for tau, bound, rise in zip(world.problem.threshold, decision.evidence, mixed.rises, strict=True):
        assert rise(theta) <= tau + 1e-12, "not in the literal Γ_h(s)"
        if not decision.is_baseline or decision.mixture.baseline < 1.0:
            assert bound.bound == pytest.approx(rise(theta), abs=1e-7)
    if np.abs(theta - mixed.theta).max() > PROBABILITY:
        seen["other mixture, same score"] += 1
    played = int((theta > 1e-7).sum())
    seen["pure" if played == 1 else "of two" if played == 2 else "of more"] += 1
    seen["leaves a_0"] += decision.mixture.baseline < 1e-7


@pytest.mark.parametrize(
    ("seed", "beta", "ridge", "kappa"), [(4, 0.1, 0.2, None), (7, 0.3, 1.0, None), (4, 0.15, 0.5, 2.0)]
)
def test_algorithm_2_chooses_the_mixtures_of_its_transcription(seed, beta, ridge, kappa):
    world = uneven_world(seed, finite=True, states=3, rays=4)
    seen = compare(world, *pair(beta, ridge, kappa=kappa), episodes=12)
    assert seen["compared"] == 12 * 3 * 3
    assert seen["other mixture, same score"] <= 3
    assert seen["of two"] + seen["of more"] > 20
    assert seen["of more"] > 2


def test_a_tuned_kappa_changes_what_is_chosen():
    """Else the two cases above could both ignore κ."""
    world = uneven_world(5, finite=True, states=3, rays=4)
    chosen = []
    for kappa in ("theorem", 0.01):
        config = replace(SlucbConfig.paper(0.15, ridge=0.5), kappa=kappa)
        agent, streams = RslucbQvi(world.problem, config, rng=np.random.default_rng(0)), Streams.from_seed(0)
        agent.register(range(3))
        for s in np.arange(30) % 3:
            agent.plan()
            agent.observe(world.step(agent.act(0, int(s)), streams))
        agent.plan()
        chosen.append(agent.current.mixture.copy())
    assert np.abs(chosen[0] - chosen[1]).max() > 0.1


def test_pooled_steps_share_one_regression():
    world = uneven_world(10, finite=True, states=3, rays=4, same_stages=True)
    seen = compare(world, *pair(0.15, 0.3, pooled=True), episodes=10)
    assert seen["other mixture, same score"] <= 3
    assert seen["of two"] + seen["of more"] > 20


def test_two_constraints_limit_the_mixture_together():
    world = uneven_world(15, finite=True, states=3, rays=3, constraints=2)
    seen = compare(world, *pair(0.1, 0.2), episodes=8)
    assert seen["other mixture, same score"] <= 3
    assert seen["of two"] + seen["of more"] > 20


def test_many_actions_grow_the_support_by_pricing():
    """Nine actions besides a_0 are more than are enumerated."""
    world = uneven_world(15, finite=True, states=2, rays=9, dimension=5, horizon=2)
    seen = compare(world, *pair(0.3, 0.3, kappa=0.3), episodes=12)
    assert seen["other mixture, same score"] <= 3
    assert seen["of more"] > 15


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("explorer", ["paper", "certified", "directional"])
def test_a_state_that_no_plan_covers_gets_the_mixture_it_would_have_in_a_plan(explorer, pooled):
    world = uneven_world(6, finite=True, states=4, rays=4, same_stages=pooled)
    config = SlucbConfig(explorer=explorer, pooled=pooled, value_radius=0.3, cost_radius=0.8)
    agents = [RslucbQvi(world.problem, config, rng=np.random.default_rng(1)) for _ in range(2)]
    streams, mixed = Streams.from_seed(2), 0
    for agent in agents:
        agent.register([1])
    for n in range(40):
        step = n % 3
        transition = world.step(agents[0].peek(step, 1), streams)
        for agent in agents:
            agent.observe(replace(transition, next_state=1, decision_id=None))
    agents[0].register(range(4))
    for agent in agents:
        agent.plan()
    for step in range(3):
        for state in (0, 2, 3):
            planned, alone = (agent.peek(step, state) for agent in agents)
            np.testing.assert_allclose(planned.mixture.probabilities, alone.mixture.probabilities, atol=1e-9)
            assert planned.score == pytest.approx(alone.score, rel=1e-9)
            assert planned.cost_bound == pytest.approx(alone.cost_bound, abs=1e-9)
            assert planned.reason == alone.reason
            mixed += 0.0 < planned.mixture.baseline < 1.0
    assert mixed > 2
