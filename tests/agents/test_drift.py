"""Costs that drift, by hand: windows, blocks and their parts of δ, ages, time stamps, what is refused, and saving."""

from dataclasses import replace
from math import inf, pi, sqrt

import numpy as np
import pytest

from agents.cases import choices
from limits import restated
from tether import InputError, LsviUcb, Monitor, RslucbQvi, SlucbConfig, SlucbQvi, Transition
from tether.agents.certified import CertifiedAgent
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
    told = restated(told, baseline_cost=lambda step, state: costs[0])
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
        (lambda: problem(cost_kind="bounded"), "does not go with Drift"),
        (lambda: problem(drift=-1e-3), "from one decision to the next"),
    ],
    ids=["all facts", "one root", "told γ*", "bounded", "negative"],
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


# Drift per second: ages by time stamps. The same blocks, whose clock is the latest stamp.

EPOCH = 1.7e9


def in_seconds(**more):
    """σ = 0.1, ρ = 0.01 per second: (σ/ρ)^(2/3) = 4.6, in powers of two 8; windows of 1, 4, 16, 64 and 256 seconds."""
    return problem(drift_per="second", **more)


def play_at(agent, times, cost=0.3):
    """One decision at each time, each with an outcome of the other arm."""
    for time in times:
        decision = agent.act(0, 0, time=EPOCH + time)
        agent.observe(replace(decision.outcome(reward=0.5, cost=cost), feature=OTHER))
    return agent


def test_windows_in_seconds_are_powers_of_two_for_all_paces():
    """σ/ρ = 1e6 s: 1e4 seconds at one decision a second, 2^14; an eighth of that to 32 times that."""
    assert in_seconds().windows(1) == (1.0, 4.0, 16.0, 64.0, 256.0)
    slow = in_seconds(drift=1e-7)
    assert slow.windows(1) == tuple(2.0**power for power in (11, 13, 15, 17, 19))


def test_ages_are_seconds_between_stamps():
    """Outcomes of seconds 0, 2 and 5, and a decision at second 7: ages 7, 5 and 2, so that the radius grows by ρ√78."""
    agent, without = (play_at(SlucbQvi(in_seconds()), (0.0, 2.0, 5.0)) for _ in range(2))
    for each in (agent, without):
        each.blocks.used[0] = 8  # the window of 256 s
        each.blocks._changed.add(0)
        each._show_blocks()
    without.blocks.drift[:] = 0.0
    with_drift, still = (each.peek(0, 0, time=EPOCH + 7.0).evidence[0] for each in (agent, without))
    assert with_drift.radius.value - still.radius.value == pytest.approx(RHO * sqrt(49.0 + 25.0 + 4.0), rel=1e-5)
    shown = with_drift.drift
    assert (shown.per, shown.rate, shown.window, shown.since, shown.until) == (
        "second", RHO, 256.0, EPOCH, EPOCH + 7.0
    )  # fmt: skip


def test_one_decision_a_second_is_drift_per_decision():
    """With the same windows, decisions at seconds 0, 1, 2, … have the ages and blocks that their numbers give them."""
    by_number, by_time = SlucbQvi(problem()), SlucbQvi(in_seconds())
    for agent in (by_number, by_time):
        agent.blocks.windows = (8.0, 16.0, 32.0, 64.0, 128.0)[: len(agent.blocks.windows)]
        agent.blocks._window = np.tile(np.repeat(agent.blocks.windows, 2), 1)
    play(by_number, 150)
    play_at(by_time, np.arange(150.0))
    by_time.blocks._stamp(EPOCH + 150.0)  # the decision at hand, whose number is 150
    assert by_time.blocks.number[:8].tolist() == by_number.blocks.number.tolist()
    np.testing.assert_allclose(by_time.blocks.ages[:8], by_number.blocks.ages, rtol=1e-12)
    np.testing.assert_allclose(by_time.blocks.costs.gram[:8], by_number.blocks.costs.gram, rtol=1e-12)


