"""Kernel names find their bucket, every composed op has one, and every rule says where it was read."""

from __future__ import annotations

import re

import pytest
from shapes import MOE, decode, over, prefill

from harness.cost.decompose import decompose
from harness.errors import UsageError
from harness.profiles.buckets import BUCKETS_FILE, UNKNOWN, BucketTable, kernel_buckets
from harness.spec.base import parse
from harness.spec.case import Case

TABLE = kernel_buckets()


@pytest.mark.parametrize(
    ("name", "bucket"),
    [
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<...>()", "communication"),
        ("void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<8>()", "communication"),
        ("moeAllToAllKernel(MoeCommFieldInfo)", "communication"),
        ("helixAllToAllKernel", "communication"),
        ("fmhaSm100fKernel_QkvE4m3OBfloat16H128PagedKvCausal", "attention"),
        ("kernel_mha", "attention"),
        ("void tensorrt_llm::kernels::applyMLARopeAndAssignQKVKernelGeneration<...>", "attention"),
        ("tensorrt_llm::kernels::helix_postprocess_kernel<half>", "attention"),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<...>>", "attention"),
        ("void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<...>", "attention"),
        ("bmm_E2m1_E2m1E2m1_Fp32_t128x8x512_s6_et64x8_m64x8x64_cga1x1x1_16dp256b_swiGlu", "moe"),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<x>>>",
            "moe",
        ),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>>>", "gemm"),
        ("cute_dsl_kernels::blockscaled_contiguous_grouped_gemm_swiglu_fusion", "moe"),
        ("tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<x>", "moe"),
        ("moe::dev::routing::routingDeepSeek::routingIndicesClusterKernel<x>", "moe"),
        ("deepseek_v3_topk_kernel", "moe"),
        ("nvjet_sm100_tst_128x64_64x8_2x1_v_bz_TNT", "gemm"),
        ("void cublasLt::splitKreduce_kernel<32, 16>", "gemm"),
        ("void deep_gemm::sm100_fp8_gemm_1d1d_impl<x>", "gemm"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "gemm"),
        ("void cutlass::GemmLaunchHelper<x>", "gemm"),  # no MLA, although its small letters hold one
        ("void flashinfer::norm::FusedAddRMSNormKernel<8>", "norm"),
        ("void silu_and_mul_kernel<x>", "norm"),
        ("_silu_and_mul_post_quant_kernel", "norm"),
        ("void tensorrt_llm::kernels::quantize_with_block_size<x>", "quantise"),
        ("cvt_fp16_to_fp4", "quantise"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>", "elementwise"),
        ("triton_poi_fused_mul_squeeze_0", "elementwise"),
        ("[CUDA memcpy Device-to-Host]", "copy"),
        ("Memset (Device)", "copy"),
        ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<x>", UNKNOWN),
        ("void acme::mysteryKernel<float>", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_names_and_buckets(name: str, bucket: str) -> None:
    assert TABLE.of_kernel(name) == bucket


def test_copies_are_told_by_their_kind_and_not_by_their_name() -> None:
    assert TABLE.of_kernel("Device-to-Host", "memcpy") == "copy"


MLA = {"mla": {"kv_lora_rank": 512, "q_lora_rank": 1536}}
CASES = [
    decode(),
    prefill(),
    over(decode(), tp=4),
    over(decode(kvsl=65536), tp=2, cp=2),
    over(decode(), pp=2),
    decode(**MOE),
    over(decode(**MOE), tp=4, ep=4),
    over(decode(**MOE), tp=4, ep=4, attention_dp=True),
    over(prefill(**MOE), tp=4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_composed_op_has_a_bucket_that_fits_its_category(case: Case) -> None:
    fitting = {
        "attention": {"attention"}, "projection": {"gemm"}, "ffn": {"gemm", "norm"}, "moe": {"moe", "gemm", "norm"},
        "norm": {"norm"}, "embedding": {"elementwise"}, "lm_head": {"gemm"}, "communication": {"communication"},
    }  # fmt: skip
    for op in decompose(case):
        assert TABLE.of_op(op.name) in fitting[op.category], op.name


def test_every_name_of_an_op_in_the_code_has_a_bucket() -> None:
    """Also those that need a rare case: every op named in harness/cost is found by a bucket."""
    source = "".join(path.read_text() for path in (BUCKETS_FILE.parents[1] / "cost").glob("*.py"))
    ends = set(re.findall(r'"(?:layer|\{name\})\.[a-z_.]+"', source.replace('f"', '"')))
    assert len(ends) > 15
    names = [end.strip('"').replace("{name}", "layer.attn_mla") for end in ends]
    groups = {"layer.attn", "layer.attn_sliding", "layer.attn_mla", "layer.ffn", "layer.moe.shared"}
    assert [name for name in names if name not in groups and TABLE.of_op(name) is None] == []


def test_every_rule_compiles_and_gives_its_evidence() -> None:
    assert TABLE.read.year >= 2026
    for rule in TABLE.rules:
        re.compile(rule.name)
        assert len(rule.evidence) > 10


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"bucket": "nowhere", "name": "x", "evidence": "y"}, "no such bucket: nowhere"),
        ({"bucket": "a", "name": "(", "evidence": "y"}, "unterminated subpattern"),
        ({"bucket": "a", "name": "x", "evidence": ""}, "evidence"),
    ],
)
def test_a_bad_table_is_refused(rule: dict[str, str], message: str) -> None:
    data = {"read": "2026-11-30", "buckets": {"a": {"title": "A", "computes": True}}, "rules": [rule]}
    with pytest.raises(UsageError, match=message):
        parse(BucketTable, data, "table")
