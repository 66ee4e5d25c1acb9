"""docs/theory.md section 19: rounding never certifies a cost over τ, and never raises an alarm.

Costs are free of noise while σ = 1e-10 is declared, so that the confidence set is as small as it gets and every error
of rounding counts. The truth is exact: floating-point numbers are fractions, and so are sums of their products. Version
0.1 certified actions over τ by up to 2e-11 here.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import sqrt

import numpy as np
import pytest

from kernels.calls import judged
from limits import stated
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.kernels.bound import fit_costs
from tether.kernels.compiled import replaced
from tether.kernels.model import ALARM, BAD_NUMBERS, new_plan, new_scratch
from tether.kernels.radius import cost_radius
from tether.kernels.ridge import new_facts, observe_cost, refresh_spectrum, remember_roughly
from tether.lab.worlds.linear_mdp import Streams
from tether.problem.problem import Problem
from tether.records import Transition
from worlds import uneven_world

SIGMA = 1e-10
MEMORY = ("state", "visited")


def product(a, b):
    """⟨a, b⟩, exactly."""
    return sum((Fraction(float(p)) * Fraction(float(q)) for p, q in zip(a, b, strict=True)), Fraction(0))


def distance(gamma_hat, gamma, ridge, counts):
    """‖ĝ − γ*‖_A with A = λI + Σ n φφᵀ over (n, φ), exactly up to the root."""
    error = [Fraction(float(p)) - Fraction(float(q)) for p, q in zip(gamma_hat, gamma, strict=True)]
    total = Fraction(ridge) * sum(e * e for e in error)
    for count, phi in counts:
        along = sum(Fraction(float(p)) * e for p, e in zip(phi, error, strict=True))
        total += count * along * along
    return root(total)


def root(square):
    """√ of a fraction of any size, to double precision."""
    if square == 0:
        return 0.0
    shift = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return sqrt(float(square / Fraction(4) ** shift)) * 2.0**shift


def plain_fit(agent, stage=0):
    """ĝ without facts and the radius that it has to keep: what `fit_costs` starts from."""
    forgetful = replace_facts(agent)
    plan, scratch = new_plan(1, 1, 1, agent.problem.dimension), new_scratch(agent.problem.dimension, 1, 1, 1)
    fit_costs(forgetful, agent.rules, plan, scratch, stage, 0, stage)
    return plan.gamma_hat[0, 0].copy(), float(plan.radius[0, 0])


def replace_facts(agent):
    """The agent's cost sums without what it remembers."""
    stages, d = agent.costs.log_det.shape[0], agent.problem.dimension
    return replaced(agent.costs, facts=new_facts(stages, d, len(agent.problem.constraints)))


def assert_sound(agent, gamma, counts, states, stage=0):
    """No alarm, ĝ within its radius, and no certified action over τ, at every given state."""
    estimate, radius = plain_fit(agent, stage)
    assert distance(estimate, gamma, agent.costs.ridge, counts) <= radius
    assert np.isfinite(agent.current.radius).all()
    threshold, played = Fraction(agent.problem.threshold[0]), 0
    for state in states:
        for decision in (agent.peek(stage, state), agent.propose(stage, state)):
            assert decision.reason not in ("alarm", "bad-numbers")
            cost = product(gamma, decision.feature)
            if not decision.is_baseline:
                assert cost <= threshold, f"over τ by {float(cost - threshold):.3g}"
                assert cost <= Fraction(decision.cost_bound)
        played += certified_rays(agent, gamma, state, stage)
    return played


def certified_rays(agent, gamma, state, stage):
    """Every certified end of a ray, chosen or not, costs at most τ; returns how many are longer than a thousandth."""
    known, threshold = agent.problem.look_up(state), Fraction(agent.problem.threshold[0])
    start = known.actions.phi_0
    alone = judged(agent.costs, agent.rules, known.actions, known.baseline_cost[stage], stage=stage)
    assert alone.reason not in (ALARM, BAD_NUMBERS)
    for end, length in zip(known.actions.endpoints, alone.lengths, strict=True):
        at = Fraction(length)
        cost = (1 - at) * product(gamma, start) + at * product(gamma, end)
        assert cost <= threshold, f"over τ by {float(cost - threshold):.3g} at length {length}"
    return int((alone.lengths > 1e-3).sum())


