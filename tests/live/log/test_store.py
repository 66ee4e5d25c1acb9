"""Does every store keep the promise of `Store`? One suite for memory, SQLite and PostgreSQL."""

import hashlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from live.places import IDENTITY, draft, numbers
from tether import AlteredLog, InputError, StoreError
from tether.live.log.chain import (
    KEEP_SNAPSHOTS,
    Chain,
    Draft,
    Entry,
    Head,
    canonical,
    genesis_of,
    is_end,
    verify_store,
)
from tether.live.log.sql import SqlStore
from tether.live.log.sqlite import SqliteStore


@pytest.fixture
def store(place):
    opened = place.open(clock=lambda: 1000.5, identity=IDENTITY)
    yield opened
    opened.close()


def test_entries_come_back_in_the_order_they_were_appended_without_gaps(store):
    store.append([draft(1), draft(2)])
    store.append([draft(3)])
    entries = store.read()
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert [entry.body for entry in entries] == [{"number": n, "x": n / 3} for n in (1, 2, 3)]
    assert {(entry.kind, entry.time) for entry in entries} == {("note", 1000.5)}


def test_append_returns_what_read_returns(store):
    drafts = [draft(1, "a"), Draft("other-kind", {"é": [None, True, -0.0, 1e-300, 2**70, "\x00\ud800 ☃"]}, ("b", "ü"))]
    appended = store.append(drafts)
    assert [result.fresh for result in appended] == [True, True]
    assert store.read() == [result.entry for result in appended]
    assert store.read()[1].body == drafts[1].body
    assert store.read()[1].unique == ("b", "ü")


def test_hashes_are_those_of_the_documented_format(store):
    """Worked out here from the format's description alone."""
    store.append([draft(1), draft(2, "k")])
    previous = hashlib.sha256(f'["tether-log-1","{IDENTITY}"]'.encode()).hexdigest()
    for entry, body, unique in zip(
        store.read(),
        ('{"number":1,"x":0.3333333333333333}', '{"number":2,"x":0.6666666666666666}'),
        ("[]", '["k"]'),
        strict=True,
    ):
        text = f'["{previous}",{entry.seq},1000.5,"note",{unique},{json.dumps(body)}]'
        assert entry.previous == previous
        assert entry.hash == hashlib.sha256(text.encode()).hexdigest()
        previous = entry.hash


def test_the_head_is_the_last_entry_and_the_genesis_hash_before_the_first(store):
    assert store.identity() == IDENTITY
    assert store.head() == (0, genesis_of(IDENTITY))
    entry = store.append([draft(1), draft(2)])[-1].entry
    assert store.head() == (2, entry.hash)


def test_pages_follow_each_other(store):
    store.append([draft(n) for n in range(1, 8)])
    assert [entry.seq for entry in store.read(limit=3)] == [1, 2, 3]
    assert [entry.seq for entry in store.read(3, 3)] == [4, 5, 6]
    assert [entry.seq for entry in store.read(6, 3)] == [7]
    assert store.read(7) == []
    for after, limit in ((-1, 5), (0, 0)):
        with pytest.raises(InputError, match="after >= 0"):
            store.read(after, limit)


def test_a_batch_is_all_or_nothing(place):
    """The clock fails at the last moment before writing, and the store refuses: nothing of the batch is there."""
    times = iter([1.0, float("nan"), 2.0])
    store = place.open(clock=lambda: next(times))
    store.append([draft(1)])
    with pytest.raises(StoreError, match="clock says nan"):
        store.append([draft(2, "a"), draft(3)])
    assert numbers(store) == [1]
    assert store.find("a") is None
    store.append([draft(4, "a")])
    assert [(entry.seq, entry.body["number"]) for entry in store.read()] == [(1, 1), (2, 4)]


def test_an_empty_batch_changes_nothing(store):
    assert store.append([]) == []
    assert store.head().seq == 0


def test_a_key_is_written_once_and_the_first_entry_is_returned_for_it(store):
    first = store.append([draft(1, "a", "b")])[0].entry
    again, other = store.append([draft(2, "b"), draft(3, "c")])
    assert again == (first, False)
    assert other.fresh
    assert other.entry.seq == 2
    assert numbers(store) == [1, 3]


