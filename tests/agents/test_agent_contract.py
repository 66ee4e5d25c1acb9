"""Does every agent keep its promises? One suite over all of them."""

from dataclasses import replace

import numpy as np
import pytest

from agents.cases import (
    CASES,
    LEAN,
    MOVING,
    RANDOMISED,
    SAFE,
    choices,
    learned,
    literal_bound,
    make_known,
    twin_streams,
)
from tether import InputError, LsviUcb, SlucbConfig, SlucbQvi, not_star_convex
from tether.agents import testing
from tether.agents.agent import Agent
from tether.agents.slucb import EXPLORERS
from tether.agents.testing import changed, essence, play, snapshot
from tether.lab.simulate import simulate, simulate_stepwise
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import optimal_safe_policy

every_agent = pytest.mark.parametrize("name", CASES)


@every_agent
def test_is_an_agent(name):
    assert isinstance(CASES[name].make(), Agent)


IN_TESTS_OF_THEIR_OWN = (
    testing.questions_do_not_change_later_answers,
    testing.every_action_is_certified,
    testing.bounds_are_true,
)


@every_agent
@pytest.mark.parametrize(
    "check", [c for c in testing.CHECKS if c not in IN_TESTS_OF_THEIR_OWN], ids=lambda c: c.__name__
)
def test_keeps_the_contract_that_ships_with_the_package(name, check):
    """The same seed gives the same run, observing changes no decision, NaN costs are refused, and so on."""
    check(CASES[name])


@every_agent
def test_another_seed_gives_another_run(name):
    case = CASES[name]
    first, other = (play(case.world, case.make(), Streams.from_seed(seed), 25) for seed in (31, 32))
    assert [essence(d) for d in first] != [essence(d) for d in other]


def _ask_everything(agent, world, states):
    for state in states:
        for step in range(world.problem.horizon):
            agent.act(step, state)


@pytest.mark.parametrize("name", [name for name in CASES if name not in MOVING])
def test_acting_never_changes_what_was_learned(name):
    """Asked about every state, planned or not, in the middle of an episode: the sums stay as they are."""
    case = CASES[name]
    agent, streams = case.make(), Streams.from_seed(33)
    make_known(agent, range(2))
    for _ in range(12):
        state = case.world.reset(streams)
        agent.plan()
        for step in range(case.world.problem.horizon):
            seen = case.world.step(agent.act(step, state), streams)
            agent.observe(seen)
            before = learned(agent)
            _ask_everything(agent, case.world, _askable(case, name))
            assert changed(before, learned(agent)) == []
            state = seen.next_state


def _askable(case, name):
    """Under the appendix's rule being asked makes a state known, which is not learning: there, ask known ones only."""
    return range(2 if name.startswith("unknown-appendix") else case.world.state_count)


@every_agent
def test_extra_questions_do_not_change_later_answers(name):
    """One agent is asked about every state and every step all the time, its twin only where it plays."""
    case = CASES[name]

    def make():
        agent = case.make()
        make_known(agent, range(2))  # of four: the others stay unplanned until they are reached
        return agent

    testing.questions_do_not_change_later_answers(replace(case, make=make), _askable(case, name))


@every_agent
def test_no_action_without_a_bound_under_the_threshold(name):
    case = CASES[name]
    problem = case.world.problem
    decisions = testing.every_action_is_certified(case)
    assert any(not d.is_baseline for d in decisions), "an agent that never leaves a_0 proves nothing"
    chosen = case.make().config.value_radius
    origin = "theorem" if chosen == "theorem" else "default" if isinstance(chosen, str) else "tuned"
    for d in decisions:
        known = problem.look_up(d.state)
        for j, bound in enumerate(d.evidence):
            assert bound.threshold == (np.inf if case.origin == "none" else problem.threshold[j])
            if case.origin != "any":
                assert bound.radius.origin == case.origin
            if problem.baseline_cost is not None and case.origin not in ("none", "exact"):
                assert bound.baseline_cost == known.baseline_cost[d.step, j]
        assert d.tightest in d.evidence
        assert d.cost_bound == d.tightest.bound
        assert d.value_radius.origin == origin
        if d.is_baseline:
            assert d.reason != "best" or name in RANDOMISED
        else:
            assert d.reason == "best"
            row, length = (d.action.ray, d.action.length) if known.actions.is_star else (d.action, 1.0)
            assert 0.0 < length <= 1.0
            f, end = known.actions.phi_0, known.actions.endpoints[row]
            np.testing.assert_allclose(d.feature, f + length * (end - f), atol=1e-15)


