"""The certified sets A_h^k(s) of Eq. (9), in the closed form of docs/theory.md sections 1, 2, 7 and 17.

With ĝ and G = A^{-1} given the remembered facts, and the safe cost c(f) = τ_s as one fact more, share = fᵀGx / fᵀGf:

    mean(x)  = ⟨ĝ, x⟩ − share · (⟨ĝ, f⟩ − τ_s)
    width(x) = ‖x − share·f‖_G
    bound(x) = mean(x) + β · width(x)                     the left side of Eq. (9)

No per-state Gram matrix, pseudo-inverse or line search is formed. It is the posterior of a Gaussian process with a
linear kernel, conditioned on the noise-free facts that safe actions cost what they are known to cost.
"""

import numpy as np

from tether.kernels.compiled import Matrix, Vector, kernel, use
from tether.kernels.model import (
    ALARM,
    BAD_NUMBERS,
    BEST,
    BOUND_0,
    COST_0,
    GAP,
    MARGIN,
    MEAN_0,
    MEASURED,
    NO_SLACK,
    OPEN,
    RADIUS,
    SHIFT,
    TOLD,
    TUNED,
    WARM_UP,
    Plan,
    Rules,
    Scratch,
    Tables,
)
from tether.kernels.radius import cost_radius
from tether.kernels.ridge import (
    MISFIT,
    PENDING,
    SPANNED,
    ULP,
    WEIGHTS,
    Costs,
    Facts,
    dot,
    factorise_gram,
    gram_residual,
    inner,
    into_subspace,
    out_of_subspace,
    relative_error,
    solve,
    trace_of,
    unwhiten,
    whiten,
)

ROUNDING = 1e-9
"""Relative allowance, in units of ‖x‖_G, by which every width is enlarged.

Between two rebuilds det(A) grows by at most 16 and at most 64 updates are made. One update changes the true
width by rounding of at most 4 ulp (|g·x| + |share| |g·f|) <= 32 ulp ‖x‖_G, and `share` itself has by then
drifted by at most 64·16 ulp of its size, which adds 64·16·4 ulp ‖x‖_G: together under 64·(32 + 4096) ulp
‖x‖_G < 1e-10 ‖x‖_G. What the conditioning of A itself adds is `ridge.relative_error`, which enlarges the radius.
"""

INWARD = 1.0 - 1e-15
"""Lengths are rounded toward the safe action."""

HEAVY = 1e10
"""Weights of facts are limited so that A + wF, as a floating-point matrix, does not forget A."""

OVERFLOW = -1e300
"""A bound below this is an overflow, not a cheap action."""


# What is known of the costs at a step


@kernel
def fit_costs(costs: Costs, rules: Rules, plan: Plan, scratch: Scratch, step: int, row: int, stage: int) -> None:
    """ĝ_h given the remembered facts, its radius and the margin of rounding, into row `row` of the plan."""
    plan.facts[row] = costs.facts.count[stage] if rules.conditioning != TOLD else 0
    for j in range(rules.threshold.shape[0]):
        if rules.conditioning == TOLD:
            for k in range(plan.gamma_hat.shape[2]):
                plan.gamma_hat[row, j, k] = rules.known_gamma[step, j, k]
            plan.radius[row, j] = 0.0
            plan.margin[row, j] = 0.0
        else:
            fit_cost(costs, rules, plan, scratch.vectors, row, stage, j)


