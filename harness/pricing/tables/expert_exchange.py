"""Dispatch to experts and combine, from measured rows of the kernels that TensorRT-LLM would run.

Which kernel: TensorRT-LLM tries its own over NVLink first, one-sided before two-sided, then DeepEP
(tensorrt_llm/_torch/modules/fused_moe/communication/communication_factory.py at 03c36d6). The NVLink kernels were
measured on GB200, the one-sided ones with NVFP4. DeepEP has high-throughput kernels, which a CUDA graph cannot hold and
which count for prefill, and low-latency ones, which count for decode (NVIDIA/TensorRT-LLM pull 4792). The latter exist
for some hidden sizes only.

What travels: NVFP4 experts get NVFP4; FP8 experts with a scale per tensor get FP8 from the low-latency kernels and over
NVLink; else bf16 (`supports_post_quant_dispatch` in deep_ep.py and deep_ep_low_latency.py). Rows come back in bf16, as
`use_low_precision_moe_combine` is off by default.

Rows hold few shapes (hidden, top k, experts), with as many GPUs as a node has. Between token counts they are joined by
a line: a row left out and asked again errs by 1.0 to 3.2 % in the median. On request another shape is
answered from the nearest one at equal bytes sent, more GPUs as in `collectives`, more tokens along the line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from harness.cost.collectives import ExpertCombine, ExpertDispatch, ranks_visited
from harness.cost.formats import GemmFormat
from harness.pricing.base import KernelPrice
from harness.pricing.tables.collectives import Network, Point, along, decided, worse
from harness.pricing.tables.exchange_rows import ExchangeAssumptions, ExchangeStore, ExpertRows
from harness.pricing.tables.slices import nearest

if TYPE_CHECKING:
    from harness.hardware import System

ExpertExchange: TypeAlias = ExpertDispatch | ExpertCombine

_TOLD = {
    "deepep_ht": "DeepEP high-throughput",
    "deepep_ll": "DeepEP low-latency",
    "nvlink_one_sided": "NVLink one-sided",
    "nvlink_two_sided": "NVLink two-sided",
}


class ExpertExchangePricer:
    """Prices dispatch and combine from the rows of one system."""

    def __init__(
        self,
        store: ExchangeStore,
        system: System,
        assumed: ExchangeAssumptions,
        *,
        allow_extrapolation: bool = False,
    ) -> None:
        self.store = store
        self.network = Network(system)
        self.assumed = assumed
        self.allow_extrapolation = allow_extrapolation

    def price(self, kernel: ExpertExchange) -> KernelPrice:
        """Price one exchange; never raises."""
        rows = self.store.experts
        if not rows:
            return KernelPrice.refuse("unsupported", "no rows of expert dispatch and combine on this GPU")
        wanted = list(_wanted(kernel, {key.lane for key in rows}))
        problem = self._low_latency_limit(kernel, wanted)
        if problem:
            return KernelPrice.refuse("unsupported", problem)
        exact = next((key for key in wanted if key in rows), None)
        if exact:
            return self._answer(kernel, exact)
        near = self._nearest(wanted)
        if near is None:
            return KernelPrice.refuse("unsupported", self._explain(kernel, wanted))
        return self._answer(kernel, *near)

    def _answer(self, kernel: ExpertExchange, key: ExpertRows, beyond: str = "") -> KernelPrice:
        """From the rows of `key`, which are those asked for unless `beyond` says how they differ."""
        parts = [beyond]
        spare = _spare_slots(kernel)
        tokens = kernel.tokens * _bytes_ratio(kernel, key)
        point = along(self.store.experts[key], tokens, self.assumed.bands[_band(key.lane, "size")])
        parts.append(point.beyond)
        time_ms = point.time_ms
        if kernel.gpus > key.gpus:
            scaled = self.network.scaled(kernel, key.gpus, time_ms, self.assumed.more_gpus)
            if isinstance(scaled, str):
                return KernelPrice.refuse("unsupported", f"no rows of {kernel.gpus} GPUs; {scaled}")
            time_ms = scaled[0]
            parts.append(f"{kernel.gpus} GPUs are beyond the rows, which have {key.gpus}: {scaled[1]}")
            if not key.lane.startswith("nvlink"):
                parts.append(f"the package's engine takes the rows of {key.gpus} as they are, {point.time_ms:.4g} ms")
        note = "; ".join(part for part in (_TOLD[key.lane], point.note, spare) if part)
        told = "; ".join(part for part in parts if part)
        source = worse(point.source, "estimated") if spare else point.source
        return decided(Point(time_ms, source, note, told, point.too_far), self.allow_extrapolation)

    def _nearest(self, wanted: list[ExpertRows]) -> tuple[ExpertRows, str] | None:
        """The rows nearest to those wanted, and in what they differ: fewer GPUs, or another shape, or both."""
        for key in wanted:
            like = [one for one in self.store.experts if one[:3] == key[:3]]
            counts = {one.gpus for one in like}
            gpus = key.gpus if key.gpus in counts else max(counts, default=key.gpus)
            if gpus > key.gpus or gpus not in counts:
                continue  # fewer GPUs than were measured, or none were
            shapes = {one.shape for one in like if one.gpus == gpus}
            shape = nearest(key.shape, shapes, 1)[0]
            found = ExpertRows(*key[:3], gpus, *shape)
            if shape == key.shape:
                return found, ""
            bands = self.assumed.bands.get(_band(key.lane, "shape"))
            known = f"so found errs by {bands[0]}" if bands else "no other shape tells how well"
            return found, (
                f"no rows of {_text(key.shape)} (hidden/top k/experts); "
                f"from {_text(shape)} at equal bytes sent, {known}"
            )
        return None

    def _low_latency_limit(self, kernel: ExpertExchange, wanted: list[ExpertRows]) -> str:
        """Why the low-latency kernels cannot run, where they are the only ones there are."""
        if any(key.lane != "deepep_ll" and key in self.store.experts for key in wanted) or kernel.phase != "decode":
            return ""
        hidden, most = self.assumed.low_latency_hidden, self.assumed.low_latency_top_k
        if kernel.hidden not in hidden:
            return f"DeepEP's low-latency kernels have no hidden size {kernel.hidden}; {', '.join(map(str, hidden))}"
        return f"DeepEP's low-latency kernels take top k up to {most}" if kernel.top_k > most else ""

    def _explain(self, kernel: ExpertExchange, wanted: list[ExpertRows]) -> str:
        step = wanted[0].step
        ranks = sorted({one.gpus for key in wanted for one in self.store.experts if one[:2] == key[:2]})
        formats = sorted({one.format for key in wanted for one in self.store.experts if one[:2] == key[:2]})
        return (
            f"no {step} rows of {kernel.gpus} GPUs with {wanted[-1].format} on this GPU; there are "
            f"{', '.join(map(str, ranks))} GPUs with {', '.join(formats)}"
        )


def _wanted(kernel: ExpertExchange, lanes: set[str]) -> Iterator[ExpertRows]:
    """The rows that would be exact, best kernel first."""
    step = "dispatch" if isinstance(kernel, ExpertDispatch) else "combine"
    deepep = "deepep_ht" if kernel.phase == "prefill" else "deepep_ll"
    for lane in ("nvlink_one_sided", "nvlink_two_sided", deepep):
        if lane in lanes:
            travels = _travels(lane, step, kernel.format)
            yield ExpertRows(lane, step, travels, kernel.gpus, kernel.hidden, kernel.top_k, kernel.experts)


def _travels(lane: str, step: str, stored: GemmFormat) -> str:
    """What the tables call the format that an exchange of experts stored in `stored` has."""
    if stored == "nvfp4":
        # The low-latency combine has rows by its own format, the others by that of the experts.
        return "bfloat16" if lane == "deepep_ll" and step == "combine" else "nvfp4"
    if lane.startswith("nvlink"):
        return "bfloat16" if stored == "bf16" else "fp8"
    static = stored in {"fp8", "fp8_static"}
    return "fp8" if lane == "deepep_ll" and step == "dispatch" and static else "bfloat16"


def _bytes_ratio(kernel: ExpertExchange, key: ExpertRows) -> float:
    """Bytes that a token of the kernel sends over those of a token of the rows, on as many GPUs as the rows have."""
    shape = (kernel.hidden, kernel.top_k, kernel.experts)
    if shape == key.shape:
        return 1.0
    sent = kernel.hidden * ranks_visited(kernel.top_k, kernel.experts, key.gpus)
    return sent / (key.hidden * ranks_visited(key.top_k, key.experts, key.gpus))


def _spare_slots(kernel: ExpertExchange) -> str:
    if kernel.slots <= kernel.experts:
        return ""
    return f"rows have {kernel.experts} experts and no copies; {kernel.slots} slots are taken alike"


def _band(lane: str, axis: str) -> str:
    return f"{'nvlink' if lane.startswith('nvlink') else lane}_{axis}"


def _text(shape: tuple[int, ...]) -> str:
    return "/".join(map(str, shape))
