"""What fits on a GPU: weights and KV by hand, the verdict, and what would help."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from shapes import decode, prefill, variant

from harness.cost.kv_cache import kv_bytes_per_block, kv_bytes_per_token
from harness.cost.memory import GIB, MemoryRules, activation_bytes, fits, memory_rules, read_memory_rules
from harness.cost.parameters import parameter_count
from harness.cost.remedies import Remedies, rejection, remedies
from harness.cost.weights import rank_weights, replicated_weight_bytes, stage_weights
from harness.errors import UnreadableInput
from harness.hardware import load_system
from harness.spec.case import Case
from harness.spec.load import load_variant
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant

B200, H100 = load_system("b200_sxm"), load_system("h100_sxm")

#: No activations, no workspace, all of the memory: what is left is arithmetic.
BARE = MemoryRules(
    visible_fraction={"default": 1.0},
    minimum_activation_bytes=0,
    activation_factors={"dense": {1: 0, 2: 0, 4: 0, 8: 0}, "experts": {1: 0, 2: 0, 4: 0, 8: 0}},
    workspace_bytes=0,
    nccl_bytes={1: 0, 2: 0, 4: 0, 8: 0},
    kv_fraction=0.5,
    fraction_of="free",
    kv_format_sm={"fp8": [90, 100], "nvfp4": [100]},
    helix_sm=[100],
)


def over(case: Case, **split: Any) -> Case:
    return case.model_copy(update={"parallelism": Parallelism(**split)})


def moe_235b(weights: str) -> Variant:
    return load_variant("moe-235b", [f"weights={weights}"])


# Weights


@pytest.mark.parametrize("name", ["dense-8b", "dense-70b", "moe-235b"])
def test_in_bf16_every_parameter_takes_two_bytes(name: str) -> None:
    shape = load_variant(name, ["weights=bf16"])
    assert rank_weights(shape, Parallelism()).total_bytes == 2 * parameter_count(shape)


@pytest.mark.parametrize("name", ["cpu-dense", "cpu-moe"])
def test_in_fp32_every_parameter_takes_four(name: str) -> None:
    """Router, norms and embedding too: nothing of such a model is quantised."""
    shape = load_variant(name)
    assert rank_weights(shape, Parallelism()).total_bytes == 4 * parameter_count(shape)


def test_a_235b_class_in_nvfp4_on_eight_ranks() -> None:
    """Per layer 16 experts and 1/8 of the heads in 4.5 bits, a whole router in bf16; 1/8 of two bf16 tables."""
    expert = 3 * 4096 * 1536 * 0.5625 + 2 * 4
    router, norms = 128 * 4096 * 2, (2 * 94 + 1) * 4096 * 2
    attention = (8 + 2 * 1) * 128 * 4096 * 0.5625 + 4 + 4096 * 8 * 128 * 0.5625 + 4
    weights = rank_weights(moe_235b("nvfp4"), Parallelism(tp=8, ep=8))
    assert weights.experts == 94 * (16 * expert + router)
    assert weights.attention == 94 * attention
    assert weights.norms == norms
    assert weights.embedding == weights.lm_head == 151936 / 8 * 4096 * 2
    assert weights.total_bytes == 16_877_998_576


@pytest.mark.parametrize(
    ("name", "weights", "split", "gib"),
    [
        # aiconfigurator-core 0.12.0, `estimate_kv_cache`; it counts no embedding table for experts: + 0.14, 1.16 GiB
        ("dense-70b", "fp8", {"tp": 2}, 33.8),
        ("dense-70b", "nvfp4", {"tp": 2}, 19.9),
        ("moe-235b", "fp8_block", {"tp": 8, "ep": 8}, 14.1 + 0.14),
        ("moe-235b", "fp8_block", {"tp": 8, "ep": 8, "attention_dp": True}, 17.9 + 1.16),
    ],
)
def test_others_count_the_same(name: str, weights: str, split: dict[str, Any], gib: float) -> None:
    shape = load_variant(name, [f"weights={weights}"])
    if name == "moe-235b":
        shape = shape.model_copy(update={"layers": 48})
    assert rank_weights(shape, Parallelism(**split)).total_bytes / GIB == pytest.approx(gib, abs=0.05)


def test_block_scales_are_counted_after_sharding() -> None:
    """ffn 14336 over 8 ranks: 1792 columns are 14 blocks, so 28 · 32 and 32 · 14 scales on each."""
    whole, block = (rank_weights(variant(weights=kind), Parallelism(tp=8)).ffn for kind in ("fp8", "fp8_block"))
    assert block - whole == 32 * 4 * (28 * 32 + 32 * 14)


def test_tied_embeddings_are_one_table_unless_stages_part_them() -> None:
    tied, untied = variant(tie_embeddings=True), variant()
    table = 128256 * 4096 * 2
    assert rank_weights(untied, Parallelism()).total_bytes - rank_weights(tied, Parallelism()).total_bytes == table
    first, last = stage_weights(tied, Parallelism(pp=2))
    assert (first.embedding, first.lm_head, last.embedding, last.lm_head) == (table, 0, 0, table)


def test_latent_attention_keeps_a_copy_of_its_keys() -> None:
    """DeepSeek-V3 at tp 8: kv_b_proj for 16 heads of 128 + 128, and its keys' half again."""
    shape = variant(layers=1, hidden=7168, q_heads=128, kv_heads=128, attention="mla", mla={})
    down, queries, out = (1536 + 576) * 7168, 16 * 192 * 1536, 7168 * 16 * 128
    up, copy = 16 * 256 * 512, 16 * 512 * 128
    assert rank_weights(shape, Parallelism(tp=8)).attention == 2 * (down + queries + out + up + copy)


