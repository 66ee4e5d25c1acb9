"""A log of edition 3 or 4 (`edition3.jsonl.gz`, …, written by the code of that edition) becomes data of a new one.

It holds 24 decisions, `old-000` to `old-023`, and three imported rows, and ends stopped. The outcomes came in this
order: 12 to 23, 0 to 9, 11; the outcome of `old-010` never came; that of `old-005` has no cost.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tether import Advisor, Problem, SlucbConfig
from tether.cli import app
from tether.errors import InputError
from tether.live.log import open_store
from tether.live.log.chain import Draft, entry_of, verify_store
from tether.live.log.memory import MemoryStore
from tether.live.log.sqlite import SqliteStore
from tether.live.migrate import migrate
from tether.live.policy import Guards
from worlds import world_and_streams

WORLD = world_and_streams(3, horizon=1)[0]
HERE = __name__


def problem():
    return WORLD.problem


@pytest.fixture(params=[3, 4])
def edition(request):
    return request.param


@pytest.fixture
def old(edition, tmp_path):
    """The path of the old log, as a database."""
    packed = Path(__file__).parent / f"edition{edition}.jsonl.gz"
    first, *lines = gzip.decompress(packed.read_bytes()).splitlines()
    store = SqliteStore(tmp_path / "old.db", identity=json.loads(first)["log"])
    entries = [entry_of(json.loads(line)) for line in lines]
    store._write(lambda connection: store._insert(connection, entries))
    store.close()
    return tmp_path / "old.db"


def opened(path):
    return open_store(path, read_only=True)


def outcomes(store):
    return {entry.body["decision_id"]: entry.body for entry in store.read() if entry.kind == "outcome"}


def test_only_a_prefix_in_the_order_of_decisions_counts(edition, old, tmp_path):
    with pytest.raises(InputError, match="another version of Tether"):
        Advisor(problem(), old)
    done = migrate(opened(old), tmp_path / "new.db", problem())
    assert (done.edition, done.decisions, done.used, done.imported, done.stopped) == (edition, 24, 10, 3, True)
    assert "Decision old-010 has no outcome: 13 outcomes of later decisions were left out" in " ".join(done.notes)
    told = "The old log counted outcomes in the order in which they came", "taken from the problem as it is now"
    for words in told:
        assert any(words in note for note in done.notes) == (edition == 3)
    new = Advisor(problem(), tmp_path / "new.db", refresh=None)
    seen = outcomes(opened(old))
    x = [entry.body["rows"] for entry in opened(old).read() if entry.kind == "warm-start"]
    features = [np.array(row["feature"]) for row in x[0]]
    features += [np.array(seen[f"old-{n:03d}"]["feature"]) for n in range(10) if n != 5]
    gram = sum(np.outer(phi, phi) for phi in features)
    learner = new.replica.learner
    found = learner.gate.arrays()["gram"][0]  # of the outcomes with a cost, and of those alone
    assert np.allclose(found, gram + learner.agent.costs.ridge * np.eye(3), rtol=0.0, atol=1e-12)
    assert new.status().lost == 1  # old-005, whose cost was not measured
    assert new.status().mode == "shadow" and "maintenance" in new.status().stopped
    assert new.decide(0).is_baseline
    source = [entry.body["source"] for entry in new.store.read() if entry.kind == "warm-start"][-1]
    head = opened(old).head()
    assert source == f"migration of {opened(old).identity()}, edition {edition}, up to {head.seq}:{head.hash}"
    assert verify_store(opened(old)).fault is None and verify_store(new.store).fault is None


def test_outcomes_that_never_come_may_be_said_to_be_lost_by_chance(old, tmp_path):
    done = migrate(opened(old), tmp_path / "new.db", problem(), lost="the sensor's battery was empty")
    assert done.used == 24
    assert "1 outcomes never came and are taken as lost by chance: the sensor's battery was empty" in done.notes
    assert Advisor(problem(), tmp_path / "new.db").status().data_version == 3 + 23


def test_a_second_migration_adds_nothing(old, tmp_path):
    for _ in range(2):
        migrate(opened(old), tmp_path / "new.db", problem())
    assert Advisor(problem(), tmp_path / "new.db").status().data_version == 3 + 10
    kinds = [entry.kind for entry in opened(tmp_path / "new.db").read()]
    assert kinds == ["configured", "warm-start", "warm-start", "stopped"]


def test_the_new_log_has_the_options_of_the_old_one(tmp_path):
    now, before = MemoryStore(), MemoryStore()
    Advisor(problem(), now, config=SlucbConfig(pooled=True), guards=Guards(lost_after=60.0))
    before.append([Draft("configured", now.read()[0].body | {"edition": 4})])
    migrate(before, tmp_path / "new.db", problem())
    told, kept = now.read()[0].body, opened(tmp_path / "new.db").read()[0].body
    assert (kept["config"], kept["guards"]) == (told["config"], told["guards"])
    assert kept["config"]["pooled"] and kept["guards"]["lost_after"] == 60.0


def test_another_problem_and_other_editions_are_refused(old, tmp_path):
    told = {name: getattr(problem(), name) for name in Problem.__dataclass_fields__}
    with pytest.raises(InputError, match="about another problem: its noise"):
        migrate(opened(old), tmp_path / "new.db", Problem(**{**told, "noise": 0.5}))
    current = MemoryStore()
    Advisor(problem(), current)
    with pytest.raises(InputError, match="nothing to migrate"):
        migrate(current, tmp_path / "new.db", problem())
    other = world_and_streams(3, horizon=1, states=4)[0].problem
    scaled = {**told, "actions": lambda state: _scaled(other, state)}
    with pytest.raises(InputError, match=r"has other features"):
        migrate(opened(old), tmp_path / "new.db", Problem(**{**scaled, "states": None}))


def _scaled(given, state):
    actions = given.look_up(state).actions
    return type(actions)(actions.phi_0, actions.endpoints * 0.5)


def test_the_command_says_what_it_did(old, tmp_path):
    done = CliRunner().invoke(
        app, ["audit", "migrate", str(old), str(tmp_path / "new.db"), "--problem", f"{HERE}:problem"]
    )
    assert done.exit_code == 0, done.output
    assert "10 of 24 decisions, and 3 imported rows" in done.output and "shadow mode and stopped" in done.output
    assert "- Decision old-010 has no outcome" in done.output
