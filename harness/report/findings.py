"""Headline findings: verdicts grouped by what they say, GPUs of one claim together."""

from __future__ import annotations

from dataclasses import dataclass

from harness.report.content import Report

_ORDER = ("contradicts", "supports", "cannot tell")


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim with one verdict, and what it rests on for each GPU."""

    anchor: str
    guideline: str
    statement: str
    provenance: str
    told: tuple[tuple[str, str], ...]
    """GPU and finding."""


def findings_of(report: Report) -> dict[str, list[Finding]]:
    """Verdict → claims with it; a claim with different verdicts on two GPUs occurs under each."""
    grouped: dict[str, dict[tuple[str, str], list[Finding]]] = {name: {} for name in _ORDER}
    for section, verdict in report.verdicts:
        system = report.systems.get(verdict.system, verdict.system)
        one = Finding(
            section.anchor, verdict.guideline, verdict.statement, section.provenance, ((system, verdict.finding),)
        )
        grouped[verdict.verdict].setdefault((section.anchor, verdict.claim_id), []).append(one)
    return {name: [_together(same) for same in claims.values()] for name, claims in grouped.items() if claims}


def _together(same: list[Finding]) -> Finding:
    first = same[0]
    told = tuple(pair for finding in same for pair in finding.told)
    return Finding(first.anchor, first.guideline, first.statement, first.provenance, told)
