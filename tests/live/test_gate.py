"""The gate: it lets genuine certificates pass, in every configuration, and stops planted faults."""

import ast
import dataclasses
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import tether
from limits import restated, stated
from live.plant import Plant, live_advisor
from tether import Constraint
from tether.agents.outcome_order import OutcomeOrder
from tether.agents.slucb import SlucbConfig
from tether.live.audit import replay
from tether.live.gate import Gate
from tether.live.gate_facts import Terms
from tether.live.learner import Learner
from tether.live.log.memory import MemoryStore
from tether.live.records import Measured
from tether.problem.problem import Problem
from tether.records import CostBound, Radius, StarAction
from worlds import finite_problem, world_and_streams

LIVE = Path(tether.__file__).parent / "live"
CONFIGS = [
    SlucbConfig(cost_radius=radius, explorer=explorer, condition_on=facts, replan="on-doubling")
    for radius, explorer, facts in product(
        ("theorem", "mixture", "classical", 0.5), ("adaptive", "paper"), ("state", "all")
    )
]


def trained(problem, gamma, *, config=None, steps=40, noise=0.05, states=4, horizon=2):
    advisor = live_advisor(problem, config=config, watch=False)
    decisions = Plant(gamma, noise=noise, states=states).play(advisor, steps, horizon=horizon)
    return advisor, decisions


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.cost_radius}-{c.explorer}-{c.condition_on}")
@pytest.mark.parametrize("kind", ["star", "finite"])
def test_genuine_certificates_pass_in_every_configuration(config, kind):
    if kind == "star":
        world, _ = world_and_streams(3, horizon=2, states=2, dimension=4)  # two facts leave part of γ* open
        advisor, decisions = trained(world.problem, world.true_gamma, config=config, states=2)
    else:
        problem, gamma = finite_problem(2, horizon=2, constraints=2, states=2, dimension=4)
        advisor, decisions = trained(problem, gamma, config=config, noise=0.02, states=2)
    assert advisor.status().refusals == 0
    if kind == "star":
        assert sum(not decision.is_baseline for decision in decisions) > 10
    for decision in decisions:
        assert decision.certificate.holds
        for limit in decision.certificate.limits:
            if not decision.is_baseline:
                assert limit.gate_bound <= limit.bound + 1e-9 <= limit.threshold + 2e-9
                if config.cost_radius != "theorem":  # the theorem's certificate may use an older, larger spectrum
                    assert limit.gate_bound == pytest.approx(limit.bound, abs=1e-7)


@pytest.mark.parametrize("kind", ["star", "finite"])
def test_genuine_certificates_pass_when_the_safe_cost_is_unknown(kind):
    if kind == "star":
        world, _ = world_and_streams(3, horizon=2, known_costs=False)
        problem, gamma, states, noise = world.problem, world.true_gamma, 4, 0.05
    else:
        problem, gamma = finite_problem(2, horizon=2, known=False)
        states, noise = 3, 0.02
    advisor, decisions = trained(problem, gamma, steps=100, noise=noise, states=states)
    assert advisor.status().refusals == 0
    assert any(not decision.is_baseline for decision in decisions)


def two_dimensional_gate(radius=0.5, memory="state"):
    """f = e_1 costs 0.2, A = diag(4, 1), Σzφ = (0.8, 0.3): one observation short of nothing, all by hand."""
    terms = Terms(
        memory=memory,
        error=np.array([0.0]),
        point_error=np.array([0.0]),
        sample_error=np.array([0.0]),
        assumptions=((),),
        reserve=np.array([0.0]),
        end_reserve=np.array([0.0]),
        limits_measured=False,
        radius=radius,
        reduces=False,
        threshold=np.array([1.0]),
        noise=np.array([0.1]),
        gamma_norm=np.array([1.0]),
        feature_norm=1.0,
        confidence=0.01,
        stages=1,
        dimension=2,
        ridge=1.0,
    )
    gate = Gate(terms)
    gate.gram[0] = np.diag([4.0, 1.0])
    gate.moment[0, 0] = [0.8, 0.3]
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]],
        endpoints=[[[0.6, 0.8], [0.0, 1.0]]],
        constraints=Constraint(threshold=1.0, noise=0.1, safe_cost=[[0.2]]),
        horizon=1,
    )
    return gate, problem.look_up(0)


