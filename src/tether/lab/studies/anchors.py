"""Anchors of the league: figures that others have published, run again with their own draws before we compare.

A row of the league counts once it reproduces its authors' figure. Bandit rows play all trials of an anchor side by side
(agents/relatives/bandit.py), ours one after another in compiled code, on the same instances and the same noise.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from tether.agents.agent import LeastSquaresAgent
from tether.agents.relatives import RelativeConfig
from tether.agents.relatives.bandit import RayBandit, Sums
from tether.agents.relatives.genop import GenOp, HplcConfig, HplcLucb
from tether.agents.relatives.roful import Roful
from tether.agents.relatives.safe_lts import SafeLtsAsCoded
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.lab import storage
from tether.lab.engines import Engine
from tether.lab.runner import CODE
from tether.lab.simulate import simulate
from tether.lab.specs import source_hash, spec_hash
from tether.lab.worlds.circulant import circulant
from tether.lab.worlds.hutchinson import hutchinson
from tether.lab.worlds.linear_mdp import LinearMDP, Streams
from tether.lab.worlds.planning import optimal_safe_policy
from tether.records import Array

POINTS = 200
"""Rounds at which regret is kept."""


class Trial(NamedTuple):
    """An instance with the standard normal noise of its rewards and costs, (T, 2)."""

    world: LinearMDP
    noise: Array


class Played(NamedTuple):
    """What some trials show: regret so far (B, P) after `rounds` (P,), and of each trial its violations and worst
    c − τ, (B,)."""

    rounds: Array
    regret: Array
    violations: Array
    worst: Array


Make = Callable[[LinearMDP, int], RayBandit | LeastSquaresAgent]
"""A new agent for an instance and so many rounds."""


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A published figure.

    Attributes:
        title, citation: of which figure.
        rounds, trials: its size.
        draw: its instances and noise, for so many rounds and trials.
        per_root: whether it shows R_T/√T (else R_T).
        players: who plays, by the name that is shown. The first of ours is compared with the others.
        published: what the figure says of some of them.
        within: how far a reproduction may be off, as a share.
        read: where the numbers were read, and what their spread comes from.
    """

    title: str
    citation: str
    rounds: int
    trials: int
    draw: Callable[[int, int], list[Trial]]
    per_root: bool
    players: Mapping[str, Make]
    published: Mapping[str, float]
    within: float
    read: str

    def statistic(self, regret: Array, rounds: int) -> Array:
        """What the figure shows, per trial."""
        shown: Array = regret / np.sqrt(rounds) if self.per_root else regret
        return shown


# Playing


def grid_of(rounds: int) -> Array:
    """At most POINTS rounds, the last among them."""
    grid: Array = np.unique(np.linspace(1, rounds, min(POINTS, rounds)).round()).astype(np.int64)
    return grid


def side_by_side(agent: RayBandit, trials: list[Trial], rng: np.random.Generator) -> Played:
    """One bandit rule in all trials at once: the agent's `choose` on arrays with an axis more."""
    worlds, noise = [trial.world for trial in trials], np.array([trial.noise for trial in trials])
    ends = np.array([world.endpoints[0] for world in worlds])  # (B, N, d)
    tau = np.array([world.problem.threshold for world in worlds])  # (B, 1)
    truth = np.array([[world.true_theta[0], world.true_gamma[0, 0]] for world in worlds])  # (B, 2, d)
    sigma = np.array([world.noise_scale[::-1] for world in worlds])  # of reward and cost, (B, 2)
    best = np.array([optimal_safe_policy(world).values[0, 0] for world in worlds])
    count, rounds = noise.shape[:2]
    means, every = ends @ truth.transpose(0, 2, 1), np.arange(count)  # (B, N, 2)
    sums, grid = Sums(ends.shape[2], agent.ridge, (count,)), grid_of(rounds)
    regret, over, worst = np.zeros(count), np.zeros(count), np.full(count, -np.inf)
    points: list[Array] = []
    for t in range(rounds):
        normal = rng.standard_normal((count, ends.shape[2])) if agent.draws else noise
        pick = agent.choose(sums.rays(ends, tau, normal))
        length = pick.length[:, None]
        mean = length * means[every, pick.ray]
        excess = mean[:, 1] - tau[:, 0]
        regret += best - mean[:, 0]
        over += excess > 1e-9
        worst = np.maximum(worst, excess)
        sums.add(length * ends[every, pick.ray], mean + sigma * noise[:, t])
        if t + 1 == grid[len(points)]:
            points.append(regret.copy())
    return Played(grid, np.array(points).T, over, worst)