def one_step_problem(gamma, phi_0, endpoints, *, threshold, feature_norm=1.0):
    """A bandit whose declared safe costs are the true ones, rounded once."""
    return Problem.from_rays(
        phi_0=phi_0,
        endpoints=endpoints,
        horizon=1,
        feature_norm=feature_norm,
        **stated(
            baseline_cost_error=0.0,
            baseline_cost=np.array([[float(product(gamma, f)) for f in phi_0]]),
            threshold=threshold,
            noise=SIGMA,
            gamma_norm=float(np.linalg.norm(gamma)) * 1.01,
        ),
    )


def bandit(seed, d=3, states=2, scale=1.0):
    """γ*, and a problem with features of norm about `scale` and costs about 1 · scale."""
    rng = np.random.default_rng(seed)
    gamma = rng.uniform(0.1, 0.9, d)
    phi_0 = rng.dirichlet(np.ones(d), states)
    ends = rng.dirichlet(np.ones(d), (states, 12))
    tau = float((phi_0 @ gamma).max()) * scale + 0.05 * scale
    norm = max(scale, 1e-300)
    return gamma, one_step_problem(gamma, phi_0 * scale, ends * scale, threshold=tau, feature_norm=norm)


def repeat(agent, gamma, phi, count):
    """The same feature and its noise-free cost, many times."""
    phi, cost, work = np.array(phi), np.array([float(product(gamma, phi))]), np.zeros((3, len(phi)))
    for _ in range(count):
        observe_cost(agent.costs, 0, phi, cost, work)
    if agent.config.condition_on == "visited":
        known = agent.problem.look_up(0)
        agent.remember(0, known.actions.phi_0, known.baseline_cost[0])


def prepared(problem, condition_on, **more):
    agent = SlucbQvi(problem, SlucbConfig(condition_on=condition_on, explorer="directional", **more))
    agent.register(range(2))
    agent.observe(Transition(0, 1, problem.look_up(1).actions.endpoints[0], 1.0, None))  # something to look for
    return agent


@pytest.mark.parametrize("condition_on", MEMORY)
@pytest.mark.parametrize("count", [1, 1000, 60_000])
@pytest.mark.parametrize("which", ["safe", "end"])
def test_one_repeated_feature_keeps_every_promise(count, which, condition_on):
    for seed in range(4):
        gamma, problem = bandit(seed)
        actions = problem.look_up(0).actions
        phi = actions.phi_0 if which == "safe" else costliest(gamma, actions)
        agent = prepared(problem, condition_on)
        repeat(agent, gamma, phi, count)
        agent.plan()
        assert_sound(agent, gamma, [(count, phi)], range(2))


def costliest(gamma, actions):
    """The end whose ray is cut the shortest: there rounding shows."""
    return actions.endpoints[np.argmax(actions.endpoints @ gamma)]


def spread_out(agent, gamma, features, count):
    """Each of these features as often, in turn."""
    work = np.zeros((3, features.shape[1]))
    costs = [np.array([float(product(gamma, phi))]) for phi in features]
    for _ in range(count):
        for phi, cost in zip(features, costs, strict=True):
            observe_cost(agent.costs, 0, phi, cost, work)
    refresh_spectrum(agent.costs)


@pytest.mark.slow
def test_four_million_updates_of_one_feature_alone_keep_every_promise():
    """Nothing else was ever seen: a direction of A is as small as σ², and what is lost in Σzφ may be large along it."""
    gamma, problem = bandit(1)
    phi = costliest(gamma, problem.look_up(0).actions)
    agent = prepared(problem, "state")
    repeat(agent, gamma, phi, 4_000_000)
    agent.plan()
    assert_sound(agent, gamma, [(4_000_000, phi)], range(2))


@pytest.mark.parametrize("condition_on", MEMORY)
def test_four_million_repeated_features_keep_every_promise(condition_on):
    """A plain sum drifts by n ulp in one direction: 9e-10 of Σzφ, while the bound is within 1e-12 of the true cost.

    The repeated feature is an end that costs too much: its ray is cut at τ, and the cut must be on the safe side. That
    it is within 1e-9 of the true one shows that the allowances for rounding do not hide an error.
    """
    gamma, problem = bandit(1)
    actions = problem.look_up(0).actions
    phi, others = costliest(gamma, actions), np.array(actions.endpoints[:5])
    assert product(gamma, phi) > Fraction(problem.threshold[0])
    agent = prepared(problem, condition_on)
    spread_out(agent, gamma, others, 300)
    repeat(agent, gamma, phi, 4_000_000)
    agent.plan()
    counts = [(300, x) for x in others] + [(4_000_000, phi)]
    assert assert_sound(agent, gamma, counts, range(2)) == 24  # every ray is certified for some length
    alone = judged(agent.costs, agent.rules, actions, problem.look_up(0).baseline_cost[0])
    length = alone.lengths[np.argmax(actions.endpoints @ gamma)]
    start, end = product(gamma, actions.phi_0), product(gamma, phi)
    best = float((Fraction(problem.threshold[0]) - start) / (end - start))
    assert best - 1e-9 <= length <= best


