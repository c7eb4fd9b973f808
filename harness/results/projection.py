"""Some columns of a run's records, without its ops, its samples and its journal where the Parquet table is current."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UnreadableInput
from harness.results.record import SCHEMA_VERSION, OpRow, Record, arrow_schema
from harness.results.rows import to_json_row
from harness.results.store import (
    JOURNAL_BYTES,
    JOURNAL_DAMAGE,
    JOURNAL_FILE,
    OPS_FILE,
    RECORDS_FILE,
    LaterRelease,
    latest_attempts,
    read_attempts,
)

if TYPE_CHECKING:
    import pyarrow as pa


def read_columns(folder: Path, columns: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Return these columns of a run folder's records, the last attempt of each, and what of it could not be read.

    Raises UnreadableInput where the folder has no journal, LaterRelease where a later release wrote it.
    """
    return _read(folder, RECORDS_FILE, Record, columns)


def read_op_columns(folder: Path, columns: Sequence[str]) -> pa.Table:
    """Return these columns of a run folder's ops, as `read_columns` does."""
    return _read(folder, OPS_FILE, OpRow, columns)[0]


def _read(folder: Path, name: str, kind: type[Record | OpRow], columns: Sequence[str]) -> tuple[pa.Table, list[str]]:
    import pyarrow as pa

    journal = folder / JOURNAL_FILE
    if not journal.is_file():
        raise UnreadableInput(f"{journal}: is missing; nothing was answered yet, or it was lost")
    found = _current(folder, name, kind, columns)
    if found is not None:
        return found
    attempts, damage = read_attempts(folder)
    latest = latest_attempts(attempts)
    rows = [one.record for one in latest] if kind is Record else [op for one in latest for op in one.ops]
    table = pa.Table.from_pylist([to_json_row(row) for row in rows], arrow_schema(kind))
    return table.select(list(columns)), damage


def _current(
    folder: Path, name: str, kind: type[Record | OpRow], columns: Sequence[str]
) -> tuple[pa.Table, list[str]] | None:
    """Out of the Parquet table; None where it is absent, damaged, older than the journal or of another schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(folder / name, memory_map=False) as file:
            metadata = file.schema_arrow.metadata or {}
            if int(metadata.get(JOURNAL_BYTES, b"-1")) != (folder / JOURNAL_FILE).stat().st_size:
                return None
            if not file.schema_arrow.equals(arrow_schema(kind)):
                return None
            damage = [f"{folder}{os.sep}{text}" for text in json.loads(metadata[JOURNAL_DAMAGE])]
            return file.read(columns=list(columns)).select(list(columns)), damage
    except (OSError, ValueError, LookupError, pa.ArrowException):
        return None  # the journal is the truth


def refuse_later(table: pa.Table, where: str) -> None:
    """Raise LaterRelease where a table of records has a row of a later schema."""
    import pyarrow.compute as pc

    latest = pc.max(table["schema_version"]).as_py() if "schema_version" in table.column_names else None
    if latest is not None and int(latest) > SCHEMA_VERSION:
        raise LaterRelease(
            f"{where}: written by a later release (schema {latest}, this one reads up to {SCHEMA_VERSION})"
        )
