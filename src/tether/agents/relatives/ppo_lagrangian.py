"""PPO with a Lagrangian on Stable-Baselines3: the deep row, what "safe RL" means to most who train networks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.agents.agent import Fact
from tether.agents.outcome_order import CostOutcome
from tether.agents.relatives import Row
from tether.agents.relatives.episodic import EpisodicAgent, EpisodicConfig
from tether.errors import imported
from tether.problem.problem import Problem
from tether.records import Array, Transition

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Adam's names for the means of gradients and of their squares."""

FLATTENED = ("observations", "actions", "values", "log_probs", "advantages", "returns")
"""What a rollout buffer holds by steps and environments, and minibatches by steps alone."""

GAE = 0.95
"""λ of generalised advantage estimation: the default of Stable-Baselines3."""


@dataclass(frozen=True, kw_only=True)
class PpoConfig(EpisodicConfig):
    """What Ray et al. call penalty_init and penalty_lr, and the steps between two updates; the rest is PPO's default.

    `scale` multiplies the step size of the multipliers: there is no radius to scale, and no theorem.
    """

    first_price: float = 1.0
    price_rate: float = 0.05
    rollout: int = 256


class Rollout(NamedTuple):
    """Steps in the order in which they were played, all by one policy; the last one ends an episode."""

    observations: NDArray[Any]  # in the observation space, (n, ...)
    actions: NDArray[np.int64]  # (n,)
    rewards: Array  # (n,)
    costs: Array  # of each constraint (n, M)
    first: NDArray[np.bool_]  # whether an episode begins here (n,)


class Learner:
    """Stable-Baselines3's PPO for one pair of Gymnasium spaces, without a loop of its own.

    What it has learned is one vector, which its owner keeps: the weights, Adam's two moments of them, and Adam's count.
    A penalised reward is (r − Σ_j λ_j c_j)/(1 + Σ_j λ_j).
    """

    def __init__(self, observation_space: Any, actions: int, *, seed: int) -> None:
        import gymnasium

        torch, sb3 = (imported(package, "league-deep") for package in ("torch", "stable_baselines3"))

        class Spaces(gymnasium.Env[Any, Any]):
            """The spaces alone: nothing is ever played in it."""

            def __init__(self) -> None:
                self.observation_space, self.action_space = observation_space, gymnasium.spaces.Discrete(actions)

        self.torch = torch
        torch.set_num_threads(1)  # sums in one order, and studies run in parallel already
        with torch.random.fork_rng(devices=[]):  # its first weights come from the global generator
            torch.manual_seed(seed)
            # an episode ends at its horizon and no value lies beyond it: no discount
            self.ppo = sb3.PPO("MlpPolicy", Spaces(), gamma=1.0, device="cpu")
        self.ppo.set_logger(sb3.common.logger.Logger(None, []))

    @property
    def state(self) -> Array:
        """Weights, their mean gradients, their mean squares, the count: (3P + 1,)."""
        adam, weights = self.ppo.policy.optimizer.state, list(self.ppo.policy.parameters())
        if not adam:  # before the first step
            parts = [*weights, *(self.torch.zeros_like(one) for one in weights + weights), self.torch.zeros(1)]
        else:
            means = [adam[one][name] for name in MOMENTS for one in weights]
            parts = [*weights, *means, adam[weights[0]]["step"].reshape(1)]
        joined: Array = self.torch.cat([one.detach().reshape(-1) for one in parts]).numpy().astype(np.float64)
        return joined

    @state.setter
    def state(self, state: Array) -> None:
        """Go on from a state."""
        policy, at = self.ppo.policy, 0
        values = self.torch.as_tensor(state, dtype=self.torch.float32)
        policy.optimizer.state.clear()
        for name in ("weight", *MOMENTS):
            for weight in policy.parameters():
                part = values[at : at + weight.numel()].reshape(weight.shape).clone()
                at += weight.numel()
                if name == "weight":
                    weight.data.copy_(part)
                elif values[-1] > 0.0:
                    policy.optimizer.state[weight] |= {name: part, "step": values[-1].clone()}

    def probabilities(self, observations: NDArray[Any]) -> Array:
        """π(a|o) of every observation (n, ...): (n, A)."""
        with self.torch.no_grad():
            given = self.ppo.policy.obs_to_tensor(observations)[0]
            table = self.ppo.policy.get_distribution(given).distribution.probs.numpy().astype(np.float64)
        normalised: Array = table / table.sum(axis=1, keepdims=True)
        return normalised

    def improve(self, rollout: Rollout, prices: Array, rng: np.random.Generator) -> None:
        """One update of PPO on the penalised rewards, at prices λ (M,); `rng` draws the minibatches."""
        from stable_baselines3.common.buffers import RolloutBuffer

        class Shuffled(RolloutBuffer):  # type: ignore[misc, unused-ignore]
            """Minibatches from our generator; the original takes them from numpy's global one."""

            generator_ready: bool

            def get(self, batch_size: int | None = None) -> Iterator[Any]:
                """All steps once, in a new order."""
                order, size = rng.permutation(self.buffer_size), batch_size or self.buffer_size
                for name in () if self.generator_ready else FLATTENED:
                    setattr(self, name, self.swap_and_flatten(getattr(self, name)))
                self.generator_ready = True
                for start in range(0, len(order), size):
                    yield self._get_samples(order[start : start + size])

        ppo, torch, count = self.ppo, self.torch, len(rollout.actions)
        buffer = Shuffled(count, ppo.observation_space, ppo.action_space, "cpu", gamma=1.0, gae_lambda=GAE)
        penalised = (rollout.rewards - rollout.costs @ prices) / (1.0 + prices.sum())
        with torch.no_grad():
            given = ppo.policy.obs_to_tensor(rollout.observations)[0]
            values, logs, _ = ppo.policy.evaluate_actions(given, torch.as_tensor(rollout.actions))
        for step in range(count):
            buffer.add(
                rollout.observations[step][None],
                rollout.actions[step].reshape(1, 1),
                penalised[step : step + 1],
                rollout.first[step : step + 1],
                values[step],
                logs[step : step + 1],
            )
        buffer.compute_returns_and_advantage(last_values=torch.zeros(1), dones=np.ones(1))
        ppo.rollout_buffer = buffer
        ppo.train()


