"""Bad input is refused at the door: the documented error, a message that names value, limit and way out, no trace.

"No trace" is checked twice: the whole state is equal before and after, and the agent's later life equals, bit for bit,
that of a twin who never saw the bad input.
"""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from limits import stated
from tether import (
    AssumptionError,
    Constraint,
    FiniteActions,
    InputError,
    LinearMDP,
    LsviConfig,
    LsviUcb,
    Misfit,
    Problem,
    SafeCost,
    SlucbConfig,
    SlucbQvi,
    StarActions,
    TetherError,
    Transition,
)
from tether.agents.testing import changed, essence, play, snapshot
from tether.features import PairFeatures
from tether.lab.worlds.linear_mdp import Streams
from worlds import small_world

NAN, INF = float("nan"), float("inf")


def check_refusal(refused, error, words):
    """The error is of the documented type, is Tether's own, and its message says what a reader needs."""
    assert isinstance(refused.value, error), f"{type(refused.value).__name__}: {refused.value}"
    assert isinstance(refused.value, TetherError)
    for word in words:
        assert re.search(word, str(refused.value)), f"{word!r} is not in {str(refused.value)!r}"


# --- what the learner is told -----------------------------------------------------------------------------------------

STAR = {"phi_0": [[0.5, 0.5]], "endpoints": [[[1.0, 0.0], [0.0, 1.0]]], "baseline_cost": [[0.2]]}
FINITE = {"features": [[[0.5, 0.5], [1.0, 0.0]]], "baseline_action": [0], "baseline_cost": [[0.2]]}
TOLD = {"horizon": 1, "threshold": 0.5, "noise": 0.1}


def rays(**changes):
    return Problem.from_rays(**stated(**{**STAR, **TOLD, **changes}))


def table(**changes):
    return Problem.from_table(**stated(**{**FINITE, **TOLD, **changes}))


def bare(**changes):
    one = StarActions(np.array([0.5, 0.5]), np.array([[1.0, 0.0]]))
    basic = {"dimension": 2, "actions": lambda s: one, "baseline_cost": lambda h, s: 0.2, **TOLD}
    return Problem(**stated(**{**basic, **changes}))


