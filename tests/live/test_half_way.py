"""What is begun and not finished must never be counted twice: that would make bounds too small."""

import numpy as np
import pytest

from tether import Advisor, InputError, Problem, SlucbConfig, StarActions
from tether.live.policy import Criteria


class Shop:
    """H = 2 over states that are not listed; `fails` makes the caller's own function raise."""

    def __init__(self, **told):
        self.fails = False
        self.problem = Problem(
            horizon=2,
            threshold=(0.5,),
            noise=(0.1,),
            dimension=2,
            actions=self.actions,
            baseline_cost=lambda step, state: 0.1,
            gamma_norm=(1.0,),
            **told,
        )

    def actions(self, state):
        if self.fails:
            raise ConnectionError("the catalogue is down")
        return StarActions(np.array([0.6, 0.0]), np.array([[0.6, 0.6], [0.6, -0.4]]))


def played(shop, form=int, **settings):
    advisor = Advisor(shop.problem, mode="live", criteria=Criteria.none(), **settings)
    for state in range(3):
        decision = advisor.decide(form(state), 0)
        advisor.record(decision.id, 0.5, 0.1, next_state=form(state + 10))
    return advisor


def test_a_plan_that_fails_in_the_callers_function_counts_no_outcome_twice():
    shop = Shop()
    advisor = played(shop, config=SlucbConfig(backup="lean", replan="every-episode"))
    decision = advisor.decide(7, 0)
    before = advisor.replica.learner
    shop.fails = True
    assert not advisor.record(decision.id, 0.5, 0.1).repeated
    shop.fails = False
    advisor.sync()
    after = advisor.replica.learner
    assert after is before and after.version == 4 and after.gate.count.tolist() == [4, 0]
    assert after.agent.costs.updates.tolist() == [4, 0]
    assert advisor.decide(8, 0).certificate.holds


def test_an_entry_that_was_interrupted_is_not_applied_again(monkeypatch):
    advisor = played(Shop())
    decision = advisor.decide(7, 0)
    learner = advisor.replica.learner

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learner.gate, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            advisor.record(decision.id, 0.5, 0.1)
    with pytest.raises(InputError, match="interrupted half-way"):
        advisor.sync()
    assert learner.version == 4  # once, not twice


def test_states_that_cannot_be_saved_do_not_make_a_record_fail(caplog):
    shop = Shop(key=lambda state: state["number"])
    advisor = played(
        shop, lambda number: {"number": number}, config=SlucbConfig(backup="lean", replan="on-growth"), snapshot_every=1
    )
    assert advisor.status().outcomes == 3
    assert "no snapshot could be saved" in caplog.text
    assert advisor.store.latest_snapshot() is None
