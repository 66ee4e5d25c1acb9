"""A Problem by its name, module:name, for the command line and the service."""

import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tether.errors import InputError, TetherError
from tether.problem.problem import Problem


def load_problem(spec: str, folder: Path | None = None) -> Problem:
    """The Problem behind module:name: itself, something that has it as `.problem`, or a function returning either.

    Modules are looked for in `folder` first (the current one unless given), as `python -m` does.
    """
    module_name, _, path = spec.partition(":")
    place = "" if folder is None else str(folder)
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        thing: Any = importlib.import_module(module_name)
    except TetherError:
        raise
    except ModuleNotFoundError as error:
        raise InputError(f"cannot import {module_name!r}: {error}. Run this where the module can be found.") from error
    except Exception as error:
        raise InputError(f"importing {module_name!r} failed: {type(error).__name__}: {error}.") from error
    for name in path.split("."):
        if not hasattr(thing, name):
            raise InputError(f"{spec!r}: {module_name} has no {path!r}. Name a Problem, or a function returning one.")
        thing = getattr(thing, name)
    if callable(thing) and not isinstance(thing, Problem):
        thing = _called(spec, thing)
    thing = getattr(thing, "problem", thing)
    if not isinstance(thing, Problem):
        raise InputError(f"{spec!r} is {type(thing).__name__}, not a Problem, nor a function that returns one.")
    return thing


def _called(spec: str, function: Callable[..., Any]) -> Any:
    """What a function of the user's returns; its own errors are told from a call that it does not allow."""
    try:
        with suppress(ValueError):  # some built-ins do not say what they take: the call will
            inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(f"{spec!r} must be callable without arguments: {error}.") from error
    try:
        return function()
    except TetherError:
        raise
    except Exception as error:
        raise InputError(f"calling {spec} failed: {type(error).__name__}: {error}.") from error
