from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_rows import attention_table, published

from harness.cost.ops import PrefillAttention
from harness.hardware import load_system
from harness.pricing.roofline import RooflinePricer
from harness.pricing.tables import TablesPricer
from harness.pricing.tables.assumptions import Band, load_assumptions
from harness.pricing.tables.prefill_attention import PrefillAttentionPricer, PrefillRules, fit_quadratic
from harness.pricing.tables.slices import AttentionTable
from harness.pricing.tables.store import TableStore

pytestmark = pytest.mark.tables

# Made-up rows lie on t = 0.01 + x + 2·x², x = ISL/1000, and grow with the batch.
LENGTHS = (500, 1000, 1500, 2000, 4000)
LENGTH_BANDS, BATCH_BANDS = (Band(4.0, 18.0),), (Band(2.0, 8.0), Band(4.0, 13.0))


def quadratic_ms(isl):
    x = isl / 1000
    return 0.01 + x + 2 * x * x


def cells(batches=(1, 2, 4), lengths=LENGTHS):
    return {(b, s): b * quadratic_ms(s) for b in batches for s in lengths}


def pricer(cells_, *, allow=False, roofline=lambda _: None, **slice_):
    rules = PrefillRules(LENGTH_BANDS, BATCH_BANDS, allow_extrapolation=allow, roofline=roofline)
    return PrefillAttentionPricer(attention_table(cells_, **{"attn": "fp8", **slice_}), rules)


def ask(batch, chunk, past=0, **changes):
    heads = {"q_heads": 8, "kv_heads": 1, "head_dim": 128, "attn_format": "fp8", "kv_format": "fp8"}
    return PrefillAttention(batch, chunk, past, **{**heads, **changes})


def test_a_row_is_the_answer():
    price = pricer(cells()).price(ask(2, 1500))
    assert (price.time_ms, price.source, price.note) == (2 * quadratic_ms(1500), "exact", "")


@pytest.mark.parametrize("isl", [600, 1200, 1999, 3000])
def test_between_rows_time_is_a_quadratic_in_isl(isl):
    price = pricer(cells()).price(ask(1, isl))
    assert price.time_ms == pytest.approx(quadratic_ms(isl), rel=1e-9)
    assert price.source == "interpolated"


def test_two_rows_are_joined_in_the_square_root_of_time():
    price = pricer({(1, 1000): 1.0, (1, 2000): 9.0}).price(ask(1, 1500))
    assert price.time_ms == pytest.approx(4.0)


def test_a_fit_has_no_negative_coefficient_and_no_answer_outside_its_rows():
    falling = {(1, 500): 9.0, (1, 1000): 5.0, (1, 2000): 5.5, (1, 4000): 3.0}
    assert min(fit_quadratic([s for _, s in falling], list(falling.values()))) >= 0
    assert 5.0 <= pricer(falling).price(ask(1, 1500)).time_ms <= 5.5


def test_between_batches_time_is_a_line():
    price = pricer(cells()).price(ask(3, 1000))
    assert (price.time_ms, price.note) == (pytest.approx(3 * quadratic_ms(1000)), "between batch 2 and 4")


def test_a_chunk_after_cached_tokens_has_its_share_of_the_pairs():
    price = pricer(cells()).price(ask(1, 1000, past=1000))
    assert price.time_ms == pytest.approx(quadratic_ms(2000) * 0.75)
    assert price.source == "formula"
    assert price.note.endswith("0.75, its share of the query-key pairs")


def test_a_chunk_after_cached_tokens_costs_no_less_than_without_them():
    flat = {(1, 500): 1.0, (1, 1000): 1.0, (1, 2000): 1.0}
    price = pricer(flat).price(ask(1, 500, past=500))
    assert price.time_ms == 1.0
    assert price.note.endswith("its share of the query-key pairs; no less than alone, 1 ms")


def test_a_chunk_after_cached_tokens_costs_no_less_than_reading_them():
    """1,000 tokens of one KV head of 128 in FP8 are 256,000 bytes a sequence, and 1 more is written."""
    slow = RooflinePricer(load_system("l40s").model_copy(update={"memory_bandwidth_bytes_per_s": 1e6})).without_launch
    rows = cells() | {(b, 1): 0.001 for b in (1, 2, 4)}
    alone = pricer(rows, roofline=slow).price(ask(2, 1))
    assert alone.time_ms == 0.001
    price = pricer(rows, roofline=slow).price(ask(2, 1, past=999))
    # Q and O of 8 heads, K and V of one, in bf16.
    moved = 2 * (1000 * 2 * 128 + 2 * 128 * (2 * 8 + 2 * 1))
    assert (price.time_ms, price.source) == (pytest.approx(moved / 1e6 * 1000), "formula")
    assert "its share of the query-key pairs; no less than its roofline, 521.2 ms" in price.note
    assert price.note.endswith("to move 5.12e+05 bytes of KV beside the rest")


