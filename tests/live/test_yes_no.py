"""Costs in [0, 1] behind the advisor: the gate counts and solves for itself, lets genuine bounds pass, stops others."""

from dataclasses import replace
from itertools import product
from math import lgamma

import numpy as np
import pytest

from agents.cases import CASES
from live.plant import Plant, live_advisor
from tether import Advisor, Problem
from tether.agents.slucb import SlucbConfig
from tether.lab.worlds.lake import frozen_lake
from tether.live.audit import replay
from tether.live.gate import Gate
from tether.live.gate_terms import gate_of
from tether.live.judge import with_margin
from tether.live.learner import Learner
from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria
from tether.live.records import Measured, limit_of
from tether.live.yes_no import ATOMS, YesNo
from tether.records import CostBound, Radius, StarAction
from worlds import simplex_problem, uneven_world

BOUNDED = [name for name in CASES if "bounded" in name]
EVENTS = 100.0


class YesNoPlant(Plant):
    """A system whose costs are yes or no, with the declared mean, and that pays for what is dear."""

    def measure(self, step, feature):
        return tuple((self.rng.random(len(self.gamma[step])) < self.true_cost(step, feature)).astype(float).tolist())

    def reward(self, feature):
        return 1.0 - feature[0]


def served(name, steps=45, store=None, **told):
    """(advisor, plant, decisions) of a case of the agents' tests, behind an advisor."""
    case = CASES[name]
    problem, algorithm = replace(case.world.problem, **told), case.make().kind
    advisor = live_advisor(problem, store, limit_on=limit_of(algorithm), config=case.make().config, watch=False)
    plant = YesNoPlant(case.world.true_gamma, seed=3)
    return advisor, plant, plant.play(advisor, steps, horizon=problem.horizon)


@pytest.mark.parametrize("name", BOUNDED)
def test_genuine_certificates_pass_replay_and_say_how_they_were_proven(name):
    store = MemoryStore()
    advisor, _, decisions = served(name, store=store)
    assert advisor.status().refusals == 0
    others = [decision for decision in decisions if not decision.is_baseline]
    assert others or name == "bounded-unknown"
    for decision in others:
        assert decision.certificate.holds and decision.certificate.is_theorem
        for limit, is_bounded in zip(decision.certificate.limits, advisor.problem.bounded, strict=True):
            assert limit.kind == ("likelihood" if is_bounded else "radius")
            assert limit.gate_bound <= limit.bound + 1e-5 <= limit.threshold + 2e-5
    assert replay(store, advisor.problem).holds


@pytest.mark.parametrize("told", [{"cost_error": 0.02}, {"known_costs": False, "threshold": 0.95}])
def test_a_ray_that_a_bounded_cost_cuts_shorter_passes_for_the_other_cost_too(told):
    world = uneven_world(7, constraints=2, cost_kind=("bounded", "gaussian"), **told)
    advisor, plant = live_advisor(world.problem, watch=False), YesNoPlant(world.true_gamma, seed=3)
    decisions = plant.play(advisor, 60, horizon=3)
    assert advisor.status().refusals == 0 and any(not decision.is_baseline for decision in decisions)


def test_a_restart_from_a_snapshot_has_the_same_gate_and_decides_alike():
    store = MemoryStore()
    advisor, plant, _ = served("bounded", store=store)
    advisor.snapshot()
    again = Advisor(advisor.problem, store, watch=False, refresh=None)
    assert again.replica.to_bytes() == advisor.replica.to_bytes()
    one, two = advisor.decide(1, 0, key="once"), again.decide(1, 0, key="once")
    assert (one.action, one.certificate) == (two.action, two.certificate)
    again.record(two.id, 0.1, plant.measure(0, two.feature), 1)
    assert "gate-refused" not in {again.decide(state, 0).reason for state in range(4)}


