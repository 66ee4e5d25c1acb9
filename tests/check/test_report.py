"""Problem.check: verdicts, evidence and ways out."""

import json
import re

import numpy as np
import pytest

from check.cases import linear, outcomes
from limits import restated, stated
from tether import (
    Constraint,
    FiniteActions,
    Names,
    Problem,
    SafeCost,
    SlucbQvi,
    StarActions,
    Streams,
    Transition,
    synthetic,
)
from tether.check.growth import NAME
from tether.check.problem_check import SHARE, SafePlay, Ways, survey
from tether.errors import InputError
from tether.kernels.radius import cost_radius
from worlds import many_actions, simplex_problem, small_world, two_arm_problem, two_constraints

A2, A5 = "A2: the safe action costs less than τ", NAME
RADIUS, OUTLOOK = "radius: H, d and δ leave a usable one", "outlook: steps of safe play to something new"


def lazy(actions, cost=0.1, **told):
    """A problem that looks at its states only when asked."""
    settings = {"horizon": 1, "threshold": 0.5, "noise": 0.1, "dimension": 2, "states": [0, 1], **told}
    return Problem(
        actions=actions, **stated(baseline_cost=lambda step, state: cost, **{"baseline_cost_error": 0.0, **settings})
    )


def safe_play(problem, *, averages=False):
    """The outlook's safe play over all listed states."""
    return SafePlay(problem, survey(problem, None, np.random.default_rng(0)), Ways(averages))


def verdicts(report):
    return {finding.name: finding.verdict for finding in report.findings}


def test_a_good_problem_has_no_failures_and_admits_what_it_cannot_know():
    report = small_world().problem.check()
    assert report.ok and report.failures == ()
    found = verdicts(report)
    assert found[A2] == found[A5] == found[RADIUS] == found[OUTLOOK] == "holds"
    for name in ("A1: costs are linear in φ", "A3: noise on costs within σ", "A4: ‖γ*‖ <= B", "A1: linear dynamics"):
        assert found[name] == "cannot be known"
    assert all(f.evidence for f in report.findings)


@pytest.mark.parametrize(("cost", "outside"), [(0.9, 0.8 / 3), (0.5, 0.0)])
def test_expected_costs_beyond_one_contradict_bounded_costs(cost, outside):
    """Safe features (1, 0) and (0, 1) cost c each, so (1, 1) costs 2c: at c = 0.9 the least t has 1.8 − 2t = 1 + t."""
    sets = [FiniteActions(np.array([[1.0, 0.0], [1.0, 1.0]]), 0), FiniteActions(np.array([[0.0, 1.0]]), 0)]
    told = {"cost_kind": "bounded", "noise": None, "threshold": 0.95, "feature_norm": 2.0}
    finding = lazy(sets.__getitem__, cost, **told).check()["A1: expected costs lie in [0, 1]"]
    assert finding.verdict == ("fails" if outside else "holds")
    assert not outside or f"at least {outside:.3g} outside" in finding.evidence


def test_a_report_prints_and_becomes_json():
    report = lazy(lambda s: FiniteActions([[1.0, 0.0], [0.0, 1.0]], 0)).check()
    text = str(report)
    assert f"FAILS    {NAME}" in text and "way out: features that actions share" in text
    assert text.splitlines()[-1].endswith("cannot be known")
    assert max(map(len, text.splitlines())) <= 100
    assert json.loads(json.dumps(report.to_json()))["ok"] is False
    with pytest.raises(KeyError, match="no finding is called"):
        _ = report["A9"]


def test_finite_sets_that_share_nothing_fail_unless_an_average_is_limited():
    problem = lazy(lambda s: FiniteActions([[1.0, 0.0], [0.0, 1.0]], 0))
    assert many_actions().problem.check()[A5].verdict == "holds"  # its features are shared
    assert problem.check()[A5].verdict == "fails"
    assert problem.check(limit_on="average over draws")[A5].verdict == "holds"


def test_a_feature_that_is_too_long_fails_with_its_norm():
    finding = lazy(lambda s: StarActions([1.0, 0.0], [[0.0, 1.0 + s]])).check()["A4: ‖φ(s,a)‖ <= 1"]
    assert finding.verdict == "fails" and "2, over 4 features of 2 states" in finding.evidence
    assert "feature_norm=2" in finding.way_out


