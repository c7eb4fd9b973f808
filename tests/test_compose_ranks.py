"""Prices of cases over many GPUs: one GPU spelt differently, every way of splitting, pipeline stages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import MOE, decode, over, prefill

from harness.hardware import load_system
from harness.pricing.base import KernelPricer
from harness.pricing.compose import CasePrice, price_cases
from harness.pricing.roofline import RooflinePricer
from harness.pricing.tables import TablesPricer
from harness.spec.case import Case
from harness.spec.load import case_from_sets

ROOFLINE = RooflinePricer(load_system("b200_sxm"))
#: One GPU, however it is spelt.
ONE_GPU = [
    {"tp": 1, "pp": 1, "cp": 1, "ep": 1},
    {"attention_dp": True},
    {"moe_tp": 1},
    {"pp_partition": (32,)},
]


def priced(case: Case, pricer: KernelPricer = ROOFLINE, **options: Any) -> CasePrice:
    return price_cases([case], "model", pricer, ROOFLINE, **options)[0]


@pytest.mark.tables
@pytest.mark.parametrize("split", ONE_GPU)
@pytest.mark.parametrize("shape", [{}, {**MOE, "weights": "fp8"}])
@pytest.mark.parametrize("case", [decode, prefill])
def test_one_gpu_costs_the_same_however_it_is_spelt(case: Any, shape: dict[str, Any], split: dict[str, Any]) -> None:
    asked, tables = case(**shape), TablesPricer("b200_sxm")
    plain, spelt = price_cases([asked, over(asked, **split)], "model", tables, ROOFLINE)
    assert plain.status == "ok"
    assert spelt == plain


@settings(max_examples=25)
@given(
    split=st.sampled_from(ONE_GPU),
    batch=st.sampled_from([1, 3, 8, 64]),
    kvsl=st.integers(1, 100_000),
    draft_len=st.integers(0, 4),
    heads=st.sampled_from([(32, 8), (16, 1), (64, 8)]),
)
def test_one_gpu_models_the_same(
    split: dict[str, Any], batch: int, kvsl: int, draft_len: int, heads: tuple[int, int]
) -> None:
    case = decode(batch, kvsl, workload={"draft_len": draft_len}, q_heads=heads[0], kv_heads=heads[1])
    assert priced(over(case, **split)) == priced(case)


@pytest.mark.tables
@pytest.mark.parametrize("variant", ["dense-70b", "moe-235b"])
@pytest.mark.parametrize(
    "split",
    [
        {"tp": 8}, {"tp": 4, "pp": 2}, {"tp": 4, "cp": 2}, {"tp": 8, "attention_dp": True}, {"pp": 4},
        {"tp": 2, "pp": 4}, {"tp": 8, "ep": 8},
    ],
)  # fmt: skip
def test_every_way_of_splitting_has_a_price(variant: str, split: dict[str, Any]) -> None:
    sets = ["workload.phase=decode", "workload.batch=32", "workload.kvsl=8192"]
    sets += [f"parallelism.{name}={str(value).lower()}" for name, value in split.items()]
    price = priced(case_from_sets(variant, sets, "b200_sxm"), TablesPricer("b200_sxm"))
    assert (price.status, price.reason) == ("ok", None)
    assert sum(price.source_shares().values()) == pytest.approx(1)


@pytest.mark.tables
def test_wide_ep_of_a_shape_with_rows_is_priced_on_gb200() -> None:
    """DeepSeek-V3's shape, 256 experts in 288 slots on 32 ranks, NVLink all-to-all, MLA."""
    sets = [
        "layers=8", "hidden=7168", "q_heads=128", "kv_heads=128", "head_dim=128", "ffn=18432", "vocab=129280",
        "experts={count: 256, top_k: 8, inter: 2048, shared_inter: 2048, dense_layers: 3}", "attention=mla", "mla={}",
        "weights={attention: fp8_block, ffn: fp8_block, experts: nvfp4}", "attn_format=bf16",
        "workload.phase=decode", "workload.batch=2048", "workload.kvsl=4096", "workload.routing=power_law_1.2",
        "parallelism.tp=32", "parallelism.ep=32", "parallelism.attention_dp=true", "parallelism.slots=288",
    ]  # fmt: skip
    case = case_from_sets("moe-235b", sets, "gb200")
    limits = RooflinePricer(load_system("gb200"))
    [price] = price_cases([case], "model", TablesPricer("gb200"), limits)
    assert (price.status, price.reason) == ("ok", None)
    sources = {one.op.name: one.price.source for one in price.ops}
    assert (sources["layer.moe.experts"], sources["layer.moe.dispatch"]) == ("exact", "estimated")
    assert sources["layer.attn_mla.attention"] == "exact"


@pytest.mark.tables
def test_more_gpus_than_an_all_reduce_has_rows_of_are_refused() -> None:
    case = over(decode(q_heads=64, kv_heads=8), tp=16)
    price = priced(case, TablesPricer("b200_sxm"))
    assert price.status == "refused"
    assert "layer.ffn.all_reduce: 16 GPUs are beyond the rows, which have at most 8" in str(price.reason)
    answered = priced(case, TablesPricer("b200_sxm", allow_extrapolation=True))
    assert (answered.status, answered.flags) == ("ok", ["extrapolated", "l2_warm"])


def test_experts_that_do_not_fill_the_stage_have_no_price() -> None:
    price = priced(over(decode(**MOE), tp=4, ep=3))
    assert (price.status, price.reason) == ("unsupported", "ep 3 does not fill the tp·cp = 4 ranks of a stage")


def test_stages_add_up_to_the_pass() -> None:
    price = priced(over(decode(layers=30), pp=4))
    assert len(price.stage_ms) == 4
    assert sum(price.stage_ms) == pytest.approx(price.time_ms)
    assert priced(decode()).stage_ms == ()
    assert priced(over(decode(), pp=4), only=["lm_head"]).stage_ms == ()
