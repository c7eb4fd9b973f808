"""Write a comparison: a page, Markdown, JUnit XML and JSON in one folder."""

from __future__ import annotations

import json
from pathlib import Path

from harness import files
from harness.analysis.compare import Comparison
from harness.report.compare.data import comparison_data
from harness.report.compare.html import render_html
from harness.report.compare.junit import render_junit
from harness.report.compare.markdown import render_markdown

HTML_FILE = "compare.html"
MARKDOWN_FILE = "compare.md"
JUNIT_FILE = "compare.junit.xml"
JSON_FILE = "compare.json"


def write_comparison(comparison: Comparison, out: Path) -> Path:
    """Write every form of a comparison to the folder `out`; return its page's path.

    Each file is written whole or not at all. Raises EnvironmentUnfit where `out` cannot be written.
    """
    data = json.dumps(comparison_data(comparison), indent=2, allow_nan=False) + "\n"
    files.write_atomic(out / JSON_FILE, data)
    files.write_atomic(out / MARKDOWN_FILE, render_markdown(comparison))
    files.write_atomic(out / JUNIT_FILE, render_junit(comparison))
    files.write_atomic(out / HTML_FILE, render_html(comparison))
    return out / HTML_FILE
