"""Every row with a number and its ops, small enough to travel inside the page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from harness.report.glossary import short_name
from harness.report.tables import Column
from harness.report.values import is_null, number, text
from harness.results.metrics import time_column

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    Column("GPU"), Column("Phase"), Column("At"), Column("Level"),
    Column("Prefill compute", "ms", numeric=True), Column("Decode step", "ms", numeric=True),
    Column("Roofline", "ms", numeric=True), Column("Throughput", "tok/s/GPU", numeric=True),
    Column("Sources, share of time", "%"), Column("Flags"), Column("Study"), Column("Variant"), Column("Provenance"),
    Column("Answered with"), Column("Case"), Column("Attempt"),
)  # fmt: skip

#: What is worth a column where rows ran.
_RAN_COLUMNS = (
    Column("Replicate", numeric=True), Column("Samples", numeric=True), Column("Device"), Column("Log"),
)  # fmt: skip

#: Column and whether its cells are numbers of `texts`.
_OP_COLUMNS = (
    (Column("Op"), True), (Column("Times", numeric=True), False),
    (Column("Each", "µs", numeric=True), False), (Column("All", "µs", numeric=True), False),
    (Column("Roofline, each", "µs", numeric=True), False), (Column("Bound"), True), (Column("Source"), True),
    (Column("Flags"), True), (Column("Kernel"), True), (Column("Note"), True),
)  # fmt: skip


def rows_payload(records: pd.DataFrame, ops: pd.DataFrame, systems: Mapping[str, str]) -> dict[str, Any]:
    """What the page's table of rows is made of: columns, rows of texts, ops of each row.

    Texts of ops are stored once, in `texts`; ops refer to them by number.
    """
    ok = records[records["status"] == "ok"]
    texts: dict[str, int] = {}
    taken = ops[ops["attempt_id"].isin(ok["attempt_id"])].sort_values(["attempt_id", "position"], kind="stable")
    by_attempt: dict[str, list[list[Any]]] = {}
    for op in taken.to_dict("records"):
        by_attempt.setdefault(op["attempt_id"], []).append(list(_op_cells(op, texts)))
    more = _RAN_COLUMNS if records["replicate"].notna().any() else ()
    rows = [
        {
            "cells": [*_cells(record, systems), *(_ran_cells(record) if more else [])],
            "ops": by_attempt.get(record["attempt_id"], []),
        }
        for record in ok.to_dict("records")
    ]
    return {
        "columns": [_heading(column) for column in (*_COLUMNS, *more)],
        "rows": rows,
        "opColumns": [{**_heading(column), "coded": coded} for column, coded in _OP_COLUMNS],
        "texts": list(texts),
    }


def _heading(column: Column) -> dict[str, Any]:
    return {"title": column.title, "unit": column.unit, "numeric": column.numeric}


def _cells(record: Mapping[str, Any], systems: Mapping[str, str]) -> list[str]:
    place = json.loads(record["coordinates"])
    time = time_column(record["phase"])
    shares = json.loads(record["source_shares"]) if not is_null(record["source_shares"]) else {}
    at = [record["series"], *(f"{short_name(name)} {text(value)}" for name, value in place.items())]
    return [
        systems.get(record["system"], text(record["system"])),
        record["phase"],
        ", ".join(part for part in at if part),
        record["level"],
        number(record["prefill_compute_ms"]) if time == "prefill_compute_ms" else "",
        number(record["step_ms"]) if time == "step_ms" else "",
        number(record["roofline_ms"]),
        number(record["tok_s_per_gpu"]),
        ", ".join(f"{source} {100 * share:.3g}" for source, share in shares.items()),
        ", ".join(record["flags"]),
        record["study"],
        record["variant"],
        record["provenance"],
        record["answered_with"],
        record["case_id"],
        record["attempt_id"],
    ]


def _ran_cells(record: Mapping[str, Any]) -> list[str]:
    return [text(record[name]) for name in ("replicate", "samples", "device", "log")]


def _op_cells(op: Mapping[str, Any], texts: dict[str, int]) -> Iterator[str | int]:
    def coded(value: Any) -> int:
        return texts.setdefault(text(value), len(texts))

    yield coded(op["op"])
    yield int(op["count"])
    yield number(op["time_us"])
    yield number(op["total_us"])
    yield number(op["roofline_us"])
    yield coded(op["roofline_bound"])
    yield coded(op["source"])
    yield coded(", ".join(op["flags"]))
    yield coded(op["kernel"])
    yield coded(op["note"])
