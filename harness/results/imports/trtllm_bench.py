"""`trtllm-bench throughput|latency --report_json`: one writer for both, with and without streaming.

Shape and definitions: TensorRT-LLM, `tensorrt_llm/bench/dataclasses/reporting.py` and `statistics.py` (1.2 and 1.3.0rc
line, 2025-2026). `ep_size`, `machine` and the whole `streaming_metrics` may be null or absent.
"""

from __future__ import annotations

from math import isclose
from typing import Any

from harness.results.imports.documents import at
from harness.results.imports.row import Draft, ImportRow
from harness.results.imports.table import COLUMNS, END_MINUS_FIRST

TOOL = "trtllm-bench"

#: What printing with four decimals may hide, and what counting of tokens and time may.
_PRINTED, _COUNTED = 1e-3, 1e-2


def read(file: str, data: dict[str, Any]) -> ImportRow:
    """The row of a report."""
    draft = Draft(file, "trtllm-bench report", TOOL, data)
    for column in COLUMNS:
        if column.bench:
            path = tuple(column.bench.split("."))
            draft.take(column, path, at(data, path), "ms" if column.bench.endswith("_ms") else None)
    complete(draft)
    version = at(data, ("engine", "version"))
    return draft.row(f"TensorRT-LLM {version}" if version else None)


def complete(draft: Draft) -> None:
    """Fill what follows from the figures of a report, and check that these agree with each other."""
    _count_gpus(draft)
    _per_gpu(draft)
    _latencies(draft)
    _totals(draft)


def _count_gpus(draft: Draft) -> None:
    tp, pp, stated = (draft.values.get(name) for name in ("tp", "pp", "gpus"))
    if not tp or not pp:
        return
    if stated is not None and stated != tp * pp:
        draft.suspect(f"world size is {stated} in the file and tp x pp = {tp} x {pp} = {tp * pp}; the latter counts")
    if stated != tp * pp:
        draft.replace("gpus", tp * pp)


def _per_gpu(draft: Draft) -> None:
    values = draft.values
    gpus, output, total = (values.get(name) for name in ("gpus", "output_tok_per_s", "total_tok_per_s"))
    if gpus and total is not None:
        draft.replace("total_tok_per_s_per_gpu", total / gpus)
    if not gpus or output is None:
        return
    stated, right = values.get("output_tok_per_s_per_gpu"), output / gpus
    if stated is None or not isclose(stated, right, rel_tol=_PRINTED):
        draft.replace("output_tok_per_s_per_gpu", right)
    if stated is not None and not isclose(stated, right, rel_tol=_PRINTED):
        draft.suspect(
            f"output is {stated:g} tok/s/GPU in the file and {output:g} / {gpus} GPUs = {right:g}; the latter counts"
        )


def _latencies(draft: Draft) -> None:
    """0 ms is what the tool writes where nothing was timed: TPOT of one token, for example."""
    for name in ("ttft_ms_mean", "tpot_ms_mean", "request_latency_ms_mean", "user_tok_per_s_decode_only"):
        if draft.values.get(name) == 0:
            draft.replace(name, None)
            draft.note(f"{name} is 0 in the file: undefined, left blank")
    if "tpot_ms_mean" in draft.values:
        draft.replace("tpot_rule", END_MINUS_FIRST)
        if "user_tok_per_s_decode_only" not in draft.values:
            draft.replace("user_tok_per_s_decode_only", 1000 / draft.values["tpot_ms_mean"])


def _totals(draft: Draft) -> None:
    """Check requests, tokens and rates against each other."""
    values = draft.values
    requests, duration, rate = (values.get(name) for name in ("requests", "duration_s", "requests_per_s"))
    tokens_in, tokens_out = (values.get(name) for name in ("input_tokens_mean", "output_tokens_mean"))
    if requests is not None and duration and rate is not None:
        _check(draft, "requests_per_s", rate, "requests / duration", requests / duration)
    if rate is not None and tokens_out is not None and "output_tok_per_s" in values:
        _check(draft, "output_tok_per_s", values["output_tok_per_s"], "requests/s x output tokens", rate * tokens_out)
        if tokens_in is not None and "total_tok_per_s" in values:
            both = rate * (tokens_in + tokens_out)
            _check(draft, "total_tok_per_s", values["total_tok_per_s"], "requests/s x tokens", both)
    asked = values.get("osl")
    if tokens_out is None or asked is None or isclose(tokens_out, asked, rel_tol=_COUNTED):
        return
    said = f"{tokens_out:g} output tokens a request came and {asked} were asked"
    if tokens_out <= 1 < asked:
        draft.suspect(f"{said}: nothing was generated after the first token")
    else:
        draft.note(f"{said}; rates are of those that came")


def _check(draft: Draft, name: str, stated: float, how: str, right: float) -> None:
    if not isclose(stated, right, rel_tol=_COUNTED):
        draft.suspect(f"{name} is {stated:g} in the file, but {how} = {right:g}")
