"""What only the PostgreSQL store can get wrong: servers that go away, come back, or promise too little."""

import threading
import time

import psycopg
import pytest

from live.places import draft, numbers
from tether import InputError, StoreError
from tether.live.log import open_store
from tether.live.log.chain import Draft, verify_store
from tether.live.log.postgres import PostgresStore


@pytest.fixture
def store(postgres_place):
    opened = postgres_place.open()
    yield opened
    opened.close()


def test_a_server_that_is_gone_is_an_error_and_its_return_is_recovery(own_server, store):
    store.append([draft(1, "a")])
    own_server.stop()
    for _ in range(2):
        for call in (lambda: store.append([draft(2, "b")]), store.head, lambda: store.find("a"), store.read):
            with pytest.raises(StoreError, match="could not be"):
                call()
    own_server.start()
    assert numbers(store) == [1]
    assert [result.fresh for result in store.append([draft(2, "b"), draft(3, "a")])] == [True, False]
    assert verify_store(store).fault is None


def test_a_restart_between_two_calls_goes_unnoticed(own_server, store):
    """Idle connections died with the old server; nothing was under way, so a new one is made."""
    store.append([draft(1)])
    assert numbers(store) == [1]
    own_server.kill()
    own_server.start()
    assert numbers(store) == [1]
    store.append([draft(2)])
    assert numbers(store) == [1, 2]


@pytest.mark.parametrize("pipelines", [True, False])
def test_a_connection_cut_during_a_batch_leaves_nothing_of_it(postgres_server, store, monkeypatch, pipelines):
    """The server ends the writer's session in the middle of its transaction; the batch is tried again, whole."""
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: pipelines)
    store.append([draft(1)])
    cut = []

    def clock():  # asked between the question and the writing
        if not cut:
            cut.append(True)
            with psycopg.connect(postgres_server.address, autocommit=True) as other:  # waits until it has ended
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (store._writer.info.backend_pid,))
        return 5.0

    store._clock = clock
    store.append([draft(2), draft(3)])
    assert numbers(store) == [1, 2, 3]
    assert verify_store(store).fault is None


def test_a_commit_whose_answer_is_lost_is_not_tried_again_by_itself(postgres_server, store):
    """Whether it was written is unknown, and a second try would write it twice. With a key the caller finds out."""
    store.append([draft(1)])
    commit = store._commit

    def commit_then_lose_the_answer(connection):
        commit(connection)
        raise psycopg.OperationalError("the connection is lost")

    store._commit = commit_then_lose_the_answer
    with pytest.raises(StoreError, match="the connection is lost"):
        store.append([draft(2, "a"), draft(3)])
    store._commit = commit
    assert numbers(store) == [1, 2, 3]
    assert not store.append([draft(2, "a")])[0].fresh
    assert numbers(store) == [1, 2, 3]


def test_a_writer_that_waits_too_long_for_its_turn_says_so(postgres_place):
    slow, hasty = postgres_place.open(), postgres_place.open(patience=0.5)
    entered, leave = threading.Event(), threading.Event()

    def clock():
        entered.set()
        leave.wait(60)
        return 1.0

    slow._clock = clock
    writer = threading.Thread(target=slow.append, args=([draft(1)],))
    writer.start()
    assert entered.wait(60)
    with pytest.raises(StoreError, match="lock timeout"):
        hasty.append([draft(2)])
    assert hasty.head().seq == 0, "reading waits for nobody, and sees nothing that is not committed"
    leave.set()
    writer.join()
    hasty.append([draft(2)])
    assert numbers(hasty) == [1, 2]
    slow.close(), hasty.close()


def test_logs_in_two_schemas_do_not_wait_for_each_other(request, postgres_place, postgres_server):
    one, two = postgres_place.open(), PostgresStore(postgres_server.address, schema=f"{postgres_place.schema}_b")
    one._clock = lambda: two.append([draft(7)])[0].entry.time  # while `one` holds its lock
    one.append([draft(1)])
    assert (numbers(one), numbers(two)) == ([1], [7])
    assert one.identity() != two.identity()
    one.close(), two.close()


def test_tables_of_other_software_are_refused_and_left_alone(postgres_place):
    postgres_place.execute(f"CREATE SCHEMA {postgres_place.schema}")
    postgres_place.execute(f"CREATE TABLE {postgres_place.schema}.entries (seq bigint)")
    with pytest.raises(StoreError, match="other software"):
        postgres_place.open()
    tables = postgres_place.execute("SELECT tablename FROM pg_tables WHERE schemaname = ?", (postgres_place.schema,))
    assert tables == [("entries",)]


def test_an_empty_schema_becomes_a_log(postgres_place):
    """An administrator may make the schema, and grant no right to make others."""
    postgres_place.execute(f"CREATE SCHEMA {postgres_place.schema}")
    store = postgres_place.open()
    store.append([draft(1)])
    assert numbers(store) == [1]
    store.close()


