"""FLOPs and bytes of single kernels, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cost.ops import (
    BatchedGemm,
    DecodeAttention,
    Elementwise,
    Gemm,
    Kernel,
    Moe,
    PrefillAttention,
    hbm_bytes,
    weight_bytes,
)

GEMM = Gemm(8, 6144, 4096, "bf16")
PREFILL = PrefillAttention(2, 1024, 0, 32, 8, 128, "bf16", "fp8")
DECODE = DecodeAttention(8, 4096, 32, 8, 128, "fp8")
MOE = Moe(64, 4096, 1536, 8, 128, "fp8_static")


def test_gemm() -> None:
    assert GEMM.flops == 2 * 8 * 6144 * 4096
    assert GEMM.weight_bytes == 2 * 6144 * 4096
    assert GEMM.activation_bytes == 2 * 8 * 4096 + 2 * 8 * 6144


def test_dynamic_fp8_reads_bf16_and_static_fp8_reads_fp8() -> None:
    assert Gemm(8, 256, 512, "fp8").activation_bytes - Gemm(8, 256, 512, "fp8_static").activation_bytes == 8 * 512


def test_fp32_takes_and_gives_four_bytes_a_value() -> None:
    gemm = Gemm(8, 6144, 4096, "fp32")
    assert (gemm.weight_bytes, gemm.activation_bytes) == (2 * GEMM.weight_bytes, 2 * GEMM.activation_bytes)
    assert gemm.compute_format == "fp32"
    absorbed = BatchedGemm(128, 64, 512, 128, "fp32")
    assert hbm_bytes(absorbed) == 4 * 128 * (512 * 128 + 64 * (512 + 128))
    prefill, decode = replace(PREFILL, attn_format="fp32", kv_format="fp32"), replace(DECODE, kv_format="fp32")
    assert (prefill.activation_bytes, prefill.kv_bytes) == (2 * PREFILL.activation_bytes, 4 * PREFILL.kv_bytes)
    assert (decode.activation_bytes, decode.kv_bytes) == (2 * DECODE.activation_bytes, 4 * DECODE.kv_bytes)
    assert (prefill.compute_format, decode.compute_format) == ("fp32", "fp32")
    experts = replace(MOE, format="fp32")
    assert experts.activation_bytes == 64 * 8 * 4096 * (4 + 4)
    assert experts.weight_bytes == 4 * MOE.weight_bytes


def test_scales_count() -> None:
    """One FP8 scale per 16 NVFP4 values and one FP32 a tensor; one FP32 per 128 x 128 block, the last ones partial."""
    assert weight_bytes(1024, 512, "nvfp4") == 1024 * 512 / 2 + 1024 * 512 / 16 + 4
    assert weight_bytes(130, 257, "fp8_block") == 130 * 257 + 4 * 2 * 3
    assert weight_bytes(1024, 512, "fp8") == 1024 * 512


def test_prefill_attention_counts_the_causal_half() -> None:
    assert PREFILL.flops == 2 * (4 * 32 * 128 * (1024 * 1024 / 2))
    assert PREFILL.kv_bytes == 2 * 1024 * 2 * 8 * 128
    assert PREFILL.activation_bytes == 2 * 2 * 1024 * (2 * 32 * 128 + 2 * 8 * 128)


def test_a_chunk_sees_what_came_before() -> None:
    chunk = replace(PREFILL, chunk=256, past=512)
    assert chunk.flops == 2 * 4 * 32 * 128 * (256 * 512 + 256**2 / 2)
    assert chunk.kv_bytes == 2 * (256 + 512) * 2 * 8 * 128


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_chunks_add_up_to_one_pass(first: int, second: int) -> None:
    whole = replace(PREFILL, chunk=first + second)
    parts = [replace(PREFILL, chunk=first), replace(PREFILL, chunk=second, past=first)]
    assert sum(part.flops for part in parts) == pytest.approx(whole.flops)


def test_a_window_caps_what_a_token_sees() -> None:
    """Window 4 over 6 tokens: half the 4 x 4 square, then two tokens that see 4 each."""
    assert replace(PREFILL, chunk=6, window=4).pairs == 4 * 4 / 2 + 2 * 4
    assert replace(PREFILL, chunk=6, window=6).pairs == 6 * 6 / 2
    assert replace(DECODE, window=128).flops == DECODE.flops * 128 / 4096
    assert replace(DECODE, window=128).kv_bytes == DECODE.kv_bytes * 128 / 4096


def test_decode_attention_flops_use_query_heads_and_bytes_kv_heads() -> None:
    assert DECODE.flops == 8 * 4 * 32 * 4096 * 128
    assert DECODE.kv_bytes == 8 * 4096 * 2 * 8 * 128
    assert DECODE.group_size == 4
    assert replace(DECODE, query_len=4).flops == 4 * DECODE.flops
    assert replace(DECODE, query_len=4).kv_bytes == DECODE.kv_bytes


def test_absorbed_mla_reads_one_latent() -> None:
    """2·QH·KVSL·(576 + 512) FLOPs; 576 values a token, K and V in one."""
    mla = DecodeAttention(1, 4096, 128, 1, 576, "bf16", value_dim=512, latent=True)
    assert mla.flops == 2 * 128 * 4096 * (576 + 512)
    assert mla.kv_bytes == 4096 * 576 * 2


@pytest.mark.parametrize(("tokens", "experts"), [(1, 8), (8, 52), (64, 126)])
def test_distinct_experts(tokens: int, experts: int) -> None:
    assert round(replace(MOE, tokens=tokens).distinct_experts) == experts


def test_moe() -> None:
    assert MOE.flops == 64 * 8 * 3 * 2 * 4096 * 1536
    assert replace(MOE, ep=8).flops == MOE.flops / 8
    assert MOE.weight_bytes == pytest.approx(MOE.distinct_experts * 3 * 4096 * 1536)


def test_batched_gemm_is_so_many_gemms() -> None:
    one, many = Gemm(8, 512, 128, "bf16"), BatchedGemm(16, 8, 512, 128)
    assert many.flops == 16 * one.flops
    assert hbm_bytes(many) == 16 * hbm_bytes(one)


def test_elementwise_only_moves_bytes() -> None:
    assert Elementwise(1024).flops == 0
    assert hbm_bytes(Elementwise(1024)) == 1024


SIZES: list[tuple[Kernel, tuple[str, ...]]] = [
    (GEMM, ("m", "n", "k")),
    (PREFILL, ("batch", "chunk", "past", "q_heads", "kv_heads", "head_dim")),
    (DECODE, ("batch", "kvsl", "q_heads", "kv_heads", "head_dim", "query_len")),
    (MOE, ("tokens", "hidden", "inter", "top_k")),
]


@given(st.sampled_from([(kernel, size) for kernel, sizes in SIZES for size in sizes]), st.integers(1, 64))
def test_flops_and_bytes_never_fall_as_a_size_grows(asked: tuple[Kernel, str], more: int) -> None:
    kernel, size = asked
    larger = replace(kernel, **{size: getattr(kernel, size) + more})
    assert larger.flops >= kernel.flops
    assert hbm_bytes(larger) >= hbm_bytes(kernel)


@given(st.integers(1, 64), st.sampled_from(["bf16", "fp8", "nvfp4"]))
def test_kv_only_intensity_of_the_kernel_is_two_g_over_b(group_size: int, kv_format: str) -> None:
    kernel = replace(DECODE, q_heads=8 * group_size, kv_format=kv_format)
    stored = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}[kv_format]
    assert kernel.flops / kernel.kv_bytes == pytest.approx(2 * group_size / stored, rel=1e-12)