def test_a_chunk_above_its_roofline_does_not_mention_it():
    fast = RooflinePricer(load_system("b200_sxm")).without_launch
    price = pricer(cells(), roofline=fast).price(ask(1, 1000, past=1000))
    assert price == pricer(cells()).price(ask(1, 1000, past=1000))


def test_a_window_reduces_the_pairs():
    # 1000 queries that see 500 tokens each, of the 500²/2 + 1500·500 pairs of a whole prompt of 2000.
    price = pricer(cells(), window=500).price(ask(1, 1000, past=1000, window=500))
    assert price.time_ms == pytest.approx(max(quadratic_ms(2000) * 500_000 / 875_000, quadratic_ms(1000)))


def test_beyond_the_longest_row_the_quadratic_goes_on_only_on_request():
    refused = pricer(cells()).price(ask(1, 8000))
    assert refused.refusal == "refused"
    assert refused.note == (
        "ISL 8000 is 2x beyond the last row at batch 1, 4000; --allow-extrapolation would answer: "
        "going on for 1 doubling of ISL errs by median 4 %, 90th percentile 18 %"
    )
    price = pricer(cells(), allow=True).price(ask(1, 8000))
    assert price.time_ms == pytest.approx(quadratic_ms(8000), rel=1e-6)
    assert (price.source, price.flags) == ("extrapolated", ("extrapolated",))
    assert "no extrapolation over more than 1 doublings" in pricer(cells(), allow=True).price(ask(1, 8001)).note


def test_beyond_the_largest_batch_at_a_length_the_shorter_rows_scale():
    short = cells() | {(8, s): 7 * quadratic_ms(s) for s in (500, 1000)}  # batch 8 takes 7/4 the time of batch 4
    refused = pricer(short).price(ask(8, 4000))
    assert "batch 8 at ISL 4000 is 2x beyond the largest batch measured at this length, 4" in refused.note
    price = pricer(short, allow=True).price(ask(8, 4000))
    assert price.time_ms == pytest.approx(7 * quadratic_ms(4000))
    assert price.source == "extrapolated"
    between = pricer(short, allow=True).price(ask(6, 4000))
    assert between.time_ms == pytest.approx(5.5 * quadratic_ms(4000))


def test_a_chunk_whose_whole_prompt_is_extrapolated_is_extrapolated():
    assert pricer(cells()).price(ask(1, 4000, past=4000)).refusal == "refused"
    price = pricer(cells(), allow=True).price(ask(1, 4000, past=4000))
    assert (price.source, price.flags) == ("extrapolated", ("extrapolated",))


@pytest.mark.parametrize(
    ("kernel", "refusal", "note"),
    [
        (ask(1, 1000, value_dim=64), "unsupported", "no rows with V of 64 beside Q and K of 128"),
        (ask(1, 1000, kv_format="bf16"), "unsupported", "there are fp8 KV"),
        (ask(1, 1000, head_dim=96), "unsupported", "nearest: 8:1 x 128"),
        (ask(1, 1000, window=128), "unsupported", "no rows with a window of 128"),
        (ask(0, 1000), "refused", "batch 0 is outside the measured batches, 1 to 4"),
        (ask(1, 499), "refused", "rows at batch 1 have ISL 500 to 4000, not 499"),
        (ask(5, 1000), "refused", "batch 5 is outside the measured batches, 1 to 4"),
        (ask(3, 8000), "refused", "batch 3 is none of 1, 2, 4"),
    ],
)
def test_what_cannot_be_answered_says_why(kernel, refusal, note):
    price = pricer(cells(), allow=True).price(kernel)
    assert (price.refusal, price.time_ms) == (refusal, None)
    assert note in price.note


def test_extrapolation_of_a_window_is_never_made():
    assert "windowed" in pricer(cells(), allow=True, window=600).price(ask(1, 8000, window=600)).note


def test_head_size_64_was_measured_with_attention_sinks():
    price = pricer(cells(), dim=64).price(ask(1, 1000, head_dim=64))
    assert price.flags == ("sinks",)
    assert "attention sinks" in price.note


# The published rows.


@pytest.fixture(scope="module")
def h200():
    return TablesPricer("h200_sxm")


def test_a_published_h200_row(h200):
    price = h200.price([PrefillAttention(1, 16384, 0, 64, 8, 128, "fp8", "fp8")])[0]
    assert (round(price.time_ms, 5), price.source) == (6.09821, "exact")


@pytest.mark.parametrize("system", ["b200_sxm", "h200_sxm"])
def test_published_rows_come_back_bit_for_bit(system):
    ours = {"bfloat16": "bf16", "fp8": "fp8"}
    rows = random.Random(2).sample(published(system, "attention", "context_attention"), 2000)
    kernels = [
        PrefillAttention(
            row["batch_size"],
            row["isl"],
            0,
            row["num_heads"],
            row["num_key_value_heads"],
            row["head_dim"],
            ours[row["attn_dtype"]],
            ours[row["kv_cache_dtype"]],
            window=row["window_size"],
        )
        for row in rows
    ]
    assert [price.time_ms for price in TablesPricer(system).price(kernels)] == [row["latency"] for row in rows]


