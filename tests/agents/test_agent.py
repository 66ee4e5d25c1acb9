"""plan, act, observe: one decision with its evidence, and what is refused."""

from collections import namedtuple
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from limits import stated
from tether.agents.certified import certified_set
from tether.agents.lsvi import LsviConfig, LsviUcb
from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import AssumptionError, InputError
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.synthetic import not_star_convex
from tether.problem.action_sets import FiniteActions, StarActions
from tether.problem.problem import Problem
from tether.records import StarAction, Transition
from worlds import OTHER, SAFE, two_arm_problem, uneven_world


def fixed(explorer="paper", **more):
    """β_c = β_v = 0.5, λ = 1 for costs and values."""
    return SlucbConfig(explorer=explorer, cost_radius=0.5, value_radius=0.5, cost_ridge=1.0, value_ridge=1.0, **more)


def test_the_first_decision_by_hand():
    """No data: mean(x) = 0 (share 0), width 1: bound(x) = 0.5 <= τ = 0.5 + 1e-6: the whole ray is certified.

    Scores: κ = 2·2/0.400001 + 1 ≈ 11, both features have norm 1, so both score κ·0.5 and the tie goes to f.
    """
    decision = SlucbQvi(two_arm_problem(threshold=0.5 + 1e-6), fixed()).act(0, 0)
    assert decision.is_baseline
    assert decision.reason == "baseline-best"
    assert decision.score == pytest.approx(0.5 * (4.0 / 0.400001 + 1.0), rel=1e-12)
    assert (decision.cost_bound, decision.threshold) == (0.1, 0.5 + 1e-6)
    assert decision.tightest.margin == pytest.approx(0.400001, rel=1e-12)


def test_a_reward_seen_on_the_ray_makes_it_the_choice():
    """r = 1 at x, λ = 1: w = (0, 0.5), ‖x‖ = √0.5, ‖f‖ = 1. The cost was not measured: mean 0 and width 1 at x.

    ⟨ĝ, f⟩ = 0 but τ_s = 0.1, so β_s = √(0.25 − 0.01) = √0.24, and bound(x) = √0.24 > τ = 0.3 is met at
    α = (0.3 − 0.1)/(√0.24 − 0.1) = 0.513. `directional` scores all of x: 0.5 + 0.5 √0.5 = 0.854 beats f's 0.5.
    """
    agent = SlucbQvi(two_arm_problem(threshold=0.3), fixed("directional"))
    agent.observe(Transition(0, 0, OTHER, 1.0, None))
    agent.plan()
    decision = agent.act(0, 0)
    assert isinstance(decision.action, StarAction)
    assert decision.action.ray == 0
    expected = 0.2 / (np.sqrt(0.24) - 0.1)
    assert decision.action.length == pytest.approx(expected, abs=1e-8)
    assert decision.score == pytest.approx(0.5 + 0.5 * np.sqrt(0.5), rel=1e-12)
    np.testing.assert_allclose(decision.feature, [1.0 - expected, expected], atol=1e-8)
    assert decision.cost_bound == pytest.approx(0.3, abs=1e-9)
    assert decision.cost_bound <= 0.3


