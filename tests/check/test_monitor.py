"""Monitor: what trips it, what does not, and how it is saved."""

import json

import numpy as np
import pytest

from check.cases import feed, linear, outcomes
from tether.check.monitor import (
    REACH_SHARE,
    SAFE_SHARE,
    SCALES,
    SHARES,
    Alarm,
    Monitor,
    SafePlays,
    Sums,
    excess_evidence,
    loss_evidence,
)
from tether.errors import InputError, StateFileError
from worlds import simplex_problem


def test_costs_that_are_linear_raise_no_alarm():
    """Level 0.01 each, seeds 0..3, 800 observations; tests/statistical measures the rate."""
    for seed in range(4):
        assert feed(Monitor(simplex_problem()), outcomes(seed, 800, linear)) is None


@pytest.mark.parametrize(
    ("test", "latest", "cost", "noise"),
    [
        ("shape", 500, lambda g, x, t: g @ x + 1.5 * x[0] ** 2, 0.1),
        ("drift", 700, lambda g, x, t: g @ x + 0.1 * (t >= 500), 0.1),
        ("drift", 700, lambda g, x, t: g @ x + 0.5 * x[1] * (t >= 500), 0.1),
        ("noise", 300, linear, 0.15),
        ("norm", 300, lambda g, x, t: 20.0 * x[0], 0.1),
    ],
    ids=["curved", "shifted half-way", "turned half-way", "noisy", "steep"],
)
def test_each_failure_is_found_soon_and_named(test, latest, cost, noise):
    for seed in range(3):
        monitor = Monitor(simplex_problem())
        count = feed(monitor, outcomes(seed, latest, cost, noise=noise))
        assert count is not None, seed
        assert monitor.alarm.test == test
        assert monitor.alarm.evidence >= monitor.alarm.limit == monitor.limit
        assert monitor.alarm.observations == count and monitor.alarm.constraint == 0
        if test == "drift":
            assert count > 500


def moving(rate):
    """Costs ⟨γ + t·rate·e_1, x⟩."""
    return lambda g, x, t: g @ x + rate * t * x[1]


@pytest.mark.parametrize(("size", "share", "latest"), [(10.0, 0.01, 700), (20.0, 0.002, 1000)])
def test_rare_large_noise_is_found_though_its_variance_is_below_that_of_sigma(size, share, latest):
    """±10 σ in 1 % of the outcomes and ±20 σ in 0.2 % are σ² and 0.8 σ² on average; there is no other noise."""
    for seed in range(4):
        rng, monitor = np.random.default_rng(seed), Monitor(simplex_problem())
        jumps = 0.1 * size * rng.choice([-1.0, 0.0, 1.0], size=latest, p=[share / 2, 1 - share, share / 2])
        found = feed(monitor, outcomes(seed, latest, lambda g, x, t, jumps=jumps: g @ x + jumps[t], noise=0.0))
        assert found is not None and found > np.flatnonzero(jumps)[0]
        assert monitor.alarm.test == "noise" and "σ beyond what they predict" in monitor.alarm.message


