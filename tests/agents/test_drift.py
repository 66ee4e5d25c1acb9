"""Costs that drift, by hand: windows, blocks and their parts of δ, ages, what is refused, and saving."""

from dataclasses import replace
from math import pi, sqrt

import numpy as np
import pytest

from agents.cases import choices
from tether import InputError, LsviUcb, Monitor, RslucbQvi, SlucbConfig, SlucbQvi
from tether.agents.drift import Blocks
from tether.agents.outcome_order import CostOutcome
from tether.errors import StateFileError
from tether.lab.simulate import Schedule, simulate_stepwise, simulate_units
from tether.lab.worlds.linear_mdp import Streams
from worlds import OTHER, SAFE, two_arm_problem, uneven_world

RHO = 0.01


def problem(**more):
    """σ = 0.1, ρ = 0.01: (σ/ρ)^(2/3) = 4.6, so that windows are 8, 16, 32 and 64 decisions long."""
    return two_arm_problem(**{"horizon": 1, "drift": RHO, **more})


def play(agent, count, cost=0.3, arm=OTHER):
    """So many decisions, each with an outcome of one arm."""
    for _ in range(count):
        decision = agent.act(0, 0)
        agent.observe(replace(decision.outcome(reward=0.5, cost=cost), feature=arm))
    return agent


def radius_of(agent):
    """β of the next decision."""
    return agent.peek(0, 0).evidence[0].radius.value


def test_windows_are_as_long_as_noise_and_drift_weigh_the_same():
    """σ/ρ = 1000: 100, 200, 400, 800 decisions. Features up to L = 8 move costs 8 times as fast: a quarter of that."""
    assert problem(noise=0.1, drift=1e-4).windows(1) == (100, 200, 400, 800)
    assert problem(noise=0.1, drift=1e-4, feature_norm=8.0).windows(1) == (25, 50, 100, 200)
    assert problem(noise=0.1, drift=1e-4).windows(8) == (200, 400, 800, 1600)
    assert problem().windows(1) == (8, 16, 32, 64)


def test_blocks_hold_the_outcomes_of_decisions_since_they_began():
    """Of each window the two newest blocks, and each sums up exactly the decisions from its own beginning on."""
    agent, rng, seen = SlucbQvi(problem()), np.random.default_rng(3), []
    for _ in range(151):
        decision, x = agent.act(0, 0), rng.dirichlet([1.0, 1.0])
        z = float(0.1 * x[0] + 0.4 * x[1])
        agent.observe(replace(decision.outcome(reward=0.0, cost=z), feature=x))
        seen.append((x, z))
    blocks = agent.blocks
    assert blocks.number.tolist() == [18, 17, 8, 9, 4, 3, 2, 1]  # 151 = 18·8 + 7 = 9·16 + 7 = 4·32 + 23 = 2·64 + 23
    for row, (number, window) in enumerate(zip(blocks.number, np.repeat(blocks.windows, 2), strict=True)):
        kept = list(enumerate(seen))[int(number * window) :]
        gram = agent.costs.ridge * np.eye(2) + sum(np.outer(x, x) for _, (x, _) in kept)
        np.testing.assert_allclose(blocks.costs.gram[row], gram, rtol=1e-12)
        np.testing.assert_allclose(blocks.costs.moment[row, 0], sum(z * x for _, (x, z) in kept), rtol=1e-12)
        squares = sum((151 - at) ** 2 * (x @ x) for at, (x, _) in kept)
        assert blocks.ages[row, 2] == pytest.approx(squares, rel=1e-12)


def test_bounds_rest_on_one_live_block_and_say_which():
    """The sums that bounds are computed from are those of the block that the certificate names."""
    agent = SlucbQvi(problem())
    for count in (0, 5, 30, 100, 41):
        play(agent, count)
        shown, row = agent.peek(0, 0).evidence[0].drift, int(agent.blocks.used[0])
        made = agent.decisions
        assert (shown.rate, shown.until) == (RHO, made)
        assert shown.since % shown.window == 0 and made - 2 * shown.window < shown.since <= made
        assert agent.costs.gram.tolist() == agent.blocks.costs.gram[row : row + 1].tolist()
        assert agent.costs.updates[0] == made - shown.since


