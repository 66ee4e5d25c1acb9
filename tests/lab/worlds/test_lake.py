"""Frozen Lake as a linear MDP: the facts that everything else about it rests on, exactly."""

import numpy as np
import pytest

from tether import Decision, Radius, RslucbQvi, SlucbConfig
from tether.lab.worlds.lake import (
    ACTIONS,
    CELLS,
    DANGER,
    ELSEWHERE,
    ENDS,
    GOAL,
    MOVES,
    START,
    TOWARD,
    cell,
    closeness,
    frozen_lake,
    goal_distance,
    toward_goal,
    transition_law,
)
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import optimal_safe_mixture, optimal_safe_policy, policy_values, true_costs
from tether.problem.problem import Problem

LEFT, RIGHT, DOWN, UP = range(4)


def lake(seed=0, **options):
    return frozen_lake(np.random.default_rng(seed), **{"horizon": 2, **options})


def risks():
    """c(s, a): the probability that a move leads into danger, (S, A)."""
    return transition_law() @ np.isin(np.arange(CELLS), DANGER).astype(float)


class TestTheMap:
    """Ten by ten, the start at the top left, the goal at the bottom."""

    def test_start_goal_and_the_ten_danger_cells(self):
        assert (START, GOAL) == (0, 93)
        assert sorted(divmod(s, 10) for s in DANGER) == [
            (2, 0), (3, 2), (4, 0), (4, 5), (5, 2), (5, 6), (6, 0), (6, 5), (7, 2), (8, 0)
        ]  # fmt: skip

    def test_a_move_goes_where_it_should_and_slips_to_both_sides(self):
        """From (5, 4): right is (5, 5); the slips are up and down. Nothing goes backwards."""
        here = transition_law()[cell(5, 4), RIGHT]
        expected = {cell(5, 5): 0.9, cell(4, 4): 0.05, cell(6, 4): 0.05}
        assert {int(s): here[s] for s in np.flatnonzero(here)} == pytest.approx(expected)
        down = transition_law(0.8)[cell(5, 4), DOWN]
        expected = {cell(6, 4): 0.8, cell(5, 3): 0.1, cell(5, 5): 0.1}
        assert {int(s): down[s] for s in np.flatnonzero(down)} == pytest.approx(expected)

    def test_against_a_wall_one_stays(self):
        """At (0, 0): left stays with 0.9, and slips up (stays) or down, 0.05 each; up likewise, with right."""
        left, up = transition_law()[START, LEFT], transition_law()[START, UP]
        assert {int(s): left[s] for s in np.flatnonzero(left)} == pytest.approx({START: 0.95, cell(1, 0): 0.05})
        assert {int(s): up[s] for s in np.flatnonzero(up)} == pytest.approx({START: 0.95, cell(0, 1): 0.05})

    def test_the_law_is_a_distribution_everywhere_and_ends_stay(self):
        law = transition_law()
        np.testing.assert_allclose(law.sum(axis=2), 1.0, atol=1e-15)
        assert (law >= 0.0).all()
        for state in ENDS:
            np.testing.assert_array_equal(law[state], np.tile(np.eye(CELLS)[state], (len(ACTIONS), 1)))

    def test_distances_to_the_goal_go_around_danger(self):
        """(9, 2) is one step away; (8, 2) two, by (9, 2) or (8, 3); (6, 2) between danger cells takes a way round."""
        distance = goal_distance()
        assert distance[[GOAL, cell(9, 2), cell(8, 3), cell(8, 2), START]].tolist() == [0, 1, 1, 2, 12]
        assert distance[cell(6, 2)] == 4
        assert (distance[list(DANGER)] == -1).all()
        for state in range(CELLS):
            if state not in DANGER and state != GOAL:
                row, column = divmod(state, 10)
                near = [(row + r, column + c) for r, c in MOVES if 0 <= row + r < 10 and 0 <= column + c < 10]
                assert distance[state] == 1 + min(distance[cell(*n)] for n in near if cell(*n) not in DANGER)


