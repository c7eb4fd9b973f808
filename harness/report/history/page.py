"""A history as one page that fetches nothing: a line for each series, a cell for each night.

Without scripts it says what the terminal says; with them, every series and night can be looked at.
"""

from __future__ import annotations

from pathlib import Path

from harness.analysis.history import VERDICTS, History
from harness.report.history import words
from harness.report.history.payload import history_payload
from harness.report.html import script_json
from harness.version import __version__

_TEMPLATES = Path(__file__).resolve().parents[1] / "templates"

#: Series that the page lists without scripts.
_LISTED = 300


def render_page(history: History) -> str:
    """Return the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = words.listed(history)
    return environment.get_template("history.html.j2").render(
        version=__version__,
        title=words.title(history),
        facts=list(words.facts(history)),
        warnings=list(words.warnings(history)),
        notes=list(words.environment_lines(history)),
        columns=words.COLUMNS,
        listed=[words.cells(one) for one in shown[:_LISTED]],
        more=max(len(shown) - _LISTED, 0),
        tally={verdict: count for verdict, count in history.tally.items() if count},
        verdicts=VERDICTS,
        css=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        own_css=(_TEMPLATES / "history.css").read_text(encoding="utf-8"),
        script=(_TEMPLATES / "history.js").read_text(encoding="utf-8"),
        payload=script_json(history_payload(history)),
    )
