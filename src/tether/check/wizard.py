"""What do I have to know? Questions whose answers are words of a Constraint, for `tether check --wizard`.

docs/choosing.md shows the same: it contains what `python -m tether.check.wizard` prints. Another question is one more
entry of QUESTIONS; its figures come from benchmarks/assumptions.py, by `make figures-options`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tether.problem.limit_on import CAVEAT


class Answer(NamedTuple):
    """An answer, and what follows from it."""

    words: str
    constraint: tuple[str, ...] = ()  # arguments of Constraint as one writes them; the numbers are examples
    relax: tuple[str, ...] = ()  # what stands in its list `relax`
    problem: tuple[str, ...] = ()  # arguments of Problem
    costs: str = ""  # what that costs, in words; empty if nothing
    drop: str = ""  # what it takes to do without
    row: str = ""  # the line of MEASURED that has it in figures; empty if it was not measured
    agent: str = ""  # the agent to use in place of SlucbQvi
    refuses: tuple[str, ...] = ()  # how words of other answers begin that this one cannot have
    covered: bool = True  # False where no option keeps the guarantee

    @property
    def options(self) -> tuple[str, ...]:
        """All that this answer makes you write."""
        return (*self.constraint, *_relaxed(self.relax), *self.problem)


class Question(NamedTuple):
    """A question with its answers; the first one is what the paper assumes."""

    words: str
    answers: tuple[Answer, ...]


def _relaxed(relax: Sequence[str]) -> tuple[str, ...]:
    """The argument `relax` of a Constraint; nothing if there is nothing in it."""
    return (f"relax=[{', '.join(relax)}]",) if relax else ()


SAY_LOST = "Say what is lost: `agent.lose(id)`, or `Guards(lost_after=3600.0)` in live use"

# fmt: off
QUESTIONS = (
    Question("How well do you know what the safe actions cost?", (
        Answer("exactly, to all digits", ("safe_cost=safe_cost",),
               costs="nothing; but a wrong one makes bounds wrong everywhere",
               drop="in doubt, declare how far it may be off: half a unit of the last decimal of a rounded cost",
               row="nothing else"),
        Answer("roughly: measured, typed or rounded", ("safe_cost=SafeCost(safe_cost, error=0.01)",),
               costs="remembered safe costs tell about other actions only up to the error",
               drop="safe actions whose cost follows from what they are: doing nothing often costs exactly 0",
               row="nothing else"),
        Answer("not at all, only that they are under τ", ("safe_cost=None",),
               costs="bounds rest on measured costs alone",
               drop="measurements: the means of n readings in each of J pairs of step and state are all within "
               "σ√(2 ln(2J/δ')/n), except with probability δ', which adds to δ; declare that as the error",
               row="nothing else"),
    )),
    Question("What do cost readings look like?", (
        Answer("numbers, the mean cost plus noise", ("noise=σ",)),
        Answer("yes or no (an accident, a fall), or any number in [0, 1]", ("noise=Bounded()",),
               costs="more computing: certificates are likelihood ratios. They need no σ, and B for rounding alone",
               drop='`Bounded("radius")` holds for all such costs, too; it is wasteful where accidents are rare',
               row="yes/no costs, `noise=Bounded()`", refuses=("Misfit(", "Realised(", "Drift(")),
    )),
    Question("Does every decision get its cost reading?", (
        Answer("yes, in time"),
        Answer("yes, but some come late",
               costs="a cost counts after those of all earlier decisions of its step; nothing is learned meanwhile",
               drop="faster readings; or declare lost what is too late"),
        Answer("some get lost, but not because of what they would have said", relax=('Lost("at-random")',),
               costs=f"the lost readings; that chance loses them is assumed, and tested by the monitor. {SAY_LOST}",
               drop="a sensor that does not fail", row='10 % of costs lost, `Lost("at-random")`'),
        Answer("some get lost, perhaps the high ones", relax=('Lost("worst-case", cost_range=(0.0, 1.0))',),
               costs=f"radii grow by half the range times √m after m losses. {SAY_LOST}",
               drop="a reason why chance loses them; exact safe costs or a narrower range make it cheaper",
               row='10 % of costs lost, `Lost("worst-case")`'),
    )),
    Question("Is the mean cost linear in your features?", (
        Answer("yes"),
        Answer("up to an error ε", relax=("Misfit(0.01)",),
               costs="radii grow by ε√n, and only the safe action can be certified where τ − τ_h(s) is 2ε or less",
               drop="features that follow the cost more closely; `tether check --log` tests them on your data",
               row="`Misfit(0.01)`"),
    )),
    Question("What can one unit of each feature change the cost by at most?", (
        Answer("by 1: costs and features have about the size of 1"),
        Answer("by what a data sheet says, or an expert: °C per kW, bar per litre",
               ("feature_effects=[2.0, 0.5]",),
               costs="radii grow with it, at first: a larger B is only slower",
               drop="nothing: B is a bound on γ*, and no data can give one"),
        Answer("I cannot say",
               costs="the guarantee: a B that is too small makes early bounds too small, and no data can tell",
               drop="a data sheet, a simulation, an expert: in doubt ten times as much; a B too large costs time",
               covered=False),
    )),
    Question("Are rewards observed exactly?", (
        Answer("yes"),
        Answer("with noise", problem=("reward_noise=0.5",),
               costs="a longer search, never safety; undeclared, the learner may stay with a bad action for good",
               drop="averages of several readings: σ_r falls with the root of their number",
               row="`reward_noise=0.5`, and rewards are so noisy"),
    )),
    Question("What must stay under τ at each step?", (
        Answer("the mean cost of what is played"),
        Answer("the cost that is then measured, except with probability η", relax=("Realised(0.05)",),
               costs="room for the noise, σ√(2 ln(1/η)), in every action; the safe one must leave it, too",
               drop="a sensor with less noise, or a larger η", row="`Realised()`"),
        Answer("the same, but the noise grows with the length that is played",
               relax=("Realised(0.05, noise_scales=True)",),
               costs="room for the noise in proportion to the length; the safe action needs none",
               drop="a sensor with less noise, or a larger η"),
    )),
    Question("Does the same action cost more or less as time passes?", (
        Answer("no"),
        Answer("yes, from one decision to the next by no more than I can name", relax=("Drift(1e-4)",),
               costs="old readings leave, so bounds stay wider than they would get, and no safe cost is remembered",
               drop="what changes as a feature (season, age, load), so that costs no longer drift",
               row="`Drift(1e-4)`"),
        Answer("yes, in a second by no more than I can name, whether I decide or not",
               relax=('Drift(1e-6, per="second")',),
               costs="the same; every decision needs its time, `act(step, state, time=seconds)`, and pauses cost trust",
               drop="what changes as a feature (season, age, load), so that costs no longer drift",
               row='`Drift(1e-6, per="second")`, a decision every 100 s'),
        Answer("yes, in jumps or at an unknown rate",
               costs="the guarantee: no option covers it. A `Monitor` raises the alarm, but only after it has begun",
               drop="what changes as a feature (season, age, load); or, when it has changed, a new agent and a new log "
               "without the old data: the shorter the history, the less it can have drifted", covered=False),
    )),
    Question("Is there something between the safe action and the others: a dose, a share, a speed?", (
        Answer("yes (`StarActions`)"),
        Answer("no, single actions (`FiniteActions`)",
               costs="the learner leaves the safe action only if actions share features; `tether check` says whether",
               drop="features that actions share, or an amount that can be scaled"),
        Answer("no, single actions, and the limit may hold on average only (a risk, never a temperature)",
               costs=f"{CAVEAT[0].upper()}{CAVEAT[1:]}. The bound is on the mean over the learner's own draw",
               drop="an amount that can be scaled, so that actions become rays, or features that actions share",
               agent="RslucbQvi(problem, rng=np.random.default_rng())",
               refuses=("safe_cost=None", "Realised(")),
    )),
    Question("May `tether check` try actions in your environment before it learns?", (
        Answer("yes, it is a simulator, or certified actions may be tried",
               costs="half of the plays of `tether check module:bridge`: certified actions, then the safe one. It must "
               "stay safe in every state that the learner can reach, and this is how that is tested",
               drop="`--no-explore`, or a log"),
        Answer("no, it is real equipment: only the safe action",
               costs="`tether check module:bridge --no-explore` sees only the states that safe play visits. You vouch "
               "that the safe action stays safe in every state that the learner can reach",
               drop="a simulator; or a log in which other actions came before the safe one"),
    )),
)
# fmt: on

MEASURED = """\
<!-- figures: options -->
|  | safe costs known exactly | safe costs known to ± 0.01 | safe costs unknown |
|---|---|---|---|
| nothing else | 1.00 / 0.83 | 3.69 / 0.75 | 4.34 / 0.70 |
| yes/no costs, `noise=Bounded()` | 1.02 / 0.83 | 6.98 / 0.75 | 18.45 / 0.44 |
| yes/no costs, `noise=0.5` | 1.00 / 0.83 | 10.23 / 0.68 | 18.79 / 0.37 |
| `Misfit(0.01)` | 5.61 / 0.69 | 6.50 / 0.65 | 6.61 / 0.56 |
| `Misfit(0.03)` | 13.46 / 0.52 | 13.93 / 0.49 | 12.62 / 0.35 |
| `Drift(1e-4)` | 9.81 / 0.45 | 10.20 / 0.38 | 10.36 / 0.09 |
| `Drift(1e-6, per="second")`, a decision every 100 s | 9.89 / 0.43 | 10.28 / 0.37 | 10.66 / 0.10 |
| 10 % of costs lost, `Lost("at-random")` | 1.00 / 0.83 | 3.86 / 0.74 | 4.58 / 0.69 |
| 10 % of costs lost, `Lost("worst-case")` | 1.00 / 0.83 | 18.68 / 0.50 | 50.02 / 0.00 |
| `reward_noise=0.5`, and rewards are so noisy | 3.52 / 0.83 | 6.35 / 0.76 | 7.07 / 0.74 |
| `reward_noise=0.5`, but rewards are exact | 3.08 / 0.83 | 5.77 / 0.76 | 6.71 / 0.75 |
| `Realised()` | 19.81 / 0.35 | 24.48 / 0.28 | 27.62 / 0.23 |
| `Realised()`, everything known | 18.70 / – | 18.70 / – | 18.70 / – |
| only safe actions are played | 50.19 / 0.00 | 50.19 / 0.00 | 50.19 / 0.00 |

