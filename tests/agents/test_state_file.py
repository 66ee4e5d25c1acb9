"""Saved states under attack: cut short, altered, foreign, edited, half written. The old file and the agent survive."""

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.cases import CASES
from limits import stated
from tether import Constraint, InputError, LsviUcb, Problem, SlucbConfig, SlucbQvi, StateFileError
from tether.agents import state_file
from tether.agents.testing import changed, essence, play, snapshot
from tether.lab.worlds.linear_mdp import Streams
from worlds import small_world, two_constraints

WORLD = small_world()


@pytest.fixture(scope="module")
def agent():
    """An agent in the middle of an episode, with an open decision; no test changes it."""
    made = SlucbQvi(WORLD.problem)
    play(WORLD, made, Streams.from_seed(71), 6)
    made.plan()
    made.act(0, 1)
    return made


@pytest.fixture(scope="module")
def saved(agent, tmp_path_factory):
    """Its file, as bytes."""
    path = tmp_path_factory.mktemp("state") / "agent.tether"
    agent.save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder for spoilt copies."""
    return tmp_path_factory.mktemp("spoilt")


def restore_bytes(room, data, **told):
    path = room / "copy.tether"
    path.write_bytes(data)
    return SlucbQvi.restore(path, WORLD.problem, **told)


def refuse(room, data):
    """A bad file gives a StateFileError that names the file, and nothing else."""
    with pytest.raises(StateFileError, match=r"copy\.tether"):
        restore_bytes(room, data)


def repack(saved, *, manifest=None, arrays=None, drop=()):
    """The same file after an edit, with hashes that match the edit: what a careful but mistaken hand would write."""
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        facts = json.loads(archive.read("manifest.json"))
        contents = {name: archive.read(f"{name}.npy") for name in facts["arrays"]}
    if arrays:
        contents.update(arrays)
    for name in drop:
        del contents[name]
    facts["arrays"] = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    if manifest:
        manifest(facts)
    text = json.dumps(facts).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("manifest.json", text)
        archive.writestr("manifest.sha256", hashlib.sha256(text).hexdigest())
        for name, data in contents.items():
            archive.writestr(f"{name}.npy", data)
    return out.getvalue()


def npy(array):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=True)
    return out.getvalue()


def load(saved, name):
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        return np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)


def test_repacking_without_an_edit_changes_nothing(saved, agent, room):
    """Otherwise the refusals below would prove nothing about the edits."""
    assert changed(snapshot(agent), snapshot(restore_bytes(room, repack(saved)))) == []


# --- damage -----------------------------------------------------------------------------------------------------------


def test_every_truncation_is_refused(saved, room):
    """All prefixes up to 200 bytes, all within 200 bytes of the end, and one in 211 between."""
    lengths = {*range(200), *range(len(saved) - 200, len(saved)), *range(200, len(saved), 211)}
    for length in sorted(lengths):
        refuse(room, saved[:length])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_flipped_bit_is_refused_or_harmless(saved, agent, room, data):
    """Some bytes of a zip file mean nothing (dates, attributes): there the restored agent must be the very same."""
    where = data.draw(st.integers(0, len(saved) - 1), label="byte")
    bit = data.draw(st.integers(0, 7), label="bit")
    altered = bytearray(saved)
    altered[where] ^= 1 << bit
    try:
        restored = restore_bytes(room, bytes(altered))
    except StateFileError:
        return
    assert changed(snapshot(agent), snapshot(restored)) == []


@pytest.mark.parametrize("value", [0x00, 0x01, 0x80, 0xFF])
def test_damage_in_the_zip_directory_is_refused_or_harmless(saved, agent, room, value):
    """The directory decides how every member is read: version, encryption flag, compression method, sizes, offsets."""
    start = saved.index(b"PK\x01\x02")
    first_entry = range(start, start + 60)
    last_entry = range(saved.rindex(b"PK\x01\x02"), len(saved))
    expected = snapshot(agent)
    for where in [*range(0, 64), *first_entry, *last_entry]:
        altered = bytearray(saved)
        altered[where] ^= value or 0x20
        try:
            restored = restore_bytes(room, bytes(altered))
        except StateFileError:
            continue
        assert changed(expected, snapshot(restored)) == []


def test_bytes_added_at_either_end_are_refused_or_harmless(saved, agent, room):
    for altered in (saved + b"x", saved + b"\0" * 100, b"x" + saved, b"#!/bin/sh\n" + saved):
        try:
            restored = restore_bytes(room, altered)
        except StateFileError:
            continue
        assert changed(snapshot(agent), snapshot(restored)) == []


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + b"\0" * 18, b"not a zip at all" * 10, b"\0" * 4096])
def test_files_that_are_no_saved_state_are_refused(content, room):
    refuse(room, content)


def test_a_foreign_zip_is_refused(room):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")
    refuse(room, out.getvalue())


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "7", '"text"', "{", "{}", '{"format": 1}', "\ufeff{}", "[" * 5000 + "]" * 5000]
)
def test_a_zip_with_a_foreign_manifest_is_refused(text, room):
    out, data = io.BytesIO(), text.encode()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("manifest.json", data)
        archive.writestr("manifest.sha256", hashlib.sha256(data).hexdigest())
    refuse(room, out.getvalue())


def with_member(saved, changed, content):
    """A saved state with another content of one member, and no other hash."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved)) as archive, zipfile.ZipFile(out, "w") as altered:
        for name in archive.namelist():
            altered.writestr(name, content if name == changed else archive.read(name))
    return out.getvalue()


