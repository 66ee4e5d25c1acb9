"""The runner: whatever happens, finished work is kept, nothing is counted twice, and the numbers stay the same."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tether
from tether.errors import InputError, TetherError
from tether.lab import books, registry, runner, specs, storage
from tether.lab.engines import InProcess, Local, WorkerDied, make_engine
from tether.lab.registry import AgentKind
from tether.lab.runner import Listener, run_study

SPEC = """
name = "tiny"
episodes = 600
seeds = 3

[[worlds]]
name = "synthetic"
options = { states = 3, rays = 4, dimension = 3, horizon = 2 }

[[agents]]
name = "slucb-qvi"
label = "ours"
options = { explorer = "directional", value_radius = 1.0 }

[[agents]]
name = "lsvi-ucb-told"
label = "told"
options = { value_radius = 1.0 }
"""
STUDY = specs.parse(SPEC, "tiny.toml")


class Recorder(Listener):
    """Remembers what it was told."""

    def __init__(self):
        self.kept, self.episodes, self.failures, self.finished_runs = 0, 0, [], 0

    def started(self, study, total, kept):
        self.total, self.kept = total, kept

    def advanced(self, unit, episodes):
        self.episodes += episodes

    def finished(self, unit, seconds):
        self.finished_runs += 1

    def failed(self, failure):
        self.failures.append(failure)


def fragile():
    """SLUCB-QVI, except that it cannot be built for one instance."""
    shipped = registry.AGENTS.get("slucb-qvi")
    built = []

    def build(world, options):
        built.append(world)
        if len(built) == 3:  # the first is the one that labels the cell, the third is seed 1
            raise RuntimeError("a planted fault")
        return shipped.build(world, options)

    return AgentKind(shipped.summary, shipped.options, build, shipped.explorer)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of an undisturbed run in this process."""
    folder = tmp_path_factory.mktemp("truth")
    run_study(STUDY, folder, InProcess())
    return folder


@pytest.fixture(scope="module")
def truth(undisturbed):
    """The digest of an undisturbed run."""
    return books.load(undisturbed).digest()


@pytest.fixture
def finished(undisturbed, tmp_path):
    """A copy of the folder of an undisturbed run."""
    return Path(shutil.copytree(undisturbed, tmp_path / "finished"))


def test_a_second_run_keeps_everything_and_repeats_nothing(tmp_path, truth):
    first, second = Recorder(), Recorder()
    run_study(STUDY, tmp_path, InProcess(), first)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    done = run_study(STUDY, tmp_path, InProcess(), second)
    assert (first.total, first.kept, first.finished_runs, first.episodes) == (6, 0, 6, 3600)
    assert (done.ran, done.kept, second.kept, second.episodes) == (0, 6, 6, 0)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    assert books.load(tmp_path).digest() == truth


@pytest.mark.parametrize("damage", ["truncated", "empty", "foreign", "half-written", "gone"])
def test_damaged_work_is_redone_and_the_rest_is_kept(finished, truth, damage):
    part, other = sorted((finished / "runs").iterdir())[:2]
    if damage == "truncated":
        part.write_bytes(part.read_bytes()[:-100])
    elif damage == "empty":
        part.write_bytes(b"")
    elif damage == "foreign":
        part.write_bytes(other.read_bytes())
    elif damage == "half-written":
        part.rename(part.with_name(f".{part.name}{storage.UNFINISHED}"))
    else:
        part.unlink()
    done = run_study(STUDY, finished, InProcess())
    assert (done.ran, done.kept) == (1, 5)
    assert books.load(finished).digest() == truth
    assert len(list((finished / "runs").iterdir())) == 6


def test_results_of_other_code_are_not_mixed_in(finished, monkeypatch):
    monkeypatch.setattr(runner, "CODE", "another version")
    assert run_study(STUDY, finished, InProcess()).ran == 6


