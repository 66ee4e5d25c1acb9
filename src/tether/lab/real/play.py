"""Play a real world with one method and write every step down: the same starts, costs and number of steps for all."""

import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np

from tether.agents.agent import Agent
from tether.agents.lsvi import LsviConfig, LsviUcb
from tether.errors import InputError, nearest
from tether.gym.bridge import Bridge
from tether.gym.learn import attach_monitor, default_agent, learning_config
from tether.lab.books import COLUMNS, CellInfo
from tether.lab.real import RealWorld, find_world
from tether.lab.specs import Study, source_hash, spec_hash
from tether.records import Array, Decision

SIGNALS = 3
"""Most signals of a world that are kept."""
SOURCES = ("lab/real/__init__.py", "lab/real/play.py", "gym", "features")
"""What numbers depend on here, beside the world's own file and the runner's list: part of a cell's key."""


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Writes down a run of so many steps. Episode k starts by the same seed for every method, and is cut at H.

    CPU time is counted between an answer and the next question: the method's own, without the simulator's.
    """

    def __init__(
        self, env: Any, world: RealWorld, cell: str, seed: int, steps: int, tell: Callable[[int], None]
    ) -> None:
        super().__init__(env)
        self.world, self.steps, self.seed, self.tell = world, steps, seed, tell
        self.threshold = np.array([one.threshold for one in world.declare(cell)["constraints"]])
        self.columns = {name: np.full(steps, np.nan) for name in COLUMNS["step"]}
        self.played = self.episode = self.step_of_episode = 0
        self._asked = time.process_time()

    @property
    def left(self) -> int:
        """Steps that may still be played."""
        return self.steps - self.played

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The start of this episode, whatever seed the method asks for; a reset before a step starts it again."""
        if self.step_of_episode:
            self.episode, self.step_of_episode = self.episode + 1, 0
        start = int(np.random.SeedSequence([self.seed, self.episode]).generate_state(1)[0]) >> 1
        answer: tuple[Any, dict[str, Any]] = self.env.reset(seed=start, options=options)
        self._asked = time.process_time()
        return answer

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; beyond the last one nothing is written any more."""
        thought = time.process_time() - self._asked
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.step_of_episode += 1
        if self.left:
            self._write(float(reward), bool(terminated), thought, info)
        truncated = bool(truncated) or self.step_of_episode >= self.world.horizon
        self._asked = time.process_time()
        return observation, float(reward), bool(terminated), truncated, info

    def _write(self, reward: float, terminated: bool, thought: float, info: dict[str, Any]) -> None:
        excess = np.atleast_1d(np.asarray(info.get("true_cost", info["cost"]), dtype=np.float64)) - self.threshold
        row = {
            "reward": reward,
            "violations": float(not (excess <= 0.0).all()),  # NaN counts as one
            "excess": float(excess.max()),
            "ended": float(terminated),
            "baseline": np.nan,
            "alarm": 0.0,
            "plan_seconds": thought,
        }
        row |= {f"signal_{j}": float(value) for j, value in enumerate(info.get("signals", ())[:SIGNALS])}
        for name, value in row.items():
            self.columns[name][self.played] = value
        self.played += 1
        if self.played % self.world.horizon == 0:
            self.tell(1)

    def note(self, decision: Decision, tripped: bool) -> None:
        """What only Tether's agents can say of the step that was just played."""
        self.columns["baseline"][self.played - 1] = float(decision.is_baseline)
        self.columns["alarm"][self.played - 1] = float(tripped)


class Priced(gymnasium.Wrapper[Any, Any, Any, Any]):
    """r − price whenever a cost exceeds its threshold: the usual way to hope for safety. Counts how often it did."""

    def __init__(self, env: Recorder, price: float) -> None:
        super().__init__(env)
        self.threshold, self.price, self.over, self.count = env.threshold, price, 0, 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The same step at a lower reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        over = bool((np.atleast_1d(info["cost"]) > self.threshold).any())
        self.over, self.count = self.over + over, self.count + 1
        return observation, float(reward) - self.price * over, terminated, truncated, info


# The methods: each plays the recorder until nothing is left, and returns its alarms in words.

