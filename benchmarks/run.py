"""Speed and memory by ratio, in one run on one machine: `make bench` (and `make bench-peers` for rlberry-scool).

Every figure is a ratio of two things measured here and now, so it means the same on a slow machine as on a fast one.
"""

import argparse
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tether import Constraint
from tether.agents.lsvi import LsviConfig, LsviUcb
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.kernels.ridge import project_rows
from tether.lab.simulate import simulate, simulate_stepwise
from tether.lab.worlds.linear_mdp import LinearMDP, Streams
from tether.lab.worlds.synthetic import synthetic
from tether.problem.action_sets import StarActions
from tether.problem.problem import Problem
from tether.records import Array

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Line:
    """One measured ratio and the bar it must clear."""

    name: str
    ratio: float
    bar: str
    holds: bool
    detail: str


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU time of a few repeats: what the work costs when nothing else interferes."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def timed_run(world: LinearMDP, episodes: int) -> tuple[float, list[float]]:
    """CPU seconds of a whole run of the default learner, and of each block of episodes."""
    blocks = [time.process_time()]
    streams = Streams.from_seed(1)
    agent = SlucbQvi(world.problem)
    simulate(world, agent, episodes, streams, lambda count: blocks.append(time.process_time()))
    return blocks[-1] - blocks[0], list(np.diff(blocks))


def flatness() -> Line:
    """Episodes must not get slower: the last 1000 of 10000 against the first 1000."""
    world = synthetic(Streams.from_seed(0).instance)
    ratios = []
    for _ in range(3):
        _, blocks = timed_run(world, 10_000)
        ratios.append(sum(blocks[-2:]) / sum(blocks[:2]))
    ratio = float(np.median(ratios))
    detail = f"S=10, N=100, d=5, H=3, K=10000; three runs: {', '.join(f'{r:.2f}' for r in ratios)}"
    return Line("last 1000 episodes over first 1000", ratio, "<= 1.2", ratio <= 1.2, detail)


def four_products(features: Array, count: int, vectors: Array, out: Array, repeats: int) -> None:
    """The bare work of one step, four matrix–vector products over all candidates, `repeats` times."""
    for _ in range(repeats):
        for vector in vectors:
            project_rows(features, count, vector, out)


def against_bare_products() -> Line:
    """A whole run at S=50 against nothing but the four products each step needs, in the faster of two ways."""
    episodes, horizon = 10_000, 3
    world = synthetic(Streams.from_seed(0).instance, states=50)
    whole = min(timed_run(world, episodes)[0] for _ in range(3))
    features = np.ascontiguousarray(world.endpoints.reshape(-1, 5).T)
    vectors, out = np.random.default_rng(0).random((4, 5)), np.empty(features.shape[1])
    four_products(features, len(out), vectors, out, 1)
    ours = seconds(lambda: four_products(features, len(out), vectors, out, episodes * horizon))
    blas = seconds(lambda: [np.dot(v, features, out=out) for _ in range(episodes * horizon) for v in vectors])
    ratio = whole / min(ours, blas)
    detail = f"run {whole:.2f} s; bare products {ours:.2f} s compiled, {blas:.2f} s BLAS"
    return Line("S=50 run over four bare products a step", ratio, "<= 5", ratio <= 5.0, detail)


def against_literal() -> list[Line]:
    """The literal transcription of Algorithm 1 in the tests, at growing K: its cost grows with k, ours does not.

    Both see the same transitions; of the literal agent only `plan` and `observe` are timed.
    """
    sys.path.insert(0, str(HERE.parent / "tests" / "reference"))
    from literal import Literal, Recipe

    world, config = synthetic(Streams.from_seed(0).instance, states=5, rays=20), SlucbConfig.paper(1.0)
    recipe = Recipe(explorer="paper", value_radius=1.0, value_ridge=1.0, cost_ridge=1.0, cost_radius=1.0)
    literal, leader, source = Literal(world.problem, 5, recipe), SlucbQvi(world.problem, config), streams()
    lines, slow = [], 0.0
    for episode in range(1, 1001):
        state = world.reset(source)
        leader.plan()
        start = time.process_time()
        literal.plan()
        slow += time.process_time() - start
        for step in range(world.problem.horizon):
            outcome = world.step(leader.act(step, state), source)
            leader.observe(outcome)
            literal.observe(outcome)
            state = outcome.next_state
        if episode in (250, 500, 1000):
            fast = seconds(lambda k=episode: simulate(world, SlucbQvi(world.problem, config), k, streams()))
            bar = ">= 300" if episode == 1000 else "grows"
            holds = slow / fast >= 300.0 if episode == 1000 else not lines or slow / fast > lines[-1].ratio
            detail = f"S=5, N=20, d=5, H=3: {slow:.1f} s against {fast * 1e3:.1f} ms"
            lines.append(Line(f"literal Algorithm 1 over ours, K={episode}", slow / fast, bar, holds, detail))
    return lines


