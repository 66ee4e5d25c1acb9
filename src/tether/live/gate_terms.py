"""The gate of an agent: built from the problem and the settings, never from a number that the learner computed."""

from typing import Literal

import numpy as np

from tether.agents.slucb import SlucbQvi, all_facts
from tether.kernels.model import ALL, STATE
from tether.live.gate import Gate
from tether.live.gate_facts import Terms, WeighedFacts


def terms_of(agent: SlucbQvi) -> Terms:
    """Return what the gate knows of an agent: constants of its problem and its settings."""
    problem, config = agent.problem, agent.config
    memory: Literal["state", "visited", "all"] = "state" if agent.rules.memory == STATE else config.condition_on
    return Terms(
        memory=memory,
        error=None if problem.baseline_cost is None else np.array(problem.baseline_cost_error),
        point_error=problem.point_error,
        sample_error=problem.sample_error,
        assumptions=problem.sentences,
        reserve=problem.reserve,
        end_reserve=problem.end_reserve,
        limits_measured=problem.realised is not None,
        radius=config.cost_radius,
        reduces=config.explorer != "paper",
        threshold=np.array(problem.threshold),
        noise=np.array(problem.noise),
        gamma_norm=np.array(problem.gamma_norm),
        cost_range=np.array(problem.cost_range) if problem.lost == "worst-case" else None,
        bounded=tuple(np.flatnonzero(problem.bounded).tolist()),
        feature_norm=float(problem.feature_norm),
        confidence=problem.confidence,
        stages=agent.stages,
        dimension=int(problem.dimension),
        ridge=float(agent.costs.ridge),
        drift=np.array(problem.drift) if any(problem.drift) else None,
        drift_per=problem.drift_per,
        listed=problem.listed_features() if any(problem.bounded) else None,
    )


def gate_of(agent: SlucbQvi) -> Gate:
    """Return a gate before the first outcome, with the safe costs that are facts from the start."""
    gate, problem = Gate(terms_of(agent)), agent.problem
    if agent.rules.memory == ALL:
        for known in all_facts(problem):
            for step in range(problem.horizon):
                gate.remember(step, known.actions.phi_0, known.baseline_cost[step])
    weigh_alike(gate, agent)
    return gate


def weigh_alike(gate: Gate, agent: SlucbQvi) -> None:
    """Give the gate the learner's weights of facts: any weight is valid, but both must use the same."""
    if isinstance(gate.facts, WeighedFacts):
        facts = agent.costs.facts
        for stage in np.flatnonzero(facts.used_visits != gate.facts.used_visits):
            gate.weigh(int(stage), float(facts.weight[stage]))
