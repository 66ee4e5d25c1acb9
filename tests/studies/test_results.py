"""Results: what is stored comes back, and what is concluded from it is right on cases a person can do by hand."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import TetherError
from tether.lab import books, specs
from tether.lab.books import COLUMNS, Cell, Results
from tether.lab.engines import InProcess
from tether.lab.runner import run_study
from tether.lab.simulate import simulate
from tether.lab.studies import figure1
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.synthetic import synthetic

SPEC = """
name = "stored"
episodes = 30
seeds = 2

[[worlds]]
name = "synthetic"
options = { states = 3, rays = 4, dimension = 3, horizon = 2 }

[[agents]]
name = "slucb-qvi"
label = "ours"
options = { explorer = "certified", value_radius = 0.5 }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("stored")
    run_study(specs.parse(SPEC, "stored.toml"), place, InProcess())
    return place


def test_a_stored_run_is_the_run_bit_for_bit(folder):
    (cell,) = books.load(folder).cells
    for row, seed in enumerate(cell.seeds):
        streams = Streams.from_seed(seed)
        world = synthetic(streams.instance, states=3, rays=4, dimension=3, horizon=2)
        config = SlucbConfig(explorer="certified", value_radius=0.5, episodes=30)
        kept = simulate(world, SlucbQvi(world.problem, config), 30, streams)
        for name in ("reward", "value", "optimal_value", "regret", "violations", "worst_cost", "optimism", "length"):
            assert cell[name][row].tobytes() == getattr(kept, name).tobytes(), name


def test_every_part_carries_its_spec_version_platform_and_kernel(folder):
    for path in (folder / "runs").glob("*.parquet"):
        told = json.loads(pq.read_metadata(path).metadata[b"tether"])
        assert told["study"]["name"] == "stored" and told["cell"]["label"].startswith("ours")
        assert told["version"] and told["platform"] and told["code"]
        assert told["kernel"].startswith(("cython-", "python-"))


def test_the_dataset_can_be_read_as_one_table_without_tether(folder):
    table = pq.read_table(folder / "runs")
    assert set(COLUMNS["episode"]) < set(table.column_names)
    assert {"cell", "agent", "explorer", "world", "seed", "episode"} < set(table.column_names)
    assert table.num_rows == 60 and sorted(set(table["seed"].to_pylist())) == [0, 1]


def test_missing_runs_are_named_and_an_unknown_column_is_an_error(folder, tmp_path):
    (tmp_path / "study.json").write_bytes((folder / "study.json").read_bytes())
    loaded = books.load(tmp_path)
    assert [seed for _, seed in loaded.missing] == [0, 1]
    with pytest.raises(KeyError, match="no column 'regrets'"):
        books.load(folder).cells[0]["regrets"]


def test_a_folder_written_before_labels_had_parts_can_still_be_read(folder, tmp_path):
    told = json.loads((folder / "study.json").read_text())
    for entry in told["cells"]:
        for name in ("agent_label", "world_label", "note", "watches"):
            del entry[name]
    (tmp_path / "study.json").write_text(json.dumps(told))
    (tmp_path / "runs").symlink_to(folder / "runs")
    old, new = books.load(tmp_path), books.load(folder)
    assert [cell.label for cell in old.cells] == [cell.label for cell in new.cells]
    assert old.digest() == new.digest()


def test_a_folder_without_results_is_an_error(tmp_path):
    with pytest.raises(TetherError, match="holds no results"):
        books.load(tmp_path)


def cell(label, columns, *, agent="slucb-qvi", explorer="paper", cost="tuned", options=None, seeds=None):
    count, episodes = next(iter(columns.values())).shape
    full = {name: columns.get(name, np.zeros((count, episodes))) for name in COLUMNS["episode"]}
    return Cell(
        key=label, agent=agent, agent_label=label, world="synthetic", explorer=explorer, options=options or {},
        world_options={}, cost_radius_origin=cost, value_radius_origin="tuned", seeds=tuple(seeds or range(count)),
        columns=full,
    )  # fmt: skip


