"""The examples from the command line: listed with what they are about, and copied without overwriting anything."""

import json

import pytest

from cli.test_commands import tether
from tether.cli import examples


def test_every_example_is_listed_with_what_it_is_about():
    rows = json.loads(tether("examples", "--json").stdout)
    assert {"gym_frozen_lake", "own_problem", "service", "own_algorithm"} <= set(rows)
    assert all(len(about) > 20 for about in rows.values())
    assert "gym_frozen_lake" in tether("examples").stdout


def test_a_copy_is_the_example_itself_and_overwrites_nothing(tmp_path):
    tether("examples", "copy", "frozen", "--to", tmp_path / "new")
    copied = tmp_path / "new" / "gym_frozen_lake.py"
    assert copied.read_text() == examples.shipped()["gym_frozen_lake"].read_text()
    copied.write_text("mine")
    assert "exists already" in tether("examples", "copy", "frozen", "--to", tmp_path / "new", code=2).stderr
    assert copied.read_text() == "mine"
    tether("examples", "copy", "service", "--to", tmp_path)
    assert {path.name for path in (tmp_path / "service").iterdir()} >= {"building.py", "service.toml"}


@pytest.mark.parametrize(
    ("name", "words"), [("gym_", "any of gym_cliff_walking"), ("own_problm", "did you mean 'own_problem'")]
)
def test_a_name_that_fits_none_or_many_is_refused(name, words, tmp_path):
    assert words in tether("examples", "copy", name, "--to", tmp_path, code=2).stderr
    assert not list(tmp_path.iterdir())


def test_an_installation_without_examples_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(examples, "FOLDERS", (tmp_path / "gone",))
    assert "no examples" in tether("examples", code=2).stderr
