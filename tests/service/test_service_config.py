"""The configuration, the tokens' file and the command line: mistakes are named, secrets stay secret."""

import json
import stat
import time

import pytest
import service_app  # noqa: F401  # puts tests/ on the path
from typer.testing import CliRunner

from tether.cli import app as cli
from tether.errors import InputError
from tether.live.advisor import Advisor
from tether.service.auth import add_token, caller_of, read_tokens, remove_token
from tether.service.config import is_loopback, read_config
from worlds import world_and_streams

MODULE = """
import numpy as np

from tether import Constraint, Problem

problem = Problem.from_rays(
    phi_0=np.eye(3)[:1],
    endpoints=np.eye(3)[None, 1:],
    constraints=Constraint(threshold=0.5, noise=0.05, safe_cost=np.array([[0.1]])),
    horizon=1,
)
"""


def written(folder, text):
    path = folder / "service.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('problem = "a:b"\nprot = 1', "unknown key 'prot'; did you mean 'port'?"),
        ('problem = "a:b"\nalgorithm = "rslucb-qvi"', 'did you mean limit_on = "single actions"'),
        ('problem = "a:b"\nlimit_on = "draws"', "limit_on"),
        ('problem = "a:b"\nport = "80"', "at port"),
        ('problem = "a:b"\nport = 70000', "at port"),
        ('problem = "no colon"', "at problem"),
        ("port = 80", "at problem"),
        ('problem = "a:b"\n[guards]\nmax_ages = 1.0', "did you mean 'max_age'?"),
        ('problem = "a:b"\n[guards]\nmax_age = nan', "at guards.max_age"),
        ('problem = "a:b"\n[limits]\nbody_bytes = 0', "at limits.body_bytes"),
        ('problem = "a:b"\nfolder = "/"', "unknown key 'folder'"),
        ('problem = "a:b"\nhost = "0.0.0.0"', "no tokens are set"),
        ('problem = "a:b"\nhost = "::"', "no tokens are set"),
        ('problem = "a:b"\nhost = "example.org"', "no tokens are set"),
        ('problem = "a:b"\nworkers = 2', "PostgreSQL"),
        ('problem = "a:b"\nwhen_store_fails = "shrug"', "at when_store_fails"),
        ("problem = ", "not valid TOML"),
    ],
)
def test_mistakes_in_the_configuration_are_named_with_their_place(tmp_path, text, said):
    with pytest.raises(InputError) as refused:
        read_config(written(tmp_path, text))
    assert said in str(refused.value)


def test_defaults_are_the_safe_ones_and_paths_are_relative_to_the_file(tmp_path):
    config = read_config(written(tmp_path, 'problem = "a:b"'))
    assert config.host == "127.0.0.1" and config.workers == 1 and config.watch and config.tokens is None
    assert config.when_store_fails == "baseline" and config.store_address() == str(tmp_path / "decisions.db")
    assert read_config(written(tmp_path, 'problem = "a:b"\nhost = "0.0.0.0"\ntokens = "t"')).host == "0.0.0.0"


def test_the_address_of_a_database_comes_from_the_environment(tmp_path, monkeypatch):
    config = read_config(written(tmp_path, 'problem = "a:b"\nstore_from = "TETHER_TEST_STORE"\nworkers = 2'))
    with pytest.raises(InputError, match="TETHER_TEST_STORE"):
        config.store_address()
    monkeypatch.setenv("TETHER_TEST_STORE", "postgresql://u:secret@h/d")
    assert config.store_address() == "postgresql://u:secret@h/d" and "secret" not in repr(config)


def test_a_path_from_the_environment_is_relative_to_the_file_too(tmp_path, monkeypatch):
    config = read_config(written(tmp_path, 'problem = "a:b"\nstore_from = "TETHER_TEST_STORE"'))
    monkeypatch.setenv("TETHER_TEST_STORE", "logs/mine.db")
    assert config.store_address() == str(tmp_path / "logs/mine.db")
    monkeypatch.setenv("TETHER_TEST_STORE", "/elsewhere/mine.db")
    assert config.store_address() == "/elsewhere/mine.db"


def test_several_workers_on_sqlite_are_refused_whoever_names_the_file(tmp_path, monkeypatch):
    config = read_config(written(tmp_path, 'problem = "a:b"\nstore_from = "TETHER_TEST_STORE"\nworkers = 2'))
    monkeypatch.setenv("TETHER_TEST_STORE", "hidden.db")
    with pytest.raises(InputError, match=r"workers = 2 .*PostgreSQL.*TETHER_TEST_STORE") as refused:
        config.store_address()
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_addresses_of_this_machine_are_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "127.0.0.1.example.org"])
def test_other_addresses_are_not(host):
    assert not is_loopback(host)


