"""How the weights and the KV cache of an engine are stored, in the two files that say it, and read back from any model.

`hf_quant_config.json` is what TensorRT-LLM looks for first, `quantization_config` in `config.json` what it and others
read otherwise. Both are made from one scheme, so that they cannot disagree. Layout and names: exports of NVIDIA Model
Optimizer 0.47.0 (PyPI), and the readers tensorrt_llm/_torch/model_config.py at 008e0af and
tensorrt_llm/quantization/modelopt_config.py at 2edf354 (github.com/NVIDIA/TensorRT-LLM), 2026-11-30. Exceptions are
patterns that also mean the modules TensorRT-LLM fuses, such as self_attn.qkv_proj.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.engines.architectures import FP32_REFUSAL, has_fp32
from harness.errors import UsageError
from harness.spec.base import parse
from harness.spec.hf_config import fields_from_hf
from harness.spec.variant import AttnFormat, KvFormat, Variant, WeightFormat, WeightFormats
from harness.version import __version__

#: Weight format → `quant_algo` of Model Optimizer. Blocks of fp8_block are 128 x 128.
ALGORITHMS: dict[WeightFormat, str] = {"fp8": "FP8", "fp8_block": "FP8_BLOCK_SCALES", "nvfp4": "NVFP4"}
GROUP_SIZES: dict[WeightFormat, int] = {"fp8_block": 128, "nvfp4": 16}

#: What TensorRT-LLM takes apart in every precision but its own: `exclude_modules` of its default for FP8 blocks.
_MLA_ALWAYS_BF16 = ("*kv_b_proj*", "*k_b_proj*", "*eh_proj")
#: Whose experts take the format of `model.layers.N.mlp.experts`: modeling_deepseekv3.py, `_get_experts_quant_config`.
_EXPERTS_OF_THEIR_OWN = ("DeepseekV3ForCausalLM",)
_PRODUCER = {"name": "trtllm-harness", "version": __version__}


@dataclass(frozen=True, slots=True)
class QuantFiles:
    """Both descriptions of one scheme; both None where weights and cache are bf16."""

    hf_quant_config: dict[str, Any] | None
    """The whole of `hf_quant_config.json`."""
    quantization_config: dict[str, Any] | None
    """The field of that name in `config.json`."""
    notes: tuple[str, ...] = ()


class Quantization(NamedTuple):
    """How a model stores its weights and its cache, and what its prefill attention computes in."""

    weights: WeightFormats
    kv_format: KvFormat
    attn_format: AttnFormat


@dataclass(frozen=True, slots=True)
class _Scheme:
    """One format with exceptions, or a format for each module by name."""

    format: WeightFormat
    kv: KvFormat
    excluded: tuple[str, ...]
    layers: dict[str, WeightFormat]


def quant_files(variant: Variant, architecture: str) -> QuantFiles:
    """Return what both files say of a variant under an architecture.

    A single quantised format is written once, with the bf16 modules as exceptions; several are written for each module.
    Raises UsageError for a quantised lm_head, which TensorRT-LLM does not take, and for FP32.
    """
    if has_fp32(variant):
        raise UsageError(f"{variant.name}: {FP32_REFUSAL}")
    if variant.weights.lm_head != "bf16":
        raise UsageError(
            f"{variant.name}: weights.lm_head is {variant.weights.lm_head}, and TensorRT-LLM quantises no lm_head "
            "(_torch/models/modeling_utils.py); set weights.lm_head: bf16"
        )
    formats = _formats(variant)
    quantised = {one for one in formats.values() if one != "bf16"}
    if not quantised and variant.kv_format == "bf16":
        return QuantFiles(None, None)
    scheme = _Scheme(
        format=quantised.pop() if len(quantised) == 1 else "bf16",
        kv=variant.kv_format,
        excluded=tuple(_excluded(variant, architecture, formats)),
        layers=dict(_layers(variant, architecture, formats)) if len(quantised) > 1 else {},
    )
    notes = (f"that TensorRT-LLM's {architecture} gives experts a format of their own is not established",)
    unsure = scheme.layers and variant.experts and architecture not in _EXPERTS_OF_THEIR_OWN
    return QuantFiles(_model_optimizer(scheme), _inline(scheme), notes if unsure else ())


def read_quantization(folder: Path) -> Quantization:
    """Read the formats of a model folder: Model Optimizer in both layouts, fp8, nvfp4, mxfp4 or compressed-tensors.

    Raises UsageError with every problem: the files disagree, one is empty or names no format, or a format is one that
    no variant has; UnreadableInput where a file cannot be read.
    """
    variant = parse(Variant, fields_from_hf(folder), str(folder))
    return Quantization(variant.weights, variant.kv_format, variant.attn_format)


def _formats(variant: Variant) -> dict[str, WeightFormat]:
    """Module group → format, of the groups that the variant has."""
    experts, weights = variant.experts, variant.weights
    found: dict[str, WeightFormat] = {"attention": weights.attention}
    if experts is None or experts.dense_layers or experts.shared_inter:
        found["ffn"] = weights.ffn
    if experts:
        found["experts"] = weights.experts
    return found


def _excluded(variant: Variant, architecture: str, formats: dict[str, WeightFormat]) -> Iterator[str]:
    """Patterns of the modules that stay bf16, whatever else there is: lm_head, routers, and groups in bf16."""
    experts, block = variant.experts, _expert_block(architecture)
    yield "lm_head"
    if formats["attention"] == "bf16":
        yield "*.self_attn.*"
    elif variant.mla:
        yield from _MLA_ALWAYS_BF16
    if experts is None:
        if formats["ffn"] == "bf16":
            yield "*.mlp.*"
        return
    yield f"*.{block}.gate"
    if formats["experts"] == "bf16":
        yield f"*.{block}.experts*"
    if formats.get("ffn") == "bf16":
        yield from (f"model.layers.{layer}.mlp.*" for layer in range(experts.dense_layers))
        if experts.shared_inter:
            yield f"*.{block}.shared_experts*"


def _expert_block(architecture: str) -> str:
    return "block_sparse_moe" if architecture == "MixtralForCausalLM" else "mlp"


def _layers(
    variant: Variant, architecture: str, formats: dict[str, WeightFormat]
) -> Iterator[tuple[str, WeightFormat]]:
    """Every quantised projection by name; experts of a layer have one, that of the module which holds them."""
    experts, block = variant.experts, _expert_block(architecture)
    dense = experts.dense_layers if experts else variant.layers
    for layer in range(variant.layers):
        prefix = f"model.layers.{layer}"
        yield from ((f"{prefix}.self_attn.{name}", formats["attention"]) for name in _attention(variant))
        ffn = f"{prefix}.mlp"
        if experts and layer >= dense:
            yield f"{prefix}.{block}.experts", formats["experts"]
            ffn = f"{prefix}.{block}.shared_experts" if experts.shared_inter else ""
        if ffn:
            yield from ((f"{ffn}.{name}_proj", formats["ffn"]) for name in ("gate", "up", "down"))


def _attention(variant: Variant) -> tuple[str, ...]:
    if not variant.mla:
        return ("q_proj", "k_proj", "v_proj", "o_proj")
    queries = ("q_a_proj", "q_b_proj") if variant.mla.q_lora_rank else ("q_proj",)
    return (*queries, "kv_a_proj_with_mqa", "o_proj")


def _model_optimizer(scheme: _Scheme) -> dict[str, Any]:
    """`hf_quant_config.json`."""
    said = {
        **_algorithm(scheme),
        "kv_cache_quant_algo": None if scheme.kv == "bf16" else scheme.kv.upper(),
        "exclude_modules": list(scheme.excluded),
    }
    return {"producer": _PRODUCER, "quantization": said}


def _inline(scheme: _Scheme) -> dict[str, Any]:
    """`quantization_config`: FP8 blocks as DeepSeek-V3 spells them, all else as Model Optimizer does."""
    cache = {"fp8": {"dynamic": False, "num_bits": 8, "type": "float"}, "nvfp4": "NVFP4"}
    kv = {} if scheme.kv == "bf16" else {"kv_cache_scheme": cache[scheme.kv]}
    if scheme.format == "fp8_block":
        return {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": list(scheme.excluded),
            **kv,
        }
    groups = {"config_groups": {"group_0": _group(scheme.format)}} if scheme.format in {"fp8", "nvfp4"} else {}
    return {
        "quant_method": "modelopt",
        **_algorithm(scheme),
        **groups,
        "ignore": list(scheme.excluded),
        **kv,
        "producer": _PRODUCER,
    }


def _algorithm(scheme: _Scheme) -> dict[str, Any]:
    if scheme.layers:
        named = {module: _algorithm_of(one) for module, one in scheme.layers.items() if one != "bf16"}
        return {"quant_algo": "MIXED_PRECISION", "quantized_layers": named}
    return _algorithm_of(scheme.format)


def _algorithm_of(weights: WeightFormat) -> dict[str, Any]:
    size = {"group_size": GROUP_SIZES[weights]} if weights in GROUP_SIZES else {}
    return {"quant_algo": ALGORITHMS.get(weights), **size}


def _group(weights: WeightFormat) -> dict[str, Any]:
    """One group of compressed-tensors' notation, for inputs and weights alike."""
    size = {"group_size": GROUP_SIZES[weights]} if weights in GROUP_SIZES else {}
    values = {"dynamic": False, "num_bits": 4 if weights == "nvfp4" else 8, "type": "float", **size}
    return {"input_activations": values, "weights": dict(values), "targets": ["Linear"]}
