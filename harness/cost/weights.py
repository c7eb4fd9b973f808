"""Bytes of weights on one rank: what the ops of its stage read, all experts it holds, and the embedding.

Sizes after sharding come from the ops themselves, so that a weight is cut in one place only. Router, norms and
embedding stay bf16 (fp32 in an fp32 model), and so does lm_head unless the variant says otherwise: these are what
checkpoints exclude from quantisation. Scales count: FP32 per 128 x 128 block after sharding, FP8 per 16 values and FP32
per tensor for NVFP4. Tied embeddings are one table where first and last stage are the same. MLA keeps its up-projection
and, for absorbed decode, a transposed copy of the keys' half; the values' half is a view (TensorRT-LLM
_torch/modules/attention.py, `k_b_proj_trans`).
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.cost.decompose import Section, count_layers, section_ops
from harness.cost.formats import BYTES_PER_VALUE, weight_bytes
from harness.cost.kernels import Gemm, Moe
from harness.cost.kv_cache import stage_sizes
from harness.cost.passes import GEMM_FORMAT, passes
from harness.cost.ranks import RankShape, rank_shape
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Mla, Variant, WeightFormats
from harness.spec.workload import Decode

_GROUP_OF = {"projection": "attention", "ffn": "ffn", "moe": "experts", "lm_head": "lm_head"}


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of weights by module group; `experts` has router and shared expert in it."""

    attention: float = 0.0
    ffn: float = 0.0
    experts: float = 0.0
    norms: float = 0.0
    embedding: float = 0.0
    lm_head: float = 0.0

    @property
    def total_bytes(self) -> float:
        """All groups."""
        return self.attention + self.ffn + self.experts + self.norms + self.embedding + self.lm_head


def stage_weights(variant: Variant, split: Parallelism) -> list[Weights]:
    """Return the weights of one rank of every pipeline stage, first to last; raise ValueError as `rank_shape` does."""
    rank, stages, first = rank_shape(variant, split), [], 0
    sizes = stage_sizes(variant.layers, split.pp, split.pp_partition)
    for index, layers in enumerate(sizes):
        section = Section(first, layers, embeds=index == 0, heads=index == len(sizes) - 1)
        stages.append(_section_weights(variant, split, rank, section))
        first += layers
    return stages


def rank_weights(variant: Variant, split: Parallelism) -> Weights:
    """The weights of the rank that holds most."""
    return max(stage_weights(variant, split), key=lambda stage: stage.total_bytes)


def replicated_weight_bytes(variant: Variant, split: Parallelism) -> float:
    """Bytes that all ranks together hold more than one GPU would: copies of whole modules and heads, and padding."""
    held = split.stage_gpus * sum(stage.total_bytes for stage in stage_weights(variant, split))
    return held - rank_weights(variant, Parallelism()).total_bytes


def _section_weights(variant: Variant, split: Parallelism, rank: RankShape, section: Section) -> Weights:
    [step] = passes(variant, Decode(phase="decode", batch=1, kvsl=1), rank)
    held = dict.fromkeys(("attention", "ffn", "experts", "lm_head"), 0.0)
    for op in section_ops(step, split, section, "model"):
        if isinstance(op.kernel, Gemm | Moe):
            held[_GROUP_OF[op.category]] += op.count * _resident_bytes(op.kernel)
    value_bytes = BYTES_PER_VALUE[variant.weights.unquantised]
    table = value_bytes * rank.vocab * variant.hidden
    norms = variant.hidden * (2 * section.layers + section.heads)
    if variant.mla:
        latents = count_layers(variant, "mla", section)
        held["attention"] += latents * _up_projection(variant.mla, rank, variant.weights)
        norms += latents * ((variant.mla.q_lora_rank or 0) + variant.mla.kv_lora_rank)
    if variant.tie_embeddings and section.embeds and section.heads:
        held["lm_head"] = 0.0
    return Weights(**held, norms=value_bytes * norms, embedding=table if section.embeds else 0.0)


def _resident_bytes(kernel: Gemm | Moe) -> float:
    return kernel.resident_bytes if isinstance(kernel, Moe) else kernel.weight_bytes


def _up_projection(mla: Mla, rank: RankShape, weights: WeightFormats) -> float:
    """kv_b_proj, and the copy of its keys' half: FP8 blocks stay FP8, every other format becomes bf16."""
    up = rank.q_heads * (mla.nope_head_dim + mla.value_head_dim)
    copied = "fp8_block" if weights.attention == "fp8_block" else weights.unquantised
    keys = weight_bytes(rank.q_heads * mla.kv_lora_rank, mla.nope_head_dim, copied)
    return weight_bytes(up, mla.kv_lora_rank, GEMM_FORMAT[weights.attention]) + keys
