"""The gate: a second, simple code path that verifies a certificate from its own sums before an action leaves.

It counts every outcome a second time (here), solves each stage (`gate_model.py`), and recomputes or adds up the bounds
(`examine.py`). It shares no code with the kernels and agents whose certificates it examines: on purpose.
"""

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isnan, nan, pi, sqrt
from typing import NamedTuple

import numpy as np

from tether.live.certified_share import certified_share
from tether.live.examine import (
    Case,
    examined_multipliers,
    examined_radius,
    misstated,
    proven_by,
    recomputed,
)
from tether.live.gate_bounds import Point
from tether.live.gate_facts import ExactFacts, Terms, WeighedFacts, add_to
from tether.live.gate_model import Model, StageSums, solve
from tether.live.mixtures import Drawn, is_safe_action, not_drawn, not_in, row_of
from tether.live.turns import Turns
from tether.live.yes_no import YesNo
from tether.problem.problem import KnownState
from tether.records import Action, Array, CostBound, Drift, Multipliers

FAR = 2.0**53
"""A stamp so many of the shortest windows after the first counts as none."""


class Verdict(NamedTuple):
    """What the gate found: its bounds (M,) and its rounding (M,); `why` is empty if the action may leave.

    If the action was drawn from a mixture, `own` (M,) are bounds on its cost by itself, which may lie over τ.
    """

    why: str
    bounds: tuple[float, ...]
    doubts: tuple[float, ...]
    own: tuple[float, ...] | None = None


Place = int | tuple[int, int]
"""Where sums are kept: a stage, or (stage, block) where costs drift."""


