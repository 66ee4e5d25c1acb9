"""What a list of actions proves of costs in [0, 1], worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from limits import stated
from tether import CertifiedAgent, Problem, RslucbQvi, SlucbConfig, SlucbQvi
from tether.agents.listed import NOTHING, Limits, Listed, Program
from tether.lab.worlds.lake import frozen_lake

ALL = SlucbConfig(condition_on="all")


def proof(listed, facts, costs, x, errors=None):
    errors = np.zeros(len(facts)) if errors is None else np.array(errors)
    rows, costs = np.array(facts, dtype=float).reshape(-1, len(x)), np.array(costs, dtype=float)
    lists = Listed(np.array(listed, dtype=float), 2.0, 1e3)
    return lists.proof(Program(lists.limits(rows, costs - errors, costs + errors)), np.array(x, dtype=float))


def test_half_of_a_listed_action_costs_at_most_a_half():
    assert proof([[1.0]], [], [], [0.5]).bound == pytest.approx(0.5, abs=1e-9)


def test_a_fact_and_a_box_prove_the_sum_of_both():
    """x = ½f + ½b with ⟨γ, f⟩ = 0.1 and ⟨γ, b⟩ <= 1: at most 0.05 + 0.5. The proof names b, which is no fact."""
    found = proof([[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0]], [0.1], [0.5, 0.5])
    assert found.bound == pytest.approx(0.55, abs=1e-9)
    np.testing.assert_array_equal(found.boxes, [0])
    np.testing.assert_allclose(np.append(found.facts, found.listed), [0.5, 0.5, 0.0], atol=1e-9)


def test_a_cost_that_is_at_least_0_bounds_another_from_above():
    """f = ½x + ½b costs 0.04 and b at least 0, so that x costs at most 0.08."""
    assert proof([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5]], [0.04], [1.0, 0.0]).bound == pytest.approx(0.08, abs=1e-9)


def test_facts_that_say_everything_leave_nothing_to_a_program():
    """⟨γ, e_1⟩ = 0.1 and ⟨γ, e_2⟩ = 0.3: (0.25, 0.75) costs 0.025 + 0.225."""
    found = proof([[1.0, 0.0], [0.3, 0.7], [0.25, 0.75]], np.eye(2), [0.1, 0.3], [0.25, 0.75])
    assert found.bound == pytest.approx(0.25, abs=1e-9) and len(found.boxes) == 0


def test_an_error_bar_counts_on_both_sides():
    """As above, with 0.04 ± 0.01: at most 0.10."""
    found = proof([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5]], [0.04], [1.0, 0.0], errors=[0.01])
    assert found.bound == pytest.approx(0.10, abs=1e-9)


def test_any_multipliers_give_a_bound_and_those_that_miss_x_give_none():
    lists = Listed(np.eye(2), 1.0, 1e3)
    limits = Limits(np.eye(2), np.zeros(2), np.array([0.3, 1.0]))
    x = np.array([1.0, 0.0])
    assert lists.bound(limits, x, np.array([1.0, 0.0])) >= 0.3
    assert lists.bound(limits, x, np.array([1.0, 0.0])) == pytest.approx(0.3, abs=1e-9)
    assert lists.bound(limits, x, np.array([0.9, 0.0])) == np.inf
    assert lists.bound(limits, x, np.array([np.nan, 0.0])) == np.inf


@pytest.mark.parametrize("seed", range(100))
def test_no_cost_that_the_list_and_the_facts_allow_is_over_its_bound(seed):
    """γ is drawn, and features are kept that it gives a cost in [0, 1]. No part of δ is spent, so none may be over."""
    rng = np.random.default_rng(seed)
    gamma, rows = rng.uniform(-1.0, 2.0, 3), rng.standard_normal((200, 3))
    rows = rows[(rows @ gamma >= 0.0) & (rows @ gamma <= 1.0)]
    facts, error = rows[:2], rng.choice([0.0, 0.01], 2)
    told = facts @ gamma + rng.uniform(-error, error)
    for x in rows[-5:]:
        assert proof(rows, facts, told, x, error).bound >= x @ gamma


def test_a_solver_without_an_answer_leaves_the_trivial_bound(monkeypatch):
    monkeypatch.setattr(Program, "multipliers", lambda self, x: None)
    assert proof([[1.0]], [], [], [0.5]) is NOTHING and NOTHING.bound == 1.0


def test_a_bound_says_whether_it_rests_on_the_list():
    half = proof([[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0]], [0.1], [0.5, 0.5])
    facts_alone = proof([[1.0, 0.0], [0.3, 0.7], [0.25, 0.75]], np.eye(2), [0.1, 0.3], [0.25, 0.75])
    assert [each.listed.any() for each in (half, facts_alone, NOTHING)] == [True, False, False]


def two_halves(threshold=0.1):
    """Two states, d = 2: a_0 of each is ½x + ½b and costs 0.04, so that x and b cost at most 0.08."""
    rows = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]])
    told = {"horizon": 1, "threshold": threshold, "cost_kind": "bounded", "feature_norm": 1.0}
    return Problem.from_table(
        features=rows, baseline_action=[0, 0], **stated(baseline_cost_error=0.0, baseline_cost=[[0.04, 0.04]], **told)
    )


class Bold(CertifiedAgent):
    """Plays the first row that is certified."""

    def choose(self, options):
        return options.certified[0]


@pytest.mark.parametrize("kind", [RslucbQvi, Bold])
def test_a_certificate_says_how_many_listed_actions_it_takes_to_cost_0_to_1(kind, tmp_path):
    """All four of them before any outcome. A restored agent agrees."""
    core = SlucbQvi(two_halves(), ALL)
    told = {"rng": np.random.default_rng(0)} if kind is RslucbQvi else {"core": core}
    agent = kind(core.problem, **told) if kind is Bold else kind(core.problem, ALL, **told)
    agent.plan()
    decision = agent.peek(0, 0)
    assert not decision.is_baseline and decision.evidence[0].listed == 4
    agent.save(tmp_path / "agent")
    assert kind.restore(tmp_path / "agent", two_halves()).peek(0, 0).evidence == decision.evidence


def test_the_declared_cost_of_the_safe_action_rests_on_no_list():
    problem = two_halves(threshold=0.05)
    decision = Bold(problem, core=SlucbQvi(problem, ALL)).peek(0, 0)
    assert decision.is_baseline and decision.evidence[0].listed == 0


def test_states_where_trajectories_end_list_nothing():
    """Nothing is played there, so no cost was promised: 89 of 100 cells with four moves each."""
    assert frozen_lake(np.random.default_rng(0), costs="bounded").problem.listed_features().shape == (356, 100)


def test_rays_list_nothing():
    """Their ends need not be playable, so that nobody promised what they cost."""
    told = {
        "horizon": 1,
        "threshold": 0.1,
        "cost_kind": "bounded",
        "baseline_cost_error": 0.0,
        "baseline_cost": [[0.04]],
    }
    assert len(Problem.from_rays(phi_0=[[0.5, 0.5]], endpoints=[[[1.0, 0.0]]], **stated(**told)).listed_features()) == 0


def test_the_list_proves_most_safe_moves_of_the_lake_before_any_outcome():
    """320 listed moves are safe in truth. No move is proven for less than it costs. One tolerance lost 210 proofs."""
    world = frozen_lake(np.random.default_rng(0), costs="bounded")
    agent = RslucbQvi(world.problem, replace(ALL, explorer="plain", pooled=True), rng=np.random.default_rng(0))
    agent.register(world.problem.states)
    agent.plan()
    rows, tau = slice(int(agent.tables.start[len(world.problem.states)])), world.problem.threshold[0]
    true, proven = world.true_gamma[0, 0] @ agent.tables.features[:, rows], agent.tables.proven[0, rows, 0]
    moves = ~np.isnan(proven)  # in cells that end nothing is played
    assert moves.sum() == 4 * 89 and (true[moves] <= tau + 1e-9).sum() == 320
    assert (proven[moves] <= tau).sum() >= 290 and (proven[moves] >= true[moves] - 1e-12).all()


def test_a_plan_of_mixtures_holds_to_what_the_list_proves():
    """x is played outright in one state and b in the other. Without the list each of them could cost 1."""
    agent = RslucbQvi(two_halves(), ALL, rng=np.random.default_rng(0))
    agent.register(range(2))
    agent.plan()
    np.testing.assert_allclose(agent.tables.proven[0, :4, 0], [0.04, 0.08, 0.04, 0.08], atol=1e-8)
    np.testing.assert_allclose(agent.current.mixture[0, :4], [0.0, 1.0, 0.0, 1.0], atol=1e-8)
    np.testing.assert_allclose(agent.current.bound[0, :2, 0], [0.08, 0.08], atol=1e-8)
