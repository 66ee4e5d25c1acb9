"""What another policy would have earned: by hand, on simulated logs of known value, and on the Open Bandit data."""

import csv
import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from scipy.stats import binom
from typer.testing import CliRunner

from limits import stated
from tether.check.evaluate import Logged, evaluate, linear_value, logged_table
from tether.check.logs import read_columns
from tether.cli import app
from tether.errors import InputError
from tether.problem.problem import Problem
from worlds import finite_problem

ACTIONS, D = 4, 5


def unknown(count):
    return np.full(count, np.nan)


def table(**columns):
    return Logged(*(np.array(columns[name], dtype=float) for name in ("reward", "propensity", "target", "covered")))


def test_weights_by_hand():
    """Rewards 1, 0, 2, 1 with weights 2, 0, 1, 1: IPS 5/4, SNIPS 5/4, and effective 16/6."""
    rows = table(reward=[1, 0, 2, 1], propensity=[0.5, 0.5, 0.5, 0.5], target=[1, 0, 0.5, 0.5], covered=[1] * 4)
    found = evaluate(rows)
    ips, snips = found.estimates
    assert (ips.name, ips.value, snips.name, snips.value) == ("IPS", 1.25, "SNIPS", 1.25)
    assert ips.error == pytest.approx(np.std([2, 0, 2, 1], ddof=1) / 2.0)
    assert snips.error == pytest.approx(np.sqrt((2 * 0.25) ** 2 + 0.75**2 + 0.25**2) / 4.0)
    assert found.effective == pytest.approx(16.0 / 6.0) and found.observed == 1.0 and found.missing == 0


def simulated(seed, count=4000, temperature=1.0):
    """(log of a softmax policy, value of another one over its contexts): linear rewards with noise 0.3."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=D) / 2.0
    features = rng.normal(size=(count, ACTIONS, D)) / np.sqrt(D)
    chances = np.exp(temperature * features[:, :, 0])
    chances /= chances.sum(axis=1, keepdims=True)
    wanted = np.exp(temperature * features[:, :, 1])
    wanted /= wanted.sum(axis=1, keepdims=True)
    rows, played = np.arange(count), np.array([rng.choice(ACTIONS, p=p) for p in chances])
    means = features @ theta
    reward = means[rows, played] + 0.3 * rng.normal(size=count)
    target_feature = np.einsum("na,nad->nd", wanted, features)
    logged = Logged(
        reward, chances[rows, played], wanted[rows, played], unknown(count), features[rows, played], target_feature
    )
    return logged, float((wanted * means).sum(axis=1).mean())


def test_estimates_find_the_known_value_of_a_simulated_policy():
    """Over 40 logs each method's error, in its own standard errors, is that of a standard normal: RMS under 1.5."""
    scores, errors = [], []
    for seed in range(40):
        logged, truth = simulated(seed, count=1000)
        found = evaluate(logged)
        scores.append([(each.value - truth) / each.error for each in found.estimates])
        errors.append([each.error for each in found.estimates])
    assert (np.sqrt(np.mean(np.square(scores), axis=0)) < 1.5).all()
    assert (np.abs(np.mean(scores, axis=0)) < 5.0 / np.sqrt(40)).all()
    ips, _, robust = np.mean(errors, axis=0)
    assert robust < ips, "a model that fits makes it narrower"


@pytest.mark.parametrize(("chance", "rarely"), [(0.6, True), (0.1, False)])
def test_wrong_propensities_are_noticed_by_the_weights_mean(chance, rarely):
    """Too large ones, as if there were no overlap, and too small ones, with which IPS is over every reward."""
    logged, _ = simulated(0)
    wrong = Logged(logged.reward, np.full(len(logged.reward), chance), logged.target, logged.covered)
    found = evaluate(wrong)
    assert "on average, and 1 where the log overlaps" in found.refused and found.estimates == ()
    assert ("hardly ever" in found.refused) == rarely


def test_probabilities_that_were_rounded_are_not_wrong():
    chance = np.full(50, 1.0 / 3.0)
    assert evaluate(Logged(np.ones(50), chance, chance.round(9), unknown(50))).refused == ""


