"""Modes, criteria, kill switch and alarms: all explicit, all logged, all surviving a restart."""

import numpy as np
import pytest

from live.plant import Plant, live_advisor
from tether import Advisor, SlucbConfig, Upkeep
from tether.errors import InputError
from tether.live.certificate import Certificate, Limit
from tether.live.ledger import Ledger
from tether.live.log.memory import MemoryStore
from tether.live.outcome_queues import OutcomeQueues, OutcomeSummary
from tether.live.policy import Criteria, Guards, PromotionRefused
from tether.live.records import AlarmReset, DecisionMade, ModeChanged, OutcomeRecorded
from worlds import finite_problem, world_and_streams


@pytest.fixture(scope="module")
def world():
    return world_and_streams(3, horizon=1)[0]


def test_in_shadow_the_safe_action_acts_and_the_proposal_is_logged(world):
    advisor = Advisor(world.problem)
    decisions = Plant(world.true_gamma).play(advisor, 40)
    assert all(decision.is_baseline for decision in decisions)
    wanted = [decision for decision in decisions if decision.reason == "shadow"]
    assert len(wanted) > 20
    for decision in wanted:
        assert decision.proposal.limits[0].bound <= 0.5
        assert decision.proposal.limits[0].gate_bound is not None
        assert decision.proposed != decision.action
        (limit,) = decision.certificate.limits
        assert limit.bound == limit.baseline_cost == world.problem.look_up(decision.state).baseline_cost[0, 0]
    status = advisor.status()
    assert (status.baseline, status.proposed) == (40, len(wanted))


def test_promotion_names_every_criterion_that_is_not_met(world):
    advisor = Advisor(world.problem)
    first, *_ = [advisor.decide(0) for _ in range(4)]
    decision = advisor.decide(1)
    advisor.record(decision.id, 0.1, None)
    with pytest.raises(PromotionRefused) as refused:
        advisor.promote("guarded", by="me", why="impatient")
    assert len(refused.value.unmet) == 3
    text = str(refused.value)
    assert "0 outcomes took effect in this mode, the least is 100" in text
    assert f"(1 more wait for the outcome of decision {first.id}: report it, or declare it lost)" in text
    assert "0.00 of the decisions have an outcome that took effect, the least share is 0.50" in text
    assert "0.00 of the outcomes have a cost, the least share is 0.50" in text
    assert advisor.status().mode == "shadow"
    assert [entry.kind for entry in advisor.store.read()].count("mode") == 0


def test_outcomes_that_wait_for_one_decision_are_no_evidence(world):
    """300 outcomes came, and one did not: nothing was learned, so nothing is promoted. It is lost: all of them count,
    after a restart from a snapshot, too."""
    store = MemoryStore()
    advisor = Advisor(world.problem, store, guards=Guards(reward_range=(0.0, 1.0)))
    silent = advisor.decide(0)
    Plant(world.true_gamma).play(advisor, 300)
    status = advisor.status()
    assert (status.data_version, status.outcomes, status.waiting, status.waiting_for) == (0, 300, 300, silent.id)
    with pytest.raises(PromotionRefused) as refused:
        advisor.promote("guarded", by="me", why="300 outcomes")
    assert refused.value.unmet[0].startswith("0 outcomes took effect in this mode, the least is 100 (300 more wait for")
    advisor.snapshot()
    again = Advisor(world.problem, store)
    assert again.replica.ledger.to_json() == advisor.replica.ledger.to_json()
    again.lose(silent.id, by="me", why="the sensor is gone")
    assert again.replica.ledger.since.outcomes == again.status().data_version - 1 == 300
    again.promote("guarded", by="me", why="300 outcomes that count")


def test_turns_are_saved_alike_whichever_stage_was_empty_then():
    """Stage 0 is empty when it is saved, and gets a decision afterwards: the same bytes as without the restart."""
    turns, again = OutcomeQueues(), OutcomeQueues()
    turns.expect(0, "a")
    turns.expect(1, "b")
    turns.come(OutcomeSummary("a"))
    again.take_json(turns.to_json())
    for each in (turns, again):
        each.expect(0, "c")
        each.expect(0, "d")
        assert each.come(OutcomeSummary("d", 0.5, (0.1,), (0.2,), True, 7)) == []
    assert again.to_json() == turns.to_json() and again.behind() == turns.behind() == (1, ["c"])


