"""Agents with bounded costs: what they play is what a likelihood ratio certifies, recomputed from the whole history."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest

from agents.cases import CASES
from limits import restated, stated
from tether import (
    AssumptionError,
    Bounded,
    InputError,
    Problem,
    RslucbQvi,
    SlucbConfig,
    SlucbQvi,
    StarActions,
    Transition,
    certified_set,
)
from tether.agents import likelihood
from tether.agents.likelihood import Likelihoods
from tether.kernels.likelihood import plain_guess, plug_in, renew
from tether.lab.worlds.linear_mdp import Streams
from worlds import simplex_problem, uneven_world

BOUNDED = [name for name in CASES if "bounded" in name]


def literal_optimum(history, x, known, events, candidates, listed):
    """max ⟨γ, x⟩ over {ℓ(γ) >= Λ − log events} from single outcomes (φ, z) and facts (f, τ, e), without atoms.

    Every candidate costs at most 1, and every listed action 0 to 1.
    """
    cvxpy = pytest.importorskip("cvxpy")
    gamma = cvxpy.Variable(len(x))
    limits = [candidates @ gamma <= 1.0]
    limits += [listed @ gamma >= 0.0, listed @ gamma <= 1.0] if len(listed) else []
    limits += [cvxpy.abs(f @ gamma - tau) <= error for f, tau, error in known]
    if history:
        features, z = np.array([feature for feature, _, _ in history]), np.array([z for _, z, _ in history])
        least = max(np.sum([evidence for _, _, evidence in history], axis=0)) - np.log(2 * events)
        likelihood = z[z > 0] @ cvxpy.log(features[z > 0] @ gamma)
        likelihood += (1 - z[z < 1]) @ cvxpy.log(1 - features[z < 1] @ gamma)
        limits += [features @ gamma >= 0, features @ gamma <= 1, likelihood >= least]
    problem = cvxpy.Problem(cvxpy.Maximize(x @ gamma), limits)
    problem.solve(solver="CLARABEL")
    return min(float(problem.value), 1.0) if problem.status in ("optimal", "optimal_inaccurate") else 1.0


@pytest.mark.parametrize("name", ["bounded", "bounded-roughly", "bounded-and-gaussian", "rslucb-bounded"])
def test_the_stated_bound_is_never_below_what_the_whole_history_gives(name):
    """An auditor with the log solves the convex programme over single outcomes; every sixth decision."""
    case = CASES[name]
    agent, streams = case.make(), Streams.from_seed(38)
    problem, audited = case.world.problem, 0
    events, error = agent.rules.events, problem.baseline_cost_error[0]
    history = [[] for _ in range(problem.horizon)]
    facts = [[] for _ in range(problem.horizon)]
    for episode in range(60):
        state = case.world.reset(streams)
        agent.plan()
        for step in range(problem.horizon):
            d = agent.act(step, state)
            known = agent.look_up(state)
            own = (known.actions.phi_0, known.baseline_cost[step, 0], error)
            if not d.is_baseline and episode % 6 == 5:
                used = int(agent.likelihoods.trials.used_total[agent.likelihoods.cell(step, 0)])
                assert used <= len(history[step]) < 1.07 * used + 1  # bounds are renewed often enough
                told = [*facts[step], own], events, known.actions.endpoints, problem.listed_features()
                exact = literal_optimum(history[step][:used], d.mean_feature, *told)
                assert exact <= d.evidence[0].bound + 1e-5
                assert d.evidence[0].kind == "likelihood" and d.evidence[0].bound <= d.evidence[0].threshold
                audited += 1
            trials, cell = agent.likelihoods.trials, agent.likelihoods.cell(step, 0)
            guesses = np.array([plug_in(trials, cell, np.array(d.feature)), plain_guess(trials, cell)])
            seen = case.world.step(d, streams)
            agent.observe(seen)
            z = float(np.atleast_1d(seen.cost)[0])
            history[step].append((d.feature, z, z * np.log(guesses) + (1.0 - z) * np.log(1.0 - guesses)))
            facts[step].append(own)
            state = seen.next_state
    assert audited >= 10


@pytest.mark.parametrize("name", BOUNDED)
def test_no_action_costs_more_than_it_is_certified_for(name):
    case = CASES[name]
    for seed in range(3):
        agent, streams = case.make(), Streams.from_seed(200 + seed)
        for _ in range(60):
            state = case.world.reset(streams)
            agent.plan()
            for step in range(case.world.problem.horizon):
                d = agent.act(step, state)
                costs = case.world.true_gamma[step] @ d.mean_feature
                assert (costs <= [b.bound + 1e-9 for b in d.evidence]).all()
                seen = case.world.step(d, streams)
                agent.observe(seen)
                state = seen.next_state


@pytest.mark.parametrize("name", [name for name in BOUNDED if not name.startswith("rslucb")])
def test_the_certified_set_agrees_with_what_the_agent_proposes(name):
    case, checked = CASES[name], 0
    agent, streams = case.make(), Streams.from_seed(3)
    for episode in range(40):
        state = case.world.reset(streams)
        agent.plan()
        for step in range(case.world.problem.horizon):
            d = agent.act(step, state)
            if episode % 8 == 7 and not d.is_baseline:
                options = certified_set(agent, step, state)
                row = d.action if isinstance(d.action, int) else d.action.ray
                assert row in options.certified
                assert (options.bounds[options.certified] <= np.array(case.world.problem.threshold)).all()
                if all(case.world.problem.bounded):  # else the plan's guess has shortened the ray
                    np.testing.assert_allclose(options.bounds[row], [b.bound for b in d.evidence], rtol=1e-6)
                checked += 1
            seen = case.world.step(d, streams)
            agent.observe(seen)
            state = seen.next_state
    assert checked > 0 or "finite" in name


@pytest.mark.parametrize("name", BOUNDED)
def test_the_feature_alone_is_that_of_the_whole_answer(name):
    """Just after a plan, and when outcomes have come since; a mixing agent tosses no coin for it."""
    case = CASES[name]
    agent, streams = case.make(), Streams.from_seed(3)
    if not name.endswith("lean"):
        agent.register(range(4))
    for _ in range(6):
        state = case.world.reset(streams)
        agent.plan()
        for step in range(case.world.problem.horizon):
            coin = agent.rng.bit_generator.state if agent.mixes else None
            for asked in range(4):
                feature = agent.peek_feature(step, asked)
                assert coin is None or agent.rng.bit_generator.state == coin
                whole = agent.propose(step, asked, coin=0.0) if agent.mixes else agent.peek(step, asked)
                np.testing.assert_allclose(feature, whole.mean_feature, rtol=0, atol=1e-12)
            seen = case.world.step(agent.act(step, state), streams)
            agent.observe(seen)
            state = seen.next_state


def test_what_was_played_depends_on_the_likelihood_and_not_on_the_guess():
    """A tuned radius of 0 would certify everything; the likelihood does not care."""
    world = uneven_world(7, cost_kind="bounded")
    bold = SlucbQvi(world.problem, SlucbConfig(cost_radius=1e-9))
    decisions = [bold.act(step, state) for step in range(3) for state in range(4)]
    for d in decisions:
        assert d.cost_bound <= d.threshold and d.cost_radius.origin == "theorem"
        assert (world.true_gamma[d.step] @ d.feature <= d.cost_bound).all()


def test_facts_that_contradict_the_data_raise_the_alarm():
    problem = simplex_problem(2, cost_kind="bounded", noise=None)
    agent = SlucbQvi(problem)
    for _ in range(400):  # a_0 never costs anything, though 0.4 was declared
        agent.observe(replace(agent.act(0, 0).outcome(reward=0.0, cost=0.0), feature=np.array([0.5, 0.5])))
    d = agent.act(0, 0)
    assert d.is_baseline and d.reason == "alarm"


@pytest.mark.parametrize("cost", [-0.01, 1.01, 7.0])
def test_a_cost_outside_the_unit_interval_is_refused_and_leaves_no_trace(cost):
    agent = CASES["bounded"].make()
    d = agent.act(0, 0)
    before = agent.likelihoods.trials.total.copy()
    with pytest.raises(InputError, match=r"Bounded\(\) promises costs in \[0, 1\]"):
        agent.observe(d.outcome(reward=0.0, cost=cost, next_state=1))
    np.testing.assert_array_equal(agent.likelihoods.trials.total, before)
    agent.observe(d.outcome(reward=0.0, cost=0.5, next_state=1))


def test_a_bounded_cost_needs_no_noise_and_another_does():
    assert simplex_problem(2, cost_kind="bounded", noise=None).noise == (0.5,)
    assert simplex_problem(2, cost_kind="bounded", noise=()).noise == (0.5,)
    mixed = simplex_problem(2, constraints=2, cost_kind=("gaussian", "bounded"), noise=(0.3, None))
    assert mixed.noise == (0.3, 0.5) and mixed.bounded == (False, True)
    with pytest.raises(AssumptionError, match="a constraint needs its noise"):
        simplex_problem(2, constraints=2, cost_kind=("bounded", "gaussian"), noise=(None, None))
    with pytest.raises(InputError, match=r"Bounded\(proof=…\) must be 'likelihood' or 'radius', but is 'poisson'"):
        Bounded("poisson")
    with pytest.raises(AssumptionError, match="noise"):
        simplex_problem(2, noise=())


def test_the_union_is_over_steps_and_constraints():
    world = uneven_world(7, constraints=2, cost_kind="bounded")
    assert SlucbQvi(world.problem).likelihoods.log_events == pytest.approx(np.log(3 * 2 / 0.01))


@pytest.mark.parametrize("kind", ["table", "rays"])
def test_a_mixture_is_scaled_back_until_it_is_certified(kind):
    """Nothing but the safe cost 0.1 is known: other actions cost at most 1, so 0.4/0.9 of any mixture is certified.

    A plan over a list keeps to what the list proves; a plan over rays does not, so it is cut.
    """
    told = {
        "baseline_cost_error": 0.0,
        "baseline_cost": [[0.1]],
        "horizon": 1,
        "threshold": 0.5,
        "cost_kind": "bounded",
    }
    if kind == "table":
        features = np.array([[[1.0, 0.0], [0.0, 1.0]]])
        problem = Problem.from_table(features=features, baseline_action=np.array([0]), **stated(**told))
    else:
        problem = Problem.from_rays(phi_0=[[1.0, 0.0]], endpoints=[[[0.0, 1.0]]], **stated(**told))
    bold = SlucbConfig(cost_radius=1e-9)  # the plan would play the other action alone
    agent = RslucbQvi(problem, bold, rng=np.random.default_rng(0))
    for _ in range(5):
        agent.observe(Transition(0, 0, np.array([0.0, 1.0]), reward=1.0, cost=None))
    d = agent.act(0, 0)
    assert d.mixture is not None
    other = d.mixture.probabilities[-1]
    assert 0.39 / 0.9 <= other <= 0.4 / 0.9
    assert 0.1 + 0.9 * other <= d.cost_bound + 1e-9 <= 0.5 + 1e-9


def test_an_outcome_that_is_lost_makes_bounds_larger():
    problem = simplex_problem(2, cost_kind="bounded", noise=None)
    kept = Likelihoods(problem, 1, 100.0, np.zeros(1))
    for x in np.tile(np.eye(2), (40, 1)):
        kept.observe(0, np.array(x), np.zeros(1))
    f = np.array([0.5, 0.5])
    before = kept.bounds(0, 0, f, 0.02)(np.array([0.9, 0.1])).bound
    for _ in range(5):
        kept.lose(0, np.array([1.0, 0.0]))
    renew(kept.trials, 0)  # else bounds rest on the set before the losses, which is as valid
    assert kept.bounds(0, 0, f, 0.02)(np.array([0.9, 0.1])).bound > before


@pytest.mark.parametrize("more", [{"misfit": 0.1}, {"limit": "realised"}, {"drift": 1e-4}])
def test_what_bounded_costs_cannot_be_combined_with_is_refused(more):
    with pytest.raises(InputError, match=r"does not go with (Misfit|Drift|Realised)"):
        restated(CASES["bounded"].world.problem, **more)


def test_a_lost_yes_or_no_counts_at_its_worst_or_not_at_all():
    """At random: nothing changes but the count. In the worst case the evidence Λ falls, so bounds can only grow."""
    case = CASES["bounded"]
    for told, changes in (({}, False), ({"lost": "worst-case"}, True)):  # whose range is [0, 1]
        agent, streams = SlucbQvi(restated(case.world.problem, **told)), Streams.from_seed(5)
        for _ in range(5):
            agent.observe(case.world.step(agent.act(0, 0), streams))
        before = agent.likelihoods.trials.evidence.copy()
        agent.lose(agent.act(0, 1).id)
        assert (agent.likelihoods.trials.evidence < before).any() == changes
        assert not (agent.likelihoods.trials.evidence > before).any()
        assert agent.act(0, 0).tightest.lost == 1


def test_a_ray_that_a_bounded_cost_cuts_short_begins_two_misfits_over_the_safe_cost():
    """The other cost is linear up to ε = 0.02: a_0 costs 0.42, ⟨γ*, f⟩ = 0.44, and points beside a_0 cost 0.46 > τ.

    Measurements at the end of the ray show that it is cheap; the yes/no cost lets only its first hundredth be played.
    """
    ends, gamma = np.array([[[0.0, 1.0]]]), np.array([[0.05, 0.9], [0.44, 0.1]])
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]],
        endpoints=ends,
        horizon=1,
        **stated(
            baseline_cost_error=0.0,
            baseline_cost=[[[0.05, 0.42]]],
            threshold=(0.06, 0.45),
            noise=(None, 0.002),
            cost_kind=("bounded", "gaussian"),
            misfit=(0.0, 0.02),
            gamma_norm=(0.08, 0.7),
        ),
    )
    for end_of_yes_no, plays in ((0.9, False), (0.05, True)):
        agent, rng, risk = SlucbQvi(problem, SlucbConfig(cost_ridge=100.0)), np.random.default_rng(0), end_of_yes_no
        for _ in range(2000):
            costs = (float(rng.random() < risk), float(gamma[1, 1]))
            agent.observe(Transition(0, 0, ends[0, 0], 1.0, costs, None))
        options = certified_set(agent, 0, 0)
        true = gamma[1] @ options.features[0] + 0.02
        assert (options.lengths[0] > 0.0) == plays and (not plays or true <= options.bounds[0, 1] <= 0.45)


def test_what_is_planned_and_cut_short_begins_two_misfits_over_the_safe_cost():
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]],
        endpoints=[[[0.0, 1.0]]],
        horizon=1,
        **stated(
            baseline_cost_error=0.0,
            baseline_cost=[[[0.05, 0.42]]],
            threshold=(0.06, 0.5),
            noise=(None, 0.002),
            cost_kind=("bounded", "gaussian"),
            misfit=(0.0, 0.02),
            gamma_norm=(0.08, 0.7),
        ),
    )
    agent, cut = SlucbQvi(problem, SlucbConfig(cost_ridge=100.0)), 0
    for _ in range(20):
        agent.plan()
        d = agent.act(0, 0)
        cost = 0.42 if d.is_baseline else 0.44 * d.feature[0] + 0.435 * d.feature[1] + 0.02
        cut += not d.is_baseline
        assert cost <= d.evidence[1].bound
        agent.observe(d.outcome(reward=float(d.feature[1]), cost=(0.0, cost)))
    assert cut > 10


def test_a_fact_counts_in_its_turn_so_that_no_guess_knows_what_came_after():
    """Whoever has seen the outcome of the second decision may lead to one state or another before it is reported."""
    problem, fits = CASES["bounded"].world.problem, []
    for later in (1, 2):
        agent = SlucbQvi(problem)
        first, second, third = agent.act(0, 0), agent.act(0, 0), agent.act(0, later)
        agent.observe(third.outcome(reward=0.0, cost=0.0))
        agent.observe(first.outcome(reward=0.0, cost=0.0))
        fits.append(agent.likelihoods.trials.fit.copy())
        assert agent.likelihoods.trials.fact_count[0] == 1  # that of the first
        buffer = BytesIO()
        agent.save(buffer)
        again = SlucbQvi.restore(buffer, problem)
        for each in (agent, again):
            each.observe(second.outcome(reward=0.0, cost=0.0))
        assert again.likelihoods.trials.facts.tobytes() == agent.likelihoods.trials.facts.tobytes()
        assert agent.likelihoods.trials.fact_count[0] == 2
    assert np.array_equal(*fits)


def test_an_answer_is_found_once_also_where_the_safe_cost_is_unknown_and_few_are_kept(monkeypatch):
    def state(s):
        return StarActions(np.array([1.0 - s / 100.0, s / 100.0]), np.eye(2)[1:])

    told = {"horizon": 1, "threshold": 0.5, "dimension": 2, "cost_kind": "bounded"}
    agent = SlucbQvi(Problem(actions=state, **stated(baseline_cost=None, **told)))
    for _ in range(30):
        agent.observe(agent.act(0, 0).outcome(reward=1.0, cost=0.0))
    answers = [(agent.peek(0, 0).action, len(agent.likelihoods._answers("ray", 0))) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    monkeypatch.setattr(likelihood, "MOST_KEPT", 5)
    first = [agent.peek(0, s).action for s in range(40)]
    assert len(agent.likelihoods._answers("ray", 0)) <= 5 and first == [agent.peek(0, s).action for s in range(40)]
