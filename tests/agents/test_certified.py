"""The certified set as a building block, and agents that choose from it: nothing uncertified gets out."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from limits import stated
from tether import (
    CertifiedAgent,
    InputError,
    Problem,
    RslucbQvi,
    SlucbConfig,
    SlucbQvi,
    StarActions,
    Transition,
    certified_set,
)
from tether.agents.agent import Agent
from tether.agents.testing import check_agent
from tether.check.monitor import Monitor
from tether.lab.worlds.linear_mdp import Streams
from worlds import small_world, two_constraints


class Greedy(CertifiedAgent):
    """The highest estimate and a bonus, by hand."""

    def choose(self, options):
        return options.best(options.values + options.widths)


class Random(CertifiedAgent):
    def prepare(self, rng):
        self.luck = rng.random(1000)

    def choose(self, options):
        rows = options.certified
        return rows[int(self.luck[options.step] * len(rows))]


def play(agent, world, streams, episodes):
    """Play, and check every decision against the truth."""
    seen = []
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(world.problem.horizon):
            decision = agent.act(step, state)
            assert all(bound.bound <= bound.threshold for bound in decision.evidence)
            assert (world.true_gamma[step] @ decision.feature <= [b.bound + 1e-12 for b in decision.evidence]).all()
            outcome = world.step(decision, streams)
            agent.observe(outcome)
            seen.append((decision.action, decision.cost_bound))
            state = outcome.next_state
    return seen


@pytest.mark.parametrize("settings", [{}, {"condition_on": "all"}, {"pooled": True}], ids=str)
@pytest.mark.parametrize("finite", [False, True])
def test_the_set_agrees_with_what_the_agent_itself_proposes(finite, settings):
    """The same kernels, so the same length, bounds and feature for the row that SLUCB-QVI picks; up to rounding."""
    world, streams = two_constraints(finite=finite, same_stages=True), Streams.from_seed(0)
    agent, checked = SlucbQvi(world.problem, SlucbConfig(**settings)), 0
    for _ in range(20):
        play(agent, world, streams, 2)
        for step, state in product(range(world.problem.horizon), range(world.state_count)):
            told, options = agent.propose(step, state), certified_set(agent, step, state)
            row = len(options.lengths)
            if not told.is_baseline:
                row = told.action if finite else told.action.ray
                assert options.lengths[row] == pytest.approx(1.0 if finite else told.action.length, abs=1e-12)
                checked += 1
            np.testing.assert_allclose(options.bounds[row], [b.bound for b in told.evidence], atol=1e-12)
            np.testing.assert_allclose(options.features[row], told.feature, atol=1e-12)
    few = 0 if not settings else 1  # without sharing between steps, no second action of a finite set is ever certified
    assert checked >= (few if finite else 10), "a test that never met a certified ray would say nothing"


def test_the_set_agrees_with_the_agent_when_safe_costs_are_unknown():
    world, streams = small_world(known_costs=False), Streams.from_seed(0)
    agent, checked = SlucbQvi(world.problem), 0
    for _ in range(60):
        play(agent, world, streams, 1)
        told, options = agent.propose(0, 1), certified_set(agent, 0, 1)
        if not told.is_baseline:
            row = told.action.ray
            assert options.lengths[row] == pytest.approx(told.action.length, abs=1e-9)
            assert options.bounds[row, 0] == pytest.approx(told.cost_bound, abs=1e-9)
            checked += 1
    assert checked > 10


def test_a_step_that_is_the_minimum_over_constraints_must_still_satisfy_them_all():
    """Safe costs unknown. Cost 0 allows half of the ray; cost 1 allows all of it, but not half.

    The end of the ray was seen 400 times and the safe action once, so that for cost 1 (σ = 1, true cost 0) only the
    end is certain: half-way its bound is above τ. The minimum of the two lengths, 1/2, may not be played.
    """
    safe, end = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    told = {"horizon": 1, "dimension": 2, "actions": lambda state: StarActions(safe, [end]), "baseline_cost": None}

    def lengths(which):
        tau, sigma = np.array([0.5, 0.5])[which], np.array([0.001, 1.0])[which]
        problem = Problem(**stated(threshold=tuple(tau), noise=tuple(sigma), gamma_norm=1.0, **told))
        agent = SlucbQvi(problem, SlucbConfig(cost_ridge=0.1))
        for x, cost in ((safe, (0.0, 0.0)), *((end, (1.0, 0.0)),) * 400):
            agent.observe(Transition(0, "s", x, 0.0, tuple(np.array(cost)[which])))
        agent.plan()
        return certified_set(agent, 0, "s").lengths

    assert 0.3 < lengths([0])[0] < 0.6
    assert lengths([1])[0] == 1.0
    assert lengths([0, 1])[0] == 0.0


def test_a_set_lists_the_safe_action_last_with_its_declared_cost():
    world = two_constraints()
    agent = SlucbQvi(world.problem)
    options = certified_set(agent, 1, 2)
    assert options.certified[-1] == len(options.lengths)
    np.testing.assert_array_equal(options.features[-1], world.phi_0[2])
    np.testing.assert_allclose(options.bounds[-1], world.true_gamma[1] @ world.phi_0[2], atol=1e-12)
    assert (options.bounds <= np.array(world.problem.threshold)).all()


@pytest.mark.parametrize("kind", [Greedy, Random])
def test_whatever_is_chosen_carries_a_bound_that_is_true(kind):
    world = two_constraints()
    agent = kind(world.problem, seed=3)
    assert isinstance(agent, Agent)
    seen = play(agent, world, Streams.from_seed(2), 60)
    assert len({action for action, _ in seen}) > 5


@pytest.mark.parametrize("kind", [Greedy, Random])
def test_an_agent_of_ones_own_keeps_the_contract(kind, tmp_path):
    check_agent(kind, tmp_path)


BREAKS = {
    "a bound over τ": "bound of 9.0 over τ",
    "another threshold": "names the threshold 7.0",
    "a question that teaches": "same seed|with and without questions",
    "an outcome twice": "the same outcome again was not refused",
    "a NaN that is taken": "nan was not refused",
    "a save that forgets": "continued and restored",
    "a decision that changes": "before and after observing",
}


def broken(how):
    """Greedy with one promise broken."""

    class Broken(Greedy):
        questions = 0

        def _answer(self, step, state):
            decision, known = super()._answer(step, state)
            if how == "a question that teaches":
                self.questions += 1
                decision = replace(decision, score=float(self.questions))
            return decision, known

        def act(self, step, state):
            decision = super().act(step, state)
            changes = {"a bound over τ": {"bound": 9.0}, "another threshold": {"threshold": 7.0}}.get(how, {})
            self.last = replace(decision, evidence=tuple(replace(bound, **changes) for bound in decision.evidence))
            return self.last

        def observe(self, transition):
            if how == "a NaN that is taken" and not np.isfinite(np.array(transition.cost, dtype=float)).all():
                transition = replace(transition, cost=None)
            if how == "a decision that changes":
                object.__setattr__(self.last, "score", -1.0)
            try:
                super().observe(transition)
            except InputError:
                if how != "an outcome twice":
                    raise

        def save(self, path):
            (SlucbQvi(self.problem, self.config) if how == "a save that forgets" else self.core).save(path)

    return Broken


@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_promise_is_found_and_named(how, tmp_path):
    with pytest.raises(AssertionError, match=BREAKS[how]):
        check_agent(broken(how), tmp_path)


def test_a_choice_that_is_not_certified_is_refused():
    class Reckless(CertifiedAgent):
        def choose(self, options):
            return 0

    world = two_constraints(finite=True)
    agent = Reckless(world.problem)
    agent.plan()
    with pytest.raises(InputError, match="not certified"):
        agent.act(0, 0)


def test_a_choice_cannot_lengthen_what_is_certified():
    """Lengths that are normalised in place would be played as they then are, under the bound of before."""

    class Normalising(CertifiedAgent):
        def choose(self, options):
            lengths = options.lengths
            lengths /= lengths.max()
            return options.best(options.values)

    agent = Normalising(small_world().problem)
    with pytest.raises(ValueError, match="read-only"):
        agent.act(0, 0)


def test_scores_that_are_not_finite_never_win():
    options = certified_set(SlucbQvi(small_world().problem), 0, 0)
    assert len(options.certified) > 2
    scores = np.full(len(options.lengths) + 1, np.nan)
    assert options.best(scores) == len(options.lengths), "nothing but the safe action"
    scores[:], scores[2] = 0.0, np.inf
    assert options.best(scores) == len(options.lengths), "infinity is no score, and ties go to the safe action"
    scores[1] = 1.0
    assert options.best(scores) == 1


def test_sums_that_are_not_finite_leave_only_the_safe_action():
    world = small_world()
    agent = Greedy(world.problem)
    play(agent, world, Streams.from_seed(0), 5)
    agent.core.costs.moment[:] = np.nan
    with np.errstate(invalid="ignore"):
        decision = agent.act(0, 0)
    assert decision.is_baseline
    np.testing.assert_array_equal(decision.feature, world.phi_0[0])


def test_an_outcome_is_counted_once():
    world, streams = small_world(), Streams.from_seed(0)
    agent = Greedy(world.problem)
    agent.plan()
    outcome = world.step(agent.act(0, 0), streams)
    agent.observe(outcome)
    with pytest.raises(InputError, match="exactly once"):
        agent.observe(outcome)
    assert agent.core.data_version == 1


def test_a_saved_agent_continues_as_it_was(tmp_path):
    """Draws depend on the seed and the number of plans alone, so what was learned is all there is to save."""
    world = two_constraints()
    agent = Random(world.problem, seed=5)
    play(agent, world, Streams.from_seed(1), 15)
    agent.save(tmp_path / "agent.tether")
    again = Random.restore(tmp_path / "agent.tether", world.problem, seed=5)
    assert play(agent, world, Streams.from_seed(2), 10) == play(again, world, Streams.from_seed(2), 10)


def test_the_policy_is_fixed_within_an_episode():
    world = two_constraints()
    agent = Random(world.problem, seed=5)
    agent.plan()
    first = [agent.act(step, 1).action for step in range(world.problem.horizon)]
    assert first == [agent.act(step, 1).action for step in range(world.problem.horizon)]


def test_a_watch_that_tripped_stops_an_agent_of_ones_own():
    world, streams = small_world(), Streams.from_seed(0)
    agent = Greedy(world.problem)
    agent.core.watch = Monitor(world.problem)
    play(agent, world, streams, 3)
    for _ in range(400):  # costs that no γ with ‖γ‖ <= B explains
        agent.core.watch.observe(0, world.endpoints[0, 0], np.array([50.0]), 0.0)
    assert agent.core.watch.alarm is not None
    decision = agent.act(0, 0)
    assert decision.is_baseline
    assert decision.reason == "tripped"


def test_the_core_must_be_one_whose_bounds_hold_for_single_actions():
    problem = small_world().problem
    with pytest.raises(InputError, match="same problem"):
        Greedy(problem, core=RslucbQvi(problem, rng=np.random.default_rng(0)))
    with pytest.raises(InputError, match="same problem"):
        Greedy(problem, core=SlucbQvi(two_constraints().problem))


def test_a_subclass_without_a_choice_says_what_is_missing():
    agent = CertifiedAgent(small_world().problem)
    with pytest.raises(NotImplementedError, match="def choose"):
        agent.act(0, 0)
