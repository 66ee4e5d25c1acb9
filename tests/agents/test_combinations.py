"""Options together, as somebody would try them: each is refused in words, or keeps to its bounds and is saved whole."""

from itertools import product

import numpy as np
import pytest

from limits import stated
from tether import InputError, Problem, RslucbQvi, SlucbQvi

SAFE = np.array([[0.9, 0.05, 0.05], [0.8, 0.1, 0.1]])
ENDS = np.random.default_rng(0).dirichlet(np.ones(3), (2, 6))
GAMMA = np.array([[0.05, 0.3, 0.6], [0.1, 0.2, 0.5]])
NOISE = 0.02

REALISED = {"limit": "realised", "exceedance": 0.1}
WORST = {"lost": "worst-case", "cost_range": (-1.0, 2.0)}
KINDS = {"cost_kind": ("bounded", "gaussian")}  # two constraints
OPTIONS = {
    "bounded": {"cost_kind": "bounded", "noise": None},
    "bounded, worst case": {"cost_kind": "bounded", "noise": None, "lost": "worst-case"},
    "bounded, rough": {"cost_kind": "bounded", "noise": None, "baseline_cost_error": 0.01},
    "both kinds": KINDS,
    "both kinds, worst case": {**KINDS, **WORST},
    "both kinds, misfit of one": {**KINDS, "misfit": (0.0, 0.01)},
    "both kinds, drift of one": {**KINDS, "drift": (0.0, 1e-4)},
    "misfit, drift, worst case": {"misfit": 0.01, "drift": 1e-5, **WORST},
    "realised, misfit": {**REALISED, "misfit": 0.01},
    "realised, drift, misfit, worst case": {**REALISED, "drift": 1e-5, "misfit": 0.01, **WORST},
    "realised, scaled, worst case": {**REALISED, "noise_scales": True, **WORST},
}
REFUSED = {
    "bounded, misfit": {"cost_kind": "bounded", "misfit": 0.01},
    "bounded, drift": {"cost_kind": "bounded", "drift": 1e-4},
    "bounded, realised": {"cost_kind": "bounded", **REALISED},
    "one of two bounded, realised": {**KINDS, **REALISED},
}


def problem_of(options, is_star=True, knows=True):
    gamma = GAMMA if "cost_kind" in options and options["cost_kind"] != "bounded" else GAMMA[:1]
    costs = np.tile(SAFE @ gamma.T, (2, 1, 1)) if knows else None
    told = {
        "horizon": 2,
        "threshold": (0.3, 0.35)[: len(gamma)],
        "noise": NOISE,
        "baseline_cost_error": 0.0,
        "baseline_cost": costs,
        **options,
    }
    if is_star:
        return gamma, Problem.from_rays(phi_0=SAFE, endpoints=ENDS, **stated(**told))
    return gamma, Problem.from_table(
        features=np.hstack([SAFE[:, None], ENDS]), baseline_action=[0, 0], **stated(**told)
    )


def agent_of(problem, mixes):
    return RslucbQvi(problem, rng=np.random.default_rng(1)) if mixes else SlucbQvi(problem)


@pytest.mark.parametrize(("name", "is_star", "mixes"), list(product(OPTIONS, [True, False], [False, True])))
def test_no_cost_is_over_its_bound_and_what_is_restored_decides_alike(name, is_star, mixes, tmp_path):
    """Every tenth outcome is lost. A bound on the realised cost leaves room for the noise."""
    gamma, problem = problem_of(OPTIONS[name], is_star)
    if mixes and problem.realised is not None:
        with pytest.raises(InputError, match="an average over its draw"):
            agent_of(problem, mixes)
        return
    agent, rng = agent_of(problem, mixes), np.random.default_rng(2)
    for episode, step in product(range(12), range(2)):
        if step == 0:
            agent.plan()
        decision = agent.act(step, int(rng.integers(2)))
        for mine, shown in zip(gamma @ decision.mean_feature, decision.evidence, strict=True):
            assert mine <= shown.bound + 1e-12 and shown.bound <= shown.threshold
        means = gamma @ decision.feature
        costs = np.where(problem.bounded, rng.random(len(means)) < means, means + NOISE * rng.standard_normal())
        if episode % 10 == 9:
            agent.lose(decision.id)
        else:
            told = {"reward": float(decision.feature[2]), "next_state": int(rng.integers(2))}
            agent.observe(decision.outcome(cost=tuple(costs.tolist()), **told))
    agent.save(tmp_path / "agent")
    again = type(agent).restore(tmp_path / "agent", problem)
    for each in (agent, again):
        each.plan()
    mine, other = agent.act(0, 0), again.act(0, 0)
    assert (mine.action, mine.evidence) == (other.action, other.evidence)


@pytest.mark.parametrize("name", REFUSED)
def test_what_likelihood_ratios_do_not_cover_is_refused_in_words(name):
    with pytest.raises(InputError, match=r"exactly linear.*does not go with (Misfit|Drift|Realised)"):
        problem_of(REFUSED[name])


@pytest.mark.parametrize("name", ["bounded", "both kinds", "misfit, drift, worst case"])
def test_mixtures_are_refused_where_safe_costs_are_unknown(name):
    with pytest.raises(InputError, match="need that action's cost"):
        agent_of(problem_of(OPTIONS[name], knows=False)[1], mixes=True)
