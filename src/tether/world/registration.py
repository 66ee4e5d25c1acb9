"""The worlds under their Gymnasium names: import this module, or name it to make.

    import gymnasium
    env = gymnasium.make("tether.world.registration:tether/Synthetic-v0", instance=3, states=20)

Since version 1.0 Gymnasium no longer loads environments of installed packages by itself.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np

from tether.world.gym_adapter import WorldEnv
from tether.world.linear_mdp import LinearMDP, Streams

IDS = {
    "tether/Synthetic-v0": "synthetic.synthetic",
    "tether/FrozenLake-v0": "frozen_lake.frozen_lake",
    "tether/NotStarConvex-v0": "not_star_convex.not_star_convex",
    "tether/Dosing-v0": "dosing.dosing",
    "tether/Heating-v0": "heating.heating",
    "tether/AdLoad-v0": "ad_load.ad_load",
}
"""Gymnasium id -> module and function of tether.world that draws an instance."""


def make_world_env(
    world: str,
    *,
    instance: int = 0,
    observe_step: bool = True,
    reveal: bool = False,
    render_mode: str | None = None,
    **options: Any,
) -> WorldEnv:
    """The entry point of every id: `instance` seeds the draw of the world, `options` are the world's own.

    What happens in an episode is seeded by `env.reset(seed=…)`, separately.
    """
    module, name = world.split(".")
    create: Callable[..., LinearMDP] = getattr(import_module(f"tether.world.{module}"), name)
    draws = () if name == "not_star_convex" else (_instance_stream(instance),)
    return WorldEnv(create(*draws, **options), observe_step=observe_step, reveal=reveal, render_mode=render_mode)


def _instance_stream(instance: int) -> np.random.Generator:
    return Streams.from_seed(instance).instance


def register_worlds() -> None:
    """Register every id that is not there yet."""
    for name, world in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=f"{__name__}:make_world_env", kwargs={"world": world})


register_worlds()
