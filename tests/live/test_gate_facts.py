"""The gate and remembered safe costs: genuine certificates pass, in every kind of problem; planted faults do not."""

import dataclasses
import io
import json
import zipfile
from itertools import product

import numpy as np
import pyarrow.parquet as pq
import pytest

from limits import stated
from live.plant import Plant, live_advisor
from live.random_problems import taught
from tether import Advisor
from tether.agents import agent as engine
from tether.agents.slucb import SlucbConfig
from tether.errors import InputError, StateFileError
from tether.kernels import plan, ridge
from tether.live import examine, gate_facts, gate_model
from tether.live.audit import decisions_in_the_log, export, replay
from tether.live.gate import Gate
from tether.live.gate_facts import ExactFacts, Terms
from tether.live.learner import FORMAT, Learner
from tether.live.log.memory import MemoryStore
from tether.live.policy import Guards
from tether.live.records import Measured
from tether.problem.problem import Problem
from tether.records import CostBound, Radius, StarAction
from worlds import finite_problem, world_and_streams


def check(learner, step, state):
    """The learner's proposal in a state, and what the gate says of it; None for a_0."""
    known = learner.problem.look_up(state)
    decision = learner.propose(step, state, known)
    if decision.is_baseline:
        return decision, None
    return decision, learner.gate.check(step, known, decision.action, decision.feature, decision.evidence)


# By hand


def gate_of(dimension, error, **more):
    terms = {
        "memory": "visited",
        "error": np.array([error]),
        "point_error": np.array([0.0]),
        "sample_error": np.array([0.0]),
        "assumptions": ((),),
        "reserve": np.array([0.0]),
        "end_reserve": np.array([0.0]),
        "limits_measured": False,
        "radius": 0.5,
        "reduces": True,
        "threshold": np.array([1.0]),
        "noise": np.array([0.1]),
        "gamma_norm": np.array([1.0]),
        "feature_norm": 1.0,
        "confidence": 0.01,
        "stages": 1,
        "dimension": dimension,
        "ridge": 1.0,
    }
    return Gate(Terms(**{**terms, **more}))


def star(phi_0, end, cost):
    told = {"baseline_cost_error": 0.0, "baseline_cost": [[cost]], "horizon": 1, "threshold": 1.0, "noise": 0.1}
    return Problem.from_rays(phi_0=[phi_0], endpoints=[[end]], **stated(**told)).look_up(0)


def remembering_gate():
    """A = diag(4, 2, 1), Σzφ = (.4, .6, .3), so ĝ = (.1, .3, .3); the fact ⟨γ*, e_1⟩ = .2 was remembered."""
    gate = gate_of(3, 0.0)
    gate.gram[0], gate.moment[0, 0] = np.diag([4.0, 2.0, 1.0]), [0.4, 0.6, 0.3]
    gate.remember(0, np.array([1.0, 0.0, 0.0]), np.array([0.2]))
    return gate, star([0.0, 0.5, 0.0], [0.6, 0.0, 0.8], 0.1)


