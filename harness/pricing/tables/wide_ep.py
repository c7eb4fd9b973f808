"""Experts under EPLB (`WIDEEP` backend) from measured rows: the row itself, a line between token counts, or a refusal.

Rows have slots beside experts, copies included, a routing with `_eplb` behind it, one format per GPU (FP8 blocks on
Hopper, NVFP4 on Blackwell), and no tensor parallelism within an expert; `tokens` are those of the whole EP group.
Shapes, slots and ranks are not interpolated. The release is in `harness/data/exchange_tables.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from harness.cost.ops import Moe
from harness.pricing.base import KernelPrice
from harness.pricing.tables.collectives import along, decided
from harness.pricing.tables.engine import moe_format
from harness.pricing.tables.exchange_rows import ExchangeStore
from harness.pricing.tables.slices import nearest
from harness.pricing.tables.store import FORMATS


class _Key(NamedTuple):
    """One curve over tokens."""

    hidden: int
    inter: int
    top_k: int
    experts: int
    format: str
    slots: int
    routing: str
    ep: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.hidden, self.inter, self.top_k, self.experts


class WideEpPricer:
    """Prices experts that have slots."""

    def __init__(self, store: ExchangeStore) -> None:
        self._curves = {_Key(*key): curve for key, curve in store.wide_ep.items()}

    def price(self, kernel: Moe) -> KernelPrice:
        """Price one expert FFN; never raises."""
        if kernel.tp != 1:
            note = f"no rows of experts under EPLB that are cut {kernel.tp} ways; there are rows of whole ones"
            return KernelPrice.refuse("unsupported", note)
        stored = FORMATS.get(moe_format(kernel.format), kernel.format)
        key = _Key(
            kernel.hidden, kernel.inter, kernel.top_k, kernel.experts, stored, kernel.slots, kernel.routing, kernel.ep
        )
        curve = self._curves.get(key)
        if curve is None:
            return KernelPrice.refuse("unsupported", self._explain(key))
        if kernel.tokens > curve.lengths[-1]:
            note = (
                f"{kernel.tokens} tokens are beyond the last row, {curve.lengths[-1]}: split the pass into smaller ones"
            )
            return KernelPrice.refuse("refused", note)
        return decided(along(curve, kernel.tokens, ()), allow_extrapolation=False)

    def _explain(self, key: _Key) -> str:
        """Say which part of the question has no rows, and what does."""
        if not self._curves:
            return "no rows of experts under EPLB on this GPU"
        same = [one for one in self._curves if one.shape == key.shape]
        if not same:
            near = "; ".join("/".join(map(str, one)) for one in nearest(key.shape, {one.shape for one in self._curves}))
            return f"no rows under EPLB for {_told(key)} (hidden/inter/top k/experts); nearest: {near}"
        for field in ("format", "slots", "routing"):
            wanted = getattr(key, field)
            there = sorted({getattr(one, field) for one in same if field != "routing" or "_eplb" in one.routing})
            if wanted not in there:
                return f"no rows under EPLB with {field} {wanted} for {_told(key)}; there are {_join(there)}"
            same = [one for one in same if getattr(one, field) == wanted]
        ranks = sorted({one.ep for one in same})
        return f"no rows with ep {key.ep} for {_told(key)} in {key.slots} slots; there are {_join(ranks)}"


def _told(key: _Key) -> str:
    return "/".join(map(str, key.shape))


def _join(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
