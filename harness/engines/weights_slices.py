"""Matrices are packed some rows at a time, so that memory does not grow with the largest of them.

Model Optimizer packs a matrix at once, with values in float32, codes and comparisons side by side: 12 (FP8 blocks) to
14 (NVFP4) bytes for each of its values. A code depends on its own value and on scales that are made before, so that
rows packed by themselves are the same bytes (`to_quantized_weight` in modelopt/torch/export/quant_utils.py, 0.47.0).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from harness.engines.weights_layout import FP8_BLOCK

#: Values that are packed at a time.
SLICE_VALUES = 1 << 22


@contextlib.contextmanager
def packed_in_slices() -> Iterator[None]:
    """Let Model Optimizer's export pack large matrices in slices; where it has no such step, nothing changes."""
    from modelopt.torch.export import unified_export_hf as exporter

    whole = getattr(exporter, "to_quantized_weight", None)
    if whole is None:
        yield
        return
    exporter.to_quantized_weight = partial(pack, whole)
    try:
        yield
    finally:
        exporter.to_quantized_weight = whole


def pack(whole: Callable[..., Any], weight: Any, scale: Any, *others: Any, **named: Any) -> Any:
    """Return what `whole` makes of a weight [out, in] and its block scales, asking it for some rows at a time.

    One call is made for everything without block scales by rows: a scale of the whole matrix, experts in one tensor.
    """
    import torch

    rows_of_scale = _rows_of_scale(weight, scale)
    if not rows_of_scale:
        return whole(weight, scale, *others, **named)
    # Two rows of scales at least: a single one loses its dimension to a `squeeze` on the way.
    step = max(2, SLICE_VALUES // (rows_of_scale * weight.shape[1])) * rows_of_scale
    starts = [*range(0, max(1, weight.shape[0] - step), step)]
    packed = None
    for start, end in zip(starts, [*starts[1:], weight.shape[0]], strict=True):
        scales = scale[start // rows_of_scale : -(-end // rows_of_scale)]
        part = whole(weight[start:end], scales, *others, **named)
        if packed is None:
            packed = torch.empty(weight.shape[0], *part.shape[1:], dtype=part.dtype)
        packed[start:end] = part
    return packed


def _rows_of_scale(weight: Any, scale: Any) -> int:
    """Rows of a matrix that share a row of its block scales; 0 where there are no such."""
    if weight.dim() != 2 or getattr(scale, "dim", int)() < 2:
        return 0
    return next((rows for rows in (1, FP8_BLOCK) if scale.shape[0] == -(-weight.shape[0] // rows)), 0)
