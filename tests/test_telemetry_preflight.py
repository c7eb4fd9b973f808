from __future__ import annotations

import pytest
from doubles.nvml import FakeGpu, FakeNvml

from harness.errors import EnvironmentUnfit, ExitCode
from harness.runner.telemetry import Preflight, preflight


def looked_at(*gpus: FakeGpu, shared_gpu: bool = False, patience_s: float = 0) -> Preflight:
    double = FakeNvml(*gpus)
    uuids = [gpu.uuid for gpu in gpus]
    try:
        return preflight(uuids, shared_gpu=shared_gpu, nvml=double, patience_s=patience_s)
    finally:
        assert double.opened == 0


def test_idle_gpus_pass():
    # The driver's own reserve, 600 MiB in the double, is nobody's use.
    assert looked_at(FakeGpu(used_bytes=4 * 2**20)) == Preflight()
    assert preflight([]) == Preflight()


def test_a_gpu_in_use_by_others_is_unfit_and_says_what_to_do():
    with pytest.raises(EnvironmentUnfit) as caught:
        looked_at(FakeGpu(uuid="GPU-1"), FakeGpu(uuid="GPU-2", pids=[77, 12]))
    assert caught.value.exit_code == ExitCode.ENVIRONMENT == 4
    assert str(caught.value) == (
        "NVIDIA H200 GPU-2 is in use by 2 other processes (ids as the driver has them: 12, 77); "
        "wait for them to end, choose another GPU with CUDA_VISIBLE_DEVICES, or add --shared-gpu: "
        "all rows are then flagged and decide no claim"
    )


def test_asked_for_a_shared_gpu_passes_with_a_flag():
    found = looked_at(FakeGpu(uuid="GPU-1", pids=[77]), shared_gpu=True)
    assert found.flags == ("shared_gpu",)
    assert found.notes == ("NVIDIA H200 GPU-1 is in use by 1 other processes (ids as the driver has them: 77)",)


def test_memory_in_use_betrays_processes_that_a_container_hides():
    with pytest.raises(EnvironmentUnfit, match="has 300 MiB in use by processes that the driver does not list here"):
        looked_at(FakeGpu(used_bytes=300 * 2**20))


def test_a_gpu_in_slices_is_unfit():
    with pytest.raises(EnvironmentUnfit, match="is in MIG mode: a slice is not the GPU that cases name"):
        looked_at(FakeGpu(mig=[1, 1]))


def test_a_process_that_is_about_to_end_is_waited_for():
    looks: list[int] = []

    def ending() -> list[int]:
        looks.append(1)
        return [77] if len(looks) < 3 else []

    assert looked_at(FakeGpu(pids=ending), patience_s=60) == Preflight()


def test_without_a_driver_nothing_is_claimed():
    found = preflight(["GPU-1"], nvml=FakeNvml(driver=False))
    assert found.flags == ()
    assert found.notes[0].startswith("whether others use the GPUs was not looked at: no NVIDIA driver answers")
