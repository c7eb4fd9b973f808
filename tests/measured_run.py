"""Measured rows made by hand: every process and every sample is drawn here, so that a test knows the truth.

A case takes `time_ms(planned)`; a process shifts each of its arms, a round all arms of a process, a sample itself.
Nothing is timed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.hardware import load_system
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.results.build import Answerer, priced_attempt
from harness.results.record import OpRow, Record, SampleRow
from harness.results.store import Attempt, Run, open_run, read_run
from harness.spec.expand import PlannedCase, expand
from harness.spec.load import base_variant
from harness.spec.study import Study, Suite

Frames = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]

HOW = {"threads": 2, "attention": "flash"}
_MEASURED: dict[str, Any] = {
    "provenance": "measured", "answered_by": "torch", "answered_with": "torch 2.13.0", "worst_source": None,
    "source_shares": None, "device": "NVIDIA H200", "gpu_uuid": "GPU-1", "host": "node7", "how": json.dumps(HOW),
    "stop_reason": "precise", "warmup_samples": 20, "discarded_samples": 0, "warmup_drift_pct": 0.1,
    "telemetry_valid": True, "foreign_cpus": 0.03, "load_average": 2.1, "layers_run": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """How a machine scatters; standard deviations are shares of the time."""

    replicates: int = 3
    rounds: int = 40
    process_sd: float = 0.005
    """Of each arm of each process, by itself."""
    round_sd: float = 0.0
    """Of a round, the same for all arms of the process."""
    sample_sd: float = 0.01
    seed: int = 1
    has_ops: bool = True
    on_cpu: bool = False


Changes = Callable[[PlannedCase, int], dict[str, Any]]


def nothing(_: PlannedCase, __: int) -> dict[str, Any]:
    """Every row as it comes."""
    return {}


def measured_attempts(
    study: Study,
    time_ms: Callable[[PlannedCase], float],
    machine: Machine = Machine(),  # is frozen
    changes: Changes = nothing,
    run_id: str = "RUN",
) -> list[Attempt]:
    """One attempt for each case and replicate; `changes` are columns that a row has otherwise, such as its status."""
    rng = np.random.default_rng(machine.seed)
    steps = list(enumerate(expand(study, base_variant(study))))
    made = {number: _priced(planned, f"{run_id}.{number:06d}") for number, planned in steps}
    found = []
    for replicate in range(machine.replicates):
        rounds = {planned.case.workload.phase: rng.normal(0, machine.round_sd, machine.rounds) for _, planned in steps}
        for number, planned in steps:
            shift = rng.normal(0, machine.process_sd) + rounds[planned.case.workload.phase]
            times = time_ms(planned) * np.exp(shift + rng.normal(0, machine.sample_sd, machine.rounds))
            found.append(_timed(made[number], times.tolist(), replicate, machine, changes(planned, replicate)))
    return found


def _priced(planned: PlannedCase, attempt_id: str) -> Attempt:
    pricer = RooflinePricer(load_system(planned.case.system))
    (price,) = price_cases([planned.case], "layer", pricer, pricer)
    return priced_attempt(planned, price, Answerer("roofline", "by hand"), attempt_id, "2026-03-01T12:00:00+00:00")


def _timed(priced: Attempt, times: list[float], replicate: int, machine: Machine, changes: dict[str, Any]) -> Attempt:
    record, attempt_id = priced.record, f"{priced.record.attempt_id}.r{replicate}"
    median = statistics.median(times)
    first, _, third = statistics.quantiles(times, n=4)
    column = "prefill_compute_ms" if record.phase == "prefill" else "step_ms"
    columns: dict[str, Any] = {
        **_MEASURED, "attempt_id": attempt_id, "replicate": replicate, "arms": record.phase, column: median,
        "samples": len(times), "sample_iqr_pct": 100 * (third - first) / median, "sample_p90_ms": max(times),
        "sample_p99_ms": max(times), "log": f"logs/{record.phase}-r{replicate}.log",
    }  # fmt: skip
    if machine.on_cpu:
        columns |= {"system": "cpu", "roofline_ms": None, "roofline_bound": None, "device": "EPYC", "gpu_uuid": None}
    columns |= changes
    if columns.get("status", "ok") != "ok":
        return Attempt(replace(record, **{**columns, column: None, "samples": None}))
    ops = tuple(_op(op, attempt_id, median / (record.roofline_ms or 1), machine) for op in priced.ops)
    samples = SampleRow(
        attempt_id=attempt_id, warmup_ms=times[:3], times_ms=times, rounds=list(range(len(times))), discarded_ms=[],
        discarded_causes=[],
    )  # fmt: skip
    return Attempt(replace(record, **columns), ops if machine.has_ops else (), samples)


def _op(op: OpRow, attempt_id: str, factor: float, machine: Machine) -> OpRow:
    time_us = (op.roofline_us or 0.0) * factor
    limit = {"roofline_us": None, "roofline_bound": None} if machine.on_cpu else {}
    timed = {"time_us": time_us, "total_us": op.count * time_us, "source": "measured", "flags": []}
    return replace(op, attempt_id=attempt_id, **timed, **limit)


def frames(attempts: Sequence[Attempt]) -> Frames:
    """Records, ops and samples as a run gives them."""
    columns = list(Record.__slots__)
    records = pd.DataFrame([asdict(one.record) for one in attempts], columns=columns)
    ops = pd.DataFrame([asdict(op) for one in attempts for op in one.ops], columns=list(OpRow.__slots__))
    samples = pd.DataFrame([asdict(one.samples) for one in attempts if one.samples])
    return records, ops, samples


def write(folder: Path, study: Study, attempts: Sequence[Attempt]) -> Run:
    """Write attempts as a run and read it back."""
    suite = Suite(name="hand", title="A measured run made by hand", about="Nothing was timed.", studies=(study.name,))
    with open_run(folder, suite, [study]) as run:
        run.append(attempts)
        run.write_environment({"harness": "0.0.1", "packages": {"torch": "2.13"}, "command": ["run", "hand"]})
    return read_run(folder)
