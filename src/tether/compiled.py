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


def inlined(function: Kernel) -> Kernel:
    """`compiled`, and copied into its callers: for small kernels whose many arguments cost more to pass than to use."""
    return _kernel(function, forceinline=True)


def compiled(function: Kernel) -> Kernel:
    """Compile on first call and keep the machine code on disk, keyed by the source of all kernels.

    numba's own key is the caller's file alone, so a kernel whose callee changed in another file would go on running
    the old machine code: unacceptable where the callee computes a safety bound.
    """
    return _kernel(function, forceinline=False)


def _kernel(function: Kernel, *, forceinline: bool) -> Kernel:
    if getattr(
        numba.config, "DISABLE_JIT", 0
    ):  # NUMBA_DISABLE_JIT=1: plain Python, for debugging and for planting faults
        return function
    dispatcher: Any = numba.njit(error_model="numpy", forceinline=forceinline)(function)
    dispatcher.enable_caching()
    index = dispatcher._cache._cache_file
    index._source_stamp = (index._source_stamp, _DIGEST)
    return cast(Kernel, dispatcher)
