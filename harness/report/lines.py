"""Which panels and lines a plot has: rows of one study, split until no line has two points at the same place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from harness.report.glossary import short_name
from harness.report.values import text
from harness.spec.expand import matches
from harness.spec.study import Plot

if TYPE_CHECKING:
    import pandas as pd

#: Columns of observations that say where a row lies, besides the coordinates of its study.
_PLACE = ("series", "system", "phase")
_FACTS = frozenset(
    {"attempt_id", "case_id", "value", "roofline", "source", "flags", "low", "high", "replicates", *_PLACE}
)


def kept(rows: pd.DataFrame, plot: Plot) -> pd.DataFrame:
    """The rows that belong to a plot: at its coordinates, with a place on its axis."""
    if plot.x not in rows.columns:
        return rows.iloc[:0]
    placed = rows[rows[plot.x].notna()]
    return placed[[matches(plot.where, place) for place in placed.to_dict("records")]]


def coordinates_of(frame: pd.DataFrame) -> list[str]:
    """Columns that say where a row lies."""
    return [*_PLACE, *(name for name in frame.columns if name not in _FACTS)]


def line_columns(frame: pd.DataFrame, plot: Plot) -> list[str]:
    """The coordinates that tell lines apart: the one that the plot names, then whatever would make a line ambiguous.

    Series are never joined into one line: they differ in shape.
    """
    taken = {plot.x, plot.panels}
    columns = [plot.lines] if plot.lines in frame.columns and plot.lines not in taken else []
    panels = [plot.panels] if plot.panels in frame.columns else []
    spare = [name for name in coordinates_of(frame) if name not in {*taken, *columns} and _varies(frame, name)]
    if "series" in spare and _groups(frame, [*panels, *columns, "series"]) > _groups(frame, [*panels, *columns]):
        columns.append("series")
    for name in spare:
        points = [*panels, *columns, plot.x]
        tells_apart = name not in columns and _groups(frame, [*points, name]) > _groups(frame, points)
        if tells_apart and frame.duplicated(points).any():
            columns.append(name)
    return columns


def split(frame: pd.DataFrame, columns: list[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Parts of a frame by the values of `columns`, in order of appearance; the whole frame where there are none.

    Where a row has no such coordinate (its series has other axes) the value is None, which unlike NaN equals itself.
    """
    if not columns:
        return [((), frame)]
    parts = frame.groupby(columns, sort=False, dropna=False)
    return [(tuple(None if _is_nan(value) else value for value in place), rows) for place, rows in parts]


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def line_label(columns: list[str], place: tuple[Any, ...]) -> str:
    """`batch 8, KVSL 32768`; the name of a series or a GPU stands alone."""
    named = [(name, value) for name, value in zip(columns, place, strict=True) if value is not None]
    return ", ".join(str(value) if name in _PLACE else f"{short_name(name)} {text(value)}" for name, value in named)


def common(frame: pd.DataFrame, besides: set[str]) -> str:
    """What all rows have in common, as one line above a plot: `decode, KVSL 32768`."""
    parts = []
    for name in ("phase", *(name for name in coordinates_of(frame) if name not in _PLACE), "series", "system"):
        values = frame[name].dropna().unique()
        if len(values) == 1 and values[0] != "" and name not in besides:
            parts.append(str(values[0]) if name in _PLACE else f"{short_name(name)} {text(values[0])}")
    return ", ".join(parts)


def _varies(frame: pd.DataFrame, name: str) -> bool:
    return int(frame[name].nunique(dropna=False)) > 1


def _groups(frame: pd.DataFrame, columns: list[str]) -> int:
    return len(frame[columns].drop_duplicates()) if columns else 1