def test_a_pause_makes_data_old_and_begins_blocks_anew():
    """After a night of 1000 s both blocks of every window up to 256 s are empty, and bounds begin anew."""
    agent = play_at(SlucbQvi(in_seconds()), np.arange(60.0))
    before, after = (agent.peek(0, 0, time=EPOCH + time).evidence[0] for time in (60.0, 1060.0))
    assert after.radius.value > 10.0 * before.radius.value  # nothing has changed yet: peek asks
    agent.act(0, 0, time=EPOCH + 1060.0)
    assert agent.blocks.number.tolist() == [1060, 1059, 264, 265, 66, 65, 16, 15, 4, 3]
    assert agent.blocks.costs.updates.tolist() == [0] * 10
    assert agent.blocks.costs.split[0] == pytest.approx(5.0 * pi**2 / 6.0 * 1061.0**2)


def test_stamps_in_any_order_never_make_an_outcome_younger():
    """|t − t_i| <= |t − clock| + (clock − t_i): a decision 3 s before the latest stamp ages all by 3 s more."""
    agent = play_at(SlucbQvi(in_seconds()), (0.0, 9.0, 4.0))
    assert agent.blocks.clock[0] == 9.0
    assert agent.blocks.ages[8].tolist() == [3.0, 9.0 + 0.0 + 5.0, 81.0 + 0.0 + 25.0]  # the third one is 5 s old
    agent.blocks.used[0] = 8
    agent.blocks._changed.add(0)
    agent._show_blocks()
    now, ago, later = (agent.peek(0, 0, time=EPOCH + time).evidence[0].radius.value for time in (9.0, 6.0, 12.0))
    assert ago == later > now
    assert ago - now == pytest.approx(RHO * (sqrt(12.0**2 + 3.0**2 + 8.0**2) - sqrt(106.0)), rel=1e-5)


def test_an_outcome_of_unknown_time_counts_nowhere():
    """Its decision had no stamp (a live clock that failed): it is older than every block."""
    agent = play_at(SlucbQvi(in_seconds()), (0.0, 1.0))
    agent.watch = Monitor(agent.problem)
    agent.expect("x", 0, OTHER, None)
    assert agent.order.expected("x").at == -inf
    before = agent.blocks.costs.updates.copy()
    agent.observe(Transition(0, 0, OTHER, 0.0, 0.9, None, "x"))
    assert agent.blocks.costs.updates.tolist() == before.tolist() and agent.watch.observations == 0
    saved = SlucbQvi(in_seconds())
    saved.expect("x", 0, OTHER, None)
    again = SlucbQvi(in_seconds()).order
    again.take_json(saved.order.to_json(), 2, 1)
    assert again.expected("x").at == -inf


@pytest.mark.parametrize("far", [2.0**53, 1e300, 1.7e308])
def test_a_stamp_too_far_ahead_to_number_blocks_by_moves_nothing(far):
    """Numbers of blocks are whole up to 2⁵³ windows of 1 s: a later stamp gets a_0, and its outcome counts nowhere."""
    agent, twin = (play_at(SlucbQvi(in_seconds()), (0.0, 1.0)) for _ in range(2))
    made = agent.act(0, 0, time=EPOCH + far)
    assert made.is_baseline or made.evidence[0].bound <= made.evidence[0].threshold
    agent.observe(replace(made.outcome(reward=0.5, cost=0.9), feature=OTHER))
    agent.observe(Transition(0, 0, OTHER, 0.0, 0.9, time=EPOCH + far))
    for name, array in twin.blocks.arrays().items():
        assert np.array_equal(agent.blocks.arrays()[name], array), name
    assert agent.peek(0, 0, time=EPOCH + 2.0).evidence == twin.peek(0, 0, time=EPOCH + 2.0).evidence


