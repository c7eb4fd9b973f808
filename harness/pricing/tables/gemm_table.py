"""GEMM rows, arranged: the row of a shape, and the extent of each format's rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from harness.cost.ops import Gemm
from harness.pricing.tables.slices import nearest
from harness.pricing.tables.store import FORMAT_CODES, GemmRows, group

#: Sizes are packed into one integer key, 20 bits each; the widest row is 65,536.
_BITS = 20


#: The measured n and k around a shape.
_Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Grid:
    """The extent of one format's rows: sorted n and k, and the range of m at each (n, k)."""

    n: tuple[int, ...]
    k: tuple[int, ...]
    m_range: Mapping[tuple[int, int], tuple[int, int]]
    _limits: dict[_Box, tuple[int, int] | None] = field(default_factory=dict, init=False)
    """What was found for each box of the grid; a sweep falls into few."""

    def filled(self, kernel: Gemm) -> Gemm:
        """The shape that fills the smallest tile that was measured: n and k no smaller than those of the first rows."""
        if kernel.n >= self.n[0] and kernel.k >= self.k[0]:
            return kernel
        return replace(kernel, n=max(kernel.n, self.n[0]), k=max(kernel.k, self.k[0]))

    def m_limits(self, kernel: Gemm) -> tuple[int, int] | str:
        """The least and largest m that all measured (n, k) around the shape have; why not where none surround it."""
        for name, value, last in (("n", kernel.n, self.n[-1]), ("k", kernel.k, self.k[-1])):
            if value > last:
                return f"{distance(name, value, last)}; no extrapolation in n or k"
        box = _around(self.n, kernel.n), _around(self.k, kernel.k)
        if box not in self._limits:
            self._limits[box] = self._common(box)
        return self._limits[box] or self._gap(kernel)

    def _common(self, box: _Box) -> tuple[int, int] | None:
        """The range of m that the corners of a box have in common; None where one has no rows."""
        corners = [self.m_range.get((n, k)) for n in box[0] for k in box[1]]
        ranges = [limits for limits in corners if limits]
        if len(ranges) < len(corners):
            return None
        return max(least for least, _ in ranges), min(most for _, most in ranges)

    def _gap(self, kernel: Gemm) -> str:
        near = " and ".join(f"{n} x {k}" for n, k in nearest((kernel.n, kernel.k), self.m_range, 2))
        return f"n {kernel.n} and k {kernel.k} lie in a gap of the rows; the nearest (n x k) are {near}"


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


def _grid(rows: GemmRows) -> Grid:
    import numpy as np

    order, spans = group((rows.n, rows.k), (rows.m,))
    m = rows.m[order].tolist()
    m_range = {(n, k): (m[span.start], m[span.stop - 1]) for (n, k), span in spans.items()}
    return Grid(tuple(np.unique(rows.n).tolist()), tuple(np.unique(rows.k).tolist()), m_range)


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


def distance(name: str, value: int, most: int) -> str:
    """How far a size lies beyond the largest row."""
    return f"{name} {value} is {value / most:.3g}x beyond the largest row, {most}"
