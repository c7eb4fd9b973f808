from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_rows import published

from harness.cost.ops import Gemm
from harness.pricing.tables import TablesPricer
from harness.pricing.tables.assumptions import load_assumptions

pytestmark = pytest.mark.tables

FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}


@pytest.fixture(scope="module")
def b200():
    return TablesPricer("b200_sxm")


@pytest.fixture(scope="module")
def as_is():
    return TablesPricer("b200_sxm", as_is=True)


@pytest.fixture(scope="module")
def far():
    return TablesPricer("b200_sxm", allow_extrapolation=True)


@pytest.fixture(scope="module")
def h200():
    return TablesPricer("h200_sxm")


def price(pricer, *sizes, format="bf16"):
    return pricer.price([Gemm(*sizes, format)])[0]


@pytest.mark.parametrize(
    ("format", "time_ms", "source"),
    [
        ("bf16", 0.0270, "exact"),
        ("fp8", 0.0278, "exact"),
        ("fp8_static", 0.0172, "estimated"),
        ("fp8_block", 0.0200, "exact"),
        ("nvfp4", 0.0228, "exact"),
    ],
)
def test_published_b200_rows(as_is, format, time_ms, source):
    answer = price(as_is, 64, 8192, 8192, format=format)
    assert (answer.time_ms, answer.source) == (pytest.approx(time_ms, abs=5.1e-5), source)


@pytest.mark.parametrize("system", ["b200_sxm", "l40s"])  # on L40S the package's engine lifts some rows to a roofline
def test_published_rows_come_back_bit_for_bit(system):
    rows = random.Random(3).sample(published(system, "gemm", "gemm"), 2000)
    kernels = [Gemm(row["m"], row["n"], row["k"], FORMATS[row["gemm_dtype"]]) for row in rows]
    prices = TablesPricer(system, as_is=True).price(kernels)
    assert [price.time_ms for price in prices] == [row["latency"] for row in rows]


@pytest.mark.parametrize("m", [64, 4096])
def test_a_cast_that_the_kernel_before_does_is_taken_off(b200, m):
    """The package times the cast of m x k values by itself (`scale_matrix`): 2.14 and 23.8 µs for these."""
    [cast_ms] = [
        row["latency"]
        for row in published("b200_sxm", "quantize", "scale_matrix")
        if (row["m"], row["k"], row["quant_dtype"]) == (m, 8192, "fp8")
    ]
    with_cast, without = b200.price([Gemm(m, 8192, 8192, "fp8_static"), Gemm(m, 8192, 8192, "fp8_static", True)])
    assert with_cast.time_ms - without.time_ms == pytest.approx(cast_ms, rel=1e-9)
    assert without.source == "estimated"
    assert without.note == "FP8 rows less the time of finding dynamic scales and of the input's cast"


def test_an_untuned_nvfp4_row_gives_way_to_fp8_at_the_same_shape(b200, as_is):
    fp8_static = price(b200, 64, 8192, 8192, format="fp8_static")
    corrected = price(b200, 64, 8192, 8192, format="nvfp4")
    assert (corrected.time_ms, corrected.source) == (fp8_static.time_ms, "estimated")
    assert corrected.note.startswith("nvfp4 0.0228027 ms, fp8_static 0.0171707 ms")
    assert price(as_is, 64, 8192, 8192, format="nvfp4").time_ms > corrected.time_ms


def test_a_faster_nvfp4_row_stands_and_shows_both(b200, as_is):
    stands = price(b200, 4096, 8192, 8192, format="nvfp4")
    assert (stands.time_ms, stands.source) == (price(as_is, 4096, 8192, 8192, format="nvfp4").time_ms, "exact")
    assert "fp8_static" in stands.note


def test_between_rows_the_engine_answers(b200):
    low, asked, high = (price(b200, m, 8192, 8192) for m in (97, 100, 112))
    assert [low.source, asked.source, high.source] == ["exact", "interpolated", "exact"]
    assert asked.time_ms == pytest.approx(low.time_ms + (high.time_ms - low.time_ms) * 3 / 15)
    assert price(b200, 64, 8200, 5000, format="fp8_static").source == "estimated"


