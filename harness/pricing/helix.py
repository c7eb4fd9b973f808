"""Helix in a composed price: what is a formula in it, and overlap as an assumption.

No kernel of Helix was measured. Its attention is priced as ordinary decode attention at a rank's share of the cache,
although it returns softmax statistics too, and its exchange as NCCL's all-to-all: source `formula`, both.

HOP-B (N. Bhatia et al., "Helix Parallelism", arXiv 2507.07120) hands over the outputs of one sequence while the next is
attended to. With n sequences on a rank and times A and X of attention and exchange for all of them, two such stages
take (A + X)/n + (n − 1)/n · max(A, X): min(A, X) · (n − 1)/n less than one after the other. That n small exchanges cost
no more than one is an assumption that nothing measured supports, so overlap is on only where it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.cost.ops import DecodeAttention, HelixAllToAll, Op
from harness.pricing.base import SOURCES, KernelPrice
from harness.pricing.roofline import RooflineTime

#: Printed with every price that rests on it.
OVERLAP = (
    "Helix overlap (HOP-B) is assumed: the exchange of one sequence runs while the next is attended to, and so many "
    "small exchanges cost no more than one"
)

_SHARE = "the rank's share of the cache, as ordinary attention"

Priced = tuple[Op, KernelPrice, RooflineTime | None]


def as_helix(ops: Sequence[Priced], overlap: bool) -> list[Priced]:
    """The ops of a case under Helix: attention marked as a formula, the exchange hidden where that is assumed."""
    marked = [(op, _formula(op, price), limit) for op, price, limit in ops]
    if not overlap:
        return marked
    attention = {op.name.rpartition(".")[0]: (op, price, limit) for op, price, limit in marked if _attends(op)}
    return [
        _hidden(one, attention[one[0].name.rpartition(".")[0]]) if isinstance(one[0].kernel, HelixAllToAll) else one
        for one in marked
    ]


def _attends(op: Op) -> bool:
    return isinstance(op.kernel, DecodeAttention)


def _formula(op: Op, price: KernelPrice) -> KernelPrice:
    if not _attends(op) or price.source is None or price.source == "modelled":
        return price
    note = "; ".join(part for part in (_SHARE, price.note) if part)
    return replace(price, source=max("formula", price.source, key=SOURCES.index), note=note)


def _hidden(exchange: Priced, attention: Priced) -> Priced:
    """The exchange without the part that runs beside attention."""
    op, price, limit = exchange
    other, beside, beside_limit = attention
    assert isinstance(other.kernel, DecodeAttention)
    left = 1 - 1 / other.kernel.batch
    if price.time_ms is not None and beside.time_ms is not None:
        hidden_ms = left * min(price.time_ms, beside.time_ms)
        note = f"{hidden_ms * 1000:.4g} of {price.time_ms * 1000:.4g} µs hidden beside attention (HOP-B, assumed)"
        note = "; ".join(part for part in (note, price.note) if part)
        price = replace(price, time_ms=price.time_ms - hidden_ms, note=note)
    if limit is not None and beside_limit is not None:
        limit = replace(limit, time_ms=limit.time_ms - left * min(limit.time_ms, beside_limit.time_ms))
    return op, price, limit