@pytest.mark.parametrize("name", SAFE)
def test_safe_agents_never_exceed_the_threshold(name):
    """60 episodes, seed 37. With δ = 0.01 a correct agent could fail once in a hundred runs; this seed is fixed."""
    decisions = testing.bounds_are_true(CASES[name])
    assert {bound.radius.origin for d in decisions for bound in d.evidence} == {"theorem"}
    assert {bound.threshold for d in decisions for bound in d.evidence} == {*CASES[name].world.problem.threshold}


def _literal_bound(world, agent, history, d, j):
    """The left side of Eq. (9) from the whole history, by explicit inverses: nothing of the tables is used.

    The stated radius is β given the remembered facts; every explorer but the paper's may shrink it further to β_s.
    """
    known = world.problem.look_up(d.state)
    here = [entry for entry in history if agent.config.pooled or entry[0] == d.step]
    seen = [(x, np.atleast_1d(z)[j]) for _, x, z, _ in here]
    f, x, beta = known.actions.phi_0, d.mean_feature, d.evidence[j].radius.value
    if world.problem.baseline_cost is None:
        gram = agent.costs.ridge * np.eye(len(f)) + sum((np.outer(y, y) for y, _ in seen), np.zeros((len(f), len(f))))
        moment = sum((z * y for y, z in seen), np.zeros(len(f)))
        return x @ np.linalg.solve(gram, moment) + beta * np.sqrt(x @ np.linalg.solve(gram, x))
    told = [world.problem.look_up(state) for *_, state in here] if agent.config.condition_on == "visited" else []
    facts = np.array([entry.actions.phi_0 for entry in told])
    costs = np.array([entry.baseline_cost[step, j] for (step, *_), entry in zip(here, told, strict=False)])
    given = (agent.costs.ridge, facts, costs, f, known.baseline_cost[d.step, j])
    return literal_bound(given, seen, x, beta, agent.config.explorer != "paper")


LATE = ("lsvi", "lean-lsvi", "unknown-appendix", "condition", "replan", "rslucb-directional-rare")
AUDITED = [name for name in CASES if not name.startswith(LATE) and "bounded" not in name and name not in MOVING]
"""Bounded costs have an auditor of their own: tests/agents/test_likelihood.py."""


@pytest.mark.parametrize("name", AUDITED)
def test_the_stated_bound_is_the_one_that_the_whole_history_gives(name):
    """An auditor with the log and the paper recomputes each bound; it must agree, and never be larger than stated."""
    case = CASES[name]
    agent, streams, history, audited = case.make(), Streams.from_seed(38), [], 0
    for _ in range(40):
        state = case.world.reset(streams)
        agent.plan()
        at_plan, planned = list(history), int(agent.current.planned[0])
        for step in range(case.world.problem.horizon):
            d = agent.act(step, state)
            used = at_plan if agent.slots.get(state, planned) < planned else history
            assert d.data_version == len(used)
            if not d.is_baseline:
                for j, stated in enumerate(d.evidence):
                    literal = _literal_bound(case.world, agent, used, d, j)
                    assert literal <= stated.bound + 1e-11
                    # mixtures: squared widths of single actions are enlarged by `plan.INDEPENDENT` of themselves
                    assert stated.bound == pytest.approx(literal, abs=1e-7)
                    audited += 1
            seen = case.world.step(d, streams)
            agent.observe(seen)
            history.append((step, d.feature, seen.cost, d.state))
            state = seen.next_state
    assert audited > 20


RADII = {
    "radius-mixture": lambda spread, sigma, lam, norm: np.sqrt(sigma**2 * spread + lam * norm**2),
    "radius-classical": lambda spread, sigma, lam, norm: sigma * np.sqrt(spread) + np.sqrt(lam) * norm,
    "radius-tuned": lambda spread, sigma, lam, norm: 0.3,
    "explorer-adaptive": lambda spread, sigma, lam, norm: np.sqrt(sigma**2 * (spread + 2 * np.log(6)) + lam * norm**2),
}
"""β_c from log det(A/λ) + 2 log(H/δ). The default takes the smallest of six radii that hold together, each with δ/6:
it is at most the mixture's."""


