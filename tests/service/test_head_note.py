"""A log that was restored or rewound starts stopped; one that only grew does not."""

import asyncio
import shutil

import pytest
from service_app import new_advisor

from tether.live.log.sqlite import SqliteStore
from tether.service.hub import Hub
from tether.service.models import DecisionRequest


async def a_run(folder, decisions):
    """The service's hub over folder/log.db for so many decisions; returns the reason of the last, and the status."""
    advisor = new_advisor(SqliteStore(folder / "log.db"))
    hub = Hub(advisor, waiting=100, seconds=5.0, noted=folder / "log.db.head")
    try:
        made = [await hub.decide(DecisionRequest(state=0), None) for _ in range(decisions)]
        return made[-1].reason, advisor.status().stopped
    finally:
        await hub.close()


def played(folder, decisions=2):
    return asyncio.run(a_run(folder, decisions))


def test_a_log_that_grew_starts_as_it_ended(tmp_path):
    assert [played(tmp_path)[1] for _ in range(3)] == ["", "", ""]


@pytest.mark.parametrize("how", ["restored", "another", "unreadable"])
def test_a_log_that_is_not_the_noted_one_starts_stopped(tmp_path, how):
    played(tmp_path)
    shutil.copy(tmp_path / "log.db", tmp_path / "backup.db")
    played(tmp_path)
    for left in tmp_path.glob("log.db*"):
        if left.suffix != ".head":
            left.unlink()
    if how == "restored":
        shutil.copy(tmp_path / "backup.db", tmp_path / "log.db")
    elif how == "unreadable":
        (tmp_path / "log.db.head").write_text("{")
    reason, stopped = played(tmp_path)
    assert reason == "stopped" and "starts stopped" in stopped
    advisor = new_advisor(SqliteStore(tmp_path / "log.db"))
    advisor.resume(by="me", why="the missing hour was looked into")
    advisor.close()
    assert played(tmp_path)[1] == "", "it was confirmed"
