"""Specs: what may be said in a TOML file, and what the reader hears about a mistake."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest
from pydantic import ValidationError

from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import InputError, TetherError
from tether.lab import registry, specs
from tether.lab.cells import cells_of
from tether.lab.registry import AgentKind, WorldKind
from tether.lab.simulate import simulate, simulate_any
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.synthetic import synthetic

SPEC = """
name = "tiny"
episodes = 20
seeds = 2

[[worlds]]
name = "synthetic"
options = { states = 3, rays = 4, dimension = 3, horizon = 2 }

[[agents]]
name = "slucb-qvi"
options = { explorer = "directional", value_radius = 1 }
"""


def edited(old: str, new: str) -> str:
    assert old in SPEC
    return SPEC.replace(old, new)


@pytest.mark.parametrize(
    ("text", "wrong", "right"),
    [
        (edited("episodes", "epsiodes"), "epsiodes", "episodes"),
        (edited("seeds", "seed"), "seed", "seeds"),
        (edited('name = "slucb-qvi"', 'name = "slucb-qvi"\nlable = "x"'), "lable", "label"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest_right_one(text, wrong, right):
    with pytest.raises(InputError, match=f"unknown key '{wrong}'; did you mean '{right}'"):
        specs.parse(text, "tiny.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (edited("explorer =", "explorr ="), "agent 'slucb-qvi' has no option 'explorr'; did you mean 'explorer'"),
        (edited("states =", "state ="), "world 'synthetic' has no option 'state'; did you mean 'states'"),
        (edited('"slucb-qvi"', '"slucb-qv"'), "unknown agent 'slucb-qv'; did you mean 'slucb-qvi'"),
        (edited('"synthetic"', '"sinthetic"'), "unknown world 'sinthetic'; did you mean 'synthetic'"),
        (edited("states = 3", 'states = "3"'), "option 'states' must be int, but is '3'"),
        (edited('"directional"', '"directionl"'), "option 'explorer' must be 'paper' | 'certified'"),
        (edited("value_radius = 1", "value_radius = -1"), "value_radius must be"),
    ],
)
def test_a_wrong_name_or_option_is_caught_before_anything_runs(text, message):
    with pytest.raises(InputError) as caught:
        cells_of(specs.parse(text, "tiny.toml"))
    assert message in str(caught.value)


@pytest.mark.parametrize("text", [edited("episodes = 20", "episodes = 0"), edited("seeds = 2", ""), "name = ["])
def test_a_spec_that_cannot_be_used_names_its_file(text):
    with pytest.raises(InputError, match=r"tiny\.toml"):
        specs.parse(text, "tiny.toml")


def test_specs_are_frozen():
    with pytest.raises(ValidationError):
        specs.parse(SPEC, "tiny.toml").episodes = 3


@pytest.mark.parametrize("name", specs.shipped())
def test_shipped_studies_survive_the_way_through_toml(name):
    study = specs.paper_study(name)
    assert specs.parse(specs.to_toml(study), name) == study


def test_figure1_is_the_papers_section_5_1():
    study = specs.paper_study("figure1")
    (world,) = study.worlds
    assert (study.seeds, study.episodes) == (20, 10_000)
    assert world.options["rays"] == 100 and world.options["dimension"] == 5 and world.options["horizon"] == 3
    assert world.options["threshold"] == 0.5 and world.options["noise"] == world.options["confidence"] == 0.01
    cells = cells_of(study)
    assert [cell.options["penalty"] for cell in cells if cell.agent == "lsvi-ucb"] == [0.8, 0.85, 0.9, 0.95]
    assert {cell.explorer for cell in cells} == {"paper", "certified", "directional", "adaptive", "plain"}


def test_every_label_says_whether_beta_is_the_theorems_tuned_or_a_default_that_nobody_tuned():
    for cell in cells_of(specs.paper_study("figure1")):
        tuned = not isinstance(cell.options.get("value_radius", "remaining"), str)
        assert cell.value_radius_origin == ("tuned" if tuned else "default")
        assert f"{cell.value_radius_origin})" in cell.label
        assert ("cost β theorem" in cell.label) == (cell.cost_radius_origin == "theorem")


def test_a_grid_makes_a_cell_for_every_combination():
    text = edited("horizon = 2 }", "horizon = 2 }\ngrid = { noise = [0.01, 0.1] }")
    text = text.replace("value_radius = 1 }", "value_radius = 1 }\ngrid = { value_ridge = [1.0, 2.0, 4.0] }")
    cells = cells_of(specs.parse(text, "tiny.toml"))
    found = {(cell.world_options["noise"], cell.options["value_ridge"]) for cell in cells}
    assert found == {(noise, ridge) for noise in (0.01, 0.1) for ridge in (1.0, 2.0, 4.0)}
    assert len({cell.label for cell in cells}) == len({cell.key for cell in cells}) == 6


def test_two_cells_of_one_name_are_refused():
    twice = SPEC + SPEC[SPEC.index("[[agents]]") :]
    with pytest.raises(InputError, match="give them different labels"):
        cells_of(specs.parse(twice, "tiny.toml"))


def test_an_option_both_fixed_and_varied_is_refused():
    with pytest.raises(InputError, match="both fixed in options and varied in grid"):
        specs.parse(edited("value_radius = 1 }", "value_radius = 1 }\ngrid = { value_radius = [1] }"), "tiny.toml")


def test_the_hash_is_stable_across_machines_and_versions():
    assert specs.spec_hash({"b": 1.0, "a": "γ"}) == specs.spec_hash({"a": "γ", "b": 1.0})
    assert specs.spec_hash({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


def test_a_cells_hash_sees_its_options_and_not_its_label_or_how_a_number_is_written():
    (plain,) = cells_of(specs.parse(SPEC, "tiny.toml"))
    (labelled,) = cells_of(specs.parse(edited('"slucb-qvi"', '"slucb-qvi"\nlabel = "mine"'), "tiny.toml"))
    (as_float,) = cells_of(specs.parse(edited("value_radius = 1", "value_radius = 1.0"), "tiny.toml"))
    (other,) = cells_of(specs.parse(edited("value_radius = 1", "value_radius = 1.5"), "tiny.toml"))
    assert plain.key == labelled.key == as_float.key != other.key


class Plain:
    """An agent that offers nothing but the protocol."""

    def __init__(self, world, options):
        self._agent = SlucbQvi(world.problem, SlucbConfig(**options))
        self.plan, self.act, self.observe = self._agent.plan, self._agent.act, self._agent.observe


THEIR_WORLD = WorldKind.of(synthetic, summary="A world of another package.")
THEIR_AGENT = AgentKind.of(SlucbConfig, Plain, summary="An agent of another package.")


def plug_in(monkeypatch, **values):
    points = {
        f"tether.{kind}": [EntryPoint(name, value, f"tether.{kind}") for name, value in entries.items()]
        for kind, entries in values.items()
    }
    monkeypatch.setattr(registry, "entry_points", lambda group: points.get(group, []))


def test_other_packages_add_worlds_and_agents_through_entry_points(monkeypatch):
    plug_in(
        monkeypatch,
        worlds={"their-world": f"{__name__}:THEIR_WORLD"},
        agents={"their-agent": f"{__name__}:THEIR_AGENT"},
    )
    text = edited('"synthetic"', '"their-world"').replace('"slucb-qvi"', '"their-agent"')
    (cell,) = cells_of(specs.parse(text, "tiny.toml"))
    assert (cell.world, cell.agent, cell.cost_radius_origin) == ("their-world", "their-agent", "theorem")


@pytest.mark.parametrize("value", ["no_such_package:X", f"{__name__}:SPEC"])
def test_a_broken_plug_in_is_named_and_stops_only_those_who_ask_for_it(monkeypatch, value):
    plug_in(monkeypatch, worlds={"broken": value})
    assert registry.WORLDS.get("synthetic")
    with pytest.raises(TetherError, match="the world 'broken'"):
        registry.WORLDS.get("broken")


def test_an_agent_with_nothing_but_the_protocol_gets_the_same_books_as_the_compiled_run():
    options = {"explorer": "directional", "value_radius": 1.0}
    books = []
    for play, build in ((simulate, lambda w: SlucbQvi(w.problem, SlucbConfig(**options))), (simulate_any, None)):
        streams = Streams.from_seed(3)
        world = synthetic(streams.instance, states=3, rays=4, dimension=3, horizon=2)
        agent = build(world) if build else Plain(world, options)
        books.append(play(world, agent, 40, streams, lambda done: None))
    for name in ("reward", "value", "optimal_value", "violations", "worst_cost", "length", "baseline"):
        np.testing.assert_allclose(getattr(books[1], name), getattr(books[0], name), rtol=0, atol=1e-12, err_msg=name)
    assert np.isnan(books[1].optimism).all()
