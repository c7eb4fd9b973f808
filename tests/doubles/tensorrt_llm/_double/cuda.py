"""The little of `torch.cuda` that times kernels, on simulated time: events, streams, graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorrt_llm._double.logger import Time

_CAPTURING: list[CUDAGraph] = []


class Event:
    """A point in time on the device."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._timed, self._at_ms = enable_timing, 0.0

    def record(self, stream: Any = None) -> None:  # noqa: ARG002
        self._at_ms = Time.now_ms

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds."""
        if not (self._timed and end._timed):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        return end._at_ms - self._at_ms


class Stream:
    """Work in order."""

    def wait_stream(self, other: Stream) -> None:
        """Nothing to wait for."""


class CUDAGraph:
    """Work that was captured and can be done again."""

    def __init__(self) -> None:
        self._work: list[Callable[[], None]] = []

    def replay(self) -> None:
        for work in self._work:
            work()


@contextmanager
def graph(captured: CUDAGraph, stream: Stream | None = None, **_: Any) -> Iterator[None]:
    _CAPTURING.append(captured)
    try:
        yield
    finally:
        _CAPTURING.pop()


@contextmanager
def stream(_: Stream) -> Iterator[None]:
    yield


def current_stream() -> Stream:
    return Stream()


def synchronize() -> None:
    """Nothing to wait for."""


def set_device(index: int) -> None:
    """Every rank has its own."""


def launch(work: Callable[[], None]) -> None:
    """Do it, or capture it."""
    if _CAPTURING:
        _CAPTURING[-1]._work.append(work)
    else:
        work()
