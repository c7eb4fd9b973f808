"""The figures of one GPU over the time of one row's samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from harness.runner.telemetry import stretches
from harness.runner.telemetry.figures import joined, of_present
from harness.runner.telemetry.nvml import Gpu, GpuReading, GpuState
from harness.runner.telemetry.reasons import DISTURBING, IDLE, reason_names
from harness.runner.telemetry.stretches import Energy, Window

#: Share of the samples' time that has to lie between readings.
_COVERED = 0.95
#: Two readings this many periods apart still cover what lies between: a busy machine delays a thread.
_WIDEST_PERIODS = 5
#: Share of the readings with a disturbing reason from which the row is `throttled`; below it the median does not move.
THROTTLED_SHARE = 0.05
#: `nvmlDeviceGetPowerUsage` is an average over one second on Ampere and later, GA100 excepted (NVML reference, device
#: queries), so that the first second of a stretch still tells of what ran before.
_POWER_LAG_S = 1.0
#: Time on both sides in which updates of the energy counter are looked for.
_MARGIN_S = 2.0
#: Fewer readings inside the samples' time are too few for a median; those right beside it are then taken along.
_FEWEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSummary:
    """Figures over the samples' time; None where the GPU does not tell."""

    sm_clock_mhz: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_c: float | None = None
    reasons: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    problem: str = ""
    """Why the figures do not cover the samples."""
    note: str = ""
    invalid: str = ""
    """Why what was timed is no measurement of this GPU."""


def summarise_gpu(
    gpu: Gpu,
    readings: Sequence[GpuReading],
    states: Sequence[GpuState],
    windows_s: Sequence[Window],
    period_s: float,
) -> GpuSummary:
    """Figures of `gpu` over `windows_s`, from readings that were to be taken every `period_s`."""
    inside = stretches.within(readings, windows_s)
    near = inside if len(inside) >= _FEWEST else stretches.within(readings, windows_s, 1.5 * period_s)
    seldom = stretches.around(states, windows_s)
    sliced = any(state.mig for state in seldom)
    energy = Energy(None) if sliced or "energy_j" in gpu.not_offered else _energy(readings, windows_s)
    throttled, throttle_note = _throttling(near)
    offered_not = f"{gpu.uuid}: {', '.join(sorted(gpu.not_offered.values()))}" if gpu.not_offered else ""
    slice_note = "the GPU is in MIG mode: clocks and heat are those of all its slices" if sliced else ""
    return GpuSummary(
        sm_clock_mhz=of_present(median, [reading.sm_clock_mhz for reading in near]),
        power_w=None if sliced else _power(energy, readings, windows_s),
        energy_j=energy.joules,
        temperature_c=of_present(max, [reading.temperature_c for reading in near]),
        reasons=tuple(reason_names(_all_bits(near) & ~IDLE)),
        flags=(*(["throttled"] if throttled else []), *(["shared_gpu"] if sliced else [])),
        problem=_problem(gpu, readings, states, windows_s, period_s),
        note=joined([offered_not, throttle_note, energy.why_not, slice_note]),
        invalid=_invalid(gpu, seldom),
    )


def _energy(readings: Sequence[GpuReading], windows_s: Sequence[Window]) -> Energy:
    span = [(min(start for start, _ in windows_s), max(end for _, end in windows_s))]
    near = stretches.within(readings, span, _MARGIN_S)
    return stretches.energy([(one.time_s, one.energy_j) for one in near if one.energy_j is not None], windows_s)


def _power(energy: Energy, readings: Sequence[GpuReading], windows_s: Sequence[Window]) -> float | None:
    """Mean power: by the energy counter where it tells, else of readings whose averaging lies inside a stretch."""
    if energy.joules is not None:
        return energy.joules / stretches.total_s(windows_s)
    late = [(start + _POWER_LAG_S, end) for start, end in stretches.merged(windows_s) if end - start > _POWER_LAG_S]
    return of_present(mean, [reading.power_w for reading in stretches.within(readings, late)])


def _all_bits(readings: Sequence[GpuReading]) -> int:
    bits = 0
    for reading in readings:
        bits |= reading.reasons or 0
    return bits


def _throttling(readings: Sequence[GpuReading]) -> tuple[bool, str]:
    """Whether a disturbing reason held often enough to matter, and a note wherever there was one."""
    disturbed = [reading for reading in readings if (reading.reasons or 0) & DISTURBING]
    if not disturbed:
        return False, ""
    names = ",".join(reason_names(_all_bits(disturbed) & DISTURBING))
    note = f"{names} in {len(disturbed)} of {len(readings)} readings"
    return len(disturbed) >= THROTTLED_SHARE * len(readings), note


def _problem(
    gpu: Gpu,
    readings: Sequence[GpuReading],
    states: Sequence[GpuState],
    windows_s: Sequence[Window],
    period_s: float,
) -> str:
    """Why the figures do not cover the samples; empty where they do."""
    looks: list[GpuReading | GpuState] = [*stretches.around(readings, windows_s), *stretches.around(states, windows_s)]
    failures = [failure for look in looks for failure in look.failures]
    if failures:
        return f"{gpu.uuid}: {failures[-1]} ({len(failures)} queries failed while the samples were taken)"
    share = stretches.covered_share(readings, windows_s, _WIDEST_PERIODS * period_s)
    if share < _COVERED:
        return f"{gpu.uuid}: readings cover {share:.0%} of the samples' time ({_COVERED:.0%} are needed)"
    return ""


def _invalid(gpu: Gpu, states: Sequence[GpuState]) -> str:
    modes = {state.mig for state in states if state.mig is not None}
    errors = [state.uncorrected_errors for state in states if state.uncorrected_errors is not None]
    return joined([
        f"{gpu.uuid}: MIG mode was switched while the samples were taken" if len(modes) > 1 else "",
        f"{gpu.uuid}: {errors[-1] - errors[0]} uncorrected memory errors (ECC) while the samples were taken"
        if errors and errors[-1] > errors[0]
        else "",
    ])  # fmt: skip
