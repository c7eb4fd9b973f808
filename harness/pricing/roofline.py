"""The roofline: what a kernel cannot beat, plus the time it takes to launch.

    time = max(FLOPs / peak, HBM bytes / bandwidth) + launch overhead

Peaks and bandwidths come from `harness/data/gpus.yaml`, overheads from `harness/data/launch_overheads.yaml`. After
S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from harness import files
from harness.cost.ops import Kernel, hbm_bytes
from harness.hardware import System
from harness.pricing.base import KernelPrice

Bound = Literal["compute", "memory", "launch"]

_OVERHEADS = Path(__file__).resolve().parent.parent / "data" / "launch_overheads.yaml"


@dataclass(frozen=True, slots=True)
class RooflineTime:
    """Time of one execution and what holds most of it."""

    time_ms: float
    bound: Bound


class RooflinePricer:
    """Prices every kernel whose format the GPU's tensor cores know."""

    name = "roofline"

    def __init__(self, system: System) -> None:
        self.system = system
        self.launch_overhead_ms = launch_overhead_us(system.key) / 1000

    def time(self, kernel: Kernel) -> RooflineTime | None:
        """The roofline of one kernel; None where the GPU has no peak for its format."""
        peak_flop_per_s = self.system.peak_flop_per_s.get(kernel.compute_format)
        if peak_flop_per_s is None:
            return None
        compute_ms = kernel.flops / peak_flop_per_s * 1000
        memory_ms = hbm_bytes(kernel) / self.system.memory_bandwidth_bytes_per_s * 1000
        limit_ms = max(compute_ms, memory_ms)
        bound: Bound = "compute" if compute_ms >= memory_ms else "memory"
        if self.launch_overhead_ms > limit_ms:
            bound = "launch"
        return RooflineTime(limit_ms + self.launch_overhead_ms, bound)

    def price(self, kernels: Sequence[Kernel]) -> list[KernelPrice]:
        """One price per kernel, source `modelled`; `unsupported` where the GPU cannot compute in its format."""
        return [self._price(kernel) for kernel in kernels]

    def _price(self, kernel: Kernel) -> KernelPrice:
        limit = self.time(kernel)
        if limit is None:
            note = f"{self.system.gpu_name} has no {kernel.compute_format} tensor-core rate"
            return KernelPrice.refuse("unsupported", note)
        return KernelPrice(limit.time_ms, "modelled")

    def versions(self) -> dict[str, str]:
        """The roofline depends on nothing but the harness."""
        return {"roofline": "gpus.yaml, launch_overheads.yaml"}


@lru_cache(maxsize=1)
def _overheads() -> dict[str, float]:
    data = files.read_yaml(_OVERHEADS)
    assert isinstance(data, dict)
    return {"default": data["default"], **data["launch_overhead_us"]}


def launch_overhead_us(system_key: str) -> float:
    """Launch overhead of one kernel in a CUDA graph, in µs."""
    overheads = _overheads()
    return overheads.get(system_key, overheads["default"])
