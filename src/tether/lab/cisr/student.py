"""The student: PPO on the Lagrangian lake, with multipliers that follow the measured violations."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tether.errors import InputError, TetherError
from tether.lab.cisr.env import CISR_INTENDED, Episode, Intervention, LagrangianLake, LakeEnv, Picture, pictures
from tether.lab.cisr.teacher import UnitLog
from tether.records import Array

# Lagrange multipliers by exponentiated gradient on a simplex of size B with a slack coordinate.

BUDGET = 0.5
"""B: what the multipliers and the slack sum to."""

RATE = 1.0
"""η: how fast they follow a violation."""

LARGEST_STEP = 200.0
"""Violations are clipped here before exp, as in the authors' code."""


def initial_weights(constraints: int, budget: float = BUDGET) -> Array:
    """The same weight for each constraint and for the slack. (constraints + 1,)."""
    if constraints < 1 or not budget > 0.0:
        raise InputError(f"The simplex needs a constraint and a positive size, not {constraints} and {budget}.")
    return np.full(constraints + 1, budget / (constraints + 1))


def multipliers(weights: Array) -> Array:
    """λ: the weights without the slack. (m + 1,) -> (m,)."""
    return weights[:-1]


def updated(weights: Array, violation: Array, rate: float = RATE) -> Array:
    """The weights after w ∝ w·exp(η·violation), the slack's violation being 0. (m + 1,), (m,) -> (m + 1,)."""
    if violation.shape != (weights.size - 1,) or not np.isfinite(violation).all():
        raise InputError(f"{weights.size - 1} finite violations are needed, not {violation}.")
    exponents = rate * np.minimum(np.append(violation, 0.0), LARGEST_STEP)
    grown = weights * np.exp(exponents - exponents.max())
    scaled: Array = weights.sum() * grown / grown.sum()
    return scaled


# PPO.


@dataclass(frozen=True, kw_only=True)
class StudentSpec:
    """Everything about a student but its seed. The defaults are the authors', in Stable-Baselines3's terms.

    A round has as many whole PPO batches as fit into `round_steps`: 9 of 4 × 128. Their library halves the value loss
    before it weighs it with .5, hence .25; and it clips value updates like policy updates, hence `value_clip`.
    """

    intended: float = CISR_INTENDED
    picture: Picture = "map"
    rounds: int = 2
    round_steps: int = 4800
    environments: int = 4
    horizon: int = 128
    minibatches: int = 4
    epochs: int = 9
    learning_rate: float = 1e-3
    entropy: float = 0.05
    clip: float = 0.2
    value_clip: float = 0.2
    value_weight: float = 0.25
    gradient_norm: float = 0.5
    discount: float = 0.99
    trace: float = 0.95

    @property
    def batch(self) -> int:
        """Steps of one PPO update, over all environments."""
        return self.environments * self.horizon


class Student:
    """A learner that keeps its weights and multipliers when the intervention changes; its optimiser starts anew."""

    def __init__(self, spec: StudentSpec, seed: int) -> None:
        try:
            import stable_baselines3  # noqa: F401
        except ImportError as error:
            raise TetherError(
                "Training a CISR student needs Stable-Baselines3 and PyTorch: pip install 'tether-rl[cisr]'. "
                "The trained curves need neither: tether.lab.cisr.curves.load_curves()."
            ) from error
        self.spec = spec
        self.weights = initial_weights(2)
        self._seeds = np.random.SeedSequence(seed)
        self._intervention: Intervention | None = None
        self._envs: list[LagrangianLake] = []
        self._model: Any = None

    def train_unit(self, intervention: Intervention) -> UnitLog:
        """Train for the rounds of one unit under an intervention; after each, the multipliers take a step."""
        if intervention != self._intervention:
            self._move_to(intervention)
        failures, interventions = self._counts()
        episodes: list[Episode] = []
        updates = max(1, self.spec.round_steps // self.spec.batch)
        for _ in range(self.spec.rounds):
            self._model.learn(updates * self.spec.batch)
            ended = [episode for env in self._envs for episode in env.episodes]
            if ended:
                self.weights = updated(self.weights, np.mean([episode.violation for episode in ended], axis=0))
            for env in self._envs:
                env.multipliers = multipliers(self.weights)
                env.episodes.clear()
            episodes += ended
        after = self._counts()
        return UnitLog(
            mean_return=float(np.mean([episode.earned for episode in episodes])) if episodes else 0.0,
            excess=float(np.mean([episode.violation[1] for episode in episodes])) if episodes else 0.0,
            failures=after[0] - failures,
            interventions=after[1] - interventions,
            steps=self.spec.rounds * updates * self.spec.batch,
        )

    def action_probabilities(self) -> Array:
        """π(a|s), the stochastic policy in every cell. (S, A)."""
        from tether.lab.cisr.network import action_probabilities

        if self._model is None:
            raise TetherError("The student has no policy before its first unit: call train_unit.")
        return action_probabilities(self._model.policy, pictures(self.spec.picture))

    def _counts(self) -> tuple[int, int]:
        return sum(env.failures for env in self._envs), sum(env.interventions for env in self._envs)

    def _move_to(self, intervention: Intervention) -> None:
        """New environments and a new optimiser; the policy and the multipliers stay."""
        self._intervention = intervention
        price = multipliers(self.weights)
        self._envs = [
            LagrangianLake(LakeEnv(self.spec.intended, intervention, self.spec.picture), price)
            for _ in range(self.spec.environments)
        ]
        previous, seed = self._model, int(self._seeds.spawn(1)[0].generate_state(1)[0])
        self._model = _new_ppo(self.spec, self._envs, seed)
        if previous is not None:
            self._model.policy.load_state_dict(previous.policy.state_dict())


def _new_ppo(spec: StudentSpec, envs: list[LagrangianLake], seed: int) -> Any:
    """PPO with the authors' network and settings, on one thread."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv

    from tether.lab.cisr.network import LakeCnn, initialise

    torch.set_num_threads(1)
    model = PPO(
        "MlpPolicy",
        DummyVecEnv([lambda env=env: env for env in envs]),
        learning_rate=spec.learning_rate,
        n_steps=spec.horizon,
        batch_size=spec.batch // spec.minibatches,
        n_epochs=spec.epochs,
        gamma=spec.discount,
        gae_lambda=spec.trace,
        clip_range=spec.clip,
        clip_range_vf=spec.value_clip,
        ent_coef=spec.entropy,
        vf_coef=spec.value_weight,
        max_grad_norm=spec.gradient_norm,
        policy_kwargs={"features_extractor_class": LakeCnn, "net_arch": []},
        seed=seed % 2**31,
        device="cpu",
    )
    initialise(model.policy)
    model.set_logger(Logger(folder=None, output_formats=[]))  # the default makes a folder for every student
    return model
