"""The report is one page that needs nothing else: read as text here, and opened in a real browser below."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
import tiny_results

import tether
from tether.errors import TetherError
from tether.lab import specs
from tether.lab.plots import POINTS, RAMPS, embed, numbers
from tether.lab.report import commands, write
from tether.lab.studies.figure1 import charts, signed

VOID = {"meta", "link", "img"}
HERE = {**os.environ, "PYTHONPATH": str(Path(tether.__file__).parents[1])}


class Outline(HTMLParser):
    """Which elements a page has, with their attributes; and whether each one that opens also closes."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write([tiny_results.results()], tmp_path_factory.mktemp("report") / "new" / "report.html")


@pytest.fixture(scope="module")
def text(page):
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def own(text):
    """The page without plotly's own source and without the printed figure, whose XML names its namespaces."""
    begin = text.index("</script>") + len("</script>")
    bare = text[:begin] + text[text.index("</script>", begin) :]
    return re.sub(r"base64,[A-Za-z0-9+/=]+", "base64,", bare)


@pytest.fixture(scope="module")
def outline(text):
    return Outline(text)


def test_the_page_asks_for_nothing_from_outside(text, own, outline):
    asking = [
        attributes.get(name, "")
        for tag, attributes in outline.elements
        for name in ("src", "href", "data", "srcset", "action")
        if tag in ("link", "script", "img", "iframe", "object", "source", "form", "use", "image")
    ]
    assert all(address.startswith("data:") or not address for address in asking)
    assert not re.search(r"<(?:link|script|img)\b[^>]*(?:src|href)\s*=\s*[\"']?(?:https?:)?//", text)
    assert not re.search(r"https?://|@import|url\((?!data:)", own)
    (policy,) = [a["content"] for tag, a in outline.elements if tag == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'")


def test_the_page_is_well_formed_and_says_what_it_is(text, outline):
    assert text.startswith("<!DOCTYPE html>") and outline.open == []
    assert dict(outline.elements)["html"] == {"lang": "en"}
    assert "<title>A tiny study &lt;of&gt; &amp; more · Tether report</title>" in text
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(a.get("alt") for tag, a in outline.elements if tag == "img")
    headings = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch(r"h[1-6]", tag)]
    assert headings.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(headings))


def test_claims_have_verdicts_and_evidence(own):
    verdicts = re.findall(r'<li id="study-1-([^"]+)"><span class="badge (good|bad)">', own)
    assert dict(verdicts) == {
        "told-beats-slucb": "good",
        "larger-penalty-lowers-reward": "good",
        "larger-penalty-lowers-violations": "good",
        "slucb-zero-violations": "bad",
        "directional-zero-violations": "good",
    }
    assert "✗ Does not hold" in own and "180 violating steps in 3 of 3 runs" in own


def test_the_table_holds_regret_violations_and_where_each_radius_comes_from(own):
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", own)
    plain = [re.sub(r"<[^>]+>", "|", row) for row in rows]
    assert plain[0].startswith("Published|β=1 tuned|") and "|180|" in plain[0]
    assert "|33|" in plain[0]  # mean regret: 0.5 · 60 · (1 + 1.1 + 1.2) / 3
    assert "|exact (told γ*)|" in plain[1] and "|theorem|" in plain[4] and "|0|" in plain[4]
    assert "Paired differences from Told γ*" in own


def test_spec_environment_and_commands_are_there(own):
    assert "name = &quot;synthetic&quot;" in own
    for fact in ("9.8.7", "Some-Platform", "some-kernel", tiny_results.results().digest()):
        assert fact in own
    assert "tether run tiny.toml" in own


@pytest.mark.parametrize(
    ("quick", "seed", "words"),
    [
        (False, 0, "tether reproduce figure1\n"),
        (True, 0, "tether reproduce figure1 --quick\n"),
        (True, 7, "tether reproduce figure1 --quick --seed 7\n"),
    ],
)
def test_a_study_of_the_paper_is_reproduced_by_its_name(quick, seed, words):
    study = specs.paper_study("figure1").resized(quick=quick, first_seed=seed)
    told = tiny_results.results()
    object.__setattr__(told, "spec", study.model_dump())
    assert words in commands(told)


