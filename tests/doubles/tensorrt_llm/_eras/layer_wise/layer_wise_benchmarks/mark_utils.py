"""Ranges for a profiler."""

from __future__ import annotations

from tensorrt_llm.tools.layer_wise_benchmarks import mark_ranges

__all__ = ["mark_ranges"]
