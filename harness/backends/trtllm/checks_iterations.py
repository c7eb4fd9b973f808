"""Checks of what TensorRT-LLM tells of its iterations. What each is about says `harness/data/trtllm_evidence.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from harness.backends.trtllm.iteration_log import parse_iteration_log
from harness.backends.trtllm.observations import Missing, Observations, check, demand, need
from harness.backends.trtllm.probes import ANSWER, BATCH, GRAPH_BATCH, RING
from harness.backends.trtllm.rows import Iteration


@check
def _lengths_are_fixed(seen: Observations) -> str:
    lengths = [length for call in seen.data("decode")["calls"] for length in call["lengths"]]
    demand(set(lengths) == {ANSWER}, f"asked for {ANSWER} tokens, got {lengths}")
    return f"{len(lengths)} answers of {ANSWER} tokens"


@check
def _records_have_counts(seen: Observations) -> str:
    record = seen.records()[-1]
    missing = [name for name in ("iter", "iterLatencyMS", "numCompletedRequests") if name not in record]
    for part, names in {
        "inflightBatchingStats": ("numContextRequests", "numGenRequests", "numCtxTokens"),
        "kvCacheStats": ("reusedBlocks",),
    }.items():
        missing += [f"{part}.{name}" for name in names if name not in (record.get(part) or {})]
    demand(not missing, f"missing: {', '.join(missing)}")
    return "all are there"


@check
def _reuse_is_off(seen: Observations) -> str:
    reused = max(row.reused_blocks or 0 for row in seen.rows())
    demand(reused == 0, f"{reused} blocks were reused")
    return "no block was reused by the same prompts"


def _times(seen: Observations) -> dict[str, bool]:
    records = seen.records()
    names = ("hostStepTimeMS", "prevDeviceStepTimeMS", "schedulerMode", "gpuForwardTimeMS", "rank")
    return {name: any(record.get(name) is not None for record in records) for name in names}


@check
def _records_have_no_device_time(seen: Observations) -> str:
    there = [name for name, is_there in _times(seen).items() if is_there and name != "rank"]
    demand(not there, f"records have {', '.join(there)}, which are then used instead of the lines")
    return "none is there"


@check
def _records_have_lagging_device_time(seen: Observations) -> str:
    times = _times(seen)
    missing = [name for name in ("hostStepTimeMS", "prevDeviceStepTimeMS", "schedulerMode") if not times[name]]
    demand(not missing, f"missing: {', '.join(missing)}")
    return "all are there"


@check
def _records_have_forward_time(seen: Observations) -> str:
    demand(_times(seen)["gpuForwardTimeMS"], "no record has gpuForwardTimeMS")
    return "it is there"


@check
def _records_have_kv_tokens(seen: Observations) -> str:
    there = any("numGenKvTokens" in (record.get("inflightBatchingStats") or {}) for record in seen.records())
    demand(there, "no record has numGenKvTokens")
    return "it is there"


@check
def _records_name_their_rank(seen: Observations) -> str:
    ranked = _times(seen)["rank"] or any(record.get("attentionDpRank") is not None for record in seen.records())
    demand(ranked, "no record names a rank")
    return "they do"


@check
def _iteration_lines_are_read(seen: Observations) -> str:
    lines = seen.lines()
    need(lines, "there is no line of print_iter_log")
    return f"{len(parse_iteration_log(lines, 'log'))} lines were read"


@check
def _iteration_lines_have_device_time(seen: Observations) -> str:
    known = sum(row.previous_device_ms is not None for row in seen.log_rows())
    demand(known, "no line has prev_device_step_time")
    return f"{known} lines have it"


def _lag(rows: Sequence[Iteration]) -> int:
    """By how many rows the long device times of the last prefill, which may be several iterations, come after it."""
    last = max((index for index, row in enumerate(rows) if row.contexts), default=None)
    if last is None:
        raise Missing("no row has contexts")
    first = last
    while first and rows[first - 1].contexts:
        first -= 1
    times = [row.previous_device_ms or 0.0 for row in rows]
    sums = [sum(times[first + lag : last + 1 + lag]) for lag in range(5)]
    if max(sums) == 0.0:
        raise Missing("no row has a device time")
    return sums.index(max(sums))


@check
def _device_time_lags_by_one(seen: Observations) -> str:
    lag = _lag(seen.log_rows())
    demand(lag == 1, f"the long time of a prefill comes {lag} lines after it")
    return "the long time of a prefill is in the next line"


@check
def _record_lags_by_one(seen: Observations) -> str:
    lag = _lag(seen.rows())
    demand(lag == 1, f"the long time of a prefill comes {lag} records after it")
    return "the long time of a prefill is in the next record"


@check
def _lines_count_graph_padding(seen: Observations) -> str:
    full = [line for line, row in zip(seen.lines(), seen.log_rows(), strict=True) if _is_full(row)]
    if not full:
        raise Missing("no line is of the whole batch alone")
    padded = sum(f"'num_generation_tokens': {GRAPH_BATCH}" in line for line in full)
    demand(padded * 2 > len(full), f"{BATCH} requests in a graph of {GRAPH_BATCH}: {full[-1][-160:]}")
    return f"{BATCH} requests count as {GRAPH_BATCH}"


def _is_full(row: Iteration) -> bool:
    return (row.contexts, row.generations) == (0, BATCH)


@check
def _lines_have_cached_tokens(seen: Observations) -> str:
    known = sum(row.cached_kv_tokens is not None for row in seen.log_rows())
    demand(known, "no line has cached_kv_tokens")
    return f"{known} lines have it"


@check
def _idle_loops_make_no_record(seen: Observations) -> str:
    first, second = (seen.rows(call) for call in (0, 1))
    last = [row for row in first if row.works][-1]
    between = next(row for row in second if row.works).number - last.number - 1
    demand(between > 0, "the numbers go on without a gap from one call to the next")
    return f"{between} numbers without a record between two calls"


@check
def _latency_spans_two_loops(seen: Observations) -> str:
    latencies = [row.latency_ms or 0.0 for row in _steady(seen.rows(1))]
    # Only lines that tell a device time call the time of a loop by its name.
    lines = [row for row in seen.log_rows() if row.previous_device_ms]
    loops = [row.latency_ms or 0.0 for row in _steady(lines)]
    if not latencies or not loops or not median(loops):
        raise Missing("no steady iteration tells its time")
    ratio = median(latencies) / median(loops)
    demand(ratio > 1.5, f"iterLatencyMS is {ratio:.2f} times host_step_time")
    return f"{ratio:.2f} times host_step_time"


def _steady(rows: Iterable[Iteration]) -> list[Iteration]:
    return [row for row in rows if _is_full(row)][5:-2]


@check
def _ring_keeps_the_newest(seen: Observations) -> str:
    data = seen.data("ring")
    numbers = data["numbers"]
    if not numbers:
        raise Missing("get_stats() returned no record")
    demand(len(numbers) <= RING + 1, f"{len(numbers)} records in a ring of {RING}")
    demand(
        numbers[0] > data["iterations"] / 2, f"it kept {numbers[0]} to {numbers[-1]} of {data['iterations']} iterations"
    )
    return f"it kept {numbers[0]} to {numbers[-1]} of {data['iterations']} iterations"
