"""`request_perf_metrics` of one request."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

from tensorrt_llm._double.scheduler import Request


def perf_metrics(request: Request, tokens_per_block: int) -> SimpleNamespace:
    """Times are points of a steady clock; only their differences mean anything."""
    times = {name: timedelta(milliseconds=time) for name, time in request.times_ms.items()}
    reused = request.reused // tokens_per_block
    drafted = request.drafted
    return SimpleNamespace(
        timing_metrics=SimpleNamespace(
            arrival_time=times["arrival"],
            first_scheduled_time=times["scheduled"],
            first_token_time=times["first"],
            last_token_time=times["last"],
            kv_cache_transfer_start=timedelta(0),
            kv_cache_transfer_end=timedelta(0),
            kv_cache_size=0,
        ),
        kv_cache_metrics=SimpleNamespace(
            num_total_allocated_blocks=request.blocks,
            num_new_allocated_blocks=request.blocks - reused,
            num_reused_blocks=reused,
            num_missed_blocks=request.blocks - reused,
            kv_cache_hit_rate=reused / request.blocks,
        ),
        speculative_decoding=SimpleNamespace(
            acceptance_rate=request.accepted / drafted if drafted else 0.0,
            total_accepted_draft_tokens=request.accepted,
            total_draft_tokens=drafted,
        ),
        first_iter=request.first_iteration,
        last_iter=request.last_iteration,
        iter=request.last_iteration,
    )
