"""The one device that a worker runs on: what it is, how much memory and cache it has, how fast it reads memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch

from harness.backends.base import CannotAnswer
from harness.backends.torch_ops.options import Options
from harness.backends.torch_ops.sizing import GIB
from harness.backends.torch_ops.timing import clock_of
from harness.errors import EnvironmentUnfit
from harness.hardware import match_device_name
from harness.spec.axes import Scalar

#: System key of the processor that runs the harness.
CPU_SYSTEM = "cpu"

#: Last-level cache to reckon with where the kernel does not tell: large for a processor, so that more layers run.
UNKNOWN_CACHE_BYTES = 64 << 20

#: Bytes that the ceiling is measured on, at least; the cache keeps no useful part of them.
_CEILING_BYTES = {"cuda": 2 << 30, "cpu": 128 << 20}
_CEILING_CACHES = 4
_CEILING_PASSES = 5

_CPU_CACHE = Path("/sys/devices/system/cpu")
_CPU_INFO = Path("/proc/cpuinfo")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


@dataclass(frozen=True, slots=True)
class Device:
    """What ops run on."""

    kind: str
    """`cuda` or `cpu`, as PyTorch calls it."""
    name: str
    system: str | None
    """The system key whose cases it may answer; None for a GPU that the harness does not know."""
    cache_bytes: int
    """Last-level cache."""
    memory_bytes: int
    capability: tuple[int, int] | None = None
    uuids: tuple[str, ...] = ()
    details: dict[str, Scalar] = field(default_factory=dict)

    @property
    def is_cuda(self) -> bool:
        return self.kind == "cuda"

    def free_bytes(self) -> int:
        """Memory that can still be had, what PyTorch keeps for reuse included."""
        if self.is_cuda:
            free, _ = torch.cuda.mem_get_info()
            return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
        return min(int(psutil.virtual_memory().available), _cgroup_free())

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.is_cuda:
            torch.cuda.synchronize()

    def release(self) -> None:
        """Give memory that nothing uses back to the device."""
        if self.is_cuda:
            torch.cuda.empty_cache()

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Turn a failed allocation into CannotAnswer (oom) that says what was being done and what was free."""
        try:
            yield
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            free = f"{self.free_bytes() / GIB:.2f} of {self.memory_bytes / GIB:.2f} GiB were free"
            raise CannotAnswer(f"out of memory while {what}, {free}: {str(error).splitlines()[0]}", "oom") from error


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether PyTorch says that memory could not be had, on a GPU or (`alloc_cpu.cpp`) on a processor."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def open_device(options: Options) -> Device:
    """Take the GPU, or the processor where there is none or it is asked for. Raises EnvironmentUnfit."""
    wants_gpu = options.device == "cuda" or (options.device is None and torch.cuda.is_available())
    if wants_gpu and not torch.cuda.is_available():
        raise EnvironmentUnfit(f"torch {torch.__version__} finds no GPU; device=cpu runs on the processor")
    threads = options.threads or physical_cores()
    torch.set_num_threads(threads)
    return _gpu() if wants_gpu else _cpu(threads)


def physical_cores() -> int:
    """Physical cores that this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(psutil.cpu_count(logical=False) or allowed, allowed)


def _gpu() -> Device:
    properties = torch.cuda.get_device_properties(0)
    system = match_device_name(properties.name)
    return Device(
        kind="cuda",
        name=properties.name,
        system=system.key if system else None,
        cache_bytes=properties.L2_cache_size,
        memory_bytes=properties.total_memory,
        capability=(properties.major, properties.minor),
        uuids=(_nvml_uuid(str(properties.uuid)),),
        details={"cudnn": torch.backends.cudnn.version(), "sms": properties.multi_processor_count},
    )


def _nvml_uuid(uuid: str) -> str:
    """PyTorch leaves out the prefix that NVML and nvidia-smi show."""
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _cpu(threads: int) -> Device:
    cache = cpu_cache_bytes()
    return Device(
        kind="cpu",
        name=cpu_name(),
        system=CPU_SYSTEM,
        cache_bytes=cache or UNKNOWN_CACHE_BYTES,
        memory_bytes=psutil.virtual_memory().total,
        details={
            "threads": threads,
            "cache_known": cache is not None,
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        },
    )


def cpu_name(info: Path = _CPU_INFO) -> str:
    """The processor as Linux names it, or `cpu`."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else "cpu"


def cpu_cache_bytes(folder: Path = _CPU_CACHE) -> int | None:
    """All last-level caches of the machine together, from sysfs; None where it does not tell."""
    by_level: dict[int, dict[str, int]] = {}
    for entry in folder.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, size, shared = ((entry / name).read_text().strip() for name in ("level", "size", "shared_cpu_list"))
            by_level.setdefault(int(level), {})[shared] = int(size.rstrip("K")) << 10
        except (OSError, ValueError):
            continue
    return sum(by_level[max(by_level)].values()) if by_level else None


def _cgroup_free() -> int:
    try:
        return int(_CGROUP_LIMIT.read_text()) - int(_CGROUP_USED.read_text())
    except (OSError, ValueError):
        return 1 << 62  # no limit, `max`


def bandwidth_ceiling(device: Device) -> float:
    """Measure the bytes/s that memory gives at best: the fastest of several reads and copies of a large buffer."""
    size = max(_CEILING_BYTES[device.kind], _CEILING_CACHES * device.cache_bytes)
    with device.guard("measuring the memory's bandwidth"), torch.inference_mode():
        fastest = max(moved / seconds for run, moved in _streams(device, size) for seconds in _seconds(device, run))
    device.release()
    return fastest


def _streams(device: Device, size: int) -> list[tuple[Callable[[], Any], float]]:
    """Ways to move a buffer of `size` bytes, and the bytes that each reads and writes."""
    width = 4096
    rows = torch.ones(size // 4 // width, width, dtype=torch.float32, device=device.kind)
    target, ones, moved = torch.empty_like(rows), torch.ones(width, device=device.kind), 4.0 * rows.numel()
    return [
        (lambda: target.copy_(rows), 2 * moved),
        (lambda: torch.sum(rows), moved),
        (lambda: torch.mv(rows, ones), moved),
    ]


def _seconds(device: Device, run: Callable[[], Any]) -> list[float]:
    run()  # the first touches fresh memory
    return [time_ms / 1000 for time_ms in clock_of(device.kind).times_ms(run, _CEILING_PASSES)]
