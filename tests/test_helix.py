"""Helix in composed prices: what is a formula, and what overlap assumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import decode

from harness.cost.ops import DecodeAttention, Elementwise, HelixAllToAll, Kernel
from harness.hardware import load_system
from harness.pricing.base import KernelPrice
from harness.pricing.compose import CasePrice, price_cases
from harness.pricing.helix import OVERLAP
from harness.pricing.roofline import RooflinePricer
from harness.pricing.tables import TablesPricer
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism

ROOFLINE = RooflinePricer(load_system("b200_sxm"))


class Fixed:
    """Attention takes `attention_ms`, the exchange `exchange_ms`, all else 1 ms."""

    name = "tables"

    def __init__(self, attention_ms: float, exchange_ms: float) -> None:
        self.attention_ms, self.exchange_ms = attention_ms, exchange_ms

    def price(self, kernels: Sequence[Kernel]) -> list[KernelPrice]:
        return [self._one(kernel) for kernel in kernels]

    def _one(self, kernel: Kernel) -> KernelPrice:
        if isinstance(kernel, DecodeAttention):
            return KernelPrice(self.attention_ms, "exact")
        if isinstance(kernel, HelixAllToAll):
            return KernelPrice(self.exchange_ms, "formula")
        return KernelPrice(1.0, "exact")

    def versions(self) -> dict[str, str]:
        return {}


def helix(batch: int = 8, cp: int = 2, **shape: object) -> Case:
    return decode(batch, 8192, **shape).model_copy(update={"parallelism": Parallelism(cp=cp)})  # type: ignore[arg-type]


def priced(case: Case, pricer: Fixed, overlap: bool = False) -> CasePrice:
    return price_cases([case], "layer", pricer, ROOFLINE, helix_overlap=overlap)[0]


def times(price: CasePrice) -> dict[str, float]:
    return {one.op.name: one.price.time_ms for one in price.ops if one.price.time_ms is not None}


def test_attention_at_a_share_of_the_cache_is_a_formula() -> None:
    price = priced(helix(), Fixed(0.5, 0.2))
    sources = {one.op.name: (one.price.source, one.price.note) for one in price.ops}
    assert sources["layer.attn.attention"] == ("formula", "the rank's share of the cache, as ordinary attention")
    assert sources["layer.attn.o_proj"] == ("exact", "")
    assert times(price)["layer.attn.all_to_all"] == 0.2


def test_without_helix_nothing_is_marked() -> None:
    price = priced(decode(8, 8192), Fixed(0.5, 0.2), overlap=True)
    assert {one.price.source for one in price.ops if not isinstance(one.op.kernel, Elementwise)} == {"exact"}


def test_overlap_hides_all_but_the_last_sequence() -> None:
    """8 sequences, 0.5 ms beside 0.2 ms: of the exchange 1/8 is left."""
    price = priced(helix(8), Fixed(0.5, 0.2), overlap=True)
    assert times(price)["layer.attn.all_to_all"] == pytest.approx(0.2 / 8)
    [exchange] = [one for one in price.ops if one.op.name == "layer.attn.all_to_all"]
    assert exchange.price.note == "175 of 200 µs hidden beside attention (HOP-B, assumed)"
    assert exchange.price.source == "formula"


def test_an_exchange_longer_than_attention_hides_attention_behind_it() -> None:
    price = priced(helix(4), Fixed(0.2, 0.5), overlap=True)
    both = times(price)["layer.attn.attention"] + times(price)["layer.attn.all_to_all"]
    assert both == pytest.approx((0.2 + 0.5) / 4 + 3 / 4 * 0.5)


def test_one_sequence_has_nothing_to_hide_behind() -> None:
    assert priced(helix(1), Fixed(0.5, 0.2), overlap=True).time_ms == priced(helix(1), Fixed(0.5, 0.2)).time_ms


@given(st.integers(1, 64), st.floats(0.001, 10), st.floats(0.001, 10))
def test_overlap_is_a_two_stage_pipeline(batch: int, attention_ms: float, exchange_ms: float) -> None:
    plain, hidden = (priced(helix(batch), Fixed(attention_ms, exchange_ms), overlap) for overlap in (False, True))
    assert plain.time_ms is not None
    assert hidden.time_ms is not None
    layers = 32
    saved = layers * min(attention_ms, exchange_ms) * (1 - 1 / batch)
    assert hidden.time_ms == pytest.approx(plain.time_ms - saved)


def test_the_roofline_overlaps_too() -> None:
    """Else a price could beat it for no reason but the assumption."""
    plain, hidden = (priced(helix(64), Fixed(0.5, 0.2), overlap) for overlap in (False, True))
    assert hidden.roofline_ms is not None
    assert plain.roofline_ms is not None
    assert hidden.roofline_ms < plain.roofline_ms
    modelled = price_cases([helix(64)], "layer", ROOFLINE, ROOFLINE, helix_overlap=True)[0]
    assert modelled.time_ms == pytest.approx(hidden.roofline_ms)


def test_the_assumption_is_a_sentence() -> None:
    assert OVERLAP.startswith("Helix overlap (HOP-B) is assumed: ")


@pytest.mark.tables
def test_helix_is_priced_from_the_rows_of_its_share() -> None:
    """1M tokens over 8 ranks are rows of 131,072; o_proj and FFN are those of tp·cp = 8."""
    pricer = TablesPricer("b200_sxm", allow_extrapolation=True)
    shape = {"kv_format": "fp8", "attn_format": "fp8", "weights": "fp8", "q_heads": 16, "kv_heads": 1}
    case = decode(8, 1 << 20, **shape).model_copy(update={"parallelism": Parallelism(cp=8)})
    [price] = price_cases([case], "model", pricer, ROOFLINE)
    ops = {one.op.name: one for one in price.ops}
    row = pricer.price([DecodeAttention(8, 131_072, 16, 1, 128, "fp8")])[0]
    assert row.source == "exact"
    assert ops["layer.attn.attention"].price == replace(
        row, source="formula", note="the rank's share of the cache, as ordinary attention"
    )
    wide = decode(8, 131_072, **shape).model_copy(update={"parallelism": Parallelism(tp=1)})
    [alone] = price_cases([wide], "model", pricer, ROOFLINE)
    same = {one.op.name: one.price.time_ms for one in alone.ops}
    assert ops["layer.attn.qkv_proj"].price.time_ms == same["layer.attn.qkv_proj"]
    assert ops["layer.ffn.down"].op.kernel.k == 14336 // 8  # type: ignore[union-attr]
    assert ops["layer.ffn.all_reduce"].op.kernel.gpus == 8  # type: ignore[union-attr]


@pytest.mark.tables
@given(kvsl=st.sampled_from([8192, 65_536, 1 << 20]))
def test_the_exchange_does_not_depend_on_the_length(kvsl: int) -> None:
    case = decode(8, kvsl).model_copy(update={"parallelism": Parallelism(tp=4, cp=2)})
    [price] = price_cases([case], "layer", TablesPricer("b200_sxm"), ROOFLINE, ["layer.attn.all_to_all"])
    assert price.time_ms == 32 * (TablesPricer("b200_sxm").price([HelixAllToAll(8, 8, 128, 2)])[0].time_ms or 0)
