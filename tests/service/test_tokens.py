"""The file of tokens and its command line: no dead ends, and mistakes in one sentence."""

import json
import time

import pytest
from typer.testing import CliRunner

from tether.cli import app as cli
from tether.errors import InputError
from tether.service.auth import LONGEST_NAME, MOST_DAYS, add_token, caller_of, read_tokens, remove_token


def token(*arguments):
    told = CliRunner().invoke(cli, ["token", *map(str, arguments)])
    assert "Traceback" not in told.output and "should not happen" not in told.output
    assert "pydantic" not in told.output and "validation error" not in told.output
    return told


def new(path, name="me", *more):
    return token("new", path, "--name", name, "--role", "read", *more)


def test_after_the_last_token_was_removed_another_can_be_made(tmp_path):
    path = tmp_path / "t.json"
    add_token(path, "only", ("read",), None)
    remove_token(path, "only")
    with pytest.raises(InputError, match=r"holds no token.*tether token new"):
        read_tokens(path)
    assert token("list", path).stdout == ""
    assert "it has none" in token("remove", path, "only").output
    made = new(path)
    assert made.exit_code == 0, made.output
    assert caller_of(read_tokens(path), f"Bearer {made.stdout.strip()}", time.time()).name == "me"


@pytest.mark.parametrize("name", ["", "  ", "x" * (LONGEST_NAME + 1), "a\nb", "\udc80"])
def test_a_name_that_cannot_be_one_is_refused_in_words_and_nothing_is_written(tmp_path, name):
    path = tmp_path / "t.json"
    with pytest.raises(InputError, match=f"1 to {LONGEST_NAME} printable characters"):
        add_token(path, name, ("read",), None)
    assert not path.exists()


def test_the_command_line_says_so_too(tmp_path):
    for name in ("", "x" * 200):
        told = new(tmp_path / "t.json", name)
        assert told.exit_code == 2 and f"1 to {LONGEST_NAME} printable characters" in told.output
    assert new(tmp_path / "t.json", "x" * LONGEST_NAME).exit_code == 0


@pytest.mark.parametrize("days", ["inf", "nan", "0", "-1", "1e9", MOST_DAYS + 1])
def test_days_that_no_token_can_live_are_refused_with_the_limit(tmp_path, days):
    told = new(tmp_path / "t.json", "me", f"--days={days}")
    assert told.exit_code == 2 and f"at most {MOST_DAYS} days" in told.output and not (tmp_path / "t.json").exists()


@pytest.mark.parametrize("expires", [float("inf"), float("nan"), -1.0, 1e30])
def test_a_time_that_no_calendar_shows_is_refused(tmp_path, expires):
    with pytest.raises(InputError, match="seconds since 1970"):
        add_token(tmp_path / "t.json", "me", ("read",), expires)
    assert not (tmp_path / "t.json").exists()


def test_the_longest_life_can_be_made_and_listed(tmp_path):
    assert new(tmp_path / "t.json", "me", "--days", MOST_DAYS).exit_code == 0
    assert "until 2" in token("list", tmp_path / "t.json").stdout


KEPT = {"name": "x", "sha256": "0" * 64, "roles": ["read"]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "\0",
        json.dumps({"format": "other"}),
        json.dumps({"tokens": [{"name": "x"}]}),
        json.dumps({"tokens": [{**KEPT, "roles": ["king"]}, {**KEPT, "name": ""}]}),
        json.dumps({"tokens": [{**KEPT, "expires": float("inf")}]}),
        json.dumps({"tokens": [{**KEPT, "expires": 1e30}]}),
    ],
)
def test_a_damaged_file_is_said_in_one_sentence(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text)
    for told in (new(path), token("list", path), token("remove", path, "x")):
        assert told.exit_code == 2 and "not a file of tokens" in told.output and "http" not in told.output
        assert len(told.output.strip().splitlines()) == 1
    assert path.read_text() == text


def test_a_service_whose_tokens_have_all_expired_is_not_started(tmp_path):
    path = tmp_path / "t.json"
    add_token(path, "old", ("admin",), time.time() - 1.0)
    add_token(path, "older", ("read",), time.time() - 9.0)
    with pytest.raises(InputError, match=r"every token in .* has expired.*tether token new"):
        read_tokens(path)
    assert "older" in token("list", path).stdout
    assert new(path).exit_code == 0 and len(read_tokens(path)) == 3
