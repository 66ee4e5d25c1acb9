"""The far end of `tether.gym.remote`: runs one environment for a parent process, in whatever Python that needs.

    python remote_worker.py module:make_env

It must run where Tether is not installed, on Python 3.8 and newer, so it imports nothing of it, and numpy only where
there are arrays. Requests come as one JSON object per line on standard input, answers go the same way to what was
standard output; what the environment prints itself goes to standard error. Nothing is pickled.
"""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ARRAY, TUPLE = "array", "tuple"
"""Keys of what JSON has no word for. A dictionary of the environment's own comes as pairs: none is taken for these."""


class NotSent(TypeError):
    """A value that the protocol has no form for."""


def encode(value: Any) -> Any:
    """A value as JSON: numbers, strings, None, lists, tuples, dictionaries and arrays of numbers, bit for bit."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [encode(entry) for entry in value]
    if isinstance(value, tuple):
        return {TUPLE: [encode(entry) for entry in value]}
    if hasattr(value, "items"):
        return {"pairs": [[encode(key), encode(entry)] for key, entry in value.items()]}
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind and kind in "biuf" and not (hasattr(value, "mask") and value.mask.any()):
        content = base64.b64encode(value.tobytes()).decode("ascii")
        return {ARRAY: content, "dtype": value.dtype.str, "shape": list(value.shape), "scalar": value.ndim == 0}
    raise NotSent(f"a value of type {type(value).__name__} cannot be sent: {value!r}")


def decode(sent: Any) -> Any:
    """The reverse; arrays are the receiver's own."""
    if isinstance(sent, list):
        return [decode(entry) for entry in sent]
    if not isinstance(sent, dict):
        return sent
    if TUPLE in sent:
        return tuple(decode(entry) for entry in sent[TUPLE])
    if "pairs" in sent:
        return {decode(key): decode(entry) for key, entry in sent["pairs"]}
    import numpy

    array = numpy.frombuffer(base64.b64decode(sent[ARRAY]), numpy.dtype(sent["dtype"])).reshape(sent["shape"])
    return array[()] if sent["scalar"] else array.copy()


def described(space: Any) -> Any:
    """A space by the name of its kind and what it is made from: Gymnasium's, or old Gym's."""
    kind = type(space).__name__
    if kind == "Discrete":
        return {"kind": kind, "n": int(space.n), "start": int(getattr(space, "start", 0))}
    if kind == "Box":
        dtype = getattr(space, "dtype", None) or space.low.dtype  # Gym of 2017 knew none
        return {"kind": kind, "low": encode(space.low), "high": encode(space.high), "dtype": str(dtype)}
    if kind == "MultiDiscrete":
        return {"kind": kind, "nvec": encode(space.nvec)}
    if kind == "MultiBinary":
        return {"kind": kind, "n": encode(space.n if isinstance(space.n, int) else list(space.n))}
    if kind == "Tuple":
        return {"kind": kind, "spaces": [described(part) for part in space.spaces]}
    if kind == "Dict":
        return {"kind": kind, "spaces": [[name, described(part)] for name, part in space.spaces.items()]}
    raise NotSent(f"a space of kind {kind} cannot be described: let make_env wrap it as one that is")


def sendable(info: Any) -> dict[str, Any]:
    """`info` with those entries that can be sent; the names of the others are in its entry "not_sent"."""
    kept, left = {}, []
    for key, value in dict(info).items():
        try:
            encode(value)
        except NotSent:
            left.append(str(key))
        else:
            kept[str(key)] = value
    return dict(kept, not_sent=left) if left else kept


def takes(env: Any, name: str) -> bool:
    """Whether `reset` takes an argument of this name; a wrapper that passes on anything takes what it wraps does."""
    kinds = {one.name: one.kind for one in inspect.signature(env.reset).parameters.values()}
    anything = inspect.Parameter.VAR_KEYWORD
    if anything not in kinds.values() or kinds.get(name, anything) is not anything:
        return name in kinds
    return takes(env.env, name) if hasattr(env, "env") else True


class Far:
    """The environment, and the answer to each request about it."""

    def __init__(self, make: str) -> None:
        module, _, path = make.partition(":")
        thing: Any = importlib.import_module(module)
        for name in (path or "make_env").split("."):
            thing = getattr(thing, name)
        self.env: Any = thing() if isinstance(thing, type) or not hasattr(thing, "step") else thing
        if not (takes(self.env, "seed") or hasattr(self.env, "seed")):
            sys.stderr.write(f"{make} takes no seed, so none repeats an episode.\n")
        self.answers: dict[str, Callable[..., Any]] = {"spaces": self.spaces, "reset": self.reset, "step": self.step}

    def spaces(self) -> dict[str, Any]:
        """Both spaces, the name and the number of steps after which episodes are cut, if there is one."""
        spec = getattr(self.env, "spec", None)
        return {
            "observation": described(self.env.observation_space),
            "action": described(self.env.action_space),
            "id": str(getattr(spec, "id", "") or type(self.env).__name__),
            "steps": getattr(spec, "max_episode_steps", None),
        }

    def reset(self, seed: Any, options: Any) -> Any:
        """An observation and an info; old environments give the first alone, and take seeds elsewhere."""
        given = {"seed": seed, "options": decode(options)}
        taken = {name: value for name, value in given.items() if takes(self.env, name)}
        if seed is not None and "seed" not in taken and hasattr(self.env, "seed"):
            self.env.seed(seed)
        found = self.env.reset(**taken)
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict):
            return encode((found[0], sendable(found[1])))
        return encode((found, {}))

    def step(self, action: Any) -> Any:
        """Gymnasium's five values, or Safety-Gymnasium's six; old Gym's four become five."""
        found = tuple(self.env.step(decode(action)))
        if len(found) == 4:
            observation, reward, done, info = found
            cut = bool(done) and bool(info.get("TimeLimit.truncated", False))
            found = (observation, reward, bool(done) and not cut, cut, info)
        return encode((*found[:-1], sendable(found[-1])))


def main() -> None:
    """Answer until the parent closes the line."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the environment prints must not be taken for an answer
    sys.path[0] = str(Path.cwd())  # not the folder of this file, whose modules have names of their own
    far = None
    for line in sys.stdin:
        try:
            asked: Any = json.loads(line)
            if far is None:
                far = Far(sys.argv[1])
            answer = {"answer": far.answers[asked.pop("call")](**asked.pop("details"))}
        except Exception as error:  # the parent raises it
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        answers.write(json.dumps(dict(answer, id=asked["id"])) + "\n")
        answers.flush()
    if far is not None and hasattr(far.env, "close"):
        far.env.close()


if __name__ == "__main__":
    main()
