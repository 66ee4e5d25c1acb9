"""The building of the tutorial: what the learner knows (`problem`), and a simulated house (`WORLD`)."""

import numpy as np

from tether import heating

WORLD = heating(np.random.default_rng(7))
problem = WORLD.problem
