"""A process that appends to a log, for tests with several of them and for tests that kill it.

python appender.py PREFIX FIRST COUNT THREADS sqlite PATH | postgres ADDRESS SCHEMA
Thread t appends the keys PREFIX-t-FIRST, PREFIX-t-(FIRST+1), …, COUNT of them, through one group commit. Each line of
output is an acknowledgment: key, seq, hash, fresh.
"""

import os
import sys
import threading

from tether.live.log.chain import Draft
from tether.live.log.group_commit import GroupCommit
from tether.live.log.postgres import PostgresStore
from tether.live.log.sqlite import SqliteStore


def open_log(kind, address, schema=None):
    return SqliteStore(address) if kind == "sqlite" else PostgresStore(address, schema=schema)


def work(commits, name, first, count):
    for number in range(first, first + count):
        key = f"{name}-{number}"
        entry, fresh = commits.append([Draft("note", {"key": key, "x": number / 7}, (key,))])[0]
        os.write(1, f"{key} {entry.seq} {entry.hash} {int(fresh)}\n".encode())  # one write: never half a line


def main(prefix, first, count, threads, *where):
    store = open_log(*where)
    with GroupCommit(store) as commits:
        workers = [
            threading.Thread(target=work, args=(commits, f"{prefix}-{t}", int(first), int(count)))
            for t in range(int(threads))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
