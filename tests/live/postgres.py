"""A real PostgreSQL server for the tests: a cluster of its own in a temporary folder, reached by a socket only."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psycopg


class NoServer(Exception):
    """Why no server can be had here."""


def binaries():
    """The folder with initdb and postgres: Debian keeps it off the path."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    for folder in reversed(found):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise NoServer("PostgreSQL is not installed: apt-get install postgresql")


def account():
    """The user to run as: PostgreSQL refuses root, so root lends itself a user without rights."""
    if os.getuid() != 0:
        return {}, os.getuid(), os.getgid()
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}, entry.pw_uid, entry.pw_gid
    raise NoServer("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")


class Server:
    """One cluster. `start`, `stop` and `kill` may be called again and again; `remove` ends it for good."""

    def __init__(self):
        self.bin = binaries()
        self.identity, user, group = account()
        self.folder = Path(tempfile.mkdtemp(prefix="tether-pg-"))  # short: a socket's path has 107 characters at most
        os.chown(self.folder, user, group)
        self.process = None
        command = [self.bin / "initdb", "-D", self.folder / "data", "-E", "UTF8", "--locale=C", "-U", "tether"]
        self._run([*command, "--auth=trust", "--no-sync", "--wal-segsize=1"])

    @property
    def address(self):
        """Where a client finds it; only this user and root can enter the folder."""
        return f"postgresql://tether@/postgres?host={self.folder}"

    def start(self):
        settings = {"listen_addresses": "", "unix_socket_directories": self.folder, "shared_buffers": "16MB"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.bin / "postgres", "-D", self.folder / "data", *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self.identity,
            )
        give_up = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.address, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > give_up:
                    log = (self.folder / "server.log").read_text()[-500:]
                    raise NoServer(f"the server does not start: {error} {log}") from error
                time.sleep(0.05)

    def stop(self):
        """An orderly stop that throws out all clients."""
        self._end(signal.SIGINT)

    def kill(self):
        """As if the machine had lost power: every process of the server is killed at once."""
        self._end(signal.SIGKILL)

    def _end(self, how):
        if self.process is not None and self.process.poll() is None:
            children = _children(self.process.pid) if how == signal.SIGKILL else []
            for pid in [self.process.pid, *children]:
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
            self.process.wait(60)
            while any(Path(f"/proc/{pid}").exists() for pid in children):
                time.sleep(0.01)
        self.process = None

    def remove(self):
        self._end(signal.SIGQUIT)  # at once: nothing of it is needed any more
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command):
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False, **self.identity)
        if done.returncode:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise NoServer(f"{command[0]} failed: {done.stderr.strip()}")


def _children(parent):
    """The processes that the server started: they are in sessions of their own, and would outlive it for a while."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(status.parent.name))
    return found
