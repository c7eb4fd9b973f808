"""Make the record of what a process measured, or of why it did not.

The number of a row is the median of its samples, scaled to the layers of the case. Bytes, FLOPs and roofline stand
beside it as beside a price; of a CPU no roofline is known.
"""

from __future__ import annotations

import json
import math
import platform
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.backends.base import BackendFacts, OpTime
from harness.backends.measurement import Measurement
from harness.cost.decompose import PhaseLevel, decompose
from harness.hardware import is_gpu, load_system
from harness.pricing.base import KernelPrice
from harness.pricing.compose import CasePrice, PricedOp, price_cases
from harness.pricing.roofline import RooflinePricer
from harness.results.build import Answerer, case_figures, make_op_row, make_record
from harness.results.device_summary import DeviceSummary
from harness.results.record import OpRow, SampleRow, Status
from harness.results.store import Attempt
from harness.spec.axes import Scalar
from harness.spec.expand import PlannedCase
from harness.spec.workload import Serve


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One attempt's place: which process, of which replicate, beside which other arms."""

    attempt_id: str
    started_at: str
    answerer: Answerer
    facts: BackendFacts
    replicate: int
    arms: str | None
    log: str | None
    """Relative to the run folder; null where no process was started."""
    engine: str | None = None
    details: Mapping[str, Scalar] = field(default_factory=dict)
    """What was decided before the process was started and is worth knowing of each row."""
    flags: tuple[str, ...] = ()
    """Of every row of the run."""


def measured_attempt(
    planned: PlannedCase,
    process: Process,
    measurement: Measurement,
    summary: DeviceSummary,
    seen: Mapping[str, Scalar] = {},  # never written to
) -> Attempt:
    """The attempt of a case that was timed. `seen` is what telemetry saw beside `summary`.

    Where the measurement or the telemetry says that it is none, the status is `invalid`: the samples are kept, no
    number is.
    """
    invalid = measurement.invalid or summary.invalid
    if not invalid and not measurement.times_ms:
        invalid = "no iteration was timed"
    time_ms = None if invalid else statistics.median(measurement.times_ms) * measurement.facts.scale
    price = _beside(planned, time_ms)
    figures = {
        **case_figures(planned.case, planned.level, price),
        **_place(process),
        **_sampling(measurement),
        **_telemetry(planned, measurement, summary),
        "layers_run": measurement.facts.layers_run,
        "how": _how(process, measurement, seen),
    }
    status: Status = "invalid" if invalid else "ok"
    flags = sorted({*summary.flags, *process.flags})
    record = make_record(
        planned, process.answerer, process.attempt_id, process.started_at, status, invalid or None, flags, figures
    )
    return Attempt(record, _op_rows(process.attempt_id, price, measurement.op_times), _samples(process, measurement))


def unmeasured_attempt(
    planned: PlannedCase, process: Process, status: Status, reason: str, advice: str = ""
) -> Attempt:
    """The attempt of a case that was asked and has no number: unsupported, oom, crash, timeout, build_failed, lost.

    `advice` is what the user can do, where that is known; it is kept under `how`.
    """
    how = {**_told_once(process), **({"advice": advice} if advice else {})}
    figures = {**_place(process), "how": _json(how) if how else None}
    record = make_record(planned, process.answerer, process.attempt_id, process.started_at, status, reason, [], figures)
    return Attempt(record)


def _place(process: Process) -> dict[str, Any]:
    return {
        "replicate": process.replicate,
        "arms": process.arms,
        "log": process.log,
        "engine": process.engine,
        "device": process.facts.device,
        "gpu_uuid": ",".join(process.facts.gpu_uuids) or None,
        "host": platform.node(),
    }


