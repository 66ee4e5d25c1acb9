"""Watch the set of certified actions grow: `python safe_set.py` writes safe-set.gif; needs "tether-rl[experiments]".

Two levers of a machine, each from full back to full forward. Leaving both alone is known to be safe. Heat and vibration
must stay under their limits, and how they depend on the levers must be found out from noisy readings.
"""

import sys

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.figure import Figure

from tether import CertifiedAgent, Constraint, Problem, StarActions, certified_set

TURN = np.linspace(0.0, 2.0 * np.pi, 72, endpoint=False)
RAYS = np.stack([np.cos(TURN), np.sin(TURN)], axis=1)
RAYS /= np.abs(RAYS).max(axis=1, keepdims=True)  # from the middle to the walls of the square
SCALE = np.sqrt(3.0)  # keeps every feature (1, lever 1, lever 2) inside the unit ball
ACTIONS = StarActions(np.array([1.0, 0.0, 0.0]) / SCALE, np.insert(RAYS, 0, 1.0, axis=1) / SCALE)
LIMIT, NOISE, DECISIONS = 0.5, 0.1, 1000
TRUE = np.array([[0.1, 0.45, 0.25], [0.2, -0.5, 0.3]])  # heat and vibration: what the learner must find out
LIMITS = [Constraint(threshold=LIMIT, noise=NOISE, safe_cost=at_rest, gamma_norm=1.2) for at_rest in TRUE[:, 0]]
PROBLEM = Problem(horizon=1, dimension=3, actions=lambda state: ACTIONS, constraints=LIMITS)


class Curious(CertifiedAgent):
    """Goes into a direction drawn by chance, as far as is certified."""

    def prepare(self, rng):
        """Draw a wish for each direction; the last is that of the safe action."""
        self.wish = rng.random(len(RAYS) + 1)

    def choose(self, options):
        """Where it wishes to go most."""
        return options.best(self.wish)


agent, rng, costs = Curious(PROBLEM), np.random.default_rng(0), []
frames = {*np.geomspace(1, DECISIONS, 40).astype(int).tolist(), DECISIONS}
figure, writer = Figure(figsize=(4.4, 4.4)), PillowWriter(fps=5)
axes, mesh = figure.add_axes((0.12, 0.11, 0.82, 0.82)), np.linspace(-1.0, 1.0, 201)
axes.set(xlim=(-1, 1), ylim=(-1, 1), xlabel="lever 1", ylabel="lever 2", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
for base, first, second in TRUE:
    axes.contourf(mesh, mesh, base + first * mesh + second * mesh[:, None], [LIMIT, 9.0], colors=["#f0c4b8"])
(certified,) = axes.fill([], [], color="#8fbbe0")
for x, y, words in ((0.75, 0.88, "too hot"), (-0.6, 0.88, "shakes too much"), (0.0, -0.04, "certified")):
    axes.text(x, y, words, ha="center")
with writer.saving(figure, sys.argv[1] if len(sys.argv) > 1 else "safe-set.gif", 100):
    for n in range(1, DECISIONS + 1):
        agent.plan()
        decision = agent.act(0, "now")
        costs.append(TRUE @ decision.feature * SCALE)
        axes.plot(*decision.feature[1:] * SCALE, ".", color="#123c66", markersize=2)
        agent.observe(decision.outcome(reward=0.0, cost=tuple(costs[-1] + rng.normal(0.0, NOISE, 2))))
        certified.set_xy(RAYS * certified_set(agent.core, 0, "now").lengths[:, None])
        axes.set_title(f"decision {n}, {(np.array(costs) > LIMIT).any(axis=1).sum()} over a limit", loc="left")
        for _ in range((n in frames) + 14 * (n == DECISIONS)):  # the last picture stays
            writer.grab_frame()
print(f"largest true cost {np.max(costs):.3f}, limit {LIMIT}")
assert np.max(costs) <= LIMIT
