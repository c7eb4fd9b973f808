"""A double of nvidia-ml-py (module `pynvml`): the same functions, arguments, constants and error classes, over GPUs of
the test's making.

It is strict: a wrong handle, a call before `nvmlInit` or after `nvmlShutdown`, and a setting without permission fail
as the driver does. `version` takes away what an older module lacks and gives text as bytes where that was so.
`test_telemetry_nvml.py` holds names and signatures against the installed nvidia-ml-py.
"""

# ruff: noqa: ARG002, N802, N803

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

_CODES = {
    "Uninitialized": (1, "Uninitialized"),
    "InvalidArgument": (2, "Invalid Argument"),
    "NotSupported": (3, "Not Supported"),
    "NoPermission": (4, "Insufficient Permissions"),
    "NotFound": (6, "Not Found"),
    "DriverNotLoaded": (9, "Driver Not Loaded"),
    "LibraryNotFound": (12, "NVML Shared Library Not Found"),
    "FunctionNotFound": (13, "Function Not Found"),
    "GpuIsLost": (15, "GPU is lost"),
    "Unknown": (999, "Unknown Error"),
}


class NVMLError(Exception):
    value = 0

    def __str__(self) -> str:
        return next(text for code, text in _CODES.values() if code == self.value)


class NVMLLibraryMismatchError(Exception):
    pass


ERRORS = {name: type(f"NVMLError_{name}", (NVMLError,), {"value": code}) for name, (code, _) in _CODES.items()}


@dataclass(eq=False)
class FakeGpu:
    """One GPU: what its sensors say now, which may be a function of the monotonic time."""

    uuid: str = "GPU-11111111-aaaa-bbbb-cccc-000000000001"
    name: str = "NVIDIA H200"
    sm_clock_mhz: int | Callable[[float], int] = 1755
    mem_clock_mhz: int = 3201
    power_mw: int | Callable[[float], int] = 400_000
    energy_mj: int | Callable[[float], int] = 0
    temperature_c: int = 50
    reasons: int | Callable[[float], int] = 0
    used_bytes: int = 0
    reserved_bytes: int = 600 * 2**20
    total_bytes: int = 150_754_820_096
    pids: list[int] | Callable[[], list[int]] = field(default_factory=list)
    mig: list[int] | None = field(default_factory=lambda: [0, 0])
    ecc_errors: int | None = 0
    parent: FakeGpu | None = None
    """Of a MIG slice."""
    locked: tuple[int, int] | None = None
    failing: dict[str, str] = field(default_factory=dict)
    """Function → error that it raises from now on."""