def test_a_log_without_overlap_is_refused_with_the_reason():
    """A log that plays a_0 whatever happens: nothing but a_0 can be weighted."""
    reward, ones = np.linspace(0.0, 1.0, 10), np.ones(10)
    target = ones.copy()
    assert evaluate(Logged(reward, ones, target, ones)).estimates[0].value == pytest.approx(0.5)
    target[3] = 0.0
    for covered in (unknown(10), target):
        found = evaluate(Logged(reward, ones, target, covered))
        assert "in 1 of 10 decisions the policy plays what the log's policy never did" in found.refused
        assert found.estimates == () and found.decisions == 10
    half = Logged(reward, 0.5 * ones, ones, np.where(np.arange(10) < 4, 0.5, 1.0))
    assert "in 4 of 10" in evaluate(half).refused


def test_a_log_in_which_one_decision_would_decide_is_refused():
    """A thousand weights of 1, and one of a thousand, are worth 2000²/(1000 + 10⁶) = 4 equal ones."""
    propensity = np.append(np.full(1000, 0.5), 0.0005)
    rows = Logged(np.ones(1001), propensity, np.full(1001, 0.5), unknown(1001))
    assert "of 1001 decisions say as much as 4.0 equal ones" in evaluate(rows).refused
    rows.propensity[-1] = 0.05
    assert evaluate(rows).refused == "" and evaluate(rows).effective > 900
    two = table(reward=[0.1, 0.7], propensity=[0.5, 0.5], target=[0, 1], covered=[1, 1])
    assert "as much as 1.0 equal ones" in evaluate(two).refused  # or SNIPS would say ± 0


def test_missing_rewards_are_counted_and_impossible_probabilities_refused():
    rows = table(reward=[1, np.nan, 0, 1], propensity=[0.5] * 4, target=[0.5] * 4, covered=[1] * 4)
    assert (evaluate(rows).missing, evaluate(rows).decisions) == (1, 3)
    assert "at least 2" in evaluate(rows.where(np.array([True, True, False, False]))).refused
    for wrong in ({"propensity": [0.0, 1.0]}, {"propensity": [0.5, 1.5]}, {"target": [0.5, np.nan]}):
        with pytest.raises(InputError, match="probabilit"):
            table(**{"reward": [1, 1], "propensity": [0.5, 0.5], "target": [1, 1], "covered": [1, 1], **wrong})
    with pytest.raises(InputError, match="propensity has 1 rows"):
        table(reward=[1, 1], propensity=[0.5], target=[1, 1], covered=[1, 1])


def bandit(noise=0.3):
    shape = {"threshold": 1.0, "noise": 0.1, "dimension": D, "feature_norm": 10.0}
    return Problem(horizon=1, actions=lambda s: None, reward_noise=noise, **stated(baseline_cost=None, **shape))


def test_the_linear_value_holds_for_greedy_logs_without_any_overlap():
    """θ* inside √d/L; actions chosen by what was seen. At δ = 0.01 of 200 logs at most `allowed` may miss."""
    wrong, allowed = 0, int(binom.isf(1e-6, 200, 0.01))
    for seed in range(200):
        rng = np.random.default_rng(seed)
        theta = rng.normal(size=D)
        theta *= np.sqrt(D) / 10.0 * rng.random() / np.linalg.norm(theta)
        gram, moment, rows = np.eye(D), np.zeros(D), []
        for _ in range(100):
            candidates = rng.normal(size=(ACTIONS, D))
            x = candidates[np.argmax(candidates @ np.linalg.solve(gram, moment))]
            reward = float(theta @ x) + 0.3 * rng.normal()
            gram, moment = gram + np.outer(x, x), moment + reward * x
            rows.append((reward, x, candidates[0], candidates[1]))
        reward, feature, wanted, safe = (np.array(column) for column in zip(*rows, strict=True))
        logged = Logged(reward, np.ones(100), np.zeros(100), np.zeros(100), feature, wanted, safe)
        assert evaluate(logged).refused
        found = linear_value(bandit(), logged)
        truth = [theta @ wanted.mean(axis=0), theta @ (wanted - safe).mean(axis=0)]
        for (value, low, high), true in zip((found.value, found.gain), truth, strict=True):
            assert low < value < high and high - low < 2.0
            wrong += not low <= true <= high
    assert wrong <= allowed


