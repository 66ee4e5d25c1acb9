"""Print the size of the package and how many of its modules one step crosses.

    python tools/counts.py            # the package that `import tether` finds
    PYTHONPATH=../other/src python tools/counts.py

A module is crossed if one of its functions is entered or goes on. A compiled kernel counts as the module that defines
it, where it is called from Python; what it calls within the machine code does not count.
"""

import ast
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium
import numpy as np

import tether

PACKAGE = Path(tether.__file__).parent
MOST_ARGUMENTS = 8
WARM_UP = 40
"""Steps or requests before the one that is counted."""


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many arguments a function takes, `self` and `cls` left out."""
    given = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in given if name not in ("self", "cls")])


def sizes() -> None:
    """Modules, lines and parameter lists."""
    files = sorted(PACKAGE.rglob("*.py"))
    functions = [
        (arguments(node), node.name, path.relative_to(PACKAGE).as_posix())
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    count, name, path = max(functions)
    wide = sorted((one for one in functions if one[0] > MOST_ARGUMENTS), reverse=True)
    print(f"modules                                {len(files)}")
    print(f"lines                                  {sum(len(path.read_text().splitlines()) for path in files)}")
    print(f"functions                              {len(functions)}")
    print(f"longest parameter list                 {count}: {name}, {path}")
    print(f"functions with more than {MOST_ARGUMENTS} arguments    {len(wide)}")
    for count, name, path in wide:
        print(f"    {count}  {name}, {path}")


RELAXED = {
    "misfit": r"misfit",
    "drift": r"drift",
    "lost": r"\blost\b|\bLost\b",
    "realised": r"realised|exceedance",
    "bounded": r"\bbounded\b|\bBounded\b|likelihood",
    "listed": r"\blisted\b",
    "safe-cost error": r"baseline_cost_error|cost_error|SafeCost",
}
"""Words that name a relaxed assumption. `bounded`, `lost` and `listed` also count where they are plain English."""

LARGEST = 8
"""Classes that are listed."""


def spread() -> None:
    """Files outside `assumptions/` whose code (not its comments and docstrings) mentions a relaxed assumption."""
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "assumptions"]
    code = {path: words_of(path) for path in files}
    for name, pattern in RELAXED.items():
        found = [path for path, words in code.items() if re.search(pattern, words)]
        print(f"files that mention {name:19} {len(found)}")


def words_of(path: Path) -> str:
    """Names and strings of a module, without docstrings and comments."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not is_text(one)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def is_text(node: ast.AST) -> bool:
    """Whether a statement is a string alone: a docstring, or the text under a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def classes() -> None:
    """The classes with most methods."""
    found = [
        (sum(isinstance(one, ast.FunctionDef) for one in node.body), node.name, path.relative_to(PACKAGE).as_posix())
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    print("largest classes, by methods")
    for count, name, path in sorted(found, reverse=True)[:LARGEST]:
        print(f"    {count}  {name}, {path}")


class Crossings:
    """Modules of the package whose functions are entered between `start` and `stop`, in whatever thread."""

    def __init__(self) -> None:
        self.counting = False
        self.modules: set[str] = set()
        self.calls = 0
        threading.setprofile(self._on_event)  # threads that start later
        sys.setprofile(self._on_event)

    def start(self) -> None:
        """Count from here on."""
        self._wrap_kernels()
        self.modules, self.calls, self.counting = set(), 0, True

    def stop(self) -> None:
        """Count no further."""
        self.counting = False

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.counting and event == "call" and (entered := inside(frame)):
            caller = frame.f_back
            while caller is not None and not inside(caller):
                caller = caller.f_back
            self._enter(entered, inside(caller) if caller else "")

    def _enter(self, module: str, caller: str) -> None:
        self.modules |= {module, caller} - {""}
        self.calls += caller != module

    def _wrap_kernels(self) -> None:
        """Put a note around every compiled function that a module holds: the profiler does not see their calls."""
        home = {
            node.name: path.relative_to(PACKAGE).as_posix()
            for path in PACKAGE.rglob("*.py")
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef) and node.decorator_list
        }
        for module in [module for name, module in sys.modules.items() if name.split(".")[0] == "tether"]:
            for name, value in list(vars(module).items()):
                if type(value).__name__ in ("cython_function_or_method", "CPUDispatcher") and value.__name__ in home:
                    setattr(module, name, self._noted(value, home[value.__name__]))

    def _noted(self, kernel: Callable[..., Any], module: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if self.counting:
                self._enter(module, inside(sys._getframe(1)))
            return kernel(*given, **named)

        return call

    def report(self, what: str) -> None:
        """One line, and the modules below it."""
        print(f"{what:38} {len(self.modules)} modules, {self.calls} calls between them")
        print("    " + " ".join(sorted(self.modules)))


def inside(frame: FrameType) -> str:
    """The file of a frame, relative to the package; empty outside of it."""
    path = frame.f_code.co_filename
    return path[len(str(PACKAGE)) + 1 :] if path.startswith(str(PACKAGE)) else ""


class Line(gymnasium.Env[np.ndarray, np.ndarray]):
    """A point on a line, pushed left or right. The crossings are counted from one step to the next."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, crossings: Crossings) -> None:
        self.crossings, self.steps = crossings, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin anywhere."""
        super().reset(seed=seed)
        return self._anywhere(), {}

    def _anywhere(self) -> np.ndarray:
        return self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Reward and cost grow with the push."""
        self.crossings.stop()
        self.steps += 1
        push = abs(float(action[0]))
        stepped = self._anywhere(), push, False, False, {"cost": 0.2 + 0.1 * push}
        if self.steps == WARM_UP:
            self.crossings.start()
        return stepped


def learn_step(crossings: Crossings) -> None:
    """One step of `tether.learn`, observe an outcome and act, in the middle of an episode and in a new state."""
    from tether.features import Polynomial

    tether.learn(
        Line(crossings),
        features=Polynomial([-1.0], [1.0], degree=2),
        safe_action=[0.0],
        constraints=tether.Constraint(threshold=0.35, noise=0.05, safe_cost=0.2),
        reward_range=(0.0, 1.0),
        horizon=WARM_UP // 2 - 1,
        episodes=3,
        run=tether.Run(progress=False),
    )
    crossings.report("one step of learn")


def post_decision(crossings: Crossings) -> None:
    """One POST /v1/decisions in live mode, with the log in SQLite."""
    from starlette.testclient import TestClient

    from tether.service.app import create_app
    from tether.service.config import ServiceConfig

    world = tether.synthetic(np.random.default_rng(0), states=3, rays=4, dimension=3, horizon=1)
    with tempfile.TemporaryDirectory() as folder:
        advisor = tether.Advisor(world.problem, f"{folder}/log.db", mode="live", criteria=tether.Criteria.none())
        config = ServiceConfig(problem="none:needed")
        with TestClient(create_app(config, advisor), base_url="http://127.0.0.1") as client:
            for place in range(WARM_UP):
                made = client.post("/v1/decisions", json={"state": place % 3}).json()
                cost = float(world.true_gamma[0, 0] @ made["certificate"]["feature"])
                client.post("/v1/outcomes", json={"decision_id": made["id"], "reward": 0.5, "cost": cost})
            crossings.start()
            answer = client.post("/v1/decisions", json={"state": 0})
            crossings.stop()
            if answer.status_code != 200:
                raise SystemExit(f"the service answered {answer.status_code}: {answer.text}")
    crossings.report("one POST decision")


if __name__ == "__main__":
    sizes()
    spread()
    classes()
    crossings = Crossings()
    learn_step(crossings)
    post_decision(crossings)
