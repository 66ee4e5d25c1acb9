"""examples/service as the tutorial uses it: the files that it prints, and the driver in front of a real service."""

import re
import sys
from pathlib import Path

import pytest
from dashboard_live import serving

from tether.live.advisor import Advisor
from tether.live.policy import Criteria

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "service"


@pytest.fixture
def drive(monkeypatch, tmp_path, capsys):
    """Runs drive.py with these arguments against an advisor, as a caller who may decide and record only."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import drive as module

    def run(advisor, *arguments):
        keep = tmp_path / str(len(list(tmp_path.iterdir())))
        keep.mkdir()
        with serving(advisor, keep) as (address, tokens):
            monkeypatch.setattr(sys, "argv", ["drive.py", address, "--token", tokens["decide"], *arguments])
            module.main()
        return capsys.readouterr().out

    return run


class Kept(Advisor):
    """Its log can be read after the service has ended."""

    def close(self):
        pass


def advisor(**more):
    sys.path.insert(0, str(EXAMPLE))
    from building import problem

    return Kept(problem, criteria=Criteria.none(), **more)


def decisions(advisor):
    return [entry.body for entry in advisor.store.read(0, 1000) if entry.kind == "decision"]


def test_the_client_on_the_service_s_page_runs_as_printed(tmp_path):
    """All of it, with an address and a token that exist, and a system that takes an action."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "service.md").read_text(), flags=re.DOTALL)
    played, asked = [], advisor()
    with serving(asked, tmp_path) as (address, tokens):
        exec(
            code.replace("http://127.0.0.1:8080", address).replace("tether_…", tokens["decide"]),
            {"apply": played.append},
        )
    assert len(played) == 1 and asked.status().outcomes == 1


def test_a_token_that_may_only_decide_and_record_is_enough(drive):
    said = drive(advisor(), "--days", "2")
    assert "16 decisions in mode shadow: 0 not the default" in said


def test_runs_differ_and_their_days_do_not_collide_unless_a_seed_is_given(drive):
    twice = advisor()
    drive(twice, "--days", "2")
    drive(twice, "--days", "2")
    first, second = decisions(twice)[:16], decisions(twice)[16:]
    assert not {body["episode"] for body in first} & {body["episode"] for body in second}
    costs = [body["cost"] for body in outcomes(twice)]
    assert costs[:16] != costs[16:]
    again = [advisor(), advisor()]
    for each in again:
        drive(each, "--days", "2", "--seed", "5")
    one, other = ([body["cost"] for body in outcomes(each)] for each in again)
    assert one == other


def outcomes(advisor):
    return [entry.body for entry in advisor.store.read(0, 1000) if entry.kind == "outcome"]


def test_decisions_under_a_stop_are_counted(drive):
    stopped = advisor()
    stopped.stop(by="a test", why="visitors")
    assert "8 were the default because of the kill switch" in drive(stopped, "--days", "1")


def test_the_tutorial_prints_the_example_as_it_is():
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for name in ("building.py", "service.toml", "drive.py"):
        assert (EXAMPLE / name).read_text(encoding="utf-8").strip() in tutorial, name
