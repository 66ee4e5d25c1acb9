"""Warm start: old (φ, z) rows are checked, logged once, and shrink the bounds as outcomes would."""

import numpy as np
import pytest

from limits import restated, stated
from live.plant import Plant, live_advisor
from tether import Advisor, Constraint
from tether.agents.certified import certified_set
from tether.errors import InputError, StoreError
from tether.live.learner import Learner
from tether.live.log.chain import verify_store
from tether.live.log.memory import MemoryStore
from tether.live.states import StateCodec
from tether.live.warm_start import plainly_spelled
from tether.problem.action_sets import FiniteActions
from tether.problem.problem import Problem
from worlds import world_and_streams


@pytest.fixture(scope="module")
def world():
    return world_and_streams(3, horizon=1)[0]


def rows(world, count, *, seed=4, step=0):
    rng = np.random.default_rng(seed)
    features = rng.dirichlet(np.ones(3), size=count)
    costs = features @ world.true_gamma[step, 0] + 0.05 * rng.standard_normal(count)
    return features, costs


def test_old_costs_teach_the_cost_model_and_nothing_else(world):
    advisor = live_advisor(world.problem, mode="shadow")
    before = advisor.replica.learner
    value, plans = before.agent.values.factor.copy(), before.agent.values.reward_moment.copy()
    first = advisor.decide(1)
    features, costs = rows(world, 50)
    assert advisor.warm_start(features, costs, source="last year") == 50
    learner = advisor.replica.learner
    ridge = learner.gate.terms.ridge
    assert np.allclose(learner.gate.gram[0], ridge * np.eye(3) + features.T @ features, rtol=1e-12)
    assert np.allclose(learner.agent.costs.gram[0], ridge * np.eye(3) + features.T @ features, rtol=1e-12)
    assert np.allclose(learner.agent.costs.moment[0, 0], costs @ features, rtol=1e-12)
    assert np.array_equal(learner.agent.values.factor, value)
    assert np.array_equal(learner.agent.values.reward_moment, plans)
    assert learner.version == 50
    later = advisor.decide(1)
    known = world.problem.look_up(1)
    assert learner.gate.certified(0, known) > first.certified
    assert later.certificate.data_version == 50
    assert advisor.status().refusals == 0


def cut_short(advisor, monkeypatch, features, costs):
    """A warm start whose third entry, of a hundred rows each, cannot be written."""
    honest, calls = advisor.store.append, []

    def interrupted(drafts):
        calls.extend(drafts)
        if len(calls) == 3:
            raise StoreError("the disk is full")
        return honest(drafts)

    monkeypatch.setattr(advisor.store, "append", interrupted)
    with pytest.raises(StoreError):
        advisor.warm_start(features, costs)
    monkeypatch.undo()


def test_a_warm_start_takes_effect_as_a_whole(world, monkeypatch):
    """Of 250 rows the first 200 are two entries, seen by a decision; nothing counts before the last 50 are there.

    A call that was cut short is completed by the same call.
    """
    store = MemoryStore()
    advisor, (features, costs) = live_advisor(world.problem, store, mode="shadow"), rows(world, 250)
    cut_short(advisor, monkeypatch, features, costs)
    advisor.sync()
    assert advisor.decide(1).certificate.data_version == 0
    again = Advisor(world.problem, store)
    again.snapshot()
    assert again.replica.learner.gate.count.sum() == 0
    assert again.warm_start(features, costs, duplicates="drop") == 50
    assert advisor.sync() > 0
    for each in (advisor, again, Advisor(world.problem, store)):
        assert each.replica.learner.gate.count.sum() == each.replica.learner.version == 250


# Old data count as a whole, or not at all: docs/theory.md section 18


def in_pieces(advisor, table, states):
    """Hand a table over, 300 rows and then 100 at a time, with decisions in between; returns errors, and features."""
    errors, played = [], []
    for first in range(0, len(table[0]), 100):
        if first in (100, 200):
            continue
        try:
            advisor.warm_start(*(column[first : first + (100 if first else 300)] for column in table))
        except InputError as error:
            errors.append(str(error))
        for state in states:
            decision = advisor.decide(state)
            played.append(np.array(decision.feature))
            advisor.record(decision.id, 0.5, None)
    return errors, played


