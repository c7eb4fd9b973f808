"""Which published attention rows `heldout.py` holds out, and what this project answers without them.

FP8 KV and full attention only (prefill: FP8 attention too); every row of these tables is one cell of a grid over
(query heads, KV heads, head size, batch, length).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from harness.cost.ops import DecodeAttention, PrefillAttention
from harness.pricing.base import KernelPrice
from harness.pricing.tables.assumptions import Assumptions
from harness.pricing.tables.decode_attention import LARGEST_GROUPED, DecodeAttentionPricer, DecodeRules
from harness.pricing.tables.prefill_attention import PrefillAttentionPricer, PrefillRules
from harness.pricing.tables.slices import AttentionTable
from harness.pricing.tables.store import FORMAT_CODES, AttentionRows, TableStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FP8 = FORMAT_CODES.index("fp8")


class Cell(NamedTuple):
    """One row of a grid; length is KVSL in decode, ISL in prefill."""

    q_heads: int
    kv_heads: int
    head_dim: int
    batch: int
    length: int


class Phase:
    """One attention table of one system."""

    name: str
    table: str

    def __init__(self, store: TableStore, assumed: Assumptions) -> None:
        self.assumed = assumed
        self.rows = self._read(store)
        fp8 = self._fp8().nonzero()[0]
        columns = (getattr(self.rows, name)[fp8].tolist() for name in Cell._fields[:-1])
        cells = map(Cell, *columns, self.rows.length[fp8].tolist())
        #: Cell → position in `rows`.
        self.cells: dict[Cell, int] = dict(zip(cells, fp8.tolist(), strict=True))
        if len(self.cells) != len(fp8):
            raise ValueError(f"the {self.table} table has two rows of one shape; removing one would leave the other")

    def _read(self, store: TableStore) -> AttentionRows:
        raise NotImplementedError

    def _fp8(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (self.rows.window == 0) & (self.rows.kv_format == _FP8)
        return found

    def interior(self) -> list[Cell]:
        """The cells that have rows on both sides, sorted."""
        raise NotImplementedError

    def frontier(self) -> list[Cell]:
        """The cells beyond which nothing was measured, sorted."""
        raise NotImplementedError

    def kernel(self, cell: Cell) -> DecodeAttention | PrefillAttention:
        """The question to which the cell's row is the answer."""
        raise NotImplementedError

    def _ask(self, rows: AttentionRows, cells: Sequence[Cell], extrapolate: bool) -> list[KernelPrice]:
        raise NotImplementedError

    def measured_ms(self, cell: Cell) -> float:
        """The row's time."""
        return float(self.rows.time_ms[self.cells[cell]])

    def prices(self, asked: Sequence[Cell], removed: Collection[Cell]) -> list[KernelPrice]:
        """What this project's pricer, with its usual settings, answers over all rows but those of `removed`."""
        import numpy as np

        shown = np.ones(len(self.rows.batch), bool)
        shown[[self.cells[cell] for cell in removed]] = False
        return self._ask(self.rows.take(shown), asked, extrapolate=False)

    def price_left_out(self, cell: Cell) -> KernelPrice:
        """What it answers with `allow_extrapolation` for a row that alone was removed.

        It is given the row's slice only, which is all that it would look at: it never joins head counts.
        """
        import numpy as np

        others = np.array([at for near, at in self._slices[cell[:3]] if near != cell])
        return self._ask(self.rows.take(others), [cell], extrapolate=True)[0]

    @cached_property
    def _slices(self) -> dict[tuple[int, ...], list[tuple[Cell, int]]]:
        slices: dict[tuple[int, ...], list[tuple[Cell, int]]] = defaultdict(list)
        for cell, at in self.cells.items():
            slices[cell[:3]].append((cell, at))
        return slices

    @cached_property
    def _reach(self) -> dict[tuple[int, ...], tuple[int, int]]:
        """The shortest and the longest length of each batch of each slice."""
        lengths = defaultdict(list)
        for cell in self.cells:
            lengths[cell[:4]].append(cell.length)
        return {row: (min(found), max(found)) for row, found in lengths.items()}


class DecodePhase(Phase):
    """Decode; interior: KVSL ≥ 1024, G ≤ 32, and rows (2·batch, KVSL/2) and (batch/2, 2·KVSL) exist."""

    name = "decode"
    table = "generation_attention"

    def _read(self, store: TableStore) -> AttentionRows:
        return store.decode_attention()

    def interior(self) -> list[Cell]:
        return sorted(cell for cell in self._considered() if self._has_equal_work(cell))

    def frontier(self) -> list[Cell]:
        """No pair of rows of equal batch x KVSL, and no longer KVSL at this batch."""
        return sorted(
            cell
            for cell in self._considered()
            if not self._has_equal_work(cell) and cell.length == self._reach[cell[:4]][1]
        )

    def _considered(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.length >= 1024 and cell.q_heads <= LARGEST_GROUPED * cell.kv_heads]

    def _has_equal_work(self, cell: Cell) -> bool:
        heads, batch, length = cell[:3], cell.batch, cell.length
        if batch % 2 or length % 2:
            return False
        around = (Cell(*heads, 2 * batch, length // 2), Cell(*heads, batch // 2, 2 * length))
        return all(near in self.cells for near in around)

    def kernel(self, cell: Cell) -> DecodeAttention:
        return DecodeAttention(cell.batch, cell.length, *cell[:3], "fp8")

    def _ask(self, rows: AttentionRows, cells: Sequence[Cell], extrapolate: bool) -> list[KernelPrice]:
        assumed = self.assumed
        rules = DecodeRules(
            assumed.l2_bytes, assumed.decode_length, assumed.decode_batch, extrapolate, assumed.suspect_decode
        )
        pricer = DecodeAttentionPricer(AttentionTable(rows), rules)
        return [pricer.price(self.kernel(cell)) for cell in cells]


class PrefillPhase(Phase):
    """Prefill; interior: ISL ≥ 512 and a shorter and a longer row at this batch."""

    name = "prefill"
    table = "context_attention"

    def _read(self, store: TableStore) -> AttentionRows:
        return store.prefill_attention()

    def _fp8(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = super()._fp8() & (self.rows.attn_format == _FP8)
        return found

    def interior(self) -> list[Cell]:
        return sorted(cell for cell in self._considered() if self._reach[cell[:4]][0] < cell.length < self._end(cell))

    def frontier(self) -> list[Cell]:
        """The longest row of each batch."""
        return sorted(cell for cell in self._considered() if cell.length == self._end(cell))

    def _considered(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.length >= 512]

    def _end(self, cell: Cell) -> int:
        return self._reach[cell[:4]][1]

    def kernel(self, cell: Cell) -> PrefillAttention:
        return PrefillAttention(cell.batch, cell.length, 0, *cell[:3], "fp8", "fp8")

    def _ask(self, rows: AttentionRows, cells: Sequence[Cell], extrapolate: bool) -> list[KernelPrice]:
        rules = PrefillRules(self.assumed.prefill_length, self.assumed.prefill_batch, extrapolate)
        pricer = PrefillAttentionPricer(AttentionTable(rows), rules)
        return [pricer.price(self.kernel(cell)) for cell in cells]


def load_phases(system: str, assumed: Assumptions) -> tuple[DecodePhase, PrefillPhase]:
    """Both attention tables of a system."""
    store = TableStore(system, assumed.release)
    return DecodePhase(store, assumed), PrefillPhase(store, assumed)
