"""What this machine has for a run on TensorRT-LLM: GPUs, driver, shared memory, MPI. Quick: no CUDA context is made."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Where the kernel module tells its version.
DRIVER_FILE = Path("/proc/driver/nvidia/version")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # what is looked at, not written to

#: Least shared memory for several ranks: NCCL, MPI and the load balancer of experts keep their buffers there. Docker's
#: default is 64 MB. Source: examples/wide_ep/README.md of NVIDIA/TensorRT-LLM at 0e62604 (--ipc=host or a large one).
SHARED_MEMORY_GIB = 8.0

#: What tells a process that it was started by a launcher.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    name: str
    sm: int
    """Compute capability 10.0 is 100."""
    memory_gib: float
    uuid: str = ""
    nvlinks: int = 0
    """Links that are up."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found."""

    gpus: tuple[Gpu, ...] = ()
    gpus_unknown_because: str = ""
    """Why GPUs could not be asked for; empty where they were, even if there is none."""
    driver: str = ""
    shared_memory_gib: float | None = None
    mpirun: str = ""
    mpi4py: bool = False
    rank_variable: str = ""
    """Variable that says that this process is a rank of a launcher."""
    in_container: bool = False


def look() -> Machine:
    """Look at this machine; takes well under a second."""
    gpus, driver, why = _nvml()
    return Machine(
        gpus=gpus,
        gpus_unknown_because=why,
        driver=driver or _driver_of_kernel(),
        shared_memory_gib=_shared_memory_gib(),
        mpirun=shutil.which("mpirun") or "",
        mpi4py=importlib.util.find_spec("mpi4py") is not None,
        rank_variable=next((name for name in _RANKS if name in os.environ), ""),
        in_container=Path("/.dockerenv").exists() or Path("/run/.containerenv").exists(),
    )


def _shared_memory_gib() -> float | None:
    try:
        return shutil.disk_usage(SHARED_MEMORY).total / 2**30
    except OSError:
        return None


def _driver_of_kernel() -> str:
    try:
        return DRIVER_FILE.read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError, UnicodeDecodeError):
        return ""


def _nvml() -> tuple[tuple[Gpu, ...], str, str]:
    """GPUs, driver, and why they are not known."""
    try:
        import pynvml as nvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return (), "", "nvidia-ml-py is not installed"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return (), "", f"NVML: {error}"
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        return tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())), driver, ""
    except nvml.NVMLError as error:
        return (), "", f"NVML: {error}"
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        sm=10 * major + minor,
        memory_gib=nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        nvlinks=_links_up(nvml, handle),
    )


def _links_up(nvml: Any, handle: Any) -> int:
    up = 0
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            up += bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError:
            break
    return up


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
