"""What is told of an iteration: a record of statistics, and a line of `print_iter_log`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorrt_llm._double.era import Era
from tensorrt_llm._double.logger import Time
from tensorrt_llm._double.scheduler import Batch

GIB = 1 << 30


@dataclass(frozen=True)
class Done:
    """One iteration of one rank that is over."""

    number: int
    rank: int
    batch: Batch
    padded: int
    """Generations with the dummies that fill up a CUDA graph."""
    query: int
    device_ms: float
    host_ms: float
    latency_ms: float
    lagging_ms: float | None
    """Device time of the row that the version's lag points at."""
    drafted: int
    accepted: int
    completed: int
    blocks: tuple[int, int, int]
    """All blocks, used ones, tokens per block."""
    reused: tuple[int, int]
    """Reused and missed blocks."""
    overlap: bool
    attention_dp: bool
    max_active: int
    memory_bytes: int


def record(done: Done, era: Era, sequence: int, dropped: int, requests: list[dict[str, Any]] | None) -> dict[str, Any]:
    """A record as `get_stats` hands it out."""
    batch, (total, used, size), (reused, missed) = done.batch, done.blocks, done.reused
    found: dict[str, Any] = {
        "timestamp": Time.stamp("%m-%d-%Y %H:%M:%S.%f"),
        "iter": done.number + (era.record_number_ahead if done.overlap else 0),
        "iterLatencyMS": done.latency_ms,
        "newActiveRequestsQueueLatencyMS": 0.05 * batch.fetched,
        "numNewActiveRequests": batch.fetched,
        "numActiveRequests": batch.active,
        "numQueuedRequests": batch.queued,
        "numCompletedRequests": done.completed,
        "maxNumActiveRequests": done.max_active,
        "gpuMemUsage": done.memory_bytes,
        "cpuMemUsage": 0,
        "pinnedMemUsage": 0,
        **{
            f"{name}{kind}": 0
            for name in ("maxBatchSize", "maxNumTokens")
            for kind in ("Static", "TunerRecommended", "Runtime")
        },
        "kvCacheStats": {
            "maxNumBlocks": total,
            "freeNumBlocks": total - used,
            "usedNumBlocks": used,
            "tokensPerBlock": size,
            "allocTotalBlocks": used,
            "allocNewBlocks": used,
            "reusedBlocks": reused,
            "missedBlocks": missed,
            "cacheHitRate": reused / (reused + missed) if reused else 0.0,
        },
        "staticBatchingStats": {
            "numScheduledRequests": 0, "numContextRequests": 0, "numCtxTokens": 0, "numGenTokens": 0,
            "emptyGenSlots": 0,
        },
        "inflightBatchingStats": _inflight(done, era),
        "specDecodingStats": _drafts(done),
        "requestStats": requests,
    }  # fmt: skip
    if era.host_step_time:
        found["hostStepTimeMS"] = done.host_ms
        found["prevDeviceStepTimeMS"] = done.lagging_ms
        found["schedulerMode"] = "overlap" if done.overlap else "non_overlap"
    if era.gpu_forward_time:
        found["gpuForwardTimeMS"] = done.device_ms
    if era.rank_records:
        found["attentionDpRank"] = done.rank if done.attention_dp else None
        found |= {"rank": done.rank, "statsSequence": sequence, "statsDroppedFrames": dropped}
    return _without(found, era.missing_statistics)


def _inflight(done: Done, era: Era) -> dict[str, Any]:
    batch = done.batch
    found: dict[str, Any] = {
        "numScheduledRequests": batch.size,
        "numContextRequests": len(batch.contexts),
        "numGenRequests": len(batch.generations),
        "numPausedRequests": 0,
        "numCtxTokens": batch.context_tokens,
        "microBatchId": 0,
        "avgNumDecodedTokensPerIter": 1.0 + done.accepted / max(1, len(batch.generations)),
    }
    if era.kv_tokens:
        found |= {
            "numCtxKvTokens": batch.context_past,
            "numGenKvTokens": batch.cached,
            "numPausedKvTokens": 0,
            "numQueuedContextRequests": batch.queued,
            "numQueuedCtxTokens": 0,
            "numQueuedGenRequests": 0,
            "numQueuedGenKvTokens": 0,
        }
    return found


def _drafts(done: Done) -> dict[str, Any] | None:
    if done.query == 1:
        return None
    drafting = len(done.batch.generations) if done.drafted else 0
    return {
        "numDraftTokens": done.drafted,
        "numAcceptedTokens": done.accepted,
        "numRequestsWithDraftTokens": drafting,
        "acceptanceLength": (done.accepted + drafting) / drafting if drafting else 0.0,
        "iterLatencyMS": 0.0,
        "draftOverhead": 0.0,
    }


def _without(found: dict[str, Any], missing: str) -> dict[str, Any]:
    for name in filter(None, map(str.strip, missing.split(","))):
        for place in (found, found["inflightBatchingStats"], found["kvCacheStats"]):
            place.pop(name, None)
    return found


def iteration_line(done: Done, era: Era) -> str:
    """The text of a line of `print_iter_log`, without the logger's prefix."""
    batch, rank = done.batch, done.rank
    device = _device(done.lagging_ms, era)
    host = _time(done.host_ms, era)
    active = f"currank_total_requests = {batch.fetched}/{batch.active}"
    times = f"{active}, host_step_time = {host}, prev_device_step_time = {device}"
    stamp = Time.stamp("%Y-%m-%d %H:%M:%S")
    head = f"iter = {done.number}, global_rank = {rank}, rank = {rank}, "
    if era.iter_log == "elapsed":
        elapsed = done.latency_ms / 1000
        return (
            f"{head}{active}, elapsed_time = {elapsed}s, timestamp = {stamp}, "
            f"num_scheduled_requests: {batch.size}, states = {_states(done, era)}"
        )
    if era.iter_log == "classic":
        return (
            f"{head}{times}, timestamp = {stamp}, num_scheduled_requests: {batch.size}, states = {_states(done, era)}"
        )
    total, used, _ = done.blocks
    text = (
        f"{head}num_scheduled_requests = {batch.size}, kv_cache_util = {used / total:.3f}, {times}, "
        f"timestamp = {stamp}, states = {_states(done, era)}"
    )
    if era.iter_log == "extended":
        text += (
            f", num_active = {batch.active}, num_fetched = {batch.fetched}, num_dummy = {batch.dummies}, "
            f"num_unscheduled = {batch.active - batch.size}"
        )
    return text


def _states(done: Done, era: Era) -> dict[str, int]:
    batch = done.batch
    generations = done.padded if era.graph_padding_in_log else len(batch.generations)
    found = {
        "num_ctx_requests": len(batch.contexts),
        "num_ctx_tokens": batch.context_tokens,
        "num_generation_tokens": generations * done.query,
    }
    if era.cached_kv_tokens:
        found["cached_kv_tokens"] = batch.context_past + batch.cached
    return found


def _device(time_ms: float | None, era: Era) -> str:
    if time_ms is None:
        return "N/Ams" if era.iter_log == "classic" else "N/A"
    return _time(time_ms, era)


def _time(time_ms: float, era: Era) -> str:
    per_ms = {"ms": 1.0, "s": 1e-3, "us": 1e3}[era.iter_log_unit]
    return f"{time_ms * per_ms}{era.iter_log_unit}"
