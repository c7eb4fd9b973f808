"""Arithmetic over stretches of time and readings: coverage, merging, energy from a counter that moves in steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Protocol, TypeVar

Window = tuple[float, float]


class Timed(Protocol):
    """What has a time, `time.monotonic()`."""

    @property
    def time_s(self) -> float: ...


T = TypeVar("T", bound=Timed)

#: Windows closer together than this share of their length are one stretch: nothing else ran in between.
_GAP_SHARE = 0.1
#: A stretch must last this many steps of the energy counter. Its ends are known to one step each, so that at most a
#: fifth of the *difference* between this load's power and its neighbours' is booked wrongly.
STEPS = 10


def merged(windows: Sequence[Window]) -> list[Window]:
    """The windows in order of time, those that all but touch joined."""
    stretches: list[Window] = []
    for start, end in sorted(windows):
        if stretches and start - stretches[-1][1] <= _GAP_SHARE * max(end - start, 0.0):
            stretches[-1] = (stretches[-1][0], max(end, stretches[-1][1]))
        else:
            stretches.append((start, end))
    return stretches


def total_s(windows: Sequence[Window]) -> float:
    """Sum of the windows' lengths."""
    return sum(end - start for start, end in windows)


def around(readings: Sequence[T], windows: Sequence[Window]) -> list[T]:
    """Readings from the last before the first window to the first after the last window."""
    times = [reading.time_s for reading in readings]
    first = bisect_right(times, min(start for start, _ in windows)) - 1
    last = bisect_left(times, max(end for _, end in windows))
    return list(readings[max(first, 0) : last + 1])


def within(readings: Sequence[T], windows: Sequence[Window], reach_s: float = 0.0) -> list[T]:
    """Readings inside the windows, or up to `reach_s` outside, each once."""
    times = [reading.time_s for reading in readings]
    chosen: set[int] = set()
    for start, end in windows:
        chosen.update(range(bisect_left(times, start - reach_s), bisect_right(times, end + reach_s)))
    return [readings[index] for index in sorted(chosen)]


def covered_share(readings: Sequence[Timed], windows: Sequence[Window], widest_s: float) -> float:
    """Share of the windows' time that lies between two readings at most `widest_s` apart, 0 to 1."""
    times = [reading.time_s for reading in readings]
    covered = 0.0
    for start, end in windows:
        first = max(bisect_right(times, start) - 1, 0)
        last = bisect_left(times, end) + 1
        for left, right in pairwise(times[first:last]):
            if right - left <= widest_s:
                covered += max(0.0, min(right, end) - max(left, start))
    length = total_s(windows)
    return covered / length if length > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of one GPU over windows, or why there is none."""

    joules: float | None
    why_not: str = ""


def energy(counter: Sequence[tuple[float, float]], windows: Sequence[Window]) -> Energy:
    """Energy over `windows` by a counter read as (time s, joules), which is updated at intervals of its own.

    NVIDIA documents the counter (nvmlDeviceGetTotalEnergyConsumption, millijoules) but not its interval; on A100 and
    H100 power is refreshed every 100 ms (Yang, Adamek, Armour, arXiv:2312.02741v2). So the interval is taken from the
    readings, the counter is drawn as straight lines between its updates, and windows too short for that get none.
    """
    if any(later[1] < sooner[1] for sooner, later in pairwise(counter)):
        return Energy(None, "the energy counter went backwards")
    knots = [later for sooner, later in pairwise(counter) if later[1] > sooner[1]]
    if len(knots) < 3:
        return Energy(None, "the energy counter moved less than three times meanwhile")
    step_s = median(later[0] - sooner[0] for sooner, later in pairwise(knots))
    stretches = merged(windows)
    shortest_s = min(end - start for start, end in stretches)
    if shortest_s < STEPS * step_s:
        return Energy(
            None,
            f"no energy: samples come in stretches of {shortest_s * 1e3:.3g} ms between those of other rows, "
            f"and the energy counter moves every {step_s * 1e3:.3g} ms ({STEPS} of its steps are needed)",
        )
    knots = [counter[0], *knots]
    if stretches[0][0] < knots[0][0] or stretches[-1][1] > knots[-1][0] + 3 * step_s:
        return Energy(None, "no energy: the counter was not read over the whole time")
    joules = sum(_at(knots, end) - _at(knots, start) for start, end in stretches)
    return Energy(joules * total_s(windows) / total_s(stretches))


def _at(knots: Sequence[tuple[float, float]], time_s: float) -> float:
    """The counter at `time_s`, on the line through the updates around it; the last line goes on."""
    right = min(max(bisect_right(knots, (time_s, float("inf"))), 1), len(knots) - 1)
    (t0, e0), (t1, e1) = knots[right - 1], knots[right]
    return e0 + (e1 - e0) * (time_s - t0) / (t1 - t0)
