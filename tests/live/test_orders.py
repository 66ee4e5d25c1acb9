"""Orders of people, against each other and against what is under way: nothing leaves that somebody has forbidden."""

import tempfile
from dataclasses import replace

import pytest

from live.plant import Plant, live_advisor
from tether import Advisor, Upkeep
from tether.errors import AlteredLog, InputError, StoreError
from tether.live.answers import UnknownDecision
from tether.live.log.chain import Draft, text_of
from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria, Guards
from tether.live.records import Stopped
from worlds import world_and_streams

WORLD, _ = world_and_streams(3)
BY = {"by": "an operator", "why": "smoke"}


class Interrupted(MemoryStore):
    """A log in which something else comes first, once, when an entry of this kind is about to be written."""

    def __init__(self, **more):
        super().__init__(**more)
        self.kind, self.first = "", lambda: None

    def before(self, kind, first):
        self.kind, self.first = kind, first

    def append(self, drafts):
        if drafts and drafts[-1].kind == self.kind:
            self.kind = ""
            self.first()
        return super().append(drafts)


@pytest.fixture
def log():
    return Interrupted()


def taught(store, **more):
    """An advisor that wants something else than a_0 in state 1."""
    advisor = live_advisor(WORLD.problem, store, **more)
    Plant(WORLD.true_gamma).play(advisor, 60)
    assert not advisor.decide(1).is_baseline
    return advisor


HALTS = {
    "stopped": lambda advisor: advisor.stop(**BY),
    "shadow": lambda advisor: advisor.demote("shadow", **BY),
    "tripped": lambda advisor: advisor.store.append([Draft("tripped", {"test": "t", "message": "m", "number": 0})]),
}


@pytest.mark.parametrize("who", ["the same advisor", "another process"])
@pytest.mark.parametrize("reason", HALTS)
def test_a_decision_under_way_does_not_leave_after_it_was_forbidden(log, reason, who):
    """Its entry stands after the order's: whoever threw the switch may believe that nothing left afterwards."""
    advisor = taught(log)
    other = advisor if who == "the same advisor" else Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None))
    log.before("decision", lambda: HALTS[reason](other))
    made = advisor.decide(1)
    assert made.is_baseline and made.reason == reason and made.certificate.holds
    assert (made.id, made.logged) == ("", False), "the log has the other action: no outcome may be recorded for it"
    decision, withheld = log.read(log.head().seq - 2, 2)
    assert withheld.kind == "withheld" and withheld.body["decision_id"] == decision.body["decision_id"]
    assert Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None)).replica.to_bytes() == advisor.replica.to_bytes()


@pytest.mark.parametrize("reason", HALTS)
def test_a_repeat_by_key_does_not_bring_back_what_is_forbidden_by_now(log, reason):
    advisor = taught(log)
    first = advisor.decide(1, key="k")
    assert not first.is_baseline and advisor.decide(1, key="k") == first
    HALTS[reason](advisor)
    advisor.sync()
    again = advisor.decide(1, key="k")
    assert again.is_baseline and again.reason == reason and again.id == ""
    assert advisor.record(first.id, 0.1, 0.1).decision_id == first.id, "what was played has an outcome all the same"


def test_what_did_not_leave_does_not_leave_later_and_has_no_outcome(log):
    """The log says that a_0 acted in its place; nobody may play it, or teach from it, afterwards."""
    advisor = taught(log)
    log.before("decision", lambda: advisor.stop(**BY))
    first = advisor.decide(1, key="k")
    advisor.resume(**BY)
    again = advisor.decide(1, key="k")
    assert again.is_baseline and (again.reason, again.id) == (first.reason, "") == ("stopped", "")
    (id,) = [entry.body["decision_id"] for entry in log.read() if entry.kind == "withheld"]
    for who in (advisor, Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None))):
        with pytest.raises(UnknownDecision, match="did not leave"):
            who.record(id, 0.1, 0.1)
    counts = advisor.replica.ledger.ever
    played = [entry.body["is_baseline"] for entry in log.read() if entry.kind == "decision"]
    assert counts.baseline == sum(played) + 1


