"""A declared safe cost that was found false stays so in the log: for the learner, the gate, replays and snapshots."""

import numpy as np
import pytest

from limits import stated
from tether import Advisor, Criteria, Problem, StarActions
from tether.live.learner import Learner
from tether.live.log.memory import MemoryStore
from tether.live.policy import PromotionRefused
from tether.live.replica import Replica

SAFE, ENDS = np.array([1.0, 0.0]), np.array([[0.6, 0.4], [0.3, 0.7]])


def problem_of(*, bounded=False):
    actions = StarActions(SAFE, ENDS)
    return Problem(
        horizon=1,
        dimension=2,
        states=range(2),
        actions=lambda s: actions,
        **stated(
            threshold=0.5,
            gamma_norm=2.0,
            baseline_cost=lambda h, s: 0.2,
            **{"cost_kind": "bounded"} if bounded else {"noise": 0.1},
        ),
    )


def alarmed(store, *, bounded=False):
    """An advisor in live mode whose data first contradict what is declared, and then agree with it."""
    advisor = Advisor(problem_of(bounded=bounded), store, watch=False)
    for mode in ("guarded", "live"):
        advisor.promote(mode, by="test", why="test", criteria=Criteria.none())
    seen = 0
    while decide(advisor, 1.0 if bounded else 0.9) != "alarm":
        seen += 1
        assert seen < 60, "no alarm"
    for _ in range(4 * (seen + 1) if bounded else seen + 1):
        decide(advisor, 0.0 if bounded else -0.5)
    return advisor


def decide(advisor, cost):
    """The reason of one decision, whose outcome comes at once."""
    made = advisor.decide(0)
    advisor.record(made.decision_id, reward=0.0, cost=cost)
    return made.certificate.reason


@pytest.mark.parametrize("bounded", [False, True])
def test_a_contradiction_stays_in_the_log_until_an_order_releases_it(bounded):
    store = MemoryStore()
    advisor = alarmed(store, bounded=bounded)
    assert decide(advisor, 0.2 if not bounded else 0.0) == "alarm"
    assert "contradict" in advisor.status().alarm
    again = Advisor(problem_of(bounded=bounded), store, watch=False)
    assert again.status().model_hash == advisor.status().model_hash
    assert decide(again, 0.2 if not bounded else 0.0) == "alarm"
    advisor.sync()
    fresh = Learner(problem_of(bounded=bounded), watch=False)
    saved = Replica.from_bytes(advisor.replica.to_bytes(), fresh)
    assert saved.learner.agent.standing_alarms == [(0, 0)]
    assert saved.learner.gate.alarm.tolist() == [[1]]
    assert saved.to_bytes() == advisor.replica.to_bytes()
    advisor.demote("guarded", by="test", why="test")
    with pytest.raises(PromotionRefused, match="contradict"):
        advisor.promote("live", by="test", why="test", criteria=Criteria.none())
    advisor.reset_alarm(by="test", why="the meter was exchanged")
    assert advisor.status().alarm == ""
    assert decide(advisor, 0.2) != "alarm"
    again.sync()
    assert not again.replica.learner.agent.standing_alarms and not again.replica.learner.gate.alarm.any()


def test_the_gate_lets_nothing_pass_where_an_alarm_stands_though_the_learner_forgot_it():
    advisor = alarmed(MemoryStore())
    learner = advisor.replica.learner
    learner.agent.costs.facts.alarm[:] = 0
    learner.agent.plan()
    made = learner.agent.propose(0, 0)
    assert not made.is_baseline
    verdict = learner.gate.check(0, learner.look_up(0), made.action, made.feature, made.evidence)
    assert "contradicted" in verdict.why
    learner.gate.alarm[:] = 0
    assert not learner.gate.check(0, learner.look_up(0), made.action, made.feature, made.evidence).why
