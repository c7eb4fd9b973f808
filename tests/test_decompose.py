"""A case taken apart: which ops there are, and what they add up to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import decode, over, prefill

from harness.cost.decompose import decompose
from harness.cost.ops import DecodeAttention, Gemm, Moe, PrefillAttention
from harness.spec.case import Case


def shapes_of(case: Case, level: str = "model") -> dict[str, object]:
    return {op.name: (op.count, op.kernel) for op in decompose(case, "layer" if level == "layer" else "model")}


def total_flops(case: Case) -> float:
    return sum(op.flops for op in decompose(case, "layer"))


def test_a_dense_decode_step() -> None:
    ops = shapes_of(decode(batch=8, kvsl=4096, weights="fp8", kv_format="fp8"))
    assert list(ops) == [
        "embedding",
        "layer.norms",
        "layer.attn.qkv_proj",
        "layer.attn.attention",
        "layer.attn.o_proj",
        "layer.ffn.gate_up",
        "layer.ffn.activation",
        "layer.ffn.down",
        "final_norm",
        "lm_head",
    ]
    assert ops["layer.attn.qkv_proj"] == (32, Gemm(8, (32 + 2 * 8) * 128, 4096, "fp8_static"))
    assert ops["layer.attn.attention"] == (32, DecodeAttention(8, 4096, 32, 8, 128, "fp8"))
    assert ops["layer.attn.o_proj"] == (32, Gemm(8, 4096, 4096, "fp8_static", input_cast_fused=True))
    assert ops["layer.ffn.gate_up"] == (32, Gemm(8, 2 * 14336, 4096, "fp8_static"))
    assert ops["layer.ffn.down"] == (32, Gemm(8, 4096, 14336, "fp8_static", input_cast_fused=True))
    assert ops["lm_head"] == (1, Gemm(8, 128256, 4096, "bf16"))


def test_the_layer_level_has_no_embedding_and_no_head() -> None:
    assert not {"embedding", "final_norm", "lm_head"} & set(shapes_of(decode(), "layer"))


def test_prefill_asks_the_head_for_one_token_a_prompt() -> None:
    ops = shapes_of(prefill(batch=4, isl=1024))
    assert ops["layer.ffn.down"] == (32, Gemm(4096, 4096, 14336, "bf16"))
    assert ops["lm_head"] == (1, Gemm(4, 128256, 4096, "bf16"))


def test_chunked_prefill_is_a_pass_per_chunk() -> None:
    case = prefill(batch=2, isl=2500, workload={"chunk": 1024})
    attention = [op.kernel for op in decompose(case) if op.name == "layer.attn.attention"]
    assert [(one.chunk, one.past) for one in attention if isinstance(one, PrefillAttention)] == [
        (1024, 0),
        (1024, 1024),
        (452, 2048),
    ]
    assert sum(op.name == "lm_head" for op in decompose(case)) == 1
    assert total_flops(case) == pytest.approx(total_flops(prefill(batch=2, isl=2500)))


def test_projections_follow_head_dim_not_hidden() -> None:
    """Qwen3-4B: 32 heads of 128 on a hidden size of 2560."""
    ops = shapes_of(decode(hidden=2560, head_dim=128))
    assert ops["layer.attn.o_proj"] == (32, Gemm(8, 2560, 4096, "bf16"))


def test_draft_tokens_widen_every_gemm_but_not_the_cache() -> None:
    ops = shapes_of(decode(batch=8, workload={"draft_len": 3}))
    assert ops["layer.attn.attention"] == (32, DecodeAttention(8, 4096, 32, 8, 128, "bf16", query_len=4))
    assert ops["layer.attn.o_proj"] == (32, Gemm(32, 4096, 4096, "bf16"))


def test_layers_of_each_kind_are_counted() -> None:
    ops = shapes_of(decode(layers=6, attention=["sliding", "sliding", "full"], window=1024))
    assert ops["layer.attn_sliding.attention"] == (4, DecodeAttention(8, 4096, 32, 8, 128, "bf16", window=1024))
    assert ops["layer.attn.attention"] == (2, DecodeAttention(8, 4096, 32, 8, 128, "bf16"))


def test_layers_without_attention_have_an_ffn() -> None:
    ops = shapes_of(decode(layers=4, attention=["none", "none", "none", "full"]))
    assert ops["layer.attn.attention"] == (1, DecodeAttention(8, 4096, 32, 8, 128, "bf16"))
    assert ops["layer.ffn.down"] == (4, Gemm(8, 4096, 14336, "bf16"))


def test_mixture_of_experts() -> None:
    experts = {"count": 128, "top_k": 8, "inter": 1536, "shared_inter": 2048, "dense_layers": 2}
    ops = shapes_of(decode(experts=experts, weights="fp8"))
    assert ops["layer.ffn.down"] == (2, Gemm(8, 4096, 14336, "fp8_static", input_cast_fused=True))
    assert ops["layer.moe.router"] == (30, Gemm(8, 128, 4096, "bf16"))
    assert ops["layer.moe.experts"] == (30, Moe(8, 4096, 1536, 8, 128, "fp8_static"))
    assert ops["layer.moe.shared.down"] == (30, Gemm(8, 4096, 2048, "fp8_static", input_cast_fused=True))


def test_mla_prefill_at_192_and_decode_in_the_latent() -> None:
    shape = {"attention": "mla", "mla": {}, "q_heads": 128, "kv_heads": 128, "hidden": 7168}
    context = shapes_of(prefill(isl=1024, **shape))["layer.attn_mla.attention"]
    assert context == (32, PrefillAttention(1, 1024, 0, 128, 128, 192, "bf16", "bf16", value_dim=128))
    step = shapes_of(decode(**shape))["layer.attn_mla.attention"]
    assert step == (32, DecodeAttention(8, 4096, 128, 1, 576, "bf16", value_dim=512, latent=True))


def without_cast(case: Case) -> set[str]:
    return {op.name for op in decompose(case) if isinstance(op.kernel, Gemm) and op.kernel.input_cast_fused}


def test_who_writes_fp8_for_the_next_gemm() -> None:
    """Attention on a quantised cache and SwiGLU do; bf16 caches, Helix's merge, MLA and plain activations do not."""
    shape = {"weights": "fp8", "kv_format": "fp8"}
    o_proj, down = "layer.attn.o_proj", "layer.ffn.down"
    for ask in (decode, prefill):
        assert without_cast(ask(**shape)) == {o_proj, down}
        assert without_cast(ask(weights="fp8")) == {down}
        assert without_cast(ask(**shape, gated_ffn=False)) == {o_proj}
        assert without_cast(ask(**shape, attention="mla", mla={})) == {down}
        for other in ("bf16", "fp8_block", "nvfp4"):
            assert without_cast(ask(weights=other, kv_format="fp8")) == set()
    assert without_cast(over(decode(**shape), cp=2)) == {down}
    assert without_cast(over(decode(**shape), tp=2)) == {o_proj, down}
    experts = {"count": 128, "top_k": 8, "inter": 1536, "shared_inter": 2048}
    assert without_cast(decode(**shape, ffn=0, experts=experts)) == {o_proj, "layer.moe.shared.down"}