def test_what_stands_before_a_decision_must_be_readable_before_it_leaves(log, monkeypatch):
    advisor = taught(log)
    other = Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None))

    def fails(*_):
        raise StoreError("the database is gone")

    def first():
        other.decide(0)
        monkeypatch.setattr(log, "read", fails)

    log.before("decision", first)
    made = advisor.decide(1)
    assert made.is_baseline and made.reason == "not-logged" and "gone" in made.detail


ALLOW_MORE = {
    "promote": lambda advisor: advisor.promote("live", **BY),
    "resume": lambda advisor: advisor.resume(**BY),
    "reset_alarm": lambda advisor: advisor.reset_alarm(**BY),
}
KINDS = {"promote": "mode", "resume": "resumed", "reset_alarm": "alarm-reset"}


@pytest.mark.parametrize("name", ALLOW_MORE)
def test_an_order_that_allows_more_is_refused_if_another_came_first(log, name):
    """Whoever gave it has not seen the other: a stop must not be released by somebody who does not know of it."""
    advisor = Advisor(WORLD.problem, log, mode="guarded", criteria=Criteria.none(), upkeep=Upkeep(refresh=None))
    other = Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None))
    log.before(KINDS[name], lambda: other.stop(by="somebody else", why="complaints"))
    with pytest.raises(InputError, match="complaints"):
        ALLOW_MORE[name](advisor)
    assert advisor.status().stopped and advisor.status().mode == "guarded"
    if name != "promote":
        ALLOW_MORE[name](advisor)  # now that it was seen
        assert bool(advisor.status().stopped) == (name != "resume")


@pytest.mark.parametrize("order", ["stop", "demote"])
def test_an_order_that_allows_less_takes_effect_whatever_came_first(log, order):
    advisor = live_advisor(WORLD.problem, log)
    other = Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None))
    log.before("stopped" if order == "stop" else "mode", lambda: other.demote("guarded", **BY))
    advisor.stop(**BY) if order == "stop" else advisor.demote("shadow", **BY)
    assert advisor.status().stopped if order == "stop" else advisor.status().mode == "shadow"
    assert [entry.seq for entry in log.read()] == list(range(1, log.head().seq + 1))


def test_of_two_starts_on_an_empty_log_one_problem_is_the_log_s(log):
    other = world_and_streams(3, horizon=2)[0].problem
    log.before("configured", lambda: Advisor(other, log))
    with pytest.raises(InputError, match="another problem"):
        Advisor(WORLD.problem, log)
    assert [entry.kind for entry in log.read()] == ["configured"]
    log = Interrupted()
    log.before("configured", lambda: Advisor(WORLD.problem, log))
    assert Advisor(WORLD.problem, log).decide(0).logged, "the same problem is no conflict"


def altered(store, seq, **changes):
    """Change the content of an entry behind the log's back, and keep its hash."""
    entry = store._entries[seq - 1]
    store._entries[seq - 1] = replace(entry, text=text_of({**entry.body, **changes}))


def test_an_altered_entry_is_not_learned_from_whoever_reads_it(log):
    taught(log)
    outcome = next(entry for entry in log.read() if entry.kind == "outcome")
    altered(log, outcome.seq, cost=[-0.3])
    with pytest.raises(AlteredLog, match=f"entry {outcome.seq} "):
        Advisor(WORLD.problem, log)
    altered(log, 1, watch=False)
    with pytest.raises(AlteredLog, match="entry 1 "):
        Advisor(WORLD.problem, log, watch=False)


def test_an_altered_decision_is_neither_handed_out_again_nor_recorded_for(log):
    advisor = taught(log)
    made = advisor.decide(1, key="k")
    altered(log, made.seq, reason="because")
    advisor._outcomes._at_hand.clear()  # it has read the entry before that was altered, and no longer remembers it
    with pytest.raises(AlteredLog):
        advisor.decide(1, key="k")
    with pytest.raises(AlteredLog):
        advisor.record(made.id, 0.1, 0.1)