@pytest.mark.parametrize("told", [{}, {"lost": "worst-case", "cost_range": (0.0, 1.0)}])
def test_lost_and_late_costs_are_counted_as_the_learner_counts_them(told):
    """Outcomes come in reverse, three at a time, and every third is lost: the gate counts in the order of decisions."""
    case, store = CASES["bounded"], MemoryStore()
    advisor = live_advisor(replace(case.world.problem, **told), store, watch=False)
    plant = YesNoPlant(case.world.true_gamma, seed=3)
    for round in range(10):
        made = [advisor.decide(plant.state(), 0, f"{round}-{n}") for n in range(3)]
        for n, decision in reversed(list(enumerate(made))):
            advisor.record(decision.id, 0.1, None if n == 1 else plant.measure(0, decision.feature), plant.state())
    learner = advisor.replica.learner
    trials, gate = learner.agent.likelihoods.trials, learner.gate.yes_no
    np.testing.assert_allclose(gate.evidence[0, 0], [trials.evidence[0], trials.plain_evidence[0]], rtol=1e-12)
    assert gate.total[0, 0] == 20.0 and learner.gate.lost[0] == 10
    n, hits = 20, gate.accidents[0, 0]  # the frequency's Λ without the lost ones, whatever their order
    kept = lgamma(hits + 0.5) + lgamma(n - hits + 0.5) - 2.0 * lgamma(0.5) - lgamma(n + 1.0)
    assert gate.evidence[0, 0, 1] == pytest.approx(kept) or told
    assert gate.evidence[0, 0, 1] < kept - 1.0 or not told
    assert advisor.status().refusals == 0 and replay(store, advisor.problem).holds


def test_the_gate_groups_outcomes_as_the_learner_does_to_the_last_bit():
    """More features than atoms, on a grid with many equal distances, costs between 0 and 1: every sum is the same."""
    problem = simplex_problem(3, cost_kind="bounded", noise=None)
    learner, rng = Learner(problem, SlucbConfig(replan="on-doubling"), watch=False), np.random.default_rng(0)
    grid = np.array([[i, j, 16 - i - j] for i in range(17) for j in range(17 - i)]) / 16.0
    assert len(grid) > ATOMS
    for x in grid[rng.permutation(len(grid))]:
        body = {"step": 0, "state": 0, "feature": x.tolist(), "reward": 0.1, "cost": [float(rng.uniform())]}
        learner.learn(Measured(**body, next_state=None))
    trials, gate = learner.agent.likelihoods.trials, learner.gate.yes_no
    for name in ("sums", "weight", "atoms", "total", "accidents", "closest", "fact_count"):
        np.testing.assert_array_equal(getattr(gate, name)[0, 0], getattr(trials, name)[0], err_msg=name)
    np.testing.assert_allclose(gate.evidence[0, 0], [trials.evidence[0], trials.plain_evidence[0]], rtol=1e-12)


# Bounds by hand


def row_of(feature, low=0.0, high=1.0):
    return np.array(feature), low, high


def test_without_data_a_ray_costs_what_its_ends_can_cost():
    """f costs 0.1 and nothing costs more than 1: at 0.4 of the way 0.6 · 0.1 + 0.4 = 0.46."""
    yes_no = YesNo([0], 1, 2, 1.0, 1.0)
    rows = yes_no.rows(0, 0, 0.0).and_also(*row_of([1.0, 0.0], 0.1, 0.1)).and_also(*row_of([0.0, 1.0]))
    least = yes_no.least_likelihood(0, 0, EVENTS)
    assert least == pytest.approx(-np.log(2.0 * EVENTS))
    proven = yes_no.proven(rows, np.array([0.6, 0.4]), least, np.zeros(2))
    assert proven.bound == pytest.approx(0.46, abs=1e-6) and proven.reached == pytest.approx(0.46, abs=1e-6)


def test_with_no_accident_in_n_trials_the_bound_is_that_of_one_coin():
    """n log(1 − p) >= R: p = 1 − exp(R/n). With accidents, ℓ(p) = R at the bound."""
    for hits, misses in ((0, 50), (3, 47)):
        yes_no = YesNo([0], 1, 2, 1.0, 1.0)
        for n in range(50):
            yes_no.add(0, np.array([1.0, 0.0]), np.array([float(hits > 0 and n % 16 == 8)]))
        yes_no._renew((0, 0))
        least = yes_no.least_likelihood(0, 0, EVENTS)
        bound = yes_no.proven(yes_no.rows(0, 0, 0.0), np.array([1.0, 0.0]), least, np.zeros(2)).bound
        assert hits * np.log(bound) + misses * np.log(1.0 - bound) == pytest.approx(least, abs=1e-4)
        assert bound > hits / 50