def test_a_key_that_occurs_twice_in_one_batch_is_written_once(store):
    first, second, third = store.append([draft(1, "a"), draft(2, "b", "a"), draft(3, "b")])
    assert second == (first.entry, False)
    assert third.fresh, "the refused draft must not have taken its other key"
    assert numbers(store) == [1, 3]


def test_a_draft_whose_keys_are_in_two_entries_gets_the_first_keys_entry(store):
    store.append([draft(1, "a"), draft(2, "b")])
    assert store.append([draft(3, "b", "a")])[0].entry.body["number"] == 2


def test_find_and_places_know_the_keys_that_were_written_and_no_others(store):
    store.append([draft(1), draft(2, "a", "snow ☃")])
    assert store.find("snow ☃") == store.read()[1]
    assert store.find("A") is None
    assert store.find("nul\x00") is None
    assert store.find("") is None
    assert store.places(["a", "snow ☃", "z", "\ud800"]) == {"a": 2, "snow ☃": 2}
    assert store.places([]) == {}


def test_keys_are_compared_exactly(store):
    """No case folding, no Unicode normalisation, no trailing spaces dropped."""
    keys = ["a", "A", "a ", "\u00e9", "e\u0301", "x" * 512, "☃" * 512]
    assert all(result.fresh for result in store.append([draft(n, key) for n, key in enumerate(keys)]))
    assert store.places(keys) == {key: n + 1 for n, key in enumerate(keys)}


