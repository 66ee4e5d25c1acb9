"""Kill −9 at random moments under load: what was acknowledged is there, once, and the chain holds."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tether.live.log.chain import verify_store

KILLS, SERVER_KILLS, THREADS = 20, 5, 6
APPENDER = Path(__file__).parent / "appender.py"


def start(place, first):
    """A process that appends without end, from key number `first` on."""
    command = [sys.executable, str(APPENDER), "load", str(first), "1000000", str(THREADS), *place.arguments]
    # without a buffer: what `readline` had read beyond the line would be lost to `communicate`
    process = subprocess.Popen(command, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    head = process.stdout.readline()
    assert head, process.stderr.read().decode()
    return process, head


def told_by(process, head):
    """What it was told before it died: {key: (seq, hash)}. A line is one write, so none is half there."""
    output, _ = process.communicate(timeout=60)
    lines = [line.split() for line in (head + output).decode().splitlines()]
    return {key: (int(seq), hash_) for key, seq, hash_, _ in lines}


def entries_of(store):
    page = store.read()
    while page:
        yield from page
        page = store.read(page[-1].seq)


def check(place, acknowledged, noted):
    """Everything acknowledged is in the log exactly once, at the place that was named; returns the head."""
    store = place.open()
    verdict = verify_store(store, noted)
    assert verdict.fault is None
    held = {}
    for entry in entries_of(store):
        (key,) = entry.unique
        assert key not in held
        assert entry.body["key"] == key
        held[key] = (entry.seq, entry.hash)
    assert {key: held.get(key) for key in acknowledged} == acknowledged
    store.close()
    return verdict.head, held


def next_number(held):
    """A little before the end, so that the next process repeats what was logged, acknowledged or not."""
    last = {}
    for key in held:
        _, thread, number = key.split("-")
        last[thread] = max(last.get(thread, 0), int(number))
    return max(0, min(last.values()) - 5)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_or_doubled_when_the_writer_is_killed(lasting_place):
    rng, acknowledged, first, noted = random.Random(6), {}, 0, None
    lasting_place.open().close()
    for _ in range(KILLS):
        process, head = start(lasting_place, first)
        time.sleep(rng.uniform(0, 0.25))
        process.kill()
        told = told_by(process, head)
        assert all(acknowledged.get(key, place) == place for key, place in told.items()), "a repeat got another entry"
        acknowledged |= told
        noted, held = check(lasting_place, acknowledged, noted)
        first = next_number(held)
    assert len(acknowledged) > 5 * KILLS


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_or_doubled_when_the_server_is_killed(own_server, postgres_place):
    rng, acknowledged, first, noted = random.Random(7), {}, 0, None
    postgres_place.open().close()
    for _ in range(SERVER_KILLS):
        process, head = start(postgres_place, first)
        time.sleep(rng.uniform(0, 0.25))
        own_server.kill()
        told = told_by(process, head)  # its threads end with the StoreError that each of them gets
        acknowledged |= told
        own_server.start()
        noted, held = check(postgres_place, acknowledged, noted)
        first = next_number(held)
    assert len(acknowledged) > 5 * SERVER_KILLS
