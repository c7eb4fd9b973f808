from __future__ import annotations

from typing import Any

import pytest

from harness.cost.weights import rank_weights
from harness.engines.hf_config import hf_config
from harness.engines.module_formats import ModuleFormats
from harness.engines.quantization import quant_files
from harness.engines.weights import estimate
from harness.engines.weights_layout import (
    Stored,
    Tensor,
    cache_scales,
    embedding_tensors,
    format_of,
    fused_modules,
    head_tensors,
    layer_tensors,
    stored_layer,
    stored_model,
    stored_tensors,
)
from harness.errors import UsageError
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant

LLAMA_70B: dict[str, Any] = {
    "layers": 80,
    "hidden": 8192,
    "q_heads": 64,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 28672,
    "vocab": 128256,
}
LLAMA_405B: dict[str, Any] = {**LLAMA_70B, "layers": 126, "hidden": 16384, "q_heads": 128, "ffn": 53248}
#: Matrices of 8.6e9 values, ten times those of any model.
WIDE: dict[str, Any] = {**LLAMA_70B, "layers": 2, "hidden": 65536, "q_heads": 512, "ffn": 131072, "vocab": 1024}
LLAMA_8B: dict[str, Any] = {**LLAMA_70B, "layers": 32, "hidden": 4096, "q_heads": 32, "ffn": 14336}
QWEN_235B: dict[str, Any] = {
    **LLAMA_70B,
    "layers": 94,
    "hidden": 4096,
    "kv_heads": 4,
    "ffn": 0,
    "vocab": 151936,
    "experts": {"count": 128, "top_k": 8, "inter": 1536},
}
DEEPSEEK_V3: dict[str, Any] = {
    "layers": 61,
    "hidden": 7168,
    "q_heads": 128,
    "kv_heads": 128,
    "head_dim": 128,
    "ffn": 18432,
    "vocab": 129280,
    "attention": "mla",
    "mla": {},
    "experts": {"count": 256, "top_k": 8, "inter": 2048, "shared_inter": 2048, "dense_layers": 3},
}


def tensors_of(config: dict[str, Any]) -> list[Tensor]:
    layers = [one for layer in range(config["num_hidden_layers"]) for one in layer_tensors(config, layer)]
    return [*embedding_tensors(config), *layers, *head_tensors(config)]


@pytest.mark.parametrize(
    ("shape", "architecture", "parameters"),
    [
        (LLAMA_8B, "LlamaForCausalLM", 8_030_261_248),
        (LLAMA_70B, "LlamaForCausalLM", 70_553_706_496),
        # The count of its page at Hugging Face is 235,093,634,560: with norms of Q and K, 2 · 128 a layer.
        (QWEN_235B, "Qwen3MoeForCausalLM", 235_093_634_560),
        (DEEPSEEK_V3, "DeepseekV3ForCausalLM", None),
    ],
)
def test_a_layout_has_every_parameter_of_the_model(
    shape: dict[str, Any], architecture: str, parameters: int | None
) -> None:
    model = hf_config(Variant(**shape))
    assert model.architecture == architecture
    tensors = tensors_of(model.config)
    assert len({tensor.name for tensor in tensors}) == len(tensors)
    counted = sum(tensor.values for tensor in tensors if tensor.role != "bias")  # buffers, no parameters
    assert counted == model.parameters
    assert parameters in {None, counted}


@pytest.mark.modelopt
@pytest.mark.parametrize(
    ("shape", "architecture"),
    [
        (LLAMA_8B, "LlamaForCausalLM"),
        (LLAMA_8B, "Qwen3ForCausalLM"),
        (QWEN_235B, "Qwen3MoeForCausalLM"),
        (QWEN_235B, "MixtralForCausalLM"),
        (DEEPSEEK_V3, "DeepseekV3ForCausalLM"),
        ({**DEEPSEEK_V3, "mla": {"q_lora_rank": None}, "tie_embeddings": True}, "DeepseekV3ForCausalLM"),
        ({**LLAMA_8B, "tie_embeddings": True}, "LlamaForCausalLM"),
    ],
)
def test_names_and_shapes_are_those_of_transformers(shape: dict[str, Any], architecture: str) -> None:
    import torch
    import transformers

    config = hf_config(Variant(**{**shape, "layers": 4}), architecture).config
    with torch.device("meta"):
        model = getattr(transformers, architecture)(transformers.AutoConfig.for_model(**config))
    theirs = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if config["tie_word_embeddings"]:
        del theirs["lm_head.weight"]
    assert {tensor.name: tensor.shape for tensor in tensors_of(config)} == theirs


