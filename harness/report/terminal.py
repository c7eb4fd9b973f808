"""The summary of a run on a terminal: rich on a TTY, plain lines elsewhere.

It says what was asked, the cliffs and the verdict of every claim; the numbers behind a verdict are in the report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.report.content import Report, build_report
from harness.report.findings import ClaimRow, findings_of, headline_edges

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.results.store import Run

_STYLES = {"supports": "green", "contradicts": "red", "cannot tell": "yellow"}
_MARKS = {"supports": "✓", "contradicts": "✗", "cannot tell": "?"}


def print_summary(run: Run | Report) -> None:
    """Print what a run or a report says: what was asked, cliffs, verdicts, how many rows have no number."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(terminal_summary(run))
        return
    for line in summary_lines(run if isinstance(run, Report) else build_report([run])):
        sys.stdout.write(line + "\n")


def summary_lines(report: Report) -> Iterator[str]:
    """The summary as plain lines, one fact each."""
    yield from _head(report)
    yield from (f"cliff: {text}" for text in _cliffs(report))
    for claim in _claims(report):
        said = ", ".join(f"{gpu} {verdict.verdict}" for gpu, verdict in claim.on.items())
        yield f"{claim.guideline}: {said}: {claim.statement}{_note(report, claim.provenance)}"
    yield from _left(report)


def terminal_summary(run: Run | Report) -> RenderableType:
    """The summary as one rich renderable."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    report = run if isinstance(run, Report) else build_report([run])
    title, *head = _head(report)
    claims = _claims(report)
    gpus = list(dict.fromkeys(gpu for claim in claims for gpu in claim.on))
    board = Table("", "Claim", *gpus, box=box.SIMPLE_HEAD, pad_edge=False)
    for claim in claims:
        marks = [Text() for _ in gpus]
        for index, gpu in enumerate(gpus):
            if gpu in claim.on:
                said = claim.on[gpu].verdict
                marks[index] = Text(f"{_MARKS[said]} {said}", style=_STYLES[said], no_wrap=True)
        board.add_row(claim.guideline, Text(claim.statement + _note(report, claim.provenance)), *marks)
    return Group(
        Text(title, style="bold"),
        *(Text(line) for line in head),
        *(Text.assemble(("cliff ", "bold yellow"), text) for text in _cliffs(report)),
        *([board] if claims else []),
        *(Text(line, style="dim") for line in _left(report)),
    )


def _head(report: Report) -> Iterator[str]:
    yield report.title
    yield from (f"{provenance}: {what}" for provenance, what in report.badges.items())
    yield from (f"{name}: {value}" for name, value in report.facts())


def _cliffs(report: Report) -> Iterator[str]:
    for section, edge in headline_edges(report):
        yield f"{report.systems.get(edge.system, edge.system)} {edge.text}{_note(report, section.provenance)}"


def _claims(report: Report) -> list[ClaimRow]:
    """Contradictions first."""
    return [claim for claims in findings_of(report).values() for claim in claims]


def _note(report: Report, provenance: str) -> str:
    """Which kind of number, where a report holds several."""
    return f" [{provenance}]" if len(report.badges) > 1 else ""


def _left(report: Report) -> Iterator[str]:
    """How many rows of each study have no number; each with its reason is in the report."""
    left = report.records[report.records["status"] != "ok"]
    for study, rows in left.groupby("study", sort=False):
        counts = ", ".join(f"{count} {status}" for status, count in rows["status"].value_counts().items())
        yield f"without a number in {study}: {counts}"
