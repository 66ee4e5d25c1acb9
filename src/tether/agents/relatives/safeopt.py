"""SafeOpt with a linear kernel (Sui, Gotovos, Burdick, Krause 2015; Berkenkamp et al.): what practitioners know."""

import numpy as np
from numpy.typing import NDArray

from tether.agents.relatives import Row
from tether.agents.relatives.bandit import DOWN, Pick, RayBandit, Rays, at
from tether.records import Origin

LENGTHS = np.geomspace(0.01, 1.0, 20)
"""SafeOpt works on finite sets, so rays are cut into points: close together near the origin, or it never starts."""

BETA = 2.0
"""Standard deviations on each side: the default of the authors' package, and no theorem."""


class SafeOpt(RayBandit):
    """Play the most uncertain point that may be the best, or may show that others are safe.

    Setting: costs and rewards are Gaussian processes; cost <= τ at every query; the origin is known to be safe. With
    the kernel B²⟨x,x'⟩ and noise σ² the posterior is the ridge regression with λ = σ²/B², s(x) = σ‖x‖ in A^{-1}:

        S = {x : m_c + βs <= τ};  M = {x in S : m_r + βs >= max over S of m_r − βs}
        E = {x in S : a measurement of m_c(x) − βs(x) at x would bring another point into S}
        play the x in M ∪ E with the largest s(x)

    Citation: Y. Sui, A. Gotovos, J. Burdick, A. Krause, "Safe Exploration for Optimization with Gaussian Processes",
    ICML 2015. Rule read in the package of F. Berkenkamp et al. (befelix/SafeOpt: gp_opt.py).

    Deviations: written anew, because the package imports no more (it needs collections.Sequence, Python < 3.10); one
    σ, the larger, for rewards and costs; the kernel's scale is the declared B.
    """

    kind = "safeopt"
    row = Row(
        title="SafeOpt, linear kernel",
        citation="Sui, Gotovos, Burdick, Krause: ICML 2015; package of Berkenkamp et al., gp_opt.py",
        track="step",
        constraint="⟨γ*, x_t⟩ ≤ τ in every round, if β is right",
        told="the reward noise σ_r; a scale of the kernel (B)",
        source="code",
        anchor="none: its published experiments are Gaussian processes on other kernels",
        horizon=1,
        deviations=(
            "rays are cut into 20 points, geometrically",
            "β = 2 is the package's default, not a theorem",
            "one σ, the larger, for rewards and costs",
        ),
    )

    @property
    def ridge(self) -> float:
        """λ = σ²/B²."""
        return (self.noise / self.norm) ** 2

    @property
    def origin(self) -> Origin:
        """No theorem says β = 2."""
        return "tuned"

    def radius(self, rays: Rays) -> float:
        """βσ, the factor of ‖x‖ in A^{-1}."""
        return float(self.config.scale * BETA * self.noise)

    def choose(self, rays: Rays) -> Pick:
        """The widest of the possible maximisers and the expanders."""
        beta, tau = self.config.scale * BETA, rays.threshold[..., None]
        spread = self.noise * rays.width[..., None]  # s(u_i) (..., N, 1)
        ends = (rays.cost[..., None] + beta * spread, rays.reward[..., None])
        upper = LENGTHS * ends[0]  # (..., N, 20)
        safe = upper <= DOWN * tau
        low, high = LENGTHS * (ends[1] - beta * spread), LENGTHS * (ends[1] + beta * spread)
        best_low = np.where(safe, low, 0.0).max(axis=(-2, -1), keepdims=True)  # the origin is worth 0
        telling = safe & ((high >= best_low) | self._expands(rays, safe, beta))
        width = np.where(telling, LENGTHS * spread, -1.0)
        flat = width.reshape(*width.shape[:-2], -1)
        place = flat.argmax(axis=-1)
        ray, cut = np.divmod(place, len(LENGTHS))
        length = np.where(at(flat, place) > 0.0, LENGTHS[cut], 0.0)
        return Pick(ray, length, length * at(ends[0][..., 0], ray), length * at(rays.reward, ray))

    def _expands(self, rays: Rays, safe: NDArray[np.bool_], beta: float) -> NDArray[np.bool_]:
        """Which x = a u_i would, measured at their lowest cost, bring the next point a' u_j of some ray into S."""
        products = self.noise**2 * (rays.ends @ rays.inverse @ np.swapaxes(rays.ends, -1, -2))  # k(u_i, u_j)
        count = safe.sum(axis=-1)  # the safe points of a ray are its first ones
        reach = np.append(LENGTHS, np.inf)[count][..., None, None, :]  # a' of each ray j, ∞ where all is safe
        known, a = np.isfinite(reach), LENGTHS[:, None]
        reach = np.where(known, reach, 0.0)
        s_i, s_j = self.noise * rays.width[..., None, None], self.noise * rays.width[..., None, None, :]
        gain = a * reach * products[..., :, None, :] / (a * a * s_i * s_i + self.noise**2)  # of a measurement at x
        left = np.maximum((reach * s_j) ** 2 - gain * a * reach * products[..., :, None, :], 0.0)
        bound = reach * rays.cost[..., None, None, :] - beta * a * s_i * gain + beta * np.sqrt(left)
        found: NDArray[np.bool_] = (known & (bound <= rays.threshold[..., None, None])).any(axis=-1)
        return found


METHODS = (SafeOpt,)