def test_stages_hold_their_own_layers() -> None:
    weights = stage_weights(variant(layers=7), Parallelism(pp=3))
    assert [stage.ffn / weights[0].ffn for stage in weights] == pytest.approx([1, 2 / 3, 2 / 3])
    assert [bool(stage.embedding) for stage in weights] == [True, False, False]
    assert [bool(stage.lm_head) for stage in weights] == [False, False, True]


@given(
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 4, 8]),
)
def test_what_ranks_hold_is_the_model_and_what_they_repeat(tp: int, cp: int, pp: int, ep: int) -> None:
    """Repeated in bf16: K and V beyond KH over tp, Q, K and V over cp, router and norms on every rank of a stage."""
    assume(tp * cp % ep == 0)
    shape = moe_235b("bf16")
    split, gpus = Parallelism(tp=tp, cp=cp, pp=pp, ep=ep), tp * cp
    columns = cp * (64 + 2 * max(4, tp)) - (64 + 2 * 4)
    repeated = 94 * 2 * 4096 * (columns * 128 + (gpus - 1) * (128 + 2)) + (gpus - 1) * 2 * 4096
    assert replicated_weight_bytes(shape, split) == repeated


def test_attention_dp_repeats_all_but_the_experts() -> None:
    shape = moe_235b("bf16")
    experts = 94 * 128 * 3 * 4096 * 1536 * 2
    others = rank_weights(shape, Parallelism()).total_bytes - experts
    assert replicated_weight_bytes(shape, Parallelism(tp=8, ep=8, attention_dp=True)) == 7 * others