def test_values_flow_backwards_from_the_next_state():
    """Step 1 at state 0: r = 1 at f, w = 0.5, V = min(0.5 + 0.5 √0.5, 1) = 0.854. Step 0 saw s' = 0 once with r = 0.2:
    w_0 = (0.2 + 0.854)/2 along f."""
    agent = SlucbQvi(two_arm_problem(), fixed("directional"))
    agent.observe(Transition(0, 1, SAFE, 0.2, 0.1, 0))
    agent.observe(Transition(1, 0, SAFE, 1.0, 0.1))
    agent.plan()
    value = 0.5 + 0.5 * np.sqrt(0.5)
    assert agent.current.values[1, 0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(agent.current.weights[0], [(0.2 + value) / 2.0, 0.0], atol=1e-12)


def test_the_papers_example_of_a_set_that_is_not_star_convex_keeps_the_learner_at_its_safe_action():
    """After Assumption 5: two isolated actions, and playing a_2 teaches nothing about a_1."""
    world, streams = not_star_convex(), Streams.from_seed(0)
    agent = SlucbQvi(world.problem)
    for _ in range(30):
        agent.plan()
        decision = agent.act(0, 0)
        assert (decision.action, decision.is_baseline) == (1, True)
        agent.observe(world.step(decision, streams))


def test_its_star_convex_completion_lets_the_learner_out():
    world, streams = not_star_convex(completed=True), Streams.from_seed(0)
    agent = SlucbQvi(world.problem)
    for _ in range(30):
        agent.plan()
        decision = agent.act(0, 0)
        agent.observe(world.step(decision, streams))
    assert decision.action == StarAction(0, 1.0)


@pytest.mark.parametrize("mixes", [False, True])
def test_a_key_that_is_coarser_than_the_state_does_not_lend_the_bounds_of_another(mixes):
    """Tables keep a plan by the key: action 1 in state x costs x, and all x under a half share the key of the first."""

    def actions(x):
        return FiniteActions([[0.3, 0.0], [0.3, 0.9 * x]], 0)

    declared = {"actions": actions, "baseline_cost": 0.0, "key": lambda x: int(2.0 * x), "gamma_norm": 2.0}
    problem = Problem(horizon=1, dimension=2, **stated(threshold=0.3, noise=0.02, **declared))
    agent = (
        RslucbQvi(problem, rng=np.random.default_rng(1)) if mixes else SlucbQvi(problem, SlucbConfig(backup="tables"))
    )
    rng, over = np.random.default_rng(0), 0.0
    agent.register([0.05, 0.95])
    for n in range(200):
        x = 0.05 if n < 100 else rng.uniform(0.0, 1.0)
        agent.plan()
        decision = agent.act(0, x)
        played = actions(x).features @ [0.0, 1.0 / 0.9]
        cost = played[decision.action] if decision.mixture is None else decision.mixture.probabilities @ played
        over = max(over, cost - decision.cost_bound)
        z = played[decision.action] + 0.02 * rng.standard_normal()
        agent.observe(decision.outcome(reward=float(decision.action), cost=z))
    assert over <= 1e-12


class Thing:
    """A state of the user's own class: an object is only equal to itself, whatever is written into it."""

    def __init__(self, x):
        self.x = x


class Named(Thing):
    """All of its states are equal."""

    def __eq__(self, other):
        return isinstance(other, Named)

    def __hash__(self):
        return 0


Left, Right = namedtuple("Left", "x"), namedtuple("Right", "x")


def reused(one, x):
    one.x = x
    return one


@pytest.mark.parametrize("backup", ["tables", "lean"])
@pytest.mark.parametrize(
    "state_of",
    [
        partial(reused, Thing(0.0)),
        Named,
        lambda x: (Named(x), 1),
        lambda x: Named(x) if x < 0.5 else Thing(x),
        lambda x: (Left if x < 0.5 else Right)(int(2.0 * (x % 0.5))),
    ],
)
def test_what_a_class_takes_for_equal_does_not_lend_the_bounds_of_another_state(state_of, backup):
    """Going from f to the end of the ray costs x more, and no state tells that by its equality."""

    def actions(state):
        if isinstance(state, Left | Right):
            return StarActions([1.0, 0.0], [[1.0, 0.05 if isinstance(state, Left) else 1.0]])
        return StarActions([1.0, 0.0], [[1.0, (state[0] if isinstance(state, tuple) else state).x]])

    told = {"baseline_cost": 0.1, "gamma_norm": 2.0, "feature_norm": 2.0}
    problem = Problem(horizon=2, dimension=2, actions=actions, **stated(threshold=0.4, noise=0.05, **told))
    agent, rng, over = (
        SlucbQvi(problem, SlucbConfig(backup=backup, replan="every-episode")),
        np.random.default_rng(3),
        [],
    )
    for n in range(150):
        agent.plan()
        state = state_of(0.05 if n < 40 else rng.uniform(0.05, 1.0))
        for step in (0, 1):
            decision = agent.act(step, state)
            length = 0.0 if decision.is_baseline else decision.action.length
            cost = 0.1 + 0.9 * length * actions(state).endpoints[0, 1]
            over.append(cost > decision.cost_bound + 1e-12)
            state = state_of(0.05 if n < 40 else rng.uniform(0.05, 1.0))
            z = cost + 0.05 * rng.choice([-1, 1])
            agent.observe(decision.outcome(reward=length, cost=z, next_state=state))
    assert not any(over)


def test_an_outcome_is_counted_once():
    agent = SlucbQvi(two_arm_problem())
    outcome = agent.act(0, 0).outcome(reward=0.5, cost=0.1, next_state=1)
    agent.observe(outcome)
    factor, moment = agent.values.factor.copy(), agent.costs.moment.copy()
    with pytest.raises(InputError, match="exactly once"):
        agent.observe(outcome)
    np.testing.assert_array_equal(agent.values.factor, factor)
    np.testing.assert_array_equal(agent.costs.moment, moment)
    assert agent.data_version == 1


@pytest.mark.parametrize("ends", ["observe", "lose", "act"])
def test_an_agent_that_was_interrupted_half_way_does_not_go_on(ends, monkeypatch, tmp_path):
    """Three outcomes take effect at once, and a Ctrl-C comes with the second: the third would be missing for ever."""
    agent = SlucbQvi(two_arm_problem(horizon=1, misfit=0.01))
    first, second, third = (agent.act(0, 0) for _ in range(3))
    for decision in (second, third):
        agent.observe(decision.outcome(reward=0.5, cost=0.2))
    counted = []

    def interrupted(*given):
        counted.append(given)
        if len(counted) == 2 or ends == "act":
            raise KeyboardInterrupt

    monkeypatch.setattr(agent, "learn_cost" if ends != "act" else "_show_blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        if ends == "observe":
            agent.observe(first.outcome(reward=0.5, cost=0.2))
        elif ends == "lose":
            agent.lose(first.id)
        else:
            agent.act(0, 0)
    monkeypatch.undo()
    other = agent.problem.look_up(0)
    for go_on in (
        lambda: agent.act(0, 0),
        lambda: agent.peek(0, 0),
        lambda: agent.propose(0, 0, other),
        lambda: agent.observe(replace(first.outcome(reward=0.5, cost=0.2), decision_id=None)),
        lambda: agent.withdraw(third.id),
        lambda: agent.save(tmp_path / "agent.tether"),
        lambda: certified_set(agent, 0, 0),
    ):
        with pytest.raises(InputError, match="interrupted half-way"):
            go_on()


def test_an_outcome_of_another_step_is_refused():
    agent = SlucbQvi(two_arm_problem())
    decision = agent.act(0, 0)
    with pytest.raises(InputError, match="was made at step 0, but its outcome says step 1"):
        agent.observe(replace(decision.outcome(reward=0.5, cost=0.1, next_state=1), step=1))
    assert agent.data_version == 0


def test_an_outcome_of_a_decision_that_was_never_made_is_refused():
    agent = SlucbQvi(two_arm_problem())
    with pytest.raises(InputError, match="never made"):
        agent.observe(Transition(0, 0, SAFE, 0.5, 0.1, 1, decision_id=7))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.nan}, "reward"),
        ({"cost": np.nan}, "cost"),
        ({"cost": (0.1, 0.2)}, "cost"),
        ({"cost": np.inf}, "cost"),
        ({"feature": np.array([np.nan, 0.0])}, "feature"),
        ({"feature": np.array([1.0, 0.0, 0.0])}, "feature"),
        ({"step": 2}, "step"),
        ({"step": -1}, "step"),
    ],
)
def test_a_bad_outcome_is_refused_and_changes_nothing(changes, message):
    agent = SlucbQvi(two_arm_problem())
    good = agent.act(0, 0).outcome(reward=0.5, cost=0.1, next_state=1)
    with pytest.raises(InputError, match=message):
        agent.observe(replace(good, **changes))
    assert agent.data_version == 0
    np.testing.assert_array_equal(agent.values.updates, 0)
    agent.observe(good)
    assert agent.data_version == 1


