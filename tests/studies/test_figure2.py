"""Studies in interaction units: curves are the data's, claims can fail, and safe is not said to be fall-free."""

import dataclasses
import json
import re

import numpy as np
import pytest
import tiny_units
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from test_report import Outline, Reader
from tiny_units import MANY, ONE, RAMP, cell, certified

from tether.cli import output as cli_output
from tether.lab import plots as figures
from tether.lab.report import draw, write
from tether.lab.studies import figure2, view_of
from tether.lab.studies.figure2 import MOST_CELLS, charts, kind_of, leading, most_telling
from tether.lab.worlds.lake import CELLS, DANGER, ENDS, GOAL, transition_law

OURS, THEIRS = "CISR, run by us", "CISR, its authors' logs"
PANELS = ["success", "return", "steps", "cost", "falls"]


@pytest.fixture(scope="module")
def chart():
    (made,) = charts(tiny_units.results())
    return made


@pytest.fixture
def unportrayed(monkeypatch):
    """Arrays have no run behind them that could be played again."""
    monkeypatch.setattr(figure2, "portrait", lambda results: None)


def panel_of(chart, key):
    return next(panel for panel in chart.panels if panel.key == key)


def curve_of(chart, key, name):
    return next(curve for curve in panel_of(chart, key).series if curve.name == name)


def test_a_cell_is_known_by_its_options_and_not_by_its_label():
    expected = [
        "certified", "tuned", "tuned", "theory-literal", "text-literal", "theory-small", "safe-action", "bernoulli",
    ]  # fmt: skip
    assert [kind_of(cell) for cell in tiny_units.cells()] == expected
    renamed = [dataclasses.replace(row, agent_label=f"x{k}", note="") for k, row in enumerate(tiny_units.cells())]
    assert [kind_of(cell) for cell in renamed] == expected


def test_the_first_certified_cell_leads_and_of_the_tuned_the_best():
    weak, strong = (cell(f"{level}", origin="tuned", level=level) for level in (0.5, 1.0))
    assert leading([weak, strong], "tuned") is strong
    weak, strong = (cell(f"{level}", level=level) for level in (0.5, 1.0))
    assert leading([weak, strong], "certified") is weak and leading([weak], "tuned") is None


def test_every_panel_has_the_same_curves_in_the_same_order(chart):
    assert [panel.key for panel in chart.panels] == PANELS
    names = [curve.name for curve in chart.panels[0].series]
    assert names[0] == "Ours, certified" and names[-2:] == [OURS, THEIRS] and "a₀ alone" in names
    assert all([curve.name for curve in panel.series] == names for panel in chart.panels)


def test_success_and_return_are_means_over_agents(chart):
    np.testing.assert_allclose(curve_of(chart, "success", "Ours, certified").y, RAMP, atol=1e-12)
    np.testing.assert_allclose(curve_of(chart, "return", "Ours, certified").y, 6.0 * RAMP + 0.01 * (1 - RAMP))
    assert curve_of(chart, "success", THEIRS).y[:3].tolist() == pytest.approx([0.12, 0.47, 0.66])
    assert len(curve_of(chart, "return", THEIRS).x) == 0  # only its last value is published
    assert panel_of(chart, "return").guides[0].name.endswith("5.37")


def test_bands_are_over_agents_so_that_repeating_runs_does_not_narrow_them():
    (once,), (often,) = (charts(tiny_units.results([certified(repeats=count)])) for count in (1, 6))
    first, second = (curve_of(made, "success", "Ours, certified") for made in (once, often))
    np.testing.assert_allclose(first.low, second.low)
    np.testing.assert_allclose(first.high, second.high)
    assert (first.high - first.low)[-1] > 0.005


def test_the_panel_of_steps_counts_a_unit_of_cisr_as_9600(chart):
    assert curve_of(chart, "steps", "Ours, certified").x.tolist() == [1000.0 * k for k in range(1, 11)]
    assert curve_of(chart, "steps", OURS).x[:2].tolist() == [9600.0, 19200.0]


def test_the_largest_expected_cost_is_the_worse_of_taken_and_planned(chart):
    small = curve_of(chart, "cost", "Theory, β=10.4")
    np.testing.assert_allclose(small.y, 0.95)
    assert small.total > 0.0 and curve_of(chart, "cost", "Ours, certified").total == 0.0
    (note,) = panel_of(chart, "cost").notes
    assert note.startswith("never above τ") and "Ours, certified" in note and "10.4" not in note
    assert panel_of(chart, "cost").guides[0].name == "τ = 0.1"
    (taken,) = charts(tiny_units.results([certified(worst=0.3)]))
    np.testing.assert_allclose(taken.panels[3].series[0].y, 0.4)
    assert taken.panels[3].notes == ()