@pytest.mark.parametrize("name", RADII)
def test_the_stated_radius_is_the_formula_of_its_name(name):
    """β_c from the Gram matrix of the history: docs/theory.md section 4, with a union over the H stages."""
    case = CASES[name]
    config = replace(case.make().config, condition_on="state")  # remembered facts shrink it
    agent, streams, p = SlucbQvi(case.world.problem, config), Streams.from_seed(39), case.world.problem
    lam, sigma, norm = agent.costs.ridge, p.noise[0], p.gamma_norm[0]
    grams = np.tile(lam * np.eye(p.dimension), (p.horizon, 1, 1))
    agent.register(range(case.world.state_count))
    for _ in range(40):
        agent.plan()
        planned = grams.copy()
        state = case.world.reset(streams)
        for step in range(p.horizon):
            d = agent.act(step, state)
            spread = np.linalg.slogdet(planned[step] / lam)[1] + 2 * np.log(p.horizon / p.confidence)
            wanted = RADII[name](spread, sigma, lam, norm)
            if name == "explorer-adaptive":
                assert 0.0 < d.cost_radius.value <= wanted * (1 + 1e-9)
            else:
                assert d.cost_radius.value == pytest.approx(wanted, rel=1e-9)
            grams[step] += np.outer(d.feature, d.feature)
            seen = case.world.step(d, streams)
            agent.observe(seen)
            state = seen.next_state


@every_agent
def test_an_outcome_counts_exactly_once(name):
    case = CASES[name]
    agent, streams = case.make(), Streams.from_seed(41)
    play(case.world, agent, streams, 3)
    agent.plan()
    decision = agent.act(0, 0)
    seen = case.world.step(decision, streams)
    counted = agent.data_version
    agent.observe(seen)
    assert agent.data_version == counted + 1
    before = snapshot(agent)
    for _ in range(3):
        with pytest.raises(InputError, match=rf"decision {decision.id}\b.*exactly once"):
            agent.observe(seen)
    assert changed(before, snapshot(agent)) == []


@every_agent
def test_outcomes_may_arrive_late_and_out_of_order(name):
    """The sums do not depend on the order, up to rounding; each outcome finds its own decision."""
    case = CASES[name]
    early, late = case.make(), case.make()
    for agent in (early, late):
        make_known(agent, range(case.world.state_count))
        agent.plan()
    here, there = twin_streams(42)
    seen = [case.world.step(early.act(0, s), here) for s in range(case.world.state_count)]
    again = [case.world.step(late.act(0, s), there) for s in range(case.world.state_count)]
    for transition in seen:
        early.observe(transition)
    for transition in reversed(again):
        late.observe(transition)
    np.testing.assert_allclose(early.values.factor, late.values.factor, rtol=1e-13)
    np.testing.assert_allclose(early.costs.moment, late.costs.moment, rtol=1e-12, atol=1e-15)
    assert not early.open_decisions
    assert not late.open_decisions


@pytest.mark.parametrize(
    "name", [name for name in CASES if name not in (*RANDOMISED, *LEAN, *MOVING) and "bounded" not in name]
)
def test_whole_blocks_and_single_steps_are_the_same_run(name):
    """`simulate` and `simulate_stepwise` write the same books, learn the same sums and end with the same plan."""
    case = CASES[name]
    (block, steps), (here, there) = (case.make(), case.make()), twin_streams(43)
    first, second = simulate(case.world, block, 30, here), simulate_stepwise(case.world, steps, 30, there)
    for column, one, two in zip(first._fields, first, second, strict=True):
        assert one.tobytes() == two.tobytes(), column
    for part in ("costs", "values", "current", "tables", "planned_growth"):
        assert essence(getattr(block, part)) == essence(getattr(steps, part)), part


@pytest.mark.parametrize("name", ["explorer-adaptive", "replan-on-doubling"])
def test_after_a_block_decisions_name_the_data_their_bounds_rest_on(name):
    """The last plan was made before the last episode (or long before): its bounds do not rest on later outcomes."""
    case = CASES[name]
    (block, steps), (here, there) = (case.make(), case.make()), twin_streams(43)
    simulate(case.world, block, 30, here)
    simulate_stepwise(case.world, steps, 30, there)
    assert block.act(0, 0).data_version == steps.act(0, 0).data_version < 30 * case.world.problem.horizon


def test_block_simulation_of_an_agent_with_another_order_of_states_is_right_or_refused():
    """`simulate` reads slots as state indices. An agent that met state 2 first would play its actions in state 0."""
    case = CASES["explorer-adaptive"]
    block, steps = case.make(), case.make()
    for agent in (block, steps):
        agent.register([2, 0])
    outcomes = []
    for run, agent in ((simulate, block), (simulate_stepwise, steps)):
        try:
            outcomes.append(run(case.world, agent, 5, Streams.from_seed(1)).value.tobytes())
        except InputError:
            outcomes.append("refused")
    assert outcomes[0] == "refused" or outcomes[0] == outcomes[1]