def test_every_source_that_numbers_depend_on_is_in_the_hash(monkeypatch):
    """Each of them exists, and an agent, a kernel, a world and the simulation are among them."""
    package = Path(tether.__file__).parent
    assert [name for name in runner.NUMERICS if not (package / name).exists()] == []
    read = []
    monkeypatch.setattr(specs, "spec_hash", lambda content: read.extend(name for name, _ in content))
    specs.source_hash(runner.NUMERICS)
    assert {"agents/slucb.py", "kernels/plan.py", "lab/worlds/synthetic.py", "lab/simulate.py"} <= set(read)
    assert {"lab/episodes.py", "check/monitor.py", "problem/problem.py", "records.py"} <= set(read)


def test_a_stale_run_is_not_counted_when_its_successor_fails(finished, monkeypatch):
    kind = fragile()
    monkeypatch.setattr(runner, "CODE", "another version")
    monkeypatch.setitem(registry.AGENTS.shipped, "slucb-qvi", lambda: kind)
    done = run_study(STUDY, finished, InProcess())
    assert [seed for _, seed in books.load(finished).missing] == [failure.seed for failure in done.failures] == [1]


def test_a_worker_with_other_code_refuses_instead_of_mixing_its_numbers_in(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "CODE", "another version")  # here, but not in the spawned workers
    done = run_study(STUDY, tmp_path, Local(2))
    assert done.ran == 0 and len(done.failures) == 6
    assert all("put the same Tether on every machine" in failure.message for failure in done.failures)


def test_another_spec_in_the_same_folder_is_not_counted(tmp_path, truth):
    run_study(STUDY.resized(first_seed=7), tmp_path, InProcess())
    run_study(STUDY, tmp_path, InProcess())
    loaded = books.load(tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 12 and loaded.digest() == truth
    assert all(cell.seeds == (0, 1, 2) for cell in loaded.cells)


def test_any_number_of_workers_gives_the_same_bits(tmp_path, truth):
    for workers in (1, 2):
        recorder = Recorder()
        done = run_study(STUDY, tmp_path / str(workers), Local(workers), recorder)
        assert (done.ran, recorder.episodes) == (6, 3600)
        assert books.load(tmp_path / str(workers)).digest() == truth


@pytest.mark.slow
def test_ray_gives_the_same_bits(tmp_path, truth):
    ray = pytest.importorskip("ray", reason="the extra tether-rl[ray] is not installed")
    try:
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    except Exception as error:
        pytest.skip(f"Ray cannot start here: {error}")
    try:
        done = run_study(STUDY, tmp_path / "joined", make_engine("ray"))
        assert ray.is_initialized()  # a Ray that was there before is left running
    finally:
        ray.shutdown()
    own = run_study(STUDY, tmp_path / "own", make_engine("ray", 2))
    assert not ray.is_initialized()
    assert (done.ran, own.ran) == (6, 6)
    assert books.load(tmp_path / "joined").digest() == books.load(tmp_path / "own").digest() == truth


def test_a_failed_run_is_reported_with_its_seed_and_traceback_and_the_others_finish(tmp_path, monkeypatch):
    kind = fragile()
    monkeypatch.setitem(registry.AGENTS.shipped, "slucb-qvi", lambda: kind)
    recorder = Recorder()
    done = run_study(STUDY, tmp_path, InProcess(), recorder)
    (failure,) = done.failures
    assert recorder.failures == [failure]
    assert (done.ran, failure.seed, failure.message) == (5, 1, "RuntimeError: a planted fault")
    assert "seed 1" in failure.traceback.read_text() and "Traceback" in failure.traceback.read_text()
    assert books.load(tmp_path).missing == ((failure.label, 1),)
    monkeypatch.undo()
    again = run_study(STUDY, tmp_path, InProcess())
    assert (again.ran, again.kept, again.failures) == (1, 5, [])
    assert not failure.traceback.exists()


def square_or_die(unit, tell):
    """A task for the engine: -1 kills its own process, as the system would when memory runs out."""
    if unit < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    print("to the parent's standard output, if nobody prevents it")
    return unit * unit, os.environ["OMP_NUM_THREADS"]


def test_a_worker_that_dies_is_blamed_on_its_unit_and_replaced(capfd):
    units = [0, 1, -1, 3, 4, 5]
    found = dict(Local(2).run(square_or_die, units, lambda index, done: None))
    assert isinstance(found.pop(2), WorkerDied)
    assert found == {i: (i * i, "1") for i in (0, 1, 3, 4, 5)}
    assert capfd.readouterr().out == ""


def test_workers_that_never_get_anywhere_stop_the_study():
    with pytest.raises(TetherError, match="in a row ended without a result"):
        list(Local(1).run(square_or_die, [-1] * 10, lambda index, done: None))


def test_unknown_engines_and_options_are_named():
    with pytest.raises(InputError, match="unknown engine 'rey'; did you mean 'ray'"):
        make_engine("rey")
    with pytest.raises(InputError, match="--address is for the ray engine"):
        make_engine("local", address="auto")


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "permission is denied")],
)
def test_a_disk_that_cannot_take_a_run_stops_with_a_clear_error_and_loses_nothing(tmp_path, monkeypatch, code, words):
    real, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) > 3:  # the manifest and two runs get through
            raise OSError(code, os.strerror(code))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(TetherError, match=words):
        run_study(STUDY, tmp_path, InProcess())
    assert len(list((tmp_path / "runs").iterdir())) == 2  # and nothing half written
    monkeypatch.undo()
    assert run_study(STUDY, tmp_path, InProcess()).kept == 2


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TetherError, match=r"cannot write .*not a folder"):
        run_study(STUDY, tmp_path / "file" / "out", InProcess())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_a_clear_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(TetherError, match="permission is denied"):
        run_study(STUDY, tmp_path / "out", InProcess())


