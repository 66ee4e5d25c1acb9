"""What only the SQLite store can get wrong: files, permissions, full disks, forks."""

import multiprocessing
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys

import pytest

from live.places import draft, numbers
from tether import InputError, StoreError
from tether.live.log import open_store
from tether.live.log.chain import Draft, verify_store
from tether.live.log.memory import MemoryStore
from tether.live.log.sqlite import SqliteStore


def test_the_files_are_for_their_owner_only(tmp_path):
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "log.db")
        store.append([draft(1)])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    store.close()
    assert modes == {"log.db": 0o600, "log.db-wal": 0o600, "log.db-shm": 0o600}


def test_every_commit_is_synced_in_full_to_a_write_ahead_log(tmp_path):
    store = SqliteStore(tmp_path / "log.db")
    store.append([draft(1)])
    settings = [store._writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    store.close()
    assert settings == ["wal", 2]


def test_every_append_waits_for_the_disk(tmp_path):
    """As the kernel sees it: between two acknowledgments there is a sync that succeeded."""
    if shutil.which("strace") is None:
        pytest.skip("no strace to watch syncs with")
    script = (
        "import os, sys; from tether.live.log.sqlite import SqliteStore; from tether.live.log.chain import Draft\n"
        "store = SqliteStore(sys.argv[1]); os.write(2, b'told')\n"
        "for _ in range(10): store.append([Draft('note', {})]); os.write(2, b'told')\n"
    )
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-e", "trace=fsync,fdatasync,write", "-o", trace, sys.executable, "-c", script]
    run = subprocess.run([*command, tmp_path / "log.db"], capture_output=True, text=True, check=False)
    if "ptrace" in run.stderr:
        pytest.skip("strace is not allowed here")
    told = trace.read_text().split('write(2, "told"')
    assert len(told) == 12
    assert all(re.search(r"f(data)?sync\(\d+\)\s+= 0", part) for part in told[1:-1])


@pytest.mark.parametrize("content", [b"precious text, and no database " * 40, b"x", b"SQLite format 3\x00 but broken"])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "other.txt"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"other\.txt"):
            SqliteStore(path, read_only=read_only)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_database_of_other_software_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE entries (seq INTEGER)")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match="of other software"):
        SqliteStore(path)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_log(tmp_path):
    """What a crash between making the file and filling it leaves."""
    (tmp_path / "log.db").touch()
    store = SqliteStore(tmp_path / "log.db")
    store.append([draft(1)])
    assert numbers(store) == [1]
    store.close()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_what_is_not_a_file_is_refused(path):
    with pytest.raises(InputError, match="MemoryStore"):
        SqliteStore(path)


def test_a_place_that_cannot_hold_a_file_is_a_clear_refusal(tmp_path):
    for path in (tmp_path / "missing" / "log.db", tmp_path):
        with pytest.raises(StoreError, match="could not be opened"):
            SqliteStore(path)


def test_a_name_with_odd_letters_is_a_name(tmp_path):
    path = tmp_path / "a b?mode=ro#%41 ü.db"
    store = SqliteStore(path)
    store.append([draft(1)])
    store.close()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_changed_byte_that_is_not_even_text_is_found(sqlite_place):
    store = sqlite_place.open()
    store.append([draft(n) for n in range(1, 6)])
    sqlite_place.disarm()
    sqlite_place.execute("UPDATE entries SET body = CAST(x'7b22ff227d' AS TEXT) WHERE seq = 3")
    assert verify_store(store).fault.seq == 3
    store.close()


@pytest.mark.parametrize(("column", "value"), [("body", b"{}"), ("time", "noon"), ("keys", "[1]"), ("keys", "{}")])
def test_a_value_of_the_wrong_type_is_found(sqlite_place, column, value):
    store = sqlite_place.open()
    store.append([draft(n) for n in range(1, 6)])
    sqlite_place.disarm()
    sqlite_place.execute(f"UPDATE entries SET {column} = ? WHERE seq = 3", (value,))
    assert verify_store(store).fault.seq == 3
    sqlite_place.execute("UPDATE entries SET kind = 'x' WHERE seq = 2")
    assert verify_store(store).fault.seq == 2, "a fault that can be read comes first, though the page cannot be"
    store.close()