class Gate:
    """Sums and facts of its own, and the check. `gram` (G, d, d) starts at λI, `moment` (G, M, d) at 0.

    Where costs drift there are sums for each of 2K blocks, (G, 2K, …): of window k those that began at the last two
    multiples of it, in the places 2k and 2k + 1. `begun` (G, 2K) is the decision that each began with, or, where drift
    is per second, the time since `origin` (G,), the first stamp (NaN before there is one); -1 while there is none.
    `ages` (G, 2K, 3) sums ‖φ‖²aᵏ over its outcomes, k = 0, 1, 2, with ages a up to `clock` (G,), the latest decision;
    `using` (G,) is the block that certificates rest on. `asked_at` is the time of the decision that is examined, None
    for the clock's.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        d, constraints = terms.dimension, len(terms.threshold)
        places = (terms.stages, 2 * len(terms.windows)) if terms.windows else (terms.stages,)
        self.gram = np.tile(terms.ridge * np.eye(d), (*places, 1, 1))
        self.moment = np.zeros((*places, constraints, d))
        self.gram_rest = np.zeros_like(self.gram)  # what rounding dropped from each sum (Kahan)
        self.moment_rest = np.zeros_like(self.moment)
        self.bias = np.zeros((*places, constraints))  # Σ b², where sample i may be off by b_i
        self.scale = np.ones(places)  # ‖φ‖² of the first feature (1 if that is 0)
        self.count = np.zeros(places, dtype=np.int64)
        self.lost = np.zeros(terms.stages, dtype=np.int64)  # costs that were never measured
        self.begun = np.full(places, -1.0)
        self.ages = np.zeros((*places, 3))
        self.using = np.zeros(terms.stages, dtype=np.int64)
        self.clock = np.zeros(terms.stages)
        self.origin = np.full(terms.stages, nan if terms.drift_per == "second" else 0.0)
        self.asked_at: float | None = None
        # certificates hold for so many decisions more, or seconds
        self.ahead = terms.windows[0] / 8.0 if terms.windows else 0.0
        if terms.drift_per == "decision":
            self.ahead = float(int(self.ahead))
        self.facts: ExactFacts | WeighedFacts
        self.facts = ExactFacts(terms) if terms.error is None or terms.exact else WeighedFacts(terms)
        self.yes_no = YesNo(terms.bounded, terms.stages, d, terms.feature_norm, float(terms.gamma_norm.max()))
        self.turns = Turns(terms.stages)
        self.alarm = np.zeros((terms.stages, constraints), dtype=np.int64)  # 1: a declared safe cost was found false
        self._solved: dict[int, Model | None] = {}
        self._begin()

    def arrays(self) -> dict[str, Array]:
        """The state, by name: what a snapshot keeps."""
        names = ["gram", "moment", "gram_rest", "moment_rest", "bias", "scale", "count", "lost", "alarm"]
        names += ["begun", "ages", "using", "clock", "origin"] if self.terms.windows else []
        mine = {name: getattr(self, name) for name in names}
        mine |= {f"facts.{name}": getattr(self.facts, name) for name in self.facts.names}
        return mine | {f"yes_no.{name}": getattr(self.yes_no, name) for name in self.yes_no.names}

    def take(self, arrays: dict[str, Array]) -> None:
        """The reverse of `arrays`."""
        for name, mine in self.arrays().items():
            if mine.shape != arrays[name].shape:
                raise ValueError(f"{name} of the gate has shape {arrays[name].shape}, not {mine.shape}")
            mine[...] = arrays[name]
        if isinstance(self.facts, ExactFacts):
            self.facts.forget_spans()
        self.yes_no.forget_rows()
        self._solved.clear()

    def guess(self, step: int, gamma: Array) -> None:
        """The learner's γ̂ (K, d) for the next outcome of each bounded cost, which nobody has been handed yet."""
        self.yes_no.guess[self._stage(step)] = gamma

    def tick(self, time: float | None = None) -> None:
        """One decision more, where costs drift: outcomes grow older by one, or up to its stamp if no later one has
        come. A decision without a stamp moves nothing."""
        if self.terms.drift_per == "second":
            if time is None or not isfinite(time):
                return
            if isnan(self.origin[0]):
                self.origin[:] = time
            if not time - float(self.origin[0]) < FAR * self.terms.windows[0]:
                return
            older = max(time - float(self.origin[0]) - float(self.clock[0]), 0.0)
            self.clock[:] = max(time - float(self.origin[0]), float(self.clock[0]))
        else:
            older = 1.0
            self.clock += 1.0
        self.ages[..., 2] += older * older * self.ages[..., 0] + 2.0 * older * self.ages[..., 1]
        self.ages[..., 1] += older * self.ages[..., 0]
        self._begin()
        self._solved.clear()

    def _begin(self) -> None:
        """Empty the blocks that are not of the last two turns of their window: what they held is too old."""
        for k, window in enumerate(self.terms.windows):
            turn = int(self.clock[0] // window)
            for each in (turn - 1, turn):
                block = (slice(None), 2 * k + each % 2)
                if each < 0 or self.begun[0, block[1]] == each * window:
                    continue
                self.gram[block] = self.terms.ridge * np.eye(self.terms.dimension)
                for sums in (self.moment, self.gram_rest, self.moment_rest, self.bias, self.ages, self.count):
                    sums[block] = 0
                self.scale[block], self.begun[block] = 1.0, each * window

    def use(self, stage: int, window: float, since: float) -> None:
        """Certificates of this stage rest on the block of this window that began with decision `since`, or then. Any is
        valid; one that is not here lets nothing pass."""
        found = [2 * k + i for k, w in enumerate(self.terms.windows) if w == window for i in range(2)]
        found = [block for block in found if self.begun[stage, block] + self._first(stage) == since]
        self.using[stage] = found[0] if found else -1
        self._solved.pop(stage, None)

    def _first(self, stage: int) -> float:
        """The first stamp; before there is one, that of the decision that is examined, or 0."""
        first = float(self.origin[stage])
        return first if not isnan(first) else self.asked_at or 0.0

    def look_at(self, time: float | None) -> None:
        """The decision that is examined is made at this time; None: at the clock's."""
        self.asked_at = time
        self._solved.clear()

    def _lead(self, stage: int) -> float:
        """How long after the clock, or before it, the decision is made: by so much all outcomes are older, at most."""
        if self.asked_at is None or self.terms.drift_per == "decision" or isnan(self.origin[stage]):
            return 0.0
        return abs(self.asked_at - float(self.origin[stage]) - float(self.clock[stage]))

    def _drift(self, stage: int, j: int) -> Drift | None:
        """What a certificate of this stage must say of the drift."""
        if self.terms.drift is None:
            return None
        block, per = int(self.using[stage]), self.terms.drift_per
        since, made = self._first(stage) + float(self.begun[stage, block]), float(self.clock[stage])
        if per == "second":
            made = self.asked_at if self.asked_at is not None else made + self._first(stage)
        return Drift(float(self.terms.drift[j]), self.terms.windows[block // 2], since, made + self.ahead, per)

    def _places(self, stage: int, at: float | None) -> list[Place]:
        """Where the outcome of decision `at` counts: in its stage, or in the blocks that had begun by then."""
        if not self.terms.windows:
            return [stage]
        begun = self.begun[stage]
        when = -1.0 if at is None else at - float(self.origin[stage])  # NaN, too, is in no block
        return [(stage, int(block)) for block in np.flatnonzero((begun >= 0.0) & (begun <= when))]

    def add(self, step: int, feature: Array, cost: Array | None, at: float | None = None) -> None:
        """One cost z (M,) of φ (d,), in its turn; None if it was lost: in the worst case half its range off.

        `at` is the number of its decision, or its stamp, which matters where costs drift.
        """
        stage, off = self._stage(step), self.terms.sample_error
        self._solved.pop(stage, None)
        if cost is not None or self.terms.cost_range is not None:
            self.yes_no.add(stage, feature, cost)
        if cost is None:
            self.lost[stage] += 1
            if self.terms.cost_range is None:
                return
            cost, off = self.terms.cost_range.mean(axis=1), off + np.ptp(self.terms.cost_range, axis=1) / 2.0
        norm2 = float(feature @ feature)
        for place in self._places(stage, at):
            if self.count[place] == 0 and norm2 > 0.0:
                self.scale[place] = max(norm2, 1e-200)
            add_to(self.gram[place], self.gram_rest[place], np.outer(feature, feature))
            add_to(self.moment[place], self.moment_rest[place], np.outer(cost, feature))
            self.bias[place] += off**2
            self.count[place] += 1
            if at is not None and self.terms.windows:
                age = float(self.clock[stage] - (at - self.origin[stage]))
                self.ages[place] += norm2 * np.array([1.0, age, age * age])

    def add_next(self, step: int, feature: Array, cost: Array | None, at: float | None) -> None:
        """`add`, for an outcome that the learner has counted. Out of its turn it leaves sums that certify nothing."""
        if not self.turns.is_next(self._stage(step), feature, cost):
            self.gram[self._stage(step)] = nan
        self.add(step, feature, cost, at)

    def add_old(self, step: int, feature: Array, cost: Array | None, at: float | None) -> None:
        """`add`, for a row of old data. After a decision that acts it leaves sums that certify nothing."""
        if self.turns.has_acted:
            self.gram[self._stage(step)] = nan
        self.add(step, feature, cost, at)

    def remember(self, step: int, phi_0: Array, baseline_cost: Array) -> None:
        """The safe cost τ_s (M,) of a state whose safe action has feature f (d,): a fact about γ*_h, if any is kept."""
        if self.terms.memory != "state" and self.terms.error is not None:
            stage = self._stage(step)
            self.facts.remember(stage, phi_0, baseline_cost)
            self.yes_no.remember(stage, phi_0, baseline_cost)
            self._solved.pop(stage, None)

    def weigh(self, stage: int, weight: float) -> None:
        """Facts with an error bar count with weight w from now on, as many as there are by now. Any w is valid."""
        if isinstance(self.facts, WeighedFacts):
            self.facts.weigh(stage, weight)
            self._solved.pop(stage, None)

    def keep_alarms(self, step: int, radii: Sequence[float]) -> None:
        """A logged decision says by a NaN for a radius (M,) that no γ explains data and declarations. This holds until
        `alarm` is reset by an order; a tuned radius says nothing."""
        for j, radius in enumerate(radii):
            if isnan(radius) and (isinstance(self.terms.radius, str) or j in self.terms.bounded):
                self.alarm[self._stage(step), j] = 1

    def _stage(self, step: int) -> int:
        return step if self.terms.stages > 1 else 0

    def check(
        self,
        step: int,
        known: KnownState,
        action: Action,
        feature: Array,
        evidence: tuple[CostBound, ...],
        drawn: Drawn | None = None,
    ) -> Verdict:
        """Whether this action, with this feature (d,) and this evidence, may leave. If it was drawn from a mixture, the
        evidence is on the expected cost, so it is the mixture that is examined."""
        nothing = (inf,) * len(evidence)
        why = not_in(known, action, feature, self.terms.feature_norm)
        if not why and drawn is not None:
            why = not_drawn(known.actions, row_of(known, action), drawn)
        if why or (drawn is None and is_safe_action(known, action)):
            return Verdict(why, nothing, nothing)
        if self.alarm[self._stage(step)].any():
            return Verdict(
                "the declared safe costs have contradicted the data, and no order has come", nothing, nothing
            )
        if len(evidence) != len(self.terms.threshold):
            return Verdict(f"{len(evidence)} bounds for {len(self.terms.threshold)} constraints", nothing, nothing)
        try:
            model = self._model(step)
        except np.linalg.LinAlgError as error:
            return Verdict(f"the sums cannot be solved: {error}", nothing, nothing)
        if model is None:
            return Verdict("the sums are not finite, or A is not at least λI", nothing, nothing)
        bounds, doubts, found = [], [], []
        point = Point.of(known.actions, action, feature, None if drawn is None else drawn.mixture)
        for case, shown in zip(self._cases(step, known, model, point), evidence, strict=True):
            facts, j = model.facts, case.j
            if j in self.terms.bounded:
                facts = int(self.yes_no.fact_count[case.stage, self.terms.bounded.index(j)])
            why = misstated(case, shown, facts, self._drift(case.stage, j), is_drawn=drawn is not None)
            if why:
                bound = doubt = inf
            elif j in self.terms.bounded:
                why, bound, doubt = examined_multipliers(case, self.yes_no, shown)
            else:
                why, bound, doubt = examined_radius(case, shown)
            bounds.append(bound)
            doubts.append(doubt)
            found += [f"constraint {j}: {why}"] if why else []
        row = row_of(known, action)
        own = None if drawn is None or found or row < 0 else self._by_itself(step, model, known, row, drawn.proofs)
        return Verdict("; ".join(found), tuple(bounds), tuple(doubts), own)

    def _cases(self, step: int, known: KnownState, model: Model, point: Point) -> list[Case]:
        """One point for each constraint."""
        stage, costs = self._stage(step), known.baseline_cost[step].tolist()
        return [Case(self.terms, model, stage, j, cost, known.actions, point) for j, cost in enumerate(costs)]

    def _by_itself(
        self, step: int, model: Model, known: KnownState, row: int, proofs: Mapping[int, Multipliers]
    ) -> tuple[float, ...]:
        """The gate's own bound on the cost of one candidate alone, per constraint (M,); infinite where it has none."""
        found, actions = [], known.actions
        point = Point.of(actions, actions.action(row, 1.0), actions.endpoints[row], None)
        for case in self._cases(step, known, model, point):
            if case.j in self.terms.bounded:
                bound = min(proven_by(case, self.yes_no, proofs.get(case.j), is_listed=True)[0], 1.0)
            else:
                bound = recomputed(case)
            found.append(bound)
        return tuple(found)

    def prepare(self, step: int) -> Model | None:
        """The stage of a step, solved; None if it cannot be. `check` then finds it done."""
        try:
            return self._model(step)
        except np.linalg.LinAlgError:
            return None

    def certified(self, step: int, known: KnownState) -> float:
        """How much of D(s) is certified: the mean over its actions of the length, 0 to 1, that could be played.

        NaN where costs are bounded: to look at every action would take longer than to decide.
        """
        if self.terms.bounded:
            return nan
        model = self.prepare(step)
        if model is None:
            return 0.0
        return certified_share(self.terms, model, known.actions, known.baseline_cost[step].tolist())

    def _model(self, step: int) -> Model | None:
        """The stage of a step, solved once per change."""
        stage = self._stage(step)
        if stage not in self._solved:
            place: Place = (stage, int(self.using[stage])) if self.terms.windows else stage
            model = None if self.using[stage] < 0 else solve(self.terms, self._sums(place), self.facts, stage)
            self._solved[stage] = None if model is None else model._replace(lost=int(self.lost[stage]))
        return self._solved[stage]

    def _sums(self, place: Place) -> StageSums:
        """What was summed up at a place. Drift makes an outcome of age a off by ρ‖φ‖a, and a block has a part of δ."""
        sums = StageSums(
            self.gram[place], self.moment[place], self.bias[place], float(self.scale[place]), int(self.count[place])
        )
        if isinstance(place, int) or self.terms.drift is None:
            return sums
        weight, age, square = self.ages[place].tolist()
        more, windows = self._lead(place[0]) + self.ahead, self.terms.windows
        moved = self.terms.drift * sqrt(square + 2.0 * more * age + more**2 * weight)
        turn = self.begun[place] / windows[place[1] // 2] + 1.0
        return sums._replace(bias=(np.sqrt(sums.bias) + moved) ** 2, split=len(windows) * turn**2 * pi**2 / 6.0)
