"""What RSLUCB-QVI promises beyond the other agents: its coin, its mixtures, and what its bounds are bounds on."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from agents.cases import CASES, RANDOMISED
from limits import restated
from tether import Constraint, InputError, Problem, RslucbQvi, SlucbConfig
from tether.agents.testing import essence, play
from tether.errors import StateFileError
from tether.lab.simulate import simulate, simulate_stepwise
from tether.lab.worlds.linear_mdp import Streams
from worlds import many_actions, small_world

every_randomised_agent = pytest.mark.parametrize("name", RANDOMISED)


@every_randomised_agent
def test_a_decision_carries_its_mixture_and_says_that_it_bounds_an_expected_cost(name):
    case = CASES[name]
    mixed = 0
    for d in (d for seed in (61, 62) for d in play(case.world, case.make(), Streams.from_seed(seed), 30)):
        actions, theta = case.world.problem.actions(d.state), d.mixture.probabilities
        assert all(bound.bounds == "expected cost" for bound in d.evidence)
        assert len(theta) == len(actions.endpoints)
        assert (theta >= 0.0).all()
        rest = 0.0 if not actions.is_star else d.mixture.baseline
        assert theta.sum() + rest == pytest.approx(1.0, abs=1e-12)
        if not actions.is_star:
            assert d.mixture.baseline == theta[actions.baseline]
        np.testing.assert_allclose(d.mean_feature, theta @ actions.endpoints + rest * actions.phi_0, atol=1e-15)
        assert d.mean_feature is d.mixture.mean_feature
        mixed += 0.0 < d.mixture.baseline < 1.0
    assert mixed > 10


@every_randomised_agent
def test_a_drawn_action_has_positive_probability_and_is_an_action(name):
    case = CASES[name]
    for d in play(case.world, case.make(), Streams.from_seed(62), 30):
        actions = case.world.problem.actions(d.state)
        if d.is_baseline:
            assert d.mixture.baseline > 0.0
            np.testing.assert_array_equal(d.feature, actions.phi_0)
            if not actions.is_star:
                assert d.action == actions.baseline
        else:
            row = d.action.ray if actions.is_star else d.action
            assert d.mixture.probabilities[row] > 0.0
            np.testing.assert_array_equal(d.feature, actions.endpoints[row])


@every_randomised_agent
def test_bounds_are_on_the_mixture_and_under_the_threshold_whatever_was_drawn(name):
    """The coin does not touch the evidence: a drawn a_0 shows the bound of the mixture that it was drawn from."""
    case = CASES[name]
    drawn_safe = 0
    for d in play(case.world, case.make(), Streams.from_seed(63), 30):
        for bound in d.evidence:
            assert bound.bound <= bound.threshold
            assert bound.bound >= bound.baseline_cost or d.mixture.baseline < 1.0
        if d.is_baseline and d.mixture.baseline < 1.0:
            drawn_safe += 1
            assert d.reason == "best"
            assert d.cost_bound != pytest.approx(d.tightest.baseline_cost, abs=1e-12)
    assert drawn_safe > 1


def test_a_single_action_may_cost_more_than_the_threshold_but_not_on_average():
    """This is what "expected cost" means; seed 64, 150 episodes, the theorem's radius (δ = 0.01, a fixed seed)."""
    case = CASES["rslucb-paper"]
    world, decisions = case.world, play(case.world, case.make(), Streams.from_seed(64), 150)
    single = np.array([world.true_gamma[d.step, 0] @ d.feature for d in decisions])
    mean = np.array([world.true_gamma[d.step, 0] @ d.mean_feature for d in decisions])
    assert (single > 0.5).any()
    assert mean.max() <= 0.5 + 1e-12


@pytest.mark.parametrize("name", ["rslucb-star", "rslucb-finite", "rslucb-two-constraints"])
def test_actions_are_drawn_as_often_as_the_mixture_says(name):
    """1,500 draws from one plan at every (h, s) with a real mixture. Exact binomial test of each action that has
    probability, so that the false-alarm rate is below 1e-6 in all (Bonferroni over at most 100 of them)."""
    case = CASES[name]
    agent, streams = case.make(), Streams.from_seed(65)
    agent.register(range(4))
    play(case.world, agent, streams, 8)
    agent.plan()
    tested, draws = 0, 1500
    for step in range(3):
        for state in range(4):
            first = agent.act(step, state)
            theta = np.append(first.mixture.probabilities, 0.0)
            if case.world.problem.actions(state).is_star:
                theta[-1] = first.mixture.baseline
            if theta.max() > 0.95 or tested >= 100:
                continue
            counts = np.zeros(len(theta), dtype=int)
            for _ in range(draws):
                d = agent.act(step, state)
                star = case.world.problem.actions(state).is_star
                counts[-1 if d.is_baseline and star else d.action.ray if star else d.action] += 1
            assert counts[theta == 0.0].sum() == 0
            for row in np.flatnonzero(theta > 0.0):
                assert stats.binomtest(int(counts[row]), draws, min(float(theta[row]), 1.0)).pvalue > 1e-8
                tested += 1
    assert tested >= 2


