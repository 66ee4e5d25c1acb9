"""An environment in a process of another Python: the same run as here, and clear words when it fails."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import tether.gym
from gym.small_envs import Shop, Valve
from gym.test_learn import SHOP, VALVE, run, same
from tether import InputError
from tether.gym.remote_env import RemoteError

HERE = Path(__file__).parent
MODULE = """
import small_envs

class Sixes(small_envs.Shop):
    def __init__(self):
        super().__init__(style="six")

class Chatty(small_envs.Shop):
    def step(self, action):
        print("this is not an answer")
        *values, info = super().step(action)
        return (*values, dict(info, simulator=object(), array=info["action_mask"]))

class Failing(small_envs.Shop):
    def step(self, action):
        raise ValueError("the pump is stuck")

class Dying(small_envs.Shop):
    def step(self, action):
        import os
        os._exit(3)

class Sleeping(small_envs.Shop):
    def reset(self, **options):
        import time
        time.sleep(60)
"""
OLD = '''
"""An environment as they were written before Gymnasium: no package at all, four values, seeds by a method."""
import random

class Discrete:
    def __init__(self, n):
        self.n = n

class Env:
    observation_space, action_space = Discrete(5), Discrete(2)
    def seed(self, seed):
        self.random = random.Random(seed)
    def reset(self):
        self.steps = 0
        return getattr(self, "random", random).randrange(5)
    def step(self, action):
        self.steps += 1
        return self.steps, 0.5, self.steps == 2, {"cost": 0.25, "TimeLimit.truncated": True}

def make_env():
    return Env()

class Wrapper:
    """Passes on whatever it is given, as Gym's own did."""
    def __init__(self):
        self.env = Env()
        self.observation_space, self.action_space = Discrete(5), Discrete(2)
    def reset(self, **options):
        return self.env.reset(**options)

class Seeded:
    """Takes a seed and no options."""
    observation_space, action_space = Discrete(5), Discrete(2)
    def reset(self, seed=None):
        return seed
'''


@pytest.fixture
def far(tmp_path):
    """make -> the environment behind it, in a folder with some modules; closed in the end."""
    shutil.copy(HERE / "small_envs.py", tmp_path)
    (tmp_path / "others.py").write_text(MODULE)
    (tmp_path / "old.py").write_text(OLD)
    made = []

    def open_far(make, **options):
        made.append(tether.gym.remote(python=sys.executable, make=make, folder=tmp_path, **options))
        return made[-1]

    yield open_far
    for env in made:
        env.close()


def test_a_run_is_the_same_bit_for_bit_as_without_the_process_between(far):
    same(run(far("small_envs:Shop"), 20, **SHOP), run(Shop(), 20, **SHOP))
    same(run(far("small_envs:Valve"), 20, **VALVE), run(Valve(), 20, **VALVE))


def test_six_values_and_four_are_understood(far):
    same(run(far("others:Sixes"), 5, **SHOP), run(Shop(), 5, **SHOP))
    env = far("old")
    assert env.action_space == spaces.Discrete(2)
    first, info = env.reset(seed=4)
    assert env.reset(seed=4) == (first, {}) and info == {}
    assert env.step(1) == (1, 0.5, False, False, {"cost": 0.25, "TimeLimit.truncated": True})
    assert env.step(1)[2:4] == (False, True)


def test_a_reset_is_asked_only_for_what_it_takes(far, capfd):
    """CityLearn's takes nothing, behind wrappers of Gym that pass on everything."""
    assert far("old:Seeded").reset(seed=4, options={"day": 1}) == (4, {})
    assert capfd.readouterr().err == ""
    wrapped = far("old:Wrapper")
    assert wrapped.reset(seed=4)[0] in range(5)
    assert "old:Wrapper takes no seed" in capfd.readouterr().err


def test_what_it_prints_is_no_answer_and_what_cannot_be_sent_is_named(far):
    env = far("others:Chatty")
    env.reset(seed=1)
    info = env.step(0)[-1]
    assert info["not_sent"] == ["simulator"] and isinstance(info["array"], np.ndarray)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        ("others:Failing", "failed at 'step': ValueError: the pump is stuck"),
        ("others:Dying", "ended at 'step' with exit code 3"),
    ],
)
def test_a_failure_over_there_is_an_error_here(far, make, words):
    env = far(make)
    env.reset(seed=1)
    with pytest.raises(RemoteError, match=words):
        env.step(0)


def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(far):
    env = far("others:Sleeping", timeout=20.0)
    env._timeout = 0.2
    with pytest.raises(RemoteError, match=r"did not answer 'reset' within 0.2 s"):
        env.reset()
    with pytest.raises(RemoteError, match="was closed"):
        env.step(0)


def test_an_answer_to_a_question_that_was_interrupted_is_not_taken_for_the_next(far):
    env = far("small_envs:Shop")
    env.reset(seed=1)
    answer, env._line = env._line, lambda call: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        env.step(2)
    env._line = answer
    twin = Shop()
    twin.reset(seed=1)
    twin.step(2)
    assert env.step(0)[:2] == twin.step(0)[:2]


def test_what_cannot_be_started_or_imported_says_so(far, tmp_path):
    with pytest.raises(InputError, match="cannot be started"):
        tether.gym.remote(python=tmp_path / "no-python", make="old")
    with pytest.raises(RemoteError, match="ModuleNotFoundError: No module named 'nowhere'"):
        far("nowhere:make_env")


def test_the_other_process_does_not_outlive_a_failure_to_begin(far, monkeypatch):
    started, popen = [], subprocess.Popen

    def recorded(*args, **options):
        started.append(popen(*args, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", recorded)
    with pytest.raises(RemoteError, match="nowhere"):
        far("nowhere:make_env")
    assert started[0].returncode is not None


def test_the_other_process_ends_with_the_environment(far):
    env = far("small_envs:Shop")
    worker = env._worker.pid
    env.close()
    env.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, signal.SIGTERM)