def _sampling(measurement: Measurement) -> dict[str, Any]:
    """How the samples lie, in the time of the case."""
    times = sorted(measurement.times_ms)
    figures: dict[str, Any] = {
        "samples": len(times),
        "warmup_samples": len(measurement.warmup_ms),
        "discarded_samples": 0,
        "stop_reason": measurement.stop_reason,
        "warmup_drift_pct": measurement.warmup_drift_pct,
    }
    median = quantile(times, 0.5) if len(times) > 1 else 0.0  # one sample says nothing of how samples lie
    if median > 0:
        figures["sample_iqr_pct"] = (quantile(times, 0.75) - quantile(times, 0.25)) / median * 100
        figures["sample_p90_ms"] = quantile(times, 0.90) * measurement.facts.scale
        figures["sample_p99_ms"] = quantile(times, 0.99) * measurement.facts.scale
    return figures


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values, linear between them: R's type 7, which NumPy takes too."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _telemetry(planned: PlannedCase, measurement: Measurement, summary: DeviceSummary) -> dict[str, Any]:
    names = (
        "telemetry_valid", "telemetry_note", "sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons",
        "foreign_processes", "foreign_cpus", "load_average",
    )  # fmt: skip
    figures = {name: getattr(summary, name) for name in names}
    work = planned.case.workload
    if summary.energy_j is not None and measurement.times_ms and not isinstance(work, Serve):
        tokens = work.tokens * len(measurement.times_ms)
        figures["energy_j_per_token"] = summary.energy_j * measurement.facts.scale / tokens
    return figures


def _how(process: Process, measurement: Measurement, seen: Mapping[str, Scalar]) -> str:
    """What else is worth knowing of how it ran."""
    facts = {**seen, **_told_once(process), **measurement.facts.details}
    if measurement.facts.scale != 1.0:
        facts["scale"] = measurement.facts.scale
    if measurement.facts.hbm_bytes is not None:
        facts["read_bytes"] = measurement.facts.hbm_bytes
    return _json(facts)


def _told_once(process: Process) -> dict[str, Scalar]:
    """What is known of the process; what the machine has is with the run, and too long for every row."""
    return {name: value for name, value in {**process.details, **process.facts.details}.items() if name != "features"}


def _json(facts: Mapping[str, Scalar]) -> str:
    """As JSON; a number that it has not is a word."""
    return json.dumps({k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in facts.items()})


def _samples(process: Process, measurement: Measurement) -> SampleRow:
    return SampleRow(
        attempt_id=process.attempt_id,
        warmup_ms=list(measurement.warmup_ms),
        times_ms=list(measurement.times_ms),
        rounds=list(measurement.rounds),
        discarded_ms=[],
        discarded_causes=[],
    )


def _beside(planned: PlannedCase, time_ms: float | None) -> CasePrice:
    """The case taken apart, with the roofline of a GPU, and the measured time in the place of a price."""
    case, level = planned.case, planned.level
    phase_level: PhaseLevel = "layer" if level == "layer" else "model"
    nothing = KernelPrice.refuse("unsupported", "")
    if is_gpu(case.system):
        roofline = RooflinePricer(load_system(case.system))
        [price] = price_cases([case], phase_level, roofline, roofline, planned.ops)
        ops = tuple(PricedOp(one.op, nothing, one.roofline) for one in price.ops)
        return CasePrice("ok", None, ops, time_ms, price.roofline_ms)
    asked = [op for op in decompose(case, phase_level) if not planned.ops or op.name in planned.ops]
    return CasePrice("ok", None, tuple(PricedOp(op, nothing, None) for op in asked), time_ms)


def _op_rows(attempt_id: str, price: CasePrice, timed: Sequence[OpTime]) -> tuple[OpRow, ...]:
    """The ops of the case, with the times of those that were timed.

    A name that a case has several times, once per chunk of a prefill, has a time only where as many were timed.
    """
    times: dict[str, list[float]] = defaultdict(list)
    for one in timed:
        times[one.op].append(one.time_us)
    wanted: dict[str, int] = defaultdict(int)
    for priced in price.ops:
        wanted[priced.op.name] += 1
    left = {name: iter(found) for name, found in times.items() if len(found) == wanted[name]}
    rows = []
    for position, priced in enumerate(price.ops):
        time_us = next(left[priced.op.name]) if priced.op.name in left else None
        source = None if time_us is None else "measured"
        rows.append(make_op_row(attempt_id, position, priced, time_us=time_us, source=source, flags=[], note=None))
    return tuple(rows)