def test_the_bound_given_a_fact_is_the_one_worked_out_by_hand():
    """γ_c = (.2, .3, .3) is nearest to ĝ, at m = 4·.1² = .04: the radius is √(.5² − .04) = √.21.

    The state's own fact: f = (0, .5, 0) costs .1, γ_c says .15, g00 = .25/2, so β_s² = .21 − .05²/.125 = .19. The end
    x = (.6, 0, .8) has mean .12 + .24 = .36 and width .8; half way the bound is the mean of it and of .1.
    """
    gate, known = remembering_gate()
    end = 0.36 + 0.8 * np.sqrt(0.19)
    for length, bound in ((1.0, end), (0.5, (0.1 + end) / 2.0)):
        feature = known.actions.phi_0 + length * (known.actions.endpoints[0] - known.actions.phi_0)
        shown = CostBound(bound, 1.0, Radius(np.sqrt(0.21), "tuned"), 0.1, facts=1)
        verdict = gate.check(0, known, StarAction(0, length), feature, (shown,))
        assert verdict.why == ""
        assert verdict.bounds[0] == pytest.approx(bound, abs=1e-8)
        assert verdict.doubts[0] < 1e-7
    assert gate.certified(0, known) == 1.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"facts": 0}, "remembered facts"),
        ({"facts": 2}, "remembered facts"),
        ({"bound": 0.36 + 0.8 * np.sqrt(0.19) - 1e-6}, "the gate's"),
        ({"bound": 0.36 + 0.8 * np.sqrt(0.19) + 1e-6}, "the gate's"),
        ({"radius": Radius(np.sqrt(0.21) - 1e-6, "tuned")}, "radius"),
        (
            {"radius": Radius(np.sqrt(0.17), "tuned"), "bound": 0.36 + 0.8 * np.sqrt(0.15)},
            "radius",
        ),  # m taken twice
    ],
)
def test_altered_evidence_on_facts_is_refused(change, why):
    gate, known = remembering_gate()
    shown = CostBound(0.36 + 0.8 * np.sqrt(0.19), 1.0, Radius(np.sqrt(0.21), "tuned"), 0.1, facts=1)
    args = (0, known, StarAction(0, 1.0), known.actions.endpoints[0])
    assert gate.check(*args, (shown,)).why == ""
    assert why in gate.check(*args, (dataclasses.replace(shown, **change),)).why


def test_a_state_whose_cost_the_facts_settle_is_compared_with_them():
    """With f = (.5, 0, 0), γ_c says .1: the own fact adds nothing, and another declared cost is a contradiction.

    x = (.6, 0, .8) has mean .36 and, given e_1 alone, width .8 still; the start of the ray costs .1.
    """
    gate, _ = remembering_gate()
    bound = 0.36 + 0.8 * np.sqrt(0.21)
    for cost, why in ((0.1, ""), (0.11, "costs something else")):
        known = star([0.5, 0.0, 0.0], [0.6, 0.0, 0.8], cost)
        shown = CostBound(bound, 1.0, Radius(np.sqrt(0.21), "tuned"), cost, facts=1)
        assert why in gate.check(0, known, StarAction(0, 1.0), known.actions.endpoints[0], (shown,)).why
        if not why:
            half = known.actions.phi_0 + 0.5 * (known.actions.endpoints[0] - known.actions.phi_0)
            shown = dataclasses.replace(shown, bound=(0.1 + bound) / 2.0)
            assert gate.check(0, known, StarAction(0, 0.5), half, (shown,)).why == ""


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ([([1.0, 0.0, 0.0], 0.2), ([0.5, 0.0, 0.0], 0.2)], "contradict each other"),
        ([([1.0, 0.0, 0.0], 0.2), ([1.0, 0.0, 0.0], 0.2 + 2e-6)], "contradict each other"),
        ([([0.5, 0.0, 0.0], 0.9)], "but B is 1"),
        ([([1.0, 0.0, 0.0], 0.9)], "contradict the data"),  # 4·.8² > .5²
    ],
)
def test_facts_that_cannot_all_be_true_let_nothing_pass(facts, why):
    gate = gate_of(3, 0.0)
    gate.gram[0], gate.moment[0, 0] = np.diag([4.0, 2.0, 1.0]), [0.4, 0.6, 0.3]
    for f, cost in facts:
        gate.remember(0, np.array(f), np.array([cost]))
    known = star([0.0, 0.5, 0.0], [0.6, 0.0, 0.8], 0.1)
    shown = CostBound(0.9, 1.0, Radius(10.0, "tuned"), 0.1, facts=1)
    assert why in gate.check(0, known, StarAction(0, 1.0), known.actions.endpoints[0], (shown,)).why


