"""The summary of a run on a terminal: rich on a TTY, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.report.content import Report
    from harness.results.store import Run

_STYLES = {"supports": "green", "contradicts": "red", "cannot tell": "yellow"}
_MARKS = {"supports": "✓", "contradicts": "✗", "cannot tell": "?"}


def print_summary(run: Run) -> None:
    """Print what a run says: counts, verdicts, cliffs, rows without a number."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console().print(terminal_summary(run))
        return
    from harness.report.content import build_report

    for line in summary_lines(build_report([run])):
        sys.stdout.write(line + "\n")


def summary_lines(report: Report) -> Iterator[str]:
    """The summary as plain lines, one fact each."""
    from harness.report.tables import not_ok_table

    yield report.title
    yield from (f"{provenance}: {what}" for provenance, what in report.badges.items())
    for name, value in report.facts():
        yield f"{name}: {value}"
    for section, verdict in report.verdicts:
        system = report.systems.get(verdict.system, verdict.system)
        yield f"{verdict.verdict}: {verdict.guideline} {system} [{section.study.name}] {verdict.finding}"
    for section, edge in report.edges:
        yield f"cliff: {report.systems.get(edge.system, edge.system)} [{section.study.name}] {edge.text}"
    for row in not_ok_table(report.records, report.systems).rows:
        status, study, system, cases, _, reason = (cell.text for cell in row)
        yield f"{status}: {cases} in {study} on {system}: {reason}"


def terminal_summary(run: Run) -> RenderableType:
    """The summary as one rich renderable."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from harness.report.content import build_report

    report = build_report([run])
    parts: list[RenderableType] = [Text(report.title, style="bold")]
    parts += [Text(f"{provenance}: {what}", style="dim") for provenance, what in report.badges.items()]
    parts += [Text.assemble((f"{name}  ", "dim"), value) for name, value in report.facts()]
    verdicts = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("", "Guideline", "GPU", "Finding"):
        verdicts.add_column(title)
    for _, verdict in report.verdicts:
        system = report.systems.get(verdict.system, verdict.system)
        mark = Text(f"{_MARKS[verdict.verdict]} {verdict.verdict}", style=_STYLES[verdict.verdict], no_wrap=True)
        verdicts.add_row(mark, verdict.guideline, system, Text(verdict.finding))
    if verdicts.row_count:
        parts.append(verdicts)
    parts += [
        Text.assemble(("cliff  ", "bold red"), f"{report.systems.get(edge.system, edge.system)} {edge.text}")
        for _, edge in report.edges
    ]
    return Group(*parts)
