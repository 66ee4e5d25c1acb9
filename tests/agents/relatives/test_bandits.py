"""The bandit rows keep the contract of every agent, and choose as their papers say, written out ray by ray."""

import re
from dataclasses import fields
from math import log, sqrt

import numpy as np
import pytest

from tether import InputError, Streams
from tether.agents.relatives import RelativeConfig, methods
from tether.agents.relatives.bandit import DOWN, Pick, RayBandit, Sums, certified, length_under
from tether.agents.relatives.genop import GenOp, HplcLucb
from tether.agents.relatives.hp_ucb import HpUcb
from tether.agents.relatives.roful import Roful
from tether.agents.relatives.safe_lts import SafeLts, SafeLtsAsCoded
from tether.agents.relatives.safeopt import SafeOpt
from tether.agents.testing import check_agent
from tether.lab.worlds.circulant import circulant
from tether.lab.worlds.contexts import contexts
from tether.lab.worlds.hutchinson import hutchinson
from tether.lab.worlds.synthetic import synthetic

BANDITS = (Roful, GenOp, HplcLucb, SafeLts, SafeLtsAsCoded, SafeOpt)


class Drawn:
    """A world as `check_agent` plays it: everything random from one generator."""

    def __init__(self, world):
        self.world, self.problem, self.true_gamma = world, world.problem, world.true_gamma

    def reset(self, streams):
        return 0

    def step(self, decision, streams):
        return self.world.step(decision, Streams(streams, streams, streams, streams))


@pytest.mark.parametrize("method", BANDITS)
def test_a_bandit_row_keeps_the_contract(method, tmp_path):
    world = hutchinson(np.random.default_rng(3), confidence=1e-6)
    check_agent(method, tmp_path, worlds=[Drawn(world)])


def after(method, world, rounds, seed=0, **options):
    """An agent that has played so many rounds."""
    agent, streams = method(world.problem, method.config_type(**options)), Streams.from_seed(seed)
    for _ in range(rounds):
        agent.observe(world.step(agent.act(0, 0), streams))
    return agent


def estimates(agent):
    """A^{-1}, θ̂ and ĝ."""
    inverse, moments = agent.sums.inverse, agent.sums.moments
    return inverse, inverse @ moments[:, 0], inverse @ moments[:, 1]


def literal_radius(agent, world):
    """β_t."""
    grown = (1 + agent.sums.rounds) / (world.problem.confidence / 2)
    return 0.1 * sqrt(world.problem.dimension * log(grown)) + agent.norm


def literal_roful(agent, world):
    """The rule of the paper, one ray after another."""
    (inverse, theta, gamma), tau, bound = estimates(agent), world.problem.threshold[0], agent.norm
    beta = literal_radius(agent, world)
    best, chosen = -np.inf, None
    for u in world.endpoints[0]:
        width = sqrt(u @ inverse @ u)
        low = gamma @ u - beta * width
        scale = min(tau / low, 1.0) if low > 0 else 1.0
        if scale * (theta @ u + beta * width) > best:
            best, chosen = scale * (theta @ u + beta * width), scale * u
    if best < 0:
        return 0.0 * chosen
    high = gamma @ chosen + beta * sqrt(chosen @ inverse @ chosen)
    mu = min(tau / high, 1.0) if high > 0 else 1.0
    return max(mu, min(1.0, tau / bound / np.linalg.norm(chosen))) * chosen


def literal_genop(agent, world):
    """The rule of the paper, one ray after another."""
    (inverse, theta, gamma), tau, bound = estimates(agent), world.problem.threshold[0], agent.norm
    beta = literal_radius(agent, world)
    best, chosen = -np.inf, None
    for u in world.endpoints[0]:
        width = sqrt(u @ inverse @ u)
        high = gamma @ u + beta * width
        scale = min(tau / high, 1.0) if high > 0 else 1.0
        if scale * (theta @ u + (1 + 2 * bound / tau) * beta * width) > best:
            best, chosen = scale * (theta @ u + (1 + 2 * bound / tau) * beta * width), scale * u
    return chosen if best >= 0 else 0.0 * chosen


@pytest.mark.parametrize(("method", "literal"), [(Roful, literal_roful), (GenOp, literal_genop)])
@pytest.mark.parametrize("seed", range(6))
def test_the_choice_is_the_papers(method, literal, seed):
    world = hutchinson(np.random.default_rng(seed), tight=seed % 2 == 1)
    for rounds in (2, 30, 200):
        agent = after(method, world, rounds, seed)
        np.testing.assert_allclose(agent.peek(0, 0).feature, literal(agent, world), rtol=1e-9, atol=1e-12)


def test_a_limit_on_measured_costs_keeps_the_contract(tmp_path):
    check_agent(HpUcb, tmp_path, worlds=[Drawn(contexts(np.random.default_rng(1), count=3, confidence=1e-6))])