def test_a_direction_that_nobody_has_seen_is_not_taken_for_large_noise():
    """No noise at all, ‖γ*‖ = B = 20 σ: the first costs of a new direction lie 20 σ from the estimate, as they may."""
    monitor = Monitor(simplex_problem(gamma_norm=2.0))
    for t in range(200):
        x = np.eye(4)[t // 50]
        monitor.observe(0, x, np.array([2.0 * x[3]]))
    assert monitor.alarm is None and monitor._sums[0].far[1, 0] == 0.0


def test_stakes_on_large_noise_by_hand():
    """x = (0.6, 0), predicted 3 ± (2·0.3 + 0.2 + 0.1·|7 − 5|): a cost of 9 lies 5 beyond, one of 2.1 does not."""
    sums = Sums.empty(2, 1, 3)
    sums.stake(np.array([0.6, 0.0]), np.array([1e9]), 7.0, np.zeros(1), np.zeros(1))
    assert not sums.far.any()  # nothing is predicted yet
    sums.fitted, sums.length, sums.inverse = np.array([[1.0, 0.0]]), np.array([[5.0]]), np.diag([0.25, 1.0])
    sums.reach = np.array([2.0, 5.0])
    won = 0.0
    for cost, beyond in ((9.0, 5.0), (2.1, 0.0)):
        sums.stake(np.array([0.6, 0.0]), np.array([cost]), 7.0, np.array([0.2]), np.array([0.1]))
        won += np.log(0.99 + 0.01 * np.sqrt(0.2) * np.exp(0.4 * beyond**2))
        assert sums.far[:, 0] == pytest.approx([won, 5.0])


def test_a_declared_misfit_is_not_taken_for_large_noise():
    """A cost misses the linear model by ε = 10 σ at times."""
    missed = np.resize([0.0, 0.0, 0.0, 1.0], 400)
    monitor = Monitor(simplex_problem(misfit=1.0))
    assert feed(monitor, outcomes(0, 400, lambda g, x, t: g @ x + missed[t])) is None
    assert monitor._sums[0].far[1, 0] == 0.0


def test_a_declared_drift_raises_no_alarm_and_a_faster_one_does():
    """σ = 0.1; γ* moves by 5e-4 with each of 1500 decisions. Not declared, or ten times as fast: found."""
    problem = simplex_problem(drift=5e-4)
    for seed in range(3):
        assert feed(Monitor(problem), outcomes(seed, 1500, moving(5e-4))) is None
        monitor = Monitor(simplex_problem())
        assert feed(monitor, outcomes(seed, 1500, moving(5e-4))) is not None
        assert monitor.alarm.test == "drift"
        assert feed(Monitor(problem), outcomes(seed, 1500, moving(5e-3))) is not None
        told, untold = Monitor(problem), Monitor(simplex_problem())
        for each in (told, untold):
            feed(each, outcomes(seed, 60, moving(5e-4)))
        assert told.evidence()[0]["noise"] < untold.evidence()[0]["noise"]  # what drift explains is not counted


def test_tests_that_start_anew_where_costs_drift_share_the_level():
    """The j-th start has 6/(π²j²) of it. A scatter of 1.5σ is found by a later start, too."""
    monitor = Monitor(simplex_problem(drift=2e-3))
    feed(monitor, outcomes(0, 1000, moving(2e-3)))
    sums = monitor._sums[0]
    starts = int(sums.times[2])
    assert monitor.alarm is None and starts > 5 and sums.count < 300
    assert monitor._limit_of(sums) == pytest.approx(monitor.limit + np.log(np.pi**2 / 6 * (starts + 1) ** 2))
    again = Monitor.from_json(monitor.problem, json.loads(json.dumps(monitor.to_json())))
    assert again.to_json() == monitor.to_json()
    feed(again, outcomes(1, 600, moving(2e-3), noise=0.2))
    assert again.alarm is not None and again.alarm.test == "noise"


def test_a_curve_that_the_features_half_explain_is_still_found():
    """x_0² is close to linear in x; only what is left of it counts, and it is 0.4σ. Without P it takes longer."""
    monitor = Monitor(simplex_problem())
    count = feed(monitor, outcomes(0, 600, lambda g, x, t: g @ x + 0.8 * x[0] ** 2))
    assert count is not None and monitor.alarm.test == "shape"


def test_a_cost_that_depends_on_the_state_is_found_when_states_are_told():
    """Two states with the same features; one costs 0.1 = σ more."""
    rng, told, untold = np.random.default_rng(0), Monitor(simplex_problem()), Monitor(simplex_problem())
    for _ in range(600):
        x, state = rng.dirichlet(np.ones(4)), int(rng.integers(2))
        z = np.array([0.5 * x[0] + 0.1 * state + 0.1 * rng.standard_normal()])
        told.observe(0, x, z, 0.0, ("state", state))
        untold.observe(0, x, z, 0.0)
    assert told.alarm is not None and told.alarm.test == "shape"
    assert "a group of states" in told.alarm.message
    assert untold.alarm is None


def test_an_alarm_stays_until_reset_and_says_why_it_was_reset():
    monitor = Monitor(simplex_problem())
    feed(monitor, outcomes(0, 600, linear, noise=0.3))
    first = monitor.alarm
    assert first is not None
    for x, z in outcomes(1, 800, linear):
        monitor.observe(0, x, z, 0.0)
    assert monitor.alarm is first
    monitor.reset("the sensor was replaced")
    assert monitor.alarm is None and monitor.observations == 0
    assert monitor.resets == [f"the sensor was replaced (after: {first})"]
    assert feed(monitor, outcomes(1, 400, linear)) is None


def test_an_alarm_reads_as_a_sentence():
    alarm = Alarm("noise", "the costs scatter", 7.25, 4.6, 120, 1)
    expected = "noise test of cost 1: the costs scatter (log evidence 7.2 >= 4.6 after 120 observations)."
    assert str(alarm) == expected
    assert str(Alarm("shape", "bent", 5.0, 4.6, 9, -1)).startswith("shape test of the reward: bent")


def test_the_level_is_divided_among_steps_and_constraints():
    assert Monitor(simplex_problem(), level=0.05).limit == pytest.approx(np.log(1 / 0.05))
    both = simplex_problem(horizon=3, constraints=2)
    assert Monitor(both, level=0.05).limit == pytest.approx(np.log(6 / 0.05))
    assert Monitor(both, level=0.05, pooled=True).limit == pytest.approx(np.log(2 / 0.05))
    assert Monitor(both, level=0.05, pooled=True, reward_noise=0.5, trip_on_reward=True).limit == pytest.approx(
        np.log(3 / 0.05)
    )
    assert Monitor(both).level == both.confidence
    assert sum(SHARES.values()) + REACH_SHARE + SAFE_SHARE == pytest.approx(1.0)


def test_steps_are_tested_apart_unless_pooled():
    """Step 1 costs 0.3 more than step 0: linear at each step, and only pooling makes it look like scatter."""
    problem = simplex_problem(horizon=2)
    apart, pooled = Monitor(problem), Monitor(problem, pooled=True)
    for t, (x, z) in enumerate(outcomes(5, 500, linear)):
        for monitor in (apart, pooled):
            monitor.observe(t % 2, x, z + 0.3 * (t % 2), 0.0)
    assert apart.alarm is None and pooled.alarm is not None
    assert apart.observations == pooled.observations == 500


def test_the_constraint_that_fails_is_the_one_that_is_named():
    problem = simplex_problem(constraints=2)
    monitor = Monitor(problem)
    for x, z in outcomes(0, 400, linear):
        monitor.observe(0, x, np.array([z[0], z[0] + 1.5 * x[0] ** 2]), 0.0)
    assert monitor.alarm.constraint == 1


@pytest.mark.parametrize("trips", [False, True])
def test_a_reward_that_is_not_linear_warns_and_trips_only_on_request(trips):
    monitor = Monitor(simplex_problem(), reward_noise=0.1, trip_on_reward=trips)
    for x, z in outcomes(0, 800, linear):
        monitor.observe(0, x, z, float(0.8 * x[0] ** 2))
    assert monitor.warning is not None and monitor.warning.constraint == -1
    assert (monitor.alarm is not None) is trips


def test_a_missing_cost_changes_no_test_but_that_of_losses():
    monitor, other = Monitor(simplex_problem()), Monitor(simplex_problem())
    for number, (x, z) in enumerate(outcomes(0, 300, linear)):
        monitor.observe(0, x, z)
        other.observe(0, x, z)
        if number % 3 == 0:
            other.observe(0, np.full(4, 0.25), None, 0.3)
    assert other.observations == monitor.observations == 300
    mine, theirs = monitor.evidence()[0], other.evidence()[0]
    assert {test: mine[test] for test in mine if test != "loss"} == {
        test: theirs[test] for test in mine if test != "loss"
    }
    assert mine["loss"] != theirs["loss"]


def test_the_evidence_on_losses_by_hand():
    """n = 2, k = 2: 2³ ∫_{½}^1 p² dp = 8 · (1 − ⅛)/3 = 7/3; k = 1: 8 ∫ p(1−p) dp = 8/12; k = 0: 8 · (1/24) = 1/3."""
    values = np.exp(loss_evidence(np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0], [0.0, 0.0]])))
    np.testing.assert_allclose(values, [7 / 3, 2 / 3, 1 / 3, 1.0], rtol=1e-12)


