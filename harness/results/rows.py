"""Rows to JSON and back: what comes back has every column, and in each a value of its type."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, TypeVar, get_args

from harness.results.record import QUESTION, OpRow, Provenance, Record, SampleRow, Status
from harness.spec.axes import is_scalar

Row = Record | OpRow | SampleRow
RowT = TypeVar("RowT", Record, OpRow, SampleRow)

#: Columns of a record that hold JSON objects, and those that hold one of a few words.
_OBJECTS = ("coordinates", "source_shares", "how", "case", "foreign")
_WORDS = {"status": get_args(Status), "provenance": get_args(Provenance)}

#: Annotation → what JSON gives for it, and below which magnitude a number has to be. NaN is below none.
_TYPES: dict[str, tuple[set[type], float | None]] = {
    "int": ({int}, 2**63),
    "float": ({float, int}, 1e300),
    "bool": ({bool}, None),
    "list": ({list}, None),
}

#: Annotation → the types of what is in the list.
_LISTS: dict[str, set[type]] = {"list[str]": {str}, "list[float]": {float, int}, "list[int]": {int}}


def _columns(kind: type[Row]) -> dict[str, tuple[set[type], float | None]]:
    columns = {}
    for field in fields(kind):
        base, _, null = str(field.type).partition(" | ")
        types, limit = _TYPES.get("list" if base in _LISTS else base, ({str}, None))  # what is left is text
        columns[field.name] = (types | {type(None)} if null else types, limit)
    return columns


_COLUMNS = {kind: _columns(kind) for kind in (Record, OpRow, SampleRow)}
_LIST_COLUMNS = {
    kind: {field.name: _LISTS[str(field.type)] for field in fields(kind) if str(field.type) in _LISTS}
    for kind in (Record, OpRow, SampleRow)
}


def to_json_row(row: Row) -> dict[str, Any]:
    """Plain data for the journal. Rows are flat, so this need not copy as deeply, and as slowly, as `asdict`.

    What a column calls a float is one: sums of bytes are whole numbers, and Arrow takes none beyond 2^53 for a float.
    """
    data = {}
    for name, (types, _) in _COLUMNS[type(row)].items():
        value = getattr(row, name)
        data[name] = float(value) if float in types and value is not None else value
    return data


def from_json_row(kind: type[RowT], data: Any) -> RowT:
    """Return the row that `to_json_row` made `data` of.

    Raises ValueError naming the column that holds something else than its type, TypeError where columns are missing or
    unknown.
    """
    row = kind(**data)
    columns = _COLUMNS[kind]
    for name, value in data.items():
        types, limit = columns[name]
        if type(value) not in types or (limit is not None and value is not None and not -limit < value < limit):
            raise ValueError(f"{name} is {str(value)[:40]!r}")
    for name, wanted in _LIST_COLUMNS[kind].items():
        if not all(type(item) in wanted for item in getattr(row, name)):
            raise ValueError(f"{name} are {str(getattr(row, name))[:40]}")
    if isinstance(row, Record):
        _check_texts(row)
    return row


def _check_texts(record: Record) -> None:
    for name in QUESTION if record.provenance != "imported" else ():
        if getattr(record, name) is None:
            raise ValueError(f"{name} is 'None'")
    for name, words in _WORDS.items():
        if getattr(record, name) not in words:
            raise ValueError(f"{name} is {getattr(record, name)[:40]!r}, and not one of {', '.join(words)}")
    for name in _OBJECTS:
        text = getattr(record, name)
        if text is not None and not isinstance(json.loads(text), dict):
            raise ValueError(f"{name} is {text[:40]!r}, and no JSON object")
    if not all(map(is_scalar, json.loads(record.coordinates).values())):
        raise ValueError(f"coordinates are {record.coordinates[:40]!r}, where each has to be a text or a number")