def streams() -> Streams:
    """The same randomness for both contestants."""
    return Streams.from_seed(2)


def against_rlberry(python: str) -> Line:
    """rlberry-scool's LSVI-UCB at S=20, A=10, d=5, H=3, K=2000, in its own virtual environment."""
    script = HERE / "peers" / "rlberry_lsvi_ucb.py"
    printed = subprocess.run([python, str(script), "--episodes", "2000"], check=True, capture_output=True, text=True)
    peer = json.loads(printed.stdout.splitlines()[-1])
    world = finite_world(states=20, actions=10)
    ours = seconds(lambda: simulate(world, LsviUcb(world.problem, LsviConfig()), 2000, streams()))
    stepwise = seconds(lambda: simulate_stepwise(world, LsviUcb(world.problem, LsviConfig()), 2000, streams()), 1)
    ratio = peer["cpu_seconds"] / ours
    detail = f"{peer['cpu_seconds']:.0f} s against {ours * 1e3:.0f} ms ({stepwise:.2f} s through plan/act/observe)"
    return Line(f"rlberry-scool {peer['version']} over ours, K=2000", ratio, ">= 1000", ratio >= 1000.0, detail)


def finite_world(*, states: int, actions: int) -> LinearMDP:
    """A random finite linear MDP of the size that the peer runs; costs are there but nobody constrains them."""
    rng = np.random.default_rng(0)
    features = rng.dirichlet(np.ones(5), size=(states, actions))
    gamma = rng.random((3, 5)) * 0.1
    safe = np.zeros(states, dtype=np.int64)
    problem = Problem.from_table(
        features=features,
        baseline_action=safe,
        constraints=Constraint(threshold=0.5, noise=0.01, safe_cost=gamma @ features[:, 0].T),
        horizon=3,
    )
    return LinearMDP(
        name="finite",
        problem=problem,
        true_theta=rng.random((3, 5)),
        true_gamma=gamma[:, None],
        true_mu=rng.dirichlet(np.ones(states), size=(3, 5)),
        initial=np.full(states, 1.0 / states),
    )


def memory_over_episodes() -> Line:
    """Python's peak memory after 4000 further episodes over the peak after the first 1000."""
    world = synthetic(Streams.from_seed(0).instance)
    agent, source = SlucbQvi(world.problem), streams()
    tracemalloc.start()
    simulate_stepwise(world, agent, 1000, source)
    first = tracemalloc.get_traced_memory()[0]
    simulate_stepwise(world, agent, 4000, source)
    last = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    ratio = last / first
    detail = f"{first / 1e6:.2f} MB, then {last / 1e6:.2f} MB"
    return Line("memory after 5000 episodes over after 1000", ratio, "<= 1.1", ratio <= 1.1, detail)


def many_states() -> Line:
    """100000 states of which 20 are visited, against 20 states in all: time of the same 500 episodes."""

    def problem(count: int) -> Problem:
        def actions(state: int) -> StarActions:
            points = np.random.default_rng(state).dirichlet(np.ones(5), size=101)
            return StarActions(points[0], points[1:])

        return Problem(
            horizon=3,
            constraints=Constraint(threshold=0.9, noise=0.01, safe_cost=lambda step, state: 0.5),
            dimension=5,
            actions=actions,
            states=range(count),
        )

    def run(count: int) -> None:
        agent, rng = SlucbQvi(problem(count)), np.random.default_rng(0)
        visited = np.linspace(0, count - 1, 20).astype(int)
        for _ in range(500):
            agent.plan()
            path = rng.choice(visited, 4)
            for step in range(3):
                decision = agent.act(step, int(path[step]))
                outcome = decision.outcome(reward=0.5, cost=0.5, next_state=int(path[step + 1]))
                agent.observe(outcome)

    run(20)
    times = np.array([[seconds(lambda n=count: run(n), 1) for count in (20, 100_000)] for _ in range(4)])  # in turn
    few, many = times.min(axis=0)
    ratio = float(many / few)
    detail = f"{few * 1e3:.0f} ms and {many * 1e3:.0f} ms"
    return Line("S=100000 over S=20, same 20 states visited", ratio, "<= 1.2", ratio <= 1.2, detail)


def mixture_lines() -> list[Line]:
    """RSLUCB-QVI's inner solver against Clarabel, and one Frozen Lake agent."""
    from mixtures import lake_agent_seconds, solver_ratio

    lines = []
    for actions, least in ((4, 300.0), (16, 10.0)):
        ratio, detail = solver_ratio(actions)
        lines.append(
            Line(f"Clarabel over our inner solver, |A|={actions}", ratio, f">= {least:g}", ratio >= least, detail)
        )
    taken, detail = lake_agent_seconds()
    lines.append(Line("one Frozen Lake agent, CPU seconds", taken, "<= 5", taken <= 5.0, detail))
    return lines


