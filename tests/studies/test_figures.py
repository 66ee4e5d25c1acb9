"""Figures are functions of data: the curves are the data's, the labels say whose β it is, the bytes do not change."""

import dataclasses

import numpy as np
import pytest
import tiny_results

from tether.errors import TetherError
from tether.lab.plots import (
    FORMATS,
    POINTS,
    RAMPS,
    count_ticks,
    even_grid,
    log_grid,
    make_figure,
    moving_average,
    role,
    spread,
    styles,
)
from tether.lab.report import draw
from tether.lab.studies.figure1 import charts


@pytest.fixture(scope="module")
def chart():
    (made,) = charts(tiny_results.results())
    return made


@pytest.fixture(scope="module")
def figure(chart):
    return make_figure(chart)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return draw(tiny_results.results(), tmp_path_factory.mktemp("figures") / "new")


def panel_of(chart, key):
    return next(panel for panel in chart.panels if panel.key == key)


def test_draw_writes_png_svg_and_pdf(drawn):
    assert [path.name for path in drawn] == ["tiny.png", "tiny.svg", "tiny.pdf"]
    starts = [path.read_bytes()[:5] for path in drawn]
    assert starts == [b"\x89PNG\r", b"<?xml", b"%PDF-"]


def test_same_results_give_the_same_bytes(drawn, tmp_path):
    again = draw(tiny_results.results(), tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in drawn]
    assert set(FORMATS) == {path.suffix[1:] for path in again}


def test_every_legend_entry_says_whether_beta_is_the_theorems_or_tuned(figure):
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [
        "Published\nβ=1 tuned",
        "Told γ*\nsafe set known; value β=2 tuned",
        "r − 0.8c\nno constraint; value β=2 tuned",
        "r − 0.9c\nno constraint; value β=2 tuned",
        "Ours\ncost β theorem, value β=2 tuned",
    ]


def test_a_label_without_a_note_still_says_whose_beta_it_is():
    bare = tiny_results.cell("Bare", agent="a", explorer="certified", origin="theorem", regret=0.1, violations=0)
    (made,) = charts(tiny_results.results([bare]))
    assert made.panels[0].series[0].note == "cost β theorem, value β tuned"


def test_cumulative_curves_are_the_running_sums_of_the_data(chart):
    published = tiny_results.cells()[0]
    for key in ("violations", "regret"):
        curve = panel_of(chart, key).series[0]
        sums = np.cumsum(published[key], axis=1).mean(axis=0)
        np.testing.assert_allclose(curve.y, sums[curve.x.astype(int) - 1])
        assert curve.x[-1] == tiny_results.EPISODES and (curve.low <= curve.y).all() and (curve.y <= curve.high).all()
    assert panel_of(chart, "violations").series[0].y[-1] == 60.0


def test_drawn_lines_are_the_panels_curves(chart, figure):
    for ax, panel in zip(figure.axes, chart.panels, strict=True):
        for line, curve in zip(ax.get_lines(), panel.series, strict=False):
            shown = curve.y > 0.0 if panel.y_scale == "log" else np.full(curve.y.shape, True)
            np.testing.assert_array_equal(np.asarray(line.get_ydata())[shown], curve.y[shown])


def test_moving_average_covers_the_last_quarter():
    rows = np.arange(1.0, 13.0)[None]
    np.testing.assert_allclose(moving_average(rows, np.array([1.0, 4.0, 12.0])), [[1.0, 4.0, 11.0]])


def test_the_reward_band_is_about_the_gap_to_the_same_instances_optimum(chart):
    """Instances differ by 0.1 in their optimum, agents not at all in their gap but for 10% of their regret."""
    told = panel_of(chart, "reward").series[1]
    assert (told.high - told.low).max() <= 0.1 * 0.2 + 1e-12
    assert "2.100" in panel_of(chart, "reward").guides[0].name


def test_those_without_violations_are_named_with_their_zero(chart, figure):
    panel = panel_of(chart, "violations")
    assert panel.notes == ("0 violations in 3 runs each: Told γ* · Ours",)
    assert count_ticks(panel)[:3] == [0.0, 1.0, 10.0]
    texts = [text.get_text() for text in figure.axes[1].texts]
    assert "0 violations in 3 runs each" in texts and "Told γ* · Ours" in texts and "0" in texts


