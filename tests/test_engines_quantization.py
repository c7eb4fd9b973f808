"""Both files of a quantised engine say the same, and a foreign model's files are read or named."""

from __future__ import annotations

import fnmatch
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from shapes import variant

import harness
from harness.engines.hf_config import hf_config
from harness.engines.quantization import QuantFiles, quant_files, read_quantization
from harness.errors import UsageError
from harness.lint.check import lint
from harness.lint.subject import Target
from harness.spec.load import load_variant
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant, WeightFormats

PRODUCER = {"name": "trtllm-harness", "version": harness.__version__}
SMALL: dict[str, Any] = {"layers": 3, "hidden": 256, "q_heads": 4, "kv_heads": 2, "head_dim": 64, "ffn": 512}
EXPERTS = {"count": 8, "top_k": 2, "inter": 128}
LATENT: dict[str, Any] = {
    "attention": "mla",
    "mla": {"q_lora_rank": 96},
    "experts": {**EXPERTS, "shared_inter": 128, "dense_layers": 1},
}
SHAPES: dict[str, tuple[dict[str, Any], str | None]] = {
    "dense": ({}, None),
    "experts": ({"ffn": 0, "experts": EXPERTS}, None),
    "some experts": ({"experts": {**EXPERTS, "dense_layers": 1}}, None),
    "mixtral": ({"ffn": 0, "experts": EXPERTS}, "MixtralForCausalLM"),
    "latent": (LATENT, None),
}
WEIGHTS: list[Any] = [
    "bf16",
    "fp8",
    "fp8_block",
    "nvfp4",
    {"attention": "bf16", "ffn": "nvfp4", "experts": "nvfp4"},
    {"attention": "fp8", "ffn": "bf16", "experts": "bf16"},
    {"attention": "fp8_block", "ffn": "fp8_block", "experts": "bf16"},
    {"attention": "fp8", "ffn": "nvfp4", "experts": "nvfp4"},
    {"attention": "nvfp4", "ffn": "bf16", "experts": "fp8"},
]


def files_of(shape: Variant, architecture: str | None = None) -> QuantFiles:
    return quant_files(shape, hf_config(shape, architecture).architecture)


def write(folder: Path, shape: Variant, architecture: str | None = None, **leave_out: bool) -> Path:
    """A model folder with both files, or without one of them."""
    files, config = files_of(shape, architecture), dict(hf_config(shape, architecture).config)
    if files.quantization_config is not None and not leave_out.get("inline"):
        config["quantization_config"] = files.quantization_config
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if files.hf_quant_config is not None and not leave_out.get("beside"):
        (folder / "hf_quant_config.json").write_text(json.dumps(files.hf_quant_config))
    return folder


def test_bf16_needs_no_file() -> None:
    assert files_of(variant()) == QuantFiles(None, None)


def test_nvfp4_with_an_fp8_cache() -> None:
    files = files_of(variant(weights="nvfp4", kv_format="fp8", attn_format="fp8"))
    assert files.hf_quant_config == {
        "producer": PRODUCER,
        "quantization": {
            "quant_algo": "NVFP4",
            "group_size": 16,
            "kv_cache_quant_algo": "FP8",
            "exclude_modules": ["lm_head"],
        },
    }
    four_bits = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    assert files.quantization_config == {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "config_groups": {"group_0": {"input_activations": four_bits, "weights": four_bits, "targets": ["Linear"]}},
        "ignore": ["lm_head"],
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "producer": PRODUCER,
    }


def test_fp8_blocks_as_deepseek_spells_them() -> None:
    files = files_of(variant(**LATENT, weights="fp8_block"))
    bf16 = ["lm_head", "*kv_b_proj*", "*k_b_proj*", "*eh_proj", "*.mlp.gate"]
    assert files.hf_quant_config
    assert files.hf_quant_config["quantization"] == {
        "quant_algo": "FP8_BLOCK_SCALES",
        "group_size": 128,
        "kv_cache_quant_algo": None,
        "exclude_modules": bf16,
    }
    assert files.quantization_config == {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": bf16,
    }


def test_a_quantised_cache_alone() -> None:
    files = files_of(variant(kv_format="nvfp4", attn_format="fp8"))
    assert files.hf_quant_config
    assert files.hf_quant_config["quantization"]["quant_algo"] is None
    assert files.hf_quant_config["quantization"]["kv_cache_quant_algo"] == "NVFP4"
    assert files.quantization_config
    assert files.quantization_config["quant_algo"] is None
    assert files.quantization_config["kv_cache_scheme"] == "NVFP4"