def test_data_that_no_cost_explains_prove_nothing():
    """Guesses near 0 after three accidents in a row, and then never again: no single coin does that."""
    yes_no = YesNo([0], 1, 1, 1.0, 1.0)
    for z in [1.0] * 3 + [0.0] * 47:
        yes_no.add(0, np.ones(1), np.array([z]))
    proven = yes_no.proven(yes_no.rows(0, 0, 0.0), np.ones(1), yes_no.least_likelihood(0, 0, EVENTS), np.zeros(1))
    assert proven.bound < 0.0 and proven.reached == -np.inf


def test_what_a_guess_was_worth_is_counted_before_the_outcome_is():
    """γ̂ says 0.3, the frequency says ½ of nothing; then z = 1: log 0.3 and log ½. A lost one: log min(q, 1 − q)."""
    yes_no = YesNo([1], 1, 1, 1.0, 1.0)
    yes_no.guess[0, 0] = 0.7
    yes_no.add(0, np.array([1.0]), np.array([9.0, 1.0]))
    np.testing.assert_allclose(yes_no.evidence[0, 0], np.log([0.5, 0.5]))  # after 0 outcomes a guess stays at ½
    yes_no.add(0, np.array([1.0]), np.array([9.0, 0.0]))
    np.testing.assert_allclose(yes_no.evidence[0, 0], np.log([0.5 * 0.3, 0.5 * 0.25]))
    yes_no.add(0, np.array([1.0]), None)
    np.testing.assert_allclose(yes_no.evidence[0, 0], np.log([0.5 * 0.3 * 0.3, 0.5 * 0.25 * 0.5]))
    yes_no.guess[0, 0] = np.nan
    yes_no.add(0, np.array([1.0]), np.array([9.0, 1.0]))
    assert yes_no.evidence[0, 0, 0] == pytest.approx(np.log(0.5 * 0.3 * 0.3 / 6.0)), "NaN is no guess: 1/(2n + 2)"


def test_a_fact_counts_with_its_error():
    yes_no = YesNo([0], 1, 2, 1.0, 1.0)
    yes_no.remember(0, np.array([0.5, 0.5]), np.array([0.2]))
    yes_no.remember(0, np.array([0.5, 0.5]), np.array([0.2]))
    assert yes_no.fact_count[0, 0] == 1
    bounds = []
    for error in (0.0, 0.05):
        yes_no.forget_rows()
        rows, least = yes_no.rows(0, 0, error), yes_no.least_likelihood(0, 0, EVENTS)
        bounds.append(yes_no.proven(rows, np.array([0.5, 0.5]), least, np.zeros(2)).bound)
    assert bounds == pytest.approx([0.2, 0.25], abs=1e-6)


def test_multipliers_that_miss_x_bound_nothing():
    yes_no = YesNo([0], 1, 2, 1.0, 1.0)
    rows = yes_no.rows(0, 0, 0.0).and_also(*row_of([1.0, 0.0], 0.1, 0.1))
    least = yes_no.least_likelihood(0, 0, EVENTS)
    for x in ([0.5, 0.5], [1.0, 1e-9]):
        assert yes_no.proven(rows, np.array(x), least, np.zeros(2)).bound == np.inf


def test_a_reading_too_small_for_its_digits_says_nothing_about_other_features():
    """zφ = (1, 1) z where z = 5e-324 and φ = (0.6, 0.6), but nobody knows that (1, 1) costs at most 1."""
    yes_no = YesNo([0], 1, 2, 1.0, 1.0)
    yes_no.add(0, np.array([0.6, 0.6]), np.array([5e-324]))
    rows, least = yes_no.rows(0, 0, 0.0), yes_no.least_likelihood(0, 0, EVENTS)
    assert yes_no.proven(rows, np.array([0.5, 0.5]), least, np.zeros(2)).bound > 0.8


