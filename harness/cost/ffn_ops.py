"""Ops of the FFN: dense layers, routed and shared experts, and what moves tokens to experts and back.

How tokens reach experts depends on attention DP, not on EP (TensorRT-LLM
_torch/modules/fused_moe/communication/communication_factory.py at 03c36d6, `create_strategy`):

    no attention DP        every rank has all tokens already; one AllReduce adds up experts and shared expert
    attention DP, EP only  all-to-all: dispatch to the ranks of the chosen experts, combine on the way back
    attention DP, moe_tp   all-to-all cannot cut experts: AllGather of the tokens, ReduceScatter of the results

FP8 down: SwiGLU writes its output in FP8 (_torch/modules/gated_mlp.py, `_apply_activation`, read 2026-11-30);
activations without a gate do not (mlp.py there).

TensorRT-LLM takes the last way too where no all-to-all backend (NVLink, NCCL EP, DeepEP) works on the machine; which
one does is not known here, so an all-to-all is assumed.
"""

from __future__ import annotations

from harness.cost.collectives import AllGather, ExpertCombine, ExpertDispatch, ReduceScatter
from harness.cost.kernels import Moe
from harness.cost.ops import Category, Op
from harness.cost.passes import GEMM_FORMAT, Pass
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Experts, WeightFormat


def dense_ops(run: Pass, layers: int) -> list[Op]:
    """The FFN of `layers` dense layers."""
    if not layers:
        return []
    ops = _gated(run, "layer.ffn", "ffn", layers, run.rank.ffn, run.variant.weights.ffn)
    return [*ops, *run.all_reduce("layer.ffn.all_reduce", layers)]


def moe_ops(run: Pass, experts: Experts, split: Parallelism, layers: int) -> list[Op]:
    """Router, experts, shared expert and their communication in `layers` layers."""
    if not layers:
        return []
    v, rank = run.variant, run.rank
    stored, slots = GEMM_FORMAT[v.weights.experts], split.slots or 0
    routing: str = run.workload.routing
    kernel = Moe(
        run.group_tokens, v.hidden, experts.inter, experts.top_k, experts.count, stored, split.ep, split.expert_tp,
        f"{routing}_eplb" if slots else routing, slots,
    )  # fmt: skip
    before, after = _communication(run, experts, split, layers) if rank.gpus > 1 else ([], [])
    ops = [
        run.gemm("layer.moe.router", "moe", layers, experts.count, v.hidden, v.weights.unquantised),
        *before,
        Op("layer.moe.experts", "moe", layers, kernel),
    ]
    if experts.shared_inter:
        ops += _gated(run, "layer.moe.shared", "moe", layers, rank.shared_inter, v.weights.ffn)
    return [*ops, *after]


def _communication(run: Pass, experts: Experts, split: Parallelism, layers: int) -> tuple[list[Op], list[Op]]:
    """What precedes and what follows the experts."""
    if not split.attention_dp:
        return [], run.all_reduce("layer.moe.all_reduce", layers)
    hidden, stored = run.variant.hidden, GEMM_FORMAT[run.variant.weights.experts]
    if split.expert_tp > 1:
        values, gpus = run.group_tokens * hidden, run.rank.gpus
        gather, scatter = AllGather(values, gpus, stored), ReduceScatter(values, gpus)
        return [Op("layer.moe.all_gather", "communication", layers, gather)], [
            Op("layer.moe.reduce_scatter", "communication", layers, scatter)
        ]
    shape = (
        run.tokens, hidden, experts.top_k, experts.count, split.ep, stored, split.slots or 0, run.workload.phase,
    )  # fmt: skip
    return [Op("layer.moe.dispatch", "communication", layers, ExpertDispatch(*shape))], [
        Op("layer.moe.combine", "communication", layers, ExpertCombine(*shape))
    ]


def _gated(run: Pass, name: str, category: Category, layers: int, inter: int, weights: WeightFormat) -> list[Op]:
    v, wide = run.variant, 2 if run.variant.gated_ffn else 1
    first = "gate_up" if v.gated_ffn else "up"
    return [
        run.gemm(f"{name}.{first}", category, layers, wide * inter, v.hidden, weights),
        run.elementwise(f"{name}.activation", category, layers, (wide + 1) * inter),
        run.gemm(f"{name}.down", category, layers, v.hidden, inter, weights, fp8_input=v.gated_ffn),
    ]
