"""NCS-LSVI: where it explores first, what it plays then, and that no step costs more than τ."""

import numpy as np

from tether.agents.relatives.ncs_lsvi import NcsLsvi, NcsLsviConfig
from tether.agents.testing import SmallWorld, play
from tether.lab.worlds.synthetic import not_star_convex
from tether.records import Transition


def test_without_neighbours_it_stays_and_with_them_it_learns():
    """SLUCB-QVI's own counterexample: nothing near a_2 teaches about a_1, unless D(s) is a star."""
    found = []
    for completed in (False, True):
        world = not_star_convex(completed=completed)
        agent = NcsLsvi(world.problem, NcsLsviConfig(first_phase=40, value_radius=1.0))
        for _ in range(80):
            agent.plan()
            decision = agent.act(0, 0)
            agent.observe(decision.outcome(reward=decision.feature[1], cost=decision.feature[1], next_state=0))
        found.append(float(decision.feature[1]))
    assert found == [0.0, 1.0]


def test_the_first_phase_stays_within_its_neighbourhood_and_draws_from_all_of_it():
    """Of the ways to (0, ε) only the certified ones; ε = 0 leaves a_0 alone."""
    world = SmallWorld(finite=True)
    for reach, alone in ((0.0, True), (None, False)):
        agent = NcsLsvi(world.problem, NcsLsviConfig(first_phase=60, neighbourhood=reach, value_radius=1.0), seed=2)
        decisions = play(world, agent, np.random.default_rng(5), 60)
        rows = {decision.action for decision in decisions if decision.state == decisions[0].state}
        assert (len(rows) == 1) == alone


def test_the_second_phase_plays_what_the_core_plans():
    world = SmallWorld(finite=True)
    agent = NcsLsvi(world.problem, NcsLsviConfig(first_phase=3, value_radius=1.0))
    play(world, agent, np.random.default_rng(5), 10)
    agent.plan()
    for state in range(4):
        assert agent.peek(1, state).action == agent.core.peek(1, state).action
    assert agent.core.rules.explorer == 1 and not agent.core.rules.reduces_radius


def test_no_step_costs_more_than_the_threshold():
    for world in (SmallWorld(), SmallWorld(finite=True), SmallWorld(constraints=2)):
        agent = NcsLsvi(world.problem, NcsLsviConfig(first_phase=30, episodes=120), seed=1)
        for decision in play(world, agent, np.random.default_rng(7), 120):
            assert (
                world.true_gamma[decision.step] @ decision.feature <= np.array(world.problem.threshold) + 1e-9
            ).all()
            assert decision.cost_radius.origin == "theorem"


def test_a_scale_multiplies_the_radius_of_the_theorem():
    """OFUL's β = σ√(log det(A/λ) + 2 log(HM/δ)) + √λB, and half of it."""
    radii = []
    for scale in (1.0, 0.5):
        world = SmallWorld()
        agent = NcsLsvi(world.problem, NcsLsviConfig(scale=scale, value_radius=1.0))
        agent.observe(Transition(0, 0, world.problem.actions(0).phi_0, 0.5, 0.1, 1))
        agent.plan()
        radii.append(agent.peek(0, 0).evidence[0].radius.value)
    f = SmallWorld().problem.actions(0).phi_0
    beta = 0.02 * np.sqrt(np.log(1.0 + f @ f) + 2.0 * np.log(3 / 1e-6)) + 1.8
    assert np.allclose(radii, [beta, 0.5 * beta])