def test_a_comparison_waits_for_every_decision_as_the_learner_does(world):
    """One decision of the mode has no outcome, though it was in no comparison: what comes later is no evidence yet."""
    advisor = live_advisor(world.problem, mode="guarded", guards=Guards(reward_range=(0.0, 1.0), canary=0.5))
    silent = advisor.decide(0)
    while silent.canary is not None:
        advisor.record(silent.id, 0.5, 0.1)
        silent = advisor.decide(0)
    before = advisor.status().uplift.compared
    Plant(world.true_gamma).play(advisor, 60)
    assert advisor.status().uplift.compared == before
    advisor.lose(silent.id, by="me", why="the sensor is gone")
    assert advisor.status().uplift.compared > before


def test_promotion_happens_once_the_criteria_are_met_and_counting_starts_anew(world):
    advisor = Advisor(world.problem, criteria=Criteria(outcomes=20, uplift=None))
    plant = Plant(world.true_gamma)
    plant.play(advisor, 20)
    advisor.promote("guarded", by="me", why="20 fine outcomes")
    assert advisor.status().mode == "guarded"
    with pytest.raises(PromotionRefused, match="0 outcomes took effect in this mode"):
        advisor.promote("live", by="me", why="at once")
    plant.play(advisor, 20)
    advisor.promote("live", by="me", why="20 more")
    entry = [entry for entry in advisor.store.read() if entry.kind == "mode"][-1]
    assert (entry.body["mode"], entry.body["by"], entry.body["criteria"]["outcomes"]) == ("live", "me", 20)


def test_costs_above_their_bounds_on_average_refuse_promotion(world):
    """a_0 is declared to cost τ_h(s), but is seen to cost 0.05 more: 30 outcomes, limit 3·0.05/√30 = 0.027."""
    advisor = Advisor(world.problem, criteria=Criteria(outcomes=30), watch=False)
    for _ in range(30):
        decision = advisor.decide(0)
        advisor.record(decision.id, 0.1, decision.certificate.limits[0].bound + 0.05)
    with pytest.raises(PromotionRefused, match=r"cost 0 exceeded its bounds by 0.05 .* the most is 0.02739"):
        advisor.promote("guarded", by="me", why="hope")


def test_a_refusal_by_the_gate_refuses_promotion(world):
    config = SlucbConfig(
        condition_on="state", replan="every-episode"
    )  # four safe costs would settle γ*, whatever the sums
    advisor = Advisor(world.problem, config=config, criteria=Criteria(outcomes=10))
    plant = Plant(world.true_gamma)
    plant.play(advisor, 30)
    advisor.replica.learner.agent.costs.moment[:] *= 1.001
    assert any(advisor.decide(state).reason == "gate-refused" for state in range(4))
    with pytest.raises(PromotionRefused, match="refusals by the gate, the most is 0"):
        advisor.promote("guarded", by="me", why="hope")


def test_demotion_is_always_allowed_and_promotion_only_goes_up(world):
    advisor = live_advisor(world.problem)
    with pytest.raises(InputError, match="no promotion"):
        advisor.promote("guarded", by="me", why="?")
    advisor.demote("shadow", by="me", why="the boss is nervous")
    assert advisor.decide(0).mode == "shadow"
    with pytest.raises(InputError, match="no demotion"):
        advisor.demote("live", by="me", why="?")
    with pytest.raises(InputError, match="mode must be one of"):
        advisor.promote("yolo", by="me", why="?")
    with pytest.raises(InputError, match="must say something"):
        advisor.promote("live", by="", why="?", criteria=Criteria.none())


def test_a_new_log_does_not_start_above_shadow_without_meeting_the_criteria(world):
    with pytest.raises(PromotionRefused):
        Advisor(world.problem, mode="live")
    assert Advisor(world.problem).status().mode == "shadow"


def test_the_mode_of_an_existing_log_stands(world):
    store = MemoryStore()
    first = live_advisor(world.problem, store)
    first.demote("shadow", by="me", why="night")
    assert live_advisor(world.problem, store).status().mode == "shadow"