Method = Callable[[RealWorld, Recorder, dict[str, Any], int], dict[str, str]]


def _by_agent(
    env: Any, recorder: Recorder, told: dict[str, Any], agent_of: Callable[[Bridge], Agent]
) -> dict[str, str]:
    """plan, act, observe, until nothing is left: what `learn` does."""
    bridge = Bridge(env, **told)
    agent = agent_of(bridge)
    while recorder.left:
        state = bridge.start()
        agent.plan()
        for step in range(bridge.problem.horizon):
            decision = agent.act(step, state)
            outcome, stepped = bridge.play(decision)
            agent.observe(outcome)
            recorder.note(decision, bool(getattr(agent, "tripped_by", "")))
            if stepped.terminated or stepped.truncated or not recorder.left:
                break
            state = outcome.next_state
    alarm = getattr(agent, "tripped_by", "")
    return {"monitor": alarm} if alarm else {}


def always_safe(world: RealWorld, env: Recorder, told: dict[str, Any], seed: int) -> dict[str, str]:
    """The safe action at every step."""
    bridge = Bridge(env, **told)
    while env.left:
        state, ended = bridge.start(), False
        while env.left and not ended:
            observation, _, terminated, truncated, info = env.step(bridge.safe_env_action(state))
            state, ended = bridge.state_of(observation, info), terminated or truncated
    env.columns["baseline"][:] = 1.0
    return {}


def slucb_qvi(world: RealWorld, env: Recorder, told: dict[str, Any], seed: int) -> dict[str, str]:
    """What `learn` plays with all its defaults, its online tests included."""

    def agent_of(bridge: Bridge) -> Agent:
        options = {"limit_on": "single actions", "stationary": False, "config": None, **world.learning}
        agent = default_agent(bridge, np.random.default_rng(np.random.SeedSequence([seed, 1])), **options)
        attach_monitor(agent, bridge.problem)
        return agent

    return _by_agent(env, env, told, agent_of)


def lsvi_ucb(world: RealWorld, env: Recorder, told: dict[str, Any], seed: int) -> dict[str, str]:
    """LSVI-UCB on the priced reward, with the value radius and ridge of `learn`: no constraint."""
    low, high = told.get("reward_range", (0.0, 1.0))
    price = world.penalty * (high - low)
    chosen = learning_config(listed=False)
    config = LsviConfig(
        value_radius=chosen.value_radius,
        value_ridge=chosen.value_ridge,  # type: ignore[arg-type]
        pooled=bool(world.learning.get("stationary", False)),
    )
    told = {**told, "reward_range": (low - price, high)}

    def agent_of(bridge: Bridge) -> Agent:
        return LsviUcb(bridge.problem, config)

    return _by_agent(Priced(env, price), env, told, agent_of)


ROLLOUT = 200
"""Steps between two updates of PPO: with its default of 2048 it would hardly learn in so few steps."""
PRICE_RATE = 0.5
"""How fast PPO-Lagrangian's price rises: by this much of the reward's range per rollout that is over in every step."""


