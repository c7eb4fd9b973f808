"""The least time of a kernel, by hand, and what becomes of prices below it."""

from __future__ import annotations

import math
import typing
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cost.ops import (
    AllGather,
    AllReduce,
    BatchedGemm,
    DecodeAttention,
    Elementwise,
    ExpertCombine,
    ExpertDispatch,
    Gemm,
    HelixAllToAll,
    Kernel,
    Moe,
    PointToPoint,
    PrefillAttention,
    ReduceScatter,
    hbm_bytes,
)
from harness.hardware import load_system
from harness.pricing.base import KernelPrice
from harness.pricing.tables import TablesPricer
from harness.pricing.tables.bounds import Bounds

H200 = load_system("h200_sxm")  # 4.8 TB/s, 989.4 TFLOP/s in bf16 at 1,830 MHz, of at most 1,980

#: 8 · 32768 · 2 · 8 · 128 bytes of KV in FP8 = 536,870,912, and 262,144 bytes of Q and O.
DECODE = DecodeAttention(8, 32768, 64, 8, 128, "fp8")


def test_what_exceeds_l2_comes_from_hbm() -> None:
    least_ms, why = Bounds(H200, 50e6).least(DECODE)
    assert least_ms == pytest.approx((536_870_912 + 262_144 - 50e6) / 4.8e12 * 1000)
    assert why == "0.1015 ms to move from HBM what exceeds L2, 4.871e+08 bytes"
    assert Bounds(H200, 10**9).least(DecodeAttention(8, 64, 8, 8, 128, "bf16"))[0] < 1e-5


def test_flops_are_done_at_the_highest_clock() -> None:
    least_ms, why = Bounds(H200, 50e6).least(Gemm(8192, 8192, 8192, "bf16"))
    assert least_ms == pytest.approx(2 * 8192**3 / (989.4e12 * 1980 / 1830) * 1000, rel=1e-3)
    assert why.endswith("at the highest clock")
    unknown = H200.model_copy(update={"max_sm_clock_mhz": None})
    assert Bounds(unknown, 50e6).least(Gemm(8192, 8192, 8192, "bf16"))[0] == pytest.approx(
        (3 * 2 * 8192**2 - 50e6) / 4.8e12 * 1000
    )


@pytest.mark.parametrize("source", ["exact", "interpolated"])
def test_rows_below_it_stay_and_are_suspect(source: typing.Any) -> None:
    price = Bounds(H200, 50e6).applied(DECODE, KernelPrice(0.05, source, ("sinks",), "why"))
    assert (price.time_ms, price.source, price.flags) == (0.05, source, ("sinks", "suspect"))
    assert price.note.startswith("why; the rows are below the least time, 0.1015 ms to move from HBM")


@pytest.mark.parametrize(
    ("source", "after"), [("estimated", "formula"), ("formula", "formula"), ("extrapolated", "extrapolated")]
)
def test_any_other_price_below_it_is_raised(source: typing.Any, after: str) -> None:
    bounds = Bounds(H200, 50e6)
    price = bounds.applied(DECODE, KernelPrice(0.05, source))
    assert (price.time_ms, price.source, price.flags) == (bounds.least(DECODE)[0], after, ())
    assert price.note.startswith("raised from 0.05 ms to the least time, 0.1015 ms to move from HBM")


def test_what_is_above_it_or_refused_is_left_alone() -> None:
    bounds = Bounds(H200, 50e6)
    for price in (KernelPrice(0.11, "formula"), KernelPrice.refuse("refused", "no")):
        assert bounds.applied(DECODE, price) == price


# The pricer as a whole, over the published rows.

KINDS: tuple[type[Kernel], ...] = (
    Gemm, BatchedGemm, PrefillAttention, DecodeAttention, Moe, Elementwise, AllReduce, AllGather, ReduceScatter,
    ExpertDispatch, ExpertCombine, HelixAllToAll, PointToPoint,
)  # fmt: skip

