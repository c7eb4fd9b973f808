"""Effects as tables: one row for each place, one column for each value of the axis, ratios against the baseline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.intervals import Interval
from harness.report.glossary import CATEGORIES, short_name
from harness.report.tables import Cell, Column, Table
from harness.report.values import is_number, text
from harness.results.metrics import format_value, significant
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

#: A part whose every ratio is this close to 1 is said to be unchanged instead of being printed.
_UNCHANGED = 0.0005


@dataclass(frozen=True, slots=True)
class Effect:
    """What one axis does in one phase: the whole time first, then each category of ops that changes."""

    title: str
    tables: tuple[Table, ...]
    unchanged: tuple[str, ...]
    """Categories whose time does not move at all."""


def effects_of(study: Study, effects: pd.DataFrame, records: pd.DataFrame, systems: Mapping[str, str]) -> list[Effect]:
    """Arrange the rows of `harness.analysis.effects.effects`: one `Effect` for each series, phase and axis.

    Axes that the study claims something about come first.
    """
    if effects.empty:
        return []
    places = {
        attempt: json.loads(coordinates)
        for attempt, coordinates in zip(records["attempt_id"], records["coordinates"], strict=True)
    }
    found = []
    claimed = {claim.axis for claim in study.claims}
    groups = effects.groupby(["series", "phase", "axis"], sort=False)
    for (series, phase, axis), group in sorted(groups, key=lambda item: item[0][2] not in claimed):
        parts = sorted(group.groupby("part", sort=False), key=lambda item: _part_order(item[0]))
        if len(parts) == 2:  # one category is the whole
            parts = parts[:1]
        same = [name for name, rows in parts if name != "total" and (rows["ratio"] - 1).abs().max() < _UNCHANGED]
        tables = [_pivot(name, rows, axis, places, systems) for name, rows in parts if name not in same]
        title = f"{short_name(axis)} in {phase}" + (f", {series}" if series else "")
        found.append(Effect(title, tuple(tables), tuple(CATEGORIES.get(name, name) for name in same)))
    return found


def _part_order(part: str) -> int:
    names = ["total", *CATEGORIES]
    return names.index(part) if part in names else len(names)


def _pivot(
    part: str, rows: pd.DataFrame, axis: str, places: Mapping[str, Mapping[str, Any]], systems: Mapping[str, str]
) -> Table:
    """One table: GPU and the other coordinates, the baseline's time, then the ratio at each other value."""
    baseline = rows["baseline"].iloc[0]
    values = list(dict.fromkeys(value for value in rows["value"].tolist() if value != baseline))
    if all(is_number(value) for value in values):
        values.sort()
    lines: dict[tuple[str, str], dict[Any, Mapping[str, Any]]] = {}
    for row in rows.to_dict("records"):
        lines.setdefault((row["system"], row["where"]), {})[row["value"]] = row
    named = (places[row["attempt_id"]] for line in lines.values() for row in line.values())
    others = list(dict.fromkeys(name for place in named for name in place if name != axis))
    columns = [
        Column("GPU"),
        *(Column(short_name(name), numeric=True) for name in others),
        Column(f"{short_name(axis)} {text(baseline)}", "ms", numeric=True),
        *(Column(text(value), "×", numeric=True) for value in values),
    ]
    cells = []
    for (system, _), line in lines.items():
        first = next(iter(line.values()))
        place = places[first["attempt_id"]]
        where = [Cell(text(place[name]) if name in place else "") for name in others]
        ratios = [_ratio_cell(line.get(value)) for value in values]
        base = significant(first["baseline_ms"]) + _interval(first, "baseline_low_ms", "baseline_high_ms")
        cells.append((Cell(systems.get(system, system)), *where, Cell(base), *ratios))
    what = "all ops" if part == "total" else CATEGORIES.get(part, part)
    about = f"Time relative to {short_name(axis)} {text(baseline)}: above 1 is slower."
    return Table(what, tuple(columns), tuple(cells), about)


def _ratio_cell(row: Mapping[str, Any] | None) -> Cell:
    if row is None:
        return Cell("")
    told = format_value(row["ratio"], "ratio") + _interval(row, "ratio_low", "ratio_high")
    return Cell(told, ratio_tone(row["ratio"]))


def _interval(row: Mapping[str, Any], low: str, high: str) -> str:
    """` (0.611 to 0.640)` for a number that was repeated; nothing for a priced one."""
    return f" ({Interval(row[low], row[high], int(row['replicates'])).text})" if low in row else ""


def ratio_tone(ratio: float) -> str:
    """How a ratio is shaded: `faster-3` … `faster-1`, nothing within 5 %, `slower-1` … `slower-3`."""
    for limit, tone in ((0.5, "faster-3"), (0.8, "faster-2"), (0.95, "faster-1")):
        if ratio <= limit:
            return tone
    for limit, tone in ((2.0, "slower-3"), (1.25, "slower-2"), (1.05, "slower-1")):
        if ratio >= limit:
            return tone
    return ""
