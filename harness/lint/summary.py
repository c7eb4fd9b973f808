"""Findings of many cases as one answer: equal ones once, a verdict per variant, totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.lint.finding import SEVERITIES, Finding

Verdict = Literal["ok", "warning", "error"]


def verdict(findings: Iterable[Finding]) -> Verdict:
    """The worst of some findings; notes leave a variant ok."""
    severities = {finding.severity for finding in findings}
    return "error" if "error" in severities else "warning" if "warning" in severities else "ok"


@dataclass(slots=True)
class Merged:
    """One finding with the systems and the number of cases that share it."""

    finding: Finding
    systems: list[str] = field(default_factory=list)
    cases: int = 0


class Summary:
    """Collects the findings of cases."""

    def __init__(self) -> None:
        self.cases = 0
        self.systems: dict[str, None] = {}
        self._variants: dict[str, dict[Finding, Merged]] = {}

    def add(self, variant: str, system: str, findings: Sequence[Finding]) -> None:
        """Take in the findings of one case, which may be none."""
        self.cases += 1
        self.systems[system] = None
        merged = self._variants.setdefault(variant, {})
        for finding in findings:
            entry = merged.setdefault(finding, Merged(finding))
            entry.cases += 1
            if system not in entry.systems:
                entry.systems.append(system)

    def __iter__(self) -> Iterator[tuple[str, list[Merged]]]:
        """Variants in the order in which they came, each with its findings, the worst first."""
        for variant, merged in self._variants.items():
            yield variant, sorted(merged.values(), key=lambda one: SEVERITIES.index(one.finding.severity))

    @property
    def merged(self) -> list[Merged]:
        """All findings, variant by variant."""
        return [one for _, findings in self for one in findings]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Variant → verdict."""
        return {variant: verdict(merged) for variant, merged in self._variants.items()}

    @property
    def totals(self) -> dict[Verdict, int]:
        """How many variants are ok, have warnings, have errors."""
        verdicts = list(self.verdicts.values())
        return {"ok": verdicts.count("ok"), "warning": verdicts.count("warning"), "error": verdicts.count("error")}