@settings(deadline=None)
@given(m=st.integers(1, 4353))
def test_on_a_measured_weight_an_answer_lies_between_the_rows_around_it(b200, m):
    grid = sorted({row["m"] for row in published("b200_sxm", "gemm", "gemm")})
    around = max(g for g in grid if g <= m), min(g for g in grid if g >= m)
    first, asked, last = (price(b200, size, 4096, 4096) for size in (around[0], m, around[1]))
    low, high = sorted([first.time_ms, last.time_ms])
    assert low * (1 - 1e-9) <= asked.time_ms <= high * (1 + 1e-9)


def test_equal_shapes_in_one_question_are_not_summed(b200):
    alone = price(b200, 100, 8192, 8192)
    twice = b200.price([Gemm(100, 8192, 8192, "bf16"), Gemm(100, 8192, 8192, "bf16"), Gemm(100, 4000, 4000, "bf16")])
    assert [answer.time_ms for answer in twice[:2]] == [alone.time_ms] * 2


@pytest.mark.parametrize(
    ("columns", "slices"), [(131072, [65536] * 2), (128256, [64128] * 2), (151936, [50646, 50645, 50645])]
)
def test_an_lm_head_is_a_sum_of_equal_column_slices(b200, columns, slices):
    whole = price(b200, 8, columns, 4096)
    assert whole.time_ms == pytest.approx(sum(price(b200, 8, n, 4096).time_ms for n in slices), rel=1e-12)
    assert whole.source == "estimated"
    assert whole.note.startswith(f"{len(slices)} column slices of {slices[0]}")


def test_beyond_the_last_m_there_is_an_answer_only_on_request(b200, far):
    refused = price(b200, 65536, 8192, 8192)
    assert (refused.refusal, refused.time_ms) == ("refused", None)
    assert "m 65536 is 2x beyond the largest row, 32768; --allow-extrapolation would answer" in refused.note
    half, last = price(b200, 16384, 8192, 8192).time_ms, price(b200, 32768, 8192, 8192).time_ms
    answer = price(far, 65536, 8192, 8192)
    assert answer.time_ms == pytest.approx(last + 2 * (last - half))
    assert (answer.source, answer.flags) == ("extrapolated", ("extrapolated",))
    assert "a line continued 1 doubling errs by median 4.9 %, 90th percentile 17 %" in answer.note
    assert "no extrapolation over more than 2 doublings" in price(far, 10**12, 8192, 8192).note


def test_the_nvfp4_minimum_of_two_extrapolations_is_extrapolated(far):
    assert price(far, 65536, 8192, 8192, format="nvfp4").source == "extrapolated"


@pytest.mark.parametrize(
    ("sizes", "format", "note"),
    [
        ((64, 8192, 131072), "bf16", "k 131072 is 2x beyond the largest row, 65536; no extrapolation in n or k"),
        ((0, 8192, 8192), "bf16", "must be positive"),
        ((64, -8, 8192), "fp8_static", "must be positive"),
    ],
)
def test_outside_the_rows_in_n_or_k_there_is_never_an_answer(far, sizes, format, note):
    answer = price(far, *sizes, format=format)
    assert (answer.refusal, answer.time_ms) == ("refused", None)
    assert note in answer.note


