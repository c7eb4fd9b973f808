"""What the processors did over the time of one row's samples, and how much of it was others'."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from harness.runner.telemetry import stretches
from harness.runner.telemetry.cpu import CpuReading
from harness.runner.telemetry.stretches import Window

#: Processors that others may keep busy beside a measurement on the CPU: a quarter of one.
NOISY_CPUS = 0.25
#: The same beside one on GPUs, as a share of all processors: what is timed is the device, which only has to be fed.
NOISY_SHARE_WITH_GPU = 0.25
#: Kernels count processor time in ticks of 10 ms; over less than this the difference of two counts says little.
_SHORTEST_S = 0.25
#: How much longer than the samples a look may be before it tells of another time.
_WIDEST_MARGIN_S = 10.0


@dataclass(frozen=True, slots=True)
class CpuSummary:
    """Figures over the samples' time; None where they could not be had, and `problem` says why."""

    foreign_cpus: float | None = None
    """Processors that others kept busy, on average."""
    load_average: float | None = None
    noisy: bool = False
    problem: str = ""
    note: str = ""


def noisy_limit(*, with_gpu: bool, cpus: int | None = None) -> float:
    """Processors that others may keep busy before a row is `noisy`; `cpus` is by default those of this machine."""
    share = NOISY_SHARE_WITH_GPU * (cpus or os.cpu_count() or 1)
    return max(NOISY_CPUS, share) if with_gpu else NOISY_CPUS


def summarise_cpu(readings: Sequence[CpuReading], windows_s: Sequence[Window], *, with_gpu: bool) -> CpuSummary:
    """Foreign load from the last reading before the first window to the first after the last.

    It includes the time in which other arms of the same process were timed: what others did then counts as well.
    foreign_cpus = (busy time of all processors - that of this process, the worker and their descendants) / elapsed.
    """
    near = stretches.around(readings, windows_s)
    failures = [failure for reading in near for failure in reading.failures]
    if failures:
        return CpuSummary(problem=failures[-1])
    start, end = min(start for start, _ in windows_s), max(end for _, end in windows_s)
    if not near or near[0].time_s > start or near[-1].time_s < end:
        return CpuSummary(problem="the processors were not read over the whole time of the samples")
    load_average = near[-1].load_average
    length_s = near[-1].time_s - near[0].time_s
    if not _SHORTEST_S <= length_s <= end - start + _WIDEST_MARGIN_S:
        problem = f"the processors were read over {length_s:.3g} s for samples of {end - start:.3g} s"
        return CpuSummary(load_average=load_average, problem=problem)
    busy_s, own_s = near[-1].busy_s - near[0].busy_s, near[-1].own_s - near[0].own_s
    foreign = max(0.0, (busy_s - own_s) / length_s)
    limit = noisy_limit(with_gpu=with_gpu)
    if foreign <= limit:
        return CpuSummary(foreign, load_average)
    load = "" if load_average is None else f", load average {load_average:.2f}"
    note = f"other processes kept {foreign:.2f} processors busy (limit {limit:g}){load}"
    return CpuSummary(foreign, load_average, noisy=True, note=note)
