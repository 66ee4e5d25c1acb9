"""The dashboard: its files read as text, then the page in a real Chromium in front of a stand-in for the service."""

import re
import time
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from dashboard_stub import STATIC, Stub, serve

from tether import Constraint

FILES = sorted(STATIC.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]


class Outline(HTMLParser):
    """Which elements the page has, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def outline():
    return Outline((STATIC / "index.html").read_text(encoding="utf-8"))


def test_the_page_loads_only_its_own_files_and_they_all_exist(outline):
    asked = [a.get("src") or a.get("href") for tag, a in outline.elements if tag in ("script", "link", "img")]
    assert len(asked) >= 4 and all((STATIC.parent / address).is_file() for address in asked)
    for path in FILES:
        outside = set(re.findall(r"https?://[^\"'\s]+", path.read_text(encoding="utf-8")))
        assert outside <= {"http://www.w3.org/2000/svg"}, path.name
    imports = {name for path in SCRIPTS for name in re.findall(r'from "\./([\w.]+)"', path.read_text(encoding="utf-8"))}
    assert imports == {path.name for path in SCRIPTS} - {"dashboard.js"}


def test_the_policy_forbids_inline_code_and_the_page_has_none(outline):
    (policy,) = [a["content"] for tag, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    for tag, attributes in outline.elements:
        assert "style" not in attributes and not [name for name in attributes if name.startswith("on")]
        assert tag != "style" and (tag != "script" or attributes.get("src"))


def test_no_script_parses_html_or_keeps_the_token_beyond_the_tab():
    source = {path.name: path.read_text(encoding="utf-8") for path in SCRIPTS}
    for name, text in source.items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|cookie", text
        )
        assert "sessionStorage" not in text or name == "api.js"
        for line in text.splitlines():
            assert "localStorage" not in line or "THEME_KEY" in line


def test_files_are_short_and_the_page_is_well_formed(outline):
    assert {p.name: n for p in FILES if (n := len(p.read_text(encoding="utf-8").splitlines())) > 300} == {}
    ids = [a["id"] for _, a in outline.elements if "id" in a]
    assert len(ids) == len(set(ids))
    named = {a[key] for _, a in outline.elements for key in ("for", "aria-labelledby") if key in a}
    assert named <= set(ids)
    headings = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch(r"h[1-6]", tag)]
    assert headings.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(headings))
    source = "".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    assert set(re.findall(r'\$\("([\w-]+)"\)', source)) <= set(ids)


class Person:
    """Somebody with a browser, who notices errors, warnings and every address that the page asks for."""

    def __init__(self, browser, stub=None, token=None, home=None, **habits):
        self.trouble, self.asked, self.stub = [], [], stub
        self.server = serve(stub) if stub else None
        self.home = home or f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.context = browser.new_context(viewport=habits.pop("viewport", {"width": 1280, "height": 900}), **habits)
        self.context.set_default_timeout(120_000)  # a machine may be busy
        self.tab = self.context.new_page()
        self.tab.on("console", self._hear)
        self.tab.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(self.home)
        if token:
            self.log_in(token)

    def _hear(self, message):
        if message.type in ("error", "warning"):
            self.trouble.append(message.text)

    def log_in(self, token):
        self.tab.locator("#token").fill(token)
        self.tab.keyboard.press("Enter")
        self.tab.locator("#link.live").wait_for()  # everything has been read once

    def rows(self):
        return self.tab.locator("#decisions tbody tr")

    def see(self, selector, text):
        """Waits until an element that holds this text is visible."""
        self.tab.locator(selector).filter(has_text=text).first.wait_for()

    def is_content(self, but=""):
        """No error or warning (but those that match), and nothing asked of anybody else."""
        unexpected = [line for line in self.trouble if not (but and re.search(but, line))]
        outside = [url for url in self.asked if not url.startswith((self.home, "data:", "blob:"))]
        return (unexpected, outside) == ([], [])

    def leave(self):
        self.context.close()
        self.stub.broken = False
        self.server.shutdown()
        self.server.server_close()


class Bandit:
    """Two segments, three rays each: the problem of examples/live_bandit.py, behind a real advisor in live mode."""

    def __init__(self):
        np = pytest.importorskip("numpy")
        from tether.live.advisor import Advisor
        from tether.live.policy import Criteria
        from tether.problem.action_sets import StarActions
        from tether.problem.problem import Problem

        def actions(state):
            kind = np.array([state == "new", state == "loyal"], dtype=float)
            levers = [(0.8, 0.0), (0.0, 0.8), (0.6, 0.6)]
            return StarActions(
                0.5 * np.array([*kind, 0.0, 0.0]), np.array([0.5 * np.array([*kind, *each]) for each in levers])
            )

        problem = Problem(
            horizon=1,
            constraints=Constraint(
                threshold=0.03,
                noise=0.02,
                safe_cost=lambda step, state: {"new": 0.010, "loyal": 0.004}[state],
                gamma_norm=0.1,
            ),
            dimension=4,
            actions=actions,
        )
        self.advisor = Advisor(problem, mode="live", criteria=Criteria.none())


def test_with_the_real_service_a_decision_arrives_its_certificate_opens_and_the_switch_works(browser, tmp_path):
    pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    from dashboard_live import serving
    from service_app import plain_client

    with serving(Bandit().advisor, tmp_path) as (home, tokens):
        client = plain_client(home, headers={"Authorization": f"Bearer {tokens['decide']}"})

        def decide(state):
            made = client.post("v1/decisions", json={"state": state}).raise_for_status().json()
            told = {"decision_id": made["id"], "reward": 0.3, "cost": 0.01}
            client.post("v1/outcomes", json=told).raise_for_status()
            return made

        for state in ["new", "loyal"] * 10:
            decide(state)
        person = Person(browser, home=home)
        tab = person.tab
        tab.locator("#token").fill(tokens["decide"])
        tab.keyboard.press("Enter")
        person.see("#log-in-error", "may not read")
        person.log_in(tokens["admin"])
        assert tab.locator("#who").inner_text() == "anna · admin" and person.rows().count() == 15
        made = decide("new")
        assert not made["is_baseline"]
        tab.locator(f"tr[data-id='{made['id']}']").click()
        tab.locator("#certificate .verdict").wait_for()
        text, (limit,) = tab.locator("#certificate-body").inner_text(), made["certificate"]["limits"]
        assert f"{limit['bound']:.5f}" in text and f"{limit['gate_bound']:.5f}" in text and "theorem" in text
        assert tab.locator(f"#certificate code[title='{made['certificate']['model_hash']}']").count() == 1
        tab.keyboard.press("Escape")
        tab.locator("#stop").click()
        tab.locator("#ask-why").fill("a drill")
        tab.keyboard.press("Enter")
        person.see("#banners [role=alert]", "By anna: “a drill”")
        stopped = decide("new")
        assert stopped["is_baseline"] and stopped["reason"] == "stopped"
        line = tab.locator(f"tr[data-id='{stopped['id']}']")
        line.wait_for()
        assert "a₀" in line.inner_text() and "the kill switch is on (by anna: a drill)" in line.inner_text()
        person.see("#history", "a drill")
        assert (
            tab.locator("#chart-margin path.ticks.baseline").get_attribute("d").count("M") == 1
        )  # drawn as what was played
        tab.locator("#resume").click()
        tab.locator("#ask-why").fill("the drill is over")
        tab.keyboard.press("Enter")
        tab.locator("#banners [role=alert]").wait_for(state="detached")
        assert not decide("new")["is_baseline"]
        assert person.is_content(but="403")
        person.context.close()


@pytest.fixture
def meet(browser):
    """Makes people, each in front of a service of their own; all leave at the end."""
    people = []

    def someone(token=None, stub=None, decisions=12, **habits):
        stub = stub or Stub()
        for _ in range(decisions):
            stub.decide()
        people.append(Person(browser, stub, token, **habits))
        return people[-1]

    yield someone
    for person in people:
        person.leave()


def test_a_wrong_token_and_one_that_may_not_read_are_told_apart_and_nothing_is_kept(meet):
    person = meet()
    tab = person.tab
    for token, answer in (
        ("nonsense", "not valid"),
        ("caller", "may not read"),
        ("", "paste a token"),
        ("é", "not a token"),
    ):
        tab.locator("#token").fill(token)
        tab.keyboard.press("Enter")
        person.see("#log-in-error", answer)
        assert not tab.locator("#board").is_visible()
        assert tab.evaluate("sessionStorage.length") == 0 and tab.locator("#token").input_value() == ""
    assert person.is_content(but="401|403")


@pytest.mark.slow
def test_a_log_in_lasts_for_the_tab_and_no_longer(meet):
    person = meet("reader")
    tab = person.tab
    assert tab.locator("#who").inner_text() == "reader · read"
    assert tab.evaluate("[sessionStorage.length, Object.keys(localStorage)]") == [1, ["tether-theme"]]
    tab.reload()
    tab.locator("#board").wait_for()
    other = person.context.new_page()
    other.goto(person.home)
    other.locator("#log-in").wait_for()
    tab.get_by_role("button", name="Log out").click()
    tab.locator("#log-in").wait_for()
    assert tab.evaluate("sessionStorage.length") == 0 and not tab.locator("#board").is_visible()
    assert person.is_content()


def test_actions_are_called_by_the_names_that_the_problem_gave(meet):
    stub = Stub()
    stub.actions = [f"set-point +{k} K" for k in range(100)]
    person = meet("reader", stub=stub)
    played = next(row["played"] for row in reversed(stub.rows) if not row["is_baseline"])
    text = person.tab.locator("#board").inner_text()
    assert f"set-point +{played} K" in text and f"action {played}" not in text
    assert person.is_content()


@pytest.mark.slow
def test_a_decision_arrives_by_itself(meet):
    person = meet("reader")
    tab = person.tab
    assert person.rows().count() == 12 and tab.locator("#tiles b").first.inner_text() == "12"
    before = tab.locator("#chart-margin .learned, #chart-margin .baseline").evaluate_all(
        "all => all.map(path => path.getAttribute('d')).join('').split('M').length - 1"
    )
    new = person.stub.decide()
    tab.locator(f"tr[data-id='{new}']").wait_for()
    assert person.rows().first.get_attribute("data-id") == new
    assert re.search(r"\b\d\d:\d\d:\d\d\b", person.rows().first.locator("th").inner_text())
    person.see("#tiles", "13")
    after = tab.locator("#chart-margin .learned, #chart-margin .baseline").evaluate_all(
        "all => all.map(path => path.getAttribute('d')).join('').split('M').length - 1"
    )
    assert (before, after) == (12, 13)
    assert person.is_content()


@pytest.mark.slow
def test_updates_can_be_paused(meet):
    person = meet("reader")
    person.tab.get_by_role("button", name="Pause").click()
    person.stub.decide()
    person.stub.decide()
    time.sleep(1.5)
    assert person.rows().count() == 12 and person.tab.locator("#link").inner_text() == "Paused"
    person.tab.get_by_role("button", name="Pause").click()
    person.rows().nth(13).wait_for()
    assert person.is_content()


@pytest.mark.slow
def test_a_click_opens_the_certificate_with_the_numbers_of_the_log_and_escape_returns(meet):
    person = meet("reader", decisions=60)
    tab, row = person.tab, next(row for row in reversed(person.stub.rows) if not row["is_baseline"])
    tab.locator(f"tr[data-id='{row['id']}']").click()
    body = tab.locator("#certificate-body")
    body.locator(".verdict").wait_for()
    text, limit = body.inner_text(), row["certificate"]["limits"][0]
    assert f"action {row['played']}" in text and f"{limit['margin']:.4f}" in text and f"{limit['bound']:.4f}" in text
    assert "theorem" in text and "⚠" not in text and "highest score" in text
    for fact in (row["certificate"]["model_hash"], row["certificate"]["head"], row["entry"]["hash"]):
        assert body.locator(f"code[title='{fact}']").count() >= 1
    assert body.locator(".features tr").count() == len(row["certificate"]["feature"])
    tab.keyboard.press("Escape")
    tab.locator("#certificate").wait_for(state="hidden")
    assert person.is_content()


@pytest.mark.slow
def test_an_address_with_a_decision_opens_it_and_an_unknown_one_says_so(meet):
    person = meet("reader")
    tab = person.tab
    tab.goto(f"{person.home}#decision={person.stub.rows[3]['id']}")
    person.see("#certificate-title", f"entry {person.stub.rows[3]['seq']}")
    tab.get_by_role("button", name="Close the certificate").click()
    tab.wait_for_url(person.home)  # the dialog's event comes after the click has returned
    tab.goto(f"{person.home}#decision=%3Cb%3Enobody")
    person.see("#certificate-body", "no decision <b>nobody")
    assert person.is_content(but="404")


@pytest.mark.slow
def test_a_late_answer_does_not_take_the_place_of_the_certificate_that_was_opened_after_it(meet):
    person = meet("reader")
    tab, (first, second), held = person.tab, person.stub.rows[3:5], []
    tab.route(f"**/v1/decisions/{first['id']}", lambda route: held.append(route))
    with tab.expect_request(f"**/v1/decisions/{first['id']}"):
        tab.locator(f"tr[data-id='{first['id']}']").click()
    tab.goto(f"{person.home}#decision={second['id']}")
    person.see("#certificate-title", f"entry {second['seq']}")
    while not held:  # it has been asked for
        tab.wait_for_timeout(20)
    with tab.expect_response(f"**/v1/decisions/{first['id']}"):
        held[0].continue_()
    tab.evaluate("new Promise((done) => { setTimeout(done, 300); })")
    assert f"entry {second['seq']}" in tab.locator("#certificate-title").inner_text()
    assert tab.evaluate("location.hash") == f"#decision={second['id']}" and person.is_content()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"origin": "tuned"}, "rule of thumb"),
        ({"bounds": "expected cost"}, "a single action may cost more than τ"),
        ({"listed": 356}, "each of its 356 actions is taken to cost between 0 and 1"),
    ],
)
def test_a_tuned_radius_an_expected_cost_and_listed_actions_are_said_on_the_certificate(meet, options, words):
    person = meet("reader", stub=Stub(**options), decisions=60)
    row = next(row for row in reversed(person.stub.rows) if not row["is_baseline"])
    line = person.tab.locator(f"tr[data-id='{row['id']}']")
    assert ("⚠ tuned" in line.inner_text()) == ("origin" in options)
    line.click()
    person.see("#certificate .banner", words)
    shown = person.tab.locator("#certificate-body").inner_text()
    assert ("⚠ tuned" in shown) == ("origin" in options)
    assert ("mean cost is at most" in shown) == ("bounds" not in options)
    assert person.tab.locator("#banners").filter(has_text="tuned").count() == ("origin" in options)
    assert person.is_content()


@pytest.mark.slow
def test_in_shadow_mode_the_page_says_what_would_have_been_played(meet):
    stub = Stub()
    stub.mode = "shadow"
    for _ in range(40):
        stub.bandit.feel(stub.bandit.choose()[1][3])
    person = meet("reader", stub=stub, decisions=20)
    row = next(row for row in reversed(stub.rows) if not row["proposed_is_baseline"])
    assert "a₀ acts" in person.tab.locator("#mode-why").inner_text()
    line = person.tab.locator(f"tr[data-id='{row['id']}']")
    assert f"action {row['proposed']}" in line.inner_text() and "would be played" in line.inner_text()
    small = [text for text in line.locator("td small").all_inner_texts() if text != "above τ"]
    assert small == [
        "of the proposal",
        "of the proposal",
        "of a₀",
        "of a₀",
    ]  # bound, margin, cost, reward
    row["detail"] = "shadow mode: decided and logged, a_0 acts"
    line.click()
    person.see("#certificate-body", f"Proposed but not played, action {row['proposed']}")
    person.see("#certificate .verdict", "The safe action was played: shadow mode: a₀ acts.")
    assert "decided and logged" not in person.tab.locator("#certificate-body > :not(details)").all_inner_texts()[0]
    assert person.is_content()


@pytest.mark.slow
def test_an_admin_throws_the_switch_and_the_next_decision_is_the_safe_action(meet):
    person = meet("chief", decisions=60)
    tab, stub = person.tab, person.stub
    tab.get_by_role("button", name="Stop: play a₀ only").click()
    tab.keyboard.press("Escape")
    tab.locator("#ask").wait_for(state="hidden")
    assert stub.stopped is None
    tab.get_by_role("button", name="Stop: play a₀ only").click()
    tab.locator("#ask-why").fill("")
    tab.get_by_role("button", name="Stop now").click()
    person.see("#ask-error", "give a reason")
    assert stub.stopped is None
    tab.locator("#ask-why").fill("smoke <i>in</i> the lab")
    tab.keyboard.press("Enter")
    person.see("#banners [role=alert]", "By chief: “smoke <i>in</i> the lab”")
    assert stub.stopped["why"] == "smoke <i>in</i> the lab" and tab.title().startswith("■ Stopped")
    new = stub.decide()
    line = tab.locator(f"tr[data-id='{new}']")
    line.wait_for()
    assert "a₀" in line.inner_text() and "the kill switch is on" in line.inner_text() and stub.rows[-1]["played"] == 0
    tab.get_by_role("button", name="Resume …").click()
    tab.locator("#ask-why").fill("aired")
    tab.keyboard.press("Enter")
    tab.locator("#banners [role=alert]").wait_for(state="detached")
    assert stub.stopped is None and tab.locator("#history li").count() == 2
    assert person.is_content()


@pytest.mark.slow
def test_without_the_role_there_is_no_switch_to_throw(meet):
    person = meet("reader")
    for button in ("stop", "resume", "change-mode"):
        assert not person.tab.locator(f"#{button}").is_visible()
    assert person.tab.locator("#not-admin").is_visible()


@pytest.mark.slow
def test_a_refused_promotion_names_what_is_missing_and_a_step_down_works(meet):
    person = meet("chief")
    tab = person.tab
    person.stub.mode = "guarded"
    person.stub.note("mode", "guarded")
    person.see("#modes [aria-current]", "guarded")
    for mode in ("live", "shadow"):
        tab.get_by_role("button", name="Change mode …").click()
        tab.get_by_role("radio", name=mode).check()
        tab.locator("#ask-why").fill("because")
        tab.get_by_role("button", name="Change mode", exact=True).click()
        if mode == "live":
            person.see("#ask-error li", "outcomes recorded: 12, needed: 100")
            tab.get_by_role("button", name="Cancel").click()
    person.see("#modes [aria-current]", "shadow")
    assert person.stub.mode == "shadow" and person.is_content(but="409")


@pytest.mark.slow
def test_a_silent_sensor_is_told_of_and_outcomes_that_wait_have_a_banner(meet):
    person = meet("reader")
    person.stub.waiting = {"for": "7", "since": time.time() - 600.0}
    person.stub.decide(outcome=False)
    person.see("#tiles", "1 to come, the first since")
    assert "Learning waits" not in person.tab.locator("#banners").inner_text()
    person.stub.early = 3
    person.stub.note("mode", "live")
    words = "Learning waits for the outcome of decision 7, made 10 min ago. {} outcomes wait behind it. Report"
    person.see("#banners", words.format(3))
    person.stub.early = 4
    person.stub.note("mode", "live")
    person.see("#banners", words.format(4))
    assert person.tab.locator("#banners .banner").count() == 1 and person.is_content()


@pytest.mark.slow
def test_a_hundred_outcomes_that_wait_have_a_banner_at_once(meet):
    person = meet("reader")
    person.stub.waiting, person.stub.early = {"for": "7", "since": time.time()}, 100
    person.stub.decide(outcome=False)
    person.see("#banners", "Learning waits for the outcome of decision 7, made 0 s ago. 100 outcomes wait behind it")


@pytest.mark.slow
def test_what_proposals_gain_over_the_safe_action_is_shown_with_its_interval(meet):
    person = meet("chief")
    tab, gain = person.tab, {"estimate": 0.12, "low": 0.05, "high": 0.19}
    why = "no range of rewards is declared"
    found = {"compared": 445, "played": 226, "waiting": 0, "ended": False, "why": "", "confidence": 0.95}
    person.stub.uplift = {**found, "reward": gain, "costs": [{"estimate": 0.0, "low": -0.3, "high": 0.4}]}
    person.stub.note("mode", "guarded")
    person.see("#tiles", "+0.05 to +0.19, 95\u00a0% sure")
    person.see("#facts", "445 decisions drawn between proposal and a₀; reward +0.05 to +0.19; Discomfort −0.3 to +0.4")
    person.stub.uplift = {**found, "compared": 0, "reward": None, "costs": [None], "why": why}
    person.stub.note("mode", "guarded")
    person.see("#facts", why)
    tab.get_by_role("button", name="Change mode …").click()
    tab.get_by_role("radio", name="live").check()
    tab.get_by_role("checkbox").check()
    tab.locator("#ask-why").fill("because")
    tab.get_by_role("button", name="Change mode", exact=True).click()
    person.see("#ask-error li", "outcomes recorded")
    assert person.stub.orders[-1]["override"] is True


@pytest.mark.slow
def test_an_alarm_is_announced_with_what_and_why_and_an_admin_resets_it(meet):
    person = meet("chief")
    person.stub.alarm = {"test": "linearity", "message": "Costs are not linear in φ (p < 1e-6)", "time": time.time()}
    person.stub.note("tripped", "linearity")
    person.see("#banners [role=alert]", "Alarm: linearity. Costs are not linear in φ (p < 1e-6). Only a₀ is played")
    assert person.tab.title().startswith("⚠ Alarm")
    person.tab.get_by_role("button", name="Reset the alarm …").click()
    person.tab.locator("#ask-why").fill("sensor replaced")
    person.tab.get_by_role("button", name="Reset the alarm", exact=True).click()
    person.tab.locator("#banners [role=alert]").wait_for(state="detached")
    assert person.stub.alarm is None and person.is_content()


@pytest.mark.slow
def test_a_lost_connection_is_said_and_mended(meet):
    person = meet("reader")
    with person.stub.changed:
        person.stub.broken = True
        person.stub.changed.notify_all()
    person.see("#banners", "Connection lost.")
    assert person.tab.locator("#link").inner_text() == "Connection lost" and person.rows().count() == 12
    person.stub.broken = False
    person.stub.decide()
    person.tab.get_by_role("button", name="Retry now").click()
    person.rows().nth(12).wait_for()
    person.tab.locator("#banners .banner").wait_for(state="detached")
    assert person.tab.locator("#link").inner_text() == "Online"
    assert person.is_content(but="ERR_|Failed to load")


@pytest.mark.slow
def test_a_token_that_is_revoked_leads_back_to_the_log_in(meet):
    person = meet("reader")
    person.stub.revoked.add("reader")
    person.stub.decide()
    person.see("#log-in-error", "no longer valid")
    assert person.tab.evaluate("sessionStorage.length") == 0 and not person.tab.locator("#board").is_visible()
    assert person.is_content(but="401")


@pytest.mark.slow
def test_an_open_service_needs_no_log_in_and_says_so(meet):
    person = meet(stub=Stub(is_open=True))
    person.tab.locator("#board").wait_for()
    person.see("#banners", "No tokens are set up.")
    assert not person.tab.locator("#log-out").is_visible() and person.tab.locator("#stop").is_visible()
    assert person.is_content()


@pytest.mark.slow
def test_an_empty_log_has_a_word_in_each_place(meet):
    person = meet("reader", decisions=0)
    assert "No decision yet" in person.tab.locator("#no-decisions").inner_text()
    assert person.tab.locator(".chart .empty:visible").count() == 4
    text = person.tab.locator("#board").inner_text()
    assert "all with a cost" not in text and "all so far" not in text and "Line: mean" not in text
    assert (
        "NaN" not in person.tab.locator("#board").inner_text()
        and "undefined" not in person.tab.locator("#board").inner_text()
    )
    person.stub.decide(outcome=False)
    person.rows().first.wait_for()
    assert (
        person.tab.locator(".chart .empty:visible").count() == 2
    )  # margin and certified share are known, rewards are not
    assert person.is_content()


def test_text_from_the_log_is_never_read_as_html(meet):
    stub = Stub()
    stub.decide()
    nasty = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    stub.rows[-1].update(state=nasty, episode=nasty, detail=nasty, proposed=nasty, played=nasty, reason=nasty)
    stub.note("mode", nasty, by=nasty)
    person = meet("reader", stub=stub, decisions=0)
    person.rows().first.click()
    person.see("#certificate-body", "<img src=x onerror")
    assert person.tab.locator("main img, dialog img, main script, dialog script").count() == 0
    assert person.is_content()


@pytest.mark.slow
def test_older_decisions_and_kinds_can_be_asked_for(meet):
    person = meet("reader", decisions=40)
    assert person.rows().count() == 15
    person.tab.get_by_role("button", name="Show older").click()
    person.rows().nth(29).wait_for()
    person.stub.decide()
    person.see("#tiles", "41")
    seen = person.rows().evaluate_all("rows => rows.map(row => row.dataset.id)")
    assert seen == [row["id"] for row in reversed(person.stub.rows)][: len(seen)] and len(seen) >= 30
    person.tab.get_by_role("group", name="Which decisions").get_by_role("button", name="Learned").click()
    wanted = [row["id"] for row in reversed(person.stub.rows) if not row["proposed_is_baseline"]][:15]
    person.tab.locator(f"tr[data-id='{wanted[0]}']").wait_for()
    assert person.rows().evaluate_all("rows => rows.map(row => row.dataset.id)") == wanted
    assert person.is_content()


def test_everything_can_be_done_with_the_keyboard_alone(meet):
    person = meet(decisions=30)
    tab, keys = person.tab, person.tab.keyboard
    tab.locator("#token").wait_for()
    keys.type("chief")
    keys.press("Enter")
    tab.locator("#link.live").wait_for()
    tab.locator(".skip").focus()
    reached = []
    for _ in range(40):
        keys.press("Tab")
        reached.append(tab.evaluate("document.activeElement.id || document.activeElement.className"))
        ring = "getComputedStyle(document.activeElement).outlineStyle"
        assert tab.evaluate(ring) != "none", reached[-1]
        if reached[-1] == "open":
            break
    assert {"stop", "change-mode", "chart-margin", "chart-share", "theme", "open"} <= set(reached)
    keys.press("ArrowDown")
    keys.press("Enter")
    person.see("#certificate-title", f"{person.stub.rows[-2]['seq']}")
    keys.press("Escape")
    tab.locator("#certificate").wait_for(state="hidden")
    assert tab.evaluate("document.activeElement.closest('tr').dataset.id") == person.stub.rows[-2]["id"]
    tab.locator("#chart-margin").focus()
    keys.press("ArrowLeft")
    keys.press("ArrowLeft")
    keys.press("Enter")
    person.see("#certificate-title", f"{person.stub.rows[-2]['seq']}")
    keys.press("Escape")
    tab.locator("#stop").focus()
    keys.press("Enter")
    keys.type("by keyboard")
    keys.press("Enter")
    person.see("#banners", "by keyboard")
    assert person.stub.stopped["why"] == "by keyboard" and person.is_content()


def test_a_phone_has_no_sideways_scroll_and_targets_large_enough_for_a_thumb(meet):
    habits = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    person = meet("chief", stub=Stub(origin="tuned"), decisions=30, **habits)
    tab = person.tab
    wide = "document.documentElement.scrollWidth"
    assert tab.evaluate(wide) == 360
    buttons = tab.locator("#stop, #change-mode, #decisions .open, [data-window], #log-out")
    assert buttons.count() > 15 and all(button.bounding_box()["height"] >= 43.9 for button in buttons.all())
    person.rows().first.tap()
    tab.locator("#certificate .verdict").wait_for()
    assert tab.evaluate(wide) == 360
    have, room = tab.locator("#certificate-body").evaluate("node => [node.scrollWidth, node.clientWidth]")
    assert have <= room <= 360
    tab.get_by_role("button", name="Close the certificate").tap()
    tab.locator("#stop").tap()
    assert tab.locator("#ask").bounding_box()["width"] <= 360
    assert person.is_content()


CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_of_level_aa(meet, scheme):
    stub = Stub(origin="tuned", is_open=True)
    stub.alarm = {"test": "drift", "message": "The cost of a₀ has moved", "time": time.time()}
    stub.note("tripped", "drift")
    person = meet(stub=stub, decisions=20, color_scheme=scheme)
    person.rows().first.wait_for()
    measured = person.tab.evaluate(CONTRAST)
    person.rows().first.click()
    person.tab.locator("#certificate .verdict").wait_for()
    measured += person.tab.evaluate(CONTRAST)
    person.tab.keyboard.press("Escape")
    person.tab.locator("#change-mode").click()
    measured += person.tab.evaluate(CONTRAST)
    assert len(measured) > 200 and [(round(ratio, 2), what) for ratio, what in measured if ratio < 4.5] == []


@pytest.mark.slow
def test_dark_follows_the_system_and_the_toggle_overrides_it(meet):
    person = meet("reader", color_scheme="dark")
    tab, ground = person.tab, "getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(ground)
    tab.emulate_media(color_scheme="light")
    light = tab.evaluate(ground)
    assert (light, dark) == ("rgb(243, 245, 248)", "rgb(15, 19, 23)")
    toggle = tab.locator("#theme")
    toggle.click()
    toggle.click()
    assert toggle.inner_text() == "Theme: dark" and tab.evaluate(ground) == dark
    tab.reload()
    tab.locator("#board").wait_for()
    assert tab.evaluate(ground) == dark
    toggle.click()
    assert tab.evaluate(ground) == light and toggle.inner_text() == "Theme: auto"


@pytest.mark.slow
def test_the_charts_show_the_sums_of_the_log(meet):
    person = meet("reader", decisions=250)
    rows, tab = person.stub.rows, person.tab
    gain = sum(row["outcome"]["reward"] - row["baseline_reward"] for row in rows)
    assert tab.locator("#gain-now").inner_text() == f"+{gain:.3g}\u00a0kWh"
    tab.get_by_role("button", name="Last 200").click()
    tab.locator("[data-window='200'][aria-pressed='true']").wait_for()
    person.see("#tiles", "last 200")
    assert tab.locator("#gain-now").inner_text() == f"+{gain:.3g}\u00a0kWh"  # what came before the window still counts
    late = [row["outcome"]["reward"] - row["baseline_reward"] for row in rows[-200:]]
    tile = tab.locator("#tiles div").filter(has_text="Reward over a₀")
    person.see("#tiles b", f"+{sum(late) / 200:.3g}")
    assert "kWh" not in tile.locator("b").inner_text() and "kWh per decision" in tile.locator("small").inner_text()
    smallest = min(row["margin"] for row in rows[-200:])
    shown = tab.locator("#tiles div").filter(has_text="Smallest margin").locator("b").inner_text()
    assert shown == (f"{smallest:.4f}" if smallest >= 0.00005 else "<\u00a00.00005")
    assert "Mean over the last 100 outcomes" in tab.locator("#reward-note").inner_text()
    assert person.is_content()


@pytest.mark.slow
def test_margins_of_rounding_alone_are_drawn_on_the_line_of_a_scale_that_means_something(meet):
    stub = Stub()
    for number in range(17):
        stub.decide()
        stub.rows[-1].update(margin=1e-17 * (number - 3), proposed_is_baseline=False)
    person = meet("reader", stub=stub, decisions=0)
    labels = person.tab.locator("#chart-margin .tick").all_text_contents()
    assert "0.1" in labels and not any("e" in label for label in labels)
    heights = person.tab.locator("#chart-margin .dots.learned").get_attribute("d")
    assert len(set(re.findall(r" ([\d.]+)h", heights))) == 1
    person.see("#margin-note", "no near miss")
    for chart in ("margin", "gain", "reward", "share"):
        assert person.tab.locator(f"#chart-{chart} .tick:not([text-anchor=end][x='46'])").count() >= 2, chart
    assert person.is_content()


@pytest.mark.slow
def test_an_emergency_stop_needs_no_typing(meet):
    person = meet("chief")
    person.tab.get_by_role("button", name="Stop: play a₀ only").click()
    person.tab.get_by_role("button", name="Stop now").click()
    person.see("#banners [role=alert]", "“stopped from the dashboard”")
    person.tab.get_by_role("button", name="Resume …").click()
    assert person.tab.locator("#ask-why").input_value() == "" and person.is_content()


@pytest.mark.slow
def test_the_table_stays_as_long_as_it_was_asked_to_be(meet):
    person = meet("reader", decisions=40)
    for expected in (15, 30):
        for _ in range(3):
            person.stub.decide()
        person.tab.locator(f"tr[data-id='{person.stub.rows[-1]['id']}']").wait_for()
        assert person.rows().count() == expected
        person.tab.get_by_role("button", name="Show older").click()
        person.rows().nth(expected + 14).wait_for()
        seen = person.rows().evaluate_all("rows => rows.map(row => row.dataset.id)")
        assert seen == [row["id"] for row in reversed(person.stub.rows)][: expected + 15]
    assert person.is_content()


@pytest.mark.slow
def test_the_certificate_says_what_the_gate_said_and_only_what_is_known(meet):
    stub = Stub()
    person = meet("reader", stub=stub, decisions=60)
    learned = next(row for row in reversed(stub.rows) if not row["is_baseline"])
    learned["certified_share"] = None
    for row in (learned, next(row for row in reversed(stub.rows) if row["is_baseline"])):
        person.tab.goto(f"{person.home}#decision={row['id']}")
        person.see("#certificate-title", f"Certificate of entry {row['seq']}")
        text = person.tab.locator("#certificate-body").inner_text()
        assert ("The gate agrees" in text) == ("Certified actions" not in text) == (row is learned)
        person.tab.keyboard.press("Escape")
    assert person.tab.locator("#decisions thead th").first.inner_text() == "Entry" and person.is_content()
