"""A LinearMDP as a Gymnasium environment, for other people's agents and tools; its pictures; the worlds' ids."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tether.errors import InputError
from tether.lab.worlds.dynamics import draw
from tether.lab.worlds.lake import ACTIONS, CELLS, DANGER, GOAL, SIZE, START
from tether.lab.worlds.linear_mdp import LinearMDP, Streams
from tether.problem.action_sets import feature_of
from tether.records import Action, Array, StarAction

Observation = NDArray[np.int64] | np.int64


class WorldEnv(gymnasium.Env[Observation, Any]):
    """Episodes of a LinearMDP in Gymnasium's terms.

    Observation: (state, step), MultiDiscrete([S, H + 1]): the law of an MDP with a horizon depends on the step, so the
    state alone would not be Markov. `observe_step=False` leaves the state alone, Discrete(S).

    Action: Discrete(N) for finite sets. For stars a Box [0, 1]^N that any continuous agent can use: the largest entry
    chooses the ray, and its value is the length; zeros are the safe action. `encode` writes Tether's actions so.

    `info["cost"]` is the observed, noisy cost (an array if there are several), `info["threshold"]` its τ, and
    `info["safe_action"]` is a_0(s) in the form of an action. With `reveal=True`, `info["true_cost"]` is the expectation
    that no learner knows.

    An episode is *terminated* at the horizon or in a state that ends it: the finite horizon is the task itself, and no
    value lies beyond it. Where a trajectory ends early, the last reward includes what the remaining steps are worth
    (`Problem.final_reward`), so that the return of an episode is the value that planning computes.
    """

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self, world: LinearMDP, *, observe_step: bool = True, reveal: bool = False, render_mode: str | None = None
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise InputError(f"render_mode is one of {self.metadata['render_modes']} or None, not {render_mode!r}.")
        self.world, self.reveal, self.render_mode = world, reveal, render_mode
        self._observe_step = observe_step
        states, actions = world.endpoints.shape[:2]
        horizon = world.problem.horizon
        self.observation_space = (
            spaces.MultiDiscrete([states, horizon + 1]) if observe_step else spaces.Discrete(states)
        )
        self.action_space = spaces.Box(0.0, 1.0, (actions,), np.float32) if world.is_star else spaces.Discrete(actions)
        self._moments: list[Moment] = []
        self._state, self._step, self._over = 0, 0, True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; `options={"state": s}` begins it in state s."""
        super().reset(seed=seed)
        wanted = (options or {}).get("state")
        uniform = self.np_random.random()
        if wanted is not None and not 0 <= wanted < self.world.state_count:
            raise InputError(f"options['state'] is {wanted!r}, but states are 0..{self.world.state_count - 1}.")
        self._state = int(draw(self.world.initial, uniform)) if wanted is None else int(wanted)
        self._step, self._over = 0, bool(self.world.ended[self._state])
        self._moments = [Moment(self._state)]
        return self._observation(), self._told()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one action: observation, reward, terminated, never truncated, and `info` with the noisy cost."""
        if self._over:
            raise InputError("the episode is over: call reset before the next step.")
        world, step, state = self.world, self._step, self._state
        chosen = self.decode(action)
        feature = feature_of(world.problem.actions(state), chosen)
        uniform, normal = self.np_random.random(), self.np_random.standard_normal(len(world.noise_scale))
        reward, cost, following = world.play(step, state, chosen, feature, (normal, uniform))
        if world.ended[following]:
            reward += world.problem.final_reward_of(following) * (world.problem.horizon - step - 1)
        self._state, self._step = following, step + 1
        self._over = self._step == world.problem.horizon or bool(world.ended[following])
        costs = np.atleast_1d(cost)
        self._moments.append(Moment(following, chosen, reward, tuple(costs.tolist())))
        info = self._told() | {"cost": _plain(costs)}
        if self.reveal:
            info["true_cost"] = _plain(world.true_gamma[step] @ feature)
        return self._observation(), reward, self._over, False, info

    def decode(self, action: Any) -> Action:
        """Tether's action for one of this space."""
        if not self.world.is_star:
            if not self.action_space.contains(action):
                raise InputError(f"action {action!r} is not in {self.action_space}.")
            return int(action)
        weights = np.asarray(action, dtype=np.float64)
        if weights.shape != self.action_space.shape or not ((weights >= 0.0) & (weights <= 1.0)).all():
            raise InputError(f"action {action!r} is not in {self.action_space}: one length in [0, 1] per ray.")
        ray = int(weights.argmax())
        return StarAction(-1, 0.0) if weights[ray] == 0.0 else StarAction(ray, float(weights[ray]))

    def encode(self, action: Action) -> Any:
        """An action of this space for one of Tether's."""
        if not isinstance(action, StarAction):
            return np.int64(action)
        weights = np.zeros(self.action_space.shape or (), np.float32)
        if action.ray >= 0:
            length = np.float32(action.length)
            # single precision must not lengthen a certified step
            weights[action.ray] = length if length <= action.length else np.nextafter(length, np.float32(0.0))
        return weights

    def render(self) -> Any:
        """A picture (H, W, 3) of bytes, or text, of the episode so far."""
        if self.render_mode is None or not self._moments:
            return None
        draw_it = painted if self.render_mode == "rgb_array" else written
        return draw_it(self.world, self._moments)

    def _observation(self) -> Observation:
        if self._observe_step:
            return np.array([self._state, self._step], dtype=np.int64)
        return np.int64(self._state)

    def _told(self) -> dict[str, Any]:
        actions = self.world.problem.actions(self._state)
        return {
            "threshold": _plain(np.array(self.world.problem.threshold)),
            "safe_action": self.encode(actions.action(-1, 0.0)),
        }


