"""Exchanges between GPUs, against the rows as they lie in the package."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_rows import published, published_nccl

from harness.cost.collectives import AllGather, AllReduce, HelixAllToAll, PointToPoint, ReduceScatter
from harness.pricing.tables import TablesPricer

pytestmark = pytest.mark.tables


@pytest.fixture(scope="module")
def b200():
    return TablesPricer("b200_sxm")


@pytest.fixture(scope="module")
def asked_for():
    return TablesPricer("b200_sxm", allow_extrapolation=True)


def one(pricer, kernel):
    return pricer.price([kernel])[0]


@pytest.mark.parametrize("system", ["h100_sxm", "b200_sxm", "gb200", "gb300", "l40s"])
def test_every_row_of_all_reduce_comes_back(system):
    rows = published(system, "comm", "custom_allreduce")
    prices = TablesPricer(system).price([AllReduce(row["message_size"], row["num_gpus"]) for row in rows])
    assert [price.time_ms for price in prices] == [row["latency"] for row in rows]
    assert {price.source for price in prices} == {"exact"}
    assert {row["num_gpus"] for row in rows} == {"gb200": {2, 4}, "gb300": {2, 4, 8, 16}}.get(system, {2, 4, 8})


def test_the_a100_has_rows_of_an_older_release():
    row = published("a100_sxm", "comm", "custom_allreduce", "1.0.0")[5]
    price = one(TablesPricer("a100_sxm"), AllReduce(row["message_size"], row["num_gpus"]))
    assert (price.time_ms, price.source) == (row["latency"], "exact")


def test_between_sizes_an_all_reduce_is_on_a_line(b200):
    """B200, 8 GPUs: 524288 elements 17.7802 us, 1048576 elements 30.3798 us; three quarters between is halfway."""
    times = {r["message_size"]: r["latency"] for r in published("b200_sxm", "comm", "custom_allreduce")[46:]}
    price = one(b200, AllReduce(96 * 8192, 8))
    assert price.time_ms == pytest.approx((times[524288] + times[1048576]) / 2, rel=1e-12)
    assert (price.source, price.note) == ("interpolated", "between 524288 and 1048576")


def test_a_tiny_all_reduce_costs_what_the_smallest_does(b200):
    row, price = published("b200_sxm", "comm", "custom_allreduce")[0], one(b200, AllReduce(64, 2))
    assert row["message_size"] == 128
    assert (price.time_ms, price.source, price.note) == (row["latency"], "estimated", "as the smallest row, 128")


@pytest.mark.parametrize(
    ("kernel", "operation", "dtype", "size"),
    [
        (AllGather(1 << 20, 8), "all_gather", "half", 1 << 20),
        (AllGather(1 << 20, 8, "fp8_static"), "all_gather", "int8", 1 << 20),
        (ReduceScatter(1 << 20, 4), "reduce_scatter", "half", 1 << 20),
    ],
)
def test_gathering_and_scattering_are_nccl_s_rows(b200, kernel, operation, dtype, size):
    wanted = {"op_name": operation, "nccl_dtype": dtype, "num_gpus": kernel.gpus, "message_size": size}
    row = next(r for r in published_nccl("b200_sxm", "2.29.2") if wanted.items() <= r.items())
    price = one(b200, kernel)
    assert (price.time_ms, price.source) == (row["latency"], "exact")


def test_nvfp4_values_are_gathered_as_bytes(b200):
    """0.5625 bytes a value: 4 Mi values are 2,359,296 bytes, an eighth of the way from 2 Mi to 4 Mi."""
    rows = published_nccl("b200_sxm", "2.29.2")
    like = [r for r in rows if (r["op_name"], r["nccl_dtype"], r["num_gpus"]) == ("all_gather", "int8", 8)]
    at = {r["message_size"]: r["latency"] for r in like}
    price = one(b200, AllGather(1 << 22, 8, "nvfp4"))
    assert price.time_ms == pytest.approx(at[1 << 21] + (at[1 << 22] - at[1 << 21]) / 8, rel=1e-12)


def test_helix_takes_the_time_of_nccl_s_all_to_all(b200):
    """8 tokens of 31 heads: 8 · 31 · (2·128 + 8) = 65,472 bytes, its own share included; 32,768 to 65,536."""
    rows = published_nccl("b200_sxm", "2.29.2")
    like = [r for r in rows if (r["op_name"], r["nccl_dtype"], r["num_gpus"]) == ("alltoall", "int8", 2)]
    at = {r["message_size"]: r["latency"] for r in like}
    price = one(b200, HelixAllToAll(8, 31, 128, 2))
    share = (65_472 - 32_768) / 32_768
    assert price.time_ms == pytest.approx(at[32_768] + (at[65_536] - at[32_768]) * share, rel=1e-12)
    assert price.source == "formula"
    assert price.note == "NCCL's all-to-all of 65472 bytes; TensorRT-LLM's own kernel was not measured"


def test_a_hand_over_within_the_domain_is_half_an_all_to_all_of_two(b200):
    rows = published_nccl("b200_sxm", "2.29.2")
    wanted = {"op_name": "alltoall", "nccl_dtype": "int8", "num_gpus": 2, "message_size": 1 << 20}
    row = next(r for r in rows if wanted.items() <= r.items())
    price = one(b200, PointToPoint(1 << 18, 8))  # 512 KiB
    assert (price.time_ms, price.source) == (row["latency"], "formula")


def test_a_hand_over_to_another_node_is_latency_and_bytes(b200):
    """4.77 + 5 us, and 2,097,152 bytes at 50 GB/s a B200."""
    price = one(b200, PointToPoint(1 << 20, 16))
    assert price.time_ms == pytest.approx((4.77 + 5) / 1000 + 2_097_152 / 50e9 * 1000)
    assert price.source == "formula"


def test_more_gpus_than_measured_are_refused_with_what_would_be_said(b200, asked_for):
    """The 8-GPU row, 2 · 1/2 / 8 of the 1 MiB message at 50 GB/s, and 5 us; the engine scales the row by 9.6."""
    kernel = AllReduce(64 * 8192, 16)
    row = one(b200, AllReduce(64 * 8192, 8)).time_ms
    refused, answered = one(b200, kernel), one(asked_for, kernel)
    assert refused.refusal == "refused"
    assert answered.time_ms == pytest.approx(row + 131_072 / 50e9 * 1000 + 0.005)
    assert (answered.source, answered.flags) == ("extrapolated", ("extrapolated",))
    for note in (refused.note, answered.note):
        assert note.startswith(
            "16 GPUs are beyond the rows, which have at most 8: the time of 8 + 1.311e+05 bytes a GPU"
        )
        assert "the package's engine says 0.1715 ms: all of it, latency too, scaled by bandwidth" in note
    assert refused.note.endswith(f"--allow-extrapolation would answer {answered.time_ms:.4g} ms")


def test_within_an_nvlink_domain_more_gpus_send_more_bytes():
    """GB200 has rows of 4 GPUs; 8 send 7/8 where 4 send 3/4, and none of it leaves the 72 GPUs."""
    kernel = AllReduce(64 * 8192, 8)
    row = one(TablesPricer("gb200"), AllReduce(64 * 8192, 4)).time_ms
    price = one(TablesPricer("gb200", allow_extrapolation=True), kernel)
    assert price.time_ms == pytest.approx(row * (7 / 8) / (3 / 4))
    assert "all-reduce on GB300" in price.note
    assert one(TablesPricer("gb200"), kernel).refusal == "refused"


def test_beyond_the_last_size_a_line_goes_on_for_three_doublings(b200, asked_for):
    last, half = (one(b200, AllReduce(1 << power, 8)).time_ms for power in (29, 28))
    price = one(asked_for, AllReduce(1 << 30, 8))
    assert price.time_ms == pytest.approx(last + 2 * (last - half))
    assert "errs by median 0.7 %, 90th percentile 2.9 %" in price.note
    assert one(b200, AllReduce(1 << 30, 8)).refusal == "refused"
    never = one(asked_for, AllReduce(1 << 33, 8))
    assert (never.refusal, never.time_ms) == ("refused", None)
    assert "no extrapolation over more than 3 doublings" in never.note


@pytest.mark.parametrize(
    ("kernel", "note"),
    [
        (AllReduce(8192, 3), "no all-reduce rows of 3 GPUs; there are 2, 4, 8"),
        (AllGather(8192, 6), "no NCCL all_gather rows of 6 GPUs; there are 2, 4, 8"),
    ],
)
def test_numbers_of_gpus_between_those_measured_have_no_price(asked_for, kernel, note):
    price = one(asked_for, kernel)
    assert (price.refusal, price.note) == ("unsupported", note)


@given(st.integers(128, 1 << 29), st.sampled_from([2, 4, 8]))
def test_a_price_lies_between_its_neighbours(elements, gpus):
    pricer = TablesPricer("h200_sxm")
    low = 1 << (elements.bit_length() - 1)
    ends = [one(pricer, AllReduce(size, gpus)).time_ms for size in (low, min(2 * low, 1 << 29))]
    assert min(ends) <= one(pricer, AllReduce(elements, gpus)).time_ms <= max(ends)
