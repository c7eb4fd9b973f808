"""Device time: of whole iterations, and of ops one by one. CUDA events on a GPU, a monotonic clock on a processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

#: Runs an op: its name, a function, its arguments. Gives back what the function does.
Do = Callable[..., Any]

#: Time that the host gets to queue kernels before the device starts on them, at most.
_LONGEST_LEAD_S = 0.05
#: Clocks of `torch.cuda._sleep` per second: about the highest clock of the GPUs there are.
_CLOCKS_PER_S = 2.0e9


def call(_name: str, run: Callable[..., Any], *arguments: Any) -> Any:
    """Run an op without timing it."""
    return run(*arguments)


class Clock(Protocol):
    """Times what runs on a device."""

    def times_ms(self, run: Callable[[], Any], count: int) -> list[float]:
        """Device time of each of `count` runs, one after the other."""
        ...

    def ops_ms(self, run: Callable[[Do], Any]) -> list[tuple[str, float]]:
        """Name and device time of every op of one run, in order."""
        ...


def clock_of(kind: str) -> Clock:
    """The clock of a kind of device, `cuda` or `cpu`."""
    return CudaClock() if kind == "cuda" else CpuClock()


class CpuClock:
    """The monotonic clock: an op has ended when its call returns."""

    def times_ms(self, run: Callable[[], Any], count: int) -> list[float]:
        times = []
        for _ in range(count):
            start = time.perf_counter_ns()
            run()
            times.append((time.perf_counter_ns() - start) / 1e6)
        return times

    def ops_ms(self, run: Callable[[Do], Any]) -> list[tuple[str, float]]:
        times: list[tuple[str, float]] = []

        def timed(name: str, op: Callable[..., Any], *arguments: Any) -> Any:
            start = time.perf_counter_ns()
            result = op(*arguments)
            times.append((name, (time.perf_counter_ns() - start) / 1e6))
            return result

        run(timed)
        return times


class CudaClock:
    """CUDA events on the current stream.

    The host queues kernels while the device is held busy, so that small ones follow each other without waiting for
    the host: what is timed is the device's work, not Python's.
    """

    def __init__(self) -> None:
        self._lead_s = 0.0

    def times_ms(self, run: Callable[[], Any], count: int) -> list[float]:
        pairs = []
        for _ in range(count):
            self._hold()
            start, end = _event(), _event()
            start.record()
            queued = time.perf_counter()
            run()
            self._lead_s = time.perf_counter() - queued
            end.record()
            pairs.append((start, end))
            # Held back by a full queue, the host would count the device's time as its own.
            torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in pairs]

    def ops_ms(self, run: Callable[[Do], Any]) -> list[tuple[str, float]]:
        marks: list[tuple[str, Any, Any]] = []

        def timed(name: str, op: Callable[..., Any], *arguments: Any) -> Any:
            start, end = _event(), _event()
            start.record()
            result = op(*arguments)
            end.record()
            marks.append((name, start, end))
            return result

        torch.cuda.synchronize()
        self._lead_s = _LONGEST_LEAD_S
        self._hold()
        run(timed)
        torch.cuda.synchronize()
        return [(name, start.elapsed_time(end)) for name, start, end in marks]

    def _hold(self) -> None:
        lead_s = min(1.2 * self._lead_s, _LONGEST_LEAD_S)
        torch.cuda._sleep(int(lead_s * _CLOCKS_PER_S))  # noqa: SLF001 - what PyTorch's own tests hold a stream with


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)
