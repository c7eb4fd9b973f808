"""Kernels that compute: GEMMs, attention, experts, and what only moves bytes.

Each is a frozen dataclass that knows its shape on ONE rank and from it its FLOPs and bytes. Symbols: m, n, k of a GEMM;
QH, KH query and KV heads of the rank; Hsz head size. `harness.cost.ops` states the conventions.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.cost.formats import (
    BYTES_PER_VALUE,
    PEAK_OF_FORMAT,
    AttnFormat,
    GemmFormat,
    KvFormat,
    unquantised_bytes,
    weight_bytes,
)


@dataclass(frozen=True, slots=True)
class Gemm:
    """(m, k) x (k, n) → (m, n), output in bf16; in fp32 where the weights are.

    `input_cast_fused`, for `fp8_static`: the kernel before writes its output in FP8, so that no cast of a bf16 input
    runs before this one. FLOPs and bytes are those of the GEMM alone in either case.
    """

    m: int
    n: int
    k: int
    format: GemmFormat
    input_cast_fused: bool = False

    @property
    def compute_format(self) -> str:
        return PEAK_OF_FORMAT[self.format]

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def weight_bytes(self) -> float:
        return weight_bytes(self.n, self.k, self.format)

    @property
    def activation_bytes(self) -> float:
        input_bytes = 2.0 if self.format == "fp8" else BYTES_PER_VALUE[self.format]
        return self.m * self.k * input_bytes + unquantised_bytes(self.format) * self.m * self.n

    kv_bytes = 0.0
    link_bytes = 0.0


@dataclass(frozen=True, slots=True)
class BatchedGemm:
    """`batch` independent GEMMs (m, k) x (k, n), one per head: the absorbed projections of MLA decode.

    Activations go in and out as bf16, whatever the weights are; as fp32 where these are.
    """

    batch: int
    m: int
    n: int
    k: int
    format: GemmFormat = "bf16"

    kv_bytes = 0.0
    link_bytes = 0.0

    @property
    def compute_format(self) -> str:
        return PEAK_OF_FORMAT[self.format]

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def weight_bytes(self) -> float:
        return self.batch * weight_bytes(self.n, self.k, self.format)

    @property
    def activation_bytes(self) -> float:
        return unquantised_bytes(self.format) * self.batch * self.m * (self.k + self.n)


@dataclass(frozen=True, slots=True)
class PrefillAttention:
    """Causal attention of `chunk` new tokens after `past` cached ones, per sequence.

    `window` 0 is full attention, else each token sees the last `window` tokens, itself included.
    `head_dim` is the width of Q and K, `value_dim` that of V where it differs (MLA: 192 and 128).
    """

    batch: int
    chunk: int
    past: int
    q_heads: int
    kv_heads: int
    head_dim: int
    attn_format: AttnFormat
    kv_format: KvFormat
    window: int = 0
    value_dim: int = 0

    @property
    def compute_format(self) -> str:
        return self.attn_format

    @property
    def pairs(self) -> float:
        """Query-key pairs per head and sequence: c·p + c²/2, capped by the window."""
        chunk, past, window = self.chunk, self.past, self.window
        full = chunk * past + chunk * chunk / 2
        if not window or past + chunk <= window:
            return full
        ramp = max(0, window - past)  # tokens that still see everything before them
        return ramp * past + ramp * ramp / 2 + (chunk - ramp) * window

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.q_heads * self.pairs * (self.head_dim + (self.value_dim or self.head_dim))

    weight_bytes = 0.0
    link_bytes = 0.0

    @property
    def activation_bytes(self) -> float:
        """Q, K and V come in as bf16 from the projection, the output goes out as bf16; both fp32 in fp32 attention."""
        value_dim = self.value_dim or self.head_dim
        per_token = self.q_heads * (self.head_dim + value_dim) + self.kv_heads * (self.head_dim + value_dim)
        return unquantised_bytes(self.attn_format) * self.batch * self.chunk * per_token

    @property
    def kv_bytes(self) -> float:
        """KV written for the chunk and read back for the part before it."""
        value_dim = self.value_dim or self.head_dim
        seen = self.past if not self.window else min(self.past, self.window)
        per_token = self.kv_heads * (self.head_dim + value_dim) * BYTES_PER_VALUE[self.kv_format]
        return self.batch * (self.chunk + seen) * per_token


@dataclass(frozen=True, slots=True)
class DecodeAttention:
    """`query_len` new tokens (1 + draft) per sequence against `kvsl` cached tokens.

    MLA runs absorbed: `kv_heads` 1, `head_dim` 576 for QK, `value_dim` 512 for PV, and one latent holds both K and V.
    """

    batch: int
    kvsl: int
    q_heads: int
    kv_heads: int
    head_dim: int
    kv_format: KvFormat
    query_len: int = 1
    window: int = 0
    value_dim: int = 0
    latent: bool = False

    @property
    def group_size(self) -> float:
        """G of this rank."""
        return self.q_heads / self.kv_heads

    @property
    def seen(self) -> int:
        """Cached tokens that one query token looks at."""
        return min(self.kvsl, self.window) if self.window else self.kvsl

    @property
    def compute_format(self) -> str:
        return self.kv_format if self.kv_format in {"fp8", "fp32"} else "bf16"

    @property
    def flops(self) -> float:
        width = self.head_dim + (self.value_dim or self.head_dim)
        return 2.0 * self.batch * self.query_len * self.q_heads * self.seen * width

    weight_bytes = 0.0
    link_bytes = 0.0

    @property
    def activation_bytes(self) -> float:
        width = self.head_dim + (self.value_dim or self.head_dim)
        return unquantised_bytes(self.kv_format) * self.batch * self.query_len * self.q_heads * width

    @property
    def kv_bytes(self) -> float:
        per_token = self.head_dim if self.latent else self.head_dim + (self.value_dim or self.head_dim)
        return self.batch * self.seen * self.kv_heads * per_token * BYTES_PER_VALUE[self.kv_format]


@dataclass(frozen=True, slots=True)
class Moe:
    """The expert FFN of one rank: `tokens` of the whole EP group, top `top_k` of `experts`, gated (three matrices).

    Under EPLB there are `slots` of them, copies included, `slots`/ep on each rank; without it `slots` is 0. `routing`
    is the workload's, with `_eplb` behind it under EPLB. FLOPs and bytes are those of balanced routing: a skew gives
    some rank more.
    """

    tokens: int
    hidden: int
    inter: int
    top_k: int
    experts: int
    format: GemmFormat
    ep: int = 1
    tp: int = 1
    routing: str = "balanced"
    slots: int = 0

    @property
    def compute_format(self) -> str:
        return PEAK_OF_FORMAT[self.format]

    @property
    def distinct_experts(self) -> float:
        """Experts, or under EPLB slots, that T tokens touch under balanced routing: E·(1 − (1 − k/E)^T)."""
        held = self.slots or self.experts
        return float(held * (1.0 - (1.0 - min(1.0, self.top_k / held)) ** self.tokens))

    @property
    def expert_bytes(self) -> float:
        """The part of one expert that this rank holds: gate and up as one weight, down, and their scales."""
        inter = self.inter // self.tp
        return weight_bytes(2 * inter, self.hidden, self.format) + weight_bytes(self.hidden, inter, self.format)

    @property
    def resident_bytes(self) -> float:
        """All experts of this rank, read or not."""
        return (self.slots or self.experts) / self.ep * self.expert_bytes

    @property
    def flops(self) -> float:
        return 6.0 * self.tokens * self.top_k * self.hidden * self.inter / (self.ep * self.tp)

    @property
    def weight_bytes(self) -> float:
        """Weights of the distinct experts that this rank holds and reads."""
        return self.distinct_experts / self.ep * self.expert_bytes

    @property
    def activation_bytes(self) -> float:
        """Input and output rows of the tokens routed here."""
        rows = self.tokens * self.top_k / self.ep
        return rows * self.hidden * (BYTES_PER_VALUE[self.format] + unquantised_bytes(self.format))

    kv_bytes = 0.0
    link_bytes = 0.0


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A norm, an activation or a table look-up: `bytes` in and out of HBM, FLOPs beneath notice."""

    bytes: float

    compute_format = "bf16"
    flops = 0.0
    weight_bytes = 0.0
    kv_bytes = 0.0
    link_bytes = 0.0

    @property
    def activation_bytes(self) -> float:
        return self.bytes
