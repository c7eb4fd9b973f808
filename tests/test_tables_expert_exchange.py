"""Dispatch to experts and combine, against the rows as they lie in the package."""

from __future__ import annotations

import pytest
from table_rows import published

from harness.cost.collectives import ExpertCombine, ExpertDispatch, ranks_visited
from harness.pricing.tables import TablesPricer

pytestmark = pytest.mark.tables


@pytest.fixture(scope="module")
def h200():
    return TablesPricer("h200_sxm")


@pytest.fixture(scope="module")
def gb200():
    return TablesPricer("gb200")


def one(pricer, kernel):
    return pricer.price([kernel])[0]


def deepep(system, **wanted):
    rows = published(system, "comm", "moe_a2a", "1.3.0rc11")
    shape = {"hidden_size": 7168, "topk": 8, "num_experts": 256, **wanted}
    return {row["num_tokens"]: row for row in rows if shape.items() <= row.items()}


@pytest.mark.parametrize(
    ("kernel", "backend", "phase", "dtype"),
    [
        (ExpertDispatch(64, 7168, 8, 256, 8, "bf16"), "ll", "dispatch", "bfloat16"),
        (ExpertDispatch(64, 7168, 8, 256, 8, "fp8_static"), "ll", "dispatch", "fp8"),
        (ExpertDispatch(64, 7168, 8, 256, 8, "fp8_block"), "ll", "dispatch", "bfloat16"),
        (ExpertCombine(64, 7168, 8, 256, 8, "fp8_static"), "ll", "combine", "bfloat16"),
        (ExpertDispatch(64, 7168, 8, 256, 8, "fp8_static", phase="prefill"), "ht", "dispatch", "bfloat16"),
        (ExpertDispatch(64, 7168, 8, 256, 8, "nvfp4", phase="prefill"), "ht", "dispatch", "nvfp4"),
        (ExpertCombine(64, 7168, 8, 256, 8, "nvfp4", phase="prefill"), "ht", "combine", "nvfp4"),
    ],
)
def test_the_rows_hold_microseconds_and_depend_on_the_phase(h200, kernel, backend, phase, dtype):
    row = deepep("h200_sxm", comm_backend=f"trtllm_deepep_{backend}", phase=phase, comm_dtype=dtype)[64]
    price = one(h200, kernel)
    assert price.time_ms == row["latency"] / 1000
    assert row["latency"] == pytest.approx(row["transmit_us"] + row["notify_us"])
    assert price.source == "exact"
    assert price.note == {"ll": "DeepEP low-latency", "ht": "DeepEP high-throughput"}[backend]


def test_between_token_counts_is_a_line(h200):
    rows = deepep("h200_sxm", comm_backend="trtllm_deepep_ht", phase="combine", comm_dtype="bfloat16")
    price = one(h200, ExpertCombine(1280, 7168, 8, 256, 8, "bf16", phase="prefill"))
    low, high = rows[1024]["latency"], rows[2048]["latency"]
    assert price.time_ms == pytest.approx((low + (high - low) / 4) / 1000)
    assert (price.source, price.note) == ("interpolated", "DeepEP high-throughput; between 1024 and 2048")


def nvlink(step, kernel_source, dtype, ep, tokens):
    wanted = {
        "op_name": f"alltoall_{step}", "kernel_source": kernel_source, "moe_dtype": dtype, "moe_ep_size": ep,
        "num_tokens": tokens,
    }  # fmt: skip
    rows = published("gb200", "comm", "trtllm_alltoall", "1.3.0rc10")
    return next(row["latency"] for row in rows if wanted.items() <= row.items())


def test_gb200_dispatches_one_sided_what_it_has_rows_of(gb200):
    price = one(gb200, ExpertDispatch(64, 7168, 8, 256, 32, "nvfp4"))
    assert price.time_ms == nvlink("dispatch", "NVLinkOneSided", "nvfp4", 32, 64)
    assert (price.source, price.note) == ("exact", "NVLink one-sided")


def test_two_sided_kernels_prepare_before_they_dispatch(gb200):
    ask = ("NVLinkTwoSided", "nvfp4", 64, 64)
    dispatch, combine = gb200.price([kind(64, 7168, 8, 256, 64, "nvfp4") for kind in (ExpertDispatch, ExpertCombine)])
    assert dispatch.time_ms == pytest.approx(nvlink("prepare", *ask) + nvlink("dispatch", *ask))
    assert combine.time_ms == nvlink("combine", *ask)
    assert dispatch.note == combine.note == "NVLink two-sided"


