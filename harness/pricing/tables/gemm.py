"""GEMMs from measured rows: the row itself, else the package's engine between rows, else a refusal.

- `fp8_static` has no rows: the engine takes `fp8` rows less the time of finding dynamic scales; the cast of the bf16
  input to FP8 stays in. Source `estimated`.
- `nvfp4` rows of TensorRT-LLM 1.3.0rc20 were collected without autotuning, and at m ≤ 256 lose to the rows of other
  backends on the same GPU by 1.6 to 1.9 times. A tuned NVFP4 kernel is never slower than FP8: the price is the lesser
  of the row and `fp8_static` at the same shape, source `estimated` where FP8 is the lesser; `as_is` takes the row.
- n beyond the widest rows (an lm_head) is a sum of equal column slices, source `estimated`.
- m beyond the last row, on request: the line through the last row and half of it, continued for as many doublings as
  its error was measured for. (On B200, one doubling, the engine errs by 11 % in the median and 55 % at the 90th
  percentile, the line by 3 to 5 % and 8 to 17 %.) Never beyond the rows in n or k.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from harness.cost.ops import Gemm
from harness.pricing.base import SOURCES, KernelPrice
from harness.pricing.tables.assumptions import Bands
from harness.pricing.tables.engine import Engine, EngineError
from harness.pricing.tables.store import FORMAT_CODES, GemmRows, group

#: Sizes are packed into one integer key, 20 bits each; the widest row is 65,536.
_BITS = 20


@dataclass(frozen=True, slots=True)
class _Grid:
    """The extent of one format's rows: sorted n and k, and the range of m at each (n, k)."""

    n: tuple[int, ...]
    k: tuple[int, ...]
    m_range: Mapping[tuple[int, int], tuple[int, int]]

    def outside(self, kernel: Gemm) -> str:
        """How far n or k lies outside the rows; empty inside."""
        for name, value, grid in (("n", kernel.n, self.n), ("k", kernel.k, self.k)):
            if not grid[0] <= value <= grid[-1]:
                return _distance(name, value, grid[0], grid[-1])
        return ""

    def m_limits(self, kernel: Gemm) -> tuple[int, int]:
        """The least and largest m that all measured (n, k) around the shape have; (0, 0) in a gap of the rows."""
        around = [
            self.m_range.get((n, k), (0, 0)) for n in _around(self.n, kernel.n) for k in _around(self.k, kernel.k)
        ]
        return max(least for least, _ in around), min(most for _, most in around)


class _Beyond(NamedTuple):
    """A shape beyond the last m, and the two within the rows whose line reaches it."""

    half: Gemm
    last: Gemm
    note: str


