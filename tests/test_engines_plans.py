from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path

import pytest
from engines import spec

from harness.engines.engine_spec import engine_spec
from harness.engines.plans import (
    PlanFailed,
    PlanSizes,
    PlanSpec,
    build_arguments,
    build_plan,
    check_version,
    checkpoint_config,
    plan_is_whole,
    read_plan,
    this_gpu,
)
from harness.engines.store import EngineStore
from harness.errors import EnvironmentUnfit, UsageError
from harness.spec.load import load_variant
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant, WeightFormats

DENSE = load_variant("dense-8b")
SIZES = PlanSizes(max_batch_size=8, max_num_tokens=8192, max_seq_len=4096)


def checkpoint(variant: Variant, split: Parallelism | None = None, architecture: str | None = None) -> dict:
    engine = engine_spec(variant, architecture=architecture)
    config = json.loads(engine.files["config.json"])
    return checkpoint_config(variant, engine.architecture, config, split or Parallelism())


# ---- versions


@pytest.mark.parametrize("version", ["1.2.1", "1.3.0rc7", "1.3.0rc20", "1.3.0rc21"])
def test_versions_that_may_still_build_plans_are_let_through(version):
    check_version(version)


@pytest.mark.parametrize("version", ["1.3.0rc23", "1.3.0rc24", "1.3.0", "1.4"])
def test_versions_without_the_backend_say_what_is_known_of_its_removal_and_what_to_use(version):
    with pytest.raises(UsageError) as caught:
        check_version(version)
    text = str(caught.value)
    assert f"TensorRT-LLM {version} builds no TensorRT plans" in text
    assert "gone since 1.3.0rc23, last seen in 1.3.0rc20" in text
    assert "docs/source/legacy/tensorrt-backend-removal.md" in text
    assert "Use --engine pytorch" in text


# ---- the checkpoint configuration


def test_a_dense_model_has_the_fields_that_tensorrt_llms_own_conversion_writes():
    split = Parallelism(tp=4, pp=2)
    assert checkpoint(DENSE, split) == {
        "architecture": "LlamaForCausalLM",
        "dtype": "bfloat16",
        "logits_dtype": "float32",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_size": 128,
        "max_position_embeddings": 131072,
        "position_embedding_type": "rope_gpt_neox",
        "rotary_base": 1e6,
        "norm_epsilon": 1e-6,
        "hidden_act": "silu",
        "attn_bias": False,
        "tie_word_embeddings": False,
        "mapping": {"world_size": 8, "tp_size": 4, "pp_size": 2, "moe_tp_size": 4, "moe_ep_size": 1},
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
    }


def test_a_model_with_experts_names_them_and_their_split():
    found = checkpoint(load_variant("moe-235b"), Parallelism(tp=8, ep=4))

    assert found["architecture"] == "Qwen3MoeForCausalLM"
    assert found["qwen_type"] == "qwen3_moe"
    assert found["hidden_act"] == "swiglu"
    assert found["moe"] == {"num_experts": 128, "top_k": 8, "normalization_mode": 1}
    assert found["intermediate_size"] == found["moe_intermediate_size"] == 1536
    assert found["mapping"] == {"world_size": 8, "tp_size": 8, "pp_size": 1, "moe_tp_size": 2, "moe_ep_size": 4}


@pytest.mark.parametrize(
    ("weights", "kv_format", "expected"),
    [
        ("bf16", "bf16", {"quant_algo": None, "kv_cache_quant_algo": None}),
        ("bf16", "fp8", {"quant_algo": None, "kv_cache_quant_algo": "FP8"}),
        (
            "nvfp4",
            "fp8",
            {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]},
        ),
    ],
)
def test_formats_become_algorithms(weights, kv_format, expected):
    formats = WeightFormats(attention=weights, ffn=weights, experts=weights)
    variant = DENSE.model_copy(update={"weights": formats, "kv_format": kv_format})
    assert checkpoint(variant)["quantization"] == expected


@pytest.mark.parametrize(
    ("changes", "split", "reason"),
    [
        ({"kv_format": "nvfp4"}, {}, "kv_format nvfp4 is not established in a plan; there are bf16, fp8"),
        ({"weights": WeightFormats(attention="bf16", ffn="nvfp4")}, {}, "weights are bf16 and nvfp4"),
        (
            {"weights": WeightFormats(attention="fp8_block", ffn="fp8_block")},
            {},
            "weights fp8_block are not established",
        ),
        ({}, {"tp": 2, "cp": 2}, "parallelism.cp: Helix is part of the PyTorch backend only"),
        ({}, {"tp": 2, "attention_dp": True}, "parallelism.attention_dp: attention data parallelism is part of"),
        ({}, {"pp": 2, "pp_partition": (20, 12)}, "parallelism.pp_partition: uneven pipeline stages is part of"),
        ({"attention": ("sliding", "full"), "window": 1024}, {}, "attention is full, sliding; these models have full"),
    ],
)
def test_what_a_plan_cannot_be_is_refused_by_field(changes, split, reason):
    with pytest.raises(UsageError) as caught:
        checkpoint(DENSE.model_copy(update=changes), Parallelism(**split))
    assert any(reason in finding for finding in caught.value.findings), caught.value.findings
    assert all(finding.endswith("; use --engine pytorch") for finding in caught.value.findings)


def test_every_reason_is_given_at_once():
    wrong = DENSE.model_copy(update={"kv_format": "nvfp4", "weights": WeightFormats(attention="bf16", ffn="nvfp4")})
    with pytest.raises(UsageError) as caught:
        checkpoint(wrong, Parallelism(tp=2, cp=2, attention_dp=True))
    assert len(caught.value.findings) == 4