`python benchmarks/assumptions.py`: 3,000 decisions, mean of 6 seeds (Tether 0.2.0).
<!-- /figures -->
"""
"""What tools/figures.py writes here. Cells: regret in units of the first cell's / certified share at the end."""

ALWAYS_SAFE = "only safe actions are played"
"""The row of a learner that always plays safe."""


def measured(answer: Answer, column: int) -> tuple[str, str]:
    """`cell` of the answer's row; columns: safe costs known exactly, roughly, not."""
    return cell(answer.row, column)


def cell(row: str, column: int) -> tuple[str, str]:
    """Regret and certified share in a row of MEASURED, empty if there is none of that name."""
    lines = [line for line in MEASURED.splitlines() if row and line.startswith(f"| {row} |")]
    regret, _, share = lines[0].split("|")[2 + column].partition("/") if lines else ("", "", "")
    return regret.strip(), share.strip()


def obstacles(answers: Sequence[Answer]) -> list[str]:
    """Why the guarantee cannot be had with these answers; empty if it can."""
    given = [word for answer in answers for word in (*answer.constraint, *answer.relax, *answer.problem)]
    refused = [
        f"{answer.agent.partition('(')[0] or answer.options[0]} refuses {word}: change one of the two answers."
        for answer in answers
        for word in given
        if word.startswith(answer.refuses)
    ]
    return refused + [f'no option covers the answer "{answer.words}".' for answer in answers if not answer.covered]


