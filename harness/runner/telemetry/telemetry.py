"""One object to observe a worker with: opened when its GPUs are known, asked once per row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness.results.device_summary import DeviceSummary
from harness.runner.telemetry.cpu import CpuReader
from harness.runner.telemetry.nvml import Gpu, Nvml, NvmlAbsent
from harness.runner.telemetry.sampler import PERIOD_S, Sampler
from harness.runner.telemetry.stretches import Window
from harness.runner.telemetry.summary import details, summarise


class Telemetry:
    """Observes GPUs and processors between `start` and `close`; made by `open_telemetry`."""

    def __init__(self, sampler: Sampler, cpu: CpuReader, *, absent: str = "", nvml: Nvml | None = None) -> None:
        self._sampler = sampler
        self._cpu = cpu
        self._absent = absent
        self._nvml = nvml

    def start(self) -> None:
        """Begin to read; before the first sample is taken."""
        self._sampler.start()

    def summary(self, windows_s: Sequence[Window]) -> DeviceSummary:
        """Figures over `windows_s`, times by `time.monotonic()`; call it soon after the last one. Never raises.

        Energy is of all samples' time; the record divides it by their tokens.
        """
        try:
            seen = self._sampler.look(_end_s(windows_s))
            return summarise(seen, windows_s, frozenset(self._cpu.own_pids), absent=self._absent)
        except Exception as error:  # noqa: BLE001 - a row that was measured is worth more than its telemetry
            return DeviceSummary(telemetry_valid=False, telemetry_note=f"telemetry failed: {error!r}")

    def details(self, windows_s: Sequence[Window]) -> dict[str, float | int]:
        """Memory clock and use of the GPUs, clock of the processors, threads: worth keeping beside the columns."""
        return details(self._sampler.look(_end_s(windows_s)), windows_s)

    def close(self) -> None:
        """Stop reading and release the driver, unless that hangs."""
        if self._sampler.close() and self._nvml is not None:
            self._nvml.close()


def _end_s(windows_s: Sequence[Window]) -> float:
    return max((end for _, end in windows_s), default=float("-inf"))


def open_telemetry(
    gpu_uuids: Sequence[str] | None,
    own_pids: Callable[[], Iterable[int]],
    *,
    nvml: Any = None,
    period_s: float = PERIOD_S,
) -> Telemetry:
    """Make ready to observe `gpu_uuids`, none for a run on the CPU. Ours are this process, `own_pids` and descendants.

    `nvml` is the module nvidia-ml-py, or what behaves like it; by default it is imported. Without module, driver or
    such a GPU only the processors are observed, and every summary says so and is not valid.
    """
    gpus: list[Gpu] = []
    library, absent = None, ""
    if gpu_uuids:
        try:
            library = Nvml(nvml)
            gpus = [library.gpu(uuid) for uuid in gpu_uuids]
        except NvmlAbsent as error:
            gpus, absent = [], f"no telemetry of the GPUs: {error}"
    cpu = CpuReader(own_pids)
    return Telemetry(Sampler(gpus, cpu, period_s), cpu, absent=absent, nvml=library)
