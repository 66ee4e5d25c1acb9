"""Frozen descriptions of studies, in and out of TOML; the paper's studies and some of ours ship by name.

name = "mine"
episodes = 1000
seeds = 5                      # seeds first_seed, first_seed + 1, ...

[[worlds]]
name = "synthetic"             # see `tether list`
options = { states = 10 }
grid = { noise = [0.01, 0.1] } # every combination is a cell of the study

[[agents]]
name = "slucb-qvi"
label = "directional"
options = { explorer = "directional" }
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, ValidationError, model_validator

from tether.errors import InputError, nearest
from tether.sections import Section, mistakes

Value = bool | int | float | str
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Schedule(Section):
    """Interaction units of so many steps instead of episodes: how they are cut into trajectories and plans."""

    steps: int = Field(default=1000, ge=1)
    restarts: bool = True  # after a trajectory has ended; without, the unit is over then
    receding: bool = False  # always play the first step of a plan; trajectories then last until they end
    plan_each: Literal["trajectory", "step", "unit"] = "trajectory"
    look_every: int = Field(default=1, ge=1)  # with "step": steps after which it is asked whether a plan is due


class Choice(Section):
    """A world or an agent by name, with fixed options and a grid of options to vary.

    Either may stay out of quick studies. A world may have other `episodes` than the rest. An agent may have its own
    `units`, may play every instance `repeats` times or only the `first` few, and may stay out of all worlds but `only`
    some, by their labels. `watches` are monitors of the cost model that look on without stopping it.
    """

    name: str
    label: str = ""
    options: dict[str, Value] = Field(default={})
    grid: dict[str, Annotated[list[Value], Field(min_length=1)]] = Field(default={})
    world_options: dict[str, Value] = Field(default={})
    episodes: int | None = Field(default=None, ge=1)  # of a world; the study's unless given
    units: Schedule | None = None
    repeats: int = Field(default=1, ge=1)
    first: int | None = Field(default=None, ge=1)  # only so many of the study's seeds
    in_quick: bool = True
    only: list[str] = Field(default=[])
    watches: list[Literal["per-step", "pooled"]] = Field(default=[])

    @model_validator(mode="after")
    def _fixed_or_varied(self) -> Self:
        both = sorted(self.options.keys() & self.grid.keys())
        if both:
            raise ValueError(f"option {both[0]!r} is both fixed in options and varied in grid")
        return self

    def combinations(self) -> list[tuple[dict[str, Value], dict[str, Value]]]:
        """(all options, the varied ones) for every point of the grid."""
        points = [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]
        return [({**self.options, **point}, point) for point in points]

    def named(self, varied: Mapping[str, Any]) -> str:
        """The given label with {option} filled in; varied options that it does not mention are appended."""
        template = self.label or self.name
        try:
            text = template.format(**{**self.options, **varied})
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(f"label {template!r} names an option that is not set: {error}") from None
        unsaid = [f"{name}={value}" for name, value in varied.items() if "{" + name not in template]
        return " ".join([text, *unsaid])


class Quick(Section):
    """The sizes that `--quick` takes instead."""

    episodes: int = Field(ge=1)
    seeds: int = Field(ge=1)


class Study(Section):
    """worlds × agents × options × seeds, each for `episodes` episodes (interaction units, if `units` says so)."""

    name: Name
    title: str = ""
    episodes: int = Field(ge=1)
    seeds: int = Field(ge=1)
    first_seed: int = Field(default=0, ge=0)
    quick: Quick | None = None
    units: Schedule | None = None
    worlds: list[Choice] = Field(min_length=1)
    agents: list[Choice] = Field(min_length=1)

    @property
    def seed_list(self) -> list[int]:
        """The seeds; every agent meets each of them, so that differences can be paired."""
        return list(range(self.first_seed, self.first_seed + self.seeds))

    def resized(self, *, quick: bool = False, first_seed: int | None = None) -> Self:
        """The same study with its quick sizes, or with other seeds."""
        changes: dict[str, Any] = {} if first_seed is None else {"first_seed": first_seed}
        if quick:
            small = self.quick or Quick(episodes=min(self.episodes, 1000), seeds=min(self.seeds, 3))
            agents = [{**agent.model_dump(), "repeats": 1} for agent in self.agents if agent.in_quick]
            worlds = [
                {
                    **world.model_dump(),
                    "episodes": None if world.episodes is None else min(world.episodes, small.episodes),
                }
                for world in self.worlds
                if world.in_quick
            ]
            changes |= {"episodes": small.episodes, "seeds": small.seeds, "agents": agents, "worlds": worlds}
        return type(self).model_validate({**self.model_dump(), **changes})

    @property
    def world_labels(self) -> list[str]:
        """Every world at every point of its grid, by its label."""
        return [world.named(varied) for world in self.worlds for _, varied in world.combinations()]

    def narrowed(self, agents: Sequence[str], worlds: Sequence[str]) -> Self:
        """The same study with some of its agents, by name or label, and some of its worlds, by label; [] is all.

        A world that is asked for is played in a quick look, too.
        """
        for what, wanted, known in (
            ("agent", agents, [name for each in self.agents for name in (each.name, each.label)]),
            ("world", worlds, self.world_labels),
        ):
            for name in wanted:
                if name not in known:
                    raise InputError(f"study {self.name!r} has no {what} {name!r}{nearest(name, known)}")
        data = self.model_dump()
        if agents:
            data["agents"] = [each for each in data["agents"] if {each["name"], each["label"]} & set(agents)]
        if worlds:
            data["worlds"] = [
                {**world.model_dump(), "label": world.named(varied), "options": options, "grid": {}, "in_quick": True}
                for world in self.worlds
                for options, varied in world.combinations()
                if world.named(varied) in worlds
            ]
        return type(self).model_validate(data)

    def joined_by(self, agents: Sequence[str]) -> Self:
        """The same study with further agents beside its own, by their registered names and at their defaults."""
        added = [{"name": name} for name in agents]
        return type(self).model_validate({**self.model_dump(), "agents": [*self.model_dump()["agents"], *added]})


def spec_hash(content: Any) -> str:
    """sha256 of the canonical JSON (sorted keys, no spaces) of a spec or of plain data."""
    plain = content.model_dump(mode="json") if isinstance(content, BaseModel) else content
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def source_hash(names: Sequence[str]) -> str:
    """A hash of the package's sources in these files and folders."""
    package = Path(__file__).parents[1]
    roots = [package / name for name in names]
    sources = [path for root in roots for path in (sorted(root.rglob("*.py")) if root.is_dir() else [root])]
    return spec_hash([[path.relative_to(package).as_posix(), path.read_text("utf-8")] for path in sources])


