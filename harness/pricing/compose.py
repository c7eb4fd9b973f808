"""Price whole cases: decompose, ask a pricer for every kernel, add up, keep where each part came from.

Norms, activations and the embedding have no measured table: the roofline answers exactly those and their source says
`modelled`. Any other kernel without an answer leaves the whole case without one; nothing is filled in from elsewhere.

With a pipeline the time of a case is that of one pass through all stages; `stage_ms` tells what each stage has of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.cost.decompose import PhaseLevel, decompose
from harness.cost.ops import Elementwise, Kernel, Op
from harness.cost.pipeline import pipeline
from harness.pricing.base import SOURCES, KernelPrice, KernelPricer, Source
from harness.pricing.helix import as_helix
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
    stage_ms: tuple[float, ...] = ()
    """Time of each pipeline stage, first to last; empty without pp, and where only some ops were asked for."""

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
    *,
    helix_overlap: bool = False,
) -> list[CasePrice]:
    """Price many cases of one system in one pass over their distinct kernels; one price per case, in order.

    `only` names the ops that are asked for; without it all of the level are. `helix_overlap` hides Helix's exchange
    beside attention, as `harness.pricing.helix` says.
    """
    taken_apart = [_decompose(case, level, only) for case in cases]
    asked = [ops for ops in taken_apart if not isinstance(ops, str)]
    kernels = list(dict.fromkeys(op.kernel for ops in asked for op in ops))
    prices = dict(zip(kernels, price_kernels(kernels, pricer, roofline), strict=True))
    limits = {kernel: roofline.time(kernel) for kernel in kernels}
    totals = []
    for case, ops in zip(cases, taken_apart, strict=True):
        if isinstance(ops, str):
            totals.append(CasePrice("unsupported", ops))
            continue
        total = _total(_priced(case, ops, prices, limits, helix_overlap))
        if case.parallelism.pp > 1 and total.status == "ok" and not only:
            stages = (_priced(case, stage.ops, prices, limits, helix_overlap) for stage in pipeline(case, level))
            total = replace(total, stage_ms=tuple(_sum_ms(stage) for stage in stages))
        totals.append(total)
    return totals


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


def _priced(
    case: Case,
    ops: Iterable[Op],
    prices: dict[Kernel, KernelPrice],
    limits: dict[Kernel, RooflineTime | None],
    helix_overlap: bool,
) -> tuple[PricedOp, ...]:
    each = [(op, prices[op.kernel], limits[op.kernel]) for op in ops]
    if case.parallelism.cp > 1:
        each = as_helix(each, helix_overlap)
    return tuple(PricedOp(*one) for one in each)


def _total(priced: tuple[PricedOp, ...]) -> CasePrice:
    roofline_ms = None
    if all(one.roofline for one in priced):
        roofline_ms = sum(one.op.count * one.roofline.time_ms for one in priced if one.roofline)
    unanswered = [one for one in priced if one.price.refusal]
    if unanswered:
        # `refused` is the stronger word: the kernel exists, but the question lies outside what may be answered.
        status: PriceStatus = "refused" if any(one.price.refusal == "refused" for one in unanswered) else "unsupported"
        told = dict.fromkeys(f"{one.op.name}: {one.price.note}" for one in unanswered if one.price.refusal == status)
        return CasePrice(status, "; ".join(told), priced, None, roofline_ms)
    return CasePrice("ok", None, priced, _sum_ms(priced), roofline_ms)


def _sum_ms(priced: Iterable[PricedOp]) -> float:
    return sum(one.total_ms or 0.0 for one in priced)
