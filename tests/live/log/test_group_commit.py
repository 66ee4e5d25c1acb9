"""Is nobody told before the sync, does everybody get their own answer, and does the queue end in order?"""

import threading
from concurrent.futures import CancelledError, wait

import pytest

from live.places import draft, numbers
from tether import InputError, StoreBusy, StoreError
from tether.live.log.chain import verify_store
from tether.live.log.group_commit import GroupCommit
from tether.live.log.memory import MemoryStore

SOON = 60
"""Seconds after which a test gives up; nothing waits that long unless it is wrong."""


class SlowStore(MemoryStore):
    """A store whose every append waits to be let go, and says how large the batches were."""

    def __init__(self):
        super().__init__()
        self.entered, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.batches, self.failing = [], None

    def append(self, drafts):
        self.batches.append([draft.body["number"] for draft in drafts])
        self.entered.release()
        assert self.go.acquire(timeout=SOON)
        if self.failing is not None:
            raise self.failing
        return super().append(drafts)


@pytest.fixture
def slow():
    return SlowStore()


def test_what_arrives_during_a_sync_shares_the_next_one(slow):
    with GroupCommit(slow) as commits:
        first = commits.submit([draft(0)])
        assert slow.entered.acquire(timeout=SOON)
        rest = [commits.submit([draft(n), draft(n + 100)]) for n in range(1, 6)]
        slow.go.release(2)
        answers = [future.result(SOON) for future in rest]
    assert slow.batches == [[0], [1, 101, 2, 102, 3, 103, 4, 104, 5, 105]]
    assert [result.entry.seq for result in first.result()] == [1]
    assert [[result.entry.body["number"] for result in answer] for answer in answers] == [
        [n, n + 100] for n in range(1, 6)
    ]


def test_nobody_is_told_before_the_sync_of_their_own_batch(slow):
    with GroupCommit(slow) as commits:
        first = commits.submit([draft(0)])
        assert slow.entered.acquire(timeout=SOON)
        second = commits.submit([draft(1)])
        assert not first.done()
        slow.go.release()
        first.result(SOON)
        assert slow.entered.acquire(timeout=SOON)
        assert not second.done(), "its batch is still being synced"
        slow.go.release()
        assert second.result(SOON)[0].entry.seq == 2


def test_an_error_reaches_exactly_the_callers_of_its_batch(slow):
    with GroupCommit(slow) as commits:
        good = commits.submit([draft(0)])
        assert slow.entered.acquire(timeout=SOON)
        bad = [commits.submit([draft(n)]) for n in (1, 2)]
        slow.go.release()
        good.result(SOON)
        assert slow.entered.acquire(timeout=SOON)
        slow.failing = StoreError("the disk is full")
        later = commits.submit([draft(3)])
        slow.go.release()
        for future in bad:
            with pytest.raises(StoreError, match="the disk is full"):
                future.result(SOON)
        assert slow.entered.acquire(timeout=SOON)
        slow.failing = None
        slow.go.release()
        later.result(SOON)
    assert numbers(slow) == [0, 3]


def test_callers_with_the_same_key_in_one_batch_get_one_entry(slow):
    with GroupCommit(slow) as commits:
        commits.submit([draft(0)])
        assert slow.entered.acquire(timeout=SOON)
        twins = [commits.submit([draft(n, "the key")]) for n in (1, 2)]
        slow.go.release(2)
        (one,), (two,) = (future.result(SOON) for future in twins)
    assert (one.fresh, two.fresh) == (True, False)
    assert one.entry == two.entry
    assert numbers(slow) == [0, 1]


def test_a_batch_is_no_larger_than_its_limit_unless_one_caller_is(slow):
    with GroupCommit(slow, largest_batch=4) as commits:
        futures = [commits.submit([draft(0)])]
        assert slow.entered.acquire(timeout=SOON)
        futures += [commits.submit([draft(n)] * size) for n, size in ((1, 3), (2, 2), (3, 2), (4, 9))]
        slow.go.release(5)
        wait(futures, SOON)
    assert slow.batches == [[0], [1] * 3, [2, 2, 3, 3], [4] * 9]


def test_large_bodies_do_not_gather_in_one_batch(slow, monkeypatch):
    monkeypatch.setattr("tether.live.log.group_commit.LARGEST_BATCH_BYTES", 2 * len(draft(1).text))
    with GroupCommit(slow) as commits:
        futures = [commits.submit([draft(0)])]
        assert slow.entered.acquire(timeout=SOON)
        futures += [commits.submit([draft(n)] * size) for n, size in ((1, 1), (1, 1), (1, 1), (1, 3), (1, 1))]
        slow.go.release(5)
        wait(futures, SOON)
    assert [len(batch) for batch in slow.batches] == [1, 2, 1, 3, 1]


