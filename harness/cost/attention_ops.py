"""Ops of attention: projections, the attention kernel, Helix's exchange, the sum over ranks.

Helix (decode only): every rank projects all its tokens and attends to its share of the cached blocks; an all-to-all
hands each rank the partial outputs of its QH/(tp·cp) heads, one small kernel merges them, and o_proj runs at tp·cp
(TensorRT-LLM docs/source/blogs/tech_blog/blog21 at 8bd6e86; `helix_post_process` in _torch/modules/attention.py).

FP8 o_proj: the attention kernel writes its output in FP8 where the cache is quantised, unless Helix merges outputs
before o_proj (`_use_quantize_output` there, `get_quantize_output_dtype` in _torch/attention_backend/trtllm.py, read
2026-11-30). That MLA's kernels do is not established; there the cast stays.
"""

from __future__ import annotations

from typing import cast

from harness.cost.collectives import HelixAllToAll
from harness.cost.formats import GemmFormat
from harness.cost.kernels import BatchedGemm, DecodeAttention, PrefillAttention
from harness.cost.kv_cache import tokens_kept
from harness.cost.ops import Op
from harness.cost.passes import Pass
from harness.spec.variant import LayerAttention, Mla
from harness.spec.workload import Decode


def attention_ops(run: Pass, kind: LayerAttention, layers: int) -> list[Op]:
    """Attention of `layers` layers of one kind; `sliding` and `mla` carry their kind in the op's name."""
    if kind == "none" or not layers:
        return []
    if kind == "mla":
        return _mla(run, cast(Mla, run.variant.mla), layers)
    variant, rank = run.variant, run.rank
    name = "layer.attn" if kind == "full" else "layer.attn_sliding"
    window = variant.window if kind == "sliding" else 0
    width, weights = variant.head_dim, variant.weights.attention
    qkv = (rank.q_heads + 2 * rank.kv_heads) * width
    return [
        run.gemm(f"{name}.qkv_proj", "projection", layers, qkv, variant.hidden, weights),
        Op(f"{name}.attention", "attention", layers, _kernel(run, window)),
        *_exchange(run, name, layers, width),
        run.gemm(
            f"{name}.o_proj", "projection", layers, variant.hidden, rank.o_heads * width, weights,
            fp8_input=variant.kv_format in {"fp8", "nvfp4"} and rank.cp == 1,
        ),
        *run.all_reduce(f"{name}.all_reduce", layers),
    ]  # fmt: skip


def _kernel(run: Pass, window: int) -> PrefillAttention | DecodeAttention:
    v, w, rank = run.variant, run.workload, run.rank
    if isinstance(w, Decode):
        return DecodeAttention(
            run.sequences,
            tokens_kept(w.kvsl, rank.cp),
            rank.q_heads,
            rank.kv_heads,
            v.head_dim,
            v.kv_format,
            1 + w.draft_len,
            tokens_kept(window, rank.cp),
        )
    return PrefillAttention(
        run.sequences, run.chunk, run.past, rank.q_heads, rank.kv_heads, v.head_dim, v.attn_format, v.kv_format, window
    )


def _exchange(run: Pass, name: str, layers: int, value_dim: int) -> list[Op]:
    """Helix's all-to-all, and the merge: cp partial outputs with their statistics in, one output out."""
    rank = run.rank
    if rank.cp == 1:
        return []
    merged = rank.o_heads * (rank.cp * (value_dim + 4) + value_dim)
    return [
        Op(f"{name}.all_to_all", "communication", layers, HelixAllToAll(run.tokens, rank.q_heads, value_dim, rank.cp)),
        run.elementwise(f"{name}.merge", "attention", layers, merged),
    ]


def _mla(run: Pass, mla: Mla, layers: int) -> list[Op]:
    """DeepSeek-V3's attention: prefill at 192/128 dims, decode absorbed into the latent (arXiv 2412.19437, 2.1.1).

    The down projections are whole on every rank; heads are split, the one latent that is cached is not.
    """
    v, rank, weights = run.variant, run.rank, run.variant.weights.attention
    query_dim, latent = mla.nope_head_dim + mla.rope_head_dim, mla.kv_lora_rank + mla.rope_head_dim
    name = "layer.attn_mla"
    down, q_in = (mla.q_lora_rank + latent, mla.q_lora_rank) if mla.q_lora_rank else (latent, v.hidden)
    core = _absorbed if isinstance(run.workload, Decode) else _expanded
    return [
        run.gemm(f"{name}.down_proj", "projection", layers, down, v.hidden, weights),
        run.gemm(f"{name}.q_proj", "projection", layers, rank.q_heads * query_dim, q_in, weights),
        *core(run, mla, name, layers),
        run.gemm(f"{name}.o_proj", "projection", layers, v.hidden, rank.o_heads * mla.value_head_dim, weights),
        *run.all_reduce(f"{name}.all_reduce", layers),
    ]


def _absorbed(run: Pass, mla: Mla, name: str, layers: int) -> list[Op]:
    v, rank = run.variant, run.rank
    w = cast(Decode, run.workload)
    latent = mla.kv_lora_rank + mla.rope_head_dim
    # FP8 blocks stay FP8, every other format becomes bf16 (TensorRT-LLM _torch/modules/attention.py, `k_b_proj_trans`).
    stored: GemmFormat = "fp8_block" if v.weights.attention == "fp8_block" else v.weights.unquantised
    absorb = BatchedGemm(rank.q_heads, run.tokens, mla.kv_lora_rank, mla.nope_head_dim, stored)
    expand = BatchedGemm(rank.o_heads, run.tokens, mla.value_head_dim, mla.kv_lora_rank, stored)
    attention = DecodeAttention(
        run.sequences, tokens_kept(w.kvsl, rank.cp), rank.q_heads, 1, latent, v.kv_format, 1 + w.draft_len, 0,
        mla.kv_lora_rank, latent=True,
    )  # fmt: skip
    return [
        Op(f"{name}.q_absorb", "projection", layers, absorb),
        Op(f"{name}.attention", "attention", layers, attention),
        *_exchange(run, name, layers, mla.kv_lora_rank),
        Op(f"{name}.v_expand", "projection", layers, expand),
    ]


def _expanded(run: Pass, mla: Mla, name: str, layers: int) -> list[Op]:
    v, heads = run.variant, run.rank.q_heads
    query_dim = mla.nope_head_dim + mla.rope_head_dim
    up = heads * (mla.nope_head_dim + mla.value_head_dim)
    attention = PrefillAttention(
        run.sequences, run.chunk, run.past, heads, heads, query_dim, v.attn_format, v.kv_format,
        value_dim=mla.value_head_dim,
    )  # fmt: skip
    return [
        run.gemm(f"{name}.kv_up_proj", "projection", layers, up, mla.kv_lora_rank, v.weights.attention),
        Op(f"{name}.attention", "attention", layers, attention),
    ]