def weighed_gate(weight=3.0):
    """A = I, Σzφ = (.2, .4), the cost .3 ± .1 of e_1 was declared twice and weighs 3: A_w = diag(7, 1).

    ĝ_w = ((.2 + 6·.3)/7, .4) = (2/7, .4); m_w = (6/7)·.1²; β_w² = .25 + 3·2·.01 − .06/7.
    """
    gate = gate_of(2, 0.1)
    gate.moment[0, 0] = [0.2, 0.4]
    for _ in range(2):
        gate.remember(0, np.array([1.0, 0.0]), np.array([0.3]))
    gate.weigh(0, weight)
    gate.remember(0, np.array([1.0, 0.0]), np.array([0.9]))  # takes effect at the next weighing only
    return gate, star([0.8, 0.0], [0.0, 0.6], 0.24), np.sqrt(0.31 - 0.06 / 7.0)


def test_the_bound_with_an_error_bar_is_the_smaller_of_two_by_hand():
    """At the end both are .24 + β_w·.6. At length a the free one is the norm's, the tied one starts at .24 + .1.

    A certificate for a longer length that was cut to a lies on the chord from .34: the lowest chord is as valid.
    """
    gate, known, beta = weighed_gate()
    f, end = known.actions.phi_0, known.actions.endpoints[0]

    def free_at(length):
        x = f + length * (end - f)
        return x @ [2.0 / 7.0, 0.4] + beta * np.sqrt(x[0] ** 2 / 7.0 + x[1] ** 2)

    for length in (0.1, 0.5, 1.0):
        x = f + length * (end - f)
        free, tied = free_at(length), (1.0 - length) * 0.34 + length * (0.24 + beta * 0.6)
        lowest = min(0.34 + length / t * (free_at(t) - 0.34) for t in np.linspace(length, 1.0, 100_001))
        shown = CostBound(min(free, tied), 1.0, Radius(beta, "tuned"), 0.24, facts=2)
        verdict = gate.check(0, known, StarAction(0, length), x, (shown,))
        assert verdict.why == ""
        assert verdict.bounds[0] == pytest.approx(min(free, tied), abs=1e-8)
        cut = dataclasses.replace(shown, bound=lowest)
        assert gate.check(0, known, StarAction(0, length), x, (cut,)).why == ""
        low = dataclasses.replace(shown, bound=min(lowest, free, tied) - 1e-6)
        assert "the gate's" in gate.check(0, known, StarAction(0, length), x, (low,)).why
        small = dataclasses.replace(shown, radius=Radius(beta - 1e-6, "tuned"))
        assert "radius" in gate.check(0, known, StarAction(0, length), x, (small,)).why
        other = dataclasses.replace(shown, facts=3)
        assert "remembered facts" in gate.check(0, known, StarAction(0, length), x, (other,)).why


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_what_is_no_weight_lets_nothing_pass(weight):
    gate, known, beta = weighed_gate(weight)
    shown = CostBound(0.24 + beta * 0.6, 1.0, Radius(beta, "tuned"), 0.24, facts=2)
    assert "not finite" in gate.check(0, known, StarAction(0, 1.0), known.actions.endpoints[0], (shown,)).why


def test_a_fact_that_would_amplify_errors_is_left_out_and_only_compared():
    """f_2 leaves 1e-9 of itself open: K would be 1e9. Its cost agrees within B·1e-9, so it is no contradiction."""
    facts = gate_of(2, 0.0).facts
    assert isinstance(facts, ExactFacts)
    facts.remember(0, np.array([0.5, 0.0]), np.array([0.1]))
    facts.remember(0, np.array([0.5, 5e-10]), np.array([0.1 + 4e-10]))
    assert facts.count[0] == 1 and facts.misfit[0, 0] < 1e-14
    facts.remember(0, np.array([0.5, 5e-10]), np.array([0.1 + 4e-9]))
    assert facts.misfit[0, 0] == pytest.approx(3.5e-9, rel=1e-6)
    facts.remember(0, np.array([0.0, 0.5]), np.array([0.2]))
    assert facts.count[0] == 2 and facts.amplification[0] == pytest.approx(4.0)  # √2 · ‖2I‖ (Frobenius) = √2 · √8
    assert np.allclose(facts.span(0).known, [[0.2, 0.4]])


# Genuine certificates