def test_the_curves_on_the_page_are_those_of_the_figure(own):
    (chart,) = json.loads(re.search(r'id="charts">(.*?)</script>', own, re.DOTALL).group(1))
    (drawn,) = charts(tiny_results.results())
    for panel, source in zip(chart["panels"], drawn.panels, strict=True):
        for curve, series in zip(panel["series"], source.series, strict=True):
            assert curve["y"] == pytest.approx(series.y.tolist(), rel=1e-4) and len(curve["x"]) <= POINTS
            assert "tuned" in curve["note"]


def test_numbers_are_short_and_scripts_cannot_be_broken_out_of():
    assert numbers(tiny_results.np.array([1.0, 1 / 3, float("nan")])) == [1, 0.33333, None]
    assert "<" not in embed({"name": "</script>"}) and json.loads(embed("</script>")) == "</script>"
    assert [signed(value, 2) for value in (0.5, -0.5, -0.001)] == ["+0.50", "−0.50", "0.00"]


def test_the_page_is_small_beside_plotly_and_its_bytes_do_not_change(own, page, tmp_path):
    assert len(own.encode()) < 600_000
    assert write([tiny_results.results()], tmp_path / "again.html").read_bytes() == page.read_bytes()


def test_missing_runs_are_said(tmp_path):
    told = tiny_results.results(missing=[("Published", 2)])
    assert "1 run is missing:" in write([told], tmp_path / "r.html").read_text(encoding="utf-8")


def test_two_folders_with_studies_of_one_name_do_not_collide(tmp_path):
    both = [tiny_results.results(), tiny_results.results(folder="tiny-quick")]
    outline = Outline(write(both, tmp_path / "r.html").read_text(encoding="utf-8"))
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) and {"study-1", "study-2"} <= set(ids)


