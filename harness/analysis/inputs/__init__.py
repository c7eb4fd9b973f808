"""Results that others are compared with: run folders, tables of rows, and reports of other tools, read into one form.

`read_results(path)` gives `Results`: rows, each with its workload (what was asked), its status, its figures under one
name and unit each, and what was found in place (`environment`). `docs/comparing.md` says which column is what.
"""

from __future__ import annotations

from harness.analysis.inputs.columns import Options
from harness.analysis.inputs.read import read_results
from harness.analysis.inputs.results import FIXED_COLUMNS, Figure, Results, Workload

__all__ = ["FIXED_COLUMNS", "Figure", "Options", "Results", "Workload", "read_results"]
