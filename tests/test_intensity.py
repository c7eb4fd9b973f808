"""The published figures of the guidelines, and their errata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cost.intensity import (
    attention_tmem_columns,
    decode_attention_flops,
    decode_attention_intensity_kv_only,
    decode_attention_intensity_with_qo,
    decode_attention_traffic_bytes,
    decode_softmax_operations,
    effective_gemm_m,
    gemm_intensity,
    padded_head_dim,
    prefill_attention_flops_full_matrix,
    prefill_attention_intensity,
    prefill_attention_traffic_bytes,
    prefill_softmax_operations,
)

TOKENS, N = 2048, 8192


def test_the_copied_gemm_snippet_cannot_see_k() -> None:
    """Erratum 1: inputs only, at 4 bytes: 819.2 whatever K is, not the 0.5 and 2.0 printed beside it."""
    assert gemm_intensity(TOKENS, N, 512, 4, 4, 0) == pytest.approx(819.2)
    assert gemm_intensity(TOKENS, N, 8192, 4, 4, 0) == pytest.approx(819.2)


@pytest.mark.parametrize(
    ("k", "bytes_per_value", "expected"),
    [
        (512, (4, 4, 4), 195.0476),
        (8192, (4, 4, 4), 682.6667),
        (512, (1, 1, 2), 442.8108),
        (8192, (1, 1, 2), 2340.5714),
    ],
)
def test_gemm_intensity_with_the_output_counted(k: int, bytes_per_value: tuple[int, int, int], expected: float) -> None:
    assert gemm_intensity(TOKENS, N, k, *bytes_per_value) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("group_size", "expected"), [(8, 15.996), (16, 31.984), (32, 63.938)])
def test_decode_intensity_at_32k_is_not_quite_twice_g(group_size: int, expected: float) -> None:
    """Erratum 3: the printed 16.0, 32.0, 64.0 are rounded."""
    assert decode_attention_intensity_with_qo(group_size, 32768) == pytest.approx(expected, abs=5e-4)


@given(st.integers(1, 128), st.sampled_from([0.5625, 1.0, 2.0]))
def test_kv_only_intensity_is_exactly_two_g_over_b(group_size: int, bytes_per_element: float) -> None:
    assert decode_attention_intensity_kv_only(group_size, bytes_per_element) == 2 * group_size / bytes_per_element


@given(st.integers(1, 64), st.integers(1, 1 << 20), st.integers(1, 64), st.sampled_from([64, 128, 256]))
def test_decode_intensity_is_flops_over_traffic(group_size: int, kvsl: int, kv_heads: int, head_dim: int) -> None:
    flops = decode_attention_flops(3, kv_heads * group_size, kvsl, head_dim)
    traffic = decode_attention_traffic_bytes(3, kv_heads, group_size, kvsl, head_dim)
    assert flops / traffic == pytest.approx(decode_attention_intensity_with_qo(group_size, kvsl))


def test_prefill_hardly_feels_g() -> None:
    """A1p: 8 → 16 gains under 6 % at any ISL."""
    gain = prefill_attention_intensity(8192, 16) / prefill_attention_intensity(8192, 8)
    assert gain == pytest.approx(1.0588, abs=1e-4)
    assert prefill_attention_intensity(4096, 1) == 4096


@given(st.integers(1, 8), st.integers(1, 64), st.integers(1, 16384))
def test_prefill_intensity_is_flops_over_traffic(kv_heads: int, group_size: int, isl: int) -> None:
    flops = prefill_attention_flops_full_matrix(2, kv_heads * group_size, isl, 128)
    traffic = prefill_attention_traffic_bytes(2, kv_heads * group_size, kv_heads, isl, 128)
    assert flops / traffic == pytest.approx(prefill_attention_intensity(isl, group_size))


def test_head_size_rules() -> None:
    """A2: 64 pads to the 128 tile, softmax does not know Hsz, 512 does not fit tensor memory beside its scores."""
    assert [padded_head_dim(size) for size in (64, 96, 128, 192, 256)] == [128, 128, 128, 256, 256]
    assert prefill_softmax_operations(2, 32, 1024) == 2 * 32 * 1024**2
    assert decode_softmax_operations(8, 32, 32768) == 8 * 32 * 32768
    assert attention_tmem_columns(256) <= 512 < attention_tmem_columns(512)


def test_draft_tokens_act_like_g() -> None:
    assert effective_gemm_m(8) == 8
    assert effective_gemm_m(8, draft_len=3) == 32
