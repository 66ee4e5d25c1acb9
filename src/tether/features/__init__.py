"""Feature builders: maps φ with ‖φ‖ <= 1 by construction (Assumption 4), and the action sets D(s) made from them.

    from tether.features import OneHot, PerAction, ActionList

ψ(s) below is a vector of state features; φ(s, a) is what the learner's regressions see.
"""

from tether.features.action_features import (
    ActionFeatures,
    AffineInAction,
    PairFeatures,
    PerAction,
    PerDirection,
)
from tether.features.base import Constant, Features, FunctionFeatures, OneHot, Reading
from tether.features.bases import Fourier, Polynomial, RandomFourier
from tether.features.choices import ActionList, ActionRays
from tether.features.compose import concatenate, product
from tether.features.partitions import SoftAggregation, Tiles
from tether.features.standardise import Standardised

__all__ = [
    "ActionFeatures",
    "ActionList",
    "ActionRays",
    "AffineInAction",
    "Constant",
    "Features",
    "Fourier",
    "FunctionFeatures",
    "OneHot",
    "PairFeatures",
    "PerAction",
    "PerDirection",
    "Polynomial",
    "RandomFourier",
    "Reading",
    "SoftAggregation",
    "Standardised",
    "Tiles",
    "concatenate",
    "product",
]
