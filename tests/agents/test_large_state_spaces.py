"""States that are many, continuous or never seen: what is kept depends on what was visited, never on S or on K."""

import tracemalloc

import numpy as np
import pytest

from limits import stated
from tether import Problem, SlucbConfig, SlucbQvi, StarActions
from tether.agents.agent import arrays_in
from tether.agents.testing import essence, snapshot

D = 4
GAMMA = np.array([0.1, 0.5, 0.9, 0.6])
COUNT = 100_000


def star_of(number):
    """D(s) computed on demand: five rays from a cheap point of the simplex."""
    rng = np.random.default_rng(number)
    f = 0.8 * np.eye(D)[0] + 0.2 * rng.dirichlet(np.ones(D))
    return StarActions(f, rng.dirichlet(np.ones(D), size=5))


def problem_of(number_of, asked=None, **changes):
    """A problem over states that are turned into numbers; `asked` collects every state that was looked up."""

    def actions(state):
        if asked is not None:
            asked.append(state)
        return star_of(number_of(state))

    told = {
        "horizon": 3,
        "threshold": 0.5,
        "noise": 0.05,
        "dimension": D,
        "actions": actions,
        "baseline_cost_error": 0.0,
        "baseline_cost": lambda step, state: float(star_of(number_of(state)).phi_0 @ GAMMA),
        "gamma_norm": 1.5,
    }
    return Problem(**stated(**{**told, **changes}))


def wander(agent, states, rng, episodes, *, ends_early=0.0):
    """Episodes over the given states; returns the keys of all next states that the agent was told of."""
    horizon, seen = agent.problem.horizon, set()
    for _ in range(episodes):
        agent.plan()
        state = states[rng.integers(len(states))]
        for step in range(horizon):
            decision = agent.act(step, state)
            assert decision.is_baseline or decision.cost_bound <= decision.threshold
            assert GAMMA @ decision.feature <= 0.5
            over = step == horizon - 1 or rng.random() < ends_early
            follower = None if over else states[rng.integers(len(states))]
            cost = float(GAMMA @ decision.feature) + 0.05 * rng.standard_normal()
            agent.observe(decision.outcome(reward=rng.random(), cost=cost, next_state=follower))
            if follower is None:
                break
            seen.add(agent.problem.key_of(follower))
            state = follower
    return seen


def sizes(agent):
    """Bytes of every array the agent keeps."""
    arrays = {**agent.arrays(), **dict(arrays_in(agent.scratch, "scratch"))}
    return {name: array.nbytes for name, array in arrays.items()}


def test_of_a_hundred_thousand_states_only_the_visited_ones_are_kept():
    asked = []
    agent = SlucbQvi(problem_of(int, asked, states=range(COUNT)))
    rng = np.random.default_rng(1)
    visited = rng.choice(COUNT, size=12, replace=False)
    seen = wander(agent, visited, rng, 40)
    assert 1 < len(seen) <= 12
    assert int(agent.tables.slots[0]) == len(seen) == len(agent.slots)
    assert set(agent.slots) == seen
    assert set(asked) <= set(visited.tolist())
    assert sum(sizes(agent).values()) < 200_000


def test_asking_about_a_state_does_not_make_it_known():
    agent = SlucbQvi(problem_of(int, states=range(COUNT)))
    wander(agent, [5, 6, 7], np.random.default_rng(2), 5)
    agent.plan()
    slots, kept = int(agent.tables.slots[0]), sizes(agent)
    for state in range(1000, 1200):
        decision = agent.act(0, state)
        assert decision.is_baseline or decision.cost_bound <= 0.5
    assert int(agent.tables.slots[0]) == slots
    assert sizes(agent) == kept


def test_a_state_is_answered_alike_whether_it_was_planned_or_only_asked_about():
    """The plan and the choice at an unplanned state go through the same code: equal data, equal answer."""
    planned, asked = (SlucbQvi(problem_of(int, states=range(COUNT))) for _ in range(2))
    for agent in (planned, asked):
        wander(agent, [5, 6, 7], np.random.default_rng(3), 10)
    planned.register([900])
    for agent in (planned, asked):
        agent.plan()
    for step in range(3):
        one, two = planned.act(step, 900), asked.act(step, 900)
        assert one.action.ray == two.action.ray
        assert one.action.length == pytest.approx(two.action.length, rel=1e-9)
        assert one.cost_bound == pytest.approx(two.cost_bound, rel=1e-9)
        assert one.score == pytest.approx(two.score, rel=1e-9)
        assert one.reason == two.reason


@pytest.mark.parametrize("backup", ["tables", "lean"])
def test_continuous_states_are_arrays_and_each_is_kept_once(backup):
    rng = np.random.default_rng(4)
    points = [rng.random(2) for _ in range(8)]
    agent = SlucbQvi(problem_of(lambda s: int(1e6 * s[0])), SlucbConfig(backup=backup))
    seen = wander(agent, points, rng, 30)
    assert set(agent.known_states) == seen
    assert len(list(agent.known_states)) == len(seen) <= 8
    again = [point.copy() for point in points]  # equal content is the same state, whatever the object
    assert wander(agent, again, np.random.default_rng(5), 10) <= seen | {agent.problem.key_of(p) for p in points}
    assert len(list(agent.known_states)) <= 8


