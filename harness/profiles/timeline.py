"""Exact sums over the executions of one GPU: busy, gaps, overlap, communication hidden behind compute.

Cumulative time adds the durations of all executions; elapsed time runs from the first start to the last end. They are
tied by one identity, in whole nanoseconds:

    cumulative - overlap = busy        busy + gaps = elapsed

Executions overlap across streams, and within one stream too where a kernel begins before the one before it has ended
(programmatic dependent launch, on by default from TensorRT-LLM 1.2); both parts are kept apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.profiles.buckets import COMMUNICATION, UNKNOWN, BucketTable
from harness.profiles.kernels import Kernel

#: What runs at one time: pairs of stream and bucket.
State = frozenset[tuple[str, str]]
_Event = tuple[int, int, int]

#: Gaps that are kept, the longest ones.
_GAPS = 10


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which nothing ran on the GPU, between two executions."""

    start_ns: int
    duration_ns: int
    after: str
    """Name of what ended last before it."""
    before: str
    """Name of what started after it."""


@dataclass(frozen=True, slots=True)
class BucketTime:
    """The executions of one bucket on one GPU."""

    bucket: str
    count: int
    cumulative_ns: int
    busy_ns: int
    """At least one of them ran."""
    alone_ns: int
    """Nothing of another bucket ran meanwhile."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """One GPU over all windows that count; gaps between windows are none."""

    device: str
    windows: int
    streams: int
    count: int
    cumulative_ns: int
    elapsed_ns: int
    busy_ns: int
    gaps_ns: int
    gap_count: int
    gaps: tuple[Gap, ...]
    """The longest."""
    overlap_within_streams_ns: int
    overlap_across_streams_ns: int
    communication_ns: int
    """Some communication ran: not cumulative. It is hidden, exposed or beside unknown kernels."""
    hidden_ns: int
    """Of it, with compute on another stream meanwhile."""
    beside_unknown_ns: int
    """Of it, with no compute that is known as such, but an unknown kernel, on another stream."""
    buckets: tuple[BucketTime, ...]

    @property
    def overlap_ns(self) -> int:
        """Cumulative time that was counted more than once."""
        return self.overlap_within_streams_ns + self.overlap_across_streams_ns

    @property
    def exposed_ns(self) -> int:
        """Communication with no compute on another stream."""
        return self.communication_ns - self.hidden_ns - self.beside_unknown_ns


@dataclass(frozen=True, slots=True)
class _Window:
    states: dict[State, int]
    gaps: list[Gap]
    elapsed_ns: int


def timeline_of(
    device: str, windows: Sequence[Sequence[Kernel]], bucket_of: Callable[[Kernel], str], table: BucketTable
) -> Timeline:
    """Add up the executions of one GPU in each window. Raises ValueError for one that ends before it starts."""
    kernels = [kernel for window in windows for kernel in window]
    if any(kernel.end_ns < kernel.start_ns for kernel in kernels):
        raise ValueError(f"{device}: an execution ends before it starts")
    swept = [_sweep(window, bucket_of) for window in windows if window]
    states: dict[State, int] = {}
    for window in swept:
        for state, time_ns in window.states.items():
            states[state] = states.get(state, 0) + time_ns
    cumulative = sum(kernel.duration_ns for kernel in kernels)
    busy = sum(states.values())
    by_stream = sum(time_ns * len({stream for stream, _ in state}) for state, time_ns in states.items())
    gaps = [gap for window in swept for gap in window.gaps]
    return Timeline(
        device=device,
        windows=len(swept),
        streams=len({kernel.stream for kernel in kernels}),
        count=len(kernels),
        cumulative_ns=cumulative,
        elapsed_ns=sum(window.elapsed_ns for window in swept),
        busy_ns=busy,
        gaps_ns=sum(gap.duration_ns for gap in gaps),
        gap_count=len(gaps),
        gaps=tuple(sorted(gaps, key=lambda gap: (-gap.duration_ns, gap.start_ns))[:_GAPS]),
        overlap_within_streams_ns=cumulative - by_stream,
        overlap_across_streams_ns=by_stream - busy,
        **_communication(states, table),
        buckets=tuple(_bucket_times(kernels, states, bucket_of, table)),
    )


def _sweep(kernels: Sequence[Kernel], bucket_of: Callable[[Kernel], str]) -> _Window:
    """How long each state lasted in one window, and the gaps."""
    keys = [(kernel.stream, bucket_of(kernel)) for kernel in kernels]
    active: dict[tuple[str, str], int] = {}
    states: dict[State, int] = {}
    gaps: list[Gap] = []
    state: State = frozenset()
    last_ns, last_name = None, ""
    for at_ns, starts, index in _events(kernels):
        if last_ns is not None and at_ns > last_ns:
            if state:
                states[state] = states.get(state, 0) + at_ns - last_ns
            else:
                gaps.append(Gap(last_ns, at_ns - last_ns, last_name, kernels[index].name))
        key = keys[index]
        running = active.get(key, 0) + (1 if starts else -1)
        active[key] = running
        if running == 0:
            del active[key]
        if running == 0 or (starts and running == 1):
            state = frozenset(active)
        last_ns, last_name = at_ns, kernels[index].name
    first_ns, end_ns = min(kernel.start_ns for kernel in kernels), max(kernel.end_ns for kernel in kernels)
    return _Window(states, gaps, end_ns - first_ns)


def _events(kernels: Sequence[Kernel]) -> Iterator[_Event]:
    """Starts and ends in order of time: at one time ends first, except the end of what takes no time."""
    events = []
    for index, kernel in enumerate(kernels):
        instant = kernel.start_ns == kernel.end_ns
        events.append((kernel.start_ns, 1, index, 1))
        events.append((kernel.end_ns, 2 if instant else 0, index, 0))
    for at_ns, _, index, starts in sorted(events):
        yield at_ns, starts, index


def _communication(states: dict[State, int], table: BucketTable) -> dict[str, int]:
    """Time with communication, and of it with compute or with unknown kernels on another stream."""
    found = {"communication_ns": 0, "hidden_ns": 0, "beside_unknown_ns": 0}
    for state, time_ns in states.items():
        streams = {stream for stream, bucket in state if bucket == COMMUNICATION}
        if not streams:
            continue
        found["communication_ns"] += time_ns
        beside = {bucket for stream, bucket in state if bucket != COMMUNICATION and streams - {stream}}
        if any(table.computes(bucket) for bucket in beside):
            found["hidden_ns"] += time_ns
        elif UNKNOWN in beside:
            found["beside_unknown_ns"] += time_ns
    return found


def _bucket_times(
    kernels: Sequence[Kernel], states: dict[State, int], bucket_of: Callable[[Kernel], str], table: BucketTable
) -> Iterator[BucketTime]:
    durations: dict[str, list[int]] = {}
    for kernel in kernels:
        durations.setdefault(bucket_of(kernel), []).append(kernel.duration_ns)
    for bucket in sorted(durations, key=table.order):
        with_it = {state: time_ns for state, time_ns in states.items() if any(one == bucket for _, one in state)}
        alone = sum(time_ns for state, time_ns in with_it.items() if all(one == bucket for _, one in state))
        yield BucketTime(bucket, len(durations[bucket]), sum(durations[bucket]), sum(with_it.values()), alone)
