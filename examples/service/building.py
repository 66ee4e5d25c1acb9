"""The building of the tutorial: what the learner is told (`problem`), and a simulated house to try it on (`WORLD`)."""

import numpy as np

from tether import heating

WORLD = heating(np.random.default_rng(7))
problem = WORLD.problem