def _plain(values: Array) -> Any:
    """A number if there is one, else the array."""
    return float(values[0]) if values.size == 1 else values


# Pictures of an episode: a map for the lake, a chart of states and costs for the others.

Picture = NDArray[np.uint8]

PAPER, INK, GRID = (255, 255, 255), (40, 40, 40), (225, 225, 225)
FINE, OVER, HERE, TRACE = (70, 150, 90), (200, 60, 50), (40, 90, 200), (170, 195, 235)
ICE, HOLE, FINISH = (225, 238, 248), (60, 80, 110), (240, 200, 80)
CELL = 24
"""Pixels per cell."""


class Moment(NamedTuple):
    """A state of the episode, and what led to it."""

    state: int
    action: Action | None = None
    reward: float = 0.0
    cost: tuple[float, ...] = ()


def is_lake(world: LinearMDP) -> bool:
    """Whether the world has the lake's map."""
    return world.name == "frozen-lake" and world.state_count == CELLS


def painted(world: LinearMDP, moments: Sequence[Moment]) -> Picture:
    """The episode as an RGB picture, (height, width, 3)."""
    return _lake_picture(moments) if is_lake(world) else _chart(world, moments)


def _lake_picture(moments: Sequence[Moment]) -> Picture:
    """The map from above: ice, danger, the goal, where the trajectory went, and where it is."""
    picture = np.full((SIZE * CELL, SIZE * CELL, 3), GRID, dtype=np.uint8)
    visited = {moment.state for moment in moments}
    for state in range(CELLS):
        colour = HOLE if state in DANGER else FINISH if state == GOAL else TRACE if state in visited else ICE
        row, column = divmod(state, SIZE)
        _fill(picture, row * CELL + 1, column * CELL + 1, CELL - 2, CELL - 2, colour)
    row, column = divmod(moments[-1].state, SIZE)
    _fill(picture, row * CELL + CELL // 4, column * CELL + CELL // 4, CELL // 2, CELL // 2, HERE)
    return picture


def _chart(world: LinearMDP, moments: Sequence[Moment]) -> Picture:
    """Steps from left to right: above, the state as a cell; below, observed costs as bars up to 2τ, τ as a line."""
    steps, states, taus = world.problem.horizon + 1, world.state_count, world.problem.threshold
    bar, height = 2 * CELL, max(3, CELL // (1 + states // 20))
    picture = np.full((states * height + (bar + CELL // 2) * len(taus), steps * CELL, 3), PAPER, dtype=np.uint8)
    for step in range(steps):
        for state in range(states):
            _fill(picture, state * height, step * CELL + 1, height - 1, CELL - 2, GRID)
    for step, moment in enumerate(moments):
        last = step == len(moments) - 1
        _fill(picture, moment.state * height, step * CELL + 1, height - 1, CELL - 2, HERE if last else TRACE)
        for j, cost in enumerate(moment.cost):
            bottom = states * height + (bar + CELL // 2) * (j + 1)
            tall = round(bar * min(max(cost / (2.0 * taus[j]), 0.0), 1.0))
            _fill(picture, bottom - tall, step * CELL + 4, tall, CELL - 8, FINE if cost <= taus[j] else OVER)
    for j in range(len(taus)):
        _fill(picture, states * height + (bar + CELL // 2) * (j + 1) - bar // 2, 0, 1, steps * CELL, INK)
    return picture


def _fill(picture: Picture, top: int, left: int, height: int, width: int, colour: tuple[int, int, int]) -> None:
    picture[top : top + height, left : left + width] = colour


def written(world: LinearMDP, moments: Sequence[Moment]) -> str:
    """The episode as text: the lake's map, or one line per step."""
    if not is_lake(world):
        lines = [f"start in state {moments[0].state}"]
        lines += [_line(world, step, moment) for step, moment in enumerate(moments[1:], start=1)]
        return "\n".join(lines)
    letters = ["*" if s in DANGER else "G" if s == GOAL else "S" if s == START else "." for s in range(CELLS)]
    letters[moments[-1].state] = "@"
    rows = ["".join(letters[SIZE * row : SIZE * (row + 1)]) for row in range(SIZE)]
    return "\n".join([*rows, _line(world, len(moments) - 1, moments[-1]) if len(moments) > 1 else "start"])


def _line(world: LinearMDP, step: int, moment: Moment) -> str:
    """What was done at a step, what it paid, and what it seemed to cost."""
    action = moment.action
    if isinstance(action, StarAction):
        done = "safe action" if action.ray < 0 else f"ray {action.ray} at {action.length:.2f}"
    else:
        done = ACTIONS[action] if is_lake(world) and action is not None else f"action {action}"
    limits = zip(moment.cost, world.problem.threshold, strict=True)
    costs = ", ".join(f"{cost:.3f} (τ {tau:g})" for cost, tau in limits)
    paid = f"reward {moment.reward:.3f}, cost {costs}"
    return f"step {step} of {world.problem.horizon}: {done} -> state {moment.state}, {paid}"


# Gymnasium ids: they exist once this module is imported, or named in `gymnasium.make`.

IDS = {
    "tether/Synthetic-v0": "synthetic.synthetic",
    "tether/FrozenLake-v0": "lake.frozen_lake",
    "tether/NotStarConvex-v0": "synthetic.not_star_convex",
    "tether/Dosing-v0": "dosing.dosing",
    "tether/Heating-v0": "heating.heating",
    "tether/AdLoad-v0": "ad_load.ad_load",
    "tether/Bottling-v0": "bottling.bottling",
}
"""Gymnasium id -> module and function of tether.lab.worlds that draws an instance."""


def make_world_env(
    world: str,
    *,
    instance: int = 0,
    observe_step: bool = True,
    reveal: bool = False,
    render_mode: str | None = None,
    **options: Any,
) -> WorldEnv:
    """The entry point of every id: `instance` seeds the draw of the world, `options` are the world's own.

    What happens in an episode is seeded by `env.reset(seed=…)`, separately.
    """
    module, name = world.split(".")
    create: Callable[..., LinearMDP] = getattr(import_module(f"tether.lab.worlds.{module}"), name)
    draws = () if name == "not_star_convex" else (Streams.from_seed(instance).instance,)
    return WorldEnv(create(*draws, **options), observe_step=observe_step, reveal=reveal, render_mode=render_mode)


def register_worlds() -> None:
    """Register every id that is not there yet."""
    for name, world in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=f"{__name__}:make_world_env", kwargs={"world": world})


register_worlds()