def test_the_caption_says_how_long_a_unit_is_and_what_safe_means(chart):
    for words in ("1,000 steps for RSLUCB-QVI", "9,600 training steps for CISR", "10% risk", "expected cost of a step"):
        assert words in chart.caption
    assert f"{MOST_CELLS} of 8 rows" in chart.caption
    assert "Safe is not fall-free" in panel_of(chart, "falls").notes[0]
    (some,) = charts(tiny_units.results(missing=[("x", 1), ("x", 2)]))
    assert "2 runs are missing" in some.caption


def test_of_many_cells_some_of_every_kind_are_drawn_and_the_best_of_them():
    tuned = [cell(f"T{k}", origin="tuned", level=k / 20) for k in range(1, 16)]
    drawn = most_telling([*tuned, *tiny_units.cells()])
    assert len(drawn) == MOST_CELLS and {kind_of(cell) for cell in drawn} == {kind_of(c) for c in tiny_units.cells()}
    assert next(c.label for c in drawn if kind_of(c) == "tuned").startswith("B, as tuned")


def test_without_trained_students_the_authors_curve_must_do(monkeypatch):
    def absent(*args, **options):
        raise FileNotFoundError

    monkeypatch.setattr(figure2, "load_curves", absent)
    (made,) = charts(tiny_units.results([certified()]))
    assert [curve.name for curve in made.panels[0].series] == ["Ours, certified", THEIRS]
    verdicts = {claim.id: claim.holds for claim in figure2.claims(tiny_units.results([certified()]))}
    assert verdicts["certified-faster-than-cisr"] and verdicts["certified-comparable-to-cisr"]


def test_the_printed_figure_holds_the_panels_the_map_and_labels_inside(chart):
    for stacked in (False, True):
        made = figures.make_figure(chart, stacked=stacked)
        *panels, lake = made.axes
        assert [ax.get_title(loc="left")[0] for ax in made.axes] == list("abcdef")
        signs = [text.get_text() for text in lake.texts]
        assert signs.count("✕") == len(DANGER) and {"S", "G"} <= set(signs)
        for ax in panels:
            beside = [text for text in ax.texts if text.get_position()[0] == 1.02]
            assert all(-0.01 <= text.get_position()[1] <= 1.01 for text in beside)
        assert [text for text in panels[2].texts if text.get_position()[0] == 1.02] == []


@pytest.mark.slow
def test_figures_and_portrait_are_written(tmp_path, monkeypatch, seen):
    monkeypatch.setattr(figure2, "portrait", lambda results: seen)
    written = draw(tiny_units.results(), tmp_path)
    assert [path.name for path in written] == [
        "tiny-lake.png", "tiny-lake.svg", "tiny-lake.pdf", "tiny-lake-lake.png",
    ]  # fmt: skip
    again = {path.name: path.read_bytes() for path in draw(tiny_units.results(), tmp_path)}
    assert again == {path.name: path.read_bytes() for path in written}


HELD = {
    "expected-cost-certified", "expected-cost-tuned", "expected-cost-tuned-2", "expected-cost-theory-literal",
    "expected-cost-text-literal", "expected-cost-bernoulli", "certified-learns", "certified-faster-than-cisr",
    "certified-comparable-to-cisr", "tuned-learns", "tuned-faster-than-cisr", "tuned-comparable-to-cisr",
    "safe-action-stays", "theory-literal-learns-nothing", "text-literal-learns-nothing", "theory-small-violates",
}  # fmt: skip


def verdicts(*cells):
    return {claim.id: claim.holds for claim in figure2.claims(tiny_units.results(cells))}


def test_all_claims_are_judged_and_that_nobody_falls_is_refused():
    assert verdicts(*tiny_units.cells()) == {**dict.fromkeys(HELD, True), "zero-falls": False}


