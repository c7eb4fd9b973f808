"""Write a history: a page, Markdown, JSON and CSV in one folder."""

from __future__ import annotations

import json
from pathlib import Path

from harness import files
from harness.analysis.history import History
from harness.report.history.data import history_csv, history_data
from harness.report.history.page import render_page
from harness.report.history.text import render_markdown

HTML_FILE = "history.html"


def write_history(history: History, out: Path) -> Path:
    """Write every form of a history to the folder `out`; return its page's path.

    Each file is written whole or not at all. Raises EnvironmentUnfit where `out` cannot be written.
    """
    files.write_atomic(out / "history.json", json.dumps(history_data(history), indent=1, allow_nan=False) + "\n")
    files.write_atomic(out / "history.csv", history_csv(history))
    files.write_atomic(out / "history.md", render_markdown(history))
    files.write_atomic(out / HTML_FILE, render_page(history))
    return out / HTML_FILE
