"""Whatever is asked, in whatever order: no action without a valid certificate, and the log's invariants hold."""

import math
from contextlib import suppress
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from limits import kept
from live.plant import Plant, another_action
from live.test_advisor_failures import FailingStore
from tether import Advisor, Upkeep
from tether.errors import StoreError, TetherError
from tether.live.answers import AlreadyRecorded
from tether.live.audit import replay
from tether.live.log.chain import verify_store
from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria, Guards
from tether.live.records import event_of
from tether.problem.action_sets import feature_of
from worlds import finite_problem, world_and_streams

STAR, _ = world_and_streams(3, horizon=2)
FINITE, FINITE_GAMMA = finite_problem(2, horizon=2, constraints=2)

garbage = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.lists(st.floats(allow_nan=True), max_size=4),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.tuples(st.floats(allow_nan=True), st.integers()),
    st.just(object()),
)


def costs_in_order(entries, step):
    """How many costs of one step count: those before the first decision that is neither answered, lost nor withheld."""
    fate = {entry.body["decision_id"]: entry for entry in entries if entry.kind in ("outcome", "lost", "withheld")}
    made = (entry.body for entry in entries if entry.kind == "decision")
    closed = takewhile(lambda end: end is not None, (fate.get(d["decision_id"]) for d in made if d["step"] == step))
    return sum(end.kind == "outcome" and end.body["cost"] is not None for end in closed)