def test_a_safe_feature_of_zero_fails_and_names_the_state():
    name = "A2: safe features are not zero"
    finding = lazy(lambda s: StarActions([float(s), 0.0], [[0.0, 1.0]]), 0.1).check()[name]
    assert finding.verdict == "fails" and "for instance 0" in finding.evidence
    assert lazy(lambda s: StarActions([float(s), 0.0], [[0.0, 1.0]]), 0.0).check()[name].verdict == "holds"


def test_a_drift_that_eats_the_gap_before_anything_is_learned_fails_and_a_slower_one_holds():
    """σ = 0.1, τ − τ_s = 0.3: at ρ = 0.05 a cost moves by 0.4 within 8 decisions; at ρ = 1e-4 by 0.01 within 100 (two
    steps: 126)."""
    name = "A1: the drift ρ leaves room under τ"
    assert two_arm_problem(baseline_cost=0.2, drift=0.05).check()[name].verdict == "fails"
    found = two_arm_problem(baseline_cost=0.2, drift=1e-4).check()[name]
    assert found.verdict == "holds" and "the last 126 to 2016 decisions" in found.evidence
    assert two_arm_problem(baseline_cost=None, drift=1e-4).check()[name].verdict == "cannot be known"


def test_the_outlook_counts_declared_drift():
    """With drift nothing is remembered and old outcomes leave, so that less is certified after as many safe steps."""
    still, moving = (
        two_arm_problem(baseline_cost=0.2, **more).check(steps=5000)["radius: H, d and δ leave a usable one"]
        for more in ({}, {"drift": 1e-3})
    )
    assert still.evidence != moving.evidence


def test_a_misfit_that_eats_the_gap_fails_and_a_smaller_one_holds():
    """τ = 0.5 and τ_s = 0.2: 2ε = 0.32 leaves nothing, 2ε = 0.2 leaves 0.1."""
    name = "A1: the misfit ε leaves room under τ"
    assert two_arm_problem(baseline_cost=0.2, misfit=0.16).check()[name].verdict == "fails"
    assert two_arm_problem(baseline_cost=0.2, misfit=0.1).check()[name].verdict == "holds"


def test_the_report_says_what_the_threshold_limits():
    """σ = 0.1, η = 0.05: q = 0.2448, which τ − τ_s = 0.4 holds; where noise scales with the length a_0 needs none of
    it."""
    assert two_arm_problem().check()["limit: on the expected cost"].verdict == "holds"
    for scales in (False, True):
        finding = two_arm_problem(limit="realised", noise_scales=scales).check()[
            "limit: on the realised cost, kept with probability 0.95"
        ]
        assert finding.verdict == "holds" and "noise may add 0.2448" in finding.evidence


def test_pooled_steps_with_different_safe_costs_fail():
    name = "pooled: safe costs are the same at every step"
    for apart, verdict in ((0.1, "fails"), (0.0, "holds")):
        problem = Problem(
            actions=lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]),
            constraints=Constraint(
                threshold=0.5, noise=0.1, safe_cost=lambda step, state, apart=apart: 0.1 + apart * step
            ),
            horizon=2,
            dimension=2,
            states=[0, 1],
        )
        assert problem.check(pooled=True)[name].verdict == verdict


def test_a_safe_action_without_a_gap_fails():
    problem = lazy(lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]), 0.5)
    assert problem.check()[A2].verdict == "fails"
    assert "smallest gap τ − τ_h(s) is 0 " in problem.check()[A2].evidence


def test_safe_costs_that_no_gamma_can_give_fail():
    """The same safe feature in both states, but costs 0.1 and 0.2."""
    problem = Problem(
        actions=lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]),
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=lambda step, state: 0.1 + 0.1 * state),
        horizon=1,
        dimension=2,
        states=[0, 1],
    )
    finding = problem.check()["A1: declared safe costs are linear in φ"]
    assert finding.verdict == "fails" and "misses by up to 0.05" in finding.evidence


@pytest.mark.parametrize("decimals", [9, 17])
def test_safe_costs_that_were_rounded_are_told_from_exact_ones(decimals):
    """Four states in two dimensions: rounded to nine decimals, no γ gives all of them to the last digit."""
    rng = np.random.default_rng(0)
    safe = rng.dirichlet(np.ones(2), 4)
    costs = np.round(safe @ np.array([0.1, 0.3]), decimals)
    problem = Problem.from_rays(
        phi_0=safe,
        endpoints=safe[:, None, ::-1],
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=SafeCost(costs[None], error=0.0)),
        horizon=1,
    )
    finding = problem.check()["A1: declared safe costs are linear in φ"]
    assert finding.verdict == "holds" and ("SafeCost(…, error=…)" in finding.evidence) == (decimals == 9)