@pytest.mark.parametrize("mode", ["live", "shadow"])
def test_a_sorted_table_in_pieces_certifies_nothing_over_the_threshold(world, mode):
    """After 300 rows, the lowest costs come first. Where decisions act in between, the rest is refused; in shadow mode
    all of it counts before anything acts. Half of a table cannot be told from a whole one: here the first piece is as
    good as the whole."""
    problem = restated(world.problem, baseline_cost=None)
    features, costs = rows(world, 1500)
    order = np.concatenate([np.arange(300), 300 + np.argsort(costs[300:])])
    features, costs = features[order], costs[order]
    store = MemoryStore()
    advisor = live_advisor(problem, store, mode=mode, watch=False)
    errors, played = in_pieces(advisor, (features, costs), range(4))
    if mode == "live":
        assert len(errors) == 12 and all("stop it" in error and "tether merge" in error for error in errors)
        assert advisor.replica.learner.gate.count.sum() == 300
    else:
        assert not errors and advisor.replica.learner.gate.count.sum() == 1500
    true = np.array(played) @ world.true_gamma[0, 0]
    assert (true <= problem.threshold[0] + 1e-9).all()
    assert Advisor(problem, store, watch=False).replica.to_bytes() == advisor.replica.to_bytes()


def test_rows_that_another_process_wrote_after_a_decision_that_acts_never_count(world):
    """Of 250 rows the first entries stand before the decision of another process, and the last behind it."""
    store = MemoryStore()
    advisor, other = live_advisor(world.problem, store), live_advisor(world.problem, store)
    features, costs = rows(world, 250)
    honest, done = store.append, []

    def slowly(drafts):
        if len(done) == 2:
            done.append(None)
            while other.decide(1).is_baseline:
                pass
        done.append(drafts)
        return honest(drafts)

    store.append = slowly
    with pytest.raises(InputError, match="come too late, and never count"):
        advisor.warm_start(features, costs)
    store.append = honest
    assert advisor.warm_start(features, costs, duplicates="drop") == 0  # they are there, and say nothing
    for each in (advisor, Advisor(world.problem, store)):
        learner = each.replica.learner
        assert learner.version == learner.gate.count.sum() == 0 and learner.ignored == 250
    restored = Learner(world.problem, learner.config).restored(learner.to_bytes())
    assert restored.agent.has_acted and restored.gate.turns.has_acted and restored.ignored == 250


def test_a_learner_that_counts_old_rows_too_late_is_stopped_by_the_gate(world):
    """The gate keeps for itself whether a decision has acted: a learner that does not heed it certifies nothing."""
    advisor = live_advisor(world.problem)
    learner = advisor.replica.learner
    while advisor.decide(1).is_baseline:
        pass
    learner.agent.has_acted = False
    advisor.warm_start(*rows(world, 10))
    assert learner.version == 10 and learner.gate.certified(0, world.problem.look_up(1)) == 0.0
    assert all(advisor.decide(state).is_baseline for state in range(4))


def test_a_call_that_is_made_again_after_decisions_is_harmless(world):
    """A program that hands its table over whenever it starts."""
    advisor, table = live_advisor(world.problem), rows(world, 40)
    assert advisor.warm_start(*table, duplicates="drop") == 40
    Plant(world.true_gamma).play(advisor, 20)
    assert advisor.warm_start(*table, duplicates="drop") == 0


