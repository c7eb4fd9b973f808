"""Plans of the torch backend that need no PyTorch: layers, experts' loads, formats, the memory's ceiling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.backends.base import CannotAnswer
from harness.backends.torch_ops.ceiling import Ceiling
from harness.backends.torch_ops.formats import check_alignment, check_formats
from harness.backends.torch_ops.routing import expert_load
from harness.backends.torch_ops.sizing import plan_layers
from harness.cost.decompose import decompose
from harness.spec.case import Case

MIB, GIB = 1 << 20, 1 << 30
DENSE = {"layers": 8, "hidden": 1024, "q_heads": 8, "kv_heads": 2, "head_dim": 128, "ffn": 2048, "vocab": 64}
#: One layer in bf16: 1024 x (1024 + 512) + 1024 x 1024 + 3 x 1024 x 2048 weights.
WEIGHTS = 2 * (1024 * 1536 + 1024 * 1024 + 3 * 1024 * 2048)
#: KV of 4096 tokens: two heads of 128 for keys, as many for values.
KV = 2 * 2 * 2 * 128 * 4096


def make_case(workload=None, **changes):
    work = workload or {"phase": "decode", "batch": 1, "kvsl": 4096}
    return Case.model_validate({"variant": {**DENSE, **changes}, "workload": work, "system": "h200_sxm"})


def plan(case, cache=MIB, free=80 * GIB, most=None):
    return plan_layers(case, 0, cache, free, 80 * GIB, most)


def test_four_layers_run_where_memory_allows_and_count_for_all():
    found = plan(make_case())
    assert (found.layers, found.scale) == ((0, 1, 2, 3), 2.0)
    assert found.weights == 4 * WEIGHTS
    assert found.kv == 4 * (KV + KV // 4096)  # the new token's KV too
    assert found.read == 4 * (WEIGHTS + KV)
    assert found.beyond_cache


def test_more_run_until_the_cache_is_full_four_times_and_never_more_than_there_are():
    needed = 4 * 25 * MIB / (WEIGHTS + KV)
    assert 4 < needed < 5
    assert len(plan(make_case(), cache=25 * MIB).layers) == 5

    small = plan(make_case(), cache=GIB)
    assert (len(small.layers), small.scale, small.beyond_cache) == (8, 1.0, False)


def test_an_arm_takes_no_more_than_its_share_of_memory_once_the_cache_is_full():
    long = make_case({"phase": "decode", "batch": 64, "kvsl": 65536})  # 4 GiB of KV a layer, a tenth of 80 is 8
    assert len(plan(long).layers) == 1


def test_fewer_run_where_less_is_free_and_one_that_does_not_fit_is_out_of_memory():
    long = make_case({"phase": "decode", "batch": 8, "kvsl": 65536})  # 512 MiB of KV a layer
    assert len(plan(long).layers) == 4
    assert len(plan(long, free=1.3 * GIB).layers) == 2
    with pytest.raises(
        CannotAnswer, match=r"1 layers need 0\.5\d GiB \(weights 0\.02, KV 0\.50, .* and 0\.25 of 80\.00 GiB are free"
    ):
        plan(long, free=GIB / 4)


def test_kinds_of_layers_run_in_the_models_proportion():
    mixed = make_case(attention=["sliding", "sliding", "sliding", "full"], window=128)
    found = plan(mixed)
    assert [kind.attention for kind in found.kinds] == ["sliding", "sliding", "sliding", "full"]
    assert found.scale == 2.0
    # Sliding layers see 127 cached tokens and themselves.
    assert found.kv == pytest.approx((3 * 128 + 4097) / 4096 * KV)


def test_one_dense_layer_of_many_makes_all_run():
    experts = {"count": 8, "top_k": 2, "inter": 256, "dense_layers": 1}
    found = plan(make_case(experts=experts), most=1)
    assert [kind.sparse for kind in found.kinds] == [False] + 7 * [True]
    assert found.scale == 1.0


def test_experts_that_no_token_goes_to_are_held_and_not_read():
    experts = {"count": 8, "top_k": 2, "inter": 256}
    found = plan(make_case({"phase": "decode", "batch": 3, "kvsl": 4096}, experts=experts, ffn=0), most=1)
    one = 2 * 3 * 1024 * 256
    dense = 2 * (1024 * 1536 + 1024 * 1024 + 8 * 1024)
    assert found.weights == dense + 8 * one
    assert found.read == dense + 6 * one + 3 * KV


def test_chunks_read_weights_again_but_do_not_fill_a_cache():
    found = plan(make_case({"phase": "prefill", "batch": 1, "isl": 64, "chunk": 16}), cache=10 * MIB, most=1)
    assert found.read > 4 * WEIGHTS > 2 * 10 * MIB
    assert WEIGHTS < 2 * 10 * MIB
    assert not found.beyond_cache


def test_a_balanced_load_deals_out_evenly():
    assert expert_load("balanced", 8, 2, 4, 0).counts == (4, 4, 4, 4)
    assert expert_load("balanced", 3, 2, 4, 0).counts == (2, 2, 1, 1)
    assert expert_load("balanced", 1, 8, 128, 0).touched == 8


@given(
    routing=st.sampled_from(["balanced", "power_law_1.01", "power_law_1.2"]),
    tokens=st.integers(1, 300),
    experts=st.integers(1, 64),
    share=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_every_choice_goes_to_an_expert_and_none_gets_a_token_twice(routing, tokens, experts, share, seed):
    top_k = max(1, int(share * experts))
    load = expert_load(routing, tokens, top_k, experts, seed)
    assert sum(load.counts) == tokens * top_k
    assert 0 <= min(load.counts) <= max(load.counts) <= tokens
    assert load == expert_load(routing, tokens, top_k, experts, seed)


def test_a_power_law_is_skewed():
    loads = [expert_load("power_law_1.2", 4096, 8, 128, seed) for seed in range(20)]
    assert all(max(load.counts) > 3 * 4096 * 8 / 128 for load in loads)


FP8 = {"weights": "fp8", "kv_format": "bf16", "attn_format": "bf16"}
PREFILL = {"phase": "prefill", "batch": 1, "isl": 64}


def ops_of(workload=None, **changes):
    return decompose(make_case(workload, **changes), "layer")


def test_a_gpu_runs_bf16_fp32_and_where_it_can_fp8_weights():
    fp32 = {"weights": "fp32", "kv_format": "fp32", "attn_format": "fp32"}
    assert check_formats(ops_of(), (8, 0)) == "bfloat16"
    assert check_formats(ops_of(**fp32), (9, 0)) == "float32"
    assert check_formats(ops_of(**FP8), (9, 0)) == "bfloat16"
    # What prefill attention computes in is no question of a decode step.
    assert check_formats(ops_of(attn_format="fp8"), (9, 0)) == "bfloat16"


@pytest.mark.parametrize(
    ("workload", "changes", "capability", "reason"),
    [
        (None, FP8, (8, 0), "in FP8: this GPU's compute capability 8.0 has no FP8"),
        (None, {"kv_format": "fp8"}, (9, 0), "KV cache in fp8: PyTorch's attention kernels take bf16 and fp32"),
        (PREFILL, {"attn_format": "fp8"}, (9, 0), "prefill attention in fp8: PyTorch's"),
        (None, {"weights": "nvfp4"}, (10, 0), "layer.attn.qkv_proj in nvfp4: this backend runs no NVFP4 GEMM"),
        (None, {"weights": "fp8_block"}, (9, 0), "layer.attn.qkv_proj in fp8_block: PyTorch has no GEMM"),
        (None, {"kv_format": "fp32"}, (9, 0), "fp32 and bf16 in one model are not run"),
        (None, {}, None, "torch on a processor runs fp32 only, and the case has bf16 (layer.attn.qkv_proj, KV cache"),
    ],
)
def test_formats_that_cannot_be_are_named_and_not_emulated(workload, changes, capability, reason):
    with pytest.raises(CannotAnswer) as refused:
        check_formats(ops_of(workload, **changes), capability)
    assert reason in refused.value.reason
    assert refused.value.status == "unsupported"


def test_fp8_weights_come_in_multiples_of_16():
    check_alignment(ops_of(**FP8))
    with pytest.raises(CannotAnswer, match=r"layer\.ffn\.gate_up: an FP8 GEMM takes multiples of 16, not 2050"):
        check_alignment(ops_of(**FP8, ffn=1025))


def test_an_iteration_is_judged_by_the_fastest_that_memory_ever_was():
    measured = iter([100e9, 150e9])
    ceiling = Ceiling(lambda: next(measured))

    assert ceiling.judge(1e9, 10) == ""  # 100 GB/s
    assert ceiling.judge(1.5e9, 10) == ""  # 150 GB/s: memory is measured again, and was only slow
    assert ceiling.bytes_per_s == 150e9


def test_and_one_beyond_it_did_not_read_what_it_says():
    ceiling = Ceiling(lambda: 100e9)
    assert ceiling.judge(1.04e9, 10) == ""  # within the scatter of the ceiling
    assert ceiling.judge(2e9, 10) == (
        "2.000 GB of weights and KV in 10 ms are 200.0 GB/s, and memory gives 100.0 GB/s at most here: "
        "not all of it was read"
    )