def test_a_bound_on_gamma_below_what_safe_costs_need_fails():
    """τ_0 = 0.4 at a feature of norm 0.1 needs ‖γ‖ >= 4."""
    problem = lazy(lambda s: StarActions([0.1, 0.0], [[0.0, 1.0]]), 0.4, gamma_norm=2.0)
    finding = problem.check()["A1: declared safe costs are linear in φ"]
    assert finding.verdict == "fails" and "‖γ‖ >= 4; declared B = 2" in finding.evidence


def test_directions_that_play_cannot_reach_are_counted():
    star = lazy(lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]])).check()[A5]
    table = lazy(lambda s: FiniteActions([[1.0, 0.0], [0.0, 1.0]], 0)).check()[A5]
    assert star.verdict == "holds" and "2 of 2 directions" in star.evidence
    assert table.verdict == "fails" and "does not grow" in table.evidence


def test_without_states_nothing_is_pretended():
    problem = lazy(lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]), states=None)
    found = verdicts(problem.check())
    assert found["states"] == found[OUTLOOK] == "cannot be known"
    assert verdicts(problem.check(states=[3, 4]))[A2] == "holds"


def test_many_states_are_sampled_by_the_given_stream():
    problem = lazy(lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]), states=range(10_000))
    first, again, other = (survey(problem, None, np.random.default_rng(seed)).states for seed in (1, 1, 2))
    assert len(first) == 500 and first == again != other
    assert "500 of 10000 states, sampled" in problem.check(rng=np.random.default_rng(1))[A5].evidence


def test_the_radius_after_safe_play_is_the_agents_own():
    """The learner observes a_0 in every state in turn; its kernel's β must be what the outlook computed before."""
    world = small_world()
    agent, play = SlucbQvi(world.problem), safe_play(world.problem)
    for turn in range(25):
        for state in range(4):
            for step in range(3):
                known = world.problem.look_up(state)
                cost = float(known.baseline_cost[step, 0])
                agent.observe(Transition(step, state, known.actions.phi_0, 0.0, cost, state))
        if turn in (0, 24):
            agent.plan()
            rules, costs = play.learner_after(3 * 4 * (turn + 1))
            assert cost_radius(agent.costs, agent.rules, 1, 0) == pytest.approx(
                cost_radius(costs, rules, 1, 0), rel=1e-6
            )
            assert agent.costs.facts.count.tolist() == costs.facts.count.tolist()


ROUGH = synthetic(Streams.from_seed(5).instance, states=4, rays=6, dimension=3, horizon=2, cost_error=0.05)


@pytest.mark.parametrize(
    "world", [small_world(), two_constraints(), ROUGH], ids=["one", "two constraints", "rough safe costs"]
)
def test_promised_lengths_after_safe_play_are_never_beyond_the_agents_own(world):
    """Noise-free safe outcomes; the outlook takes the smallest length over the steps, the learner that of its step."""
    problem = world.problem
    play = safe_play(problem)
    agent = SlucbQvi(problem)
    states = list(problem.states)
    for _ in range(10):
        for state in states:
            for step in range(problem.horizon):
                known = problem.look_up(state)
                costs = tuple(known.baseline_cost[step])
                agent.observe(Transition(step, state, known.actions.phi_0, 0.0, costs, state))
    found = play.reach_after(10 * len(states) * problem.horizon).lengths
    agent.plan()
    explored = 0
    for state in states:
        for step in range(problem.horizon):
            decision = agent.act(step, state)
            if not decision.is_baseline:
                explored += 1
                assert decision.action.length >= found[state][decision.action.ray] * (1 - 1e-6)
    assert explored > 0


def test_a_length_worked_out_by_hand():
    """φ_0 = e_1, x = e_2, τ_s = 0.1, τ = 0.5, nothing seen: width = 1/√λ, mean = 0, and β_s² = β² − λτ_s²."""
    problem = lazy(lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]))
    play = safe_play(problem)
    reach = play.reach_after(0)
    bound = np.sqrt(reach.radius**2 - play.ridge * 0.01) / np.sqrt(play.ridge)
    assert reach.lengths[0][0] == pytest.approx(0.4 / (bound - 0.1))


