"""Dose titration: what the learner prescribes after 0, 100 and 600 patients, and the certificate behind each dose."""

from tether import SlucbQvi, StarAction, Streams, dosing
from tether.lab.worlds.dosing import DIRECTIONS, STAGES, TYPES

streams = Streams.from_seed(0)
world = dosing(streams.instance)
agent = SlucbQvi(world.problem)
names, stage = list(DIRECTIONS), STAGES.index("moderate")
worst = 0.0


def prescription(kind: str) -> str:
    """In words, with the bound on its toxicity."""
    decision = agent.propose(0, TYPES.index(kind) * len(STAGES) + stage)
    action = decision.action
    assert isinstance(action, StarAction)
    dose = "the standard dose" if action.ray < 0 else f"{names[action.ray]}, {100 * action.length:.0f}% of full"
    return f"{dose} (toxicity <= {decision.cost_bound:.3f} <= {decision.threshold})"


for patient in range(601):
    state = world.reset(streams)
    agent.plan()
    if patient in (0, 100, 600):
        print(f"after {patient} patients, moderate stage, first visit")
        for kind in TYPES:
            print(f"  {kind + ' metaboliser:':<22}{prescription(kind)}")
    for visit in range(world.problem.horizon):
        outcome = world.step(agent.act(visit, state), streams)
        worst = max(worst, float(world.true_gamma[visit, 0] @ outcome.feature))
        agent.observe(outcome)
        state = outcome.next_state
print(f"largest true toxicity of any dose given: {worst:.3f}, threshold {world.problem.threshold[0]}")
assert worst <= world.problem.threshold[0]
