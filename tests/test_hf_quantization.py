"""Reading quantization_config and hf_quant_config.json: formats that a variant has, others, and disagreement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from model_folders import ABSENT, CONFIGS, Folders, problems

from harness.spec.load import load_variant


@pytest.fixture
def folder(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


FP8 = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
NVFP4 = {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
#: As NVIDIA Model Optimizer writes into config.json what NVFP4 above is in hf_quant_config.json.
FLAT_NVFP4 = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}
    },
}


def group(targets: Any = ("Linear",), inputs: Any = None, **weights: Any) -> dict[str, Any]:
    """A quantization_config of compressed-tensors with one group."""
    one = {"targets": list(targets), "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": one}, "ignore": ["lm_head"]}


@pytest.mark.parametrize(
    ("block", "weights", "kv"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", "bf16"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8", "bf16"),
        ({"quant_method": "nvfp4", "group_size": 16}, "nvfp4", "bf16"),
        (FLAT_NVFP4, "nvfp4", "bf16"),
        ({**FLAT_NVFP4, "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "nvfp4", "fp8"),
        ({**FLAT_NVFP4, "kv_cache_scheme": "NVFP4"}, "nvfp4", "nvfp4"),
        ({"quant_method": "modelopt", "quantization": FP8}, "fp8", "fp8"),
        ({"quant_method": "modelopt", "quant_algo": None}, "bf16", "bf16"),
        (group(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), "fp8_block", "bf16"),
        (group(num_bits=8, type="float", strategy="tensor", inputs={"dynamic": False}), "fp8", "bf16"),
        (
            group(num_bits=4, type="float", strategy="tensor_group", group_size=16, inputs={"num_bits": 4}),
            "nvfp4",
            "bf16",
        ),
    ],
)
def test_formats_that_a_variant_has(folder: Folders, block: dict[str, Any], weights: str, kv: str) -> None:
    shape = load_variant(folder("llama-3-8b", quantization_config=block))
    assert set(shape.weights.model_dump(exclude={"lm_head"}).values()) == {weights}
    assert (shape.weights.lm_head, shape.kv_format) == ("bf16", kv)
    assert shape.attn_format == ("bf16" if kv == "bf16" else "fp8")


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ({"quant_method": "awq", "bits": 4}, "would be awq"),
        ({"quant_method": "mxfp4"}, "would be mxfp4"),
        ({"quant_method": "fp8", "weight_block_size": [1, 128]}, "fp8 with weight_block_size [1, 128]"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8 per tensor with activation_scheme dynamic"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "would be W4A16_NVFP4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, "NVFP4 with group_size 32"),
        (group(num_bits=8, type="float", strategy="channel", inputs={"dynamic": True}), "8-bit float per channel"),
        (group(num_bits=4, type="int", strategy="group", group_size=32), "4-bit int per group of 32, weights only"),
        ({**group(), "config_groups": {"a": {}, "b": {}}}, "2 config_groups (a, b)"),
        ({}, "quantization_config: it is empty, and so names no format"),
        ({"bits": 4}, "neither quant_method nor quant_algo is there"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups is missing or empty"),
        (group(targets=["re:.*down_proj"]), "config_groups has targets ['re:.*down_proj']"),
        ({"quant_method": "modelopt"}, "quant_algo is missing"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantized_layers is missing"),
        ([], "expected an object of fields, found list"),
        ({**FLAT_NVFP4, "ignore": ["re:("]}, "a pattern of modules is no regular expression"),
    ],
)
def test_formats_that_no_variant_has_are_named_and_settled_with_set(folder: Folders, block: Any, named: str) -> None:
    path = folder("llama-3-8b", quantization_config=block)
    assert all(text.startswith("config.json: quantization_config: ") for text in problems(path))
    assert all(named in text for text in problems(path))
    assert load_variant(path, ["weights=fp8"]).weights.ffn == "fp8"


def test_32_bit_weights_are_not_taken_for_bf16(folder: Folders) -> None:
    path = folder("llama-3-8b", torch_dtype="float32")
    assert [text.partition(",")[0] for text in problems(path)] == [
        "config.json: weights.attention would be float32",
        "config.json: weights.ffn would be float32",
    ]
    assert load_variant(path, ["weights=bf16"]) == load_variant(CONFIGS / "llama-3-8b")


def test_a_cache_of_another_kind_is_named(folder: Folders) -> None:
    path = folder("llama-3-8b", quant={"quantization": {**FP8, "kv_cache_quant_algo": "INT8"}})
    assert problems(path) == [
        (
            "hf_quant_config.json: kv_format would be INT8, and a variant knows bf16, fp8, nvfp4, fp32; "
            "say which to assume, for example --set kv_format=fp8"
        )
    ]
    assert load_variant(path, ["kv_format=fp8"]).kv_format == "fp8"


def test_hf_quant_config_and_config_that_agree(folder: Folders) -> None:
    shape = load_variant(folder("llama-3-8b", quant={"quantization": NVFP4}, quantization_config=FLAT_NVFP4))
    assert shape == load_variant(CONFIGS / "llama-3-8b", ["weights=nvfp4"])


def test_hf_quant_config_and_config_that_disagree(folder: Folders) -> None:
    path = folder("llama-3-8b", quant={"quantization": FP8}, quantization_config=FLAT_NVFP4)
    assert problems(path) == [
        "kv_format: config.json: quantization_config says bf16, but hf_quant_config.json says fp8",
        "weights.attention: config.json: quantization_config says nvfp4, but hf_quant_config.json says fp8",
        "weights.ffn: config.json: quantization_config says nvfp4, but hf_quant_config.json says fp8",
    ]
    assert load_variant(path, ["weights=fp8", "kv_format=fp8"]).weights.ffn == "fp8"


@pytest.mark.parametrize("quant", [{}, {"quantization": {}}, {"producer": {"name": "modelopt"}}])
def test_an_empty_hf_quant_config(folder: Folders, quant: dict[str, Any]) -> None:
    [problem] = problems(folder("llama-3-8b", quant=quant))
    assert problem.startswith("hf_quant_config.json: ")
    assert "names no format" in problem


@pytest.mark.parametrize(
    "excluded",
    [
        ["lm_head", "*.self_attn.*", "*.mlp.gate"],
        [f"model.layers.{layer}.self_attn*" for layer in range(94)],
        [f"language_model.model.layers.{layer}.self_attn.{one}_proj" for layer in range(94) for one in "qkvo"],
        ["re:.*self_attn.*", "re:vision_tower.*"],
        ["self_attn"],
    ],
)
def test_modules_left_out_of_quantisation_stay_bf16(folder: Folders, excluded: list[str]) -> None:
    quant = {"quantization": {**NVFP4, "exclude_modules": excluded}}
    weights = load_variant(folder("qwen3-235b-a22b", quant=quant)).weights
    assert (weights.attention, weights.experts) == ("bf16", "nvfp4")


def test_a_group_in_two_formats_is_told_with_the_modules(folder: Folders) -> None:
    """The NVFP4 of nvidia/DeepSeek-V3.1 leaves all of attention in bf16 but o_proj; kv_b_proj counts nowhere."""
    names = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
    excluded = [f"model.layers.{layer}.self_attn.{name}" for layer in range(61) for name in names]
    quant = {"quantization": {**NVFP4, "exclude_modules": excluded}}
    path = folder("deepseek-v3", quant=quant, quantization_config=ABSENT)
    assert problems(path) == [
        (
            "hf_quant_config.json: bf16 in model.layers.0.self_attn.q_a_proj and nvfp4 in "
            "model.layers.0.self_attn.o_proj; a variant has one format for all attention weights, so say which to "
            "assume, for example --set weights.attention=bf16"
        )
    ]
    weights = load_variant(path, ["weights.attention=bf16"]).weights
    assert (weights.attention, weights.ffn, weights.experts) == ("bf16", "nvfp4", "nvfp4")


def test_layers_of_several_formats(folder: Folders) -> None:
    experts = {f"model.layers.{layer}.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16} for layer in range(94)}
    attention = {
        f"model.layers.{layer}.self_attn.{one}_proj": {"quant_algo": "FP8"} for layer in range(94) for one in "qkvo"
    }
    mixed = {"quant_algo": "MIXED_PRECISION", "quantized_layers": {**experts, **attention}}
    weights = load_variant(folder("qwen3-235b-a22b", quant={"quantization": mixed})).weights
    assert (weights.attention, weights.experts) == ("fp8", "nvfp4")


def test_a_module_that_is_not_known_is_told(folder: Folders) -> None:
    excluded = ["lm_head", "model.layers.3.mlp.dense_h_to_4h", "model.layers.40.mlp", "model.layers.0.input_layernorm"]
    path = folder("llama-3-8b", quant={"quantization": {**NVFP4, "exclude_modules": excluded}})
    assert problems(path) == [
        "hf_quant_config.json: names model.layers.3.mlp.dense_h_to_4h, and no module known here is called so"
    ]
