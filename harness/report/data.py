"""The report as plain data: verdicts, cliffs and effects for programs that go on from here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.analysis.cliffs import Cliff
from harness.analysis.edges import Edge
from harness.analysis.falls import FallGroup
from harness.report.content import Report, Section
from harness.report.imported import imported_table
from harness.report.labels import section_labels
from harness.report.measured import failures_table, run_facts_table
from harness.report.tables import Table
from harness.report.values import is_null


def report_data(report: Report) -> dict[str, Any]:
    """Return what a report says as data that `json.dumps` takes; times are in ms, ratios and shares are plain numbers.

    Keys: title, about, provenance (kind of numbers → what they are), warnings, gpus, cases (status → rows), and
    studies, one for each study and kind of numbers, with its verdicts, cliffs, falls and effects. Where rows ran:
    `measured` of their study. Where cases were measured and priced: `beside`. Of foreign reports: `imported`.
    """
    labels = section_labels(report)
    found = report.comparison
    more: dict[str, Any] = {}
    if found.cases:
        cases = [{**asdict(one), "error_pct": one.error_pct} for one in found.cases]
        more["beside"] = {"cases": cases, "categories": [asdict(one) for one in found.categories]}
    if report.has_imported:
        more["imported"] = _dicts(imported_table(report.records, report.systems))
    return {
        "title": report.title,
        "about": report.about,
        "provenance": report.badges,
        "warnings": report.warnings,
        "gpus": dict(report.systems),
        "cases": report.counts,
        "studies": [{"label": labels[section.anchor], **_study(section)} for section in report.sections],
        **more,
    }


def _dicts(table: Table) -> list[dict[str, str]]:
    """Rows of texts by the headings of their columns."""
    headings = [column.heading for column in table.columns]
    return [dict(zip(headings, (cell.text for cell in row), strict=True)) for row in table.rows]


def _measured(section: Section) -> dict[str, Any]:
    """How the cases ran, and what failed; nothing for priced ones."""
    if not section.is_measured:
        return {}
    records = section.cases.all_records
    facts = {row[0].text: row[1].text for row in run_facts_table(records).rows}
    cases = [
        {
            "attempt_id": one,
            "replicates": interval.replicates,
            "low_ms": interval.low if interval.is_known else None,
            "high_ms": interval.high if interval.is_known else None,
        }
        for one, interval in section.intervals.items()
    ]
    return {"measured": {"facts": facts, "cases": cases, "failures": _dicts(failures_table(records, {}))}}


def _study(section: Section) -> dict[str, Any]:
    study = section.study
    return {
        "study": study.name,
        "title": study.title,
        "guidelines": list(study.guidelines),
        "run": section.run,
        "provenance": section.provenance,
        "answered_with": list(section.answered_with),
        "cases": dict(section.counts),
        "flags": dict(section.flags),
        "sources": section.sources,
        "limits": list(study.limits),
        "verdicts": [asdict(verdict) for verdict in section.verdicts],
        "cliffs": [_edge(edge) for edge in section.edges],
        "falls": [_fall(group) for group in section.falls],
        "effects": {
            "lines": [
                {**asdict(line), "ratios": [list(pair) for pair in line.ratios], "best": line.best, "text": line.text}
                for line in section.effect_lines
            ],
            "rows": [_plain(row) for row in section.effect_rows.to_dict("records")],
        },
        **_measured(section),
    }


def _edge(edge: Edge) -> dict[str, Any]:
    return {
        **{name: getattr(edge, name) for name in ("system", "phase", "axis", "low", "high", "op", "text")},
        "size": edge.worst.size,
        "pairs": [_cliff(cliff) for cliff in edge.cliffs],
    }


def _cliff(cliff: Cliff) -> dict[str, Any]:
    data = {name: value for name, value in asdict(cliff).items() if name not in {"place", "study", "system", "axis"}}
    return {**data, "ops": dict(cliff.ops), "where": cliff.where, "same_work": cliff.same_work, "size": cliff.size}


def _fall(group: FallGroup) -> dict[str, Any]:
    return {
        **{name: getattr(group, name) for name in ("system", "phase", "axis", "text")},
        "pairs": [{**asdict(fall), "share": fall.share} for fall in group.falls],
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Python values in place of NumPy's; null for NaN."""
    values = ((name, value.item() if hasattr(value, "item") else value) for name, value in row.items())
    return {str(name): None if is_null(value) else value for name, value in values}
