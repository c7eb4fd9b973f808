"""Records of priced cases: what follows from a price, a pipeline and a parallelism."""

from __future__ import annotations

import json

import pytest
from shapes import MOE, decode, over

from harness.cost.pipeline import decode_period
from harness.hardware import load_system
from harness.pricing.compose import CasePrice, price_cases
from harness.pricing.roofline import RooflinePricer
from harness.results.build import Answerer, kernel_text, priced_attempt
from harness.results.record import Record
from harness.spec.case import Case
from harness.spec.expand import PlannedCase

ROOFLINE = RooflinePricer(load_system("b200_sxm"))


def priced(case: Case) -> CasePrice:
    return price_cases([case], "model", ROOFLINE, ROOFLINE)[0]


def record(case: Case, price: CasePrice, level: str = "model") -> Record:
    planned = PlannedCase(case, "s", "", {}, level)
    return priced_attempt(planned, price, Answerer("roofline", "v"), "r.000000", "now").record


def test_a_full_pipeline_yields_a_token_a_period() -> None:
    """4 groups of 8 sequences in flight: 32 tokens every 4 times the slowest stage, on 4 GPUs."""
    case = over(decode(8, 4096), pp=4, pp_partition=(5, 9, 9, 9))
    price = priced(case)
    row = record(case, price)
    period_ms = 4 * max(price.stage_ms)
    assert period_ms > sum(price.stage_ms)
    assert row.pp_groups == 4
    assert row.tok_s_per_gpu == pytest.approx(4 * 8 / period_ms * 1000 / 4)
    assert row.tpot_ms == pytest.approx(period_ms)
    assert row.step_ms == price.time_ms
    assert row.pp_imbalance == pytest.approx(max(price.stage_ms) * 4 / sum(price.stage_ms))
    assert (row.pp_partition, row.world_size) == ("5+9+9+9", 4)


def test_no_more_groups_are_in_flight_than_fit() -> None:
    """One sequence of an 8B in bf16 with 900,000 tokens: 27 GiB of KV on each of 4 GPUs, so 5 of them on 178 GiB."""
    case = over(decode(2, 900_000), pp=4)
    row = record(case, priced(case))
    assert row.pp_groups == 2
    assert row.tok_s_per_gpu == pytest.approx(2 * 2 / decode_period(priced(case).stage_ms, 2) * 1000 / 4)


def test_without_a_pipeline_nothing_changes() -> None:
    case = over(decode(8), tp=4)
    row, price = record(case, priced(case)), priced(case)
    assert (row.pp_groups, row.pp_imbalance, row.pp_partition) == (None, None, None)
    assert row.tok_s_per_gpu == pytest.approx(8 / price.time_ms * 1000 / 4)  # type: ignore[operator]


def test_a_record_says_how_ranks_share_experts() -> None:
    case = over(decode(**MOE), tp=8, ep=4, slots=160)
    row = record(case, priced(case))
    assert (row.tp, row.ep, row.moe_tp, row.slots) == (8, 4, 2, 160)
    dense = over(decode(), tp=8)
    assert (record(dense, priced(dense)).moe_tp, record(dense, priced(dense)).slots) == (None, None)


def test_a_record_says_what_its_rank_sends() -> None:
    """65 all-reduces of 8 x 4096 bf16 values over 2 ranks, each sending a message, and half of the logits."""
    case = over(decode(8), tp=2)
    price = priced(case)
    attempt = priced_attempt(
        PlannedCase(case, "s", "", {}, "model"), price, Answerer("roofline", "v"), "r.000000", "now"
    )
    assert attempt.record.link_bytes == 65 * 8 * 4096 * 2 + 8 * 128_256
    assert sum(op.count * op.link_bytes for op in attempt.ops) == attempt.record.link_bytes
    assert record(decode(), priced(decode())).link_bytes == 0
    assert json.loads(attempt.to_line())["record"]["link_bytes"] == attempt.record.link_bytes


def test_exchanges_are_readable() -> None:
    moe = over(decode(**MOE), tp=8, ep=8, attention_dp=True)
    texts = {one.op.name: kernel_text(one.op.kernel) for one in priced(moe).ops}
    assert texts["layer.moe.dispatch"] == "ExpertDispatch tokens=1 hidden=4096 top_k=8 experts=128 gpus=8 format=bf16"
    split = {one.op.name: kernel_text(one.op.kernel) for one in priced(over(decode(), tp=4, cp=2)).ops}
    assert split["layer.attn.all_to_all"] == "HelixAllToAll tokens=8 heads=8 value_dim=128 gpus=2"
    assert split["layer.ffn.all_reduce"] == "AllReduce elements=32768 gpus=8"
