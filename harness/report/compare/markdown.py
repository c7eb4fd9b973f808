"""A comparison as Markdown, for a pull request or the summary of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.analysis.compare import Comparison, Section
from harness.report.compare import words
from harness.report.tables import Table

#: Lines of a section; a comment on GitHub holds 65,536 characters.
MOST = 50

_SPECIAL = re.compile(r"([\\`*\[\]<>|~&#!])|(?<![A-Za-z0-9])(_)|(_)(?![A-Za-z0-9])")


def render_markdown(comparison: Comparison) -> str:
    """Return the text; what an input says is escaped and cannot format anything."""
    return "\n".join(_lines(comparison)) + "\n"


def escaped(text: str) -> str:
    """A text on one line that Markdown takes as it is (CommonMark 0.31, 2.4; GitHub's tables, 4.10)."""
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))


def _lines(comparison: Comparison) -> Iterator[str]:
    mark = "✅" if comparison.exit_code == 0 else "❌"
    yield f"## {escaped(words.title(comparison))}"
    yield ""
    yield f"{mark} **{escaped(words.headline(comparison))}**"
    yield ""
    for text in words.warnings(comparison):
        yield f"> {escaped(text)}"
        yield ""
    yield from (f"- {escaped(name)}: {escaped(text)}" for name, text in words.facts(comparison))
    yield ""
    for section in comparison.sections:
        yield from _section(section, comparison)


def _section(section: Section, comparison: Comparison) -> Iterator[str]:
    count = len(section.pairs) + len(section.unpaired)
    title = words.section_title(section)
    yield f"### {title[0].upper()}{title[1:]}"
    yield ""
    yield section.meaning
    yield ""
    yield from _table(words.section_table(section, comparison, MOST))
    if count > MOST:
        yield f"And {count - MOST:,} more."
        yield ""


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(escaped(column.heading) for column in table.columns)} |"
    yield f"|{'|'.join('--:' if column.numeric else '---' for column in table.columns)}|"
    for row in table.rows:
        yield f"| {' | '.join(escaped(cell.text) for cell in row)} |"
    yield ""