class Recorded:
    """Noise that was drawn before, in the order in which a world asks for it: of the cost, then of the reward."""

    def __init__(self, noise: Array) -> None:
        self._noise, self._at = noise[:, ::-1], 0

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """The next block."""
        self._at += shape[0]
        return np.ascontiguousarray(self._noise[self._at - shape[0] : self._at]).reshape(shape)


def one_by_one(make: Make, trials: list[Trial], rounds: int) -> Played:
    """An agent of Tether in each trial, in compiled code."""
    regrets, over, worst, grid = [], [], [], grid_of(rounds)
    for number, (world, noise) in enumerate(trials):
        own = Streams.from_seed(number)
        streams = Streams(own.instance, own.transitions, cast(Any, Recorded(noise)), own.agent)
        books = simulate(world, cast(LeastSquaresAgent, make(world, rounds)), rounds, streams)
        regrets.append(np.cumsum(books.regret)[grid - 1])
        over.append(books.violations.sum())
        worst.append(books.worst_cost.max())
    return Played(grid, np.array(regrets), np.array(over), np.array(worst))


def play(anchor: Anchor, player: str, rounds: int, trials: int) -> Played:
    """One player in an anchor."""
    drawn, make = anchor.draw(rounds, trials), anchor.players[player]
    agent = make(drawn[0].world, rounds)
    if isinstance(agent, RayBandit):
        return side_by_side(agent, drawn, np.random.default_rng(1))
    return one_by_one(make, drawn, rounds)


# The anchors


def their_trials(tight: bool) -> Callable[[int, int], list[Trial]]:
    """Hutchinson et al.'s own draws: one generator with seed 0, instance and noise in turns."""

    def draw(rounds: int, trials: int) -> list[Trial]:
        rng = np.random.default_rng(0)
        return [Trial(hutchinson(rng, tight=tight), rng.standard_normal((rounds, 2))) for _ in range(trials)]

    return draw


def circulant_trials(rounds: int, trials: int) -> list[Trial]:
    """The circulant instance is fixed; its noise was not published. The data were stored by a run with σ = 0.1."""
    rng = np.random.default_rng(0)
    return [Trial(circulant(noise=0.1, reward_noise=0.1), rng.standard_normal((rounds, 2))) for _ in range(trials)]


def theirs(method: type[RayBandit], **options: Any) -> Make:
    """A relative by its theorem, or as published."""
    return lambda world, rounds: method(world.problem, method.config_type(**options))


TOLD = circulant().problem
"""What all are told of the circulant instance: σ = 1, as the script that stored its data takes it, which is 0.1."""


def as_coded(method: type[HplcLucb]) -> Make:
    """As that script: δ_t by the rounds that it kept, one in 100."""
    return lambda world, rounds: method(TOLD, HplcConfig(logged=100))


def ours(**options: Any) -> Make:
    """SLUCB-QVI with these options; "roful" stands for the radius that ROFUL has reached in the last round."""

    def make(world: LinearMDP, rounds: int) -> SlucbQvi:
        last = Roful(world.problem, RelativeConfig()).classical(rounds, world.problem.confidence / 2.0)
        set_to: dict[str, Any] = {name: last if value == "roful" else value for name, value in options.items()}
        return SlucbQvi(world.problem, SlucbConfig(**set_to))

    return make


OURS = "Tether, defaults"
EQUAL: dict[str, Make] = {
    "Tether, ROFUL's reward radius": ours(value_radius="roful", value_ridge=1.0),
    "Tether, ROFUL's cost radius": ours(cost_radius="roful", cost_ridge=1.0),
    "Tether, both of ROFUL's radii": ours(
        cost_radius="roful", cost_ridge=1.0, value_radius="roful", value_ridge=1.0, explorer="directional"
    ),
}
"""Where does the gain come from? Ours with ROFUL's radius for rewards, for costs, and for both."""

