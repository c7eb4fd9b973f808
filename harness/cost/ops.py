"""Operations: the spine of every price, memory figure, lint rule and profile.

An op is a kernel with a name and a count. Kernels that compute are in `harness.cost.kernels`, exchanges between ranks
in `harness.cost.collectives`, number formats in `harness.cost.formats`; all can be imported from here. Each kind is a
frozen dataclass that knows its shape on ONE rank and from it its FLOPs and bytes; nothing else in the harness defines
them.

Conventions
    FLOPs     a multiply-add counts as two.
    bytes     what must cross HBM once: weights, activations read and written, and the KV cache apart.
    links     `link_bytes` is what one rank sends to others; 0 for kernels that compute.
    causal    prefill attention counts the lower triangle only (design section 4); the full-matrix figures that the
              published guidelines quote are separate functions in `harness.cost.intensity`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.cost.collectives import (
    AllGather,
    AllReduce,
    Collective,
    ExpertCombine,
    ExpertDispatch,
    HelixAllToAll,
    PointToPoint,
    ReduceScatter,
)
from harness.cost.formats import (
    BYTES_PER_VALUE,
    PEAK_OF_FORMAT,
    AttnFormat,
    GemmFormat,
    KvFormat,
    weight_bytes,
)
from harness.cost.kernels import BatchedGemm, DecodeAttention, Elementwise, Gemm, Moe, PrefillAttention

__all__ = [
    "BYTES_PER_VALUE",
    "PEAK_OF_FORMAT",
    "AllGather",
    "AllReduce",
    "AttnFormat",
    "BatchedGemm",
    "Category",
    "Collective",
    "ComputeKernel",
    "DecodeAttention",
    "Elementwise",
    "ExpertCombine",
    "ExpertDispatch",
    "Gemm",
    "GemmFormat",
    "HelixAllToAll",
    "Kernel",
    "KvFormat",
    "Moe",
    "Op",
    "PointToPoint",
    "PrefillAttention",
    "ReduceScatter",
    "hbm_bytes",
    "weight_bytes",
]

Category = Literal["attention", "projection", "ffn", "moe", "norm", "embedding", "lm_head", "communication"]

#: What one GPU does by itself.
ComputeKernel: TypeAlias = Gemm | BatchedGemm | PrefillAttention | DecodeAttention | Moe | Elementwise
Kernel: TypeAlias = ComputeKernel | Collective


@dataclass(frozen=True, slots=True)
class Op:
    """One kernel of the model with a stable name, run `count` times in a phase of one rank."""

    name: str
    category: Category
    count: int
    kernel: Kernel

    @property
    def flops(self) -> float:
        return self.count * self.kernel.flops

    @property
    def hbm_bytes(self) -> float:
        return self.count * hbm_bytes(self.kernel)


def hbm_bytes(kernel: Kernel) -> float:
    """Weights, activations and KV that one execution moves, in bytes."""
    return kernel.weight_bytes + kernel.activation_bytes + kernel.kv_bytes
