"""The summary of a run on a terminal: rich on a TTY, plain lines elsewhere.

One line for each study, its bottom line, and one for each cliff; everything behind them is in the report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.analysis.claims import Verdict
from harness.report.beside import summary_texts
from harness.report.bottom import BottomLine, bottom_lines, effect_texts, open_claims
from harness.report.content import Report, build_report
from harness.report.findings import headline_edges
from harness.report.measured import summary_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from harness.results.store import Run

_STYLES = {"supports": "green", "contradicts": "red", "cannot tell": "yellow"}
_MARKS = {"supports": "✓", "contradicts": "✗", "cannot tell": "?"}
_MOST_EDGES = 3
_MOST_EFFECTS = 8


def print_summary(run: Run | Report) -> None:
    """Print what a run or a report says: what was asked, cliffs, bottom lines, how many rows have no number."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(terminal_summary(run))
        return
    for line in summary_lines(run if isinstance(run, Report) else build_report([run])):
        sys.stdout.write(line + "\n")


def summary_lines(report: Report) -> Iterator[str]:
    """The summary as plain lines, one fact each."""
    yield from _head(report)
    yield from (f"NO VERDICTS: {text}" for text in _loud(report))
    yield from _ran(report)
    for provenance in report.badges:
        note = f" [{provenance}]" if len(report.badges) > 1 else ""
        yield from (f"cliff: {text}{note}" for text in _cliffs(report, provenance))
        yield from (f"{line.label}: {_plain(line)}{note}" for line in bottom_lines(report, provenance))
        yield from (text + note for text in _open(report, provenance))
        yield from (f"effect: {text}{note}" for text in _effects(report, provenance))


def terminal_summary(run: Run | Report) -> RenderableType:
    """The summary as one rich renderable."""
    from rich.console import Group
    from rich.text import Text

    report = run if isinstance(run, Report) else build_report([run])
    title, *head = _head(report)
    parts: list[RenderableType] = [Text(title, style="bold"), *(Text(line, style="dim") for line in head)]
    parts += [Text(f"NO VERDICTS: {text}", style="bold red reverse") for text in _loud(report)]
    parts += [Text(text) for text in _ran(report)]
    for provenance in report.badges:
        if len(report.badges) > 1:
            parts.append(Text(f"\n{provenance}", style="bold"))
        parts += [Text.assemble(("cliff ", "bold yellow"), text) for text in _cliffs(report, provenance)]
        lines = bottom_lines(report, provenance)
        parts += [_board(lines)] if lines else []
        parts += [Text(text, style="dim") for text in _open(report, provenance)]
        parts += [Text.assemble(("effect ", "bold"), text) for text in _effects(report, provenance)]
    return Group(*parts)


def _board(lines: Sequence[BottomLine]) -> RenderableType:
    """Bottom lines with the number and the verdict of each GPU."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    gpus = list(dict.fromkeys(gpu for line in lines for gpu, _ in line.said))
    board = Table("", "Claim", *gpus, box=box.SIMPLE_HEAD, pad_edge=False)
    if any(line.others for line in lines):
        board.add_column("Other claims", style="dim")
    for line in lines:
        cells = [_marked(line, gpu) for gpu in gpus]
        board.add_row(line.label, Text(line.claim.statement), *cells, *([_marks(line)] if line.others else []))
    return board


def _marked(line: BottomLine, gpu: str) -> Text:
    from rich.text import Text

    verdict = line.claim.on.get(gpu)
    if verdict is None:
        return Text()
    return Text(f"{_MARKS[verdict.verdict]} {_number(verdict)}", style=_STYLES[verdict.verdict])


def _verdict(verdict: Verdict) -> str:
    """The verdict with its number; numbers of the roofline have none."""
    outcome = verdict.reason if verdict.reason == "roofline only" else verdict.verdict
    return f"{outcome} {_number(verdict)}"


def _number(verdict: Verdict) -> str:
    """The number to remember, or why there is none."""
    return verdict.key or f"({verdict.reason})"


def _marks(line: BottomLine) -> str:
    return " ".join(f"{count}{_MARKS[outcome]}" for outcome, count in line.others.items())


def _plain(line: BottomLine) -> str:
    """`B200 contradicts 1.67×, 1.39×; H200 …: statement (others: 4 supports)`."""
    said = "; ".join(f"{gpu} {_verdict(verdict)}" for gpu, verdict in line.said)
    rest = f" (other claims: {line.rest})" if line.rest else ""
    return f"{said}: {line.claim.statement}{rest}"


def _head(report: Report) -> Iterator[str]:
    """What was asked, what kind of numbers these are, and where they come from."""
    yield report.title
    yield from (f"{provenance}: {what}" for provenance, what in report.badges.items())
    facts = report.facts()
    asked = {name: value for name, value in facts if name in {"Variants", "GPUs", "Machines", "Phases"}}
    yield "; ".join(value for value in asked.values() if value)
    yield from (f"{name}: {value}" for name, value in facts if name not in asked)


def _ran(report: Report) -> Iterator[str]:
    """What ran and failed, and how prices of the same cases compare."""
    told = summary_text(report.records)
    if told:
        yield told
    yield from (f"beside: {text}" for text in summary_texts(report.comparison, report.systems))


def _loud(report: Report) -> Iterator[str]:
    """What nobody may overlook; what could not be read is said by the command."""
    return (text for text in report.warnings if text not in report.damage)


def _cliffs(report: Report, provenance: str) -> Iterator[str]:
    found = headline_edges(report, provenance)
    texts = [
        f"{report.systems.get(edge.system, edge.system)} {edge.phase}, {edge.interval}: {edge.short}"
        for _, edge in found[:_MOST_EDGES]
    ]
    if len(found) > _MOST_EDGES:
        texts[-1] += f" ({len(found) - _MOST_EDGES} more in the report)"
    yield from texts


def _open(report: Report, provenance: str) -> Iterator[str]:
    reasons = open_claims(report, provenance)
    if reasons:
        yield f"cannot be judged: {'; '.join(reasons)}"


def _effects(report: Report, provenance: str) -> Iterator[str]:
    several = len(report.sections) > 1
    found = [
        f"{label}, {gpu}: {text}" if several else f"{gpu}: {text}"
        for label, gpu, text in effect_texts(report, provenance)
    ]
    yield from found[:_MOST_EFFECTS]
    if len(found) > _MOST_EFFECTS:
        yield f"{len(found) - _MOST_EFFECTS} more in the report"
