"""Reports: what runs say, as a page, as Markdown, as CSV, as data and on a terminal."""

from __future__ import annotations

from harness.report.content import Report, build_report
from harness.report.data import report_data
from harness.report.terminal import print_summary, terminal_summary
from harness.report.write import write_report

__all__ = ["Report", "build_report", "print_summary", "report_data", "terminal_summary", "write_report"]
