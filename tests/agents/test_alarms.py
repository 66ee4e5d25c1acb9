"""An alarm is for ever (docs/theory.md section 20): γ* lies in all confidence sets at once, so that one that is empty
has proven a declaration false, whatever later data say."""

import numpy as np
import pytest

from limits import restated, stated
from tether import (
    CertifiedAgent,
    FiniteActions,
    Problem,
    RslucbQvi,
    SlucbConfig,
    SlucbQvi,
    StarActions,
    Transition,
    synthetic,
)
from tether.lab.simulate import simulate, simulate_stepwise
from tether.lab.worlds.linear_mdp import Streams

SAFE, ENDS = np.array([1.0, 0.0]), np.array([[0.6, 0.4], [0.3, 0.7]])
DECLARED, TAU = 0.2, 0.5
WRONG = 0.9
"""What a_0 is seen to cost at first."""


def problem_of(*, finite=False, horizon=1, **more):
    """a_0 is declared to cost .2; the same at every step of two states."""
    actions = FiniteActions(np.vstack([SAFE, ENDS]), 0) if finite else StarActions(SAFE, ENDS)
    told = {"noise": 0.1, "confidence": 0.01, "baseline_cost": lambda h, s: DECLARED} | more
    return Problem(
        horizon=horizon,
        dimension=2,
        states=range(2),
        actions=lambda s: actions,
        **stated(threshold=TAU, gamma_norm=2.0, **told),
    )


class Greedy(CertifiedAgent):
    """The longest certified row."""

    def choose(self, options):
        return options.best(np.append(options.lengths, 0.0))


BOUNDED = {"cost_kind": "bounded", "noise": None}
KINDS = {
    "tables": lambda: SlucbQvi(problem_of()),
    "two steps": lambda: SlucbQvi(problem_of(horizon=2)),
    "pooled": lambda: SlucbQvi(problem_of(horizon=2), SlucbConfig(pooled=True)),
    "lean": lambda: SlucbQvi(problem_of(horizon=2), SlucbConfig(backup="lean")),
    "no memory": lambda: SlucbQvi(problem_of(), SlucbConfig(condition_on="state")),
    "finite": lambda: SlucbQvi(problem_of(finite=True)),
    "error bar": lambda: SlucbQvi(problem_of(baseline_cost_error=0.01)),
    "drift": lambda: SlucbQvi(problem_of(drift=1e-5)),
    "mixtures": lambda: RslucbQvi(problem_of(finite=True), rng=np.random.default_rng(0)),
    "mixtures of rays": lambda: RslucbQvi(problem_of(), rng=np.random.default_rng(0)),
    "yes/no": lambda: SlucbQvi(problem_of(**BOUNDED)),
    "yes/no, finite": lambda: SlucbQvi(problem_of(finite=True, **BOUNDED)),
    "yes/no mixtures": lambda: RslucbQvi(problem_of(finite=True, **BOUNDED), rng=np.random.default_rng(0)),
    "own algorithm": lambda: Greedy(problem_of()),
}


def core(agent):
    """What holds the sums."""
    return getattr(agent, "core", agent)


def see(agent, cost, step=0, x=SAFE):
    """One outcome."""
    core(agent).observe(Transition(step, 0, x, 0.0, cost, 1))


def act(agent, step=0, state=0, cost=DECLARED):
    """One decision with its outcome."""
    made = agent.act(step, state)
    agent.observe(made.outcome(reward=0.0, cost=cost, next_state=1))
    return made


def until_alarm(agent):
    """Costs of a_0 that contradict what was declared, until a decision says so."""
    for _ in range(60):
        agent.plan()
        made = act(agent, cost=1.0 if core(agent).problem.bounded[0] else WRONG)
        if made.reason == "alarm":
            return made
    raise AssertionError("no alarm")


def bring_back(agent):
    """Outcomes after which the data agree with what was declared."""
    seen, is_bounded = core(agent).data_version, core(agent).problem.bounded[0]
    for _ in range(4 * seen if is_bounded else seen):
        assert act(agent, cost=0.0 if is_bounded else 2.0 * DECLARED - WRONG).is_baseline
    agent.plan()