def formats_of(shape: dict[str, Any], **changes: Any) -> tuple[dict[str, Any], ModuleFormats, Variant]:
    variant = Variant(**{**shape, **changes})
    model = hf_config(variant)
    return model.config, ModuleFormats.read(quant_files(variant, model.architecture).hf_quant_config), variant


@pytest.mark.parametrize("weights", ["bf16", "fp8", "fp8_block", "nvfp4", {"ffn": "nvfp4"}, {"attention": "fp8"}])
@pytest.mark.parametrize("shape", [LLAMA_8B, QWEN_235B], ids=["dense", "moe"])
def test_bytes_are_the_cost_model_s_and_its_scales(shape: dict[str, Any], weights: Any) -> None:
    config, formats, variant = formats_of(shape, weights=weights, kv_format="fp8")
    tensors = [one for step in stored_model(config, formats) for one in step]
    # Scalars, of which the cost model has those of NVFP4's weights only; and the norms of Q and K.
    uncounted = sum(4 for one in tensors if one.dtype == "F32" and not one.shape)
    uncounted += sum(one.bytes for one in tensors if one.name.endswith(("q_norm.weight", "k_norm.weight")))
    total, modelled = sum(one.bytes for one in tensors), rank_weights(variant, Parallelism()).total_bytes
    assert total - uncounted == pytest.approx(modelled, rel=1e-6)
    assert total - uncounted <= modelled


def test_what_is_stored_of_one_layer_in_a_mixed_model() -> None:
    config, formats, _ = formats_of(LLAMA_70B, weights={"ffn": "nvfp4"}, kv_format="fp8")
    prefix = "model.layers.5"
    assert stored_layer(config, formats, 5) == [
        Stored(f"{prefix}.input_layernorm.weight", "BF16", (8192,)),
        Stored(f"{prefix}.self_attn.q_proj.weight", "BF16", (8192, 8192)),
        Stored(f"{prefix}.self_attn.k_proj.weight", "BF16", (1024, 8192)),
        Stored(f"{prefix}.self_attn.v_proj.weight", "BF16", (1024, 8192)),
        Stored(f"{prefix}.self_attn.o_proj.weight", "BF16", (8192, 8192)),
        Stored(f"{prefix}.post_attention_layernorm.weight", "BF16", (8192,)),
        Stored(f"{prefix}.mlp.gate_proj.weight", "U8", (28672, 4096)),
        Stored(f"{prefix}.mlp.gate_proj.weight_scale", "F8_E4M3", (28672, 512)),
        Stored(f"{prefix}.mlp.gate_proj.weight_scale_2", "F32", ()),
        Stored(f"{prefix}.mlp.gate_proj.input_scale", "F32", ()),
        Stored(f"{prefix}.mlp.up_proj.weight", "U8", (28672, 4096)),
        Stored(f"{prefix}.mlp.up_proj.weight_scale", "F8_E4M3", (28672, 512)),
        Stored(f"{prefix}.mlp.up_proj.weight_scale_2", "F32", ()),
        Stored(f"{prefix}.mlp.up_proj.input_scale", "F32", ()),
        Stored(f"{prefix}.mlp.down_proj.weight", "U8", (8192, 14336)),
        Stored(f"{prefix}.mlp.down_proj.weight_scale", "F8_E4M3", (8192, 1792)),
        Stored(f"{prefix}.mlp.down_proj.weight_scale_2", "F32", ()),
        Stored(f"{prefix}.mlp.down_proj.input_scale", "F32", ()),
    ]
    assert cache_scales(config, formats, 5) == [
        Stored(f"{prefix}.self_attn.k_proj.k_scale", "F32", ()),
        Stored(f"{prefix}.self_attn.v_proj.v_scale", "F32", ()),
    ]


