"""Small problems and streams of outcomes for the tests of `tether.check`."""

import numpy as np


def outcomes(seed, count, cost, *, d=4, noise=0.1):
    """(x, z) with x uniform on the simplex, z = cost(γ, x, t) + Gaussian noise, γ uniform on the cube."""
    rng = np.random.default_rng(seed)
    gamma = rng.random(d)
    for t in range(count):
        x = rng.dirichlet(np.ones(d))
        yield x, np.array([cost(gamma, x, t) + noise * rng.standard_normal()])


def linear(gamma, x, t):
    """The truth that the tests assume."""
    return gamma @ x


def feed(monitor, stream, step=0):
    """Observe until the first alarm; how many it took, or None."""
    for count, (x, z) in enumerate(stream, start=1):
        monitor.observe(step, x, z, 0.0)
        if monitor.alarm:
            return count
    return None
