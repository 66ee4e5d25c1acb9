"""Two actions, a_0 and one other: a probability of leaving a_0 is a length on the ray between them."""

from dataclasses import replace

import numpy as np
import pytest

from limits import stated
from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.lab.worlds.linear_mdp import LinearMDP, Streams
from tether.problem.problem import Problem
from worlds import uneven_world


def one_ray_worlds(seed, constraints):
    """The same states and truth twice: with a_0 and one ray, and with a_0 and one other action."""
    star = uneven_world(seed, states=5, rays=1, constraints=constraints, noise=0.1)
    p = star.problem
    told = {
        "horizon": p.horizon,
        "threshold": p.threshold,
        "noise": p.noise,
        "baseline_cost_error": 0.0,
        "baseline_cost": np.array([p.look_up(s).baseline_cost for s in range(5)]).transpose(1, 0, 2),
    }
    safe = np.arange(5) % 2  # a_0 comes first in some states and last in others
    ends = star.endpoints[:, 0]
    features = np.array([np.insert(ends[s][None], safe[s], star.phi_0[s], axis=0) for s in range(5)])
    truth = {name: getattr(star, name) for name in ("true_theta", "true_gamma", "true_mu", "initial")}
    problem = Problem.from_table(features=features, baseline_action=safe, **stated(**told))
    return star, LinearMDP(name="two actions", problem=problem, **truth)


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize(
    "config",
    [
        SlucbConfig.paper(0.3, ridge=0.5),
        SlucbConfig(explorer="certified", value_radius=2.0, condition_on="state"),
        SlucbConfig(
            explorer="certified", value_radius=2.0, cost_radius="mixture", cost_ridge=0.3, condition_on="state"
        ),
        SlucbConfig(explorer="directional", value_radius=1.0, condition_on="state"),
    ],
    ids=["paper", "certified", "certified-mixture", "directional"],
)
def test_the_probability_of_the_other_action_is_the_certified_length_of_its_ray(config, constraints):
    """Same data, same radius. Scores differ (a bonus of a mean against a mean of bonuses), so that one of them may stay
    at a_0; wherever both leave it they go equally far, and say so with the same bound."""
    star, finite = one_ray_worlds(3, constraints)
    walker = SlucbQvi(star.problem, config)
    drawers = [RslucbQvi(world.problem, config, rng=np.random.default_rng(5)) for world in (finite, star)]
    everyone, streams, partial, whole = [walker, *drawers], Streams.from_seed(1), 0, 0
    for agent in everyone:
        agent.register(range(5))
    for _ in range(30):
        state = star.reset(streams)
        for agent in everyone:
            agent.plan()
        for step in range(3):
            for s in range(5):
                length = walker.peek(step, s)
                mixed, on_star = (agent.peek(step, s) for agent in drawers)
                left = 1.0 - mixed.mixture.baseline
                assert left == pytest.approx(1.0 - on_star.mixture.baseline, abs=1e-12)
                np.testing.assert_allclose(mixed.mean_feature, on_star.mean_feature, atol=1e-12)
                if length.is_baseline or left == 0.0:
                    continue
                assert left == pytest.approx(length.action.length, abs=1e-7)
                np.testing.assert_allclose(mixed.mean_feature, length.feature, atol=1e-7)
                for ours, theirs in zip(mixed.evidence, length.evidence, strict=True):
                    assert ours.bound == pytest.approx(theirs.bound, abs=1e-7)
                    assert ours.radius == theirs.radius
                partial += left < 1.0
                whole += left == 1.0
            seen = replace(star.step(walker.peek(step, state), streams), decision_id=None)
            for agent in everyone:
                agent.observe(seen)
            state = seen.next_state
    assert partial > 30
    assert whole > 30 or config.explorer != "paper"