def test_the_gate_counts_lost_costs_in_the_worst_case():
    """cost_range (0, 0.6): z = 0.3, off by 0.3 each; without a range a lost cost changes no sum. Both are counted."""
    gate, _ = two_dimensional_gate()
    gate.add(0, np.array([0.0, 1.0]), None)
    assert (gate.lost.tolist(), gate.count.tolist(), gate.bias.tolist()) == ([1], [0], [[0.0]])
    careful = Gate(dataclasses.replace(gate.terms, cost_range=np.array([[0.0, 0.6]])))
    for _ in range(2):
        careful.add(0, np.array([0.0, 1.0]), None)
    np.testing.assert_allclose(careful.bias, [[2 * 0.09]])
    np.testing.assert_allclose(careful.moment[0, 0], [0.0, 0.6])
    assert careful.lost.tolist() == careful.count.tolist() == [2]


@pytest.mark.parametrize("told", [{}, {"lost": "worst-case", "cost_range": (-1.0, 2.0)}])
def test_certificates_with_lost_costs_pass_and_replay(told):
    """Every third cost is lost, one in ten outcomes never comes; the gate agrees on how many, and on every bound."""
    world, _ = world_and_streams(3, horizon=1)
    problem = restated(world.problem, **told)
    advisor, plant = live_advisor(problem), Plant(world.true_gamma)
    for n in range(90):
        decision = advisor.decide(plant.state())
        if n % 10 == 9:
            advisor.lose(decision.id, by="me", why="gone")
        else:
            cost = None if n % 3 == 0 else plant.measure(0, decision.feature)
            advisor.record(decision.id, 0.1, cost)
    status = advisor.status()
    assert (status.lost, status.refusals, status.data_version) == (36, 0, 90)
    last = [advisor.decide(plant.state()) for _ in range(5)]
    assert {limit.lost for d in last for limit in d.certificate.limits if not d.is_baseline} <= {36}
    assert replay(advisor.store, problem).differences == []


def test_the_bound_is_the_one_worked_out_by_hand():
    """ĝ = (0.2, 0.3), f = (1, 0): share of x = (0.6, 0.8) is 0.6, y = (0, 0.8), ‖y‖_G = 0.8.

    mean = 0.6·0.2 + 0.3·0.8 = 0.36, bound = 0.36 + 0.5·0.8 = 0.76; at half the length (0.2 + 0.76)/2 = 0.48.
    """
    gate, known = two_dimensional_gate()
    for length, bound in ((1.0, 0.76), (0.5, 0.48)):
        feature = known.actions.phi_0 + length * (known.actions.endpoints[0] - known.actions.phi_0)
        shown = (CostBound(bound, 1.0, Radius(0.5, "tuned"), 0.2),)
        verdict = gate.check(0, known, StarAction(0, length), feature, shown)
        assert verdict.why == ""
        assert verdict.bounds[0] == pytest.approx(bound, abs=1e-12)
        assert verdict.doubts[0] < 1e-8


def test_the_certified_share_is_the_mean_length_by_hand():
    """Ray 0 is certified whole (0.76 <= 1). Ray 1: y = (0, 1), bound 0.3 + 0.5 = 0.8 <= 1. With τ = 0.5:
    lengths (0.5 − 0.2)/(0.76 − 0.2) and (0.5 − 0.2)/(0.8 − 0.2)."""
    gate, known = two_dimensional_gate()
    assert gate.certified(0, known) == 1.0
    gate.terms.threshold[0] = 0.5
    assert gate.certified(0, known) == pytest.approx((0.3 / 0.56 + 0.5) / 2, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"bound": 0.76 - 1e-6}, "the gate's"),  # a kernel that underestimates the width
        ({"bound": 0.76 + 1e-6}, "the gate's"),
        ({"radius": Radius(0.49, "tuned"), "bound": 0.36 + 0.49 * 0.8}, "radius"),
        ({"threshold": 2.0}, "τ"),
        ({"bound": float("nan")}, "not finite"),
        ({"radius": Radius(float("nan"), "tuned")}, "radius"),
        ({"bound": float("inf")}, "not finite"),
    ],
)
def test_altered_evidence_is_refused(change, why):
    gate, known = two_dimensional_gate()
    shown = CostBound(0.76, 1.0, Radius(0.5, "tuned"), 0.2)
    whole = gate.check(0, known, StarAction(0, 1.0), known.actions.endpoints[0], (shown,))
    assert whole.why == ""
    altered = dataclasses.replace(shown, **change)
    assert why in gate.check(0, known, StarAction(0, 1.0), known.actions.endpoints[0], (altered,)).why


