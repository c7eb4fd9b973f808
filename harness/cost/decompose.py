"""Take a case apart into the operations of one rank.

Names are stable (`layer.attn.qkv_proj`): records, reports, profiles and verdicts refer to them. RoPE and the KV write have
no op of their own: the fused attention kernel does both (TensorRT-LLM's collector times them together).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

from harness.cost.ops import (
    BatchedGemm,
    Category,
    DecodeAttention,
    Elementwise,
    Gemm,
    GemmFormat,
    Moe,
    Op,
    PrefillAttention,
)
from harness.spec.case import Case
from harness.spec.variant import Experts, LayerAttention, Mla, Variant, WeightFormat
from harness.spec.workload import Decode, Prefill

#: `layer`: the decoder layers alone; `model`: with embedding, final norm and lm_head.
PhaseLevel = Literal["layer", "model"]

#: A checkpoint with one fixed scale per tensor feeds FP8 activations to the GEMM.
_GEMM_FORMAT: dict[WeightFormat, GemmFormat] = {
    "bf16": "bf16", "fp8": "fp8_static", "fp8_block": "fp8_block", "nvfp4": "nvfp4",
}  # fmt: skip

_BF16_BYTES = 2


def decompose(case: Case, level: PhaseLevel = "model") -> list[Op]:
    """Return the ops of one phase of `case` on one GPU, in execution order.

    Raises ValueError for a workload that has no single phase (`serve`) and for more than one GPU.
    """
    if case.parallelism.world_size != 1:
        raise ValueError(f"{case.parallelism.label}: only one GPU can be decomposed")
    workload = case.workload
    if isinstance(workload, Decode):
        passes = [_Pass(case.variant, workload, workload.batch * (1 + workload.draft_len), 0, 0, 1)]
    elif isinstance(workload, Prefill):
        passes = list(_prefill_passes(case.variant, workload))
    else:
        raise ValueError(f"{workload.label}: a served mix has no single phase to decompose")
    return [op for one in passes for op in one.ops(level)]


def _prefill_passes(variant: Variant, workload: Prefill) -> Iterator[_Pass]:
    """One pass per chunk; each takes the same slice of every prompt."""
    chunk = min(workload.chunk or workload.isl, workload.isl)
    for past in range(0, workload.isl, chunk):
        tokens = min(chunk, workload.isl - past)
        yield _Pass(variant, workload, workload.batch * tokens, tokens, past, int(past + tokens == workload.isl))


class _Pass:
    """One forward pass of all layers over `tokens` tokens."""

    def __init__(
        self, variant: Variant, workload: Prefill | Decode, tokens: int, chunk: int, past: int, last: int
    ) -> None:
        self.variant, self.workload, self.tokens = variant, workload, tokens
        self.chunk, self.past, self.last = chunk, past, last

    def ops(self, level: PhaseLevel) -> list[Op]:
        ops = [op for kind in dict.fromkeys(self.variant.attention) for op in self._attention(kind)]
        ops += self._ffn()
        norms = self._elementwise("layer.norms", "norm", 2 * self.variant.layers, 4 * self.variant.hidden)
        if level == "layer":
            return [norms, *ops]
        return [self._embedding(), norms, *ops, *self._head()]

    def _attention(self, kind: LayerAttention) -> list[Op]:
        """Attention of all layers of one kind; `sliding` and `mla` carry their kind in the op's name."""
        variant, layers = self.variant, self.variant.count_layers(kind)
        if kind == "none" or not layers:
            return []
        if kind == "mla":
            return self._mla(cast(Mla, variant.mla), layers)
        name = "layer.attn" if kind == "full" else "layer.attn_sliding"
        width = variant.head_dim
        window = variant.window if kind == "sliding" else 0
        qkv = (variant.q_heads + 2 * variant.kv_heads) * width
        return [
            self._gemm(f"{name}.qkv_proj", "projection", layers, qkv, variant.hidden, variant.weights.attention),
            Op(f"{name}.attention", "attention", layers, self._attention_kernel(window)),
            self._gemm(
                f"{name}.o_proj",
                "projection",
                layers,
                variant.hidden,
                variant.q_heads * width,
                variant.weights.attention,
            ),
        ]

    def _attention_kernel(self, window: int) -> PrefillAttention | DecodeAttention:
        v, w = self.variant, self.workload
        if isinstance(w, Decode):
            return DecodeAttention(
                w.batch, w.kvsl, v.q_heads, v.kv_heads, v.head_dim, v.kv_format, 1 + w.draft_len, window
            )
        return PrefillAttention(
            w.batch, self.chunk, self.past, v.q_heads, v.kv_heads, v.head_dim, v.attn_format, v.kv_format, window
        )

    def _mla(self, mla: Mla, layers: int) -> list[Op]:
        """DeepSeek-V3's attention: prefill at 192/128 dims, decode absorbed into the latent (arXiv 2412.19437, 2.1.1)."""
        v, w, fmt = self.variant, self.workload, self.variant.weights.attention
        query_dim, latent = mla.nope_head_dim + mla.rope_head_dim, mla.kv_lora_rank + mla.rope_head_dim
        name, queries = "layer.attn_mla", v.q_heads * query_dim
        if mla.q_lora_rank:
            down, q_in = mla.q_lora_rank + latent, mla.q_lora_rank
        else:
            down, q_in = latent, v.hidden
        ops = [
            self._gemm(f"{name}.down_proj", "projection", layers, down, v.hidden, fmt),
            self._gemm(f"{name}.q_proj", "projection", layers, queries, q_in, fmt),
        ]
        if isinstance(w, Decode):
            absorb = BatchedGemm(v.q_heads, self.tokens, mla.kv_lora_rank, mla.nope_head_dim)
            expand = BatchedGemm(v.q_heads, self.tokens, mla.value_head_dim, mla.kv_lora_rank)
            core = DecodeAttention(
                w.batch, w.kvsl, v.q_heads, 1, latent, v.kv_format, 1 + w.draft_len, 0, mla.kv_lora_rank, latent=True
            )
            ops += [
                Op(f"{name}.q_absorb", "projection", layers, absorb),
                Op(f"{name}.attention", "attention", layers, core),
                Op(f"{name}.v_expand", "projection", layers, expand),
            ]
        else:
            up = v.q_heads * (mla.nope_head_dim + mla.value_head_dim)
            full = PrefillAttention(
                w.batch, self.chunk, self.past, v.q_heads, v.q_heads, query_dim, v.attn_format, v.kv_format,
                value_dim=mla.value_head_dim,
            )  # fmt: skip
            ops += [
                self._gemm(f"{name}.kv_up_proj", "projection", layers, up, mla.kv_lora_rank, fmt),
                Op(f"{name}.attention", "attention", layers, full),
            ]
        return [*ops, self._gemm(f"{name}.o_proj", "projection", layers, v.hidden, v.q_heads * mla.value_head_dim, fmt)]

    def _ffn(self) -> list[Op]:
        v = self.variant
        dense = v.experts.dense_layers if v.experts else v.layers
        ops = self._dense("layer.ffn", "ffn", dense, v.ffn, v.weights.ffn) if dense else []
        if v.experts and dense < v.layers:
            ops += self._moe(v.experts, v.layers - dense)
        return ops

    def _dense(self, name: str, category: Category, layers: int, inter: int, fmt: WeightFormat) -> list[Op]:
        v, wide = self.variant, 2 if self.variant.gated_ffn else 1
        first = "gate_up" if v.gated_ffn else "up"
        return [
            self._gemm(f"{name}.{first}", category, layers, wide * inter, v.hidden, fmt),
            self._elementwise(f"{name}.activation", category, layers, (wide + 1) * inter),
            self._gemm(f"{name}.down", category, layers, v.hidden, inter, fmt),
        ]

    def _moe(self, experts: Experts, layers: int) -> list[Op]:
        v = self.variant
        kernel = Moe(
            self.tokens, v.hidden, experts.inter, experts.top_k, experts.count,
            _GEMM_FORMAT[v.weights.experts], routing=self.workload.routing,
        )  # fmt: skip
        ops = [
            self._gemm("layer.moe.router", "moe", layers, experts.count, v.hidden, "bf16"),
            Op("layer.moe.experts", "moe", layers, kernel),
        ]
        if experts.shared_inter:
            ops += self._dense("layer.moe.shared", "moe", layers, experts.shared_inter, v.weights.ffn)
        return ops

    def _embedding(self) -> Op:
        return self._elementwise("embedding", "embedding", 1, 2 * self.variant.hidden)

    def _head(self) -> list[Op]:
        """Final norm and lm_head: over every token in decode, over the last token of each prompt in prefill."""
        v, w = self.variant, self.workload
        if isinstance(w, Prefill) and not self.last:
            return []
        rows = w.batch if isinstance(w, Prefill) else self.tokens
        fmt = _GEMM_FORMAT[v.weights.lm_head]
        return [
            Op("final_norm", "norm", 1, Elementwise(rows * 4 * v.hidden * _BF16_BYTES)),
            Op("lm_head", "lm_head", 1, Gemm(rows, v.vocab, v.hidden, fmt)),
        ]

    def _gemm(self, name: str, category: Category, layers: int, n: int, k: int, fmt: WeightFormat) -> Op:
        return Op(name, category, layers, Gemm(self.tokens, n, k, _GEMM_FORMAT[fmt]))

    def _elementwise(self, name: str, category: Category, count: int, values_per_token: int) -> Op:
        """`values_per_token` bf16 values in and out; a residual norm reads and writes both x and the residual."""
        return Op(name, category, count, Elementwise(self.tokens * values_per_token * _BF16_BYTES))