def test_guarded_mode_cuts_rays_so_that_a_share_of_the_gap_stays_unused(world):
    guards = Guards(margin_share=0.4, guarded_rate=1.0, canary=1.0)
    advisor = live_advisor(world.problem, mode="guarded", guards=guards)
    decisions = Plant(world.true_gamma).play(advisor, 60)
    others = [decision for decision in decisions if not decision.is_baseline]
    assert len(others) > 20
    assert any("cut to" in decision.detail for decision in others)
    for decision in others:
        (limit,) = decision.certificate.limits
        gap = 0.5 - limit.baseline_cost
        assert limit.margin >= 0.4 * gap - 1e-12
        assert limit.gate_bound <= limit.bound + 1e-9
    assert advisor.status().refusals == 0


def test_guarded_mode_plays_a_single_action_only_if_its_margin_is_large_enough():
    problem, gamma = finite_problem(2)
    advisor = live_advisor(problem, mode="guarded", guards=Guards(margin_share=0.3, guarded_rate=1.0, canary=1.0))
    decisions = Plant(gamma, noise=0.02, states=3).play(advisor, 60)
    for decision in decisions:
        if not decision.is_baseline:
            (limit,) = decision.certificate.limits
            assert limit.margin >= 0.3 * (limit.threshold - limit.baseline_cost)
    short = [decision for decision in decisions if decision.reason == "margin"]
    assert short
    assert all("is under 0.3 of the gap" in decision.detail for decision in short)


def test_guarded_mode_needs_to_know_the_gap():
    world, _ = world_and_streams(3, horizon=1, known_costs=False)
    advisor = live_advisor(world.problem, mode="guarded")
    decisions = Plant(world.true_gamma).play(advisor, 60)
    assert {decision.is_baseline for decision in decisions} == {True}
    assert any("gap_floor" in decision.detail for decision in decisions if decision.reason == "margin")


def test_the_kill_switch_gives_the_safe_action_everywhere_until_it_is_released(world):
    store = MemoryStore()
    one = live_advisor(world.problem, store)
    two = Advisor(world.problem, store, upkeep=Upkeep(refresh=0.0))
    Plant(world.true_gamma).play(one, 30)
    state = next(state for state in range(4) if not one.decide(state).is_baseline)
    one.stop(by="the night shift", why="smoke")
    for advisor in (one, two, Advisor(world.problem, store)):
        decision = advisor.decide(state)
        assert (decision.is_baseline, decision.reason) == (True, "stopped")
        assert decision.detail == "by the night shift: smoke"
        assert decision.proposal is not None
    assert two.status().stopped == "by the night shift: smoke"
    with pytest.raises(PromotionRefused, match="kill switch"):
        one.demote("shadow", by="me", why="test")
        one.promote("live", by="me", why="test", criteria=Criteria.none())
    one.resume(by="the day shift", why="it was toast")
    one.promote("live", by="me", why="test", criteria=Criteria.none())
    assert not one.decide(state).is_baseline


def broken(advisor, count=64):
    """Costs that scatter far more than σ: the tests of the assumptions must notice."""
    for n in range(count):
        decision = advisor.decide(0)
        advisor.record(decision.id, 0.1, 0.2 if n % 2 else 1.6)


def test_an_alarm_trips_to_the_safe_action_is_logged_once_and_survives_a_restart(world):
    store = MemoryStore()
    advisor = live_advisor(world.problem, store)
    broken(advisor)
    tripped = [entry for entry in store.read() if entry.kind == "tripped"]
    assert len(tripped) == 1
    alarm = str(advisor.replica.learner.alarm)
    assert tripped[0].body["message"] == alarm
    again = Advisor(world.problem, store)
    for each in (advisor, again):
        decision = each.decide(1)
        assert (decision.is_baseline, decision.reason, decision.detail) == (True, "tripped", alarm)
        assert each.status().alarm == alarm
    assert [entry.kind for entry in store.read()].count("tripped") == 1
    with pytest.raises(PromotionRefused, match="an alarm is on"):
        advisor.demote("shadow", by="me", why="test")
        advisor.promote("live", by="me", why="hope", criteria=Criteria.none())


def test_an_alarm_ends_with_its_reset_and_the_next_one_is_logged_again(world):
    store = MemoryStore()
    advisor = live_advisor(world.problem, store)
    broken(advisor)
    advisor.reset_alarm(by="me", why="the sensor was replaced")
    assert advisor.replica.alarm == ""
    assert "contradict" in advisor.status().alarm  # the broken costs are still in the sums, and deny what was declared
    asked = advisor.decide(1)
    assert asked.reason != "tripped"
    advisor.lose(asked.id, by="me", why="only asked")  # later costs would wait for it
    broken(advisor)
    assert [entry.body["number"] for entry in store.read() if entry.kind == "tripped"] == [0, 1]
    assert Advisor(world.problem, store).status().alarm == advisor.status().alarm != ""