def test_in_an_fp32_model_all_is_fp32() -> None:
    """Norms, activation, router and head: twice the bytes of bf16 in every op."""
    fp32 = {"weights": "fp32", "kv_format": "fp32", "attn_format": "fp32"}
    for moe in ({}, {"ffn": 0, "experts": {"count": 128, "top_k": 8, "inter": 1536}}):
        for ask in (decode, prefill):
            pairs = list(zip(decompose(ask(**moe)), decompose(ask(**moe, **fp32)), strict=True))
            assert all(wide.hbm_bytes == 2 * narrow.hbm_bytes for narrow, wide in pairs)
            assert all((wide.name, wide.flops) == (narrow.name, narrow.flops) for narrow, wide in pairs)


@pytest.mark.parametrize("split", [{"tp": 2}, {"pp": 2}])
def test_exchanges_of_fp32_are_not_costed(split: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="an fp32 model is costed on one rank only"):
        decompose(over(decode(weights="fp32"), **split))


def test_names_are_unique_within_a_pass() -> None:
    names = [op.name for op in decompose(decode(attention=["sliding", "full", "none"], window=8))]
    assert len(names) == len(set(names))


@given(st.integers(1, 40), st.integers(1, 40))
def test_flops_and_bytes_are_additive_over_layers(some: int, more: int) -> None:
    def figures(layers: int) -> tuple[float, float]:
        ops = decompose(decode(layers=layers), "layer")
        return sum(op.flops for op in ops), sum(op.hbm_bytes for op in ops)

    both = figures(some + more)
    assert both == pytest.approx([a + b for a, b in zip(figures(some), figures(more), strict=True)])


def test_what_has_no_single_phase_is_said() -> None:
    served = Case(
        variant=decode().variant, workload={"phase": "serve", "isl": 1, "osl": 1, "concurrency": 1}, system="b200_sxm"
    )
    with pytest.raises(ValueError, match="no single phase"):
        decompose(served)
