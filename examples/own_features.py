"""Features of your own: watering fields while the expected run-off stays low. States are dataclasses, actions vectors.

Builders keep ‖φ‖ <= 1 by construction, from the ranges that you state. `ActionRays` turns a safe action and targets
into the star-convex sets D(s) of a Problem, and refuses features that are not affine along its rays.
"""

from dataclasses import dataclass

import numpy as np

from tether import Constraint, Problem, SlucbQvi
from tether.features import ActionRays, AffineInAction, OneHot, Polynomial, Reading, concatenate


@dataclass(frozen=True)
class Field:
    """What is known before watering."""

    soil: str
    moisture: float  # 0 is dry, 1 is wet


SAFE = np.array([0.5, 0.5])  # litres through sprinklers and through drip lines, of at most 4 each
state = concatenate(
    Reading(lambda field: field.moisture, Polynomial(0.0, 1.0, degree=1)),
    Reading(lambda field: field.soil, OneHot(["sand", "clay"])),
)
features = AffineInAction(state, low=[0.0, 0.0], high=[4.0, 4.0])  # φ(s, a) = ψ(s) ⊗ (1, a), scaled
rays = ActionRays(features, safe_action=SAFE, targets=[[4.0, 0.5], [0.5, 4.0], [3.0, 3.0]])
print(features.describe())


def run_off(field: Field, litres: np.ndarray) -> float:
    """What the learner must find out, but for its value at SAFE. It lies in the span of the features."""
    steep = 0.03 if field.soil == "clay" else 0.02
    return 0.02 + 0.05 * field.moisture + (steep + 0.02 * field.moisture) * litres[0] + 0.02 * litres[1]


problem = Problem(
    horizon=1,
    constraints=Constraint(
        threshold=0.2, noise=0.02, safe_cost=lambda step, field: run_off(field, SAFE), gamma_norm=1.0
    ),
    dimension=features.dimension,
    actions=rays,
)
rng, agent, applied, worst = np.random.default_rng(0), SlucbQvi(problem), [], 0.0
for _ in range(1000):
    field = Field(str(rng.choice(["sand", "clay"])), float(rng.random()))
    agent.plan()
    decision = agent.act(0, field)
    litres = rays.action(field, decision.action)
    applied.append(litres.sum())
    worst = max(worst, run_off(field, litres))
    agent.observe(decision.outcome(reward=litres.sum() / 8.0, cost=run_off(field, litres) + rng.normal(0.0, 0.02)))
print(f"litres: {np.mean(applied[:100]):.2f} at first, {np.mean(applied[-100:]):.2f} in the end; safe: {SAFE.sum()}")
print(f"largest true run-off: {worst:.3f}, threshold {problem.threshold[0]}")
assert worst <= problem.threshold[0] and np.mean(applied[-100:]) > 2 * SAFE.sum()
