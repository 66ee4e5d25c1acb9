"""Logs: the same outcomes from Transitions, arrays and files; and what is refused."""

import numpy as np
import pytest

from check.cases import linear, outcomes
from tether import Transition
from tether.check.logs import Log, as_log, read_log
from tether.errors import InputError
from worlds import simplex_problem


def arrays(count=40, constraints=1):
    rows = list(outcomes(3, count, linear))
    return {
        "phi": np.array([x for x, _ in rows]),
        "cost": np.array([np.repeat(z, constraints) for _, z in rows]),
        "reward": np.linspace(0.0, 1.0, count),
        "step": np.arange(count) % 2,
    }


def same(log, expected):
    assert np.array_equal(log.feature, expected["phi"])
    assert np.array_equal(log.cost, expected["cost"], equal_nan=True)
    assert np.array_equal(log.reward, expected["reward"], equal_nan=True)
    assert np.array_equal(log.step, expected["step"])


def write(path, columns):
    if path.suffix == ".npz":
        np.savez(path, **columns)
        return
    flat = {f"phi_{i}": columns["phi"][:, i] for i in range(4)}
    flat |= {f"cost_{j}": columns["cost"][:, j] for j in range(columns["cost"].shape[1])}
    flat |= {"reward": columns["reward"], "step": columns["step"]}
    if path.suffix == ".csv":
        lines = [",".join(flat)] + [
            ",".join("" if np.isnan(value) else repr(float(value)) for value in row)
            for row in zip(*flat.values(), strict=True)
        ]
        path.write_text("\n".join(lines))
        return
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(flat), path)


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("constraints", [1, 2])
def test_every_kind_of_file_gives_the_same_log(tmp_path, suffix, constraints):
    expected = arrays(constraints=constraints)
    expected["cost"][5] = np.nan
    write(tmp_path / f"log{suffix}", expected)
    log = read_log(simplex_problem(horizon=2, constraints=constraints), tmp_path / f"log{suffix}")
    same(log, expected)
    assert log.measured.sum() == 39 and not log.measured[5]


def test_transitions_give_the_same_log_and_their_states():
    expected = arrays()
    rows = zip(expected["step"], expected["phi"], expected["reward"], expected["cost"], strict=True)
    transitions = [Transition(int(h), ("s", i), x, r, float(z[0])) for i, (h, x, r, z) in enumerate(rows)]
    transitions[7] = Transition(1, ("s", 7), expected["phi"][7], expected["reward"][7], None)
    expected["cost"][7] = np.nan
    log = as_log(simplex_problem(horizon=2), transitions)
    same(log, expected)
    assert log.states[3] == ("s", 3)


def test_more_than_ten_features_keep_their_order(tmp_path):
    """phi_10 comes after phi_9, not after phi_1."""
    phi = np.eye(12)[:5] * 0.5 + np.eye(12)[7:] * 0.3
    names = [*(f"phi_{i}" for i in range(12)), "cost"]
    lines = [",".join(names)] + [",".join(map(str, [*row, 0.5])) for row in phi]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert np.array_equal(read_log(simplex_problem(12), tmp_path / "log.csv").feature, phi)


def test_a_log_may_leave_out_rewards_and_steps():
    log = as_log(simplex_problem(), {"phi": [[0.25] * 4] * 3, "cost": [0.1, 0.2, 0.3]})
    assert log.cost.tolist() == [[0.1], [0.2], [0.3]] and log.step.tolist() == [0, 0, 0]
    assert np.isnan(log.reward).all() and log.states is None


@pytest.mark.parametrize(
    "log",
    [
        {"phi": [[0.25] * 3], "cost": [0.1]},
        {"phi": [[0.25] * 4], "cost": [0.1, 0.2]},
        {"phi": [[0.25] * 4], "cost": [[0.1, 0.2]]},
        {"phi": [[np.nan] * 4], "cost": [0.1]},
        {"phi": [[0.25] * 4], "cost": [np.inf]},
        {"phi": [[0.25] * 4], "cost": [0.1], "step": [1]},
        {"phi": [[0.25] * 4], "cost": [0.1], "step": [-1]},
        {"phi": [[0.25] * 4], "cost": [0.1], "step": [0.5]},
        {"phi": [["a"] * 4], "cost": [0.1]},
        {"phi": np.zeros((0, 4)), "cost": []},
        {"cost": [0.1]},
        [1, 2],
        [],
        "log.csv",
        Log(np.zeros((2, 4)), np.zeros((3, 1)), np.zeros(2), np.zeros(2, dtype=np.int64)),
    ],
)
def test_a_log_that_does_not_fit_is_refused(log):
    with pytest.raises(InputError):
        as_log(simplex_problem(), log)


@pytest.mark.parametrize("name", ["log.txt", "missing.csv", "missing.npz", "missing.parquet", "empty.csv", "bad.npz"])
def test_a_file_that_is_no_log_is_refused(tmp_path, name):
    (tmp_path / "log.txt").write_text("1")
    (tmp_path / "empty.csv").write_text("phi_0,cost\n")
    (tmp_path / "bad.npz").write_text("not a zip file")
    with pytest.raises(InputError):
        read_log(simplex_problem(), tmp_path / name)


def test_a_file_with_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "log.npz", phi=np.array([{"a": 1}], dtype=object), cost=np.zeros(1))
    with pytest.raises(InputError, match="cannot be read"):
        read_log(simplex_problem(), tmp_path / "log.npz")