def test_the_report_of_a_study_in_episodes_imports_neither_the_lake_nor_cisr(tmp_path):
    script = (
        "import sys, pathlib, tiny_results; from tether.lab.report import write; "
        "write([tiny_results.results()], pathlib.Path(sys.argv[1])); print(*sys.modules)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "r.html")]
    found = subprocess.run(command, cwd=Path(__file__).parent, env=HERE, capture_output=True, text=True, check=True)
    loaded = {name for name in found.stdout.split() if name.startswith("tether")}
    assert "tether.lab.studies.figure1" in loaded
    assert not [name for name in loaded if "lake" in name or "cisr" in name or name.endswith(("figure2", "twins"))]


def test_nothing_to_report_is_an_error_that_says_so(tmp_path):
    with pytest.raises(TetherError, match="no finished run"):
        write([tiny_results.results([])], tmp_path / "r.html")


class Reader:
    """A person with a browser, who notices errors, warnings and every address that the page asks for."""

    def __init__(self, browser, page, **habits):
        self.trouble, self.asked = [], []
        self.tab = browser.new_context(**habits).new_page()
        self.tab.set_default_timeout(120_000)  # a machine may be busy
        self.tab.on("console", self._hear)
        self.tab.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.tab.on("requestfailed", lambda request: self.trouble.append(request.url))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(page.as_uri())
        self.tab.wait_for_selector("html[data-ready]", timeout=60_000, state="attached")

    def _hear(self, message):
        if message.type in ("error", "warning"):
            self.trouble.append(message.text)

    def is_content(self):
        outside = [url for url in self.asked if not url.startswith(("data:", "blob:", "file:"))]
        return self.trouble == [] and outside == []


@pytest.fixture(scope="module")
def desk(browser, page):
    reader = Reader(browser, page, viewport={"width": 1280, "height": 900}, color_scheme="dark")
    yield reader
    reader.tab.context.close()


@pytest.fixture(scope="module")
def phone(browser, page):
    reader = Reader(browser, page, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    yield reader
    reader.tab.context.close()


def shown(tab, plot):
    """Which agents a plot shows."""
    script = "id => document.getElementById(id).data.filter(t => t.meta && t.visible !== false).map(t => t.meta)"
    return tab.evaluate(script, plot)


def test_in_a_browser_panels_are_drawn_and_the_legend_toggles_agents_in_all_of_them(desk):
    tab = desk.tab
    plots = [f"study-1-tiny-{key}" for key in ("reward", "violations", "regret")]
    assert [tab.locator(f"#{plot} .scatterlayer .trace").count() > 5 for plot in plots] == [True] * 3
    everyone = ["Published", "Told γ*", "r − 0.8c", "r − 0.9c", "Ours"]
    assert shown(tab, plots[0]) == everyone
    toggle = tab.get_by_role("button", name="r − 0.8c")
    toggle.focus()
    tab.keyboard.press("Enter")
    assert toggle.get_attribute("aria-pressed") == "false"
    assert [shown(tab, plot) for plot in plots] == [[name for name in everyone if name != "r − 0.8c"]] * 3
    tab.get_by_role("button", name="Show all agents").click()
    assert [shown(tab, plot) for plot in plots] == [everyone] * 3
    assert desk.is_content()


def test_in_a_browser_no_button_sends_the_data_anywhere(desk):
    offers = desk.tab.locator("#study-1-tiny-reward .modebar-btn").evaluate_all("all => all.map(b => b.dataset.title)")
    assert len(offers) == 6 and not [offer for offer in offers if re.search("share|cloud|edit", offer, re.IGNORECASE)]


def test_in_a_browser_a_panel_zooms_and_changes_its_axes(desk):
    tab, plot = desk.tab, desk.tab.locator("#study-1-tiny-regret")
    kind = "node => [node.layout.xaxis.type, node.layout.yaxis.type]"
    assert plot.evaluate(kind) == ["log", "log"]
    tab.locator('[data-scale-of="study-1-tiny-regret"]').click()
    assert plot.evaluate(kind) == ["linear", "linear"]
    plot.scroll_into_view_if_needed()
    area = plot.locator(".nsewdrag").bounding_box()
    before = plot.evaluate("node => node._fullLayout.xaxis.range")
    tab.mouse.move(area["x"] + 0.3 * area["width"], area["y"] + 0.3 * area["height"])
    tab.mouse.down()
    tab.mouse.move(area["x"] + 0.6 * area["width"], area["y"] + 0.7 * area["height"], steps=4)
    tab.mouse.up()
    zoomed = "from => document.getElementById('study-1-tiny-regret')._fullLayout.xaxis.range[0] > from[0] + 1"
    tab.wait_for_function(zoomed, arg=before)
    assert desk.is_content()


def test_in_a_browser_dark_follows_the_reader_and_figures_follow_the_page(desk):
    tab = desk.tab
    back = "getComputedStyle(document.body).backgroundColor"
    line = "document.getElementById('study-1-tiny-reward').data.find(t => t.meta === 'Ours').line.color"
    assert tab.evaluate(back) == "rgb(20, 24, 29)" and tab.evaluate(line) == RAMPS["directional"].dark[0]
    tab.emulate_media(color_scheme="light")
    tab.wait_for_function(
        f"() => {line} === '{RAMPS['directional'].light[0]}'"
    )  # not a bare expression: the page's policy forbids eval
    assert tab.evaluate(back) == "rgb(255, 255, 255)"
    tab.emulate_media(color_scheme="dark")
    assert desk.is_content()


def test_in_a_browser_print_shows_the_printed_figure_on_white(desk):
    tab = desk.tab
    tab.emulate_media(media="print", color_scheme="dark")
    tab.locator(".static img").wait_for()
    assert not tab.locator(".plot").first.is_visible()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.wait_for_function("() => document.querySelector('.static img').naturalWidth > 400")
    tab.emulate_media(media="screen", color_scheme="dark")
    assert desk.is_content()


def test_in_a_browser_a_phone_has_no_sideways_scroll(phone):
    tab = phone.tab
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    wide = tab.locator(".scroll").first
    assert wide.evaluate("node => node.scrollWidth > node.clientWidth && node.clientWidth <= 390")
    assert all(box["height"] >= 44 for box in (b.bounding_box() for b in tab.locator("[data-series]").all()))
    assert tab.evaluate("document.querySelector('.plot').layout.dragmode") is False  # a finger scrolls the page
    assert phone.is_content()
