"""A live advisor whose costs drift: the gate's own blocks, decisions that come too late, restarts and the audit."""

from dataclasses import replace

import numpy as np
import pytest

from limits import restated
from live.plant import Plant, live_advisor
from tether import Guards, InputError
from tether.live.audit import replay
from tether.live.log import open_store
from worlds import two_arm_problem, world_and_streams

SIZES = {"horizon": 2, "states": 2, "dimension": 4}
RHO = 2e-4
OPTIONS = {
    "known": {},
    "misfit and error": {"misfit": 0.005, "baseline_cost_error": 0.005},
    "unknown": {"baseline_cost": None},
    "realised": {"limit": "realised", "exceedance": 0.1},
    "worst case": {"lost": "worst-case", "cost_range": (-1.0, 2.0)},
}


class Drifting(Plant):
    """A plant whose costs move by ρ with each decision, in a direction in which safe costs stay what they are."""

    def __init__(self, world, **more):
        super().__init__(world.true_gamma.copy(), **more)
        safe = np.linalg.qr(world.phi_0.T)[0]
        away = world.endpoints.reshape(-1, safe.shape[0]).mean(axis=0)
        self.direction = away - safe @ (safe.T @ away)
        self.direction /= np.linalg.norm(self.direction)
        self.made = 0

    def state(self):
        self.made += 1
        self.gamma += RHO * (1.0 if self.made // 400 % 2 == 0 else -1.0) * self.direction
        return super().state()


def drifting(options=None, store=None, steps=300, **settings):
    world, _ = world_and_streams(3, **SIZES)
    problem = restated(world.problem, noise=0.02, drift=RHO, **options or {})
    advisor, plant = live_advisor(problem, store, **settings), Drifting(world, noise=0.02, states=2)
    return advisor, plant, plant.play(advisor, steps, horizon=2)


@pytest.mark.parametrize("name", OPTIONS)
def test_genuine_certificates_pass_and_name_their_block(name):
    advisor, plant, decisions = drifting(OPTIONS[name], watch=False)
    gate = advisor.replica.learner.gate
    assert advisor.status().refusals == 0 and plant.worst <= 1e-9
    assert sum(not decision.is_baseline for decision in decisions) > 50
    named = set()
    for number, decision in enumerate(decisions):
        for limit in decision.certificate.limits:
            drift = limit.drift
            if not decision.is_baseline:
                assert (drift.rate, drift.until) == (RHO, number + gate.ahead)
                assert number - 2 * drift.window < drift.since <= number
                assert limit.gate_bound <= limit.bound + 1e-12
                named.add((drift.window, drift.since))
    assert len(named) > 2  # old blocks have left


def test_the_gates_blocks_are_the_learners():
    """The same sums, ages and beginnings, in code that shares nothing with the learner's; one outcome comes late."""
    advisor, plant, _ = drifting(steps=150)
    late = advisor.decide(0, 0, "late")
    plant.play(advisor, 60, horizon=2)
    advisor.record(late.id, 0.0, plant.measure(0, late.feature), 0)
    blocks, gate = advisor.replica.learner.agent.blocks, advisor.replica.learner.gate
    assert gate.terms.windows == blocks.windows
    places = (gate.terms.stages, 2 * len(blocks.windows))
    np.testing.assert_allclose(gate.gram, blocks.costs.gram.reshape(*places, 4, 4), rtol=1e-12)
    np.testing.assert_allclose(gate.moment, blocks.costs.moment.reshape(*places, 1, 4), rtol=1e-12)
    np.testing.assert_allclose(gate.ages, blocks.ages.reshape(*places, 3), rtol=1e-12)
    numbers = blocks.number.reshape(places)
    begun = np.where(numbers < 0, -1, numbers * np.repeat(blocks.windows, 2))
    assert gate.begun.tolist() == begun.tolist()


@pytest.fixture(scope="module")
def example():
    """A proposal that leaves a_0, and what it takes to have it checked."""
    advisor, _, _ = drifting(steps=101, watch=False)
    learner = advisor.replica.learner
    for state in range(2):
        known = learner.problem.look_up(state)
        proposal = learner.propose(1, state, known)
        if not proposal.is_baseline:
            return learner, known, proposal
    raise AssertionError("nothing left a_0")


def verdict(example, **changes):
    learner, known, proposal = example
    shown = tuple(replace(each, **changes) for each in proposal.evidence)
    return learner.gate.check(1, known, proposal.action, proposal.feature, shown).why


@pytest.mark.parametrize("field", ["rate", "window", "since", "until"])
def test_a_certificate_that_says_something_else_of_the_drift_is_refused(example, field):
    assert not verdict(example)
    drift = example[2].evidence[0].drift
    assert "of the drift" in verdict(example, drift=replace(drift, **{field: getattr(drift, field) + 1}))
    assert "of the drift" in verdict(example, drift=None)


def test_the_gates_own_radius_counts_the_age_of_every_outcome(example):
    """Without ages the gate's radius is smaller by ρ√(Σ‖φ‖²a²), a up to the last decision that bounds hold for."""
    gate = example[0].gate
    with_drift, place = gate.prepare(1).radii[0], (1, int(gate.using[1]))
    kept, (weight, age, square) = gate.ages.copy(), gate.ages[1, gate.using[1]]
    gate.ages[:] = 0.0
    gate._solved.clear()
    more = RHO * np.sqrt(square + 2 * gate.ahead * age + gate.ahead**2 * weight)
    assert gate.count[place] > 10 and more > 0.0
    assert with_drift - gate.prepare(1).radii[0] == pytest.approx(more, rel=1e-9)
    gate.ages[:] = kept
    gate._solved.clear()


def test_a_block_of_later_turns_has_less_of_delta(example):
    """Its radius is larger than that of the same sums in the first block of all."""
    gate = example[0].gate
    place = (1, int(gate.using[1]))
    later = gate._sums(place).split
    turn = gate.begun[place] // gate.terms.windows[place[1] // 2] + 1
    assert later == pytest.approx(4 * turn**2 * np.pi**2 / 6)


def test_two_roots_take_the_place_of_one_in_the_gate(example):
    """The one root is proven for a γ* that stands still, so that it must not be the gate's least radius."""
    from tether.live.gate_model import least_radii

    terms = replace(example[0].gate.terms, radius="theorem")
    values = np.full(4, terms.ridge * (1.0 + 1e-6))  # no data: the grid has nothing to gain
    moving, still = (least_radii(each, values, 0.0, 1e9)[0] for each in (terms, replace(terms, drift=None)))
    pull = np.sqrt(terms.ridge) * terms.gamma_norm[0]
    assert moving == pytest.approx(np.sqrt(still**2 - pull**2) + pull, rel=1e-6)


def test_a_restart_continues_and_a_replay_computes_every_decision_again(tmp_path):
    """The log stays whole: old blocks leave the state, never the log."""
    path = tmp_path / "log.db"
    advisor, plant, _ = drifting(store=open_store(path), steps=150, snapshot_every=100)
    before = advisor.replica.learner.to_bytes()
    advisor.close()
    again = live_advisor(advisor.problem, open_store(path))
    assert again.replica.learner.to_bytes() == before
    plant.play(again, 50, horizon=2)
    report = replay(again.store, again.problem)
    assert report.holds
    assert (report.decisions, report.outcomes, report.different) == (200, 200, 0)


def test_a_decision_that_comes_too_late_is_withheld():
    """Bounds hold for `ahead` more decisions; whoever hands one out after more than that hands out a_0."""
    advisor, _, _ = drifting(steps=200, watch=False)
    learner = advisor.replica.learner
    ahead, state = int(learner.gate.ahead), next(s for s in range(2) if not learner.propose(1, s).is_baseline)
    questions = [advisor.question(state, 1) for _ in range(ahead + 4)]
    batch = advisor.prepare(questions)
    answers = advisor.commit(batch, advisor.store.append(batch.drafts))
    reasons = [answer.reason for answer in answers]
    assert reasons[: ahead + 1] == ["best"] * (ahead + 1)
    assert reasons[ahead + 1 :] == ["outdated"] * 3
    assert all(answer.is_baseline for answer in answers[ahead + 1 :])


def weeks(**drift):
    """2400 decisions between two arms; the other one, at first a cheap one, moves up and down through τ = 0.5."""
    advisor, rng, cost = live_advisor(two_arm_problem(horizon=1, **drift)), np.random.default_rng(5), 0.25
    over, left = 0, []
    for count in range(2400):
        decision = advisor.decide(0)
        true = 0.1 * decision.feature[0] + cost * decision.feature[1]
        over, left = over + (true > 0.5), [*left, not decision.is_baseline]
        advisor.record(decision.id, decision.feature[1], true + 0.1 * rng.standard_normal())
        cost += 5e-4 * (1.0 if count // 800 % 2 == 0 else -1.0)
    return advisor, over, float(np.mean(left[-400:]))


@pytest.mark.slow
def test_it_works_on_where_a_learner_that_was_told_of_no_drift_trips_for_good():
    """The monitor allows for what was declared, and for no more."""
    advisor, over, left = weeks(drift=5e-4)
    assert not advisor.replica.alarm and advisor.status().refusals == 0
    assert over == 0
    assert left > 0.5
    advisor, _, left = weeks()
    assert "drift test" in advisor.replica.alarm and left == 0.0


def test_old_data_of_unknown_age_are_refused():
    advisor = live_advisor(two_arm_problem(horizon=1, drift=1e-3))
    with pytest.raises(InputError, match="how many decisions ago"):
        advisor.warm_start([[0.0, 1.0]], [0.2])


def test_the_safe_action_needs_no_block():
    advisor = live_advisor(two_arm_problem(horizon=1, drift=1e-3), mode="shadow")
    assert advisor.decide(0).certificate.limits[0].drift is None


def test_both_arms_of_a_comparison_come_too_late_alike():
    """Were only proposals withheld, what is left of them would not be comparable with what is left of a_0."""
    guards = Guards(canary=0.5, reward_range=(-2.0, 2.0), guarded_rate=1.0, margin_share=0.0)
    advisor, _, _ = drifting(steps=200, watch=False, guards=guards)
    advisor.demote("guarded", by="me", why="compare")
    learner = advisor.replica.learner
    ahead, state = int(learner.gate.ahead), next(s for s in range(2) if not learner.propose(1, s).is_baseline)
    batch = advisor.prepare([advisor.question(state, 1) for _ in range(ahead + 20)])
    answers = advisor.commit(batch, advisor.store.append(batch.drafts))
    assert {answer.reason for answer in answers[: ahead + 1]} <= {"best", "canary"}
    assert {answer.reason for answer in answers[ahead + 1 :]} == {"outdated"}


# Drift per second: ages by the log's own time stamps.


class Clock:
    """A clock that the tests move."""

    def __init__(self, now=1.7e9):
        self.now = now

    def __call__(self):
        return self.now


class ByTheClock(Drifting):
    """The same plant, whose costs move by ρ in each second; decisions come at odd times, with a pause now and then."""

    def __init__(self, world, clock, **more):
        super().__init__(world, **more)
        self.clock, self.times = clock, np.random.default_rng(5)

    def state(self):
        self.made += 1
        gap = 300.0 if self.made % 90 == 0 else float(self.times.exponential())
        self.clock.now += gap
        self.gamma += RHO * gap * (1.0 if self.made // 100 % 2 == 0 else -1.0) * self.direction
        return Plant.state(self)


def by_the_clock(options=None, store=None, steps=130, **settings):
    world, _ = world_and_streams(3, **SIZES)
    problem = restated(world.problem, noise=0.02, drift=RHO, drift_per="second", **options or {})
    clock = Clock()
    advisor = live_advisor(problem, store, clock=clock, **settings)
    plant = ByTheClock(world, clock, noise=0.02, states=2)
    return advisor, plant, plant.play(advisor, steps, horizon=2)


@pytest.mark.parametrize("name", ["known", "misfit and error", "unknown"])
def test_certificates_by_the_clock_pass_and_name_their_times(name):
    advisor, plant, decisions = by_the_clock(OPTIONS[name], watch=False)
    gate, left = advisor.replica.learner.gate, [each for each in decisions if not each.is_baseline]
    assert advisor.status().refusals == 0 and plant.worst <= 1e-9
    assert len(left) > 40
    for decision in left:
        drift = decision.certificate.limits[0].drift
        assert (drift.rate, drift.per, drift.until) == (RHO, "second", decision.decided_at + gate.ahead)
        assert 1.7e9 <= drift.since <= decision.decided_at
        assert decision.certificate.limits[0].gate_bound <= decision.certificate.limits[0].bound + 1e-12


def test_the_gates_blocks_are_the_learners_by_the_clock():
    """Stamps out of order, a pause, and clocks that had failed or gone mad: the same sums, ages and beginnings."""
    advisor, plant, _ = by_the_clock(steps=60)
    for away in (-3.0, 500.0, -1e4, np.nan, 1e300, 2.0):
        now = plant.clock.now
        plant.clock.now += away
        made = advisor.decide(0, 0)
        assert made.is_baseline or abs(away) < 1e300
        advisor.record(made.id, 0.0, plant.measure(0, made.feature), 0)
        plant.clock.now = max(now, now + away) if abs(away) < 1e300 else now
    blocks, gate = advisor.replica.learner.agent.blocks, advisor.replica.learner.gate
    assert gate.terms.windows == blocks.windows == advisor.problem.windows(2)
    places = (gate.terms.stages, 2 * len(blocks.windows))
    np.testing.assert_allclose(gate.gram, blocks.costs.gram.reshape(*places, 4, 4), rtol=1e-12)
    np.testing.assert_allclose(gate.ages, blocks.ages.reshape(*places, 3), rtol=1e-12)
    numbers = blocks.number.reshape(places)
    assert gate.begun.tolist() == np.where(numbers < 0, -1, numbers * np.repeat(blocks.windows, 2)).tolist()
    assert gate.clock.tolist() == [blocks.clock[0]] * 2 and gate.origin.tolist() == [blocks.clock[2]] * 2


def test_the_gate_ages_outcomes_up_to_the_time_of_the_question():
    """Ten seconds later every outcome is ten seconds older, before the decision is in the log: for both."""
    advisor, plant, _ = by_the_clock(steps=81, watch=False)
    learner, now = advisor.replica.learner, plant.clock.now
    gate, agent = learner.gate, learner.agent
    last = float(gate.origin[1] + gate.clock[1])
    weight, age, square = gate.ages[1, gate.using[1]]
    radii = []
    for later in (0.0, 10.0, -10.0):
        with learner.at(last + later):
            radii.append((gate.prepare(1).radii[0], agent.propose(1, 0).evidence[0].radius.value))
    ahead = gate.ahead
    more = [np.sqrt(square + 2 * lead * age + lead**2 * weight) for lead in (ahead, ahead + 10.0)]
    assert radii[1][0] - radii[0][0] == pytest.approx(RHO * (more[1] - more[0]), rel=1e-6)
    assert radii[1][1] - radii[0][1] == pytest.approx(RHO * (more[1] - more[0]), rel=1e-3)
    assert radii[2] == radii[1]
    assert gate.asked_at is None and agent.time is None and now == plant.clock.now


def test_a_replay_by_the_clock_computes_every_decision_again(tmp_path):
    """And asking without a decision leaves no trace: a restart gives the same bytes."""
    path = tmp_path / "log.db"
    advisor, plant, _ = by_the_clock(store=open_store(path), steps=70, snapshot_every=100)
    advisor.replica.learner.propose(1, 0)
    before = advisor.replica.learner.to_bytes()
    advisor.close()
    again = live_advisor(advisor.problem, open_store(path), clock=plant.clock)
    assert again.replica.learner.to_bytes() == before
    plant.play(again, 40, horizon=2)
    report = replay(again.store, again.problem)
    assert report.holds
    assert (report.decisions, report.outcomes, report.different) == (110, 110, 0)


def test_a_decision_that_leaves_too_late_by_the_clock_is_withheld():
    """Its bounds hold for an eighth of the shortest window: the log took longer than that."""
    advisor, plant, _ = by_the_clock(steps=85, watch=False)
    learner = advisor.replica.learner
    with learner.at(plant.clock.now):
        state = next(s for s in range(2) if not learner.propose(1, s).is_baseline)
    for late, reason in ((0.99 * learner.gate.ahead, "best"), (1.01 * learner.gate.ahead, "outdated")):
        batch = advisor.prepare([advisor.question(state, 1)])
        written = advisor.store.append(batch.drafts)
        plant.clock.now += late
        (answer,) = advisor.commit(batch, written)
        assert answer.reason == reason
        assert answer.is_baseline == (reason == "outdated")


def test_a_repeated_request_gets_no_bounds_from_yesterday():
    advisor, plant, _ = by_the_clock(steps=85, watch=False)
    learner = advisor.replica.learner
    with learner.at(plant.clock.now):
        state = next(s for s in range(2) if not learner.propose(1, s).is_baseline)
    assert advisor.decide(state, 1, key="again").reason == "best"
    plant.clock.now += 86400.0
    assert advisor.decide(state, 1, key="again").reason == "outdated"


def test_a_safe_cost_that_moves_is_asked_for_with_every_decision():
    """A table of states, whose features are looked up once where nothing drifts: a safe cost of before is no fact."""
    now = [0.1]
    problem = restated(two_arm_problem(horizon=1, drift=RHO), baseline_cost=lambda step, state: now[0])
    assert isinstance(problem.states, range)
    advisor = live_advisor(problem)
    for cost in (0.1, 0.2):
        now[0] = cost
        assert advisor.decide(0).certificate.limits[0].baseline_cost == cost
