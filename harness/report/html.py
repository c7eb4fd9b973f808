"""The report as one page: `index.html` holds its styles, scripts, plots and rows and fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis.sources import sources_text
from harness.report import beside, glossary, measured, tables
from harness.report.bottom import effect_texts, open_claims
from harness.report.content import Report, Section
from harness.report.findings import (
    ClaimRow,
    charts_of,
    claim_rows,
    finding_text,
    findings_of,
    headline_chart,
    headline_edges,
    tally,
)
from harness.report.imported import imported_table
from harness.report.labels import section_labels
from harness.report.rows import rows_payload
from harness.report.scales import plain
from harness.results.metrics import format_value, significant
from harness.version import __version__

if TYPE_CHECKING:
    from harness.report.plots import Panel

_TEMPLATES = Path(__file__).resolve().parent / "templates"
_HEADLINE_EDGES = 4


def render_html(report: Report) -> str:
    """Return the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    figures: list[dict[str, Any]] = []
    numbers = {id(panel): number for number, panel in enumerate(_panels(report, figures))}
    environment.globals |= {
        "systems": report.systems,
        "figure_index": lambda panel: numbers[id(panel)],
        "significant": significant,
        "percent": lambda share: format_value(share, "percent"),
        "category_name": lambda name: glossary.CATEGORIES.get(name, name),
        "categories_in": categories_in,
        "flag_meaning": glossary.flag_meaning,
        "short_name": glossary.short_name,
        "plain": plain,
        "level_text": glossary.level_text,
        "limits_title": glossary.limits_title,
        "sources_text": sources_text,
        "open_claims": lambda provenance: open_claims(report, provenance),
        "effects_in": lambda provenance: list(effect_texts(report, provenance)),
        "headline_of": lambda provenance: headline_chart(report, provenance),
        "claim_rows": lambda section: claim_rows(section, report.systems),
        "charts_of": lambda section: charts_of(report, section),
        "gpus_of": gpus_of,
        "finding_text": finding_text,
        "measured_tables": lambda section: measured_tables(section, report),
        "cliffs_table": lambda section: tables.cliffs_table(section.cliffs, report.systems),
        "findings_of": lambda provenance: findings_of(report, provenance),
        "edges_of": lambda provenance: headline_edges(report, provenance),
        "tally_of": lambda provenance: tally(report, provenance),
    }
    return environment.get_template("index.html.j2").render(
        report=report,
        version=__version__,
        nav=section_labels(report),
        headline_edges=_HEADLINE_EDGES,
        beside_tables=beside_tables(report),
        beside_title=beside.TITLE,
        beside_about=beside.ABOUT,
        beside_texts=beside.summary_texts(report.comparison, report.systems),
        imported=imported_table(report.records, report.systems) if report.has_imported else None,
        not_ok=tables.not_ok_table(report.records, report.systems),
        flags=tables.flags_table(report.records),
        environments=[(run.path.name, tables.environment_table(run.environment)) for run in report.runs],
        glossary=glossary.glossary(ran=report.has_measured),
        sources=glossary.SOURCES,
        css=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=(_TEMPLATES / "report.js").read_text(encoding="utf-8"),
        plotly=get_plotlyjs(),
        figures=script_json(figures),
        rows=script_json(rows_payload(report.records, report.ops, report.systems)),
    )


def _panels(report: Report, figures: list[dict[str, Any]]) -> Iterable[Panel]:
    """Every panel in the order of the page, its figure added to `figures`."""
    for section in report.sections:
        for chart in section.charts:
            for panel in chart.panels:
                figures.append(panel.figure)
                yield panel


def script_json(data: object) -> str:
    """JSON that may stand inside a script element; NaN is no JSON and raises ValueError."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def measured_tables(section: Section, report: Report) -> dict[str, tables.Table]:
    """How the cases of a section ran: `cases`, `failures`, `facts`; none for priced ones."""
    if not section.is_measured:
        return {}
    records = section.cases.all_records
    return {
        "failures": measured.failures_table(records, report.systems),
        "cases": measured.measured_table(section.cases, section.intervals, report.systems),
        "facts": measured.run_facts_table(records),
    }


def beside_tables(report: Report) -> list[tables.Table]:
    """Measured beside composed: case by case and by category; none where no case has both."""
    found = report.comparison
    made = [beside.beside_table(found, report.systems), beside.categories_table(found, report.systems)]
    return [one for one in made if one.rows]


def gpus_of(claims: Iterable[ClaimRow]) -> list[str]:
    """The GPUs that have a verdict on one of the claims."""
    return list(dict.fromkeys(gpu for claim in claims for gpu in claim.on))


def categories_in(section: Section) -> dict[str, str]:
    """Categories of ops that the bars of a section show, in order."""
    used = {segment.category for shares in section.shares for bar in shares.bars for segment in bar.segments}
    return {name: title for name, title in glossary.CATEGORIES.items() if name in used}
