"""What is begun and not finished must never be counted twice: that would make bounds too small."""

import time
from asyncio import CancelledError

import numpy as np
import pytest

from limits import kept, stated
from tether import Advisor, InputError, Problem, SlucbConfig, StarActions
from tether.kernels import plan
from tether.live import following
from tether.live.audit import replay
from tether.live.policy import Criteria


class Shop:
    """H = 2 over states that are not listed; `fails` makes the caller's own function raise `error`."""

    def __init__(self, error=ConnectionError, **told):
        self.error, self.fails, self.only = error, False, None
        self.problem = Problem(
            horizon=2,
            dimension=2,
            actions=self.actions,
            **stated(
                threshold=(0.5,),
                noise=(0.1,),
                baseline_cost_error=0.0,
                baseline_cost=lambda step, state: 0.1,
                gamma_norm=(1.0,),
                **told,
            ),
        )

    def actions(self, state):
        if self.fails and self.only in (None, state):
            raise self.error("the catalogue is down")
        return StarActions(np.array([0.6, 0.0]), np.array([[0.6, 0.6], [0.6, -0.4]]))


@pytest.fixture
def asked_again(monkeypatch):
    """Every plan asks for the actions of visited states anew, as it does where there are too many to keep."""
    monkeypatch.setattr(plan, "KEPT_NUMBERS", 0)


def played(shop, form=int, **settings):
    advisor = Advisor(shop.problem, mode="live", criteria=Criteria.none(), **kept(**settings))
    for state in range(3):
        decision = advisor.decide(form(state), 0)
        advisor.record(decision.id, 0.5, 0.1, next_state=form(state + 10))
    return advisor


def test_a_plan_that_fails_in_the_callers_function_counts_no_outcome_twice(asked_again):
    shop = Shop()
    advisor = played(shop, config=SlucbConfig(backup="lean", replan="every-episode"))
    decision = advisor.decide(7, 0)
    before = advisor.replica.learner
    shop.fails = True
    assert not advisor.record(decision.id, 0.5, 0.1).repeated
    shop.fails = False
    advisor.sync()
    after = advisor.replica.learner
    assert after is not before and after.version == 4 and after.gate.count.tolist() == [4, 0]
    assert after.agent.costs.updates.tolist() == [4, 0]
    assert advisor.decide(8, 0).certificate.holds
    assert Advisor(shop.problem, advisor.store).replica.to_bytes() == advisor.replica.to_bytes()


@pytest.mark.parametrize("error", [ConnectionError, np.linalg.LinAlgError])
def test_a_decision_rests_on_no_plan_that_a_replay_would_not_make(asked_again, error):
    """An error in `plan` was passed over once, and the older plan kept: a replay, where nothing failed, differed."""
    shop = Shop(error)
    advisor = played(shop, config=SlucbConfig(backup="lean", replan="every-episode"))
    for number in range(40):
        decision = advisor.decide(7, 0)
        shop.fails = number % 3 == 0
        if decision.logged:
            advisor.record(decision.id, 0.5, 0.1)
        shop.fails = False
        if number % 3 == 1:
            advisor.sync()
    report = replay(advisor.store, shop.problem)
    assert report.holds and report.decisions > 20, report.differences


@pytest.mark.parametrize("error", [ConnectionError, SystemExit, CancelledError])
def test_functions_that_fail_while_an_outcome_is_applied_cost_the_safe_action_until_they_answer(
    asked_again, monkeypatch, error
):
    monkeypatch.setattr(following, "RETRY_AFTER", 0.05)
    shop = Shop(error)
    advisor = played(shop, config=SlucbConfig(backup="lean", replan="every-episode"))
    decision = advisor.decide(7, 0)
    shop.fails, shop.only = True, 10  # a state that was visited, and is planned for
    assert not advisor.record(decision.id, 0.5, 0.1).repeated, "it is in the log, and counts later"
    made = advisor.decide(8, 0)
    assert (made.is_baseline, made.reason, made.id) == (True, "failed", "") and made.certificate.holds
    assert error.__name__ in advisor.failure and "catalogue" not in advisor.failure + made.detail
    assert advisor.failure == advisor.status().failure
    with pytest.raises(InputError, match=error.__name__):
        advisor.sync()
    with pytest.raises(InputError, match="nothing to save"):
        advisor.snapshot()
    shop.fails = False
    give_up = time.monotonic() + 60.0
    while advisor.failure and time.monotonic() < give_up:
        time.sleep(0.05)
    assert advisor.decide(8, 0).logged and advisor.replica.learner.version == 4
    advisor.close()


@pytest.mark.parametrize("error", [ConnectionError, SystemExit, CancelledError])
def test_a_stop_reaches_the_log_while_functions_fail(asked_again, error):
    """As any other does, so that whoever gave it is not told that it failed; and it can be released."""
    shop = Shop(error)
    advisor = played(shop, config=SlucbConfig(backup="lean", replan="every-episode"))
    decision = advisor.decide(7, 0)
    shop.fails, shop.only = True, 10  # a state that was visited, and is planned for
    advisor.record(decision.id, 0.5, 0.1)
    advisor.stop(by="me", why="smoke")
    assert advisor.decide(8, 0).reason == "failed" and advisor.store.read()[-1].kind == "stopped"
    shop.fails = False
    advisor.sync()
    assert advisor.decide(8, 0).reason == "stopped"
    advisor.resume(by="me", why="it was steam")
    assert advisor.decide(8, 0).logged and advisor.stopped is None
    advisor.close()


def test_a_stop_that_was_interrupted_holds_and_is_logged_with_the_next_entry(monkeypatch):
    advisor = played(Shop())

    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(advisor._follower, "sync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            advisor.stop(by="me", why="smoke")
    assert advisor.decide(8, 0).reason == "stopped"
    assert advisor.store.read()[-2].kind == "stopped", "before the note that a decision was withheld"
    advisor.resume(by="me", why="it was steam")
    assert advisor.stopped is None


def test_functions_that_fail_when_the_log_is_opened_are_named_as_the_cause(asked_again, caplog):
    shop = Shop()
    advisor = played(shop, config=SlucbConfig(backup="lean", replan="every-episode"))
    advisor.snapshot()
    shop.fails, shop.only = True, 10
    with pytest.raises(InputError, match="functions failed while the log was read \\(ConnectionError\\)"):
        Advisor(shop.problem, advisor.store)
    assert "the catalogue is down" in caplog.text


def test_the_text_of_an_error_in_the_callers_functions_goes_to_no_caller(caplog):
    shop = Shop()
    advisor = played(shop)
    shop.fails = True
    with pytest.raises(InputError, match="ConnectionError") as refused:
        advisor.decide(8, 0)
    assert "catalogue" not in str(refused.value) and "catalogue" in str(refused.value.__cause__)


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
    assert learner.version == 4 and "KeyboardInterrupt" in advisor.failure
    advisor.sync()
    assert advisor.replica.learner is not learner and advisor.replica.learner.version == 4  # once, not twice


def test_states_that_cannot_be_saved_do_not_make_a_record_fail(caplog):
    shop = Shop(key=lambda state: state["number"])
    advisor = played(
        shop,
        lambda number: {"number": number, "list": []},
        config=SlucbConfig(backup="lean", replan="on-growth"),
        snapshot_every=1,
    )
    assert advisor.status().outcomes == 3
    assert "no snapshot could be saved" in caplog.text
    assert advisor.store.latest_snapshot().seq == 1, "of the start, when nothing was visited yet"