def test_an_outcome_without_a_decision_brings_its_time():
    agent = SlucbQvi(in_seconds())
    seen = Transition(0, 0, OTHER, 0.0, 0.3, time=EPOCH)
    agent.observe(seen)
    agent.observe(replace(seen, time=EPOCH + 3.0))
    assert agent.blocks.clock[[0, 2, 3]].tolist() == [3.0, EPOCH, 1.0]
    assert agent.blocks.ages[8].tolist() == [2.0, 3.0, 9.0]
    for time in (None, np.nan, "noon"):
        before = agent.data_version
        with pytest.raises(InputError, match="needs its time"):
            agent.observe(replace(seen, time=time))
        assert agent.data_version == before


def test_a_decision_without_its_time_is_refused():
    agent = play_at(SlucbQvi(in_seconds()), (0.0, 1.0))
    for ask in (agent.act, agent.peek):
        with pytest.raises(InputError, match=r"act\(step, state, time=…\)"):
            ask(0, 0)
        with pytest.raises(InputError, match="finite number of seconds"):
            ask(0, 0, time=np.nan)
    assert SlucbQvi(problem()).act(0, 0, time=5.0).time == 5.0  # it may be said anyway


def test_asking_changes_nothing():
    """However far away the time of a question is, what is saved afterwards is what was there before."""
    agent = play_at(SlucbQvi(in_seconds()), np.arange(20.0))
    before = {name: array.copy() for name, array in agent.arrays().items()}
    for time in (EPOCH - 1e6, EPOCH + 19.5, EPOCH + 1e6):
        agent.peek(0, 0, time=time)
        with pytest.raises(InputError):
            agent.peek(7, 0, time=time)
    for name, array in agent.arrays().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_a_saved_agent_is_restored_where_declared_safe_costs_have_moved_since(tmp_path):
    """A safe cost is a fact when it is declared: one that has drifted is no other problem, as long as φ is the same."""
    now, changes = [0.1], {"baseline_cost": lambda step, state: now[0]}
    moving = restated(problem(), **changes)
    agent = play(SlucbQvi(moving), 20)
    agent.register([0])
    agent.save(tmp_path / "agent.tether")
    now[0] = 0.15
    again = SlucbQvi.restore(tmp_path / "agent.tether", moving)
    assert again.peek(0, 0).evidence[0].baseline_cost == 0.15
    still = restated(problem(drift=0.0), **changes)
    agent = SlucbQvi(still)
    agent.register([0])
    agent.save(tmp_path / "still.tether")
    now[0] = 0.2
    with pytest.raises(StateFileError, match="other features or safe costs"):
        SlucbQvi.restore(tmp_path / "still.tether", still)


def test_a_saved_agent_continues_bit_for_bit_by_the_clock(tmp_path):
    told = in_seconds()
    agent = SlucbQvi(told)
    agent.watch = Monitor(told)
    play_at(agent, 0.7 * np.arange(37.0))
    agent.act(0, 0, time=EPOCH + 26.0)
    agent.save(tmp_path / "agent")
    again, made = SlucbQvi.restore(tmp_path / "agent", told), []
    for each in (agent, again):
        decisions = []
        for count in range(30):
            decisions.append(each.act(0, 0, time=EPOCH + 27.0 + 0.3 * count))
            each.observe(decisions[-1].outcome(reward=0.5, cost=0.3))
        made.append(choices(decisions))
    assert made[0] == made[1]
    for name, array in agent.blocks.arrays().items():
        np.testing.assert_array_equal(array, again.blocks.arrays()[name])
    with pytest.raises(StateFileError, match="its relax is"):
        SlucbQvi.restore(tmp_path / "agent", problem())


def test_agents_of_ones_own_decide_by_the_clock_too():
    class First(CertifiedAgent):
        def choose(self, options):
            return options.certified[0]

    agent = First(in_seconds(gamma_norm=0.6))
    for time in range(40):
        decision = agent.act(0, 0, time=EPOCH + time)
        agent.observe(decision.outcome(reward=0.0, cost=0.1))
    assert decision.evidence[0].drift.until == EPOCH + 39.0 and decision.time == EPOCH + 39.0
    with pytest.raises(InputError, match="time=…"):
        agent.act(0, 0)