def train_ppo(world: RealWorld, env: Recorder, told: dict[str, Any], seed: int, adaptive: bool) -> dict[str, str]:
    """Stable-Baselines3's PPO with its defaults but for ROLLOUT, on normalised observations and actions in [-1, 1]."""
    from gymnasium.wrappers import FlattenObservation, RescaleAction
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    low, high = told.get("reward_range", (0.0, 1.0))
    priced = Priced(env, 0.0 if adaptive else world.penalty * (high - low))

    class Price(BaseCallback):  # type: ignore[misc]
        """Stop when nothing is left; after a rollout the Lagrangian's price follows the share of steps over τ."""

        def _on_step(self) -> bool:
            return env.left > 0

        def _on_rollout_end(self) -> None:
            if adaptive and priced.count:
                priced.price += PRICE_RATE * (high - low) * priced.over / priced.count
            priced.over = priced.count = 0

    flat: Any = FlattenObservation(priced)
    if isinstance(flat.action_space, gymnasium.spaces.Box):
        flat = RescaleAction(flat, np.float64(-1.0), np.float64(1.0))
    vector = VecNormalize(DummyVecEnv([lambda: flat]))
    model = PPO("MlpPolicy", vector, n_steps=ROLLOUT, batch_size=ROLLOUT // 4, seed=seed, device="cpu")
    model.learn(env.left, callback=Price())
    return {}


def ppo(world: RealWorld, env: Recorder, told: dict[str, Any], seed: int) -> dict[str, str]:
    """PPO on the priced reward."""
    return train_ppo(world, env, told, seed, adaptive=False)


def ppo_lagrangian(world: RealWorld, env: Recorder, told: dict[str, Any], seed: int) -> dict[str, str]:
    """PPO with a price that rises as long as steps are over τ: dual ascent on E[share of steps over τ] <= 0."""
    return train_ppo(world, env, told, seed, adaptive=True)


METHODS: dict[str, Method] = {
    "always-safe": always_safe,
    "slucb-qvi": slucb_qvi,
    "lsvi-ucb": lsvi_ucb,
    "ppo": ppo,
    "ppo-lagrangian": ppo_lagrangian,
}
ORIGINS = {"slucb-qvi": ("theorem", "default"), "lsvi-ucb": ("none", "default")}
"""Whose β it is, of the cost and of the value; "none" where there is none."""


# What the runner asks for.


NETWORKS = ("ppo", "ppo-lagrangian")
"""Methods that need Stable-Baselines3 and torch."""


def cells_of(study: Study) -> list[CellInfo]:
    """Every world with every method that the study names; missing packages are noticed here.

    Without a torch that works the networks are left out, with a warning: the other methods do not need it.
    """
    agents, why = study.agents, ""
    if any(agent.name in NETWORKS for agent in agents):
        why = networks_fail()
    if why:
        agents = [agent for agent in agents if agent.name not in NETWORKS]
        warnings.warn(f"{' and '.join(NETWORKS)} are skipped: {why}. requirements-real-ppo.txt has them.", stacklevel=2)
    return [_cell(study, find_world(place.name), agent) for place in study.worlds for agent in agents]


@lru_cache(maxsize=1)
def networks_fail() -> str:
    """Why Stable-Baselines3 or its torch cannot be imported, in words; "" if they can.

    A torch for CUDA without CUDA's libraries fails in many ways, and not as a module that is missing.
    """
    try:
        import_module("stable_baselines3")
    except Exception as error:
        return f"stable_baselines3 cannot be imported ({type(error).__name__}: {error})"
    return ""


def _cell(study: Study, world: RealWorld, agent: Any) -> CellInfo:
    if agent.name not in METHODS:
        raise InputError(f"real worlds are not played by {agent.name!r}{nearest(agent.name, list(METHODS))}")
    if agent.options or agent.grid:
        raise InputError(
            f"{agent.name} has no options in real worlds, but is given {sorted(agent.options | agent.grid)}."
        )
    episodes = min(study.episodes, world.episodes)
    code = source_hash([*SOURCES, f"lab/real/{world.make_env.__module__.split('.')[-1]}.py"])
    identity = {"world": world.name, "agent": agent.name, "episodes": episodes, "code": code}
    cost, value = ORIGINS.get(agent.name, ("none", "none"))
    return CellInfo(
        key=spec_hash(identity),
        agent=agent.name,
        agent_label=agent.label or agent.name,
        world=world.name,
        world_label=world.title,
        explorer="adaptive" if agent.name == "slucb-qvi" else "",
        options={"penalty": world.penalty} if agent.name in ("lsvi-ucb", "ppo") else {},
        world_options={"horizon": world.horizon, "episodes": episodes},
        cost_radius_origin=cost,
        value_radius_origin=value,
        real=True,
        first=agent.first,
    )


def play(info: CellInfo, seed: int, tell: Callable[[int], None]) -> tuple[dict[str, Array], dict[str, str]]:
    """The columns of one run, a row per step (T,), and its alarms."""
    world = find_world(info.world)
    cell = world.cell_of(seed)
    told = {**world.declare(cell), "horizon": world.horizon}
    steps = world.horizon * int(info.world_options["episodes"])
    env = Recorder(world.make_env(cell, seed), world, cell, seed, steps, tell)
    try:
        alarms = METHODS[info.agent](world, env, told, seed)
    finally:
        env.close()
    return env.columns, alarms