def test_a_manifest_edited_by_hand_is_refused(saved, room):
    """The text changes, its hash does not."""
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        manifest = archive.read("manifest.json")
    assert b'"confidence":0.01' in manifest
    edited = manifest.replace(b'"confidence":0.01', b'"confidence":0.02')
    with pytest.raises(StateFileError, match=r"manifest was altered"):
        restore_bytes(room, with_member(saved, "manifest.json", edited))


def test_an_array_exchanged_by_hand_is_refused_by_name(saved, room):
    with pytest.raises(StateFileError, match=r"'costs\.gram' was altered"):
        restore_bytes(room, with_member(saved, "costs.gram.npy", npy(np.zeros((3, 3, 3)))))


# --- files whose hashes match, but which do not fit -------------------------------------------------------------------

ENTRIES = ("kind", "config", "problem", "keys", "order", "decisions", "outcomes", "plan_version", "warmup", "arrays")


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("value", ["missing", None, "text", [[1]], {"a": 1}, -7])
def test_a_manifest_entry_that_is_missing_or_of_the_wrong_kind_is_refused(entry, value, saved, room):
    def edit(facts):
        if value == "missing":
            del facts[entry]
        else:
            facts[entry] = value

    if (entry, value) == ("plan_version", -7):
        pytest.skip("a negative plan version means that nothing was planned yet")
    refuse(room, repack(saved, manifest=edit))


FEATURE = [0.0] * WORLD.problem.dimension
OPEN = {"id": 0, "step": 0, "feature": FEATURE, "since": None, "outcome": None}
SEEN = {"feature": FEATURE, "cost": None, "reward": 0.5, "key": None}