def test_ever_more_cheap_decisions_that_lose_their_cost_raise_no_alarm():
    """k = 0 of n: 2ⁿ⁺¹ ∫_{½}^1 (1−p)ⁿ dp = 1/(n + 1), also where the integral is under the smallest number."""
    counts = np.array([10.0, 900.0, 5000.0, 1e6])
    found = loss_evidence(np.stack([np.zeros(4), counts], axis=1))
    np.testing.assert_allclose(found[:2], -np.log(counts[:2] + 1.0), rtol=1e-9)
    assert (found[2:] < 0.0).all()


@pytest.mark.parametrize("by_chance", [True, False])
def test_costs_that_get_lost_because_they_are_high_raise_the_alarm(by_chance):
    """Six runs of 2000 outcomes: 30 % lost by chance, or all that read more than the median. Level 0.01 a run."""
    for seed in range(6):
        stream, rng = list(outcomes(seed, 2000, linear)), np.random.default_rng([seed, 1])
        median = np.median([z[0] for _, z in stream])
        monitor = Monitor(simplex_problem())
        for x, z in stream:
            lost = rng.uniform() < 0.3 if by_chance else z[0] > median
            monitor.observe(0, x, None if lost else z)
        assert (monitor.alarm is None) == by_chance
        assert by_chance or (monitor.alarm.test == "loss" and "dearer one in" in str(monitor.alarm))


