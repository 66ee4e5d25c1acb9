"""The one results schema: a Parquet file per run, a small typed view of a whole study.

How to use it (figures and reports do nothing else):

    results = load(Path("out/figure1"))
    for cell in results.cells:                 # one per world x agent x options, in the order of the spec
        cell.label                             # unique, e.g. "Ours, certified (cost β theorem, value β=0.1 tuned)"
        cell.agent, cell.explorer, cell.world  # registry names
        cell.cost_radius_origin                # "theorem", "tuned", "exact" (told γ*) or "none" (no constraint)
        cell.value_radius_origin
        cell.options, cell.world_options       # as in the spec
        cell.seeds                             # (n,): the runs that finished
        cell["regret"]                         # (n, K) float64, one row per seed; any name in COLUMNS
    results.by_label["..."]                    # the same cells by label
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
from typing import Any, NamedTuple

import numpy as np

from tether.errors import TetherError
from tether.records import Array

COLUMNS = (
    "reward",  # realised return of the episode
    "value",  # V_1^{π_k}(s_1^k), exact
    "optimal_value",  # V*_1(s_1^k), exact, of the best safe policy
    "regret",  # optimal_value − value: a term of R_K, Eq. (6); negative where an unsafe policy earns more
    "violations",  # steps of the episode whose true cost exceeds τ
    "worst_cost",  # largest true cost of the episode minus τ
    "optimism",  # V_1^k − V*_1; negative means that optimism failed
    "length",  # mean certified length α of the played actions
    "baseline",  # share of steps that played the safe action
    "plan_seconds",  # wall time per episode, averaged over a block; the only column that is not reproducible
)
"""One number per episode."""

UNIT_COLUMNS = (
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
    "plan_seconds",  # wall time of the unit; not reproducible
)
"""One number per interaction unit, for studies that count steps in units."""

REPRODUCIBLE = tuple(name for name in COLUMNS if name != "plan_seconds")
MANIFEST = "study.json"
RUNS = "runs"


@dataclass(frozen=True)
class CellInfo:
    """What is known about a cell before it runs; stored in the manifest and in every part."""

    key: str  # hash of its spec
    label: str
    agent: str
    explorer: str
    world: str
    options: dict[str, Any]
    world_options: dict[str, Any]
    cost_radius_origin: str
    value_radius_origin: str
    units: dict[str, Any] | None = None  # interaction units instead of episodes: see specs.Units
    repeats: int = 1  # runs per instance; run number = seed * repeats + repeat
    first: int | None = None  # only so many of the study's seeds

    @property
    def columns(self) -> tuple[str, ...]:
        """What a run of this cell holds."""
        return COLUMNS if self.units is None else UNIT_COLUMNS

    def runs(self, seeds: Sequence[int]) -> list[int]:
        """The numbers of the runs over these seeds; a seed's own number where nothing is repeated."""
        return [seed * self.repeats + repeat for seed in seeds[: self.first] for repeat in range(self.repeats)]

    def part(self, seed: int) -> str:
        """The file name of one run."""
        return f"{self.key[:20]}-{seed:06d}.parquet"


class StoredColumns(Mapping[str, Array]):
    """The columns of a cell's parts, each read when asked for, stacked over seeds (n, K)."""

    def __init__(self, parts: tuple[Path, ...], names: tuple[str, ...] = COLUMNS) -> None:
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


