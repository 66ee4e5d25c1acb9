"""RSLUCB-QVI behind the advisor: mixtures whose expected cost is bounded, a coin that a replay tosses again."""

import math
from dataclasses import replace
from itertools import count

import numpy as np
import pyarrow.parquet as pq
import pytest

from limits import kept, stated
from live.plant import Plant
from tether import Advisor, Problem, Upkeep
from tether.agents.slucb import SlucbConfig
from tether.errors import InputError
from tether.live.audit import export, replay, summary
from tether.live.certificate import Certificate
from tether.live.judge import coin_of, proposal_of, with_margin
from tether.live.ledger import Ledger
from tether.live.log.memory import MemoryStore
from tether.live.mixtures import Drawn, drawn_row, is_safe_action, mean_feature, parts_of
from tether.live.policy import Criteria, Guards
from tether.live.promotion import unmet
from tether.live.records import OutcomeRecorded
from tether.problem.action_sets import feature_of
from tether.records import Mixture
from worlds import finite_problem, world_and_streams

FINITE, FINITE_GAMMA = finite_problem(2, horizon=2)
STAR, _ = world_and_streams(3, horizon=2)
PROBLEMS = {"finite": (FINITE, FINITE_GAMMA, 3), "star": (STAR.problem, STAR.true_gamma, 4)}


def mixer(problem, store=None, **more):
    """Its ids are numbered, so that the same is drawn in every run."""
    told = {"limit_on": "average over draws", "mode": "live", "criteria": Criteria.none(), "refresh": None, **more}
    numbers = count()
    return Advisor(problem, store, **kept(ids=lambda: f"decision {next(numbers)}", **told))


def played(kind, steps=200, store=None, **more):
    """(advisor, decisions) after some decisions with their outcomes."""
    problem, gamma, states = PROBLEMS[kind]
    advisor = mixer(problem, store, **more)
    return advisor, Plant(gamma, noise=0.02, states=states).play(advisor, steps, horizon=2)


@pytest.mark.parametrize("kind", PROBLEMS)
def test_what_is_played_is_drawn_from_a_mixture_whose_expected_cost_is_under_tau(kind):
    problem, gamma, _ = PROBLEMS[kind]
    advisor, decisions = played(kind)
    mixed = [d for d in decisions if d.certificate.mixture is not None]
    assert len(mixed) > 50 and advisor.status().refusals == 0
    for decision in mixed:
        certificate, actions = decision.certificate, problem.look_up(decision.state).actions
        assert {limit.bounds for limit in certificate.limits} == {"expected cost"}
        shares = np.zeros(len(actions.endpoints))
        for row, probability in certificate.mixture:
            assert row != actions.baseline and probability > 0.0
            shares[row] = probability
        mean = (1.0 - shares.sum()) * actions.phi_0 + shares @ actions.endpoints
        np.testing.assert_allclose(certificate.feature, mean, rtol=0, atol=1e-12)
        np.testing.assert_allclose(decision.feature, feature_of(actions, decision.action), rtol=0, atol=1e-15)
        expected = gamma[decision.step, 0] @ mean
        assert expected <= certificate.limits[0].bound + 1e-9 <= problem.threshold[0] + 2e-9
    assert any(d.feature != d.certificate.feature for d in mixed)  # else nothing was mixed at all
    assert any(is_safe_action(problem.look_up(d.state), d.action) for d in mixed)  # drawn too: the mixture is certified


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_drawn_action_has_its_own_bound_beside_that_of_the_average_and_is_counted_if_it_is_over_tau(kind):
    problem, gamma, _ = PROBLEMS[kind]
    store = MemoryStore()
    advisor, decisions = played(kind, store=store)
    over = dear = 0
    for decision in decisions:
        (limit,), actions = decision.certificate.limits, problem.look_up(decision.state).actions
        if decision.certificate.mixture is None or is_safe_action(problem.look_up(decision.state), decision.action):
            assert limit.own_bound is None
            continue
        true = float(gamma[decision.step, 0] @ feature_of(actions, decision.action))
        assert limit.own_bound >= true - 1e-9
        if len(decision.certificate.mixture) == 1 and decision.certificate.mixture[0][1] == 1.0:
            assert limit.own_bound <= limit.bound + 1e-6
        over += limit.own_bound > limit.threshold
        dear += true > limit.threshold
    assert over >= dear and over > 1
    assert advisor.status().over_by_itself == over == summary(store).counts.over_by_itself
    assert Advisor(problem, store, upkeep=Upkeep(refresh=None)).status().over_by_itself == over  # also after a restart


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_replay_a_restart_and_a_repeat_draw_the_same(kind):
    store = MemoryStore()
    advisor, _ = played(kind, 120, store)
    assert replay(store, PROBLEMS[kind][0]).holds
    advisor.snapshot()
    again = Advisor(PROBLEMS[kind][0], store, upkeep=Upkeep(refresh=None))  # the log says which algorithm
    assert again.replica.to_bytes() == advisor.replica.to_bytes()
    one, two = advisor.decide(1, 0, key="once"), again.decide(1, 0, key="once")
    assert (one.id, one.action, one.certificate) == (two.id, two.action, two.certificate)


