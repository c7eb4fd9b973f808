"""Multi-head latent attention from measured rows, of DeepSeek-V3's sizes: the only ones that were timed.

Latent of 512 + 64 values, heads of 128 + 64 for keys and 128 for values, query heads on a rank 1, 2, 4 … 128. Between
rows the rules of grouped-query attention hold: a line in KVSL where the latents exceed L2 (a row left out and asked
again errs by 0.4 to 0.5 % in the median), log-log below. Beyond the rows nothing is answered.

The absorbed projections of decode have rows per head count over tokens; those called `fp8` are what a checkpoint of FP8
blocks runs: an FP8 kernel on Hopper, weights made bf16 when they are loaded on Blackwell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.cost.ops import BatchedGemm, DecodeAttention, PrefillAttention
from harness.pricing.base import KernelPrice
from harness.pricing.roofline import RooflineTime
from harness.pricing.tables.collectives import along, decided
from harness.pricing.tables.decode_attention import DecodeAttentionPricer, DecodeRules
from harness.pricing.tables.prefill_attention import PrefillAttentionPricer, PrefillRules
from harness.pricing.tables.slices import AttentionTable, Curve
from harness.pricing.tables.store import TableStore

#: Widths of keys and values: absorbed decode, and prefill.
DECODE_DIMS = (576, 512)
PREFILL_DIMS = (192, 128)
#: (n, k) of the absorbed projections → the table's name.
_PROJECTIONS = {(512, 128): "mla_gen_pre", (128, 512): "mla_gen_post"}
_FORMATS = {"bf16": "bfloat16", "fp8_block": "fp8"}


@dataclass(frozen=True, slots=True)
class _Projection:
    """What a curve over tokens is of."""

    name: str
    format: str
    heads: int


class MlaPricer:
    """Prices the kernels of multi-head latent attention from the rows of one system."""

    def __init__(
        self,
        store: TableStore,
        l2_bytes: float,
        roofline: Callable[[PrefillAttention], RooflineTime | None] = lambda _: None,
    ) -> None:
        decode, prefill = store.mla("generation"), store.mla("context")
        rules = DecodeRules(l2_bytes=l2_bytes, length_bands={}, batch_bands={}, latent=True)
        self._decode = None if decode is None else DecodeAttentionPricer(AttentionTable(decode), rules)
        chunks = PrefillRules((), (), roofline=roofline, value_dim=PREFILL_DIMS[1])
        self._prefill = None if prefill is None else PrefillAttentionPricer(AttentionTable(prefill), chunks)
        self._projections = _arrange(store.mla_projections())

    def decode(self, kernel: DecodeAttention) -> KernelPrice:
        """Absorbed decode: all heads of a rank on one latent."""
        if self._decode is None:
            return _none_here()
        if (kernel.head_dim, kernel.value_dim) != DECODE_DIMS:
            return _other_sizes((kernel.head_dim, kernel.value_dim), DECODE_DIMS)
        return self._decode.price(kernel)

    def prefill(self, kernel: PrefillAttention) -> KernelPrice:
        """Prefill: every head with keys and values of its own."""
        if self._prefill is None:
            return _none_here()
        if (kernel.head_dim, kernel.value_dim) != PREFILL_DIMS:
            return _other_sizes((kernel.head_dim, kernel.value_dim), PREFILL_DIMS)
        return self._prefill.price(kernel)

    def projection(self, kernel: BatchedGemm) -> KernelPrice:
        """The projection of queries into the latent, or of the latent into values."""
        name = _PROJECTIONS.get((kernel.n, kernel.k))
        if not self._projections:
            return _none_here()
        if name is None:
            there = " and ".join(f"{n} x {k}" for n, k in _PROJECTIONS)
            note = f"no rows of batched GEMMs of {kernel.n} x {kernel.k} (n x k); there are {there}"
            return KernelPrice.refuse("unsupported", note)
        stored = _FORMATS.get(kernel.format, kernel.format)
        curve = self._projections.get(_Projection(name, stored, kernel.batch))
        if curve is None:
            heads = sorted({one.heads for one in self._projections if (one.name, one.format) == (name, stored)})
            note = f"no rows of {kernel.batch} heads with {kernel.format} weights; there are {_join(heads)}"
            return KernelPrice.refuse("unsupported", note)
        return decided(along(curve, kernel.m, ()), allow_extrapolation=False)


def _arrange(rows: list[tuple[str, str, int, int, float]]) -> dict[_Projection, Curve]:
    found: dict[_Projection, dict[int, float]] = {}
    for name, stored, heads, tokens, time_ms in rows:
        found.setdefault(_Projection(name, stored, heads), {})[tokens] = time_ms
    return {key: Curve(*zip(*sorted(points.items()), strict=True)) for key, points in found.items()}


def _none_here() -> KernelPrice:
    return KernelPrice.refuse("unsupported", "no rows of multi-head latent attention on this GPU")


def _other_sizes(asked: tuple[int, int], there: tuple[int, int]) -> KernelPrice:
    note = "no rows with keys of {} and values of {}; DeepSeek-V3's {} and {} were measured".format(*asked, *there)
    return KernelPrice.refuse("unsupported", note)


def _join(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
