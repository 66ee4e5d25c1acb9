"""The canary: who is drawn, what is in the comparison, and that propensities stay right whatever happens in between."""

import numpy as np
import pytest
from scipy.stats import binom, kstest

from live.plant import Plant
from tether import Advisor, Upkeep
from tether.errors import StoreError
from tether.live.audit import replay
from tether.live.canary import Canary, Trials, coin_of, plays_proposal
from tether.live.judge import Question
from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria, Guards, PromotionRefused
from tether.live.records import Withheld
from tether.live.uplift import pseudo_outcome
from worlds import world_and_streams

BY = {"by": "me", "why": "test"}
WORLD = world_and_streams(3, horizon=1)[0]


def guarded(store=None, share=0.3, **more):
    """An advisor in guarded mode, after 30 outcomes of shadow mode."""
    guards = Guards(canary=share, reward_range=(-2.0, 2.0), **{"guarded_rate": 1.0, "margin_share": 0.1, **more})
    advisor = Advisor(WORLD.problem, store, guards=guards, criteria=Criteria.none(), upkeep=Upkeep(refresh=None))
    plant = Plant(WORLD.true_gamma)
    plant.play(advisor, 30)
    advisor.promote("guarded", **BY)
    return advisor, plant


def wanted(advisor):
    """A state where something else than a_0 is proposed."""
    return next(s for s in range(4) if not advisor.replica.learner.propose(0, s).is_baseline)


def test_the_draw_is_uniform_in_the_id_and_independent_of_the_coin_of_mixtures():
    ids = [f"decision {i}" for i in range(4000)]
    for share in (0.1, 0.5, 0.9):
        played = sum(plays_proposal(id, share) for id in ids)
        assert binom.cdf(played, len(ids), share) > 1e-6 and binom.sf(played - 1, len(ids), share) > 1e-6
    coins = [coin_of(id) for id in ids if plays_proposal(id, 0.5)]
    assert kstest(coins, "uniform").pvalue > 1e-6
    assert not any(plays_proposal(id, 0.0) for id in ids) and all(plays_proposal(id, 1.0) for id in ids)


def test_both_arms_are_certified_and_p_is_logged_with_each():
    store = MemoryStore()
    advisor, plant = guarded(store)
    decisions = plant.play(advisor, 120)
    drawn = [made for made in decisions if made.canary is not None]
    assert len(drawn) > 60 and {made.is_baseline for made in drawn} == {True, False}
    for made in drawn:
        assert made.canary.share == 0.3 and made.certificate.holds
        assert made.is_baseline == (not plays_proposal(made.id, 0.3)) == (made.reason == "canary")
        offered = made.proposal if made.is_baseline else made.certificate
        assert offered.holds and offered.limits[0].bound <= offered.limits[0].threshold
    assert all(made.is_baseline for made in decisions if made.canary is None), "nothing is played undrawn"
    assert plant.worst <= 1e-12
    assert replay(store, WORLD.problem).holds


def test_what_is_compared_is_what_left_and_its_propensities_are_right():
    """With guards that object, stops in flight, logs that fail, repeats by key and lost outcomes: of both arms exactly
    those are compared that left; a share p of them is the proposal's, and ΣY is Σgain up to the draw's noise."""
    store = MemoryStore()
    advisor, plant = guarded(store, share=0.4, guarded_rate=0.5, rate_window=20)
    rng, left, off, spread = np.random.default_rng(5), [], 0.0, 0.0
    for number in range(1200):
        state = plant.state()
        question = advisor.question(state, key=f"k{number}")
        batch = advisor.prepare([question])
        disturbance = rng.integers(12)
        if disturbance == 0:
            advisor.stop(**BY)
        try:
            if disturbance == 1:
                raise StoreError("gone")
            written = store.append(batch.drafts)
        except StoreError as error:
            written = error
        (made,) = advisor.commit(batch, written)
        for note in advisor.notes():
            store.append([note.draft()])
        if disturbance == 0:
            advisor.resume(**BY)
        if disturbance == 2:
            assert advisor.decide(state, key=f"k{number}").id == made.id
        if not made.logged:
            continue
        if disturbance == 3:
            advisor.lose(made.id, **BY)
        else:
            reward = float(made.feature[0])
            advisor.record(made.id, reward, plant.measure(0, made.feature))
        if made.canary is not None:
            left.append(made)
            if disturbance != 3:
                phi_0 = WORLD.problem.look_up(state).actions.phi_0
                offered = made.proposal if made.is_baseline else made.certificate
                gain = offered.feature[0] - phi_0[0]
                off += pseudo_outcome(0.4, not made.is_baseline, reward, made.canary.expected) - gain
                spread += gain**2 + 4.0
    found = advisor.status().uplift
    assert found.compared == len(left) > 300 and found.waiting == 0
    assert found.played == sum(not made.is_baseline for made in left)
    assert binom.cdf(found.played, found.compared, 0.4) > 1e-6
    assert binom.sf(found.played - 1, found.compared, 0.4) > 1e-6
    assert abs(off) < 5.0 * np.sqrt(spread)
    notes = [entry for entry in store.read(0, 10**6) if entry.kind == "withheld"]
    assert {Withheld.read(note).is_baseline for note in notes} == {True, False}, "both arms are withheld"
    status = advisor.status()
    assert status.decisions - status.baseline == sum(not made.is_baseline for made in left)


