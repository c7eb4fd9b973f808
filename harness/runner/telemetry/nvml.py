"""NVIDIA's management library, as far as telemetry needs it, through nvidia-ml-py (module `pynvml`) of any version.

Versions differ: `pynvml` before 11.5 gives text as bytes; "event reasons" were "throttle reasons" before 12.535; from
12.575 a driver too old for a call raises NVMLLibraryMismatchError, which is no NVMLError; drivers lack functions that
the module has. So every call is looked up by name, in order of preference, and its errors are told apart by kind.
Read from the modules 11.525.150, 12.535.133, 12.575.51, 13.580.82 and 13.615.71, as published on PyPI.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

_T = TypeVar("_T")

#: By name: they are attributes of a module that may be absent, and some versions lack some.
_NOT_OFFERED = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound", "NVMLLibraryMismatchError")

#: nvml.h: NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC.
_CLOCK_SM, _CLOCK_MEM, _SENSOR_GPU, _UNCORRECTED, _VOLATILE = 1, 2, 0, 1, 0


class NvmlAbsent(Exception):
    """There is no NVML to ask: no nvidia-ml-py, no driver, or no such GPU. The message says which."""


class NotOffered(Exception):
    """This module, driver or GPU does not offer the query; asking again is of no use."""


class QueryFailed(Exception):
    """A query that is offered failed; `kind` is the name of NVML's error."""

    def __init__(self, what: str, error: Exception) -> None:
        self.kind = type(error).__name__
        super().__init__(f"{what}: {str(error) or self.kind}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One look at one GPU; None where it does not offer the figure or the query failed."""

    time_s: float
    """`time.monotonic()` before the first query."""
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Counter since the driver was loaded."""
    temperature_c: float | None = None
    reasons: int | None = None
    memory_used_bytes: float | None = None
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """What changes seldom and costs more to ask."""

    time_s: float
    pids: frozenset[int] | None = None
    """Processes that compute on the GPU, by the ids that the driver gives; in a container these can be the host's."""
    mig: bool | None = None
    uncorrected_errors: int | None = None
    """Since the driver was loaded."""
    failures: tuple[str, ...] = ()


class Nvml:
    """The library, opened. `module` is nvidia-ml-py, or what behaves like it."""

    def __init__(self, module: Any = None) -> None:
        """Load and initialise; raises NvmlAbsent."""
        if module is None:
            try:
                module = importlib.import_module("pynvml")
            except ImportError as error:
                raise NvmlAbsent("nvidia-ml-py is not installed: pip install 'trtllm-harness[gpu]'") from error
        self._module = module
        try:
            self.call("initialise NVML", "nvmlInit")
        except (NotOffered, QueryFailed) as error:
            raise NvmlAbsent(f"no NVIDIA driver answers ({error})") from error

    def call(self, what: str, names: str | Sequence[str], *arguments: Any) -> Any:
        """Call the first of the functions `names` that module and driver have.

        Raises NotOffered where none is, QueryFailed for every other error, also one that is not NVML's own.
        """
        for name in (names,) if isinstance(names, str) else names:
            function = getattr(self._module, name, None)
            if function is None:
                continue
            try:
                return function(*arguments)
            except Exception as error:
                if type(error).__name__ not in _NOT_OFFERED:
                    raise QueryFailed(what, error) from error
        raise NotOffered(f"no {what} from this GPU, driver and nvidia-ml-py")

    @property
    def driver_version(self) -> str:
        """Version of the driver; empty where it does not tell."""
        try:
            return _text(self.call("driver version", "nvmlSystemGetDriverVersion"))
        except (NotOffered, QueryFailed):
            return ""

    def gpus(self) -> list[Gpu]:
        """All GPUs of the machine, in NVML's order, which is that of the PCI bus; raises NvmlAbsent."""
        try:
            count = self.call("count of GPUs", "nvmlDeviceGetCount")
            return [Gpu(self, self.call("GPU", "nvmlDeviceGetHandleByIndex", index)) for index in range(count)]
        except (NotOffered, QueryFailed) as error:
            raise NvmlAbsent(f"the driver does not list its GPUs ({error})") from error

    def gpu(self, uuid: str) -> Gpu:
        """The GPU with that UUID, `GPU-…`, `MIG-…` or bare, as PyTorch gives a GPU's; raises NvmlAbsent."""
        full = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        try:
            return Gpu(self, self.call(f"GPU {full}", "nvmlDeviceGetHandleByUUID", full))
        except (NotOffered, QueryFailed) as error:
            raise NvmlAbsent(f"the driver knows no such GPU ({error})") from error

    def memory_used(self, handle: Any) -> int:
        """Bytes in use, without the driver's own reserve where the driver tells them apart (version 2 of the call)."""
        version = getattr(self._module, "nvmlMemory_v2", None)
        if version is not None:
            try:
                return int(self.call("memory in use", "nvmlDeviceGetMemoryInfo", handle, version).used)
            except NotOffered:
                pass
        return int(self.call("memory in use", "nvmlDeviceGetMemoryInfo", handle).used)

    def close(self) -> None:
        """Release the library."""
        try:
            self.call("close NVML", "nvmlShutdown")
        except (NotOffered, QueryFailed):
            return


@dataclass(slots=True, eq=False)
class Gpu:
    """One GPU, or one MIG slice of it: clocks and power are then those of the whole GPU."""

    nvml: Nvml
    handle: Any
    uuid: str = ""
    name: str = ""
    not_offered: dict[str, str] = field(default_factory=dict)
    """Figure → why it is always None."""
    _whole: Any = None

    def __post_init__(self) -> None:
        self.uuid = _text(self.nvml.call("UUID", "nvmlDeviceGetUUID", self.handle))
        self.name = _text(self.nvml.call("name", "nvmlDeviceGetName", self.handle))
        self._whole = self.handle
        if self.is_slice:
            self._whole = self.nvml.call("GPU of a slice", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", self.handle)

    @property
    def is_slice(self) -> bool:
        return self.uuid.startswith("MIG-")

    def reading(self) -> GpuReading:
        """Look at what changes all the time; never raises."""
        call, whole = self.nvml.call, self._whole
        failures: list[str] = []

        def ask(figure: str, query: Callable[[], float]) -> float | None:
            return self._ask(figure, query, failures)

        started = time.monotonic()
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        reasons = ask("reasons", lambda: int(call("clocks event reasons", names, whole)))
        return GpuReading(
            time_s=started,
            energy_j=ask("energy_j", lambda: call("energy", "nvmlDeviceGetTotalEnergyConsumption", whole) / 1e3),
            sm_clock_mhz=ask("sm_clock_mhz", lambda: call("SM clock", "nvmlDeviceGetClockInfo", whole, _CLOCK_SM)),
            mem_clock_mhz=ask(
                "mem_clock_mhz", lambda: call("memory clock", "nvmlDeviceGetClockInfo", whole, _CLOCK_MEM)
            ),
            power_w=ask("power_w", lambda: call("power", "nvmlDeviceGetPowerUsage", whole) / 1e3),
            temperature_c=ask("temperature_c", self._temperature),
            reasons=None if reasons is None else int(reasons),
            memory_used_bytes=ask("memory_used_bytes", lambda: self.nvml.memory_used(self.handle)),
            failures=tuple(failures),
        )

    def state(self) -> GpuState:
        """Ask for processes, MIG mode and memory errors; never raises."""
        failures: list[str] = []
        started = time.monotonic()
        errors = self._ask("uncorrected_errors", self._uncorrected_errors, failures)
        return GpuState(
            time_s=started,
            pids=self._ask("pids", self._pids, failures),
            mig=self._ask("mig", self._mig, failures),
            uncorrected_errors=None if errors is None else int(errors),
            failures=tuple(failures),
        )

    def _ask(self, figure: str, query: Callable[[], _T], failures: list[str]) -> _T | None:
        if figure in self.not_offered:
            return None
        try:
            return query()
        except NotOffered as error:
            self.not_offered[figure] = str(error)
        except QueryFailed as error:
            failures.append(str(error))
        except Exception as error:  # noqa: BLE001 - an answer of an unforeseen shape
            failures.append(f"{figure}: {error!r}")
        return None

    def _temperature(self) -> float:
        # Version 13 replaced the function; drivers before 570 only have the old one.
        names = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
        return float(self.nvml.call("temperature", names, self._whole, _SENSOR_GPU))

    def _uncorrected_errors(self) -> int:
        return int(self.nvml.call("ECC errors", "nvmlDeviceGetTotalEccErrors", self._whole, _UNCORRECTED, _VOLATILE))

    def _pids(self) -> frozenset[int]:
        compute = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")
        listed = list(self.nvml.call("processes", compute, self.handle))
        with contextlib.suppress(NotOffered):
            listed += self.nvml.call("MPS processes", "nvmlDeviceGetMPSComputeRunningProcesses", self.handle)
        return frozenset(int(one.pid) for one in listed)

    def _mig(self) -> bool:
        if self.is_slice:
            return True
        try:
            return bool(self.nvml.call("MIG mode", "nvmlDeviceGetMigMode", self.handle)[0])
        except NotOffered:
            return False


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
