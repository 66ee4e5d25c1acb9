"""The gate recomputes bounds with a misfit, with a limit on the realised cost, and from the origin."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from limits import restated
from live.plant import Plant, live_advisor
from tether import Constraint, Problem, SafeCost, SlucbConfig
from worlds import world_and_streams

SIZES = {"horizon": 2, "states": 2, "dimension": 4}
OPTIONS = {
    "misfit": {"misfit": 0.01},
    "misfit and error": {"misfit": 0.01, "baseline_cost_error": 0.01},
    "misfit, unknown": {"misfit": 0.01, "baseline_cost": None},
    "realised": {"limit": "realised", "exceedance": 0.1},
    "realised, scaled": {"limit": "realised", "exceedance": 0.1, "noise_scales": True},
    "realised, scaled, misfit": {"limit": "realised", "exceedance": 0.1, "noise_scales": True, "misfit": 0.01},
}


def trained(options, **settings):
    world, _ = world_and_streams(3, **SIZES)
    problem = restated(world.problem, noise=0.02, **options)
    advisor = live_advisor(problem, watch=False, **settings)
    return advisor, Plant(world.true_gamma, noise=0.02, states=2).play(advisor, 80, horizon=2)


@pytest.mark.parametrize("name", OPTIONS)
def test_genuine_certificates_pass_and_say_what_they_bound(name):
    options = OPTIONS[name]
    advisor, decisions = trained(options)
    assert advisor.status().refusals == 0
    assert sum(not decision.is_baseline for decision in decisions) > 10
    for decision in decisions:
        for limit in decision.certificate.limits:
            assert limit.assumptions == advisor.problem.sentences[0]
            assert limit.bounds == ("realised cost" if "limit" in options else "cost")
            assert limit.bound <= limit.threshold
            if not decision.is_baseline:
                assert limit.gate_bound == pytest.approx(limit.bound, abs=2e-2)  # of an older, larger spectrum


@pytest.mark.parametrize("name", OPTIONS)
def test_a_bound_that_forgets_what_was_declared_is_refused(name):
    """The learner's own proposal, with the bound it would have without the option."""
    options = OPTIONS[name]
    advisor, _ = trained(options)
    learner, refused = advisor.replica.learner, 0
    for step, state in product(range(2), range(2)):
        known = learner.problem.look_up(state)
        proposal = learner.propose(step, state, known, 0.0)
        if proposal.is_baseline:
            continue
        check = learner.gate.check
        assert not check(step, known, proposal.action, proposal.feature, proposal.evidence).why
        gain = options.get("misfit", 0.0) + (0.01 if "limit" in options else 0.0)
        lower = tuple(replace(shown, bound=shown.bound - gain) for shown in proposal.evidence)
        silent = tuple(replace(shown, assumptions=()) for shown in proposal.evidence)
        assert "certificate's bound" in check(step, known, proposal.action, proposal.feature, lower).why
        assert "the problem's" in check(step, known, proposal.action, proposal.feature, silent).why
        refused += 1
    assert refused


@pytest.mark.parametrize("name", OPTIONS)
def test_a_gate_that_is_told_of_no_option_has_a_smaller_bound(name):
    """So that the option cannot have been forgotten in the gate's own computation."""
    options = OPTIONS[name]
    advisor, _ = trained(options)
    gate, problem = advisor.replica.learner.gate, advisor.replica.learner.problem
    known = problem.look_up(0)
    share = gate.certified(0, known)
    told, bias = gate.terms, gate.bias.copy()
    gate.terms = replace(
        told, point_error=np.zeros(1), sample_error=np.zeros(1), reserve=np.zeros(1), end_reserve=np.zeros(1)
    )
    gate.bias[:] = 0.0
    gate._solved.clear()
    assert gate.certified(0, known) > share or share == 1.0
    gate.terms, gate.bias[:] = told, bias


def test_the_gates_own_radius_counts_the_misfit_of_every_sample():
    """80 decisions, 40 for each of two steps, off by up to 0.01 each: √(40 · 10⁻⁴) more than the same sums without."""
    advisor, _ = trained({"misfit": 0.01, "baseline_cost": None})
    gate = advisor.replica.learner.gate
    assert gate.bias[:, 0] == pytest.approx(gate.count * 1e-4)
    with_misfit = gate.prepare(0).radii[0]
    gate.bias[:] = 0.0
    gate._solved.clear()
    assert with_misfit - gate.prepare(0).radii[0] == pytest.approx(np.sqrt(gate.count[0] * 1e-4), rel=1e-9)


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_cut_for_a_margin_in_guarded_mode_passes_too(name):
    if OPTIONS[name].get("baseline_cost", 0.0) is None:
        return
    advisor, _ = trained(OPTIONS[name])
    from tether.live.judge import with_margin

    learner = advisor.replica.learner
    for state in range(2):
        known = learner.problem.look_up(state)
        proposal = learner.propose(0, state, known, 0.0)
        cut, short = with_margin(proposal, known, learner.problem, 0.2, 0.0)
        if not proposal.is_baseline and not short:
            assert cut.action.length < proposal.action.length or cut.action == proposal.action
            assert not learner.gate.check(0, known, cut.action, cut.feature, cut.evidence).why


@pytest.mark.parametrize("error", [0.0, 0.02])
def test_the_origin_is_a_safe_action_like_any_other(error):
    """φ_0 = 0 costs 0 in every linear model; nothing is conditioned on it, and rays from it are certified and
    checked."""
    problem = Problem.from_rays(
        phi_0=[[0.0, 0.0]],
        endpoints=[[[0.6, 0.8], [1.0, 0.0]]],
        constraints=Constraint(threshold=0.5, noise=0.05, safe_cost=SafeCost([[0.0]], error=error)),
        horizon=1,
    )
    advisor = live_advisor(problem, watch=False, config=SlucbConfig())
    plant = Plant(np.array([[[0.4, 0.5]]]), noise=0.05, states=1)
    decisions = plant.play(advisor, 60, horizon=1)
    assert advisor.status().refusals == 0
    assert sum(not decision.is_baseline for decision in decisions) > 20
