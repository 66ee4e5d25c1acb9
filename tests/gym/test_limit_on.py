"""What the limit is on: each single action, or the average over the learner's draw. It is asked for in words."""

import re
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gym.small_envs import Shop
from gym.test_learn import SHOP, run
from limits import bridged_with, learned_with
from tether import InputError, RslucbQvi, SlucbConfig, SlucbQvi, Transition
from tether.agents.certified import certified_set
from tether.agents.own_bound import own_bounds
from tether.features import OneHot, PerAction
from tether.gym.comparison import WHY_SAFE
from tether.problem.limit_on import CAVEAT, is_average

ROOT = Path(__file__).resolve().parent.parent.parent
DRAWS = "average over draws"


class Fans(gymnasium.Env):
    """Five fan speeds: a slower fan saves more and lets the machine get hotter. The safe one is the fastest."""

    HEAT = np.array([0.2, 0.4, 0.7, 0.9, 1.1])

    def __init__(self, falls=False):
        self.observation_space, self.action_space, self.falls = spaces.Discrete(1), spaces.Discrete(5), falls

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        heat = min(self.HEAT[action], 1.0)
        seen = float(self.np_random.random() < heat) if self.falls else heat + 0.05 * self.np_random.standard_normal()
        return 0, action / 4.0, False, False, {"cost": seen}


FANS = {
    "features": PerAction(OneHot(1), 5), "safe_action": 0, "threshold": 0.6, "noise": 0.05, "baseline_cost": 0.2,
    "gamma_norm": 2.0, "horizon": 5, "stationary": True,
}  # fmt: skip


@pytest.mark.parametrize("falls", [False, True], ids=["temperatures", "yes/no"])
def test_played_actions_over_the_limit_by_themselves_are_counted_apart_from_noise(falls):
    told = FANS | ({"cost_kind": "bounded", "noise": None} if falls else {})
    played = []
    result = run(Fans(falls), 60, limit_on=DRAWS, on_step=lambda d, t: played.append(d), **told)
    true = np.array([min(Fans.HEAT[d.action], 1.0) for d in played])
    over = (true > 0.6) & ~result.is_baseline
    assert over.sum() > 20 and (result.bound <= 0.6).all()
    assert (result.own_bound[:, 0] >= true - 1e-9).all()  # certified by itself
    certain = [d.mixture is None or d.is_baseline or d.mixture.probabilities[d.action] == 1.0 for d in played]
    np.testing.assert_array_equal(result.own_bound[certain], result.bound[certain])
    assert result.over_by_itself == int((result.own_bound[~result.is_baseline] > 0.6).sum()) >= over.sum()
    (line,) = [line for line in result.summary().splitlines() if line.startswith("drawn actions:")]
    beyond = int((~result.is_baseline).sum())
    assert f"{result.over_by_itself} of {beyond} played beyond the safe action have an own bound over τ" in line
    assert line.endswith(CAVEAT)
    assert "noise included" not in result.summary()


def test_a_limit_on_single_actions_is_kept_by_each():
    result = run(Shop(), 60, **SHOP)
    np.testing.assert_array_equal(result.own_bound, result.bound)
    assert result.over_by_itself == 0 and "drawn actions" not in result.summary()


def test_an_own_bound_is_what_the_learner_of_single_actions_would_certify():
    """The same outcomes in both learners: the same bound on each speed that the latter certifies."""
    problem = bridged_with(Fans(), **{name: told for name, told in FANS.items() if name != "stationary"}).problem
    config = SlucbConfig(pooled=True)
    mixing, single = RslucbQvi(problem, config, rng=np.random.default_rng(0)), SlucbQvi(problem, config)
    rng = np.random.default_rng(1)
    for row in [0, 1, 2, 3] * 40:
        cost = Fans.HEAT[row] + 0.05 * rng.standard_normal()
        for agent in (mixing, single):
            agent.observe(Transition(0, 0, np.eye(5)[row], 0.5, cost, 0))
    options, decision = certified_set(single, 0, 0), mixing.act(0, 0)
    spread = replace(decision.mixture, probabilities=np.full(5, 0.2))
    own = [
        own_bounds(mixing, replace(decision, action=row, is_baseline=False, mixture=spread))[0] for row in range(1, 5)
    ]
    assert (options.lengths > 0.0).tolist() == [False, True, False, False, False]
    assert own[0] == pytest.approx(options.bounds[1, 0], abs=1e-9)
    assert 0.7 < own[1] < 0.8 and 0.9 < own[2] < 1.0 and own[3] > 2.0  # the last was never played


def test_the_old_spelling_is_refused_with_the_new_one_and_its_caveat():
    with pytest.raises(TypeError, match=f"mixtures.*write limit_on='average over draws'.*{CAVEAT}"):
        learned_with(Shop(), mixtures=True, **SHOP)
    with pytest.raises(InputError, match="limit_on must be 'single actions' or 'average over draws', but is 'average'"):
        learned_with(Shop(), limit_on="average", **SHOP)
    with pytest.raises(InputError, match=r"but is True\."):
        learned_with(Shop(), limit_on=True, **SHOP)
    assert is_average(DRAWS) and not is_average("single actions")


def test_nothing_suggests_an_average_without_saying_what_it_allows():
    assert CAVEAT in WHY_SAFE["only-baseline"]
    report = str(run(Fans(), 1, **FANS).bridge.problem.check(states=[0]))
    flat = re.sub(r"\s+", " ", report)
    for hit in re.finditer("average over draws|RSLUCB|mixture", flat):
        assert CAVEAT in flat[hit.start() : hit.start() + 300], flat[hit.start() - 100 : hit.start() + 200]
    for path in ("docs/own-environment.md", "docs/live.md", "docs/check.md", "docs/choosing.md", "README.md"):
        assert "wrong for temperatures" in " ".join((ROOT / path).read_text().split()), path
