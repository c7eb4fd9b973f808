"""Before a run: are the GPUs whole, and ours alone?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import EnvironmentUnfit
from harness.runner.telemetry.nvml import Gpu, Nvml, NvmlAbsent

#: Memory in use from which somebody must be there although no process is listed, as in containers: a CUDA context
#: alone takes some hundred MiB, an idle data-centre GPU a few, without the driver's reserve.
_USED_BYTES = 256 * 2**20
#: How long an ended process may take to give its memory back.
_PATIENCE_S = 5.0
_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found and let pass."""

    flags: tuple[str, ...] = ()
    """`shared_gpu` where somebody else is on the GPUs; for every row of the run."""
    notes: tuple[str, ...] = ()


def preflight(
    gpu_uuids: Sequence[str], *, shared_gpu: bool = False, nvml: Any = None, patience_s: float = _PATIENCE_S
) -> Preflight:
    """Look at the GPUs before anything of ours runs on them: whatever is there now is of others.

    Raises EnvironmentUnfit (exit code 4) for a GPU that others use or that is cut into MIG slices, unless `shared_gpu`
    is set; what was found is then in flags and notes. Without NVML nothing can be told: a note says so.
    """
    if not gpu_uuids:
        return Preflight()
    try:
        library = Nvml(nvml)
    except NvmlAbsent as error:
        return Preflight(notes=(f"whether others use the GPUs was not looked at: {error}",))
    try:
        gpus = [library.gpu(uuid) for uuid in gpu_uuids]
        found = _found_after_patience(gpus, patience_s)
    except NvmlAbsent as error:
        return Preflight(notes=(f"whether others use the GPUs was not looked at: {error}",))
    finally:
        library.close()
    if not found:
        return Preflight()
    if not shared_gpu:
        remedy = (
            "wait for them to end, choose another GPU with CUDA_VISIBLE_DEVICES, or add --shared-gpu: all rows are "
        )
        raise EnvironmentUnfit(f"{'; '.join(found)}; {remedy}then flagged and decide no claim")
    return Preflight(flags=("shared_gpu",), notes=tuple(found))


def _found_after_patience(gpus: Sequence[Gpu], patience_s: float) -> list[str]:
    ends_s = time.monotonic() + patience_s
    while found := [one for gpu in gpus for one in _found_on(gpu)]:
        if time.monotonic() >= ends_s:
            break
        time.sleep(_POLL_S)
    return found


def _found_on(gpu: Gpu) -> list[str]:
    state, where = gpu.state(), f"{gpu.name} {gpu.uuid}"
    found = [f"{where} is in MIG mode: a slice is not the GPU that cases name"] if state.mig else []
    if state.pids:
        listed = ", ".join(map(str, sorted(state.pids)))
        return [
            *found,
            f"{where} is in use by {len(state.pids)} other processes (ids as the driver has them: {listed})",
        ]
    used = gpu.reading().memory_used_bytes or 0
    if used >= _USED_BYTES and not gpu.is_slice:
        found.append(
            f"{where} has {used / 2**20:.0f} MiB in use by processes that the driver does not list here, "
            f"as in containers (limit {_USED_BYTES / 2**20:.0f} MiB)"
        )
    return found