def test_a_margin_of_the_whole_gap_leaves_the_safe_action():
    advisor = taught(MemoryStore(), guards=Guards(margin_share=1.0, guarded_rate=1.0))
    advisor.demote("guarded", **BY)
    made = advisor.decide(1)
    assert made.is_baseline and made.reason == "margin" and made.certificate.holds


def test_a_snapshot_needs_no_place_for_files(monkeypatch, tmp_path, log):
    """A container may have a root file system that is read-only, and no /tmp."""
    advisor = live_advisor(WORLD.problem, log, snapshot_every=2)
    made = advisor.decide(0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    advisor.record(made.id, 0.1, 0.1)
    assert log.latest_snapshot().seq == log.head().seq
    again = Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None))
    assert again.replica.to_bytes() == advisor.replica.to_bytes()


def test_a_snapshot_that_finds_no_room_does_not_fail_an_outcome(monkeypatch, log, caplog):
    advisor = live_advisor(WORLD.problem, log, snapshot_every=2)
    made = advisor.decide(0)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(log, "save_snapshot", full)
    assert not advisor.record(made.id, 0.1, 0.1).repeated
    assert "no snapshot could be saved" in caplog.text
    assert advisor.status().store_error == "", "the log itself is well"


def test_a_stop_reaches_the_others_though_this_advisor_cannot_follow_the_log(log):
    advisor = taught(log)
    other = Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None))
    made = other.decide(0)
    altered(log, made.seq, reason="because")
    with pytest.raises(AlteredLog):
        advisor.stop(**BY)
    assert log.read()[-1].kind == "stopped" and log.read()[-1].body["by"] == BY["by"]


def test_a_repeat_by_key_whose_fate_cannot_be_read_is_the_safe_action(log, monkeypatch):
    advisor = taught(log)
    assert not advisor.decide(1, key="k").is_baseline
    find = log.find

    def out_of_reach(key):
        if key.startswith("withheld:"):
            raise StoreError("the database is gone")
        return find(key)

    monkeypatch.setattr(log, "find", out_of_reach)
    made = advisor.decide(1, key="k")
    assert made.is_baseline and (made.reason, made.id) == ("not-logged", "") and made.certificate.holds


def test_an_impossible_cost_is_one_alarm_though_another_process_wrote_in_between(log):
    advisor, other = taught(log), Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None))
    made = advisor.decide(1)
    under_way = advisor.prepare([advisor.question(0)])  # so that a gap in the log is not read at once
    log.before("tripped", lambda: other.decide(0))
    with pytest.raises(InputError, match="beyond"):
        advisor.record(made.id, 0.1, 1000.0)
    advisor.commit(under_way, log.append(under_way.drafts))
    assert [entry.kind for entry in log.read()].count("tripped") == 1


def test_a_stop_holds_before_it_is_logged(log):
    """What somebody decides while the log is slow is a_0 already: the switch waits for nothing."""
    advisor, meanwhile = taught(log), []
    log.before("stopped", lambda: meanwhile.append(advisor.decide(1)))
    advisor.stop(**BY)
    assert meanwhile[0].is_baseline and meanwhile[0].reason == "stopped" and BY["why"] in meanwhile[0].detail
    assert advisor.status().stopped == f"by {BY['by']}: {BY['why']}"
    assert Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None)).replica.to_bytes() == advisor.replica.to_bytes()


class Unwritable(MemoryStore):
    """A log that takes nothing while `fails`, or that takes it and loses the acknowledgment."""

    fails = ""

    def append(self, drafts):
        if self.fails == "before":
            raise StoreError("the disk is full")
        appended = super().append(drafts)
        if self.fails == "after":
            raise StoreError("the connection was lost")
        return appended


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stop_that_cannot_be_logged_holds_and_is_logged_later(when):
    log = Unwritable()
    advisor = taught(log)
    log.fails = when
    with pytest.raises(StoreError):
        advisor.stop(**BY)
    log.fails = ""
    assert advisor.status().stopped
    made = advisor.decide(1)
    assert made.is_baseline and made.reason == "stopped"
    advisor.decide(1)
    stops = [entry for entry in log.read() if entry.kind == "stopped"]
    assert len(stops) == 1 and stops[0].body["why"] == BY["why"], "once, though it was tried more than once"
    assert Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None)).decide(1).reason == "stopped", (
        "and so for every process"
    )
    advisor.resume(**BY)
    assert not advisor.decide(1).is_baseline and not advisor.status().stopped