def test_a_full_database_is_an_error_and_nothing_half_written_shows(tmp_path):
    store = SqliteStore(tmp_path / "log.db")
    store.append([draft(1)])
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    large = [draft(2, "a"), Draft("note", {"number": 3, "text": "x" * 100_000}, ("b",))]
    with pytest.raises(StoreError, match="full"):
        store.append(large)
    assert numbers(store) == [1]
    assert store.places(["a", "b"]) == {}
    assert [result.fresh for result in store.append(large)] == [True, True], "a new connection has no such limit"
    assert numbers(store) == [1, 2, 3]
    assert verify_store(store).fault is None
    store.close()


def test_a_full_disk_is_an_error_and_the_log_goes_on_when_there_is_space_again(small_disk):
    store = SqliteStore(small_disk / "log.db")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    acknowledged = []

    def fill():
        for n in range(len(acknowledged), 100):
            store.append([Draft("note", {"number": n, "text": "x" * 20_000}, (f"key-{n}",))])
            acknowledged.append(n)

    with pytest.raises(StoreError, match="could not be written"):
        fill()
    with pytest.raises(StoreError):
        fill()
    full = len(acknowledged)
    assert 0 < full < 40
    assert numbers(store) == acknowledged
    ballast.unlink()
    for _ in range(3):
        n = len(acknowledged)
        assert store.append([Draft("note", {"number": n}, (f"key-{n}",))])[0].entry.seq == n + 1
        acknowledged.append(n)
    assert numbers(store) == acknowledged
    assert verify_store(store).fault is None
    store.close()


def test_a_file_that_is_gone_is_an_error_and_its_return_is_recovery(tmp_path):
    """SQLite would go on writing into the deleted file, and everything acknowledged would be lost."""
    path, away = tmp_path / "log.db", tmp_path / "away.db"
    store = SqliteStore(path)
    store.append([draft(1)])
    path.rename(away)
    with pytest.raises(StoreError, match="moved, deleted or replaced"):
        store.append([draft(2)])
    assert not path.exists()
    SqliteStore(tmp_path / "other.db").close()
    (tmp_path / "other.db").rename(path)
    with pytest.raises(StoreError, match="moved, deleted or replaced"):
        store.append([draft(2)])
    path.unlink()
    away.rename(path)
    store.append([draft(2)])
    assert numbers(store) == [1, 2]
    store.close()


def test_a_writer_that_waits_too_long_for_another_process_says_so(tmp_path):
    store = SqliteStore(tmp_path / "log.db", busy=0.05)
    store.append([draft(1)])
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO entries VALUES (2, 0.0, 'note', '{}', '[]', '', '')")
    with pytest.raises(StoreError, match="locked"):
        store.append([draft(2)])
    assert numbers(store) == [1], "what is not committed is not there, and reading does not wait for it"
    other.close()
    store.append([draft(2)])
    assert numbers(store) == [1, 2]
    store.close()


def use(store, answers):
    try:
        store.append([draft(2)])
    except StoreError as error:
        answers.put(str(error))
    store.close()


def test_a_store_is_not_carried_over_a_fork(tmp_path):
    store = SqliteStore(tmp_path / "log.db")
    store.append([draft(1)])
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=use, args=(store, answers))
    child.start()
    assert "before a fork" in answers.get(timeout=60)
    child.join()
    store.append([draft(3)])
    assert numbers(store) == [1, 3]
    store.close()


def test_an_address_says_which_store_it_is(tmp_path):
    assert isinstance(open_store(None), MemoryStore)
    store = open_store(str(tmp_path / "log.db"))
    assert isinstance(store, SqliteStore)
    assert open_store(store) is store
    store.close()


def test_a_log_that_was_deleted_is_not_read_on(tmp_path):
    """A connection that was kept open would still read what is no longer there, and call it well."""
    store = SqliteStore(tmp_path / "log.db")
    store.append([Draft("note", {"n": 1})])
    assert store.head().seq == 1
    (tmp_path / "log.db").rename(tmp_path / "elsewhere.db")
    for ask in (store.head, store.read, lambda: store.places(["k"])):
        with pytest.raises(StoreError, match="is gone"):
            ask()
    (tmp_path / "elsewhere.db").rename(tmp_path / "log.db")
    assert store.head().seq == 1
