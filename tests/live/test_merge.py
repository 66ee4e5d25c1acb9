"""Logs of several sites in one: one order, a prefix of it, each decision once, and only where γ* is one."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from limits import restated
from live.plant import Plant, live_advisor
from tether import Advisor, Upkeep
from tether.cli import app
from tether.errors import InputError
from tether.live.backup import backup
from tether.live.log.memory import MemoryStore
from tether.live.log.sqlite import SqliteStore
from tether.live.merge import merge
from worlds import finite_problem, world_and_streams

WORLD = world_and_streams(3, horizon=1)[0]
HERE = __name__


def problem():
    return WORLD.problem


class Site:
    """An advisor at work, with a clock that all sites share."""

    def __init__(self, clock, seed, store=None, mode="live"):
        self.store = store or MemoryStore(clock=lambda: clock[0])
        self.clock, self.advisor = clock, live_advisor(problem(), self.store, clock=lambda: clock[0], mode=mode)
        self.plant = Plant(WORLD.true_gamma, seed=seed)

    def decide(self):
        self.clock[0] += 1.0
        return self.advisor.decide(self.plant.state())

    def record(self, made):
        self.advisor.record(made.id, 0.3, self.plant.measure(0, made.feature))

    def play(self, count):
        for _ in range(count):
            self.record(self.decide())


def sites(*plays):
    clock, found = [0.0], []
    for seed, count in enumerate(plays):
        found.append(Site(clock, seed))
        found[-1].play(count)
    return found


def central():
    store = MemoryStore()
    Advisor(problem(), store)
    return store


def learned(store):
    return Advisor(problem(), store, upkeep=Upkeep(refresh=None)).replica.learner


def test_the_merged_learner_has_the_sums_of_all_sites():
    one, other = sites(20, 30)
    into = central()
    found = merge([one.store, other.store], into, problem())
    assert found.read == found.used == (20, 30) and (found.new, found.lost, found.waits_for) == (50, 0, "")
    agent, parts = learned(into).agent, [site.advisor.replica.learner.agent for site in (one, other)]
    ridge = agent.costs.ridge
    grams = [part.costs.gram[0] - part.costs.ridge * np.eye(3) for part in parts]
    assert np.allclose(agent.costs.gram[0], ridge * np.eye(3) + sum(grams))
    assert agent.data_version == 50
    decision = Advisor(problem(), into, upkeep=Upkeep(refresh=None)).replica.learner.propose(0, 1)
    assert decision.is_baseline is False and decision.evidence[0].margin >= 0.0


def test_every_site_waits_for_the_first_open_decision_of_any():
    """Times 1 to 5 at site 0, 6 to 10 at site 1, whose second is open: what was decided after it, anywhere, waits."""
    one, other = sites(5, 1)
    open_one = other.decide()
    other.play(3)
    one.play(4)
    into = central()
    found = merge([one.store, other.store], into, problem())
    assert found.used == (5, 1) and found.new == 6 and found.read == (9, 5)
    assert found.waits_for == f"{open_one.id} of {other.store.identity()}"
    other.record(open_one)
    again = merge([one.store, other.store], into, problem())
    assert again.used == (9, 5) and again.new == 8 and learned(into).version == 14
    assert merge([one.store, other.store], into, problem()).new == 0


def test_a_copy_of_a_log_counts_once():
    (site,) = sites(10)
    into = central()
    found = merge([site.store, site.store], into, problem())
    assert found.used == (10, 10) and found.new == 10 and learned(into).version == 10


def test_what_a_log_has_decided_itself_counts_once_when_it_or_a_copy_is_merged_into_it(tmp_path):
    other, clock = sites(5)[0], [100.0]
    site = Site(clock, 1, SqliteStore(tmp_path / "one.db", clock=lambda: clock[0]), mode="shadow")
    site.play(10)
    backup(site.store, tmp_path / "copy.db")
    copy = Site(clock, 2, SqliteStore(tmp_path / "copy.db", clock=lambda: clock[0]))
    copy.play(3)
    found = merge([other.store, site.store, copy.store], site.store, problem())
    assert found.read == (5, 0, 3) and found.new == 8 and learned(site.store).version == 18


def test_nothing_is_merged_into_a_log_that_has_decided_other_than_the_safe_action():
    """Else the others' outcomes, cut where somebody liked, would count between decisions. A new log takes them."""
    one, two = sites(5, 12)
    before = two.store.head()
    with pytest.raises(
        InputError, match=r"other actions than the safe one .* \(entry \d+\), so these rows come too late"
    ):
        merge([one.store], two.store, problem())
    assert two.store.head() == before
    into = central()
    assert merge([one.store, two.store], into, problem()).new == 17
    two.play(3)
    assert merge([one.store, two.store], into, problem()).new == 3 and learned(into).version == 20


@pytest.mark.parametrize("per", ["decision", "second"])
def test_where_costs_drift_nothing_is_merged(per):
    """Rows of old data have no age, and would count as of now."""
    told, stores = restated(problem(), drift=1e-4, drift_per=per), (MemoryStore(), MemoryStore())
    for store in stores:
        advisor = live_advisor(told, store)
        advisor.record(advisor.decide(0).id, 0.3, 0.2)
    with pytest.raises(InputError, match="how many decisions ago they were"):
        merge(stores[:1], stores[1], told)


def test_what_did_not_leave_or_was_lost_teaches_nothing():
    (site,) = sites(4)
    gone = site.decide()
    site.advisor.lose(gone.id, by="me", why="sensor")
    site.play(2)
    found = merge([site.store], central(), problem())
    assert (found.read, found.used, found.new, found.lost) == ((7,), (7,), 6, 1)


def test_sites_with_another_problem_or_other_features_are_refused():
    (site,) = sites(4)
    other = finite_problem()[0]
    store = MemoryStore()
    Advisor(other, store)
    with pytest.raises(InputError, match="another problem"):
        merge([site.store], store, other)
    told = {name: getattr(problem(), name) for name in type(problem()).__dataclass_fields__}
    swapped = type(problem())(**{**told, "actions": lambda s: WORLD.problem.actions((s + 1) % 4)})
    with pytest.raises(InputError, match="the site has other features"):
        merge([site.store], central(), swapped)
    with pytest.raises(InputError, match="has no entries"):
        merge([MemoryStore()], central(), problem())


def test_the_command_line_merges_files(tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        site = Site([0.0], seed, tmp_path / f"{name}.db")
        site.play(6)
        site.advisor.close()
    files = [str(tmp_path / f"{name}.db") for name in ("a", "b")]
    arguments = ["merge", *files, "--into", str(tmp_path / "all.db"), "--problem", f"{HERE}:problem"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "6 of 6 decisions" in shown.output and "12 outcomes are new; the learner of" in shown.output
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert (told["new"], told["data_version"]) == (0, 12)
