from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_rows import attention_table, published

from harness.cost.ops import DecodeAttention
from harness.pricing.tables import TablesPricer
from harness.pricing.tables.assumptions import Band, load_assumptions
from harness.pricing.tables.decode_attention import DecodeAttentionPricer, DecodeRules
from harness.pricing.tables.slices import AttentionTable
from harness.pricing.tables.store import TableStore

# The made-up slices: 8 query heads, 1 KV head of 128, FP8, so 256 bytes of KV per token. L2 holds 1,000 tokens.
L2_BYTES = 256_000
BANDS = {"fp8": (Band(1.0, 4.0), Band(1.5, 6.0))}


def pricer(cells, *, allow=False, suspect="", l2_bytes=L2_BYTES, **slice_):
    rules = DecodeRules(l2_bytes, BANDS, BANDS, allow_extrapolation=allow, suspect=suspect)
    return DecodeAttentionPricer(attention_table(cells, **slice_), rules)


def ask(batch, kvsl, **changes):
    return DecodeAttention(
        **{"q_heads": 8, "kv_heads": 1, "head_dim": 128, "kv_format": "fp8", **changes}, batch=batch, kvsl=kvsl
    )


def test_a_row_is_the_answer():
    price = pricer({(1, 1024): 0.0123456789, (1, 2048): 0.02}).price(ask(1, 1024))
    assert (price.time_ms, price.source, price.note) == (0.0123456789, "exact", "")


def test_above_l2_time_is_a_line_in_kvsl():
    price = pricer({(1, 1024): 0.010, (1, 2048): 0.030}).price(ask(1, 1536))
    assert price.time_ms == pytest.approx(0.020)
    assert (price.source, price.flags) == ("interpolated", ())
    assert price.note == "between KVSL 1024 and 2048 at batch 1"


def test_below_l2_rows_are_joined_log_log():
    # 363 is not quite the geometric middle of 256 and 512; 512 is that of 256 and 1024.
    price = pricer({(1, 256): 0.010, (1, 1024): 0.040}).price(ask(1, 512))
    assert price.time_ms == pytest.approx(0.020)
    assert price.flags == ("l2_warm",)


def test_what_counts_is_the_kv_at_the_lower_row():
    cells = {(4, 256): 0.010, (4, 1024): 0.040}  # 1,024 tokens of KV at the lower row
    assert pricer(cells).price(ask(4, 512)).time_ms == pytest.approx(0.010 + 0.030 / 3)


def test_a_cell_without_a_row_takes_the_rows_of_equal_work():
    cells = {(1, 128): 0.008, (1, 256): 0.009, (1, 512): 0.016, (2, 128): 0.009, (2, 512): 0.030, (4, 128): 0.012}
    price = pricer(cells).price(ask(2, 256))
    assert price.time_ms == pytest.approx(math.sqrt(0.016 * 0.012))
    assert price.note == "between rows of equal batch x KVSL, 512"


def test_equal_work_is_clipped_to_what_monotonicity_allows():
    cells = {(1, 256): 0.009, (1, 512): 0.016, (2, 128): 0.009, (2, 512): 0.0135, (4, 128): 0.012}
    assert pricer(cells).price(ask(2, 256)).time_ms == 0.0135
    cells |= {(2, 512): 0.030, (1, 256): 0.015}
    assert pricer(cells).price(ask(2, 256)).time_ms == 0.015


def test_rows_that_contradict_each_other_do_not_clip():
    cells = {(1, 256): 0.020, (1, 512): 0.016, (2, 128): 0.009, (2, 512): 0.013, (4, 128): 0.012}
    assert pricer(cells).price(ask(2, 256)).time_ms == pytest.approx(math.sqrt(0.016 * 0.012))


