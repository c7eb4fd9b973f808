"""A history on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from harness.analysis.history import History, Judged
from harness.report.compare.markdown import escaped
from harness.report.history import words
from harness.report.printing import print_lines

#: Series that are listed; the page has all. A comment on GitHub holds 65,536 characters.
MOST = 60

_STYLES = {
    "regression": "red",
    "environment change": "magenta",
    "improvement": "green",
    "transient": "yellow",
    "no data": "red",
    "not enough history": "dim",
    "unchanged": "",
}


def print_history(history: History, *, everything: bool = False) -> None:
    """Print it: rich on a terminal, plain lines elsewhere."""
    print_lines(_lines(history, everything=everything))


def _lines(history: History, *, everything: bool) -> Iterator[tuple[str, str]]:
    yield words.title(history), "bold"
    for name, text in words.facts(history):
        yield f"{name.lower()}: {text}", ""
    for text in words.warnings(history):
        yield text, "yellow"
    for text in words.environment_lines(history):
        yield f"environment: {text}", "magenta"
    shown = list(history.judged) if everything else words.listed(history)
    for one in shown if everything else shown[:MOST]:
        style = _STYLES[one.judgement.verdict]
        yield f"{one.judgement.words}: {one.series.label}, {one.series.metric}: {words.why(one)}", style
    if len(shown) > MOST and not everything:
        yield f"{len(shown) - MOST:,} more; --all lists them, and the page of --out has them", "dim"


def render_markdown(history: History) -> str:
    """Return the text; what an input says is escaped and cannot format anything."""
    return "\n".join(_markdown(history)) + "\n"


def _markdown(history: History) -> Iterator[str]:
    mark = "❌" if history.is_worse else "⚠️" if history.is_incomplete else "✅"
    yield f"## {mark} {escaped(words.title(history))}"
    yield ""
    yield from (f"- {name}: {escaped(text)}" for name, text in words.facts(history))
    yield from (f"- {escaped(text)}" for text in words.warnings(history))
    yield ""
    notes = list(words.environment_lines(history))
    if notes:
        yield "### Changes of environment"
        yield ""
        yield from (f"- {escaped(text)}" for text in notes)
        yield ""
    shown = words.listed(history)
    if shown:
        yield "### Series"
        yield ""
        yield from _table(shown[:MOST])
        if len(shown) > MOST:
            yield f"{len(shown) - MOST:,} more are on the page."
            yield ""


def _table(shown: list[Judged]) -> Iterator[str]:
    yield f"| {' | '.join(words.COLUMNS)} |"
    yield f"|{'|'.join(' ---: ' if name in {'level', 'now', 'change'} else ' --- ' for name in words.COLUMNS)}|"
    for one in shown:
        yield f"| {' | '.join(escaped(cell) for cell in words.cells(one))} |"
    yield ""