@pytest.mark.parametrize("grown", [0, 30])
def test_a_table_that_has_grown_completes_what_was_cut_short(world, monkeypatch, grown):
    """Highest costs first, and the call ends after 200 of 250 rows: to skip these as known would leave out the worst.

    Without a row more, and with the last 50 gone, there is nothing to write but that the others count.
    """
    store = MemoryStore()
    advisor, (features, costs) = live_advisor(world.problem, store), rows(world, 250 + grown)
    order = np.argsort(-costs[:250])
    features[:250], costs[:250] = features[:250][order], costs[:250][order]
    cut_short(advisor, monkeypatch, features[:250], costs[:250])
    with pytest.raises(InputError, match=r"150 of these rows wait in the log.*50 that wait there are not among these"):
        advisor.warm_start(features[50:], costs[50:], duplicates="new")
    count = 250 + grown if grown else 200
    assert advisor.warm_start(features[:count], costs[:count], duplicates="new") == count - 200
    for each in (advisor, Advisor(world.problem, store)):
        learner = each.replica.learner
        assert learner.version == learner.gate.count.sum() == count and not learner.batches
        np.testing.assert_allclose(learner.agent.costs.moment[0, 0], costs[:count] @ features[:count], rtol=1e-12)
    assert advisor.warm_start(features[:count], costs[:count], duplicates="new") == 0


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
    world, _ = world_and_streams(3, horizon=2)
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
    factor = advisor.replica.learner.agent.values.factor[0]
    assert np.allclose(factor.T @ factor, np.eye(3) + features[::2].T @ features[::2])
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


EXPORTS = {
    "in another order": (lambda n: [*range(n - 1, -1, -1)], "30 of these 30 rows", 0),
    "one row fewer": (lambda n: [*range(1, n)], "29 of these 29 rows", 0),
    "a longer table": (lambda n: [*range(n + 5)], "30 of these 35 rows", 5),
}


@pytest.mark.parametrize(("pick", "words", "new"), EXPORTS.values(), ids=EXPORTS)
def test_rows_that_the_log_holds_are_known_whatever_comes_with_them(world, pick, words, new):
    features, costs = rows(world, 40)
    advisor = Advisor(world.problem)
    advisor.warm_start(features[:30], costs[:30])
    before, chosen = advisor.store.head(), pick(30)
    with pytest.raises(InputError, match=f"{words} are in the log already .*duplicates='drop'"):
        advisor.warm_start(features[chosen], costs[chosen])
    assert advisor.store.head() == before
    assert advisor.warm_start(features[chosen], costs[chosen], duplicates="drop") == new
    gate = advisor.replica.learner.gate
    whole = features[: 30 + new]
    assert gate.count.tolist() == [30 + new]
    assert np.allclose(gate.gram[0], gate.terms.ridge * np.eye(3) + whole.T @ whole, rtol=1e-12)
    assert advisor.warm_start(features[35:], costs[35:]) == 5


def test_of_rows_that_repeat_in_a_growing_table_the_log_gets_as_many_as_the_table_holds(world):
    """Costs of 0 or 1: the log holds the row twice, the longer table four times, so two are new."""
    x = [0.2, 0.3, 0.5]
    advisor = Advisor(world.problem, watch=False)
    assert advisor.warm_start([x] * 2, [1.0] * 2, duplicates="keep") == 2
    with pytest.raises(InputError, match=r"2 of these 5 rows are in the log already .*duplicates='new'"):
        advisor.warm_start([x] * 5, [1.0] * 4 + [0.0], duplicates="keep")
    assert advisor.warm_start([x] * 5, [1.0] * 4 + [0.0], duplicates="new") == 3
    assert advisor.warm_start([x] * 5, [1.0] * 4 + [0.0], duplicates="new") == 0
    assert advisor.replica.learner.gate.count.tolist() == [5]
    assert np.allclose(advisor.replica.learner.gate.moment[0], 4 * np.array(x))


def test_rows_that_another_process_writes_at_the_same_time_are_counted_once(world, monkeypatch):
    """Both have looked, and neither has written yet: the keys decide, and the second is told."""
    store = MemoryStore()
    features, costs = rows(world, 250)
    one, two = (Advisor(world.problem, store, watch=False) for _ in range(2))
    monkeypatch.setattr(store, "places", lambda keys: {})
    one.warm_start(features[50:], costs[50:])
    with pytest.raises(InputError, match=r"at the same time.*duplicates='drop'"):
        two.warm_start(features, costs)
    monkeypatch.undo()
    assert two.warm_start(features, costs, duplicates="drop") == 50
    assert two.replica.learner.gate.count.tolist() == [250]
    one.sync()
    assert one.replica.to_bytes() == two.replica.to_bytes()