@pytest.mark.parametrize("condition_on", MEMORY)
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e-3])
def test_features_of_any_size_keep_every_promise_and_let_something_be_played(scale, condition_on):
    """‖φ‖ up to 1e3 (declared): 4,000 costs of each of 5 features; most rays are then certified for some length."""
    played = 0
    for seed in range(6):
        gamma, problem = bandit(seed, scale=scale)
        features = np.array(problem.look_up(0).actions.endpoints[:5])
        agent = prepared(problem, condition_on)
        spread_out(agent, gamma, features, 4_000)
        agent.plan()
        played += assert_sound(agent, gamma, [(4_000, phi) for phi in features], range(2))
    assert played > 12


@pytest.mark.parametrize("condition_on", [*MEMORY, "all"])
@pytest.mark.parametrize("scale", [1e-160, 1e-100, 1e-20])
def test_features_that_all_but_vanish_keep_every_promise(scale, condition_on):
    """‖φ‖ = 1e-160: squares are denormal numbers. Nothing may look certain because something underflowed."""
    for seed in range(4):
        gamma, problem = bandit(seed, scale=scale)
        phi = costliest(gamma, problem.look_up(0).actions)
        agent = prepared(problem, condition_on)
        repeat(agent, gamma, phi, 100)
        agent.plan()
        assert_sound(agent, gamma, [(100, phi)], range(2))


@pytest.mark.parametrize("condition_on", MEMORY)
def test_features_of_very_different_size_keep_every_promise(condition_on):
    """Ends of norm 1e-160 beside safe features of norm 1."""
    rng = np.random.default_rng(0)
    gamma = rng.uniform(0.1, 0.9, 3)
    phi_0 = rng.dirichlet(np.ones(3), 2)
    ends = rng.dirichlet(np.ones(3), (2, 12))
    ends[:, ::2] *= 1e-160
    problem = one_step_problem(gamma, phi_0, ends, threshold=float((phi_0 @ gamma).max()) + 0.01)
    agent = prepared(problem, condition_on)
    features = ends[0, :5].copy()
    spread_out(agent, gamma, features, 500)
    agent.plan()
    assert_sound(agent, gamma, [(500, phi) for phi in features], range(2))


def noise_free_run(world, config, episodes, seed):
    """Play a world whose costs are observed without noise; returns the agent, the history, and the largest excess."""
    agent, streams = SlucbQvi(world.problem, config), Streams.from_seed(seed)
    threshold, history = Fraction(world.problem.threshold[0]), []
    worst = Fraction(-1)
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(world.problem.horizon):
            decision = agent.act(step, state)
            assert decision.reason != "alarm"
            cost = product(world.true_gamma[step, 0], decision.feature)
            if not decision.is_baseline:
                worst = max(worst, cost - threshold, cost - Fraction(decision.cost_bound))
            seen = replace(world.step(decision, streams), cost=float(cost))
            agent.observe(seen)
            history.append((step, decision.feature))
            state = seen.next_state
    return agent, history, worst


@pytest.mark.parametrize("condition_on", ["state", "visited", "all"])
@pytest.mark.parametrize("sigma", [SIGMA, 1e-8])
def test_noise_free_costs_over_random_worlds_keep_every_promise(condition_on, sigma):
    """12 worlds, 40 episodes each."""
    left = 0.0
    for seed in range(12):
        world = uneven_world(seed, states=3, rays=5, dimension=4 + seed % 3, noise=sigma)
        agent, history, worst = noise_free_run(world, SlucbConfig(condition_on=condition_on), 40, seed)
        assert worst <= 0, f"over by {float(worst):.3g}"
        left += np.mean([np.abs(world.phi_0 - phi).sum(axis=1).min() > 1e-3 for _, phi in history]) / 12
        agent.plan()
        assert agent.alarms == []
        for step in range(3):
            counts = [(1, phi) for at, phi in history if at == step]
            estimate, radius = plain_fit(agent, step)
            gamma = world.true_gamma[step, 0]
            assert distance(estimate, gamma, agent.costs.ridge, counts) <= radius
            # given the facts: γ_c is as near as its own radius says, which leaves m out
            given, own = agent.current.gamma_hat[step, 0], agent.current.radius[step, 0]
            assert distance(given, gamma, agent.costs.ridge, counts) <= own
    assert left > (0.1 if sigma == SIGMA else 0.4)  # it was not all a_0