class TestCosts:
    """The risk of a step, and where Assumption 2 fails."""

    def test_the_costs_are_these_six_numbers(self):
        going_on = np.delete(risks(), list(ENDS), axis=0)
        assert sorted(set(np.round(going_on.ravel(), 12))) == [0.0, 0.05, 0.1, 0.9, 0.95, 1.0]

    def test_six_cells_have_no_action_under_the_threshold(self):
        """Their least cost is exactly 0.1: danger on both sides."""
        least = risks().min(axis=1)
        tight = [s for s in range(CELLS) if s not in ENDS and least[s] > 0.1 - 1e-12]
        assert len(tight) == 6
        np.testing.assert_allclose(least[tight], 0.1, atol=1e-12)
        others = [s for s in range(CELLS) if s not in ENDS and s not in tight]
        assert (least[others] <= 0.05 + 1e-12).all()
        assert (risks()[list(DANGER)] == 1.0).all()

    @pytest.mark.parametrize("explorer", ["paper", "certified", "adaptive"])
    def test_at_the_six_tight_cells_the_safe_action_is_played_for_want_of_slack(self, explorer):
        """Assumption 2 fails there: no bonus, and the decision says why. With a gap of one ulp κ would be 1e10, and the
        value of these cells H for ever."""
        agent = RslucbQvi(
            lake(horizon=5).problem, SlucbConfig(explorer=explorer, pooled=True), rng=np.random.default_rng(0)
        )  # fmt: skip
        tight = [s for s in range(CELLS) if s not in ENDS and risks()[s].min() > 0.1 - 1e-12]
        for state in tight:
            d = agent.act(0, state)
            assert (d.reason, d.mixture.baseline) == ("no-slack", 1.0)
            assert d.score < 100.0

    @pytest.mark.parametrize("basis", ["gaussian", "orthogonal"])
    def test_costs_are_linear_in_the_features(self, basis):
        world = lake(basis=basis)
        costs = world.endpoints @ world.true_gamma[0, 0]
        np.testing.assert_allclose(costs, risks(), atol=1e-9)

    @pytest.mark.parametrize("baseline", ["least-cost", "goalward"])
    def test_the_safe_action_has_the_least_cost_and_its_cost_is_declared(self, baseline):
        world = lake(baseline=baseline)
        for state in set(range(CELLS)) - set(ENDS):
            known = world.problem.look_up(state)
            assert risks()[state, known.actions.baseline] == pytest.approx(risks()[state].min(), abs=1e-12)
            np.testing.assert_allclose(known.baseline_cost, risks()[state].min(), atol=1e-12)

    def test_ties_between_safe_actions_are_random_or_toward_the_goal(self):
        chosen = [[w.problem.look_up(s).actions.baseline for s in range(CELLS)] for w in (lake(1), lake(2))]
        assert chosen[0] != chosen[1]
        world, table, risk = lake(1, baseline="goalward"), toward_goal(transition_law()), risks()
        for state in set(range(CELLS)) - set(ENDS):
            least = np.flatnonzero(risk[state] <= risk[state].min() + 1e-12)
            picked = world.problem.look_up(state).actions.baseline
            assert picked in least
            assert table[state, picked] == table[state, least].max()

    def test_bernoulli_costs_have_the_mean_of_the_risk(self):
        world = lake(costs="bernoulli")
        np.testing.assert_array_equal(world.arrival_cost, np.isin(np.arange(CELLS), DANGER)[None].astype(float))
        np.testing.assert_allclose(transition_law() @ world.arrival_cost[0], risks())
        assert world.problem.noise == (0.5,)

    def test_a_step_observes_whether_it_ended_in_danger_and_pays_from_the_table(self):
        """Beside danger at (2, 0), sixty moves down from (1, 0): 0.9 of them fall. Gaussian noise would give neither
        0 nor 1."""
        world, streams = lake(costs="bernoulli", reward="table"), Streams.from_seed(4)
        state = cell(1, 0)
        feature = world.problem.actions(state).endpoints[DOWN]
        chosen = Decision(0, 0, state, DOWN, feature, False, "best", (), Radius(0.0, "none"), 0.0, 0)
        seen = [world.step(chosen, streams) for _ in range(60)]
        assert [t.cost for t in seen] == [float(t.next_state in DANGER) for t in seen]
        assert {t.cost for t in seen} == {0.0, 1.0}
        assert {t.reward for t in seen} == {world.rewards[state, DOWN]}


