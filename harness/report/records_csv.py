"""Every record as CSV (RFC 4180): all columns of the schema, blanks for nulls, whole numbers without a point."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

from harness.results.record import Record, arrow_schema

if TYPE_CHECKING:
    import pandas as pd


def render_csv(records: pd.DataFrame) -> str:
    """Return the CSV text: one header line, CRLF line ends, quotes where a cell needs them.

    Flags are joined by `;`. Numbers are written so that they read back exactly.
    """
    import pyarrow as pa

    fields = [(field.name, pa.types.is_integer(field.type)) for field in arrow_schema(Record)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(name for name, _ in fields)
    for record in records.to_dict("records"):
        writer.writerow(_cell(record.get(name), whole=whole) for name, whole in fields)
    return text.getvalue()


def _cell(value: Any, *, whole: bool) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "__iter__"):
        return ";".join(map(str, value))
    return str(int(value)) if whole else repr(float(value))