def test_the_coin_is_fair_and_comes_from_the_id():
    coins = np.sort([coin_of(f"decision {i}") for i in range(4000)])
    assert np.abs(coins - (np.arange(4000) + 0.5) / 4000).max() < 1.95 / math.sqrt(4000)  # Kolmogorov, p = 0.001
    assert coins[0] >= 0.0 and coins[-1] < 1.0 and coin_of("a") == coin_of("a") != coin_of("b")


def test_actions_are_drawn_as_often_as_their_probabilities_say():
    learner, actions = mixing(), FINITE.look_up(1).actions
    mixture = learner.propose(0, 1).mixture
    rows = [drawn_row(actions, mixture.probabilities, coin_of(str(i)))[0] for i in range(5000)]
    counts = np.bincount([actions.baseline if row < 0 else row for row in rows], minlength=len(mixture.probabilities))
    spread = np.sqrt(mixture.probabilities * (1.0 - mixture.probabilities) / 5000)
    assert (np.abs(counts / 5000 - mixture.probabilities) <= 4.5 * spread + 1e-12).all()


def test_the_outcome_teaches_the_action_that_was_drawn():
    advisor, decisions = played("finite", 80)
    outcomes = {e.body["decision_id"]: e.body for e in advisor.store.read(0, 1000) if e.kind == "outcome"}
    mixed = [d for d in decisions if d.certificate.mixture is not None]
    for decision in mixed:
        told = outcomes[decision.id]
        assert told["feature"] == list(decision.feature) and told["drawn"]
    assert any(outcomes[d.id]["feature"] != list(d.certificate.feature) for d in mixed)


def test_the_certificate_survives_json():
    _, decisions = played("finite", 60)
    certificate = next(d.certificate for d in decisions if d.certificate.mixture is not None)
    assert Certificate.from_json(certificate.to_json()) == certificate


@pytest.mark.parametrize("kind", PROBLEMS)
def test_in_guarded_mode_a_mixture_gets_more_of_the_safe_action(kind):
    problem = PROBLEMS[kind][0]
    _, decisions = played(kind, 200, mode="guarded", guards=Guards(margin_share=0.3, guarded_rate=1.0, canary=1.0))
    mixed = [d for d in decisions if d.certificate.mixture is not None]
    assert len(mixed) > 20
    for decision in mixed:
        limit = decision.certificate.limits[0]
        assert limit.margin >= 0.3 * (problem.threshold[0] - limit.baseline_cost) - 1e-12


def test_the_canary_draws_between_a_mixture_and_the_safe_action_and_a_replay_does_too():
    store = MemoryStore()
    guards = Guards(margin_share=0.3, guarded_rate=1.0, canary=0.5, reward_range=(-2.0, 2.0))
    advisor, decisions = played("finite", 120, store, mode="guarded", guards=guards)
    drawn = [d for d in decisions if d.canary is not None]
    assert {d.certificate.mixture is None for d in drawn} == {True, False}
    assert all((d.proposal or d.certificate).mixture is not None for d in drawn)
    assert advisor.status().uplift.compared == len(drawn) > 20 and replay(store, FINITE).holds
    again = Advisor(FINITE, store, upkeep=Upkeep(refresh=None))
    assert again.status().uplift == advisor.status().uplift


def test_in_shadow_mode_the_safe_action_acts_and_the_mixture_is_logged():
    _, decisions = played("finite", 60, mode="shadow")
    assert all(d.is_baseline and d.certificate.mixture is None and d.drawn is None for d in decisions)
    assert any(d.proposal is not None and d.proposal.mixture is not None for d in decisions)