class TestFeatures:
    """φ(s, a) = M^{-1} P(·|s, a)."""

    @pytest.mark.parametrize("basis", ["gaussian", "orthogonal"])
    def test_the_transition_law_is_linear_in_the_features(self, basis):
        world = lake(basis=basis)
        np.testing.assert_allclose(world.endpoints @ world.true_mu[0], transition_law(), atol=1e-9)

    def test_an_orthogonal_basis_keeps_every_norm_within_assumption_4(self):
        """‖φ(s, a)‖ = ‖P(·|s, a)‖ <= 1 and ‖γ*‖ = √10 <= √d; ‖θ*‖ = ‖ρ‖ <= √d."""
        world = lake(basis="orthogonal")
        norms = np.linalg.norm(world.endpoints, axis=2)
        np.testing.assert_allclose(norms, np.linalg.norm(transition_law(), axis=2), atol=1e-12)
        assert norms.max() <= 1.0 + 1e-12
        assert np.linalg.norm(world.true_gamma[0, 0]) == pytest.approx(np.sqrt(10.0))
        assert np.linalg.norm(world.true_theta[0]) <= 10.0
        assert world.problem.gamma_norm[0] == pytest.approx(np.sqrt(10.0))

    def test_a_gaussian_basis_breaks_them_and_declares_what_it_needs(self):
        largest = [np.linalg.norm(lake(seed).endpoints, axis=2).max() for seed in range(5)]
        assert min(largest) > 1.0
        for seed in range(5):
            world = lake(seed)
            assert np.linalg.norm(world.endpoints, axis=2).max() <= world.problem.feature_norm
            assert np.linalg.norm(world.true_gamma[0, 0]) <= world.problem.gamma_norm[0]

    def test_the_same_seed_gives_the_same_lake_and_another_seed_another(self):
        one, two, other = lake(3), lake(3), lake(4)
        np.testing.assert_array_equal(one.endpoints, two.endpoints)
        np.testing.assert_array_equal(one.phi_0, two.phi_0)
        assert not np.array_equal(one.endpoints, other.endpoints)


class TestRewards:
    """One is exact, one is the paper's and not linear, one is its closest linear neighbour."""

    def test_the_exact_reward_is_the_expected_closeness_of_where_a_move_leads(self):
        world = lake()
        rho = closeness()
        assert rho[GOAL] == 1.0
        assert (rho[list(DANGER)] == 0.0).all()
        assert rho[START] == pytest.approx(1.0 - 12.0 / goal_distance().max())
        np.testing.assert_allclose(world.endpoints @ world.true_theta[0], transition_law() @ rho, atol=1e-9)
        assert world.rewards is None

    def test_the_papers_table_pays_one_toward_the_goal_and_a_hundredth_otherwise(self):
        table = toward_goal(transition_law())
        going_on = np.delete(table, list(ENDS), axis=0)
        assert set(going_on.ravel()) == {TOWARD, ELSEWHERE}
        assert (going_on.max(axis=1) == TOWARD).all()
        assert table[cell(9, 2)].tolist() == [ELSEWHERE, TOWARD, ELSEWHERE, ELSEWHERE]
        assert table[cell(8, 3)].tolist() == [ELSEWHERE, ELSEWHERE, TOWARD, ELSEWHERE]
        np.testing.assert_array_equal(lake(reward="table").rewards, table)

    def test_the_papers_table_is_not_linear_in_the_features(self):
        """Four hundred equations in a hundred unknowns: the least-squares fit explains R² = 0.28 of it."""
        table, law = toward_goal(transition_law()).ravel(), transition_law().reshape(-1, CELLS)
        fit = law @ np.linalg.lstsq(law, table, rcond=None)[0]
        r2 = 1.0 - ((table - fit) ** 2).sum() / ((table - table.mean()) ** 2).sum()
        going_on = np.repeat(~np.isin(np.arange(CELLS), ENDS), len(ACTIONS))
        inside = table[going_on]
        r2_inside = 1.0 - ((inside - fit[going_on]) ** 2).sum() / ((inside - inside.mean()) ** 2).sum()
        assert min(abs(r2 - 0.28), abs(r2_inside - 0.28)) < 0.01, (r2, r2_inside)

    def test_the_least_squares_reward_is_that_fit(self):
        world = lake(reward="least-squares")
        law = transition_law().reshape(-1, CELLS)
        paid = (world.endpoints @ world.true_theta[0]).ravel()
        table = toward_goal(transition_law()).ravel()
        np.testing.assert_allclose(law.T @ (paid - table), 0.0, atol=1e-9)
        assert np.abs(paid - table).max() > 0.1