def test_slots_are_held_whole() -> None:
    """256 experts on 72 ranks: 4 slots each instead of 3.56 experts."""
    shape = variant(layers=1, experts={"count": 256, "top_k": 8, "inter": 2048})
    weights = rank_weights(shape, Parallelism(tp=72 // 9, pp=1, ep=8, attention_dp=True, slots=288))
    assert weights.experts == 2 * (288 / 8 * 3 * 4096 * 2048 + 256 * 4096)


# KV cache


def test_a_block_is_so_many_tokens() -> None:
    """Helix does not cut a block: it is whole on the rank that holds it."""
    shape = variant()
    assert kv_bytes_per_block(shape) == 32 * kv_bytes_per_token(shape)
    helix = Parallelism(tp=4, cp=2)
    assert kv_bytes_per_block(shape, helix) == 32 * 2 * kv_bytes_per_token(shape, helix)


def test_the_cache_follows_the_partition() -> None:
    shape = variant(layers=4, attention=["full", "full", "none", "none"])
    assert kv_bytes_per_token(shape, Parallelism(pp=2)) == 2 * 4096
    assert kv_bytes_per_token(shape, Parallelism(pp=2, pp_partition=(1, 3))) == 4096


# The verdict


def test_a_batch_that_just_fits() -> None:
    """80 GB, of which half of what 16.06 GB of weights leave: 237 sequences of 1024 tokens of 131,072 bytes."""
    system = H100.model_copy(update={"memory_bytes": 80_000_000_000})
    case = decode(batch=237, kvsl=1024, system="h100_sxm")
    verdict = fits(case, system, BARE)
    assert verdict.weight_bytes == 2 * 8_030_261_248
    assert verdict.kv_budget_bytes == (80_000_000_000 - 2 * 8_030_261_248) / 2
    assert verdict.bytes_per_sequence == 1024 * 131_072
    assert verdict.max_batch == 238
    assert verdict.fits
    assert not fits(decode(batch=239, kvsl=1024), system, BARE).fits


def test_how_much_is_missing() -> None:
    verdict = fits(decode(batch=1000, kvsl=1024), H100, BARE)
    budget = (H100.memory_bytes - 2 * 8_030_261_248) / 2
    assert verdict.short_by_bytes == 1000 * 1024 * 131_072 - budget
    assert verdict.text == (
        "92.7 GiB a GPU short: weights 15.0, activations 0.0, workspace 0.0, KV 125.0 GiB of 79.6, "
        "where 32.3 GiB are left for KV"
    )


def test_of_total_takes_the_weights_out_of_the_fraction() -> None:
    of_total = dataclasses.replace(BARE, kv_fraction=0.9, fraction_of="total")
    verdict = fits(decode(), H100, of_total)
    assert verdict.kv_budget_bytes == pytest.approx(0.9 * H100.memory_bytes - 2 * 8_030_261_248)


def test_weights_alone_can_be_too_much() -> None:
    """Then all that is too much is missing, not half of it."""
    verdict = fits(decode(batch=1, kvsl=1024, layers=80, hidden=8192, q_heads=64, ffn=28672), H100, BARE)
    excess = 2 * 70_553_706_496 - H100.memory_bytes
    assert verdict.short_by_bytes == excess + 80 * 2 * 8 * 128 * 2 * 1024
    assert not verdict.fits
    assert (verdict.max_batch, verdict.max_tokens) == (0, 0)
    assert "where 0.0 GiB are left for KV" in verdict.text


def test_sequences_that_cost_nothing_have_no_limit() -> None:
    assert fits(decode(attention="none"), H100, BARE).max_batch is None
    assert fits(decode(attention="none"), H100).max_batch is not None


def test_sequences_take_whole_blocks() -> None:
    assert fits(decode(batch=1, kvsl=33), H100, BARE).kv_bytes == 64 * 131_072


def test_prefill_and_serving_cache_what_they_read_and_write() -> None:
    assert fits(prefill(batch=2, isl=1024), H100, BARE).kv_bytes == 2 * 1024 * 131_072
    served = Case(
        variant=variant(), workload={"phase": "serve", "isl": 1024, "osl": 512, "concurrency": 4}, system="h100_sxm"
    )
    assert fits(served, H100, BARE).kv_bytes == 4 * 1536 * 131_072


def test_ranks_under_attention_dp_have_their_own_sequences() -> None:
    alone, spread = decode(batch=8, kvsl=1024), over(decode(batch=8, kvsl=1024), tp=8, attention_dp=True)
    assert fits(spread, H100, BARE).kv_bytes == fits(alone, H100, BARE).kv_bytes / 8
    assert fits(spread, H100, BARE).max_batch == 8 * (fits(alone, H100, BARE).max_batch or 0)


@given(st.integers(1, 300), st.sampled_from(["bf16", "fp8", "nvfp4"]), st.sampled_from([1, 2, 4, 8]))
def test_the_batch_that_fits_fits_and_one_more_does_not(kvsl_blocks: int, kv_format: str, tp: int) -> None:
    def asked(batch: int) -> Case:
        return over(decode(batch=batch, kvsl=32 * kvsl_blocks, kv_format=kv_format), tp=tp)

    most = fits(asked(1), B200).max_batch
    assert most is not None
    assert fits(asked(most), B200).fits
    assert not fits(asked(most + 1), B200).fits


def test_activations_by_the_stated_rule() -> None:
    """2 · tokens · width · 5 at tp 8 for a dense model, 10 with experts; at least 70 MiB."""
    assert activation_bytes(variant(), 8192, 8) == 2 * 8192 * 4096 * 5
    assert activation_bytes(variant(), 8192, 16) == activation_bytes(variant(), 8192, 8)
    # Qwen3-235B: 64 heads of 128 are wider than its hidden size
    assert activation_bytes(moe_235b("fp8"), 8192, 1) == 2 * 8192 * 8192 * 22
    assert activation_bytes(variant(), 1, 1) == 70 * 1024**2


def test_cuda_sees_less_than_the_driver_reports() -> None:
    assert fits(decode(), B200).visible_bytes / GIB == pytest.approx(178.35, abs=0.05)
    assert fits(decode(), H100).visible_bytes < H100.memory_bytes


def test_rules_are_dated_and_complete(tmp_path: Path) -> None:
    assert memory_rules().kv_fraction == 0.9
    (tmp_path / "rules.yaml").write_text("activations: {minimum_bytes: 1}\n")
    with pytest.raises(UnreadableInput, match="no 'visible_fraction'"):
        read_memory_rules(tmp_path / "rules.yaml")


# What would help


def test_the_widest_kv_format_that_fits_is_named() -> None:
    """88.1 GB hold 656 sequences of 134.2 MB in bf16, 1312 in FP8, 2333 in NVFP4, for which an H100 has no kernels."""
    assert fits(decode(batch=656, kvsl=1024), B200, BARE).fits
    assert remedies(decode(batch=1000, kvsl=1024), B200, BARE).kv_format == "fp8"
    assert remedies(decode(batch=2000, kvsl=1024), B200, BARE).kv_format == "nvfp4"
    assert remedies(decode(batch=3000, kvsl=1024), B200, BARE).kv_format is None
    assert remedies(decode(batch=1000, kvsl=1024), H100, BARE).kv_format is None


def test_no_kv_format_is_a_remedy_for_fp32() -> None:
    """Lint says what is: all of it in bf16."""
    case = decode(batch=4096, kvsl=32768, weights="fp32", kv_format="fp32", attn_format="fp32")
    assert remedies(case, load_system("h200_sxm")) == Remedies(kv_format=None, parallelism=None)


def test_the_fewest_gpus_that_fit_are_named() -> None:
    case = decode(batch=1000, kvsl=1024)
    found = remedies(case, H100, BARE).parallelism
    assert found == Parallelism(tp=4)
    assert fits(case.model_copy(update={"parallelism": found}), H100, BARE).fits
    assert not fits(over(case, tp=2), H100, BARE).fits


def test_where_tp_only_duplicates_helix_helps_on_blackwell_and_stages_elsewhere() -> None:
    """Beyond tp 8 every further rank holds the same 8 KV heads again."""
    long = over(decode(batch=64, kvsl=262_144, q_heads=64), tp=8)
    assert remedies(long, B200, BARE).parallelism == Parallelism(tp=8, cp=4)
    assert remedies(long, H100, BARE).parallelism == Parallelism(tp=8, pp=8)


def test_experts_spread_with_their_ranks() -> None:
    case = over(
        Case(variant=moe_235b("bf16"), workload={"phase": "decode", "batch": 1, "kvsl": 1024}, system="h100_sxm"),
        tp=4,
        ep=4,
    )
    assert remedies(case, H100).parallelism == Parallelism(tp=8, ep=8)


def test_a_rejection_is_one_sentence() -> None:
    assert rejection(decode(), H100) is None
    told = rejection(decode(batch=1000, kvsl=1024), H100, BARE)
    assert told is not None
    assert told.startswith("92.7 GiB a GPU short: weights 15.0")
    assert told.endswith("; fits with tp 4")