def test_hp_ucb_does_not_take_the_costs_noise_for_the_rewards():
    """σ = 1 on costs, exact rewards: after two exact rewards of one ray all but √λ S‖u‖ is known about the others."""
    world = contexts(np.random.default_rng(0), count=2)
    agent = HpUcb(world.problem)
    ends = world.endpoints[:, 0]
    for _ in range(2):
        agent.learn(ends[0], np.array([-1.0, 0.0]))
    rays = agent.sums.rays(ends[1:], agent.threshold, np.zeros(0))
    pick = agent.choose(rays)
    assert np.isclose(pick.score, pick.length * (rays.reward[0] + rays.width[0])), "B = λ = 1"
    assert agent.radius(rays) > 5.0


def test_hp_ucb_leaves_room_for_the_noise_and_learns_per_unit():
    world = contexts(np.random.default_rng(2), count=4, threshold=1.0)
    agent, played, streams = HpUcb(world.problem), [], Streams.from_seed(0)
    for _ in range(200):
        decision = agent.act(0, world.reset(streams))
        seen = world.step(decision, streams)
        agent.observe(seen)
        if not decision.is_baseline:
            played.append((decision.feature / decision.action.length, seen.cost / decision.action.length))
    x, y = (np.array(part) for part in zip(*played, strict=True))
    inverse = np.linalg.inv(np.eye(5) + x.T @ x)
    np.testing.assert_allclose(agent.sums.inverse, inverse, rtol=1e-8)
    np.testing.assert_allclose(agent.sums.moments[:, 1], x.T @ y, rtol=1e-8)
    beta = sqrt(5 * log((1 + len(x)) / (world.problem.confidence / 2))) + 1.0
    for state, (u,) in enumerate(world.endpoints):
        width = sqrt(u @ inverse @ u)
        bound = inverse @ x.T @ y @ u + beta * width + sqrt(2 * log(1 / world.problem.realised.exceedance))
        decision = agent.peek(0, state)
        if not decision.is_baseline:
            assert decision.action.length == pytest.approx(min(1.0, 1.0 / bound))
            assert decision.evidence[0].bounds == "realised cost"
    np.testing.assert_allclose(
        agent.planned_features(range(4))[0], [agent.peek(0, state).feature for state in range(4)], rtol=1e-9, atol=1e-12
    )
    with pytest.raises(InputError, match="a limit on the realised cost"):
        Roful(world.problem)
    with pytest.raises(InputError, match="on the realised cost"):
        HpUcb(circulant().problem)


def test_rounding_never_lifts_a_cut_ray_over_the_threshold():
    """The last length under τ is taken down by an ulp or two: over τ it would be refused, and the origin played."""
    rng = np.random.default_rng(0)
    bounds, threshold = rng.uniform(0.01, 50.0, size=100_000), np.array([0.3])
    lengths = length_under(bounds, threshold)
    assert (lengths * bounds <= threshold).all()
    np.testing.assert_allclose(lengths, np.minimum(1.0, 0.3 / bounds), rtol=1e-14)
    np.testing.assert_array_equal(length_under(np.array([-2.0, 0.0]), threshold), [1.0, 1.0])


def test_sums_are_the_ridge_regression():
    rng, sums = np.random.default_rng(0), Sums(3, 0.5)
    x, y = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    for row, outcome in zip(x, y, strict=True):
        sums.add(row, outcome)
    gram = 0.5 * np.eye(3) + x.T @ x
    np.testing.assert_allclose(sums.inverse, np.linalg.inv(gram), rtol=1e-10)
    np.testing.assert_allclose(sums.moments, x.T @ y, rtol=1e-12)
    np.testing.assert_allclose(sums.log_det[0], np.linalg.slogdet(gram / 0.5)[1], rtol=1e-10)


@pytest.mark.parametrize("method", BANDITS)
def test_one_rule_serves_one_bandit_and_many(method):
    """Three bandits side by side choose as each of them alone."""
    worlds = [hutchinson(np.random.default_rng(seed)) for seed in range(3)]
    agents = [after(method, world, 40, seed) for seed, world in enumerate(worlds)]
    together = Sums(2, agents[0].ridge, (3,))
    for name in ("inverse", "moments", "log_det"):
        setattr(together, name, np.array([getattr(agent.sums, name) for agent in agents]))
    together.rounds, normal = 40, np.random.default_rng(5).normal(size=(3, 2))
    tau = np.array([world.problem.threshold for world in worlds])
    picks = agents[0].choose(together.rays(np.array([world.endpoints[0] for world in worlds]), tau, normal))
    for k, (agent, world) in enumerate(zip(agents, worlds, strict=True)):
        alone = agent.choose(agent.sums.rays(world.endpoints[0], agent.threshold, normal[k]))
        np.testing.assert_allclose(
            (picks.ray[k], picks.length[k], picks.bound[k], picks.score[k]), tuple(alone), rtol=1e-9, atol=1e-12
        )