class FakeNvml:
    """What `import pynvml` would give."""

    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_CLOCK_LIMIT_ID_TDP = 0xFFFFFF01
    nvmlMemory_v2 = 0x02000028  # noqa: N815
    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError

    _SINCE = {
        "nvmlDeviceGetCurrentClocksEventReasons": 12.535,
        "nvmlDeviceGetTemperatureV": 12.575,
        "nvmlDeviceGetComputeRunningProcesses_v2": 12.575,
    }

    def __init__(
        self, *gpus: FakeGpu, version: float = 13.615, root: bool = True, driver: bool = True, old_driver: bool = False
    ) -> None:
        self.machine = list(gpus)
        self.version = version
        self.root = root
        self.driver = driver
        self.old_driver = old_driver
        """The driver lacks the newest form of the process query, and temperature by struct."""
        self.opened = 0
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        since = type(self)._SINCE.get(name, 0)
        if since and object.__getattribute__(self, "version") < since:
            raise AttributeError(name)
        value = object.__getattribute__(self, name)
        if name.startswith("nvml") and callable(value):
            object.__getattribute__(self, "calls").append(name)
        return value

    def _text(self, text: str) -> str | bytes:
        return text.encode() if self.version < 11.5 else text

    def _gpu(self, handle: object, function: str) -> FakeGpu:
        if not self.opened:
            raise ERRORS["Uninitialized"]
        if not isinstance(handle, FakeGpu) or handle not in self.machine:
            raise ERRORS["InvalidArgument"]
        if function in handle.failing:
            raise ERRORS[handle.failing[function]]
        return handle

    def _whole(self, handle: object, function: str) -> FakeGpu:
        gpu = self._gpu(handle, function)
        if gpu.parent is not None:
            raise ERRORS["NotSupported"]
        return gpu

    def nvmlInit(self):
        if not self.driver:
            raise ERRORS["LibraryNotFound"]
        self.opened += 1

    def nvmlShutdown(self):
        if not self.opened:
            raise ERRORS["Uninitialized"]
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self):
        return self._text("580.82.07")

    def nvmlDeviceGetCount(self):
        if not self.opened:
            raise ERRORS["Uninitialized"]
        return len([gpu for gpu in self.machine if gpu.parent is None])

    def nvmlDeviceGetHandleByIndex(self, index):
        if not 0 <= index < self.nvmlDeviceGetCount():
            raise ERRORS["InvalidArgument"]
        return [gpu for gpu in self.machine if gpu.parent is None][index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if not self.opened:
            raise ERRORS["Uninitialized"]
        for gpu in self.machine:
            if gpu.uuid == uuid:
                return gpu
        raise ERRORS["NotFound"]

    def nvmlDeviceGetUUID(self, handle):
        return self._text(self._gpu(handle, "nvmlDeviceGetUUID").uuid)

    def nvmlDeviceGetName(self, handle):
        return self._text(self._gpu(handle, "nvmlDeviceGetName").name)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, migDevice):
        parent = self._gpu(migDevice, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle").parent
        if parent is None:
            raise ERRORS["InvalidArgument"]
        return parent

    def nvmlDeviceGetClockInfo(self, handle, type):
        gpu = self._whole(handle, "nvmlDeviceGetClockInfo")
        if type not in (self.NVML_CLOCK_SM, self.NVML_CLOCK_MEM):
            raise ERRORS["InvalidArgument"]
        return _now(gpu.sm_clock_mhz if type == self.NVML_CLOCK_SM else gpu.mem_clock_mhz)

    def nvmlDeviceGetPowerUsage(self, handle):
        return _now(self._whole(handle, "nvmlDeviceGetPowerUsage").power_mw)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return _now(self._whole(handle, "nvmlDeviceGetTotalEnergyConsumption").energy_mj)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        if sensor != self.NVML_TEMPERATURE_GPU:
            raise ERRORS["InvalidArgument"]
        return self._whole(handle, "nvmlDeviceGetTemperature").temperature_c

    def nvmlDeviceGetTemperatureV(self, handle, sensor, version=0x100000C):
        if self.old_driver:
            raise ERRORS["FunctionNotFound"]
        return self.nvmlDeviceGetTemperature(handle, sensor)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return _now(self._whole(handle, "nvmlDeviceGetCurrentClocksEventReasons").reasons)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return _now(self._whole(handle, "nvmlDeviceGetCurrentClocksThrottleReasons").reasons)

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        gpu = self._gpu(handle, "nvmlDeviceGetMemoryInfo")
        if version not in (None, self.nvmlMemory_v2):
            raise ERRORS["InvalidArgument"]
        used = gpu.used_bytes if version else gpu.used_bytes + gpu.reserved_bytes
        return SimpleNamespace(total=gpu.total_bytes, used=used, free=gpu.total_bytes - used)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        gpu = self._gpu(handle, "nvmlDeviceGetComputeRunningProcesses")
        if self.old_driver and self.version >= 12.575:
            raise NVMLLibraryMismatchError("Unversioned function called")
        return _processes(gpu)

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle):
        return _processes(self._gpu(handle, "nvmlDeviceGetComputeRunningProcesses_v2"))

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle):
        self._gpu(handle, "nvmlDeviceGetMPSComputeRunningProcesses")
        return []

    def nvmlDeviceGetMigMode(self, device):
        gpu = self._whole(device, "nvmlDeviceGetMigMode")
        if gpu.mig is None:
            raise ERRORS["NotSupported"]
        return list(gpu.mig)

    def nvmlDeviceGetTotalEccErrors(self, handle, errorType, counterType):
        gpu = self._whole(handle, "nvmlDeviceGetTotalEccErrors")
        if (errorType, counterType) != (self.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, self.NVML_VOLATILE_ECC):
            raise ERRORS["InvalidArgument"]
        if gpu.ecc_errors is None:
            raise ERRORS["NotSupported"]
        return gpu.ecc_errors

    def nvmlDeviceSetGpuLockedClocks(self, handle, minGpuClockMHz, maxGpuClockMHz):
        gpu = self._whole(handle, "nvmlDeviceSetGpuLockedClocks")
        if not self.root:
            raise ERRORS["NoPermission"]
        if minGpuClockMHz != self.NVML_CLOCK_LIMIT_ID_TDP and not 210 <= minGpuClockMHz <= maxGpuClockMHz <= 1980:
            raise ERRORS["InvalidArgument"]
        gpu.locked = (minGpuClockMHz, maxGpuClockMHz)

    def nvmlDeviceResetGpuLockedClocks(self, handle):
        gpu = self._whole(handle, "nvmlDeviceResetGpuLockedClocks")
        if not self.root:
            raise ERRORS["NoPermission"]
        gpu.locked = None


def _now(value: Any) -> Any:
    return value(time.monotonic()) if callable(value) else value


def _processes(gpu: FakeGpu) -> list[SimpleNamespace]:
    pids = gpu.pids() if callable(gpu.pids) else gpu.pids
    return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids]


for _name, _error in ERRORS.items():
    setattr(FakeNvml, f"NVMLError_{_name}", _error)