def continuous_lines(transitions: int) -> list[Line]:
    """Continuous states, in a process of its own so that its peak memory is its own."""
    command = [sys.executable, str(HERE / "continuous.py"), "--raw", "--transitions", str(transitions)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(printed.stdout.splitlines()[-1])
    run, prefix, large = found["long"], found["prefix"], found["large"]
    sizes = f"N={run['N']:g}, H={run['H']:g}, {run['transitions']:g} transitions"
    shares = (
        f"p50 {run['p50 ms']:.2f} ms; {run['plans']:g} plans, {run['planning share']:.0%} of {run['CPU seconds']:.0f} s"
    )
    memory = f"peak {run['peak MB']:.0f} MB; tables would need {run['tables would need GB']:.1f} GB"
    often = f"first {prefix['transitions']:g} transitions: {prefix['CPU seconds, every episode']:.1f} s"
    wide = f"p50 {large['p50 ms']:.1f} ms, {large['transitions']:g} transitions"
    p99, ratio, kept, slow = run["p99 ms"], prefix["ratio"], run["kB per next state"], large["p99 ms"]
    lines = [
        Line("continuous states, d=50: p99 of a decision, ms", p99, "<= 5", p99 <= 5.0, f"{sizes}: {shares}"),
        Line("continuous states, d=50: kB per next state", kept, "<= 4", kept <= 4.0, memory),
        Line("re-planning every episode over on growth", ratio, ">= 5", ratio >= 5.0, often),
        Line("continuous states, d=500: p99 of a decision, ms", slow, "<= 50", slow <= 50.0, wide),
    ]
    for name in ("CartPole", "MountainCarContinuous"):
        each = found[name]
        taken, longer = each["ms a step"], each["ratio, H = 200 over H = 10"]
        detail = f"{each['steps']:g} steps, p99 of a decision {each['p99 ms of a decision']:.1f} ms"
        lines.append(Line(f"learn on {name}, H=200: ms a step", taken, "<= 3", taken <= 3.0, detail))
        lines.append(Line(f"learn on {name}: H=200 over H=10", longer, "<= 3", longer <= 3.0, detail))
    return lines


TEN_LINES = """
import numpy as np
from tether import SlucbQvi, synthetic
world = synthetic(np.random.default_rng(0))
agent = SlucbQvi(world.problem)
agent.plan()
print(agent.act(0, 0).cost_bound)
"""


def fresh_seconds(*words: str, repeats: int = 5) -> float:
    """The least wall time of a command in a process of its own."""
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(words, check=True, capture_output=True)
        best = min(best, time.perf_counter() - start)
    return best


def first_second() -> list[Line]:
    """What a new user waits for: nothing is compiled, and little is imported."""
    python = sys.executable
    bare, numpy = fresh_seconds(python, "-c", ""), fresh_seconds(python, "-c", "import numpy")
    ours, first = fresh_seconds(python, "-c", "import tether"), fresh_seconds(python, "-c", TEN_LINES)
    told = fresh_seconds(str(Path(python).parent / "tether"), "--help")
    extra, base = ours - numpy, f"python alone {bare:.2f} s, import numpy {numpy:.2f} s"
    return [
        Line("first decision in a fresh process, seconds", first, "<= 1", first <= 1.0, base),
        Line("import tether over import numpy, seconds", extra, "<= 0.1", extra <= 0.1, f"import tether {ours:.2f} s"),
        Line("tether --help, seconds", told, "<= 0.3", told <= 0.3, base),
    ]


def main() -> None:
    """Measure, print a table, and exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="python of the virtual environment that has the peers")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--transitions", type=int, default=100_000, help="of the run over continuous states")
    options = parser.parse_args()
    lines = [
        *first_second(),
        flatness(),
        against_bare_products(),
        memory_over_episodes(),
        many_states(),
        *against_literal(),
    ]
    lines += [*mixture_lines(), *continuous_lines(options.transitions)]
    if options.peers:
        lines.append(against_rlberry(options.peers))
    if options.json:
        print(json.dumps([asdict(line) for line in lines], indent=1))
    else:
        table = Table("what", "ratio", "bar", "holds", "measured")
        for line in lines:
            table.add_row(line.name, f"{line.ratio:.2f}", line.bar, "yes" if line.holds else "NO", line.detail)
        Console(width=150).print(table)
    sys.exit(0 if all(line.holds for line in lines) else 1)


if __name__ == "__main__":
    main()