@kernel
def fit_cost(costs: Costs, rules: Rules, plan: Plan, vectors: Matrix, row: int, stage: int, j: int) -> None:
    """One constraint of `fit_costs`. β comes from the fact-free A; facts take m off its square (section 17).

    Every error that rounding may have made is bounded here, and enlarges the radius or the margin (section 19).
    """
    facts = costs.facts
    size = plan.gamma_hat.shape[2]
    estimate, residual = vectors[3], vectors[4]
    spread = relative_error(costs, stage)
    slip = solve_costs(costs, stage, j, estimate, residual, vectors[5]) * (1.0 + spread)
    per_least = 1.0 / np.sqrt(costs.ridge + costs.least[stage])
    trace = trace_of(costs.gram, stage)
    slip += ULP * (costs.size[stage, j] + size * trace * np.sqrt(dot(estimate, estimate))) * per_least
    known_error = facts.amplification[stage] * facts.misfit[stage, j]
    beta = cost_radius(costs, rules, stage, j) + known_error * np.sqrt(trace)
    radius2 = beta * beta
    reduces = rules.reduces_radius and rules.steers[j] == 0  # a guess raises no alarm
    if facts.count[stage] > 0 and facts.weight[stage] == 0.0:
        moved = condition_on_facts(costs, stage, j, estimate, vectors)
        slip += vectors[9, 0] * (1.0 + spread)
        less = max(moved * (1.0 - min(spread, 1.0)) - 2.0 * slip, 0.0)
        radius2 -= less * less if reduces else 0.0
    elif facts.weight[stage] > 0.0:
        before2 = dot(estimate, estimate)
        moved = weigh_facts(costs, stage, j, estimate, vectors)
        slip += vectors[9, 0] * (1.0 + spread)
        error, weight = rules.cost_error[j] + rules.point_error[j], facts.weight[stage]  # ⟨γ*, f⟩ = τ_s ± (e + ε)
        heavy = weight * facts.used_visits[stage]
        radius2 += heavy * error * error
        # F and its moments are plain sums of so many terms, and m is a difference of them: round it down
        heaviest = trace_of(facts.used_gram, stage)
        terms = facts.used_square[stage, j] + heaviest * max(before2, dot(estimate, estimate))
        # what was rounded in Σ τ_s f and F themselves, along a direction in which A is small
        lost = np.sqrt(heaviest * facts.used_square[stage, j]) + heaviest * np.sqrt(dot(estimate, estimate))
        slip += 2.0 * ULP * (size + facts.used_visits[stage]) * weight * lost * per_least
        taken = max(moved - 16.0 * ULP * (size + facts.used_visits[stage]) * weight * terms, 0.0)
        taken = max(np.sqrt(taken) - 2.0 * slip, 0.0)
        radius2 -= taken * taken if reduces else 0.0
        # the factor of A + wF is that of a sum, whose condition it feels (section 19)
        total = trace + weight * heaviest
        spread += factor_error(size, total, costs.ridge + costs.least[stage])
    for k in range(size):
        plan.gamma_hat[row, j, k] = estimate[k]
    plan.radius[row, j] = np.sqrt(radius2) * (1.0 + spread) + slip
    length = np.sqrt(dot(estimate, estimate))
    plan.margin[row, j] = rules.feature_norm * (known_error + 4.0 * size * ULP * length) + rules.point_error[j]
    sum_of_squares = dot(facts.known[stage, j], facts.known[stage, j])
    limit = rules.gamma_norm[j] * (1.0 + 1e-9) + known_error
    if not (facts.misfit[stage, j] <= MISFIT * max(1.0, abs(rules.threshold[j])) and sum_of_squares <= limit * limit):
        plan.radius[row, j] = np.nan  # the declared safe costs contradict each other, or B: alarm
    if facts.alarm[stage, j] != 0:
        plan.radius[row, j] = np.nan  # they have contradicted the data before: docs/theory.md section 20


@kernel
def solve_costs(costs: Costs, stage: int, j: int, estimate: Vector, residual: Vector, change: Vector) -> float:
    """ĝ = A^{-1} Σzφ into `estimate` (d,), refined once with a residual in doubled precision; returns ‖r‖_G."""
    size = estimate.shape[0]
    for k in range(size):
        estimate[k] = costs.moment[stage, j, k]
    solve(costs.factor[stage], estimate, size)
    gram_residual(costs, stage, j, estimate, residual, change)
    for k in range(size):
        change[k] = residual[k]
    solve(costs.factor[stage], change, size)
    for k in range(size):
        estimate[k] += change[k]
    gram_residual(costs, stage, j, estimate, residual, change)
    whiten(costs.factor[stage], residual, size)
    return np.sqrt(dot(residual, residual))


