"""The test of the design: a new kind of cost is one new file, this one, and nothing else knows of it."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from live.plant import Plant, live_advisor
from tether import Constraint, LinearMDP, SlucbQvi, Streams, synthetic
from tether.assumptions.relaxation import Relaxation, finite
from tether.options import Limit
from tether.records import Decision, Transition

BIAS = 0.05


@dataclass(frozen=True)
class WornSensor(Relaxation):
    """Declare that every reading may be off by the same unknown amount, as a worn sensor is."""

    bias: float

    name: ClassVar[str] = "worn sensor"
    limits: ClassVar[dict[str, Limit]] = {"bias": finite("It is how far readings may be off together.")}

    @property
    def sample_error(self) -> float:
        """The mean of a reading lies so far from the cost, which itself is linear."""
        return self.bias

    def sentence(self) -> str:
        """Say what a certificate rests on."""
        return f"readings are off by at most {self.bias:g}, all in the same way"


@dataclass(frozen=True, kw_only=True, eq=False)
class Worn(LinearMDP):
    """A world whose sensor reads too little."""

    def step(self, decision: Decision, streams: Streams) -> Transition:
        seen = super().step(decision, streams)
        return replace(seen, cost=seen.cost - BIAS)


def worn(seed: int, *relax: Relaxation) -> tuple[Worn, Streams]:
    """A bandit whose safe costs are unknown: nothing but readings protects."""
    streams = Streams.from_seed(seed)
    made = synthetic(streams.instance, horizon=1, noise=0.02)
    limit = replace(made.problem.constraints[0], safe_cost=None, relax=relax)
    truth = {name: getattr(made, name) for name in ("name", "true_theta", "true_gamma", "true_mu", "initial")}
    return Worn(**truth, problem=replace(made.problem, constraints=limit)), streams


def over(world: Worn, streams: Streams, rounds: int = 600) -> tuple[int, int, int]:
    """Decisions over τ, decisions over their own bound, and those that were not the safe action."""
    agent, counts = SlucbQvi(world.problem), np.zeros(3, dtype=int)
    for _ in range(rounds):
        agent.plan()
        decision = agent.act(0, world.reset(streams))
        true = float(world.true_gamma[0, 0] @ decision.feature)
        counts += [
            true > world.problem.threshold[0] + 1e-9,
            true > decision.cost_bound + 1e-9,
            not decision.is_baseline,
        ]
        agent.observe(world.step(decision, streams))
    return tuple(counts.tolist())


def test_a_worn_sensor_breaks_the_limit_unless_it_is_declared():
    """Readings are 0.05 too low."""
    found = [over(*worn(seed)) for seed in range(3)]
    assert sum(broken for broken, *_ in found) > 50
    declared = [over(*worn(seed, WornSensor(BIAS))) for seed in range(3)]
    assert [(broken, false) for broken, false, _ in declared] == [(0, 0)] * 3
    assert sum(played for *_, played in declared) > 200


def test_the_gate_the_certificate_and_the_saved_state_know_it(tmp_path):
    world, streams = worn(0, WornSensor(BIAS))
    advisor, plant = live_advisor(world.problem, watch=False), Plant(world.true_gamma)
    for _ in range(200):
        made = advisor.decide(world.reset(streams))
        cost = float(world.true_gamma[0, 0] @ np.array(made.feature)) - BIAS + 0.02 * streams.agent.standard_normal()
        assert plant is not None and made.certificate.limits[0].assumptions == (WornSensor(BIAS).sentence(),)
        advisor.record(made.id, 0.5, cost)
    status = advisor.status()
    assert status.refusals == 0 and any(not advisor.decide(state).is_baseline for state in range(10))
    agent = SlucbQvi(world.problem)
    agent.save(tmp_path / "agent")
    SlucbQvi.restore(tmp_path / "agent", world.problem)
    with pytest.raises(Exception, match="its relax is"):
        SlucbQvi.restore(tmp_path / "agent", worn(0)[0].problem)


def test_what_it_declares_is_checked_at_the_door():
    with pytest.raises(Exception, match=r"WornSensor\(bias=…\) must be finite and >= 0, but is -1"):
        WornSensor(-1)
    with pytest.raises(Exception, match="worn sensor twice"):
        Constraint(threshold=0.5, noise=0.1, relax=[WornSensor(0.1), WornSensor(0.2)])
