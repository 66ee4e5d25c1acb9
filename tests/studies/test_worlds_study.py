"""`tether reproduce worlds` in small: verdicts, the choice of the penalty that is shown, and figures from results."""

import numpy as np
import pytest

from tether.lab import plots, specs
from tether.lab.books import Cell, load
from tether.lab.engines import InProcess
from tether.lab.registry import meaning_of
from tether.lab.runner import run_study
from tether.lab.studies import view_of
from tether.lab.studies.figure1 import beside_default, gain_over_default
from tether.lab.studies.worlds import shown_cells

EPISODES, SEEDS = 40, 3


def cell(label, agent, origin, gain, violations, *, world="heating", explorer="plain", **options):
    """An agent that earns 1 + gain in every episode, plus its seed's own luck, and breaks so many steps in each."""
    luck = 0.1 * np.arange(SEEDS)[:, None] + np.zeros((1, EPISODES))
    columns = {
        "reward": 1.0 + gain + luck,
        "value": 1.0 + gain + luck,
        "optimal_value": 3.0 + luck,
        "regret": 2.0 - gain + 0.0 * luck,
        "violations": np.full((SEEDS, EPISODES), float(violations)),
        "worst_cost": np.full((SEEDS, EPISODES), 0.2 if violations else -0.1),
    }
    return Cell(
        key=label, agent=agent, agent_label=label, world=world, world_label=world, note="β", explorer=explorer,
        options=options, world_options={}, cost_radius_origin=origin, value_radius_origin="tuned",
        seeds=tuple(range(SEEDS)), columns=columns,
    )  # fmt: skip


def cells(*, strong_penalty_gain=0.1, strong_penalty_violations=1):
    return [
        cell("Ours", "slucb-qvi", "theorem", 0.5, 0, explorer="adaptive"),
        cell("Default", "always-safe", "exact", 0.0, 0),
        cell("Free", "lsvi-ucb", "none", 1.5, 4),
        cell("Weak", "lsvi-ucb-penalised", "none", 0.9, 2, penalty=0.5),
        cell("Strong", "lsvi-ucb-penalised", "none", strong_penalty_gain, strong_penalty_violations, penalty=4.0),
    ]


def verdicts(made):
    return {claim.id: claim for claim in beside_default(made)}


def test_gain_is_counted_in_the_worlds_own_units():
    ours, default = cells()[:2]
    gain = gain_over_default(ours, default)
    assert float(gain.mean) == pytest.approx(0.5 * meaning_of("heating").reward)
    assert float(gain.low) == pytest.approx(float(gain.high)), "luck is shared by both, and cancels"


def test_the_claims_hold_when_the_learner_gains_and_the_others_break_the_constraint():
    found = verdicts(cells())
    assert {name: claim.holds for name, claim in found.items()} == {
        "learner-beats-default": True,
        "unconstrained-breaks-the-constraint": True,
        "no-penalty-is-a-substitute": True,
    }
    assert "1 K" in found["unconstrained-breaks-the-constraint"].evidence, "0.2 of 5 K"


def test_a_penalty_that_is_safe_and_earns_as_much_refutes_the_claim():
    assert not verdicts(cells(strong_penalty_gain=0.6, strong_penalty_violations=0))["no-penalty-is-a-substitute"].holds
    assert verdicts(cells(strong_penalty_gain=0.4, strong_penalty_violations=0))["no-penalty-is-a-substitute"].holds


def test_a_learner_that_earns_less_than_the_default_is_told_so():
    made = [cell("Ours", "slucb-qvi", "theorem", -0.1, 0, explorer="adaptive"), *cells()[1:]]
    assert not verdicts(made)["learner-beats-default"].holds


def test_nothing_is_claimed_without_a_default_to_compare_with():
    assert beside_default([cells()[0], *cells()[2:]]) == []
    assert beside_default(cells()[1:]) == []


def test_the_penalty_with_the_fewest_violations_is_shown():
    assert [one.key for one in shown_cells(cells())] == ["Ours", "Default", "Free", "Strong"]
    tied = cells(strong_penalty_violations=2)  # then the one that earns more
    assert [one.key for one in shown_cells(tied)] == ["Ours", "Default", "Free", "Weak"]


@pytest.fixture(scope="module")
def small_study(tmp_path_factory):
    study = specs.paper_study("worlds").resized(quick=True)
    study = study.model_copy(update={"episodes": 12, "worlds": [study.worlds[0], study.worlds[2]]})
    folder = tmp_path_factory.mktemp("worlds")
    done = run_study(study, folder, InProcess())
    assert done.failures == []
    return load(folder)


def test_every_agent_meets_the_same_instances_and_the_same_optimum(small_study):
    for world in ("dosing", "ad-load"):
        here = [one for one in small_study.cells if one.world == world]
        assert len(here) == 7
        for one in here:
            np.testing.assert_array_equal(one["optimal_value"], here[0]["optimal_value"])


def test_the_safe_learner_and_the_default_break_nothing_and_the_others_do(small_study):
    broken = {one.agent_label: one["violations"].sum() for one in small_study.cells}
    assert broken["SLUCB-QVI, all defaults"] == broken["Always the default"] == 0.0
    assert broken["LSVI-UCB"] > 0.0


def test_claims_are_judged_per_world(small_study):
    found = {claim.id for claim in view_of(small_study).claims(small_study)}
    assert {"learner-beats-default@dosing-1", "learner-beats-default@ad-load-2"} <= found
    assert {"no-penalty-is-a-substitute@dosing-1", "adaptive-zero-violations@ad-load-2"} <= found


@pytest.mark.slow
def test_each_world_has_a_figure_with_reward_violations_and_gain(small_study):
    charts = view_of(small_study).charts(small_study)
    assert [chart.name for chart in charts] == ["worlds-dosing", "worlds-ad-load"]
    for chart in charts:
        assert [panel.key for panel in chart.panels] == ["reward", "violations", "gain"]
        names = [curve.name for curve in chart.panels[0].series]
        assert names[:3] == ["SLUCB-QVI, all defaults", "Always the default", "LSVI-UCB"]
        assert len(names) == 4
        assert names[3].startswith("LSVI-UCB, penalty")
        gain = chart.panels[2].series
        assert (gain[1].y == 0.0).all(), "the default gains nothing over itself"
        rewards = {one.agent_label: one for one in small_study.cells if f"worlds-{one.world}" == chart.name}
        total = (rewards["LSVI-UCB"]["reward"] - rewards["Always the default"]["reward"]).sum(axis=1).mean()
        factor = meaning_of(chart.name.removeprefix("worlds-")).reward
        assert gain[2].y[-1] == pytest.approx(factor * total)
        assert plots.render(chart, ["png"])["png"].startswith(b"\x89PNG")
