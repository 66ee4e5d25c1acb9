"""The journal's comparison with a_0: exact where a_0 itself acted, and the same after a restart."""

import numpy as np
import pytest
from service_app import PROBLEM, WORLD, new_advisor

from tether.live.advisor import Advisor
from tether.service.views import Journal


def lived(advisor, days, rng, applied=None):
    for day in range(days):
        decision = advisor.decide(int(rng.integers(4)), 0, day)
        feature = np.array(decision.feature)
        cost = float(WORLD.true_gamma[0, 0] @ feature)
        reward = float(WORLD.true_theta[0] @ feature + rng.normal())
        advisor.record(decision.id, reward, cost, 0, applied)


def gains(journal, window=0, points=500):
    columns = journal.series(window, points)
    pairs = zip(columns["reward_sum"], columns["baseline_reward_sum"], strict=True)
    return [reward - baseline for reward, baseline in pairs]


def test_in_shadow_nothing_is_gained_over_a_0():
    advisor = Advisor(PROBLEM)
    journal = Journal(advisor)
    rng = np.random.default_rng(0)
    for _ in range(3):
        lived(advisor, 20, rng)
        journal.follow()
    assert gains(journal) == [0.0] * 60
    assert gains(journal, points=5) == [0.0] * 5


def test_where_an_operator_played_a_0_instead_nothing_is_gained_either():
    advisor = new_advisor()
    lived(advisor, 60, np.random.default_rng(0))
    head = advisor.store.head().seq
    lived(advisor, 40, np.random.default_rng(1), applied=PROBLEM.actions(0).action(-1, 0.0))
    journal = Journal(advisor)
    rows = [row for row in journal.rows.values() if row["seq"] > head]
    assert any(not row["is_baseline"] for row in rows) and gains(journal, window=40) == [0.0] * 40


def test_the_gain_is_a_function_of_the_log_alone(tmp_path):
    advisor, rng = new_advisor(tmp_path / "log.db"), np.random.default_rng(0)
    journal = Journal(advisor)
    for _ in range(10):  # somebody looks on while it learns
        lived(advisor, 12, rng)
        journal.follow()
    watched = gains(journal)
    assert any(watched) and sum(not row["is_baseline"] for row in journal.rows.values()) > 20
    advisor.close()
    again = new_advisor(tmp_path / "log.db")
    assert gains(Journal(again)) == watched
    again.close()


def test_a_state_that_the_problem_forgot_costs_the_picture_a_number_and_no_more(monkeypatch):
    advisor = new_advisor()
    lived(advisor, 60, np.random.default_rng(0))
    monkeypatch.setattr(type(PROBLEM), "look_up", lambda *_: 1 / 0)
    journal = Journal(advisor)
    with pytest.raises(TypeError):
        gains(journal)
    sums = journal.series(0, 500)["baseline_reward_sum"]
    assert None in sums and any(value is not None for value in sums)


def test_a_decision_that_did_not_leave_is_shown_as_the_a_0_that_did():
    """The log holds what was decided before the switch was thrown; nobody played it."""
    advisor = new_advisor()
    lived(advisor, 60, np.random.default_rng(0))
    state = next(state for state in range(4) if not advisor.decide(state).is_baseline)
    pending = advisor.prepare([advisor.question(state)])
    advisor.stop(by="an operator", why="smoke")
    advisor.commit(pending, advisor.store.append(pending.drafts))
    advisor.store.append([note.draft() for note in advisor.notes()])
    journal = Journal(advisor)
    row = journal.rows[pending.drafts[-1].body["decision_id"]]
    assert not pending.drafts[-1].body["is_baseline"] and row["is_baseline"] and row["reason"] == "stopped"
    assert [event["kind"] for event in journal.history[:2]] == ["withheld", "stopped"]


def test_the_journal_is_limited_in_bytes_too(monkeypatch):
    """Twenty thousand decisions with states of a hundred kilobytes would be two gigabytes."""
    advisor = new_advisor()
    for state in (0, 1, 2, 3):
        advisor.decide(state)
    size = len(advisor.store.read()[-1].text)
    monkeypatch.setattr("tether.service.views.KEPT_BYTES", int(2.5 * size))
    journal = Journal(advisor)
    assert [row["state"] for row in journal.rows.values()] == [2, 3]
    monkeypatch.setattr("tether.service.views.KEPT_BYTES", 10)
    advisor.decide(1)
    journal.follow()
    assert [row["state"] for row in journal.rows.values()] == [1], "the newest is always there"
    assert journal.series(0, 10)["total"] == 5
