"""Headline findings: claims with their verdicts side by side, and the cliffs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.analysis.claims import Verdict
from harness.analysis.edges import Edge
from harness.analysis.readings import Outcome
from harness.report.content import Report, Section
from harness.report.plots import Chart

ORDER: tuple[Outcome, ...] = ("contradicts", "supports", "cannot tell")


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One claim of a study and what each GPU says about it."""

    anchor: str
    guideline: str
    statement: str
    threshold: str
    on: Mapping[str, Verdict]
    """GPU name → verdict."""

    @property
    def group(self) -> Outcome:
        """`contradicts` where one GPU contradicts, else `supports` where one supports."""
        said = {verdict.verdict for verdict in self.on.values()}
        return next(outcome for outcome in ORDER if outcome in said)


def claim_rows(section: Section, systems: Mapping[str, str]) -> list[ClaimRow]:
    """The claims of one section in the order of the study."""
    found: dict[str, dict[str, Verdict]] = {}
    for verdict in section.verdicts:
        found.setdefault(verdict.claim_id, {})[systems.get(verdict.system, verdict.system)] = verdict
    return [_row(section, on) for on in found.values()]


def _row(section: Section, on: Mapping[str, Verdict]) -> ClaimRow:
    first = next(iter(on.values()))
    return ClaimRow(section.anchor, first.guideline, first.statement, first.threshold, on)


def findings_of(report: Report, provenance: str) -> dict[Outcome, list[ClaimRow]]:
    """Claims judged by one kind of numbers, by the group they fall into, contradictions first; no group is empty."""
    sections = [section for section in report.sections if section.provenance == provenance]
    rows = [row for section in sections for row in claim_rows(section, report.systems)]
    grouped = {outcome: [row for row in rows if row.group == outcome] for outcome in ORDER}
    return {outcome: members for outcome, members in grouped.items() if members}


def headline_edges(report: Report, provenance: str) -> list[tuple[Section, Edge]]:
    """Cliffs in one kind of numbers, largest first; an edge that several studies saw is told where it is largest."""
    kept: list[tuple[Section, Edge]] = []
    for section, edge in report.edges:
        if section.provenance == provenance and not any(_same(edge, seen) for _, seen in kept):
            kept.append((section, edge))
    return kept


def _same(one: Edge, other: Edge) -> bool:
    kinds = [(edge.system, edge.phase, edge.axis, edge.op) for edge in (one, other)]
    return kinds[0] == kinds[1] and one.low < other.high and other.low < one.high


def headline_chart(report: Report, provenance: str) -> Chart | None:
    """The picture of the largest cliff, which stands beside it on the first screen."""
    for section, _ in headline_edges(report, provenance):
        found = next((chart for chart in section.charts if chart.has_cliffs), None)
        if found:
            return found
    return None


def charts_of(report: Report, section: Section) -> list[Chart]:
    """The pictures of a section; in a report of one study the first screen has one of them already."""
    shown = headline_chart(report, section.provenance) if len(report.sections) == 1 else None
    return [chart for chart in section.charts if chart is not shown]


def finding_text(verdict: Verdict) -> str:
    """The finding without the verdict that stands beside it."""
    text = verdict.finding.removeprefix("Cannot tell: ")
    return text[:1].upper() + text[1:] if text != verdict.finding else text


def tally(report: Report, provenance: str) -> dict[Outcome, int]:
    """How many verdicts of each kind, one for each claim and GPU, in one kind of numbers."""
    said = [verdict.verdict for section, verdict in report.verdicts if section.provenance == provenance]
    counts = {outcome: sum(one == outcome for one in said) for outcome in ORDER}
    return {outcome: count for outcome, count in counts.items() if count}
