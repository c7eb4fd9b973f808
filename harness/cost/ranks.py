"""What one rank holds of each module, as TensorRT-LLM's PyTorch backend splits them.

    projections     QH/tp query heads, ceil(KH/tp) KV heads: with tp > KH each KV head is held by tp/KH ranks
    Helix (cp)      projections of Q, K and V and the cache's heads as without it; o_proj and the FFN at tp·cp
    FFN             H'/(tp·cp); a shared expert as far as its scale blocks allow, repeated beyond
    experts         slots/ep (or experts/ep) whole experts, each cut moe_tp ways
    attention DP    attention, dense FFN, shared expert, embedding and lm_head whole on each rank
    vocabulary      ceil(V/(tp·cp)) rows of embedding and lm_head

Sources, all NVIDIA/TensorRT-LLM, below `tensorrt_llm/`, read 2026-11-30: `_torch/modules/attention.py` (heads;
`mapping_o` has tp·cp), `_torch/modules/embedding.py` at 06d0733 (vocabulary, attention DP),
`_torch/models/modeling_deepseekv3.py` at 000561d (`_compute_shared_expert_tp_size`),
`_torch/models/modeling_qwen3_moe.py` at 03441af, `mapping.py` at 05ebebb (`pp_layers`; later
`repurpose_helix_cp_to_tp`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from harness.spec.parallelism import Parallelism
from harness.spec.variant import Experts, Variant

#: Values along the summed dimension that share a scale: a shared expert is not cut through them.
SCALE_BLOCK = {"bf16": 1, "fp8": 1, "fp8_block": 128, "nvfp4": 16, "fp32": 1}


class RankShape(NamedTuple):
    """Sizes of every module on one rank of a pipeline stage."""

    gpus: int
    """Ranks of the stage: tp·cp."""
    together: int
    """Ranks that work on the same tokens and add up their parts: tp·cp, 1 under attention DP."""
    dp: int
    """Ranks that each have their own sequences."""
    q_heads: int
    kv_heads: int
    cp: int
    """Ranks over which a sequence's cache is spread (Helix)."""
    o_heads: int
    """Query heads whose outputs this rank's o_proj takes."""
    ffn: int
    shared_inter: int
    vocab: int

    @property
    def group_size(self) -> float:
        """G of this rank: (QH/tp) / ceil(KH/tp)."""
        return self.q_heads / self.kv_heads


def rank_shape(variant: Variant, split: Parallelism) -> RankShape:
    """Return what one rank holds; raise ValueError with a sentence where the split is impossible."""
    if split.world_size > 1 and variant.weights.unquantised == "fp32":
        raise ValueError("an fp32 model is costed on one rank only: exchanges between ranks are counted in bf16")
    if split.pp > 1:
        _check_stages(variant, split)
    if split.stage_gpus == 1:
        if variant.experts:
            _check_experts(variant.experts, split)
        shared = variant.experts.shared_inter if variant.experts else 0
        return RankShape(
            1, 1, 1, variant.q_heads, variant.kv_heads, 1, variant.q_heads, variant.ffn, shared, variant.vocab
        )
    _check(variant, split)
    gpus = split.stage_gpus
    together = 1 if split.attention_dp else gpus
    heads_split = 1 if split.attention_dp else split.tp
    return RankShape(
        gpus=gpus,
        together=together,
        dp=split.dp,
        q_heads=variant.q_heads // heads_split,
        kv_heads=-(-variant.kv_heads // heads_split),
        cp=split.cp,
        o_heads=variant.q_heads // together,
        ffn=variant.ffn // together,
        shared_inter=_shared_inter(variant, together),
        vocab=-(-variant.vocab // together),
    )


def duplicated_kv_heads(variant: Variant, split: Parallelism) -> int:
    """KV heads that tp ranks hold again: ceil(KH/tp)·tp − KH. Under attention DP no two ranks cache a sequence."""
    return 0 if split.attention_dp else -(-variant.kv_heads // split.tp) * split.tp - variant.kv_heads


def _shared_inter(variant: Variant, ways: int) -> int:
    """A shared expert is cut gcd(blocks, ways) ways, and repeated where that is less than `ways`."""
    if variant.experts is None or not variant.experts.shared_inter:
        return 0
    inter, block = variant.experts.shared_inter, SCALE_BLOCK[variant.weights.ffn]
    return inter // math.gcd(max(1, inter // block), ways)


def _check(variant: Variant, split: Parallelism) -> None:
    """Raise ValueError for what TensorRT-LLM cannot split, or what is not known of it."""
    if split.attention_dp and split.cp > 1:
        raise ValueError("attention DP together with Helix is not costed: how its cp ranks share the FFN is not known")
    ways = 1 if split.attention_dp else split.stage_gpus
    named = f"tp·cp {ways}" if split.cp > 1 else f"tp {ways}"
    if variant.q_heads % ways:
        raise ValueError(f"{variant.q_heads} query heads do not divide by {named}; {_divisors(variant.q_heads)} do")
    tp = 1 if split.attention_dp else split.tp
    cached = not {"full", "sliding"}.isdisjoint(variant.attention)
    if cached and variant.kv_heads % tp and tp % variant.kv_heads:
        raise ValueError(
            f"{variant.kv_heads} KV heads and tp {tp}: neither divides the other; {_divisors(variant.kv_heads)} do"
        )
    experts = variant.experts
    dense_layers = experts.dense_layers if experts else variant.layers
    if dense_layers and variant.ffn % ways:
        raise ValueError(f"ffn {variant.ffn} does not divide by {named}")
    if experts:
        _check_experts(experts, split)


def _check_experts(experts: Experts, split: Parallelism) -> None:
    if split.ep * split.expert_tp != split.stage_gpus:
        cut = f" · moe_tp {split.moe_tp}" if split.moe_tp else ""
        raise ValueError(f"ep {split.ep}{cut} does not fill the tp·cp = {split.stage_gpus} ranks of a stage")
    slots = split.slots or experts.count
    if slots < experts.count:
        raise ValueError(f"slots {slots} are fewer than the {experts.count} experts; each needs one at least")
    if slots % split.ep:
        what = "slots" if split.slots else "experts"
        works = -(-slots // split.ep) * split.ep
        raise ValueError(f"{slots} {what} do not divide by ep {split.ep}; slots {works} (EPLB) do")
    if experts.inter % split.expert_tp:
        raise ValueError(f"experts.inter {experts.inter} does not divide by moe_tp {split.expert_tp}")


def _check_stages(variant: Variant, split: Parallelism) -> None:
    parts = split.pp_partition
    if parts is not None and sum(parts) != variant.layers:
        raise ValueError(f"pp_partition adds up to {sum(parts)} layers, but the variant has {variant.layers}")
    if split.pp > variant.layers:
        raise ValueError(f"pp {split.pp} needs a layer per stage, but the variant has {variant.layers}")


def _divisors(number: int) -> str:
    """Ways that work, in words: `1, 2, 4`."""
    return ", ".join(str(ways) for ways in range(1, number + 1) if number % ways == 0)
