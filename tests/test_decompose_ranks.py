"""A case taken apart on one of many ranks: what is split, what is repeated, and what ranks send each other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from shapes import decode, prefill, variant

from harness.cost.collectives import (
    COLLECTIVES,
    AllGather,
    AllReduce,
    ExpertCombine,
    ExpertDispatch,
    HelixAllToAll,
    PointToPoint,
    ReduceScatter,
)
from harness.cost.decompose import PhaseLevel, decompose
from harness.cost.kv_cache import kv_bytes_per_sequence, kv_bytes_per_token
from harness.cost.ops import BatchedGemm, DecodeAttention, Gemm, Kernel, Moe, PrefillAttention
from harness.cost.ranks import duplicated_kv_heads, rank_shape
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant

LLAMA_70B: dict[str, Any] = {"layers": 80, "hidden": 8192, "q_heads": 64, "ffn": 28672}
QWEN_235B: dict[str, Any] = {
    "layers": 94, "hidden": 4096, "q_heads": 64, "kv_heads": 4, "ffn": 0, "vocab": 151936,
    "experts": {"count": 128, "top_k": 8, "inter": 1536},
}  # fmt: skip
DEEPSEEK_V3: dict[str, Any] = {
    "layers": 61, "hidden": 7168, "q_heads": 128, "kv_heads": 128, "ffn": 18432, "vocab": 129280,
    "attention": "mla", "mla": {},
    "experts": {"count": 256, "top_k": 8, "inter": 2048, "shared_inter": 2048, "dense_layers": 3},
}  # fmt: skip
GIB = 1 << 30


def over(case: Case, **split: Any) -> Case:
    return case.model_copy(update={"parallelism": Parallelism(**split)})


def shapes_of(case: Case, level: PhaseLevel = "model") -> dict[str, tuple[int, Kernel]]:
    return {op.name: (op.count, op.kernel) for op in decompose(case, level)}


def exchanges(case: Case, level: PhaseLevel = "layer") -> dict[str, tuple[int, Kernel]]:
    return {name: one for name, one in shapes_of(case, level).items() if isinstance(one[1], COLLECTIVES)}


def flops(case: Case) -> float:
    return sum(op.flops for op in decompose(case, "layer"))


# Tensor parallelism


def test_a_dense_decode_step_over_eight_ranks() -> None:
    ops = shapes_of(over(decode(batch=8, weights="fp8", kv_format="fp8", **LLAMA_70B), tp=8))
    assert list(ops) == [
        "embedding",
        "embedding.all_reduce",
        "layer.norms",
        "layer.attn.qkv_proj",
        "layer.attn.attention",
        "layer.attn.o_proj",
        "layer.attn.all_reduce",
        "layer.ffn.gate_up",
        "layer.ffn.activation",
        "layer.ffn.down",
        "layer.ffn.all_reduce",
        "final_norm",
        "lm_head",
        "lm_head.all_gather",
    ]
    assert ops["layer.attn.qkv_proj"] == (80, Gemm(8, (8 + 2 * 1) * 128, 8192, "fp8_static"))
    assert ops["layer.attn.attention"] == (80, DecodeAttention(8, 4096, 8, 1, 128, "fp8"))
    assert ops["layer.attn.o_proj"] == (80, Gemm(8, 8192, 8 * 128, "fp8_static", input_cast_fused=True))
    assert ops["layer.attn.all_reduce"] == ops["layer.ffn.all_reduce"] == (80, AllReduce(8 * 8192, 8))
    assert ops["layer.ffn.gate_up"] == (80, Gemm(8, 2 * 3584, 8192, "fp8_static"))
    assert ops["layer.ffn.down"] == (80, Gemm(8, 8192, 3584, "fp8_static", input_cast_fused=True))
    assert ops["lm_head"] == (1, Gemm(8, 16032, 8192, "bf16"))
    assert ops["lm_head.all_gather"] == (1, AllGather(8 * 128256, 8))


def test_a_vocabulary_that_does_not_divide_is_padded() -> None:
    ops = shapes_of(over(decode(batch=1, vocab=50257), tp=8))
    assert ops["lm_head"] == (1, Gemm(1, 6283, 4096, "bf16"))
    assert ops["lm_head.all_gather"] == (1, AllGather(8 * 6283, 8))


def test_eight_ranks_hold_four_kv_heads_twice() -> None:
    """ceil(4/8)·8 − 4 = 4 heads again; each rank has 64/8 query heads on one KV head, as at tp 4 per KV head 16."""
    shape = variant(kv_heads=4, **LLAMA_70B)
    assert duplicated_kv_heads(shape, Parallelism(tp=8)) == 4
    assert duplicated_kv_heads(shape, Parallelism(tp=4)) == 0
    assert rank_shape(shape, Parallelism(tp=8)).group_size == 8
    assert rank_shape(shape, Parallelism(tp=4)).group_size == 16
    assert kv_bytes_per_token(shape, Parallelism(tp=8)) == kv_bytes_per_token(shape, Parallelism(tp=4))
    assert 8 * kv_bytes_per_token(shape, Parallelism(tp=8)) == 2 * kv_bytes_per_token(shape)


@pytest.mark.parametrize(
    ("split", "text"),
    [
        ({"tp": 3}, "32 query heads do not divide by tp 3; 1, 2, 4, 8, 16, 32 do"),
        ({"tp": 4, "cp": 3}, "32 query heads do not divide by tp·cp 12"),
        ({"tp": 2, "pp": 33}, "pp 33 needs a layer per stage, but the variant has 32"),
        ({"pp": 2, "pp_partition": (16, 15)}, "pp_partition adds up to 31 layers, but the variant has 32"),
        ({"tp": 2, "cp": 2, "attention_dp": True}, "attention DP together with Helix is not costed"),
    ],
)
def test_an_impossible_split_is_said(split: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        decompose(over(decode(), **split))


def test_kv_heads_and_ffn_must_divide_too() -> None:
    with pytest.raises(ValueError, match="6 KV heads and tp 4: neither divides the other"):
        decompose(over(decode(q_heads=48, kv_heads=6), tp=4))
    with pytest.raises(ValueError, match="ffn 14337 does not divide by tp 2"):
        decompose(over(decode(ffn=14337), tp=2))


# Helix


def test_helix_splits_the_cache_and_repeats_the_projections() -> None:
    ops = shapes_of(over(decode(batch=2, kvsl=131072, **LLAMA_70B), tp=4, cp=2))
    assert ops["layer.attn.qkv_proj"] == (80, Gemm(2, (16 + 2 * 2) * 128, 8192, "bf16"))
    assert ops["layer.attn.attention"] == (80, DecodeAttention(2, 65536, 16, 2, 128, "bf16"))
    assert ops["layer.attn.all_to_all"] == (80, HelixAllToAll(2, 16, 128, 2))
    assert ops["layer.attn.o_proj"] == (80, Gemm(2, 8192, 8 * 128, "bf16"))
    assert ops["layer.attn.all_reduce"] == ops["layer.ffn.all_reduce"] == (80, AllReduce(2 * 8192, 8))
    assert ops["layer.ffn.down"] == (80, Gemm(2, 8192, 3584, "bf16"))
    assert ops["lm_head"] == (1, Gemm(2, 16032, 8192, "bf16"))


@pytest.mark.parametrize(("kvsl", "kept"), [(1, 1), (32, 32), (33, 32), (64, 32), (65, 64), (1_000_000, 500_000)])
def test_the_slowest_rank_has_a_block_more(kvsl: int, kept: int) -> None:
    """Blocks of 32 tokens over two ranks; 1,000,000 tokens are 31,250 blocks."""
    _, kernel = shapes_of(over(decode(kvsl=kvsl), tp=1, cp=2))["layer.attn.attention"]
    assert isinstance(kernel, DecodeAttention)
    assert kernel.kvsl == kept


def test_helix_against_tensor_parallelism_at_a_million_tokens() -> None:
    """48 layers, 4 KV heads of 128 in FP8: tp 8 holds 12,288 bytes a token on each GPU, tp 4 · kvp 2 half of that."""
    shape = variant(layers=48, q_heads=64, kv_heads=4, kv_format="fp8")
    wide, helix = Parallelism(tp=8), Parallelism(tp=4, cp=2)
    assert kv_bytes_per_sequence(shape, 1_000_000, wide) / GIB == pytest.approx(11.44, abs=5e-3)
    assert kv_bytes_per_sequence(shape, 1_000_000, helix) / GIB == pytest.approx(5.72, abs=5e-3)
    asked = Case(variant=shape, workload={"phase": "decode", "batch": 1, "kvsl": 1_000_000}, system="gb200")
    read = [
        sum(op.count * op.kernel.kv_bytes for op in decompose(asked.model_copy(update={"parallelism": split})))
        for split in (wide, helix)
    ]
    assert read == [12_288_000_000, 6_144_000_000]


def test_latent_attention_under_helix() -> None:
    """The latent is whole on each tp rank; heads are expanded only after the exchange."""
    ops = shapes_of(over(decode(batch=4, kvsl=65536, **DEEPSEEK_V3), tp=2, cp=4))
    assert ops["layer.attn_mla.down_proj"] == (61, Gemm(4, 1536 + 576, 7168, "bf16"))
    assert ops["layer.attn_mla.q_proj"] == (61, Gemm(4, 64 * 192, 1536, "bf16"))
    assert ops["layer.attn_mla.q_absorb"] == (61, BatchedGemm(64, 4, 512, 128))
    assert ops["layer.attn_mla.attention"] == (
        61, DecodeAttention(4, 16384, 64, 1, 576, "bf16", value_dim=512, latent=True)
    )  # fmt: skip
    assert ops["layer.attn_mla.all_to_all"] == (61, HelixAllToAll(4, 64, 512, 4))
    assert ops["layer.attn_mla.v_expand"] == (61, BatchedGemm(16, 4, 128, 512))
    assert ops["layer.attn_mla.o_proj"] == (61, Gemm(4, 7168, 16 * 128, "bf16"))


@given(st.integers(1, 1_000_000), st.integers(1, 1_000_000), st.sampled_from([(4, 2), (2, 4), (1, 8)]))
def test_what_helix_exchanges_does_not_depend_on_kvsl(some: int, other: int, split: tuple[int, int]) -> None:
    tp, cp = split
    sent = [exchanges(over(decode(kvsl=kvsl), tp=tp, cp=cp))["layer.attn.all_to_all"] for kvsl in (some, other)]
    assert sent[0] == sent[1]


def test_draft_tokens_widen_the_exchange_but_not_the_cache() -> None:
    ops = shapes_of(over(decode(batch=8, kvsl=4096, workload={"draft_len": 3}), tp=4, cp=2))
    assert ops["layer.attn.attention"] == (32, DecodeAttention(8, 2048, 8, 2, 128, "bf16", query_len=4))
    assert ops["layer.attn.all_to_all"] == (32, HelixAllToAll(32, 8, 128, 2))


def test_sliding_layers_spread_their_window() -> None:
    case = over(decode(kvsl=65536, attention=["sliding", "full"], window=1024), cp=2)
    _, kernel = shapes_of(case)["layer.attn_sliding.attention"]
    assert isinstance(kernel, DecodeAttention)
    assert kernel.seen == 512


def test_helix_is_for_decode() -> None:
    with pytest.raises(ValueError, match="Helix splits the KV cache in decode only"):
        decompose(over(prefill(), tp=2, cp=2))


# Experts


def test_experts_without_attention_dp_need_one_sum() -> None:
    """Every rank has all tokens: with ep 8 as with moe_tp 8 an AllReduce is all there is."""
    for split in ({"tp": 8, "ep": 8}, {"tp": 8}, {"tp": 8, "ep": 2}):
        found = exchanges(over(decode(batch=64, **QWEN_235B), **split))
        assert found == {
            "layer.attn.all_reduce": (94, AllReduce(64 * 4096, 8)),
            "layer.moe.all_reduce": (94, AllReduce(64 * 4096, 8)),
        }
    kernel = Moe(64, 4096, 1536, 8, 128, "bf16", ep=2, tp=4)
    assert shapes_of(over(decode(batch=64, **QWEN_235B), tp=8, ep=2))["layer.moe.experts"] == (94, kernel)


def test_wide_ep_is_attention_dp_and_ep() -> None:
    """64 sequences over 8 ranks: 8 each, whole heads; the experts see all 64."""
    ops = shapes_of(over(decode(batch=64, weights="nvfp4", **QWEN_235B), tp=8, ep=8, attention_dp=True))
    assert ops["layer.attn.qkv_proj"] == (94, Gemm(8, (64 + 2 * 4) * 128, 4096, "nvfp4"))
    assert ops["layer.attn.attention"] == (94, DecodeAttention(8, 4096, 64, 4, 128, "bf16"))
    assert ops["layer.moe.router"] == (94, Gemm(8, 128, 4096, "bf16"))
    assert ops["layer.moe.dispatch"] == (94, ExpertDispatch(8, 4096, 8, 128, 8, "nvfp4"))
    assert ops["layer.moe.experts"] == (94, Moe(64, 4096, 1536, 8, 128, "nvfp4", ep=8))
    assert ops["layer.moe.combine"] == (94, ExpertCombine(8, 4096, 8, 128, 8, "nvfp4"))
    assert ops["lm_head"] == (1, Gemm(8, 151936, 4096, "bf16"))
    assert not [op for op in ops if "all_reduce" in op or op.startswith("lm_head.")]


def test_the_fullest_rank_counts() -> None:
    """65 sequences over 8 ranks: one has 9."""
    ops = shapes_of(over(decode(batch=65, **QWEN_235B), tp=8, ep=8, attention_dp=True))
    assert ops["layer.moe.router"] == (94, Gemm(9, 128, 4096, "bf16"))
    assert ops["layer.moe.experts"] == (94, Moe(65, 4096, 1536, 8, 128, "bf16", ep=8))


def test_cut_experts_gather_all_tokens_under_attention_dp() -> None:
    found = exchanges(over(decode(batch=64, weights="fp8", **QWEN_235B), tp=8, ep=2, attention_dp=True))
    assert found == {
        "layer.moe.all_gather": (94, AllGather(64 * 4096, 8, "fp8_static")),
        "layer.moe.reduce_scatter": (94, ReduceScatter(64 * 4096, 8)),
    }


def test_a_dense_ffn_is_whole_under_attention_dp() -> None:
    case = over(decode(batch=64), tp=8, attention_dp=True)
    assert shapes_of(case)["layer.ffn.down"] == (32, Gemm(8, 4096, 14336, "bf16"))
    assert exchanges(case, "model") == {}


@pytest.mark.parametrize(("weights", "tp", "inter"), [("bf16", 8, 256), ("fp8_block", 32, 128), ("nvfp4", 64, 32)])
def test_a_shared_expert_is_cut_along_its_scale_blocks(weights: str, tp: int, inter: int) -> None:
    """2048 values are 16 blocks of 128, so tp 32 cuts them 16 ways and holds each part twice."""
    shape = {**DEEPSEEK_V3, "experts": {**DEEPSEEK_V3["experts"], "dense_layers": 0}}
    ops = shapes_of(over(decode(batch=1, weights=weights, **shape), tp=tp, ep=tp))
    _, kernel = ops["layer.moe.shared.down"]
    assert isinstance(kernel, Gemm)
    assert kernel.k == inter


def test_256_experts_on_72_ranks_are_288_slots() -> None:
    case = decode(batch=72, **DEEPSEEK_V3)
    with pytest.raises(ValueError, match=r"256 experts do not divide by ep 72; slots 288 \(EPLB\) do"):
        decompose(over(case, tp=72, ep=72, attention_dp=True))
    with pytest.raises(ValueError, match="slots 252 are fewer than the 256 experts"):
        decompose(over(case, tp=72, ep=72, attention_dp=True, slots=252))
    _, kernel = shapes_of(over(case, tp=72, ep=72, attention_dp=True, slots=288))["layer.moe.experts"]
    assert isinstance(kernel, Moe)
    assert (kernel.ep, kernel.slots, kernel.resident_bytes / kernel.expert_bytes) == (72, 288, 4)


@pytest.mark.parametrize("routing", ["power_law_1.01", "power_law_1.2"])
def test_eplb_is_part_of_the_routing(routing: str) -> None:
    case = decode(batch=64, workload={"routing": routing}, **DEEPSEEK_V3)
    wide = {"tp": 8, "ep": 8, "attention_dp": True}
    for slots, told in ((None, routing), (256, f"{routing}_eplb"), (288, f"{routing}_eplb")):
        _, kernel = shapes_of(over(case, **wide, slots=slots))["layer.moe.experts"]
        assert isinstance(kernel, Moe)
        assert kernel.routing == told


@pytest.mark.parametrize(("per_rank", "distinct"), [(1, 52), (8, 126)])
def test_distinct_experts_follow_the_tokens_of_the_group(per_rank: int, distinct: int) -> None:
    """8 ranks with 1 or 8 tokens each read 52 or 126 of 128 experts between them."""
    case = over(decode(batch=8 * per_rank, **QWEN_235B), tp=8, ep=8, attention_dp=True)
    _, kernel = shapes_of(case)["layer.moe.experts"]
    assert isinstance(kernel, Moe)
    assert round(kernel.distinct_experts) == distinct


# Prefill and pipelines


def test_prefill_under_attention_dp_takes_its_own_prompts() -> None:
    ops = shapes_of(over(prefill(batch=4, isl=1024), tp=4, attention_dp=True))
    assert ops["layer.attn.attention"] == (32, PrefillAttention(1, 1024, 0, 32, 8, 128, "bf16", "bf16"))
    assert ops["lm_head"] == (1, Gemm(1, 128256, 4096, "bf16"))


def test_a_pass_through_all_stages() -> None:
    """Hidden states and residual cross three boundaries; otherwise the layers are those of one GPU."""
    whole, split = shapes_of(decode(batch=8)), shapes_of(over(decode(batch=8), pp=4))
    assert split.pop("pipeline.send") == (3, PointToPoint(2 * 8 * 4096, gpus=2))
    assert split == whole


@pytest.mark.parametrize(
    "split", [{}, {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "moe_tp": 1}, {"attention_dp": True}, {"pp_partition": (32,)}]
)
@pytest.mark.parametrize("shape", [{}, QWEN_235B, DEEPSEEK_V3])
def test_one_gpu_is_one_gpu_however_it_is_asked_for(split: dict[str, Any], shape: dict[str, Any]) -> None:
    layers = {**shape, "layers": 32}
    for case in (decode(**layers), prefill(batch=2, workload={"chunk": 1024}, **layers)):
        alone = decompose(over(case, **split))
        assert alone == decompose(case)
        assert not any(isinstance(op.kernel, COLLECTIVES) for op in alone)


SPLITS = st.builds(
    lambda tp, cp, ep: {"tp": tp, "cp": cp, "ep": ep},
    st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]),
)  # fmt: skip


@given(SPLITS, st.integers(1, 16), st.integers(0, 3), st.sampled_from([{}, QWEN_235B]))
def test_ranks_add_up_to_the_model_and_what_they_repeat(
    split: dict[str, int], batch: int, draft_len: int, shape: dict[str, Any]
) -> None:
    """Repeated: Q, K, V projections over cp, KV heads beyond KH over tp, the router on every rank. Nothing else."""
    gpus = split["tp"] * split["cp"]
    assume(gpus <= 32 and gpus % split["ep"] == 0)
    case = decode(batch=batch, kvsl=4096, workload={"draft_len": draft_len}, **shape)
    model, tokens, tp, cp = case.variant, batch * (1 + draft_len), split["tp"], split["cp"]
    column = 2.0 * tokens * model.hidden * model.layers
    kv_heads = max(model.kv_heads, tp)  # powers of two: those beyond KH are held again
    repeated = column * model.head_dim * (cp * (model.q_heads + 2 * kv_heads) - model.q_heads - 2 * model.kv_heads)
    if model.experts:
        repeated += column * model.experts.count * (gpus - 1)
    over_all_ranks = gpus * flops(over(case, **split))
    assert over_all_ranks == pytest.approx(flops(case) + repeated, rel=1e-12)


@given(st.sampled_from([2, 4, 8]), st.integers(1, 8), st.sampled_from([{}, QWEN_235B]))
def test_attention_dp_repeats_nothing(tp: int, per_rank: int, shape: dict[str, Any]) -> None:
    case = decode(batch=tp * per_rank, **shape)
    assert tp * flops(over(case, tp=tp, ep=tp, attention_dp=True)) == pytest.approx(flops(case), rel=1e-12)


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([1, 2, 4]), st.integers(1, 1 << 20))
def test_kv_read_over_all_ranks_is_the_models_and_the_duplicated_heads(tp: int, cp: int, blocks: int) -> None:
    assume(tp * cp <= 32)
    case = decode(batch=1, kvsl=blocks * 32 * cp)
    shape: Variant = case.variant
    heads = 1 + duplicated_kv_heads(shape, Parallelism(tp=tp)) / shape.kv_heads
    read = [sum(op.count * op.kernel.kv_bytes for op in decompose(one)) for one in (case, over(case, tp=tp, cp=cp))]
    assert tp * cp * read[1] == pytest.approx(heads * read[0], rel=1e-12)


@pytest.mark.parametrize(
    "case",
    [
        over(decode(batch=64, **DEEPSEEK_V3), tp=8, ep=8, pp=2),
        over(decode(batch=64, **DEEPSEEK_V3), tp=8, ep=8, attention_dp=True),
        over(decode(attention=["sliding", "full", "none"], window=8), tp=2, cp=2, pp=2),
    ],
    ids=lambda case: case.parallelism.label,
)
def test_names_are_unique_within_a_pass(case: Case) -> None:
    names = [op.name for op in decompose(case)]
    assert len(names) == len(set(names))
