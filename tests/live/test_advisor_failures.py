"""When the log fails: a_0 that says so, or a clear refusal; then recovery, and nothing counted twice."""

import pytest

from live.plant import Plant, live_advisor
from tether import Advisor, Upkeep
from tether.errors import AlteredLog, StoreError
from tether.live.answers import UnknownDecision
from tether.live.log.chain import verify_store
from tether.live.log.memory import MemoryStore
from worlds import world_and_streams


class FailingStore:
    """A store that fails when told: before it writes, or after (then only the acknowledgment is lost)."""

    def __init__(self, inner):
        self.inner, self.fails = inner, ""

    def append(self, drafts):
        if self.fails == "before":
            raise StoreError("the disk is full")
        appended = self.inner.append(drafts)
        if self.fails == "after":
            raise StoreError("the connection was lost")
        return appended

    def read(self, *asked):
        if self.fails:
            raise StoreError("the database is gone")
        return self.inner.read(*asked)

    def find(self, unique):
        if self.fails:
            raise StoreError("the database is gone")
        return self.inner.find(unique)

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.fixture(scope="module")
def world():
    return world_and_streams(3, horizon=1)[0]


@pytest.fixture
def failing(world):
    store = FailingStore(MemoryStore())
    advisor = live_advisor(world.problem, store)
    Plant(world.true_gamma).play(advisor, 30)
    state = next(s for s in range(4) if not advisor.replica.learner.propose(0, s).is_baseline)
    return store, advisor, state


def test_whatever_a_log_raises_when_read_is_not_taken_for_a_failure_of_the_problem(world):
    store = FailingStore(MemoryStore())
    advisor = live_advisor(world.problem, store, refresh=0.0)  # every decision looks for entries of others
    Plant(world.true_gamma).play(advisor, 30)
    store.read = lambda *asked: 1 // 0
    assert advisor.decide(0).reason not in ("failed", "not-logged") and advisor.failure == ""
    with pytest.raises(StoreError, match=r"^the log failed: ZeroDivisionError\.$"):
        advisor.sync()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_decision_that_cannot_be_logged_is_the_safe_action_and_says_so(failing, when):
    store, advisor, state = failing
    store.fails = when
    decision = advisor.decide(state)
    assert (decision.logged, decision.is_baseline, decision.reason, decision.id) == (False, True, "not-logged", "")
    assert decision.certificate.holds
    assert decision.certificate.limits[0].bound == advisor.problem.look_up(state).baseline_cost[0, 0]
    assert decision.detail in advisor.status().store_error
    with pytest.raises(UnknownDecision, match="could not be logged"):
        advisor.record(decision.id, 0.1, 0.2)
    store.fails = ""
    later = advisor.decide(state)
    assert later.logged
    assert not later.is_baseline
    assert advisor.status().store_error == ""


def test_an_advisor_may_be_told_to_refuse_instead(world):
    store = FailingStore(MemoryStore())
    advisor = live_advisor(world.problem, store, when_store_fails="refuse")
    store.fails = "before"
    with pytest.raises(StoreError, match="disk is full"):
        advisor.decide(0)
    store.fails = ""
    assert advisor.decide(0).logged


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_outcome_that_was_not_acknowledged_may_be_sent_again_and_counts_once(failing, when):
    store, advisor, state = failing
    decision = advisor.decide(state)
    store.fails = when
    with pytest.raises(StoreError):
        advisor.record(decision.id, 0.1, 0.3)
    assert advisor.replica.learner.version == 30
    store.fails = ""
    recorded = advisor.record(decision.id, 0.1, 0.3)
    assert recorded.repeated == (when == "after")
    advisor.sync()
    assert advisor.replica.learner.version == 31
    assert [entry.body["decision_id"] for entry in store.read(0, 500) if entry.kind == "outcome"].count(
        decision.id
    ) == 1


def test_a_request_repeated_with_its_key_after_a_lost_acknowledgment_is_decided_once(failing):
    store, advisor, state = failing
    store.fails = "after"
    lost = advisor.decide(state, key="k")
    assert not lost.logged
    store.fails = ""
    found = advisor.decide(state, key="k")
    again = advisor.decide(state, key="k")
    assert found == again
    assert found.logged
    assert found.certificate.holds
    assert [entry.body["key"] for entry in store.read(0, 500) if entry.kind == "decision"].count("k") == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_trouble_the_replica_is_that_of_an_untroubled_replay(failing, world, when):
    store, advisor, _ = failing
    plant = Plant(world.true_gamma, seed=9)
    for turn in range(30):
        store.fails = when if turn % 3 == 0 else ""
        decision = advisor.decide(plant.state(), key=f"k{turn}")
        assert decision.certificate.holds
        if decision.logged:
            outcome = plant.measure(0, decision.feature)
            store.fails = when if turn % 3 == 1 else ""
            try:
                advisor.record(decision.id, 0.1, outcome)
            except StoreError:
                store.fails = ""
                advisor.record(decision.id, 0.1, outcome)
    store.fails = ""
    advisor.sync()
    assert advisor.replica.to_bytes() == Advisor(world.problem, store.inner).replica.to_bytes()
    assert verify_store(store.inner).fault is None
    assert advisor.status().unsynced == 0