def test_draws_of_different_decisions_are_independent():
    """One uniform number per decision: two decisions in turn, 2 x 2 table, chi-square below its 1 − 1e-7 quantile."""
    case = CASES["rslucb-finite"]
    agent = case.make()
    agent.register(range(4))
    play(case.world, agent, Streams.from_seed(66), 8)
    agent.plan()
    places = [(h, s) for h in range(3) for s in range(4) if 0.2 < agent.act(h, s).mixture.baseline < 0.8]
    assert places
    pairs = np.array([[agent.act(*places[0]).is_baseline, agent.act(*places[-1]).is_baseline] for _ in range(4000)])
    table = np.array([[np.sum((pairs[:, 0] == a) & (pairs[:, 1] == b)) for b in (False, True)] for a in (False, True)])
    assert stats.chi2_contingency(table).pvalue > 1e-7


class TestTheCoin:
    """The agent's own stream, one number per decision."""

    def test_another_seed_gives_other_actions_from_the_same_mixtures(self):
        world = many_actions()
        one, two = (RslucbQvi(world.problem, rng=np.random.default_rng(seed)) for seed in (1, 2))
        for agent in (one, two):
            agent.register(range(4))
            agent.plan()
        asked = [(h, s) for h in range(3) for s in range(4)] * 10
        first, second = ([agent.act(*where) for where in asked] for agent in (one, two))
        assert [d.mixture.probabilities.tolist() for d in first] == [d.mixture.probabilities.tolist() for d in second]
        assert [d.action for d in first] != [d.action for d in second]

    def test_every_decision_takes_one_number_even_where_there_is_nothing_to_draw(self):
        """Else the actions after it would depend on whether an earlier mixture was pure."""
        world, coin = many_actions(), np.random.default_rng(5)
        agent, twin = RslucbQvi(world.problem, rng=coin), np.random.default_rng(5)
        agent.register(range(2))  # of four: the others are decided alone
        for n in range(1, 20):
            agent.act(n % 3, n % 4)
            twin.random()
            assert coin.bit_generator.state == twin.bit_generator.state

    def test_planning_and_observing_leave_the_coin_alone(self):
        world, coin = many_actions(), np.random.default_rng(5)
        agent, streams = RslucbQvi(world.problem, rng=coin), Streams.from_seed(3)
        seen = world.step(agent.act(0, 0), streams)
        before = copy.deepcopy(coin.bit_generator.state)
        agent.observe(seen)
        agent.plan()
        agent.register(range(4))
        agent.plan()
        assert coin.bit_generator.state == before

    def test_extra_questions_do_not_change_later_mixtures(self):
        """They do take numbers from the coin, as every decision does; with the coin put back, nothing has changed."""
        case = CASES["rslucb-finite"]
        (curious, twin), (here, there) = (case.make(), case.make()), (Streams.from_seed(67), Streams.from_seed(67))
        for agent in (curious, twin):
            agent.register(range(2))
        expected = play(case.world, twin, there, 15)
        made = []
        for _ in range(15):
            state = case.world.reset(here)
            curious.plan()
            for step in range(3):
                coin = copy.deepcopy(curious.rng.bit_generator.state)
                for other in range(4):
                    curious.peek(step, other)
                curious.rng.bit_generator.state = coin
                made.append(curious.act(step, state))
                seen = case.world.step(made[-1], here)
                curious.observe(seen)
                state = seen.next_state
        assert [essence(replace(d, id=0)) for d in made] == [essence(replace(d, id=0)) for d in expected]

    def test_a_saved_coin_goes_on_where_it_stopped(self, tmp_path):
        """Before any state is known, so that only the coin is in question."""
        world = many_actions()
        agent = RslucbQvi(world.problem, rng=np.random.default_rng(8))
        agent.rng.random(7)
        agent.rng.integers(0, 100, dtype=np.int32)  # leaves half of a 64-bit number in the generator
        agent.save(tmp_path / "agent.tether")
        restored = RslucbQvi.restore(tmp_path / "agent.tether", world.problem)
        assert restored.rng.bit_generator.state == agent.rng.bit_generator.state
        assert restored.rng.integers(0, 100, size=5, dtype=np.int32).tolist() == agent.rng.integers(
            0, 100, size=5, dtype=np.int32
        ).tolist()  # fmt: skip
        assert restored.rng.random() == agent.rng.random()

    @pytest.mark.parametrize("kind", [np.random.MT19937, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM])
    def test_a_generator_that_cannot_be_saved_is_refused_clearly_and_leaves_no_file(self, kind, tmp_path):
        world = many_actions()
        agent = RslucbQvi(world.problem, rng=np.random.Generator(kind(1)))
        agent.act(0, 0)  # it can be played with
        with pytest.raises(InputError, match=rf"PCG64.*{kind.__name__}.*default_rng"):
            agent.save(tmp_path / "agent.tether")
        assert list(tmp_path.iterdir()) == []

    def test_a_state_of_another_agent_is_refused(self, tmp_path):
        case = CASES["explorer-adaptive"]
        case.make().save(tmp_path / "agent.tether")
        with pytest.raises(StateFileError, match=r"'slucb-qvi'.*'rslucb-qvi'"):
            RslucbQvi.restore(tmp_path / "agent.tether", case.world.problem)


