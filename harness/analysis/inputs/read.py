"""Read an input of any known kind. What it is, is told by what is in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis.inputs.checks import require_records, with_whole_versions
from harness.analysis.inputs.columns import NO_OPTIONS, Options
from harness.analysis.inputs.records import FIGURES, RECORD_COLUMNS, from_records, is_records
from harness.analysis.inputs.results import Results
from harness.analysis.inputs.tables import from_table, read_csv, read_parquet
from harness.errors import UnreadableInput, UsageError
from harness.results.imports import attempt_of, read_report
from harness.results.projection import read_columns, refuse_later
from harness.results.record import Record, arrow_schema
from harness.results.rows import to_json_row
from harness.results.store import is_run, read_environment

if TYPE_CHECKING:
    import pyarrow as pa

_PARQUET = b"PAR1"


def read_results(path: str | os.PathLike[str], options: Options = NO_OPTIONS) -> Results:
    """Return the results that a path holds: a run folder, a table as CSV or Parquet, or a report of another tool.

    A run folder's Parquet table is read, and its journal only where the table is older or damaged. Raises UsageError
    where the path names nothing of these or a table's columns contradict each other, UnreadableInput where it is
    damaged, LaterRelease where a later release wrote it.
    """
    found = Path(path)
    if found.is_dir():
        return _of_run(found)
    if not found.exists():
        raise UsageError(f"{found}: no such file or folder")
    try:
        with found.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise UnreadableInput(f"{found}: {error.strerror or error}") from None
    if start.startswith(_PARQUET) or found.suffix == ".parquet":
        return _of_table(found, read_parquet(found), (), options)
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if found.suffix.lower() == ".csv" and not text.startswith((b"{", b"Metric,")):
        return _of_table(found, *read_csv(found), options)
    return _of_report(found)


def _of_run(folder: Path) -> Results:
    if not is_run(folder):
        raise UsageError(
            f"{folder}: holds no run; name a run folder, a CSV or Parquet table, or a report of trtllm-bench"
        )
    records, damage = read_columns(folder, RECORD_COLUMNS)
    return from_records(folder, "run", records, damage, read_environment(folder))


def _of_table(path: Path, table: pa.Table, damage: tuple[str, ...], options: Options) -> Results:
    if not is_records(table.column_names):
        return from_table(path, table, damage, options)
    refuse_later(with_whole_versions(table), str(path))
    require_records(path, table, FIGURES)
    return from_records(path, "table", table, list(damage), {})


def _of_report(path: Path) -> Results:
    import pyarrow as pa

    row = read_report(path)
    if row.status == "unreadable":
        raise UnreadableInput(f"{path}: {'; '.join(row.notes)}")
    record = attempt_of(row, "imported.000000", "").record
    table = pa.Table.from_pylist([to_json_row(record)], arrow_schema(Record))
    return from_records(path, "report", table, [], {})
