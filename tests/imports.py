"""What tests of imports share: where the reports lie, and how one is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.results.imports import ImportRow, read_report

HERE = Path(__file__).parent
BENCH_REPORTS = HERE / "cases" / "03-bench-report-normalise"
EVENTS = HERE / "cases" / "05-stream-token-timing" / "events.jsonl"
REPORTS = HERE / "reports"

#: The columns of case 03, by the names that it gives them.
CASE_03 = (
    "gpus", "tp", "pp", "ep", "requests_per_s", "output_tok_per_s", "total_tok_per_s", "output_tok_per_s_per_gpu",
    "total_tok_per_s_per_gpu", "user_tok_per_s_with_prefill", "user_tok_per_s_decode_only", "ttft_ms_mean",
    "tpot_ms_mean", "request_latency_ms_mean", "mean_concurrency", "kv_dtype",
)  # fmt: skip


def read(folder: Path, name: str, content: Any) -> ImportRow:
    """Write a report, as JSON unless it is text, and read it."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_report(path)


def bench_report(name: str = "run_stream") -> dict[str, Any]:
    """A report of case 03, to change."""
    data: dict[str, Any] = json.loads((BENCH_REPORTS / f"{name}.json").read_text())
    return data
