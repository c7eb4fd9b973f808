"""A case is the sum of its ops, and says where each part of the sum comes from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import decode, prefill

from harness.cost.decompose import decompose
from harness.cost.ops import DecodeAttention, Elementwise, Gemm, Kernel
from harness.hardware import load_system
from harness.pricing.base import KernelPrice, Source
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.spec.workload import Serve

ROOFLINE = RooflinePricer(load_system("b200_sxm"))


class FixedPricer:
    """Answers every GEMM with 2 ms and attention as it is told to; it has no table of elementwise ops."""

    name = "tables"

    def __init__(self, attention: KernelPrice, gemm_source: Source = "exact") -> None:
        self.attention, self.gemm_source = attention, gemm_source

    def price(self, kernels: Sequence[Kernel]) -> list[KernelPrice]:
        return [self._one(kernel) for kernel in kernels]

    def _one(self, kernel: Kernel) -> KernelPrice:
        if isinstance(kernel, Gemm):
            return KernelPrice(2.0, self.gemm_source)
        if isinstance(kernel, DecodeAttention):
            return self.attention
        return KernelPrice.refuse("unsupported", "no table")

    def versions(self) -> dict[str, str]:
        return {}


def test_ops_add_up_and_the_roofline_answers_what_has_no_table() -> None:
    pricer = FixedPricer(KernelPrice(1.0, "interpolated", flags=("l2_warm",)))
    [price] = price_cases([decode(layers=10)], "layer", pricer, ROOFLINE)
    elementwise = sum(
        one.op.count * one.price.time_ms
        for one in price.ops
        if one.price.time_ms and isinstance(one.op.kernel, Elementwise)
    )
    assert price.status == "ok"
    assert price.time_ms == pytest.approx(10 * (4 * 2.0 + 1.0) + elementwise)
    assert price.flags == ["l2_warm"]
    shares = price.source_shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["exact"] == pytest.approx(80 / price.time_ms)
    assert shares["modelled"] == pytest.approx(elementwise / price.time_ms)


def test_the_worst_source_is_that_of_an_op_that_matters() -> None:
    """Attention holds 1 of 81 ms of ten layers: too little to count, however it was got."""
    [price] = price_cases([decode(layers=1)], "layer", FixedPricer(KernelPrice(0.1, "extrapolated")), ROOFLINE)
    assert price.worst_source == "exact"
    [price] = price_cases([decode(layers=1)], "layer", FixedPricer(KernelPrice(1.0, "extrapolated")), ROOFLINE)
    assert price.worst_source == "extrapolated"


@pytest.mark.parametrize("refusal", ["refused", "unsupported"])
def test_one_op_without_an_answer_leaves_the_case_without_one(refusal: str) -> None:
    pricer = FixedPricer(KernelPrice(None, None, note="beyond the last row", refusal=refusal))  # type: ignore[arg-type]
    [price] = price_cases([decode()], "model", pricer, ROOFLINE)
    assert (price.status, price.time_ms, price.worst_source) == (refusal, None, None)
    assert price.reason == "layer.attn.attention: beyond the last row"
    assert price.source_shares() == {}
    assert price.roofline_ms is not None


def test_a_case_that_has_no_single_phase_is_unsupported() -> None:
    served = decode().model_copy(update={"workload": Serve(phase="serve", isl=1, osl=1, concurrency=1)})
    [price] = price_cases([served], "model", ROOFLINE, ROOFLINE)
    assert price.status == "unsupported"
    assert price.reason is not None
    assert "no single phase" in price.reason


def test_the_roofline_of_a_case_is_the_sum_of_its_kernels() -> None:
    case = prefill(isl=2048)
    [price] = price_cases([case], "model", ROOFLINE, ROOFLINE)
    limits = [(op.count, ROOFLINE.time(op.kernel)) for op in decompose(case)]
    assert price.time_ms == price.roofline_ms == pytest.approx(sum(n * limit.time_ms for n, limit in limits if limit))
    assert price.bound == "compute"
    assert price.worst_source == "modelled"


@given(st.permutations(range(6)))
def test_order_and_company_do_not_change_a_price(order: list[int]) -> None:
    cases = [decode(batch=2**i) for i in range(3)] + [prefill(isl=1024 * (i + 1)) for i in range(3)]
    alone = [price_cases([case], "model", ROOFLINE, ROOFLINE)[0] for case in cases]
    together = price_cases([cases[i] for i in order], "model", ROOFLINE, ROOFLINE)
    assert together == [alone[i] for i in order]
