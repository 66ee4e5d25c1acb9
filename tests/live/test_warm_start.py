"""Warm start: old (φ, z) rows are checked, logged once, and shrink the bounds as outcomes would."""

import numpy as np
import pytest

from tether import Advisor
from tether.errors import InputError
from tether.live.memory_store import MemoryStore

from .live_worlds import Plant, live_advisor, small_world


@pytest.fixture(scope="module")
def world():
    return small_world(3, horizon=1)[0]


def rows(world, count, *, seed=4, step=0):
    rng = np.random.default_rng(seed)
    features = rng.dirichlet(np.ones(3), size=count)
    costs = features @ world.true_gamma[step, 0] + 0.05 * rng.standard_normal(count)
    return features, costs


def test_old_costs_teach_the_cost_model_and_nothing_else(world):
    advisor = live_advisor(world.problem)
    before = advisor.replica.learner
    value, plans = before.agent.memory.value.gram.copy(), before.agent.memory.reward_moment.copy()
    first = advisor.decide(1)
    features, costs = rows(world, 50)
    assert advisor.warm_start(features, costs, source="last year") == 50
    learner = advisor.replica.learner
    ridge = learner.gate.terms.ridge
    assert np.allclose(learner.gate.gram[0], ridge * np.eye(3) + features.T @ features, rtol=1e-12)
    assert np.allclose(learner.agent.memory.cost.gram[0], ridge * np.eye(3) + features.T @ features, rtol=1e-12)
    assert np.allclose(learner.agent.memory.cost_moment[0, 0], costs @ features, rtol=1e-12)
    assert np.array_equal(learner.agent.memory.value.gram, value)
    assert np.array_equal(learner.agent.memory.reward_moment, plans)
    assert learner.version == 50
    later = advisor.decide(1)
    known = world.problem.look_up(1)
    assert learner.gate.certified(0, known) > first.certified
    assert later.certificate.data_version == 50
    assert advisor.status().refusals == 0


def test_a_warm_started_advisor_keeps_its_promise_and_replays(world):
    store = MemoryStore()
    advisor = live_advisor(world.problem, store)
    advisor.warm_start(*rows(world, 40))
    plant = Plant(world.true_gamma)
    decisions = plant.play(advisor, 60)
    assert plant.worst <= 1e-9
    assert sum(not decision.is_baseline for decision in decisions) > 20
    assert Advisor(world.problem, store).replica.to_bytes() == advisor.replica.to_bytes()


def test_rows_with_rewards_states_and_steps_teach_the_values_too():
    world, _ = small_world(3, horizon=2)
    advisor = live_advisor(world.problem)
    features, costs = rows(world, 20)
    rng = np.random.default_rng(0)
    advisor.warm_start(
        features,
        costs,
        rewards=rng.uniform(size=20),
        steps=[n % 2 for n in range(20)],
        seen_states=[n % 4 for n in range(20)],
        next_states=[(n + 1) % 4 for n in range(20)],
    )
    memory = advisor.replica.learner.agent.memory
    assert np.allclose(memory.value.gram[0], np.eye(3) + features[::2].T @ features[::2])
    assert advisor.replica.learner.gate.count.tolist() == [10, 10]


def test_the_same_rows_are_taken_once(world):
    store = MemoryStore()
    features, costs = rows(world, 30)
    Advisor(world.problem, store).warm_start(features, costs)
    again = Advisor(world.problem, store)
    with pytest.raises(InputError, match="in the log already"):
        again.warm_start(features, costs)
    assert again.replica.learner.version == 30
    assert again.warm_start(features[:10], costs[:10] + 0.01) == 10


def test_rows_that_occur_twice_are_refused_dropped_or_kept_as_told(world):
    features, costs = rows(world, 10)
    twice = np.vstack([features, features[3:5]]), np.append(costs, costs[3:5])
    with pytest.raises(InputError, match=r"rows 3 and 10 .* equal in every number, and 2 rows occur more than once"):
        Advisor(world.problem).warm_start(*twice)
    assert Advisor(world.problem).warm_start(*twice, duplicates="drop") == 10
    assert Advisor(world.problem).warm_start(*twice, duplicates="keep") == 12
    with pytest.raises(InputError, match="duplicates is"):
        Advisor(world.problem).warm_start(*twice, duplicates="maybe")


def spoil(part, place, value):
    def change(told):
        told[part] = np.array(told[part], dtype=float)
        told[part][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (spoil("features", (4, 1), np.nan), "row 4"),
        (spoil("features", 4, 5.0), "row 4 .*norm"),
        (spoil("costs", 4, np.inf), "row 4"),
        (spoil("costs", 4, 30.0), "row 4 .*another unit"),
        (spoil("costs", 4, -30.0), "row 4 .*another unit"),
        (lambda told: told.update(costs=told["costs"][:-1]), "10 features but 9 costs"),
        (lambda told: told.update(rewards=[0.1]), "10 features but 1 rewards"),
        (lambda told: told.update(steps=[1] * 10), "row 0 .*step"),
        (lambda told: told.update(features=[], costs=[]), "1 to 100000 rows, but these are 0"),
        (lambda told: told.update(costs=None), "needs costs"),
        (lambda told: told.update(costs=[None] * 10), "row 0 .*says nothing"),
        (lambda told: told.update(features=7), r"features \(n, d\)"),
        (lambda told: told.update(features=[[1.0]] * 10), "row 0"),
    ],
)
def test_one_bad_row_refuses_all_of_them(world, change, words):
    features, costs = rows(world, 10)
    told = {"features": features, "costs": costs}
    change(told)
    advisor = Advisor(world.problem)
    with pytest.raises(InputError, match=words):
        advisor.warm_start(**told)
    assert advisor.replica.learner.version == 0
    assert advisor.store.head().seq == 1


def test_steps_are_needed_where_there_is_more_than_one():
    world, _ = small_world(3, horizon=2)
    with pytest.raises(InputError, match="H = 2 each row needs its step"):
        Advisor(world.problem).warm_start(*rows(world, 5))


def test_many_rows_make_several_entries_of_one_batch(world):
    advisor = Advisor(world.problem, watch=False)
    features, costs = rows(world, 1500)
    advisor.warm_start(features, costs)
    sizes = [len(entry.body["rows"]) for entry in advisor.store.read() if entry.kind == "warm-start"]
    assert sizes == [1000, 500]
    assert advisor.replica.learner.version == 1500
