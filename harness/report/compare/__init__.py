"""Comparisons on a terminal, as Markdown, as a page, as JUnit XML and as data."""

from __future__ import annotations

from harness.report.compare.data import comparison_data
from harness.report.compare.junit import render_junit
from harness.report.compare.markdown import render_markdown
from harness.report.compare.terminal import print_comparison
from harness.report.compare.write import write_comparison

__all__ = ["comparison_data", "print_comparison", "render_junit", "render_markdown", "write_comparison"]
