"""Finding and Report: what was examined, what was found, and the way out."""

import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, Literal, get_args

from tether.errors import AssumptionError

Verdict = Literal["holds", "fails", "cannot be known"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

NOTHING = "nothing was looked at. Pass states=[…] or a log, or check the Bridge of an environment, which plays it."


@dataclass(frozen=True, slots=True)
class Finding:
    """One assumption: the verdict, the evidence for it, and what to do where it does not hold.

    "holds" after a statistical test means: not contradicted by the data, and `evidence` says by how many.
    """

    name: str
    verdict: Verdict
    evidence: str
    way_out: str = ""


def judged(name: str, holds: bool, evidence: str, way_out: str = "") -> Finding:
    """A finding with a verdict; the way out is kept only where it fails."""
    return Finding(name, "holds", evidence) if holds else Finding(name, "fails", evidence, way_out)


def unknown(name: str, evidence: str, way_out: str = "") -> Finding:
    """A finding that cannot be known."""
    return Finding(name, "cannot be known", evidence, way_out)


@dataclass(frozen=True, slots=True)
class Report:
    """Every finding about one problem, in the order of the paper's assumptions. `print` it."""

    findings: tuple[Finding, ...]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that fail."""
        return tuple(finding for finding in self.findings if finding.verdict == "fails")

    @property
    def verdict(self) -> Literal["holds", "fails", "nothing examined"]:
        """The report in a word: that of its worst finding, or that there was nothing to look at."""
        if all(finding.verdict == "cannot be known" for finding in self.findings):
            return "nothing examined"
        return "fails" if self.failures else "holds"

    @property
    def ok(self) -> bool:
        """Whether something was checked and nothing failed. What cannot be known stays your responsibility."""
        return self.verdict == "holds"

    def require(self, *, besides: tuple[str, ...] = ()) -> None:
        """Raise an AssumptionError unless it is ok; findings of the names `besides` may fail, with a warning."""
        serious = [finding for finding in self.failures if finding.name not in besides]
        for finding in self.failures if not serious else ():
            warnings.warn(f"{finding.name}: {finding.evidence}; {finding.way_out}", stacklevel=3)
        if serious or self.verdict == "nothing examined":
            failed = "\n".join(f"{finding.name}: {finding.evidence}; {finding.way_out}" for finding in serious)
            raise AssumptionError(f"the check says: {self.verdict}.\n{failed or NOTHING}")

    def __getitem__(self, name: str) -> Finding:
        """The finding of this name."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"no finding is called {name!r}; there are {[finding.name for finding in self.findings]}")

    @property
    def conclusion(self) -> str:
        """Which findings fail, how many there are of each verdict, and whether nothing was looked at."""
        counts = Counter(finding.verdict for finding in self.findings)
        lines = [f"FAILS: {finding.name}" for finding in self.failures]
        lines.append(", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS))
        return "\n".join([*lines, f"NOTHING EXAMINED: {NOTHING}"] if self.verdict == "nothing examined" else lines)

    def __str__(self) -> str:
        lines: list[str] = []
        for finding in self.findings:
            word = {"fails": "FAILS", "cannot be known": "unknown"}.get(finding.verdict, finding.verdict)
            lines.append(f"{word:<9}{finding.name}")
            lines += wrap(finding.evidence, 98, initial_indent=" " * 11, subsequent_indent=" " * 11)
            if finding.way_out:
                lines += wrap(f"way out: {finding.way_out}", 98, initial_indent=" " * 11, subsequent_indent=" " * 13)
        return "\n".join([*lines, self.conclusion])

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"ok": self.ok, "verdict": self.verdict, "findings": [asdict(finding) for finding in self.findings]}
