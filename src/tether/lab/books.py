"""The one results schema: a Parquet file per run, a small typed view of a whole study, and statistics over seeds.

How to use it (figures and reports do nothing else):

    results = load(Path("out/figure1"))
    for cell in results.cells:                 # one per world x agent x options, in the order of the spec
        cell.label                             # unique, e.g. "Ours, certified (cost β theorem, value β=0.1 tuned)"
        cell.agent, cell.explorer, cell.world  # registry names
        cell.options, cell.world_options       # as in the spec
        cell.cost_radius_origin                # "theorem", "tuned", "exact" (told γ*) or "none" (no constraint)
        cell.per                               # "episode", "unit" or "step": what a row of a run counts
        cell.seeds                             # (n,): the runs that finished
        cell["regret"]                         # (n, K) float64, one row per seed; any name in cell.column_names
    results.study, results.title, results.episodes, results.spec, results.version, results.platform, results.kernel
    results.missing                            # (label, seed) of runs that the spec asks for and the folder lacks

Columns are read from disk when asked for and not kept: hold on to the array, not to `cell["regret"]`.
"""

import hashlib
import io
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from tether.errors import TetherError
from tether.records import Array

Per = Literal["episode", "unit", "step"]

COLUMNS: dict[Per, tuple[str, ...]] = {
    "episode": (
        "reward",  # realised return of the episode
        "value",  # V_1^{π_k}(s_1^k), exact; of a misspecified world: in the linear one that the learner believes in
        "optimal_value",  # V*_1(s_1^k), exact, of the best safe policy
        "regret",  # optimal_value − value: a term of R_K, Eq. (6); negative where an unsafe policy earns more
        "violations",  # steps of the episode whose true cost exceeds τ
        "worst_cost",  # largest true cost of the episode minus τ
        "optimism",  # V_1^k − V*_1; negative means that optimism failed
        "length",  # mean certified length α of the played actions
        "baseline",  # share of steps that played the safe action
        "plan_seconds",  # processor time per episode, averaged over a block; the only column that is not reproducible
    ),
    "unit": (
        "success",  # share of the unit's ended trajectories that reached the goal
        "average_return",  # per ended trajectory: the paper's 6 at the goal, 0.01 otherwise
        "trajectories",  # that ended in the unit
        "goals",  # of which at the goal
        "falls",  # of which in danger
        "reward",  # Σ r over the unit's steps
        "violations",  # steps whose true expected cost exceeds τ
        "worst_cost",  # largest true expected cost of a step taken, minus τ
        "planned_worst_cost",  # the same over every (step, state) of every plan made in the unit
        "baseline",  # mean probability of the safe action
        "plans",  # plans made
        "plan_seconds",  # processor time of the unit; not reproducible
    ),
    "step": (
        "reward",  # the environment's own
        "violations",  # 1 if a cost exceeds its τ: the true one, or the observed one where the truth is not known
        "excess",  # the largest cost minus τ over the constraints
        "ended",  # 1 if the environment ended the episode here
        "baseline",  # 1 if the safe action was played; NaN where the method has none
        "alarm",  # 1 from the step on at which the online tests tripped
        "signal_0",  # what the world's picture shows, in its units
        "signal_1",
        "signal_2",
        "plan_seconds",  # wall time of the method, without the simulator; not reproducible
    ),
}
"""One number per episode, per interaction unit in studies that count steps in units, per step in real worlds."""

WATCHED = ("cost_ratio", "safe_value", "misfit_ratio")
"""What a run with watches also holds: the largest true cost over τ, V^{a_0}(s_1), the largest known ε over τ."""

MANIFEST = "study.json"
RUNS = "runs"