class TestTheTwoActionExample:
    """The example after Assumption 5: without the segment between its two actions, nothing can be learned safely."""

    @pytest.mark.parametrize("explorer", EXPLORERS)
    def test_a_safe_learner_stays_at_the_safe_action_forever(self, explorer):
        world = not_star_convex()
        agent = SlucbQvi(world.problem, SlucbConfig(explorer=explorer))
        decisions = play(world, agent, Streams.from_seed(1), 400)
        assert all(d.is_baseline and d.action == 1 and d.reason == "only-baseline" for d in decisions)
        gap = optimal_safe_policy(world).values[0, 0] - world.true_theta[0] @ decisions[-1].feature
        assert gap == pytest.approx(1.0)

    @pytest.mark.parametrize("explorer", EXPLORERS)
    def test_with_the_segment_it_leaves_the_safe_action_and_ends_near_the_optimum(self, explorer):
        """Each step along the segment proves more of it safe; τ = 1.2 > 1, so in the end all of it."""
        world = not_star_convex(completed=True)
        agent = SlucbQvi(world.problem, SlucbConfig(explorer=explorer))
        decisions = play(world, agent, Streams.from_seed(1), 400)
        assert all(not d.is_baseline for d in decisions[20:])
        assert 0.0 < next(d for d in decisions if not d.is_baseline).action.length < 0.5
        assert all(world.true_gamma[0, 0] @ d.feature <= 1.2 for d in decisions)
        earned = np.array([world.true_theta[0] @ d.feature for d in decisions])
        assert earned[-50:].mean() > 0.999
        assert optimal_safe_policy(world).values[0, 0] == pytest.approx(1.0)

    def test_an_agent_without_a_constraint_finds_the_better_action_at_once(self):
        world = not_star_convex()
        decisions = play(world, LsviUcb(world.problem), Streams.from_seed(1), 50)
        assert [d.action for d in decisions[-40:]] == [0] * 40
        assert {d.cost_radius.origin for d in decisions} == {"none"}

    def test_knowing_a_norm_bound_below_the_threshold_frees_the_learner(self):
        """The paper's τ = 2: with λ = 1 the first radius is √(σ² log 1/δ² + B²) = 1.415 < 2: both actions are safe."""
        world = not_star_convex(threshold=2.0)
        agent = SlucbQvi(world.problem, SlucbConfig(cost_ridge=1.0))
        decisions = play(world, agent, Streams.from_seed(1), 100)
        assert [d.action for d in decisions[-50:]] == [0] * 50


class TestUnknownSafeCosts:
    """Appendix A.4: play a_0 until its cost is known well enough, then learn."""

    @pytest.mark.parametrize("explorer", EXPLORERS)
    def test_the_warm_up_ends_and_then_other_actions_are_played(self, explorer):
        case = CASES["unknown-appendix"]
        agent = SlucbQvi(case.world.problem, SlucbConfig(unknown_cost="appendix", episodes=200, explorer=explorer))
        decisions = play(case.world, agent, Streams.from_seed(44), 200)
        first_look = [d for d in decisions if d.reason == "warm-up"]
        assert first_look
        assert all(d.is_baseline for d in first_look)
        later = decisions[len(decisions) // 2 :]
        assert sum(not d.is_baseline for d in later) > len(later) // 4, {d.reason for d in later}
        assert agent.alarms == [], "the measured costs agree with the data: nothing is misspecified"

    @pytest.mark.parametrize("explorer", EXPLORERS)
    def test_after_the_warm_up_no_action_exceeds_the_threshold(self, explorer):
        """The lower estimate of the gap is not the gap: it must not enter the safe set as an exact cost."""
        case = CASES["unknown-appendix"]
        agent = SlucbQvi(case.world.problem, SlucbConfig(unknown_cost="appendix", episodes=200, explorer=explorer))
        decisions = play(case.world, agent, Streams.from_seed(45), 200)
        worst = max(float(case.world.true_gamma[d.step, 0] @ d.feature) for d in decisions)
        assert worst <= case.world.problem.threshold[0] + 1e-12


@pytest.mark.parametrize("name", [name for name in CASES if name not in (*RANDOMISED, *MOVING)])
def test_a_proposal_is_noted_nowhere_and_agrees_with_a_decision_at_a_state_that_no_plan_covers(name):
    case = CASES[name]
    agent, streams = case.make(), Streams.from_seed(41)
    play(case.world, agent, streams, 10)
    for state in _askable(case, name):
        before = snapshot(agent)
        proposals = [agent.propose(step, state) for step in range(case.world.problem.horizon)]
        assert changed(before, snapshot(agent)) == []
        for step, proposal in enumerate(proposals):
            assert proposal.data_version == agent.data_version
            agent.current.planned[0] = 0  # a plan that covers no state: `act` must now use the newest data too
            assert choices([agent.act(step, state)]) == choices([proposal])