@pytest.mark.parametrize("condition_on", ["state", "visited"])
def test_the_allowances_of_rounding_are_small(condition_on):
    """Otherwise all of the above would be bought with useless bounds: after a run the radius is that of the theorem.

    At σ = 1e-8; at 1e-10 a direction that was never played leaves cond(A) beyond what floating point resolves.
    """
    world = uneven_world(3, states=3, rays=5, dimension=5, noise=1e-8)
    agent, _, _ = noise_free_run(world, SlucbConfig(condition_on=condition_on), 60, 3)
    for step in range(3):
        _, radius = plain_fit(agent, step)
        assert radius <= 1.001 * cost_radius(agent.costs, agent.rules, step, 0)


def oblique(rng, condition_on, *, sigmas=(-10, -8, -5, -3, -1), errors=None):
    """Safe features up to 1e-9 close, noise-free data of a few features, each up to 20,000 times: γ*, agent.

    With `errors`, exponents of 10, safe costs are known up to an error, really off by it, and told up to 1000 times.
    """
    d, states, nudge = int(rng.integers(2, 7)), int(rng.integers(2, 6)), 10.0 ** rng.uniform(-9.0, 0.0)
    gamma, centre = rng.uniform(0.0, 0.9, d), rng.dirichlet(np.ones(d))
    phi_0 = (1.0 - nudge) * centre + nudge * rng.dirichlet(np.ones(d), states)
    ends = rng.dirichlet(np.full(d, 0.7), (states, 6))
    told = np.array([[float(product(gamma, f)) for f in phi_0]])
    error = 0.0 if errors is None else 10.0 ** rng.uniform(*errors)
    told += error * (1.0 - 1e-6) * rng.choice([-1.0, 1.0, 0.0, 0.5], states)
    problem = Problem.from_rays(
        phi_0=phi_0,
        endpoints=ends,
        horizon=1,
        **stated(
            baseline_cost=told,
            baseline_cost_error=error,
            threshold=float(told.max()) + 2.0 * error + 10.0 ** rng.uniform(-3.0, -1.0),
            noise=10.0 ** rng.choice(sigmas),
            gamma_norm=float(np.linalg.norm(gamma)) * (1.0 + rng.choice([1e-6, 0.01, 1.0])),
        ),
    )
    agent, work = SlucbQvi(problem, SlucbConfig(condition_on=condition_on)), np.zeros((3, d))
    for _ in range(int(rng.integers(1, 5))):
        x = np.array((rng.dirichlet(np.ones(d)), ends[0, 0], phi_0[-1])[int(rng.integers(3))])
        cost = np.array([float(product(gamma, x))])
        for _ in range(int(10.0 ** rng.uniform(0.0, 4.3))):
            observe_cost(agent.costs, 0, x, cost, work)
        if condition_on == "visited":
            for _ in range(1 if errors is None else int(10.0 ** rng.uniform(0.0, 3.0))):
                state = int(rng.integers(states))
                agent.remember(0, phi_0[state], told[0, state : state + 1])
        agent.plan()  # refreshes the spectrum, and chooses a weight
    return gamma, agent, states


@cache
def found_with(condition_on, count, size=None):
    """`looked_at` of so many random runs: what two tests judge."""
    bars = {} if size is None else BARS[size]
    return [looked_at(*oblique(np.random.default_rng(seed), condition_on, **bars)) for seed in range(count)]


def looked_at(gamma, agent, states):
    """(cost − bound and cost − τ at worst, rays certified for some length, alarms) over every ray of every state."""
    threshold, over, certified, alarms = Fraction(agent.problem.threshold[0]), Fraction(-1), 0, 0
    for state in range(states):
        known = agent.problem.look_up(state)
        alone = judged(agent.costs, agent.rules, known.actions, known.baseline_cost[0])
        if alone.reason == ALARM:
            alarms += 1
            continue
        start = product(gamma, known.actions.phi_0)
        for i, end in enumerate(known.actions.endpoints):
            cost = product(gamma, end)
            for at in (1.0, 0.25, float(alone.lengths[i])):
                here, bound = (1 - Fraction(at)) * start + Fraction(at) * cost, alone.bound(i, at)
                over = max(over, here - Fraction(bound)) if np.isfinite(bound) else over
            over = max(over, here - threshold) if alone.lengths[i] > 0.0 else over
            certified += alone.lengths[i] > 1e-3
    return float(over), certified, alarms


