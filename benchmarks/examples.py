"""What the Gymnasium examples gain over their safe action, as they ship: the table of docs/own-environment.md.

python benchmarks/examples.py    one JSON object, for tools/figures.py
"""

import contextlib
import io
import json
import runpy
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"
SHIPPED = {
    "gym_frozen_lake": ("FrozenLake-v1", "risk of a fall"),
    "gym_cliff_walking": ("CliffWalking-v1", "wind"),
    "gym_taxi": ("Taxi-v4", "complaints"),
    "gym_continuous": ("Pendulum-v1", "heat of the motor"),
}
HEADS = (
    "example", "environment", "return of the safe action", "of what was learned", "gain (95%, paired)",
    "largest true cost of a step", "τ",
)  # fmt: skip


def line(name: str) -> list[str]:
    """Run one, and read what it found."""
    with contextlib.redirect_stdout(io.StringIO()):
        ran = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    made, (environment, cost) = ran["result"].comparison, SHIPPED[name]
    tau, (low, high) = float(np.ravel(ran["result"].problem.threshold)[0]), made.interval
    returns = [f"{float(part.mean()):.3g}" for part in (made.safe, made.learner)]
    gain = f"{made.gain:+.3g} ({low:.3g} to {high:.3g})"
    cells = [*returns, gain, f"{max(ran['exact']):.3f} {cost}", f"{tau:g}"]
    return [f"`{name}.py`", environment, *(cell.replace("-", "−") for cell in cells)]


if __name__ == "__main__":
    lines = [line(name) for name in SHIPPED]
    print(json.dumps({"tables": {"table": {"heads": HEADS, "lines": lines}}, "sizes": "one run each, as shipped"}))