def test_rows_that_occur_twice_are_refused_dropped_or_kept_as_told(world):
    features, costs = rows(world, 10)
    twice = np.vstack([features, features[3:5]]), np.append(costs, costs[3:5])
    with pytest.raises(InputError, match=r"rows 3 and 10 .* equal in every number, and 2 rows occur more than once"):
        Advisor(world.problem).warm_start(*twice)
    assert Advisor(world.problem).warm_start(*twice, duplicates="drop") == 10
    assert Advisor(world.problem).warm_start(*twice, duplicates="keep") == 12
    with pytest.raises(InputError, match="duplicates is"):
        Advisor(world.problem).warm_start(*twice, duplicates="maybe")


@pytest.mark.parametrize("kind", ["bounded", "gaussian", ("bounded", "gaussian")])
def test_equal_rows_of_yes_and_no_are_never_dropped(kind):
    """Each of 60 settings with a risk of 0.9 was tried 30 times: one accident and one success of each is 0.5. So where
    they are declared with σ = ½, or beside a cost whose sensor rounds so much that all its readings are equal."""
    m = 1 if isinstance(kind, str) else 2
    problem = Problem.from_table(
        features=[[[0.0, 1.0], [1.0, 0.0]]],
        baseline_action=[0],
        horizon=1,
        confidence=0.05,
        **stated(baseline_cost_error=0.0, baseline_cost=[[[0.1] * m]], threshold=[0.7] * m, cost_kind=kind, noise=0.5),
    )
    features = [[amount, 0.0] for amount in np.linspace(0.9, 1.0, 60) for _ in range(30)]
    costs = [[float(count >= 3), 0.1][:m] for _ in range(60) for count in range(30)]
    advisor = live_advisor(problem)
    with pytest.raises(InputError, match=r"yes or no.*duplicates='keep'"):
        advisor.warm_start(features, costs, duplicates="drop")
    assert advisor.warm_start(features, costs, duplicates="new") == 1800
    assert certified_set(advisor.replica.learner.agent, 0, 0).certified == [2], "a_0 alone"


def spoil(part, place, value):
    def change(told):
        told[part] = np.array(told[part], dtype=float)
        told[part][place] = value

    return change


def masked(values, place):
    hidden = np.ma.array(values, copy=True)
    hidden[place] = np.ma.masked
    return hidden


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
        (lambda told: told.update(features=masked(told["features"], (4, 1))), "row 4 .*feature must be 3 finite"),
        (lambda told: told.update(costs=masked(told["costs"], 4)), "row 4 .*cost must be 1 finite"),
        (lambda told: told.update(rewards=masked(told["costs"], 4)), "row 4 .*reward must be a finite"),
        (lambda told: told.update(rewards=[1e200] * 10), "row 0 .*reward 1e.200 is beyond"),
        (lambda told: told.update(rewards=[0.1] * 10, seen_states=[0, 1, 2, 3, 9] * 2), "row 4 .*state 9 is not one"),
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


def keyed_problem(horizon=1):
    """States are dicts, told apart by their id; those under 0 do not exist."""

    def actions(state):
        if state["id"] < 0:
            raise ValueError("no such customer")
        return FiniteActions(np.array([[0.5, 0.0], [0.4, 0.1]]), 0)

    return Problem(
        horizon=horizon,
        constraints=Constraint(threshold=1.0, noise=0.05, safe_cost=lambda step, state: 0.2),
        dimension=2,
        key=lambda state: state["id"],
        actions=actions,
    )


UNUSABLE = {
    "no state": ({}, "rows with rewards need their states"),
    "no such state": ({"seen_states": [{"id": 7}, {"id": -1}]}, "row 1 .*no such customer"),
    "no such next state": (
        {"seen_states": [{"id": 7}] * 2, "next_states": [{"id": 7}, {"id": -1}]},
        "row 1 .*next_state.*ValueError",
    ),
}


