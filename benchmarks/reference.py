"""How many times faster the compiled agents plan than tether/reference.py, in one run, at the paper's size.

python benchmarks/reference.py      # S = 10, N = 100, d = 5, H = 3: section 5.1 of the paper
"""

import json
import sys
import time

import numpy as np

from tether import RslucbQvi, SlucbConfig, SlucbQvi, Streams, synthetic
from tether.reference import Rslucb, Slucb

EPISODES = 200


def planning_seconds(agent, world) -> float:
    """CPU seconds of all plans in a run; episodes are played in between."""
    streams, spent = Streams.from_seed(0), 0.0
    for _ in range(EPISODES if not isinstance(agent, Rslucb | RslucbQvi) else EPISODES // 20):
        state = world.reset(streams)
        begun = time.process_time()
        agent.plan()
        spent += time.process_time() - begun
        for step in range(world.problem.horizon):
            seen = world.step(agent.act(step, state), streams)
            agent.observe(seen)
            state = seen.next_state
    return spent


def main() -> None:
    """One ratio for each algorithm."""
    world = synthetic(Streams.from_seed(0).instance)
    config, rng = SlucbConfig.paper(1.0), np.random.default_rng
    pairs = {
        "slucb-qvi": (SlucbQvi(world.problem, config), Slucb(world.problem, 1.0)),
        "rslucb-qvi": (RslucbQvi(world.problem, config, rng=rng(0)), Rslucb(world.problem, 1.0, rng=rng(0))),
    }
    ratios = {}
    for name, (fast, slow) in pairs.items():
        fast.plan()  # what is loaded once is not counted
        ratios[name] = planning_seconds(slow, world) / planning_seconds(fast, world)
        print(f"{name}: the reference plans in {ratios[name]:.1f} times the time", file=sys.stderr)
    sizes = f"S = 10, N = 100, d = 5, H = 3, {EPISODES} and {EPISODES // 20} episodes"
    print(json.dumps({"values": ratios, "sizes": sizes}))


if __name__ == "__main__":
    main()
