"""Histories on a terminal, as Markdown, as a page and as data."""

from __future__ import annotations

from harness.report.history.data import history_csv, history_data
from harness.report.history.page import render_page
from harness.report.history.text import print_history, render_markdown
from harness.report.history.write import write_history

__all__ = ["history_csv", "history_data", "print_history", "render_markdown", "render_page", "write_history"]
