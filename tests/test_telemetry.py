"""The thread, with the double of nvidia-ml-py; nothing here depends on how fast the machine is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from doubles.nvml import FakeGpu, FakeNvml

from harness.runner.telemetry import Telemetry, open_telemetry, visible_gpu_uuids
from harness.runner.telemetry import sampler as sampler_module
from harness.runner.telemetry.nvml import Nvml, NvmlAbsent


@pytest.fixture(scope="module")
def worker() -> Iterator[int]:
    """A process that stands for the one that is measured."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def a_gpu(**more: object) -> FakeGpu:
    """A GPU under 500 W, whose counter is updated every 20 ms."""
    usual = {"energy_mj": lambda now: int(now / 0.02) * 10_000, "pids": [os.getpid()]}
    return FakeGpu(**{**usual, **more})


def observing(double: FakeNvml | None, *uuids: str) -> Telemetry:
    return open_telemetry(uuids, set, nvml=double)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_row_observed_from_start_to_end():
    double = FakeNvml(a_gpu())
    telemetry = observing(double, double.machine[0].uuid)
    telemetry.start()
    start_s = time.monotonic()
    wait_for(lambda: time.monotonic() > start_s + 2)
    end_s = time.monotonic()
    row = telemetry.summary([(start_s, end_s)])
    details = telemetry.details([(start_s, end_s)])
    telemetry.close()
    assert (row.sm_clock_mhz, row.temperature_c, row.foreign_processes) == (1755, 50, 0)
    assert row.foreign_cpus is not None
    assert details["mem_clock_mhz"] == 3201
    assert double.opened == 0
    # On a machine so busy that the thread was held up, the summary may say that it does not cover the samples.
    assert row.telemetry_valid or "readings cover" in str(row.telemetry_note)
    if row.energy_j is not None:
        assert row.energy_j == pytest.approx(500 * (end_s - start_s), rel=0.2)


def test_a_worker_and_its_children_on_the_gpu_are_ours_and_others_are_not(worker):
    # The process that runs the tests stands for a rank that the worker started: both are found through /proc.
    gpu = a_gpu(pids=[worker, os.getpid(), 1])
    telemetry = observing(FakeNvml(gpu), gpu.uuid)
    telemetry.start()
    now_s = time.monotonic()
    row = telemetry.summary([(now_s - 0.01, now_s)])
    telemetry.close()
    assert (row.foreign_processes, row.flags) == (1, ("shared_gpu",))


def test_a_summary_right_after_the_start_has_readings_on_both_sides():
    double = FakeNvml(a_gpu())
    telemetry = observing(double, double.machine[0].uuid)
    telemetry.start()
    now_s = time.monotonic()
    row = telemetry.summary([(now_s, now_s + 1e-4)])
    telemetry.close()
    assert row.sm_clock_mhz == 1755
    assert row.energy_j is None


def test_a_driver_that_starts_to_fail_ends_neither_thread_nor_run():
    gpu = a_gpu()
    double = FakeNvml(gpu)
    telemetry = observing(double, gpu.uuid)
    telemetry.start()
    gpu.failing["nvmlDeviceGetPowerUsage"] = "Unknown"
    start_s, asked = time.monotonic(), len(double.calls)
    wait_for(lambda: len(double.calls) > asked + 50)
    row = telemetry.summary([(start_s, time.monotonic())])
    telemetry.close()
    assert not row.telemetry_valid
    assert f"{gpu.uuid}: power: Unknown Error" in str(row.telemetry_note)
    assert row.sm_clock_mhz == 1755