def test_a_resume_comes_after_the_stop_that_is_not_logged_yet():
    log = Unwritable()
    advisor = taught(log)
    log.fails = "before"
    with pytest.raises(StoreError):
        advisor.stop(**BY)
    with pytest.raises(StoreError):
        advisor.resume(**BY)
    assert advisor.decide(1).is_baseline
    log.fails = ""
    advisor.resume(**BY)
    assert [entry.kind for entry in log.read()][-2:] == ["stopped", "resumed"]
    assert not advisor.decide(1).is_baseline


def test_a_withheld_note_that_could_not_be_written_is_written_later():
    """Else the log would say that an action left which did not."""
    log = Unwritable()
    advisor = taught(log)
    batch = advisor.prepare([advisor.question(1)])
    appended = log.append(batch.drafts)
    advisor.stop(**BY)
    (made,) = advisor.commit(batch, appended)
    assert made.reason == "stopped"
    log.fails = "before"
    assert advisor.decide(0).reason == "not-logged"
    log.fails = ""
    advisor.decide(0)
    assert [entry.body["decision_id"] for entry in log.read() if entry.kind == "withheld"] == [
        batch.items[0].events[-1].decision_id
    ]


def announced(id="s1"):
    return Stopped(**BY, id=id).model_dump_json()


def test_a_stop_reaches_other_processes_before_it_is_logged(place):
    """One process has announced it and died, say: the next decision of another is a_0, and it logs the stop."""
    advisor, elsewhere = taught(place.open(), refresh=None), place.open()
    assert not advisor.decide(1, key="before").is_baseline
    elsewhere.announce_stop(announced())
    repeated, made = advisor.decide(1, key="before"), advisor.decide(1)
    assert (repeated.reason, made.reason) == ("stopped", "stopped") and made.is_baseline and made.certificate.holds
    assert BY["why"] in made.detail and advisor.status().stopped == f"by {BY['by']}: {BY['why']}"
    kinds = [entry.kind for entry in elsewhere.read()]
    assert kinds.count("stopped") == 1, "whoever hears of it logs it"
    advisor.resume(**BY)
    assert not advisor.decide(1).is_baseline, "the announcement is of a stop that the log has released"
    restarted = Advisor(WORLD.problem, elsewhere, upkeep=Upkeep(refresh=None))
    assert not restarted.decide(1).is_baseline and restarted.stopped is None
    elsewhere.announce_stop(announced("s2"))
    assert restarted.decide(1).reason == advisor.decide(1).reason == "stopped"


def test_a_stop_is_announced_before_it_is_logged_and_though_it_cannot_be(log):
    advisor, other = taught(log), Advisor(WORLD.problem, log, upkeep=Upkeep(refresh=None))
    meanwhile = []
    log.before("stopped", lambda: meanwhile.append(other.decide(1)))
    advisor.stop(**BY)
    assert meanwhile[0].reason == "stopped"
    stops = [entry.body["id"] for entry in log.read() if entry.kind == "stopped"]
    assert len(stops) == 1, "both logged it, once"


def test_an_announcement_that_cannot_be_read_is_a_stop_until_it_can(tmp_path):
    advisor = taught(tmp_path / "log.db", refresh=None)
    (tmp_path / "log.db.stop").write_text('{"by":')
    made = advisor.decide(1)
    assert made.is_baseline and made.reason == "stopped" and "cannot be read" in made.detail
    (tmp_path / "log.db.stop").unlink()
    (tmp_path / "log.db.stop").mkdir()
    assert advisor.decide(1).reason == "stopped"
    (tmp_path / "log.db.stop").rmdir()
    assert not advisor.decide(1).is_baseline
