"""An environment that runs in another virtual environment: for those whose pinned packages clash with ours."""

import json
import os
import selectors
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

from tether.errors import InputError, TetherError
from tether.gym import remote_worker
from tether.gym.remote_worker import decode, encode


class RemoteError(TetherError):
    """The far environment failed, ended, or did not answer in time. Its own message is in this one."""


def remote(*, python: str | Path, make: str, folder: str | Path | None = None, timeout: float = 300.0) -> "RemoteEnv":
    """The environment that `make` of a module makes, in a process of another Python, as one of Gymnasium's.

    Args:
        python: the interpreter of the virtual environment that has the environment's packages; Tether is not needed
            there, Python 3.8 or newer is.
        make: "module:function" without arguments; the module is looked for in `folder` first.
        folder: where it runs; the current one unless given.
        timeout: seconds to wait for an answer, the first with its imports included.

    Observations, actions and rewards travel as JSON with the bits of their arrays, over pipes; nothing is pickled.
    Safety-Gymnasium's six values and old Gym's four are understood. Entries of `info` that cannot be sent are left out
    and named in `info["not_sent"]`.
    """
    return RemoteEnv(str(Path(python).expanduser()), make, Path(folder or "."), timeout)


class RemoteEnv(gymnasium.Env[Any, Any]):
    """See `remote`. `close`, or the end of this process, ends the other one."""

    def __init__(self, python: str, make: str, folder: Path, timeout: float) -> None:
        self._make, self._timeout, self._unread, self._asked = make, timeout, b"", 0
        command = [python, "-u", str(Path(remote_worker.__file__).resolve()), make]
        # what this interpreter was told about its own packages is not for the other one
        own = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
        try:
            self._worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=own, bufsize=0,
                start_new_session=True,  # a Ctrl-C is for this process, which ends the other one when it ends
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"the interpreter {python!r} cannot be started in {folder}: {error}.") from error
        try:
            answer = self._ask("spaces")
        except BaseException:
            self.close()  # nobody else has it
            raise
        self.observation_space, self.action_space = _space(answer["observation"]), _space(answer["action"])
        self.spec = gymnasium.envs.registration.EnvSpec(str(answer["id"]), max_episode_steps=answer["steps"])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observation of an episode, and its info."""
        observation, info = decode(self._ask("reset", seed=seed, options=encode(options)))
        return observation, info

    def step(self, action: Any) -> Any:
        """What the far environment answers: five values, or six with the cost as the third."""
        return decode(self._ask("step", action=encode(action)))

    def close(self) -> None:
        """End the other process; a second time does nothing."""
        worker = self._worker
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                pipe.close()
        try:
            worker.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()

    def __str__(self) -> str:
        return f"remote {self._make}"

    def _ask(self, call: str, **details: Any) -> Any:
        """One request and its answer, without its envelope."""
        pipe = self._worker.stdin
        if pipe is None or pipe.closed:
            raise RemoteError(f"{self} was closed.")
        self._asked += 1
        request = {"call": call, "id": self._asked, "details": details}
        with suppress(BrokenPipeError):  # an ended process is noticed below
            pipe.write((json.dumps(request) + "\n").encode())
        answer: dict[str, Any] = {"id": 0}
        while answer["id"] != self._asked:  # others belong to questions that were interrupted
            try:
                answer = json.loads(self._line(call))
            except ValueError as error:
                self._fail(f"answered {call!r} with something that is no JSON ({error})")
        if "error" in answer:
            sys.stderr.write(answer["trace"])
            raise RemoteError(f"{self} failed at {call!r}: {answer['error']}. Where it did is on standard error.")
        return answer["answer"]

    def _line(self, call: str) -> bytes:
        """The next whole line of the other process, in time."""
        pipe: Any = self._worker.stdout
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not ready.select(self._timeout):
                    self._fail(f"did not answer {call!r} within {self._timeout:g} s (timeout=…)")
                read = os.read(pipe.fileno(), 1 << 16)
                if not read:
                    self._fail(f"ended at {call!r} with exit code {self._worker.wait()}; see its messages above")
                self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _fail(self, why: str) -> NoReturn:
        self._worker.kill()
        self.close()
        raise RemoteError(f"{self} {why}.")


def _space(described: Any) -> spaces.Space[Any]:
    """The space of this Gymnasium that a far one was described as."""
    kind = described["kind"]
    if kind == "Discrete":
        return spaces.Discrete(described["n"], start=described["start"])
    if kind == "Box":
        return spaces.Box(decode(described["low"]), decode(described["high"]), dtype=np.dtype(described["dtype"]).type)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(decode(described["nvec"]))
    if kind == "MultiBinary":
        return spaces.MultiBinary(described["n"])
    if kind == "Tuple":
        return spaces.Tuple([_space(part) for part in described["spaces"]])
    return spaces.Dict({name: _space(part) for name, part in described["spaces"]})
