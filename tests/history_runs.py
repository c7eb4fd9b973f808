"""Run folders of measured nights, made by hand: what a run on a device leaves, without the device."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.results.record import OpRow, Record, SampleRow, arrow_schema
from harness.results.rows import to_json_row
from harness.results.store import (
    ENVIRONMENT_FILE,
    JOURNAL_FILE,
    OPS_FILE,
    RECORDS_FILE,
    SAMPLES_FILE,
    Attempt,
    write_tables,
)


def a_record(number: int, started: datetime, step_ms: float | None, **changes: Any) -> Record:
    """Decode of case `number`, measured by `torch` on an H200; None where it failed."""
    run_id = started.strftime("%Y%m%dT%H%M%S%fZ")
    facts: dict[str, Any] = {
        "attempt_id": f"{run_id}.{number:06d}.r0",
        "run_id": run_id,
        "case_id": f"{number:016x}",
        "study": "nightly",
        "series": f"variant-{number % 200:03d}",
        "coordinates": json.dumps({"batch": 2 ** (number // 200)}),
        "level": "layer",
        "phase": "decode",
        "started_at": started.isoformat(),
        "status": "ok" if step_ms is not None else "crash",
        "reason": None if step_ms is not None else "ended by SIGSEGV",
        "flags": [],
        "answered_by": "torch",
        "provenance": "measured",
        "answered_with": "torch 2.9.0",
        "harness_version": "0.1.0",
        "step_ms": step_ms,
        "replicate": 0,
        "host": f"node-{number % 4}",
        "device": "NVIDIA H200",
        "gpu_uuid": f"GPU-{number % 4}",
        **_QUESTION,
    }
    return Record(**{**facts, **changes})


_QUESTION: dict[str, Any] = {
    "variant": "dense-8b", "system": "h200_sxm", "layers": 32, "hidden": 4096, "q_heads": 32, "kv_heads": 8,
    "group_size": 4.0, "head_dim": 128, "ffn": 14336, "vocab": 128256, "attention": "full", "window": 0,
    "attention_weights": "bf16", "ffn_weights": "bf16", "kv_format": "bf16", "attn_format": "bf16", "world_size": 1,
    "tp": 1, "pp": 1, "cp": 1, "ep": 1, "attention_dp": False, "batch": 8, "routing": "uniform", "case": "{}",
}  # fmt: skip


def write_run(folder: Path, started: datetime, steps_ms: Sequence[float], *, driver: str) -> None:
    """A night of many cases, quickly: its Parquet table is current, so that nobody opens its journal."""
    rows = [to_json_row(a_record(at, started, None if math.isnan(ms) else float(ms))) for at, ms in enumerate(steps_ms)]
    folder.mkdir(parents=True)
    (folder / JOURNAL_FILE).write_text("\n", encoding="utf-8")
    _environment(folder, started, driver)
    for name, kind, lines in ((RECORDS_FILE, Record, rows), (OPS_FILE, OpRow, []), (SAMPLES_FILE, SampleRow, [])):
        schema = arrow_schema(kind)
        told = {**(schema.metadata or {}), b"journal_bytes": b"1", b"journal_damage": b"[]"}
        pq.write_table(pa.Table.from_pylist(lines, schema).replace_schema_metadata(told), folder / name)


def journal_run(
    folder: Path, records: Sequence[Record], *, started: datetime | None = None, driver: str = "570.10"
) -> Path:
    """A night as the runner writes it: journal, tables, environment."""
    folder.mkdir(parents=True)
    lines = [Attempt(record).to_line() + "\n" for record in records]
    (folder / JOURNAL_FILE).write_text("".join(lines), encoding="utf-8")
    _environment(folder, started or datetime.fromisoformat(records[0].started_at), driver)
    write_tables(folder)
    return folder


def _environment(folder: Path, started: datetime, driver: str) -> None:
    facts = {"started_at": started.isoformat(), "driver": driver}
    (folder / ENVIRONMENT_FILE).write_text(json.dumps(facts), encoding="utf-8")
