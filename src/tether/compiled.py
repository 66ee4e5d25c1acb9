"""The one decorator for compiled kernels.

No fastmath: the order of every sum is fixed, so that a restored or repeated run is equal bit for bit.
`error_model="numpy"` lets a division by zero give inf or NaN, which the safe sets read as "not safe".
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., object])

KERNEL = f"numba-{numba.__version__}"
"""Named in every saved state and result: results are promised bit for bit for one kernel."""


def source_digest(package: Path) -> str:
    """A hash of every file that defines kernels, and so of every constant they freeze when they are compiled."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if b"compiled" in source:
            digest.update(path.relative_to(package).as_posix().encode())
            digest.update(source)
    return digest.hexdigest()


_DIGEST = source_digest(Path(__file__).parent)


def compiled(function: Kernel) -> Kernel:
    """Compile on first call and keep the machine code on disk, keyed by the source of all kernels.

    numba's own key is the caller's file alone, so a kernel whose callee changed in another file would go on running
    the old machine code: unacceptable where the callee computes a safety bound.
    """
    return _kernel(function)


def lean(function: Kernel) -> Kernel:
    """`compiled`, for kernels that neither make arrays nor are handed new ones: without counting references to them.

    numba counts every array of every argument on every call, which costs more than the arithmetic of one state.
    A kernel that makes an array after all does not compile.
    """
    return _kernel(function, _nrt=False)


def inlined(function: Kernel) -> Kernel:
    """`lean`, and copied into its callers before they are compiled; compiled by itself only if Python calls it."""
    return _kernel(function, _nrt=False, inline="always")


def _kernel(function: Kernel, **options: Any) -> Kernel:
    if getattr(
        numba.config, "DISABLE_JIT", 0
    ):  # NUMBA_DISABLE_JIT=1: plain Python, for debugging and for planting faults
        return function
    # nobody takes a kernel as a C function, so that no C entry point is made for any of them
    options |= {"error_model": "numpy", "no_cfunc_wrapper": True}
    dispatcher: Any = numba.njit(**options)(function)
    dispatcher.enable_caching()
    index = dispatcher._cache._cache_file
    index._source_stamp = (index._source_stamp, _DIGEST)
    return cast(Kernel, dispatcher)