def test_the_linear_value_says_what_it_needs():
    logged, _ = simulated(1, count=50)
    with pytest.raises(InputError, match="reward_noise"):
        linear_value(bandit(noise=0.0), logged)
    with pytest.raises(InputError, match="needs the features"):
        linear_value(bandit(), Logged(logged.reward, logged.propensity, logged.target, logged.covered))
    with pytest.raises(InputError, match="H = 2"):
        linear_value(finite_problem(horizon=2)[0], logged)


def test_a_table_names_the_policys_columns(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "reward,propensity,mine,phi_0,phi_1,mine_phi_0,mine_phi_1\n1,0.5,1,1,0,0,1\n0,0.5,0,0,1,0,1\n1,.5,1,1,1,0,1\n"
    )
    logged = logged_table(read_columns(path), "mine")
    assert logged.feature.tolist() == [[1, 0], [0, 1], [1, 1]] and logged.target_feature.shape == (3, 2)
    assert [each.name for each in evaluate(logged).estimates] == ["IPS", "SNIPS", "DR"]
    with pytest.raises(InputError, match="no column 'yours'"):
        logged_table(read_columns(path), "yours")


@pytest.fixture(scope="module")
def open_bandit(tmp_path_factory):
    """Logs of one shop, by uniform draws ("random") and by Thompson sampling ("bts"): the sample in the package obp."""
    folder = tmp_path_factory.mktemp("obp")
    asked = [sys.executable, "-m", "pip", "download", "obp==0.4.1", "--no-deps", "-q", "-d", str(folder)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"the package registry has no obp, whose wheel holds the sample: {done.stderr[-200:]}")

    def read(policy, campaign):
        """Columns click, propensity_score, item_id and position."""
        with zipfile.ZipFile(next(folder.glob("obp-*.whl"))) as wheel:
            text = wheel.read(f"obp/dataset/obd/{policy}/{campaign}/{campaign}.csv").decode()
        names = ("click", "propensity_score", "item_id", "position")
        rows = [[float(row[name]) for name in names] for row in csv.DictReader(io.StringIO(text))]
        click, chance, item, position = np.array(rows).T
        return click, chance, item.astype(int), position.astype(int) - 1

    return read


@pytest.mark.slow
@pytest.mark.parametrize("campaign", ["all", "men", "women"])
@pytest.mark.parametrize(("log", "asked"), [("bts", "random"), ("random", "bts")])
def test_the_open_bandit_data_agree_with_what_was_measured(open_bandit, tmp_path, campaign, log, asked):
    """What one policy earns, from the log of the other, is what it earned: within four standard errors, for IPS, SNIPS
    and DR by `tether evaluate`, or refused. Thompson sampling is taken to play as often as it did, by position."""
    click, propensity, item, position = open_bandit(log, campaign)
    earned, _, theirs, where = open_bandit(asked, campaign)
    items = max(item.max(), theirs.max()) + 1
    chances = np.full((3, items), 1.0 / items)  # of the policy that is asked for, (position, item)
    if asked == "bts":
        np.add.at(chances := np.zeros((3, items)), (where, theirs), 1.0)
        chances /= chances.sum(axis=1, keepdims=True)
    played, wanted = np.eye(items)[item], chances[position]  # a model with one rate for each item
    table = {"reward": click, "propensity": propensity, "other": wanted[np.arange(len(item)), item]}
    table |= {f"{name}phi_{i}": rows[:, i] for name, rows in (("", played), ("other_", wanted)) for i in range(items)}
    np.savez(tmp_path / "log.npz", **table)
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "log.npz"), "--policy", "other", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    if (campaign, log) == ("women", "bts"):  # two rows of 10,000 carry the weights
        assert "say as much as 2.1 equal ones" in found["refused"] and found["estimates"] == []
        return
    assert not found["refused"] and found["decisions"] == 10_000
    assert [each["name"] for each in found["estimates"]] == ["IPS", "SNIPS", "DR"]
    for each in found["estimates"]:
        assert abs(each["value"] - earned.mean()) < 4.0 * np.hypot(each["error"], earned.std() / 100.0), each
    assert evaluate(Logged(click, np.ones(10_000), table["other"], unknown(10_000))).refused