@kernel
def condition_on_facts(costs: Costs, stage: int, j: int, estimate: Vector, vectors: Matrix) -> float:
    """Move ĝ to the closest γ (in the A-norm) that every remembered fact allows; returns √m = ‖ĝ − γ‖_A.

    γ = known + Bη with BᵀAB η = Bᵀ(b − A known), refined once; its error ‖r‖ goes into vectors[9, 0].
    """
    facts = costs.facts
    size, rank = estimate.shape[0], facts.rank[stage]
    given, residual, inside, lifted, moved = vectors[4], vectors[5], vectors[6], vectors[7], vectors[8]
    for k in range(size):
        given[k] = facts.known[stage, j, k]
    for _ in range(2):
        gram_residual(costs, stage, j, given, residual, moved)
        into_subspace(facts.basis[stage], rank, residual, inside)
        solve(facts.inside[stage], inside, rank)
        out_of_subspace(facts.basis[stage], rank, inside, lifted)
        for k in range(size):
            given[k] += lifted[k]
    gram_residual(costs, stage, j, given, residual, moved)
    into_subspace(facts.basis[stage], rank, residual, inside)
    whiten(facts.inside[stage], inside, rank)
    error2 = 0.0
    for i in range(rank):
        error2 += inside[i] * inside[i]
    vectors[9, 0] = np.sqrt(error2)
    for k in range(size):
        moved[k] = estimate[k] - given[k]
        estimate[k] = given[k]
    return np.sqrt(energy_of(costs.factor[stage], moved))


@kernel
def energy_of(factor: Matrix, x: Vector) -> float:
    """‖x‖²_A = ‖Ux‖²: (d, d), (d,) -> scalar."""
    total = 0.0
    for k in range(x.shape[0]):
        along = 0.0
        for i in range(k, x.shape[0]):
            along += factor[k, i] * x[i]
        total += along * along
    return total


@kernel
def weigh_facts(costs: Costs, stage: int, j: int, estimate: Vector, vectors: Matrix) -> float:
    """Move ĝ to ĝ_w = (A + wF)^{-1}(b + w Σ τ_s f); returns m_w, with the error ‖r‖ of ĝ_w in vectors[9, 0].

    With v = Fĝ − Σ τ_s f: ĝ_w = ĝ − w (A + wF)^{-1} v and m_w = w Σ(⟨ĝ,f⟩ − τ_s)² − w² vᵀ(A + wF)^{-1}v.
    """
    facts = costs.facts
    size, weight = estimate.shape[0], facts.weight[stage]
    gradient, step = vectors[4], vectors[5]
    missed = facts.used_square[stage, j]
    for k in range(size):
        along = 0.0
        for i in range(size):
            along += facts.used_gram[stage, k, i] * estimate[i]
        gradient[k] = along - facts.used_moment[stage, j, k]
        missed += estimate[k] * (gradient[k] - facts.used_moment[stage, j, k])
        step[k] = gradient[k]
    whiten(facts.inside[stage], step, size)
    gained = dot(step, step)
    unwhiten(facts.inside[stage], step, size)
    for k in range(size):
        estimate[k] -= weight * step[k]
    gram_residual(costs, stage, j, estimate, gradient, step)
    for k in range(size):
        along = 0.0
        for i in range(size):
            along += facts.used_gram[stage, k, i] * estimate[i]
        gradient[k] += weight * (facts.used_moment[stage, j, k] - along)
    whiten(facts.inside[stage], gradient, size)
    vectors[9, 0] = np.sqrt(dot(gradient, gradient))
    return weight * (max(missed, 0.0) - weight * gained)


