"""The interval of the uplift by hand: pseudo-outcomes, both ends, what never came, what cannot be, and restarts."""

import json
from math import inf, log

import numpy as np
import pytest

from live.plant import Plant
from tether import Advisor, Upkeep
from tether.errors import InputError
from tether.live.canary import Canary, Trial
from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria, Guards
from tether.live.replica import Replica
from tether.live.uplift import ERROR, RATES, Gain, Side, Uplift, cost_spans, pseudo_outcome
from worlds import world_and_streams


def test_a_pseudo_outcome_weighs_what_was_seen_by_its_probability():
    """p = 1/4, guesses 0.5 and 0.25: 0.75 seen of the proposal is 0.25 + 0.25·4, of a_0 it is 0.25 − 0.5·4/3."""
    assert pseudo_outcome(0.25, True, 0.75, (0.5, 0.25)) == 1.25
    assert pseudo_outcome(0.25, False, 0.75, (0.5, 0.25)) == pytest.approx(0.25 - 2.0 / 3.0)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_its_mean_over_the_draw_is_the_gain_whatever_the_guess(share):
    for first, second, guess in [(0.9, 0.2, (0.0, 1.0)), (0.3, 0.3, (0.4, 0.1))]:
        drawn = share * pseudo_outcome(share, True, first, guess)
        other = (1.0 - share) * pseudo_outcome(share, False, second, guess)
        assert drawn + other == pytest.approx(first - second)


def test_one_end_of_an_interval_by_hand():
    """y = 1 after a guess of 0 that could be −2 at least: s = 2, so with λ = 1/4, ψ(1/2)/4 = (log 2 − 1/2)/4."""
    side = Side()
    side.add(1.0, -2.0, 0.0)
    assert side.spread[0] == inf, "λ = 1/2 is too large for a reach of 2"
    assert side.spread[1] == pytest.approx((log(2.0) - 0.5) / 4.0)
    assert side.under(3.0) == 1.0 - min((3.0 + v) / rate for v, rate in zip(side.spread, RATES, strict=True))
    side.add(0.0, -2.0, 0.0)
    assert side.spread[0] == inf and side.total == 1.0