@dataclass(frozen=True, eq=False, kw_only=True)
class CellInfo:
    """What is known about a cell before it runs; stored in the manifest and in every part."""

    key: str  # hash of its spec
    agent: str  # registry name
    agent_label: str
    world: str  # registry name
    world_label: str = ""  # where the study has several
    note: str = ""  # whose β it is
    explorer: str  # where its optimism comes from: paper, certified, directional, adaptive, plain
    options: dict[str, Any]
    world_options: dict[str, Any]
    cost_radius_origin: str  # whether the safe set's β is a guarantee: theorem, tuned, exact or none
    value_radius_origin: str
    episodes: int = 0  # of a run; 0 in older results, where it is the study's
    units: dict[str, Any] | None = None  # interaction units instead of episodes: see specs.Schedule
    watches: tuple[str, ...] = ()  # see simulate.Witness
    real: bool = False  # a world that nobody here wrote: see tether.lab.real
    own: str = ""  # "episode" or "realised" where the agent promises that, and not the cost of each step
    limits: str = "step"  # what the world limits: the cost of every step, or of an "episode"
    instance: str = ""  # hash of the first seed's instance: another one is another world
    repeats: int = 1  # runs per instance; run number = seed * repeats + repeat
    first: int | None = None  # only so many of the study's seeds

    @property
    def name(self) -> str:
        """The agent, and its world where there are several."""
        return f"{self.agent_label} in {self.world_label}" if self.world_label else self.agent_label

    @property
    def label(self) -> str:
        """Unique within the study; says whether β is the theorem's or tuned."""
        return f"{self.name} ({self.note})" if self.note else self.name

    @property
    def per(self) -> Per:
        """What a row of a run counts."""
        return "step" if self.real else "episode" if self.units is None else "unit"

    @property
    def column_names(self) -> tuple[str, ...]:
        """What a run of this cell holds: those of COLUMNS, per watch its alarm and the violations it leaves, and by how
        much the agent's own constraint is exceeded, if that is another one."""
        extra = [f"{what}_{watch}" for watch in self.watches for what in ("alarm", "violations")]
        own = ["own_excess"] if self.own else []
        return (*COLUMNS[self.per], *(WATCHED if extra else ()), *extra, *own)

    def runs(self, seeds: Sequence[int]) -> list[int]:
        """The numbers of the runs over these seeds; a seed's own number where nothing is repeated."""
        return [seed * self.repeats + repeat for seed in seeds[: self.first] for repeat in range(self.repeats)]

    def part(self, seed: int) -> str:
        """The file name of one run."""
        return f"{self.key[:20]}-{seed:06d}.parquet"

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the label for readers without Tether."""
        return {"label": self.label, **asdict(self)}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Self:
        """The reverse; before 0.2 there was only the label."""
        known = {"agent_label": entry["label"], **entry, "watches": tuple(entry.get("watches", ()))}
        return cls(**{name: value for name, value in known.items() if name != "label"})


class StoredColumns(Mapping[str, Array]):
    """The columns of a cell's parts, each read when asked for, stacked over seeds (n, K)."""

    def __init__(self, parts: tuple[Path, ...], names: tuple[str, ...]) -> None:
        self._parts, self._names = parts, names

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(f"no column {name!r}; there are {', '.join(self._names)}")
        import pyarrow.parquet as pq

        rows = [pq.read_table(part, columns=[name], use_threads=False)[name].to_numpy() for part in self._parts]
        return np.array(rows, dtype=np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, eq=False, kw_only=True)
