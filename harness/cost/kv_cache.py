"""Bytes of the KV cache on one GPU, for any parallelism.

One rule for all: a full layer keeps ceil(KH/tp) heads of K and V (TensorRT-LLM duplicates heads when tp > KH), a
sliding layer at most `window` tokens of them, an MLA layer one latent of kv_lora_rank + rope_head_dim that tp does not
split, and Helix spreads blocks of `tokens_per_block` tokens over cp ranks. A value takes 4 bytes in fp32, 2 in bf16,
1 in FP8 and 0.5625 in NVFP4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.cost.ops import BYTES_PER_VALUE
from harness.spec.parallelism import Parallelism
from harness.spec.variant import LayerAttention, Variant

#: `KvCacheConfig.tokens_per_block` of TensorRT-LLM 1.2 and later (llmapi/llm_args.py, default).
TOKENS_PER_BLOCK = 32

ONE_GPU = Parallelism()


def kv_bytes_per_token(variant: Variant, parallelism: Parallelism = ONE_GPU, context: int = 1) -> float:
    """Bytes that the next token of a sequence of `context` tokens adds on one GPU, on average over Helix ranks.

    Sliding layers stop growing at their window, so for them the answer depends on `context`.
    """
    layers = _slowest_stage(variant, parallelism)
    growing = (kind for kind in layers if kind != "sliding" or context <= variant.window)
    return sum(_bytes_per_layer_token(variant, kind, parallelism) for kind in growing) / parallelism.cp


def kv_bytes_per_block(
    variant: Variant, parallelism: Parallelism = ONE_GPU, tokens_per_block: int = TOKENS_PER_BLOCK
) -> float:
    """Bytes of one block on the GPU that holds it: `tokens_per_block` tokens of every layer of its stage."""
    layers = _slowest_stage(variant, parallelism)
    return tokens_per_block * sum(_bytes_per_layer_token(variant, kind, parallelism) for kind in layers)


def kv_bytes_per_sequence(
    variant: Variant,
    context: int,
    parallelism: Parallelism = ONE_GPU,
    tokens_per_block: int = TOKENS_PER_BLOCK,
) -> float:
    """Bytes that one sequence of `context` tokens holds on the GPU that holds most of it."""
    kept = tokens_kept(context, parallelism.cp, tokens_per_block)
    recent = tokens_kept(min(context, variant.window), parallelism.cp, tokens_per_block)
    total = 0.0
    for kind in _slowest_stage(variant, parallelism):
        tokens = recent if kind == "sliding" else kept
        total += tokens * _bytes_per_layer_token(variant, kind, parallelism)
    return total


def tokens_kept(context: int, cp: int, tokens_per_block: int = TOKENS_PER_BLOCK) -> int:
    """Tokens of a sequence on the Helix rank that holds most: ceil(blocks/cp) blocks, dealt out one by one."""
    if cp == 1:
        return context
    blocks = -(-context // tokens_per_block)
    return min(-(-blocks // cp) * tokens_per_block, context)


def unique_kv_bytes_per_token(variant: Variant) -> float:
    """Bytes one token needs over all GPUs when nothing is held twice."""
    return kv_bytes_per_token(variant)


def tokens_that_fit(budget_bytes: float, variant: Variant, parallelism: Parallelism = ONE_GPU) -> int:
    """Whole tokens that a KV budget on each GPU holds: floor(budget / bytes a token). MLA and full attention only."""
    return math.floor(budget_bytes / kv_bytes_per_token(variant, parallelism))


def stage_sizes(layers: int, pp: int, partition: Sequence[int] | None = None) -> list[int]:
    """Layers per pipeline stage: `partition`, else as even as possible, the first stages one more.

    The latter is TensorRT-LLM's rule (mapping.py, `pp_layers`: torch.tensor_split).
    """
    if partition is not None:
        return list(partition)
    whole, rest = divmod(layers, pp)
    return [whole + (stage < rest) for stage in range(pp)]


def _slowest_stage(variant: Variant, parallelism: Parallelism) -> list[LayerAttention]:
    """Attention kinds of the layers in the pipeline stage that caches most per token."""
    first, stages = 0, []
    for size in stage_sizes(variant.layers, parallelism.pp, parallelism.pp_partition):
        stages.append([variant.attention_of(layer) for layer in range(first, first + size)])
        first += size
    return max(stages, key=lambda kinds: sum(_bytes_per_layer_token(variant, kind, parallelism) for kind in kinds))


def _bytes_per_layer_token(variant: Variant, kind: LayerAttention, parallelism: Parallelism) -> float:
    bytes_per_value = BYTES_PER_VALUE[variant.kv_format]
    if kind == "none":
        return 0.0
    if kind == "mla" and variant.mla:
        return (variant.mla.kv_lora_rank + variant.mla.rope_head_dim) * bytes_per_value
    heads = variant.kv_heads if parallelism.attention_dp else math.ceil(variant.kv_heads / parallelism.tp)
    return 2 * heads * variant.head_dim * bytes_per_value
