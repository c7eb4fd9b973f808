"""Which GPUs a program started here would see."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from harness.runner.telemetry.nvml import Nvml, NvmlAbsent


def visible_gpu_uuids(environment: Mapping[str, str] | None = None, *, nvml: Any = None) -> tuple[str, ...]:
    """UUIDs of the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; empty where no driver lists any.

    As in the CUDA programming guide (environment variables): indices, or UUIDs that may be cut short; the first entry
    that names nothing ends the list. Indices count in the order of the PCI bus, which is CUDA's own where
    CUDA_DEVICE_ORDER=PCI_BUS_ID or all GPUs are alike.
    """
    try:
        library = Nvml(nvml)
    except NvmlAbsent:
        return ()
    try:
        uuids = [gpu.uuid for gpu in library.gpus()]
    except NvmlAbsent:
        return ()
    finally:
        library.close()
    asked = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return tuple(uuids)
    chosen = []
    for entry in map(str.strip, asked.split(",")):
        by_name = [uuid for uuid in uuids if uuid.startswith(entry)] if entry.startswith("GPU-") else []
        if entry.startswith("MIG-"):
            by_name = [entry]
        if entry.isdigit() and int(entry) < len(uuids):
            by_name = [uuids[int(entry)]]
        if len(by_name) != 1:
            break
        chosen += by_name
    return tuple(chosen)