def test_the_drift_adds_the_root_of_squared_ages_to_the_radius():
    """Three outcomes of unit features, of ages 3, 2 and 1 at the next decision: ρ√14 more than the same without."""
    agent = play(SlucbQvi(problem()), 3)
    without = play(SlucbQvi(problem()), 3)
    without.blocks.drift[:] = 0.0
    without.blocks.show(without.costs, without.rules)
    assert radius_of(agent) - radius_of(without) == pytest.approx(RHO * sqrt(14.0), rel=1e-5)


def test_deciding_without_outcomes_makes_data_older():
    """Ten open decisions later the same three outcomes have the ages 13, 12 and 11; no plan's bound is used."""
    agent = play(SlucbQvi(problem()), 3)
    agent.register([0])
    agent.plan()
    before = radius_of(agent)
    for _ in range(10):
        agent.act(0, 0)
    ages = sqrt(13.0**2 + 12.0**2 + 11.0**2) - sqrt(14.0)
    agent.blocks.used[0] = 6  # the longest window: the shortest has begun a block of its own
    agent.blocks.show(agent.costs, agent.rules)
    assert radius_of(agent) - before == pytest.approx(RHO * ages, rel=1e-5)


def test_all_blocks_together_have_no_more_than_delta():
    """1/split summed over every block that a window will ever have, and over the windows, is 1."""
    blocks = Blocks(problem(), 1, 0.1)
    parts = 6.0 / (pi**2 * np.arange(1.0, 1e6) ** 2) / 4.0
    assert 4.0 * parts.sum() == pytest.approx(1.0, abs=1e-5)
    for _ in range(8 * 5):
        blocks.tick()
    assert blocks.number[:2].tolist() == [4, 5]
    np.testing.assert_allclose(1.0 / blocks.costs.split[:2], parts[4:6], rtol=1e-12)


def test_the_radius_has_two_roots_because_the_target_of_one_must_stand_still():
    """After one outcome of (0, 1): σ√(log det(A/λ) + 2 log(2·events·split)) + √λ B + ρ, or less by the grid."""
    config = SlucbConfig(cost_radius="classical")
    for agent, times in ((SlucbQvi(problem(), config), 1.0), (SlucbQvi(problem()), 2.0)):
        play(agent, 1)
        ridge, split = agent.costs.ridge, 4.0 * pi**2 / 6.0
        reach = 0.1 * sqrt(np.log(1.0 + 1.0 / ridge) + 2.0 * np.log(times * split / 0.01))
        two_roots = reach + sqrt(2.0 * ridge) + RHO
        if times == 1.0:
            assert radius_of(agent) == pytest.approx(two_roots, rel=1e-5)
        else:
            assert radius_of(agent) <= two_roots * (1.0 + 1e-5)
            assert radius_of(agent) > 1.01 * (sqrt(reach**2 + 2.0 * ridge) + RHO)  # what one root would claim


def test_a_late_outcome_belongs_to_the_blocks_of_its_decision():
    """Decision 5 is answered when 20 have been made: block 2 of the shortest window, from 16 on, is not about it."""
    agent = play(SlucbQvi(problem()), 5)
    late = agent.act(0, 0)
    for _ in range(14):
        agent.act(0, 0)
    before = agent.blocks.costs.updates.copy()
    agent.observe(late.outcome(reward=0.0, cost=0.3))
    grown = (agent.blocks.costs.updates - before).tolist()
    assert agent.blocks.number[:4].tolist() == [2, 1, 0, 1]
    assert grown == [0, 0, 1, 0, 1, 0, 1, 0]
    assert agent.blocks.ages[4, 2] == pytest.approx(sum(a**2 for a in (20, 19, 18, 17, 16, 15)))


def test_an_outcome_without_a_decision_counts_as_one():
    agent = SlucbQvi(problem())
    for _ in range(3):
        agent.learn_cost(CostOutcome(0, OTHER, np.array([0.3])))
    assert agent.blocks.clock[0] == 3
    assert agent.blocks.ages[0].tolist() == [3.0, 6.0, 14.0]


