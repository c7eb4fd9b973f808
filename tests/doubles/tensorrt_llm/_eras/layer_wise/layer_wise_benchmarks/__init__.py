"""The layer-wise runner: some layers of a model, without the rest of it."""

from __future__ import annotations

from tensorrt_llm._double.era import era
from tensorrt_llm.tools.layer_wise_benchmarks.runner import BalanceMethod, Runner

__all__ = ["BalanceMethod", "Runner", "mark_ranges"]


def mark_ranges() -> None:
    """Names ranges for a profiler; there is none."""


if era().calibrator:
    from tensorrt_llm.tools.layer_wise_benchmarks.calibrator import get_calibrator

    __all__ += ["get_calibrator"]
