"""Headline rows: the stored results hold a claim of each, and a sample of the stored runs is played again."""

import numpy as np
import pytest
from test_pages import figures

from tether.lab.books import Interval, interval
from tether.lab.stored import played_again
from tether.lab.studies import figure2, league

AGAIN = [
    ("figure1", "slucb-qvi-paper", 3),
    ("figure2", "ours-certified", 0),
    ("figure2", "ours-certified", 57),
    ("figure2", "ours-certified-bernoulli-costs", 2),
    ("figure2", "b-a-plan-per-trajectory", 1),
    ("learning", "adaptive-value-radius-remaining", 0),
    ("learning", "lsvi-ucb-told-γ-value-radius-remaining", 0),
    ("learning-wide", "adaptive-default-in-safe-costs-unknown-cost-β-theorem-value-β-remaining-default", 1),
    ("learning-grid", "adaptive-in-one-safe-feature-σ-0-1-gap-0-1", 1),
    ("learning-grid", "plain-in-safe-costs-unknown-σ-0-3-gap-0-1", 2),
    ("worlds", "slucb-qvi-all-defaults-in-dosing", 4),
    ("worlds", "slucb-qvi-all-defaults-in-heating", 4),
    ("worlds", "slucb-qvi-all-defaults-in-ad-load", 4),
    ("league", "tether-all-defaults-in-hutchinson-large-b", 1),
    ("league", "tether-all-defaults-in-circulant-d-5-τ-0-5", 0),
    ("league-mdp", "tether-all-defaults-in-dosing", 1),
]
"""Study, row and run."""
HEADLINES = {
    "figure1": ["adaptive-zero-violations", "certified-zero-violations", "directional-zero-violations"],
    "figure2": ["certified-learns", "bounded-learns", "expected-cost-certified", "expected-cost-bernoulli"],
    "learning": ["default-keeps-pace", "adaptive-zero-violations"],
    "learning-wide": ["default-keeps-pace@S=50", "default-keeps-pace@σ=0.3"],
    "worlds": [
        f"{claim}@{world}"
        for world in ("dosing-1", "heating-2", "ad-load-3")
        for claim in ("learner-beats-default", "adaptive-zero-violations")
    ],
    "league": ["slucb-qvi-keeps-its-theorem", "ours-hutchinson-large-b", "ours-hutchinson-small-b"],
    "league-mdp": ["slucb-qvi-keeps-its-theorem", "rslucb-qvi-keeps-its-theorem"],
    "league-axes": ["slucb-qvi-keeps-its-theorem"],
    "real": ["gains", "rival-breaks", *(f"safe@{world}" for world in ("motor", "reactor", "buildings", "bolus"))],
    "real-buildings": ["safe", "headline"],
    "real-patients": ["safe", "headline"],
}
"""Claims that the stored results must hold: of every row that the first pages show."""


SHOWN = {
    ("motor", "over"): (0, 0),
    ("motor", "random-over"): (1200, 1600),
    ("motor", "gain"): (3.0, 4.5),
    ("learning-grid", "told-state-1"): (1.0, 1.4),
    ("learning-grid", "told-state-10"): (2.3, 3.8),
    ("learning-grid", "told-state-30"): (6.0, 12.0),
    ("learning-grid", "told-one-1"): (1.0, 1.4),
    ("learning-grid", "told-one-10"): (2.8, 4.7),
    ("learning-grid", "told-one-30"): (9.0, 15.0),
    ("learning-grid", "told-unknown-1"): (1.0, 1.4),
    ("learning-grid", "told-unknown-10"): (2.7, 4.6),
    ("learning-grid", "told-unknown-30"): (8.5, 15.0),
    ("learning-grid", "plain-over-best-most"): (1.0, 1.05),
    ("learning-grid", "adaptive-over-best-most"): (1.0, 1.4),
    ("lock-in", "locked-adaptive"): (0, 4),
    ("lock-in", "locked-plain"): (8, 20),
    ("false-declarations", "after-the-alarm"): (0, 0),
    ("worlds", "violations"): (0, 0),
    ("real", "violations"): (0, 0),
    ("real", "gained"): (4, 4),
    ("real", "rival-worlds"): (4, 4),
    ("real", "ppo-worlds"): (3, 4),
    ("real-buildings", "gain"): (17.0, 21.0),
}
"""Least and most of the values in sentences of README and of the pages that tell which explorer to choose."""


@pytest.mark.parametrize(("source", "value"), SHOWN, ids="-".join)
def test_the_values_that_sentences_rest_on_are_where_the_sentences_say(source, value):
    least, most = SHOWN[source, value]
    assert least <= figures.read(source)["values"][value] <= most


@pytest.mark.parametrize(("study", "claim"), [(study, claim) for study, named in HEADLINES.items() for claim in named])
def test_every_headline_row_has_a_claim_that_holds(study, claim):
    assert figures.read(study)["claims"][claim]["holds"]


@pytest.mark.parametrize("study", ["league", "league-mdp", "league-axes"])
def test_the_league_s_stored_intervals_are_those_of_the_stored_runs(study):
    stored = figures.read(study)
    both = stored["rows"].keys() & stored["runs"].keys()
    for name in both:
        row, found = stored["rows"][name], league.over_seeds(np.array(stored["runs"][name]["regret"]))
        shown = [row["regret_mean"], row["regret_low"], row["regret_high"]]
        np.testing.assert_allclose(found, shown, rtol=1e-3, atol=1e-3)
        assert sum(stored["runs"][name]["violations"]) == row["violations_total"]
    assert len([name for name in both if name.startswith("tether-all-defaults")]) > 2


@pytest.mark.parametrize("study", ["figure1", "figure2", "learning", "learning-wide", "worlds"])
def test_the_stored_intervals_are_those_of_the_stored_runs(study):
    stored = figures.read(study)
    for name, row in stored["rows"].items():
        runs = stored["runs"][name]
        if "regret" in runs:
            found, shown = interval(np.array(runs["regret"])), Interval(row["regret_mean"], *row["regret_ci"])
        else:
            success = np.array(runs["success"])[:, -figure2.LAST :].mean(axis=1)
            agents = np.array(runs["seeds"]) // max(1, row["runs"] // row["seeds"])
            found = interval(np.array([success[agents == agent].mean() for agent in np.unique(agents)]))
            shown = Interval(row["success_last3"], *row["success_last3_ci"])
        np.testing.assert_allclose(found, shown, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("study", "row", "run"), AGAIN)
def test_a_stored_run_is_played_again(study, row, run):
    """From its spec and seed alone: a difference means that the code no longer does what a page shows."""
    stored, quick = figures.read(study)["runs"][row], figures.read(study)["quick"]
    place, again = stored["seeds"].index(run), played_again(study, row, run, quick=quick)
    for name in set(again) - {"seeds"}:
        np.testing.assert_allclose(again[name][0], stored[name][place], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_world_s_values_are_those_of_its_table():
    stored = figures.read("worlds")
    gains = {(line[0], line[1]): line for line in stored["tables"]["gains"]["lines"]}
    for world in ("dosing", "heating", "ad-load"):
        shown = gains[world, "SLUCB-QVI, all defaults"]
        assert shown[2].startswith(f"{stored['values'][f'gain-{world}']:+.3g} (") and shown[4] == "0"