def test_the_controls_fail_loudly_and_can_be_repeated(failing):
    store, advisor, _ = failing
    store.fails = "before"
    with pytest.raises(StoreError):
        advisor.stop(by="me", why="smoke")
    assert advisor.status().stopped == "by me: smoke", "it holds all the same"
    store.fails = ""
    advisor.stop(by="me", why="smoke")
    assert advisor.status().stopped == "by me: smoke"


def test_a_log_that_was_altered_is_never_decided_on(world):
    """A foreign entry in the middle: the advisor refuses, rather than to answer from a log that is not its own."""
    store, other = MemoryStore(), MemoryStore()
    advisor = live_advisor(world.problem, store, refresh=0.0)
    stranger = live_advisor(world.problem, other)
    for _ in range(3):
        stranger.decide(0)
    store._entries.append(other.read()[2])
    with pytest.raises(AlteredLog):
        advisor.decide(0)


def test_a_learner_that_raises_gives_the_safe_action(failing, monkeypatch):
    _, advisor, state = failing

    def explode(*asked):
        raise ZeroDivisionError("somewhere deep")

    monkeypatch.setattr(advisor.replica.learner, "propose", explode)
    decision = advisor.decide(state)
    assert (decision.is_baseline, decision.reason) == (True, "failed")
    assert "ZeroDivisionError" in decision.detail and "somewhere deep" not in decision.detail
    assert decision.certificate.holds


def test_a_gate_that_raises_lets_nothing_pass(failing, monkeypatch):
    _, advisor, state = failing

    def explode(*asked):
        raise MemoryError("no room")

    monkeypatch.setattr(advisor.replica.learner.gate, "check", explode)
    decision = advisor.decide(state)
    assert (decision.is_baseline, decision.reason) == (True, "failed")


@pytest.mark.parametrize("broken", [lambda *_: 1 / 0, lambda *_: float("nan")], ids=["raises", "nan"])
def test_no_decision_fails_for_a_number_that_only_people_look_at(failing, monkeypatch, broken):
    _, advisor, _ = failing
    monkeypatch.setattr(advisor.replica.learner.gate, "certified", broken)
    for _ in range(30):
        decision = advisor.decide(0)
        assert decision.logged and decision.certificate.holds and decision.certified is None


def test_an_interrupted_decision_does_not_keep_others_entries_from_being_read(world, monkeypatch):
    """What was prepared and never written must not count as under way: gaps in the log would wait for it."""
    store = MemoryStore()
    advisor, other = (
        Advisor(world.problem, store, upkeep=Upkeep(refresh=None)),
        Advisor(world.problem, store, upkeep=Upkeep(refresh=None)),
    )

    def interrupted(drafts):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            advisor.decide(0)
    other.decide(0)
    advisor.decide(0)
    assert advisor.status().unsynced == 0 and advisor.status().decisions == 2


def test_a_batch_looks_at_the_log_once_and_reads_only_what_others_wrote(world, monkeypatch):
    """With several workers each reads what all others write: what it wrote itself, it has at hand."""
    store = MemoryStore()
    advisor = live_advisor(world.problem, store, refresh=0.0)
    other = Advisor(world.problem, store, upkeep=Upkeep(refresh=0.0))
    other.sync()
    pages, read = [], store.read

    def counted(after, limit=1000):
        pages.append(read(after, limit))
        return pages[-1]

    batch = advisor.prepare([advisor.question(0) for _ in range(20)])
    before = [other.decide(0).id for _ in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(store, "read", counted)
        answers = advisor.commit(batch, store.append(batch.drafts))
        assert [entry.body["decision_id"] for page in pages for entry in page] == before
        assert all(answer.logged for answer in answers) and advisor.replica.head.seq == store.head().seq
        pages.clear()
        batch = advisor.prepare([advisor.question(0) for _ in range(20)])
        assert len(pages) == 1
        advisor.commit(batch, store.append(batch.drafts))
    assert advisor.replica.head.seq == store.head().seq
    other.sync()
    assert other.replica.to_bytes() == advisor.replica.to_bytes()
