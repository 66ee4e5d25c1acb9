"""Play every agent for some episodes and print a digest of what each decided and learned: `python -m kernels.bits 40`.

Run as a program, so that the kernels can be chosen by TETHER_KERNELS. Digests are equal exactly when all bits are.
"""

import hashlib
import json
import sys

from agents.cases import CASES, LEAN, RANDOMISED, choices, learned
from tether.agents.testing import essence, play
from tether.kernels import compiled
from tether.lab.simulate import simulate
from tether.lab.worlds.linear_mdp import Streams


def played(case, episodes):
    """Decisions and sums of an agent that is asked step by step."""
    agent = case.make()
    decisions = play(case.world, agent, Streams.from_seed(5), episodes)
    return choices(decisions), learned(agent), essence(agent.current)


def simulated(case, episodes):
    """Books and sums of an agent whose episodes run in compiled blocks."""
    agent = case.make()
    books = simulate(case.world, agent, episodes, Streams.from_seed(5))
    return essence(books), learned(agent)


def digests(episodes):
    """By agent."""
    made = {name: played(case, episodes) for name, case in CASES.items()}
    blocks = [name for name in CASES if name not in (*RANDOMISED, *LEAN)]
    made |= {f"{name}, simulated": simulated(CASES[name], episodes) for name in blocks}
    return {name: hashlib.sha256(repr(result).encode()).hexdigest() for name, result in made.items()}


if __name__ == "__main__":
    extension = compiled.EXTENSION
    print(json.dumps({"ran": extension.__name__ if extension else "python", "digests": digests(int(sys.argv[1]))}))
