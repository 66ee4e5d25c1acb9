"""Stop a learner, restore it in a new object, and see that it continues bit for bit."""

import tempfile
from pathlib import Path

from tether import LinearMDP, SlucbQvi, Streams, synthetic


def play(agent: SlucbQvi, world: LinearMDP, streams: Streams, episodes: int) -> float:
    total = 0.0
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(world.problem.horizon):
            outcome = world.step(agent.act(step, state), streams)
            agent.observe(outcome)
            total += outcome.reward
            state = outcome.next_state
    return total


world = synthetic(Streams.from_seed(0).instance)
original, streams = SlucbQvi(world.problem), Streams.from_seed(1)
play(original, world, streams, 100)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "learner.tether"
    original.save(path)
    restored = SlucbQvi.restore(path, world.problem)

first = play(original, world, Streams.from_seed(2), 100)
second = play(restored, world, Streams.from_seed(2), 100)
print(f"original {first!r}, restored {second!r}")
assert first == second
