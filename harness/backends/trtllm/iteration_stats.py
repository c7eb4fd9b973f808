"""Iteration statistics of TensorRT-LLM, from `LLM.get_stats()` or a file of `trtllm-bench --iteration_log`.

What a record holds differs between releases; the same things always have the same name, and what a release does not say
stays None. Names and units: NVIDIA/TensorRT-LLM, the statistics that the PyTorch executor makes of each iteration
(PR 14127 added `hostStepTimeMS`, `prevDeviceStepTimeMS` and `schedulerMode` in May 2026, later releases
`gpuForwardTimeMS`), and tensorrt_llm/bench/benchmark/utils/processes.py at 205f8c2 for the file.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.backends.trtllm.iterations import Iteration
from harness.errors import UnreadableInput

#: The scheduler's modes and whether iterations overlap in them.
_OVERLAP = {"overlap": True, "non_overlap": False}


def parse_stats(records: Iterable[Mapping[str, Any]], where: str, *, overlap: bool | None = None) -> list[Iteration]:
    """Return one iteration per record.

    `overlap` is what the settings say of the scheduler, for releases whose records do not. Raises UnreadableInput,
    naming `where` and the record, where a figure that is needed is missing or no number.
    """
    return [_iteration(record, f"{where}: record {number}", overlap) for number, record in enumerate(records, 1)]


def read_iteration_file(path: Path) -> list[Iteration]:
    """Return the iterations in a file of `--iteration_log`, whose lines are Python literals or JSON.

    Raises UnreadableInput naming file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableInput(f"{path}: {error}") from None
    return [_iteration(record, where, None) for where, record in _records(path, text)]


def _records(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            yield where, json.loads(line)
        except (ValueError, RecursionError):
            # Written by formatting a dict: single quotes, None and True are no JSON.
            try:
                yield where, ast.literal_eval(line.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                shown = line.strip()[:80]
                raise UnreadableInput(f"{where}: neither JSON nor a Python literal: {shown!r}") from None


def _iteration(record: Any, where: str, overlap: bool | None) -> Iteration:
    if not isinstance(record, Mapping):
        raise UnreadableInput(f"{where}: not a record of an iteration: {str(record)[:80]!r}")
    batch, cache = _part(record, "inflightBatchingStats", where), _part(record, "kvCacheStats", where)
    drafts = _part(record, "specDecodingStats", where)
    return Iteration(
        number=_count(record, "iter", where),
        rank=_count(record, "rank", where, _count(record, "attentionDpRank", where, 0)),
        contexts=_count(batch, "numContextRequests", where),
        generations=_count(batch, "numGenRequests", where),
        context_tokens=_count(batch, "numCtxTokens", where, None),
        cached_kv_tokens=_count(batch, "numGenKvTokens", where, None),
        completed=_count(record, "numCompletedRequests", where, None),
        reused_blocks=_count(cache, "reusedBlocks", where, None),
        accepted_tokens=_count(drafts, "numAcceptedTokens", where, None),
        drafted_tokens=_count(drafts, "numDraftTokens", where, None),
        dropped_records=_count(record, "statsDroppedFrames", where, 0),
        gpu_forward_ms=_time(record, "gpuForwardTimeMS", where),
        previous_device_ms=_time(record, "prevDeviceStepTimeMS", where),
        latency_ms=_time(record, "iterLatencyMS", where),
        overlap=_OVERLAP.get(str(record.get("schedulerMode")), overlap),
    )


def _part(record: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    part = record.get(name)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        raise UnreadableInput(f"{where}: {name} is {str(part)[:40]!r}, and no group of figures")
    return part


_NEEDED: Any = object()


def _count(record: Mapping[str, Any], name: str, where: str, default: Any = _NEEDED) -> Any:
    """A whole number that is not negative; `default` where it is missing or null."""
    value = record.get(name)
    if value is None:
        if default is _NEEDED:
            raise UnreadableInput(f"{where}: has no {name}; the statistics of this release are of another form")
        return default
    if type(value) is not int or value < 0:
        raise UnreadableInput(f"{where}: {name} is {str(value)[:40]!r}, and no count")
    return value


def _time(record: Mapping[str, Any], name: str, where: str) -> float | None:
    """Milliseconds above zero, or None. Releases write 0 for a time that they did not take."""
    value = record.get(name)
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UnreadableInput(f"{where}: {name} is {str(value)[:40]!r}, and no time in ms")
    return float(value)
