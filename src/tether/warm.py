"""Compile every kernel once and keep the machine code: `python -m tether.warm`. Done by the first run otherwise."""

import numpy as np


def warm() -> None:
    """Run a few episodes of the shipped algorithms on a tiny world."""
    from tether.agents.lsvi_ucb import LsviUcb
    from tether.agents.rslucb_qvi import RslucbQvi
    from tether.agents.slucb_qvi import SlucbConfig, SlucbQvi
    from tether.experiments.simulate import simulate, simulate_stepwise
    from tether.experiments.units import Schedule, simulate_units
    from tether.learning.mixture_choice import put_on_desk
    from tether.learning.randomised import settle
    from tether.learning.statistics import ONLY_BASELINE
    from tether.world.frozen_lake import frozen_lake
    from tether.world.linear_mdp import Streams
    from tether.world.synthetic import synthetic

    streams = Streams.from_seed(0)
    world = synthetic(streams.instance, states=2, rays=3, dimension=2, horizon=2)
    simulate(world, LsviUcb(world.problem, true_gamma=world.true_gamma), 2, streams)
    simulate_stepwise(world, SlucbQvi(world.problem), 2, streams)
    lake = frozen_lake(streams.instance, horizon=2)
    mixing = RslucbQvi(lake.problem, rng=streams.agent)
    simulate_units(lake, mixing, 1, streams, Schedule(steps=3))
    sheet, desk = mixing._stationery(mixing.tables)  # what an answer of the interior-point method goes through
    n = put_on_desk(mixing.tables, sheet, 0, 0, desk)
    settle(mixing.rules, mixing.tables, mixing.current, 0, 0, 0.0, ONLY_BASELINE, n, desk)
    asked = RslucbQvi(lake.problem, rng=streams.agent)
    asked.observe(lake.step(asked.act(0, np.int64(0)), streams))
    for agent in (SlucbQvi(world.problem), SlucbQvi(world.problem, SlucbConfig(backup="lean"))):
        agent.observe(world.step(agent.act(0, np.int64(0)), streams))
        agent.plan()


if __name__ == "__main__":
    warm()