class GemmTable:
    """Index over GEMM rows."""

    def __init__(self, rows: GemmRows) -> None:
        import numpy as np

        keys = (((rows.format << _BITS) + rows.m << _BITS) + rows.n << _BITS) + rows.k
        order = np.argsort(keys)
        self._keys, self._time_ms = keys[order], rows.time_ms[order]
        self.grids = {FORMAT_CODES[code]: _grid(rows.take(rows.format == code)) for code in np.unique(rows.format)}

    def times_ms(self, kernels: Sequence[Gemm]) -> list[float | None]:
        """The measured time of each shape that has a row."""
        import numpy as np

        keys = np.array([_pack(kernel) for kernel in kernels], dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found = self._keys[at] == keys
        times: list[float] = self._time_ms[at].tolist()
        return [time_ms if hit else None for time_ms, hit in zip(times, found.tolist(), strict=True)]


class GemmPricer:
    """Prices GEMMs from an index of rows and the package's engine."""

    def __init__(
        self,
        table: GemmTable,
        engine: Engine,
        *,
        columns: int,
        bands: Mapping[str, Bands],
        allow_extrapolation: bool = False,
        as_is: bool = False,
    ) -> None:
        self.table = table
        self.engine = engine
        self.columns = columns
        self.bands = bands
        self.allow_extrapolation = allow_extrapolation
        self.as_is = as_is

    def price_all(self, kernels: Iterable[Gemm]) -> dict[Gemm, KernelPrice]:
        """Price distinct GEMMs; never raises for one that cannot be answered."""
        slices = {kernel: self._slices(kernel) for kernel in dict.fromkeys(kernels)}
        parts = dict.fromkeys(part for widths in slices.values() for part in widths)
        needed = dict(parts)
        if not self.as_is:
            needed |= dict.fromkeys(replace(part, format="fp8_static") for part in parts if part.format == "nvfp4")
        found = self._look_up(list(needed))
        if not self.as_is:
            found |= {
                part: _not_slower_than_fp8(found[part], found[replace(part, format="fp8_static")])
                for part in parts
                if part.format == "nvfp4"
            }
        return {kernel: _sum(widths, found) for kernel, widths in slices.items()}

    def _slices(self, kernel: Gemm) -> dict[Gemm, int]:
        """The equal column slices of a GEMM, each with its count; their widths differ by at most one."""
        count = max(1, -(-kernel.n // self.columns))
        if count == 1:
            return {kernel: 1}
        width, wider = divmod(kernel.n, count)
        slices = {replace(kernel, n=width + 1): wider, replace(kernel, n=width): count - wider}
        return {part: times for part, times in slices.items() if times}

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
        measured = "fp8" if kernel.format == "fp8_static" else kernel.format
        grid = self.table.grids.get(measured)
        if grid is None:
            there = ", ".join(self.table.grids)
            return KernelPrice.refuse("unsupported", f"no {kernel.format} GEMM rows on this GPU; there are {there}")
        if min(kernel.m, kernel.n, kernel.k) < 1:
            return KernelPrice.refuse("refused", f"m {kernel.m}, n {kernel.n} and k {kernel.k} must be positive")
        outside = grid.outside(kernel)
        if outside:
            return KernelPrice.refuse("refused", f"{outside}; no extrapolation in n or k")
        least, most = grid.m_limits(kernel)
        if least <= kernel.m <= most:
            return None
        distance = _distance("m", kernel.m, least, most)
        bands = self.bands.get(measured, ())
        doublings = math.ceil(round(math.log2(kernel.m / most), 9)) if most else 0
        if not 0 < doublings <= len(bands):
            return KernelPrice.refuse("refused", f"{distance}; no extrapolation over more than {len(bands)} doublings")
        band = f"a line continued {doublings} doubling{'s' * (doublings > 1)} errs by {bands[doublings - 1]}"
        if not self.allow_extrapolation:
            return KernelPrice.refuse("refused", f"{distance}; --allow-extrapolation would answer: {band}")
        return _Beyond(replace(kernel, m=most // 2), replace(kernel, m=most), f"{distance}; {band}")


def _from_engine(kernel: Gemm, time_ms: float | EngineError) -> KernelPrice:
    if isinstance(time_ms, EngineError):
        return KernelPrice.refuse("refused", time_ms.reason)
    if kernel.format == "fp8_static":
        return KernelPrice(time_ms, "estimated", note="FP8 rows less the time of finding dynamic scales")
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
    note = f"{both}: the NVFP4 rows are not tuned, a tuned kernel is not slower than FP8"
    return KernelPrice(fp8_static.time_ms, source, nvfp4.flags, note)


def _sum(slices: Mapping[Gemm, int], prices: Mapping[Gemm, KernelPrice]) -> KernelPrice:
    """The price of a GEMM from those of its column slices."""
    first = next(iter(slices))
    if len(slices) == 1 and slices[first] == 1:
        return prices[first]
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


def _grid(rows: GemmRows) -> _Grid:
    import numpy as np

    order, spans = group((rows.n, rows.k), (rows.m,))
    m = rows.m[order].tolist()
    m_range = {(n, k): (m[span.start], m[span.stop - 1]) for (n, k), span in spans.items()}
    return _Grid(tuple(np.unique(rows.n).tolist()), tuple(np.unique(rows.k).tolist()), m_range)


def _pack(kernel: Gemm) -> int:
    """The key of a shape; -1 where a size does not fit or the format has no rows of its own."""
    sizes = (kernel.m, kernel.n, kernel.k)
    if kernel.format not in FORMAT_CODES or not all(0 < size < 1 << _BITS for size in sizes):
        return -1
    return (((FORMAT_CODES.index(kernel.format) << _BITS) + kernel.m << _BITS) + kernel.n << _BITS) + kernel.k


def _around(grid: tuple[int, ...], value: int) -> tuple[int, ...]:
    """The grid values around a value within the grid; itself where it is one."""
    at = bisect_left(grid, value)
    return (value,) if grid[at] == value else grid[at - 1 : at + 1]


def _distance(name: str, value: int, least: int, most: int) -> str:
    if value > most:
        return f"{name} {value} is {value / most:.3g}x beyond the largest row, {most}"
    return f"{name} {value} is below the smallest row, {least}"
