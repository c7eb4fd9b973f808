from __future__ import annotations

import random

import pytest
from table_rows import published

from harness.cost.ops import Moe
from harness.pricing.tables import TablesPricer
from harness.pricing.tables.engine import Engine

pytestmark = pytest.mark.tables

FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
NOT_GATED = "moe_torch_flow_nongated"
MIN_LATENCY = "moe_torch_flow_min_latency"


@pytest.fixture(scope="module")
def b200():
    return TablesPricer("b200_sxm")


@pytest.fixture(scope="module")
def h200():
    return TablesPricer("h200_sxm")


def of_row(row):
    sizes = (row["num_tokens"], row["hidden_size"], row["inter_size"], row["topk"], row["num_experts"])
    return Moe(*sizes, FORMATS[row["moe_dtype"]], row["moe_ep_size"], row["moe_tp_size"], row["distribution"])


def qwen3_235b(tokens, format="fp8", **changes):
    return Moe(tokens, **{"hidden": 4096, "inter": 1536, "top_k": 8, "experts": 128, "ep": 8, **changes}, format=format)


def test_published_rows_come_back_bit_for_bit(h200):
    rows = [
        row
        for row in random.Random(4).sample(published("h200_sxm", "moe", "moe"), 2000)
        if row["moe_dtype"] in FORMATS and row["kernel_source"] != NOT_GATED
    ]
    prices = h200.price([of_row(row) for row in rows])
    assert [price.time_ms for price in prices] == [row["latency"] for row in rows]
    assert {price.source for price in prices} == {"exact"}


def test_up_to_128_tokens_the_min_latency_row_counts_as_in_the_engine(b200):
    rows = [
        row
        for row in published("b200_sxm", "moe", "moe")
        if row["moe_dtype"] == "nvfp4"
        and (row["hidden_size"], row["num_experts"], row["topk"], row["moe_ep_size"]) == (4096, 128, 8, 8)
        and row["distribution"] == "balanced"
        and row["moe_tp_size"] == 1
    ]
    assert {row["kernel_source"] for row in rows} == {MIN_LATENCY, "moe_torch_flow_cutlass"}
    counting = [row for row in rows if (row["kernel_source"] == MIN_LATENCY) == (row["num_tokens"] <= 128)]
    kernels = [of_row(row) for row in counting]
    expected = [row["latency"] for row in counting]
    assert [price.time_ms for price in b200.price(kernels)] == expected
    assert Engine("b200_sxm", "1.3.0rc20").moe_times_ms(kernels) == pytest.approx(expected, rel=1e-9)


def mixtral(tokens, routing="balanced", format="nvfp4"):
    return Moe(tokens, 4096, 14336, 2, 8, format, routing=routing)


@pytest.mark.parametrize("routing", ["balanced", "power_law_1.2"])
def test_min_latency_rows_that_read_fewer_experts_than_are_chosen_are_suspect(b200, routing):
    """16 tokens that choose 2 of 8 experts touch 7.9; one is 99 MB, L2 holds 126, and HBM moves 7.672 GB in a ms."""
    chosen, expert = 8 * (1 - 0.75**16), 3 * 4096 * 14336 * 0.5625 + 8
    least_ms = (chosen * expert + 32 * 4096 * 2.5625 - 126e6) / 7.672e9
    exact, between = b200.price([mixtral(16, routing), mixtral(17, routing)])
    assert (exact.source, between.source) == ("exact", "interpolated")
    assert exact.flags == between.flags == ("suspect",)
    assert exact.time_ms < 4 * expert / 7.672e9
    assert exact.note.startswith("min-latency kernel, whose rows were collected with DeepSeek's grouped routing")
    assert f"the rows are below the least time, {least_ms:.4g} ms to move from HBM" in exact.note


def test_rows_of_the_other_kernels_are_not(b200, h200):
    for price in (*b200.price([mixtral(1), mixtral(512)]), *h200.price([mixtral(16, format="fp8")])):
        assert (price.source, price.flags) == ("exact", ())
    # Skewed tokens meet at few experts: fewer are read than of balanced ones.
    [skewed] = b200.price([Moe(320, 5120, 8192, 1, 128, "bf16", routing="power_law_1.01")])
    assert (skewed.source, skewed.flags, skewed.note) == ("exact", (), "")


def test_between_token_counts_the_engine_answers(h200):
    low, asked, high = h200.price([qwen3_235b(tokens) for tokens in (768, 800, 1024)])
    assert asked.source == "interpolated"
    assert asked.time_ms == pytest.approx(low.time_ms + (high.time_ms - low.time_ms) * 32 / 256)
    assert asked.note == "between 768 and 1024 tokens, by the package's engine"


def test_both_names_of_fp8_are_one_format(h200):
    dynamic, static = h200.price([qwen3_235b(64, "fp8"), qwen3_235b(64, "fp8_static")])
    assert dynamic == static


@pytest.mark.parametrize(
    ("kernel", "refusal", "note"),
    [
        (qwen3_235b(16385), "refused", "16385 tokens are beyond the last row, 16384: split the pass into smaller ones"),
        (qwen3_235b(0), "refused", "must be positive"),
        (
            qwen3_235b(64, inter=1600),
            "unsupported",
            "no rows for 4096/1600/8/128 (hidden/inter/top k/experts); nearest: 4096/1536/8/128",
        ),
        (qwen3_235b(64, "nvfp4"), "unsupported", "no nvfp4 rows for 4096/1536/8/128; there are bf16, fp8, fp8_block"),
        (qwen3_235b(64, routing="power_law_2"), "unsupported", "there are balanced, power_law_1.01, power_law_1.2"),
        (qwen3_235b(64, ep=3), "unsupported", "with tp 1 and ep 3; nearest: tp 1 ep 4, tp 1 ep 2"),
        (Moe(64, 8192, 5120, 22, 512, "fp8", 8), "unsupported", "an FFN without a gate"),
    ],
)
def test_what_cannot_be_answered_says_why(kernel, refusal, note):
    price = TablesPricer("h200_sxm", allow_extrapolation=True).price([kernel])[0]
    assert (price.refusal, price.time_ms) == (refusal, None)
    assert note in price.note
