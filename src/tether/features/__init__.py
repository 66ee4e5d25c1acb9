"""Feature builders: maps φ with ‖φ‖ <= 1 by construction (Assumption 4), and the action sets D(s) made from them.

    from tether.features import OneHot, PerAction, ActionList

ψ(s) below is a vector of state features; φ(s, a) is what the learner's regressions see.
"""

from tether.features.actions import (
    ActionFeatures,
    ActionList,
    ActionRays,
    AffineInAction,
    PairFeatures,
    PerAction,
    PerDirection,
    concatenate,
)
from tether.features.state import (
    Constant,
    Features,
    Fourier,
    FunctionFeatures,
    OneHot,
    Polynomial,
    RandomFourier,
    Reading,
    SoftAggregation,
    Standardised,
    Tiles,
    product,
)

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
