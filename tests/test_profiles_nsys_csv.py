"""CSV of nsys stats: every shape is read, or refused by the name of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UnreadableInput, UsageError
from harness.profiles import Choice, Profile, make_profile, read_trace

NEW = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
ROWS = """
75.0,1500,3,500.0,500.0,400,600,81.6,"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<A, B>>(Params)"
25.0,500,1,500.0,500.0,500,500,0.0,fmhaSm90Kernel
"""
PREAMBLE = """Generating SQLite file run.sqlite from run.nsys-rep
NOTICE: Existing SQLite export found: run.sqlite
        It is assumed file was previously exported from: run.nsys-rep
Processing [run.sqlite] with [/opt/nvidia/nsight-systems/2025.3.2/reports/cuda_gpu_kern_sum.py]...
"""
TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)


def read(tmp_path: Path, text: str, **choice: object) -> Profile:
    path = tmp_path / "report.csv"
    path.write_text(text, encoding="utf-8")
    return make_profile(read_trace(path), Choice(**choice))  # type: ignore[arg-type]


def times(profile: Profile) -> dict[str, tuple[int, int]]:
    return {row.bucket: (row.count, row.cumulative_ns) for row in profile.kernels}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(NEW + ROWS, id="new names"),
        pytest.param(
            "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n"
            '75.0,1500,3,500.0,400,600,"GemmUniversal<A, B>"\n25.0,500,1,500.0,500,500,fmhaSm90Kernel\n',
            id="old names: averages without a unit are not needed",
        ),
        pytest.param(
            "Time (%),Total Time (us),Instances,Avg (us),Name\n75.0,1.500,3,0.5,GemmUniversal\n25.0,0.5,1,0.5,fmha\n",
            id="µs as us",
        ),
        pytest.param(
            "Time (%),Total Time (μs),Instances,Avg (μs),Name\n75.0,1.500,3,0.5,GemmUniversal\n25.0,0.5,1,0.5,fmha\n",
            id="µs with the Greek letter",
        ),
        pytest.param(
            "Time (%),Total Time (ms),Instances,Name\n75.0,0.0015,3,GemmUniversal\n25.0,0.0005,1,fmha\n", id="ms"
        ),
        pytest.param(PREAMBLE + NEW + ROWS, id="preamble"),
        pytest.param("\ufeff" + NEW + ROWS, id="byte order mark"),
        pytest.param((NEW + ROWS).replace("\n", "\r\n"), id="line ends of Windows"),
        pytest.param(
            '"Time (%)","Total Time (ns)","Instances","Name"\n"75.0","1,500","3","GemmUniversal<A, ""B"">"\n'
            '"25.0","500","1","fmha"\n',
            id="all quoted, digits in groups",
        ),
        pytest.param(
            "Name\tInstances\tTotal Time (ns)\nGemmUniversal<A, B>\t3\t1500\nfmha\t1\t500\n".replace(", ", "; "),
            id="tabs, another order",
        ),
    ],
)
def test_shapes_that_are_read(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert found.status == "ok"
    assert times(found) == {"gemm": (3, 1500), "attention": (1, 500)}
    assert [row.share_pct for row in found.kernels] == [75.0, 25.0]


def test_totals_say_nothing_of_elapsed_time(tmp_path: Path) -> None:
    found = read(tmp_path, NEW + ROWS)
    assert found.timelines == ()
    assert any("elapsed time, gaps and overlap are not known" in note for note in found.notes)
    assert (found.iterations, read(tmp_path, NEW + ROWS, iterations=5).iterations) == (None, 5)
    with pytest.raises(UsageError, match="need a timeline"):
        read(tmp_path, NEW + ROWS, range="step")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing at all, as of a capture of the CPU"),
        pytest.param(NEW + "\n", id="a header alone"),
        pytest.param(PREAMBLE + "SKIPPED: run.sqlite does not contain CUDA kernel data.\n", id="skipped"),
    ],
)
def test_empty_reports_are_no_error(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert (found.status, found.kernels) == ("empty", ())
    assert [note for note in found.notes if "SKIPPED" in note] == [
        line for line in text.splitlines() if line.startswith("SKIPPED")
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "Time(%),Total Time,Instances,Average,Minimum,Maximum,Name\n75.0,1500,3,500,400,600,k\n",
            r":1: the title 'Total Time' has no unit; known: ns",
            id="no unit",
        ),
        pytest.param(
            "Total Time (fortnights),Instances,Name\n1,1,k\n", "in 'fortnights', which is no unit", id="odd unit"
        ),
        pytest.param(
            "Total Time (ns),Instances,Name,Name\n1,1,k,l\n", "the title 'Name' is there twice", id="two of one name"
        ),
        pytest.param(
            "Total Time (ns),Total Time (us),Instances,Name\n1,1,1,k\n",
            r"'Total Time \(ns\)' and 'Total Time \(us\)' mean the same",
            id="two of one meaning",
        ),
        pytest.param("Time (%),Total Time (ns),Name\n100,5,k\n", "the column Instances is missing", id="no count"),
        pytest.param("Start (ns),Duration (ns),Name\n1,2,k\n", "the column Device, Stream is missing", id="no stream"),
        pytest.param("Instances,Name\n3,k\n", "no line has the titles of one", id="no time"),
        pytest.param("hello\nworld\n", "no report of nsys stats", id="text"),
        pytest.param(
            "Total Time (ns),Num Calls,Name\n1,1,cudaMalloc\n", "host calls .*cuda_gpu_kern_sum", id="host calls"
        ),
        pytest.param(
            "Total Time (ns),Instances,Name\n1,1,k<4>(half, int)\n", ":2: 4 cells under 3 titles; a name with commas",
            id="commas without quotes",
        ),
        pytest.param("Total Time (ns),Instances,Name\n1,1,k\n1,1\n", ":3: 2 cells under 3 titles; it", id="cut"),
        pytest.param("Total Time (ns),Instances,Name\nfast,1,k\n", ":2: .* is 'fast', no number", id="no number"),
        pytest.param("Total Time (ns),Instances,Name\ninf,1,k\n", ":2: .* is 'inf', no number", id="infinite"),
        pytest.param("Total Time (ns),Instances,Name\n-5,1,k\n", ":2: .*a time is not negative", id="negative"),
        pytest.param("Total Time (ns),Instances,Name\n5,0,k\n", ":2: Instances is 0, no count", id="no executions"),
        pytest.param(
            "NVTX Range,NVTX Inst,Kern Inst,Total Time (ns),Kernel Name\nstep,1,1,5,k\n", "nested ranges repeat",
            id="kernels by range",
        ),
        pytest.param(
            f"{NEW}\n100,5,1,5,5,5,5,0,k\n\n{TRACE}0,5,1,4,1,1,256,1,1,40,0,0,,,,,GPU (0),1,,7,k\n",
            "would count twice", id="executions and totals",
        ),
    ],
)  # fmt: skip
def test_shapes_that_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnreadableInput, match=message):
        read(tmp_path, text)


def test_every_execution_makes_a_timeline(tmp_path: Path) -> None:
    rows = (
        '100,50,1,4,1,1,256,1,1,40,0,0,,,,,NVIDIA H200 (0),1,,7,"fmhaKernel<A, B>"\n'
        "120,80,2,4,1,1,256,1,1,40,0,0,,,,,NVIDIA H200 (0),1,,20,ncclDevKernel_AllReduce\n"
        "300,10,3,,,,,,,,,,0.004,1,Pinned,Device,NVIDIA H200 (0),1,,7,[CUDA memcpy Host-to-Device]\n"
    )
    found = read(tmp_path, PREAMBLE + TRACE + rows)
    [gpu] = found.timelines
    assert (gpu.device, gpu.cumulative_ns, gpu.elapsed_ns, gpu.busy_ns) == ("NVIDIA H200 (0)", 140, 210, 110)
    assert (gpu.hidden_ns, gpu.communication_ns) == (30, 80)
    assert [row.bucket for row in found.kernels] == ["communication", "attention", "copy"]


def test_kernels_and_copies_of_one_report_are_told_apart(tmp_path: Path) -> None:
    text = (
        "Time (%),Total Time (ns),Instances,Category,Operation\n"
        "90,90,1,CUDA_KERNEL,nvjet_x\n10,10,2,MEMORY_OPER,[CUDA memset]\n"
    )
    assert times(read(tmp_path, text)) == {"gemm": (1, 90), "copy": (2, 10)}


def test_totals_of_ranges_are_kept_apart_by_whose_time_it_is(tmp_path: Path) -> None:
    text = (
        "Time (%),Total Time (ns),Instances,Avg (ns),Style,Range\n100,70,2,35,PushPop,:step\n\n"
        "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances\n:step,PushPop,50,70,2\n"
    )
    found = read(tmp_path, text)
    assert found.kernels == ()
    assert [(one.name, one.count, one.total_ns, one.gpu) for one in found.range_totals] == [
        ("step", 2, 70, False),
        ("step", 2, 50, True),
    ]


def test_reports_of_one_file_are_added(tmp_path: Path) -> None:
    copies = "Time (%),Total Time (ns),Count,Avg (ns),Operation\n100,40,4,10,[CUDA memcpy Device-to-Host]\n"
    text = f"{PREAMBLE}{NEW}{ROWS}\nProcessing [run.sqlite] with [cuda_gpu_mem_time_sum.py]...\n{copies}"
    assert times(read(tmp_path, text)) == {"gemm": (3, 1500), "attention": (1, 500), "copy": (4, 40)}