def test_a_feature_longer_than_assumption_4_allows_is_refused():
    with pytest.raises(AssumptionError, match="Assumption 4"):
        SlucbQvi(two_arm_problem()).observe(Transition(0, 0, np.array([1.0, 1.0]), 0.0, 0.1, 1))


def test_an_unmeasured_cost_teaches_values_but_not_costs():
    agent = SlucbQvi(two_arm_problem())
    agent.observe(agent.act(0, 0).outcome(reward=0.5, cost=None, next_state=1))
    assert agent.costs.updates.tolist() == [0, 0]
    assert agent.values.updates.tolist() == [1, 0]
    np.testing.assert_array_equal(agent.costs.moment, 0.0)


def test_a_penalised_objective_needs_every_cost():
    agent = LsviUcb(two_arm_problem(), LsviConfig(penalty=1.0))
    with pytest.raises(InputError, match="needs a cost"):
        agent.observe(agent.act(0, 0).outcome(reward=0.5, cost=None, next_state=1))


def test_the_evidence_says_where_its_radius_comes_from():
    problem = two_arm_problem()
    assert SlucbQvi(problem).act(0, 0).cost_radius.origin == "theorem"
    assert SlucbQvi(problem, SlucbConfig(cost_radius="classical")).act(0, 0).cost_radius.origin == "theorem"
    assert SlucbQvi(problem, SlucbConfig(cost_radius=0.3)).act(0, 0).cost_radius.origin == "tuned"
    assert LsviUcb(problem).act(0, 0).cost_radius.origin == "none"
    told = LsviUcb(problem, true_gamma=np.full((2, 1, 2), 0.1))
    assert told.act(0, 0).cost_radius.origin == "exact"