KINDS = [
    ("visited", 0.0, True, 16),
    ("all", 0.0, True, 6),
    ("state", 0.0, True, 6),
    ("visited", 0.01, True, 12),
    ("visited", 0.05, True, 12),
    ("all", 0.01, True, 6),
    ("state", 0.05, True, 6),
    ("visited", 0.0, False, 6),
]


@pytest.mark.parametrize(("memory", "error", "known", "problems"), KINDS)
def test_genuine_certificates_pass_and_their_bounds_hold(memory, error, known, problems):
    checked, on_facts, doubts = 0, 0, []
    for seed in range(problems):
        for learner, gamma, step, states in taught(seed, memory=memory, error=error, known=known):
            for state in range(states):
                decision, verdict = check(learner, step, state)
                if verdict is None:
                    continue
                assert verdict.why == ""
                checked, on_facts = checked + 1, on_facts + (decision.evidence[0].facts > 0)
                true = gamma[step] @ decision.feature
                assert all(cost <= shown.bound + 1e-12 for cost, shown in zip(true, decision.evidence, strict=True))
                doubts.append(max(verdict.doubts))
    assert checked > 25 * problems
    assert np.quantile(doubts, 0.8) < 1e-7 and max(doubts) < 1e-3  # the rest: safe features that are nearly the same
    assert (on_facts > 0) == (memory != "state" and known)


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "error"), [("visited", 0.0), ("visited", 0.02), ("all", 0.0)])
def test_many_genuine_certificates_pass(memory, error):
    for seed in range(100, 300):
        for learner, _, step, states in taught(seed, 80, memory=memory, error=error):
            found = [check(learner, step, state)[1] for state in range(states)]
            assert [verdict.why for verdict in found if verdict and verdict.why] == []


def test_the_gates_facts_are_the_learners_own():
    """Both accept the same facts, and find the same part of γ*, each in its own way."""
    for seed in range(12):
        *_, (learner, gamma, _, _) = taught(seed)
        facts, mine = learner.agent.costs.facts, learner.gate.facts
        assert mine.count.tolist() == facts.count.tolist() and mine.count.sum() > 0
        assert np.allclose(mine.amplification, facts.amplification, rtol=1e-6)
        for stage in range(len(mine.count)):
            assert np.allclose(mine.span(stage).known, facts.known[stage], atol=1e-9)
            features, costs = mine.accepted(stage)
            assert np.allclose(features @ gamma[stage].T, costs, atol=1e-12)


def test_certificates_of_the_gates_own_certified_share_are_under_the_threshold():
    for memory, error in (("visited", 0.0), ("visited", 0.02), ("state", 0.02)):
        shares = []
        for learner, _, step, states in taught(3, 60, memory=memory, error=error, kind="star"):
            shares += [learner.gate.certified(step, learner.problem.look_up(state)) for state in range(states)]
        assert all(0.0 <= share <= 1.0 for share in shares)
        assert np.mean(shares[-20:]) > np.mean(shares[:20])


# Planted faults


def wanting(learner, step, states):
    return [state for state in range(states) if not learner.propose(step, state).is_baseline]


def contradictory(size):
    """H = 1, d = 3, five states whose declared costs are not quite linear in their features: (problem, γ*)."""
    rng = np.random.default_rng(8)
    phi_0, gamma = 0.9 * rng.dirichlet(np.ones(3), size=5), np.array([0.2, 0.5, 0.4])
    costs = phi_0 @ gamma + size * np.array([0.0, 0.0, 0.0, 1.0, -1.0])
    rays = rng.dirichlet(np.ones(3), size=(5, 4))
    told = {"horizon": 1, "threshold": 0.55, "noise": 0.05, "gamma_norm": 1.0}
    return Problem.from_rays(
        phi_0=phi_0, endpoints=rays, **stated(baseline_cost_error=0.0, baseline_cost=costs[None], **told)
    ), gamma