def test_safe_play_that_teaches_nothing_is_called_never_and_says_where():
    problem = lazy(lambda s: FiniteActions([[1.0, 0.0], [0.0, 1.0]], 0))
    finding = problem.check()[OUTLOOK]
    assert finding.verdict == "fails"
    assert "never by a_0 alone: in state 0 100% of the way" in finding.evidence


def test_between_two_actions_of_a_finite_set_nothing_is_certified():
    problem = lazy(lambda s: FiniteActions([[1.0, 0.0], [0.0, 1.0]], 0))
    play = safe_play(problem)
    assert play.reach_after(100).lengths[0].tolist() == [0.0]
    assert problem.check()[RADIUS].verdict == "fails"
    mixing = safe_play(problem, averages=True)
    assert 0.0 < mixing.reach_after(100).lengths[0][0] < 1.0


def test_the_outlook_finds_the_first_step_at_which_something_is_certified():
    """Three states whose safe features span the space: what a_0 costs in two of them and in the state itself determines
    γ*, and so the action that is not played yet."""
    safe = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.2, 0.2, 0.6]])
    gamma = np.array([0.1, 0.4, 0.3])
    problem = Problem(
        actions=lambda s: FiniteActions(np.vstack([safe[s], [0.4, 0.3, 0.3]]), 0),
        constraints=Constraint(threshold=0.36, noise=0.3, safe_cost=lambda step, state: float(gamma @ safe[state])),
        horizon=1,
        dimension=3,
        states=[0, 1, 2],
    )
    play = safe_play(problem)
    assert play.first_new() == 2
    assert max(length.max() for length in play.reach_after(2).lengths) == 1.0
    assert max(length.max() for length in play.reach_after(1).lengths) < 1.0
    assert problem.check(steps=2)[OUTLOOK].verdict == "holds"
    late = problem.check(steps=1)[OUTLOOK]
    assert late.verdict == "fails" and "only after 2 steps" in late.evidence


def test_on_rays_small_lengths_are_enough_to_start():
    """One safe feature: a_0 alone never certifies a tenth of a ray, but what is certified at once teaches the rest."""
    finding = simplex_problem().check()[OUTLOOK]
    assert finding.verdict == "holds"
    assert "of a ray are certified at once" in finding.evidence and "never by a_0 alone" in finding.evidence


def test_rays_have_a_certified_length_from_the_first_step_on():
    problem = small_world().problem
    play = safe_play(problem)
    lengths = np.concatenate(play.reach_after(0).lengths)
    assert (lengths > 0.0).all() and lengths.max() >= SHARE and play.first_new() == 0


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"steps": 1.5}, {"level": 0.0}, {"log": 7}, {"log": {"phi": [[1.0]]}}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(InputError):
        small_world().problem.check(**options)


def logged(cost, *, noise=0.1, count=600, d=4):
    rows = list(outcomes(0, count, cost, noise=noise))
    return {
        "phi": np.array([x for x, _ in rows]),
        "cost": np.array([z for _, z in rows]),
        "reward": np.full(count, 0.5),
    }


@pytest.mark.parametrize(
    ("name", "cost", "noise"),
    [
        ("A1: costs are linear in φ", lambda g, x, t: g @ x + 1.5 * x[0] ** 2, 0.1),
        ("A1: the same costs early and late", lambda g, x, t: g @ x + 0.2 * (t > 300), 0.1),
        ("A3: noise on costs within σ", linear, 0.2),
        ("A4: ‖γ*‖ <= B", lambda g, x, t: 20.0 * x[0], 0.1),
    ],
)
def test_a_log_that_contradicts_an_assumption_fails_it(name, cost, noise):
    finding = simplex_problem().check(logged(cost, noise=noise))[name]
    assert finding.verdict == "fails" and finding.way_out


def test_what_the_features_leave_out_is_named_also_where_another_test_fails_first():
    report = simplex_problem().check(logged(lambda g, x, t: g @ x + 1.5 * x[0] ** 2, noise=0.3))
    assert report["A3: noise on costs within σ"].evidence.startswith("noise test")
    assert "also depend on a product of features, which" in report["A1: costs are linear in φ"].evidence


def test_a_log_that_agrees_is_said_to_agree_with_its_numbers():
    report = simplex_problem().check(logged(linear))
    assert report.ok
    linearity = report["A1: costs are linear in φ"]
    assert linearity.verdict == "holds" and "not contradicted by 600 costs" in linearity.evidence
    assert "held-out residuals are 1.0" in linearity.evidence and "level 0.01" in linearity.evidence
    assert "condition" in report["conditioning of the Gram matrix"].evidence
    assert report["A1: rewards are linear in φ (safety does not need it)"].verdict == "holds"


