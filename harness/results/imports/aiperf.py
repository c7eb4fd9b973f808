"""Exports of AIPerf: `profile_export_aiperf.json`, its CSV, and the requests of `profile_export.jsonl`.

Shapes: ai-dynamo/aiperf, `docs/reference/json-export-schema.md` (schema 1.0 to 1.5) and
`docs/tutorials/working-with-profile-exports.md`, read in November 2026. A metric is an object with its `unit`, which
alone says what the value is in. In the CSV the unit is in the title. inter_token_latency is (request latency - TTFT) /
(output tokens - 1), by `docs/metrics-reference.md`.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from harness.results.imports.documents import Unreadable, at, json_lines
from harness.results.imports.requests import RequestRow, count_text, mean_of
from harness.results.imports.row import Draft, ImportRow
from harness.results.imports.table import COLUMNS, END_MINUS_FIRST, column, convert

TOOL = "aiperf"

_TITLE = re.compile(r"^(?P<title>.*?)(\s*\((?P<unit>[^()]*)\))?$")

#: Metrics of a request that are read from `profile_export.jsonl`, with the unit that they are needed in.
_OF_A_REQUEST = {
    "output_sequence_length": "tokens", "input_sequence_length": "tokens", "time_to_first_token": "ms",
    "inter_token_latency": "ms", "request_latency": "ms",
}  # fmt: skip


def is_summary(data: Any) -> bool:
    """Whether a JSON document is a `profile_export_aiperf.json`."""
    return any(isinstance(at(data, (tag, "unit")), str) for tag in ("request_latency", "request_throughput"))


def read_json(file: str, data: dict[str, Any]) -> ImportRow:
    """The row of a `profile_export_aiperf.json`."""
    draft = Draft(file, "aiperf summary", TOOL, data)
    for one in COLUMNS:
        path = tuple(one.aiperf.split(".")) if one.aiperf else ()
        found = at(data, path) if path else None
        if isinstance(found, dict):
            draft.take(one, (*path, "avg"), found.get("avg"), str(found.get("unit") or ""))
        elif found is not None:
            draft.take(one, path, found)
    names = at(data, ("input_config", "endpoint", "model_names"))
    if isinstance(names, list) and len(names) == 1:
        draft.take(column("model"), ("input_config", "endpoint", "model_names"), names[0])
    _complete(draft)
    if data.get("was_cancelled") is True:
        draft.suspect("the run was cancelled before its end")
    return draft.row(_version(data.get("aiperf_version")))


def read_csv(file: str, text: str) -> ImportRow:
    """The row of a `profile_export_aiperf.csv`. Raises Unreadable for a metric that is there twice."""
    metrics, others = _csv_metrics(text)
    draft = Draft(file, "aiperf summary csv", TOOL, {**metrics, **({"lines": others} if others else {})})
    by_tag = {_tag(title): title for title in metrics}
    for one in COLUMNS:
        title = by_tag.get(one.aiperf) if one.aiperf else None
        if title is not None:
            stats = metrics[title]
            name = "avg" if "avg" in stats else "Value"
            found = _TITLE.match(title)
            draft.take(one, (title, name), stats.get(name), (found and found["unit"]) or _unit_of_count(one.unit))
    _complete(draft)
    return draft.row()


def read_jsonl(file: str, text: str) -> ImportRow:
    """The row of a `profile_export.jsonl`: means over its requests; rates are in the summary only."""
    rows: list[RequestRow] = []
    inputs: list[float | None] = []
    gaps: list[float] = []
    warmup = 0
    for number, data in json_lines(text):
        if at(data, ("metadata", "benchmark_phase")) == "warmup":
            warmup += 1
            continue
        row, input_tokens = _request(data, number)
        rows.append(row)
        if row.status == "ok":
            inputs.append(input_tokens)
            gaps += _gaps_ms(data, number)
    draft = Draft(file, "aiperf requests", TOOL, {"warmup_requests": warmup} if warmup else {})
    _fill(draft, rows, inputs, gaps)
    _complete(draft)
    return draft.row(requests=tuple(rows))


def _complete(draft: Draft) -> None:
    values = draft.values
    for name in ("ttft_ms_mean", "tpot_ms_mean", "user_tok_per_s_decode_only"):
        if values.get(name) == 0:
            draft.replace(name, None)
            draft.note(f"{name} is 0 in the file: undefined, left blank")
    if "tpot_ms_mean" in values:
        draft.replace("tpot_rule", END_MINUS_FIRST)
        if "user_tok_per_s_decode_only" not in values:
            draft.replace("user_tok_per_s_decode_only", 1000 / values["tpot_ms_mean"])


def _csv_metrics(text: str) -> tuple[dict[str, dict[str, Any]], list[list[str]]]:
    """Title → statistic → value, and rows of other sections, such as those of GPU telemetry."""
    metrics: dict[str, dict[str, Any]] = {}
    others: list[list[str]] = []
    header: list[str] = []
    reader = csv.reader(io.StringIO(text, newline=""))
    for cells in reader:
        if not cells:
            header = []
        elif not header:
            header = cells
            if cells[0] != "Metric":
                others.append(cells)
        elif header[0] != "Metric":
            others.append(cells)
        elif len(cells) != len(header):
            raise Unreadable(f"line {reader.line_num} has {len(cells)} cells where its header has {len(header)}")
        elif cells[0] in metrics:
            raise Unreadable(f"line {reader.line_num} has {cells[0]!r} again")
        else:
            pairs = zip(header[1:], cells[1:], strict=True)
            metrics[cells[0]] = {name: _cell(cell) for name, cell in pairs if cell}
    return metrics, others


def _cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _tag(title: str) -> str:
    """`Time to First Token (ms)` is the metric time_to_first_token."""
    found = _TITLE.match(title)
    name = "_".join((found["title"] if found else title).lower().split())
    return {"total_output_sequence_length": "total_osl"}.get(name, name)


def _unit_of_count(unit: str) -> str:
    """A title without unit is a count; what is measured in something has it there."""
    return "count" if not unit else ""


def _request(data: dict[str, Any], number: int) -> tuple[RequestRow, float | None]:
    """One request and its input tokens."""
    metadata = data.get("metadata")
    name = next(
        (str(at(metadata, (key,))) for key in ("x_request_id", "session_num") if at(metadata, (key,)) is not None),
        f"line {number}",
    )
    error = data.get("error")
    if error is not None or at(metadata, ("was_cancelled",)) is True:
        return RequestRow(request=name, status="failed", note=str(at(error, ("type",)) or "")), None
    figures = {tag: _figure(data, tag, unit, number) for tag, unit in _OF_A_REQUEST.items()}
    tokens, tpot_ms = figures["output_sequence_length"], figures["inter_token_latency"] or None
    row = RequestRow(
        request=name,
        status="ok",
        tokens=None if tokens is None else int(tokens),
        ttft_ms=figures["time_to_first_token"],
        tpot_from_first_token_ms=tpot_ms,
        decode_tok_per_s=1000 / tpot_ms if tpot_ms else None,
        request_latency_ms=figures["request_latency"],
    )
    return row, figures["input_sequence_length"]


def _figure(data: dict[str, Any], tag: str, unit: str, number: int) -> float | None:
    metric = at(data, ("metrics", tag))
    if not isinstance(metric, dict):
        return None
    return _converted(metric.get("value"), metric.get("unit"), unit, f"line {number}: {tag}")


def _converted(value: Any, unit: Any, wanted: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise Unreadable(f"{where} is {str(value)[:40]!r} and no number that it can be")
    converted = convert(value, str(unit or ""), wanted)
    if converted is None:
        raise Unreadable(f"{where} has unit {str(unit)[:40]!r} where {wanted} was expected")
    return converted


def _gaps_ms(data: dict[str, Any], number: int) -> list[float]:
    metric = at(data, ("metrics", "inter_chunk_latency"))
    values = metric.get("value") if isinstance(metric, dict) else None
    if not isinstance(values, list):
        return []
    return [_converted(one, metric["unit"], "ms", f"line {number}: inter_chunk_latency") for one in values]


def _fill(draft: Draft, rows: list[RequestRow], inputs: list[float | None], gaps: list[float]) -> None:
    ok = [row for row in rows if row.status == "ok"]
    timed = any(row.ttft_ms is not None for row in ok)
    failed = [row for row in rows if row.status == "failed"]
    values = {
        "requests": len(ok),
        "failed_requests": len(failed),
        "input_tokens_mean": mean_of(inputs),
        "output_tokens": sum(row.tokens or 0 for row in ok),
        "output_tokens_mean": mean_of([row.tokens for row in ok]),
        "ttft_ms_mean": mean_of([row.ttft_ms for row in ok]),
        "tpot_ms_mean": mean_of([row.tpot_from_first_token_ms for row in ok]),
        "requests_without_tpot": sum(row.tpot_from_first_token_ms is None for row in ok) if timed else None,
        "chunk_gap_ms_mean": mean_of(gaps),
        "chunk_gap_ms_max": max(gaps, default=None),
        "request_latency_ms_mean": mean_of([row.request_latency_ms for row in ok]),
    }
    for name, value in values.items():
        draft.replace(name, value)
    if not ok:
        draft.suspect("no request has figures that count")
    if failed:
        draft.note(count_text(failed, "failed"))


def _version(version: Any) -> str | None:
    return f"aiperf {version}" if isinstance(version, str) and version else None