class TestBadInput:
    """Refused with a reason."""

    def test_an_unknown_safe_cost_is_refused(self):
        with pytest.raises(InputError, match="declare safe_cost"):
            RslucbQvi(small_world(known_costs=False).problem, rng=np.random.default_rng(0))

    def test_a_coin_must_be_given(self):
        with pytest.raises(TypeError, match="rng"):
            RslucbQvi(many_actions().problem)

    @pytest.mark.parametrize("coin", [7, None, np.random.RandomState(1)], ids=["seed", "None", "RandomState"])
    def test_a_coin_that_is_no_generator_is_refused_when_the_agent_is_made(self, coin):
        with pytest.raises(InputError, match="Generator"):
            RslucbQvi(many_actions().problem, rng=coin)

    @pytest.mark.parametrize("kappa", [-1.0, np.nan, np.inf, "tuned", None, True])
    def test_a_kappa_that_is_neither_a_number_nor_the_theorems_is_refused(self, kappa):
        with pytest.raises(InputError, match="kappa"):
            SlucbConfig(kappa=kappa)

    @pytest.mark.parametrize("run", [simulate, simulate_stepwise])
    def test_books_of_a_randomised_agent_are_refused_or_those_of_its_mixtures(self, run):
        """`simulate` of an agent that mixes must not quietly play Algorithm 1: the plan that it leaves behind has to be
        one of mixtures, and its books the value of the policy that was played."""
        world = many_actions()
        agent, twin = (RslucbQvi(world.problem, rng=np.random.default_rng(3)) for _ in range(2))
        try:
            books = run(world, agent, 5, Streams.from_seed(5))
        except InputError:
            return
        twin.register(range(world.state_count))
        play(world, twin, Streams.from_seed(5), 5)
        np.testing.assert_array_equal(agent.current.mixture, twin.current.mixture)
        mean = np.array([[twin.act(h, s).mean_feature for s in range(4)] for h in range(3)])
        values = np.zeros(4)
        for h in (2, 1, 0):
            values = mean[h] @ (world.true_theta[h] + world.true_mu[h] @ values)
        assert np.abs(values - books.value[-1]).min() < 1e-9


def ending_problem():
    """Two cells: in the second one trajectories end, and each remaining step there is worth 0.5."""
    return Problem.from_table(
        features=[[[0.5, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]],
        baseline_action=[0, 0],
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=[[0.1, 0.1], [0.1, 0.1]]),
        horizon=2,
        final_reward=lambda state: 0.5 if state == 1 else None,
    )


class TestEnds:
    """Where a trajectory has ended nothing is decided."""

    @pytest.mark.parametrize("known", [True, False])
    @pytest.mark.parametrize("step", [0, 1])
    def test_acting_where_the_trajectory_has_ended_is_refused(self, known, step):
        agent = RslucbQvi(ending_problem(), rng=np.random.default_rng(0))
        if known:
            agent.register([0, 1])
        agent.plan()
        before = copy.deepcopy(agent.rng.bit_generator.state)
        with pytest.raises(InputError, match="ended in state 1"):
            agent.act(step, 1)
        assert not agent.open_decisions
        assert agent.rng.bit_generator.state == before  # a refused question takes no number from the coin
        assert agent.act(step, 0).state == 0

    def test_the_end_is_worth_its_reward_for_each_remaining_step(self):
        agent = RslucbQvi(ending_problem(), rng=np.random.default_rng(0))
        agent.register([0, 1])
        agent.plan()
        np.testing.assert_allclose(agent.current.values[:, agent.slot_of(1)], [1.0, 0.5, 0.0])

    def test_an_end_needs_no_safe_cost_under_the_threshold(self):
        problem = restated(ending_problem(), threshold=(0.05,), tight_baseline="baseline")
        agent = RslucbQvi(problem, rng=np.random.default_rng(0))
        agent.register([0, 1])
        agent.plan()
        assert agent.act(0, 0).reason == "no-slack"
