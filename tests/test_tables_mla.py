"""Multi-head latent attention, against the rows as they lie in the package."""

from __future__ import annotations

import random

import pytest
from table_rows import published

from harness.cost.ops import BatchedGemm, DecodeAttention, PrefillAttention
from harness.pricing.tables import TablesPricer

pytestmark = pytest.mark.tables

FORMATS = {"bfloat16": "bf16", "fp8": "fp8"}


@pytest.fixture(scope="module")
def h200():
    return TablesPricer("h200_sxm")


def decode(heads, batch, kvsl, kv_format="fp8", query_len=1):
    return DecodeAttention(batch, kvsl, heads, 1, 576, kv_format, query_len, value_dim=512, latent=True)


def prefill(heads, batch, isl, kv_format="bf16", past=0, attn_format="bf16"):
    return PrefillAttention(batch, isl, past, heads, heads, 192, attn_format, kv_format, value_dim=128)


def test_rows_of_decode_come_back(h200):
    """A row with `step` s has s tokens in the cache and a new one."""
    rows = random.Random(1).sample(published("h200_sxm", "mla", "generation_mla"), 500)
    kernels = [
        decode(r["num_heads"], r["batch_size"], r["step"] + r["isl"], FORMATS[r["kv_cache_dtype"]]) for r in rows
    ]
    assert [price.time_ms for price in h200.price(kernels)] == [row["latency"] for row in rows]


def test_rows_of_prefill_come_back(h200):
    rows = random.Random(2).sample(published("h200_sxm", "mla", "context_mla"), 500)
    kernels = [prefill(r["num_heads"], r["batch_size"], r["isl"], FORMATS[r["kv_cache_dtype"]]) for r in rows]
    assert [price.time_ms for price in h200.price(kernels)] == [row["latency"] for row in rows]


@pytest.mark.parametrize(("n", "k", "name"), [(512, 128, "mla_gen_pre"), (128, 512, "mla_gen_post")])
@pytest.mark.parametrize(("stored", "dtype"), [("bf16", "bfloat16"), ("fp8_block", "fp8")])
def test_rows_of_the_absorbed_projections_come_back(h200, n, k, name, stored, dtype):
    rows = [r for r in published("h200_sxm", "mla_bmm", "mla_bmm") if (r["op_name"], r["bmm_dtype"]) == (name, dtype)]
    assert len(rows) > 100
    kernels = [BatchedGemm(r["num_heads"], r["num_tokens"], n, k, stored) for r in rows]
    assert [price.time_ms for price in h200.price(kernels)] == [row["latency"] for row in rows]


def test_latents_beyond_l2_are_a_line(h200):
    """64 sequences of 4,096 latents of 576 bytes, 151 MB, and of 8,192."""
    low, middle, high = (price.time_ms for price in h200.price([decode(128, 64, kvsl) for kvsl in (4096, 6144, 8192)]))
    assert middle == pytest.approx((low + high) / 2)


def test_a_chunk_takes_its_share_of_the_whole_prompt(h200):
    whole, chunk = h200.price([prefill(16, 1, 8192), prefill(16, 1, 4096, past=4096)])
    assert chunk.time_ms == pytest.approx(whole.time_ms * 0.75)
    assert chunk.source == "formula"


def test_draft_tokens_take_rows_of_more_heads(h200):
    """16 heads and 3 drafts are 64 rows on one latent."""
    one, drafts = h200.price([decode(64, 8, 8192), decode(16, 8, 8192, query_len=4)])
    assert (drafts.time_ms, drafts.source) == (one.time_ms, "formula")
    assert "unmeasured" in drafts.flags


@pytest.mark.parametrize(
    ("kernel", "refusal", "note"),
    [
        (decode(128, 8, 131_073), "refused", "beyond the last row, 131072; no extrapolation without a known error"),
        (decode(96, 1, 4096), "unsupported", "no rows for 96:1 heads of 576"),
        (prefill(128, 1, 4096, attn_format="fp8"), "unsupported", "there are bf16 attention on bf16 KV"),
        (
            DecodeAttention(1, 4096, 128, 1, 320, "fp8", value_dim=256, latent=True),
            "unsupported",
            "no rows with keys of 320 and values of 256; DeepSeek-V3's 576 and 512 were measured",
        ),
        (
            PrefillAttention(1, 4096, 0, 128, 128, 96, "bf16", "bf16", value_dim=64),
            "unsupported",
            "no rows with keys of 96 and values of 64; DeepSeek-V3's 192 and 128 were measured",
        ),
        (BatchedGemm(128, 8, 256, 64), "unsupported", "there are 512 x 128 and 128 x 512"),
        (BatchedGemm(6, 8, 512, 128), "unsupported", "no rows of 6 heads with bf16 weights; there are 1, 2, 4, 8"),
        (BatchedGemm(1, 8193, 512, 128), "refused", "beyond the last row, 8192; no extrapolation without"),
    ],
)
def test_what_was_not_measured_says_so(kernel, refusal, note):
    price = TablesPricer("h200_sxm", allow_extrapolation=True).price([kernel])[0]
    assert (price.refusal, price.time_ms) == (refusal, None)
    assert note in price.note


def test_a_gpu_without_rows_says_so():
    prices = TablesPricer("l40s").price([decode(16, 1, 1024), prefill(16, 1, 1024)])
    assert {(p.refusal, p.note) for p in prices} == {
        ("unsupported", "no rows of multi-head latent attention on this GPU")
    }
