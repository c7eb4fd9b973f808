"""The classes of transformers that a variant can be, and the fields that each adds to the common ones.

Read 2026-11-30: transformers/models/<model_type>/configuration_*.py of 4.57.3 and 5.24.0 (PyPI), and for what
TensorRT-LLM asks beyond them tensorrt_llm/_torch/models/modeling_deepseekv3.py at 000561d and modeling_qwen3_moe.py at
03441af.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from harness.spec.variant import Experts, Mla, Variant


@dataclass(frozen=True, slots=True)
class Architecture:
    """One class of transformers: which variants it can be, and its fields beyond the common ones."""

    model_type: str
    fields: Callable[[Variant], dict[str, Any]]
    mla: bool = False
    experts: bool = False
    plain: bool = False
    """Whether a model can be without experts."""
    dense_layers: bool = False
    """Whether some layers of a model with experts can be without."""
    shared_expert: bool = False
    windows: bool = False
    qk_norm: bool = False
    divides: bool = False
    """Whether hidden has to be a multiple of the query heads (transformers 5, `LlamaConfig.validate_architecture`)."""


def has_fp32(variant: Variant) -> bool:
    """Whether anything of a variant is FP32, which no engine holds: TensorRT-LLM has no fused kernels of it."""
    return "fp32" in {variant.weights.unquantised, variant.kv_format, variant.attn_format}


#: Why a variant with FP32 in it is not built.
FP32_REFUSAL = (
    "fp32 is for CPUs, and no engine of TensorRT-LLM holds it; set weights: bf16, kv_format: bf16 and attn_format: bf16"
)


def reasons_against(variant: Variant, candidate: Architecture) -> Iterator[str]:
    """Say why a variant is none of this architecture; nothing where it can be."""
    if has_fp32(variant):
        yield FP32_REFUSAL
    yield from _reasons_in_attention(variant, candidate)
    if not variant.gated_ffn:
        yield (
            "gated_ffn is false, and every FFN of these classes has a gate: such a variant can be priced, not built; "
            "gated_ffn: true makes it one that can"
        )
    if variant.experts:
        yield from _reasons_in_experts(variant.experts, candidate)
    elif not candidate.plain:
        yield "the variant has no experts, and here every layer has some"


def _reasons_in_attention(variant: Variant, candidate: Architecture) -> Iterator[str]:
    kinds = set(variant.attention)
    if "none" in kinds:
        yield "attention names layers without attention, and every layer here has some"
    if candidate.mla != (kinds == {"mla"}) and ("mla" in kinds or candidate.mla):
        yield f"attention is {', '.join(sorted(kinds))}, and here {'all' if candidate.mla else 'none'} of it is mla"
    if "sliding" in kinds and not candidate.windows:
        yield "attention has sliding layers, and here there is no window"
    if candidate.divides and variant.hidden % variant.q_heads:
        yield f"hidden {variant.hidden} is no multiple of q_heads {variant.q_heads}, which transformers 5 refuses"


def _reasons_in_experts(experts: Experts, candidate: Architecture) -> Iterator[str]:
    if not candidate.experts:
        yield "the variant has experts, and here there are none"
        return
    if experts.dense_layers and not candidate.dense_layers:
        yield f"experts.dense_layers is {experts.dense_layers}, and here every layer has experts"
    if bool(experts.shared_inter) > candidate.shared_expert:
        yield f"experts.shared_inter is {experts.shared_inter}, and here there is no shared expert"
    if experts.shared_inter % experts.inter:
        yield f"experts.shared_inter {experts.shared_inter} is no multiple of experts.inter {experts.inter}"


def _heads(variant: Variant) -> dict[str, Any]:
    return {"num_key_value_heads": variant.kv_heads, "head_dim": variant.head_dim}


def _windows(variant: Variant) -> dict[str, Any]:
    """Qwen3's layer types; a window in no layer is written as none."""
    sliding = "sliding" in variant.attention
    kinds = {"full": "full_attention", "sliding": "sliding_attention"}
    return {
        "use_sliding_window": sliding,
        "sliding_window": variant.window if sliding else None,
        "max_window_layers": variant.layers,
        "layer_types": [kinds[variant.attention_of(layer)] for layer in range(variant.layers)],
    }


def _llama(variant: Variant) -> dict[str, Any]:
    return _heads(variant) | {"intermediate_size": variant.ffn, "mlp_bias": False, "pretraining_tp": 1}


def _qwen3(variant: Variant) -> dict[str, Any]:
    return _heads(variant) | _windows(variant) | {"intermediate_size": variant.ffn}


def _qwen3_moe(variant: Variant) -> dict[str, Any]:
    experts = _experts(variant)
    return _heads(variant) | {
        # Used by dense layers only; a class has to have one.
        "intermediate_size": variant.ffn or experts.inter,
        "moe_intermediate_size": experts.inter,
        "num_experts": experts.count,
        "num_local_experts": experts.count,
        "num_experts_per_tok": experts.top_k,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": list(range(experts.dense_layers)),
        "output_router_logits": False,
        "router_aux_loss_coef": 0.0,
        "use_sliding_window": False,
        "sliding_window": None,
    }


def _mixtral(variant: Variant) -> dict[str, Any]:
    experts = _experts(variant)
    return _heads(variant) | {
        "intermediate_size": experts.inter,
        "num_local_experts": experts.count,
        "num_experts": experts.count,
        "num_experts_per_tok": experts.top_k,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.0,
        "router_jitter_noise": 0.0,
        "sliding_window": None,
    }


def _deepseek_v3(variant: Variant) -> dict[str, Any]:
    mla, experts = variant.mla or Mla(), variant.experts
    # Without experts all layers are leading dense ones, and what is said about experts concerns none.
    routed = experts or Experts(count=1, top_k=1, inter=variant.ffn, dense_layers=variant.layers)
    return {
        "num_key_value_heads": variant.q_heads,
        "q_lora_rank": mla.q_lora_rank,
        "kv_lora_rank": mla.kv_lora_rank,
        "qk_nope_head_dim": mla.nope_head_dim,
        "qk_rope_head_dim": mla.rope_head_dim,
        "v_head_dim": mla.value_head_dim,
        "rope_interleave": True,
        "intermediate_size": variant.ffn or routed.inter,
        "moe_intermediate_size": routed.inter,
        "n_routed_experts": routed.count,
        "n_shared_experts": routed.shared_inter // routed.inter,
        "num_experts_per_tok": routed.top_k,
        "first_k_dense_replace": routed.dense_layers,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "num_nextn_predict_layers": 1,
        "pretraining_tp": 1,
    }


def _experts(variant: Variant) -> Experts:
    if variant.experts is None:
        raise TypeError("an architecture without dense layers was chosen for a variant without experts")
    return variant.experts


#: Class → what it can be; of those that can be a variant the first is taken.
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "LlamaForCausalLM": Architecture("llama", _llama, plain=True, divides=True),
        "Qwen3ForCausalLM": Architecture("qwen3", _qwen3, plain=True, windows=True, qk_norm=True),
        "Qwen3MoeForCausalLM": Architecture("qwen3_moe", _qwen3_moe, experts=True, dense_layers=True, qk_norm=True),
        "MixtralForCausalLM": Architecture("mixtral", _mixtral, experts=True),
        "DeepseekV3ForCausalLM": Architecture(
            "deepseek_v3", _deepseek_v3, mla=True, experts=True, plain=True, dense_layers=True, shared_expert=True
        ),
    }
)
