"""The summary of a run on a terminal: rich on a TTY, plain lines elsewhere.

It says what was asked, the cliffs and the verdict of every claim; the numbers behind a verdict are in the report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
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
    for provenance in report.badges:
        note = f" [{provenance}]" if len(report.badges) > 1 else ""
        yield from (f"cliff: {text}{note}" for text in _cliffs(report, provenance))
        for claim in _claims(report, provenance):
            said = ", ".join(f"{gpu} {verdict.verdict}" for gpu, verdict in claim.on.items())
            yield f"{claim.guideline}: {said}: {claim.statement}{note}"
    yield from _left(report)


def terminal_summary(run: Run | Report) -> RenderableType:
    """The summary as one rich renderable."""
    from rich.console import Group
    from rich.text import Text

    report = run if isinstance(run, Report) else build_report([run])
    title, *head = _head(report)
    parts: list[RenderableType] = [Text(title, style="bold"), *(Text(line) for line in head)]
    for provenance in report.badges:
        if len(report.badges) > 1:
            parts.append(Text(f"\n{provenance}", style="bold"))
        parts += [Text.assemble(("cliff ", "bold yellow"), text) for text in _cliffs(report, provenance)]
        claims = _claims(report, provenance)
        parts += [_board(claims)] if claims else []
    return Group(*parts, *(Text(line, style="dim") for line in _left(report)))


def _board(claims: Sequence[ClaimRow]) -> RenderableType:
    """Claims with the verdict of each GPU."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    gpus = list(dict.fromkeys(gpu for claim in claims for gpu in claim.on))
    board = Table("", "Claim", *gpus, box=box.SIMPLE_HEAD, pad_edge=False)
    for claim in claims:
        said = [claim.on[gpu].verdict if gpu in claim.on else None for gpu in gpus]
        marks = [Text(f"{_MARKS[one]} {one}", style=_STYLES[one], no_wrap=True) if one else Text() for one in said]
        board.add_row(claim.guideline, Text(claim.statement), *marks)
    return board


def _head(report: Report) -> Iterator[str]:
    yield report.title
    yield from (f"{provenance}: {what}" for provenance, what in report.badges.items())
    yield from (f"{name}: {value}" for name, value in report.facts())


def _cliffs(report: Report, provenance: str) -> Iterator[str]:
    for _, edge in headline_edges(report, provenance):
        yield f"{report.systems.get(edge.system, edge.system)} {edge.text}"


def _claims(report: Report, provenance: str) -> list[ClaimRow]:
    """Contradictions first."""
    return [claim for claims in findings_of(report, provenance).values() for claim in claims]


def _left(report: Report) -> Iterator[str]:
    """How many rows of each study have no number; each with its reason is in the report."""
    left = report.records[report.records["status"] != "ok"]
    for study, rows in left.groupby("study", sort=False):
        counts = ", ".join(f"{count} {status}" for status, count in rows["status"].value_counts().items())
        yield f"without a number in {study}: {counts}"