class Price:
    """λ = softplus(u) of each constraint, with Adam on u along the measured excess, as Ray et al. have it."""

    def __init__(self, constraints: int, first: float, rate: float) -> None:
        self.rate = rate
        self.u, self.mean, self.square = np.full(constraints, np.log(np.expm1(first))), *np.zeros((2, constraints))
        self.updates = 0

    @property
    def values(self) -> Array:
        """λ (M,)."""
        prices: Array = np.logaddexp(0.0, self.u)
        return prices

    def follow(self, excess: Array) -> None:
        """One step of Adam (.9, .999) up the excess of the costs over their budgets (M,)."""
        self.updates += 1
        self.mean += 0.1 * (excess - self.mean)
        self.square += 0.001 * (excess**2 - self.square)
        mean, square = self.mean / (1.0 - 0.9**self.updates), self.square / (1.0 - 0.999**self.updates)
        self.u += self.rate * mean / (np.sqrt(square) + 1e-8)


class PpoLagrangian(EpisodicAgent):
    """PPO on rewards less priced costs; the prices follow how far the last rollout was over its budget.

    Setting: a Gymnasium environment with finite actions, E Σ_h c_h <= Hτ hoped for in the end. Known: nothing; a_0 is
    one action among others. No theorem, neither on regret nor on violations.

    Rule: after each `rollout` of steps one update of PPO (Stable-Baselines3's, with its defaults) on
    (r − Σ_j λ_j c_j)/(1 + Σ_j λ_j), λ_j = softplus(u_j), and one step of Adam on u_j along J_j − Hτ_j, where J_j is the
    rollout's mean cost per episode. The policy sees (state, step) one-hot, as `WorldEnv` shows them.

    Citation: A. Ray, J. Achiam, D. Amodei, "Benchmarking Safe Exploration in Deep Reinforcement Learning", 2019; prices
    and their constants were read in the authors' code (openai/safety-starter-agents: penalty_init 1, penalty_lr .05,
    softplus, a loss in u). PPO: J. Schulman et al., arXiv 1707.06347.

    Deviations: the penalty is in the reward, which their code also offers, so that one critic is enough; a rollout has
    256 steps instead of 4000, because a league has thousands of steps and not millions; no discount, because episodes
    are short; in stars it chooses among the ends of the rays and a_0, and its mean is a point inside.
    """

    kind = "ppo-lagrangian"
    config_type = PpoConfig
    config: PpoConfig
    needs_margin = False
    buffers: ClassVar[tuple[str, ...]] = (*EpisodicAgent.buffers, "learner", "table")
    row: ClassVar[Row] = Row(
        title="PPO with a Lagrangian",
        citation="Ray, Achiam, Amodei 2019, on Stable-Baselines3",
        track="episode",
        constraint="E Σ_h c_h <= Hτ in the end: nothing while learning",
        told="uses neither φ, a_0, τ_s, σ nor B",
        source="code",
        anchor="no figure: its authors' worlds are robots in MuJoCo",
        deviations=(
            "the penalty is in the reward, with one critic",
            "256 steps a rollout instead of 4000, no discount",
            "in stars: the ends of the rays and a_0",
        ),
    )

    def __init__(self, problem: Problem, config: PpoConfig | None = None, *, seed: int = 0) -> None:
        import gymnasium

        super().__init__(problem, config, seed=seed)
        self.relabel("none", "tuned")  # no theorem stands behind any of its numbers
        horizon, (states, actions, _) = problem.horizon, self.features.shape
        space = gymnasium.spaces.MultiDiscrete([states, horizon + 1])
        self.learner = Learner(space, actions, seed=int(self.rng.integers(2**31)))
        self.network = self.learner.state
        self.table: Array = np.zeros(0)  # of probabilities; empty until asked for
        self.price = Price(
            len(problem.constraints), self.config.first_price, self.config.scale * self.config.price_rate
        )
        self.memory: list[list[float]] = []  # step, slot, action, reward, costs

    def _check_fit(self, problem: Problem) -> None:
        """Refuse problems whose states are not listed, or differ in their actions; several constraints are allowed."""
        self._check_actions(problem)

    def policy(self) -> Array:
        """The network's table, after an update if there is a rollout for it."""
        p, (states, actions, _) = self.problem, self.features.shape
        if len(self.memory) >= self.config.rollout and self.memory[-1][0] == p.horizon - 1:
            self._improve()
        if not self.table.size:
            places = np.stack(np.meshgrid(np.arange(p.horizon), np.arange(states), indexing="ij"), axis=2)
            seen = places[..., ::-1].reshape(-1, 2)  # (state, step)
            self.table = self.learner.probabilities(seen).reshape(p.horizon, states, actions)
        return self.table

    def _improve(self) -> None:
        steps = np.array(self.memory)
        rollout = Rollout(
            observations=steps[:, [1, 0]].astype(np.int64),
            actions=steps[:, 2].astype(np.int64),
            rewards=steps[:, 3],
            costs=steps[:, 4:],
            first=steps[:, 0] == 0.0,
        )
        budget = self.problem.horizon * np.array(self.problem.threshold)
        self.learner.state = self.network
        self.price.follow(rollout.costs.sum(axis=0) / max(1, int(rollout.first.sum())) - budget)
        self.learner.improve(rollout, self.price.values, self.rng)
        self.network, self.table, self.memory = self.learner.state, np.zeros(0), []

    def learn(self, transition: Transition, fact: Fact | None) -> list[CostOutcome]:
        """Also remember the step; a cost that was not measured counts as its τ."""
        effective, t = super().learn(transition, fact), transition
        slot = self.slot_of(t.state)
        action = int(np.abs(self.features[slot] - np.asarray(t.feature)).sum(axis=1).argmin())
        costs = self.problem.threshold if t.cost is None else np.atleast_1d(np.asarray(t.cost, dtype=np.float64))
        self.memory.append([float(t.step), float(slot), float(action), float(t.reward), *map(float, costs)])
        return effective

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Also what the network has learned."""
        return {**super().arrays(), "network": self.network}

    def _take_arrays(self, arrays: dict[str, NDArray[Any]]) -> None:
        super()._take_arrays(arrays)
        self.network, self.table = np.asarray(arrays["network"], dtype=np.float64), np.zeros(0)
        self.learner.state = self.network

    def extras(self) -> dict[str, Any]:
        """Also the prices, and the steps that were not learned from yet."""
        price = {name: getattr(self.price, name).tolist() for name in ("u", "mean", "square")}
        return {**super().extras(), "price": {**price, "updates": self.price.updates}, "memory": self.memory}

    def take_extras(self, extras: dict[str, Any]) -> None:
        """The reverse of `extras`."""
        super().take_extras(extras)
        for name in ("u", "mean", "square"):
            setattr(self.price, name, np.array(extras["price"][name], dtype=np.float64))
        self.price.updates = int(extras["price"]["updates"])
        self.memory = [list(map(float, step)) for step in extras["memory"]]


METHODS = (PpoLagrangian,)