def study_of(*cells):
    return Results("made", "", 2, {}, tuple(cells), (), "0", "here", "none", Path())


def test_intervals_are_over_seeds_never_over_episodes():
    noisy_episodes = np.tile(np.random.default_rng(0).normal(size=500), (8, 1))
    flat = books.interval(noisy_episodes.mean(axis=1))
    assert flat.high - flat.low < 1e-12  # all seeds agree, however much episodes vary
    seeds = np.random.default_rng(1).normal(size=400)
    wide = books.interval(seeds)
    assert wide.high - wide.low == pytest.approx(2 * 1.96 * seeds.std() / np.sqrt(400), rel=0.1)


def test_the_bootstrap_is_seeded_and_covers_curves_pointwise():
    rows = np.random.default_rng(2).normal(size=(6, 4500))
    curve = books.interval(rows)
    assert curve.mean.shape == curve.low.shape == (4500,)
    assert np.array_equal(curve.low, books.interval(rows).low)
    assert books.interval(rows[:, 17]).low == pytest.approx(curve.low[17])


def test_paired_differences_use_the_shared_seeds_and_cancel_what_they_share():
    instance = np.array([[10.0], [20.0], [30.0], [40.0]])
    first = cell("a", {"reward": instance + 1.0}, seeds=(0, 1, 2, 3))
    second = cell("b", {"reward": instance[::-1][:3]}, seeds=(3, 2, 1))
    gap = books.paired_difference(first, second, "reward")
    assert (gap.mean, gap.low, gap.high) == (1.0, 1.0, 1.0)


def test_the_table_has_totals_median_and_worst_seed():
    regret = np.array([[1.0, 1.0], [2.0, 3.0], [10.0, 0.0]])
    violations = np.array([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    (row,) = figure1.table(study_of(cell("a", {"regret": regret, "violations": violations}))).rows
    assert row["regret_mean"] == pytest.approx(17 / 3)
    assert (row["regret_median"], row["regret_worst"]) == (5.0, 10.0)
    assert (row["violations_total"], row["violating_runs"], row["seeds"]) == (3, 1, 3)


def made_figure(told, paper, rewards, violations, broken):
    lift = np.arange(5.0)[:, None] * np.ones((5, 2))
    penalised = [
        cell(
            f"p{i}",
            {"reward": lift + reward, "violations": lift + count},
            agent="lsvi-ucb", explorer="plain", cost="none", options={"penalty": 0.8 + i / 20},
        )
        for i, (reward, count) in enumerate(zip(rewards, violations, strict=True))
    ]  # fmt: skip
    return study_of(
        cell("told", {"reward": lift + told}, agent="lsvi-ucb-told", explorer="plain", cost="exact"),
        cell("paper", {"reward": lift + paper, "violations": np.full((5, 2), broken)}),
        cell("ours", {"reward": lift}, explorer="directional", cost="theorem"),
        *penalised,
    )


def test_claims_hold_where_the_numbers_say_so():
    found = {claim.id: claim for claim in figure1.claims(made_figure(2.0, 1.0, (4, 3, 2), (9, 5, 1), 0.0))}
    assert set(found) == {
        "told-beats-slucb",
        "larger-penalty-lowers-reward",
        "larger-penalty-lowers-violations",
        "slucb-zero-violations",
        "directional-zero-violations",
    }
    assert all(claim.holds and "5 runs" in claim.evidence for claim in found.values())


def test_claims_fail_where_the_numbers_say_so():
    found = {claim.id: claim.holds for claim in figure1.claims(made_figure(1.0, 2.0, (4, 2, 3), (9, 9, 9), 1.0))}
    assert found == {
        "told-beats-slucb": False,
        "larger-penalty-lowers-reward": False,  # the last step goes up
        "larger-penalty-lowers-violations": False,  # nothing changes
        "slucb-zero-violations": False,
        "directional-zero-violations": True,
    }


def test_claims_about_agents_that_were_not_run_are_not_made():
    only = study_of(cell("told", {"reward": np.ones((2, 2))}, agent="lsvi-ucb-told", explorer="plain", cost="exact"))
    assert figure1.claims(only) == []