def test_threads_together_write_each_key_once_and_agree_who_did(store):
    answers, barrier = [], threading.Barrier(8)

    def work(number):
        barrier.wait()
        answers.extend([store.append([draft(number, f"key-{n}"), draft(number)]) for n in range(20)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 160
    winners = {shared.entry.unique[0]: shared.entry.seq for shared, _ in answers if shared.fresh}
    assert sorted(winners) == sorted(f"key-{n}" for n in range(20))
    assert sum(shared.fresh for shared, _ in answers) == 20
    assert all(winners[shared.entry.unique[0]] == shared.entry.seq for shared, _ in answers)
    assert store.head().seq == 20 + 160
    assert verify_store(store, page=50).fault is None


def test_readers_see_only_whole_batches_while_others_write(store):
    done = threading.Event()

    def write():
        for _ in range(30):
            store.append([draft(0), draft(1), draft(2)])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not done.is_set():
        seen.append(len(store.read(limit=10_000)))
    writer.join()
    assert [size for size in seen if size % 3] == []
    assert seen == sorted(seen)
    assert store.head().seq == 90


def test_a_sound_log_is_found_sound(store):
    store.append([draft(n, f"key-{n}") for n in range(10)])
    noted = store.head()
    store.append([draft(10)])
    assert verify_store(store, noted, page=3) == (verify_store(store))
    assert verify_store(store, noted).head == store.head()
    assert verify_store(store, noted).fault is None
    with pytest.raises(AlteredLog) as other:
        Chain(Head(0, genesis_of("another"))).follow(store.read()[0])
    assert other.value.seq == 1, "a log of another identity is another log"


def ten(place):
    store = place.open(identity=IDENTITY)
    store.append([draft(n, f"key-{n}") for n in range(1, 11)])
    return store


def fault_of(store, noted=None):
    """The fault, which must not depend on how the log is paged."""
    faults = [verify_store(store, noted, page=page).fault for page in (1, 4, 1000)]
    assert faults[0] == faults[1] == faults[2]
    return faults[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", '{"number":4,"x":1.3333333333333334}'),
        ("text", '{"number":4, "x":1.3333333333333333}'),
        ("text", "not json"),
        ("text", "\x7f"),
        ("kind", "other"),
        ("time", 12.0),
        ("time", float("inf")),
        ("unique", ("key-4", "key-x")),
        ("unique", ()),
        ("hash", "0" * 64),
        ("previous", "0" * 64),
    ],
)
def test_a_change_in_any_part_of_an_entry_is_found(place, field, value):
    store = ten(place)
    place.rewrite(4, **{field: value})
    assert fault_of(store).seq == 4


def test_a_recomputed_hash_is_found_at_the_next_entry(place):
    """A forger who gives the altered entry its right hash breaks the link to the one after it."""
    store = ten(place)
    entry = store.read()[3]
    forged = Entry.seal(Draft(entry.kind, {"number": 40}, entry.unique), 4, entry.time, entry.previous)
    place.rewrite(4, text=forged.text, hash=forged.hash)
    assert fault_of(store).seq == 5


def test_a_whole_new_tail_is_found_by_the_noted_head_only(place):
    store = ten(place)
    noted = store.head()
    previous = store.read()[6].hash
    for entry in store.read(7):
        body = entry.body | {"x": 0}
        forged = Entry.seal(Draft(entry.kind, body, entry.unique), entry.seq, entry.time, previous)
        place.rewrite(entry.seq, text=forged.text, previous=previous, hash=forged.hash)
        previous = forged.hash
    assert fault_of(store) is None
    fault = fault_of(store, noted)
    assert fault.seq == 10
    assert "written anew" in fault.why


def test_a_deleted_entry_is_found(place):
    store = ten(place)
    place.delete(6)
    assert fault_of(store).seq == 6
    assert "entry 6 is missing" in fault_of(store).why


def test_two_entries_that_changed_places_are_found(place):
    store = ten(place)
    place.swap(3, 8)
    assert fault_of(store).seq == 3


def test_an_inserted_entry_is_found(place):
    store = ten(place)
    previous = store.read()[4].hash
    place.insert(Entry.seal(Draft("note", {"number": 99}), 6, 5.0, previous))
    assert fault_of(store).seq == 7


def test_a_cut_tail_is_found_by_the_noted_head(place):
    store = ten(place)
    noted = store.head()
    for seq in (10, 9):
        place.delete(seq)
    assert fault_of(store) is None, "a shorter chain is a valid chain: this is why heads are noted"
    fault = fault_of(store, noted)
    assert fault.seq == 9
    assert "the log ends at entry 8, the noted head is entry 10" in fault.why


def test_a_key_that_vanished_from_the_index_is_found(place):
    store = ten(place)
    place.forget_key("key-7")
    fault = fault_of(store)
    assert fault.seq == 7
    assert "key-7" in fault.why


def test_a_key_that_two_entries_hold_is_found_in_whatever_pages(place):
    """A forger who writes the same outcome twice, and moves the index to the second."""
    store = ten(place)
    forged = Entry.seal(draft(7, "key-7"), 11, 1.0, store.head().hash)
    place.insert(forged)
    place.move_key("key-7", 11)
    fault = fault_of(store)
    assert fault.seq == 7 and "key-7" in fault.why


def test_a_flip_in_a_snapshot_is_found(place):
    store = ten(place)
    store.save_snapshot(5, b"first")
    store.save_snapshot(7, b"second")
    assert fault_of(store) is None and sorted(store.snapshots()) == [(5, True), (7, True)]
    place.spoil_snapshot(5)
    fault = fault_of(store)
    assert fault.seq == 5 and "snapshot" in fault.why


def test_the_chain_can_be_followed_from_a_noted_head_on(store):
    store.append([draft(n) for n in range(5)])
    chain = Chain(Head(3, store.read()[2].hash))
    for entry in store.read(3):
        chain.follow(entry)
    assert chain.head == store.head()
    with pytest.raises(StoreError, match="entry 5 comes again"):
        chain.follow(store.read()[4])


def test_the_newest_snapshot_comes_back(store):
    assert store.latest_snapshot() is None
    store.append([draft(n) for n in range(9)])
    store.save_snapshot(3, b"\x00three\xff")
    assert store.latest_snapshot() == (3, b"\x00three\xff")
    store.save_snapshot(8, b"eight")
    store.save_snapshot(5, b"five")
    assert store.latest_snapshot() == (8, b"eight")
    store.save_snapshot(8, b"eight again")
    assert store.latest_snapshot() == (8, b"eight again")
    assert store.head().seq == 9, "a snapshot is no entry"


def test_a_snapshot_of_megabytes_is_saved(store):
    """By PostgreSQL it is sent in one pipeline with its commit, which must not wait for an answer before it is sent."""
    store.append([draft(1)])
    data = bytes(range(256)) * 2**14
    store.save_snapshot(1, data)
    assert store.latest_snapshot() == (1, data)


def test_a_snapshot_needs_the_entry_it_follows(store):
    store.append([draft(1)])
    for seq in (0, 2):
        with pytest.raises(InputError, match=f"no entry {seq}"):
            store.save_snapshot(seq, b"")


def test_damaged_snapshots_are_passed_over_and_old_ones_dropped(place):
    store = place.open()
    store.append([draft(n) for n in range(9)])
    for seq in range(1, 7):
        store.save_snapshot(seq, bytes([seq]))
    left = []
    while (snapshot := store.latest_snapshot()) is not None:
        assert snapshot.data == bytes([snapshot.seq])
        left.append(snapshot.seq)
        place.spoil_snapshot(snapshot.seq)
    assert left == [6, 5, 4]
    assert len(left) == KEEP_SNAPSHOTS


def test_a_snapshot_of_another_past_is_passed_over(place):
    """The log's tail was cut and written anew: the snapshot after it tells of entries that no longer are."""
    store = place.open()
    store.append([draft(n) for n in range(3)])
    store.save_snapshot(2, b"two")
    store.save_snapshot(3, b"three")
    place.rewrite(3, hash="0" * 64)
    assert store.latest_snapshot() == (2, b"two")


def test_a_closed_store_refuses_everything(place):
    store = place.open()
    store.append([draft(1)])
    store.close()
    store.close()
    calls = (store.head, store.read, store.latest_snapshot, lambda: store.append([draft(2)]), lambda: store.find("a"))
    for call in (*calls, lambda: store.append([]), lambda: store.places([]), lambda: store.save_snapshot(1, b"")):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_a_log_is_the_same_after_reopening(lasting_place):
    store = lasting_place.open()
    before = [result.entry for result in store.append([draft(1, "a"), draft(2)])]
    store.save_snapshot(2, b"state")
    identity, head = store.identity(), store.head()
    store.close()
    again = lasting_place.open(identity="ignored: the log has one already")
    assert (again.identity(), again.head(), again.read()) == (identity, head, before)
    assert again.latest_snapshot() == (2, b"state")
    assert not again.append([draft(3, "a")])[0].fresh
    again.append([draft(4)])
    assert verify_store(again, head).fault is None
    again.close()


def test_two_logs_never_share_an_identity(lasting_place, tmp_path):
    first = lasting_place.open()
    second = SqliteStore(tmp_path / "second.db")
    assert len({first.identity(), second.identity()}) == 2
    assert len(first.identity()) == 32
    first.close(), second.close()


def test_two_writers_take_turns_and_see_each_others_entries(lasting_place):
    one, two = lasting_place.open(), lasting_place.open()
    for n in range(10):
        writer, reader = (one, two) if n % 2 else (two, one)
        entry = writer.append([draft(n, f"key-{n}")])[0].entry
        assert reader.head() == (n + 1, entry.hash)
        assert not reader.append([draft(n, f"key-{n}")])[0].fresh
    assert verify_store(one).fault is None
    one.close(), two.close()


def test_processes_together_write_each_key_once(lasting_place):
    """Three processes race for the same 2 x 20 keys; each says what it was told."""
    lasting_place.open().close()
    script = Path(__file__).parent / "appender.py"
    command = [sys.executable, str(script), "shared", "0", "20", "2", *lasting_place.arguments]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [line.split() for process in running for line in process.communicate(timeout=60)[0].splitlines()]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(told) == 3 * 40
    store = lasting_place.open()
    assert store.head().seq == 40
    assert sum(fresh == "1" for *_, fresh in told) == 40
    assert {(key, int(seq), hash_) for key, seq, hash_, _ in told} == {
        (entry.unique[0], entry.seq, entry.hash) for entry in store.read()
    }
    assert verify_store(store).fault is None
    store.close()


def test_a_log_for_reading_only_is_not_written_or_made(lasting_place):
    with pytest.raises(StoreError):
        lasting_place.open(read_only=True)
    writer = lasting_place.open()
    writer.append([draft(1, "a")])
    reader = lasting_place.open(read_only=True)
    assert numbers(reader) == [1]
    for write in (lambda: reader.append([draft(2)]), lambda: reader.save_snapshot(1, b"")):
        with pytest.raises(StoreError, match="for reading only"):
            write()
    writer.append([draft(3)])
    assert numbers(reader) == [1, 3]
    assert verify_store(reader).fault is None
    reader.close(), writer.close()


def test_a_log_that_lost_entries_under_an_open_store_is_not_written_on(lasting_place):
    """Somebody put an older copy in place: going on would give two histories the same numbers."""
    store = lasting_place.open()
    store.append([draft(n) for n in range(5)])
    lasting_place.delete(5)
    with pytest.raises(StoreError, match=r"ended at entry 5 .* now ends at 4"):
        store.append([draft(5)])
    store.close()


def test_the_database_itself_refuses_to_change_or_drop_entries(lasting_place):
    store = lasting_place.open()
    store.append([draft(1)])
    for sql in ("UPDATE {}entries SET kind = 'x'", "DELETE FROM {}entries"):
        with pytest.raises(Exception, match="append-only"):
            lasting_place.execute(sql.format(lasting_place.prefix))
    assert numbers(store) == [1]
    store.close()


def test_a_newer_format_is_refused_and_named(lasting_place):
    lasting_place.open().close()
    lasting_place.execute(f"UPDATE {lasting_place.prefix}meta SET value = 'tether-log-2' WHERE name = 'format'")
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"'tether-log-2'.*reads 'tether-log-1'"):
            lasting_place.open(read_only=read_only)