def visited_all(problem, gamma, count=40):
    learner, rng = Learner(problem, SlucbConfig(), watch=False), np.random.default_rng(0)
    for n in range(count):
        known = problem.look_up(n % 5)
        x = learner.propose(0, n % 5, known).feature
        fact = {"safe_feature": known.actions.phi_0.tolist(), "safe_cost": known.baseline_cost[0].tolist()}
        cost = [float(gamma @ x + 0.05 * rng.standard_normal())]
        body = {"step": 0, "state": n % 5, "feature": x.tolist(), "reward": 0.5, "cost": cost, "next_state": None}
        learner.learn(Measured(**body, **fact))
    return learner


@pytest.mark.parametrize(("size", "why"), [(4e-7, "radius"), (1e-3, "contradict each other")])
def test_a_learner_that_forgets_how_far_facts_miss_each_other_is_refused(monkeypatch, size, why):
    """The same log with and without the fault: an honest learner widens its bounds, or plays a_0 alone."""
    problem, gamma = contradictory(size)
    honest = visited_all(problem, gamma)
    found = [check(honest, 0, state) for state in range(5)]
    assert all(verdict is None or verdict.why == "" for _, verdict in found)
    assert any(verdict is not None for _, verdict in found) == (size < 1e-6)
    plain = engine.remember

    def forgetful(costs, *rest):
        plain(costs, *rest)
        costs.facts.misfit[:] = 0.0

    monkeypatch.setattr(engine, "remember", forgetful)
    learner = visited_all(problem, gamma)
    states = wanting(learner, 0, 5)
    assert states
    assert all(why in check(learner, 0, state)[1].why for state in states)


@pytest.mark.parametrize("error", [0.0, 0.02])
def test_a_learner_that_remembers_another_cost_is_refused(monkeypatch, error):
    """With an error bar some wrong facts still give a bound between the two valid ones: what passes is no smaller."""
    name = "remember_roughly" if error else "remember"
    plain = getattr(engine, name)
    monkeypatch.setattr(engine, name, lambda costs, stage, f, cost, *more: plain(costs, stage, f, cost - 1e-4, *more))
    refused = 0
    for seed in range(6):
        for learner, _, step, states in taught(seed, error=error, kind="star"):
            for state in range(states):
                decision, verdict = check(learner, step, state)
                if verdict is not None and decision.evidence[0].facts:
                    shown = decision.evidence[0].bound
                    assert verdict.why or (error and shown >= verdict.bounds[0] - verdict.doubts[0])
                    refused += bool(verdict.why)
    assert refused > 100


def test_a_learner_that_makes_up_a_fact_is_refused():
    refused = 0
    for seed in range(8):
        *_, (learner, gamma, step, states) = taught(seed)
        stage = 0 if learner.config.pooled else step
        agent, made_up = learner.agent, np.eye(learner.problem.dimension)[0] * 0.5
        before = int(agent.costs.facts.count[stage])
        agent.remember(stage, made_up, gamma[step] @ made_up)  # true, and yet nobody declared it
        learner._proposed.clear()
        if agent.costs.facts.count[stage] > before:
            found = [check(learner, step, state)[1] for state in wanting(learner, step, states)]
            assert all("remembered facts" in verdict.why for verdict in found)
            refused += len(found)
    assert refused > 5


def smaller_noise(learner):
    learner.agent.rules.noise[:] *= 0.9


def smaller_error(learner):
    learner.agent.rules.cost_error[:] *= 0.5


def unreported_weight(learner):
    """The learner's weight changes, and the gate is not told."""
    facts = learner.agent.costs.facts
    facts.weight[:] *= 2.0
    for stage in range(len(facts.weight)):
        total = learner.agent.costs.gram[stage] + facts.weight[stage] * facts.used_gram[stage]
        facts.inside[stage] = np.linalg.cholesky(total).T


