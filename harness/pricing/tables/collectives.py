"""Exchanges between GPUs from measured rows: the row itself, a value between rows, a formula, or a refusal.

- **AllReduce** has rows of TensorRT-LLM's own kernels, AllGather and ReduceScatter of NCCL's.
- **Helix's all-to-all** was not measured. It takes the time of NCCL's all-to-all of as many bytes: source `formula`.
  TensorRT-LLM's own kernel may start sooner.
- **Pipeline hand-overs** were not measured either. Within an NVLink domain a copy of x bytes takes the time of NCCL's
  all-to-all of 2x bytes between 2 GPUs, in which each sends x; beyond it latency + bytes / network. Source `formula`.
- **Dispatch and combine** of experts are in `expert_exchange`.

Between sizes rows are joined by a line: a row left out and asked again errs by 2.5 % (all-reduce) and 2.4 % (NCCL) in
the median on B200, 1.0 and 2.9 % on H200; joined log-log by 4.0, 3.8, 1.7 and 3.7 %. Below the first row an exchange
costs what that row does.

Beyond the rows only on request. In size the line is continued. In GPUs, the time of the most GPUs that have rows grows
with the bytes each sends, as far as an NVLink domain reaches; what leaves the domain is added at the network card's
rate. The package's engine instead takes the whole exchange at the slower rate; its answer is told beside ours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from harness.cost.collectives import (
    AllGather,
    AllReduce,
    Collective,
    ExpertCombine,
    ExpertDispatch,
    HelixAllToAll,
    PointToPoint,
    ReduceScatter,
)
from harness.cost.formats import BYTES_PER_VALUE
from harness.pricing.base import SOURCES, KernelPrice, Source
from harness.pricing.roofline import link_domain, link_latency_us
from harness.pricing.tables.assumptions import Bands
from harness.pricing.tables.engine import Engine, EngineError
from harness.pricing.tables.exchange_rows import Curves, ExchangeAssumptions, ExchangeStore
from harness.pricing.tables.slices import Curve

if TYPE_CHECKING:
    from harness.hardware import System


class Point(NamedTuple):
    """A time on a curve. `beyond` says how far outside the rows it lies and how well that is known, or is empty.

    `too_far` is set where no error is known, so that nothing makes this an answer.
    """

    time_ms: float
    source: Source
    note: str = ""
    beyond: str = ""
    too_far: bool = False


@dataclass(frozen=True, slots=True)
class _Rows:
    """The curves that answer for one kernel, the size to ask them, and what they are called."""

    curves: Curves
    size: float
    what: str
    bands: Bands
    engine: Callable[[], float | EngineError] | None = None


class CollectivePricer:
    """Prices what ranks do together, from the rows of one system."""

    def __init__(
        self,
        store: ExchangeStore,
        system: System,
        engine: Engine,
        assumed: ExchangeAssumptions,
        *,
        allow_extrapolation: bool = False,
    ) -> None:
        self.store = store
        self.engine = engine
        self.network = Network(system)
        self.assumed = assumed
        self.allow_extrapolation = allow_extrapolation

    def price(self, kernel: Collective) -> KernelPrice:
        """Price one exchange; never raises."""
        if isinstance(kernel, PointToPoint):
            return self._hand_over(kernel)
        if isinstance(kernel, ExpertDispatch | ExpertCombine):
            raise TypeError(f"{type(kernel).__name__} is priced by ExpertExchangePricer")
        return self._among(kernel, self._rows(kernel))

    def _rows(self, kernel: AllReduce | AllGather | ReduceScatter | HelixAllToAll) -> _Rows:
        bands = self.assumed.bands
        if isinstance(kernel, AllReduce):
            return _Rows(
                self.store.all_reduce,
                kernel.elements,
                "all-reduce",
                bands["all_reduce_size"],
                lambda: self.engine.all_reduce_time_ms(kernel.elements, kernel.gpus),
            )
        if isinstance(kernel, HelixAllToAll):
            size, dtype, operation = float(kernel.message_bytes), "int8", "alltoall"
        elif isinstance(kernel, ReduceScatter) or kernel.format == "bf16":
            size, dtype = float(kernel.elements), "half"
            operation = "all_gather" if isinstance(kernel, AllGather) else "reduce_scatter"
        else:
            size, dtype, operation = kernel.elements * BYTES_PER_VALUE[kernel.format], "int8", "all_gather"
        return _Rows(
            self.store.nccl(operation, dtype),
            size,
            f"NCCL {operation}",
            bands["nccl_size"],
            lambda: self.engine.nccl_time_ms(operation, dtype, math.ceil(size), kernel.gpus),
        )

    def _among(self, kernel: Collective, rows: _Rows) -> KernelPrice:
        """From the rows of as many GPUs, or beyond those of the most."""
        if not rows.curves:
            return KernelPrice.refuse("unsupported", f"no {rows.what} rows on this GPU")
        most = max(rows.curves)
        if kernel.gpus > most:
            return self._among_more(kernel, rows, most)
        if kernel.gpus not in rows.curves:
            there = ", ".join(map(str, sorted(rows.curves)))
            return KernelPrice.refuse("unsupported", f"no {rows.what} rows of {kernel.gpus} GPUs; there are {there}")
        point = along(rows.curves[kernel.gpus], rows.size, rows.bands)
        if isinstance(kernel, HelixAllToAll):
            note = f"NCCL's all-to-all of {rows.size:g} bytes; TensorRT-LLM's own kernel was not measured"
            point = point._replace(source=worse("formula", point.source), note=note)
        return decided(point, self.allow_extrapolation)

    def _among_more(self, kernel: Collective, rows: _Rows, most: int) -> KernelPrice:
        point = along(rows.curves[most], rows.size, rows.bands)
        scaled = self.network.scaled(kernel, most, point.time_ms, self.assumed.more_gpus)
        if isinstance(scaled, str):
            return KernelPrice.refuse("unsupported", f"no {rows.what} rows of {kernel.gpus} GPUs; {scaled}")
        time_ms, how = scaled
        parts = [f"{kernel.gpus} GPUs are beyond the rows, which have at most {most}: {how}", point.beyond]
        if rows.engine:
            parts.append(_engine_says(rows.engine()))
        beyond = "; ".join(part for part in parts if part)
        return decided(Point(time_ms, "extrapolated", "", beyond, point.too_far), self.allow_extrapolation)

    def _hand_over(self, kernel: PointToPoint) -> KernelPrice:
        sent_bytes, out = kernel.link_bytes, kernel.beyond(self.network.domain)
        if out:
            note = f"{out:g} bytes over the network card, and its latency; no such copy was measured"
            time_ms = self.network.out_ms(out)
            if time_ms is None:
                return KernelPrice.refuse("unsupported", f"{self.network.lacks} to copy to another node")
            return KernelPrice(time_ms, "formula", (), note)
        curve = self.store.nccl("alltoall", "int8").get(2)
        if curve is None:
            return KernelPrice.refuse("unsupported", "no NCCL alltoall rows of 2 GPUs on this GPU")
        point = along(curve, 2 * sent_bytes, self.assumed.bands["nccl_size"])
        note = f"NCCL's all-to-all of {2 * sent_bytes:g} bytes between 2 GPUs, each sending half"
        return decided(point._replace(source=worse("formula", point.source), note=note), self.allow_extrapolation)


class Network:
    """What is beyond the rows of one system: its NVLink domain, and the network between domains."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.domain, _ = link_domain(system)

    @property
    def lacks(self) -> str:
        """Why nothing can be said about leaving the domain."""
        return f"{self.system.gpu_name} has no network card of known bandwidth"

    def out_ms(self, out_bytes: float) -> float | None:
        """Time of an exchange that leaves the domain with so many bytes a GPU, and nothing else."""
        rate = self.system.nic_bandwidth_bytes_per_s
        if rate is None:
            return None
        return out_bytes / rate * 1000 + link_latency_us(self.system.key, beyond=True) / 1000

    def scaled(self, kernel: Collective, most: int, time_ms: float, caveat: str) -> tuple[float, str] | str:
        """The time of more GPUs than `most`, which take `time_ms`, and how it was got; why not where it is not known.

        Bytes per GPU grow as `link_bytes` says within a domain. What leaves it is not overlapped with the rest.
        """
        inside = min(kernel.gpus, self.domain)
        grown = max(1.0, replace(kernel, gpus=inside).link_bytes / replace(kernel, gpus=most).link_bytes)
        total_ms, how = time_ms * grown, [f"the time of {most}"]
        if inside > most:
            how = [f"the time of {most} x {grown:.3g}, the bytes each sends ({caveat})"]
        out_bytes = kernel.beyond(self.domain)
        if out_bytes:
            rate = self.system.nic_bandwidth_bytes_per_s
            if rate is None:
                return self.lacks
            extra_us = link_latency_us(self.system.key, beyond=True) - link_latency_us(self.system.key)
            total_ms += out_bytes / rate * 1000 + extra_us / 1000
            how.append(f"{out_bytes:.4g} bytes a GPU over the network and {extra_us:g} µs; no row tells how well")
        return total_ms, " + ".join(how)


