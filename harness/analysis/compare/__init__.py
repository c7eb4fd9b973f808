"""Two results against each other: what is worse, better, the same, or cannot be told.

`compare(base, candidate)` pairs rows by the whole of what was asked and judges every figure; `docs/comparing.md` says
by which rules.
"""

from __future__ import annotations

from harness.analysis.compare.comparison import SECTIONS, Comparison, Count, Section
from harness.analysis.compare.join import compare
from harness.analysis.compare.pairs import OpShift, Pair, Unpaired, Values
from harness.analysis.compare.policy import AUTO, Policy, parse_policy

__all__ = [
    "AUTO",
    "SECTIONS",
    "Comparison",
    "Count",
    "OpShift",
    "Pair",
    "Policy",
    "Section",
    "Unpaired",
    "Values",
    "compare",
    "parse_policy",
]
