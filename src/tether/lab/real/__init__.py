"""Worlds that nobody here wrote, one file each: other people's simulators with a limit, and what a user declares.

`tether reproduce real` plays them; tether.lab.studies.real shows what came out. Each file ends with its `WORLD`, and
imports its package only where an environment is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from tether.errors import InputError, TetherError, nearest

if TYPE_CHECKING:
    from tether.lab.specs import Study

NAMES = tuple(module.name.replace("_", "-") for module in iter_modules(__path__) if module.name != "play")
"""What a world may be called: the files of this package, "_" written as "-". `play` plays them."""


@dataclass(frozen=True, kw_only=True)
class RealWorld:
    """One world: how to make it, what is declared of it, and how people speak of it.

    Attributes:
        name, title: as in NAMES, and for people.
        needs: modules that must be importable, with the requirement that brings them, as in requirements-real.txt.
        cells: variants of the world (a building and its weather, a patient, a motor): seed s plays cell s mod n.
        horizon, episodes: H, and how many episodes a run has; every method gets H · episodes steps.
        make_env: (cell, seed) -> a Gymnasium environment. Its step puts observed costs (M,) into info["cost"]; where
            they differ from the truth, the true expected costs (M,) into info["true_cost"]; and what the picture shows
            into info["signals"], one number for each of `signals`. All randomness comes from reset(seed=…).
        declare: cell -> keyword arguments of `tether.Bridge`: features, safe_action, constraints, reward_range,
            names, … (horizon is set from here). What a user has to know and write.
        learning: further keyword arguments of `tether.learn`, such as stationary=True.
        setup: the functions and classes that a user writes for `declare`; their lines are counted.
        truth: whether info says the true cost of a step, and why in a few words; "" if violations are observed ones.
        gain, reward_scale: the unit in which gain is shown, and how many of them one unit of reward summed over an
            episode is.
        relative: whether gain is shown relative to what the safe action uses, the mean of its second signal in a run:
            in worlds whose variants differ in size.
        signals: (name, unit) of what the picture shows: the limited quantity, and in its unit what it should follow;
            or the limited one, another one, and what that one should follow.
        limits: (low, high) of the first signal, in its unit; None where there is none on that side.
        penalty: what the penalised methods subtract from the reward of a step that is over τ, in units of reward_range.
    """

    name: str
    title: str
    needs: Mapping[str, str]
    cells: tuple[str, ...]
    horizon: int
    episodes: int
    make_env: Callable[[str, int], Any]
    declare: Callable[[str], dict[str, Any]]
    learning: Mapping[str, Any] = field(default_factory=dict)
    setup: tuple[Any, ...] = ()
    truth: str = ""
    gain: str = "reward an episode"
    reward_scale: float = 1.0
    relative: bool = False
    signals: tuple[tuple[str, str], ...] = ()
    limits: tuple[float | None, float | None] = (None, None)
    penalty: float = 1.0

    def cell_of(self, seed: int) -> str:
        """The variant that a seed plays."""
        return self.cells[seed % len(self.cells)]


def described(name: str) -> RealWorld:
    """A world by name, as it is described: its packages need not be there."""
    if name not in NAMES:
        raise InputError(f"there is no real world {name!r}{nearest(name, list(NAMES))}")
    world: RealWorld = import_module(f"tether.lab.real.{name.replace('-', '_')}").WORLD
    return world


def find_world(name: str) -> RealWorld:
    """A world by name, ready to be played; says what to install where its packages are missing."""
    world = described(name)
    lacking = [requirement for module, requirement in world.needs.items() if find_spec(module) is None]
    if lacking:
        raise TetherError(
            f"{world.title} needs {', '.join(lacking)}: `make real` installs it into .venv-real and runs the study."
        )
    return world


def is_real(study: "Study") -> bool:
    """Whether its worlds are those of this package; they are not mixed with others."""
    real = [world.name in NAMES for world in study.worlds]
    if any(real) and not all(real):
        raise InputError(f"study {study.name!r} mixes real worlds with simulated ones: make two studies of it.")
    return all(real)