def test_a_lost_cost_is_off_by_half_its_range_besides_the_drift():
    agent = SlucbQvi(problem(lost="worst-case", cost_range=(0.0, 1.0)))
    agent.lose(agent.act(0, 0).id)
    assert agent.costs.bias[0, 0] == pytest.approx((0.5 + RHO) ** 2, rel=1e-5)


def test_the_safe_cost_is_the_one_that_is_declared_now():
    """What was remembered a decisions ago would be known up to ρa only, so nothing is remembered."""
    costs = [0.1]
    told = problem(states=range(1))
    told = replace(told, baseline_cost=lambda step, state: costs[0])
    agent = play(SlucbQvi(told), 3, cost=0.1, arm=SAFE)
    agent.register([0])
    agent.plan()
    costs[0] = 0.2
    decision = agent.act(0, 0)
    assert decision.evidence[0].baseline_cost == 0.2
    assert decision.evidence[0].facts == 0 and agent.costs.facts.count[0] == 0 and not agent.remembers


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SlucbQvi(problem(), SlucbConfig(condition_on="all")), "condition_on='all'"),
        (lambda: SlucbQvi(problem(), SlucbConfig(cost_radius="mixture")), "stands still"),
        (lambda: LsviUcb(problem(), true_gamma=np.zeros((1, 2))), "true_gamma"),
        (lambda: problem(cost_kind="bounded"), "nor with drift"),
        (lambda: problem(drift=-1e-3), "from one decision to the next"),
        (lambda: problem(drift=(1e-3, 1e-3)), "2 entries"),
    ],
    ids=["all facts", "one root", "told γ*", "bounded", "negative", "too many"],
)
def test_what_does_not_go_with_drift_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_a_plan_that_has_expired_is_not_simulated_as_if_it_had_not():
    world = uneven_world(7, drift=1e-3, finite=True)
    agent = RslucbQvi(world.problem, rng=np.random.default_rng(1))
    for run in (lambda: simulate_units(world, agent, 1, Streams.from_seed(1), Schedule()),
                lambda: simulate_stepwise(world, SlucbQvi(world.problem), 1, Streams.from_seed(1))):  # fmt: skip
        with pytest.raises(InputError, match="costs"):
            run()


def test_no_drift_is_todays_problem():
    """Declared as 0, or not at all: no blocks, and the same decisions to the last bit."""
    made = []
    for more in ({}, {"drift": 0.0}):
        agent = SlucbQvi(two_arm_problem(horizon=1, **more))
        assert agent.blocks is None
        decisions = []
        for _ in range(40):
            agent.plan()
            decisions.append(agent.act(0, 0))
            agent.observe(decisions[-1].outcome(reward=0.5, cost=0.2))
        made.append(choices(decisions))
    assert made[0] == made[1]
    assert decisions[-1].evidence[0].drift is None


def test_memory_does_not_grow_with_time():
    agent = play(SlucbQvi(problem()), 10)
    sizes = {name: array.nbytes for name, array in agent.arrays().items()}
    assert {name: array.nbytes for name, array in play(agent, 500).arrays().items()} == sizes


@pytest.mark.parametrize("mixes", [False, True])
def test_a_saved_agent_continues_bit_for_bit(mixes, tmp_path):
    told = problem(finite=mixes)
    agent = RslucbQvi(told, rng=np.random.default_rng(1)) if mixes else SlucbQvi(told)
    agent.watch = Monitor(told)
    play(agent, 37)
    agent.act(0, 0)
    agent.save(tmp_path / "agent")
    again, made = type(agent).restore(tmp_path / "agent", told), []
    for each in (agent, again):
        decisions = []
        for _ in range(30):
            decisions.append(each.act(0, 0))
            each.observe(decisions[-1].outcome(reward=0.5, cost=0.3))
        made.append(choices(decisions))
    assert made[0] == made[1]
    for name, array in agent.blocks.arrays().items():
        np.testing.assert_array_equal(array, again.blocks.arrays()[name])
    with pytest.raises(StateFileError, match="drift"):
        type(agent).restore(tmp_path / "agent", problem(finite=mixes, drift=0.02))
