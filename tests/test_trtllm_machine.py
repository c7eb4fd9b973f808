"""What a machine has for TensorRT-LLM, asked of a library that answers like NVML."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from harness.backends.trtllm.machine import Gpu, look


class NVMLError(Exception):
    pass


def nvml(**changes: Any) -> SimpleNamespace:
    """NVML of a machine with two B200 that 18 links join."""

    def link(_: int, number: int) -> int:
        if number >= 18:
            raise NVMLError("invalid argument")
        return 1

    answers = {
        "NVMLError": NVMLError,
        "NVML_NVLINK_MAX_LINKS": 36,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.95.05",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetCudaComputeCapability": lambda _: (10, 0),
        "nvmlDeviceGetName": lambda _: b"NVIDIA B200",
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=180 << 30),
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetNvLinkState": link,
    }
    return SimpleNamespace(**{**answers, **changes})


def test_gpus_are_told_as_nvml_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    found = look()
    assert found.gpus == (Gpu("NVIDIA B200", 100, 180.0, "GPU-0", 18), Gpu("NVIDIA B200", 100, 180.0, "GPU-1", 18))
    assert (found.driver, found.gpus_unknown_because) == ("580.95.05", "")


def test_without_a_driver_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=no_driver))
    assert look().gpus_unknown_because == "NVML: Driver Not Loaded"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert look().gpus_unknown_because == "nvidia-ml-py is not installed"


def test_a_gpu_that_falls_off_the_bus_leaves_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: int) -> None:
        raise NVMLError("GPU is lost")

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetName=lost))
    assert look().gpus == ()
    assert look().gpus_unknown_because == "NVML: GPU is lost"


def test_being_a_rank_of_a_launcher_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert look().rank_variable == "SLURM_PROCID"


def test_shared_memory_has_a_size() -> None:
    size = look().shared_memory_gib
    assert size is None or size > 0