def test_a_driver_that_hangs_is_told_and_waited_for_no_longer(monkeypatch):
    monkeypatch.setattr(sampler_module, "_PATIENCE_S", 0.05)
    go_on, hung = threading.Event(), threading.Event()

    def hang(_now: float) -> int:
        if threading.current_thread() is not threading.main_thread():
            hung.set()
            go_on.wait(60)
        return 1755

    double = FakeNvml(a_gpu(sm_clock_mhz=hang))
    telemetry = observing(double, double.machine[0].uuid)
    telemetry.start()
    assert hung.wait(60)
    now_s = time.monotonic()
    row = telemetry.summary([(now_s - 0.01, now_s)])
    assert not row.telemetry_valid
    assert "the driver has not answered for 0.05 s" in str(row.telemetry_note)
    go_on.set()
    telemetry.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_is_told():
    class Dying(BaseException):
        pass

    def die(_now: float) -> int:
        if threading.current_thread() is not threading.main_thread():
            raise Dying
        return 0

    double = FakeNvml(a_gpu(reasons=die))
    telemetry = observing(double, double.machine[0].uuid)
    before = {thread for thread in threading.enumerate() if thread.name == "telemetry"}
    telemetry.start()
    (thread,) = {thread for thread in threading.enumerate() if thread.name == "telemetry"} - before or {None}
    if thread is not None:
        thread.join(60)
    now_s = time.monotonic()
    row = telemetry.summary([(now_s - 0.01, now_s)])
    telemetry.close()
    assert not row.telemetry_valid
    assert "the thread that reads the machine has ended: Dying()" in str(row.telemetry_note)


def test_processes_that_cannot_be_named_cost_the_summary_and_nothing_else():
    def broken() -> set[int]:
        raise OSError("no such worker")

    telemetry = open_telemetry(None, broken)
    telemetry.start()
    row = telemetry.summary([(0.0, 1.0)])
    telemetry.close()
    assert not row.telemetry_valid
    assert row.telemetry_note == "processor time: OSError('no such worker')"


def test_without_a_driver_or_with_an_unknown_gpu_only_the_processors_are_observed():
    for double, reason in [
        (FakeNvml(driver=False), "no NVIDIA driver answers (initialise NVML: NVML Shared Library Not Found)"),
        (FakeNvml(a_gpu()), "the driver knows no such GPU (GPU GPU-7: Not Found)"),
    ]:
        telemetry = observing(double, "GPU-7")
        telemetry.start()
        start_s = time.monotonic()
        time.sleep(0.3)
        row = telemetry.summary([(start_s, time.monotonic())])
        telemetry.close()
        assert not row.telemetry_valid
        assert row.telemetry_note is not None
        assert row.telemetry_note.startswith(f"no telemetry of the GPUs: {reason}")
        assert row.foreign_cpus is not None
        assert row.sm_clock_mhz is None


def test_without_nvidia_ml_py_the_note_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    telemetry = open_telemetry(["GPU-1"], set)
    telemetry.start()
    row = telemetry.summary([(0.0, 1.0)])
    telemetry.close()
    assert "nvidia-ml-py is not installed: pip install 'trtllm-harness[gpu]'" in str(row.telemetry_note)


def test_the_real_module_reads_the_gpus_that_are_here_or_says_that_no_driver_answers():
    pytest.importorskip("pynvml")
    uuids = visible_gpu_uuids()
    if not uuids:
        with pytest.raises(NvmlAbsent, match="no NVIDIA driver answers"):
            Nvml()
        return
    gpu = Nvml().gpu(uuids[0])
    assert (gpu.reading().failures, gpu.state().failures) == ((), ())
    assert gpu.reading().sm_clock_mhz is not None


@pytest.mark.parametrize(
    ("asked", "visible"),
    [
        (None, ["GPU-aa1", "GPU-ab2", "GPU-bb3"]),
        ("", []),
        ("2,0", ["GPU-bb3", "GPU-aa1"]),
        ("1,-1,0", ["GPU-ab2"]),
        ("0,9,1", ["GPU-aa1"]),
        ("GPU-bb,GPU-aa1", ["GPU-bb3", "GPU-aa1"]),
        ("GPU-a", []),
        ("MIG-c4", ["MIG-c4"]),
    ],
)
def test_visible_gpus_are_those_that_cuda_would_see(asked, visible):
    double = FakeNvml(*(FakeGpu(uuid=uuid) for uuid in ("GPU-aa1", "GPU-ab2", "GPU-bb3")))
    environment = {} if asked is None else {"CUDA_VISIBLE_DEVICES": asked}
    assert list(visible_gpu_uuids(environment, nvml=double)) == visible
    assert double.opened == 0


def test_a_driver_that_lists_nothing_leaves_nothing_visible():
    double = FakeNvml(FakeGpu(failing={"nvmlDeviceGetUUID": "GpuIsLost"}))
    assert visible_gpu_uuids({}, nvml=double) == ()
    assert double.opened == 0