# Rows have n and k up to 65,536, but no shape is large in both.
@pytest.mark.parametrize(
    ("sizes", "format", "nearest"),
    [
        ((64, 65536, 65536), "bf16", "51200 x 65536 and 65536 x 51200"),
        ((64, 60000, 60000), "bf16", "51200 x 65536 and 65536 x 51200"),
        ((64, 60000, 60000), "nvfp4", "51200 x 65536 and 65536 x 51200"),
        ((64, 51200, 51200), "fp8_block", "16384 x 51200 and 51200 x 16384"),
        ((1, 20000, 30000), "fp8_block", "16384 x 51200 and 16384 x 16384"),
        ((10**6, 65536, 65536), "fp8_static", "51200 x 65536 and 65536 x 51200"),
    ],
)
def test_a_gap_of_the_rows_is_refused_by_name(far, h200, sizes, format, nearest):
    told = f"n {sizes[1]} and k {sizes[2]} lie in a gap of the rows; the nearest (n x k) are {nearest}"
    for pricer in [far] if format == "nvfp4" else [far, h200]:
        answer = price(pricer, *sizes, format=format)
        assert (answer.refusal, answer.note) == ("refused", told)
    assert price(far, 64, 60000, 16384).source == "interpolated"


def test_a_router_of_8_experts_costs_what_the_smallest_row_does(b200):
    answer = price(b200, 64, 8, 4096)
    assert (answer.time_ms, answer.source) == (price(b200, 64, 32, 4096).time_ms, "estimated")
    assert answer.note == (
        "n 8 as 32, the smallest row: a tile is paid in full; "
        "the second row taken for the first errs by median 2.8 %, 90th percentile 17 %"
    )


@pytest.mark.parametrize(
    ("sizes", "format", "row", "note"),
    [
        ((64, 4096, 1), "bf16", (64, 4096, 32), "k 1 as 32"),
        ((64, 64, 8192), "fp8_block", (64, 128, 8192), "n 64 as 128"),
        ((100, 8, 8), "fp8", (100, 32, 32), "n 8 as 32 and k 8 as 32"),
        ((100, 8, 5000), "fp8_static", (100, 32, 5000), "n 8 as 32"),
        ((64, 100, 4096), "nvfp4", (64, 128, 4096), "n 100 as 128"),
    ],
)
def test_below_the_first_row_a_tile_is_paid_in_full(as_is, sizes, format, row, note):
    answer, tile = price(as_is, *sizes, format=format), price(as_is, *row, format=format)
    assert (answer.time_ms, answer.source) == (tile.time_ms, "estimated")
    assert answer.note.startswith(f"{note}, the smallest row")


def test_a_small_tile_beyond_the_last_m_is_still_beyond(b200, far):
    assert price(b200, 65536, 8, 4096).refusal == "refused"
    assert price(far, 65536, 8, 4096).source == "extrapolated"
    assert price(b200, 65536, 8, 131072).note.startswith("k 131072 is 2x beyond")


@pytest.mark.parametrize(("system", "dtype"), [("b200_sxm", "bfloat16"), ("h200_sxm", "fp8_block"), ("gb300", "nvfp4")])
def test_the_error_of_the_first_row_is_that_of_the_published_rows(system, dtype):
    times = {
        (r["m"], r["n"], r["k"]): r["latency"] for r in published(system, "gemm", "gemm") if r["gemm_dtype"] == dtype
    }
    first, second = sorted({n for _, n, _ in times})[:2]
    errors = [times[m, second, k] / t - 1 for (m, n, k), t in times.items() if n == first and (m, second, k) in times]
    errors += [times[m, n, second] / t - 1 for (m, n, k), t in times.items() if k == first and (m, n, second) in times]
    band = load_assumptions(system).gemm_first_row[FORMATS[dtype]]
    per_cent = np.abs(errors) * 100
    assert np.median(per_cent) == pytest.approx(band.median_percent, rel=0.03)
    assert np.percentile(per_cent, 90) == pytest.approx(band.p90_percent, rel=0.03)


def test_a_format_without_rows_is_unsupported(h200):
    answer = price(h200, 64, 8192, 8192, format="nvfp4")
    assert (answer.refusal, answer.note) == (
        "unsupported",
        "no nvfp4 GEMM rows on this GPU; there are bf16, fp8, fp8_block",
    )
    a100 = TablesPricer("a100_sxm")
    assert "there are bf16" in price(a100, 64, 8192, 8192, format="fp8_static").note
    assert price(a100, 64, 8192, 8192).source == "exact"