HUTCHINSON_PLAYERS = {"ROFUL": theirs(Roful), "LC-LUCB / GenOP": theirs(GenOp), OURS: ours(), **EQUAL}
HUTCHINSON = "Hutchinson, Turan, Alizadeh: Directional Optimism for Safe Linear Bandits, AISTATS 2024, Figure 2"
READ = "read off the axis of their figure; draws and noise are theirs (seed 0 of their script)"
ANCHORS: dict[str, Anchor] = {
    "hutchinson-large-b": Anchor(
        title="Large b: τ uniform on [¼, 1]",
        citation=HUTCHINSON + "a",
        rounds=50_000,
        trials=30,
        draw=their_trials(tight=False),
        per_root=True,
        players=HUTCHINSON_PLAYERS,
        published={"ROFUL": 0.65, "LC-LUCB / GenOP": 1.94},
        within=0.02,
        read=READ,
    ),
    "hutchinson-small-b": Anchor(
        title="Small b: τ uniform on [1/20, ¼]",
        citation=HUTCHINSON + "b",
        rounds=100_000,
        trials=30,
        draw=their_trials(tight=True),
        per_root=True,
        players=HUTCHINSON_PLAYERS,
        published={"ROFUL": 7.4, "LC-LUCB / GenOP": 13.0},
        within=0.02,
        read=READ,
    ),
    "circulant": Anchor(
        title="Circulant: d = 5, τ = ½, σ = 0.1, told 1",
        citation="Pacchiano, Ghavamzadeh, Bartlett: arXiv 2401.08016, data of the authors' repository",
        rounds=100_000,
        trials=10,
        draw=circulant_trials,
        per_root=False,
        players={
            "HPLC-LUCB, as coded": as_coded(HplcLucb),
            "Safe-LTS, as coded": as_coded(SafeLtsAsCoded),
            OURS: lambda world, rounds: SlucbQvi(TOLD),
        },
        published={"HPLC-LUCB, as coded": 30_683.0, "Safe-LTS, as coded": 51_828.0},
        within=0.02,
        read="stored by the authors (pacchiano/constrainedBandits, 6613b02: three runs, σ = 0.1, radii for σ = 1); the "
        "noise is not theirs",
    ),
}
QUICK_ROUNDS = 1000

HERE = source_hash(("lab/studies/anchors.py",))
"""Of this file, whose draws and settings no study holds."""


# Running and keeping


class Task(NamedTuple):
    """One player in one anchor, ready to be sent to another process."""

    anchor: str
    player: str
    rounds: int

    @property
    def file(self) -> str:
        """Where it is kept: its name changes with the code that its numbers depend on, this file's included."""
        return f"{self.anchor}-{spec_hash([*self, CODE, HERE])[:16]}.parquet"


def execute(task: Task, tell: Callable[[int], None]) -> bytes:
    """Play one task; returns its Parquet file: a row per trial and kept round."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    anchor = ANCHORS[task.anchor]
    played = play(anchor, task.player, task.rounds, anchor.trials)
    count, points = played.regret.shape
    table = pa.table(
        {
            "anchor": [task.anchor] * (count * points),
            "player": [task.player] * (count * points),
            "trial": np.repeat(np.arange(count), points),
            "round": np.tile(played.rounds, count),
            "regret": played.regret.ravel(),
            "violations": np.repeat(played.violations, points),  # of the whole trial
            "worst_cost": np.repeat(played.worst, points),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    tell(task.rounds)
    return sink.getvalue()


def tasks(quick: bool) -> list[Task]:
    """Every player of every anchor."""
    return [
        Task(name, player, QUICK_ROUNDS if quick else anchor.rounds)
        for name, anchor in ANCHORS.items()
        for player in anchor.players
    ]


def run(folder: Path, quick: bool, engine: Engine) -> None:
    """Play what is missing in `folder`; kill it at any time and start it again."""
    storage.make_folder(folder)
    wanted = tasks(quick)
    missing = [task for task in wanted if not (folder / task.file).is_file()]
    for index, content in engine.run(execute, missing, lambda index, done: None):
        if isinstance(content, Exception):
            raise content
        storage.write_atomically(folder / missing[index].file, content)


def kept(folder: Path) -> Iterator[tuple[Task, Played]]:
    """What was played in `folder` with this code, in the order of the anchors."""
    import pyarrow.parquet as pq

    for task in [*tasks(quick=False), *tasks(quick=True)]:
        path = folder / task.file
        if path.is_file():
            table = pq.read_table(path, use_threads=False)
            trials = ANCHORS[task.anchor].trials
            columns = {name: table[name].to_numpy().reshape(trials, -1) for name in table.column_names[3:]}
            yield (
                task,
                Played(
                    columns["round"][0], columns["regret"], columns["violations"][:, 0], columns["worst_cost"][:, 0]
                ),
            )
