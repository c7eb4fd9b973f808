"""The import table and its requests as CSV (RFC 4180): units in the titles, blanks where nothing is known."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from harness.results.imports.requests import RequestRow
from harness.results.imports.row import ImportRow

TABLE_FILE = "imports.csv"
REQUESTS_FILE = "requests.csv"


def table_csv(rows: Sequence[ImportRow]) -> str:
    """One row for each file, those that cannot be read too."""
    data = [row.to_data() for row in rows]
    return _csv(list(data[0]), ([_cell(value) for value in one.values()] for one in data))


def requests_csv(rows: Sequence[ImportRow]) -> str:
    """One row for each request of the logs; only a header where there is none."""
    names = [one.name for one in fields(RequestRow)]
    requests = ([row.file, *asdict(one).values()] for row in rows for one in row.requests)
    return _csv(["file", *names], ([_cell(value) for value in one] for one in requests))


def _csv(header: list[str], rows: Iterable[list[str]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return "; ".join(value)
    return repr(value) if isinstance(value, float) else str(value)
