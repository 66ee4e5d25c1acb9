"""B, the bound on ‖γ*‖: from what one unit of each feature changes the cost by, and what safe costs demand of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tether.errors import AssumptionError, InputError
from tether.options import real_numbers
from tether.records import Array

HOW = "feature_effects=[…], what one unit of each feature can change the cost by at most"
"""How somebody finds B, for messages: a data sheet says it, or a person who knows the system. Data do not."""

ROUNDED = 1e-9
"""Relative rounding that a comparison with B forgives."""


def norm_of_effects(effects: Any, dimension: int) -> float:
    """Return B = ‖e‖₂, since e_i ≥ |γ*_i| for every feature i.

    Args:
        effects: e, one number per feature (d,).
        dimension: d.

    Raises:
        InputError: where a number is missing, negative or not finite.
        AssumptionError: where all effects are zero.
    """
    try:
        if any(isinstance(one, bool | np.bool_ | str | bytes) for one in np.ravel(np.array(effects, dtype=object))):
            raise TypeError("True and '0.1' are no numbers, though they could be read as some")
        given = real_numbers(effects, "feature_effects")
    except (TypeError, ValueError) as error:
        raise InputError(f"feature_effects must be numbers, one per feature, but is {effects!r}.") from error
    if given.shape != (dimension,):
        raise InputError(
            f"feature_effects must have one number for each of the d = {dimension} features, but has shape "
            f"{given.shape}."
        )
    if not (np.isfinite(given) & (given >= 0.0)).all():
        (feature,) = np.argwhere(~(np.isfinite(given) & (given >= 0.0)))[0]
        raise InputError(
            f"feature_effects must be finite and >= 0, but that of feature {feature} is {given[feature]}. "
            "It is what one unit of this feature can change the cost by at most, up or down."
        )
    norm = float(np.linalg.norm(given))
    if not norm > 0.0:
        raise AssumptionError(
            "feature_effects are all 0, so that every action would cost 0 (Assumption 4 needs B > 0). Give what one "
            "unit of each feature can change the cost by at most."
        )
    return norm


def idle(threshold: Sequence[float], gamma_norm: Sequence[float], size: float, bounded: Sequence[bool]) -> str:
    """Say which τ no action can reach if ‖γ*‖ ≤ B and ‖φ‖ ≤ `size`, so that it limits nothing; empty if none.

    Args:
        threshold: τ (M,).
        gamma_norm: B (M,).
        size: the limit on ‖φ‖.
        bounded: which costs lie in [0, 1], where B is for rounding errors alone (M,).
    """
    for tau, norm, is_bounded in zip(threshold, gamma_norm, bounded, strict=True):
        if norm * size <= tau < np.inf and not is_bounded:
            return f"with B = {norm:.4g} no action costs over {norm * size:.4g}, so that τ = {tau:.4g} limits nothing"
    return ""


def check_demand(phi_0: Array, costs: Array, error: Array, gamma_norm: Sequence[float], where: object) -> None:
    """Refuse a safe cost that no γ with ‖γ‖ ≤ B can give: |⟨γ, φ_0⟩| ≤ B‖φ_0‖.

    Args:
        phi_0: the safe feature (d,).
        costs: τ_h(s) (H, M), NaN where unknown.
        error: how far each may be off, e + ε (M,); infinite where it is not to be compared.
        gamma_norm: B (M,).
        where: the state, for the message.
    """
    size = float(np.sqrt(phi_0 @ phi_0))
    over = np.abs(costs) - error > size * np.asarray(gamma_norm) * (1.0 + ROUNDED)
    if over.any():
        step, j = np.argwhere(over)[0]
        least = (abs(costs[step, j]) - error[j]) / size if size else np.inf
        raise AssumptionError(
            f"Assumption 4 needs ‖γ*‖ <= B = {gamma_norm[j]:.6g}, but the declared cost {costs[step, j]:.6g} of the "
            f"safe action at step {step}, {where}, demands at least B = {least:.6g}, since ‖φ‖ is {size:.6g} there. "
            f"Declare {HOW}, or a larger gamma_norm. The default √d suits costs and features up to 1."
        )


def numbers(values: Sequence[float] | Array) -> str:
    """Return B of each constraint as messages have it."""
    return ", ".join(f"{value:.4g}" for value in values)
