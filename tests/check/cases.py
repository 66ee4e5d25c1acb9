"""Small problems and streams of outcomes for the tests of `tether.check`."""

import numpy as np

from tether import Problem


def simplex_problem(d=4, *, horizon=1, noise=0.1, constraints=1, confidence=0.01, **told):
    """Rays from the middle of the simplex to its corners; the cost of a_0 is declared as 0.4."""
    middle = np.full((1, d), 1.0 / d)
    settings = {
        "baseline_cost": np.full((horizon, 1, constraints), 0.4),
        "horizon": horizon,
        "threshold": [0.6] * constraints,
        "noise": noise,
        "confidence": confidence,
        **told,
    }
    return Problem.from_rays(phi_0=middle, endpoints=np.eye(d)[None], **settings)


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
