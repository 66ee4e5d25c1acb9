"""The student's network in PyTorch. Imported by `student` only when a student is made."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from tether.records import Array

FEATURES = 32


class LakeCnn(BaseFeaturesExtractor):
    """32 filters 3 × 3, 64 filters 3 × 3, 32 units, without padding.

    The lake has one picture per cell, so a batch is computed once for each distinct cell in it and then spread out:
    the same function and the same gradient at a fraction of the work.
    """

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space, FEATURES)
        planes, rows, columns = observation_space.shape
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(planes, 32, 3),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 64, 3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(64 * (rows - 4) * (columns - 4), FEATURES),
            torch.nn.ReLU(),
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Features of pictures. (batch, planes, rows, columns) -> (batch, 32)."""
        cells = observations[:, 0].flatten(1).argmax(dim=1)
        distinct, place = torch.unique(cells, return_inverse=True)
        first = torch.empty_like(distinct).scatter_(0, place, torch.arange(len(cells)))
        return self.net(observations[first])[place]


def initialise(policy: ActorCriticPolicy) -> None:
    """Give the convolutions the orthogonal scale 1 of the authors' library; Stable-Baselines3 has √2."""
    for module in policy.features_extractor.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.orthogonal_(module.weight, gain=1.0)


def action_probabilities(policy: ActorCriticPolicy, images: NDArray[np.float32]) -> Array:
    """π(a|s) for each picture. (S, planes, rows, columns) -> (S, A)."""
    with torch.no_grad():
        chosen = policy.get_distribution(torch.as_tensor(images)).distribution.probs
    table = chosen.numpy().astype(np.float64)
    normalised: Array = table / table.sum(axis=1, keepdims=True)
    return normalised
