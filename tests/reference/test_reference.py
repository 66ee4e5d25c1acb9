"""tether/reference.py is Algorithms 1 and 2: the fast agents make its choices over whole runs."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tether import RslucbQvi, SlucbConfig, SlucbQvi, Streams
from tether.agents.testing import (
    Contract,
    SmallWorld,
    an_outcome_counts_exactly_once,
    check_agent,
    every_action_is_certified,
)
from tether.errors import InputError
from tether.records import StarAction
from tether.reference import Rslucb, Slucb, pessimistic_cost, safe_lengths
from worlds import uneven_world

WORLDS = {
    "stars": uneven_world(1),
    "finite sets": uneven_world(4, finite=True),
    "a bandit": uneven_world(5, horizon=1),
    "two constraints": uneven_world(6, constraints=2),
    "five steps": uneven_world(7, states=3, rays=4, dimension=5, horizon=5),
}


def paired(agent, twin, world, episodes, seed=0):
    """Both agents' decisions in one run: the first plays, both see what follows."""
    streams, pairs = Streams.from_seed(seed), []
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        twin.plan()
        for step in range(world.problem.horizon):
            pairs.append((agent.act(step, state), twin.act(step, state)))
            seen = world.step(pairs[-1][0], streams)
            agent.observe(seen)
            twin.observe(replace(seen, decision_id=pairs[-1][1].id))
            state = seen.next_state
    return pairs


def place(action):
    """Ray and length of an action of either kind."""
    return (action.ray, action.length) if isinstance(action, StarAction) else (action, 1.0)


@pytest.mark.parametrize("beta", [0.05, 1.0])
@pytest.mark.parametrize("name", WORLDS)
def test_slucb_qvi_chooses_what_algorithm_1_chooses(name, beta):
    world = WORLDS[name]
    pairs = paired(SlucbQvi(world.problem, SlucbConfig.paper(beta)), Slucb(world.problem, beta), world, 60)
    for fast, slow in pairs:
        assert place(fast.action) == pytest.approx(place(slow.action), abs=1e-6)
        assert fast.score == pytest.approx(slow.score, rel=1e-7)
        assert [b.bound for b in fast.evidence] == pytest.approx([b.bound for b in slow.evidence], abs=1e-6)
    assert len({place(slow.action)[0] for _, slow in pairs}) > 2, "too few different choices to tell"


@pytest.mark.parametrize("name", ["finite sets", "two constraints"])
def test_rslucb_qvi_draws_from_what_algorithm_2_draws_from(name):
    world = uneven_world(4 if name == "finite sets" else 6, finite=True, constraints=1 + (name != "finite sets"))
    fast = RslucbQvi(world.problem, SlucbConfig.paper(0.1, ridge=0.2), rng=np.random.default_rng(0))
    slow = Rslucb(world.problem, 0.1, ridge=0.2, rng=np.random.default_rng(0))
    pairs = paired(fast, slow, world, 40)
    for one, other in pairs:
        np.testing.assert_allclose(one.mixture.probabilities, other.mixture.probabilities, atol=1e-5)
        assert one.score == pytest.approx(other.score, rel=1e-6)
        assert one.action == other.action
    assert sum((other.mixture.probabilities > 1e-3).sum() > 1 for _, other in pairs) > 20


def test_algorithm_1_keeps_the_contract_of_agents(tmp_path):
    check_agent(partial(Slucb, beta=0.5), tmp_path, restore=partial(Slucb.restore, beta=0.5))


def test_algorithm_2_certifies_every_decision_and_counts_every_outcome_once():
    contract = Contract(
        world=SmallWorld(finite=True),
        make=lambda: Rslucb(SmallWorld(finite=True).problem, 0.5, rng=np.random.default_rng(0)),
        restore=lambda path, problem: Rslucb.restore(path, problem, beta=0.5, rng=np.random.default_rng(0)),
        draws=True,
    )
    decisions = every_action_is_certified(contract)
    an_outcome_counts_exactly_once(contract)
    assert sum(not d.is_baseline for d in decisions) > 10


def test_a_state_that_the_problem_does_not_list_is_named():
    with pytest.raises(InputError, match="state 99 is not among the 4 states"):
        Slucb(WORLDS["stars"].problem, 1.0).act(0, 99)


def test_numbers_that_are_none_leave_the_safe_action():
    agent = Slucb(WORLDS["stars"].problem, 0.05)
    agent.plan()
    agent.cost_moment[:] = np.nan
    decision = agent.act(0, 0)
    assert decision.is_baseline and decision.reason == "only-baseline"


def test_the_left_side_of_equation_9_by_hand():
    """A = I, φ_0 = e_1 costs 0.1, Σzφ = 0.2 e_2: e_2 costs 0.2 + β, and e_1 what is known."""
    told = np.array([1.0, 0.0]), 0.1, np.eye(2), np.array([0.0, 0.2]), 0.5
    np.testing.assert_allclose(pessimistic_cost(np.eye(2), *told), [0.1, 0.7])


def test_a_bound_that_is_no_number_gives_no_length():
    np.testing.assert_allclose(safe_lengths(np.array([0.4, 0.9, np.nan, np.inf]), 0.1, 0.5), [1.0, 0.5, 0.0, 0.0])
