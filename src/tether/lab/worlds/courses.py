"""From courses to a linear MDP: what the worlds of dosing, heating, ad load and bottling have in common.

A step is a mixture of a few *courses* that things may take: p(s, a) lies on the simplex over them, and each course has
its own law of the next state (soft state aggregation). Beside p stand *drivers* x(s, a), amounts that add to cost and
reward and to nothing else. The feature is φ = (p, x) / scale, so that all of it is linear in φ exactly:

    P_h(s'|s, a) = Σ_k p_k(s, a) law_h(k, s'),   r = ⟨θ, (p, x)⟩,   c_j = ⟨γ_j, (p, x)⟩.

Along a ray from a_0 both p and x are affine in the length: twice the length is twice the change. States that share
courses and drivers share data, which is why a learner can certify an action in a state where it was never tried.
"""

from dataclasses import dataclass

import numpy as np

from tether.assumptions.noise import Bounded
from tether.lab.worlds.linear_mdp import LinearMDP
from tether.problem.constraint import Constraint
from tether.problem.problem import Problem
from tether.records import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class CourseModel:
    """A world in its own units, before features are scaled. k courses, n drivers, N rays, M constraints.

    Attributes:
        start: (p, x) of the safe action in each state, (S, k + n); the first k entries of a row sum to 1.
        ends: (p, x) at the end of each ray, (S, N, k + n).
        laws: law of the next state under each course and step, (H, k, S).
        theta: reward per unit of (p, x), (k + n,).
        gamma: cost per unit of (p, x), one row per constraint, (M, k + n).
        gamma_norm: what the learner is told: B_j >= ‖γ_j‖ for every draw of the world, (M,), in the same units.
    """

    start: Array
    ends: Array
    laws: Array
    theta: Array
    gamma: Array
    gamma_norm: tuple[float, ...]

    @property
    def scale(self) -> float:
        """Largest norm of (p, x): features are divided by it, so that ‖φ‖ <= 1 (Assumption 4)."""
        return float(max(np.linalg.norm(self.start, axis=-1).max(), np.linalg.norm(self.ends, axis=-1).max()))

    def world(
        self,
        name: str,
        initial: Array,
        *,
        threshold: tuple[float, ...],
        noise: tuple[float, ...] | None,
        confidence: float,
        reward_noise: float,
    ) -> LinearMDP:
        """The LinearMDP: features divided by `scale`, parameters multiplied by it. Without σ, costs are yes or no."""
        horizon, courses, states = self.laws.shape
        scale, drivers = self.scale, self.start.shape[1] - courses
        base = self.start @ self.gamma.T  # (S, M)
        problem = Problem.from_rays(
            phi_0=self.start / scale,
            endpoints=self.ends / scale,
            constraints=[
                Constraint(
                    threshold=tau,
                    noise=Bounded() if noise is None else noise[j],
                    safe_cost=np.tile(base[:, j], (horizon, 1)),
                    gamma_norm=scale * self.gamma_norm[j],
                )
                for j, tau in enumerate(threshold)
            ],
            horizon=horizon,
            confidence=confidence,
            reward_noise=reward_noise,
        )
        idle = np.zeros((horizon, drivers, states))  # drivers move nothing
        return LinearMDP(
            name=name,
            problem=problem,
            true_theta=np.tile(scale * self.theta, (horizon, 1)),
            true_gamma=np.tile(scale * self.gamma, (horizon, 1, 1)),
            true_mu=scale * np.concatenate([self.laws, idle], axis=1),
            initial=initial,
        )


def perturbed(rng: np.random.Generator, values: Array, spread: float) -> Array:
    """Each value times its own uniform factor from 1 − spread to 1 + spread: one member of a population."""
    changed: Array = values * rng.uniform(1.0 - spread, 1.0 + spread, np.shape(values))
    return changed


def scale_of(world: LinearMDP, courses: int) -> float:
    """What the features of a world were divided by, read off the shares of its courses, which sum to 1."""
    return 1.0 / float(world.phi_0[0, :courses].sum())
