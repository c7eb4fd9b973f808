"""Every rule of lint by example: a question that breaks exactly this rule, and a change that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import decode, variant

from harness.cost.remedies import rejection
from harness.errors import UsageError
from harness.hardware import known_systems, load_system
from harness.lint import Finding, Settings, Target, lint, lint_case, target_of, verdict
from harness.lint.facts import rulebook
from harness.lint.registry import CHECKS, rule
from harness.spec.parallelism import Parallelism
from harness.spec.workload import Decode, Prefill, Serve

PHASES = {"prefill": Prefill, "decode": Decode, "serve": Serve}


def ask(
    gpu: str = "b200_sxm", split: dict[str, Any] | None = None, workload: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None, version: str | None = None, strict: bool = False, **shape: Any,
) -> list[Finding]:  # fmt: skip
    """Lint the 8B shape of `shapes`, in bf16 on one B200 unless said otherwise."""
    asked = workload and PHASES[workload["phase"]](**workload)
    # A parallelism that the spec itself refuses is judged all the same.
    ways = Parallelism.model_construct(**split) if split else Parallelism()
    return lint(
        variant(**shape), ways, load_system(gpu),
        workload=asked or None, version=version, strict=strict, settings=Settings(**(settings or {})), deployed=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Example:
    """`bad` breaks one rule; `mend` changes it to break none. `says` and `works` are parts of the message."""

    bad: dict[str, Any]
    mend: dict[str, Any]
    value: int | str
    limit: str
    says: str
    works: str


MLA = {"attention": "mla", "mla": {}, "q_heads": 128, "kv_heads": 1}
MOE = {"experts": {"count": 96, "top_k": 8, "inter": 1536}}
DECODE = {"phase": "decode", "batch": 8, "kvsl": 4096}

EXAMPLES = {
    "q-heads-per-kv-head": Example(
        {"kv_heads": 6}, {"kv_heads": 8},
        32, "a multiple of kv_heads 6", "not a whole number", "kv_heads 4, 8, or q_heads 30, 36",
    ),
    "q-heads-split": Example(
        {"split": {"cp": 3}, "ffn": 14400}, {"q_heads": 48},
        32, "a multiple of tp·cp 3", "whole query heads", "q_heads 24, 48",
    ),
    "kv-heads-split": Example(
        {"q_heads": 48, "kv_heads": 6, "ffn": 16384, "split": {"tp": 4}}, {"split": {"tp": 2}},
        4, "a divisor or a multiple of kv_heads 6", "neither divides the other", "tp 1, 2",
    ),
    # 2 bytes · 2 · 128 values · 32 layers = 16,384 bytes a token for one head; each of 8 ranks holds one of the 4.
    "kv-heads-duplicated": Example(
        {"kv_heads": 4, "split": {"tp": 8}}, {"split": {"tp": 4}},
        8, "at most kv_heads 4", "hold 131,072 bytes a token for 65,536 unique, 65,536 wasted", "tp 1, 2, 4",
    ),
    # (512 + 64) values · 2 bytes · 32 layers
    "mla-latent-replicated": Example(
        {**MLA, "split": {"tp": 8}}, {"split": {"tp": 8, "attention_dp": True}},
        8, "1 to hold the latent once", "each of the 8 ranks holds all 36,864 bytes a token", "attention_dp",
    ),
    "head-size-multiple": Example(
        {"head_dim": 100}, {"head_dim": 128},
        100, "a multiple of 8", "no list of fused kernels either (64, 80, 128, 256, 512)", "pad to head_dim 128",
    ),
    "head-size-unsupported": Example(
        {"head_dim": 192}, {"head_dim": 256},
        192, "other than 192 on b200_sxm (sm 100)", "Unsupported HeadDim for BMM2-N 192", "pad to head_dim 256",
    ),
    "head-size-unfused": Example(
        {"head_dim": 96}, {"head_dim": 128},
        96, "one of 64, 80, 128, 256, 512 with bf16 KV on b200_sxm (sm 100)", "in silence", "pad to head_dim 128",
    ),
    "group-size-cliff": Example(
        {"q_heads": 64, "kv_heads": 1}, {"kv_heads": 2},
        64, "at most 32 on each rank in decode", "take 7.6 to 114.8 times as long as with G 32, median 31.5",
        "kv_heads 2, or tp 2",
    ),
    "group-size-unlisted": Example(
        {"q_heads": 28, "kv_heads": 4}, {"q_heads": 32},
        7, "one of 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32", "may come from a fallback kernel", "q_heads 24, or kv_heads 7",
    ),
    "draft-rows-unmeasured": Example(
        {"workload": {**DECODE, "draft_len": 8}}, {"workload": {**DECODE, "draft_len": 7}},
        8, "at most 7 with G 4", "(1 + D) · G = 36 rows", "draft_len 7 or less",
    ),
    "nvfp4-gpu": Example(
        {"weights": "nvfp4", "gpu": "h200_sxm"}, {"weights": "fp8"},
        "nvfp4", "sm 100, 103, 120, 121; h200_sxm is sm 90", "weight-only", "weights fp8, fp8_block, bf16",
    ),
    "fp8-gpu": Example(
        {"weights": "fp8", "gpu": "a100_sxm"}, {"weights": "bf16"},
        "fp8", "sm 89, 90, 100, 103, 120, 121; a100_sxm is sm 80", "no FP8 tensor cores", "weights bf16",
    ),
    "fp8-block-gpu": Example(
        {"weights": "fp8_block", "gpu": "b200_sxm", "version": "0.21.0rc2"}, {"version": "1.2.1"},
        "fp8_block", "sm 90; b200_sxm is sm 100", "fp8 blockscale gemm only support Hopper", "weights nvfp4, fp8, bf16",
    ),
    "fp32-gpu": Example(
        {"attn_format": "fp32", "kv_format": "fp32"}, {"attn_format": "bf16", "kv_format": "bf16"},
        "fp32", "bf16 or narrower on a GPU", "none of its kernels was timed in it",
        "kv_format bf16, attn_format bf16, or system cpu",
    ),
    "kv-format-gpu": Example(
        {"kv_format": "nvfp4", "attn_format": "fp8", "weights": "fp8", "gpu": "rtx_pro_6000_server"},
        {"gpu": "b300_sxm"},
        "nvfp4", "sm 100, 103; rtx_pro_6000_server is sm 120", "only trtllm-gen has kernels", "kv_format fp8, bf16",
    ),
    "attention-format-gpu": Example(
        {"attn_format": "fp8", "kv_format": "fp8", "gpu": "a100_sxm"}, {"attn_format": "bf16"},
        "fp8", "sm 89, 90, 100, 103, 120, 121; a100_sxm is sm 80", "can only be enabled on those", "attn_format bf16",
    ),
    "fp8-attention-kv": Example(
        {"attn_format": "fp8"}, {"kv_format": "fp8"},
        "fp8", "bf16 where kv_format is bf16", "a cache that is quantised too", "kv_format fp8",
    ),
    "nvfp4-kv-attention": Example(
        {"kv_format": "nvfp4", "weights": "fp8"}, {"attn_format": "fp8"},
        "bf16", "fp8 where kv_format is nvfp4", "compute attention in FP8", "attn_format fp8",
    ),
    "nvfp4-kv-weights": Example(
        {"kv_format": "nvfp4", "attn_format": "fp8"}, {"weights": "fp8"},
        "bf16", "fp8", "documented with fp8 weights only", "weights fp8, or kv_format fp8",
    ),
    "dimension-split": Example(
        {"ffn": 14340, "split": {"tp": 8}}, {"split": {"tp": 4}},
        14340, "a multiple of tp 8", "14340 / tp 8 is no whole number", "tp 1, 2, 4, or ffn 14336, 14344",
    ),
    "nvfp4-alignment": Example(
        {"weights": "nvfp4", "ffn": 1856, "split": {"tp": 8}}, {"split": {"tp": 4}},
        "1856 / tp 8 = 232", "a multiple of 16", "16 values share one scale, and 232 mod 16 = 8", "tp 1, 2, 4",
    ),
    "fp8-block-alignment": Example(
        {"weights": "fp8_block", "ffn": 1536, "split": {"tp": 8}, "gpu": "h200_sxm"}, {"split": {"tp": 4}},
        "1536 / tp 8 = 192", "a multiple of 128", "192 mod 128 = 64", "tp 1, 2, 4",
    ),
    "fp8-alignment": Example(
        {"weights": "fp8", "ffn": 1864}, {"ffn": 1872},
        "1864", "a multiple of 16", "1864 mod 16 = 8", "ffn 1856, 1872",
    ),
    "experts-without-moe": Example(
        {"split": {"tp": 2, "ep": 2}}, {"split": {"tp": 2}},
        2, "left out for a dense variant", "there are no experts", "ep 1",
    ),
    "moe-ranks": Example(
        {**MOE, "split": {"tp": 4, "ep": 3, "moe_tp": 2}}, {"split": {"tp": 4, "ep": 2, "moe_tp": 2}},
        3, "such that ep · moe_tp = tp · cp = 4", "ep 3 · moe_tp 2 = 6",
        "ep 1 · moe_tp 4, ep 2 · moe_tp 2, ep 4 · moe_tp 1",
    ),
    # 256 experts at ep 72 are legal as 288 slots.
    "experts-split": Example(
        {"experts": {"count": 256, "top_k": 8, "inter": 2048}, "q_heads": 144, "kv_heads": 72, "ffn": 14400,
         "split": {"tp": 72, "ep": 72}},
        {"split": {"tp": 72, "ep": 72, "slots": 288}},
        256, "a multiple of ep 72", "256 experts over 72 ranks leave 40", "slots 288 (EPLB), or ep 1, 2, 4, 8",
    ),
    "slots-split": Example(
        {**MOE, "split": {"tp": 8, "ep": 8, "slots": 100}}, {"split": {"tp": 8, "ep": 8, "slots": 104}},
        100, "a multiple of ep 8", "the same number of expert slots", "slots 96, 104",
    ),
    "slots-too-few": Example(
        {**MOE, "split": {"tp": 8, "ep": 8, "slots": 88}}, {"split": {"tp": 8, "ep": 8, "slots": 96}},
        88, "at least the 96 experts", "a slot of its own", "slots 96",
    ),
    "moe-backend-version": Example(
        {**MOE, "settings": {"moe_backend": "wideep"}, "version": "1.3.0rc25"}, {"version": "1.3.0rc20"},
        "WIDEEP", "one of AUTO, CUTLASS, TRTLLM", "it was retired", "moe_backend AUTO, CUTLASS",
    ),
    "moe-backend-kernel": Example(
        {**MOE, "weights": "fp8_block", "settings": {"moe_backend": "CUTLASS"}},
        {"settings": {"moe_backend": "DEEPGEMM"}},
        "CUTLASS", "one that computes fp8_block experts on b200_sxm (sm 100)", "only on sm 90, sm 120",
        "moe_backend AUTO, TRTLLM, DEEPGEMM",
    ),
    "moe-backend-eplb": Example(
        {**MOE, "settings": {"moe_backend": "VANILLA"}, "split": {"tp": 8, "ep": 8, "slots": 104}}, {"settings": {}},
        "VANILLA", "one with EPLB, as slots is 104", "no expert load balancing", "moe_backend AUTO, CUTLASS",
    ),
    "helix-gpu": Example(
        {"split": {"cp": 2}, "gpu": "h200_sxm"}, {"gpu": "gb200"},
        2, "1 except on sm 100, 103; h200_sxm is sm 90", "softmax statistics", "cp 1",
    ),
    "helix-phase": Example(
        {"split": {"cp": 2}, "workload": {"phase": "prefill", "batch": 1, "isl": 8192}}, {"workload": DECODE},
        2, "1 in prefill", "prefill runs with cp 1", "cp 1, or a decode workload",
    ),
    "helix-attention": Example(
        {"split": {"cp": 2}, "version": "1.2.1"}, {"version": "1.3.0rc7"},
        "full", "one of mla under cp 2", "Helix of TensorRT-LLM 1.2.1 runs mla",
        "TensorRT-LLM 1.3.0rc7 or later, or cp 1",
    ),
    "helix-block-size": Example(
        {"split": {"cp": 2}, "settings": {"cp_tokens_per_block": 64}},
        {"settings": {"cp_tokens_per_block": 64, "tokens_per_block": 64}},
        64, "32, as kv_cache_config.tokens_per_block", "refuses the configuration", "cp_config.tokens_per_block 32",
    ),
    "helix-short-sequence": Example(
        {"split": {"cp": 4}, "workload": {**DECODE, "kvsl": 96}}, {"workload": {**DECODE, "kvsl": 128}},
        96, "at least cp · tokens_per_block = 128", "a rank owns no block of 32 tokens",
        "kvsl 128, or TensorRT-LLM 1.3.0rc21 or later",
    ),
    "helix-kv-heads": Example(
        {"kv_heads": 4, "split": {"tp": 8, "cp": 2}}, {"split": {"tp": 4, "cp": 2}},
        8, "at most kv_heads 4", "held twice, which Helix exists to avoid", "tp 1, 2, 4",
    ),
    "helix-attention-dp": Example(
        {"split": {"tp": 2, "cp": 2, "attention_dp": True}}, {"split": {"tp": 2, "cp": 2}},
        "true", "false under cp > 1", "share its FFN is not known", "attention_dp false, or cp 1",
    ),
    "idle-ranks": Example(
        {"split": {"tp": 8, "attention_dp": True}, "workload": {**DECODE, "batch": 3}}, {"workload": DECODE},
        3, "at least dp 8", "5 of 8 attention data-parallel ranks", "workload.batch 8",
    ),
    "stages-empty": Example(
        {"split": {"pp": 40}}, {"split": {"pp": 32}},
        40, "at most layers 32", "a pipeline stage would have no layer", "pp 32",
    ),
    "stages-partition": Example(
        {"split": {"pp": 4, "pp_partition": (7, 7, 8, 8)}}, {"split": {"pp": 4, "pp_partition": (8, 8, 8, 8)}},
        "7, 7, 8, 8", "a sum of layers 32", "its stages have 30 layers together", "pp_partition 8, 8, 8, 8",
    ),
    # 61 layers on 8 stages: 8 / 7.625
    "stages-uneven": Example(
        {"layers": 61, "split": {"pp": 8}}, {"layers": 64},
        61, "the same on each of pp 8 stages, not 8, 8, 8, 8, 8, 7, 7, 7",
        "8 layers for 7.625 on average, 1.049 times the mean", "pp 1",
    ),
    # 64 · 32,768 tokens of 131,072 bytes are 256 GiB, and 128 in FP8; 15 GiB of weights.
    "memory-fit": Example(
        {"workload": {**DECODE, "batch": 64, "kvsl": 32768}}, {"kv_format": "fp8"},
        "decode b 64 KVSL 32768", "the 178.3 GiB of b200_sxm", "KV 256.0 GiB of 178.3, where 143.8 GiB are left for KV",
        "kv_format fp8, or tp 2",
    ),
}  # fmt: skip


def test_every_rule_is_described_and_has_an_example() -> None:
    assert set(CHECKS) == set(rulebook().rules) == set(EXAMPLES)


@pytest.mark.parametrize("rule_id", EXAMPLES)
def test_a_bad_example_breaks_exactly_its_rule(rule_id: str) -> None:
    example = EXAMPLES[rule_id]

    [finding] = ask(**example.bad)

    assert (finding.rule, finding.severity) == (rule_id, rulebook().rules[rule_id].severity)
    assert (finding.variant, finding.value) == ("llama-8b", example.value)
    assert finding.limit.startswith(example.limit)
    assert example.says in finding.message
    assert finding.works.startswith(example.works)
    assert finding.message.startswith(f"llama-8b: {finding.field} is {finding.value} (limit: {finding.limit}): ")
    assert finding.message.endswith(f". Works: {finding.works}")
    assert finding.text == finding.message.removeprefix("llama-8b: ")


@pytest.mark.parametrize("rule_id", EXAMPLES)
def test_the_mended_example_breaks_none(rule_id: str) -> None:
    example = EXAMPLES[rule_id]

    assert ask(**{**example.bad, **example.mend}) == []


def test_two_rules_cannot_share_an_id() -> None:
    with pytest.raises(ValueError, match="two rules are called idle-ranks"):
        rule("idle-ranks")(CHECKS["idle-ranks"])


def test_everything_wrong_is_said_at_once_the_worst_first() -> None:
    findings = ask(
        gpu="h200_sxm", split={"tp": 8, "cp": 2, "ep": 8, "attention_dp": False}, weights="nvfp4", kv_format="nvfp4",
        q_heads=36, kv_heads=4, head_dim=100, ffn=1860, layers=2, workload={"phase": "prefill", "batch": 1, "isl": 16},
    )  # fmt: skip

    assert [finding.rule for finding in findings] == [
        "q-heads-split", "head-size-multiple", "nvfp4-gpu", "kv-format-gpu", "dimension-split", "helix-gpu",
        "helix-phase", "helix-kv-heads", "nvfp4-kv-attention", "nvfp4-kv-weights", "experts-without-moe",
    ]  # fmt: skip
    assert verdict(findings) == "error"


@pytest.mark.parametrize(("rule_id", "severity"), [(name, info.strict) for name, info in rulebook().rules.items()])
def test_strict_refuses_what_the_rules_name_and_nothing_else(rule_id: str, severity: str | None) -> None:
    [finding] = ask(**EXAMPLES[rule_id].bad, strict=True)

    assert finding.severity == (severity or rulebook().rules[rule_id].severity)
    assert (severity is not None) == (rule_id in {"kv-heads-duplicated", "head-size-unfused"})


def test_a_case_is_judged_on_its_own_system() -> None:
    case = decode(q_heads=64, kv_heads=1, system="h200_sxm")

    [finding] = lint_case(case)

    assert (
        "published rows on h200_sxm with G 64 take 6.6 to 45.4 times as long as with G 32, median 13.8"
        in finding.message
    )
    assert lint_case(decode(system="h200_sxm")) == []
    with pytest.raises(UsageError, match="unknown GPU 'h2000'"):
        lint_case(decode(system="h2000"))


def test_a_partition_may_make_stages_uneven() -> None:
    [finding] = ask(split={"pp": 2, "pp_partition": (15, 17)})

    assert finding.rule == "stages-uneven"
    assert "17 layers for 16 on average, 1.062 times the mean" in finding.message
    assert finding.works == "no pp_partition"


#: Weights of 131.4 GiB in bf16.
DENSE_70B = {"layers": 80, "hidden": 8192, "q_heads": 64, "ffn": 28672}


def test_without_a_workload_weights_that_leave_no_room_are_a_warning() -> None:
    [finding] = ask(gpu="h100_sxm", **DENSE_70B)

    assert (finding.rule, finding.severity, finding.field) == ("memory-fit", "warning", "weights")
    assert (finding.value, finding.limit) == ("131.4 GiB on a GPU", "the 79.1 GiB of h100_sxm")
    assert "where 0.0 GiB are left for KV" in finding.message
    assert finding.works == "tp 2"
    assert ask(gpu="h100_sxm", **DENSE_70B, split={"tp": 2}) == ask(gpu="b200_sxm", **DENSE_70B) == []


def test_a_plan_and_lint_tell_of_memory_alike() -> None:
    case = decode(batch=100_000, kvsl=32768)
    [finding] = lint_case(case, deployed=True)
    told = rejection(case, load_system("b200_sxm"))

    assert told is not None
    assert finding.message.endswith(f": {told}")
    assert told.endswith("; nothing up to 512 GPUs makes it fit")
    assert finding.works == ""


def test_memory_is_no_question_of_ops_and_layers_nor_of_a_gpu_without_any() -> None:
    question = {"workload": Decode(phase="decode", batch=100_000, kvsl=32768)}
    b200, bare = load_system("b200_sxm"), Target("b200_sxm", 100)

    assert lint(variant(), Parallelism(), b200, **question) == []
    assert lint(variant(), Parallelism(), bare, deployed=True, **question) == []
    assert lint_case(decode(batch=100_000)) == []


def test_memory_is_that_of_whole_blocks() -> None:
    """40,000 blocks of 32 tokens are 156 GiB, of one token 5."""
    work = {"phase": "decode", "batch": 40_000, "kvsl": 1}

    assert [finding.rule for finding in ask(workload=work)] == ["memory-fit"]
    assert ask(workload=work, settings={"tokens_per_block": 1}) == []


def test_prefill_is_not_asked_about_group_sizes() -> None:
    assert ask(q_heads=64, kv_heads=1, workload={"phase": "prefill", "batch": 1, "isl": 4096}) == []


def test_group_size_is_that_of_a_rank() -> None:
    assert [finding.value for finding in ask(q_heads=64, kv_heads=1)] == [64]
    assert [finding.rule for finding in ask(q_heads=64, kv_heads=1, split={"tp": 2})] == ["kv-heads-duplicated"]


def test_a_gpu_without_rows_takes_the_factor_of_its_sm() -> None:
    [finding] = ask(gpu="gh200", q_heads=64, kv_heads=1)

    assert "published rows on h100_sxm" in finding.message


# rc15 aborts at 192 on Hopper and rc20 has rows again; grouped kernels of Blackwell took 16 heads before 1.3.
@pytest.mark.parametrize(
    ("version", "question", "rules"),
    [
        ("1.3.0rc15", {"gpu": "h200_sxm", "head_dim": 192}, ["head-size-unsupported"]),
        ("1.3.0rc20", {"gpu": "h200_sxm", "head_dim": 192}, []),
        ("1.3.0rc10", {"gpu": "b200_sxm", "head_dim": 512}, ["head-size-unsupported"]),
        ("1.3.0rc20", {"gpu": "b200_sxm", "head_dim": 512}, []),
        (
            "1.3.0rc20",
            {"gpu": "b200_sxm", "head_dim": 512, "attn_format": "fp8", "kv_format": "fp8"},
            ["head-size-unfused"],
        ),
        ("1.3.0rc15", {"gpu": "b200_sxm", "head_dim": 80}, ["head-size-unfused"]),
        ("1.3.0rc16", {"gpu": "b200_sxm", "head_dim": 80}, []),
        ("1.2.1", {"gpu": "b200_sxm", "q_heads": 32, "kv_heads": 1}, ["group-size-cliff"]),
        ("1.3.0rc20", {"gpu": "b200_sxm", "q_heads": 32, "kv_heads": 1}, []),
        ("1.2.1", {"gpu": "h200_sxm", "q_heads": 32, "kv_heads": 1}, []),
        ("1.2.1", {"gpu": "l40s", "weights": "fp8_block"}, ["fp8-block-gpu"]),
        ("1.3.0rc20", {"gpu": "l40s", "weights": "fp8_block"}, []),
        ("1.2.1", {**MOE, "gpu": "b200_sxm", "weights": "fp8_block"}, ["moe-backend-kernel"]),
        ("1.3.0rc20", {**MOE, "gpu": "b200_sxm", "weights": "fp8_block"}, []),
        ("1.3.0rc20", {**MOE, "gpu": "l40s", "weights": "fp8_block", "layers": 8}, ["moe-backend-kernel"]),
        ("1.2.1", {**MLA, "split": {"cp": 2}}, []),
        ("1.3.0rc21", {"split": {"cp": 4}, "workload": {**DECODE, "kvsl": 96}}, []),
        ("1.2.1", {**MOE, "settings": {"moe_backend": "AUTO"}}, ["moe-backend-version"]),
        ("1.2.1", {**MOE, "settings": {"moe_backend": "WIDEEP"}}, []),
    ],
)
def test_facts_hold_for_their_versions(version: str, question: dict[str, Any], rules: list[str]) -> None:
    assert [finding.rule for finding in ask(**question, version=version)] == rules


def test_nvfp4_on_hopper_is_refused_in_other_words_where_a_build_falls_back() -> None:
    [older] = ask(gpu="h200_sxm", weights="nvfp4", version="1.3.0rc16")
    [later] = ask(gpu="h200_sxm", weights="nvfp4", version="1.3.0rc17")

    assert "FP4 Gemm not supported before Blackwell" in older.message
    assert "W4A16" not in older.message
    assert "it may run weight-only there (W4A16, dequantised to bf16 in every step)" in later.message
    assert (older.rule, older.severity, older.field) == (later.rule, later.severity, later.field)


@pytest.mark.parametrize("gpu", ["b200_sxm", "b300_sxm", "gb200", "gb300", "rtx_pro_6000_server"])
def test_every_blackwell_part_computes_nvfp4(gpu: str) -> None:
    assert ask(gpu=gpu, weights="nvfp4") == []


def test_fp8_kv_at_head_size_256_is_unfused_on_sm_120_alone() -> None:
    shape = {"head_dim": 256, "q_heads": 16, "kv_heads": 2, "kv_format": "fp8"}

    assert [finding.rule for finding in ask(gpu="rtx_pro_6000_server", **shape)] == ["head-size-unfused"]
    assert ask(gpu="b200_sxm", **shape) == ask(gpu="h200_sxm", **shape) == []


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'latest' is no TensorRT-LLM version; write it as 1\.3\.0rc20 or 1\.2\.1"):
        ask(version="latest")


sizes = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 16, 24, 32, 48, 64, 96, 128])
shapes = st.fixed_dictionaries(
    {
        "q_heads": sizes, "kv_heads": sizes, "head_dim": st.sampled_from([64, 72, 80, 96, 100, 128, 192, 256, 512]),
        "hidden": st.integers(16, 8192), "ffn": st.integers(1, 32768), "layers": st.integers(1, 100),
        "weights": st.sampled_from(["bf16", "fp8", "fp8_block", "nvfp4"]),
        "kv_format": st.sampled_from(["bf16", "fp8", "nvfp4"]), "attn_format": st.sampled_from(["bf16", "fp8"]),
        "experts": st.none() | st.builds(lambda n: {"count": n, "top_k": 1, "inter": 64 * n}, st.integers(1, 300)),
    }
)  # fmt: skip
splits = st.fixed_dictionaries(
    {
        "tp": st.integers(1, 16), "cp": st.integers(1, 4), "pp": st.integers(1, 8), "ep": st.integers(1, 16),
        "slots": st.none() | st.integers(1, 400), "attention_dp": st.booleans(),
    }
)  # fmt: skip
questions = st.fixed_dictionaries(
    {"gpu": st.sampled_from(known_systems()), "split": splits, "version": st.sampled_from([None, "1.2.1", "1.3.0rc26"])}
)


@given(shape=shapes, question=questions)
def test_any_question_is_answered_whole(shape: dict[str, Any], question: dict[str, Any]) -> None:
    findings = ask(**shape, **question)

    assert len(set(findings)) == len(findings)
    assert all(finding.message.startswith("llama-8b: ") and finding.limit for finding in findings)
    strict = {finding.rule for finding in ask(**shape, **question, strict=True) if finding.severity == "error"}
    assert {finding.rule for finding in findings if finding.severity == "error"} <= strict


#: What a smaller tp can mend.
MENDED_BY_TP = {
    "q-heads-split", "kv-heads-split", "kv-heads-duplicated", "dimension-split", "nvfp4-alignment",
    "fp8-block-alignment", "fp8-alignment", "helix-kv-heads",
}  # fmt: skip


@given(shape=shapes, question=questions)
def test_a_tp_that_is_said_to_work_does(shape: dict[str, Any], question: dict[str, Any]) -> None:
    for finding in ask(**shape, **question):
        if finding.rule in MENDED_BY_TP and finding.works.startswith("tp "):
            for tp in finding.works.partition(", or ")[0].removeprefix("tp ").split(", "):
                split = {**question["split"], "tp": int(tp)}
                assert finding.rule not in {one.rule for one in ask(**shape, **{**question, "split": split})}, (
                    finding,
                    tp,
                )


def test_all_that_is_fp32_is_one_finding_on_every_gpu() -> None:
    formats = {"weights": "fp32", "kv_format": "fp32", "attn_format": "fp32"}
    [b200], [h200] = (ask(gpu=gpu, **formats) for gpu in ("b200_sxm", "h200_sxm"))
    assert b200 == h200
    assert b200.field == "attn_format, kv_format, weights.attention, weights.ffn, weights.lm_head"
    assert b200.works == "weights bf16, kv_format bf16, attn_format bf16, or system cpu with a backend"
    [experts] = ask(**formats, experts={"count": 8, "top_k": 2, "inter": 1536})
    assert experts.rule == "fp32-gpu"


def test_of_a_cpu_only_what_is_impossible_everywhere_is_asked() -> None:
    """192 is a head size without kernels on GPUs, 6 KV heads cannot serve 32 query heads, 14340 / 8 is not whole."""
    shape = variant(kv_heads=6, head_dim=192, weights="nvfp4", ffn=14340)
    findings = lint(shape, Parallelism(tp=8), target_of("cpu"), workload=Decode(phase="decode", batch=1, kvsl=64))
    assert {finding.rule for finding in findings} == {"q-heads-per-kv-head", "kv-heads-split", "dimension-split"}
    assert lint_case(decode(system="cpu", weights="fp32", kv_format="fp32", head_dim=192)) == []
