"""Kernels that cannot be."""

from __future__ import annotations

import pytest

from harness.cost.ops import (
    AllReduce,
    DecodeAttention,
    Elementwise,
    ExpertDispatch,
    Gemm,
    Kernel,
    Moe,
    PrefillAttention,
    hbm_bytes,
)
from harness.pricing.shapes import LARGEST, impossible


@pytest.mark.parametrize(
    "kernel",
    [
        Gemm(1, 1, 1, "bf16"),
        PrefillAttention(1, 1, 0, 1, 1, 1, "bf16", "bf16", window=0, value_dim=0),
        DecodeAttention(1, 1, 128, 1, 576, "fp8", value_dim=512, latent=True),
        Moe(1, 1, 1, 8, 8, "nvfp4", routing="balanced", slots=0),
        Elementwise(0.0),
        AllReduce(LARGEST, 1),
    ],
)
def test_what_can_be(kernel: Kernel) -> None:
    assert impossible(kernel) == ""


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (Gemm(0, 1, 1, "bf16"), "m must be positive, not 0"),
        (Gemm(1, -8, 1, "bf16"), "n must be positive, not -8"),
        (Gemm(1, 1, 2**63, "bf16"), "k must be at most 9223372036854775807, which is 64 bits, not 2**63 or more"),
        (Moe(10**300, 1, 1, 1, 1, "bf16"), "tokens must be at most 9223372036854775807, which is 64 bits, not 2**996"),
        (AllReduce(-(10**400), 8), "elements must be positive, not -2**1328 or less"),
        (PrefillAttention(1, 1, -1, 1, 1, 1, "bf16", "bf16"), "past must be 0 or more, not -1"),
        (Elementwise(float("inf")), "bytes must be a finite number of at least 0, not inf"),
        (Elementwise(float("nan")), "bytes must be a finite number of at least 0, not nan"),
        (Moe(1, 1, 1, 9, 8, "bf16"), "top_k 9 must be at most the 8 experts there are"),
        (ExpertDispatch(1, 1, 9, 8, 8, "bf16"), "top_k 9 must be at most the 8 experts there are"),
    ],
)
def test_what_cannot_be_says_why(kernel: Kernel, why: str) -> None:
    assert impossible(kernel).startswith(why)


def test_the_largest_sizes_have_finite_costs() -> None:
    most = LARGEST
    for kernel in (
        Gemm(most, most, most, "fp8_block"),
        PrefillAttention(most, most, most, most, most, most, "bf16", "bf16", window=most, value_dim=most),
        DecodeAttention(most, most, most, most, most, "bf16", query_len=most, value_dim=most),
        Moe(most, most, most, most, most, "bf16"),
        ExpertDispatch(most, most, most, most, most, "bf16"),
    ):
        assert kernel.flops < float("inf")
        assert 0 < hbm_bytes(kernel) < float("inf")
