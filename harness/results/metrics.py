"""Metrics: one table with name, unit, direction, format and meaning of every number that a record or an op holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["lower", "higher", "none"]
Format = Literal["significant", "count", "bytes", "ratio", "percent"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One kind of number. `unit` is what the number is in and what a table or an axis prints beside its title."""

    name: str
    title: str
    unit: str
    direction: Direction
    """Which way is better; `none` where more is neither."""
    format: Format
    meaning: str
    """One sentence for a reader who has not met it."""


_TABLE = (
    Metric(
        "prefill_compute_ms", "Prefill compute", "ms", "lower", "significant",
        "Time of the context phase on the GPU, kernels only. It is no time to first token: no queue, no host.",
    ),
    Metric(
        "step_ms", "Decode step", "ms", "lower", "significant",
        "Time of one generation step over the whole batch.",
    ),
    Metric(
        "tpot_ms", "TPOT", "ms", "lower", "significant",
        "Time per output token of one user: decode step / (1 + accepted draft tokens). Never request latency / tokens.",
    ),
    Metric(
        "ttft_ms", "TTFT", "ms", "lower", "significant",
        "Time from sending a request to its first token. Blank for priced rows, which know kernels only.",
    ),
    Metric(
        "tok_s_per_gpu", "Throughput", "tok/s/GPU", "higher", "significant",
        "Tokens per second and GPU of the world size: input tokens for prefill, output tokens for decode.",
    ),
    Metric(
        "tok_s_per_user", "Speed", "tok/s/user", "higher", "significant",
        "1000 / TPOT; decode only.",
    ),
    Metric(
        "requests_per_s", "Request rate", "requests/s", "higher", "significant",
        "Answered requests / time from the first request to the last answer. Not the rate of their arrival.",
    ),
    Metric(
        "output_tok_per_s", "Output throughput", "tok/s", "higher", "significant",
        "Output tokens per second of all users and GPUs together.",
    ),
    Metric(
        "total_tok_per_s", "Total throughput", "tok/s", "higher", "significant",
        "Input and output tokens per second of all users and GPUs together.",
    ),
    Metric(
        "user_tok_per_s_with_prefill", "Speed with prefill", "tok/s/user", "higher", "significant",
        "Output tokens / request latency, with the wait for the first token. Another quantity than 1000 / TPOT.",
    ),
    Metric(
        "request_latency_ms", "Request latency", "ms", "lower", "significant",
        "Time from sending a request to its last token, mean over requests.",
    ),
    Metric(
        "mean_concurrency", "Requests in flight", "requests", "none", "significant",
        "Requests that were being answered, on average over time.",
    ),
    Metric(
        "input_tokens_mean", "Input tokens", "tokens", "none", "significant",
        "Input tokens of a request, mean, as counted.",
    ),
    Metric(
        "output_tokens_mean", "Output tokens", "tokens", "none", "significant",
        "Output tokens of a request, mean, as counted and not as asked.",
    ),
    Metric(
        "duration_s", "Duration", "s", "none", "significant",
        "Time from the first request to the last answer.",
    ),
    Metric(
        "flops", "Work", "FLOP", "none", "significant",
        "Floating-point operations; a causal mask counts half.",
    ),
    Metric(
        "hbm_bytes", "HBM traffic", "bytes", "none", "significant",
        "Weights, activations and KV that have to cross the memory bus once.",
    ),
    Metric(
        "link_bytes", "Sent to other GPUs", "bytes", "lower", "significant",
        "What the slowest rank sends to others, by the algorithm that moves least without help from the switch.",
    ),
    Metric(
        "kv_bytes_per_gpu", "KV cache", "bytes", "lower", "bytes",
        "What the KV cache of the whole batch takes on one GPU.",
    ),
    Metric(
        "roofline_ms", "Roofline", "ms", "none", "significant",
        "max(FLOPs / peak, bytes / bandwidth) + launch overhead, added over all ops: what no kernel can beat.",
    ),
    Metric(
        "pp_imbalance", "Stage imbalance", "×", "lower", "ratio",
        "Time of the slowest pipeline stage / mean over the stages: 1 where all take the same.",
    ),
    Metric(
        "sample_iqr_pct", "Spread of samples", "%", "lower", "significant",
        "(Third - first quartile) / median of the samples of one process. It says nothing about the next process.",
    ),
    Metric(
        "sample_p90_ms", "90th percentile", "ms", "lower", "significant",
        "Nine in ten samples of one process took no longer.",
    ),
    Metric(
        "sample_p99_ms", "99th percentile", "ms", "lower", "significant",
        "99 in 100 samples of one process took no longer.",
    ),
    Metric(
        "warmup_drift_pct", "Drift", "%", "none", "significant",
        "How far the times still moved over the last window of the warm-up, of its median.",
    ),
    Metric(
        "sm_clock_mhz", "SM clock", "MHz", "none", "significant",
        "Median over the samples' time, of the slowest GPU.",
    ),
    Metric(
        "power_w", "Power", "W", "lower", "significant",
        "Mean over the samples' time, all GPUs of the run together.",
    ),
    Metric(
        "energy_j_per_token", "Energy", "J/token", "lower", "significant",
        "Energy of all GPUs of the run / the tokens that throughput counts.",
    ),
    Metric(
        "temperature_c", "Temperature", "°C", "none", "significant",
        "Highest of any GPU of the run.",
    ),
    Metric(
        "foreign_cpus", "Processors busy for others", "processors", "none", "significant",
        "Processors that other processes kept busy meanwhile, on average.",
    ),
    Metric(
        "load_average", "Load average", "processes", "none", "significant",
        "One-minute load average of the machine at the end of the samples.",
    ),
    Metric(
        "time_us", "Time, one layer", "µs", "lower", "significant",
        "Time of one execution of an op, that is of one layer.",
    ),
    Metric(
        "time_ms", "Time", "ms", "lower", "significant",
        "Time of all executions of an op, or of the whole phase.",
    ),
    Metric(
        "total_us", "Time, all layers", "µs", "lower", "significant",
        "Time of one execution x how often the op runs.",
    ),
    Metric(
        "roofline_us", "Roofline, one layer", "µs", "none", "significant",
        "Roofline of one execution of an op.",
    ),
    Metric(
        "tflop_per_s", "Achieved rate", "TFLOP/s", "higher", "significant",
        "FLOPs of an op / its time, 1e12 per second.",
    ),
    Metric(
        "gb_per_s", "Achieved bandwidth", "GB/s", "higher", "significant",
        "HBM bytes of an op / its time, 1e9 per second.",
    ),
    Metric(
        "ratio", "Ratio", "×", "lower", "ratio",
        "Time / time of the baseline: above 1 is slower, below 1 is faster.",
    ),
    Metric(
        "share", "Share", "%", "none", "percent",
        "Part of the time of a phase.",
    ),
)  # fmt: skip

#: Every metric by name.
METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}


def time_column(phase: str) -> str:
    """The column of a record that holds the time of its phase."""
    return "prefill_compute_ms" if phase == "prefill" else "step_ms"


def significant(value: float, digits: int = 4) -> str:
    """A positive or negative number in plain decimals with `digits` significant digits: 0.05165, 1.499, 15230."""
    if value == 0:
        return "0"
    magnitude = int(f"{value:e}".partition("e")[2])
    decimals = max(digits - 1 - magnitude, 0)
    text = f"{value:.{decimals}f}"
    # 9.9999 rounds up to 10.000, one digit too many
    grown = int(f"{float(text):e}".partition("e")[2]) > magnitude
    return f"{value:.{decimals - 1}f}" if grown and decimals else text


def format_value(value: float, kind: Format = "significant") -> str:
    """A number as reports print it, without its unit."""
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "bytes":
        return f"{value:,.0f}"
    if kind == "percent":
        return f"{100 * value:.1f}"
    if kind == "ratio":
        return f"{value:.3f}" if abs(value) < 9.9995 else significant(value, 3)
    return significant(value)
