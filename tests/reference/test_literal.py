"""Is the fast code the same algorithm? It must choose what the literal transcription chooses, at every state."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from reference.literal import Literal, Recipe
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.kernels.radius import default_cost_ridge
from tether.lab.worlds.linear_mdp import Streams
from tether.records import StarAction
from worlds import uneven_world

TIE = 1e-9
LENGTH = 1e-6


def compare(world, config, recipe, episodes, *, seed=0, drop_every=0):
    """Run the fast agent; the literal one sees the same outcomes and is asked at every step of every state.

    Returns how many choices were compared, of what kind, and how many were near ties of the literal scores.
    """
    agent, streams = SlucbQvi(world.problem, config), Streams.from_seed(seed)
    agent.register(range(world.state_count))
    literal = Literal(world.problem, world.state_count, recipe)
    seen = Counter()
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        literal.plan()
        for step in range(world.problem.horizon):
            for s in range(world.state_count):
                check_choice(agent.peek(step, s), literal.choices[step, s], seen)
            transition = world.step(agent.act(step, state), streams)
            if drop_every and agent.data_version % drop_every == 0:
                transition = replace(transition, cost=None)
            agent.observe(transition)
            literal.observe(transition)
            state = transition.next_state
    return seen


def check_choice(decision, choice, seen):
    action = decision.action
    if isinstance(action, StarAction):
        ray, length = action.ray, action.length
    else:
        ray, length = (-1, 0.0) if decision.is_baseline else (action, 1.0)
    seen["compared"] += 1
    if ray != choice.ray:
        played = choice.scores.get(ray, -np.inf)
        assert choice.score - played < TIE, f"{decision} is not the literal choice {choice}"
        seen["ties"] += 1
        return
    assert length == pytest.approx(choice.length, abs=LENGTH)
    assert decision.score == pytest.approx(choice.score, abs=1e-6, rel=1e-6)
    seen["baseline" if ray < 0 else "full" if length == 1.0 else "partial"] += 1


def paper_pair(beta, ridge):
    recipe = Recipe(explorer="paper", value_radius=beta, value_ridge=ridge, cost_ridge=ridge, cost_radius=beta)
    return SlucbConfig.paper(beta, ridge=ridge), recipe


def explorer_pair(world, explorer, value_radius, **more):
    """The default radius and ridge of the fast agent, spelt out for the literal one; `remembers` keeps facts."""
    p = world.problem
    ridge = default_cost_ridge(p.noise, p.gamma_norm, p.dimension)
    pooled, condition_on = more.get("pooled", False), "visited" if more.get("remembers") else "state"
    config = SlucbConfig(
        explorer=explorer, value_radius=value_radius, cost_radius="mixture", pooled=pooled, condition_on=condition_on
    )
    recipe = Recipe(
        explorer=explorer, value_radius=value_radius, value_ridge=1.0, cost_ridge=ridge, cost_radius=None, **more
    )
    return config, recipe


@pytest.mark.parametrize(
    ("seed", "beta", "ridge", "episodes"), [(1, 0.05, 1.0, 100), (2, 0.3, 0.1, 50), (3, 1.0, 0.5, 40)]
)
def test_algorithm_1_with_rays_chooses_what_its_transcription_chooses(seed, beta, ridge, episodes):
    seen = compare(uneven_world(seed), *paper_pair(beta, ridge), episodes)
    assert seen["compared"] == episodes * 3 * 4
    assert seen["ties"] <= 2
    assert seen["partial"] > 100


def test_algorithm_1_with_finite_actions_chooses_what_its_transcription_chooses():
    seen = compare(uneven_world(4, finite=True), *paper_pair(0.1, 0.2), 60)
    assert seen["ties"] <= 2
    assert min(seen["baseline"], seen["full"]) > 20


def test_algorithm_1_is_the_same_in_another_shape():
    world = uneven_world(5, states=3, rays=4, dimension=5, horizon=2)
    seen = compare(world, *paper_pair(0.2, 1.0), 60)
    assert seen["ties"] <= 2


@pytest.mark.parametrize("explorer", ["certified", "directional", "adaptive"])
def test_each_explorer_chooses_what_its_definition_chooses(explorer):
    world = uneven_world(6, noise=0.15)
    seen = compare(world, *explorer_pair(world, explorer, 2.0), 40)
    assert seen["ties"] <= 2
    assert min(seen["full"], seen["partial"]) > 50


@pytest.mark.parametrize("explorer", ["paper", "certified", "directional", "adaptive"])
def test_each_explorer_that_remembers_facts_chooses_what_its_definition_chooses(explorer):
    """Five dimensions and four states: something is always left open."""
    world = uneven_world(6, dimension=5, noise=0.15)
    seen = compare(world, *explorer_pair(world, explorer, 2.0 if explorer != "paper" else 0.2, remembers=True), 40)
    assert seen["ties"] <= 2
    assert min(seen["full"], seen["partial"]) > 20


def test_facts_that_determine_every_cost_leave_the_choice_of_the_definition():
    """Three dimensions and four states: soon all is known."""
    world = uneven_world(6, noise=0.15)
    seen = compare(world, *explorer_pair(world, "directional", 2.0, remembers=True), 30)
    assert seen["ties"] <= 2
    assert min(seen["full"], seen["partial"]) > 20


def test_pooled_steps_share_the_facts_of_all_steps():
    world = uneven_world(10, states=3, rays=4, dimension=5, same_stages=True, noise=0.15)
    seen = compare(world, *explorer_pair(world, "directional", 2.0, pooled=True, remembers=True), 30)
    assert seen["ties"] <= 2
    assert seen["partial"] > 10


@pytest.mark.parametrize(("explorer", "seed", "value_radius"), [("certified", 7, 0.3), ("directional", 22, 1.0)])
def test_each_explorer_with_finite_actions_chooses_what_its_definition_chooses(explorer, seed, value_radius):
    world = uneven_world(seed, finite=True, noise=0.02)
    seen = compare(world, *explorer_pair(world, explorer, value_radius), 40)
    assert seen["ties"] <= 2
    assert min(seen["baseline"], seen["full"]) > 20


@pytest.mark.parametrize("explorer", ["paper", "certified", "adaptive"])
def test_two_constraints_cut_every_ray_at_the_nearer_one(explorer):
    world = uneven_world(8, states=3, rays=4, constraints=2)
    pair = paper_pair(0.3, 0.5) if explorer == "paper" else explorer_pair(world, explorer, 2.0)
    seen = compare(world, *pair, 30)
    assert seen["ties"] <= 2
    assert seen["partial"] > 20


@pytest.mark.parametrize("explorer", ["certified", "adaptive"])
def test_unmeasured_costs_are_left_out_of_the_cost_regression_only(explorer):
    world = uneven_world(9, states=3, rays=4, noise=0.15)
    seen = compare(world, *explorer_pair(world, explorer, 2.0), 30, drop_every=3)
    assert seen["ties"] <= 2
    assert seen["partial"] > 50


def test_pooled_steps_share_one_regression():
    world = uneven_world(10, states=3, rays=4, same_stages=True, noise=0.15)
    seen = compare(world, *explorer_pair(world, "directional", 2.0, pooled=True), 30)
    assert seen["ties"] <= 2
    assert seen["partial"] > 10


@pytest.mark.parametrize("explorer", ["paper", "certified", "adaptive"])
def test_unknown_safe_costs_give_the_unconditioned_set(explorer):
    world = uneven_world(11, states=3, rays=4, known_costs=False)
    seen = compare(world, *explorer_pair(world, explorer, 0.5, conditioned=False), 30)
    assert seen["ties"] <= 2
    assert seen["partial"] > 20


def test_unknown_safe_costs_with_finite_actions_give_the_unconditioned_set():
    world = uneven_world(27, states=3, rays=4, known_costs=False, finite=True, noise=0.005)
    seen = compare(world, *explorer_pair(world, "directional", 0.5, conditioned=False), 40)
    assert seen["ties"] <= 2
    assert min(seen["baseline"], seen["full"]) > 20
