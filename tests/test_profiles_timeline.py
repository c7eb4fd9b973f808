"""Sums over one GPU: the identities hold for any executions, and agree with counting every nanosecond."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.profiles import Kernel, kernel_buckets
from harness.profiles.timeline import Timeline, timeline_of

TABLE = kernel_buckets()
NAMES = {"communication": "nccl", "gemm": "nvjet", "attention": "fmha", "unknown": "mystery", "copy": "CUDA memset"}


def execution(start: int, duration: int, bucket: str, stream: int) -> Kernel:
    return Kernel(NAMES[bucket], "kernel", start, start + duration, "GPU 0", str(stream))


def added(*windows: list[Kernel]) -> Timeline:
    return timeline_of("GPU 0", windows, lambda kernel: TABLE.of_kernel(kernel.name), TABLE)


EXECUTIONS = st.lists(
    st.builds(execution, st.integers(0, 60), st.integers(0, 20), st.sampled_from(sorted(NAMES)), st.integers(1, 3)),
    min_size=1,
    max_size=12,
)


@given(EXECUTIONS)
def test_sums_agree_with_counting_every_nanosecond(kernels: list[Kernel]) -> None:
    found = added(kernels)
    first, last = min(one.start_ns for one in kernels), max(one.end_ns for one in kernels)
    running = [[one for one in kernels if one.start_ns <= at < one.end_ns] for at in range(first, last)]
    assert found.elapsed_ns == last - first
    assert found.busy_ns == sum(bool(now) for now in running)
    assert found.gaps_ns == sum(not now for now in running)
    assert found.cumulative_ns == sum(len(now) for now in running)
    assert found.overlap_across_streams_ns == sum(max(len({one.stream for one in now}) - 1, 0) for now in running)
    assert found.communication_ns == sum(any(one.name == "nccl" for one in now) for now in running)

    def beside(now: list[Kernel], names: set[str]) -> bool:
        pairs = ((a, b) for a in now for b in now)
        return any(a.name == "nccl" and b.name in names and a.stream != b.stream for a, b in pairs)

    hidden = [beside(now, {"nvjet", "fmha"}) for now in running]
    assert found.hidden_ns == sum(hidden)
    unsure = (not hid and beside(now, {"mystery"}) for now, hid in zip(running, hidden, strict=True))
    assert found.beside_unknown_ns == sum(unsure)


@given(EXECUTIONS)
def test_the_identities_hold(kernels: list[Kernel]) -> None:
    found = added(kernels)
    assert found.cumulative_ns - found.overlap_ns == found.busy_ns
    assert found.busy_ns + found.gaps_ns == found.elapsed_ns
    assert found.hidden_ns + found.exposed_ns + found.beside_unknown_ns == found.communication_ns
    assert min(found.overlap_within_streams_ns, found.overlap_across_streams_ns, found.exposed_ns) >= 0
    assert sum(one.cumulative_ns for one in found.buckets) == found.cumulative_ns
    assert sum(one.count for one in found.buckets) == len(kernels)
    assert all(one.alone_ns <= one.busy_ns <= one.cumulative_ns for one in found.buckets)
    assert sum(one.alone_ns for one in found.buckets) <= found.busy_ns


@given(EXECUTIONS, EXECUTIONS)
def test_windows_add_up(first: list[Kernel], second: list[Kernel]) -> None:
    both, one, two = added(first, second), added(first), added(second)
    for name in ("count", "cumulative_ns", "elapsed_ns", "busy_ns", "gaps_ns", "overlap_ns", "hidden_ns", "exposed_ns"):
        assert getattr(both, name) == getattr(one, name) + getattr(two, name), name


def test_a_copy_does_not_hide_communication() -> None:
    found = added([execution(0, 10, "communication", 1), execution(0, 10, "copy", 2)])
    assert (found.hidden_ns, found.exposed_ns) == (0, 10)


def test_compute_on_the_same_stream_does_not_hide_communication() -> None:
    found = added([execution(0, 10, "communication", 1), execution(5, 10, "gemm", 1)])
    assert (found.hidden_ns, found.exposed_ns, found.overlap_within_streams_ns) == (0, 10, 5)


def test_an_execution_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="GPU 0: an execution ends before it starts"):
        added([execution(10, -1, "gemm", 1)])