@dataclass(frozen=True, eq=False)
class Cell:
    """The finished runs of one agent in one world."""

    info: CellInfo
    seeds: tuple[int, ...]
    columns: Mapping[str, Array]

    def __getitem__(self, column: str) -> Array:
        return self.columns[column]

    @property
    def instances(self) -> tuple[int, ...]:
        """The instance (seed) of each run; several runs may share one."""
        return tuple(run // self.info.repeats for run in self.seeds)

    @property
    def label(self) -> str:
        """Unique within the study; says whether β is the theorem's or tuned."""
        return self.info.label

    @property
    def agent(self) -> str:
        """Registry name of the agent."""
        return self.info.agent

    @property
    def explorer(self) -> str:
        """Where its optimism comes from: paper, certified, directional or plain."""
        return self.info.explorer

    @property
    def world(self) -> str:
        """Registry name of the world."""
        return self.info.world

    @property
    def options(self) -> dict[str, Any]:
        """The agent's options."""
        return self.info.options

    @property
    def world_options(self) -> dict[str, Any]:
        """The world's options."""
        return self.info.world_options

    @property
    def cost_radius_origin(self) -> str:
        """Whether the safe set's β is a guarantee: theorem, tuned, exact or none."""
        return self.info.cost_radius_origin

    @property
    def value_radius_origin(self) -> str:
        """Whether the bonus's β is the theorem's or tuned."""
        return self.info.value_radius_origin


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
    def counts_units(self) -> bool:
        """Whether its runs are counted in interaction units (UNIT_COLUMNS) rather than episodes (COLUMNS)."""
        return any(cell.info.units is not None for cell in self.cells)

    @property
    def by_label(self) -> dict[str, Cell]:
        """Cells by label."""
        return {cell.label: cell for cell in self.cells}

    def digest(self) -> str:
        """A hash of every reproducible number: equal for any engine and any number of workers."""
        total = hashlib.sha256()
        for cell in self.cells:
            total.update(f"{cell.info.key}{cell.seeds}".encode())
            for name in (name for name in cell.info.columns if name != "plan_seconds"):
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
    data["episode"] = np.arange(episodes, dtype=np.int32)
    data.update({name: columns[name] for name in info.columns})
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
        info = CellInfo(**entry)
        parts = {run: folder / RUNS / info.part(run) for run in info.runs(manifest["seeds"])}
        done = tuple(seed for seed, part in parts.items() if part.is_file())
        missing += [(info.label, seed) for seed in parts if seed not in done]
        cells.append(Cell(info, done, StoredColumns(tuple(parts[run] for run in done), info.columns)))
    spec, told = manifest["spec"], manifest["environment"]
    return Results(
        study=spec["name"],
        title=spec["title"],
        episodes=spec["episodes"],
        spec=spec,
        cells=tuple(cells),
        missing=tuple(missing),
        version=told["version"],
        platform=told["platform"],
        kernel=told["kernel"],
        folder=folder,
    )


# Numbers from results: means with 95% bootstrap intervals over seeds, paired differences, a table per agent.

RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 2000
"""Curve points per block of the bootstrap: bounds its memory to 32 MB."""


class Interval(NamedTuple):
    """A mean over seeds with its bootstrap interval; each is a number, or a curve (...,)."""

    mean: Array
    low: Array
    high: Array

    def __str__(self) -> str:
        return f"{float(self.mean):.4g} [{float(self.low):.4g}, {float(self.high):.4g}]"


@dataclass(frozen=True)
class Row:
    """One agent in the table. Regret is R_K, summed over the episodes of a run."""

    agent: str
    explorer: str
    world: str
    seeds: int
    episodes: int
    reward_mean: float
    reward_ci: tuple[float, float]
    regret_mean: float
    regret_ci: tuple[float, float]
    regret_median: float
    regret_worst: float
    violations_total: int
    violating_runs: int
    worst_cost: float
    cost_radius_origin: str
    value_radius_origin: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def interval(samples: Array, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Mean over the first axis (seeds) with a percentile bootstrap: (n, ...) -> (...). Same seed, same interval."""
    rows = np.asarray(samples, dtype=np.float64)
    if rows.shape[0] == 0:
        raise TetherError("no run has finished, so there is no mean: run the study again.")
    count, flat = rows.shape[0], rows.reshape(rows.shape[0], -1)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=resamples) / count
    tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    bounds = np.empty((2, flat.shape[1]))
    for first in range(0, flat.shape[1], BLOCK):
        part = slice(first, first + BLOCK)
        bounds[:, part] = np.quantile(drawn @ flat[:, part], tails, axis=0)
    shape = rows.shape[1:]
    return Interval(rows.mean(axis=0), bounds[0].reshape(shape), bounds[1].reshape(shape))


def per_seed(cell: Cell, column: str) -> Array:
    """One number per run (n,): totals of regret and violations, means of the rest."""
    values = cell[column]
    totals: Array = values.sum(axis=1) if column in ("regret", "violations") else values.mean(axis=1)
    return totals


def paired_difference(first: Cell, second: Cell, column: str) -> Interval:
    """first − second on the seeds that both finished: the same instances and noise, so what they share cancels."""
    shared = sorted(set(first.seeds) & set(second.seeds))
    if not shared:
        raise TetherError(f"{first.label} and {second.label} have no finished seed in common.")
    ours, theirs = (per_seed(cell, column)[[cell.seeds.index(seed) for seed in shared]] for cell in (first, second))
    return interval(ours - theirs)


def row(cell: Cell, episodes: int) -> Row:
    """The table's line for one cell."""
    rewards, regrets, violations = (per_seed(cell, name) for name in ("reward", "regret", "violations"))
    reward, regret = interval(rewards), interval(regrets)
    return Row(
        agent=cell.label,
        explorer=cell.explorer,
        world=cell.world,
        seeds=len(cell.seeds),
        episodes=episodes,
        reward_mean=float(reward.mean),
        reward_ci=(float(reward.low), float(reward.high)),
        regret_mean=float(regret.mean),
        regret_ci=(float(regret.low), float(regret.high)),
        regret_median=float(np.median(regrets)),
        regret_worst=float(regrets.max()),
        violations_total=int(violations.sum()),
        violating_runs=int((violations > 0).sum()),
        worst_cost=float(cell["worst_cost"].max()),
        cost_radius_origin=cell.cost_radius_origin,
        value_radius_origin=cell.value_radius_origin,
    )


def table(results: Results) -> list[Row]:
    """A row per cell that has at least one finished run, in the order of the spec."""
    return [row(cell, results.episodes) for cell in results.cells if cell.seeds]