@kernel
def choose_weight(costs: Costs, rules: Rules, scratch: Scratch, stage: int) -> None:
    """The weight w of facts with an error bar: of a fixed grid with 0, the one with the smallest mean width.

    The identity of section 17 holds for every w on the same event, so w may depend on the data. The facts that have
    come in since the last choice take effect now, and the forms are rebuilt.
    """
    facts = costs.facts
    if not facts.visits[stage] > 1.1 * facts.used_visits[stage]:
        return  # the weight of a tenth fewer facts is as good
    snapshot_facts(facts, stage)
    noise = 0.0
    error = 0.0
    for j in range(rules.threshold.shape[0]):
        noise = max(noise, rules.noise[j])
        error = max(error, rules.cost_error[j] + rules.point_error[j])
    best, best_width = 0.0, np.inf
    size, least = costs.gram.shape[1], costs.ridge + costs.least[stage]
    trace, heaviest = trace_of(costs.gram, stage), trace_of(facts.used_gram, stage)
    weight = 0.0
    for attempt in range(WEIGHTS + 1):
        if factorise_gram(costs.gram[stage], weight, facts.used_gram[stage], scratch.square):
            beta = cost_radius(costs, rules, stage, 0)
            radius2 = beta * beta + weight * facts.used_visits[stage] * error * error
            spread = 1.0 + factor_error(size, trace + weight * heaviest, least)
            width = radius2 * spread * spread * mean_width2(costs, stage, scratch)
            if width < best_width:
                best, best_width = weight, width
        weight = noise * noise / (error * error * facts.used_visits[stage]) / 1024.0 if attempt == 0 else 4.0 * weight
        weight = min(weight, HEAVY * least / heaviest)
    facts.weight[stage] = best
    facts.count[stage] = int(facts.used_visits[stage]) if best > 0.0 else 0
    if best > 0.0:
        factorise_gram(costs.gram[stage], best, facts.used_gram[stage], facts.inside[stage])
    costs.owed.count[stage] = PENDING + 1


@kernel
def factor_error(size: int, trace: float, least: float) -> float:
    """What rounding may do to norms, relative to themselves, where a sum was factorised: 8 d ulp cond (section 19)."""
    return 8.0 * size * ULP * trace / least


@kernel
def snapshot_facts(facts: Facts, stage: int) -> None:
    """The sums of facts that the next weight is for."""
    facts.used_visits[stage] = facts.visits[stage]
    for k in range(facts.gram.shape[1]):
        for i in range(facts.gram.shape[1]):
            facts.used_gram[stage, k, i] = facts.gram[stage, k, i]
    for j in range(facts.square.shape[1]):
        facts.used_square[stage, j] = facts.square[stage, j]
        for k in range(facts.gram.shape[1]):
            facts.used_moment[stage, j, k] = facts.moment[stage, j, k]


@kernel
def mean_width2(costs: Costs, stage: int, scratch: Scratch) -> float:
    """tr((UᵀU)^{-1}(A + F)) for U in `scratch.square`: the mean squared width of what was played and of a_0."""
    size = costs.gram.shape[1]
    column = scratch.vectors[3]
    total = 0.0
    for i in range(size):
        for k in range(size):
            column[k] = costs.gram[stage, k, i] + costs.facts.used_gram[stage, k, i]
        solve(scratch.square, column, size)
        total += column[i]
    return total


# Eq. (9) at a state


@kernel
def state_radius(radius: float, residual: float, g00: float) -> float:
    """β_s = √(β_c² − (⟨ĝ,f⟩ − τ_s)²/g00), by Pythagoras (section 4). NaN means misspecified: alarm."""
    return np.sqrt(radius * radius - residual * residual / g00)


@kernel
def examine(rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, row: int, stage: int, slot: int) -> int:
    """What each constraint says of the safe action, into `scratch.state`; returns the trouble it is in, or BEST."""
    trouble = BEST
    for j in range(rules.threshold.shape[0]):
        scratch.state[MEAN_0, j] = inner(tables.phi_0, slot, plan.gamma_hat[row, j])
        scratch.state[COST_0, j] = tables.baseline_cost[row, slot, j]
        scratch.state[RADIUS, j] = plan.radius[row, j]
        scratch.state[MARGIN, j] = plan.margin[row, j]
        scratch.state[SHIFT, j] = 0.0
        length = np.sqrt(dot(plan.gamma_hat[row, j], plan.gamma_hat[row, j]))
        scratch.state[OPEN, j] = SPANNED * rules.feature_norm * (rules.gamma_norm[j] + length)
        g00 = tables.g00[stage, slot]
        found = (
            examine_measured(rules, scratch, j, g00)
            if rules.conditioning == MEASURED
            else examine_known(rules, scratch, j, g00)
        )
        trouble = found if found != BEST else trouble
        if found == ALARM and is_proof(rules, j):
            plan.radius[row, j] = np.nan  # γ* lies in no set of this step, whatever the state: `keep_alarms`
    return trouble


@kernel
def is_proof(rules: Rules, j: int) -> bool:
    """Whether a contradiction of the regression says, with probability 1 − δ, that a declaration is false."""
    return rules.radius_kind != TUNED and rules.steers[j] == 0