@pytest.mark.parametrize("lost", ["at-random", "worst-case"])
def test_an_alarm_says_that_losses_may_be_behind_it_where_bounds_allow_for_them(lost):
    """Every third cost gets lost, and the noise is 0.4 where 0.1 is declared."""
    monitor = Monitor(simplex_problem(lost=lost, cost_range=(-3.0, 3.0)))
    for t, (x, z) in enumerate(outcomes(0, 150, linear, noise=0.4)):
        monitor.observe(0, x, None if t % 3 == 0 else z)
    assert monitor.alarm.test == "noise"
    assert ("Or costs get lost by their size" in monitor.alarm.message) == (lost == "worst-case")


def test_features_are_measured_in_units_of_their_declared_norm():
    """The same outcomes with φ and its limit ten times as large, and B a tenth: the same evidence."""
    small, large = simplex_problem(), simplex_problem(feature_norm=10.0, gamma_norm=0.2)
    one, ten = Monitor(small), Monitor(large)
    for x, z in outcomes(0, 300, linear):
        one.observe(0, x, z, 0.0)
        ten.observe(0, 10.0 * x, z, 0.0)
    for test, value in one.evidence()[0].items():
        assert ten.evidence()[0][test] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("after", [5, 40, 300])
def test_a_saved_monitor_goes_on_bit_for_bit(after):
    problem = simplex_problem(horizon=2, constraints=2)
    whole = Monitor(problem, reward_noise=0.5, level=0.02)
    stream = [(x, np.array([z[0], 2 * z[0]])) for x, z in outcomes(8, 400, linear)]
    for t, (x, z) in enumerate(stream):
        if t == after:
            part = Monitor.from_json(problem, json.loads(json.dumps(whole.to_json())))
        whole.observe(t % 2, x, z, 0.25, t % 7)
        if t >= after:
            part.observe(t % 2, x, z, 0.25, t % 7)
    assert part.to_json() == whole.to_json()
    assert part.evidence() == whole.evidence() and part.level == 0.02


def test_a_saved_alarm_and_the_resets_come_back():
    monitor = Monitor(simplex_problem())
    monitor.reset("a try")
    feed(monitor, outcomes(0, 600, linear, noise=0.3))
    again = Monitor.from_json(simplex_problem(), json.loads(json.dumps(monitor.to_json())))
    assert again.alarm == monitor.alarm is not None
    assert again.resets == ["a try (after: no alarm)"]


def damaged(change):
    saved = Monitor(simplex_problem()).to_json()
    change(saved)
    return saved


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: saved.pop("sums"),
        lambda saved: saved.update(format="other"),
        lambda saved: saved["sums"][0].update(gram="!!"),
        lambda saved: saved["sums"][0].update(gram=saved["sums"][0]["square"]),
        lambda saved: saved["sums"].append(saved["sums"][0]),
        lambda saved: saved["settings"].update(level="high"),
        lambda saved: saved.update(alarm={"test": "noise"}),
        lambda saved: saved["sums"][0].update(counts="AAAAAAAA+H8AAAAAAAAAAAAAAAAAAAAA"),
    ],
)
def test_a_damaged_monitor_is_refused(change):
    with pytest.raises(StateFileError):
        Monitor.from_json(simplex_problem(), damaged(change))


def test_a_monitor_of_another_problem_is_refused():
    with pytest.raises(StateFileError, match="another problem"):
        Monitor.from_json(simplex_problem(noise=0.2), Monitor(simplex_problem()).to_json())