def test_an_alarm_that_could_not_be_logged_trips_all_the_same(world, monkeypatch):
    from tether.errors import StoreError

    advisor = live_advisor(world.problem)
    honest = advisor.store.append

    def append(drafts):
        if any(draft.kind == "tripped" for draft in drafts):
            raise StoreError("no space")
        return honest(drafts)

    monkeypatch.setattr(advisor.store, "append", append)
    broken(advisor)
    assert advisor.decide(1).reason == "tripped"
    monkeypatch.undo()
    decision = advisor.decide(1)
    advisor.record(decision.id, 0.1, 0.2)
    assert [entry.kind for entry in advisor.store.read()].count("tripped") == 1
    assert np.isfinite(advisor.status().certified)


def decided(seq, rests_on):
    limits = (Limit(0.1, 0.5, 0.4, 1.0, "theorem", 0.1),)
    certificate = Certificate((), limits, True, "", "", 0, rests_on, "", "")
    asked = {"decision_id": str(seq), "key": None, "episode": None, "step": 0, "state": 0, "mode": "shadow"}
    told = {"proposed": 0, "played": 0, "is_baseline": True, "reason": "", "detail": "", "certificate": certificate}
    return seq, DecisionMade(**asked, **told)


def seen(seq, **more):
    told = {"step": 0, "state": 0, "feature": (), "reward": 0.0, "cost": [0.7], "next_state": None, "applied": None}
    return seq, OutcomeRecorded(decision_id=str(seq), bound=[0.5], drawn=False, **told, **more)


CHANGES = {"mode": ModeChanged(mode="guarded", by="me", why="?"), "alarm-reset": AlarmReset(by="me", why="?")}


@pytest.mark.parametrize("change", CHANGES)
def test_counts_begin_anew_with_the_decisions_that_rest_on_the_change(change):
    """Entry 3 begins the counts: of two decisions and four outcomes after it, one and one belong to the new mode."""
    ledger = Ledger((0.5,))
    entries = [decided(1, 0), seen(2), (3, CHANGES[change])]
    entries += [decided(4, 2), decided(5, 3), seen(6), seen(7, rests_on=0), seen(8, rests_on=2), seen(9, rests_on=3)]
    for entry in entries:
        ledger.apply(*entry)
    assert (ledger.ever.decisions, ledger.ever.outcomes, ledger.ever.compared) == (3, 5, 5)
    assert (ledger.since.decisions, ledger.since.outcomes, ledger.since.compared) == (1, 1, 1)
    assert ledger.since.excess == pytest.approx([0.2])
    again = Ledger.from_json((0.5,), ledger.to_json())
    for each in (ledger, again):
        each.apply(*seen(10, rests_on=2))
    assert again.to_json() == ledger.to_json()
    assert again.since.outcomes == 1


def test_late_outcomes_of_the_mode_before_do_not_count_for_the_next(world):
    advisor = Advisor(world.problem, criteria=Criteria(outcomes=10, uplift=None), upkeep=Upkeep(refresh=None))
    plant = Plant(world.true_gamma)
    decisions = [advisor.decide(plant.state()) for _ in range(20)]
    for decision in decisions[:10]:
        advisor.record(decision.id, 0.3, plant.measure(0, decision.feature))
    advisor.promote("guarded", by="me", why="10 fine outcomes")
    for decision in decisions[10:]:
        advisor.record(decision.id, 0.3, plant.measure(0, decision.feature))
    silent = advisor.decide(0)
    with pytest.raises(PromotionRefused, match=r"0 outcomes took effect in this mode.*0\.00 of the decisions"):
        advisor.promote("live", by="me", why="20 outcomes, but of another mode")
    plant.play(advisor, 10)
    with pytest.raises(PromotionRefused, match="10 more wait"):
        advisor.promote("live", by="me", why="10 of this mode, from none of which anything was learned")
    advisor.lose(silent.id, by="me", why="the sensor was off")
    advisor.promote("live", by="me", why="10 of this mode")
