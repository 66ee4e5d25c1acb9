"""What random voltages and Tether do to the current of the README's motor; needs gym-electric-motor.

    .venv-real/bin/python benchmarks/motor.py

Prints JSON for docs/results: steps over 84 A, of as many steps each, from the same seed.
"""

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import gym_electric_motor  # noqa: F401 - tells Gymnasium its environments
import gymnasium
import numpy as np

README = Path(__file__).parents[1] / "README.md"
STEPS, LIMIT, CURRENT = 1800, 84.0, 2


def at_random() -> dict[str, float]:
    """Voltages of up to 30 % of the full one, drawn anew at every step."""
    env = gymnasium.wrappers.FlattenObservation(gymnasium.make("Cont-CC-PermExDc-v0"))
    rng, over, switched_off = np.random.default_rng(0), 0, 0
    env.reset(seed=0)
    for _ in range(STEPS):
        seen, _, ended, _, _ = env.step(rng.uniform(-0.3, 0.3, size=1))
        over, switched_off = over + (abs(210.0 * seen[CURRENT]) > LIMIT), switched_off + ended
        if ended:
            env.reset()
    return {"random-over": int(over), "random-off": int(switched_off)}


def as_printed() -> dict[str, float]:
    """The README's own code, as it stands there."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    (code,) = (block for block in blocks if "gym_electric_motor" in block)
    names: dict[str, Any] = {}
    with redirect_stdout(StringIO()):
        exec(code, names)
    result = names["result"]
    return {"over": result.violations, "steps": len(result.reward), "gain": result.comparison.gain}


if __name__ == "__main__":
    print(json.dumps({"values": at_random() | as_printed(), "sizes": f"{STEPS} steps each, seed 0"}))