def test_several_formats_are_named_module_by_module() -> None:
    shape = variant(**{**SMALL, **LATENT}, weights={"attention": "fp8", "ffn": "bf16", "experts": "nvfp4"})
    files = files_of(shape)
    assert files.hf_quant_config
    said = files.hf_quant_config["quantization"]
    assert said["quant_algo"] == "MIXED_PRECISION"
    fp8, nvfp4 = {"quant_algo": "FP8"}, {"quant_algo": "NVFP4", "group_size": 16}
    attention = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj")
    assert said["quantized_layers"] == {
        **{f"model.layers.{layer}.self_attn.{name}": fp8 for layer in range(3) for name in attention},
        **{f"model.layers.{layer}.mlp.experts": nvfp4 for layer in (1, 2)},
    }
    assert not files.notes
    several = {"attention": "fp8", "ffn": "bf16", "experts": "nvfp4"}
    assert "is not established" in files_of(variant(ffn=0, experts=EXPERTS, weights=several)).notes[0]


@pytest.mark.parametrize(
    ("shape", "weights", "bf16", "quantised"),
    [
        (
            "dense",
            {"attention": "bf16", "ffn": "nvfp4"},
            ["lm_head", "model.layers.0.self_attn.qkv_proj", "model.layers.2.self_attn.o_proj"],
            ["model.layers.0.mlp.gate_up_proj", "model.layers.2.mlp.down_proj"],
        ),
        (
            "dense",
            {"attention": "fp8", "ffn": "bf16"},
            ["lm_head", "model.layers.0.mlp.gate_up_proj", "model.layers.2.mlp.down_proj"],
            ["model.layers.0.self_attn.qkv_proj"],
        ),
        (
            "some experts",
            {"attention": "fp8", "ffn": "bf16", "experts": "fp8"},
            ["model.layers.0.mlp.gate_up_proj", "model.layers.1.mlp.gate"],
            ["model.layers.1.mlp.experts", "model.layers.1.mlp.experts.0.gate_proj"],
        ),
        (
            "mixtral",
            {"attention": "fp8", "experts": "bf16"},
            ["model.layers.0.block_sparse_moe.gate", "model.layers.0.block_sparse_moe.experts"],
            ["model.layers.0.self_attn.o_proj"],
        ),
        (
            "latent",
            "fp8",
            ["model.layers.0.self_attn.kv_b_proj", "model.layers.2.mlp.gate", "model.layers.3.eh_proj"],
            ["model.layers.0.self_attn.o_proj", "model.layers.1.mlp.shared_experts.gate_up_proj"],
        ),
        (
            "latent",
            {"attention": "fp8", "ffn": "bf16", "experts": "fp8"},
            ["model.layers.1.mlp.shared_experts.gate_up_proj", "model.layers.0.mlp.down_proj"],
            ["model.layers.1.mlp.experts"],
        ),
    ],
)
def test_exceptions_mean_the_modules_that_tensorrt_llm_has(
    shape: str, weights: Any, bf16: list[str], quantised: list[str]
) -> None:
    """Its names, with fused projections, against the patterns, as `fnmatch` does it there."""
    changes, architecture = SHAPES[shape]
    files = files_of(variant(**{**SMALL, **changes}, weights=weights), architecture)
    assert files.hf_quant_config
    patterns = files.hf_quant_config["quantization"]["exclude_modules"]
    for names, excluded in ((bf16, True), (quantised, False)):
        for name in names:
            assert any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) is excluded, name


@pytest.mark.parametrize(("shape", "kv"), list(itertools.product(SHAPES, ("bf16", "fp8", "nvfp4"))))
def test_the_files_agree_and_are_the_variant(shape: str, kv: str, tmp_path: Path) -> None:
    """Read from both, from the one beside alone, from the inline one alone."""
    changes, architecture = SHAPES[shape]
    for number, weights in enumerate(WEIGHTS):
        attn = "bf16" if kv == "bf16" else "fp8"
        model = variant(**{**SMALL, **changes}, weights=weights, kv_format=kv, attn_format=attn)
        groups = {"attention", "experts"} if model.experts else {"attention", "ffn"}
        groups |= {"ffn"} if model.experts and model.experts.dense_layers else set()
        for left_out in ({}, {"inline": True}, {"beside": True}):
            folder = tmp_path / f"{number}{'-'.join(left_out)}"
            found = read_quantization(write(folder, model, architecture, **left_out))
            assert found.kv_format == kv
            assert found.attn_format == attn
            assert {name: getattr(found.weights, name) for name in groups} == {
                name: getattr(model.weights, name) for name in groups
            }