class AdvisorMachine(RuleBasedStateMachine):
    """Two replicas on one log, a plant, a clock that jumps, and people who change their minds."""

    open_decisions = Bundle("open")
    recorded = Bundle("recorded")

    @initialize(star=st.booleans(), age=st.sampled_from([None, 5.0]), budget=st.sampled_from([None, 3.0]))
    def start(self, star, age, budget):
        self.problem = STAR.problem if star else FINITE
        gamma = STAR.true_gamma if star else FINITE_GAMMA
        self.states, self.now = 4 if star else 3, 1000.0
        self.plant = Plant(gamma, noise=0.02, states=self.states)
        self.store = FailingStore(MemoryStore())
        guards = Guards(max_age=age, budget=budget, budget_window=5, live_rate=0.8, rate_window=5)
        more = {"clock": lambda: self.now, "refresh": None}
        self.advisors = [Advisor(self.problem, self.store, guards=guards, **kept(**more))]
        self.advisors.append(Advisor(self.problem, self.store, **kept(**more)))
        self.made, self.outcomes, self.keys = {}, {}, {}

    def check(self, decision, state, step):
        """The promise: an action of D(s) with its feature, and finite bounds under τ that hold; or a_0."""
        known = self.problem.look_up(state)
        certificate = decision.certificate
        assert certificate.holds
        assert decision.is_baseline == certificate.is_baseline
        assert np.allclose(feature_of(known.actions, decision.action), certificate.feature, rtol=0, atol=1e-12)
        for limit, tau in zip(certificate.limits, self.problem.threshold, strict=True):
            assert limit.threshold == tau
            assert math.isfinite(limit.bound)
            assert limit.bound <= tau
        if decision.is_baseline:
            assert np.array_equal(certificate.feature, known.actions.phi_0)
        bounds = [limit.bound for limit in certificate.limits]
        assert (self.plant.true_cost(step, certificate.feature) <= np.array(bounds) + 1e-9).all()
        if decision.mode == "shadow" or not decision.logged:
            assert decision.is_baseline

    @rule(
        target=open_decisions, who=st.integers(0, 1), at=st.integers(0, 3), step=st.integers(0, 1), old=st.floats(0, 9)
    )
    def decide(self, who, at, step, old):
        state = at % self.states
        decision = self.advisors[who].decide(state, step, "e", observed_at=self.now - old)
        self.check(decision, state, step)
        if not decision.logged:
            return multiple()
        self.made[decision.id] = decision
        return decision

    @rule(who=st.integers(0, 1), key=st.sampled_from("abc"))
    def decide_with_a_key(self, who, key):
        decision = self.advisors[who].decide(1, 0, key=key)
        self.check(decision, 1, 0)
        if decision.logged:
            assert self.keys.setdefault(key, decision) == decision
            self.made[decision.id] = decision

    @rule(who=st.integers(0, 1), state=garbage, step=st.one_of(st.integers(-1, 2), garbage))
    def decide_about_garbage(self, who, state, step):
        try:
            decision = self.advisors[who].decide(state, step)
        except TetherError:
            return
        self.check(decision, state, decision.step)  # True is step 1, and to numpy something else
        if decision.logged:
            self.made[decision.id] = decision

    @rule(
        target=recorded,
        decision=consumes(open_decisions),
        who=st.integers(0, 1),
        missing=st.booleans(),
        other=st.booleans(),
    )
    def record(self, decision, who, missing, other):
        applied = another_action(self.problem, decision.state, decision) if other else None
        known = self.problem.look_up(decision.state)
        feature = feature_of(known.actions, applied) if other else decision.feature
        cost = None if missing else self.plant.measure(decision.step, feature)
        outcome = {"reward": 0.3, "cost": cost, "next_state": self.plant.state(), "applied": applied}
        try:
            assert not self.advisors[who].record(decision.id, **outcome).repeated
        except StoreError:
            outcome["maybe"] = True
        self.outcomes[decision.id] = outcome
        return decision

    @rule(decision=consumes(open_decisions), who=st.integers(0, 1))
    def lose(self, decision, who):
        with suppress(StoreError):
            self.advisors[who].lose(decision.id, by="me", why="test")

    @rule(decision=recorded, who=st.integers(0, 1), changed=st.booleans())
    def record_again(self, decision, who, changed):
        outcome = dict(self.outcomes[decision.id])
        lost = outcome.pop("maybe", False)
        try:
            outcome["reward"] += 0.1 if changed else 0.0
            again = self.advisors[who].record(decision.id, **outcome)
        except StoreError:
            return
        except AlreadyRecorded:
            assert changed or lost
            return
        assert again.repeated != changed or lost
        self.outcomes[decision.id] = outcome

    @rule(who=st.integers(0, 1), id=garbage, reward=garbage, cost=garbage, applied=garbage)
    def record_garbage(self, who, id, reward, cost, applied):
        with pytest.raises(TetherError):
            self.advisors[who].record(id, reward, cost, applied=applied)

    @rule(decision=open_decisions, who=st.integers(0, 1), value=garbage)
    def record_garbage_for_a_real_decision(self, decision, who, value):
        """Whatever is refused leaves the decision open; only a valid reward would be taken."""
        with pytest.raises(TetherError):
            self.advisors[who].record(decision.id, "much", value, applied=value)

    @rule(who=st.integers(0, 1), mode=st.sampled_from(["shadow", "guarded", "live"]), up=st.booleans())
    def change_mode(self, who, mode, up):
        try:
            if up:
                self.advisors[who].promote(mode, by="me", why="test", criteria=Criteria.none())
            else:
                self.advisors[who].demote(mode, by="me", why="test")
        except TetherError:
            pass

    @rule(who=st.integers(0, 1), stop=st.booleans())
    def throw_the_switch(self, who, stop):
        advisor = self.advisors[who]
        try:
            (advisor.stop if stop else advisor.resume)(by="me", why="test")
        except StoreError:
            return
        if stop:
            assert advisor.decide(0).reason in ("stopped", "not-logged")

    @rule(jump=st.floats(-50.0, 50.0))
    def let_the_clock_jump(self, jump):
        self.now += jump

    @rule(when=st.sampled_from(["", "", "before", "after"]))
    def let_the_log_fail(self, when):
        self.store.fails = when

    @rule(who=st.integers(0, 1), snapshot=st.booleans())
    def restart(self, who, snapshot):
        self.store.fails = ""
        if snapshot:
            self.advisors[who].sync()
            self.advisors[who].snapshot()
        self.advisors[who] = Advisor(self.problem, self.store, upkeep=Upkeep(clock=lambda: self.now, refresh=None))

    @invariant()
    def the_log_is_whole(self):
        if not hasattr(self, "store"):
            return
        entries = self.store.inner.read(0, 100_000)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))

    def teardown(self):
        """At the end: an intact chain, each decision and outcome once, replicas that agree, and an exact replay."""
        if not hasattr(self, "store"):
            return
        self.store.fails = ""
        store = self.store.inner
        assert verify_store(store).fault is None
        entries = store.read(0, 100_000)
        assert [event_of(entry).kind for entry in entries] == [entry.kind for entry in entries]
        decided = [entry.body["decision_id"] for entry in entries if entry.kind == "decision"]
        answered = [entry.body["decision_id"] for entry in entries if entry.kind == "outcome"]
        assert len(set(decided)) == len(decided)
        assert set(self.made) <= set(decided)
        assert len(set(answered)) == len(answered)
        assert {id for id, outcome in self.outcomes.items() if "maybe" not in outcome} <= set(answered) <= set(decided)
        for advisor in self.advisors:
            advisor.sync()
        fresh = Advisor(self.problem, store, upkeep=Upkeep(refresh=None))
        assert self.advisors[0].replica.to_bytes() == self.advisors[1].replica.to_bytes() == fresh.replica.to_bytes()
        assert fresh.replica.learner.gate.count.tolist() == [costs_in_order(entries, step) for step in range(2)]
        assert replay(store, self.problem).holds


class TestAdvisor(AdvisorMachine.TestCase):
    settings = settings(
        max_examples=8,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.slow
class TestAdvisorAtLength(AdvisorMachine.TestCase):
    settings = settings(
        max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
