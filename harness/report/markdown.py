"""The report as Markdown: the words and tables of the page, without its plots and without every single row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.analysis.claims import Verdict
from harness.analysis.sources import sources_text
from harness.report import beside, measured, tables
from harness.report.bottom import effect_texts, open_claims
from harness.report.content import Report, Section, counts_text
from harness.report.findings import finding_text, findings_of, headline_edges
from harness.report.glossary import flag_meaning, glossary, level_text, limits_title
from harness.report.imported import imported_table
from harness.report.labels import section_labels
from harness.report.shares import shares_table
from harness.report.tables import Table

_GROUPS = {
    "contradicts": "Contradicted on at least one {machine}",
    "supports": "Supported, none contradicted",
    "cannot tell": "Cannot tell on any {machine}",
}
_MARKS = {"supports": "✓ supports", "contradicts": "✗ contradicts", "cannot tell": "? cannot tell"}


def render_markdown(report: Report) -> str:
    """Return the text."""
    lines = [*_head(report), *_findings(report), *_beside(report)]
    for section in report.sections:
        lines += _section(section, report)
    lines += _tail(report)
    return "\n".join(lines) + "\n"


def _head(report: Report) -> Iterator[str]:
    yield f"# {report.title}"
    yield ""
    if report.about:
        yield report.about
        yield ""
    for provenance, what in report.badges.items():
        yield f"**{provenance}**: {what}"
        yield ""
    for text in report.warnings:
        yield f"> **{text}**"
        yield ""
    for name, value in report.facts():
        yield f"- {name}: {value}"
    yield ""
    yield "Plots: `index.html`. Every row with every column: `records.csv`."
    yield ""


def _findings(report: Report) -> Iterator[str]:
    for provenance in report.badges:
        yield f"## Findings, {provenance}" if len(report.badges) > 1 else "## Findings"
        yield ""
        yield from _findings_of(report, provenance)


def _findings_of(report: Report, provenance: str) -> Iterator[str]:
    edges = headline_edges(report, provenance)
    if edges:
        yield f"### Cliffs ({len(edges)})"
        yield ""
        for section, edge in edges:
            yield f"- **{report.systems.get(edge.system, edge.system)}** {edge.text} (`{section.study.name}`)"
        yield ""
    for outcome, claims in findings_of(report, provenance).items():
        yield f"### {_GROUPS[outcome].format(machine=report.machine)} ({len(claims)})"
        yield ""
        for claim in claims:
            yield f"- **{claim.guideline}** {claim.statement}"
            yield from (
                f"  - {gpu} {_MARKS[one.verdict]}{_number(one)}: {finding_text(one)}" for gpu, one in claim.on.items()
            )
        yield ""
    yield from _bullets("Claims that cannot be judged:", open_claims(report, provenance))
    effects = [f"**{label}**, {gpu}: {text}" for label, gpu, text in effect_texts(report, provenance)]
    yield from _bullets("Effects of what was asked:", effects)


def _number(verdict: Verdict) -> str:
    return f" {verdict.key}" if verdict.key else ""


def _bullets(title: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield title
        yield ""
        yield from (f"- {text}" for text in texts)
        yield ""


def _beside(report: Report) -> Iterator[str]:
    found = report.comparison
    if found.cases:
        yield f"## {beside.TITLE}"
        yield ""
        yield beside.ABOUT
        yield ""
        yield from _bullets("In short:", beside.summary_texts(found, report.systems))
        for table in (beside.beside_table(found, report.systems), beside.categories_table(found, report.systems)):
            if table.rows:
                yield f"### {table.title}"
                yield ""
                yield from table_lines(table)


def _measured(section: Section, report: Report) -> Iterator[str]:
    records = section.cases.all_records
    for table in (
        measured.measured_table(section.cases, section.intervals, report.systems),
        measured.failures_table(records, report.systems),
        measured.run_facts_table(records),
    ):
        if table.rows:
            yield f"### {table.title}"
            yield ""
            if table.about:
                yield table.about
                yield ""
            yield from table_lines(table)


def _section(section: Section, report: Report) -> Iterator[str]:
    study = section.study
    label = section_labels(report)[section.anchor] if study.guidelines and len(report.sections) > 1 else ""
    yield f"## {label or ', '.join(study.guidelines)} {study.title}".replace("##  ", "## ")
    yield ""
    yield f"`{study.name}`, {section.provenance}, {level_text(study)}: {counts_text(section.counts)}"
    yield ""
    if section.provenance != "modelled" and section.sources:
        yield f"Sources, share of time: {sources_text(section.sources)}"
        yield ""
    if study.about:
        yield study.about
        yield ""
    yield from _bullets(f"{limits_title(section.provenance)}:", study.limits)
    if section.verdicts:
        yield "### Verdicts"
        yield ""
        yield from table_lines(tables.claims_table(section.verdicts, report.systems))
    if section.is_measured:
        yield from _measured(section, report)
    gpu_lines = [f"{report.systems.get(one.system, one.system)}: {one.text}" for one in section.effect_lines]
    yield from _bullets("Effects, one workload each:", gpu_lines)
    for effect in section.effects:
        yield f"### Effect of {effect.title}"
        yield ""
        yield f"{effect.tables[0].about} {effect.tables[0].title.capitalize()}."
        yield ""
        yield from table_lines(effect.tables[0])
    if section.shares:
        yield "### Where time goes"
        yield ""
        yield from table_lines(shares_table(section.shares))
    yield from _cliffs(section, report)
    notes = [f"{report.systems.get(group.system, group.system)} {group.text}" for group in section.falls]
    yield from _bullets("Data quality, where more work takes more than 10 % less time:", notes)
    flags = [f"`{flag}` {count}: {flag_meaning(flag)}" for flag, count in section.flags.items()]
    yield from _bullets("Flagged rows:", flags)


def _cliffs(section: Section, report: Report) -> Iterator[str]:
    if section.cliffs:
        table = tables.cliffs_table(section.cliffs, report.systems)
        yield "### Cliffs"
        yield ""
        yield table.about
        yield ""
        yield from table_lines(table)


def _tail(report: Report) -> Iterator[str]:
    if report.has_imported:
        foreign = imported_table(report.records, report.systems)
        yield f"## {foreign.title}"
        yield ""
        yield foreign.about
        yield ""
        yield from table_lines(foreign)
    left = tables.not_ok_table(report.records, report.systems)
    if left.rows:
        yield f"## {left.title}"
        yield ""
        yield left.about
        yield ""
        yield from table_lines(left)
    for run in report.runs:
        yield f"## Environment of {run.path.name}"
        yield ""
        yield from table_lines(tables.environment_table(run.environment))
    yield "## Glossary"
    yield ""
    yield from (f"- **{term}**: {meaning}" for term, meaning in glossary(ran=report.has_measured))


def table_lines(table: Table) -> Iterator[str]:
    """A table in GitHub's Markdown with a blank line below; what would break a cell is escaped."""
    yield f"| {' | '.join(_escaped(column.heading) for column in table.columns)} |"
    yield f"|{'|'.join('--:' if column.numeric else '---' for column in table.columns)}|"
    for row in table.rows:
        yield f"| {' | '.join(_escaped(cell.text) for cell in row)} |"
    yield ""


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
