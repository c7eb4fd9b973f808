"""The roofline: what a kernel cannot beat, plus the time it takes to launch.

    time = max(FLOPs / peak, HBM bytes / bandwidth) + launch overhead
    time = max(HBM bytes / bandwidth, link bytes / link bandwidth) + latency of an exchange     between GPUs

Within an NVLink domain every byte goes at NVLink's rate. What leaves it goes at the network card's while the rest stays
on NVLink, and the slower of both counts. Without NVLink a node's PCIe takes its place. Peaks and bandwidths come from
`harness/data/gpus.yaml`, overheads from `launch_overheads.yaml`, latencies from `link_latencies.yaml` beside it. After
S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness import files
from harness.cost.collectives import COLLECTIVES, Collective
from harness.cost.ops import ComputeKernel, Kernel, hbm_bytes
from harness.pricing.base import KernelPrice
from harness.pricing.shapes import impossible

if TYPE_CHECKING:
    from harness.hardware import System

Bound = Literal["compute", "memory", "comm", "launch"]

_DATA = Path(__file__).resolve().parent.parent / "data"
_OVERHEADS = _DATA / "launch_overheads.yaml"
_LATENCIES = _DATA / "link_latencies.yaml"


@dataclass(frozen=True, slots=True)
class RooflineTime:
    """Time of one execution and what holds most of it."""

    time_ms: float
    bound: Bound


class RooflinePricer:
    """Prices every kernel whose format the GPU's tensor cores know, and every exchange over links that are known."""

    name = "roofline"

    def __init__(self, system: System) -> None:
        self.system = system
        self.launch_overhead_ms = launch_overhead_us(system.key) / 1000

    def time(self, kernel: Kernel) -> RooflineTime | None:
        """The roofline of one kernel.

        None where the GPU has no peak for its format, or no link for its exchange, and for a kernel that cannot be.
        """
        if impossible(kernel):
            return None
        if isinstance(kernel, COLLECTIVES):
            return self._exchange(kernel)
        limit = self.without_launch(kernel)
        if limit is None:
            return None
        bound: Bound = "launch" if self.launch_overhead_ms > limit.time_ms else limit.bound
        return RooflineTime(limit.time_ms + self.launch_overhead_ms, bound)

    def without_launch(self, kernel: ComputeKernel) -> RooflineTime | None:
        """max(FLOPs / peak, bytes / bandwidth) of a kernel on one GPU; None where that has no peak for its format."""
        peak_flop_per_s = self.system.peak_flop_per_s.get(kernel.compute_format)
        if peak_flop_per_s is None:
            return None
        compute_ms = kernel.flops / peak_flop_per_s * 1000
        memory_ms = hbm_bytes(kernel) / self.system.memory_bandwidth_bytes_per_s * 1000
        if compute_ms >= memory_ms:
            return RooflineTime(compute_ms, "compute")
        return RooflineTime(memory_ms, "memory")

    def _exchange(self, kernel: Collective) -> RooflineTime | None:
        system = self.system
        domain, bandwidth_bytes_per_s = link_domain(system)
        beyond_bytes = kernel.beyond(domain)
        limits_ms = [hbm_bytes(kernel) / system.memory_bandwidth_bytes_per_s * 1000]
        inside_bytes = kernel.link_bytes - beyond_bytes
        for sent_bytes, rate in (
            (inside_bytes, bandwidth_bytes_per_s),
            (beyond_bytes, system.nic_bandwidth_bytes_per_s),
        ):
            if sent_bytes > 0 and rate is None:
                return None
            limits_ms.append(sent_bytes / rate * 1000 if rate else 0.0)
        return RooflineTime(max(limits_ms) + link_latency_us(system.key, beyond=beyond_bytes > 0) / 1000, "comm")

    def price(self, kernels: Sequence[Kernel]) -> list[KernelPrice]:
        """One price per kernel, source `modelled`; `unsupported` where the GPU lacks the format's rate or the link."""
        return [self._price(kernel) for kernel in kernels]

    def _price(self, kernel: Kernel) -> KernelPrice:
        problem = impossible(kernel)
        if problem:
            return KernelPrice.refuse("refused", problem)
        limit = self.time(kernel)
        if limit is None:
            lacks = f"{kernel.compute_format} tensor-core rate"
            if isinstance(kernel, COLLECTIVES):
                lacks = f"link of known bandwidth for an exchange between {kernel.gpus} GPUs"
            return KernelPrice.refuse("unsupported", f"{self.system.gpu_name} has no {lacks}")
        return KernelPrice(limit.time_ms, "modelled")

    def versions(self) -> dict[str, str]:
        """The dated files that peaks, overheads and latencies come from."""
        return {"roofline": f"data {data_digest()}"}


@lru_cache(maxsize=1)
def data_digest(folder: Path = _DATA) -> str:
    """Eight digits over every file of `harness/data`: where they differ, the same question may have another answer."""
    content = hashlib.sha256()
    for path in sorted(folder.glob("*.yaml")):
        content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()[:8]


def link_domain(system: System) -> tuple[int, float | None]:
    """How many GPUs reach each other at the fastest rate, and that rate in bytes/s: NVLink, or PCIe without it."""
    if system.nvlink_bandwidth_bytes_per_s is None:
        return system.gpus_per_node, system.host_link_bandwidth_bytes_per_s
    return system.gpus_per_domain, system.nvlink_bandwidth_bytes_per_s


@lru_cache(maxsize=1)
def _overheads() -> dict[str, float]:
    data = files.read_yaml(_OVERHEADS)
    assert isinstance(data, dict)
    return {"default": data["default"], **data["launch_overhead_us"]}


@lru_cache(maxsize=1)
def _latencies() -> tuple[dict[str, float], float]:
    data = files.read_yaml(_LATENCIES)
    assert isinstance(data, dict)
    return {"default": data["default"], **data["exchange_us"]}, data["network_us"]


def launch_overhead_us(system_key: str) -> float:
    """Launch overhead of one kernel in a CUDA graph, in µs."""
    overheads = _overheads()
    return overheads.get(system_key, overheads["default"])


def link_latency_us(system_key: str, *, beyond: bool = False) -> float:
    """Time of the smallest exchange between GPUs in µs, launch included; more where it leaves the NVLink domain."""
    exchange_us, network_us = _latencies()
    return exchange_us.get(system_key, exchange_us["default"]) + (network_us if beyond else 0.0)
