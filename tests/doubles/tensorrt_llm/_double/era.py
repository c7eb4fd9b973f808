"""What differs between the versions that the double can be, one field per fact.

`TRTLLM_DOUBLE` names the version. `TRTLLM_DOUBLE_ALTER` = `fact=value`, several of them with `;` between, changes
single facts. Where a fact is not established for a version, README.md says what was decided.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from functools import lru_cache


@dataclass(frozen=True)
class Era:
    """The facts of one version."""

    version: str
    schema: str

    engine_backend: bool
    """`tensorrt_llm._tensorrt_engine`, trtllm-build and `--backend tensorrt`."""
    wideep: str
    """What happens to MoE backend WIDEEP where the schema takes it: `runs` or `refused` when the model is built."""
    head_size: str
    """How a head size without kernels ends: `abort` of the process, or `ValueError`."""
    hopper_nvfp4: str
    """NVFP4 before Blackwell: `refused`, or `weight_only` on Hopper."""
    blockscale_default: str
    """What MoE backend AUTO takes for FP8 block scales on Blackwell."""
    helix_gqa: bool
    helix_alone: str
    """Helix in a plain `LLM(...)` without disaggregated serving: `refused` or `accepted`."""
    forced_acceptance: str
    """TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS: `integer`, `fraction` or `ignored`."""
    missing_field: str = ""
    """A field that `TorchLlmArgs` does not have after all."""

    host_step_time: bool = False
    """Records have `hostStepTimeMS`, `prevDeviceStepTimeMS` and `schedulerMode`."""
    gpu_forward_time: bool = False
    """Records have `gpuForwardTimeMS`."""
    kv_tokens: bool = False
    """Records have `numCtxKvTokens`, `numGenKvTokens` and others."""
    rank_records: bool = False
    """Records name their rank and count dropped ones; with attention DP there is one per rank."""
    record_number_ahead: int = 0
    """By how much `iter` of a record is too high with the overlap scheduler."""
    stats_lag: int = 1
    """By how many rows `prevDeviceStepTimeMS` and `prev_device_step_time` lag."""
    latency_spans: int = 2
    """How many loops `iterLatencyMS` spans with the overlap scheduler."""
    missing_statistics: str = ""
    """Keys that no record has, with commas between."""
    ring_keeps: str = "newest"
    """What stays in a full ring of statistics: `newest` or `oldest`."""

    iter_log: str = "classic"
    """Form of a line of `print_iter_log`: `elapsed`, `classic`, `util` or `extended`."""
    iter_log_unit: str = "ms"
    cached_kv_tokens: bool = False
    """`states` of a line has `cached_kv_tokens`."""
    graph_padding_in_log: bool = True
    empty_iterations: bool = True
    """The overlap scheduler ends a batch with a loop that schedules nothing; it has a number and a line, no record."""

    ignore_eos: bool = True
    perf_metrics: bool = True
    layer_wise: bool = True
    """`tensorrt_llm.tools.layer_wise_benchmarks` is in the package."""
    calibrator: bool = True
    layer_wise_line: str = "current"
    """Order of a result line: `current` (mean median min max P90) or `early` (min max mean median P90)."""
    layer_wise_unit: str = "us"
    dataset_command: str = "prepare-dataset"
    banner: bool = False
    """Importing the package prints its version to stdout."""


ERAS = {
    one.version: one
    for one in (
        Era("1.2.1", "1.2.1", True, "runs", "abort", "refused", "CUTLASS", False, "refused", "integer",
            record_number_ahead=1, calibrator=False),
        Era("1.3.0rc8", "1.3.0rc8", True, "runs", "abort", "refused", "TRTLLM", True, "refused", "integer",
            record_number_ahead=1),
        Era("1.3.0rc24", "1.3.0rc24", False, "refused", "ValueError", "weight_only", "TRTLLM", True, "refused",
            "fraction", host_step_time=True, iter_log="extended", cached_kv_tokens=True),
        Era("1.4", "1.4", False, "refused", "ValueError", "weight_only", "TRTLLM", True, "refused", "fraction",
            host_step_time=True, gpu_forward_time=True, kv_tokens=True, rank_records=True, iter_log="extended",
            cached_kv_tokens=True),
    )
}  # fmt: skip


def personality(name: str, alter: str = "") -> Era:
    """Return a version's facts with some of them altered; raise ValueError for an unknown version, fact or value."""
    if name not in ERAS:
        raise ValueError(f"TRTLLM_DOUBLE={name!r}: it can be {', '.join(ERAS)}")
    known = {field.name: field.type for field in fields(Era)}
    changes: dict[str, bool | int | str] = {}
    for part in filter(None, map(str.strip, alter.split(";"))):
        fact, _, value = part.partition("=")
        if fact not in known:
            raise ValueError(f"TRTLLM_DOUBLE_ALTER={part!r}: facts are {', '.join(known)}")
        changes[fact] = _read(known[fact], value)
    return replace(ERAS[name], **changes)  # type: ignore[arg-type]


def _read(kind: object, value: str) -> bool | int | str:
    if kind == "bool":
        return {"true": True, "false": False}[value.lower()]
    return int(value) if kind == "int" else value


@lru_cache(maxsize=1)
def era() -> Era:
    """The facts of this process. Environment variables are read once, as TensorRT-LLM's are when it is imported."""
    return personality(os.environ.get("TRTLLM_DOUBLE", "1.2.1"), os.environ.get("TRTLLM_DOUBLE_ALTER", ""))