# Certificates that are not genuine


def lone_gate():
    """a_0 = f costs 0.1, one ray ends in (0, 1); τ = 0.5: 0.4/0.9 of it is certified, at a bound of 0.5."""
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]], endpoints=[[[0.0, 1.0]]],
        baseline_cost_error=0.0, baseline_cost=[[0.1]], horizon=1, threshold=0.5,
        cost_kind="bounded",
    )  # fmt: skip
    learner = Learner(problem, SlucbConfig(condition_on="state"), watch=False)
    shown = CostBound(0.46, 0.5, Radius(1.0, "theorem"), 0.1, kind="likelihood")
    return learner.gate, problem.look_up(0), shown


def verdict(gate, known, length, shown):
    feature = known.actions.phi_0 + length * (known.actions.endpoints[0] - known.actions.phi_0)
    return gate.check(0, known, StarAction(0, length), feature, (shown,))


def test_the_gate_confirms_a_bound_that_is_worked_out_by_hand():
    gate, known, shown = lone_gate()
    found = verdict(gate, known, 0.4, shown)
    assert found.why == "" and found.bounds[0] == pytest.approx(0.46, abs=1e-6) and found.doubts[0] < 1e-5


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"bound": 0.4599}, "is possible"),
        ({"bound": float("nan")}, "not finite"),
        ({"bound": float("inf")}, "not finite"),
        ({"threshold": 2.0}, "τ"),
        ({"kind": "radius"}, "likelihood"),
        ({"facts": 1}, "facts"),
        ({"lost": 1}, "lost"),
        ({"lost_as": "worst-case"}, "worst-case"),
        ({"bounds": "realised cost"}, "realised cost"),
        ({"listed": 1}, "listed"),
    ],
)
def test_altered_evidence_is_refused(change, why):
    gate, known, shown = lone_gate()
    assert why in verdict(gate, known, 0.4, replace(shown, **change)).why


def test_a_point_that_is_not_certified_is_refused_whatever_is_shown():
    gate, known, shown = lone_gate()
    assert "is possible" in verdict(gate, known, 0.5, replace(shown, bound=0.5)).why


@pytest.mark.parametrize("place", ["used_evidence", "used_sums"])
def test_numbers_that_are_not_finite_let_nothing_pass(place):
    gate, known, shown = lone_gate()
    gate.add(0, np.array([1.0, 0.0]), np.zeros(1))
    assert verdict(gate, known, 0.4, shown).why == ""
    getattr(gate.yes_no, place)[...] = np.nan
    gate.yes_no.forget_rows()
    assert "not finite" in verdict(gate, known, 0.4, shown).why


def lying(lie):
    """What is answered in every state once the learner's numbers have been changed. Facts alone would say too much."""
    world = CASES["bounded"].world
    advisor = live_advisor(world.problem, config=SlucbConfig(condition_on="state"), watch=False)
    YesNoPlant(world.true_gamma, seed=3).play(advisor, 90, horizon=3)
    assert advisor.status().refusals == 0
    learner = advisor.replica.learner
    lie(learner.agent.likelihoods)
    learner._proposed.clear()
    asked = list(product(range(3), range(4)))
    wanting = [(step, state) for step, state in asked if not learner.propose(step, state).is_baseline]
    assert wanting
    return {advisor.decide(state, step).reason for step, state in wanting}


def more_evidence(likelihoods):
    """As if guesses had known their outcomes."""
    likelihoods.trials.used_evidence[:] += 2.0


def counted_twice(likelihoods):
    likelihoods.trials.used_weight[:, 1::2] *= 2.0
    likelihoods.trials.used_sums[:, 1::2] *= 2.0


def less_doubt(likelihoods):
    likelihoods.log_events -= 3.0


@pytest.mark.parametrize("lie", [more_evidence, counted_twice, less_doubt], ids=lambda lie: lie.__name__)
def test_a_learner_whose_bounds_are_too_small_is_stopped(lie):
    assert "gate-refused" in lying(lie)
    assert "gate-refused" not in lying(lambda likelihoods: None)