def test_an_index_that_names_the_wrong_entry_is_an_error_not_an_answer(lasting_place):
    store = lasting_place.open()
    store.append([draft(1, "a"), draft(2, "b")])
    for seq in (2, 77):
        lasting_place.execute(f"UPDATE {lasting_place.prefix}keys SET seq = {seq} WHERE key = 'a'")
        with pytest.raises(StoreError, match=f"entry {seq} does not hold 'a'"):
            store.find("a")
        with pytest.raises(StoreError, match=f"entry {seq} does not hold 'a'"):
            store.append([draft(3, "a")])
    assert store.head().seq == 2
    store.close()


def test_the_clock_may_jump_back_and_the_order_stays(place):
    times = iter([100.0, 50.0, 75.0])
    store = place.open(clock=lambda: next(times))
    for n in range(3):
        store.append([draft(n)])
    assert [(entry.seq, entry.time) for entry in store.read()] == [(1, 100.0), (2, 50.0), (3, 75.0)]
    assert verify_store(store).fault is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("Upper", {}), "kind 'Upper'"),
        (("", {}), "kind ''"),
        (("note", [1]), "must be a dict, not list"),
        (("note", {"x": float("nan")}), "cannot go into the log"),
        (("note", {"x": float("inf")}), "cannot go into the log"),
        (("note", {"x": object()}), "cannot go into the log"),
        (("note", {}, "text"), "tuple of strings"),
        (("note", {}, ("",)), "1 to 512"),
        (("note", {}, ("x" * 513,)), "1 to 512"),
        (("note", {}, ("nul\x00",)), "without NUL"),
        (("note", {}, ("\ud800",)), "valid Unicode"),
        (("note", {}, (5,)), "must be a string"),
    ],
)
def test_what_not_every_database_could_hold_is_refused_at_the_door(arguments, why):
    with pytest.raises(InputError, match=why):
        Draft(*arguments)


