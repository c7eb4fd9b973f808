"""Verdicts: what the rows of one system say about one claim, and the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.analysis.intervals import replicates_text
from harness.analysis.readings import Outcome
from harness.results.metrics import significant


@dataclass(frozen=True, slots=True)
class Figure:
    """One number behind a verdict. `judged` is False for numbers that are shown beside those that decide."""

    label: str
    value: float
    unit: str
    where: str
    judged: bool = True


@dataclass(frozen=True, slots=True)
class MeasuredFigure(Figure):
    """One number over replicates, with its 99 % interval in the same unit; null where it has none."""

    low: float | None = None
    high: float | None = None
    replicates: int = 1

    @property
    def interval_text(self) -> str:
        """`0.611 to 0.640`, or how many replicates there are."""
        if self.low is None or self.high is None:
            return replicates_text(self.replicates)
        return f"{significant(self.low, 3)} to {significant(self.high, 3)}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rows of one system say about one claim."""

    study: str
    claim_id: str
    guideline: str
    statement: str
    kind: str
    system: str
    verdict: Outcome
    key: str
    """The number to remember, `1.67×, 1.39×`; empty where there is none."""
    what: str
    """What that number is: `gain, G 8 → 16, 16 → 32`."""
    where: str
    """The coordinates at which it holds."""
    finding: str
    """In words, with the numbers, their units and the coordinates at which they hold."""
    reason: str
    """In a few words why the rows cannot tell; empty for the other verdicts."""
    caveats: tuple[str, ...]
    """How many of the deciding rows carry which flag."""
    threshold: str
    """As written in the study, readable."""
    figures: tuple[Figure, ...]
    attempt_ids: tuple[str, ...]
    """The rows that decide."""
