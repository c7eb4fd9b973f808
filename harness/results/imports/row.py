"""One file's row in the import table, and how it is filled: what cannot be read stays blank and is said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.results.imports.requests import RequestRow
from harness.results.imports.table import COLUMNS, Column, convert

ImportStatus = Literal["ok", "suspect", "unreadable"]

#: What tools print where they know nothing.
_NOTHING = frozenset({"", "none", "null", "n/a"})

#: Whole numbers of a record are below the first, others below the second.
_MAX_WHOLE, _MAX_NUMBER = 2**53, 1e300


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRow:
    """What one file says."""

    file: str
    format: str = ""
    """What kind of file it is; empty where that is unknown."""
    tool: str = ""
    tool_version: str = ""
    """Empty where the file does not say it."""
    status: ImportStatus
    notes: tuple[str, ...] = ()
    """Why it is suspect or unreadable, and what to know of its figures."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the import table that are known."""
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Column → path in `foreign` of the very value that it holds."""
    foreign: Mapping[str, Any] = field(default_factory=dict)
    """All that the file says, by its own names."""
    requests: tuple[RequestRow, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """All columns for scripts, null where nothing is known."""
        return {
            "file": self.file,
            "format": self.format or None,
            "tool": self.tool or None,
            "tool_version": self.tool_version or None,
            "status": self.status,
            "notes": list(self.notes),
            **{one.name: self.values.get(one.name) for one in COLUMNS},
        }


class Draft:
    """A row being filled."""

    def __init__(self, file: str, kind: str, tool: str, foreign: Mapping[str, Any]) -> None:
        self.foreign = foreign
        self.values: dict[str, Any] = {}
        self._identity = {"file": file, "format": kind, "tool": tool}
        self._sources: dict[str, tuple[str, ...]] = {}
        self._notes: list[str] = []
        self._suspicions: list[str] = []

    def note(self, text: str) -> None:
        """Say what a reader of the figures has to know."""
        self._notes.append(text)

    def suspect(self, text: str) -> None:
        """Say why the figures are not to be relied on."""
        self._suspicions.append(text)

    def take(self, column: Column, path: tuple[str, ...], value: Any, unit: str | None = None) -> None:
        """Fill a column with a value of the file; what is no such value stays blank, and the row is suspect."""
        name = ".".join(path)
        known = _text(value) if column.kind == "text" else self._number(column, name, value, unit)
        if known is not None:
            self.values[column.name] = known
            self._sources[column.name] = path

    def replace(self, name: str, value: Any) -> None:
        """Fill a column with what follows from others, or blank it; what the file says of it is kept as foreign."""
        self._sources.pop(name, None)
        self.values.pop(name, None)
        if value is not None:
            self.values[name] = value

    def row(self, version: Any = None, requests: tuple[RequestRow, ...] = ()) -> ImportRow:
        """The finished row."""
        return ImportRow(
            **self._identity,
            tool_version=_text(version) or "",
            status="suspect" if self._suspicions else "ok",
            notes=(*self._suspicions, *self._notes),
            values=self.values,
            sources=self._sources,
            foreign=self.foreign,
            requests=requests,
        )

    def _number(self, column: Column, name: str, value: Any, unit: str | None) -> float | None:
        if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.suspect(f"{name} is {str(value)[:40]!r} and no number; left blank")
            return None
        unit = column.unit if unit is None else unit
        converted = convert(value, unit, column.unit)
        if converted is None:
            said = f"has unit {unit!r}" if unit else "has no unit"
            self.suspect(f"{name} {said} where {column.unit or 'a count'} was expected; left blank")
            return None
        if not 0 <= converted < (_MAX_WHOLE if column.kind == "whole" else _MAX_NUMBER):
            self.suspect(f"{name} is {value!r}, which it cannot be; left blank")
            return None
        if column.kind == "number":
            return float(converted)
        if converted != int(converted):
            self.suspect(f"{name} is {value!r} and no whole number; left blank")
            return None
        return int(converted)


def _text(value: Any) -> str | None:
    """A text on one line; None where it says nothing."""
    line = " ".join(str(value).split()) if isinstance(value, (str, int, float)) else ""
    return None if line.lower() in _NOTHING else line