@pytest.mark.parametrize("kind", KINDS)
def test_an_alarm_stays_when_the_evidence_slips_back(kind):
    agent = KINDS[kind]()
    assert until_alarm(agent).detail
    assert core(agent).standing_alarms == [(0, 0)]
    bring_back(agent)
    made = [act(agent, state=state) for state in (0, 1, 0)]
    assert {decision.reason for decision in made} == {"alarm"}
    assert all(decision.is_baseline for decision in made)
    agent = core(agent)
    agent.costs.facts.alarm[:] = 0  # what it would have done without the latch
    agent.plan_version = -1
    assert agent.peek(0, 0).reason != "alarm", "the evidence did not slip back: the test shows nothing"


def test_an_alarm_is_of_its_step_and_constraint():
    agent = KINDS["two steps"]()
    until_alarm(agent)
    agent.plan()
    act(agent)
    assert agent.peek(0, 1).reason == "alarm"
    assert agent.peek(1, 0).reason != "alarm"


def test_a_question_latches_nothing_and_a_decision_does():
    agent = SlucbQvi(problem_of(), SlucbConfig(condition_on="state"))
    agent.plan()
    for _ in range(60):
        see(agent, WRONG)
    before = agent.costs.facts.alarm.tobytes()
    assert agent.peek(0, 0).reason == "alarm"
    assert agent.costs.facts.alarm.tobytes() == before and not agent.standing_alarms
    agent.act(0, 0)
    assert agent.standing_alarms == [(0, 0)]


def test_a_tuned_radius_proves_nothing_and_its_alarm_does_not_stay():
    agent = SlucbQvi(problem_of(), SlucbConfig(cost_radius=0.3))
    until_alarm(agent)
    assert not agent.standing_alarms
    bring_back(agent)
    assert act(agent).reason != "alarm"


@pytest.mark.parametrize("kind", ["tables", "lean", "yes/no", "drift", "mixtures"])
def test_an_alarm_is_saved_and_released_by_an_order_alone(kind, tmp_path):
    agent = KINDS[kind]()
    until_alarm(agent)
    bring_back(agent)
    agent.save(tmp_path / "agent.tether")
    restored = type(agent).restore(tmp_path / "agent.tether", agent.problem)
    assert [act(each).reason for each in (agent, restored)] == ["alarm", "alarm"]
    for each in (agent, restored):
        each.release_alarms("the meter was exchanged")
        assert not each.standing_alarms and each.released == ["the meter was exchanged"]
        assert act(each).reason != "alarm"
    agent.save(tmp_path / "agent.tether")
    assert type(agent).restore(tmp_path / "agent.tether", agent.problem).released == ["the meter was exchanged"]


def test_a_released_alarm_comes_back_while_the_data_contradict():
    agent = KINDS["tables"]()
    until_alarm(agent)
    agent.release_alarms("hope")
    assert act(agent).reason == "alarm"
    assert agent.standing_alarms == [(0, 0)]


def test_a_compiled_block_of_episodes_latches_as_single_steps_do():
    world = synthetic(np.random.default_rng(3), states=4, rays=8, noise=0.3, horizon=2)
    true = world.problem
    told = restated(true, baseline_cost=lambda h, s: true.look_up(s).baseline_cost[h] - 0.1)
    played = []
    for runs in (simulate, simulate_stepwise):
        agent = SlucbQvi(told)
        books = runs(world, agent, 300, Streams.from_seed(7))
        played.append((books.baseline.tolist(), agent.standing_alarms, agent.costs.moment.tobytes()))
    assert played[0] == played[1]
    assert played[0][1] == [(0, 0), (1, 0)]
    baseline = np.array(played[0][0])
    assert baseline[-1] == 1.0
    last = int(np.flatnonzero(baseline < 1.0)[-1])
    assert 0 < last < 290, last
