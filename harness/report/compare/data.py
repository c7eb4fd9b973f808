"""A comparison as plain data, for programs that go on from here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.analysis.compare import Comparison, Pair, Unpaired, Values
from harness.analysis.inputs import Results
from harness.report.compare import words


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return what a comparison says as data that `json.dumps` takes; changes are shares, +0.08 is 8 % more.

    Keys: title, headline, exit_code, base and candidate (input, rows, workloads), policy, paired_by, environment,
    common, notes, damage, sections (name → how many workloads and figures), pairs and unpaired.
    """
    return {
        "title": words.title(comparison),
        "headline": words.headline(comparison),
        "exit_code": int(comparison.exit_code),
        "base": _input(comparison.base, comparison),
        "candidate": _input(comparison.candidate, comparison),
        "policy": comparison.policy.text,
        "environment": {name: list(said) for name, said in comparison.environment.items()},
        "common": dict(comparison.names.common),
        "paired_workloads": comparison.paired_workloads,
        "figures_compared": len(comparison.computed),
        "notes": list(comparison.notes),
        "damage": list(comparison.damage),
        "sections": {
            section.name: {"workloads": section.workloads, "figures": len(section.pairs)}
            for section in comparison.sections
        },
        "pairs": [_pair(pair, comparison) for section in comparison.sections for pair in section.pairs],
        "unpaired": [_unpaired(one, comparison) for section in comparison.sections for one in section.unpaired],
    }


def _input(results: Results, comparison: Comparison) -> dict[str, Any]:
    count = comparison.counts["base" if results is comparison.base else "candidate"]
    return {
        "path": str(results.path),
        "kind": results.kind,
        "rows": count.rows,
        "workloads": count.workloads,
        "provenance": list(results.provenances),
        "identity_columns": list(results.identity_columns),
        "figures": {name: {"column": one.column, "factor": one.factor} for name, one in results.figures.items()},
    }


def _pair(pair: Pair, comparison: Comparison) -> dict[str, Any]:
    return {
        "verdict": pair.verdict,
        "workload": comparison.names.of(pair.workload),
        "identity": dict(pair.workload.key),
        "shown": dict(pair.workload.shown),
        "figure": pair.figure.name,
        "unit": pair.figure.unit,
        "base": _values(pair.base),
        "candidate": _values(pair.candidate),
        "change": pair.change,
        "low": pair.low,
        "high": pair.high,
        "p": pair.p,
        "policy": pair.policy,
        "reason": pair.reason,
        "replicates_needed": pair.replicates_needed,
        "clock": pair.clock,
        "blame": [asdict(shift) for shift in pair.blame],
    }


def _values(side: Values | None) -> dict[str, Any] | None:
    if side is None:
        return None
    return {
        "median": side.median,
        "values": list(side.values),
        "attempts": list(side.attempts),
        "note": side.note,
        "is_disturbed": side.is_disturbed,
    }


def _unpaired(one: Unpaired, comparison: Comparison) -> dict[str, Any]:
    return {
        "state": one.state,
        "workload": comparison.names.of(one.workload),
        "identity": dict(one.workload.key),
        "shown": dict(one.workload.shown),
        "base_status": one.base_status or None,
        "candidate_status": one.candidate_status or None,
        "reason": one.reason,
    }