def test_each_stage_reads_its_own_data():
    """A cost of 1 at x in step 0 must not shorten the ray of step 1, nor the other way round."""
    agent = SlucbQvi(two_arm_problem(threshold=0.5), fixed("directional"))
    agent.register([0])
    for _ in range(50):
        agent.observe(Transition(0, 0, OTHER, 1.0, 1.0, 0))
        agent.observe(Transition(1, 0, OTHER, 1.0, 0.0))
    agent.plan()
    early, late = agent.act(0, 0), agent.act(1, 0)
    assert early.action.length < 0.6
    assert late.action.length == 1.0


def test_the_streams_of_a_seed_are_four_and_distinct():
    """instance, transitions, noise, agent: spawned in this order from one seed."""
    streams = Streams.from_seed(5)
    expected = [np.random.default_rng(child).random() for child in np.random.SeedSequence(5).spawn(4)]
    drawn = [stream.random() for stream in (streams.instance, streams.transitions, streams.noise, streams.agent)]
    assert drawn == expected
    assert len(set(drawn)) == 4


def test_noise_and_transitions_come_from_their_own_streams():
    """One step draws one uniform from `transitions` and M normals from `noise`, and nothing else."""
    world, streams, twin = uneven_world(1, constraints=2), Streams.from_seed(6), Streams.from_seed(6)
    agent = SlucbQvi(world.problem)
    transition = world.step(agent.act(0, 0), streams)
    uniform, normals = twin.transitions.random(), twin.noise.standard_normal(2)
    expected = world.true_gamma[0] @ transition.feature + np.array(world.problem.noise) * normals
    np.testing.assert_allclose(transition.cost, expected, rtol=1e-12)
    following = np.searchsorted(np.cumsum(transition.feature @ world.true_mu[0]), uniform, side="right")
    assert transition.next_state == following
    for stream in ("instance", "transitions", "noise", "agent"):
        assert getattr(streams, stream).random() == getattr(twin, stream).random()