EDITS = {
    "an unknown setting": lambda m: m["config"].update(zeal=1),
    "a misspelt setting": lambda m: m["config"].update(explorer="brave"),
    "a setting of the wrong kind": lambda m: m["config"].update(value_ridge="one"),
    "a missing state": lambda m: m["keys"].pop(),
    "one state twice": lambda m: m["keys"].__setitem__(0, m["keys"][1]),
    "an extra state": lambda m: m["keys"].append(99),
    "an unhashable state": lambda m: m["keys"].__setitem__(0, [1]),
    "a state of an unknown tag": lambda m: m["keys"].__setitem__(0, {"set": [1]}),
    "an open decision that was never made": lambda m: m["order"].append({**OPEN, "id": 10**9}),
    "an open decision that is text": lambda m: m["order"].append("7"),
    "an open decision of no step": lambda m: m["order"].append({**OPEN, "step": 99}),
    "an open decision of another dimension": lambda m: m["order"].append({**OPEN, "feature": [0.5]}),
    "a waiting cost that is not finite": lambda m: m["order"].append({**OPEN, "outcome": {**SEEN, "cost": [1e999]}}),
    "a waiting outcome without a reward": lambda m: m["order"].append({**OPEN, "outcome": {**SEEN, "reward": None}}),
    "more outcomes planned on than seen": lambda m: m.update(plan_version=10**9),
    "fractional counters": lambda m: m.update(decisions=1.5),
    "another format": lambda m: m.update(format="tether-state-0"),
    "another kind": lambda m: m.update(kind="lsvi-ucb"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_inconsistent_manifest_is_refused(edit, saved, room):
    refuse(room, repack(saved, manifest=EDITS[edit]))


def test_arrays_of_objects_are_refused_and_never_unpickled(saved, room):
    """allow_pickle would run this; it must end as a StateFileError, not as a file on disk."""
    marker = room / "pickle-was-run"

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (marker,))

    refuse(room, repack(saved, arrays={"plan.weights": npy(np.array([Bomb()], dtype=object))}))
    assert not marker.exists()


@pytest.mark.parametrize("data", [b"", b"hello", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 100])
def test_members_that_are_no_arrays_are_refused(data, saved, room):
    refuse(room, repack(saved, arrays={"plan.weights": data}))


def _reshaped(saved, name, change):
    return {name: npy(change(load(saved, name)))}


MISFITS = {
    "fewer dimensions": ("costs.gram", lambda a: a[0]),
    "another dimension d": ("costs.factor", lambda a: a[:, :2, :2].copy()),
    "fewer stages": ("values.factor", lambda a: a[:1].copy()),
    "single precision": ("costs.factor", lambda a: a.astype(np.float32)),
    "integers for numbers": ("plan.weights", lambda a: a.astype(np.int64)),
    "numbers for integers": ("plan.row", lambda a: a.astype(np.float64)),
    "an empty array": ("plan.bound", lambda a: a[:0].copy()),
    "fewer table rows than states need": ("tables.features", lambda a: a[:, :3].copy()),
    "fewer slots in the sums than in the tables": ("values.transition_moment", lambda a: a[:, :1].copy()),
    "more slots than states": ("tables.slots", lambda a: a + 1000),
    "rows that start past the end": ("tables.start", lambda a: a * 1000),
    "rows that start before zero": ("tables.start", lambda a: a - 5),
    "tables built for states that do not exist": ("tables.built", lambda a: a + 1000),
    "a plan for states that do not exist": ("plan.planned", lambda a: a + 1000),
    "a planned row that does not exist": ("plan.row", lambda a: a + 1000),
    "a reason that does not exist": ("plan.reason", lambda a: a + 100),
    "more pending updates than there is room for": ("costs.owed.count", lambda a: a + 1000),
    "a planned length over 1": ("plan.length", lambda a: a + 2.0),
}


@pytest.mark.parametrize("name", MISFITS)
def test_arrays_that_do_not_fit_are_refused_before_compiled_code_reads_them(name, saved, room):
    """Kernels do not check bounds: a file whose arrays are too small must never reach them."""
    array, change = MISFITS[name]
    refuse(room, repack(saved, arrays=_reshaped(saved, array, change)))


def test_a_missing_array_is_refused_by_name(saved, room):
    with pytest.raises(StateFileError, match=r"costs\.moment"):
        restore_bytes(room, repack(saved, drop=["costs.moment"]))


# --- another agent, another problem -----------------------------------------------------------------------------------


def test_a_state_of_another_kind_of_agent_is_refused(tmp_path):
    LsviUcb(WORLD.problem).save(tmp_path / "lsvi.tether")
    with pytest.raises(StateFileError, match=r"'lsvi-ucb'.*'slucb-qvi'"):
        SlucbQvi.restore(tmp_path / "lsvi.tether", WORLD.problem)


def _problem(**changes):
    """The world's own problem, with one thing changed."""
    costs = np.array([[WORLD.problem.baseline_cost(h, s) for s in range(4)] for h in range(3)])
    told = {
        "phi_0": WORLD.phi_0,
        "endpoints": WORLD.endpoints,
        "baseline_cost_error": 0.0,
        "baseline_cost": costs,
        "horizon": 3,
        "threshold": WORLD.problem.threshold,
        "noise": WORLD.problem.noise,
        "confidence": WORLD.problem.confidence,
        "gamma_norm": WORLD.problem.gamma_norm,
    }
    return Problem.from_rays(**stated(**{**told, **changes}))


OTHERS = {
    "τ": lambda: _problem(threshold=0.6),
    "σ": lambda: _problem(noise=0.5),
    "δ": lambda: _problem(confidence=0.1),
    "B": lambda: _problem(gamma_norm=9.0),
    "unknown safe costs": lambda: _problem(baseline_cost=None),
    "other safe costs": lambda: _problem(baseline_cost=np.full((3, 4), 0.3)),
    "one other safe cost": lambda: _problem(
        baseline_cost=np.array([[WORLD.problem.baseline_cost(h, s)[0] for s in range(4)] for h in range(3)])
        + 0.05 * np.eye(3, 4)
    ),
    "other endpoints": lambda: _problem(endpoints=WORLD.endpoints[:, ::-1]),
    "fewer endpoints": lambda: _problem(endpoints=WORLD.endpoints[:, :3]),
    "other safe features": lambda: _problem(phi_0=WORLD.phi_0[::-1]),
    "fewer states": lambda: _problem(
        phi_0=WORLD.phi_0[:2], endpoints=WORLD.endpoints[:2], baseline_cost=np.full((3, 2), 0.1)
    ),
    "another horizon": lambda: small_world(horizon=2).problem,
    "two constraints": lambda: two_constraints().problem,
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_state_learned_on_another_problem_is_refused(what, saved, room):
    path = room / "copy.tether"
    path.write_bytes(saved)
    assert SlucbQvi.restore(path, _problem()).data_version == 18  # the same problem, made anew, is fine
    with pytest.raises(StateFileError, match=r"copy\.tether"):
        SlucbQvi.restore(path, OTHERS[what]())


def _named(star, cost):
    """States called "a" and "b", served by functions: listed, but not by number."""
    return Problem(
        horizon=1,
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=lambda h, s: cost if s == "b" else 0.2),
        dimension=3,
        actions=lambda s: star if s == "b" else WORLD.problem.actions(0),
        states=["a", "b"],
    )


def test_listed_states_with_names_are_compared_too(tmp_path):
    before = _named(WORLD.problem.actions(1), 0.2)
    agent = SlucbQvi(before)
    agent.register(["a", "b"])
    agent.save(tmp_path / "agent.tether")
    assert SlucbQvi.restore(tmp_path / "agent.tether", before).data_version == 0
    for other in (_named(WORLD.problem.actions(2), 0.2), _named(WORLD.problem.actions(1), 0.4)):
        with pytest.raises(StateFileError, match=r"agent\.tether.*'b'"):
            SlucbQvi.restore(tmp_path / "agent.tether", other)


def test_a_state_saved_with_isolated_actions_is_not_restored_onto_a_star(tmp_path):
    """Same features, but nothing between them could be played when the state was saved, and now it could."""
    rows = np.array([[0.5, 0.5], [1.0, 0.0]])
    told = {"horizon": 1, "threshold": 0.5, "noise": 0.1, "baseline_cost_error": 0.0, "baseline_cost": [[0.2]]}
    finite = Problem.from_table(features=rows[None], baseline_action=[0], **stated(**told))
    star = Problem.from_rays(phi_0=rows[:1], endpoints=rows[None], **stated(**told))
    agent = SlucbQvi(finite)
    agent.register([0])
    agent.save(tmp_path / "agent.tether")
    with pytest.raises(StateFileError, match=r"state 0"):
        SlucbQvi.restore(tmp_path / "agent.tether", star)


@pytest.mark.parametrize("told", ["nothing", "another γ*"])
def test_an_agent_that_was_told_gamma_must_be_told_the_same_again(told, tmp_path):
    LsviUcb(WORLD.problem, true_gamma=WORLD.true_gamma).save(tmp_path / "lsvi.tether")
    again = {} if told == "nothing" else {"true_gamma": 0.5 * WORLD.true_gamma}
    with pytest.raises((StateFileError, InputError), match=r"γ\*|true_gamma"):
        LsviUcb.restore(tmp_path / "lsvi.tether", WORLD.problem, **again)


def test_an_agent_that_was_told_nothing_says_so_when_it_is_told_gamma(tmp_path):
    LsviUcb(WORLD.problem).save(tmp_path / "lsvi.tether")
    with pytest.raises((StateFileError, InputError), match=r"not told|without"):
        LsviUcb.restore(tmp_path / "lsvi.tether", WORLD.problem, true_gamma=WORLD.true_gamma)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(StateFileError, match=r"no saved state at .*nowhere\.tether"):
        SlucbQvi.restore(tmp_path / "nowhere.tether", WORLD.problem)
    with pytest.raises(StateFileError, match=r"nowhere"):
        SlucbQvi.restore(tmp_path / "nowhere" / "agent.tether", WORLD.problem)
    with pytest.raises(StateFileError):
        SlucbQvi.restore(tmp_path, WORLD.problem)


def test_a_folder_that_does_not_exist_or_is_a_file_is_an_error_that_names_it(agent, tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "nowhere" / "agent.tether", tmp_path / "file" / "agent.tether"):
        with pytest.raises(StateFileError, match=r"cannot write .*agent\.tether"):
            agent.save(path)
    with pytest.raises(StateFileError):
        agent.save(Path())


def test_a_read_only_folder_is_an_error_that_names_the_file(agent, tmp_path, monkeypatch):
    """Simulated, because the superuser may write anywhere; on a real one as well, where that is possible."""
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    if os.geteuid() == 0:
        real = os.open

        def locked(path, flags, *args, **kwargs):
            if folder in Path(path).parents and flags & os.O_WRONLY:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, flags, *args, **kwargs)

        monkeypatch.setattr(os, "open", locked)
    with pytest.raises(StateFileError, match=r"cannot write .*agent\.tether: Permission denied"):
        agent.save(folder / "agent.tether")
    assert list(folder.iterdir()) == []