@pytest.mark.parametrize("condition_on", ["state", "visited", "all"])
def test_data_oblique_to_the_facts_certify_nothing_over_the_threshold(condition_on):
    """An error in what the facts determine is carried over to what they leave open, enlarged: it is in the radius."""
    certified = 0
    for seed, (over, rays, _) in enumerate(found_with(condition_on, 100)):
        assert over <= 0.0, f"seed {seed}: over by {over:.3g}"
        certified += rays
    assert certified > 400


@pytest.mark.parametrize("condition_on", ["state", "visited", "all"])
def test_safe_features_that_almost_coincide_raise_no_alarm(condition_on):
    """What the facts leave open of a safe feature is tiny there, but ĝ may be far off along it: no contradiction."""
    alarms = [alarms for _, _, alarms in found_with(condition_on, 100)]
    assert sum(alarms) == 0, f"seeds {np.flatnonzero(alarms)}"


BARS = {
    "tiny": {"sigmas": (-5, -4, -3), "errors": (-13.0, -10.0)},
    "small": {"sigmas": (-5, -3, -1), "errors": (-10.0, -4.0)},
    "any": {"errors": (-13.0, -1.0)},
}


@pytest.mark.parametrize("size", BARS)
def test_error_bars_of_any_size_certify_nothing_over_the_threshold(size):
    """F and Σ τ_s f are sums, too, and a weight w enlarges what was rounded in them."""
    certified = 0
    for seed, (over, rays, _) in enumerate(found_with("visited", 150, size)):
        assert over <= 0.0, f"seed {seed}: over by {over:.3g}"
        certified += rays
    assert certified > 400


@pytest.mark.parametrize("size", BARS)
def test_error_bars_of_any_size_raise_no_alarm(size):
    """m_w is a difference of large numbers where ĝ is far off: it must be rounded down by as much."""
    alarms = [alarms for _, _, alarms in found_with("visited", 150, size)]
    assert sum(alarms) == 0, f"seeds {np.flatnonzero(alarms)}"


def visited_often(rng, visits, *, sigma, error):
    """One or two safe features, told so often, and a little of every end: γ*, agent, number of states."""
    d, states = int(rng.integers(3, 7)), int(rng.integers(1, 3))
    gamma, phi_0 = rng.uniform(0.1, 0.9, d), rng.dirichlet(np.ones(d), states)
    ends = rng.dirichlet(np.ones(d), (states, 6))
    told = np.array([[float(product(gamma, f)) for f in phi_0]])
    threshold = float(told.max()) + 0.05
    told += error * (1.0 - 1e-6) * rng.choice([-1.0, 1.0, 0.0], states)
    problem = Problem.from_rays(
        phi_0=phi_0,
        endpoints=ends,
        horizon=1,
        **stated(
            baseline_cost=told,
            baseline_cost_error=error,
            threshold=threshold,
            noise=sigma,
            gamma_norm=float(np.linalg.norm(gamma)) * 1.01,
        ),
    )
    agent = SlucbQvi(problem)
    spread_out(agent, gamma, np.ascontiguousarray(ends.reshape(-1, d)), int(10.0 ** rng.uniform(0.0, 3.0)))
    for state in range(states):
        f, cost = np.array(phi_0[state]), np.array(told[0, state : state + 1])
        for _ in range(visits):
            remember_roughly(agent.costs, 0, f, cost)
    agent.plan()
    return gamma, agent, states


@pytest.mark.parametrize(("sigma", "error"), [(1e-4, 1e-12), (1e-8, 1e-12), (1e-2, 1e-8), (1e-2, 1e-5)])
def test_facts_with_an_error_bar_that_were_met_often_certify_nothing_over_the_threshold(sigma, error):
    """F = Σ ffᵀ and Σ τ_s f drift by J ulp in one direction, as any plain sum does, and w carries it into ĝ_w."""
    certified = 0
    for seed in range(10):
        over, rays, alarms = looked_at(*visited_often(np.random.default_rng(seed), 50_000, sigma=sigma, error=error))
        assert alarms == 0
        assert over <= 0.0, f"seed {seed}: over by {over:.3g}"
        certified += rays
    assert certified > 20
