"""Experts under EPLB, against the rows as they lie in the package."""

from __future__ import annotations

import pytest
from table_rows import published

from harness.cost.ops import Moe
from harness.pricing.tables import TablesPricer

pytestmark = pytest.mark.tables

FORMATS = {"fp8_block": "fp8_block", "nvfp4": "nvfp4"}


def deepseek(tokens, ep=32, slots=288, routing="power_law_1.2_eplb", format="nvfp4", tp=1, **changes):
    shape = {"hidden": 7168, "inter": 2048, "top_k": 8, "experts": 256, **changes}
    return Moe(tokens, format=format, ep=ep, tp=tp, routing=routing, slots=slots, **shape)


def of_row(row):
    sizes = (row["num_tokens"], row["hidden_size"], row["inter_size"], row["topk"], row["num_experts"])
    ranks = (row["moe_ep_size"], row["moe_tp_size"])
    return Moe(*sizes, FORMATS[row["moe_dtype"]], *ranks, row["distribution"], row["num_slots"])


@pytest.mark.parametrize("system", ["gb200", "h200_sxm"])
def test_every_row_comes_back(system):
    rows = [r for r in published(system, "moe", "wideep_moe", "1.3.0rc10") if r["distribution"].endswith("_eplb")]
    prices = TablesPricer(system).price([of_row(row) for row in rows])
    assert [price.time_ms for price in prices] == [row["latency"] for row in rows]
    assert {price.source for price in prices} == {"exact"}
    assert len(rows) > 2000


def test_between_token_counts_is_a_line():
    low, between, high = TablesPricer("gb200").price([deepseek(tokens) for tokens in (1024, 1152, 1536)])
    assert between.time_ms == pytest.approx(low.time_ms + (high.time_ms - low.time_ms) / 4)
    assert (between.source, between.note) == ("interpolated", "between 1024 and 1536")


def test_without_slots_the_newer_rows_count():
    price = TablesPricer("gb200").price([deepseek(64, ep=16, slots=0, routing="power_law_1.2")])[0]
    rows = published("gb200", "moe", "moe")
    wanted = {"hidden_size": 7168, "num_experts": 256, "moe_ep_size": 16, "moe_tp_size": 1, "moe_dtype": "nvfp4"}
    wanted |= {"distribution": "power_law_1.2", "num_tokens": 64, "kernel_source": "moe_torch_flow_min_latency"}
    assert price.time_ms == next(row["latency"] for row in rows if wanted.items() <= row.items())


@pytest.mark.parametrize(
    ("system", "kernel", "refusal", "note"),
    [
        (
            "gb200",
            deepseek(64, ep=72),
            "unsupported",
            "no rows with ep 72 for 7168/2048/8/256 in 288 slots; there are 2, 4, 8, 16, 32",
        ),
        ("gb200", deepseek(64, slots=320), "unsupported", "with slots 320 for 7168/2048/8/256; there are 256, 288"),
        (
            "gb200",
            deepseek(64, routing="balanced_eplb"),
            "unsupported",
            "with routing balanced_eplb for 7168/2048/8/256; there are power_law_1.01_eplb, power_law_1.2_eplb",
        ),
        (
            "gb200",
            deepseek(64, format="fp8_block"),
            "unsupported",
            "with format fp8_block for 7168/2048/8/256; there are nvfp4",
        ),
        (
            "gb200",
            deepseek(64, hidden=4096, inter=1536, experts=128),
            "unsupported",
            "no rows under EPLB for 4096/1536/8/128 (hidden/inter/top k/experts); nearest: 3072/1536/8/256",
        ),
        ("gb200", deepseek(64, tp=2), "unsupported", "that are cut 2 ways; there are rows of whole ones"),
        ("gb200", deepseek(16_385), "refused", "16385 tokens are beyond the last row, 16384: split the pass"),
        ("gb200", deepseek(0), "refused", "must be positive"),
        ("l40s", deepseek(64), "unsupported", "no rows of experts under EPLB on this GPU"),
    ],
)
def test_what_was_not_measured_names_the_nearest(system, kernel, refusal, note):
    price = TablesPricer(system, allow_extrapolation=True).price([kernel])[0]
    assert (price.refusal, price.time_ms) == (refusal, None)
    assert note in price.note
