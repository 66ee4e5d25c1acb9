"""How much of D(s) is certified, by the gate's model: a number for people, on which nothing rests."""

from math import nan, sqrt

import numpy as np

from tether.live.examine import SPANNED, noise_of, start_of
from tether.live.gate_bounds import open_part
from tether.live.gate_facts import Terms
from tether.live.gate_model import Fit, Model
from tether.problem.action_sets import ActionSet
from tether.records import Array


def certified_share(terms: Terms, model: Model, actions: ActionSet, declared: list[float]) -> float:
    """Return the mean over the actions of D(s) of the length, 0 to 1, that could be played: for display."""
    lengths = np.ones(len(actions.endpoints))
    for j, tau in enumerate(terms.threshold.tolist()):
        start, upper = upper_bounds(terms, model, actions, declared[j], j)
        start, upper = start + noise_of(terms, j, 0.0), upper + noise_of(terms, j, 1.0)
        lengths = np.minimum(lengths, lengths_of(start, upper, tau, actions.is_star))
    if not actions.is_star:
        lengths[actions.baseline] = 1.0
    return float(lengths.sum()) / len(lengths)


def upper_bounds(terms: Terms, model: Model, actions: ActionSet, declared: float, j: int) -> tuple[float, Array]:
    """(bound of a_0(s), bounds (N,) of the candidates) for one constraint, with the least radius."""
    fit, f, rows = model.fits[j], actions.phi_0, actions.endpoints
    if terms.exact and open_part(model, f) > SPANNED:
        return declared, conditioned_bounds(model, fit, rows, f, declared, terms.reduces)
    upper = plain_bounds(model, fit, rows) + float(terms.point_error[j])
    if terms.exact:
        return declared, upper
    free = float(plain_bounds(model, fit, f[None])[0]) + float(terms.point_error[j])
    return min(free, start_of(terms, declared, j, not actions.is_star)), upper


def conditioned_bounds(model: Model, fit: Fit, rows: Array, f: Array, declared: float, reduces: bool) -> Array:
    """The bounds of many rows (N, d), given c(f) = `declared`: (N,)."""
    v, e = rows @ model.free, f @ model.free
    g00 = float(e @ e)
    share = v @ (e / g00)
    residual = float(fit.gamma_hat @ f) - declared
    square = fit.radius**2 - (residual * residual / g00 if reduces else 0.0)
    width2 = np.einsum("nd,nd->n", v, v) - share * share * g00
    radius = sqrt(square) if square >= 0.0 else nan
    bounds: Array = rows @ fit.gamma_hat - share * residual + radius * np.sqrt(np.maximum(width2, 0.0))
    return bounds


def plain_bounds(model: Model, fit: Fit, rows: Array) -> Array:
    """The bounds of many rows (N, d), the state's own fact not used: (N,)."""
    v = rows @ model.free
    bounds: Array = rows @ fit.gamma_hat + fit.radius * np.sqrt(np.einsum("nd,nd->n", v, v))
    return bounds


def lengths_of(start: float, upper: Array, tau: float, is_star: bool) -> Array:
    """How far along each ray a bound that is `start` at a_0(s) and `upper` (N,) at the end stays under τ: (N,)."""
    slack, rise = tau - start, upper - start
    if not (slack > 0.0 and np.isfinite(rise).all()):
        return np.zeros_like(rise)
    lengths: Array = slack / np.maximum(rise, slack)
    return lengths if is_star else np.floor(lengths)