def test_scales_of_the_cache_are_a_file_of_their_own_so_that_all_others_are_alike() -> None:
    plain, fp8, nvfp4 = (
        stored_model(*formats_of(LLAMA_8B, weights="fp8", kv_format=kv)[:2]) for kv in ("bf16", "fp8", "nvfp4")
    )
    assert [len(plain), len(fp8)] == [34, 35]
    assert fp8[:34] == plain
    assert fp8 == nvfp4
    assert len(fp8[34]) == 2 * 32
    assert fp8[34][2] == Stored("model.layers.1.self_attn.k_proj.k_scale", "F32", ())


def test_fp8_blocks_at_the_edge_are_partial_and_latents_have_no_cache_scales() -> None:
    config, formats, _ = formats_of(DEEPSEEK_V3, weights="fp8_block", kv_format="fp8")
    stored = {one.name: one for one in stored_layer(config, formats, 3)}
    attention = "model.layers.3.self_attn"
    assert stored[f"{attention}.kv_a_proj_with_mqa.weight_scale_inv"].shape == (5, 56)  # 576 rows
    assert stored[f"{attention}.kv_b_proj.weight"].dtype == "BF16"
    assert not any(name.endswith(("k_scale", "v_scale")) for name in stored)
    assert cache_scales(config, formats, 3) == []
    assert len(stored_model(config, formats)) == 61 + 2


def test_nvfp4_needs_whole_groups_of_sixteen() -> None:
    tensor = Tensor("model.layers.0.mlp.down_proj.weight", (64, 40), "output")
    with pytest.raises(UsageError, match=r"model.layers.0.mlp.down_proj: has 40 inputs, and NVFP4 needs a multiple"):
        stored_tensors(tensor, "nvfp4")


def test_formats_by_pattern_and_by_name() -> None:
    config, formats, _ = formats_of(QWEN_235B, weights={"attention": "fp8", "experts": "nvfp4"})
    found = {tensor.name: format_of(tensor, formats) for tensor in layer_tensors(config, 93)}
    assert found["model.layers.93.self_attn.o_proj.weight"] == "fp8"
    assert found["model.layers.93.mlp.experts.127.down_proj.weight"] == "nvfp4"
    assert found["model.layers.93.mlp.gate.weight"] == "bf16"
    assert found["model.layers.93.self_attn.q_norm.weight"] == "bf16"
    assert formats.of("lm_head") == "bf16"
    assert formats_of(LLAMA_8B)[1] == ModuleFormats()


def test_modules_that_are_read_as_one() -> None:
    attention, expert = "model.layers.0.self_attn", "model.layers.0.block_sparse_moe.experts.1"
    modules = [f"{attention}.{name}" for name in ("o_proj", "v_proj", "k_proj", "q_proj")]
    modules += [f"{expert}.{name}" for name in ("w2", "w3", "w1")]
    assert fused_modules(modules) == [
        (f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj"),
        (f"{expert}.w1", f"{expert}.w3"),
    ]
    # DeepSeek-V3 without a low-rank Q has a q_proj that stands alone.
    assert fused_modules([f"{attention}.q_proj", f"{attention}.kv_a_proj_with_mqa"]) == []


@pytest.mark.parametrize("weights", ["bf16", "fp8", "fp8_block", "nvfp4"])
@pytest.mark.parametrize("shape", [LLAMA_8B, LLAMA_70B, LLAMA_405B, WIDE, QWEN_235B, DEEPSEEK_V3])
def test_estimates_are_within_two_layers_the_largest_tensor_and_two_gb(shape: dict[str, Any], weights: str) -> None:
    variant = Variant(**{**shape, "weights": weights})
    model = hf_config(variant)
    plan = estimate(model.config, quant_files(variant, model.architecture).hf_quant_config)
    last = layer_tensors(model.config, variant.layers - 1)
    layer = sum(tensor.bf16_bytes for tensor in last)
    largest = max(tensor.bf16_bytes for tensor in tensors_of(model.config))
    assert layer < plan.memory_bytes <= 2 * layer + largest + 2e9
    assert plan.weight_bytes < plan.disk_bytes <= plan.weight_bytes + 2e9
    assert plan.steps == variant.layers + 2


def test_estimate_of_a_model_of_70e9_parameters() -> None:
    config = hf_config(Variant(**LLAMA_70B)).config
    plan = estimate(config, None)
    assert plan.weight_bytes == 2 * 70_553_706_496
    # 855,654,400 values of a layer and 0.9 GB.
    assert plan.memory_bytes == 2 * 855_654_400 + 900_000_000