def test_a_body_over_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr("tether.live.log.chain.LARGEST_BODY", 20)
    assert Draft("note", {"x": "a" * 12}).text == canonical({"x": "a" * 12})
    with pytest.raises(InputError, match="has 21 bytes, the limit is 20"):
        Draft("note", {"x": "a" * 13})


def test_floats_read_back_bit_for_bit(store):
    values = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 1e22, 123456789.123456789]
    store.append([Draft("note", {"values": values})])
    assert [value.hex() for value in store.read()[0].body["values"]] == [value.hex() for value in values]


def test_a_page_of_large_entries_is_shorter(store, monkeypatch):
    """A thousand entries of a megabyte each would not fit into memory; whoever reads asks again."""
    store.append([draft(n) for n in range(6)])
    size = len(draft(1).text)
    for module in ("chain", "sql"):
        monkeypatch.setattr(f"tether.live.log.{module}.PAGE_BYTES", 2 * size)
    pages, after = [], 0
    while page := store.read(after, 4):
        pages.append([entry.seq for entry in page])
        after = page[-1].seq
    assert [seq for page in pages for seq in page] == [1, 2, 3, 4, 5, 6]
    assert pages[0] in ([1, 2, 3, 4], [1, 2], [1, 2, 3]), "memory holds them all anyway"
    assert not isinstance(store, SqlStore) or max(map(len, pages)) <= 3
    assert is_end(store.read(5, 4), 4) and not is_end(store.read(0, 4), 4) and not is_end(store.read(2, 5), 5)