def test_a_log_that_was_dropped_is_not_quietly_made_anew(postgres_place, store):
    store.append([draft(1)])
    postgres_place.execute(f"DROP SCHEMA {postgres_place.schema} CASCADE")
    for _ in range(2):
        with pytest.raises(StoreError):
            store.append([draft(2)])
        with pytest.raises(StoreError):
            store.head()
    other = postgres_place.open()
    with pytest.raises(StoreError, match="it was replaced"):
        store.append([draft(2)])
    assert other.head().seq == 0
    other.close()


def test_a_server_setting_that_puts_off_syncs_is_overruled(postgres_server, postgres_place):
    """synchronous_commit = off acknowledges first and writes later."""
    address = f"{postgres_server.address}&options=-c%20synchronous_commit%3Doff"
    store = PostgresStore(address, schema=postgres_place.schema)
    seen = []
    store._clock = lambda: seen.append(store._writer.execute("SHOW synchronous_commit").fetchone()[0]) or 1.0
    store.append([draft(1)])
    assert seen == ["on"]
    store.close()


def test_bodies_are_compressed_by_the_faster_method_where_the_server_has_it(postgres_place, store):
    store.append([Draft("note", {"words": "the same again, " * 1000})])
    sql = f"SELECT pg_column_compression(body) FROM {postgres_place.schema}.entries"
    has = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
    if store._rows(has) != [(True,)]:  # an older server, or one built without it: the log works as before
        pytest.skip("this PostgreSQL has no LZ4")
    assert store._rows(sql) == [("lz4",)]


def test_a_server_that_never_syncs_is_refused(store):
    """fsync = off: such a server may lose what it acknowledged."""

    class Faked:
        def execute(self, sql):
            return self

        def fetchone(self):
            return ("off", "UTF8")

    with pytest.raises(StoreError, match="fsync = off, a log needs on"):
        store._check_server(Faked())


def test_a_server_that_cannot_be_used_is_refused_when_a_log_is_opened(postgres_place, monkeypatch):
    """So that `tether serve --check` finds it, and not the first decision."""

    def refused(self, connection):
        raise StoreError("the server has fsync = off, a log needs on.")

    monkeypatch.setattr(PostgresStore, "_check_server", refused)
    with pytest.raises(StoreError, match="fsync = off"):
        postgres_place.open()


def test_threads_that_open_a_log_at_once_make_one(postgres_place):
    stores, barrier = [], threading.Barrier(6)

    def work():
        barrier.wait()
        stores.append(postgres_place.open())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 6
    assert len({store.identity() for store in stores}) == 1
    for store in stores:
        store.close()


def test_no_error_repeats_the_password(tmp_path):
    secret = "s3cret-w0rd"
    addresses = [
        f"postgresql://tether:{secret}@/postgres?host={tmp_path}&connect_timeout=1",
        f"postgresql://tether:{secret}@localhost:99999999/x",
        f"host={tmp_path} password={secret} user",
        f"postgresql://{secret}?nonsense={secret}",
    ]
    for address in addresses:
        with pytest.raises((StoreError, InputError)) as caught:
            PostgresStore(address)
        assert secret not in str(caught.value)


@pytest.mark.parametrize("schema", ["", "Upper", "a.b", 'x"; DROP TABLE y; --', "pg_mine", "x" * 64])
def test_a_schema_that_is_not_a_plain_name_is_refused(postgres_server, schema):
    with pytest.raises(InputError, match="schema"):
        PostgresStore(postgres_server.address, schema=schema)


def test_an_address_of_a_server_opens_a_postgres_store(postgres_server):
    store = open_store(postgres_server.address)
    assert isinstance(store, PostgresStore)
    store.close()


def test_closing_lets_go_of_every_connection(postgres_server, postgres_place):
    store = postgres_place.open()
    readers = [threading.Thread(target=lambda: [store.head() for _ in range(20)]) for _ in range(8)]
    for reader in readers:
        reader.start()
    store.append([draft(1)])
    for reader in readers:
        reader.join()
    store.close()
    give_up = time.monotonic() + 60
    sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tether'"
    while postgres_place.execute(sql) != [(0,)]:
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.parametrize("trouble", ["the listener", "its thread"])
def test_a_silence_ends_whatever_happens_to_who_listens(store, monkeypatch, trouble):
    """Otherwise one bad moment would shut the log for good."""
    store.append([draft(1)])

    def out_of_files():
        raise OSError("too many open files")

    def out_of_threads(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as broken:
        if trouble == "the listener":
            broken.setattr(store, "_new_connection", out_of_files)
        else:
            broken.setattr(threading.Thread, "start", out_of_threads)
        store._mark_unresponsive()
        deadline = time.monotonic() + 60.0
        while store._unresponsive and time.monotonic() < deadline:
            time.sleep(0.01)
    store.append([draft(2)])
    assert numbers(store) == [1, 2]