def parse(text: str, where: str) -> Study:
    """A study from TOML; every mistake is named with its place."""
    try:
        return Study.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not valid TOML: {error}") from None
    except ValidationError as error:
        raise InputError("\n".join(f"{where}: {mistake}" for mistake in mistakes(error))) from None


def read(path: Path) -> Study:
    """A study from a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read the spec {path}: {reason}.") from None
    return parse(text, str(path))


def find(name: str) -> Study:
    """A study from a TOML file or, where there is no such file, a shipped one by name."""
    path = Path(name)
    if path.exists() or path.suffix == ".toml" or len(path.parts) > 1:
        return read(path)
    return paper_study(name)


def shipped() -> list[str]:
    """Names of the studies that this version brings: the paper's figures and ours."""
    folder = files("tether.lab").joinpath("studies")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def paper_study(name: str) -> Study:
    """A shipped study by name."""
    if name not in shipped():
        raise InputError(f"there is no spec file {name!r} and no study of that name{nearest(name, shipped())}")
    entry = files("tether.lab").joinpath("studies", f"{name}.toml")
    return parse(entry.read_text(encoding="utf-8"), f"{name}.toml")


def to_toml(study: Study) -> str:
    """The study as TOML; `parse` gives it back."""
    data = study.model_dump(exclude_defaults=True)
    lists = {key: data.pop(key) for key in ("worlds", "agents")}
    lines = [f"{key} = {_toml(value)}" for key, value in data.items()]
    for key, entries in lists.items():
        for entry in entries:
            lines += ["", f"[[{key}]]", *(f"{name} = {_toml(value)}" for name, value in entry.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A TOML value. JSON's strings, numbers and booleans are also TOML's."""
    if isinstance(value, dict):
        inside = ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {_toml(entry)}" for key, entry in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