@pytest.mark.parametrize(
    ("fault", "error"),
    [(smaller_noise, 0.0), (smaller_noise, 0.02), (smaller_error, 0.02), (unreported_weight, 0.02)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_radius_or_a_weight_of_the_learners_own_is_refused(fault, error):
    refused = 0
    for seed in range(10):
        *_, (learner, _, step, states) = taught(seed, error=error)
        fault(learner)
        learner._proposed.clear()
        for state in range(states):
            decision, verdict = check(learner, step, state)
            if verdict is not None and (decision.evidence[0].facts or fault is smaller_noise):
                shown = decision.evidence[0].bound
                honest = fault is unreported_weight and shown >= verdict.bounds[0] - verdict.doubts[0]
                assert verdict.why or honest
                refused += bool(verdict.why)
    assert refused > 10


def test_a_smaller_radius_given_the_facts_is_refused():
    """A learner that takes the pull of its facts off twice: radius and bound fit each other, but not the theorem."""
    refused = 0
    for seed in range(8):
        *_, (learner, _, step, states) = taught(seed, kind="star")
        model = learner.gate.prepare(step)
        for state in wanting(learner, step, states):
            known, decision = learner.problem.look_up(state), learner.propose(step, state)
            lies = [0.999 * shown.radius.value for shown in decision.evidence]
            if not all(lie < least for lie, least in zip(lies, model.radii, strict=True)):
                continue
            evidence = tuple(
                dataclasses.replace(shown, radius=Radius(lie, "theorem"))
                for shown, lie in zip(decision.evidence, lies, strict=True)
            )
            assert "radius" in learner.gate.check(step, known, decision.action, decision.feature, evidence).why
            refused += 1
    assert refused > 5


def test_the_gate_states_the_constants_a_second_time():
    """They are written down twice on purpose; where they differ, genuine certificates would be refused."""
    assert (gate_facts.AMPLIFIED, gate_facts.MISFIT) == (ridge.AMPLIFIED, ridge.MISFIT)
    assert examine.SPANNED == plan.SPANNED
    assert list(gate_model.GRID) == ridge.GRID.tolist()


# Snapshots


@pytest.mark.parametrize(("memory", "error"), list(product(("visited", "all"), (0.0, 0.02))))
def test_bytes_restore_the_facts_and_the_future_is_the_same(memory, error):
    for count, (learner, _, step, _) in enumerate(taught(4, 60, memory=memory, error=error)):
        if count > 12 and count % 6:
            continue  # by then all facts are there, and the next outcome changes little
        again = Learner(learner.problem, learner.config).restored(learner.to_bytes())
        assert again.to_bytes() == learner.to_bytes()
        assert again.model_hash(step) == learner.model_hash(step)
        for name, array in learner.gate.arrays().items():
            assert np.array_equal(again.gate.arrays()[name], array)
        mine, theirs = check(learner, step, 0), check(again, step, 0)
        assert mine[0].evidence == theirs[0].evidence and mine[1] == theirs[1]


def test_a_snapshot_whose_gate_has_another_shape_is_refused():
    *_, (learner, *_) = taught(4)
    arrays = {name: array.copy() for name, array in learner.gate.arrays().items()}
    arrays["facts.features"] = arrays["facts.features"][..., :1]
    with pytest.raises(ValueError, match=r"facts\.features of the gate"):
        learner.gate.take(arrays)


def test_the_model_hash_covers_what_the_facts_say():
    *_, (learner, _, step, _) = taught(4)
    stage = 0 if learner.config.pooled else step
    facts = learner.agent.costs.facts
    seen = {learner.model_hash(step)}
    for array in (facts.known, facts.misfit, facts.amplification, facts.basis, facts.inside, facts.rank, facts.weight):
        old = array.copy()
        array[stage] += 1
        learner._hashes.clear()
        seen.add(learner.model_hash(step))
        array[...] = old
    for array in (learner.gate.facts.features, learner.gate.facts.costs, learner.gate.facts.misfit):
        array[stage] += 1
        learner._hashes.clear()
        seen.add(learner.model_hash(step))
    assert len(seen) == 11


def test_bytes_of_the_format_before_facts_are_refused():
    *_, (learner, *_) = taught(4)
    with zipfile.ZipFile(io.BytesIO(learner.to_bytes())) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    files["learner.json"] = files["learner.json"].replace(FORMAT.encode(), b"tether-learner-2")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    with pytest.raises(StateFileError, match="another problem, configuration or format"):
        Learner(learner.problem, learner.config).restored(buffer.getvalue())


# From a decision to the log and back


def test_the_number_of_facts_goes_with_the_certificate_and_the_fact_with_the_outcome():
    world, _ = world_and_streams(3, horizon=1, states=2)
    advisor = live_advisor(world.problem)
    decisions = Plant(world.true_gamma, states=2).play(advisor, 30)
    learner = advisor.replica.learner
    assert learner.gate.facts.count.tolist() == [2]
    last = [decision for decision in decisions if not decision.is_baseline][-1]
    assert [limit.facts for limit in last.certificate.limits] == [2]
    body = json.loads(advisor.store.find(f"decision:{last.id}").text)
    assert body["certificate"]["limits"][0]["facts"] == 2
    known = world.problem.look_up(last.state)
    assert body["safe_feature"] == known.actions.phi_0.tolist()
    outcome = advisor.store.find(f"outcome:{last.id}").body
    assert outcome["safe_feature"] == body["safe_feature"]
    assert outcome["safe_cost"] == known.baseline_cost[0].tolist()
    del body["certificate"]["limits"][0]["facts"]  # as an older log has it
    assert type(last.certificate).from_json(body["certificate"]).limits[0].facts == 0


def test_other_processes_learn_a_fact_from_the_log_and_ask_nobody():
    """What a_0 costs was declared when the decision was made; the catalogue may be down when the log is read."""
    world, _ = world_and_streams(3, horizon=1, states=2)
    is_down = [False]

    def actions(state):
        if is_down[0]:
            raise ConnectionError("the catalogue is down")
        return world.problem.actions(state)

    told = {name: getattr(world.problem, name) for name in ("horizon", "threshold", "noise", "dimension", "gamma_norm")}
    problem = Problem(
        actions=actions, **stated(baseline_cost_error=0.0, baseline_cost=world.problem.baseline_cost, **told)
    )
    store = MemoryStore()
    advisor = live_advisor(problem, store)
    Plant(world.true_gamma, states=2).play(advisor, 20)
    is_down[0] = True
    again = Advisor(problem, store)
    assert again.replica.to_bytes() == advisor.replica.to_bytes()
    assert again.replica.learner.gate.facts.count.tolist() == [2]


@pytest.mark.parametrize(("memory", "remembered"), [("visited", 2), ("state", 0)])
def test_only_who_remembers_logs_what_a_0_costs(memory, remembered):
    world, _ = world_and_streams(3, horizon=1, states=2)
    advisor = live_advisor(world.problem, config=SlucbConfig(condition_on=memory, replan="every-episode"))
    Plant(world.true_gamma, states=2).play(advisor, 10)
    bodies = [entry.body for entry in advisor.store.read() if entry.kind in ("decision", "outcome")]
    assert {body["safe_feature"] is not None for body in bodies} == {memory == "visited"}
    assert advisor.replica.learner.gate.facts.count.tolist() == [remembered]
    assert advisor.replica.learner.agent.costs.facts.count.tolist() == [remembered]


def test_old_rows_with_their_states_bring_facts_and_others_do_not():
    world, _ = world_and_streams(3, horizon=1, states=4)
    advisor = live_advisor(world.problem)
    rng = np.random.default_rng(0)
    features = rng.dirichlet(np.ones(3), size=8)
    costs = features @ world.true_gamma[0, 0]
    count = advisor.replica.learner.gate.facts.count
    advisor.warm_start(features[:2], costs[:2])  # costs alone
    advisor.warm_start(features[2:4], costs[2:4], rewards=[0.1, 0.2])  # nobody knows where
    assert count.tolist() == [0]
    advisor.warm_start(features[4:], costs[4:], rewards=[0.1] * 4, seen_states=[0, 1, 0, 1])
    assert count.tolist() == [2]
    assert advisor.replica.learner.agent.costs.facts.count.tolist() == [2]
    assert "gate-refused" not in {advisor.decide(state).reason for state in range(4)}
    again = Advisor(world.problem, advisor.store)
    assert again.replica.to_bytes() == advisor.replica.to_bytes()


def test_a_row_is_the_same_row_whatever_is_declared_of_a_0_meanwhile():
    """Otherwise a measurement would count twice."""
    world, _ = world_and_streams(3, horizon=1, states=2)
    declared = [0.1]
    told = {name: getattr(world.problem, name) for name in ("horizon", "threshold", "noise", "dimension", "gamma_norm")}
    problem = Problem(
        actions=world.problem.actions,
        **stated(baseline_cost_error=0.0, baseline_cost=lambda step, state: declared[0], **told),
    )
    advisor = live_advisor(problem)
    row = {"rewards": [0.5], "seen_states": [1]}
    advisor.warm_start([[0.2, 0.3, 0.1]], [0.2], **row)
    declared[0] = 0.11
    with pytest.raises(InputError, match="in the log already"):
        advisor.warm_start([[0.2, 0.3, 0.1]], [0.2], **row)


@pytest.mark.parametrize("error", [0.0, 0.02])
@pytest.mark.parametrize("mode", ["guarded", "live"])
def test_an_advisor_with_error_bars_keeps_its_promise_and_replays(error, mode):
    """In guarded mode rays are cut; the chord from τ_s + e lies above the bound, and the gate lets it pass."""
    world, _ = world_and_streams(5, horizon=2, states=2, dimension=4)
    declared = np.array([[world.problem.baseline_cost(h, s) for s in range(2)] for h in range(2)]).reshape(2, 2)
    sets = [world.problem.actions(s) for s in range(2)]
    problem = Problem.from_rays(
        phi_0=[each.phi_0 for each in sets],
        endpoints=[each.endpoints for each in sets],
        horizon=2,
        **stated(
            baseline_cost=declared - 0.9 * error,
            baseline_cost_error=error,
            threshold=world.problem.threshold,
            noise=world.problem.noise,
            gamma_norm=world.problem.gamma_norm,
        ),
    )
    store = MemoryStore()
    settings = {"guards": Guards(margin_share=0.3, guarded_rate=1.0, canary=1.0), "mode": mode}
    advisor = live_advisor(problem, store, **settings)
    plant = Plant(world.true_gamma, states=2)
    decisions = plant.play(advisor, 120, horizon=2)
    assert plant.worst <= 1e-9
    assert advisor.status().refusals == 0
    played = [decision for decision in decisions if not decision.is_baseline]
    assert len(played) > 20 and any("cut to" in decision.detail for decision in played) == (mode == "guarded")
    assert max(limit.facts for decision in played for limit in decision.certificate.limits) > 0
    safe = next(decision for decision in decisions if decision.is_baseline)
    cost = float(declared[safe.step, safe.state]) - 0.9 * error
    assert safe.certificate.limits[0].bound == pytest.approx(cost + error)
    assert safe.certificate.limits[0].baseline_cost == pytest.approx(cost)
    assert replay(store, problem).holds
    assert Advisor(problem, store).replica.to_bytes() == advisor.replica.to_bytes()


def test_mixtures_with_facts_pass_and_tables_say_how_many(tmp_path):
    problem, gamma = finite_problem(2, horizon=2, states=3, dimension=5)
    advisor = live_advisor(problem, limit_on="average over draws")
    decisions = Plant(gamma, noise=0.02, states=3).play(advisor, 60, horizon=2)
    assert advisor.status().refusals == 0
    facts = [decision.certificate.limits[0].facts for decision in decisions if not decision.is_baseline]
    assert len(facts) > 10 and max(facts) == 3
    export(advisor.store, tmp_path)
    table = pq.read_table(tmp_path / "decisions.parquet")
    shown = [row["facts"] for row in table.to_pylist()]
    assert shown == [[limit.facts for limit in decision.certificate.limits] for decision in decisions]
    assert [row["facts"] for row in decisions_in_the_log(advisor.store)][-1] == shown[-1]