def declaration(answers: Sequence[Answer]) -> str:
    """The Problem and the agent, as Python."""
    relax = _relaxed([word for answer in answers for word in answer.relax])
    declared = ["threshold=τ", *(word for answer in answers for word in answer.constraint), *relax]
    (agent,) = [answer.agent for answer in answers if answer.agent] or ["SlucbQvi(problem)"]
    return "\n".join(
        [
            "problem = Problem(",
            "    horizon=H, dimension=d, actions=actions,",
            "    constraints=Constraint(",
            *(f"        {word}," for word in declared),
            "    ),",
            *(f"    {word}," for answer in answers for word in answer.problem),
            ")",
            f"agent = {agent}",
        ]
    )


def page() -> str:
    """The questions as docs/choosing.md has them, and the figures."""
    parts = []
    for question in QUESTIONS:
        parts += [f"### {question.words}", ""]
        for answer in question.answers:
            write = ", ".join(f"`{text}`" for text in (*answer.options, answer.agent) if text)
            parts.append(f"- **{answer.words}**{': ' if write else ''}{write}")
            if answer.costs:
                parts[-1] += "<br>"
                parts.append(f"  *costs:* {answer.costs}<br>\n  *to drop it:* {answer.drop}")
        parts.append("")
    return "\n".join([*parts, "## Measured", "", MEASURED])


if __name__ == "__main__":
    print(page())
