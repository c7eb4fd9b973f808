"""A comparison as one page that fetches nothing. Its plot is a strip in each line: where the change may lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from harness.analysis.compare import Comparison, Pair, Section
from harness.analysis.compare.policy import BEYOND_PCT, INSIDE_PCT
from harness.report.compare import words
from harness.report.tables import Table
from harness.version import __version__

_TEMPLATES = Path(__file__).resolve().parents[1] / "templates"

#: Sections that are open when the page is.
_OPEN = frozenset({"newly failing", "worse", "newly working", "better", "prediction changed", "inconclusive"})

#: Half of a strip, in units of its drawing.
_HALF = 60.0


@dataclass(frozen=True, slots=True)
class Strip:
    """A change and its interval on a line from -limit to +limit, in units of the drawing."""

    at: float
    low: float | None
    high: float | None
    bands: tuple[float, float]
    """Half-widths of the bands of 1 % and 2 %."""
    label: str


@dataclass(frozen=True, slots=True)
class View:
    """A section as the template takes it."""

    section: Section
    table: Table
    strips: tuple[Strip | None, ...]
    is_open: bool

    @property
    def title(self) -> str:
        return words.section_title(self.section)

    @property
    def strip_after(self) -> int:
        """The column that strips follow; -1 where there are none."""
        titles = [column.title for column in self.table.columns]
        return titles.index("Change") if self.strips else -1


def render_html(comparison: Comparison) -> str:
    """Return the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    limit = _limit(comparison)
    return environment.get_template("compare.html.j2").render(
        title=words.title(comparison),
        headline=words.headline(comparison),
        is_bad=comparison.exit_code != 0,
        facts=list(words.facts(comparison)),
        warnings=words.warnings(comparison),
        views=[_view(section, comparison, limit) for section in comparison.sections],
        limit=f"{100 * limit:.3g} %",
        beyond=f"{BEYOND_PCT:g} %",
        inside=f"{INSIDE_PCT:g} %",
        half=_HALF,
        version=__version__,
        css=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        own_css=(_TEMPLATES / "compare.css").read_text(encoding="utf-8"),
        script=(_TEMPLATES / "compare.js").read_text(encoding="utf-8"),
    )


def _view(section: Section, comparison: Comparison, limit: float) -> View:
    strips = tuple(_strip(pair, limit) for pair in section.pairs)
    return View(section, words.section_table(section, comparison), strips, section.name in _OPEN)


def _limit(comparison: Comparison) -> float:
    """The change at the ends of every strip: the largest there is, between 5 % and 50 %."""
    sizes = [abs(end) for pair in comparison.pairs for end in (pair.change, pair.low, pair.high) if end is not None]
    return math.ceil(100 * min(max([0.05, *filter(math.isfinite, sizes)]), 0.5) - 1e-6) / 100


def _strip(pair: Pair, limit: float) -> Strip | None:
    if pair.change is None:
        return None

    def place(share: float) -> float:
        return _HALF * max(-1.0, min(1.0, share / limit))

    label = f"{words.change_text(pair)} {words.interval_text(pair)}".strip()
    low, high = (None if end is None else place(end) for end in (pair.low, pair.high))
    bands = (place(BEYOND_PCT / 100), place(INSIDE_PCT / 100))
    return Strip(place(pair.change), low, high, bands, label)
