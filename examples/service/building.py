"""The building of the tutorial: what the learner knows (`problem`), and a simulated house (`WORLD`)."""

from dataclasses import replace

import numpy as np

from tether import Names, heating
from tether.lab.worlds.heating import DIRECTIONS

WORLD = heating(np.random.default_rng(7))
problem = replace(WORLD.problem, names=Names(actions=list(DIRECTIONS)))  # what the dashboard calls them
