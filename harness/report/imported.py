"""Rows of foreign reports, with whatever is known of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.report.tables import Column, Table, table, without_empty
from harness.report.values import is_null, number, text

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = (
    ("prefill_compute_ms", "Prefill compute", "ms"), ("step_ms", "Decode step", "ms"), ("ttft_ms", "TTFT", "ms"),
    ("tpot_ms", "TPOT", "ms"), ("request_latency_ms", "Request latency", "ms"),
    ("requests_per_s", "Requests", "1/s"), ("output_tok_per_s", "Output", "tok/s"),
    ("total_tok_per_s", "Total", "tok/s"), ("tok_s_per_gpu", "Throughput", "tok/s/GPU"),
    ("tok_s_per_user", "Speed", "tok/s/user"),
)  # fmt: skip
_FACTS = (
    ("world_size", "GPUs"), ("tp", "TP"), ("pp", "PP"), ("ep", "EP"), ("batch", "Batch"), ("isl", "ISL"),
    ("osl", "OSL"), ("kvsl", "KVSL"), ("concurrency", "Concurrency"), ("requests", "Requests"),
    ("failed_requests", "Failed"), ("kv_format", "KV format"), ("tpot_rule", "TPOT rule"),
)  # fmt: skip
ABOUT = "Taken from reports of other tools as they say it; blank where they do not. Decides nothing and is in no plot."


def imported_table(records: pd.DataFrame, systems: Mapping[str, str]) -> Table:
    """One row for each imported record; `Foreign` holds what no other column does, by the names of the report."""
    columns = [
        Column("Variant"), Column("On"), Column("Phase"), Column("Level"), Column("At"),
        *(Column(title, numeric=True) for _, title in _FACTS),
        *(Column(title, unit, numeric=True) for _, title, unit in _NUMBERS),
        Column("Status"), Column("Flags"), Column("From"), Column("Foreign"), Column("Attempt"),
    ]  # fmt: skip
    mine = records[records["provenance"] == "imported"].to_dict("records")
    return without_empty(table("Imported rows", columns, (_cells(row, systems) for row in mine), ABOUT))


def _cells(row: Mapping[str, Any], systems: Mapping[str, str]) -> list[str]:
    place = json.loads(row["coordinates"])
    status = row["status"] if is_null(row["reason"]) else f"{row['status']}: {row['reason']}"
    return [
        text(row["variant"]),
        systems.get(row["system"], text(row["system"])),
        text(row["phase"]),
        text(row["level"]),
        ", ".join([row["series"], *(f"{name} {text(value)}" for name, value in place.items())]).strip(", "),
        *(text(row.get(name)) for name, _ in _FACTS),
        *(number(row.get(name)) for name, _, _ in _NUMBERS),
        status,
        ", ".join(row["flags"]),
        ", ".join(part for part in (row["answered_by"], row["answered_with"]) if part),
        _foreign(row["foreign"]),
        row["attempt_id"],
    ]


def _foreign(foreign: Any) -> str:
    if not isinstance(foreign, str):
        return ""
    pairs = json.loads(foreign).items()
    return "; ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in pairs)
