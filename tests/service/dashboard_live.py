"""The real service around an advisor, in a thread; and, run as a script, the pictures of docs/dashboard-*.png.

python tests/service/dashboard_live.py FOLDER serves 375 days of the heating world and takes the pictures.
"""

import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import uvicorn

from limits import kept
from tether.live.advisor import Advisor
from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria, Guards
from tether.problem.names import Names
from tether.service.app import create_app
from tether.service.auth import add_token
from tether.service.config import LabelsSection, ServiceConfig


@contextmanager
def serving(advisor, folder, labels=None):
    """(address, tokens of an admin, a reader and a client) of a service around this advisor, until the block ends."""
    file = Path(folder) / "tokens.json"
    people = {
        "admin": ("anna", ("read", "admin")),
        "read": ("ben", ("read",)),
        "decide": ("house", ("decide", "record")),
    }
    tokens = {role: add_token(file, *person, None) for role, person in people.items()}
    told = {"problem": "none:needed", "tokens": file.name, "folder": Path(folder), "labels": labels or LabelsSection()}
    app = create_app(ServiceConfig(**told), advisor)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
        if not thread.is_alive():
            raise RuntimeError("the service did not start")
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/", tokens
    finally:
        server.should_exit = True
        thread.join(30)


def name_of(state):
    """One of 3 bands outside × 3 of the room × away or home, in words."""
    outside, room = ("mild", "cold", "freezing")[state // 6], ("warm", "cool", "cold")[state // 2 % 3]
    return f"{outside}, {room} room, {'at home' if state % 2 else 'away'}"


class House:
    """The heating world lived through an advisor: 30 days of shadow, 60 guarded, then live, a minute per step."""

    def __init__(self, days, seed=0):
        from tether.lab.worlds.heating import DIRECTIONS, heating

        self.world, self.rng = heating(np.random.default_rng(seed)), np.random.default_rng(seed + 1)
        problem = replace(self.world.problem, names=Names(actions=[*DIRECTIONS], state=name_of))
        self.now, self.end = time.time() - 60.0 * days * self.world.problem.horizon, days
        clock = {"clock": lambda: self.now}
        settings = {"guards": Guards(reward_range=(0.0, 1.0)), "criteria": Criteria(outcomes=100), **clock}
        self.advisor = Advisor(problem, MemoryStore(**clock), **kept(**settings))
        for day in range(days):
            if day == 30:
                self.advisor.promote("guarded", by="anna", why="30 days in shadow, nothing unusual")
            if day == 90:
                self.advisor.promote("live", by="anna", why="60 guarded days, and a gain that is shown")
            self.live_a_day(day)

    def live_a_day(self, day):
        """One episode; three costs in a hundred are not measured."""
        world, state = self.world, int(self.rng.choice(len(self.world.initial), p=self.world.initial))
        for step in range(world.problem.horizon):
            self.now += 60.0
            decision = self.advisor.decide(state, step, f"day-{day}")
            x = np.array(decision.feature)
            law = np.clip(x @ world.true_mu[step], 0.0, None)
            cost = world.true_gamma[step] @ x + world.problem.noise * self.rng.standard_normal(
                len(world.problem.constraints)
            )
            state = int(self.rng.choice(len(law), p=law / law.sum()))
            measured = None if self.rng.random() < 0.03 else cost.tolist()
            self.advisor.record(decision.id, float(world.true_theta[step] @ x), measured, state)


def take_pictures(browser, address, token, folder):
    """Light, dark, a certificate, a phone."""

    def page(**habits):
        tab = browser.new_context(**habits).new_page()
        tab.goto(address)
        tab.locator("#token").fill(token)
        tab.keyboard.press("Enter")
        tab.locator("#link.live").wait_for()
        time.sleep(0.5)
        return tab

    wide = {"viewport": {"width": 1360, "height": 1180}}
    for scheme in ("light", "dark"):
        tab = page(color_scheme=scheme, **wide)
        tab.locator("[data-window='0']").click() if scheme == "dark" else None
        time.sleep(0.5)
        tab.screenshot(path=folder / f"dashboard-{scheme}.png")
        if scheme == "light":
            tab.set_viewport_size({"width": 1360, "height": 900})
            tab.locator("#decisions tbody tr").filter(has_not_text="<").first.locator("td").nth(1).click()
            tab.locator("#certificate .verdict").wait_for()
            tab.screenshot(path=folder / "dashboard-certificate.png")
    phone = page(viewport={"width": 360, "height": 780}, is_mobile=True, has_touch=True, device_scale_factor=2)
    phone.screenshot(path=folder / "dashboard-phone.png")


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    from browser import CHROMIUM, FLAGS

    place = Path(sys.argv[1])
    labels = LabelsSection(title="Heating: one house, 8 steps a day", constraints=["Discomfort"])
    with serving(House(375).advisor, place, labels) as (where, given), sync_playwright() as play:
        started = play.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        take_pictures(started, where, given["admin"], place)
        started.close()