def test_deepseek_is_no_model_of_the_builder():
    mla = Variant.model_validate(
        {**DENSE.model_dump(), "attention": "mla", "mla": {}, "kv_heads": 32, "weights": "bf16", "kv_format": "bf16"}
    )
    with pytest.raises(UsageError, match="DeepseekV3ForCausalLM is no model that trtllm-build knows; it knows Llama"):
        checkpoint(mla)


def test_the_builder_is_told_the_configuration_and_the_sizes_of_the_workloads(tmp_path):
    arguments = build_arguments(tmp_path / "checkpoint.json", tmp_path, SIZES)
    told = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert told == {
        "--model_config": str(tmp_path / "checkpoint.json"),
        "--output_dir": str(tmp_path),
        "--max_batch_size": "8",
        "--max_num_tokens": "8192",
        "--max_input_len": "4096",
        "--max_seq_len": "4096",
        "--kv_cache_type": "paged",
        "--log_level": "warning",
    }


# ---- building, with a stand-in for trtllm-build that writes files of the right names


BUILDER = """
import json, sys
from pathlib import Path
told = dict(zip(sys.argv[1::2], sys.argv[2::2]))
config = json.loads(Path(told["--model_config"]).read_text())
output = Path(told["--output_dir"])
print("building", config["architecture"])
if config["vocab_size"] == 13:
    print("RuntimeError: 13 is no vocabulary")
    raise SystemExit(1)
ranks = config["mapping"]["world_size"] - (config["vocab_size"] == 12)
for rank in range(ranks):
    (output / f"rank{rank}.engine").write_bytes(b"plan")
(output / "config.json").write_text(json.dumps({"version": "1.2.1", "pretrained_config": config}))
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands, the only one on PATH, with a builder and a machine of two equal GPUs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    put(folder / "trtllm-build", BUILDER)
    put(folder / "nvidia-smi", 'print("NVIDIA H200\\nNVIDIA H200")')
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put(path: Path, code: str) -> None:
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(code)}")
    path.chmod(0o755)


def plan(**changes) -> PlanSpec:
    split = {"world_size": 2, "tp_size": 2}
    return PlanSpec({"architecture": "L", "vocab_size": 11, "mapping": split, **changes}, SIZES, "1.2.1", "NVIDIA H200")


def test_a_plan_is_built_beside_its_engine_once(tmp_path, commands):
    store = EngineStore(tmp_path / "store")
    key = store.build(spec()).engine.key

    folder, outcome = build_plan(store, key, "tp2", plan())
    assert (outcome, build_plan(store, key, "tp2", plan())) == ("built", (folder, "kept"))
    assert store.plans(key) == [folder]
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint.json",
        "config.json",
        "manifest.json",
        "rank0.engine",
        "rank1.engine",
    ]
    assert read_plan(folder)["gpu"] == "NVIDIA H200"
    assert str(tmp_path) not in "".join(path.read_text() for path in folder.iterdir())


@pytest.mark.parametrize(
    "other",
    [
        plan(vocab_size=14),
        PlanSpec(plan().checkpoint, SIZES._replace(max_batch_size=9), "1.2.1", "NVIDIA H200"),
        PlanSpec(plan().checkpoint, SIZES, "1.3.0rc7", "NVIDIA H200"),
        PlanSpec(plan().checkpoint, SIZES, "1.2.1", "NVIDIA B200"),
    ],
)
def test_another_configuration_size_version_or_gpu_is_another_plan(tmp_path, commands, other):
    store = EngineStore(tmp_path / "store")
    assert build_plan(store, spec().key, "tp2", plan())[0] != build_plan(store, spec().key, "tp2", other)[0]
    assert len(store.plans(spec().key)) == 2


def test_a_damaged_plan_is_built_anew(tmp_path, commands):
    store = EngineStore(tmp_path / "store")
    folder, _ = build_plan(store, spec().key, "tp2", plan())
    (folder / "rank1.engine").unlink()
    assert not plan_is_whole(folder)

    assert build_plan(store, spec().key, "tp2", plan()) == (folder, "rebuilt")
    assert plan_is_whole(folder)


@pytest.mark.parametrize(
    ("vocab_size", "message"),
    [
        (13, r"trtllm-build ended with 1: building L \| RuntimeError: 13 is no vocabulary"),
        (12, r"trtllm-build wrote no rank1\.engine: building L"),
    ],
)
def test_a_builder_that_fails_leaves_no_plan_and_says_what_it_said(tmp_path, commands, vocab_size, message):
    store = EngineStore(tmp_path / "store")
    with pytest.raises(PlanFailed, match=message) as caught:
        build_plan(store, spec().key, "tp2", plan(vocab_size=vocab_size))
    assert caught.value.exit_code == 3
    assert list((store.home(spec().key) / "plans").iterdir()) == []


def test_the_gpu_is_the_machines(commands):
    assert this_gpu() == "NVIDIA H200"


def test_what_is_missing_on_the_machine_is_said(commands):
    put(commands / "nvidia-smi", "raise SystemExit(9)")
    with pytest.raises(EnvironmentUnfit, match="nvidia-smi finds no GPU"):
        this_gpu()
    (commands / "nvidia-smi").unlink()
    with pytest.raises(EnvironmentUnfit, match="no nvidia-smi on PATH"):
        this_gpu()
    (commands / "trtllm-build").unlink()
    with pytest.raises(
        EnvironmentUnfit, match=r"trtllm-build is not on PATH; it comes with TensorRT-LLM up to 1\.3\.0rc20"
    ):
        this_gpu()
    assert os.environ["PATH"] == str(commands)
