"""Forward passes: which tokens one rank works on at a time, and the ops that every module is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from harness.cost.collectives import AllReduce
from harness.cost.formats import unquantised_bytes
from harness.cost.kernels import Elementwise, Gemm
from harness.cost.ops import Category, GemmFormat, Op
from harness.cost.ranks import RankShape
from harness.spec.variant import Variant, WeightFormat
from harness.spec.workload import Decode, Prefill

#: A checkpoint with one fixed scale per tensor feeds FP8 activations to the GEMM.
GEMM_FORMAT: dict[WeightFormat, GemmFormat] = {
    "bf16": "bf16", "fp8": "fp8_static", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "fp32": "fp32",
}  # fmt: skip


class Pass(NamedTuple):
    """One forward pass over `tokens` tokens of `sequences` sequences on one rank.

    The experts of a stage see `group_tokens`: the tokens of all its ranks under attention DP; without it every rank has
    the same tokens, so these are as many.
    """

    variant: Variant
    workload: Prefill | Decode
    rank: RankShape
    sequences: int
    tokens: int
    group_tokens: int
    chunk: int = 0
    past: int = 0
    last: bool = True

    def gemm(
        self, name: str, category: Category, count: int, n: int, k: int, weights: WeightFormat,
        *, fp8_input: bool = False,
    ) -> Op:  # fmt: skip
        """A projection of this pass's tokens; `fp8_input` where the kernel before can write FP8 for FP8 weights."""
        stored = GEMM_FORMAT[weights]
        return Op(name, category, count, Gemm(self.tokens, n, k, stored, fp8_input and stored == "fp8_static"))

    def elementwise(self, name: str, category: Category, count: int, values_per_token: int) -> Op:
        """`values_per_token` unquantised values in and out; a residual norm reads and writes x and the residual."""
        return Op(name, category, count, Elementwise(self.tokens * values_per_token * self.value_bytes))

    @property
    def value_bytes(self) -> int:
        """Bytes of a value between modules: 2 in bf16, 4 in an fp32 model."""
        return int(unquantised_bytes(self.variant.weights.attention))

    def all_reduce(self, name: str, count: int) -> list[Op]:
        """Add up the ranks' parts of the hidden states; nothing where a rank has the whole."""
        if self.rank.together == 1:
            return []
        return [Op(name, "communication", count, AllReduce(self.tokens * self.variant.hidden, self.rank.together))]


def passes(variant: Variant, workload: Prefill | Decode, rank: RankShape) -> Iterator[Pass]:
    """The passes of one phase: one decode step, or one per chunk, each with the same slice of every prompt."""
    sequences = -(-workload.batch // rank.dp)
    if isinstance(workload, Decode):
        queries = 1 + workload.draft_len
        yield Pass(variant, workload, rank, sequences, sequences * queries, workload.batch * queries)
        return
    chunk = min(workload.chunk or workload.isl, workload.isl)
    for past in range(0, workload.isl, chunk):
        tokens = min(chunk, workload.isl - past)
        last = past + tokens == workload.isl
        yield Pass(
            variant, workload, rank, sequences, sequences * tokens, workload.batch * tokens, tokens, past, last
        )  # fmt: skip
