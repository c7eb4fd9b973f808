"""Price whole cases: decompose, ask a pricer for every kernel, add up, keep where each part came from.

Norms, activations and the embedding have no measured table: the roofline answers exactly those and their source says
`modelled`. Any other kernel without an answer leaves the whole case without one; nothing is filled in from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.cost.decompose import PhaseLevel, decompose
from harness.cost.ops import Elementwise, Kernel, Op
from harness.pricing.base import SOURCES, KernelPrice, KernelPricer, Source
from harness.pricing.roofline import RooflinePricer, RooflineTime
from harness.spec.case import Case

#: An op counts towards `worst_source` when it holds at least this share of the time (design section 5).
WORST_SOURCE_SHARE = 0.05

PriceStatus = Literal["ok", "unsupported", "refused"]


@dataclass(frozen=True, slots=True)
class PricedOp:
    """One op of a case with its price and its roofline."""

    op: Op
    price: KernelPrice
    roofline: RooflineTime | None

    @property
    def total_ms(self) -> float | None:
        """All executions."""
        return None if self.price.time_ms is None else self.op.count * self.price.time_ms


@dataclass(frozen=True, slots=True)
class CasePrice:
    """The price of one phase of one case, or why there is none. `time_ms` is set exactly when `status` is ok."""

    status: PriceStatus
    reason: str | None
    ops: tuple[PricedOp, ...] = ()
    time_ms: float | None = None
    roofline_ms: float | None = None

    @property
    def flags(self) -> list[str]:
        """Flags of all ops, sorted."""
        return sorted({flag for priced in self.ops for flag in priced.price.flags})

    def source_shares(self) -> dict[Source, float]:
        """Share of the time per source, best source first; empty without a price."""
        if not self.time_ms:
            return {}
        shares = dict.fromkeys(SOURCES, 0.0)
        for priced in self.ops:
            if priced.price.source and priced.total_ms:
                shares[priced.price.source] += priced.total_ms / self.time_ms
        return {source: share for source, share in shares.items() if share}

    @property
    def worst_source(self) -> Source | None:
        """The worst source among ops that hold at least 5 % of the time."""
        total = self.time_ms
        if not total:
            return None
        heavy = [
            SOURCES.index(priced.price.source)
            for priced in self.ops
            if priced.price.source and (priced.total_ms or 0) >= WORST_SOURCE_SHARE * total
        ]
        return SOURCES[max(heavy)] if heavy else None

    @property
    def bound(self) -> str | None:
        """What holds most of the roofline time."""
        held: dict[str, float] = {}
        for priced in self.ops:
            if priced.roofline:
                bound = priced.roofline.bound
                held[bound] = held.get(bound, 0.0) + priced.op.count * priced.roofline.time_ms
        return max(held, key=lambda bound: held[bound]) if held else None


def price_cases(
    cases: Sequence[Case],
    level: PhaseLevel,
    pricer: KernelPricer,
    roofline: RooflinePricer,
    only: Collection[str] = (),
) -> list[CasePrice]:
    """Price many cases of one system in one pass over their distinct kernels; one price per case, in order.

    `only` names the ops that are asked for; without it all of the level are.
    """
    taken_apart = [_decompose(case, level, only) for case in cases]
    kernels = list(dict.fromkeys(op.kernel for ops in taken_apart if not isinstance(ops, str) for op in ops))
    prices = dict(zip(kernels, price_kernels(kernels, pricer, roofline), strict=True))
    limits = {kernel: roofline.time(kernel) for kernel in kernels}
    return [
        CasePrice("unsupported", ops) if isinstance(ops, str) else _total(ops, prices, limits) for ops in taken_apart
    ]


def price_kernels(kernels: Sequence[Kernel], pricer: KernelPricer, roofline: RooflinePricer) -> list[KernelPrice]:
    """Prices from `pricer`, with the roofline answering for kernels that no table can have."""
    prices = pricer.price(kernels)
    return [
        roofline.price([kernel])[0] if price.refusal and isinstance(kernel, Elementwise) else price
        for kernel, price in zip(kernels, prices, strict=True)
    ]


def _decompose(case: Case, level: PhaseLevel, only: Collection[str]) -> list[Op] | str:
    try:
        ops = decompose(case, level)
    except ValueError as error:
        return str(error)
    kept = [op for op in ops if op.name in only] if only else ops
    return kept or f"it has no op {' or '.join(only)}; it has {', '.join(dict.fromkeys(op.name for op in ops))}"


def _total(
    ops: Iterable[Op], prices: dict[Kernel, KernelPrice], limits: dict[Kernel, RooflineTime | None]
) -> CasePrice:
    priced = tuple(PricedOp(op, prices[op.kernel], limits[op.kernel]) for op in ops)
    roofline_ms = None
    if all(one.roofline for one in priced):
        roofline_ms = sum(one.op.count * one.roofline.time_ms for one in priced if one.roofline)
    unanswered = [one for one in priced if one.price.refusal]
    if unanswered:
        # `refused` is the stronger word: the kernel exists, but the question lies outside what may be answered.
        status: PriceStatus = "refused" if any(one.price.refusal == "refused" for one in unanswered) else "unsupported"
        told = dict.fromkeys(f"{one.op.name}: {one.price.note}" for one in unanswered if one.price.refusal == status)
        return CasePrice(status, "; ".join(told), priced, None, roofline_ms)
    return CasePrice("ok", None, priced, sum(one.total_ms or 0.0 for one in priced), roofline_ms)
