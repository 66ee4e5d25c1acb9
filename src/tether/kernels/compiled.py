"""Which machine code runs: the kernels of this package, compiled when it was built.

A kernel file is plain Python. Functions marked `@kernel` and classes marked `@record` are translated by Cython,
together and in one unit (`build_kernels.py`), once for every x86-64 processor and once for those with AVX2. The last
line of such a file, `use(globals())`, replaces what it has defined by the compiled code that fits this processor. No
fast-math and no contraction: the order of every sum is fixed, so both give the same bits.

TETHER_KERNELS=python runs the plain files (slow, but a debugger can step through, and faults can be planted);
TETHER_KERNELS=baseline takes the code for every processor.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from tether.errors import TetherError

Vector = NDArray[np.float64]
"""Contiguous numbers, as are the types below; their names carry the number of axes into the compiled code."""
Matrix = NDArray[np.float64]
Cube = NDArray[np.float64]
Integers = NDArray[np.int64]
IntegerMatrix = NDArray[np.int64]

Function = TypeVar("Function", bound=Callable[..., object])
Class = TypeVar("Class", bound=type)

SOURCES = (
    "kernels/ridge.py",
    "kernels/likelihood.py",
    "kernels/model.py",
    "kernels/radius.py",
    "kernels/bound.py",
    "kernels/choice.py",
    "kernels/plan.py",
    "kernels/mixture_solver.py",
    "kernels/mixture_plan.py",
    "lab/worlds/dynamics.py",
    "lab/episodes.py",
)
"""The files that are compiled, each after those it needs."""


class KernelError(TetherError, ImportError):
    """The compiled kernels are missing or belong to other sources."""


def kernel(function: Function) -> Function:
    """Mark a function for the compiler. Its annotations are its C types."""
    return function


@dataclass_transform(kw_only_default=True, eq_default=False)
def record(cls: Class) -> Class:
    """Mark a class for the compiler: arrays and numbers that travel together. Arrays change in place, fields do not."""
    made: Any = dataclass(kw_only=True, eq=False)(cls)
    made.fields = property(lambda self: {name: getattr(self, name) for name in made.__dataclass_fields__})
    return cast(Class, made)


def replaced(group: Any, **changes: Any) -> Any:
    """A record with some fields changed, the others shared with the old one."""
    return type(group)(**{**group.fields, **changes})


def source_digest(package: Path) -> str:
    """A hash of every kernel file: machine code is used for exactly these sources."""
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update(name.encode() + b"\0" + (package / name).read_bytes())
    return digest.hexdigest()


def _load(wanted: str) -> ModuleType | None:
    """The extension to use, or None for plain Python."""
    if wanted == "python":
        return None
    if wanted not in ("", "baseline"):
        raise KernelError(f"TETHER_KERNELS must be 'python' or 'baseline' (or unset), but is {wanted!r}.")
    try:
        baseline = import_module("tether.kernels._baseline")
        wide = baseline.has_avx2() and wanted != "baseline"
        extension = import_module("tether.kernels._avx2") if wide else baseline
    except ImportError as error:
        raise KernelError(
            f"the compiled kernels of this installation cannot be loaded ({error}). Install the package again (`make "
            "test` does it from source), or set TETHER_KERNELS=python to run the plain Python files, slowly."
        ) from error
    if extension.DIGEST != DIGEST:
        raise KernelError(
            "the kernels' sources were edited after they were compiled: build them again (`make kernels`), or set "
            "TETHER_KERNELS=python to run the edited files as plain Python, slowly."
        )
    return extension


DIGEST = source_digest(Path(__file__).parent.parent)
EXTENSION = _load(os.environ.get("TETHER_KERNELS", ""))
KERNEL = f"{'python' if EXTENSION is None else 'cython'}-{DIGEST[:12]}"
"""Named in every saved state and result: results are promised bit for bit for one kernel."""


def use(namespace: dict[str, Any]) -> None:
    """Replace the kernels and records of a module by their compiled form."""
    if EXTENSION is not None:
        for name in EXTENSION.NAMES[namespace["__name__"]]:
            namespace[name] = getattr(EXTENSION, name)
