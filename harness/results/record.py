"""The record: one row per attempt at one case. Failures are rows too.

This module is the contract of every run folder. A column exists only if something writes it; its unit is in its name;
what does not apply is null, never NaN and never 0. Lists of columns live here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

#: Raised with every change of columns; see `docs/records.md` for what each version changed.
SCHEMA_VERSION = 2

Provenance = Literal["measured", "composed", "modelled", "imported", "simulated"]
Status = Literal[
    "ok", "unsupported", "refused", "rejected", "build_failed", "oom", "timeout", "crash", "invalid", "lost", "skipped"
]

#: Who answered → what its numbers are.
PROVENANCE_OF: dict[str, Provenance] = {"tables": "composed", "roofline": "modelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One attempt at one case by one process, or one pricing of it."""

    schema_version: int = SCHEMA_VERSION
    attempt_id: str
    """Unique over all runs: run id and number."""
    run_id: str
    case_id: str
    study: str
    series: str
    coordinates: str
    """JSON object: where the case lies on the axes of its study."""
    level: str
    """What the time is of: `op` (those in `level_ops`), `layer` (decoder layers), `model`."""
    level_ops: str | None = None
    """Names of the ops asked for, at level `op`."""
    phase: str
    started_at: str
    """ISO 8601, UTC."""

    status: Status
    reason: str | None = None
    """Why there is no number, in one sentence."""
    flags: list[str]

    answered_by: str
    """`tables` or `roofline`."""
    provenance: Provenance
    answered_with: str
    """Versions of what answered, for example `aiconfigurator-core 0.12.0, trtllm 1.3.0rc20`."""
    harness_version: str
    worst_source: str | None = None
    """Worst source among ops that hold at least 5 % of the time."""
    source_shares: str | None = None
    """JSON object: source → share of the time, adding up to 1."""

    system: str
    variant: str
    layers: int
    hidden: int
    q_heads: int
    kv_heads: int
    group_size: float
    """Query heads per KV head of the model."""
    head_dim: int
    ffn: int
    vocab: int
    attention: str
    """Layer kinds, the repeating pattern: `full`, `sliding,full`."""
    window: int
    experts: int | None = None
    top_k: int | None = None
    expert_inter: int | None = None
    attention_weights: str
    ffn_weights: str
    expert_weights: str | None = None
    kv_format: str
    attn_format: str

    world_size: int
    tp: int
    pp: int
    cp: int
    ep: int
    moe_tp: int | None = None
    """Ways each expert is cut; null for a dense variant."""
    slots: int | None = None
    """Expert slots under EPLB, copies included; null without it."""
    pp_partition: str | None = None
    """Layers of each pipeline stage, `20+20+21`; null without a pipeline."""
    attention_dp: bool

    batch: int
    isl: int | None = None
    chunk: int | None = None
    kvsl: int | None = None
    draft_len: int | None = None
    accepted: float | None = None
    routing: str

    prefill_compute_ms: float | None = None
    """Composed or modelled prefill is compute only; it is no time to first token."""
    step_ms: float | None = None
    """One generation step of `batch` sequences, through all pipeline stages."""
    tpot_ms: float | None = None
    """step_ms / (1 + accepted); with a pipeline, the period in which `pp_groups` groups yield a token each."""
    ttft_ms: float | None = None
    """Null for priced rows."""
    tok_s_per_gpu: float | None = None
    """Input tokens for prefill, output tokens for decode, per second and GPU; of whole models only, as `tpot_ms` is."""
    tok_s_per_user: float | None = None
    """1000 / tpot_ms; decode only."""
    pp_groups: int | None = None
    """Groups of `batch` sequences that are in flight in the pipeline: pp, or as many as fit; of whole models only."""
    pp_imbalance: float | None = None
    """Slowest stage / mean stage; null without a pipeline."""

    flops: float | None = None
    hbm_bytes: float | None = None
    link_bytes: float | None = None
    """What the slowest rank sends to others; 0 on one GPU."""
    kv_bytes_per_gpu: float | None = None
    roofline_ms: float | None = None
    roofline_bound: str | None = None
    """`compute`, `memory`, `comm` or `launch`: what holds most of the roofline time."""

    case: str
    """The whole case as JSON, enough to run it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One op of an attempt, in execution order."""

    attempt_id: str
    position: int
    op: str
    category: str
    kernel: str
    """The kernel and its shape on one rank, readable."""
    count: int
    time_us: float | None
    """One execution."""
    total_us: float | None
    """count x time_us."""
    source: str | None
    flags: list[str]
    note: str | None
    flops: float
    """One execution."""
    hbm_bytes: float
    """One execution."""
    link_bytes: float = 0.0
    """What one rank sends in one execution."""
    roofline_us: float | None
    roofline_bound: str | None


def column_names(kind: type[Record | OpRow]) -> list[str]:
    """Columns in order."""
    return list(kind.__slots__)


def arrow_schema(kind: type[Record | OpRow]) -> pa.Schema:
    """The Arrow schema of a table of records or ops, derived from the dataclass."""
    import pyarrow as pa

    arrow = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "list[str]": pa.list_(pa.string())}
    columns = []
    for field in fields(kind):
        base, _, null = str(field.type).partition(" | ")
        # What is left is text: str, and the literals Status and Provenance.
        columns.append(pa.field(field.name, arrow.get(base, pa.string()), nullable=bool(null)))
    return pa.schema(columns, metadata={"trtllm_harness_schema": f"{kind.__name__} {SCHEMA_VERSION}"})