def test_copies_of_experts_change_nothing_but_the_source(gb200):
    plain, spare = gb200.price([ExpertDispatch(64, 7168, 8, 256, 32, "nvfp4", slots) for slots in (0, 288)])
    assert spare.time_ms == plain.time_ms
    assert (spare.source, spare.note) == (
        "estimated",
        "NVLink one-sided; rows have 256 experts and no copies; 288 slots are taken alike",
    )
    moved = one(gb200, ExpertDispatch(64, 7168, 8, 256, 32, "nvfp4", 256))
    assert moved == plain


def test_another_shape_is_answered_on_request_at_equal_bytes(h200):
    """Top 8 of 128 experts over 8 ranks from top 6 of 256, of the same hidden size: more ranks are visited."""
    kernel = ExpertDispatch(64, 4096, 8, 128, 8, "fp8_static")
    refused, answered = one(h200, kernel), one(TablesPricer("h200_sxm", allow_extrapolation=True), kernel)
    rows = deepep(
        "h200_sxm", hidden_size=4096, topk=6, comm_backend="trtllm_deepep_ll", phase="dispatch", comm_dtype="fp8"
    )
    tokens = 64 * ranks_visited(8, 128, 8) / ranks_visited(6, 256, 8)
    assert 64 < tokens < 96
    between = rows[64]["latency"] + (rows[96]["latency"] - rows[64]["latency"]) * (tokens - 64) / 32
    assert answered.time_ms == pytest.approx(between / 1000)
    assert (answered.source, answered.flags) == ("extrapolated", ("extrapolated",))
    assert refused.refusal == "refused"
    assert "no rows of 4096/8/128 (hidden/top k/experts); from 4096/6/256 at equal bytes sent" in refused.note


def test_beyond_one_node_what_leaves_it_is_added(h200):
    """64 tokens of 7,168 bf16 values to 8 of the 15 other ranks that are elsewhere, at 50 GB/s, and 5 us."""
    kernel = ExpertDispatch(64, 7168, 8, 256, 16, "bf16")
    refused, answered = one(h200, kernel), one(TablesPricer("h200_sxm", allow_extrapolation=True), kernel)
    row = deepep("h200_sxm", comm_backend="trtllm_deepep_ll", phase="dispatch", comm_dtype="bfloat16")[64]
    out_bytes = 64 * ranks_visited(8, 256, 16) * 7168 * 2 * 8 / 15
    assert answered.time_ms == pytest.approx(row["latency"] / 1000 + out_bytes / 50e9 * 1000 + 0.005)
    assert answered.source == "extrapolated"
    assert refused.refusal == "refused"
    assert "16 GPUs are beyond the rows, which have 8" in refused.note
    assert f"the package's engine takes the rows of 8 as they are, {row['latency'] / 1000:.4g} ms" in refused.note


@pytest.mark.parametrize(
    ("system", "kernel", "note"),
    [
        ("l40s", ExpertDispatch(64, 7168, 8, 256, 8, "bf16"), "no rows of expert dispatch and combine on this GPU"),
        (
            "h200_sxm",
            ExpertDispatch(64, 7168, 8, 256, 4, "bf16"),
            "no dispatch rows of 4 GPUs with bfloat16 on this GPU; there are 8 GPUs with bfloat16, fp8",
        ),
        (
            "b200_sxm",
            ExpertDispatch(64, 3072, 8, 256, 8, "bf16"),
            "DeepEP's low-latency kernels have no hidden size 3072; 2048, 2560, 3584, 4096, 5120, 6144, 7168",
        ),
        ("b200_sxm", ExpertDispatch(64, 7168, 10, 256, 8, "bf16"), "DeepEP's low-latency kernels take top k up to 9"),
    ],
)
def test_what_no_kernel_does_is_unsupported(system, kernel, note):
    price = one(TablesPricer(system, allow_extrapolation=True), kernel)
    assert (price.refusal, price.note) == ("unsupported", note)


def test_decode_beyond_the_last_row_goes_on_for_one_doubling():
    pricer = TablesPricer("b200_sxm", allow_extrapolation=True)
    once, twice = pricer.price([ExpertDispatch(tokens, 7168, 8, 256, 8, "bf16") for tokens in (512, 513)])
    rows = deepep("b200_sxm", comm_backend="trtllm_deepep_ll", phase="dispatch", comm_dtype="bfloat16")
    slope = (rows[256]["latency"] - rows[160]["latency"]) / 96
    assert once.time_ms == pytest.approx((rows[256]["latency"] + 256 * slope) / 1000)
    assert (twice.refusal, twice.time_ms) == ("refused", None)
