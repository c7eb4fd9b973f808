"""Rows of the import table into records; what no column holds stays under its own name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, get_args

from harness.hardware import match_device_name
from harness.results.imports.row import ImportRow
from harness.results.imports.table import COLUMNS
from harness.results.record import Record
from harness.results.store import Attempt
from harness.spec.variant import KvFormat
from harness.version import __version__

#: The study of imported rows.
STUDY = "imported"
#: Model of a report that names none.
NO_MODEL = "not stated"


def attempt_of(row: ImportRow, attempt_id: str, started_at: str) -> Attempt:
    """The attempt of a row that could be read; a suspect one is `ok` with the flag `suspect`."""
    columns: dict[str, Any] = {one.record: row.values.get(one.name) for one in COLUMNS if one.record}
    columns["variant"] = columns["variant"] or NO_MODEL
    columns["kv_format"] = _kv_format(row.values.get("kv_dtype"))
    system = match_device_name(columns["device"]) if columns["device"] else None
    if columns["tpot_ms"]:
        columns["tok_s_per_user"] = 1000 / columns["tpot_ms"]
    foreign = _foreign(row)
    record = Record(
        attempt_id=attempt_id,
        run_id=attempt_id.partition(".")[0],
        case_id=sha256(json.dumps([row.tool, row.foreign, row.values], sort_keys=True).encode()).hexdigest()[:16],
        study=STUDY,
        series="",
        coordinates=json.dumps({"file": row.file}),
        level="serve",
        phase="serve",
        started_at=started_at,
        status="ok",
        flags=["suspect"] if row.status == "suspect" else [],
        answered_by=row.tool,
        provenance="imported",
        answered_with=row.tool_version,
        harness_version=__version__,
        system=system.key if system else None,
        how=json.dumps(_how(row)),
        foreign=json.dumps(foreign) if foreign else None,
        **columns,
    )
    return Attempt(record)


def _kv_format(dtype: str | None) -> str | None:
    """The format of a variant that a report means, where it is spelt alike."""
    return dtype.lower() if dtype and dtype.lower() in get_args(KvFormat) else None


def _how(row: ImportRow) -> dict[str, Any]:
    """The kind of file, what to know of its figures, and what was worked out that no record has a column for."""
    names = [one.name for one in COLUMNS if not one.record and one.name not in row.sources]
    rest = {name: row.values[name] for name in names if name in row.values}
    return {"format": row.format, **({"notes": list(row.notes)} if row.notes else {}), **rest}


def _foreign(row: ImportRow) -> Mapping[str, Any]:
    """What the file says and no column of the record holds."""
    recorded = {one.name for one in COLUMNS if one.record}
    held = {path for name, path in row.sources.items() if name in recorded}
    return _without(row.foreign, held)


def _without(data: Mapping[str, Any], held: set[tuple[str, ...]], above: tuple[str, ...] = ()) -> dict[str, Any]:
    left: dict[str, Any] = {}
    for name, value in data.items():
        path = (*above, name)
        if path in held:
            continue
        if isinstance(value, dict):
            inner = _without(value, held, path)
            if inner or not value:
                left[name] = inner
        else:
            left[name] = value
    return left
