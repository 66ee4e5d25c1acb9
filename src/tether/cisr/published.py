"""The authors' numbers, beside which ours are shown."""

from dataclasses import dataclass

CITATION = (
    "M. Turchetta, A. Kolobov, S. Shah, A. Krause, A. Agarwal: Safe Reinforcement Learning via Curriculum Induction, "
    "NeurIPS 2020; logs in github.com/zuzuba/CISR_NeurIPS20, results/flake/teacher_comparison"
)


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A teacher's final numbers at slip 0.8/0.1/0.1, means over 3 teachers × 10 students; failures in training."""

    teacher: str
    success: float
    mean_return: float
    training_failures: float


@dataclass(frozen=True, slots=True)
class Published:
    """What the authors report on the 10 × 10 lake: final numbers, and the curve of the optimised teacher.

    `optimised_success` is the mean success after the first units of 9600 steps, read from the authors' logs; they
    trained 11 units, and ten are given.
    """

    citation: str
    intended: float
    rows: tuple[PublishedRow, ...]
    optimised_success: tuple[float, ...]

    def row(self, teacher: str) -> PublishedRow:
        """The final numbers of a teacher."""
        return next(row for row in self.rows if row.teacher == teacher)


def published() -> Published:
    """The authors' final numbers and their optimised curve, with the citation."""
    return Published(
        citation=CITATION,
        intended=0.8,
        rows=(
            PublishedRow("optimised", 0.960, 5.37, 0.0),
            PublishedRow("SR2", 0.850, 4.84, 0.0),
            PublishedRow("SR1", 0.827, 4.67, 0.0),
            PublishedRow("none", 0.768, 4.33, 3076.0),
            PublishedRow("bandit", 0.574, 3.08, 0.0),
            PublishedRow("HR", 0.0, -0.22, 0.0),
        ),
        optimised_success=(0.12, 0.47, 0.66, 0.75, 0.85, 0.88, 0.95, 0.96, 0.96, 0.96),
    )
