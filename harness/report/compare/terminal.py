"""A comparison on a terminal: rich on a TTY, plain lines elsewhere. What is the same is counted."""

from __future__ import annotations

from collections.abc import Iterator

from harness.analysis.compare import Comparison, Section
from harness.report.compare import words
from harness.report.printing import print_lines

_STYLES = {
    "newly failing": "bold red", "worse": "bold red", "newly working": "green", "better": "green",
    "prediction changed": "yellow", "inconclusive": "yellow", "not computed": "yellow",
}  # fmt: skip

#: Lines of a section that are shown unless all are asked for.
MOST = 20


def print_comparison(comparison: Comparison, *, everything: bool = False) -> None:
    """Print it; `everything` lists every line of every section."""
    print_lines(_lines(comparison, everything=everything))


def _lines(comparison: Comparison, *, everything: bool) -> Iterator[tuple[str, str]]:
    """Lines, each with its style."""
    is_bad = comparison.exit_code != 0
    yield words.title(comparison), "bold"
    yield words.headline(comparison), "bold red" if is_bad else "bold green"
    yield from ((f"{name}: {text}", "dim") for name, text in words.facts(comparison))
    yield from ((f"note: {text}", "yellow") for text in comparison.notes)
    for section in comparison.sections:
        yield "", ""
        yield f"{words.section_title(section)}. {section.meaning}", _STYLES.get(section.name, "bold")
        if section.name == "same" and not everything:
            yield "  listed with --all and in the files of --out", "dim"
            continue
        yield from ((line, "") for line in _section(section, comparison, None if everything else MOST))


def _section(section: Section, comparison: Comparison, most: int | None) -> Iterator[str]:
    for one in section.unpaired[:most]:
        yield f"  {comparison.names.of(one.workload)}: {words.unpaired_text(one)}"
    for pair in section.pairs[:most]:
        interval = f" ({words.interval_text(pair)})" if pair.low is not None else ""
        reason = words.why(pair)
        yield (
            f"  {comparison.names.of(pair.workload)}: {words.figure_text(pair)} "
            f"{words.side_text(pair.base) or 'absent'} → {words.side_text(pair.candidate) or 'absent'}, "
            f"{words.change_text(pair)}{interval}{f'; {reason}' if reason else ''}"
        )
    rest = len(section.pairs) + len(section.unpaired) - (most or 0)
    if most and rest > 0:
        yield f"  and {rest:,} more (--all)"