class TestPlans:
    """The exact planner on the lake."""

    def test_the_goal_is_worth_one_for_each_remaining_step_and_danger_nothing(self):
        values = optimal_safe_mixture(lake(horizon=4)).values
        np.testing.assert_allclose(values[:, GOAL], [4.0, 3.0, 2.0, 1.0, 0.0], atol=1e-9)
        np.testing.assert_allclose(values[:, list(DANGER)], 0.0, atol=1e-9)

    def test_mixtures_are_as_good_as_single_actions(self):
        """Never worse, and here no better: danger earns nothing, so a share of a move that leads there never pays."""
        world = lake(horizon=4)
        mixed, single = optimal_safe_mixture(world), optimal_safe_policy(world)
        gain = (mixed.values - single.values)[:, ~np.isin(np.arange(CELLS), ENDS)]
        np.testing.assert_allclose(gain, 0.0, atol=1e-9)
        assert single.values[0, cell(9, 2)] > 3.0

    def test_no_expected_cost_exceeds_the_threshold_where_one_still_acts(self):
        world = lake(horizon=3)
        planned = optimal_safe_mixture(world)
        acting = ~np.isin(np.arange(CELLS), ENDS)
        assert (true_costs(world, planned.features)[:, acting] <= 0.1 + 1e-9).all()

    def test_the_value_of_the_safe_policy_is_its_expected_closeness(self):
        """H = 1: each state earns Σ P(s'|s, a_0) ρ(s'), by the law itself."""
        world = lake(horizon=1)
        safe = [world.problem.actions(s).baseline for s in range(CELLS)]
        acting = ~np.isin(np.arange(CELLS), ENDS)
        expected = (transition_law() @ closeness())[np.arange(CELLS), safe]
        found = policy_values(world, world.phi_0[None])[0]
        np.testing.assert_allclose(found[acting], expected[acting], atol=1e-9)

    def test_a_problem_with_ends_keeps_its_states(self):
        problem = lake().problem
        assert isinstance(problem, Problem)
        assert problem.final_reward_of(GOAL) == 1.0
        assert all(problem.final_reward_of(s) == 0.0 for s in DANGER)
        assert np.isnan(problem.final_reward_of(START))


def test_the_small_theory_radius_cannot_be_broken_before_there_is_data():
    """Why β = 10.4 breaks nothing, although it is no guarantee (that takes √λ‖γ*‖, about 31, at λ = 1).

    Before any data a mixture is wrongly certified only if ⟨γ*, v⟩ > β‖v‖ for a direction v in the span of the
    residuals of its state's actions, at most three of a hundred dimensions. Over the study's 20 lakes the largest
    ratio of any such direction is 5.7.
    """
    largest = 0.0
    for seed in range(20):
        world = frozen_lake(Streams.from_seed(seed).instance, horizon=1)
        gamma = world.true_gamma[0, 0]
        for s in np.flatnonzero(~world.ended):
            f = world.phi_0[s]
            residuals = world.endpoints[s] - np.outer(world.endpoints[s] @ f / (f @ f), f)
            largest = max(largest, float(np.linalg.norm(np.linalg.pinv(residuals, rcond=1e-9) @ (residuals @ gamma))))
    assert 5.6 < largest < 5.8
