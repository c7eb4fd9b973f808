"""The least that a kernel can take on a GPU, and what becomes of a price below it.

    FLOPs / peak                       at the highest clock, as datasheets state peaks below it
    (HBM bytes - L2) / bandwidth       kernels were timed in a loop: what fits into L2 may have been there already

Of the 3.2 million rows of compute kernels on nine systems these are below: 290 of decode attention on A100, up to 1.7
times as fast; 2 of prefill attention on H100, up to 1.18 times; 698 of 29,370 of NVFP4 experts in TensorRT-LLM's
min-latency kernel on B200 and GB200, up to 3.7 times (see `moe`). They cannot be what they say: a price that is such a
row, or lies between rows, stays and carries the flag `suspect`. Any other price below, by a formula, an estimate or a
line that goes on, is raised to the least time.

Not bounded: exchanges, where NVSwitch may send less than is counted, and experts under a skewed routing, which touch
fewer than the balanced ones whose bytes are counted (down to 0.70 times the bound).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.cost.ops import ComputeKernel, hbm_bytes
from harness.pricing.base import SOURCES, KernelPrice

if TYPE_CHECKING:
    from harness.hardware import System


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one GPU cannot beat. `l2_bytes` may be a guess, as that of the rows is."""

    system: System
    l2_bytes: float

    def least(self, kernel: ComputeKernel) -> tuple[float, str]:
        """The least time in ms, and what takes it, in words."""
        beyond_l2_bytes = max(0.0, hbm_bytes(kernel) - self.l2_bytes)
        memory_ms = beyond_l2_bytes / self.system.memory_bandwidth_bytes_per_s * 1000
        compute_ms = self._compute_ms(kernel)
        if compute_ms > memory_ms:
            return compute_ms, f"{compute_ms:.4g} ms for {kernel.flops:.4g} FLOPs at the highest clock"
        return memory_ms, f"{memory_ms:.4g} ms to move from HBM what exceeds L2, {beyond_l2_bytes:.4g} bytes"

    def applied(self, kernel: ComputeKernel, price: KernelPrice) -> KernelPrice:
        """The price, flagged where rows beat the least time, else raised to it."""
        if price.time_ms is None:
            return price
        least_ms, why = self.least(kernel)
        if price.time_ms >= least_ms:
            return price
        if price.source in {"exact", "interpolated"}:
            flags = tuple(dict.fromkeys((*price.flags, "suspect")))
            return replace(price, flags=flags, note=_joined(price.note, f"the rows are below the least time, {why}"))
        source = max("formula", price.source or "formula", key=SOURCES.index)
        note = _joined(price.note, f"raised from {price.time_ms:.4g} ms to the least time, {why}")
        return replace(price, time_ms=least_ms, source=source, note=note)

    def _compute_ms(self, kernel: ComputeKernel) -> float:
        """0 where the GPU's peak is not known, or at which clock it is reached."""
        system = self.system
        peak = system.peak_flop_per_s.get(kernel.compute_format)
        if not (peak and system.max_sm_clock_mhz and system.datasheet_sm_clock_mhz):
            return 0.0
        faster = max(1.0, system.max_sm_clock_mhz / system.datasheet_sm_clock_mhz)
        return kernel.flops / (peak * faster) * 1000


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