def test_batch_is_joined_as_kvsl_is():
    above = pricer({(2, 1024): 0.010, (4, 1024): 0.030}).price(ask(3, 1024))
    assert (above.time_ms, above.note) == (pytest.approx(0.020), "between batch 2 and 4")
    below = pricer({(2, 64): 0.010, (8, 64): 0.040}).price(ask(4, 64))
    assert below.time_ms == pytest.approx(0.020)


def test_where_the_larger_batch_ends_earlier_equal_work_serves():
    # Time is a function of batch x KVSL here, so that any rule that keeps the product finds it.
    cells = {(b, s): (b * s) ** 0.5 for b, s in [(8, 8192), (8, 16384), (8, 32768), (16, 8192), (16, 16384)]}
    price = pricer(cells, l2_bytes=10**12).price(ask(12, 20000))
    assert price.time_ms == pytest.approx((12 * 20000) ** 0.5)
    assert (price.source, price.note) == ("interpolated", "between batch 8 and 16 at equal batch x KVSL")


def test_beyond_the_last_row_there_is_an_answer_only_on_request():
    cells = {(1, 1024): 0.010, (1, 2048): 0.030}
    refused = pricer(cells).price(ask(1, 4096))
    assert (refused.refusal, refused.time_ms) == ("refused", None)
    assert refused.note == (
        "KVSL 4096 at batch 1 is 2x beyond the last row, 2048; --allow-extrapolation would answer: "
        "a line continued 1 doubling errs by median 1 %, 90th percentile 4 %"
    )
    price = pricer(cells, allow=True).price(ask(1, 4096))
    assert (price.time_ms, price.source, price.flags) == (pytest.approx(0.070), "extrapolated", ("extrapolated",))
    assert "2x beyond the last row, 2048" in price.note
    assert "90th percentile 4 %" in price.note
    assert "90th percentile 6 %" in pricer(cells, allow=True).price(ask(1, 4097)).note


def test_beyond_the_last_batch_likewise():
    cells = {(1, 1024): 0.010, (2, 1024): 0.030}
    assert "batch 4 is 2x beyond the last row, 2" in pricer(cells).price(ask(4, 1024)).note
    assert pricer(cells, allow=True).price(ask(4, 1024)).time_ms == pytest.approx(0.070)
    assert "both beyond" in pricer(cells, allow=True).price(ask(4, 4096)).note


@pytest.mark.parametrize(
    ("cells", "slice_", "question", "why"),
    [
        ({(1, 512): 0.01, (1, 1024): 0.02}, {}, (1, 2048), "while KV fits in L2"),
        ({(1, 1024): 0.01, (1, 2048): 0.02}, {}, (1, 8193), "over more than 2 doublings"),
        ({(1, 1024): 0.01, (1, 2048): 0.02}, {"window": 1536}, (1, 4096), "of windowed attention"),
        ({(1, 1024): 0.01, (1, 2048): 0.02}, {"q": 64}, (1, 4096), "at more than 32 query heads per KV head"),
        ({(1, 512): 0.01, (2, 512): 0.02}, {}, (4, 512), "while KV fits in L2"),
        ({(64, 128): 0.01, (64, 256): 0.02}, {}, (64, 512), "from less than KVSL 512"),
        ({(64, 32): 0.1, (64, 64): 0.1, (32, 64): 0.1, (32, 512): 0.5}, {}, (48, 459), "from less than KVSL 512"),
    ],
)
def test_some_extrapolations_are_never_made(cells, slice_, question, why):
    words = {"window": "window", "q": "q_heads"}
    kernel = ask(*question, **{words[name]: value for name, value in slice_.items()})
    price = pricer(cells, allow=True, **slice_).price(kernel)
    assert (price.refusal, price.time_ms) == ("refused", None)
    assert price.note.endswith(f"no extrapolation {why}")


def test_above_32_query_heads_per_kv_head_time_is_a_line_at_any_size():
    cells = {(1, 64): 0.010, (1, 128): 0.030}
    assert pricer(cells, q=64).price(ask(1, 96, q_heads=64)).time_ms == pytest.approx(0.020)
    assert pricer(cells, q=32).price(ask(1, 96, q_heads=32)).time_ms < 0.0195


