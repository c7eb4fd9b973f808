"""SQLite exports of nsys: exact sums, gaps and overlap; what is empty, missing or damaged is told apart."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from nsys_exports import ALL_REDUCE, FMHA, GEMM, MYSTERY, PROCESS, STEP, Export, two_steps

from harness.errors import EnvironmentUnfit, UnreadableInput, UsageError
from harness.profiles import Choice, Profile, make_profile, read_trace


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    return two_steps(tmp_path / "steps.sqlite")


def profile(path: Path, **choice: object) -> Profile:
    return make_profile(read_trace(path), Choice(**choice))  # type: ignore[arg-type]


def test_sums_gaps_and_overlap_are_exact(steps: Path) -> None:
    [gpu] = profile(steps).timelines
    assert (gpu.device, gpu.streams, gpu.count, gpu.windows) == ("GPU 0", 2, 8, 1)
    # 400 + 600 + 200 + 350 + 200 + 100 + 50 + 400, from 1000 to 3600
    assert (gpu.cumulative_ns, gpu.elapsed_ns) == (2300, 2600)
    # 2400 to 3000, and 3150 to 3200
    assert (gpu.gaps_ns, gpu.gap_count, [gap.duration_ns for gap in gpu.gaps]) == (650, 2, [600, 50])
    assert (gpu.gaps[0].after, gpu.gaps[0].before) == (ALL_REDUCE, "CUDA memcpy Host-to-Device")
    assert gpu.busy_ns == 1950
    # Within stream 7 from 2050 to 2100; across at 1350-1400, 1500-1700 and 2200-2250
    assert (gpu.overlap_within_streams_ns, gpu.overlap_across_streams_ns, gpu.overlap_ns) == (50, 300, 350)


def test_communication_is_hidden_exposed_or_beside_what_is_not_known(steps: Path) -> None:
    [gpu] = profile(steps).timelines
    assert gpu.communication_ns == 550
    assert gpu.hidden_ns == 50 + 200  # by attention, by the GEMM
    assert gpu.beside_unknown_ns == 50
    assert gpu.exposed_ns == 100 + 150


def test_buckets_have_cumulative_busy_and_alone_time(steps: Path) -> None:
    [gpu] = profile(steps).timelines
    found = {one.bucket: (one.count, one.cumulative_ns, one.busy_ns, one.alone_ns) for one in gpu.buckets}
    assert found == {
        "communication": (2, 550, 550, 250),
        "attention": (2, 800, 800, 750),
        "gemm": (1, 600, 600, 350),
        "copy": (2, 150, 150, 150),
        "unknown": (1, 200, 200, 100),
    }


def test_an_unknown_kernel_is_listed_with_its_share(steps: Path) -> None:
    [unknown] = profile(steps).unknown
    assert (unknown.name, unknown.count, unknown.cumulative_ns) == (MYSTERY, 1, 200)
    assert unknown.share_pct == pytest.approx(100 * 200 / 2300)


def test_kernels_of_graphs_are_led_back_to_the_ranges_of_their_capture(steps: Path) -> None:
    found = profile(steps)
    kernels = {kernel.name: kernel.ranges for kernel in read_trace(steps).kernels}
    assert kernels[FMHA] == ("capture", "attn")
    assert kernels[GEMM] == ("capture", "mlp")
    assert kernels[MYSTERY] == (STEP.format(10),)  # its capture was not recorded: the range of its launch
    assert {row.name: (row.count, row.cumulative_ns) for row in found.ranges} == {
        "attn": (2, 800),
        "mlp": (1, 600),
        STEP.format(10): (3, 750),
        STEP.format(11): (2, 150),
    }
    assert "3 kernels of CUDA graphs were captured before the profile began: no range names them" in found.notes


def test_ranges_of_nccl_are_none_of_the_program(steps: Path) -> None:
    assert "ncclAllReduce" not in {one.name for one in read_trace(steps).ranges}


def test_steps_of_the_executor_count_iterations(steps: Path) -> None:
    found = profile(steps)
    assert found.iterations == 2
    assert STEP.format(10) in found.iterations_by
    assert profile(steps, iterations=4).iterations == 4


def test_a_range_takes_what_was_launched_in_it(steps: Path) -> None:
    found = profile(steps, range="*_forward_step 11: *")
    [gpu] = found.timelines
    assert (gpu.count, gpu.cumulative_ns, gpu.elapsed_ns, gpu.gaps_ns) == (3, 550, 600, 50)
    assert found.iterations == 1


def test_time_between_ranges_is_no_gap(steps: Path) -> None:
    [gpu] = profile(steps, range="*_forward_step *").timelines
    assert (gpu.windows, gpu.elapsed_ns, gpu.gaps_ns) == (2, 1400 + 600, 50)
    [last] = profile(steps, range="*_forward_step *", skip=1).timelines
    assert last.elapsed_ns == 600


def test_a_whole_name_with_brackets_is_found_too(steps: Path) -> None:
    assert profile(steps, range=STEP.format(11)).iterations == 1


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"range": "nothing*"}, "no range is called 'nothing\\*'; it has 'attn', 'mlp', 'capture'"),
        ({"range": "*_forward_step *", "skip": 2}, "--skip 2 leaves none of 2 ranges"),
        ({"skip": 1}, "--skip leaves out the first of the ranges that --range names"),
    ],
)
def test_a_choice_that_cannot_be_met_is_told(steps: Path, choice: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        profile(steps, **choice)


def test_capture_ranges_cut_what_lies_outside(steps: Path) -> None:
    export = Export.__new__(Export)
    export.path, export._texts = steps, {}
    export.run("INSERT INTO StringIds VALUES (900, 'cudaProfilerStart_v4000'), (901, 'cudaProfilerStop_v4000')")
    thread = PROCESS | 4242
    calls = [(2800, 2810, 0, thread, 50, 900, 0), (3900, 3910, 0, thread, 51, 901, 0)]
    export.add("CUPTI_ACTIVITY_KIND_RUNTIME", calls)
    found = profile(steps)
    assert found.timelines[0].count == 3
    assert found.iterations == 1
    assert found.how == "1 capture range, cudaProfilerStart to cudaProfilerStop"
    assert "5 executions lie outside the capture ranges and are left out" in found.notes


def test_copies_may_be_missing(tmp_path: Path) -> None:
    path = Export(tmp_path / "a.sqlite", copies=False).kernel(0, 10, FMHA, 7).path
    assert profile(path).cumulative_ns == 10


def test_gpus_and_processes_have_a_timeline_each(tmp_path: Path) -> None:
    other = 4243 << 24
    export = Export(tmp_path / "a.sqlite").kernel(0, 10, FMHA, 7).kernel(100, 130, FMHA, 7, process=other)
    export.call(0, "cudaLaunchKernel", 5).call(90, "cudaLaunchKernel", 5, process=other)
    found = profile(export.path)
    assert {one.device: (one.elapsed_ns, one.gaps_ns) for one in found.timelines} == {
        "GPU 0 of process 4242": (10, 0),
        "GPU 0 of process 4243": (30, 0),
    }
    assert found.slowest is not None
    assert found.slowest.device == "GPU 0 of process 4243"


def test_a_correlation_belongs_to_its_process(tmp_path: Path) -> None:
    other = 4243 << 24
    export = Export(tmp_path / "a.sqlite")
    export.call(1, "cudaLaunchKernel", 5).call(90, "cudaLaunchKernel", 5, process=other)
    export.kernel(10, 20, FMHA, 7, 5).kernel(100, 130, FMHA, 7, 5, process=other).kernel(140, 150, FMHA, 7)
    assert [kernel.launched_ns for kernel in read_trace(export.path).kernels] == [1, 90, None]


def test_a_capture_of_the_cpu_is_empty_and_no_error(tmp_path: Path) -> None:
    export = Export(tmp_path / "cpu.sqlite").range(0, 10, "step")
    export.run("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE CUDA_GRAPH_NODE_EVENTS")
    found = profile(export.path)
    assert (found.status, found.missing, found.timelines, found.cumulative_ns) == ("empty", (), (), 0)


def test_launches_without_kernels_are_missing_and_not_empty(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").call(0, "cudaLaunchKernel_v7000", 1).call(5, "cudaMalloc_v3020", 2)
    export.run("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    found = profile(export.path)
    assert found.status == "partial"
    assert found.missing[0].startswith("1 launches were recorded and no kernel")


def test_graphs_traced_whole_are_missing_kernels(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").kernel(0, 10, FMHA, 7)
    export.run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, graphId INTEGER);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (20, 900, 1)"
    )
    found = profile(export.path)
    assert found.status == "partial"
    assert found.missing == ("1 graph launches were traced whole, without kernels: use --cuda-graph-trace node",)


def test_what_ends_before_it_starts_is_left_out_and_said(tmp_path: Path) -> None:
    found = profile(Export(tmp_path / "a.sqlite").kernel(0, 10, FMHA, 7).kernel(30, 20, GEMM, 7).path)
    assert [row.name for row in found.kernels] == [FMHA]
    assert "1 executions end before they start and are left out" in found.notes


def test_a_name_that_is_nowhere_keeps_its_number(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", [(0, 10, 0, 1, 7, None, PROCESS, 77, 77, None)])
    [unknown] = profile(export.path).unknown
    assert unknown.name == "(name 77)"


def test_layer_wise_benchmarks_say_their_warm_up_and_layers(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    export.range(0, 1, 'layer_wise_benchmarks args {"warmup_times": 1, "layer_indices": [5, 6]}')
    for run in range(3):
        at = 100 * (run + 1)
        export.range(at, at + 50, "b=8 s=1 past=4096 NP1").call(at + 10, "cudaLaunchKernel", run)
        export.kernel(at + 20, at + 20 + 10 * (run + 1), FMHA, 7, run)
    export.kernel(480, 490, MYSTERY, 7)  # between the runs
    found = profile(export.path)
    assert (found.iterations, found.layers, found.cumulative_ns) == (2, 2, 20 + 30)


def test_several_problems_of_layer_wise_benchmarks_are_not_mixed(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").range(0, 1, 'layer_wise_benchmarks args {"warmup_times": 0}')
    export.range(100, 150, "b=8 s=1 past=4096 NP1").range(200, 250, "b=16 s=1 past=4096 NP1")
    with pytest.raises(UsageError, match="2 problems; choose one by --range: 'b=8 s=1 past=4096 NP1'"):
        profile(export.path)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("DROP TABLE StringIds", "table StringIds is missing"),
        ("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId", "KERNEL lacks streamId"),
        ("ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN deviceId", "MEMCPY lacks deviceId"),
    ],
)
def test_missing_tables_and_columns_are_named(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(UnreadableInput, match=message):
        read_trace(Export(tmp_path / "a.sqlite").kernel(0, 10, FMHA, 7).run(script).path)


def test_columns_of_older_releases_are_enough(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").call(0, "cudaLaunchKernel", 1).kernel(5, 10, FMHA, 7, 1)
    for column in ("demangledName", "graphNodeId", "globalPid"):
        export.run(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {column}")
    [kernel] = read_trace(export.path).kernels
    assert (kernel.name, kernel.launched_ns) == (FMHA, 0)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite")
    for table in ("ENUM_NSYS_EVENT_TYPE", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"):
        export.run(f"DROP TABLE {table}")
    with pytest.raises(UnreadableInput, match="no export of nsys"):
        read_trace(export.path)


def test_a_truncated_export_is_unreadable(steps: Path) -> None:
    steps.write_bytes(steps.read_bytes()[:5000])
    with pytest.raises(UnreadableInput, match="not a readable SQLite export of nsys"):
        read_trace(steps)


def test_names_of_files_with_signs_of_urls_are_read(tmp_path: Path) -> None:
    assert profile(two_steps(tmp_path / "50% a?b#c.sqlite")).cumulative_ns == 2300


def test_a_report_needs_nsys_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(b"x")
    with pytest.raises(EnvironmentUnfit, match=r"nsys export --type sqlite -o a\.sqlite a\.nsys-rep"):
        read_trace(report)


def nsys(folder: Path, script: str) -> None:
    """A double of `nsys export` that refuses every other flag."""
    path = folder / "nsys"
    path.write_text(f"""#!/bin/sh
[ "$1 $2 $3 $4 $5" = "export --type sqlite --force-overwrite=true -o" ] && [ $# = 7 ] || exit 99
{script}
""")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_report_is_exported_where_nsys_is(steps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys(tmp_path, 'cp "$7" "$6"')  # the double's reports are exports already
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    report = steps.rename(tmp_path / "run 1.nsys-rep")
    found = profile(report)
    assert (found.file, found.tool, found.cumulative_ns) == (str(report), "NVIDIA Nsight Systems 2025.3.2", 2300)


def test_what_nsys_says_of_a_report_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys(tmp_path, "echo 'Error: unsupported report version' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(b"x")
    with pytest.raises(UnreadableInput, match="exit code 1: Error: unsupported report version"):
        read_trace(report)