def test_each_factor_of_the_supermartingale_has_a_mean_of_at_most_one():
    """E exp(λ(Y − μ) − ψ(λs)((Y − ŷ)/s)²) <= 1 for the draw itself, for all guesses, probabilities and both ends."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        share, first, second, guess = rng.uniform(0.02, 0.98), rng.random(), rng.random(), tuple(rng.random(2))
        values = [pseudo_outcome(share, True, first, guess), pseudo_outcome(share, False, second, guess)]
        least = min(pseudo_outcome(share, True, 0.0, guess), pseudo_outcome(share, False, 1.0, guess))
        expected, means = rng.uniform(-1.0, 1.0), np.zeros(len(RATES))
        for y, chance in zip(values, (share, 1.0 - share), strict=True):
            side = Side()
            side.add(y, least, expected)
            means += chance * np.exp(np.array(RATES) * (y - (first - second)) - np.array(side.spread))
        assert (means <= 1.0 + 1e-12).all()


def trial(played, share=0.5):
    return Trial(share, played, (0.5, 0.5))


def test_what_never_came_counts_as_the_worst_at_each_end():
    sure, lost = Gain((0.0, 1.0)), Gain((0.0, 1.0))
    for number in range(400):
        for gain in (sure, lost):
            value = None if gain is lost and number % 10 == 0 else 0.5
            gain.add(trial(number % 2 == 0), value, (0.5, 0.5))
    narrow, wide = sure.interval(5.0), lost.interval(5.0)
    # of 40 lost ones of the proposal each counts as 0 or 1: Y is ∓1
    assert wide.low < narrow.low and wide.high > narrow.high
    assert lost.low.total == -40.0 and lost.high.total == -40.0 and wide.estimate == 0.0


def test_a_reward_outside_the_declared_range_voids_the_interval_and_says_so():
    uplift = Uplift(reward_range=(0.0, 1.0))
    for id, reward in (("a", 0.5), ("b", 1.5), ("c", 0.5)):
        uplift.expect(id, Canary(0.5, (0.5, 0.5)), played=True)
        uplift.settle(id, reward, None)
    status = uplift.status()
    assert status.reward is None and status.compared == 3
    assert "1.5 was seen, and 0 to 1 was declared" in status.why and "1.5" in uplift.unmet(0.0)


def test_without_a_range_there_is_no_interval_and_costs_have_theirs():
    uplift = Uplift(cost_spans=((-1.0, 1.0),))
    uplift.expect("a", Canary(0.5, (0.5, 0.5)), played=True)
    uplift.settle("a", 3.0, (0.2,))
    status = uplift.status()
    assert status.reward is None and "reward_range" in status.why
    assert status.costs[0].low <= status.costs[0].estimate <= status.costs[0].high


def test_the_intervals_of_all_comparisons_of_a_log_hold_together():
    uplift, shares = Uplift(reward_range=(0.0, 1.0)), []
    for number in range(1, 60):
        shares.append(2.0 * len(RATES) * np.exp(-uplift.level))
        assert uplift.number == number
        uplift.expect("a", Canary(0.5, (0.5, 0.5)), played=True)
        uplift.settle("a", 0.5, None)
        uplift = uplift.anew((0.0, 1.0), ())
    assert sum(shares) < ERROR
    assert uplift.anew((0.0, 1.0), ()).number == uplift.number, "one that compared nothing used up nothing"


def test_about_so_many_more_decisions_show_the_gain():
    """Decisions like those so far: after as many as were announced, the lower end is above the target, not before."""
    rng, gain = np.random.default_rng(3), Gain((0.0, 1.0))
    sample = [(bool(rng.random() < 0.5), rng.random()) for _ in range(100)]
    for played, noise in sample:
        gain.add(trial(played), 0.5 * played + 0.5 * noise, (0.75, 0.25))
    more = gain.needed(7.0, 0.45)
    assert 100 < more < 10_000 and gain.needed(7.0, 2.0) == inf
    while gain.interval(7.0).low <= 0.45:
        for played, noise in sample:
            gain.add(trial(played), 0.5 * played + 0.5 * noise, (0.75, 0.25))
    assert 0.8 * more < gain.count - 100 < 1.3 * more + 100


def test_rewards_in_other_units_give_the_interval_in_those_units():
    one, other = Gain((0.0, 1.0)), Gain((10.0, 30.0))
    for number in range(50):
        value = (number % 7) / 7.0
        one.add(trial(number % 2 == 0), value, (0.5, 0.4))
        other.add(trial(number % 2 == 0), 10.0 + 20.0 * value, (20.0, 18.0))
    assert np.allclose(20.0 * np.array(one.interval(6.0)), other.interval(6.0))


def test_a_snapshot_brings_the_comparison_back():
    world, store = world_and_streams(3, horizon=1)[0], MemoryStore()
    guards = Guards(canary=0.5, reward_range=(-2.0, 2.0), guarded_rate=1.0)
    advisor = Advisor(world.problem, store, guards=guards, criteria=Criteria.none(), upkeep=Upkeep(refresh=None))
    plant = Plant(world.true_gamma)
    plant.play(advisor, 30)
    advisor.promote("guarded", by="me", why="test")
    plant.play(advisor, 40)
    open_one = next(made for made in (advisor.decide(s % 4) for s in range(40)) if made.canary is not None)
    plant.play(advisor, 10)
    uplift = advisor.replica.ledger.uplift
    assert uplift.compared and len(uplift.trials) > 1, "the rest waits for it"
    fresh = Advisor(world.problem, store, upkeep=Upkeep(refresh=None)).replica.learner
    again = Replica.from_bytes(advisor.replica.to_bytes(), type(fresh)(world.problem, fresh.config))
    assert json.dumps(again.ledger.uplift.to_json()) == json.dumps(uplift.to_json())
    again.ledger.uplift.settle(open_one.id, 0.5, None)
    assert again.ledger.uplift.compared > uplift.compared


def test_a_range_must_be_one_and_can_be_declared_later():
    with pytest.raises(InputError, match="reward_range"):
        Guards(reward_range=(1.0, 0.0))
    world, store = world_and_streams(3, horizon=1)[0], MemoryStore()
    Advisor(world.problem, store)
    assert Advisor(world.problem, store).status().uplift.reward is None
    later = Advisor(world.problem, store, guards=Guards(reward_range=[0.0, 1.0]))
    assert later.replica.ledger.uplift.reward.span == (0.0, 1.0)


def test_costs_lie_where_outcomes_are_accepted():
    told = {"bounded": [False, True], "gamma_norm": [2.0, 1.0], "sample_error": [0.1, 0.0], "noise": [0.05, 0.5]}
    assert cost_spans({**told, "feature_norm": 3.0}) == ((-6.6, 6.6), (0.0, 1.0))
