"""From readings to the figures of one row: only what lies in the time of its samples, and whether that is enough."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.results.device_summary import DeviceSummary
from harness.runner.telemetry import stretches
from harness.runner.telemetry.cpu_summary import summarise_cpu
from harness.runner.telemetry.figures import joined, of_all, of_present
from harness.runner.telemetry.gpu_summary import summarise_gpu
from harness.runner.telemetry.processes import foreign_on_gpus
from harness.runner.telemetry.sampler import Readings
from harness.runner.telemetry.stretches import Window


def summarise(
    seen: Readings, windows_s: Sequence[Window], own_pids: frozenset[int], *, absent: str = ""
) -> DeviceSummary:
    """Figures over `windows_s`; `absent` says what could never be observed, such as GPUs without a driver."""
    windows_s = [(start, end) for start, end in windows_s if end > start]
    if not windows_s:
        return DeviceSummary(telemetry_valid=False, telemetry_note=joined([absent, "no samples were timed"]))
    gpus = [
        summarise_gpu(gpu, readings, states, windows_s, seen.period_s)
        for gpu, readings, states in zip(seen.gpus, seen.readings, seen.states, strict=True)
    ]
    foreign = foreign_on_gpus(seen.states, windows_s, own_pids)
    cpu = summarise_cpu(seen.cpu, windows_s, with_gpu=bool(gpus))
    problems = [absent, seen.problem, *(gpu.problem for gpu in gpus), cpu.problem]
    flags = {flag for gpu in gpus for flag in gpu.flags}
    flags |= ({"noisy"} if cpu.noisy else set()) | ({"shared_gpu"} if foreign.count else set())
    return DeviceSummary(
        telemetry_valid=not any(problems),
        telemetry_note=joined([*problems, *(gpu.note for gpu in gpus), foreign.note, cpu.note]) or None,
        sm_clock_mhz=of_all(min, [gpu.sm_clock_mhz for gpu in gpus]),
        power_w=of_all(sum, [gpu.power_w for gpu in gpus]),
        energy_j=of_all(sum, [gpu.energy_j for gpu in gpus]),
        temperature_c=of_all(max, [gpu.temperature_c for gpu in gpus]),
        throttle_reasons=",".join(dict.fromkeys(reason for gpu in gpus for reason in gpu.reasons)) or None,
        foreign_processes=foreign.count,
        foreign_cpus=cpu.foreign_cpus,
        load_average=cpu.load_average,
        flags=tuple(sorted(flags)),
        invalid=joined(gpu.invalid for gpu in gpus),
    )


def details(seen: Readings, windows_s: Sequence[Window]) -> dict[str, float | int]:
    """What else was seen in that time and no column holds; what was not is left out."""
    if not windows_s:
        return {}
    gpus = [reading for readings in seen.readings for reading in stretches.around(readings, windows_s)]
    cpu = [reading for reading in stretches.around(seen.cpu, windows_s) if not reading.failures]
    found: dict[str, float | int | None] = {
        "mem_clock_mhz": of_present(median, [reading.mem_clock_mhz for reading in gpus]),
        "memory_used_bytes": of_present(max, [reading.memory_used_bytes for reading in gpus]),
        "cpu_clock_mhz": of_present(median, [reading.clock_mhz for reading in cpu]),
        "threads": max((reading.threads for reading in cpu), default=None),
    }
    return {name: value for name, value in found.items() if value is not None}
