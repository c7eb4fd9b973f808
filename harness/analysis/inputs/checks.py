"""Whether a table of records that somebody may have edited holds what records hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UnreadableInput
from harness.results.store import slot_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Findings that are named; the rest is counted.
_NAMED = 5


def with_whole_versions(table: pa.Table) -> pa.Table:
    """The table with its schema versions as whole numbers, null where one is none: as texts, 10 is before 3."""
    import pyarrow as pa

    if "schema_version" not in table.column_names:
        return table
    cells = table["schema_version"].to_pylist()
    versions = pa.array([int(float(cell)) if _is_whole(cell) else None for cell in cells], pa.int64())
    return table.set_column(table.column_names.index("schema_version"), "schema_version", versions)


def require_records(path: Path, table: pa.Table, numbers: tuple[str, ...]) -> None:
    """Raise UnreadableInput where a record has no id or question, or a cell is not what its column holds.

    Rows and columns are named. `numbers` are columns of finite numbers.
    """
    findings = list(_findings(table, numbers))
    if findings:
        more = [f"{len(findings) - _NAMED:,} more cells are not what records hold"] if len(findings) > _NAMED else []
        raise UnreadableInput("\n".join(f"{path}: {text}" for text in (*findings[:_NAMED], *more)))


def _findings(table: pa.Table, numbers: tuple[str, ...]) -> Iterator[str]:
    needed: dict[str, Callable[[Any], bool]] = {
        "attempt_id": _is_attempt,
        **dict.fromkeys(("case_id", "answered_by", "level", "provenance"), _is_text),
    }
    optional: dict[str, Callable[[Any], bool]] = {
        "status": _is_text,
        "schema_version": _is_whole,
        "replicate": _is_whole,
        "coordinates": _is_json_object,
        "foreign": _is_json_object,
        **dict.fromkeys(numbers, _is_finite),
    }
    for name, fits in {**needed, **optional}.items():
        for row, value in enumerate(table[name].to_pylist() if name in table.column_names else (), 1):
            if _is_blank(value):
                if name in needed:
                    yield f"row {row}: {name} is blank, and every record has one"
            elif not fits(value):
                yield f"row {row}: {name} is {str(value)[:40]!r}, which {_HOLDS[fits]}"


def _is_blank(value: Any) -> bool:
    return value is None or value == "" or value != value  # noqa: PLR0124  # NaN is not itself


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_attempt(value: Any) -> bool:
    try:
        return bool(slot_of(value))
    except (AssertionError, TypeError):
        return False


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _is_whole(value: Any) -> bool:
    return _is_finite(value) and float(value).is_integer()


def _is_json_object(value: Any) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (TypeError, ValueError):
        return False


_HOLDS: dict[Callable[[Any], bool], str] = {
    _is_text: "is no text",
    _is_attempt: "is not run, dot and number, such as 20260301T120000Z.000001.r0",
    _is_finite: "is no number",
    _is_whole: "is no whole number",
    _is_json_object: "is no JSON object",
}
