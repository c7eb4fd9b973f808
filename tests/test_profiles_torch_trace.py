"""Chrome traces of torch.profiler: exact nanoseconds, launches, steps; empty, damaged and foreign files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UnreadableInput, UsageError
from harness.profiles import make_profile, read_trace


def event(cat: str, name: str, ts: float | str, dur: float | None = 1, **args: Any) -> dict[str, Any]:
    timed = {} if dur is None else {"dur": dur}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 1, "ts": ts, **timed, "args": args}


def kernel(name: str, ts: float, dur: float | None, stream: int = 7, correlation: int = 0) -> dict[str, Any]:
    return event("kernel", name, ts, dur, device=0, stream=stream, correlation=correlation)


def write(path: Path, events: list[dict[str, Any]], **more: Any) -> Path:
    text = json.dumps({"schemaVersion": 1, "traceEvents": events, "displayTimeUnit": "ms", **more})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


STEPS = [
    event("user_annotation", "ProfilerStep#3", 0, 50),
    event("user_annotation", "ProfilerStep#4", 50, 50),
    event("cpu_op", "aten::mm", 1, 5),
    event("cuda_runtime", "cudaLaunchKernel", 5, 2, correlation=1),
    event("cuda_runtime", "cudaLaunchKernel", 55, 2, correlation=2),
    event("gpu_user_annotation", "ProfilerStep#3", 10, 60),
    kernel("nvjet_sm90_tst", 10.5, 20.25, 7, 1),
    kernel("ncclDevKernel_AllGather", 20.5, 20, 20, 1),
    kernel("nvjet_sm90_tst", 60, 10, 7, 2),
    event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 80, 2.5, device=0, stream=7),
    event("gpu_memset", "Memset (Device)", 90, 0, device=0, stream=7),
    {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
]


@pytest.mark.parametrize("name", ["a.json", "a.pt.trace.json.gz", "without-a-suffix"])
def test_kernels_copies_and_steps(tmp_path: Path, name: str) -> None:
    found = make_profile(read_trace(write(tmp_path / name, STEPS)))
    [gpu] = found.timelines
    assert gpu.cumulative_ns == 20250 + 20000 + 10000 + 2500
    assert gpu.elapsed_ns == 90000 - 10500
    # 10.5 to 40.5, 60 to 70, 80 to 82.5; the fill at 90 takes no time
    assert (gpu.busy_ns, gpu.gaps_ns) == (42500, 37000)
    assert (gpu.communication_ns, gpu.hidden_ns, gpu.exposed_ns) == (20000, 10250, 9750)
    assert (found.iterations, found.format, found.status) == (2, "torch-trace", "ok")
    assert {row.name: (row.count, row.cumulative_ns) for row in found.ranges} == {
        "ProfilerStep#3": (2, 40250),
        "ProfilerStep#4": (1, 10000),
    }


def test_times_since_1970_keep_their_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    head = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "nvjet", "args": {"device": 0, "stream": 7},'
    path.write_text(head + '"ts": 1699999999123456.789, "dur": 0.001}]}')
    [found] = read_trace(path).kernels
    assert (found.start_ns, found.duration_ns) == (1699999999123456789, 1)


def test_a_bare_list_of_events_and_old_categories_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps([event("Kernel", "nvjet", 1, 2, stream=7, device=0), event("Memcpy", "Memcpy HtoD", 4, 1)])
    )
    assert [row.bucket for row in make_profile(read_trace(path)).kernels] == ["gemm", "copy"]


def test_a_trace_of_the_cpu_is_empty(tmp_path: Path) -> None:
    found = make_profile(read_trace(write(tmp_path / "a.json", [event("cpu_op", "aten::mm", 1, 5)])))
    assert (found.status, found.missing) == ("empty", ())


def test_launches_without_kernels_are_missing(tmp_path: Path) -> None:
    events = [event("cuda_runtime", "cudaGraphLaunch", 1, 5, correlation=1)]
    found = make_profile(read_trace(write(tmp_path / "a.json", events)))
    assert (found.status, found.missing) == ("partial", ("1 launches were recorded and no kernel",))


def test_events_without_an_end_are_counted_and_left_out(tmp_path: Path) -> None:
    found = make_profile(read_trace(write(tmp_path / "a.json", [kernel("nvjet", 1, None), kernel("nvjet", 5, 2)])))
    assert (found.cumulative_ns, found.notes) == (2000, ("1 executions have no duration and are left out",))


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([kernel("nvjet", 1, float("nan"))], "event 'nvjet' has dur nan"),
        ([kernel("nvjet", 1, -2)], "negative duration -2 µs"),
        ([event("kernel", "nvjet", "soon", 1)], "event 'nvjet' has ts 'soon', which is no time in µs"),
    ],
)
def test_times_that_are_none_are_named(tmp_path: Path, events: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UnreadableInput, match=message):
        read_trace(write(tmp_path / "a.json", events))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"traceEvents": [{"ph": "X"', "the file breaks off"),
        (b'{"results": []}', "no chrome trace: it has no list 'traceEvents'"),
        (b"{]", "a.json:1:2: not JSON"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-6], "damaged gzip"),
        (b'{"a": "\xff"}', "not UTF-8 text"),
        (b"\x00\x01\x02", "of no known format"),
    ],
)
def test_damaged_and_foreign_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableInput, match=message):
        read_trace(path)


def test_a_missing_file_and_a_folder_are_no_profiles(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_trace(tmp_path / "a.json")
    with pytest.raises(UsageError, match="is a folder"):
        read_trace(tmp_path)