def test_one_token_after_15000_takes_as_long_as_reading_the_cache(h200):
    """4 · 15,000 tokens of 64 heads of 128, K and V in bf16: 1.966 GB at 4.8 TB/s, 0.4096 ms."""
    [price] = h200.price([PrefillAttention(4, 1, 15000, 64, 64, 128, "bf16", "bf16")])
    assert price.time_ms == pytest.approx(0.4096, rel=1e-3)
    assert price.source == "formula"
    assert "no less than its roofline" in price.note


@pytest.mark.parametrize("system", ["a100_sxm", "b200_sxm", "b300_sxm", "h200_sxm", "l40s", "rtx_pro_6000_server"])
@settings(deadline=None, max_examples=150)
@given(
    batch=st.integers(1, 128), chunk=st.integers(1, 4096), past=st.integers(1, 30000),
    window=st.sampled_from([0, 4096]),
    heads=st.sampled_from([(64, 64), (64, 8), (8, 1), (32, 32), (12, 1)]), head_dim=st.sampled_from([64, 128, 256]),
    formats=st.sampled_from([("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "fp8")]), mla=st.booleans(),
)  # fmt: skip
def test_no_chunk_after_cached_tokens_is_below_its_roofline(
    system, batch, chunk, past, window, heads, head_dim, formats, mla
):
    kernel = PrefillAttention(batch, chunk, past, *heads, head_dim, *formats, window=window)
    if mla:
        kernel = PrefillAttention(batch, chunk, past, heads[0], heads[0], 192, "bf16", formats[1], value_dim=128)
    [price] = far(system).price([kernel])
    if price.time_ms is not None:
        hardware = load_system(system)
        key_and_value = kernel.head_dim + (kernel.value_dim or kernel.head_dim)
        seen = min(past, window) if window and not mla else past
        kv_bytes = {"bf16": 2, "fp8": 1}[kernel.kv_format] * key_and_value * kernel.kv_heads * (seen + chunk)
        assert price.time_ms >= batch * kv_bytes / hardware.memory_bandwidth_bytes_per_s * 1000
        assert price.time_ms >= kernel.flops / hardware.peak_flop_per_s[kernel.attn_format] * 1000
        assert price.source in {"formula", "extrapolated"}


@cache
def far(system):
    return TablesPricer(system, allow_extrapolation=True)


GRID = (1, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 10240, 12288, 16384)


@settings(deadline=None)
@given(isl=st.integers(1, 16384), batch=st.sampled_from([1, 2, 4, 8]))
def test_an_answer_lies_between_the_rows_around_it(h200, isl, batch):
    around = (max(s for s in GRID if s <= isl), isl, min(s for s in GRID if s >= isl))
    first, asked, last = h200.price([PrefillAttention(batch, s, 0, 64, 8, 128, "fp8", "fp8") for s in around])
    low, high = sorted([first.time_ms, last.time_ms])
    assert low <= asked.time_ms <= high


@pytest.mark.parametrize(("system", "median", "p90"), [("b200_sxm", 2.0, 9), ("h200_sxm", 1.5, 7)])
def test_left_out_rows_are_found_again(system, median, p90):
    """Rows between others of their batch (ISL ≥ 512, FP8), 300 at a time; errors in per cent."""
    assumed = load_assumptions(system)
    rows = TableStore(system, assumed.release).prefill_attention()
    columns = (rows.q_heads, rows.kv_heads, rows.head_dim, rows.batch, rows.length)
    fp8 = (rows.window == 0) & (rows.attn_format == 1)
    table = AttentionTable(rows.take(fp8))
    longest = {(*key[:3], b): curve.lengths[-1] for key in table.keys for b, curve in table.get(key).curves.items()}
    candidates = [
        at
        for at in np.flatnonzero(fp8 & (rows.length >= 512)).tolist()
        if rows.length[at] < longest[tuple(int(column[at]) for column in columns[:4])]
    ]
    generator = np.random.default_rng(0)
    errors = []
    for _ in range(3):
        left_out = generator.choice(candidates, 300, replace=False)
        shown = np.ones(len(rows.batch), bool)
        shown[left_out] = False
        pricer_ = PrefillAttentionPricer(AttentionTable(rows.take(shown)), PrefillRules((), ()))
        for at in left_out.tolist():
            q, kv, dim, b, s = (int(column[at]) for column in columns)
            price = pricer_.price(PrefillAttention(b, s, 0, q, kv, dim, "fp8", "fp8"))
            errors.append(abs(price.time_ms / rows.time_ms[at] - 1) * 100)
    assert np.median(errors) < median
    assert np.percentile(errors, 90) < p90