def test_memory_does_not_grow_with_the_number_of_episodes():
    agent = SlucbQvi(problem_of(int, states=range(COUNT)))
    states = [10, 20, 30, 40]
    agent.register(states)
    rng = np.random.default_rng(6)
    wander(agent, states, rng, 5)
    early, parts = sizes(agent), len(agent.open_decisions) + len(agent.slots)
    wander(agent, states, rng, 100)
    assert sizes(agent) == early
    assert len(agent.open_decisions) + len(agent.slots) == parts
    assert agent.data_version == 3 * 105


def test_the_saved_state_does_not_grow_with_the_number_of_episodes(tmp_path):
    agent, path = SlucbQvi(problem_of(int, states=range(COUNT))), tmp_path / "agent.tether"
    states, rng = [10, 20, 30, 40], np.random.default_rng(7)
    agent.register(states)
    lengths = []
    for _ in range(2):
        wander(agent, states, rng, 30)
        agent.save(path)
        lengths.append(path.stat().st_size)
    assert abs(lengths[1] - lengths[0]) <= 16  # the digits of a counter


def test_tables_grow_by_doubling_so_that_many_states_stay_cheap():
    agent = SlucbQvi(problem_of(int, states=range(COUNT)))
    capacities = set()
    for state in range(300):
        agent.register([state])
        capacities.add(agent.tables.phi_0.shape[1])
    assert int(agent.tables.slots[0]) == 300
    assert len(capacities) <= 10
    assert max(capacities) < 1200
    agent.plan()
    for state in (0, 150, 299):
        assert agent.act(0, state).evidence[0].baseline_cost == pytest.approx(star_of(state).phi_0 @ GAMMA)


def test_growing_the_tables_changes_no_answer():
    """The same data, with 3 known states or with 303: the plan at the three is the same."""
    small, large = (SlucbQvi(problem_of(int, states=range(COUNT))) for _ in range(2))
    large.register(range(1000, 1300))
    for agent in (small, large):
        wander(agent, [5, 6, 7], np.random.default_rng(8), 12)
        agent.plan()
    for step in range(3):
        for state in (5, 6, 7):
            one, two = small.act(step, state), large.act(step, state)
            assert (one.action, one.reason) == (two.action, two.reason)
            assert essence(one.evidence) == essence(two.evidence)


def test_an_episode_may_end_early():
    """next_state None: nothing follows, so the regression target is the reward alone."""
    agent = SlucbQvi(problem_of(int, states=range(COUNT)))
    seen = wander(agent, [5, 6, 7], np.random.default_rng(9), 40, ends_early=0.5)
    assert set(agent.slots) == seen
    assert agent.values.transition_moment[2].sum() == 0.0
    stopped = SlucbQvi(problem_of(int))
    stopped.plan()
    decision = stopped.act(0, 5)
    stopped.observe(decision.outcome(reward=0.25, cost=0.2))
    assert int(stopped.tables.slots[0]) == 0
    np.testing.assert_allclose(stopped.values.reward_moment[0], 0.25 * decision.feature, atol=1e-15)
    assert not stopped.values.transition_moment.any()


def test_early_ends_lower_the_value_of_what_leads_to_them():
    """Two equal agents; for one, every first step ends the episode. Its plan must not count later rewards."""
    ends, goes_on = (SlucbQvi(problem_of(int), SlucbConfig(value_radius=0.0, backup="tables")) for _ in range(2))
    for agent, follower in ((ends, None), (goes_on, 6)):
        agent.register([5, 6])
        for _ in range(60):
            agent.plan()
            first = agent.act(0, 5)
            agent.observe(first.outcome(reward=0.1, cost=0.2, next_state=follower))
            if follower is not None:
                second = agent.act(1, 6)
                agent.observe(second.outcome(reward=1.0, cost=0.2))
        agent.plan()
    slot = ends.slots[5]
    assert ends.current.values[0, slot] == pytest.approx(0.1, abs=0.02)
    assert goes_on.current.values[0, slot] == pytest.approx(1.1, abs=0.1)


def test_unvisited_memory_is_never_allocated():
    """A problem with a hundred thousand states costs the agent no more than one with ten."""
    problem = problem_of(int, states=range(COUNT))
    tracemalloc.start()
    agent = SlucbQvi(problem)
    agent.act(0, 99_999)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    assert sum(sizes(agent).values()) < 50_000


def test_conditioning_on_all_states_needs_memory_in_proportion_to_them():
    """1500 known costs in R^4 are 48 kB of features; a 1500 x 1500 orthogonal matrix would be 18 MB."""
    stars = [star_of(state) for state in range(1500)]
    problem = problem_of(
        int,
        states=range(1500),
        horizon=1,
        actions=lambda s: stars[s],
        baseline_cost=lambda h, s: float(stars[s].phi_0 @ GAMMA),
    )
    tracemalloc.start()
    agent = SlucbQvi(problem, SlucbConfig(condition_on="all"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (agent.costs.facts.rank == 0).all()
    np.testing.assert_allclose(agent.costs.facts.known[0, 0], GAMMA, atol=1e-9)
    assert peak < 4_000_000


@pytest.mark.slow
def test_memory_stays_constant_over_ten_thousand_episodes():
    agent = SlucbQvi(problem_of(int, states=range(COUNT)), SlucbConfig(replan="on-doubling"))
    states, rng = list(range(50, 60)), np.random.default_rng(10)
    agent.register(states)
    wander(agent, states, rng, 50)
    early = sizes(agent)
    wander(agent, states, rng, 10_000)
    assert sizes(agent) == early
    assert set(snapshot(agent)["slots"][1]) == {(s, i) for i, s in enumerate(states)}
