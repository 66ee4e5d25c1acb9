"""The wheel that the tests of this folder install: made once from the sources as they are."""

import fcntl
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD_FILES = ("pyproject.toml", "setup.py", "build_backend.py", "build_kernels.py", "MANIFEST.in")
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"


def sources():
    """Files of the package, examples included, that are in version control or about to be, as a wheel names them."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "src/tether", "examples"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    named = {(name if name.startswith("src/") else f"src/tether/{name}"): ROOT / name for name in listed}
    return {name.removeprefix("src/"): file for name, file in named.items() if file.exists()}


def wheels():
    """Wheels in dist/ that this Python can install, the newest last."""
    return sorted((ROOT / "dist").glob(f"*-{TAG}-*manylinux*.whl"), key=lambda path: path.stat().st_mtime)


def is_current(path):
    """Whether a wheel was built from the sources as they are now."""
    if path.stat().st_mtime < max((ROOT / name).stat().st_mtime for name in BUILD_FILES):
        return False
    with zipfile.ZipFile(path) as wheel:
        inside = set(wheel.namelist())
        return all(name in inside and wheel.read(name) == file.read_bytes() for name, file in sources().items())


@pytest.fixture(scope="session")
def wheel():
    """The wheel in dist/, made by `make wheel` if there is none of these sources."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the suite may be making it
        if not wheels() or not is_current(wheels()[-1]):
            environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
            command = ["make", "wheel", f"PYTHON={sys.executable}", f"VENV={Path(sys.prefix).name}"]
            subprocess.run(command, cwd=ROOT, env=environment, check=True)
        return wheels()[-1]


PROBLEM = """
import numpy as np

from tether import Constraint, Problem


def problem():
    return Problem.from_rays(
        phi_0=np.eye(3)[:1],
        endpoints=np.eye(3)[None, 1:],
        constraints=Constraint(threshold=0.5, noise=0.05, safe_cost=np.array([[0.1]])),
        horizon=1,
    )
"""