def test_a_stop_in_flight_withholds_both_arms():
    store = MemoryStore()
    advisor, _ = guarded(store, share=0.5)
    state = wanted(advisor)
    batch = advisor.prepare([advisor.question(state) for _ in range(20)])
    drawn = [item.events[-1] for item in batch.items]
    assert {made.is_baseline for made in drawn if made.canary is not None} == {True, False}
    advisor.stop(**BY)
    answers = advisor.commit(batch, store.append(batch.drafts))
    assert all(made.is_baseline and made.reason == "stopped" and not made.logged for made in answers)
    for note in advisor.notes():
        store.append([note.draft()])
    advisor.sync()
    status = advisor.status()
    assert (status.uplift.compared, status.uplift.waiting, status.open) == (0, 0, 0)
    assert status.decisions == status.baseline


def test_without_a_canary_everything_is_played_and_nothing_compared():
    advisor, plant = guarded(share=1.0)
    assert any(not made.is_baseline for made in plant.play(advisor, 40))
    assert advisor.status().uplift.compared == 0
    with pytest.raises(PromotionRefused, match="no decision was compared"):
        advisor.promote("live", **BY, criteria=Criteria(outcomes=0))


def test_guards_of_a_log_from_before_there_was_a_canary_have_none():
    told = Guards().to_json()
    del told["canary"], told["reward_range"]
    assert Guards.from_json(told).canary == 1.0


def test_promotion_asks_for_a_gain_and_a_person_may_override_it():
    advisor, plant = guarded(share=0.5)
    asked = Criteria(outcomes=0, answered=0.0)
    plant.play(advisor, 60)
    with pytest.raises(
        PromotionRefused, match=r"no evidence yet that it earns more than a_0.*(about \d+ more|never is)"
    ):
        advisor.promote("live", **BY, criteria=asked)
    advisor.promote("live", by="anna", why="the season ends", criteria=Criteria(outcomes=0, uplift=None))
    entry = advisor.store.read(0, 10**6)[-1]
    assert entry.body["criteria"]["uplift"] is None and entry.body["why"] == "the season ends"


def test_a_gain_that_is_shown_opens_the_way():
    """Proposals earn one more than a_0, always: with a stated loss that is enough sooner than without."""
    advisor, plant = guarded(share=0.5)
    state, shown = wanted(advisor), []
    while len(shown) < 2:
        made = advisor.decide(state)
        advisor.record(made.id, 0.0 if made.is_baseline else 1.0, plant.measure(0, made.feature))
        shown += [loss for loss in (-0.5, 0.0) if loss not in shown and not advisor.replica.ledger.uplift.unmet(loss)]
        assert advisor.status().uplift.compared < 500
    assert shown == [-0.5, 0.0]
    advisor.promote("live", **BY, criteria=Criteria(outcomes=0))
    status = advisor.status()
    assert status.mode == "live" and status.uplift.ended and status.uplift.reward.low > 0.0, "it stays to be seen"
    advisor.demote("guarded", **BY)
    with pytest.raises(PromotionRefused, match="no decision was compared since the mode changed"):
        advisor.promote("live", **BY, criteria=Criteria(outcomes=0))
    while not advisor.decide(state).canary:
        pass
    assert advisor.replica.ledger.uplift.number == 2 and advisor.status().uplift.compared == 0


def test_outcomes_are_compared_in_the_order_of_their_decisions():
    trials = Trials()
    for id in "abc":
        trials.expect(id, Canary(0.5, (0.0, 0.0)), played=id == "b")
    assert trials.settle("b", 1.0, None) == [] and trials.settle("c", None, None) == []
    saved = Trials()
    saved.take_json(trials.to_json())
    assert saved.to_json() == trials.to_json()
    assert [trial.reward for trial in trials.settle("a", 0.5, (0.1,))] == [0.5, 1.0, None]
    assert len(trials) == 0 and trials.settle("a", 7.0, None) == []
    assert [trial.played for trial in saved.withdraw("a")] == [True, False]


def test_an_id_that_is_asked_again_draws_the_same():
    advisor, _ = guarded(share=0.5)
    state = wanted(advisor)
    question = advisor.question(state)
    assert isinstance(question, Question)
    first, second = (advisor.prepare([question]).items[0].events[-1] for _ in range(2))
    assert first.canary is not None and (first.played, first.canary) == (second.played, second.canary)
