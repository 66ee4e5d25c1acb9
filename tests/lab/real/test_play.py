"""Real worlds through the studies' runner, on a stub that needs no package."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from lab.real.stub import HORIZON, STUB, Valve
from tether.errors import InputError, TetherError
from tether.lab import real
from tether.lab.books import Cell, load
from tether.lab.engines import InProcess
from tether.lab.real import play
from tether.lab.real.play import Priced, Recorder
from tether.lab.runner import run_study
from tether.lab.specs import parse
from tether.lab.studies import real as shown
from tether.lab.studies import view_of

SPEC = """
name = "valves"
episodes = 6
seeds = 2
[[worlds]]
name = "valve"
[[agents]]
name = "always-safe"
[[agents]]
name = "slucb-qvi"
[[agents]]
name = "lsvi-ucb"
"""


@pytest.fixture
def stub(monkeypatch):
    """The stub as the only real world."""
    monkeypatch.setattr(real, "NAMES", ("valve",))
    for module in (real, shown):
        monkeypatch.setattr(module, "described", lambda name: STUB)
    monkeypatch.setattr(play, "source_hash", lambda names: "")
    return STUB


def recorder(seed=0, steps=8):
    return Recorder(Valve(), STUB, "left", seed, steps, lambda episodes: None)


def test_an_episode_starts_alike_for_every_method_whatever_seed_it_asks_for():
    """A reset before any step starts the same episode again: a Bridge resets once more than a network does."""
    one, other = recorder(), recorder()
    one.reset(seed=7)
    for env in (one, other):
        env.reset()
        for _ in range(HORIZON):
            ended = env.step([0.5])[3]
        assert ended  # cut at the horizon
        env.reset()
    assert one.env.seeds[0] == one.env.seeds[1] != one.env.seeds[2]
    assert one.env.seeds[1:] == other.env.seeds
    assert recorder(seed=1).reset()[0] != recorder(seed=0).reset()[0]


def test_a_violation_is_a_true_cost_over_its_threshold():
    """0.2 + 0.6 a <= 0.5 at a = 1/2 exactly; a true cost beats an observed one, and NaN is no cost under τ."""
    env = recorder()
    env.reset()
    for opening, told in (
        (0.5, {}),
        (0.6, {}),
        (0.0, {"true_cost": 0.75}),
        (1.0, {"true_cost": 0.0}),
        (0.0, {"cost": np.nan}),
    ):
        env.env.told = told
        env.step([opening])
    assert env.columns["violations"][:5].tolist() == [0.0, 1.0, 1.0, 0.0, 1.0]
    assert env.columns["excess"][:4] == pytest.approx([0.0, 0.06, 0.25, -0.5])
    assert env.columns["signal_0"][:2].tolist() == [50.0, 60.0]
    assert (env.played, env.left) == (5, 3)


def test_nothing_is_written_beyond_the_last_step():
    env = recorder(steps=2)
    env.reset()
    for opening in (0.1, 0.2, 0.9):
        env.step([opening])
    assert env.columns["reward"].tolist() == [0.1, 0.2] and env.left == 0


def test_a_price_is_paid_for_a_step_over_the_threshold_only():
    env = Priced(recorder(), 3.0)
    env.reset()
    assert [env.step([opening])[1] for opening in (0.5, 0.75)] == [0.5, -2.25]
    assert env.env.columns["reward"][:2].tolist() == [0.5, 0.75]  # the books hold the environment's own


def test_the_runner_plays_and_keeps_real_worlds(stub, tmp_path):
    """Six episodes of four steps; the safe action earns 0, so that the gain is ten times what ours earns an episode."""
    study = parse(SPEC, "test")
    done = run_study(study, tmp_path, InProcess())
    assert (done.ran, done.failures) == (6, [])
    assert (run_study(study, tmp_path, InProcess()).ran, run_study(study, tmp_path, InProcess()).kept) == (0, 6)
    results = load(tmp_path)
    assert results.per == "step" and view_of(results) is shown.VIEW
    safe, ours, penalised = shown.rows(results)
    assert safe["steps"] == 24 and "gain" not in safe
    cell = results.finished[1]
    assert cell["signal_0"].max() <= 50.0 and ours["violations"] == 0 and ours["worst_excess"] <= 0.0
    assert ours["gain"] == pytest.approx(10.0 * cell["reward"].sum() / 12) and ours["gain_low"] > 0.0
    assert penalised["violations"] > 0  # it must find out by breaking it
    assert all(claim.holds for claim in shown.claims(results))
    assert {chart.name for chart in shown.charts(results)} == {"valves-valve-curves"}
    (picture,) = shown.pictures(results)
    assert picture.draw(40).startswith(b"\x89PNG") and "0 steps beyond the limit" in picture.words
    assert shown.table(results).markdown.splitlines()[3].startswith("| Valve | slucb-qvi | +")
    assert set(shown.files(results)) == {"valves.parquet", "valves.md"}


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({}, []),
        ({"violations": 1}, ["safe@valve"]),
        ({"gain_low": -0.1}, ["gains"]),
        ({"method": "lsvi-ucb"}, ["rival-breaks"]),
        ({"world": "motor-twin", "alarms": 1}, ["noticed@motor-twin"]),
        ({"world": "motor-twin", "alarms": 2, "gain_low": -1.0}, []),
    ],
)
def test_each_claim_fails_by_its_own_number(monkeypatch, change, broken):
    """Two runs of ten steps; a twin must raise an alarm in both, and is no gain that counts."""
    row = {"world": "valve", "title": "Valve", "method": "slucb-qvi", "truth": "", "runs": 2, "steps": 10}
    row |= {"violations": 0, "alarms": 0, "gain": 0.5, "gain_low": 0.1, **change}
    monkeypatch.setattr(shown, "rows", lambda results: [row])
    assert [claim.id for claim in shown.claims(None) if not claim.holds] == broken


def test_the_run_that_is_drawn_shows_what_the_sentence_says():
    """Of runs with 0, 5, 2, 0 and 9 steps over the limit that with 5, by rule; without any, the first of all."""

    def cell(agent, counts):
        over = (np.arange(12) < np.array(counts)[:, None]).astype(float)
        columns = {"violations": over, "signal_0": np.full((len(counts), 12), 40.0)}
        told = {"explorer": "", "options": {}, "world_options": {}, "key": ""}
        told |= {"cost_radius_origin": "", "value_radius_origin": ""}
        return Cell(agent=agent, agent_label=agent, world="valve", seeds=(3, 4, 5, 6, 7), columns=columns, **told)

    ours, rival = cell("slucb-qvi", [0] * 5), cell("lsvi-ucb", [0, 5, 2, 0, 9])
    assert shown.shown_seed(STUB, [ours, rival]) == 4
    assert "median of the 3 of 5 runs in which lsvi-ucb was beyond the limit" in shown.chosen(STUB, [ours, rival])
    assert shown._over(STUB, rival, 4) == "5 steps beyond the limit; beyond it in 3 of 5 runs"
    assert shown._over(STUB, ours, 4) == "0 steps beyond the limit; beyond it in 0 of 5 runs"
    assert shown.shown_seed(STUB, [ours, cell("lsvi-ucb", [0, 5, 2, 3, 9])]) == 6, "the lower of two"
    assert shown.shown_seed(STUB, [ours, cell("lsvi-ucb", [0] * 5)]) == 3 and shown.shown_seed(STUB, [ours]) == 3


def test_a_seed_plays_its_cell():
    assert [STUB.cell_of(seed) for seed in range(3)] == ["left", "right", "left"]


def test_lines_of_code_are_counted_without_comments_and_docstrings():
    source = 'def f(x):\n    """One.\n\n    Two.\n    """\n    # why\n    return x\n\n'
    assert shown.code_lines(source) == 2
    assert shown.code_lines('def f(x):\n    """One."""\n    return x\n') == 2


def test_missing_packages_are_named_before_the_first_run(stub, monkeypatch):
    lacking = replace(STUB, needs={"no_such_package_here": "such==1.0"})
    monkeypatch.setattr(real, "described", lambda name: lacking)
    with pytest.raises(TetherError, match=r"Valve needs such==1\.0: `make real` installs it"):
        play.cells_of(parse(SPEC, "test"))


@pytest.mark.parametrize("works", [False, True])
def test_networks_are_skipped_and_named_if_torch_cannot_be_imported(stub, monkeypatch, works):
    """A build of torch for CUDA fails with an OSError, not with a module that is missing."""

    def imported(name):
        if not works:
            raise OSError("libcudart.so: cannot open shared object file")

    monkeypatch.setattr(play, "import_module", imported)
    play.networks_fail.cache_clear()
    study = parse(SPEC + '[[agents]]\nname = "ppo"\n', "test")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        methods = [cell.agent for cell in play.cells_of(study)]
    play.networks_fail.cache_clear()
    assert methods == ["always-safe", "slucb-qvi", "lsvi-ucb", *(["ppo"] if works else [])]
    assert ["libcudart" in str(warning.message) for warning in seen] == ([] if works else [True])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "valve"', 'name = "valve"\n[[worlds]]\nname = "synthetic"', "mixes real worlds with simulated ones"),
        ('name = "lsvi-ucb"', 'name = "lsvi"', "are not played by 'lsvi'"),
        ('name = "lsvi-ucb"', 'name = "lsvi-ucb"\noptions = { penalty = 2.0 }', "has no options in real worlds"),
    ],
)
def test_a_study_that_cannot_be_played_is_refused(stub, tmp_path, old, new, words):
    with pytest.raises(InputError, match=words):
        run_study(parse(SPEC.replace(old, new), "test"), tmp_path, InProcess())


@pytest.mark.parametrize("name", real.NAMES)
def test_every_world_is_described_without_its_packages(name):
    world = real.described(name)
    assert world.name == name and world.cells and world.setup
    assert world.needs or name == "bolus"  # whose answers are kept here


@pytest.mark.slow
@pytest.mark.parametrize("name", real.NAMES)
def test_a_real_world_is_repeatable_and_safe(name):
    """A few episodes of the packages themselves; the study has them all."""
    from importlib.util import find_spec

    world = real.described(name)
    lacking = [requirement for module, requirement in world.needs.items() if find_spec(module) is None]
    if lacking:
        pytest.skip(f"{', '.join(lacking)} is not installed here: make test-real has it")
    played = {}
    for method in ("always-safe", "slucb-qvi"):
        for again in (False, True):
            env = Recorder(
                world.make_env(world.cells[0], 0), world, world.cells[0], 0, 6 * world.horizon, lambda n: None
            )
            told = {**world.declare(world.cells[0]), "horizon": world.horizon}
            play.METHODS[method](world, env, told, 0)
            played[method, again] = env.columns
        for column in ("reward", "excess"):
            assert np.array_equal(played[method, False][column], played[method, True][column])
    assert played["slucb-qvi", False]["violations"].sum() == 0.0