@pytest.mark.parametrize(
    ("step", "feature", "cost", "reward"),
    [
        (0, [0.5, 0.5, 0.0], [0.1], 0.0),
        (0, [np.nan, 0.5, 0.0, 0.0], [0.1], 0.0),
        (0, [0.25] * 4, [np.inf], 0.0),
        (0, [0.25] * 4, [0.1, 0.2], 0.0),
        (0, [0.25] * 4, [0.1], np.nan),
        (3, [0.25] * 4, [0.1], 0.0),
    ],
)
def test_an_outcome_that_cannot_be_counted_is_refused_and_leaves_no_trace(step, feature, cost, reward):
    monitor = Monitor(simplex_problem())
    with pytest.raises(InputError):
        monitor.observe(step, np.array(feature), np.array(cost), reward)
    assert monitor.observations == 0


def test_sums_that_overflow_raise_the_alarm():
    monitor = Monitor(simplex_problem())
    for x, _ in outcomes(0, 10, linear):
        monitor.observe(0, x, np.array([1e200]), 0.0)
    assert monitor.alarm is not None and monitor.alarm.test == "numbers"
    strict = json.loads(json.dumps(monitor.to_json(), allow_nan=False))
    assert Monitor.from_json(simplex_problem(), strict).alarm == monitor.alarm


