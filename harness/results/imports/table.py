"""The import table: its columns, what each is called by other tools, and which column of a record it becomes.

Foreign names are those of the `--report_json` and the printed report of trtllm-bench (TensorRT-LLM,
`tensorrt_llm/bench/dataclasses/reporting.py`, 1.2 and 1.3.0rc line) and of AIPerf's `profile_export_aiperf.json`
(`docs/reference/json-export-schema.md`, schema 1.0 to 1.5, read in November 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["whole", "number", "text"]

#: How TPOT is taken, and what `tpot_rule` calls it.
AFTER_FIRST_CHUNK = "after_first_chunk"
END_MINUS_FIRST = "from_first_token"

#: Unit as tools spell it → what it measures, and how large it is in the first unit of its kind.
_UNITS: dict[str, tuple[str, float]] = {
    "": ("count", 1), "requests": ("count", 1), "count": ("count", 1),
    "tokens": ("tokens", 1),
    "ms": ("time", 1), "s": ("time", 1e3), "sec": ("time", 1e3), "us": ("time", 1e-3), "ns": ("time", 1e-6),
    "req/sec": ("requests/s", 1), "requests/sec": ("requests/s", 1),
    "tokens/sec": ("tok/s", 1), "tokens/sec/user": ("tok/s/user", 1), "tps/user": ("tok/s/user", 1),
    "tps/gpu": ("tok/s/gpu", 1),
    "fraction": ("share", 1), "%": ("share", 0.01),
    "gib": ("memory", 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the import table. A foreign name is empty where the tool says no such thing."""

    name: str
    kind: Kind = "number"
    unit: str = ""
    """As in the list of units; of `bench`, unless that name ends in another."""
    record: str = ""
    """The column of a record that it becomes."""
    bench: str = ""
    """Path in the JSON of trtllm-bench."""
    log: str = ""
    """Label in the printed report of trtllm-bench, without its unit."""
    aiperf: str = ""
    """Path in the JSON of AIPerf; of a metric, its tag, whose `avg` counts."""
    meaning: str


