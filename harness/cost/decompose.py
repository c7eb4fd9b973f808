"""Take a case apart into the operations of one rank.

Names are stable (`layer.attn.qkv_proj`): records, reports, profiles and verdicts refer to them. RoPE and the KV write
have no op of their own: the fused attention kernel does both (TensorRT-LLM's collector times them together).

With a pipeline, `decompose` follows one pass through all its stages, so that its times add up to the latency of the
phase; the ops of single stages, and what several passes in flight make of them, are in `harness.cost.pipeline`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from harness.cost.attention_ops import attention_ops
from harness.cost.collectives import AllGather, PointToPoint
from harness.cost.ffn_ops import dense_ops, moe_ops
from harness.cost.kernels import Elementwise, Gemm
from harness.cost.ops import Op
from harness.cost.passes import GEMM_FORMAT, Pass, passes
from harness.cost.ranks import rank_shape
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.variant import LayerAttention, Variant
from harness.spec.workload import Prefill, Serve

#: `layer`: the decoder layers alone; `model`: with embedding, final norm and lm_head.
PhaseLevel = Literal["layer", "model"]


class Section(NamedTuple):
    """Consecutive decoder layers that a rank works through, and what comes before and after them.

    `sends` counts the hand-overs to a next stage: for a whole model one between every two stages.
    """

    first: int
    layers: int
    embeds: bool = True
    heads: bool = True
    sends: int = 0


def decompose(case: Case, level: PhaseLevel = "model") -> list[Op]:
    """Return the ops of one phase of `case` on its slowest rank, through all pipeline stages, in execution order.

    Raises ValueError for a workload that has no single phase (`serve`) and for a split that is impossible.
    """
    whole = Section(0, case.variant.layers, sends=case.parallelism.pp - 1)
    return [op for run in case_passes(case) for op in section_ops(run, case.parallelism, whole, level)]


def case_passes(case: Case) -> Iterator[Pass]:
    """The forward passes of a case on one rank: one for a decode step, one per chunk of a prefill."""
    workload = case.workload
    if isinstance(workload, Serve):
        raise ValueError(f"{workload.label}: a served mix has no single phase to decompose")
    if isinstance(workload, Prefill) and case.parallelism.cp > 1:
        raise ValueError("Helix splits the KV cache in decode only; prefill runs with cp 1")
    return passes(case.variant, workload, rank_shape(case.variant, case.parallelism))


def section_ops(run: Pass, split: Parallelism, section: Section, level: PhaseLevel) -> list[Op]:
    """The ops of one pass through some layers, in execution order."""
    variant, dense = run.variant, _dense_layers(run.variant, section)
    ops: list[Op] = []
    if level == "model" and section.embeds:
        ops += [
            run.elementwise("embedding", "embedding", 1, 2 * variant.hidden),
            *run.all_reduce("embedding.all_reduce", 1),
        ]
    ops.append(run.elementwise("layer.norms", "norm", 2 * section.layers, 4 * variant.hidden))
    for kind in dict.fromkeys(variant.attention):
        ops += attention_ops(run, kind, count_layers(variant, kind, section))
    ops += dense_ops(run, dense)
    if variant.experts:
        ops += moe_ops(run, variant.experts, split, section.layers - dense)
    if section.sends:
        ops.append(_hand_over(run, section.sends))
    if level == "model" and section.heads and run.last:
        ops += _head(run)
    return ops


def count_layers(variant: Variant, kind: LayerAttention, section: Section) -> int:
    """How many layers of a section have this attention kind."""
    if section.layers == variant.layers:
        return variant.count_layers(kind)
    return sum(variant.attention_of(section.first + layer) == kind for layer in range(section.layers))


def _dense_layers(variant: Variant, section: Section) -> int:
    """Layers of a section with a dense FFN: the leading ones of a model with experts, else all."""
    if variant.experts is None:
        return section.layers
    return max(0, min(variant.experts.dense_layers - section.first, section.layers))


def _hand_over(run: Pass, count: int) -> Op:
    """Hidden states and residual, both whole on every rank of a stage, each rank to its peer in the next.

    TensorRT-LLM _torch/models/modeling_utils.py, `forward_before_send`, read 2026-11-30.
    """
    values = 2 * run.tokens * run.variant.hidden
    return Op("pipeline.send", "communication", count, PointToPoint(values, 2 * run.rank.gpus))


def _head(run: Pass) -> list[Op]:
    """Final norm and lm_head: over every token in decode, over the last token of each prompt in prefill."""
    v, rank = run.variant, run.rank
    rows = run.sequences if isinstance(run.workload, Prefill) else run.tokens
    ops = [
        Op("final_norm", "norm", 1, Elementwise(rows * 4 * v.hidden * run.value_bytes)),
        Op("lm_head", "lm_head", 1, Gemm(rows, rank.vocab, v.hidden, GEMM_FORMAT[v.weights.lm_head])),
    ]
    if rank.together > 1:
        gather = AllGather(rows * rank.vocab * rank.together, rank.together)
        ops.append(Op("lm_head.all_gather", "communication", 1, gather))
    return ops