@pytest.mark.parametrize(
    ("action", "feature"),
    [
        (StarAction(0, 1.0), [0.6, 0.81]),
        (StarAction(0, 1.1), [0.56, 0.88]),
        (StarAction(2, 1.0), [0.6, 0.8]),
        (StarAction(0, float("nan")), [0.6, 0.8]),
        (StarAction(0, 1.0), [0.6, float("nan")]),
        (StarAction(-1, 0.0), [0.6, 0.8]),
        (0, [0.6, 0.8]),
    ],
)
def test_a_feature_or_action_outside_the_set_is_refused(action, feature):
    gate, known = two_dimensional_gate()
    shown = (CostBound(0.76, 1.0, Radius(0.5, "tuned"), 0.2),)
    assert gate.check(0, known, action, np.array(feature), shown).why != ""


@pytest.mark.parametrize("place", ["gram", "moment"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sums_that_are_not_finite_let_nothing_pass(place, value):
    gate, known = two_dimensional_gate()
    getattr(gate, place)[0].flat[0] = value
    shown = (CostBound(0.76, 1.0, Radius(0.5, "tuned"), 0.2),)
    assert "not finite" in gate.check(0, known, StarAction(0, 1.0), known.actions.endpoints[0], shown).why
    assert gate.certified(0, known) == 0.0


def test_a_gram_matrix_smaller_than_its_ridge_lets_nothing_pass():
    gate, known = two_dimensional_gate()
    gate.gram[0] = np.diag([4.0, 0.5])
    shown = (CostBound(0.76, 1.0, Radius(0.5, "tuned"), 0.2),)
    assert "λI" in gate.check(0, known, StarAction(0, 1.0), known.actions.endpoints[0], shown).why


def test_a_bound_over_the_threshold_is_refused_even_if_both_agree_on_it():
    gate, known = two_dimensional_gate(radius=2.0)  # 0.36 + 2·0.8 = 1.96 > 1
    shown = (CostBound(1.96, 1.0, Radius(2.0, "tuned"), 0.2),)
    assert "over τ" in gate.check(0, known, StarAction(0, 1.0), known.actions.endpoints[0], shown).why


def test_the_safe_action_needs_no_data():
    gate, known = two_dimensional_gate()
    gate.gram[0] = np.nan
    shown = (CostBound(0.2, 1.0, Radius(0.0, "none"), 0.2),)
    assert gate.check(0, known, StarAction(-1, 0.0), known.actions.phi_0, shown).why == ""


def planted(monkeypatch, change):
    """An advisor whose learner lies: `change` edits what it proposes."""
    world, _ = world_and_streams(3, horizon=1)
    store = MemoryStore()
    advisor = live_advisor(world.problem, store, watch=False)
    plant = Plant(world.true_gamma)
    plant.play(advisor, 40)
    honest = advisor.replica.learner.propose
    wanting = [state for state in range(4) if not honest(0, state).is_baseline]
    assert len(wanting) >= 2
    monkeypatch.setattr(advisor.replica.learner, "propose", lambda *asked: change(honest(*asked)))
    return advisor, store, wanting


def lower_bounds(decision):
    evidence = tuple(dataclasses.replace(shown, bound=shown.bound - 0.01) for shown in decision.evidence)
    return dataclasses.replace(decision, evidence=evidence)


def smaller_radius(decision):
    """A learner that computes with 0.9 β: radius and bound fit each other, but not the theorem."""
    evidence = []
    for shown in decision.evidence:
        radius = Radius(0.9 * shown.radius.value, shown.radius.origin)
        evidence.append(dataclasses.replace(shown, radius=radius, bound=shown.bound - 1e-3))
    return dataclasses.replace(decision, evidence=tuple(evidence))


def other_feature(decision):
    return dataclasses.replace(decision, feature=decision.feature * 1.01)


def other_length(decision):
    action = dataclasses.replace(decision.action, length=0.9 * decision.action.length)
    return dataclasses.replace(decision, action=action)


@pytest.mark.parametrize(
    "lie", [lower_bounds, smaller_radius, other_feature, other_length], ids=lambda lie: lie.__name__
)
def test_a_learner_that_lies_is_stopped_and_the_log_says_so(monkeypatch, lie):
    advisor, store, wanting = planted(monkeypatch, lambda d: d if d.is_baseline else lie(d))
    decisions = [advisor.decide(state) for state in wanting]
    assert {decision.reason for decision in decisions} == {"gate-refused"}
    assert all(decision.is_baseline and decision.certificate.holds for decision in decisions)
    refusals = [entry for entry in store.read(0, 10_000) if entry.kind == "gate-refused"]
    assert [entry.body["decision_id"] for entry in refusals] == [decision.id for decision in decisions]
    assert all(entry.body["why"] for entry in refusals)
    assert advisor.status().refusals == len(wanting)


@pytest.mark.parametrize(("memory", "states"), [("state", 4), ("visited", 2)])
def test_stale_sums_in_the_learner_are_noticed(memory, states):
    """The gate adds for itself: a learner that forgot to learn, or learned twice, no longer agrees with it."""
    world, _ = world_and_streams(
        3, horizon=1, states=states, dimension=3 if memory == "state" else 5
    )  # two facts of five
    config = SlucbConfig(condition_on=memory, replan="every-episode")
    advisor = live_advisor(world.problem, config=config, watch=False)
    plant = Plant(world.true_gamma, states=states)
    plant.play(advisor, 30)
    saved = advisor.replica.learner.agent.costs.moment.copy()
    plant.play(advisor, 10)
    wanting = [state for state in range(states) if not advisor.replica.learner.propose(0, state).is_baseline]
    assert "gate-refused" not in {advisor.decide(state).reason for state in wanting}
    advisor.replica.learner.agent.costs.moment[:] = saved
    advisor.replica.learner._proposed.clear()  # proposals from before are genuine
    now = [state for state in range(states) if not advisor.replica.learner.propose(0, state).is_baseline]
    assert {advisor.decide(state).reason for state in now} == {"gate-refused"}
    assert now


def test_a_learner_that_counts_a_cost_before_its_turn_is_stopped(monkeypatch):
    """The gate keeps the order of decisions, too. What was stopped stays so after a restart from a snapshot."""
    world, _ = world_and_streams(3, horizon=1)
    advisor, plant = live_advisor(world.problem, watch=False), Plant(world.true_gamma)
    plant.play(advisor, 40)
    advisor.decide(0)  # its outcome does not come
    late = advisor.decide(1)

    def hasty(order, stage):
        queue = order._queues[stage]
        due = {id: each.outcome for id, each in queue.items() if each.outcome is not None}
        for id in due:
            del queue[id]
        order._waiting[stage] = 0
        return list(due.values())

    monkeypatch.setattr(OutcomeOrder, "_due", hasty)
    advisor.record(late.id, 0.1, plant.measure(0, late.feature))
    assert advisor.replica.learner.version == 41
    wanting = [state for state in range(4) if not advisor.replica.learner.propose(0, state).is_baseline]
    assert {advisor.decide(state).reason for state in wanting} == {"gate-refused"}
    again = Learner(world.problem, advisor.replica.learner.config, watch=False)
    again.restored(advisor.replica.learner.to_bytes())
    assert again.gate.prepare(0) is None


def test_numbers_that_are_not_finite_in_the_learner_give_the_safe_action():
    world, _ = world_and_streams(3, horizon=1)
    advisor = live_advisor(world.problem, watch=False)
    Plant(world.true_gamma).play(advisor, 30)
    advisor.replica.learner.agent.costs.moment[:] = np.nan
    for state in range(4):
        decision = advisor.decide(state)
        assert decision.is_baseline
        assert decision.certificate.holds
        assert decision.reason in ("bad-numbers", "alarm", "only-baseline", "gate-refused")


@pytest.mark.parametrize("radius", ["theorem", "mixture", "classical"])
def test_the_least_radius_is_the_learners_own_when_its_spectrum_is_fresh(radius):
    world, _ = world_and_streams(3, horizon=1, dimension=4)
    learner = Learner(world.problem, SlucbConfig(cost_radius=radius), watch=False)
    rng, gamma = np.random.default_rng(0), world.true_gamma[0, 0]  # other costs contradict what is declared
    for _ in range(3):
        before = learner.agent.planned_growth.copy()
        for _ in range(50):
            x = rng.dirichlet(np.ones(4))
            body = {
                "step": 0,
                "state": 0,
                "feature": x.tolist(),
                "reward": 0.1,
                "cost": [float(gamma @ x)],
                "next_state": None,
            }
            learner.learn(Measured(**body))
        assert (learner.agent.planned_growth != before).any()
        learner.agent.costs.grid_at[:] = -1.0  # so that the next plan looks at the spectrum
        learner.agent.plan()
        shown = learner.propose(0, 0).evidence[0].radius.value
        least = learner.gate.prepare(0).radii[0]
        assert least <= shown <= least * (1 + 1e-6)


@pytest.mark.parametrize("updates", [3000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_the_gate_never_refuses_a_genuine_certificate_because_of_rounding(updates):
    """Features of condition 1e8 and a small ridge: where a Gram matrix loses most of its digits."""
    rng = np.random.default_rng(5)
    scales, rotation = np.logspace(0, -4, 5), np.linalg.qr(rng.standard_normal((5, 5)))[0]
    problem = Problem.from_rays(
        phi_0=[rotation[0] * 0.5],
        endpoints=[rotation[1:] * 0.5 + 0.3 * rotation[0]],
        constraints=Constraint(threshold=0.5, noise=0.01, safe_cost=[[0.1]]),
        horizon=1,
    )
    learner = Learner(problem, SlucbConfig(replan="on-doubling"), watch=False)
    gamma = np.linalg.solve(np.vstack([rotation[0] * 0.5, rng.standard_normal((4, 5))]), [0.1, 0.02, 0.01, 0.0, 0.03])
    gamma *= min(1.0, 2.0 / np.linalg.norm(gamma))
    known = dataclasses.replace(problem.look_up(0), baseline_cost=np.array([[0.5 * rotation[0] @ gamma]]))
    others = 0
    for count in range(updates):
        x = (rng.standard_normal(5) * scales / 3) @ rotation
        x /= max(1.0, np.linalg.norm(x))
        z = float(gamma @ x) + 0.01 * rng.standard_normal()
        body = {"step": 0, "state": 0, "feature": x.tolist(), "reward": 0.0, "cost": [z], "next_state": None}
        learner.learn(Measured(**body))
        if count % (updates // 100) == 0:
            decision = learner.propose(0, 0, known)
            verdict = learner.gate.check(0, known, decision.action, decision.feature, decision.evidence)
            assert verdict.why == ""
            others += not decision.is_baseline
    assert others > 50


def test_a_point_well_inside_a_ray_passes_although_its_certificate_rounds_at_the_end():
    """The end of the ray is far out where a_0(s) and most points of it are not."""
    gamma, phi_0 = np.array([0.6, 0.2]), np.array([0.02, 0.3])
    refused = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        noise, tau = float(10.0 ** rng.uniform(-3.0, -1.0)), float(gamma @ phi_0) + rng.uniform(0.02, 0.2)
        told = {"horizon": 1, "threshold": tau, "noise": noise, "gamma_norm": 1.0}
        costs = [[float(gamma @ phi_0)]]
        advisor = live_advisor(
            Problem.from_rays(
                phi_0=[phi_0], endpoints=[[[0.9, 0.05]]], **stated(baseline_cost_error=0.0, baseline_cost=costs, **told)
            )
        )
        for count in range(12):
            x = 0.9 * rng.dirichlet(np.ones(2)) if count % 2 else np.array([0.45, 0.45])
            made = advisor.decide(0)
            refused += [made.detail] if made.reason == "gate-refused" else []
            advisor.record(made.id, 0.0, float(gamma @ x) + noise * rng.standard_normal(), applied=x.tolist())
    assert refused == []


def test_the_gate_shares_no_code_with_the_learner():
    for name in ("gate.py", "yes_no.py"):
        modules = set()
        for node in ast.walk(ast.parse((LIVE / name).read_text())):
            if isinstance(node, ast.ImportFrom):
                modules.add(node.module or "")
            elif isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
        assert not [module for module in modules if "kernels" in module or "agents" in module or "learner" in module]