def _crash(*_args, **_kwargs):
    raise OSError(28, "No space left on device")


def _power_cut(*_args, **_kwargs):
    raise KeyboardInterrupt


@pytest.mark.parametrize("moment", ["fsync", "replace"])
@pytest.mark.parametrize(("crash", "error"), [(_crash, StateFileError), (_power_cut, KeyboardInterrupt)])
def test_a_crash_while_writing_leaves_the_old_file_intact(moment, crash, error, agent, tmp_path, monkeypatch):
    path = tmp_path / "agent.tether"
    older = SlucbQvi(WORLD.problem)
    older.save(path)
    before, state = path.read_bytes(), snapshot(agent)
    with monkeypatch.context() as patched:
        patched.setattr(os, moment, crash)
        with pytest.raises(error):
            agent.save(path)
    assert path.read_bytes() == before
    assert changed(state, snapshot(agent)) == []
    assert SlucbQvi.restore(path, WORLD.problem).data_version == 0
    agent.save(path)  # and what was left behind is no obstacle
    assert SlucbQvi.restore(path, WORLD.problem).data_version == agent.data_version
    assert [file.name for file in tmp_path.iterdir()] == ["agent.tether"]


@pytest.mark.parametrize("fails_at", range(0, 40, 3))
def test_a_disk_that_fills_up_leaves_the_old_file_intact(fails_at, agent, tmp_path, monkeypatch):
    path = tmp_path / "agent.tether"
    agent.save(path)
    before, written = path.read_bytes(), []
    real = zipfile.ZipFile.writestr

    def full(self, *args, **kwargs):
        written.append(args[0])
        if len(written) > fails_at:
            _crash()
        return real(self, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(zipfile.ZipFile, "writestr", full)
        with pytest.raises(StateFileError, match="No space left"):
            agent.save(path)
    assert path.read_bytes() == before


def test_a_failed_save_leaves_no_litter(agent, tmp_path, monkeypatch):
    """A folder where saves fail over and over must not fill up with partial files."""
    monkeypatch.setattr(os, "fsync", _crash)
    with pytest.raises(StateFileError):
        agent.save(tmp_path / "agent.tether")
    assert list(tmp_path.iterdir()) == []


def test_the_file_reaches_the_disk_before_it_gets_its_name(agent, tmp_path, monkeypatch):
    order = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b, **k: (order.append("replace"), rename(a, b, **k)))
    agent.save(tmp_path / "agent.tether")
    assert order[:2] == ["fsync", "replace"]


