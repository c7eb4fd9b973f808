"""Expert FFNs from measured rows: the row itself, else the package's engine between token counts, else a refusal.

Rows exist for the shapes of some 25 published models, each with the expert and tensor parallelism they were run at, and
for three routings; `tokens` are those of the whole EP group. Shapes are not interpolated.

Some NVFP4 shapes have two rows per token count on Blackwell: TensorRT-LLM's min-latency kernel and its CUTLASS kernel.
Up to 128 tokens the min-latency row counts, beyond it the other, as in the package's engine (ai-dynamo/aiconfigurator,
aic-core/rust/aiconfigurator-core/src/operators/moe.rs at 095f58a51, 2026-08-21). The min-latency rows were collected
with DeepSeek's grouped routing, whatever the shape and the routing they name (collector/trtllm/collect_moe.py there:
"all use deepseek setting for now"), and some take less time than HBM needs for the experts that the routing touches: 16
tokens that choose 2 of 8 experts take as long as it takes to read 2 to 4 of them. Those carry the flag `suspect`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from harness.cost.ops import Moe
from harness.pricing.base import KernelPrice
from harness.pricing.tables.bounds import Bounds
from harness.pricing.tables.engine import Engine, EngineError, moe_format
from harness.pricing.tables.slices import nearest
from harness.pricing.tables.store import FORMAT_CODES, FORMATS, MoeRows, group
from harness.pricing.tables.wide_ep import WideEpPricer

_MIN_LATENCY = "moe_torch_flow_min_latency"
_MIN_LATENCY_TOKENS = 128
_MIN_LATENCY_NOTE = "min-latency kernel, whose rows were collected with DeepSeek's grouped routing"
#: Rows of two matrices with a squared ReLU between them; ours has three.
_NOT_GATED = "moe_torch_flow_nongated"

_Shape = tuple[int, int, int, int]  # hidden, inter, top_k, experts


class _Key(NamedTuple):
    """One curve over tokens."""

    shape: _Shape
    format: str
    tp: int
    ep: int
    routing: str
    min_latency: bool


class MoeTable:
    """Index over MoE rows: times over token counts per shape, format, parallelism, routing and kernel."""

    def __init__(self, rows: MoeRows, routings: tuple[str, ...], lanes: tuple[str, ...]) -> None:
        import numpy as np

        not_gated = [code for code, lane in enumerate(lanes) if lane == _NOT_GATED]
        gated = rows.take(~np.isin(rows.lane, not_gated))
        low = np.isin(gated.lane, [code for code, lane in enumerate(lanes) if lane == _MIN_LATENCY]).astype(np.int64)
        shape = (gated.hidden, gated.inter, gated.top_k, gated.experts)
        columns = (*shape, gated.format, gated.tp, gated.ep, gated.routing, low)
        order, spans = group(columns, (gated.tokens,))
        self._tokens, self._time_ms = gated.tokens[order], gated.time_ms[order]
        self._spans: dict[_Key, slice] = {}
        self._keys: dict[_Shape, list[_Key]] = {}
        for (hidden, inter, top_k, experts, code, tp, ep, routing, fast), span in spans.items():
            key = _Key((hidden, inter, top_k, experts), FORMAT_CODES[code], tp, ep, routings[routing], bool(fast))
            self._spans[key] = span
            self._keys.setdefault(key.shape, []).append(key)
        others = rows.take(np.isin(rows.lane, not_gated))
        stacked = np.stack([others.hidden, others.inter, others.top_k, others.experts])
        self.shapes_not_gated = {tuple(row) for row in stacked.T.tolist()} - set(self._keys)

    def curve(self, kernel: Moe) -> tuple[list[int], list[float]] | None:
        """Token counts and times of the kernel that would run, or None where the shape has no rows."""
        key = _Key(_shape(kernel), _format(kernel), kernel.tp, kernel.ep, kernel.routing, self.min_latency(kernel))
        span = self._spans.get(key)
        if span is None:
            return None
        return self._tokens[span].tolist(), self._time_ms[span].tolist()

    def min_latency(self, kernel: Moe) -> bool:
        """Whether the rows of the min-latency kernel answer."""
        key = _Key(_shape(kernel), _format(kernel), kernel.tp, kernel.ep, kernel.routing, min_latency=True)
        return kernel.tokens <= _MIN_LATENCY_TOKENS and key in self._spans

    def explain_missing(self, kernel: Moe) -> str:
        """Say which part of the question has no rows, and what does."""
        shape = _shape(kernel)
        if shape in self.shapes_not_gated:
            return f"rows of {_told(shape)} are of an FFN without a gate, and this one has one"
        same = self._keys.get(shape, [])
        if not same:
            near = "; ".join(_told(other) for other in nearest(shape, self._keys))
            return f"no rows for {_told(shape)} (hidden/inter/top k/experts); nearest: {near}"
        formats = sorted({key.format for key in same})
        if _format(kernel) not in formats:
            return f"no {kernel.format} rows for {_told(shape)}; there are {', '.join(formats)}"
        same = [key for key in same if key.format == _format(kernel)]
        routings = sorted({key.routing for key in same})
        if kernel.routing not in routings:
            return f"no rows with routing {kernel.routing} for {_told(shape)}; there are {', '.join(routings)}"
        parallel = nearest((kernel.tp, kernel.ep), {(key.tp, key.ep) for key in same})
        near = ", ".join(f"tp {tp} ep {ep}" for tp, ep in parallel)
        return f"no {kernel.format} rows for {_told(shape)} with tp {kernel.tp} and ep {kernel.ep}; nearest: {near}"


class MoePricer:
    """Prices expert FFNs from an index of rows and the package's engine; under EPLB from rows of their own."""

    def __init__(self, table: MoeTable, engine: Engine, wide_ep: WideEpPricer, bounds: Bounds) -> None:
        self.table = table
        self.engine = engine
        self.wide_ep = wide_ep
        self.bounds = bounds

    def price_all(self, kernels: Iterable[Moe]) -> dict[Moe, KernelPrice]:
        """Price distinct expert FFNs; never raises for one that cannot be answered."""
        prices: dict[Moe, KernelPrice] = {}
        asked: dict[Moe, str] = {}
        for kernel in dict.fromkeys(kernels):
            price = self.wide_ep.price(kernel) if kernel.slots else self._from_rows(kernel)
            if isinstance(price, KernelPrice):
                prices[kernel] = price
            else:
                asked[kernel] = price
        for kernel, time_ms in zip(asked, self.engine.moe_times_ms(list(asked)), strict=True):
            if isinstance(time_ms, EngineError):
                prices[kernel] = KernelPrice.refuse("refused", time_ms.reason)
            else:
                prices[kernel] = KernelPrice(time_ms, "interpolated", note=asked[kernel])
        return {kernel: self._checked(kernel, price) for kernel, price in prices.items()}

    def _checked(self, kernel: Moe, price: KernelPrice) -> KernelPrice:
        """Against the least time, where the experts that rows read are known or the rows do not do as they say."""
        if kernel.slots or not self.table.min_latency(kernel):
            return self.bounds.applied(kernel, price) if kernel.routing.startswith("balanced") else price
        note = "; ".join(part for part in (price.note, _MIN_LATENCY_NOTE) if part)
        return self.bounds.applied(kernel, replace(price, note=note) if price.source else price)

    def _from_rows(self, kernel: Moe) -> KernelPrice | str:
        """The price where rows decide it, else the note of an interpolation."""
        curve = self.table.curve(kernel)
        if curve is None:
            return KernelPrice.refuse("unsupported", self.table.explain_missing(kernel))
        tokens, times_ms = curve
        at = bisect_left(tokens, kernel.tokens)
        if at == len(tokens):
            # The engine would go on as the roofline does, and is ten times off at 8 x the last row.
            note = f"{kernel.tokens} tokens are beyond the last row, {tokens[-1]}: split the pass into smaller ones"
            return KernelPrice.refuse("refused", note)
        if tokens[at] == kernel.tokens:
            return KernelPrice(times_ms[at], "exact")
        if at == 0:
            return KernelPrice.refuse("refused", f"{kernel.tokens} tokens are below the first row, {tokens[0]}")
        return f"between {tokens[at - 1]} and {tokens[at]} tokens, by the package's engine"


def _shape(kernel: Moe) -> _Shape:
    return (kernel.hidden, kernel.inter, kernel.top_k, kernel.experts)


def _format(kernel: Moe) -> str:
    return FORMATS.get(moe_format(kernel.format), kernel.format)


def _told(shape: tuple[int, ...]) -> str:
    return "/".join(map(str, shape))
