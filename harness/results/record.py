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
SCHEMA_VERSION = 3

Provenance = Literal["measured", "composed", "modelled", "imported", "simulated"]
Status = Literal[
    "ok", "unsupported", "refused", "rejected", "build_failed", "oom", "timeout", "crash", "invalid", "lost", "skipped"
]

#: Pricer → what its numbers are. A backend says itself whether what it ran was real.
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
    """What the time is of: `op` (those in `level_ops`), `layer` (decoder layers), `model`, `serve` (requests)."""
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
    """A pricer (`tables`, `roofline`), a backend (`torch`, `trtllm`), or the tool whose report was imported."""
    provenance: Provenance
    answered_with: str
    """Versions of what answered, for example `aiconfigurator-core 0.12.0, trtllm 1.3.0rc20`."""
    harness_version: str
    worst_source: str | None = None
    """Worst source among ops that hold at least 5 % of the time."""
    source_shares: str | None = None
    """JSON object: source → share of the time, adding up to 1."""

    system: str | None = None
    variant: str
    layers: int | None = None
    """Null, as other facts of the shape, where a foreign report does not say."""
    hidden: int | None = None
    q_heads: int | None = None
    kv_heads: int | None = None
    group_size: float | None = None
    """Query heads per KV head of the model."""
    head_dim: int | None = None
    ffn: int | None = None
    vocab: int | None = None
    attention: str | None = None
    """Layer kinds, the repeating pattern: `full`, `sliding,full`."""
    window: int | None = None
    experts: int | None = None
    top_k: int | None = None
    expert_inter: int | None = None
    attention_weights: str | None = None
    ffn_weights: str | None = None
    expert_weights: str | None = None
    kv_format: str | None = None
    attn_format: str | None = None

    world_size: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None
    moe_tp: int | None = None
    """Ways each expert is cut; null for a dense variant."""
    slots: int | None = None
    """Expert slots under EPLB, copies included; null without it."""
    pp_partition: str | None = None
    """Layers of each pipeline stage, `20+20+21`; null without a pipeline."""
    attention_dp: bool | None = None

    batch: int | None = None
    isl: int | None = None
    chunk: int | None = None
    kvsl: int | None = None
    draft_len: int | None = None
    accepted: float | None = None
    routing: str | None = None

    prefill_compute_ms: float | None = None
    """Prefill is compute only; it is no time to first token. Measured: the median sample of this process."""
    step_ms: float | None = None
    """One generation step of `batch` sequences, through all pipeline stages. Measured: the median sample."""
    tpot_ms: float | None = None
    """step_ms / (1 + accepted); with a pipeline, the period in which `pp_groups` groups yield a token each. Of
    requests, their mean by `tpot_rule`."""
    ttft_ms: float | None = None
    """From sending to the first token, mean over requests; null for priced rows."""
    tok_s_per_gpu: float | None = None
    """Input tokens for prefill, output tokens for decode, per second and GPU; of whole models only, as `tpot_ms` is."""
    tok_s_per_user: float | None = None
    """1000 / tpot_ms; decode only."""
    osl: int | None = None
    """Output tokens asked of each request; with `isl` and `concurrency` the question of level `serve`."""
    concurrency: int | None = None
    """Requests at a time, as asked."""
    requests: int | None = None
    """Answered requests, of which the figures are."""
    failed_requests: int | None = None
    """Requests that ended in an error; in no figure."""
    invalid_requests: int | None = None
    """Requests whose events contradict each other or break off; in no figure."""
    input_tokens_mean: float | None = None
    """Input tokens of a request, as counted."""
    output_tokens_mean: float | None = None
    """Output tokens of a request, as counted; not those asked."""
    mean_concurrency: float | None = None
    """Requests in flight, on average over time."""
    duration_s: float | None = None
    """From the first request to the last answer."""
    requests_per_s: float | None = None
    output_tok_per_s: float | None = None
    """Output tokens of all users and GPUs / duration."""
    total_tok_per_s: float | None = None
    """Input and output tokens of all users and GPUs / duration."""
    user_tok_per_s_with_prefill: float | None = None
    """Output tokens / request latency, mean over requests; `tok_s_per_user` is without the wait for the first token."""
    tpot_rule: str | None = None
    """How TPOT was taken from requests: `after_first_chunk`, `from_first_token` (see `docs/imports.md`)."""
    requests_without_tpot: int | None = None
    """Answered requests of one token or one chunk: TPOT is undefined."""
    request_latency_ms: float | None = None
    """From sending to the last token, mean over requests."""
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

    replicate: int | None = None
    """Which fresh process, from 0; null for rows that no process measured."""
    arms: str | None = None
    """Which rows a process timed in turn, round by round; the same word in all of them, over the replicates too."""
    samples: int | None = None
    """Timed iterations that count; they are in `samples.parquet`."""
    warmup_samples: int | None = None
    discarded_samples: int | None = None
    """Timed iterations that do not count because of a known cause, such as a throttle bit."""
    stop_reason: str | None = None
    """Why sampling ended: `precise`, `settled`, `samples`, `budget`."""
    sample_iqr_pct: float | None = None
    """(third - first quartile) / median of the samples, in %."""
    sample_p90_ms: float | None = None
    sample_p99_ms: float | None = None
    warmup_drift_pct: float | None = None
    """Drift over the last warm-up window, in % of its median."""
    layers_run: int | None = None
    """Decoder layers that really ran; the time is scaled from them to `layers`."""
    device: str | None = None
    """What it ran on, as its driver or kernel names it."""
    gpu_uuid: str | None = None
    """GPUs of the run, in order of rank, joined by commas."""
    host: str | None = None
    engine: str | None = None
    """Key of the engine that was loaded."""
    how: str | None = None
    """JSON object: what else is worth knowing of how it ran, such as the attention kernel and the threads."""
    log: str | None = None
    """The process's log, relative to the run folder."""

    telemetry_valid: bool | None = None
    """Whether the figures of the device below cover the samples; null where nothing was observed."""
    telemetry_note: str | None = None
    """Why they do not, or what was seen that makes a number doubtful."""
    sm_clock_mhz: float | None = None
    """Median over the samples' time, slowest GPU."""
    power_w: float | None = None
    """Mean over the samples' time, all GPUs of the run together."""
    energy_j_per_token: float | None = None
    temperature_c: float | None = None
    """Highest."""
    throttle_reasons: str | None = None
    """Reasons seen during samples, joined by commas."""
    foreign_processes: int | None = None
    """Processes of others on the same GPUs, the most seen at once."""
    foreign_cpus: float | None = None
    """Processors that others kept busy meanwhile, on average."""
    load_average: float | None = None
    """One-minute load average at the end."""

    case: str | None = None
    """The whole case as JSON, enough to run it again; null for imported rows."""
    foreign: str | None = None
    """JSON object: what an imported report says and no other column holds, by its own names."""


