"""The record of a measured case: what was timed, scaled to the case, with what the machine did meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import LLAMA_8B

from harness.backends.base import ArmFacts, BackendFacts, OpTime
from harness.backends.measurement import Measurement
from harness.hardware import load_system
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.results.build import Answerer
from harness.results.device_summary import DeviceSummary
from harness.results.store import Attempt
from harness.runner.measured import Process, measured_attempt, quantile, unmeasured_attempt
from harness.spec.case import Case
from harness.spec.expand import PlannedCase
from harness.spec.variant import Variant

FACTS = BackendFacts(
    "measured", "torch 2.13.0", "NVIDIA H200", gpu_uuids=("GPU-1", "GPU-2"), details={"driver": "580.1", "threads": 2}
)
PROCESS = Process(
    attempt_id="RUN.000003.r1", started_at="2026-03-01T12:00:00+00:00",
    answerer=Answerer("torch", "torch 2.13.0", "measured"), facts=FACTS, replicate=1, arms="decode b 8 KVSL 4096",
    log="logs/r1.log",
)  # fmt: skip
QUIET = DeviceSummary(telemetry_valid=True)
FP32 = {"weights": "fp32", "kv_format": "fp32", "attn_format": "fp32"}


def planned(
    system: str = "h200_sxm", level: str = "layer", workload: dict[str, Any] | None = None, **shape: Any
) -> PlannedCase:
    work = workload or {"phase": "decode", "batch": 8, "kvsl": 4096}
    case = Case(variant=Variant(**{**LLAMA_8B, **shape}), workload=work, system=system)
    ops = ("layer.attn.attention",) if level == "op" else ()
    return PlannedCase(case, "s", "", {"G": 4}, level, ops=ops)


def measurement(times_ms: Sequence[float] = (3.0, 1.0, 2.0), **changes: Any) -> Measurement:
    count = len(times_ms)
    windows = tuple((float(i), i + 0.5) for i in range(count))
    made = Measurement(
        facts=ArmFacts(layers_run=8, scale=4.0, hbm_bytes=1e9, details={"attention": "flash"}), warmup_ms=(9.0, 5.0),
        times_ms=tuple(times_ms), rounds=tuple(range(count)), windows_s=windows, stop_reason="precise",
        warmup_drift_pct=0.25,
    )  # fmt: skip
    return replace(made, **changes)


def attempt(case: PlannedCase, taken: Measurement | None = None, summary: DeviceSummary = QUIET) -> Attempt:
    return measured_attempt(case, PROCESS, taken or measurement(), summary)


def test_the_number_is_the_median_scaled_to_the_layers_of_the_case() -> None:
    """8 of 32 layers ran: a median of 2 ms is 8 ms."""
    made = attempt(planned())
    record = made.record
    assert (record.status, record.reason, record.step_ms, record.prefill_compute_ms) == ("ok", None, 8.0, None)
    assert (record.layers, record.layers_run) == (32, 8)
    assert made.samples is not None
    assert made.samples.times_ms == [3.0, 1.0, 2.0]
    assert made.samples.rounds == [0, 1, 2]
    assert made.samples.warmup_ms == [9.0, 5.0]


def test_prefill_has_the_column_of_prefill() -> None:
    record = attempt(planned(workload={"phase": "prefill", "batch": 1, "isl": 512})).record
    assert (record.prefill_compute_ms, record.step_ms) == (8.0, None)


def test_samples_are_told_in_the_time_of_the_case() -> None:
    """Of 0, 1, … 100 the quartiles are 25 and 75, and the 90th and 99th percentile 90 and 99; times 4."""
    record = attempt(planned(), measurement([float(value) for value in range(101)])).record
    assert record.step_ms == 200.0
    assert record.sample_iqr_pct == 100.0
    assert record.sample_p90_ms == pytest.approx(360)
    assert record.sample_p99_ms == pytest.approx(396)
    assert (record.samples, record.warmup_samples, record.discarded_samples) == (101, 2, 0)
    assert (record.stop_reason, record.warmup_drift_pct) == ("precise", 0.25)


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_lies_between_the_values_and_grows(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert ordered[0] <= found <= ordered[-1] * (1 + 1e-12)
    assert quantile(ordered, 0) == ordered[0]
    assert quantile(ordered, 1) == ordered[-1]
    assert quantile(ordered, share / 2) <= found * (1 + 1e-12)


def test_one_sample_says_nothing_of_how_samples_lie() -> None:
    record = attempt(planned(), measurement((3.0,), rounds=(0,))).record
    assert (record.samples, record.sample_iqr_pct, record.sample_p90_ms, record.sample_p99_ms) == (1, None, None, None)


def test_where_it_ran_is_in_the_record() -> None:
    record = attempt(planned()).record
    assert (record.attempt_id, record.run_id, record.replicate, record.arms) == (
        "RUN.000003.r1", "RUN", 1, "decode b 8 KVSL 4096",
    )  # fmt: skip
    assert (record.answered_by, record.answered_with, record.provenance) == ("torch", "torch 2.13.0", "measured")
    assert (record.device, record.gpu_uuid, record.log) == ("NVIDIA H200", "GPU-1,GPU-2", "logs/r1.log")
    assert json.loads(record.how or "") == {
        "driver": "580.1", "threads": 2, "attention": "flash", "scale": 4.0, "read_bytes": 1e9,
    }  # fmt: skip


def test_what_telemetry_saw_stands_beside_what_the_backend_says_and_gives_way_to_it() -> None:
    record = measured_attempt(planned(), PROCESS, measurement(), QUIET, {"cpu_clock_mhz": 2600.0, "threads": 9}).record
    how = json.loads(record.how or "")
    assert (how["cpu_clock_mhz"], how["threads"]) == (2600.0, 2)


def test_the_roofline_of_a_gpu_stands_beside_its_time() -> None:
    case = planned()
    pricer = RooflinePricer(load_system("h200_sxm"))
    [price] = price_cases([case.case], "layer", pricer, pricer)
    record = attempt(case).record
    assert price.roofline_ms is not None
    assert (record.roofline_ms, record.roofline_bound) == (price.roofline_ms, price.bound)
    assert record.flops == sum(one.op.flops for one in price.ops)
    assert (record.source_shares, record.worst_source) == (None, None)


def test_a_cpu_has_bytes_and_no_roofline() -> None:
    made = attempt(planned("cpu", **FP32))
    record = made.record
    assert record.flops == attempt(planned()).record.flops
    assert (record.roofline_ms, record.roofline_bound) == (None, None)
    assert {op.roofline_us for op in made.ops} == {None}
    # 8 sequences of 4096 tokens, K and V, 32 layers of 8 heads of 128 values of 4 bytes
    assert record.kv_bytes_per_gpu == 8 * 4096 * 2 * 32 * 8 * 128 * 4


def test_tokens_a_second_are_those_of_whole_models() -> None:
    """8 tokens in 8 ms."""
    record = attempt(planned(level="model")).record
    assert (record.tok_s_per_gpu, record.tpot_ms, record.tok_s_per_user) == (1000.0, 8.0, 125.0)
    part = attempt(planned()).record
    assert (part.tok_s_per_gpu, part.tpot_ms, part.tok_s_per_user) == (None, None, None)


def test_ops_have_the_times_of_those_that_were_timed() -> None:
    taken = measurement(op_times=(OpTime("layer.attn.attention", 12.5), OpTime("layer.unknown", 1.0)))
    ops = {op.op: op for op in attempt(planned(), taken).ops}
    attention = ops["layer.attn.attention"]
    assert (attention.time_us, attention.count, attention.total_us, attention.source) == (12.5, 32, 400.0, "measured")
    assert (ops["layer.attn.qkv_proj"].time_us, ops["layer.attn.qkv_proj"].source) == (None, None)
    assert "layer.unknown" not in ops


@pytest.mark.parametrize(("timed", "expected"), [((1.0, 2.0), [1.0, 2.0]), ((1.0,), [None, None])])
def test_an_op_of_two_chunks_needs_two_times(timed: tuple[float, ...], expected: list[float | None]) -> None:
    case = planned(workload={"phase": "prefill", "batch": 1, "isl": 512, "chunk": 256})
    taken = measurement(op_times=tuple(OpTime("layer.attn.attention", time_us) for time_us in timed))
    assert [op.time_us for op in attempt(case, taken).ops if op.op == "layer.attn.attention"] == expected


@pytest.mark.parametrize("system", ["h200_sxm", "cpu"])
def test_at_level_op_only_the_ops_asked_for_are_rows(system: str) -> None:
    assert {op.op for op in attempt(planned(system, "op", **FP32)).ops} == {"layer.attn.attention"}


@pytest.mark.parametrize(
    ("taken", "summary"),
    [
        (measurement(invalid="it ran 3 of 4 layers"), QUIET),
        (measurement(), DeviceSummary(telemetry_valid=True, invalid="it ran 3 of 4 layers")),
    ],
)
def test_what_did_not_do_its_work_has_samples_and_no_number(taken: Measurement, summary: DeviceSummary) -> None:
    made = attempt(planned(level="model"), taken, summary)
    record = made.record
    assert (record.status, record.reason) == ("invalid", "it ran 3 of 4 layers")
    assert (record.step_ms, record.tok_s_per_gpu) == (None, None)
    assert made.samples is not None
    assert len(made.samples.times_ms) == 3


def test_nothing_timed_is_no_number() -> None:
    record = attempt(planned(), measurement(())).record
    assert (record.status, record.reason, record.samples) == ("invalid", "no iteration was timed", 0)
    assert record.sample_p90_ms is None


def test_what_disturbed_the_machine_is_a_flag() -> None:
    summary = DeviceSummary(
        telemetry_valid=True, telemetry_note="others ran", foreign_cpus=1.5, load_average=3.0, flags=("noisy",),
        sm_clock_mhz=1980.0, power_w=650.0, temperature_c=71.0, throttle_reasons="sw_power_cap", foreign_processes=1,
    )  # fmt: skip
    shared = replace(PROCESS, flags=("shared_gpu",))
    record = measured_attempt(planned(), shared, measurement(), summary).record
    assert record.flags == ["noisy", "shared_gpu"]
    assert (record.foreign_cpus, record.load_average, record.foreign_processes) == (1.5, 3.0, 1)
    assert (record.sm_clock_mhz, record.power_w, record.temperature_c) == (1980.0, 650.0, 71.0)
    assert (record.throttle_reasons, record.telemetry_note) == ("sw_power_cap", "others ran")


def test_energy_is_shared_out_to_tokens() -> None:
    """3 iterations of 8 tokens through a quarter of the layers took 6 J: 24 J for all layers of 24 tokens."""
    summary = DeviceSummary(telemetry_valid=True, energy_j=6.0)
    assert attempt(planned(), summary=summary).record.energy_j_per_token == 1.0


def test_numbers_that_json_has_not_are_words() -> None:
    taken = measurement(facts=ArmFacts(layers_run=32, details={"error": float("inf")}))
    made = attempt(planned(), taken)
    assert json.loads(made.record.how or "")["error"] == "inf"
    assert Attempt.from_line(made.to_line(), "line") == made


@pytest.mark.parametrize("status", ["unsupported", "oom", "crash", "timeout", "lost"])
def test_a_case_without_an_answer_is_a_row_that_says_why(status: Any) -> None:
    made = unmeasured_attempt(planned(), PROCESS, status, "it died")
    assert (made.record.status, made.record.reason, made.record.step_ms) == (status, "it died", None)
    assert (made.record.replicate, made.record.log) == (1, "logs/r1.log")
    assert made.ops == ()
    assert made.samples is None
    assert Attempt.from_line(made.to_line(), "line") == made