def test_two_runs_in_one_folder_are_refused(tmp_path):
    with storage.sole_writer(tmp_path), pytest.raises(TetherError, match="another tether is writing"):
        run_study(STUDY, tmp_path, InProcess())


def started(tmp_path: Path) -> subprocess.Popen:
    """A study long enough to be interrupted, in a process group of its own."""
    spec = tmp_path / "long.toml"
    spec.write_text(SPEC.replace("episodes = 600", "episodes = 20000").replace("seeds = 3", "seeds = 12"))
    command = [sys.executable, "-m", "tether", "run", str(spec), "--out", str(tmp_path / "out"), "--no-figures"]
    process = subprocess.Popen(
        [*command, "--workers", "2"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a suite that was itself started in the background ignores SIGINT, and its children would inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    runs, deadline = tmp_path / "out" / "tiny" / "runs", time.monotonic() + 120
    while len(list(runs.glob("*.parquet"))) < 3:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    return process


def children_of(process: subprocess.Popen) -> list[Path]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [Path("/proc", child) for child in listed]


def continued(tmp_path: Path) -> dict:
    command = [sys.executable, "-m", "tether", "run", str(tmp_path / "long.toml"), "--out", str(tmp_path / "out")]
    whole = subprocess.run([*command, "--no-figures", "--json"], capture_output=True, text=True, check=True)
    return json.loads(whole.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to watch the workers")
def test_after_kill_9_finished_work_is_kept_and_the_end_result_is_the_same(tmp_path):
    process = started(tmp_path)
    workers = children_of(process)
    process.kill()
    process.wait()
    kept = len(list((tmp_path / "out" / "tiny" / "runs").glob("*.parquet")))
    deadline = time.monotonic() + 60
    while any(worker.exists() for worker in workers):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)
    report = continued(tmp_path)
    assert 3 <= kept < 24 and (report["kept"], report["ran"]) == (kept, 24 - kept)
    assert all(row["seeds"] == 12 for row in report["table"])
    run_study(specs.read(tmp_path / "long.toml"), tmp_path / "whole", Local(2))
    assert books.load(tmp_path / "out" / "tiny").digest() == books.load(tmp_path / "whole").digest()


@pytest.mark.slow
def test_ctrl_c_loses_nothing_and_exits_with_130(tmp_path):
    process = started(tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the parent and its workers alike
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Finished runs are kept" in said and "Traceback" not in said
    report = continued(tmp_path)
    assert report["kept"] >= 3 and report["kept"] + report["ran"] == 24
