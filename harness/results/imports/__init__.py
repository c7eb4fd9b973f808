"""Reports of other tools: read into one table of their figures, from there into records.

`read_report` takes a file of any known format, `attempt_of` makes the record of a row. `docs/imports.md` defines every
column; the mapping from foreign names is `harness.results.imports.table.COLUMNS`.
"""

from __future__ import annotations

from harness.results.imports.detect import read_report
from harness.results.imports.records import attempt_of
from harness.results.imports.requests import RequestRow
from harness.results.imports.row import ImportRow
from harness.results.imports.table import COLUMNS, Column

__all__ = ["COLUMNS", "Column", "ImportRow", "RequestRow", "attempt_of", "read_report"]