#: Every column, in the order of the table.
COLUMNS = (
    Column(name="model", kind="text", record="variant", bench="engine.model", log="Model", meaning="Model, by name."),
    Column(name="device", kind="text", record="device", bench="machine.name", meaning="GPU, by name."),
    Column(
        name="gpu_memory_gib", unit="gib", bench="machine.memory.total",
        meaning="Memory of one GPU. The report of trtllm-bench gives GiB, whatever it calls them.",
    ),
    Column(
        name="gpus", kind="whole", record="world_size", bench="world_info.world_size",
        meaning="tp x pp. Expert parallelism shares these GPUs and adds none.",
    ),
    Column(name="tp", kind="whole", record="tp", bench="world_info.tp_size", log="TP Size", meaning="Tensor parallel."),
    Column(name="pp", kind="whole", record="pp", bench="world_info.pp_size", log="PP Size", meaning="Pipeline stages."),
    Column(
        name="ep", kind="whole", record="ep", bench="world_info.ep_size", log="EP Size",
        meaning="Expert parallel ways inside tp; blank where it was not given.",
    ),
    Column(
        name="kv_dtype", kind="text", bench="engine.kv_cache_dtype", log="KV Cache Dtype",
        meaning="Format of the KV cache, as the report spells it; `kv_format` of the record where it is one of ours.",
    ),
    Column(
        name="kv_cache_fraction", unit="fraction", bench="world_info.kv_cache_percentage", log="KV Memory Percentage",
        meaning="Share of the free GPU memory for the KV cache, 0 to 1.",
    ),
    Column(name="isl", kind="whole", record="isl", bench="dataset.isl", unit="tokens", meaning="Input tokens asked."),
    Column(name="osl", kind="whole", record="osl", bench="dataset.osl", unit="tokens", meaning="Output tokens asked."),
    Column(
        name="concurrency", kind="whole", record="concurrency", aiperf="input_config.loadgen.concurrency",
        meaning="Requests at a time, as asked.",
    ),
    Column(
        name="requests", kind="whole", record="requests", bench="request_info.num_requests", log="Number of requests",
        aiperf="request_count", meaning="Answered requests, of which the figures are.",
    ),
    Column(
        name="failed_requests", kind="whole", record="failed_requests", aiperf="error_request_count",
        meaning="Requests that ended in an error; in no figure.",
    ),
    Column(
        name="invalid_requests", kind="whole", record="invalid_requests",
        meaning="Requests whose events contradict each other or break off; in no figure.",
    ),
    Column(
        name="input_tokens_mean", unit="tokens", record="input_tokens_mean", bench="request_info.avg_input_length",
        log="Average Input Length", aiperf="input_sequence_length", meaning="Input tokens of a request, as counted.",
    ),
    Column(
        name="output_tokens_mean", unit="tokens", record="output_tokens_mean", bench="request_info.avg_output_length",
        log="Average Output Length", aiperf="output_sequence_length", meaning="Output tokens of a request, as counted.",
    ),
    Column(name="output_tokens", kind="whole", unit="tokens", aiperf="total_osl", meaning="Output tokens of all."),
    Column(
        name="mean_concurrency", record="mean_concurrency", bench="request_info.avg_num_concurrent_requests",
        log="Number of concurrent requests", meaning="Requests in flight, on average over time.",
    ),
    Column(
        name="duration_s", unit="s", record="duration_s", bench="performance.total_latency_ms", log="Total Latency",
        aiperf="benchmark_duration", meaning="From the first request to the last answer.",
    ),
    Column(
        name="requests_per_s", unit="requests/sec", record="requests_per_s",
        bench="performance.request_throughput_req_s", log="Request Throughput", aiperf="request_throughput",
        meaning="Answered requests / duration. Not the rate of their arrival.",
    ),
    Column(
        name="output_tok_per_s", unit="tokens/sec", record="output_tok_per_s",
        bench="performance.system_output_throughput_tok_s", log="Total Output Throughput",
        aiperf="output_token_throughput", meaning="Output tokens / duration, all users and GPUs.",
    ),
    Column(
        name="total_tok_per_s", unit="tokens/sec", record="total_tok_per_s",
        bench="performance.system_total_throughput_tok_s", log="Total Token Throughput",
        aiperf="total_token_throughput", meaning="Input and output tokens / duration, all users and GPUs.",
    ),
    Column(
        name="output_tok_per_s_per_gpu", unit="tps/gpu", record="tok_s_per_gpu",
        bench="performance.output_throughput_per_gpu_tok_s", log="Per GPU Output Throughput",
        meaning="output_tok_per_s / gpus. Where a report has another, this is the recomputed one.",
    ),
    Column(name="total_tok_per_s_per_gpu", unit="tps/gpu", meaning="total_tok_per_s / gpus."),
    Column(
        name="user_tok_per_s_with_prefill", unit="tps/user", record="user_tok_per_s_with_prefill",
        bench="performance.output_throughput_per_user_tok_s", log="Per User Output Throughput [w/ ctx]",
        meaning="Output tokens / request latency: with the wait for the first token.",
    ),
    Column(
        name="user_tok_per_s_decode_only", unit="tps/user", bench="streaming_metrics.token_output_speed_tok_s",
        log="Per User Output Speed", aiperf="output_token_throughput_per_user",
        meaning="Output speed once tokens flow; 1000 / tpot_ms_mean where a report does not say it.",
    ),
    Column(
        name="ttft_ms_mean", unit="ms", record="ttft_ms", bench="streaming_metrics.avg_ttft_ms",
        log="Average time-to-first-token [TTFT]", aiperf="time_to_first_token",
        meaning="From sending to the first chunk with a token; blank without streaming.",
    ),
    Column(
        name="tpot_ms_mean", unit="ms", record="tpot_ms", bench="streaming_metrics.avg_tpot_ms",
        log="Average time-per-output-token [TPOT]", aiperf="inter_token_latency",
        meaning="Time per output token, mean over requests that have one, by `tpot_rule`.",
    ),
    Column(name="tpot_rule", kind="text", record="tpot_rule", meaning="How TPOT was taken; see below."),
    Column(
        name="tpot_ms_mean_from_first_token", unit="ms",
        meaning="Where `tpot_rule` is after_first_chunk: what the other rule gives.",
    ),
    Column(
        name="requests_without_tpot", kind="whole", record="requests_without_tpot",
        meaning="Answered requests of one token or of one chunk; left out of the means of TPOT.",
    ),
    Column(
        name="bundled_first_chunks", kind="whole",
        meaning="Requests whose first of several chunks carried several tokens.",
    ),
    Column(name="chunk_gap_ms_mean", unit="ms", meaning="Between chunks with tokens. It is no latency of a token."),
    Column(name="chunk_gap_ms_max", unit="ms", meaning="Longest gap between chunks with tokens."),
    Column(
        name="token_latency_ms_mean", unit="ms",
        meaning="Per token after the first chunk: each gap shared equally by the tokens of the chunk that ends it.",
    ),
    Column(
        name="request_latency_ms_mean", unit="ms", record="request_latency_ms",
        bench="performance.avg_request_latency_ms", log="Average request latency", aiperf="request_latency",
        meaning="From sending to the last token.",
    ),
)  # fmt: skip


def column(name: str) -> Column:
    """The column of that name."""
    return _BY_NAME[name]


_BY_NAME = {one.name: one for one in COLUMNS}


def convert(value: float, unit: str, wanted: str) -> float | None:
    """`value` in the unit `wanted`, or None where `unit` is unknown or measures something else."""
    kind, scale = _UNITS.get(unit.strip().lower().replace("µ", "u"), ("", 1.0))
    wanted_kind, wanted_scale = _UNITS[wanted]
    if kind != wanted_kind:
        return None
    return value if scale == wanted_scale else value * scale / wanted_scale
