"""Arithmetic intensities of the co-design guidelines, in FLOP per byte, as published and corrected.

The guidelines count the full attention matrix; `harness.cost.ops` counts the causal half. b is bytes per element.
"""

from __future__ import annotations


def gemm_intensity(m: int, n: int, k: int, a_bytes: float, w_bytes: float, o_bytes: float) -> float:
    """2mnk / (a·mk + w·nk + o·mn).

    A widely copied snippet drops the output and takes FP32 inputs (`o_bytes=0`, both inputs 4): k then cancels, so it
    cannot show what it is quoted for.
    """
    return 2 * m * n * k / (a_bytes * m * k + w_bytes * n * k + o_bytes * m * n)


def prefill_attention_intensity(isl: int, group_size: float, bytes_per_element: float = 1.0) -> float:
    """Full-matrix QKᵀ + PV over Q, K, V and O traffic: 2·ISL / (1 + 1/G) / b."""
    return 2 * isl / (1 + 1 / group_size) / bytes_per_element


def decode_attention_intensity_kv_only(group_size: float, bytes_per_element: float = 1.0) -> float:
    """Decode FLOPs over KV bytes alone: exactly 2·G / b."""
    return 2 * group_size / bytes_per_element


def decode_attention_intensity_with_qo(group_size: float, kvsl: int, bytes_per_element: float = 1.0) -> float:
    """Decode FLOPs over KV, query and output bytes: 2·G·KVSL / (G + KVSL) / b."""
    return 2 * group_size * kvsl / (group_size + kvsl) / bytes_per_element


def prefill_attention_flops_full_matrix(batch: int, q_heads: int, isl: int, head_dim: int) -> float:
    """4·PB·QH·ISL²·Hsz, the whole square; a causal mask needs half of it."""
    return 4.0 * batch * q_heads * isl**2 * head_dim


def prefill_attention_traffic_bytes(
    batch: int, q_heads: int, kv_heads: int, isl: int, head_dim: int, bytes_per_element: float = 1.0
) -> float:
    """Q + O + K + V: 2·b·PB·Hsz·ISL·(QH + KH)."""
    return 2 * bytes_per_element * batch * head_dim * isl * (q_heads + kv_heads)


def decode_attention_flops(batch: int, q_heads: int, kvsl: int, head_dim: int) -> float:
    """4·DB·QH·KVSL·Hsz per query token."""
    return 4.0 * batch * q_heads * kvsl * head_dim


def decode_attention_traffic_bytes(
    batch: int, kv_heads: int, group_size: float, kvsl: int, head_dim: int, bytes_per_element: float = 1.0
) -> float:
    """2·b·DB·KH·Hsz·(G + KVSL)."""
    return 2 * bytes_per_element * batch * kv_heads * head_dim * (group_size + kvsl)


def prefill_softmax_operations(batch: int, q_heads: int, isl: int) -> int:
    """Exponentials of prefill, independent of the head size: PB·QH·ISL²."""
    return batch * q_heads * isl**2


def decode_softmax_operations(batch: int, q_heads: int, kvsl: int) -> int:
    """Exponentials of one decode step: DB·QH·KVSL."""
    return batch * q_heads * kvsl


def effective_gemm_m(group_size: int, draft_len: int = 0) -> int:
    """Rows of the decode attention GEMM: (1 + D)·G (guideline A5)."""
    return (1 + draft_len) * group_size


def padded_head_dim(head_dim: int, tile: int = 128) -> int:
    """Head size after padding to the matmul tile (guideline A2)."""
    return -(-head_dim // tile) * tile


def attention_tmem_columns(head_dim: int, tile: int = 128) -> int:
    """Tensor-memory columns of one 128-row tile: an FP32 output of `head_dim` columns beside one tile of scores.

    A Blackwell SM has 512 (NVIDIA PTX ISA, tcgen05: 128 lanes x 512 columns x 4 bytes), so 512 and above cannot fit.
    """
    return head_dim + tile