@pytest.mark.parametrize(("told", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_nothing_is_logged_that_the_learner_could_not_apply(told, words):
    problem, store = keyed_problem(horizon=2), MemoryStore()
    advisor = live_advisor(problem, store)
    before = store.head()
    with pytest.raises(InputError, match=words):
        advisor.warm_start([[0.5, 0.0], [0.4, 0.1]], [0.2, 0.21], rewards=[0.1, 0.2], steps=[0, 0], **told)
    assert store.head() == before
    assert advisor.decide({"id": 7}).is_baseline is not None
    assert Advisor(problem, store).replica.learner.version == 0


def test_a_state_is_looked_up_as_the_log_gives_it_back():
    """What is handed over has an id, but what this codec logs of it has none."""
    codec = StateCodec(lambda state: {"name": "x"}, lambda value: value)
    advisor = live_advisor(keyed_problem(), states=codec)
    before = advisor.store.head()
    with pytest.raises(InputError, match=r"row 0 .*not one that this problem knows"):
        advisor.warm_start([[0.5, 0.0]], [0.2], rewards=[0.1], seen_states=[{"id": 7}])
    assert advisor.store.head() == before


def test_rows_without_rewards_need_no_state_that_the_problem_knows():
    advisor = live_advisor(keyed_problem())
    assert advisor.warm_start([[0.5, 0.0], [0.4, 0.1]], [0.2, 0.21], seen_states=[None, {"id": -1}]) == 2
    assert advisor.replica.learner.version == 2


def test_steps_are_needed_where_there_is_more_than_one():
    world, _ = world_and_streams(3, horizon=2)
    with pytest.raises(InputError, match="H = 2 each row needs its step"):
        Advisor(world.problem).warm_start(*rows(world, 5))


def test_many_rows_make_several_entries_each_with_a_key_per_row(world):
    advisor = Advisor(world.problem, watch=False)
    features, costs = rows(world, 250)
    assert advisor.warm_start(features, costs) == 250
    entries = [entry for entry in advisor.store.read() if entry.kind == "warm-start"]
    assert [len(entry.body["rows"]) for entry in entries] == [100, 100, 50]
    assert len({key for entry in entries for key in entry.unique if key.startswith("warm-row:")}) == 250
    assert advisor.replica.learner.version == 250
    assert verify_store(advisor.store).fault is None


@pytest.mark.parametrize(("one", "other"), [(1, "1"), (1, 1.0), (0.0, -0.0), ([1.5, 0], ["1.50", -0.0]), ("2e0", 2)])
def test_a_row_is_the_same_however_its_state_is_spelled(world, one, other):
    """Rows without rewards: their states are logged and never read, so nothing else refuses the second spelling."""
    advisor = Advisor(world.problem)
    advisor.warm_start([[0.5, 0.0, 0.1]], [0.2], seen_states=[one])
    with pytest.raises(InputError, match="in the log already"):
        advisor.warm_start([[0.5, 0.0, 0.1]], [0.2], seen_states=[other])
    assert advisor.warm_start([[0.5, 0.0, 0.1]], [0.2], seen_states=[3]) == 1


def test_what_is_no_number_keeps_its_spelling():
    assert plainly_spelled(["nan", "one", True, None, {"a": "1"}]) == plainly_spelled(
        ["nan", "one", True, None, {"a": 1}]
    )
    assert plainly_spelled("one") == "one" and plainly_spelled(True) is True and plainly_spelled("1.25") == 1.25


def test_a_zero_is_a_zero_however_it_is_signed(world):
    advisor = Advisor(world.problem)
    advisor.warm_start([[0.5, 0.0, 0.1]], [0.0])
    for feature, cost in ([0.5, -0.0, 0.1], 0.0), ([0.5, 0.0, 0.1], -0.0):
        with pytest.raises(InputError, match="in the log already"):
            advisor.warm_start([feature], [cost])
