"""What tests of several folders share: a real browser, a small disk."""

import subprocess

import pytest

from browser import CHROMIUM, FLAGS


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
