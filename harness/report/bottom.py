"""Bottom lines: what a reader takes home from each study, one line each, and why some claims stay open.

The first claim of a study is its bottom line; the others are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from harness.analysis.claims import Verdict
from harness.analysis.readings import Outcome
from harness.report.content import Report, Section
from harness.report.findings import ORDER, ClaimRow, claim_rows
from harness.report.labels import section_labels

_LOST = " not in this sweep"


@dataclass(frozen=True, slots=True)
class BottomLine:
    """One claim with what each GPU says, and how the other claims of its study came out."""

    label: str
    claim: ClaimRow
    others: Mapping[Outcome, int]
    """Outcome → verdicts, of the other claims."""

    @property
    def said(self) -> list[tuple[str, Verdict]]:
        """GPU name and verdict."""
        return list(self.claim.on.items())

    @property
    def rest(self) -> str:
        """`3 more claims: 4 supports, 2 cannot tell`; empty where there are none."""
        return ", ".join(f"{count} {outcome}" for outcome, count in self.others.items())


def bottom_lines(report: Report, provenance: str) -> list[BottomLine]:
    """The first claim of every study answered in one way; of one study alone, all claims that have their rows."""
    labels = section_labels(report)
    lines = []
    for section in _sections(report, provenance):
        rows = claim_rows(section, report.systems)
        if len(report.sections) == 1:
            there = [row for row in rows if not all(_is_lost(verdict) for verdict in row.on.values())]
            lines += [BottomLine(row.guideline, row, {}) for row in there]
        elif rows:
            modelled = provenance == "modelled"  # nothing is decided, which is said once for all
            others = Counter(verdict.verdict for row in rows[1:] for verdict in row.on.values() if not modelled)
            counts = {outcome: others[outcome] for outcome in ORDER if others[outcome]}
            lines.append(BottomLine(labels[section.anchor], rows[0], counts))
    return lines


def open_claims(report: Report, provenance: str) -> list[str]:
    """Why claims cannot be judged, the most frequent reason first: `3 claims: G 32 not in this sweep`.

    Where only some GPUs cannot tell, they are named. Numbers of the roofline judge nothing, which is said once for all.
    """
    where: dict[str, dict[tuple[str, str], list[str]]] = {}
    lost: dict[str, None] = {}
    for section in _sections(report, provenance):
        for verdict in section.verdicts:
            reason = verdict.reason
            if _is_lost(verdict):
                lost |= dict.fromkeys(reason.removesuffix(_LOST).split(", "))
                reason = _LOST
            if reason and reason != "roofline only":
                claim = (section.anchor, verdict.claim_id)
                where.setdefault(reason, {}).setdefault(claim, []).append(verdict.system)
    ranked = sorted(where.items(), key=lambda item: -len(item[1]))
    told = {_LOST: ", ".join(lost) + _LOST}
    return [_reason_text(told.get(reason, reason), claims, report) for reason, claims in ranked]


def _reason_text(reason: str, claims: Mapping[tuple[str, str], list[str]], report: Report) -> str:
    gpus = list(dict.fromkeys(gpu for systems in claims.values() for gpu in systems))
    several = len({system for section in report.sections for system in (v.system for v in section.verdicts)}) > 1
    where = f" (on {report.systems.get(gpus[0], gpus[0])})" if len(gpus) == 1 and several else ""
    return f"{len(claims)} {'claim' if len(claims) == 1 else 'claims'}{where}: {reason}"


def effect_texts(report: Report, provenance: str) -> Iterator[tuple[str, str, str]]:
    """Label, GPU and line of effects that a summary shows.

    Of a study alone all of them; of several those of studies that claim nothing, or whose axes were narrowed so that a
    claim lost its rows.
    """
    labels = section_labels(report)
    for section in _sections(report, provenance):
        if len(report.sections) == 1 or not section.verdicts or _narrowed(section.verdicts):
            for line in section.effect_lines:
                yield labels[section.anchor], report.systems.get(line.system, line.system), line.text


def _narrowed(verdicts: Iterable[Verdict]) -> bool:
    return any(_is_lost(verdict) for verdict in verdicts)


def _is_lost(verdict: Verdict) -> bool:
    """Whether the claim lost the rows that it needs."""
    return verdict.reason.endswith(_LOST)


def _sections(report: Report, provenance: str) -> Iterable[Section]:
    return [section for section in report.sections if section.provenance == provenance]