def test_negative_regret_is_left_out_of_log_axes_and_said(chart, figure):
    panel = panel_of(chart, "regret")
    assert panel.notes == ("Partly ≤ 0, and on log axes not drawn there: r − 0.8c.",)
    assert "can earn more than the safe optimum" in panel.subtitle
    ax = figure.axes[2]
    assert np.isnan(np.asarray(ax.get_lines()[2].get_ydata())).all()
    assert any("↓" in text.get_text() and text.get_text().startswith("−") for text in ax.texts)


def test_regret_has_a_line_with_the_slope_of_the_root(chart):
    (guide,) = panel_of(chart, "regret").guides
    assert guide.name == "√K"
    assert np.diff(np.log(guide.y)) / np.diff(np.log(guide.x)) == pytest.approx(0.5)
    assert all((np.interp(guide.x, c.x, c.y) > guide.y).all() for c in panel_of(chart, "regret").series if c.y[0] > 0)


def test_penalties_are_shades_of_one_hue_and_every_other_agent_has_its_own():
    made = tiny_results.cells()
    looks = styles(made)
    assert [role(cell) for cell in made] == ["paper", "told", "penalised", "penalised", "directional"]
    assert (looks[2].light, looks[3].light) == RAMPS["penalised"].light
    assert len({look.light for look in looks}) == len(looks) == len({look.dark for look in looks})


def test_grids_are_short_and_keep_both_ends():
    for grid in (even_grid(100_000), log_grid(100_000)):
        assert len(grid) <= POINTS and grid[0] == 1 and grid[-1] == 100_000 and (np.diff(grid) > 0).all()
    assert even_grid(1).tolist() == [1.0]


def test_labels_are_spread_in_order_and_stay_inside():
    moved = spread([0.99, 0.98, 0.1], 0.1)
    assert moved == pytest.approx([1.0, 0.9, 0.1])
    assert spread([0.2, 0.5], 0.1) == [0.2, 0.5]


def test_one_figure_per_world(tmp_path):
    made = [
        tiny_results.cell(
            f"Ours in noise={noise} (β=1 tuned)", agent="slucb-qvi", explorer="paper", origin="tuned", regret=0.2,
            violations=0, world_options={"noise": noise, "states": 3},
        )
        for noise in (0.1, 0.2)
    ]  # fmt: skip
    titles = [chart.title for chart in charts(tiny_results.results(made))]
    assert [title.rpartition("· ")[2] for title in titles] == ["synthetic noise=0.1", "synthetic noise=0.2"]
    names = [path.name for path in draw(tiny_results.results(made), tmp_path)]
    assert names[::3] == ["tiny-1.png", "tiny-2.png"]


def test_of_many_agents_the_best_of_every_kind_are_drawn_and_it_is_said():
    many = [
        tiny_results.cell(f"Try {k} (β=1 tuned)", agent="a", explorer="paper", origin="tuned", regret=k, violations=0)
        for k in range(20, 0, -1)
    ]
    (made,) = charts(tiny_results.results([*many, *tiny_results.cells()[1:2]]))
    drawn = [curve.name for curve in made.panels[0].series]
    assert drawn == [*(f"Try {k}" for k in range(11, 0, -1)), "Told γ*"]
    assert "12 of 21 agents" in made.caption


def test_missing_runs_are_said_and_cells_without_runs_left_out():
    ours = tiny_results.cells()[4]
    empty = dataclasses.replace(tiny_results.cells()[0], seeds=(), columns={})
    (made,) = charts(tiny_results.results([empty, ours], missing=[("Published", 0)]))
    assert "1 run missing" in made.caption and len(made.panels[0].series) == 1


def test_a_label_may_hold_any_character(tmp_path):
    label = r"$\nope{$ & <y> (β=1 tuned)"  # as mathematics it would not parse
    odd = tiny_results.cell(label, agent="a", explorer="paper", origin="tuned", regret=1, violations=0)
    assert len(draw(tiny_results.results([odd]), tmp_path)) == 3


def test_a_single_seed_and_a_single_episode_can_be_drawn(tmp_path):
    whole = tiny_results.cells()[0]
    one = dataclasses.replace(whole, seeds=(0,), columns={name: rows[:1, :1] for name, rows in whole.columns.items()})
    assert len(draw(tiny_results.results([one]), tmp_path)) == 3


def test_nothing_to_draw_is_an_error_that_says_so(tmp_path):
    with pytest.raises(TetherError, match="no finished run"):
        draw(tiny_results.results([]), tmp_path)