@pytest.mark.parametrize(("told", "verdict"), [(0.0, "cannot be known"), (1.0, "holds"), (0.2, "fails")])
def test_rewards_are_tested_with_the_noise_that_was_declared(told, verdict):
    """Rewards 0.5 ± 1 are not in [0, 1]: nothing is known of their noise unless it is declared."""
    log = logged(linear)
    log["reward"] = 0.5 + np.random.default_rng(1).standard_normal(len(log["reward"]))
    finding = simplex_problem(reward_noise=told).check(log)["A1: rewards are linear in φ (safety does not need it)"]
    assert finding.verdict == verdict and ("as declared" in finding.evidence) == (verdict == "holds")


def test_declared_safe_costs_are_compared_with_logged_ones():
    """a_0 is declared to cost 0.4 in the only state, but costs 0.5 = one σ more."""
    problem, rng = simplex_problem(), np.random.default_rng(0)
    phi_0 = problem.look_up(0).actions.phi_0
    for truth, verdict in ((0.4, "holds"), (0.5, "fails")):
        log = [Transition(0, 0, phi_0, 0.5, truth + 0.1 * rng.standard_normal(), 0) for _ in range(100)]
        finding = problem.check(log)["A2: safe costs as declared"]
        assert finding.verdict == verdict
    assert "at step 0, state 0 costs are off by [0.09" in finding.evidence


def test_a_state_whose_declared_cost_is_contradicted_is_shown_as_the_user_knows_it():
    rays = StarActions([0.5], [[1.0]])
    named = Names(state=lambda room: f"{room[0]} °C")
    for names, words in ((Names(), "state [21.5  3. ] costs"), (named, "21.5 °C costs")):
        problem = Problem(
            actions=lambda state: rays,
            constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=0.1),
            dimension=1,
            horizon=1,
            names=names,
        )
        log = [Transition(0, np.array([21.5, 3.0]), rays.phi_0, 0.5, 0.4, None) for _ in range(100)]
        assert words in problem.check(log)["A2: safe costs as declared"].evidence


def test_meeting_another_state_is_no_evidence_against_declared_costs():
    """What an adaptive log could exploit: leave a state that agrees for a fresh one, whose evidence starts at 1. All
    outcomes are as declared, so that no further one may raise the evidence, in whichever state it is."""
    problem = lazy(lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]), states=range(40))
    rows = [Transition(0, state, np.array([1.0, 0.0]), 0.5, 0.1, None) for state in [0] * 100 + list(range(1, 40))]

    def evidence(count):
        text = problem.check(rows[:count])["A2: safe costs as declared"].evidence
        return float(re.search("log evidence (.*?),", text)[1])

    found = [evidence(count) for count in (1, 100, 101, 120, len(rows))]
    assert found == sorted(found, reverse=True) and found[-1] < found[0] < 0.0


def test_declared_safe_costs_may_be_off_by_their_declared_error():
    """Declared 0.1, truly 0.15; an error bar of 0.06 covers that, one of 0.02 does not. σ = 0.1, 400 outcomes."""
    rng = np.random.default_rng(0)
    log = [Transition(0, 0, np.array([1.0, 0.0]), 0.5, 0.15 + 0.1 * rng.standard_normal(), 0) for _ in range(400)]
    for error, verdict in ((0.06, "holds"), (0.02, "fails")):
        problem = lazy(lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]), baseline_cost_error=error)
        assert problem.check(log)["A2: safe costs as declared"].verdict == verdict


@pytest.mark.parametrize(("error", "verdict"), [(0.06, "holds"), (0.04, "cannot be known"), (0.02, "fails")])
def test_declared_safe_costs_need_be_linear_only_up_to_their_declared_error(error, verdict):
    """One safe feature in three states with costs 0.1, 0.1, 0.175: least squares gives 0.125, misses by 0.05 at most
    and by 0.035 in the root mean square; the best γ, 0.1375, misses by 0.0375."""
    problem = Problem(
        actions=lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]),
        constraints=Constraint(
            threshold=0.5, noise=0.1, safe_cost=SafeCost(lambda step, state: (0.1, 0.1, 0.175)[state], error=error)
        ),
        horizon=1,
        dimension=2,
        states=[0, 1, 2],
    )
    assert problem.check()["A1: declared safe costs are linear in φ"].verdict == verdict


