"""Write a report: `index.html`, `report.md` and `records.csv` in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import files
from harness.report.content import Report, build_report

if TYPE_CHECKING:
    from harness.results.store import Run

INDEX_FILE = "index.html"
MARKDOWN_FILE = "report.md"
CSV_FILE = "records.csv"


def write_report(runs: Sequence[Run] | Report, out: Path) -> Path:
    """Write the common report of `runs`, or one that is built already, to the folder `out`; return its page's path.

    Raises UsageError where no run holds a row, EnvironmentUnfit where `out` cannot be written. Each file is written
    whole or not at all.
    """
    from harness.report.html import render_html
    from harness.report.markdown import render_markdown
    from harness.report.records_csv import render_csv

    report = runs if isinstance(runs, Report) else build_report(runs)
    files.write_atomic(out / CSV_FILE, render_csv(report.records))
    files.write_atomic(out / MARKDOWN_FILE, render_markdown(report))
    files.write_atomic(out / INDEX_FILE, render_html(report))
    return out / INDEX_FILE
