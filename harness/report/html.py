"""The report as one page: `index.html` holds its styles, scripts, plots and rows and fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import __version__
from harness.report import glossary, tables
from harness.report.content import Report, Section
from harness.report.findings import ClaimRow, claim_rows, finding_text, findings_of, headline_edges, tally
from harness.report.rows import rows_payload
from harness.report.scales import plain
from harness.results.metrics import format_value, significant

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
        "claim_rows": lambda section: claim_rows(section, report.systems),
        "gpus_of": gpus_of,
        "finding_text": finding_text,
        "cliffs_table": lambda section: tables.cliffs_table(section.cliffs, report.systems),
        "findings_of": lambda provenance: findings_of(report, provenance),
        "edges_of": lambda provenance: headline_edges(report, provenance),
        "tally_of": lambda provenance: tally(report, provenance),
    }
    return environment.get_template("index.html.j2").render(
        report=report,
        version=__version__,
        nav=nav_labels(report),
        headline_edges=_HEADLINE_EDGES,
        not_ok=tables.not_ok_table(report.records, report.systems),
        flags=tables.flags_table(report.records),
        environments=[(run.path.name, tables.environment_table(run.environment)) for run in report.runs],
        glossary=glossary.glossary(),
        sources=glossary.SOURCES,
        css=(_TEMPLATES / "report.css").read_text(),
        script=(_TEMPLATES / "report.js").read_text(),
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


def nav_labels(report: Report) -> dict[str, str]:
    """Anchor → label: the guidelines of a study if no other has the same, with its provenance, or its name."""
    labels: dict[str, str] = {}
    for section in report.sections:
        *shorter, last = _labels(section)
        others = [_labels(other) for other in report.sections if other is not section]
        alone = (label for at, label in enumerate(shorter) if label and all(label != other[at] for other in others))
        labels[section.anchor] = next(alone, last)
    return labels


def _labels(section: Section) -> tuple[str, ...]:
    """What a section may be called, shortest first."""
    short, name, kind = ", ".join(section.study.guidelines), section.study.name, section.provenance
    return short, f"{short} {kind}", name, f"{name} {kind}"


def gpus_of(claims: Iterable[ClaimRow]) -> list[str]:
    """The GPUs that have a verdict on one of the claims."""
    return list(dict.fromkeys(gpu for claim in claims for gpu in claim.on))


def categories_in(section: Section) -> dict[str, str]:
    """Categories of ops that the bars of a section show, in order."""
    used = {segment.category for shares in section.shares for bar in shares.bars for segment in bar.segments}
    return {name: title for name, title in glossary.CATEGORIES.items() if name in used}