def literal_safeopt(agent, world):
    """Which points SafeOpt may choose among, by refitting the regression with each imagined measurement."""
    (inverse, theta, gamma), tau, sigma = estimates(agent), world.problem.threshold[0], agent.noise
    points = [a * u for u in world.endpoints[0] for a in np.geomspace(0.01, 1.0, 20)]
    deviation = [sigma * sqrt(x @ inverse @ x) for x in points]
    is_safe = [gamma @ x + 2 * s <= DOWN * tau for x, s in zip(points, deviation, strict=True)]
    lows = [theta @ x - 2 * s for x, s, safe in zip(points, deviation, is_safe, strict=True) if safe]
    widest, chosen = 0.0, np.zeros(2)
    for x, s, safe in zip(points, deviation, is_safe, strict=True):
        if not safe:
            continue
        refit = np.linalg.inv(np.linalg.inv(inverse) + np.outer(x, x))
        shifted = refit @ (np.linalg.inv(inverse) @ gamma + x * (gamma @ x - 2 * s))
        expands = any(
            shifted @ other + 2 * sigma * sqrt(other @ refit @ other) <= tau
            for other, known in zip(points, is_safe, strict=True)
            if not known
        )
        if (theta @ x + 2 * s >= max([0.0, *lows]) or expands) and s > widest:
            widest, chosen = s, x
    return chosen


@pytest.mark.parametrize("seed", range(4))
def test_safeopt_looks_where_a_refit_says(seed):
    world = hutchinson(np.random.default_rng(seed), tight=True)
    for rounds in (3, 40):
        agent = after(SafeOpt, world, rounds, seed)
        np.testing.assert_allclose(agent.peek(0, 0).feature, literal_safeopt(agent, world), rtol=1e-9, atol=1e-12)


def test_draws_have_the_stated_spread():
    world = circulant()
    agent = after(SafeLts, world, 30)
    rng, rays = np.random.default_rng(0), None
    from tether.agents.relatives.safe_lts import sampled

    drawn = []
    for _ in range(4000):
        rays = agent.sums.rays(world.endpoints[0], agent.threshold, rng.standard_normal(5))
        drawn.append(sampled(rays, 3.0))
    np.testing.assert_allclose(np.mean(drawn, axis=0), rays.reward, atol=0.15)
    np.testing.assert_allclose(np.std(drawn, axis=0), 3.0 * rays.width, rtol=0.05)


@pytest.mark.parametrize("method", [Roful, GenOp, SafeLts])
def test_a_scale_multiplies_the_radius_and_is_called_tuned(method):
    world = circulant()
    first, tuned = method(world.problem), method(world.problem, method.config_type(scale=0.5))
    assert first.peek(0, 0).cost_radius.origin == "theorem"
    assert tuned.peek(0, 0).cost_radius.origin == "tuned"
    assert tuned.peek(0, 0).cost_radius.value == pytest.approx(0.5 * first.peek(0, 0).cost_radius.value)


def test_a_bandit_row_refuses_what_it_is_not_made_for():
    with pytest.raises(InputError, match="H = 3"):
        Roful(synthetic(np.random.default_rng(0)).problem)
    with pytest.raises(InputError, match="not at φ = 0"):
        Roful(synthetic(np.random.default_rng(0), horizon=1).problem).act(0, 0)
    with pytest.raises(InputError, match="needs a cost"):
        agent = Roful(circulant().problem)
        agent.observe(agent.act(0, 0).outcome(reward=0.0, cost=None))


def test_every_method_says_what_it_is():
    found = list(methods())
    assert set(BANDITS) <= set(found)
    for method in found:
        assert method.row.title and method.row.citation and method.row.anchor
        said = method.__doc__.lower()
        assert all(part in said for part in ("setting", "rule", "citation", "deviations:")), method.kind
        assert issubclass(method.config_type, RelativeConfig)
        assert method.row.source != "memory" or "memory" in method.__doc__
        if "episodes" in {field.name for field in fields(method.config_type)} and method.kind != "ppo-lagrangian":
            assert {"K", "T"} & set(re.findall(r"\w+", method.row.told)), "a study fills it in"
        if issubclass(method, RayBandit):
            assert method.row.horizon == 1
    assert len({method.kind for method in found}) == len(found)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", BANDITS)
def test_sums_that_are_no_numbers_leave_the_origin_and_its_bound(method, broken):
    world = hutchinson(np.random.default_rng(3))
    agent = after(method, world, 5)
    agent.sums.inverse[:] = broken
    with np.errstate(all="ignore"):
        decision = agent.act(0, 0)
        assert not agent.planned_features([0, 0]).any()
    assert decision.is_baseline and decision.cost_bound == 0.0 and not decision.feature.any()


def test_a_pick_whose_bound_is_over_the_threshold_is_not_played():
    threshold = np.array([0.5])
    assert certified(Pick(1, 0.4, 0.5, 1.0), threshold)[:3] == (1, 0.4, 0.5)
    for bound in (0.6, np.nan, np.inf):
        assert certified(Pick(1, 0.4, bound, 1.0), threshold)[1:3] == (0.0, 0.0)
