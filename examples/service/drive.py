"""Drive the service with a simulated building: ask, apply, report; days of eight steps, three hours each.

    python drive.py http://127.0.0.1:8080 --days 200 [--token TOKEN] [--pause 0.05]

In a real building, `decide` takes the state from your sensors and `record` what was measured three hours later.
"""

import argparse
import time

from building import WORLD

from tether.problem.action_sets import feature_of
from tether.records import StarAction
from tether.service.client import Client, action_of
from tether.world.linear_mdp import Streams


def outcome(step, state, action, streams):
    """What the house answers: reward, noisy cost, next state."""
    feature = feature_of(WORLD.problem.actions(state), action)
    cost = float(WORLD.true_gamma[step, 0] @ feature + WORLD.noise_scale[0] * streams.noise.standard_normal())
    law = feature @ WORLD.true_mu[step]
    return float(WORLD.true_theta[step] @ feature), cost, int(streams.transitions.choice(len(law), p=law / law.sum()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--token")
    parser.add_argument("--days", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.0)
    args = parser.parse_args()
    streams, earned, acted = Streams.from_seed(0), 0.0, 0
    with Client(args.url, args.token) as client:
        for day in range(args.days):
            state = WORLD.reset(streams)
            for step in range(WORLD.problem.horizon):
                decision = client.decide(state, step, day, observed_at=time.time())
                action = action_of(decision)
                reward, cost, following = outcome(step, state, action, streams)
                if decision.logged:
                    client.record(decision.id, reward, cost, following)
                earned, acted = earned + reward, acted + (isinstance(action, StarAction) and action.ray >= 0)
                state = following
                time.sleep(args.pause)
        status = client.status()
    steps = args.days * WORLD.problem.horizon
    print(
        f"{steps} decisions in mode {status['mode']}: {acted} other than the default, mean reward {earned / steps:.3f}"
    )


if __name__ == "__main__":
    main()