def mixing():
    """A learner that would mix at step 0 of state 1, and not by a hair."""
    advisor, plant = mixer(FINITE), Plant(FINITE_GAMMA, noise=0.02, states=3)
    for _ in range(100):
        plant.play(advisor, 2, horizon=2)
        if 0.1 < advisor.replica.learner.propose(0, 1).mixture.baseline < 0.9:
            return advisor.replica.learner
    raise AssertionError("it never mixes")


def forged(learner, known, change):
    """The gate's word on a proposal after `change` was made to (proposal, coin)."""
    coin = 0.25
    proposal, coin = change(proposal_of(learner.propose(0, 1, known, coin)), coin)
    drawn = Drawn(proposal.mixture, coin)
    return learner.gate.check(0, known, proposal.action, proposal.feature, proposal.evidence, drawn).why


def bent(mixture, **changes):
    parts = {"probabilities": mixture.probabilities, "baseline": mixture.baseline, "mean_feature": mixture.mean_feature}
    return Mixture(**{**parts, **changes})


def test_the_gate_refuses_what_was_not_drawn_and_what_the_mixture_does_not_certify():
    learner, known = mixing(), FINITE.look_up(1)
    mixture, actions = learner.propose(0, 1).mixture, known.actions
    assert forged(learner, known, lambda p, coin: (p, coin)) == ""
    other = next(r for r in range(len(actions.endpoints)) if r != drawn_row(actions, mixture.probabilities, 0.25)[0])
    swap = {"action": actions.action(other, 1.0), "feature": actions.endpoints[other]}
    assert "does not draw" in forged(learner, known, lambda p, coin: (replace(p, **swap), coin))
    assert "does not draw" in forged(learner, known, lambda p, coin: (p, 1.0))
    nan = bent(mixture, probabilities=np.full_like(mixture.probabilities, np.nan))
    assert "not one over D(s)" in forged(learner, known, lambda p, coin: (replace(p, mixture=nan), coin))
    less = bent(mixture, probabilities=0.5 * mixture.probabilities)
    assert "sum to" in forged(learner, known, lambda p, coin: (replace(p, mixture=less), 0.1))
    moved = bent(mixture, mean_feature=mixture.mean_feature + 1e-3)
    assert "mean feature" in forged(learner, known, lambda p, coin: (replace(p, mixture=moved), coin))


def test_the_gate_refuses_a_mixture_with_too_little_of_the_safe_action():
    learner, known = mixing(), FINITE.look_up(1)
    weights = learner.propose(0, 1).mixture.probabilities.copy()
    weights[known.actions.baseline] = 0.0
    weights /= weights.sum()
    bold = Mixture(weights, 0.0, mean_feature(known.actions, weights))

    def bolder(proposal, coin):
        row, length = drawn_row(known.actions, weights, coin)
        action = known.actions.action(row, length)
        return replace(proposal, action=action, feature=feature_of(known.actions, action), mixture=bold), coin

    assert "the certificate's bound is" in forged(learner, known, bolder)


def test_a_margin_moves_the_draw_toward_the_safe_action_with_the_same_coin():
    learner, known = mixing(), FINITE.look_up(1)
    for coin in np.linspace(0.0, 0.999, 25):
        proposal = proposal_of(learner.propose(0, 1, known, coin))
        cut, why = with_margin(proposal, known, FINITE, 0.9, coin)
        assert why == "" and cut.mixture.baseline >= proposal.mixture.baseline
        drawn = Drawn(cut.mixture, coin)
        assert learner.gate.check(0, known, cut.action, cut.feature, cut.evidence, drawn).why == ""
        assert sum(p for _, p in parts_of(known.actions, cut.mixture)) <= 1.0 - cut.mixture.baseline + 1e-12


def test_a_log_keeps_its_algorithm():
    store = MemoryStore()
    played("finite", 10, store)
    with pytest.raises(InputError, match="another limit_on: average over draws, not single actions"):
        Advisor(FINITE, store, limit_on="single actions")
    with pytest.raises(InputError, match="limit_on must be 'single actions' or"):
        Advisor(FINITE, limit_on="draws")


@pytest.mark.parametrize("constraints", [1, 2])
def test_every_safe_cost_and_several_constraints_are_examined_too(constraints):
    problem, gamma = finite_problem(4, horizon=2, constraints=constraints)
    config = SlucbConfig(explorer="plain", condition_on="all", value_radius="unseen", value_ridge="cost")
    advisor = mixer(problem, config=config)
    decisions = Plant(gamma, noise=0.02, states=3).play(advisor, 200, horizon=2)
    assert sum(d.certificate.mixture is not None for d in decisions) > 20 and advisor.status().refusals == 0
    assert replay(advisor.store, problem).holds


