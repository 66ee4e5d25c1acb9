"""Headline rows: the claim of each fails when the row moves."""

import pytest
import tiny_results
import tiny_units

from tether.cli.study import Conducted, show
from tether.lab.stored import stored
from tether.lab.studies import figure2, learning


def verdicts(view, results):
    return {claim.id: claim.holds for claim in view.claims(results)}


@pytest.mark.parametrize(("level", "holds"), [(1.0, True), (0.169, False), (0.93, False)])
def test_a_row_of_yes_no_costs_that_stops_learning_fails_its_claim(level, holds):
    """At 0.2 it fell from .987 to .169 and nothing noticed. RAMP ends at 0.96: 0.93 of it is below 0.90."""
    row = tiny_units.cell("Bernoulli (cost β theorem)", level=level, world_options={"costs": "bounded"})
    found = verdicts(figure2.VIEW, tiny_units.results([tiny_units.certified(), row]))
    assert found["bounded-learns"] is holds and found["certified-learns"]


@pytest.mark.parametrize(("level", "holds"), [(1.0, True), (0.9, False)])
def test_a_certified_row_that_stops_learning_fails_its_claim(level, holds):
    found = verdicts(figure2.VIEW, tiny_units.results([tiny_units.certified(level=level)]))
    assert found["certified-learns"] is holds


def default_beside_told(regret, violations=0):
    told = {"agent": "lsvi-ucb-told", "explorer": "plain", "origin": "exact"}
    ours = {"agent": "slucb-qvi", "explorer": "adaptive", "origin": "theorem"}
    options = {"value_radius": "remaining"}
    return tiny_results.results(
        [
            tiny_results.cell("Told", **told, regret=0.1, violations=0, options=options),
            tiny_results.cell("Ours", **ours, regret=regret, violations=violations, options=options),
        ]
    )


def test_a_default_that_falls_behind_or_breaks_the_constraint_fails_its_claim():
    assert verdicts(learning.VIEW, default_beside_told(0.114))["default-keeps-pace"]
    assert not verdicts(learning.VIEW, default_beside_told(0.116))["default-keeps-pace"]
    assert not verdicts(learning.VIEW, default_beside_told(0.1, violations=1))["adaptive-zero-violations"]


def test_the_tables_of_the_learning_page_name_the_default_first_and_count_its_violations():
    tables = learning.VIEW.more(default_beside_told(0.1, violations=1))
    ours, told = tables["headline"].lines
    assert ours[0].startswith("ours, all defaults") and told[0].startswith("LSVI-UCB that knows")
    assert ours[2] == "7 (6 to 7)" and ours[3:] == ("180", "3 of 3") and told[3:] == ("0", "0 of 3")


def test_the_command_prints_every_cell_that_is_stored_for_the_pages(capsys, monkeypatch):
    """`tether reproduce` and the pages have their tables from the same functions."""
    results, view = default_beside_told(0.1), learning.VIEW
    monkeypatch.setattr("tether.lab.stored.view_of", lambda results: view)
    report = {"study": "tiny", "title": "t", "seconds": 1.0, "claims": [], "failures": [], "ran": 1, "kept": 0}
    made = Conducted({**report, "artifacts": []}, view.table(results), view.more(results))
    show([made], merged=False, json=False)
    printed, kept = capsys.readouterr().out, stored(results)
    assert set(kept["tables"]) == {"table", "headline", "best"}
    for table in kept["tables"].values():
        assert table["lines"]
        for line in table["lines"]:
            assert any(all(cell in shown for cell in line) for shown in printed.splitlines())


def test_rows_and_runs_are_stored_under_short_names_with_what_intervals_need():
    kept = stored(tiny_units.results([tiny_units.certified()]))
    assert list(kept["rows"]) == list(kept["runs"]) == ["ours-certified"]
    runs = kept["runs"]["ours-certified"]
    assert runs["seeds"] == list(range(10)) and runs["falls"] == [10.0] * 10
    assert len(runs["success"]) == 10 and runs["success"][0][-1] == pytest.approx(0.94)
