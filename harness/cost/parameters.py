"""How many parameters a variant has, by module group.

Weights and norms of a decoder with RMS norms and without biases, as Hugging Face counts them: Llama 3 8B has
8,030,261,248 and 70B 70,553,706,496. Qwen3's norms of Q and K are no part of a variant, so Qwen3-235B-A22B counts
235,093,610,496, which leaves out 2·128 per layer. Router biases (DeepSeek-V3) are not counted either.
"""

from __future__ import annotations

from harness.spec.variant import Experts, LayerAttention, Mla, Variant


def parameter_count(variant: Variant) -> int:
    """All parameters, embeddings included; tied embeddings count once."""
    return sum(parameter_groups(variant).values())


def parameter_groups(variant: Variant) -> dict[str, int]:
    """Parameters by group: attention, ffn, experts (router and shared expert included), norms, embedding, lm_head."""
    attention = sum(_attention(variant, variant.attention_of(layer)) for layer in range(variant.layers))
    dense = variant.experts.dense_layers if variant.experts else variant.layers
    matrices = 3 if variant.gated_ffn else 2
    sparse = (variant.layers - dense) * _experts(variant.experts, variant.hidden, matrices) if variant.experts else 0
    table = variant.vocab * variant.hidden
    return {
        "attention": attention,
        "ffn": dense * matrices * variant.hidden * variant.ffn,
        "experts": sparse,
        "norms": sum(_norms(variant, variant.attention_of(layer)) for layer in range(variant.layers)) + variant.hidden,
        "embedding": table,
        "lm_head": 0 if variant.tie_embeddings else table,
    }


def _attention(variant: Variant, kind: LayerAttention) -> int:
    if kind == "none":
        return 0
    if kind == "mla" and variant.mla:
        return _mla(variant.mla, variant)
    q_width, kv_width = variant.q_heads * variant.head_dim, variant.kv_heads * variant.head_dim
    return variant.hidden * (2 * q_width + 2 * kv_width)


def _mla(mla: Mla, variant: Variant) -> int:
    """Down and up projections of Q and of the latent, and the output projection (arXiv 2412.19437, 2.1.1)."""
    hidden, heads = variant.hidden, variant.q_heads
    query = heads * (mla.nope_head_dim + mla.rope_head_dim)
    q = mla.q_lora_rank * (hidden + query) if mla.q_lora_rank else hidden * query
    latent = hidden * (mla.kv_lora_rank + mla.rope_head_dim)
    expanded = mla.kv_lora_rank * heads * (mla.nope_head_dim + mla.value_head_dim)
    return q + latent + expanded + heads * mla.value_head_dim * hidden


def _experts(experts: Experts, hidden: int, matrices: int) -> int:
    """One MoE layer: routed experts (always gated), router, shared expert."""
    routed = experts.count * 3 * hidden * experts.inter
    return routed + hidden * experts.count + matrices * hidden * experts.shared_inter


def _norms(variant: Variant, kind: LayerAttention) -> int:
    """Two norms a layer, and MLA's own over its latents."""
    own = (variant.mla.q_lora_rank or 0) + variant.mla.kv_lora_rank if kind == "mla" and variant.mla else 0
    return 2 * variant.hidden + own