@kernel
def keep_alarms(costs: Costs, rules: Rules, plan: Plan, row: int, stage: int) -> bool:
    """Latch the contradictions that row `row` of a plan has met, if they are proofs; returns whether any is new.

    γ* lies in all confidence sets at once, so that one that is empty has proven a declaration false (section 20). Where
    costs drift this is so, too: each set is for the γ* of its time, and what was declared of it goes on being used.
    """
    new = False
    for j in range(rules.threshold.shape[0]):
        if is_proof(rules, j) and plan.radius[row, j] != plan.radius[row, j] and costs.facts.alarm[stage, j] == 0:
            costs.facts.alarm[stage, j] = 1
            new = True
    return new


@kernel
def examine_known(rules: Rules, scratch: Scratch, j: int, g00: float) -> int:
    """`examine` where τ_s is known: the gap τ − τ_s, and β_s and the shift of the means that this one fact gives."""
    state = scratch.state
    cost_0 = state[COST_0, j]
    gap = rules.threshold[j] - cost_0
    state[GAP, j] = gap
    state[BOUND_0, j] = cost_0
    if gap != gap:
        return BAD_NUMBERS
    if not gap > 0.0:
        return NO_SLACK
    if rules.conditioning == TOLD:
        return BEST
    residual = state[MEAN_0, j] - cost_0
    missed = max(abs(residual) - state[MARGIN, j], 0.0)
    if g00 > 0.0:
        state[SHIFT, j] = residual
        if rules.reduces_radius and rules.steers[j] == 0:
            state[RADIUS, j] = state_radius(state[RADIUS, j], missed, g00)
    elif missed > MISFIT * max(1.0, abs(cost_0)) + state[OPEN, j]:
        return ALARM  # the remembered facts determine this cost, and say something else
    return ALARM if state[RADIUS, j] != state[RADIUS, j] else BEST


@kernel
def examine_measured(rules: Rules, scratch: Scratch, j: int, g00: float) -> int:
    """`examine` where τ_s is known up to an error bar, or not at all: the least that data or bar prove of it."""
    state = scratch.state
    threshold, cost_0 = rules.threshold[j], state[COST_0, j]
    proven = state[MEAN_0, j] + state[RADIUS, j] * np.sqrt(g00) + state[MARGIN, j]
    measured = threshold - cost_0  # the warm-up's lower estimate of the gap, if any
    declared = np.inf if rules.warms_up else cost_0 + rules.cost_error[j]
    state[COST_0, j] = declared if declared == declared else np.inf
    start = declared if declared < proven else proven
    gap = max(rules.gap_floor, threshold - start)
    state[GAP, j] = measured if rules.warms_up and measured > gap else gap
    # a_0(s) is declared safe, whatever the data can prove so far
    state[BOUND_0, j] = start if start < threshold else threshold
    if rules.warms_up and measured != measured:
        return WARM_UP
    if not rules.warms_up and cost_0 - rules.cost_error[j] >= threshold:
        state[BOUND_0, j] = cost_0
        return NO_SLACK
    return ALARM if state[RADIUS, j] != state[RADIUS, j] else BEST


@kernel
def limit_lengths(rules: Rules, tables: Tables, scratch: Scratch, stage: int, slot: int, j: int) -> None:
    """Shrink the certified and the optimistic lengths in `scratch.work` to what constraint j allows; set the widths."""
    if rules.conditioning == MEASURED:
        measured_lengths(rules, tables, scratch, stage, slot, j)
    else:
        known_lengths(rules, tables, scratch, stage, slot, j)


@kernel
def widened(width2: float, share: float, root: float) -> float:
    """width(x), rounded up; `root` is √g00."""
    width = np.sqrt(width2)
    return width + ROUNDING * (width + abs(share) * root)


@kernel
def pessimistic_cost(mean: float, share: float, width: float, shift: float, radius: float, margin: float) -> float:
    """The left side of Eq. (9) at the end of a ray: ⟨ĝ, x⟩ − share·(⟨ĝ, f⟩ − τ_s) + β width(x), and rounding.

    A negative radius (and margin) gives the optimistic cost.
    """
    return mean - share * shift + radius * width + margin * (1.0 + abs(share))


