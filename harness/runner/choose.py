"""Who answers a run: a pricer or a backend, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.backends.registry import is_backend, is_installed
from harness.backends.trtllm.features import glance
from harness.errors import MissingExtra, UsageError
from harness.hardware import CPU, is_gpu, match_device_name
from harness.runner.telemetry.nvml import Nvml, NvmlAbsent


@dataclass(frozen=True, slots=True)
class Choice:
    """Who answers. Without a backend it is a pricer, and each system has its own."""

    backend: str | None
    why: str = "asked for"


def choose(
    on: str,
    systems: Sequence[str],
    *,
    installed: Callable[[str], bool] | None = None,
    here: Callable[[], Iterable[str]] | None = None,
) -> Choice:
    """Say who answers for `systems`, where `on` is auto or a name.

    `auto` takes TensorRT-LLM where it is installed and a GPU asked about is in this machine, PyTorch for `cpu`, and
    pricers otherwise; a test double of TensorRT-LLM has to be named. `here` gives the names of the GPUs of this
    machine, as the driver reports them. Raises UsageError where no one of them answers for all systems, MissingExtra
    where PyTorch is needed and is not there.
    """
    if on != "auto":
        return Choice(on if is_backend(on) else None)
    installed = installed or _is_real
    gpus = [key for key in dict.fromkeys(systems) if is_gpu(key)]
    if CPU in systems:
        if gpus:
            raise UsageError(
                f"{CPU} and {', '.join(gpus)} are answered by different means; choose among them with --gpu"
            )
        if not installed("torch"):
            raise MissingExtra("torch", f"system {CPU}, which only a backend answers for,")
        return Choice("torch", f"only a backend answers for {CPU}, and PyTorch is installed")
    if installed("trtllm"):
        found = {system.key for name in (here or gpu_names)() if (system := match_device_name(name))}
        if found.intersection(gpus):
            return Choice("trtllm", f"TensorRT-LLM and {', '.join(sorted(found.intersection(gpus)))} are here")
    return Choice(None)


def _is_real(name: str) -> bool:
    return is_installed(name) and not (name == "trtllm" and glance().is_double)


def gpu_names() -> list[str]:
    """Names of the GPUs of this machine; none where no driver tells."""
    try:
        nvml = Nvml()
    except NvmlAbsent:
        return []
    try:
        return [gpu.name for gpu in nvml.gpus()]
    except Exception:  # noqa: BLE001  # a driver that fails here has no GPU that could be measured on
        return []
    finally:
        nvml.close()
