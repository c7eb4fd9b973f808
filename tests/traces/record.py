"""Records the traces of this folder anew: python tests/traces/record.py [--only NAME ...], with PyTorch and psutil.

Each trace is real work, timed iteration by iteration with `time.perf_counter_ns`, and one disturbance with a known
cause, or none. Of the quiet ones the attempt with the least foreign load is kept; the file says what the load was.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil
import torch

HERE = Path(__file__).parent
SAMPLES = 1200
WARMUP = 50
ATTEMPTS = 6
#: Before an attempt at a quiet trace: seconds to wait at most for one in which less than this many processors are busy.
PATIENCE_S, IDLE = 20, 0.3
Work = Callable[[int], object]


def decode_attention(kv_heads: int, kvsl: int, grows: int = 0) -> Work:
    """Attention of one token over a cache, 16 query heads of 64, fp32, that grows by so many each time."""
    length = kvsl + grows * (SAMPLES + WARMUP)
    query = torch.randn(1, kv_heads, 16 // kv_heads, 64)
    keys, values = torch.randn(2, 1, kv_heads, length, 64)

    def work(index: int) -> object:
        seen = kvsl + grows * index
        return torch.nn.functional.scaled_dot_product_attention(query, keys[:, :, :seen], values[:, :, :seen])

    return work


def gemm(rows: int, inner: int) -> Work:
    """A matrix product in fp32."""
    left, right = torch.randn(rows, inner), torch.randn(inner, inner)
    return lambda _: left @ right


def allocation(megabytes: int) -> Work:
    """Memory taken from the system, written and given back: page faults, and with them a heavy tail."""
    import numpy as np

    return lambda _: np.ones(megabytes * 131_072)


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy(processes: int = 1) -> Iterator[list[int]]:
    """Other processes that compute for as long as this lasts; yields their ids."""
    others = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for other in others:
        other.start()
    try:
        yield [other.pid for other in others if other.pid]
    finally:
        for other in others:
            other.kill()
            other.join()


def timed(work: Work, at: dict[int, Callable[[], None]] | None = None) -> tuple[list[int], float]:
    """Times in ns of every iteration, and how many processors other processes kept busy meanwhile, on average."""
    for index in range(WARMUP):
        work(index)
    times, own, all_of = [], sum(os.times()[:2]), psutil.cpu_times()
    began = time.monotonic()
    for index in range(SAMPLES):
        if at and index in at:
            at[index]()
        start = time.perf_counter_ns()
        work(WARMUP + index)
        times.append(time.perf_counter_ns() - start)
    elapsed, now = time.monotonic() - began, psutil.cpu_times()
    total = sum(getattr(now, field) - getattr(all_of, field) for field in ("user", "nice", "system"))
    return times, max(0.0, total - (sum(os.times()[:2]) - own)) / elapsed


def quiet(work: Work) -> tuple[list[int], float]:
    """The attempt with the least foreign load, each begun when the machine was idle, or after some patience."""

    def attempt() -> tuple[list[int], float]:
        until = time.monotonic() + PATIENCE_S
        while psutil.cpu_percent(0.5) * (os.cpu_count() or 1) / 100 > IDLE and time.monotonic() < until:
            pass
        return timed(work)

    return min((attempt() for _ in range(ATTEMPTS)), key=lambda one: one[1])


def throttled(work: Work, on_s: float, off_s: float) -> tuple[list[int], float]:
    """Beside processes that compute for `on_s` and rest for `off_s`, over and over."""
    with busy(4) as pids:
        stop = threading.Event()

        def switch() -> None:
            while not stop.is_set():
                for sign, pause in ((signal.SIGSTOP, off_s), (signal.SIGCONT, on_s)):
                    for pid in pids:
                        os.kill(pid, sign)
                    stop.wait(pause)

        thread = threading.Thread(target=switch)
        thread.start()
        try:
            return timed(work)
        finally:
            stop.set()
            thread.join()


def stepped(work: Work) -> tuple[list[int], float]:
    """Four processes that compute are let go half-way."""
    with busy(4) as pids:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return timed(work, {SAMPLES // 2: lambda: [os.kill(pid, signal.SIGCONT) for pid in pids] and None})


def beside(work: Work) -> tuple[list[int], float]:
    """Beside two processes that compute all the time."""
    with busy(2):
        return timed(work)


#: Name → (threads, the work, how it is timed, what that is in words).
TRACES: dict[str, tuple[int, Callable[[], Work], Callable[[Work], tuple[list[int], float]], str]] = {
    "attention": (1, lambda: decode_attention(4, 4096), quiet, "decode attention, KH 4, KVSL 4096, one thread"),
    "gemm": (1, lambda: gemm(16, 1024), quiet, "16 x 1024 x 1024 product, one thread"),
    "two-threads": (2, lambda: decode_attention(4, 8192), quiet, "decode attention, KVSL 8192, two threads"),
    "allocation": (1, lambda: allocation(4), quiet, "4 MiB of memory taken, written and given back"),
    "busy": (1, lambda: gemm(16, 1024), beside, "16 x 1024 x 1024 product beside two computing processes"),
    "step": (1, lambda: gemm(16, 1024), stepped, "16 x 1024 x 1024 product, four processes start to compute half-way"),
    "drift": (1, lambda: decode_attention(4, 2048, 2), quiet, "decode attention whose cache grows by 2 each time"),
    "periodic": (
        1,
        lambda: gemm(16, 1024),
        lambda work: throttled(work, 0.05, 0.2),
        "16 x 1024 x 1024 product, four processes compute for 0.05 s after every 0.2 s of rest",
    ),
}


def record(name: str) -> dict[str, Any]:
    threads, prepare, how, words = TRACES[name]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    times, foreign = how(prepare())
    return {
        "what": words,
        "recorded": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "with": f"torch {torch.__version__}, CPython {platform.python_version()}, {os.cpu_count()} CPU cores (shared)",
        "foreign_cpus": round(foreign, 2),
        "kept": f"least foreign load of {ATTEMPTS} attempts" if how is quiet else "first attempt",
        "times_us": [round(time_ns / 1000, 1) for time_ns in times],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=TRACES, default=list(TRACES))
    for name in parser.parse_args().only:
        HERE.joinpath(f"{name}.json").write_text(json.dumps(record(name)) + "\n")


if __name__ == "__main__":
    main()