def test_the_gate_refuses_a_mixtures_bound_that_is_a_little_too_small():
    learner, known = mixing(), FINITE.look_up(1)

    def understated(proposal, coin):
        return replace(proposal, evidence=tuple(replace(e, bound=e.bound - 1e-7) for e in proposal.evidence)), coin

    assert "the certificate's bound is" in forged(learner, known, understated)


def test_large_features_are_no_reason_to_refuse_a_mixture():
    rng = np.random.default_rng(0)
    rows = 1e5 * rng.dirichlet(np.ones(3), size=(2, 5))
    gamma = 1e-5 * np.array([0.2, 0.5, 0.4])
    safe = (rows @ gamma).argmin(axis=1)
    costs = (rows[np.arange(2), safe] @ gamma)[None]
    told = {
        "horizon": 1,
        "threshold": float(costs.max()) + 0.05,
        "noise": 0.02,
        "feature_norm": 1e5,
        "gamma_norm": 1e-5,
    }
    problem = Problem.from_table(
        features=rows, baseline_action=safe, **stated(baseline_cost_error=0.0, baseline_cost=costs, **told)
    )
    advisor = mixer(problem)
    decisions = Plant(gamma[None, None], noise=0.02, states=2).play(advisor, 60)
    assert advisor.status().refusals == 0 and any(d.certificate.mixture is not None for d in decisions)


def outcome(**seen):
    told = {"step": 0, "state": 0, "feature": (), "reward": 0.0, "next_state": None, "applied": None}
    return OutcomeRecorded(decision_id="d", **told, **seen)


@pytest.mark.parametrize(("shift", "refused"), [(0.0, False), (0.3, True)])
def test_costs_above_a_mixtures_bound_on_average_refuse_promotion(shift, refused):
    """What is drawn scatters around the mixture's mean, here by 0.4 where σ is 0.02: alone no reason to refuse."""
    ledger = Ledger((0.5,))
    for sign in [1.0, -1.0] * 50 + [1.0]:
        ledger.since.add_outcome(outcome(cost=[0.5 + shift + 0.4 * sign], bound=[0.5], drawn=True))
        ledger.since.add_outcome(outcome(cost=[0.1], bound=[0.1], drawn=False))
    why = unmet(ledger, Criteria(), (0.02,), "")
    assert any("exceeded its bounds" in each for each in why) is refused


def test_tables_hold_what_was_mixed_and_what_was_drawn(tmp_path):
    advisor, decisions = played("finite", 60)
    export(advisor.store, tmp_path)
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    for row, decision in zip(rows, decisions, strict=True):
        mixture = decision.certificate.mixture
        assert row["bounds"] == "expected cost" or mixture is None
        assert (row["mixture"] is None) == (mixture is None) == (row["drawn"] is None)
        assert row["drawn"] is None or tuple(row["drawn"]) == decision.feature
    outcomes = pq.read_table(tmp_path / "outcomes.parquet").to_pylist()
    assert [o["drawn"] for o in outcomes] == [d.certificate.mixture is not None for d in decisions]


def test_a_refused_proposal_does_not_hold():
    _, decisions = played("finite", 40)
    certificate = next(d.certificate for d in decisions if d.certificate.mixture is not None)
    assert certificate.holds and not replace(certificate, reason="gate-refused").holds
    unconfirmed = tuple(replace(limit, gate_bound=math.inf) for limit in certificate.limits)
    assert not replace(certificate, limits=unconfirmed).holds


def test_a_point_within_a_ray_is_not_what_was_drawn():
    advisor, _ = played("star", 100)
    learner = advisor.replica.learner
    for state in range(4):
        known = STAR.problem.look_up(state)
        for coin in np.linspace(0.0, 0.99, 12):
            proposal = proposal_of(learner.propose(0, state, known, coin))
            if proposal.action.ray < 0:
                continue
            half = replace(proposal.action, length=0.5)
            feature, drawn = feature_of(known.actions, half), Drawn(proposal.mixture, coin)
            assert "does not draw" in learner.gate.check(0, known, half, feature, proposal.evidence, drawn).why
            return
    raise AssertionError("nothing but a_0 was ever drawn")