@pytest.mark.parametrize(
    ("changed", "claim", "holds"),
    [
        (certified(planned=1e-6), "expected-cost-certified", False),
        (certified(worst=1e-6), "expected-cost-certified", False),
        (certified(planned=5e-8), "expected-cost-certified", True),
        (certified(worst=0.02, world_options={"threshold": 0.3}), "expected-cost-certified", False),
        (certified(level=0.9), "certified-learns", False),
        (certified(level=0.945, noise=0.03), "certified-learns", False),  # the mean is above, the interval is not
        (certified(level=0.8), "certified-comparable-to-cisr", False),
        (certified(level=0.45), "certified-faster-than-cisr", False),
        (certified(units={**MANY, "steps": 9600}), "certified-faster-than-cisr", False),
        (certified(falls=0.0), "zero-falls", True),
        (cell("a", agent="always-safe", origin="exact", options={}, level=0.2), "safe-action-stays", False),
        (cell("t", origin="tuned", options={"pooled": False}, level=0.2), "theory-literal-learns-nothing", False),
        (cell("u", origin="tuned", units=ONE, level=0.2), "text-literal-learns-nothing", False),
        (cell("s", origin="tuned", options={"cost_radius": 10.4}, level=0.0), "theory-small-violates", False),
    ],
)
def test_a_claim_turns_with_the_data(changed, claim, holds):
    assert verdicts(changed)[claim] is holds


def test_a_claim_is_only_judged_where_its_rows_were_run():
    alone = cell("a₀", agent="always-safe", origin="exact", options={}, level=0.0)
    assert set(verdicts(alone)) == {"safe-action-stays"}
    assert set(verdicts(certified())) == {
        "expected-cost-certified", "certified-learns", "certified-faster-than-cisr", "certified-comparable-to-cisr",
        "zero-falls",
    }  # fmt: skip


def test_an_interval_around_the_bound_is_called_undecided():
    (claim,) = [
        c for c in figure2.claims(tiny_units.results([certified(level=0.945, noise=0.03)])) if c.id.endswith("-learns")
    ]
    assert "undecided" in claim.evidence and "5 agents, 10 runs" in claim.evidence


def test_the_json_table_has_the_rows_of_units():
    rows = view_of(tiny_units.results()).table(tiny_units.results()).rows
    assert json.loads(json.dumps(rows))[0]["success_last3"] == pytest.approx(0.96)
    small = next(row for row in rows if row["agent"].startswith("Theory, β=10.4"))
    assert small["max_expected_cost"] == pytest.approx(0.95) and small["violations_total"] == 100
    assert rows[0]["return_last3"] == pytest.approx(6 * 0.96 + 0.01 * 0.04)


def test_the_terminal_table_has_success_safety_and_whose_radius(capsys):
    table = figure2.table(tiny_units.results())
    cli_output.show_table("t", table.heads, table.lines)
    shown = capsys.readouterr().out.splitlines()
    first = next(line for line in shown if line.startswith("Ours, certified"))
    assert "cost β theorem" in first and r".95 .96 .96 .96  0.960 (0.9" in first
    assert re.search(r"\s5 × 2\s.*to 0\.9\d\d\)\s+5\.76\s+10\.0\s+0\.1000\s+0\s+0$", first)
    small = next(line for line in shown if line.startswith("Theory, β=10.4"))
    assert re.search(r"\s10\.0\s+0\.9500\s+100\s+10$", small)
    assert re.search(r"10 × 1\s+\.19 .*\s+–\s+–\s+–$", next(line for line in shown if line.startswith(OURS)))


@pytest.fixture(scope="module")
def page(tmp_path_factory, seen):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure2, "portrait", lambda results: seen)
        return write([tiny_units.results()], tmp_path_factory.mktemp("lake") / "report.html")


def test_the_report_is_well_formed_and_holds_claims_table_portrait_and_chart(page):
    text = page.read_text(encoding="utf-8")
    outline = Outline(text)
    assert outline.open == [] and "8 settings, 75 runs of 10 interaction units of 1,000 steps" in text
    assert '<li id="study-1-zero-falls"><span class="badge bad">' in text
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", text)]
    assert len(rows) == 10 and rows[0].startswith("Ours, certified|") and "|theorem||tuned|" in rows[0]
    assert "|.00 .10 .30 .60 .80 .90 .95 .96 .96 .96|" in rows[0] and "|0.1000|" in rows[0]
    assert "|0.9500|" in rows[5] and rows[-1].startswith("CISR, its authors")
    assert "<h4>The lake, run 0 of Short</h4>" in text
    portraits = [a for tag, a in outline.elements if tag == "img" and a["src"].startswith("data:image/png")]
    assert len(portraits) == 1 and "expected cost of a step" in portraits[0]["alt"]
    (drawn,) = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.DOTALL).group(1))
    assert [panel["key"] for panel in drawn["panels"]] == PANELS