@kernel
def known_lengths(rules: Rules, tables: Tables, scratch: Scratch, stage: int, slot: int, j: int) -> None:
    """Eq. (9) solved for the length: bound((1−α)f + αx) = (1−α)τ_s + α bound(x) is affine in α (section 2).

    A comparison with NaN is false, and leaves the length at 0: the safe action.
    """
    work, first = scratch.work, tables.start[slot]
    count = tables.start[slot + 1] - first
    g00 = tables.g00[stage, slot]
    per_share = 1.0 / g00 if g00 > 0.0 else 0.0
    root = np.sqrt(g00)
    threshold, cost_0 = rules.threshold[j], scratch.state[COST_0, j]
    radius, shift, margin = scratch.state[RADIUS, j], scratch.state[SHIFT, j], scratch.state[MARGIN, j]
    slack = threshold - cost_0
    reach = slack if tables.is_star[slot] != 0 and slack > 0.0 else 0.0
    limit = threshold if slack > 0.0 else -np.inf
    for i in range(count):
        share = tables.cross[stage, first + i] * per_share
        width = widened(tables.width2[stage, first + i], share, root)
        mean = scratch.projected[1 + j, first + i] + rules.quantile[j]
        upper = pessimistic_cost(mean, share, width, shift, radius, margin)
        lower = pessimistic_cost(mean, share, width, shift, -radius, -margin)
        step = INWARD * reach / (upper - cost_0)
        optimistic = reach / (lower - cost_0)
        step = 1.0 if upper <= limit else step
        optimistic = 1.0 if lower <= limit else optimistic
        step = 0.0 if upper <= OVERFLOW else step
        optimistic = 0.0 if lower <= OVERFLOW else optimistic
        # One comparison a line, so that the loop vectorises. NaN and negative steps fail the last one and give 0.
        shorter = step if step < work[0, i] else work[0, i]
        shorter_optimistic = optimistic if optimistic < work[1, i] else work[1, i]
        work[0, i] = shorter if step > 0.0 else 0.0
        work[1, i] = shorter_optimistic if optimistic > 0.0 else 0.0
        work[2, i] = width


@kernel
def bound_along(mean_0: float, mean: float, g00: float, g0x: float, gxx: float, radius: float, at: float) -> float:
    """⟨ĝ, x(α)⟩ + β ‖x(α)‖_G at α = `at`, without conditioning on τ_s (section 7)."""
    rest = 1.0 - at
    norm2 = rest * rest * g00 + 2.0 * at * rest * g0x + at * at * gxx
    norm = np.sqrt(0.0 if norm2 < 0.0 else norm2) + ROUNDING * (np.sqrt(g00) + np.sqrt(gxx))
    return rest * mean_0 + at * mean + radius * norm


@kernel
def verified_step(
    mean_0: float, mean: float, g00: float, g0x: float, gxx: float, radius: float, threshold: float, candidate: float
) -> float:
    """`candidate` shrunk a little until bound_along <= τ there; 0 if it does not help, or if it is not in (0, 1]."""
    shrink = 1e-12
    if 0.0 < candidate <= 1.0:
        for _ in range(4):
            step = candidate * (1.0 - shrink)
            if OVERFLOW < bound_along(mean_0, mean, g00, g0x, gxx, radius, step) <= threshold:
                return step
            shrink *= 100.0
    return 0.0


@kernel
def largest_unconditioned_step(
    mean_0: float, mean: float, g00: float, g0x: float, gxx: float, radius: float, threshold: float
) -> float:
    """The largest α in [0, 1] with bound_along <= τ: the larger root of a quadratic, then verified. 0 if none.

    A negative `radius` gives the optimistic step.
    """
    if OVERFLOW < bound_along(mean_0, mean, g00, g0x, gxx, radius, 1.0) <= threshold:
        return 1.0
    slope = mean - mean_0
    room = threshold - mean_0
    square = radius * radius
    a = square * (gxx - 2.0 * g0x + g00) - slope * slope
    b = square * (g0x - g00) + slope * room
    c = square * g00 - room * room
    inside = b * b - a * c
    if not inside >= 0.0:
        return 0.0
    root = np.sqrt(inside)
    # the stable pair of roots: one by the large-magnitude sum, the other by the product c/a
    large = -b - root if b > 0.0 else -b + root
    first = verified_step(mean_0, mean, g00, g0x, gxx, radius, threshold, large / a)
    second = verified_step(mean_0, mean, g00, g0x, gxx, radius, threshold, c / large)
    return max(first, second)