@pytest.mark.parametrize("name", ["bounded", "bounded-roughly", "rslucb-bounded"])
def test_what_is_cut_for_a_margin_in_guarded_mode_passes_too(name):
    advisor, _, _ = served(name)
    learner, cuts = advisor.replica.learner, 0
    for step, state in product(range(3), range(4)):
        known = learner.problem.look_up(state)
        proposal = learner.propose(step, state, known, 0.3)
        if proposal.is_baseline or proposal.mixture is not None:
            continue
        cut, short = with_margin(proposal, known, learner.problem, 0.2, 0.3)
        assert not short and not learner.gate.check(step, known, cut.action, cut.feature, cut.evidence).why
        cuts += cut.action != proposal.action
    assert cuts or name.startswith("rslucb")


def test_no_true_cost_is_over_the_gates_own_bound():
    """Its confidence set is its own, at the same level: 1 − δ for all decisions at once."""
    for seed in range(3):
        world = uneven_world(seed, cost_kind="bounded")
        advisor = live_advisor(world.problem, watch=False)
        plant = YesNoPlant(world.true_gamma, seed=seed)
        for decision in plant.play(advisor, 60, horizon=3):
            for limit in decision.certificate.limits:
                if limit.gate_bound is not None:
                    assert world.true_gamma[decision.step, 0] @ decision.feature <= limit.gate_bound


def test_how_much_is_certified_is_not_asked_where_every_answer_costs_a_solve():
    advisor, _, decisions = served("bounded", steps=3)
    assert np.isnan(advisor.replica.learner.gate.certified(0, advisor.problem.look_up(0)))
    assert isinstance(gate_of(advisor.replica.learner.agent), Gate) and decisions


def two_halves():
    """a_0 = ½x + ½b costs 0.04 and b at least 0, so x costs at most 0.08 < τ = 0.1 before any outcome."""
    rows = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]])
    told = {"horizon": 1, "threshold": 0.1, "cost_kind": "bounded"}
    return Problem.from_table(
        features=rows, baseline_action=[0, 0], baseline_cost_error=0.0, baseline_cost=[[0.04, 0.04]], **told
    )


def test_the_gate_lets_pass_what_the_list_of_actions_proves_and_nothing_without_the_list():
    problem = two_halves()
    how = {"limit_on": "average over draws", "mode": "live", "criteria": Criteria.none(), "refresh": None}
    found = []
    for listed in (True, False):
        advisor = Advisor(problem, config=SlucbConfig(condition_on="all"), **how)
        gate = advisor.replica.learner.gate
        gate.terms = gate.terms if listed else replace(gate.terms, listed=None)
        found.append(advisor.decide(0))
    assert [decision.reason for decision in found] == ["best", "gate-refused"]
    assert found[0].certificate.limits[0].listed == 4


def test_the_gate_lets_pass_most_of_what_the_list_proves_on_the_lake():
    """456 limits in 100 dimensions: a multiplier's last digits decide whether it proves anything."""
    lake = frozen_lake(np.random.default_rng(0), costs="bounded").problem
    told = {"value_radius": "unseen", "value_ridge": 1e-5, "feature_size": 1.0}
    config = SlucbConfig(explorer="plain", condition_on="all", pooled=True, **told)
    how = {"limit_on": "average over draws", "mode": "live", "criteria": Criteria.none(), "refresh": None}
    advisor = Advisor(lake, config=config, **how)
    reasons = [advisor.decide(state).reason for state in (0, 3, 4)]
    assert reasons == ["best"] * 3


def test_a_bound_that_rests_on_the_list_without_saying_so_is_refused():
    problem = two_halves()
    known, x = problem.look_up(0), np.array([1.0, 0.0])
    gate = Learner(problem, SlucbConfig(condition_on="all"), watch=False).gate
    shown = CostBound(0.0801, 0.1, Radius(1.0, "theorem"), 0.04, facts=1, kind="likelihood", listed=4)
    why = {n: gate.check(0, known, 1, x, (replace(shown, listed=n),)).why for n in (4, 3, 0)}
    assert why[4] == "" and "rests on 3 listed actions" in why[3] and "is possible" in why[0]