def test_a_report_without_a_run_to_portray_has_no_picture(unportrayed, tmp_path):
    text = write([tiny_units.results()], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "The lake, run" not in text and "<h3>Numbers</h3>" in text


def test_in_a_browser_all_five_panels_are_drawn_without_complaint(browser, page):
    reader = Reader(browser, page, viewport={"width": 1280, "height": 900})
    for key in PANELS:
        assert reader.tab.locator(f"#study-1-tiny-lake-{key} .scatterlayer .trace").count() >= 7
    assert reader.tab.evaluate("document.documentElement.scrollWidth") == 1280
    assert reader.is_content()
    reader.tab.context.close()


@pytest.fixture(scope="module")
def seen():
    """A real, very short run of a real lake, played again."""
    options = {"explorer": "paper", "kappa": 1.0, "cost_radius": 0.12, "cost_ridge": 1e-6, "pooled": True}
    row = cell("Short (β)", options=options, world_options={"horizon": 12}, units={**MANY, "steps": 60})
    return figure2.portrait(dataclasses.replace(tiny_units.results([row]), episodes=2))


def test_a_portrait_holds_distributions_exact_odds_and_true_costs(seen):
    free = [state for state in range(CELLS) if state not in ENDS]
    np.testing.assert_allclose(seen.mixture[free].sum(axis=1), 1.0, atol=1e-9)
    assert seen.visits.sum() <= 12 + 1e-9 and seen.visits[list(ENDS)].sum() == 0.0
    assert 0.0 <= seen.danger <= 1.0 and seen.goal < 1e-6 and seen.late == pytest.approx(1.0 - seen.danger)
    risk = transition_law()[:, :, list(DANGER)].sum(axis=2)
    np.testing.assert_allclose(seen.cost[free], (seen.mixture * risk).sum(axis=1)[free])
    assert np.nanmax(seen.cost) <= 0.1 + 1e-7 and np.isnan(seen.cost[GOAL])
    assert (risk[np.arange(CELLS), seen.safe] == risk.min(axis=1))[free].all()
    assert seen.name == "Short" and seen.run == 0


@pytest.mark.parametrize("there", [0.0, 1.0])
def test_visits_follow_the_plan_until_it_ends(there):
    """Always down from the start, without slips: into danger at row 2, after two visits."""
    plan = np.zeros((5, CELLS, 4))
    plan[:, :, 2] = 1.0
    plan[:, list(ENDS)] = there  # what a plan says where a trajectory has ended means nothing
    visits, ended = figure2._occupancy(plan, transition_law(1.0), 5, receding=False)
    assert {state: visits[state] for state in np.flatnonzero(visits)} == {0: 1.0, 10: 1.0}
    assert ended[20] == ended.sum() == 1.0
    plan[0, 0], plan[1:, 0] = [0, 1, 0, 0], [0, 0, 1, 0]  # the first step goes right, later ones down
    _, early = figure2._occupancy(plan, transition_law(1.0), 1, receding=True)
    assert early[1] == 1.0


def test_cisr_is_labelled_with_who_ran_it_on_which_lake_and_the_length_of_its_unit(chart):
    notes = {curve.name: curve.note for curve in chart.panels[0].series}
    assert re.fullmatch(r"\d+ students, moves succeed with 0\.9; 9,600 steps a unit", notes[OURS])
    assert notes[THEIRS] == "30 students, moves succeed with 0.8; 9,600 steps a unit"


def test_a_portrait_draws_an_arrow_per_likely_move_and_frames_what_is_above_the_threshold(seen):
    free = [state for state in range(CELLS) if state not in ENDS]
    ax = Figure().subplots()
    figure2._learned_panel(ax, seen)
    arrows = [text for text in ax.texts if isinstance(text, Annotation)]
    assert len(arrows) == (seen.mixture[free] > figure2.FAINT).sum() > 80
    for risky in (False, True):
        ax, cost = Figure().subplots(), seen.cost.copy()
        cost[55] += 0.2 * risky
        figure2._cost_panel(ax, dataclasses.replace(seen, cost=cost))
        frames = [patch for patch in ax.patches if patch.get_facecolor()[3] == 0.0]
        assert len(frames) == risky


def test_a_portrait_is_the_same_bytes_again_and_can_be_said_in_words(seen):
    assert figure2.render_portrait(seen, dpi=40) == figure2.render_portrait(seen, dpi=40)
    assert "τ = 0.1" in figure2.describe(seen) and f"{seen.danger:.3f}" in figure2.describe(seen)


def test_other_worlds_and_studies_without_a_learner_have_no_portrait():
    alone = cell("a₀", agent="always-safe", origin="exact", options={}, level=0.0)
    assert figure2.portrait(tiny_units.results([alone])) is None
    elsewhere = dataclasses.replace(certified(), world="synthetic")
    assert figure2.portrait(tiny_units.results([elsewhere])) is None
    unknown = certified(options={"pooled": True, "nope": 1})
    assert figure2.portrait(tiny_units.results([unknown])) is None
