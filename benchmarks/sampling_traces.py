"""Traces that `benchmarks/sampling.py` replays: drawn from processes whose median is known, and recorded ones.

A recorded trace is replayed by the stationary bootstrap (Politis and Romano, JASA 89, 1994): stretches of it, 50
samples long on average, from random places, one after the other. What is drawn so has the trace's own median as its
median, and within a stretch depends on what came before as the trace does. `tests/traces/record.py` made them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter
from scipy.stats import norm, t

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]

FOLDER = Path(__file__).parent.parent / "tests" / "traces"
BLOCK = 50


@dataclass(frozen=True)
class Trace:
    """A process that samples are drawn from, and its median."""

    name: str
    draw: Draw
    median: float
    foreign_cpus: float | None = None
    """Of recorded traces: processors that others kept busy meanwhile."""


def normal(spread_pct: float) -> Trace:
    """Independent samples."""
    return Trace(f"normal {spread_pct} %", lambda rng, count: 1 + spread_pct / 100 * rng.normal(size=count), 1.0)


def exponential(spread_pct: float) -> Trace:
    """A floor, and delays above it."""

    def draw(rng: np.random.Generator, count: int) -> Array:
        return 1 + spread_pct / 100 * rng.exponential(size=count)

    return Trace(f"exponential {spread_pct} %", draw, 1 + spread_pct / 100 * float(np.log(2)))


def heavy_tail(spread_pct: float) -> Trace:
    """A floor, and delays whose variance is infinite: |t| of two degrees of freedom."""

    def draw(rng: np.random.Generator, count: int) -> Array:
        return 1 + spread_pct / 100 * np.abs(rng.standard_t(2, size=count))

    return Trace(f"heavy tail {spread_pct} %", draw, 1 + spread_pct / 100 * float(t.ppf(0.75, 2)))


def ticks(spread_pct: float) -> Trace:
    """A coarse clock: normal, in steps of its own standard deviation."""

    def draw(rng: np.random.Generator, count: int) -> Array:
        return 1 + spread_pct / 100 * np.round(rng.normal(size=count))

    return Trace(f"ticks {spread_pct} %", draw, 1.0)


def autoregressive(correlation: float, spread_pct: float) -> Trace:
    """AR(1): every sample remembers the one before."""

    def draw(rng: np.random.Generator, count: int) -> Array:
        steps = rng.normal(size=count + 200) * np.sqrt(1 - correlation**2)
        return 1 + spread_pct / 100 * lfilter([1.0], [1.0, -correlation], steps)[200:]

    return Trace(f"AR(1) {correlation}, {spread_pct} %", draw, 1.0)


def throttled(spread_pct: float, period: int, slow: int) -> Trace:
    """Of every `period` samples, `slow` in a row take 30 % longer; where in the period it begins is random."""

    def draw(rng: np.random.Generator, count: int) -> Array:
        position = (np.arange(count) + rng.integers(period)) % period
        return (1 + spread_pct / 100 * rng.normal(size=count)) * np.where(position < slow, 1.3, 1.0)

    middle = float(norm.ppf(0.5 / (1 - slow / period)))
    return Trace(f"throttled {slow} of {period}", draw, 1 + spread_pct / 100 * middle)


def recorded(name: str) -> Trace:
    """A trace of `tests/traces`."""
    data = json.loads((FOLDER / f"{name}.json").read_text())
    times = np.array(data["times_us"])

    def draw(rng: np.random.Generator, count: int) -> Array:
        begins = rng.random(count) < 1 / BLOCK
        begins[0] = True
        starts = rng.integers(len(times), size=count)
        since = np.maximum.accumulate(np.where(begins, np.arange(count), 0))
        return times[(starts[since] + np.arange(count) - since) % len(times)]

    return Trace(f"recorded: {name}", draw, float(np.median(times)), data["foreign_cpus"])


def steady() -> list[Trace]:
    """Traces with one median from beginning to end."""
    drawn = [normal(0.25), normal(0.5), normal(1.0), normal(2.0), exponential(1.0), heavy_tail(1.0), ticks(0.5)]
    drawn += [autoregressive(0.3, 1.0), autoregressive(0.6, 1.0), autoregressive(0.8, 0.5), autoregressive(0.9, 0.3)]
    drawn += [throttled(0.5, 50, 8), throttled(0.5, 20, 6)]
    return drawn + [recorded(name) for name in ("gemm", "attention", "two-threads", "allocation", "periodic", "busy")]


def step(rise_pct: float, at: int) -> Draw:
    """Normal, 0.5 %, that is slower by so much from sample `at` on."""
    return lambda rng, count: normal(0.5).draw(rng, count) * np.where(np.arange(count) < at, 1, 1 + rise_pct / 100)


def drift(rise_pct: float) -> Draw:
    """Normal, 0.5 %, that rises by so much in every 100 samples."""
    return lambda rng, count: normal(0.5).draw(rng, count) * (1 + rise_pct / 100 * np.arange(count) / 100)


def stretch(name: str) -> Draw:
    """A stretch of a recorded trace as it is, from a random place."""
    times = np.array(json.loads((FOLDER / f"{name}.json").read_text())["times_us"])

    def draw(rng: np.random.Generator, count: int) -> Array:
        start = int(rng.integers(len(times) - count))
        return times[start : start + count]

    return draw