def test_flags_of_the_rows():
    assert pricer({(1, 64): 0.01}, dim=64).price(ask(1, 64, head_dim=64)).flags == ("l2_warm", "sinks")
    doubtful = pricer({(4, 4096): 0.01}, suspect="rows faster than HBM").price(ask(4, 4096))
    assert (doubtful.flags, doubtful.note) == (("suspect",), "rows faster than HBM")


def test_a_window_over_the_whole_length_is_full_attention():
    price = pricer({(1, 1024): 0.01}).price(ask(1, 1024, window=4096))
    assert (price.time_ms, price.source) == (0.01, "exact")
    assert price.note == "a window of 4096 over 1024 tokens is full attention"
    assert pricer({(1, 1024): 0.01}).price(ask(1, 1024, window=1023)).refusal == "unsupported"


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"latent": True, "head_dim": 576, "value_dim": 512}, "are different kernels"),
        ({"value_dim": 64}, "no rows with V of 64 beside Q and K of 128"),
        (
            {"kv_format": "nvfp4"},
            "no rows of nvfp4 KV for 8:1 heads of 128 (query:KV heads on one rank); there are fp8 KV",
        ),
        ({"window": 512}, "no rows with a window of 512"),
        ({"head_dim": 96}, "nearest: 8:1 x 128"),
        ({"q_heads": 0, "kv_heads": 0}, "no rows for 0:0 heads"),
    ],
)
def test_what_has_no_rows_is_unsupported_and_says_what_there_is(changes, note):
    price = pricer({(1, 1024): 0.01}).price(ask(1, 1024, **changes))
    assert (price.refusal, price.time_ms) == ("unsupported", None)
    assert note in price.note


@pytest.mark.parametrize(("batch", "kvsl"), [(0, 1024), (1, 0), (-1, -5), (1, 512)])
def test_impossible_sizes_are_refused(batch, kvsl):
    assert pricer({(1, 1024): 0.01}).price(ask(batch, kvsl)).refusal == "refused"


# The published rows. Times in ms, one layer, TensorRT-LLM 1.3.0rc20, FP8 KV, head size 128.


@pytest.fixture(scope="module")
def b200():
    return TablesPricer("b200_sxm")


@pytest.fixture(scope="module")
def h200():
    return TablesPricer("h200_sxm")


def fp8(batch, kvsl, q_heads, kv_heads):
    return DecodeAttention(batch, kvsl, q_heads, kv_heads, 128, "fp8")


@pytest.mark.tables
def test_published_b200_rows(b200):
    prices = b200.price([fp8(8, 32768, 32, 4), fp8(8, 32768, 64, 8), fp8(8, 32768, 64, 1)])
    assert [round(price.time_ms, 6) for price in prices] == [0.051653, 0.086832, 1.499349]
    assert {price.source for price in prices} == {"exact"}


@pytest.mark.tables
def test_the_published_cliff_above_32_query_heads_per_kv_head(b200, h200):
    before, after = h200.price([fp8(8, 16384, 64, 2), fp8(8, 16384, 96, 2)])
    assert (round(before.time_ms, 4), round(after.time_ms, 3)) == (0.0515, 1.554)
    for pricer_, batch, factor in [(b200, 8, 40.2), (h200, 8, 22.6), (b200, 1, 9.8), (h200, 1, 7.1)]:
        g32, g64 = pricer_.price([fp8(batch, 32768, 64, 2), fp8(batch, 32768, 64, 1)])
        assert round(g64.time_ms / g32.time_ms, 1) == factor


@pytest.mark.tables
def test_beyond_the_cliffs_last_row_there_is_never_an_answer():
    price = TablesPricer("b200_sxm", allow_extrapolation=True).price([fp8(16, 32768, 64, 1)])[0]
    assert (price.time_ms, price.refusal) == (None, "refused")


