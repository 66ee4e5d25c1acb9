"""Drive the service with a simulated building: ask, apply, report; days of eight steps, three hours each.

    python drive.py http://127.0.0.1:8080 --days 200 [--token TOKEN] [--pause 0.05] [--seed 1]

In a real building, `decide` takes the state from your sensors and `record` what was measured three hours later.
"""

import argparse
import secrets
import time

from building import WORLD

from tether import StarAction, Streams
from tether.problem.action_sets import feature_of
from tether.service.client import Client, action_of


def outcome(step, state, action, streams):
    """What the house answers: reward, noisy cost, next state."""
    feature = feature_of(WORLD.problem.actions(state), action)
    cost = float(WORLD.true_gamma[step, 0] @ feature + WORLD.noise_scale[0] * streams.noise.standard_normal())
    law = feature @ WORLD.true_mu[step]
    return float(WORLD.true_theta[step] @ feature), cost, int(streams.transitions.choice(len(law), p=law / law.sum()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--token", help="of the roles decide and record")
    parser.add_argument("--days", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
    parser.add_argument("--seed", type=int, default=None, help="repeats weather and noise; new ones unless given")
    args = parser.parse_args()
    streams = Streams.from_seed(secrets.randbits(64) if args.seed is None else args.seed)
    run = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {secrets.token_hex(2)}"  # days of other runs have other names
    earned, acted, stopped = 0.0, 0, 0
    with Client(args.url, args.token) as client:
        for day in range(args.days):
            state = WORLD.reset(streams)
            for step in range(WORLD.problem.horizon):
                decision = client.decide(state, step, f"{run}, day {day}", observed_at=time.time())
                action = action_of(decision)
                reward, cost, following = outcome(step, state, action, streams)
                if decision.logged:
                    client.record(decision.id, reward, cost, following)
                earned, acted = earned + reward, acted + (isinstance(action, StarAction) and action.ray >= 0)
                state, stopped = following, stopped + (decision.reason in ("stopped", "tripped"))
                time.sleep(args.pause)
    steps = args.days * WORLD.problem.horizon
    print(f"{steps} decisions in mode {decision.mode}: {acted} not the default, mean reward {earned / steps:.3f}")
    if stopped:
        print(f"{stopped} were the default because of the kill switch or an alarm")


if __name__ == "__main__":
    main()
