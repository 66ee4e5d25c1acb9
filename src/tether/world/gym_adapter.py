"""A LinearMDP as a Gymnasium environment, for other people's agents and tools."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tether.errors import InputError
from tether.problem.action_sets import feature_of
from tether.records import Action, Array, StarAction
from tether.world.dynamics import draw
from tether.world.linear_mdp import LinearMDP
from tether.world.pictures import Moment, painted, written

Observation = NDArray[np.int64] | np.int64


class WorldEnv(gymnasium.Env[Observation, Any]):
    """Episodes of a LinearMDP in Gymnasium's terms.

    Observation: (state, step), MultiDiscrete([S, H + 1]): the law of an MDP with a horizon depends on the step, so the
    state alone would not be Markov. `observe_step=False` leaves the state alone, Discrete(S).

    Action: Discrete(N) for finite sets. For stars a Box [0, 1]^N that any continuous agent can use: the largest entry
    chooses the ray, and its value is the length; zeros are the safe action. `encode` writes Tether's actions so.

    `info["cost"]` is the observed, noisy cost (an array if there are several), `info["threshold"]` its τ, and
    `info["safe_action"]` is a_0(s) in the form of an action. With `reveal=True`, `info["true_cost"]` is the expectation
    that no learner is told.

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
        """Play one action: observation, exact reward, terminated, never truncated, and `info` with the noisy cost."""
        if self._over:
            raise InputError("the episode is over: call reset before the next step.")
        world, step, state = self.world, self._step, self._state
        chosen = self.decode(action)
        feature = feature_of(world.problem.actions(state), chosen)
        uniform, normal = self.np_random.random(), self.np_random.standard_normal(world.problem.constraints)
        following = int(draw(feature @ world.true_mu[step], uniform))
        true_cost = world.true_gamma[step] @ feature
        cost = true_cost + world.noise_scale * normal
        if world.arrival_cost is not None:
            cost = world.arrival_cost[:, following].copy()
        reward = self._reward(step, state, chosen, feature, following)
        self._state, self._step = following, step + 1
        self._over = self._step == world.problem.horizon or bool(world.ended[following])
        self._moments.append(Moment(following, chosen, reward, tuple(cost.tolist())))
        info = self._told() | {"cost": _plain(cost)}
        if self.reveal:
            info["true_cost"] = _plain(true_cost)
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

    def _reward(self, step: int, state: int, chosen: Action, feature: Array, following: int) -> float:
        """r_h(s, a), plus what the remaining steps are worth where the trajectory ends."""
        world = self.world
        reward = float(world.true_theta[step] @ feature)
        if world.rewards is not None and not isinstance(chosen, StarAction):
            reward = float(world.rewards[state, chosen])
        if world.ended[following]:
            reward += world.problem.final_reward_of(following) * (world.problem.horizon - step - 1)
        return reward

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