def along(curve: Curve, size: float, bands: Bands) -> Point:
    """The time at a size: the row, between two, the first one below it, a line beyond the last."""
    measured = curve.row(size)
    if measured is not None:
        return Point(measured, "exact")
    at = bisect_left(curve.lengths, size)
    first, last = curve.lengths[0], curve.lengths[-1]
    if at == 0:
        return Point(curve.times_ms[0], "estimated", f"as the smallest row, {first}")
    if at < len(curve.lengths):
        (x0, x1), (t0, t1) = curve.lengths[at - 1 : at + 1], curve.times_ms[at - 1 : at + 1]
        return Point(t0 + (t1 - t0) * (size - x0) / (x1 - x0), "interpolated", f"between {x0} and {x1}")
    if len(curve.lengths) == 1:
        beyond = f"{size:g} is beyond the only row, {last}"
        return Point(curve.times_ms[0], "extrapolated", "", beyond, too_far=True)
    (x0, x1), (t0, t1) = curve.lengths[-2:], curve.times_ms[-2:]
    time_ms = t1 + max(0.0, t1 - t0) / (x1 - x0) * (size - x1)
    doublings = max(1, math.ceil(round(math.log2(size / last), 9)))
    place = f"{size:g} is {size / last:.3g}x beyond the last row, {last}"
    if doublings > len(bands):
        known = f"over more than {len(bands)} doubling{'s' * (len(bands) > 1)}" if bands else "without a known error"
        return Point(time_ms, "extrapolated", "", f"{place}; no extrapolation {known}", too_far=True)
    return Point(time_ms, "extrapolated", "", f"{place}; a line so far errs by {bands[doublings - 1]}")


def decided(point: Point, allow_extrapolation: bool) -> KernelPrice:
    """The price of a point; beyond the rows a refusal that names it, unless extrapolation is asked for."""
    if not point.beyond:
        return KernelPrice(point.time_ms, point.source, (), point.note)
    if point.too_far:
        return KernelPrice.refuse("refused", point.beyond)
    if not allow_extrapolation:
        note = f"{point.beyond}; --allow-extrapolation would answer {point.time_ms:.4g} ms"
        return KernelPrice.refuse("refused", note)
    note = "; ".join(part for part in (point.beyond, point.note) if part)
    return KernelPrice(point.time_ms, "extrapolated", ("extrapolated",), note)


def _engine_says(time_ms: float | EngineError) -> str:
    if isinstance(time_ms, EngineError):
        return time_ms.reason
    return f"the package's engine says {time_ms:.4g} ms: all of it, latency too, scaled by bandwidth"


def worse(one: Source, other: Source) -> Source:
    """The worse of two sources."""
    return max(one, other, key=SOURCES.index)