def test_a_quantised_lm_head_is_refused() -> None:
    with pytest.raises(UsageError, match=r"weights\.lm_head is fp8, and TensorRT-LLM quantises no lm_head"):
        files_of(variant(weights={"lm_head": "fp8"}))


@pytest.mark.parametrize("change", [{"weights": "fp32"}, {"kv_format": "fp32"}, {"attn_format": "fp32"}])
def test_fp32_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="no architecture can be it: fp32 is for CPUs"):
        hf_config(variant(**SMALL, **change))
    with pytest.raises(UsageError, match="fp32 is for CPUs, and no engine of TensorRT-LLM holds it"):
        quant_files(variant(**SMALL, **change), "LlamaForCausalLM")


# Foreign models.


def foreign(folder: Path, inline: Any = None, beside: Any = None) -> Path:
    config = dict(hf_config(variant(**SMALL)).config)
    if inline is not None:
        config["quantization_config"] = inline
    (folder / "config.json").write_text(json.dumps(config))
    if beside is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(beside))
    return folder


def all_of(weights: Any) -> WeightFormats:
    return WeightFormats(attention=weights, ffn=weights, experts=weights)


def modelopt(**said: Any) -> dict[str, Any]:
    return {"producer": {"name": "modelopt", "version": "0.47.0"}, "quantization": said}


#: A scheme of LLM Compressor: FP8 weights per tensor with fixed scales, as its W8A8 recipe writes them.
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False},
        }
    },
    "ignore": ["lm_head"],
    "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False},
}


def test_compressed_tensors_are_read_and_linted(tmp_path: Path) -> None:
    found = read_quantization(foreign(tmp_path, inline=COMPRESSED))
    assert found == (all_of("fp8"), "fp8", "fp8")
    model = load_variant(tmp_path)
    assert "fp8-gpu" in {one.rule for one in lint(model, Parallelism(), Target("a100", 80))}
    assert "fp8-gpu" not in {one.rule for one in lint(model, Parallelism(), Target("h100", 90))}


def test_model_optimizer_in_both_layouts(tmp_path: Path) -> None:
    flat = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}
    nested = modelopt(quant_algo="NVFP4", group_size=16, kv_cache_quant_algo=None, exclude_modules=["lm_head"])
    for place, (inline, beside) in enumerate([(flat, None), (None, nested), (flat, nested)]):
        folder = tmp_path / str(place)
        folder.mkdir()
        assert read_quantization(foreign(folder, inline, beside)).weights == all_of("nvfp4")


@pytest.mark.parametrize(
    ("inline", "beside", "message"),
    [
        (
            {"quant_method": "modelopt", "quant_algo": "FP8"},
            modelopt(quant_algo="NVFP4", group_size=16),
            "config.json: quantization_config says fp8, but .*hf_quant_config.json says nvfp4",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": "NVFP4"},
            modelopt(quant_algo="FP8", kv_cache_quant_algo="FP8"),
            "kv_format: .* says nvfp4, but .* says fp8",
        ),
        (None, modelopt(), "hf_quant_config.json: it is empty, and so names no format"),
        ({"ignore": ["lm_head"]}, None, "neither quant_method nor quant_algo is there"),
        (None, modelopt(quant_algo="W4A8_AWQ"), "would be W4A8_AWQ, and a variant knows bf16, fp8, fp8_block, nvfp4"),
        (None, modelopt(quant_algo="NVFP4", group_size=32), "NVFP4 with group_size 32"),
        (None, modelopt(quant_algo="MIXED_PRECISION"), "quantized_layers is missing, so the formats are not told"),
        ({**COMPRESSED, "config_groups": {}}, None, "config_groups is missing or empty, so it names no format"),
    ],
)
def test_what_is_contradictory_empty_or_unknown_is_named(
    inline: Any, beside: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        read_quantization(foreign(tmp_path, inline, beside))