def test_the_states_of_a_log_stand_in_for_a_list_of_states():
    problem = lazy(lambda s: StarActions([1.0, 0.0], [[0.0, 1.0]]), states=None)
    log = [Transition(0, state, np.array([1.0, 0.0]), 0.5, 0.1, None) for state in (5, 6, 5)]
    assert "in 2 of 2 states" in problem.check(log)[A5].evidence


KEEPS = "A2: the safe action keeps to τ when it is played"


def safe_log(mean, count=300, *, states=True):
    """Transitions of a_0 in the simplex problem's one state; their mean cost is given, τ = 0.6 and σ = 0.1."""
    rng, x = np.random.default_rng(2), np.full(4, 0.25)
    costs = mean + 0.1 * rng.standard_normal(count)
    if not states:
        return {"phi": np.tile(x, (count, 1)), "cost": costs}
    return [Transition(0, 0, x, 0.5, float(cost)) for cost in costs]


def test_a_safe_action_that_breaks_the_threshold_fails_the_check_though_nothing_was_declared():
    """300 outcomes whose mean is half a σ over τ: ½S²/n = 37 of evidence."""
    problem = simplex_problem(baseline_cost=None)
    found = problem.check(safe_log(0.65))[KEEPS]
    assert found.verdict == "fails"
    assert "over 300 outcomes of a_0 the mean cost is 0.0" in found.evidence and "over τ" in found.evidence
    assert "name a safer action" in found.way_out
    assert problem.check(safe_log(0.55))[KEEPS].verdict == "holds"
    assert "under τ" in problem.check(safe_log(0.55))[KEEPS].evidence


def test_a_safe_action_that_broke_the_threshold_fails_though_later_outcomes_lie_under_it():
    """As in a room that is too warm at first each day: ten outcomes 3 σ over τ, then 290 far under it."""
    found = simplex_problem(baseline_cost=None).check([*safe_log(0.9, 10), *safe_log(0.2, 290)])[KEEPS]
    assert found.verdict == "fails"
    assert "over 300 outcomes" in found.evidence and "under τ; after " in found.evidence
    assert "the safe action itself costs more than τ" in found.evidence


def warm_room(rng, dearest, count=600):
    """A problem whose a_0 costs 0.1 in a cold room, up to `dearest` in a warm one (τ = 0.5, σ = 0.1), and a log."""
    problem = lazy(lambda s: StarActions([0.6, 0.6 * s], [[0.6, 0.6 * s - 0.1]]), states=None)
    problem = restated(problem, baseline_cost=None)
    rooms = rng.random(count)
    costs = 0.1 + (dearest - 0.1) * rooms + 0.1 * rng.standard_normal(count)
    return problem, [
        Transition(0, room, np.array([0.6, 0.6 * room]), 0.5, cost)
        for room, cost in zip(rooms.tolist(), costs.tolist(), strict=True)
    ]


def test_a_safe_action_that_costs_too_much_in_few_states_is_not_hidden_by_the_others():
    """Over τ in the warmest quarter of the rooms by 1.2 σ at most, under it on average; no two rooms are the same."""
    problem, log = warm_room(np.random.default_rng(0), 0.62)
    found = problem.check(log)[KEEPS]
    assert found.verdict == "fails" and "what the costs before predict" in found.evidence
    assert "the mean cost is 0.132 under τ; after " in found.evidence
    problem, log = warm_room(np.random.default_rng(0), 0.5)
    assert problem.check(log)[KEEPS].verdict == "holds"


def test_without_states_or_outcomes_of_it_nothing_is_known_about_the_safe_action():
    problem = simplex_problem(baseline_cost=None)
    assert problem.check(safe_log(0.9, states=False))[KEEPS].verdict == "cannot be known"
    others = [Transition(0, 0, np.eye(4)[0], 0.5, 0.9) for _ in range(30)]
    assert "no outcome of a_0" in problem.check(others)[KEEPS].evidence
    assert problem.check()[KEEPS].verdict == "cannot be known"


def test_a_log_of_the_safe_action_alone_says_nothing_about_other_actions():
    problem, shape = simplex_problem(baseline_cost=None), "A1: costs are linear in φ"
    found = problem.check(safe_log(0.4))[shape]
    assert (
        found.verdict == "cannot be known"
        and "only a_0 was played" in found.evidence
        and "explore=False" in found.way_out
    )
    other = Transition(0, 0, np.eye(4)[0], 0.5, 0.4)
    assert problem.check([*safe_log(0.4), other])[shape].verdict == "holds"