#: Sizes that have rows somewhere, by field, so that questions get past the first refusal.
USUAL: dict[str, list[int]] = {
    "batch": [1, 3, 64, 1024], "chunk": [1, 17, 4096], "past": [0, 100, 15000], "q_heads": [8, 64, 128],
    "kv_heads": [1, 8, 64], "head_dim": [64, 128, 192, 576], "value_dim": [0, 128, 512], "window": [0, 128],
    "kvsl": [7, 100, 4096, 131072], "query_len": [1, 2, 5], "hidden": [4096, 7168], "inter": [14336, 2048],
    "top_k": [2, 8], "experts": [8, 128, 256], "ep": [1, 8], "tp": [1, 2], "slots": [0, 288], "tokens": [5, 64, 4096],
    "gpus": [2, 3, 8, 72], "elements": [100, 2**20], "heads": [64], "n": [8, 512, 60000], "k": [8, 512, 60000],
    "m": [3, 64, 32768], "bytes": [0, 10**6],
}  # fmt: skip
WILD = [0, -1, 1, 2, 3, 31, 97, 65537, 2**20 + 7, 2**31, 2**32 - 5, 2**40, 2**40 - 87, 2**63, 10**300]


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Any kernel: usual sizes, ones, primes and sizes beyond all measure, mixed."""
    kind: type[typing.Any] = draw(st.sampled_from(KINDS))
    hints, values = typing.get_type_hints(kind), {}
    for field in fields(kind):
        hint = hints[field.name]
        if typing.get_origin(hint) is typing.Literal:
            values[field.name] = draw(st.sampled_from(typing.get_args(hint)))
        elif hint is bool:
            values[field.name] = draw(st.booleans())
        elif hint is str:
            values[field.name] = draw(st.sampled_from(["balanced", "power_law_1.2_eplb", "unheard of"]))
        else:
            usual = USUAL[field.name]
            values[field.name] = draw(st.sampled_from(usual * (1 + len(WILD) // len(usual)) + WILD))
    return kind(**values)


@pytest.fixture(scope="module", params=[("b200_sxm", False), ("h200_sxm", True), ("gb200", True)], ids=str)
def pricer(request):
    return TablesPricer(request.param[0], allow_extrapolation=request.param[1])


@pytest.mark.tables
@settings(deadline=None, max_examples=200)
@given(asked=st.lists(kernels(), min_size=1, max_size=10))
def test_no_kernel_raises_whatever_its_sizes(pricer, asked) -> None:
    for kernel, price in zip(asked, pricer.price(asked), strict=True):
        assert (price.time_ms is None) == (price.refusal is not None) == (price.source is None)
        assert price.time_ms is None or 0 < price.time_ms < math.inf
        assert price.note or price.source == "exact", kernel


def test_every_kind_of_kernel_is_asked() -> None:
    assert set(KINDS) == set(typing.get_args(Kernel))


BATCHES = st.sampled_from([1, 2, 3, 8, 11, 64, 256, 1024, 1500])


@pytest.mark.tables
@settings(deadline=None, max_examples=300)
@given(
    batch=BATCHES, kvsl=st.integers(1, 2**18), heads=st.sampled_from([(64, 8), (64, 64), (8, 1), (32, 32), (128, 8)]),
    head_dim=st.sampled_from([64, 128, 256]), kv_format=st.sampled_from(["bf16", "fp8"]), query_len=st.integers(1, 5),
)  # fmt: skip
def test_no_line_that_goes_on_ends_below_hbm(pricer, batch, kvsl, heads, head_dim, kv_format, query_len) -> None:
    kernel = DecodeAttention(batch, kvsl, *heads, head_dim, kv_format, query_len)
    [price] = pricer.price([kernel])
    system = load_system(pricer.system_key)
    if price.time_ms is not None and price.source not in {"exact", "interpolated"}:
        least_ms = (hbm_bytes(kernel) - pricer.l2_bytes) / system.memory_bandwidth_bytes_per_s * 1000
        assert price.time_ms >= least_ms
