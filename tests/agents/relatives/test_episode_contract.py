"""Do the relatives with MDPs keep the contract of every agent, and do their rows say what the league needs?"""

import numpy as np
import pytest

from tether.agents.agent import Agent
from tether.agents.relatives import methods
from tether.agents.relatives.dope import Dope, DopeConfig
from tether.agents.relatives.doss import Doss, DossConfig
from tether.agents.relatives.lagrangian import BisectionConfig, LagrangianBisection, LagrangianConfig, LagrangianLsvi
from tether.agents.relatives.ncs_lsvi import NcsLsvi, NcsLsviConfig
from tether.agents.relatives.opse import Opse, OpseConfig
from tether.agents.relatives.optpess_lp import OptPessLp
from tether.agents.relatives.tabular import TabularConfig
from tether.agents.testing import SmallWorld, check_agent
from tether.errors import InputError
from tether.lab.worlds.cmdp import streaming


class OneHot:
    """The streaming world, driven by one generator."""

    def __init__(self):
        self.world = streaming(horizon=2)
        self.problem, self.true_gamma = self.world.problem, self.world.true_gamma

    def reset(self, streams):
        return 0

    def step(self, decision, streams):
        numbers = (streams.standard_normal(1), streams.random())
        seen = self.world.play(decision.step, decision.state, decision.action, decision.feature, numbers)
        return decision.outcome(reward=seen[0], cost=seen[1], next_state=seen[2])


ONE, TABULAR = (SmallWorld(), SmallWorld(finite=True)), (OneHot(),)
NCS = NcsLsviConfig(episodes=50, first_phase=5)
CASES = {
    Doss: (lambda problem: Doss(problem, DossConfig(episodes=50, scale=0.1)), (*ONE, SmallWorld(constraints=2))),
    NcsLsvi: (lambda problem: NcsLsvi(problem, NCS), (*ONE, SmallWorld(constraints=2))),
    Opse: (lambda problem: Opse(problem, OpseConfig(bonus=0.1, multiplier=50.0, exploration=0.1)), ONE),
    LagrangianLsvi: (lambda problem: LagrangianLsvi(problem, LagrangianConfig(bonus=0.1, episodes=50)), ONE),
    LagrangianBisection: (lambda problem: LagrangianBisection(problem, BisectionConfig(bonus=0.1, episodes=50)), ONE),
    OptPessLp: (lambda problem: OptPessLp(problem, TabularConfig(episodes=50, scale=0.01)), TABULAR),
    Dope: (lambda problem: Dope(problem, DopeConfig(log_term=0.1, first_phase=2.0)), TABULAR),
}


@pytest.mark.parametrize("method", CASES, ids=lambda method: method.kind)
def test_keeps_the_contract_of_every_agent(method, tmp_path):
    make, worlds = CASES[method]
    restore = (lambda path, problem: NcsLsvi.restore(path, problem, config=NCS)) if method is NcsLsvi else None
    check_agent(make, tmp_path, worlds=worlds, restore=restore, draws=getattr(method, "mixes", False))


@pytest.mark.parametrize("method", CASES, ids=lambda method: method.kind)
def test_a_row_is_complete_and_found(method):
    make, worlds = CASES[method]
    assert isinstance(make(worlds[0].problem), Agent)
    assert method in list(methods())
    assert all(
        len(text) > 3 for text in (method.row.title, method.row.citation, method.row.constraint, method.row.told)
    )
    assert "TODO" not in method.row.anchor
    for heading in ("Setting:", "Rule:", "Citation:", "Deviations:"):
        assert heading in (method.__doc__ or "")


@pytest.mark.parametrize("method", CASES, ids=lambda method: method.kind)
def test_a_scale_of_one_is_called_the_theorem_and_any_other_tuned(method):
    problem = CASES[method][1][0].problem
    for scale, origin in ((1.0, "theorem"), (0.5, "tuned")):
        agent = method(problem, method.config_type(scale=scale, episodes=50), seed=3)
        agent.plan()
        decision = agent.peek(0, 0)
        assert decision.value_radius.origin == origin
        assert decision.cost_radius.origin in (origin, "none"), "a scaled radius certifies nothing by a theorem"


@pytest.mark.parametrize("method", [Opse, LagrangianLsvi, LagrangianBisection, OptPessLp, Dope], ids=lambda m: m.kind)
def test_two_constraints_are_refused_by_those_with_one_budget(method):
    with pytest.raises(InputError, match="one constraint"):
        method(SmallWorld(constraints=2).problem)


@pytest.mark.parametrize("method", [OptPessLp, Dope], ids=lambda m: m.kind)
def test_the_tabular_ones_need_one_hot_features(method):
    with pytest.raises(InputError, match="one-hot"):
        method(SmallWorld(finite=True).problem)


def test_a_margin_is_needed():
    world = streaming()
    with pytest.raises(InputError, match="Slater"):
        Opse(world.problem, OpseConfig(margin=0.0))
    assert np.isclose(Opse(world.problem).margin, world.problem.horizon * 0.4)