class Cell(CellInfo):
    """The finished runs of one agent in one world."""

    seeds: tuple[int, ...]
    columns: Mapping[str, Array]

    def __getitem__(self, column: str) -> Array:
        return self.columns[column]

    @property
    def instances(self) -> tuple[int, ...]:
        """The instance (seed) of each run; several runs may share one."""
        return tuple(run // self.repeats for run in self.seeds)


@dataclass(frozen=True, eq=False)
class Results:
    """A study as far as it has run. See the module for its use."""

    study: str
    title: str
    episodes: int
    spec: dict[str, Any]
    cells: tuple[Cell, ...]
    missing: tuple[tuple[str, int], ...]
    version: str
    platform: str
    kernel: str
    folder: Path

    @property
    def per(self) -> Per:
        """Whether its runs are counted in episodes, in interaction units or in steps."""
        kinds = {cell.per for cell in self.cells}
        return "unit" if "unit" in kinds else "step" if "step" in kinds else "episode"

    @property
    def finished(self) -> list[Cell]:
        """Cells with at least one finished run, in the order of the spec."""
        return [cell for cell in self.cells if cell.seeds]

    def digest(self) -> str:
        """A hash of every reproducible number: equal for any engine and any number of workers."""
        total = hashlib.sha256()
        for cell in self.cells:
            total.update(f"{cell.key}{cell.seeds}".encode())
            for name in (name for name in cell.column_names if name != "plan_seconds"):
                total.update(cell[name].tobytes())
        return total.hexdigest()


def environment() -> dict[str, str]:
    """Version, platform and kernel: what a result may depend on besides its spec and seed."""
    from tether import __version__
    from tether.kernels.compiled import KERNEL

    return {
        "version": __version__,
        "platform": platform.platform(),
        "kernel": KERNEL,
        "python": platform.python_version(),
    }


def encode(info: CellInfo, seed: int, columns: Mapping[str, Array], metadata: Mapping[str, Any]) -> bytes:
    """One run as the bytes of a Parquet file (zstd), with its spec and environment in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    episodes = len(columns["reward"])
    constants = {"cell": info.label, "agent": info.agent, "explorer": info.explorer, "world": info.world}
    same = np.zeros(episodes, dtype=np.int32)
    data: dict[str, Any] = {
        name: pa.DictionaryArray.from_arrays(same, pa.array([text])) for name, text in constants.items()
    }
    data["seed"] = np.full(episodes, seed, dtype=np.int64)
    data["step" if info.real else "episode"] = np.arange(episodes, dtype=np.int32)
    data.update({name: columns[name] for name in info.column_names})
    table = pa.table(data).replace_schema_metadata({"tether": json.dumps(dict(metadata), sort_keys=True)})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", compression_level=3)
    return sink.getvalue()


def part_metadata(path: Path) -> dict[str, Any] | None:
    """What a part says about itself, or None if it is not a whole part."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        stored = pq.read_metadata(path).metadata or {}
        found: dict[str, Any] = json.loads(stored[b"tether"])
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
    return found


def load(folder: Path) -> Results:
    """The results in a study's folder: exactly the runs that its manifest names, each once."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TetherError(f"{folder} holds no results: there is no {MANIFEST} in it. Run a study first.") from None
    except (OSError, ValueError) as error:
        raise TetherError(f"{folder / MANIFEST} cannot be read: {error}") from error
    cells, missing = [], []
    for entry in manifest["cells"]:
        info = CellInfo.from_json(entry)
        parts = {run: folder / RUNS / info.part(run) for run in info.runs(manifest["seeds"])}
        done = tuple(seed for seed, part in parts.items() if part.is_file())
        missing += [(info.label, seed) for seed in parts if seed not in done]
        columns = StoredColumns(tuple(parts[run] for run in done), info.column_names)
        cells.append(Cell(**vars(info), seeds=done, columns=columns))
    spec, machine = manifest["spec"], manifest["environment"]
    return Results(
        study=spec["name"],
        title=spec["title"],
        episodes=spec["episodes"],
        spec=spec,
        cells=tuple(cells),
        missing=tuple(missing),
        version=machine["version"],
        platform=machine["platform"],
        kernel=machine["kernel"],
        folder=folder,
    )


# Statistics: means with 95% bootstrap intervals over seeds, and paired differences.

RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 2000
"""Curve points per block of the bootstrap: bounds its memory to 32 MB."""


class Interval(NamedTuple):
    """A mean over seeds with its interval; each is a number, or a curve (...,)."""

    mean: Array
    low: Array
    high: Array

    def __str__(self) -> str:
        return f"{float(self.mean):.4g} [{float(self.low):.4g}, {float(self.high):.4g}]"


def interval(samples: Array) -> Interval:
    """Mean over the first axis (seeds) with a percentile bootstrap: (n, ...) -> (...). Same samples, same interval."""
    rows = np.asarray(samples, dtype=np.float64)
    if rows.shape[0] == 0:
        raise TetherError("no run has finished, so there is no mean: run the study again.")
    count, flat = rows.shape[0], rows.reshape(rows.shape[0], -1)
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES) / count
    tails = np.array([(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    bounds = np.empty((2, flat.shape[1]))
    for first in range(0, flat.shape[1], BLOCK):
        part = slice(first, first + BLOCK)
        bounds[:, part] = np.quantile(drawn @ flat[:, part], tails, axis=0)
    shape = rows.shape[1:]
    return Interval(rows.mean(axis=0), bounds[0].reshape(shape), bounds[1].reshape(shape))


def per_seed(cell: Cell, column: str) -> Array:
    """One number per run (n,): totals of regret and violations, means of the rest."""
    return _per_run(cell[column], column)


def _per_run(values: Array, column: str) -> Array:
    totals: Array = values.sum(axis=1) if column in ("regret", "violations") else values.mean(axis=1)
    return totals


def paired(first: Cell, second: Cell, column: str) -> tuple[Array, Array]:
    """A column of both on the seeds that both finished: the same instances and noise, (n, K) each."""
    shared = sorted(set(first.seeds) & set(second.seeds))
    if not shared:
        raise TetherError(f"{first.label} and {second.label} have no finished seed in common.")
    ours, theirs = (cell[column][[cell.seeds.index(seed) for seed in shared]] for cell in (first, second))
    return ours, theirs


def paired_difference(first: Cell, second: Cell, column: str) -> Interval:
    """first − second per run on the same seeds, so that what they share cancels."""
    ours, theirs = (_per_run(values, column) for values in paired(first, second, column))
    return interval(ours - theirs)