def test_more_than_the_limit_is_refused_and_nothing_of_it_taken(slow):
    with GroupCommit(slow, most_waiting=3) as commits:
        futures = [commits.submit([draft(0)])]
        assert slow.entered.acquire(timeout=SOON)
        futures.append(commits.submit([draft(1), draft(2)]))
        assert commits.waiting == 2
        with pytest.raises(StoreBusy, match=r"2 drafts of .* bytes wait, and 2 of .* bytes would pass the limit of 3"):
            commits.submit([draft(3), draft(4)])
        futures.append(commits.submit([draft(5)]))
        slow.go.release(2)
        wait(futures, SOON)
        slow.go.release()
        commits.append([draft(6), draft(7), draft(8)])
    assert numbers(slow) == [0, 1, 2, 5, 6, 7, 8]


def test_bytes_that_wait_are_limited_too(slow, monkeypatch):
    """However few the drafts are; one alone is always taken, as it was let in at the door."""
    size = len(draft(1).text)
    monkeypatch.setattr("tether.live.log.group_commit.MOST_WAITING_BYTES", 2 * size)
    with GroupCommit(slow) as commits:
        futures = [commits.submit([draft(0)])]
        assert slow.entered.acquire(timeout=SOON)
        futures.append(commits.submit([draft(1), draft(2), draft(3)]))
        with pytest.raises(StoreBusy, match=r"3 drafts of \d+ bytes"):
            commits.submit([draft(4)])
        slow.go.release(5)
        wait(futures, SOON)
        commits.append([draft(5)])
    assert numbers(slow) == [0, 1, 2, 3, 5]


def test_closing_writes_what_waits_and_refuses_what_comes(slow):
    commits = GroupCommit(slow)
    futures = [commits.submit([draft(0)])]
    assert slow.entered.acquire(timeout=SOON)
    futures.append(commits.submit([draft(1)]))
    closer = threading.Thread(target=commits.close)
    closer.start()
    while not commits._closed:
        pass
    with pytest.raises(StoreError, match="closed"):
        commits.submit([draft(2)])
    assert not futures[0].done()
    slow.go.release(2)
    closer.join(SOON)
    assert not closer.is_alive()
    assert [future.done() for future in futures] == [True, True]
    assert numbers(slow) == [0, 1]
    commits.close()


def test_a_caller_that_gave_up_in_time_is_not_written(slow):
    with GroupCommit(slow) as commits:
        futures = [commits.submit([draft(n)]) for n in (0,)]
        assert slow.entered.acquire(timeout=SOON)
        futures += [commits.submit([draft(n)]) for n in (1, 2)]
        assert not futures[0].cancel(), "it is being written"
        assert futures[1].cancel()
        slow.go.release(2)
        futures[2].result(SOON)
        with pytest.raises(CancelledError):
            futures[1].result()
    assert numbers(slow) == [0, 2]


def test_cancelling_everything_that_waits_writes_nothing_and_stops_nothing(slow):
    with GroupCommit(slow) as commits:
        commits.submit([draft(0)])
        assert slow.entered.acquire(timeout=SOON)
        waiting = [commits.submit([draft(n)]) for n in (1, 2)]
        assert [future.cancel() for future in waiting] == [True, True]
        slow.go.release(2)
        last = commits.submit([draft(3)])
        assert last.result(SOON)[0].entry.seq == 2
    assert numbers(slow) == [0, 3]


def test_the_thread_survives_whatever_the_store_raises(slow):
    with GroupCommit(slow) as commits:
        slow.failing = KeyboardInterrupt("not even this ends it")
        slow.go.release()
        with pytest.raises(KeyboardInterrupt):
            commits.submit([draft(0)]).result(SOON)
        slow.failing = None
        slow.go.release()
        commits.submit([draft(1)]).result(SOON)
    assert numbers(slow) == [1]


def test_limits_that_would_take_nothing_are_refused():
    for settings in ({"most_waiting": 0}, {"largest_batch": 0}):
        with pytest.raises(InputError, match="at least 1"):
            GroupCommit(MemoryStore(), **settings)


def test_many_threads_through_one_group_commit_lose_nothing_and_double_nothing(place):
    store = place.open()
    told = []

    def work(number):
        for n in range(25):
            shared, own = commits.append([draft(n, f"shared-{n}"), draft(n, f"{number}-{n}")])
            told.append((f"{number}-{n}", own.entry.seq, own.fresh, shared.fresh))

    with GroupCommit(store) as commits:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(told) == 200
    assert all(fresh for _, _, fresh, _ in told)
    assert sum(fresh for *_, fresh in told) == 25
    assert {key: seq for key, seq, *_ in told} == store.places([key for key, *_ in told])
    assert store.head().seq == 225
    assert verify_store(store).fault is None
    store.close()
