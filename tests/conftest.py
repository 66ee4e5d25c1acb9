"""What tests of several folders share: folders in memory, a real browser, a small disk."""

import gc
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from browser import CHROMIUM, FLAGS

MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30
"""Bytes that all folders of a run fit into: environments of their own, database servers, logs."""


def pytest_configure():
    """Put the tests' folders into memory if there is room: on a disk, half the time of a log's tests is spent in fsync.

    TMPDIR, where it is set, is kept.
    """
    if (
        "TMPDIR" not in os.environ
        and MEMORY.is_dir()
        and shutil.disk_usage(MEMORY).free > ROOM
        and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    ):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # asked for again


def pytest_collection_finish():
    """Leave what collection made out of later garbage collections, which take half a second with 8000 tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def browser():
    """Chromium, driven by playwright; without either the tests that need it are skipped."""
    if not CHROMIUM.exists():
        pytest.skip(f"no browser: {CHROMIUM} is not installed (apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="no browser: playwright is not installed")
    with api.sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        except api.Error as error:
            pytest.skip(f"no browser: chromium does not start: {str(error).splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("only root may mount a small disk here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
