"""Logs: the same outcomes from Transitions, arrays and files; and what is refused."""

import sys

import numpy as np
import pytest

from check.cases import linear, outcomes
from live.plant import Plant, live_advisor
from tether import Constraint, Problem, Transition
from tether.check.logs import Log, as_log
from tether.errors import InputError, MissingExtra
from tether.live.audit import export
from tether.live.log.memory import MemoryStore
from worlds import simplex_problem, world_and_streams


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
    log = as_log(simplex_problem(horizon=2, constraints=constraints), tmp_path / f"log{suffix}")
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
    assert np.array_equal(as_log(simplex_problem(12), tmp_path / "log.csv").feature, phi)


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
        as_log(simplex_problem(), tmp_path / name)


def test_a_table_of_a_spreadsheet_is_read_or_told_what_to_change(tmp_path):
    """Spreadsheets put a mark before UTF-8; where numbers have commas, they part columns by semicolons."""
    text = "phi_0,phi_1,phi_2,phi_3,cost\n0.25,0.25,0.25,0.25,0.4\n"
    (tmp_path / "log.csv").write_text(text, encoding="utf-8-sig")
    assert as_log(simplex_problem(), str(tmp_path / "log.csv")).cost.tolist() == [[0.4]]
    (tmp_path / "log.csv").write_text(text.replace(",", ";"))
    with pytest.raises(InputError, match="separated by semicolons"):
        as_log(simplex_problem(), tmp_path / "log.csv")


def test_a_missing_package_is_named_with_the_line_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "log.parquet").write_bytes(b"")
    with pytest.raises(MissingExtra, match=r'pip install "tether-rl\[experiments\]"'):
        as_log(simplex_problem(), tmp_path / "log.parquet")


def test_a_file_with_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "log.npz", phi=np.array([{"a": 1}], dtype=object), cost=np.zeros(1))
    with pytest.raises(InputError, match="cannot be read"):
        as_log(simplex_problem(), tmp_path / "log.npz")


def finite_problem():
    """Two states, three actions; a_0 is action 1."""
    features = np.arange(12.0).reshape(2, 3, 2) / 20.0
    return Problem.from_table(
        features=features, baseline_action=[1, 1], constraints=Constraint(threshold=0.5, noise=0.1), horizon=1
    )


def test_states_and_actions_get_the_features_of_the_problem(tmp_path):
    problem = finite_problem()
    (tmp_path / "log.csv").write_text("state,action,cost\n1,2,0.1\n0,1,\n1,0,0.3\n")
    log = as_log(problem, tmp_path / "log.csv")
    assert log.feature.tolist() == [[0.5, 0.55], [0.1, 0.15], [0.3, 0.35]]
    assert log.states == (1, 0, 1) and log.measured.tolist() == [True, False, True]


def test_rays_are_told_by_ray_and_length():
    log = as_log(simplex_problem(), {"state": [0, 0], "ray": [2, -1], "length": [0.5, 0.0], "cost": [0.1, 0.2]})
    assert log.feature.tolist() == [[0.125, 0.125, 0.625, 0.125], [0.25] * 4]
    text = as_log(simplex_problem(), {"state": ["0"], "action": ['{"ray": 2, "length": 0.5}'], "cost": [0.1]})
    assert text.feature.tolist() == [[0.125, 0.125, 0.625, 0.125]]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"state": [0], "action": [5], "cost": [0.1]}, "row 0 of the log, state 0 and action 5, does not fit"),
        ({"state": [7], "action": [0], "cost": [0.1]}, "row 0 of the log, state 7"),
        ({"state": [0], "ray": [0], "length": [0.5], "cost": [0.1]}, "asks for the number of an action"),
        ({"state": [0], "action": [0], "price": [0.1]}, "no 'cost'; there are: price"),
        ({"state": [0], "action": [0], "step": [0]}, r"no 'cost'\."),
        ({"state": [0], "cost": [0.1]}, "no 'action'"),
        ({"phi": [[0.1, 0.2]], "cost": ["high"]}, "column 'cost' of the log holds 'high' in row 0"),
    ],
)
def test_a_table_that_does_not_fit_says_where(table, words):
    with pytest.raises(InputError, match=words):
        as_log(finite_problem(), table)


def test_a_data_frame_is_a_table():
    class Frame:
        """What of pandas is used: column names, columns, and their lists."""

        columns = ("state", "action", "cost")

        def __getitem__(self, name):
            data = {"state": [1], "action": [0], "cost": [0.3]}[name]
            return type("Column", (), {"to_list": lambda self: data})()

        def to_dict(self):
            raise AssertionError("columns keep their order and types")

    assert as_log(finite_problem(), Frame()).feature.tolist() == [[0.3, 0.35]]


def test_an_export_is_read_in_the_order_of_decisions_with_its_losses(tmp_path):
    """Decision b lost its outcome, c was withheld, d came before a; nothing is known yet of e."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = np.eye(4) * 0.5
    made = {
        "decision_id": ["a", "b", "c", "d", "e"], "withheld": [None, None, "stop", None, None], "step": [0] * 5,
        "state": ["0"] * 5, "feature": [x[i % 4].tolist() for i in range(5)], "threshold": [[0.6]] * 5,
    }  # fmt: skip
    seen = {
        "decision_id": ["d", "a"], "feature": [x[3].tolist(), x[1].tolist()], "cost": [[0.4], [0.1]], "reward": [1, 0]
    }  # fmt: skip
    for name, table in (("decisions", made), ("outcomes", seen)):
        parquet.write_table(pyarrow.table(table), tmp_path / f"{name}.parquet")
    log = as_log(simplex_problem(), tmp_path)
    assert np.array_equal(log.feature, x[[1, 1, 3]])  # a as it was applied, b as decided, d
    assert np.array_equal(log.cost, [[0.1], [np.nan], [0.4]], equal_nan=True)
    assert np.array_equal(log.reward, [0.0, np.nan, 1.0], equal_nan=True)
    assert log.states == (0, 0, 0)
    (tmp_path / "outcomes.parquet").unlink()
    with pytest.raises(InputError, match="there is no log at"):
        as_log(simplex_problem(), tmp_path)


def test_what_the_audit_exports_is_a_log_of_what_was_played(tmp_path):
    world, store = world_and_streams(3, horizon=1)[0], MemoryStore()
    advisor = live_advisor(world.problem, store)
    decisions = Plant(world.true_gamma).play(advisor, 30)
    lost = advisor.decide(1, 0, "lost")
    advisor.lose(lost.id, by="me", why="a dead radio")
    decisions += [lost, *Plant(world.true_gamma).play(advisor, 5, episode="f")]
    export(store, tmp_path)
    log = as_log(world.problem, tmp_path)
    assert np.array_equal(log.feature, [decision.feature for decision in decisions])
    assert np.flatnonzero(~log.measured).tolist() == [30]
    assert log.states == tuple(decision.state for decision in decisions)
    assert world.problem.check(log)["A3: costs get lost by chance"].evidence.startswith("1 of 36 costs")
