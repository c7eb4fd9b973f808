"""Lint: what is wrong with a variant, a parallelism and a GPU together, before a GPU minute is spent."""

from __future__ import annotations

from harness.lint.check import lint, lint_case
from harness.lint.facts import Facts
from harness.lint.finding import Finding, Severity
from harness.lint.limits import facts_from_limits
from harness.lint.subject import Settings, Target, target_of
from harness.lint.summary import Summary, Verdict, verdict

__all__ = [
    "Facts",
    "Finding",
    "Settings",
    "Severity",
    "Summary",
    "Target",
    "Verdict",
    "facts_from_limits",
    "lint",
    "lint_case",
    "target_of",
    "verdict",
]