@pytest.mark.tables
def test_head_counts_that_were_not_measured_are_not_made_up(b200):
    price = b200.price([fp8(8, 8192, 64, 16)])[0]
    assert price.refusal == "unsupported"
    assert "nearest: 64:8 x 128" in price.note


@pytest.mark.tables
@pytest.mark.parametrize("system", ["b200_sxm", "h200_sxm"])
def test_published_rows_come_back_bit_for_bit(system):
    rows = random.Random(1).sample(published(system, "attention", "generation_attention"), 2000)
    kernels = [
        DecodeAttention(
            row["batch_size"],
            row["isl"] + row["step"],
            row["num_heads"],
            row["num_key_value_heads"],
            row["head_dim"],
            {"bfloat16": "bf16", "fp8": "fp8"}[row["kv_cache_dtype"]],
            window=row["window_size"],
        )
        for row in rows
    ]
    prices = TablesPricer(system).price(kernels)
    assert [price.time_ms for price in prices] == [row["latency"] for row in rows]
    assert {price.source for price in prices} == {"exact"}


@pytest.mark.tables
@settings(deadline=None)
@given(
    kvsl=st.integers(2, 32768), batch=st.sampled_from([1, 2, 4, 8]), heads=st.sampled_from([(64, 8), (32, 4), (64, 1)])
)
def test_an_answer_lies_between_the_rows_around_it(b200, kvsl, batch, heads):
    lower = 1 << (kvsl.bit_length() - 1)
    upper = lower if lower == kvsl else 2 * lower
    first, asked, last = b200.price([fp8(batch, s, *heads) for s in (lower, kvsl, upper)])
    low, high = sorted([first.time_ms, last.time_ms])
    assert low * (1 - 1e-12) <= asked.time_ms <= high * (1 + 1e-12)


@pytest.mark.tables
@pytest.mark.parametrize(("system", "median", "p90"), [("b200_sxm", 2.5, 10), ("h200_sxm", 2.5, 14)])
def test_left_out_rows_are_found_again(system, median, p90):
    """Rows inside the grid (G ≤ 32, KVSL ≥ 1024, FP8), 300 at a time; errors in per cent."""
    assumed = load_assumptions(system)
    rows = TableStore(system, assumed.release).decode_attention()
    columns = (rows.q_heads, rows.kv_heads, rows.head_dim, rows.window, rows.kv_format, rows.batch, rows.length)
    cells = {cell: at for at, cell in enumerate(zip(*(column.tolist() for column in columns), strict=True))}
    inside = [
        at
        for (q, kv, dim, window, kv_format, b, s), at in cells.items()
        if not window and kv_format == 1 and s >= 1024 and q <= 32 * kv
        if (q, kv, dim, 0, 1, 2 * b, s // 2) in cells and (q, kv, dim, 0, 1, b / 2, 2 * s) in cells
    ]
    generator = np.random.default_rng(0)
    errors = []
    for _ in range(3):
        left_out = generator.choice(inside, 300, replace=False)
        shown = np.ones(len(rows.batch), bool)
        shown[left_out] = False
        rules = DecodeRules(assumed.l2_bytes, assumed.decode_length, assumed.decode_batch)
        pricer_ = DecodeAttentionPricer(AttentionTable(rows.take(shown)), rules)
        for at in left_out.tolist():
            q, kv, dim, _, _, b, s = (int(column[at]) for column in columns)
            price = pricer_.price(DecodeAttention(b, s, q, kv, dim, "fp8"))
            if price.time_ms is not None:
                errors.append(abs(price.time_ms / rows.time_ms[at] - 1) * 100)
    assert len(errors) >= 0.98 * 900
    assert np.median(errors) < median
    assert np.percentile(errors, 90) < p90