@kernel
def ray_start(rules: Rules, scratch: Scratch, j: int) -> float:
    """The bound of a ray as its length goes to 0, where τ_s has an error bar: τ_s + e + 2ε (section 12).

    ⟨γ*, f⟩ may lie ε over what a_0 costs, and a point beside a_0 ε over ⟨γ*, x⟩. a_0 itself costs at most τ_s + e.
    """
    return scratch.state[COST_0, j] + 2.0 * rules.point_error[j]


@kernel
def measured_lengths(rules: Rules, tables: Tables, scratch: Scratch, stage: int, slot: int, j: int) -> None:
    """`known_lengths` where τ_s is known up to an error bar or not at all: the bound is the smaller of two.

    Without conditioning it is a convex function of α, the root of a quadratic; from τ_s + e on it is affine as above.
    Both contain the misfit ε of the point itself: as a part of the margin, and in `ray_start`.
    """
    work, first = scratch.work, tables.start[slot]
    count = tables.start[slot + 1] - first
    is_star = tables.is_star[slot] != 0
    g00 = tables.g00[stage, slot]
    margin, cost_0 = scratch.state[MARGIN, j], ray_start(rules, scratch, j)
    threshold = rules.threshold[j] - margin
    radius, mean_0 = scratch.state[RADIUS, j], scratch.state[MEAN_0, j]
    slack = rules.threshold[j] - cost_0
    for i in range(count):
        gxx, g0x = tables.width2[stage, first + i], tables.cross[stage, first + i]
        mean = scratch.projected[1 + j, first + i] + rules.quantile[j]
        step = 0.0
        optimistic = 0.0
        if is_star:
            step = largest_unconditioned_step(mean_0, mean, g00, g0x, gxx, radius, threshold)
            limit = threshold + 2.0 * rules.point_error[j]
            optimistic = largest_unconditioned_step(mean_0, mean, g00, g0x, gxx, -radius, limit)
            upper = bound_along(mean_0, mean, g00, g0x, gxx, radius, 1.0) + margin
            affine = INWARD * slack / (upper - cost_0)
            step = affine if slack > 0.0 and upper > rules.threshold[j] and affine > step else step
        elif OVERFLOW < bound_along(mean_0, mean, g00, g0x, gxx, radius, 1.0) <= threshold:
            step = 1.0
            optimistic = 1.0
        # With several constraints the smaller step must satisfy them all; that is verified on the chosen ray.
        work[0, i] = min(step, work[0, i]) if step > 0.0 else 0.0
        work[1, i] = min(optimistic, work[1, i]) if optimistic > 0.0 else 0.0
        work[2, i] = np.sqrt(gxx)


@kernel
def bound_at(rules: Rules, tables: Tables, scratch: Scratch, stage: int, slot: int, i: int, j: int, at: float) -> float:
    """The left side of Eq. (9) at α = `at` on ray i of a state, for constraint j; what `limit_lengths` solved for α."""
    column = tables.start[slot] + i
    g00, state = tables.g00[stage, slot], scratch.state
    width2, cross = tables.width2[stage, column], tables.cross[stage, column]
    mean = scratch.projected[1 + j, column] + rules.quantile[j]  # what noise that scales with α adds at its end
    if rules.conditioning == MEASURED:
        free = bound_along(state[MEAN_0, j], mean, g00, cross, width2, state[RADIUS, j], at) + state[MARGIN, j]
        upper = bound_along(state[MEAN_0, j], mean, g00, cross, width2, state[RADIUS, j], 1.0) + state[MARGIN, j]
        start = ray_start(rules, scratch, j)
        tied = start + at * (upper - start)
        return tied if tied < free else free
    share = cross * (1.0 / g00) if g00 > 0.0 else 0.0
    width = widened(width2, share, np.sqrt(g00))
    upper = pessimistic_cost(mean, share, width, state[SHIFT, j], state[RADIUS, j], state[MARGIN, j])
    return state[COST_0, j] + at * (upper - state[COST_0, j])


use(globals())