#: What only an imported row may leave out: the question. Every other row was asked one.
QUESTION = (
    "system", "layers", "hidden", "q_heads", "kv_heads", "group_size", "head_dim", "ffn", "vocab", "attention",
    "window", "attention_weights", "ffn_weights", "kv_format", "attn_format", "world_size", "tp", "pp", "cp", "ep",
    "attention_dp", "batch", "routing", "case",
)  # fmt: skip


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """The raw samples of an attempt: device time of each timed iteration, the slowest rank's."""

    attempt_id: str
    warmup_ms: list[float]
    times_ms: list[float]
    """Those that count, in the order in which they were taken."""
    rounds: list[int]
    """Of each of `times_ms`, the round of the interleaved arms in which it was taken, from 0."""
    discarded_ms: list[float]
    discarded_causes: list[str]


def column_names(kind: type[Record | OpRow | SampleRow]) -> list[str]:
    """Columns in order."""
    return list(kind.__slots__)


def arrow_schema(kind: type[Record | OpRow | SampleRow]) -> pa.Schema:
    """The Arrow schema of a table of records, ops or samples, derived from the dataclass."""
    import pyarrow as pa

    plain = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    lists = {f"list[{base}]": pa.list_(kind) for base, kind in {**plain, "str": pa.string()}.items()}
    arrow = {**plain, **lists}
    columns = []
    for field in fields(kind):
        base, _, null = str(field.type).partition(" | ")
        # What is left is text: str, and the literals Status and Provenance.
        columns.append(pa.field(field.name, arrow.get(base, pa.string()), nullable=bool(null)))
    return pa.schema(columns, metadata={"trtllm_harness_schema": f"{kind.__name__} {SCHEMA_VERSION}"})