PROBLEMS = {
    "NaN endpoint": (lambda: rays(endpoints=[[[NAN, 0.0]]]), InputError, ["nan", "finite"]),
    "infinite phi_0": (lambda: rays(phi_0=[[INF, 0.0]]), InputError, ["phi_0", "inf", "finite"]),
    "NaN in a table": (lambda: table(features=[[[0.5, 0.5], [NAN, 0.0]]]), InputError, ["nan", "finite"]),
    "flat phi_0": (lambda: rays(phi_0=[0.5, 0.5]), InputError, [r"\(S, d\)", r"\(2,\)"]),
    "flat endpoints": (lambda: rays(endpoints=[[0.5, 0.5]]), InputError, [r"\(S, N, d\)", r"\(1, 2\)"]),
    "other dimension": (lambda: rays(phi_0=[[0.5, 0.5, 0.0]]), InputError, [r"\(1, 3\)"]),
    "no rays": (lambda: rays(endpoints=np.zeros((1, 0, 2))), InputError, ["N, d >= 1"]),
    "ragged features": (lambda: FiniteActions([[0.1, 0.2], [0.1]], 0), InputError, [r"\(N, d\)"]),
    "text as features": (lambda: FiniteActions([["a", "b"]], 0), InputError, ["features"]),
    "phi_0 of a star too short": (
        lambda: StarActions(np.array([0.5]), np.array([[0.5, 0.5]])),
        InputError,
        ["phi_0 has 1", "endpoints have 2"],
    ),
    "baseline out of range": (lambda: FiniteActions([[0.5, 0.5]], 3), InputError, ["action 3", "0 to 0"]),
    "negative baseline": (lambda: table(baseline_action=[-1]), InputError, ["action -1"]),
    "fractional baseline": (lambda: FiniteActions([[0.5, 0.5], [0.1, 0.1]], 0.5), InputError, ["0.5"]),
    "fractional baseline table": (lambda: table(baseline_action=[0.0]), InputError, ["integer"]),
    "long feature": (
        lambda: rays(endpoints=[[[1.0, 0.5]]]),
        AssumptionError,
        ["Assumption 4", r"1\.118", "feature_norm"],
    ),
    "long phi_0": (lambda: rays(phi_0=[[0.9, 0.9]]), AssumptionError, ["Assumption 4", r"1\.27"]),
    "zero safe feature": (
        lambda: rays(phi_0=[[0.0, 0.0]]),
        AssumptionError,
        ["Assumption 2", "zero", "constant feature"],
    ),
    "zero safe row": (
        lambda: table(features=[[[0.0, 0.0], [1.0, 0.0]]]),
        AssumptionError,
        ["Assumption 2", "zero", "constant feature"],
    ),
    "safe cost equal to tau": (
        lambda: rays(baseline_cost=[[0.5]]),
        AssumptionError,
        ["Assumption 2", "step 0", "state 0", r"0\.5", "if_tight"],
    ),
    "safe cost over tau": (lambda: table(baseline_cost=[[0.7]]), AssumptionError, ["Assumption 2", r"0\.7", r"0\.5"]),
    "a function's safe cost over tau": (
        lambda: bare(baseline_cost=lambda h, s: 0.7).look_up(0),
        AssumptionError,
        ["Assumption 2", r"0\.7"],
    ),
    "second constraint too tight": (
        lambda: rays(threshold=(0.5, 0.1), baseline_cost=[[[0.2, 0.2]]]),
        AssumptionError,
        ["Assumption 2", r"0\.2", r"0\.1"],
    ),
    "NaN safe cost": (lambda: rays(baseline_cost=[[NAN]]), InputError, ["state 0", "nan", "finite"]),
    "shape of safe costs": (lambda: rays(baseline_cost=[[0.1, 0.2]]), InputError, [r"\(1, 1\)", r"\(1, 2\)"]),
    "safe costs of two constraints in one table": (
        lambda: rays(baseline_cost=[[[0.1, 0.1]]]),
        InputError,
        ["safe_cost", r"\(1, 1, 2\)", "each constraint a table"],
    ),
    "a safe cost of two numbers": (
        lambda: bare(baseline_cost=lambda h, s: (0.1, 0.1)).look_up(0),
        InputError,
        ["2 costs", "each constraint a safe_cost"],
    ),
    "safe costs known of one constraint only": (
        lambda: bare(
            constraints=[Constraint(threshold=0.5, noise=0.1, safe_cost=0.1), Constraint(threshold=0.5, noise=0.1)]
        ),
        InputError,
        ["all constraints", "safe_cost, known or not"],
    ),
    "no constraint": (lambda: bare(constraints=[]), InputError, ["constraints must be a tether.Constraint", r"\[\]"]),
    "a number as constraint": (lambda: bare(constraints=0.5), InputError, ["constraints must be", r"0\.5"]),
    "no noise": (lambda: bare(noise=None), AssumptionError, ["noise", "Assumption 3", r"Bounded\(\)"]),
    "noise 0": (lambda: bare(noise=0.0), AssumptionError, ["Assumption", "noise", r"0\.0", "small positive"]),
    "negative noise": (lambda: bare(noise=-0.1), AssumptionError, ["noise", r"-0\.1"]),
    "NaN noise": (lambda: bare(noise=NAN), AssumptionError, ["noise", "nan"]),
    "infinite noise": (lambda: bare(noise=INF), AssumptionError, ["noise", "inf"]),
    "text as noise": (lambda: bare(noise="loud"), InputError, ["noise", "loud"]),
    "delta = 0": (lambda: bare(confidence=0.0), InputError, [r"\(0, 0\.5\)", r"0\.0", "failure"]),
    "delta = 0.5": (lambda: bare(confidence=0.5), InputError, [r"\(0, 0\.5\)"]),
    "delta = 0.99": (lambda: bare(confidence=0.99), InputError, [r"0\.99", "0.01 means 99% sure"]),
    "delta negative": (lambda: bare(confidence=-0.01), InputError, [r"-0\.01"]),
    "delta NaN": (lambda: bare(confidence=NAN), InputError, ["nan"]),
    "B = 0": (lambda: bare(gamma_norm=0.0), AssumptionError, ["gamma_norm", r"0\.0"]),
    "B negative": (lambda: bare(gamma_norm=-1.0), AssumptionError, ["gamma_norm", r"-1\.0"]),
    "B NaN": (lambda: bare(gamma_norm=NAN), AssumptionError, ["gamma_norm", "nan"]),
    "B infinite": (lambda: bare(gamma_norm=INF), AssumptionError, ["gamma_norm", "inf"]),
    "tau NaN": (lambda: bare(threshold=NAN), InputError, ["threshold", "nan"]),
    "tau minus infinity": (lambda: bare(threshold=-INF), InputError, ["threshold", "-inf"]),
    "text as tau": (lambda: bare(threshold="low"), InputError, ["threshold", "low"]),
    "H = 0": (lambda: bare(horizon=0), InputError, ["horizon", ">= 1", "0"]),
    "H fractional": (lambda: bare(horizon=2.5), InputError, ["horizon", r"2\.5"]),
    "d = 0": (lambda: bare(dimension=0), InputError, ["dimension", "0"]),
    "d negative": (lambda: bare(dimension=-2), InputError, ["dimension", "-2"]),
    "d text": (lambda: bare(dimension="2"), InputError, ["dimension", "2"]),
    "feature_norm 0": (lambda: bare(feature_norm=0.0), InputError, ["feature_norm", r"0\.0"]),
    "gap_floor negative": (lambda: bare(gap_floor=-1.0), InputError, ["gap_floor", r"-1\.0"]),
    "gap_floor NaN": (lambda: bare(gap_floor=NAN), InputError, ["gap_floor", "nan"]),
    "tight_baseline misspelt": (
        lambda: bare(tight_baseline="basline"),
        InputError,
        ["'error' or 'safe action'", "basline"],
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_that_breaks_an_assumption_is_refused(name):
    make, error, words = PROBLEMS[name]
    with pytest.raises(Exception) as refused:
        make()
    check_refusal(refused, error, words)


DECLARED = {
    "one number": (0.2, {}),
    "a numpy number": (np.float32(0.25), {}),
    "one per constraint": ((0.2, 0.3), {"threshold": (0.5, 0.6)}),
    "a table": ([[0.1, 0.2, 0.3], [0.2, 0.1, 0.4]], {"states": range(3), "horizon": 2}),
    "a table per constraint": (np.full((2, 3, 2), 0.2), {"states": range(3), "horizon": 2, "threshold": (0.5, 0.6)}),
}


@pytest.mark.parametrize("name", DECLARED)
def test_the_safe_cost_may_be_numbers_instead_of_a_function(name):
    cost, changes = DECLARED[name]
    problem = bare(baseline_cost=cost, **changes)
    costs, m = np.array(cost, dtype=float), len(problem.constraints)
    for step, state in ((0, 0), (problem.horizon - 1, 2)):
        told = costs if costs.ndim < 2 else costs[step, state]
        np.testing.assert_array_equal(problem.look_up(state).baseline_cost[step], np.reshape(told, m))
        decision = SlucbQvi(problem).act(step, state)
        assert [bound.baseline_cost for bound in decision.evidence] == np.reshape(told, m).tolist()
    again = replace(problem, confidence=0.02)
    np.testing.assert_array_equal(again.look_up(2).baseline_cost, problem.look_up(2).baseline_cost)


def test_tables_of_rays_take_one_number_for_the_safe_cost():
    assert rays(baseline_cost=0.2).look_up(0).baseline_cost.tolist() == [[0.2]]


UNDECLARED = {
    "a number over τ": (0.7, {}, AssumptionError, ["Assumption 2", "every state", r"0\.7", r"0\.5"]),
    "NaN": (NAN, {}, InputError, ["every state", "nan", "finite"]),
    "text": ("cheap", {}, InputError, ["safe_cost", "function", "cheap"]),
    "a table without a list of states": ([[0.1, 0.2]], {}, InputError, [r"\(1, 2\)", r"range\(S\)"]),
    "one entry of a table over τ": (
        [[0.1, 0.5]], {"states": range(2)}, AssumptionError, ["Assumption 2", "step 0, state 1", r"0\.5"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDECLARED)
def test_numbers_that_are_no_safe_cost_are_refused_at_the_door(name):
    cost, changes, error, words = UNDECLARED[name]
    with pytest.raises(Exception) as refused:
        bare(baseline_cost=cost, **changes)
    check_refusal(refused, error, words)


@pytest.mark.parametrize("hidden", [np.ma.masked, np.ma.array([0.2], mask=[True]), [np.ma.masked], np.array([0.2j])])
def test_what_is_masked_or_complex_is_no_safe_cost_feature_or_setting(hidden):
    """numpy reads a masked number as 0, or as what lies under the mask: a safe cost that nobody knows would be one."""
    with pytest.raises(InputError, match=r"safe_cost must be numbers.*masked or complex"):
        bare(baseline_cost=lambda h, s: hidden).look_up(0)
    with pytest.raises(InputError, match=r"safe_cost must be numbers.*masked or complex"):
        SafeCost(hidden)
    for make in (
        lambda: Constraint(threshold=hidden, noise=0.1),
        lambda: Constraint(threshold=0.5, noise=hidden),
        lambda: Constraint(threshold=0.5, noise=0.1, gamma_norm=hidden),
        lambda: Misfit(hidden),
        lambda: SafeCost(0.2, error=hidden),
    ):
        with pytest.raises(InputError, match="must be"):
            make()


@pytest.mark.parametrize("row", [np.ma.array([0.2, 0.5], mask=[True, False]), np.array([0.2j, 0.5])])
def test_what_is_masked_or_complex_is_no_feature(row):
    for make in (lambda: StarActions(row, [[0.0, 1.0]]), lambda: StarActions([0.0, 1.0], [row])):
        with pytest.raises(InputError, match="masked or complex"):
            make()
    with pytest.raises(InputError, match="masked or complex"):
        PairFeatures(lambda state, action: row, 2)(0, 1)


def test_a_state_that_was_not_observed_identifies_nothing():
    with pytest.raises(InputError, match="masked"):
        bare().key_of(np.ma.array([0.2, 0.5], mask=[True, False]))


def test_a_state_outside_a_table_of_safe_costs_is_refused():
    """Python would read -1 as the last one, whose cost is another."""
    problem = bare(baseline_cost=[[0.1, 0.2]], states=range(2))
    for state in (-1, 2):
        with pytest.raises(InputError, match=r"0\.\.1"):
            problem.look_up(state)


# --- what the world is ------------------------------------------------------------------------------------------------


def world(**changes):
    truth = {
        "name": "bad",
        "problem": rays(),
        "true_theta": np.array([[0.5, 0.5]]),
        "true_gamma": np.array([[[0.1, 0.3]]]),
        "true_mu": np.ones((1, 2, 1)),
        "initial": np.ones(1),
    }
    return LinearMDP(**{**truth, **changes})


WORLDS = {
    "mu that does not sum to 1": (
        lambda: world(true_mu=np.full((1, 2, 1), 0.9)),
        AssumptionError,
        ["Assumption 1", "sums to 1", "distributions"],
    ),
    "negative probability": (
        lambda: world(
            problem=Problem.from_rays(
                phi_0=[[0.5, 0.5]] * 2,
                endpoints=[[[1.0, 0.0]]] * 2,
                **stated(baseline_cost_error=0.0, baseline_cost=[[0.2, 0.2]], **TOLD),
            ),
            true_mu=np.array([[[1.5, -0.5], [0.5, 0.5]]]),
            initial=np.array([0.5, 0.5]),
        ),
        AssumptionError,
        ["Assumption 1", r"-0\.5"],
    ),
    "NaN mu": (lambda: world(true_mu=np.full((1, 2, 1), NAN)), InputError, ["true_mu", "finite"]),
    "initial that is no distribution": (lambda: world(initial=np.array([0.5])), AssumptionError, ["initial"]),
    "shape of theta": (
        lambda: world(true_theta=np.zeros((2, 2))),
        InputError,
        ["true_theta", r"\(1, 2\)", r"\(2, 2\)"],
    ),
    "shape of gamma": (lambda: world(true_gamma=np.zeros((1, 2))), InputError, ["true_gamma", r"\(1, 1, 2\)"]),
    "gamma longer than B": (
        lambda: world(true_gamma=np.array([[[0.1, 3.0]]])),
        AssumptionError,
        ["Assumption 4", r"1\.414", r"3\.00", "gamma_norm"],
    ),
    "safe cost that is not true": (
        lambda: world(true_gamma=np.array([[[0.1, 0.5]]])),
        AssumptionError,
        ["Assumption 2", "state 0", r"0\.2", r"0\.3"],
    ),
    "states that cannot be listed": (lambda: world(problem=bare()), InputError, ["states"]),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_that_breaks_an_assumption_is_refused(name):
    make, error, words = WORLDS[name]
    with pytest.raises(Exception) as refused:
        make()
    check_refusal(refused, error, words)


# --- how the agent is set up ------------------------------------------------------------------------------------------


def agent_with(problem=None, **settings):
    return SlucbQvi(problem or rays(), SlucbConfig(**settings))


def lsvi_with(true_gamma=None, **settings):
    return LsviUcb(rays(), LsviConfig(**settings), true_gamma=true_gamma)


SETTINGS = {
    "B whose square is 0": (lambda: agent_with(rays(gamma_norm=1e-200)), ["cost_ridge", "inf"]),
    "explorer": (lambda: agent_with(explorer="directionl"), ["explorer", "'directional'", "directionl"]),
    "condition_on": (lambda: agent_with(condition_on="everything"), ["condition_on", "'all'", "everything"]),
    "unknown_cost": (lambda: agent_with(unknown_cost="apendix"), ["unknown_cost", "'appendix'", "apendix"]),
    "replan": (lambda: agent_with(replan="always"), ["replan", "'on-doubling'", "always"]),
    "cost_radius misspelt": (lambda: agent_with(cost_radius="theory"), ["cost_radius", "'theorem'", "theory"]),
    "value_radius misspelt": (lambda: agent_with(value_radius="theory"), ["value_radius", "'theorem'", "theory"]),
    "cost_radius negative": (lambda: agent_with(cost_radius=-1.0), ["cost_radius", r"-1\.0"]),
    "cost_radius NaN": (lambda: agent_with(cost_radius=NAN), ["cost_radius", "nan"]),
    "cost_radius infinite": (lambda: agent_with(cost_radius=INF), ["cost_radius", "inf"]),
    "cost_radius None": (lambda: agent_with(cost_radius=None), ["cost_radius", "None"]),
    "value_radius NaN": (lambda: agent_with(value_radius=NAN), ["value_radius", "nan"]),
    "cost_ridge 0": (lambda: agent_with(cost_ridge=0.0), ["cost_ridge", r"0\.0", "invertible"]),
    "cost_ridge negative": (lambda: agent_with(cost_ridge=-1.0), ["cost_ridge", r"-1\.0"]),
    "value_ridge NaN": (lambda: agent_with(value_ridge=NAN), ["value_ridge", "nan"]),
    "value_ridge text": (lambda: agent_with(value_ridge="one"), ["value_ridge", "one"]),
    "theorem without K": (lambda: agent_with(value_radius="theorem"), ["episodes=K"]),
    "appendix without K": (
        lambda: agent_with(rays(baseline_cost=None), unknown_cost="appendix"),
        ["appendix", "episodes=K"],
    ),
    "negative K": (lambda: agent_with(value_radius="theorem", episodes=-3), ["episodes", "-3"]),
    "fractional K": (lambda: agent_with(value_radius="theorem", episodes=2.5), ["episodes", r"2\.5"]),
    "c_beta NaN": (lambda: agent_with(value_radius="theorem", episodes=9, c_beta=NAN), ["c_beta", "nan"]),
    "c_beta negative": (lambda: agent_with(value_radius="theorem", episodes=9, c_beta=-1.0), ["c_beta", r"-1\.0"]),
    "condition on all, nothing listed": (
        lambda: agent_with(bare(), condition_on="all"),
        ["condition_on='all'", "states"],
    ),
    "condition on all, costs unknown": (
        lambda: agent_with(rays(baseline_cost=None), condition_on="all"),
        ["condition_on='all'", "safe_cost"],
    ),
    "lsvi penalty negative": (lambda: lsvi_with(penalty=-0.1), ["penalty", r"-0\.1"]),
    "lsvi penalty NaN": (lambda: lsvi_with(penalty=NAN), ["penalty", "nan"]),
    "lsvi replan": (lambda: lsvi_with(replan="never"), ["replan", "never"]),
    "lsvi value_radius misspelt": (lambda: lsvi_with(value_radius="theorm", episodes=10), ["value_radius", "theorm"]),
    "lsvi value_radius NaN": (lambda: lsvi_with(value_radius=NAN), ["value_radius", "nan"]),
    "lsvi value_radius negative": (lambda: lsvi_with(value_radius=-1.0), ["value_radius", r"-1\.0"]),
    "lsvi gamma of another shape": (lambda: lsvi_with(np.zeros((3, 2))), ["true_gamma", r"\(1, 1, 2\)", r"\(3, 2\)"]),
    "lsvi gamma transposed": (lambda: lsvi_with(np.zeros((2, 1))), ["true_gamma", r"\(2, 1\)"]),
    "lsvi gamma NaN": (lambda: lsvi_with(np.full((1, 1, 2), NAN)), ["true_gamma", "nan|finite"]),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_makes_no_sense_is_refused(name):
    make, words = SETTINGS[name]
    with pytest.raises(Exception) as refused:
        make()
    check_refusal(refused, InputError, words)


def test_unknown_options_are_refused_by_name():
    with pytest.raises(TypeError, match="beta"):
        SlucbConfig(beta=0.3)
    with pytest.raises(TypeError, match="lam"):
        LsviConfig(lam=0.3)


@pytest.mark.parametrize("radius", [np.float32(0.5), np.float64(0.5), np.int64(1), 1])
def test_a_radius_of_any_number_type_is_a_tuned_radius(radius):
    decision = agent_with(cost_radius=radius).act(0, 0)
    assert decision.cost_radius.value == pytest.approx(float(radius), rel=1e-6)
    assert decision.cost_radius.origin == "tuned"


def test_known_costs_that_contradict_each_other_are_refused():
    """Two states with the same safe feature and different safe costs: no γ* explains both."""
    problem = Problem.from_rays(
        phi_0=[[0.5, 0.5]] * 2,
        endpoints=[[[1.0, 0.0]]] * 2,
        **stated(baseline_cost_error=0.0, baseline_cost=[[0.1, 0.3]], **TOLD),
    )
    with pytest.raises(AssumptionError, match=r"Assumption 1.*0\.2.*condition_on='state'"):
        SlucbQvi(problem, SlucbConfig(condition_on="all"))
    assert SlucbQvi(problem, SlucbConfig(condition_on="state")).act(0, 0).cost_bound <= 0.5


def test_known_costs_that_need_a_longer_gamma_than_declared_are_refused():
    """c(e_0)/10 = 0.3 means γ_0 = 3 > B = √2."""
    problem = Problem.from_rays(
        phi_0=[[0.1, 0.0]], endpoints=[[[0.0, 1.0]]], **stated(baseline_cost_error=0.0, baseline_cost=[[0.3]], **TOLD)
    )
    with pytest.raises(AssumptionError, match=r"Assumption 4.*gamma_norm"):
        SlucbQvi(problem, SlucbConfig(condition_on="all"))


# --- what the agent is asked, and what it is told afterwards ----------------------------------------------------------


@dataclass(frozen=True)
class Bad:
    """A state with something wrong about it."""

    what: str


def problem_with_bad_states(*, known_costs=True):
    """States 0..3 are those of the small world; a `Bad` state breaks the assumption that it names.

    Anything else gets the actions of state 0: if it is refused, then for what it is, not for want of features.
    """
    good = small_world(known_costs=known_costs)
    f, ends = good.phi_0[0], good.endpoints[0]
    sets = {
        "long": StarActions(f, 2.0 * ends),
        "wide": StarActions(np.append(f, 0.0), np.pad(ends, ((0, 0), (0, 1)))),
        "zero": StarActions(0.0 * f, ends),
    }

    def actions(state):
        if isinstance(state, Bad):
            return sets.get(state.what, good.problem.actions(0))
        return good.problem.actions(state if isinstance(state, int) else 0)

    def cost(step, state):
        if isinstance(state, Bad):
            return {"tight": 0.5, "NaN cost": NAN, "two costs": (0.1, 0.2)}.get(state.what, 0.1)
        return good.problem.baseline_cost(step, state if isinstance(state, int) else 0)

    return good, Problem(
        horizon=good.problem.horizon,
        dimension=good.problem.dimension,
        actions=actions,
        **stated(
            threshold=good.problem.threshold,
            noise=good.problem.noise,
            baseline_cost_error=0.0,
            baseline_cost=cost if known_costs else None,
            gamma_norm=good.problem.gamma_norm,
        ),
    )


BAD_STATES = {
    "unhashable": ([1, 2], InputError, [r"\[1, 2\]", "not hashable", "key="]),
    "unhashable inside": ((1, [2]), InputError, ["not hashable", "key="]),
    "NaN": (NAN, InputError, ["nan", "finite"]),
    "numpy NaN": (np.float64(NAN), InputError, ["nan", "finite"]),
    "infinite": (INF, InputError, ["inf", "finite"]),
    "NaN array": (np.array([0.0, NAN]), InputError, ["nan", "finite"]),
    "NaN in a tuple": ((0, NAN), InputError, ["nan", "finite"]),
    "array of objects": (np.array(["a", None], dtype=object), InputError, ["object", "key="]),
    "long features": (Bad("long"), AssumptionError, ["Assumption 4", "long", "feature_norm"]),
    "wide features": (Bad("wide"), InputError, ["wide", "dimension 4", "d = 3"]),
    "zero safe feature": (Bad("zero"), AssumptionError, ["Assumption 2", "zero"]),
    "no slack": (Bad("tight"), AssumptionError, ["Assumption 2", "step 0", "tight", r"0\.5"]),
    "NaN safe cost": (Bad("NaN cost"), InputError, ["nan", "finite"]),
    "two safe costs": (Bad("two costs"), InputError, ["cost", "two costs"]),
}

BAD_STEPS = {
    "negative": (-1, ["0..2", "-1"]),
    "past the horizon": (3, ["0..2", "H = 3", "3"]),
    "fractional": (0.5, ["step", r"0\.5"]),
    "NaN": (NAN, ["step", "nan"]),
    "text": ("0", ["step"]),
    "missing": (None, ["step", "None"]),
}

BAD_OUTCOMES = {
    "NaN reward": (lambda t: replace(t, reward=NAN), InputError, ["reward", "nan", "finite"]),
    "infinite reward": (lambda t: replace(t, reward=INF), InputError, ["reward", "inf"]),
    "missing reward": (lambda t: replace(t, reward=None), InputError, ["reward", "None"]),
    "text reward": (lambda t: replace(t, reward="much"), InputError, ["reward", "much"]),
    "two rewards": (lambda t: replace(t, reward=np.array([0.1, 0.2])), InputError, ["reward"]),
    "NaN cost": (lambda t: replace(t, cost=NAN), InputError, ["cost", "nan", "None"]),
    "infinite cost": (lambda t: replace(t, cost=-INF), InputError, ["cost", "-inf", "None"]),
    "two costs": (lambda t: replace(t, cost=(0.1, 0.2)), InputError, [r"cost must be 1", r"0\.2"]),
    "no costs": (lambda t: replace(t, cost=()), InputError, ["cost must be 1"]),
    "text cost": (lambda t: replace(t, cost="dear"), InputError, ["cost", "dear"]),
    "complex cost": (lambda t: replace(t, cost=1j), InputError, ["cost", "1j"]),
    "NaN feature": (
        lambda t: replace(t, feature=np.array([NAN, 0.0, 0.0])),
        InputError,
        ["feature", "3 finite", "nan"],
    ),
    "short feature": (lambda t: replace(t, feature=np.zeros(2)), InputError, ["feature", "3 finite"]),
    "feature as a row": (lambda t: replace(t, feature=np.zeros((1, 3))), InputError, ["feature", "3 finite"]),
    "missing feature": (lambda t: replace(t, feature=None), InputError, ["feature", "3 finite"]),
    "text feature": (lambda t: replace(t, feature="abc"), InputError, ["feature"]),
    "long feature, logged": (
        lambda t: replace(t, feature=np.array([2.0, 0.0, 0.0]), decision_id=None),
        AssumptionError,
        ["Assumption 4", "norm 2"],
    ),
    "long feature, own decision": (
        lambda t: replace(t, feature=np.array([2.0, 0.0, 0.0])),
        AssumptionError,
        ["Assumption 4", "norm 2"],
    ),
    "overflowing feature": (lambda t: replace(t, feature=np.full(3, 1e200)), AssumptionError, ["Assumption 4"]),
    "unknown decision": (
        lambda t: replace(t, decision_id=10**6),
        InputError,
        ["1000000", "never made", "exactly once"],
    ),
    "negative decision": (lambda t: replace(t, decision_id=-1), InputError, ["-1"]),
    "unhashable decision": (lambda t: replace(t, decision_id=[1]), InputError, [r"\[1\]"]),
    "another step than the decision's": (lambda t: replace(t, step=2), InputError, ["step 2", "step 1|decision"]),
    **{
        f"step {name}": (lambda t, step=step: replace(t, step=step), InputError, words)
        for name, (step, words) in BAD_STEPS.items()
    },
    **{
        f"next state {name}": (lambda t, state=state: replace(t, next_state=state), error, words)
        for name, (state, error, words) in BAD_STATES.items()
    },
}


AGES = {"new": 0, "experienced": 6}
RULES = {
    "default": (True, SlucbConfig()),
    "appendix": (False, SlucbConfig(unknown_cost="appendix", episodes=50)),
}


def _twins(rules, age):
    """Two equal agents; the experienced ones have each made a decision at step 1, whose outcome is still out."""
    known_costs, config = RULES[rules]
    world, problem = problem_with_bad_states(known_costs=known_costs)
    agents, outcomes = [SlucbQvi(problem, config) for _ in range(2)], []
    for agent in agents:
        streams = Streams.from_seed(61)
        play(world, agent, streams, AGES[age])
        if age == "experienced":
            outcomes.append(world.step(agent.act(1, 2), streams))
    return world, agents, outcomes


def _later_life(world, agent, outcomes=()):
    """The open outcome, then what another played, then questions without a new plan, then whole episodes."""
    rng = np.random.default_rng(62)
    for outcome in outcomes:
        agent.observe(outcome)
    for n in range(5):
        x = world.endpoints[1, rng.integers(6)]
        agent.expect(f"another {n}", 0, x)
        agent.observe(Transition(0, 1, x, rng.random(), float(world.true_gamma[0, 0] @ x), 3, f"another {n}"))
    decisions = [agent.act(step, state) for step in range(3) for state in range(4)]
    return [essence(d) for d in decisions + play(world, agent, Streams.from_seed(63), 6)]


def _check_no_trace(world, agents, before, outcomes=()):
    abused, twin = agents
    assert changed(before, snapshot(abused)) == []
    assert _later_life(world, abused, outcomes[:1]) == _later_life(world, twin, outcomes[1:])
    assert changed(snapshot(abused), snapshot(twin)) == []


def _needs_costs(name):
    return name.endswith(("no slack", "safe cost", "safe costs"))


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("name", BAD_STATES)
def test_a_question_about_a_bad_state_is_refused_without_a_trace(name, rules, age):
    state, error, words = BAD_STATES[name]
    if _needs_costs(name) and rules == "appendix":
        pytest.skip("safe costs are not declared here")
    world, agents, outcomes = _twins(rules, age)
    before = snapshot(agents[0])
    with pytest.raises(Exception) as refused:
        agents[0].act(0, state)
    check_refusal(refused, error, words)
    _check_no_trace(world, agents, before, outcomes)


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("name", BAD_STEPS)
def test_a_question_about_a_bad_step_is_refused_without_a_trace(name, rules, age):
    step, words = BAD_STEPS[name]
    world, agents, outcomes = _twins(rules, age)
    before = snapshot(agents[0])
    with pytest.raises(Exception) as refused:
        agents[0].act(step, Bad("never seen before"))
    check_refusal(refused, InputError, words)
    _check_no_trace(world, agents, before, outcomes)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("name", BAD_OUTCOMES)
def test_a_bad_outcome_is_refused_without_a_trace(name, rules):
    """The next state is new, so that registering it before the refusal would show."""
    spoil, error, words = BAD_OUTCOMES[name]
    if _needs_costs(name) and rules == "appendix":
        pytest.skip("safe costs are not declared here")
    world, agents, outcomes = _twins(rules, "experienced")
    before = snapshot(agents[0])
    with pytest.raises(Exception) as refused:
        agents[0].observe(spoil(replace(outcomes[0], next_state=Bad("never seen before"))))
    check_refusal(refused, error, words)
    _check_no_trace(world, agents, before, outcomes)


@pytest.mark.parametrize("name", [name for name in BAD_STATES if not _needs_costs(name)])
def test_an_outcome_of_a_bad_state_is_refused_without_a_trace_while_safe_costs_are_measured(name):
    """The appendix's rule looks up the state of an outcome; a new next state must not stay behind if that fails."""
    state, error, words = BAD_STATES[name]
    world, agents, outcomes = _twins("appendix", "experienced")
    before = snapshot(agents[0])
    logged = replace(outcomes[0], state=state, next_state=Bad("never seen before"))
    with pytest.raises(Exception) as refused:
        agents[0].observe(logged)
    check_refusal(refused, error, words)
    _check_no_trace(world, agents, before, outcomes)


OUTSIDE = {"negative": -1, "too large": 4, "text": "a", "fractional": 2.5, "nothing": None}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_state_outside_a_listed_problem_is_refused_by_name(name):
    """States are 0..3. Python would read -1 as the last one, and certify another state's actions."""
    world = small_world()
    agent, twin = SlucbQvi(world.problem), SlucbQvi(world.problem)
    before = snapshot(agent)
    with pytest.raises(Exception) as refused:
        agent.act(0, OUTSIDE[name])
    check_refusal(refused, InputError, [re.escape(repr(OUTSIDE[name])), "state"])
    _check_no_trace(world, (agent, twin), before)


@pytest.mark.parametrize("name", [name for name in OUTSIDE if name != "nothing"])  # None ends the episode
def test_a_next_state_outside_a_listed_problem_is_refused_by_name(name):
    world = small_world()
    agent, twin = SlucbQvi(world.problem), SlucbQvi(world.problem)
    before = snapshot(agent)
    with pytest.raises(Exception) as refused:
        agent.observe(Transition(0, 0, world.phi_0[0], 0.5, 0.2, OUTSIDE[name]))
    check_refusal(refused, InputError, [re.escape(repr(OUTSIDE[name])), "state"])
    _check_no_trace(world, (agent, twin), before)


def test_an_agent_that_needs_every_cost_refuses_an_outcome_without_one():
    world = small_world()
    agents = [LsviUcb(world.problem, LsviConfig(penalty=0.9)) for _ in range(2)]
    decisions = [agent.act(0, 0) for agent in agents]
    before = snapshot(agents[0])
    with pytest.raises(InputError, match=r"penalised.*cost.*None"):
        agents[0].observe(decisions[0].outcome(reward=0.5, cost=None, next_state=3))
    _check_no_trace(world, agents, before)


def test_a_missing_cost_teaches_the_value_but_not_the_cost():
    world = small_world()
    agent = SlucbQvi(world.problem)
    play(world, agent, Streams.from_seed(64), 3)
    agent.plan()
    decision = agent.act(0, 1)
    cost, value = essence(agent.costs.gram), agent.values.factor[0].T @ agent.values.factor[0]
    agent.observe(decision.outcome(reward=0.5, cost=None, next_state=2))
    assert essence(agent.costs.gram) == cost
    np.testing.assert_allclose(
        agent.values.factor[0].T @ agent.values.factor[0],
        value + np.outer(decision.feature, decision.feature),
        atol=1e-14,
    )


def test_a_key_that_is_not_hashable_is_refused_by_name():
    world = small_world()
    problem = Problem(
        horizon=3,
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=world.problem.baseline_cost),
        dimension=3,
        actions=world.problem.actions,
        key=lambda state: [state],
    )
    with pytest.raises(Exception) as refused:
        SlucbQvi(problem).act(0, 0)
    check_refusal(refused, InputError, ["key", "hashable"])
