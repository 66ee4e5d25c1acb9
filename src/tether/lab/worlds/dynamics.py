"""One step of a linear MDP, compiled."""

from tether.kernels.compiled import Matrix, Vector, kernel, use


@kernel
def draw(probabilities: Vector, uniform: float) -> int:
    """The index that a uniform number falls on; the last one with mass if rounding leaves the total below it."""
    total, last = 0.0, 0
    for state in range(probabilities.shape[0]):
        if probabilities[state] > 0.0:
            total += probabilities[state]
            last = state
            if uniform < total:
                return state
    return last


@kernel
def play(
    theta: Vector, gamma: Matrix, mu: Matrix, noise: Vector, x: Vector, normal: Vector, uniform: float, out: Vector
) -> int:
    """One step at feature x (d,): returns the next state; reward and noisy costs go into `out` (1 + M,).

    `noise` and `normal` are (M,), or (M + 1,) where the reward is noisy too.
    """
    out[0] = 0.0
    for k in range(x.shape[0]):
        out[0] += theta[k] * x[k]
    if noise.shape[0] > gamma.shape[0]:
        out[0] += noise[gamma.shape[0]] * normal[gamma.shape[0]]
    for j in range(gamma.shape[0]):
        cost = noise[j] * normal[j]
        for k in range(x.shape[0]):
            cost += gamma[j, k] * x[k]
        out[1 + j] = cost
    total, last = 0.0, 0
    for state in range(mu.shape[1]):
        probability = 0.0
        for k in range(x.shape[0]):
            probability += mu[k, state] * x[k]
        if probability > 0.0:
            total += probability
            last = state
            if uniform < total:
                return state
    return last


use(globals())
