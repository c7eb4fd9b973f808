"""Several query tokens a sequence, from rows of one."""

from __future__ import annotations

import numpy as np
import pytest
from table_rows import attention_rows, published

from harness.cost.ops import DecodeAttention
from harness.pricing.tables import TablesPricer
from harness.pricing.tables.decode_attention import DecodeAttentionPricer, DecodeRules
from harness.pricing.tables.slices import AttentionTable
from harness.pricing.tables.store import AttentionRows


def pricer(*slices):
    """A pricer over made-up slices, each (query heads, KV heads, cells)."""
    rows = [attention_rows(cells, q=q, kv=kv) for q, kv, cells in slices]
    columns = {name: np.concatenate([getattr(one, name) for one in rows]) for name in AttentionRows.__slots__}
    return DecodeAttentionPricer(AttentionTable(AttentionRows(**columns)), DecodeRules(1000, {}, {}))


def ask(query_len, batch=4, q_heads=8, kv_heads=2, **changes):
    return DecodeAttention(batch, 1024, q_heads, kv_heads, 128, "fp8", query_len, **changes)


OWN = (8, 2, {(4, 1024): 0.010})


def test_draft_tokens_act_like_a_larger_group():
    """3 drafts at G 4 are 16 rows per KV head: 32:2 heads."""
    price = pricer(OWN, (32, 2, {(4, 1024): 0.013})).price(ask(4))
    assert (price.time_ms, price.source, price.flags) == (0.013, "formula", ())
    assert price.note == "as 32:2 heads at batch 4"


def test_other_kv_heads_stand_in_at_as_many_caches():
    """4 sequences of 2 KV heads read as much as 8 of one."""
    price = pricer(OWN, (16, 1, {(4, 1024): 0.5, (8, 1024): 0.014})).price(ask(4))
    assert (price.time_ms, price.note) == (0.014, "as 16:1 heads at batch 8")


def test_the_same_kv_heads_come_first():
    price = pricer(OWN, (16, 1, {(8, 1024): 0.014}), (32, 2, {(4, 1024): 0.013})).price(ask(4))
    assert price.time_ms == 0.013


def test_without_that_group_size_the_next_larger_counts():
    price = pricer(OWN, (24, 2, {(4, 1024): 0.012}), (64, 2, {(4, 1024): 0.015})).price(ask(4))
    assert (price.time_ms, price.note) == (0.015, "as 64:2 heads at batch 4")


def test_a_refused_stand_in_gives_way_to_the_next():
    price = pricer(OWN, (32, 2, {(1, 1024): 0.013}), (16, 1, {(8, 1024): 0.014})).price(ask(4))
    assert price.time_ms == 0.014
    none = pricer(OWN, (32, 2, {(1, 1024): 0.013})).price(ask(4))
    assert (none.refusal, none.note) == (
        "refused",
        "as 32:2 heads at batch 4: batch 4 is outside the measured batches, 1 to 1",
    )


def test_beyond_32_rows_the_cache_is_read_again_and_nothing_was_measured():
    """10 tokens at G 4: 8 fill 32 rows, 2 are left; never a slice of more than 32."""
    slices = (OWN, (64, 2, {(4, 1024): 0.015}), (16, 2, {(4, 1024): 0.011}), (80, 2, {(4, 1024): 9.0}))
    price = pricer(*slices).price(ask(10))
    assert price.time_ms == pytest.approx(0.015 + 0.011)
    assert (price.source, price.flags) == ("formula", ("unmeasured",))
    assert price.note == (
        "40 query rows per KV head, more than 32: not measured; 1 x as 64:2 heads at batch 4; 1 x as 16:2 heads at "
        "batch 4"
    )


def test_a_group_beyond_32_takes_its_tokens_one_by_one():
    price = pricer((48, 1, {(4, 1024): 1.0})).price(ask(3, q_heads=48, kv_heads=1))
    assert (price.time_ms, price.flags) == (3.0, ("unmeasured",))


def test_where_nothing_stands_in_the_cache_is_read_once():
    price = pricer(OWN).price(ask(2))
    assert (price.time_ms, price.source, price.flags) == (0.010, "formula", ("unmeasured",))
    assert price.note.startswith("no rows of 2 query tokens, nor of heads that stand for them: the cache is read once")


def test_a_window_over_the_whole_length_is_none():
    price = pricer(OWN, (16, 2, {(4, 1024): 0.011})).price(ask(2, window=1024))
    assert (price.time_ms, price.flags) == (0.011, ())


@pytest.mark.tables
@pytest.mark.parametrize(("system", "draft_len", "heads"), [("b200_sxm", 3, (128, 4)), ("h200_sxm", 1, (128, 8))])
def test_a_70b_with_drafts_is_priced_from_published_rows(system, draft_len, heads):
    wanted = {"num_heads": heads[0], "num_key_value_heads": heads[1], "head_dim": 128, "window_size": 0}
    wanted |= {"kv_cache_dtype": "fp8", "batch_size": 8 * 8 // heads[1], "step": 8191}
    row = next(r for r in published(system, "attention", "generation_attention") if wanted.items() <= r.items())
    price = TablesPricer(system).price([DecodeAttention(8, 8192, 64, 8, 128, "fp8", 1 + draft_len)])[0]
    assert (price.time_ms, price.source) == (row["latency"], "formula")


@pytest.mark.tables
@pytest.mark.parametrize("system", ["h100_sxm", "h200_sxm", "b200_sxm"])
def test_rows_of_equal_group_and_caches_agree(system):
    """What the rule rests on: 32:4 at batch 16 beside 64:8 at batch 8, and so on."""
    rows = published(system, "attention", "generation_attention")
    times = {
        (r["num_heads"], r["num_key_value_heads"], r["batch_size"], r["step"] + r["isl"]): r["latency"]
        for r in rows
        if (r["head_dim"], r["window_size"], r["kv_cache_dtype"]) == (128, 0, "fp8")
    }
    errors = [
        abs(times[q // 2, kv // 2, 2 * b, length] / time - 1)
        for (q, kv, b, length), time in times.items()
        if length >= 1024 and 2 * kv <= q <= 32 * kv and not kv % 2 and (q // 2, kv // 2, 2 * b, length) in times
    ]
    assert len(errors) > 1000
    assert np.median(errors) < 0.02
    assert np.percentile(errors, 90) < 0.12