def test_the_file_holds_hashes_only_and_belongs_to_its_owner(tmp_path):
    path = tmp_path / "tokens.json"
    secret = add_token(path, "me", ("read",), None)
    other = add_token(path, "you", ("admin", "read"), time.time() + 60.0)
    assert secret not in path.read_text() and secret.removeprefix("tether_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(secret) > 45 and secret != other
    tokens = read_tokens(path)
    assert caller_of(tokens, f"Bearer {secret}", time.time()).roles == ("read",)
    assert caller_of(tokens, f"bearer {other}", time.time()).name == "you"
    assert caller_of(tokens, f"Bearer {other}", time.time() + 61.0) is None
    for header in (None, "", "Bearer", f"Bearer x{secret}", secret, f"Basic {secret}", f"Bearer {tokens[0].sha256}"):
        assert caller_of(tokens, header, time.time()) is None
    remove_token(path, "me")
    assert caller_of(read_tokens(path), f"Bearer {secret}", time.time()) is None


@pytest.mark.parametrize("text", ["", "[]", '{"tokens": []}', '{"tokens": [{"name": "x"}]}', '{"format": "other"}'])
def test_a_file_that_is_not_one_of_tokens_is_refused(tmp_path, text):
    path = tmp_path / "tokens.json"
    path.write_text(text)
    with pytest.raises(InputError, match="token"):
        read_tokens(path)


def test_the_command_line_makes_lists_and_removes_tokens(tmp_path):
    path, run = str(tmp_path / "tokens.json"), CliRunner()
    made = run.invoke(cli, ["token", "new", path, "--name", "me", "--role", "read", "--role", "admin", "--days", "1"])
    assert made.exit_code == 0 and made.stdout.startswith("tether_") and len(made.stdout.split()) == 1
    kept = json.loads((tmp_path / "tokens.json").read_text())["tokens"][0]
    assert kept["roles"] == ["read", "admin"] and abs(kept["expires"] - time.time() - 86400.0) < 60.0
    shown = run.invoke(cli, ["token", "list", path]).stdout
    assert "me" in shown and "admin" in shown and made.stdout.strip() not in shown
    for wrong in (["--name", "me", "--role", "read"], ["--name", "x", "--role", "king"]):
        assert run.invoke(cli, ["token", "new", path, *wrong]).exit_code != 0
    assert run.invoke(cli, ["token", "remove", path, "nobody"]).exit_code != 0
    assert run.invoke(cli, ["token", "remove", path, "me"]).exit_code == 0


def test_check_says_whether_a_service_would_start_and_starts_nothing(tmp_path):
    (tmp_path / "served_problem.py").write_text(MODULE)
    run = CliRunner()
    good = run.invoke(cli, ["serve", "--check", str(written(tmp_path, 'problem = "served_problem:problem"'))])
    assert good.exit_code == 0 and "127.0.0.1" in good.stdout, good.output
    for text, said in (
        ('problem = "served_problem:nothing"', "nothing"),
        ('problem = "no_such_module:problem"', "no_such_module"),
        ('problem = "served_problem:problem"\ntokens = "none.json"', "none.json"),
        ('problem = "served_problem:problem"\nstore = "no/such/folder/log.db"', "log"),
        ('problem = "served_problem:problem"\nhost = "0.0.0.0"', "no tokens"),
    ):
        bad = run.invoke(cli, ["serve", "--check", str(written(tmp_path, text))])
        assert bad.exit_code != 0 and said in bad.output and "Traceback" not in bad.output, bad.output


def test_a_log_of_another_problem_is_refused_before_anything_listens(tmp_path):
    Advisor(world_and_streams(noise=0.04)[0].problem, tmp_path / "decisions.db").close()
    (tmp_path / "served_problem.py").write_text(MODULE)
    told = CliRunner().invoke(cli, ["serve", "--check", str(written(tmp_path, 'problem = "served_problem:problem"'))])
    assert told.exit_code != 0 and "another problem" in told.output


def test_ctrl_c_before_the_service_is_up_says_what_is_true_of_a_service(tmp_path, monkeypatch):
    def interrupted(config, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("tether.service.run.check_start", interrupted)
    told = CliRunner().invoke(cli, ["serve", "--check", str(written(tmp_path, 'problem = "a:b"'))])
    assert told.exit_code == 130 and "runs" not in told.output
    assert told.output == "stopped. What was acknowledged is in the log; the same command starts the service again.\n"
