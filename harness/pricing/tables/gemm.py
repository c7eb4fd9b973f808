"""GEMMs from measured rows: the row itself, else the package's engine between rows, else a refusal.

- `fp8_static` has no rows: the engine takes `fp8` rows less the time of finding dynamic scales, and less that of the
  cast of a bf16 input to FP8 where the kernel before writes FP8 (`input_cast_fused`). Source `estimated`.
- `nvfp4` rows of TensorRT-LLM 1.3.0rc20 were collected without autotuning, and at m ≤ 256 lose to the rows of other
  backends on the same GPU by 1.6 to 1.9 times. A tuned NVFP4 kernel is never slower than FP8: the price is the lesser
  of the row and `fp8_static` at the same shape, source `estimated` where FP8 is the lesser; `as_is` takes the row.
- n beyond the widest rows (an lm_head) is a sum of equal column slices, source `estimated`.
- n or k below the first row (the router of 8 experts) costs what that row does, source `estimated`: a tile is paid in
  full, however little of it is used. At n 32, 64 and 128 the same k takes the same time but for 0.4 to 3 % (medians).
- m beyond the last row, on request: the line through the last row and half of it, continued for as many doublings as
  its error was measured for. (On B200, one doubling, the engine errs by 11 % in the median and 55 % at the 90th
  percentile, the line by 3 to 5 % and 8 to 17 %.) Never beyond the rows in k, nor in a gap between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from harness.cost.ops import Gemm
from harness.pricing.base import SOURCES, KernelPrice
from harness.pricing.tables.assumptions import Band, Bands
from harness.pricing.tables.engine import Engine, EngineError
from harness.pricing.tables.gemm_table import GemmTable, distance


class _Beyond(NamedTuple):
    """A shape beyond the last m, and the two within the rows whose line reaches it."""

    half: Gemm
    last: Gemm
    note: str


class GemmPricer:
    """Prices GEMMs from an index of rows and the package's engine."""

    def __init__(
        self,
        table: GemmTable,
        engine: Engine,
        *,
        columns: int,
        bands: Mapping[str, Bands],
        first_row: Mapping[str, Band],
        allow_extrapolation: bool = False,
        as_is: bool = False,
    ) -> None:
        self.table = table
        self.engine = engine
        self.columns = columns
        self.bands = bands
        self.first_row = first_row
        self.allow_extrapolation = allow_extrapolation
        self.as_is = as_is

    def price_all(self, kernels: Iterable[Gemm]) -> dict[Gemm, KernelPrice]:
        """Price distinct GEMMs; never raises for one that cannot be answered."""
        asked = dict.fromkeys(kernels)
        wide = {kernel: self._slices(kernel) for kernel in asked if kernel.n > self.columns}
        parts = [kernel for kernel in asked if kernel not in wide]
        parts += dict.fromkeys(part for widths in wide.values() for part in widths)
        needed = dict.fromkeys(parts)
        if not self.as_is:
            needed |= dict.fromkeys(replace(part, format="fp8_static") for part in parts if part.format == "nvfp4")
        found = self._filled(needed)
        if not self.as_is:
            found |= {
                part: _not_slower_than_fp8(found[part], found[replace(part, format="fp8_static")])
                for part in parts
                if part.format == "nvfp4"
            }
        return {kernel: _sum(wide[kernel], found) if kernel in wide else found[kernel] for kernel in asked}

    def _slices(self, kernel: Gemm) -> dict[Gemm, int]:
        """The equal column slices of a GEMM wider than the rows, each with its count; widths differ by at most one."""
        count = -(-kernel.n // self.columns)
        width, wider = divmod(kernel.n, count)
        slices = {replace(kernel, n=width + 1): wider, replace(kernel, n=width): count - wider}
        return {part: times for part, times in slices.items() if times}

    def _filled(self, kernels: Iterable[Gemm]) -> dict[Gemm, KernelPrice]:
        """The prices of shapes; one with n or k below the first row has the price of that row."""
        tiles = {kernel: self._tile(kernel) for kernel in kernels}
        found = self._look_up(list(dict.fromkeys(tiles.values())))
        return {
            kernel: found[tile] if tile == kernel else self._as_first_row(kernel, tile, found[tile])
            for kernel, tile in tiles.items()
        }

    def _tile(self, kernel: Gemm) -> Gemm:
        grid = self.table.grids.get(_measured(kernel))
        return grid.filled(kernel) if grid else kernel

    def _as_first_row(self, kernel: Gemm, tile: Gemm, price: KernelPrice) -> KernelPrice:
        if price.time_ms is None:
            return price
        asked = [("n", kernel.n, tile.n), ("k", kernel.k, tile.k)]
        less = " and ".join(f"{name} {have} as {least}" for name, have, least in asked if have < least)
        told = f"{less}, the smallest row: a tile is paid in full"
        band = self.first_row.get(_measured(kernel))
        told += f"; the second row taken for the first errs by {band}" if band else ""
        source = max("estimated", price.source or "estimated", key=SOURCES.index)
        return replace(price, source=source, note="; ".join(part for part in (told, price.note) if part))

    def _look_up(self, kernels: list[Gemm]) -> dict[Gemm, KernelPrice]:
        prices: dict[Gemm, KernelPrice] = {}
        asked: list[Gemm] = []
        beyond: dict[Gemm, _Beyond] = {}
        for kernel, row in zip(kernels, self.table.times_ms(kernels), strict=True):
            place = KernelPrice(row, "exact") if row is not None else self._place(kernel)
            if isinstance(place, KernelPrice):
                prices[kernel] = place
            elif isinstance(place, _Beyond):
                beyond[kernel] = place
            else:
                asked.append(kernel)
        for kernel, time_ms in zip(asked, self.engine.gemm_times_ms(asked), strict=True):
            prices[kernel] = _from_engine(kernel, time_ms)
        if beyond:
            ends = self._look_up([end for place in beyond.values() for end in (place.half, place.last)])
            prices |= {
                kernel: _continued(kernel, place, ends[place.half], ends[place.last])
                for kernel, place in beyond.items()
            }
        return prices

    def _place(self, kernel: Gemm) -> KernelPrice | _Beyond | None:
        """None between rows; else the refusal, or the line that reaches beyond them."""
        grid = self.table.grids.get(_measured(kernel))
        if grid is None:
            there = ", ".join(self.table.grids)
            return KernelPrice.refuse("unsupported", f"no {kernel.format} GEMM rows on this GPU; there are {there}")
        limits = grid.m_limits(kernel)
        if isinstance(limits, str):
            return KernelPrice.refuse("refused", limits)
        least, most = limits
        if least <= kernel.m <= most:
            return None
        if kernel.m < least:
            return KernelPrice.refuse("refused", f"m {kernel.m} is below the smallest row, {least}")
        far = distance("m", kernel.m, most)
        bands = self.bands.get(_measured(kernel), ())
        doublings = max(1, math.ceil(round(math.log2(kernel.m / most), 9)))
        if doublings > len(bands):
            return KernelPrice.refuse("refused", f"{far}; no extrapolation over more than {len(bands)} doublings")
        band = f"a line continued {doublings} doubling{'s' * (doublings > 1)} errs by {bands[doublings - 1]}"
        if not self.allow_extrapolation:
            return KernelPrice.refuse("refused", f"{far}; --allow-extrapolation would answer: {band}")
        return _Beyond(replace(kernel, m=most // 2), replace(kernel, m=most), f"{far}; {band}")


def _from_engine(kernel: Gemm, time_ms: float | EngineError) -> KernelPrice:
    if isinstance(time_ms, EngineError):
        return KernelPrice.refuse("refused", time_ms.reason)
    if kernel.format == "fp8_static":
        less = "of finding dynamic scales" + (" and of the input's cast" if kernel.input_cast_fused else "")
        return KernelPrice(time_ms, "estimated", note=f"FP8 rows less the time {less}")
    return KernelPrice(time_ms, "interpolated", note="between measured shapes, by the package's engine")


def _continued(kernel: Gemm, place: _Beyond, half: KernelPrice, last: KernelPrice) -> KernelPrice:
    if half.time_ms is None or last.time_ms is None:
        return half if half.time_ms is None else last
    slope = max(0.0, last.time_ms - half.time_ms) / (place.last.m - place.half.m)
    time_ms = last.time_ms + slope * (kernel.m - place.last.m)
    return KernelPrice(time_ms, "extrapolated", ("extrapolated",), place.note)


def _not_slower_than_fp8(nvfp4: KernelPrice, fp8_static: KernelPrice) -> KernelPrice:
    """The lesser of the NVFP4 row, which is not tuned at small m, and FP8 with static scales at the same shape."""
    if nvfp4.time_ms is None or fp8_static.time_ms is None:
        return nvfp4
    both = f"nvfp4 {nvfp4.time_ms:.6g} ms, fp8_static {fp8_static.time_ms:.6g} ms"
    if nvfp4.time_ms <= fp8_static.time_ms:
        return replace(nvfp4, note="; ".join(part for part in (both, nvfp4.note) if part))
    source = max("estimated", nvfp4.source or "estimated", key=SOURCES.index)
    why = f"{both}: the NVFP4 rows are not tuned, a tuned kernel is not slower than FP8"
    note = "; ".join(part for part in (why, fp8_static.note) if part)
    return KernelPrice(fp8_static.time_ms, source, nvfp4.flags, note)


def _sum(slices: Mapping[Gemm, int], prices: Mapping[Gemm, KernelPrice]) -> KernelPrice:
    """The price of a GEMM from those of its column slices."""
    first = next(iter(slices))
    total_ms = 0.0
    for part, count in slices.items():
        price = prices[part]
        if price.time_ms is None:
            return price
        total_ms += count * price.time_ms
    worst = max((prices[part].source or "estimated" for part in slices), key=SOURCES.index)
    note = f"{sum(slices.values())} column slices of {first.n}"
    if prices[first].note:
        note = f"{note}: {prices[first].note}"
    flags = tuple(dict.fromkeys(flag for part in slices for flag in prices[part].flags))
    return KernelPrice(total_ms, max("estimated", worst, key=SOURCES.index), flags, note)


def _measured(kernel: Gemm) -> str:
    """The format of the rows that answer."""
    return "fp8" if kernel.format == "fp8_static" else kernel.format
