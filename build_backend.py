"""The build backend: setuptools, and where the machine has no C compiler, one from the package registry.

`python build_backend.py` prints the requirement for that compiler, and nothing where the machine has one.
"""

import os
import platform
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

ZIG = "ziglang>=0.13"
"""A C compiler as a wheel of about 100 MB, for Linux on x86-64 and ARM."""


def own_compiler() -> str | None:
    """The command of the machine's C compiler, or None: $CC, the one Python was built with, or a usual name.

    TETHER_ZIG=1 does as if there were none.
    """
    if os.environ.get("TETHER_ZIG") == "1":
        return None
    if os.environ.get("CC"):
        return os.environ["CC"]  # even if it does not exist: then the build says so, instead of taking another one
    for command in (sysconfig.get_config_var("CC") or "cc", "cc", "gcc", "clang"):
        if shutil.which(shlex.split(command)[0]):
            return command
    return None


def compiler_requirements() -> list[str]:
    """What the package registry must add to the machine before it can compile C."""
    zig_runs_here = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    return [ZIG] if zig_runs_here and own_compiler() is None else []


def get_requires_for_build_wheel(config_settings: dict[str, object] | None = None) -> list[str]:
    """What pip installs before it builds."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *compiler_requirements()]


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: dict[str, object] | None = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel from nothing: setuptools would ship every file that an earlier build left in build/lib."""
    for folder in Path("build").glob("lib*"):
        shutil.rmtree(folder)
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


if __name__ == "__main__":
    print(*compiler_requirements())