# --- what is inside ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_no_saved_state_needs_pickle(name, tmp_path):
    case = CASES[name]
    made = case.make()
    play(case.world, made, Streams.from_seed(72), 2)
    made.save(tmp_path / "agent.tether")
    with zipfile.ZipFile(tmp_path / "agent.tether") as archive:
        for member in archive.namelist():
            data = archive.read(member)
            if member.endswith(".npy"):
                array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
                assert not array.dtype.hasobject, member
            else:
                data.decode()
                assert member in ("manifest.json", "manifest.sha256")
        facts = json.loads(archive.read("manifest.json"))
    assert {"format", "tether", "numpy", "kernel", "kind", "config", "problem"} <= facts.keys()
    assert facts["kernel"].startswith(("cython-", "python-"))


def test_keys_survive_the_manifest():
    for key in [None, True, 0, -(10**30), 0.1, "x", b"\0\xff", (), ((1,), "a", (b"b", (None,))), ("tuple", "bytes")]:
        text = json.dumps(state_file.encode_key(key))
        back = state_file.decode_key(json.loads(text))
        assert back == key
        assert hash(back) == hash(key)
        assert type(back) is type(key)


def test_a_refused_file_changes_no_agent_and_no_file(agent, saved, room):
    before = snapshot(agent)
    for spoilt in (saved[:-1], saved[100:], repack(saved, manifest=lambda m: m.pop("order"))):
        path = room / "copy.tether"
        path.write_bytes(spoilt)
        with pytest.raises(Exception, match=r"."):
            SlucbQvi.restore(path, WORLD.problem)
        assert path.read_bytes() == spoilt
    assert changed(before, snapshot(agent)) == []


def test_a_restored_agent_shares_nothing_with_the_file_or_with_another(saved, room):
    one, two = restore_bytes(room, saved), restore_bytes(room, saved)
    before = snapshot(two)
    play(WORLD, one, Streams.from_seed(73), 3)
    assert changed(before, snapshot(two)) == []
    config = SlucbConfig(backup="tables", replan="every-episode")  # what "auto" stands for where states are listed
    assert essence(two.config) == essence(config)