@pytest.mark.parametrize("settings", [{"level": 0.0}, {"level": 1.0}, {"reward_noise": 0.0}, {"trip_on_reward": True}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(InputError):
        Monitor(simplex_problem(), **settings)


def test_evidence_does_not_depend_on_how_often_one_looks():
    """`look` changes what the tests have concluded, never what they have seen (but for the predicted direction)."""
    monitor = Monitor(simplex_problem())
    for x, z in outcomes(0, 7, linear):
        monitor.observe(0, x, z, 0.0)
    before = monitor.evidence()
    monitor.look()
    assert monitor.evidence() == before


# The safe action's own cost.


def test_the_evidence_on_an_excess_is_the_integral_over_positive_tilts():
    """∫ 2√(ρ/2π) exp(−ρλ²/2) exp(λS − nλ²/2) dλ over λ > 0, averaged over ρ; for S of both signs."""
    for total, count in ((4.0, 9.0), (-3.0, 9.0), (0.0, 0.0), (30.0, 100.0)):
        values = []
        for scale in SCALES:
            size = 8.0 / np.sqrt(count + scale)
            tilts = np.linspace(0.0, max(size, 2.0 * total / (count + scale) + size), 200_001)
            density = 2.0 * np.sqrt(scale / (2.0 * np.pi)) * np.exp(-0.5 * scale * tilts**2)
            values.append(np.trapezoid(density * np.exp(tilts * total - 0.5 * count * tilts**2), tilts))
        found = excess_evidence(np.array([total]), np.array([count]))[0]
        assert found == pytest.approx(np.log(np.mean(values)), abs=1e-3)


@pytest.mark.parametrize("gap", [1e6, 1e8, 1e10, 1e150])
def test_a_safe_action_far_under_the_threshold_is_never_accused(gap):
    """S = −n·gap, as where σ is tiny: the mixture is √(2ρ/π)/|S| but for n/S² of it. As ½z² + log Φ(z) it is noise."""
    count = np.arange(1.0, 300.0)
    found = excess_evidence(-gap * count, count)
    np.testing.assert_allclose(found, np.log(np.sqrt(2.0 * SCALES / np.pi).mean()) - np.log(gap * count), rtol=1e-9)


def safe_plays(monitor, mean, count, *, key=None, seed=0, sigma=0.1):
    """Outcomes of a_0 with this mean cost, until an alarm."""
    rng, x = np.random.default_rng(seed), np.full(monitor.problem.dimension, 0.25)
    for n in range(1, count + 1):
        monitor.observe(0, x, np.array([mean + sigma * rng.standard_normal()]), 0.0, key, True)
        if monitor.alarm:
            return n
    return None


def test_a_safe_action_over_the_threshold_raises_the_alarm_though_its_cost_was_never_declared():
    problem = simplex_problem(threshold=0.5, baseline_cost=None)
    monitor = Monitor(problem)
    assert safe_plays(monitor, 0.55, 400) is not None
    assert monitor.alarm.test == "safe"
    assert "the safe action itself costs more than τ, by 0." in str(monitor.alarm)
    assert "safer action" in str(monitor.alarm)


def test_a_safe_action_at_the_threshold_raises_no_alarm():
    problem = simplex_problem(threshold=0.5, baseline_cost=None)
    assert safe_plays(Monitor(problem), 0.5, 1500) is None


def test_what_other_actions_cost_says_nothing_about_the_safe_one():
    monitor = Monitor(simplex_problem(threshold=0.5, baseline_cost=None))
    for x, z in outcomes(0, 100, lambda gamma, x, t: 0.9):
        monitor.observe(0, x, z)
    assert monitor.evidence()[0]["safe"] == pytest.approx(np.log(SAFE_SHARE))


def test_one_group_of_states_where_the_safe_action_is_unsafe_is_found_among_many_where_it_is_safe():
    """Pooled, the others' costs of τ − 5σ would hide it."""
    monitor = Monitor(simplex_problem(threshold=0.5, baseline_cost=None))
    rng, x = np.random.default_rng(1), np.full(4, 0.25)
    for n in range(100):
        state = n % 5
        mean = 0.7 if state == 3 else 0.0
        monitor.observe(0, x, np.array([mean + 0.1 * rng.standard_normal()]), 0.0, state, True)
        if monitor.alarm and monitor.alarm.test == "safe":
            break
    assert monitor.alarm.test == "safe"
    assert "in one group of states" in str(monitor.alarm)


def warm_rooms(monitor, slope, episodes):
    """a_0 costs `slope(h)` more in a warm room than in a cold one, 0.3 on average; no two rooms are the same."""
    rng = np.random.default_rng(2)
    for _ in range(episodes):
        for step in range(int(monitor.problem.horizon)):
            warmth = rng.random()
            cost = 0.3 + slope(step) * (warmth - 0.5) + 0.1 * rng.standard_normal()
            x = np.array([0.6, 0.6 * warmth, 0.0, 0.0])
            monitor.observe(step, x, np.array([cost]), 0.0, float(warmth), True)
    return monitor.alarm


@pytest.mark.parametrize(
    ("horizon", "slope", "episodes"),
    [(1, lambda h: 0.64, 400), (2, lambda h: 0.64 * (-1) ** h, 400), (100, lambda h: 0.64, 5)],
    ids=["one step", "steps that differ", "too few outcomes of each step"],
)
def test_few_of_many_states_in_which_the_safe_action_is_unsafe_are_foreseen(horizon, slope, episodes):
    """τ = 0.5, σ = 0.1: over τ in a fifth of the rooms by at most 1.2 σ, under it by 2 σ on average."""
    problem = simplex_problem(horizon=horizon, threshold=0.5, baseline_cost=None)
    alarm = warm_rooms(Monitor(problem), slope, episodes)
    assert (
        alarm is not None and alarm.test == "safe" and "by what the costs before predict, in some of " in alarm.message
    )
    assert warm_rooms(Monitor(problem), lambda h: 0.4, episodes) is None


def test_stakes_are_on_foreseen_excess_alone_and_are_paid_for():
    """λ = 0, 1 and, cut, 3; each adds λx − ½λ²."""
    plays = SafePlays.none(3)
    foreseen = np.array([[-2.0, 1.0, 9.0], [-2.0, -2.0, 1.0]])
    plays.add(np.array([0.5, 0.5, 0.5]), foreseen, None)
    assert plays.won.tolist() == [[0.0, 0.0, -3.0], [0.0, 0.0, 0.0]]
    plays.add(np.array([2.0, 2.0, 2.0]), foreseen, None)
    assert plays.won.tolist() == [[0.0, 1.5, -1.5], [0.0, 0.0, 1.5]]


def test_an_unsafe_safe_action_replaces_any_other_alarm():
    """After another alarm only a_0 is played; if that is unsafe, too, it is what must be said."""
    monitor = Monitor(simplex_problem(threshold=0.5, baseline_cost=None))
    monitor.observe(0, np.eye(4)[0], np.array([1e200]))
    monitor.look()
    assert monitor.alarm.test != "safe"
    for _ in range(200):
        monitor.observe(0, np.full(4, 0.25), np.array([0.9]), 0.0, None, True)
    assert monitor.alarm.test == "safe"


def test_a_restored_monitor_remembers_the_outcomes_of_the_safe_action():
    problem = simplex_problem(horizon=2, threshold=0.5, baseline_cost=None)
    one, other = Monitor(problem), Monitor(problem)
    for half in (0, 1):
        assert safe_plays(one, 0.52, 20, seed=half) is None and safe_plays(other, 0.52, 20, seed=half) is None
        other = Monitor.from_json(problem, other.to_json())
    assert one.evidence() == other.evidence() and one.to_json() == other.to_json()
    with pytest.raises(StateFileError, match="another problem"):
        Monitor.from_json(simplex_problem(threshold=0.6, baseline_cost=None), one.to_json())
