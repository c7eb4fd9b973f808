from __future__ import annotations

from typing import Any

import pytest

from harness.engines import weights_slices

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("rows", "scale", "asked"),
    [
        (1, (1, 2), [1]),
        (8, (8, 2), [8]),
        (9, (9, 2), [4, 5]),  # what is left is joined to the last slice
        (16, (16, 2), [4, 4, 8]),
        (300, (3, 1, 1, 1), [300]),  # at least two rows of scales, of 128 rows each
        (700, (6, 1, 1, 1), [256, 444]),
        (700, (), [700]),  # one scale of the whole matrix
        (700, (5, 1), [700]),  # scales of something else
    ],
)
def test_rows_are_packed_with_their_scales(
    monkeypatch: pytest.MonkeyPatch, rows: int, scale: tuple[int, ...], asked: list[int]
) -> None:
    import torch

    monkeypatch.setattr(weights_slices, "SLICE_VALUES", 4 * 32)
    weight = torch.arange(rows * 32).reshape(rows, 32)
    scales = torch.arange(float(torch.Size(scale).numel())).reshape(scale)
    seen: list[int] = []

    def whole(part: Any, of_part: Any, algorithm: str) -> Any:
        seen.append(part.shape[0])
        assert algorithm == "nvfp4"
        by_row = of_part.reshape(-1)[: len(of_part)] if of_part.dim() else of_part
        return part[:, ::2] + (by_row.sum() if len(asked) == 1 else 0)

    packed = weights_slices.pack(whole, weight, scales, "nvfp4")
    assert seen == asked
    assert packed.shape == (rows, 16)
    if len(asked) > 1:
        assert packed.equal(weight[:, ::2])
