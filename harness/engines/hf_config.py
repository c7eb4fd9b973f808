"""`config.json` of Hugging Face for a variant, in a spelling that transformers 4.57 and 5 read to the same values.

The two name some fields differently and fall back to a default, silently, where they miss theirs: 5.24.0 writes
`num_local_experts` and `rope_parameters`, in which 4.57.3 finds 128 experts and a rope theta of 10000. Such fields are
written under both names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from harness.cost.parameters import parameter_count
from harness.engines.architectures import ARCHITECTURES, Architecture, reasons_against
from harness.errors import UsageError
from harness.spec.variant import Variant

#: Longest sequence that a configuration allows unless another is asked for. TensorRT-LLM holds a table of rotary
#: embeddings this long, head size · 4 bytes a position, so that it is not as long as could be.
MAX_POSITIONS = 131_072

#: Ids below every vocabulary's size; `harness.engines.tokenizer` gives them names.
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2

_ROPE_THETA = 1_000_000.0
_RMS_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class HfConfig:
    """A configuration, and what about it differs from the variant."""

    architecture: str
    config: dict[str, Any]
    """The whole of `config.json`."""
    notes: tuple[str, ...]
    """Sentences for whoever reads a result of this model."""
    parameters: int
    """What transformers counts: the cost model's count and `added_parameters`."""
    added_parameters: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """What the architecture has and the variant does not know, by name."""


def hf_config(variant: Variant, architecture: str | None = None, *, max_positions: int = MAX_POSITIONS) -> HfConfig:
    """Return the configuration of a variant, as the architecture named or the first that can be it.

    Raises UsageError with every reason why the architecture, or why none, can be the variant.
    """
    name = _named(variant, architecture) if architecture else _chosen(variant)
    chosen = ARCHITECTURES[name]
    if variant.vocab <= EOS_ID:
        raise UsageError(f"{variant.name}: vocab {variant.vocab} has no room for special tokens; at least {EOS_ID + 1}")
    config = {"architectures": [name], "model_type": chosen.model_type}
    config |= _common(variant, max_positions) | chosen.fields(variant)
    added = {"q_norm and k_norm": 2 * variant.head_dim * variant.layers} if chosen.qk_norm else {}
    return HfConfig(
        architecture=name,
        config=config,
        notes=tuple(_notes(variant, chosen, name, named=architecture is not None)),
        parameters=parameter_count(variant) + sum(added.values()),
        added_parameters=MappingProxyType(added),
    )


def common_architecture(variants: Iterable[Variant]) -> str | None:
    """Return the first architecture that can be all of these variants, so that a sweep compares like with like."""
    wanted = list(variants)
    able = (
        name for name, one in ARCHITECTURES.items() if not any(any(reasons_against(variant, one)) for variant in wanted)
    )
    return next(able, None)


def _named(variant: Variant, architecture: str) -> str:
    if architecture not in ARCHITECTURES:
        raise UsageError(f"no architecture is called '{architecture}' here; known: {', '.join(ARCHITECTURES)}")
    reasons = list(reasons_against(variant, ARCHITECTURES[architecture]))
    if reasons:
        able = [name for name, other in ARCHITECTURES.items() if not any(reasons_against(variant, other))]
        hint = f"; {' or '.join(able)} can be it" if able else "; no architecture here can be it"
        raise UsageError(*(f"{variant.name}: {architecture}: {reason}{hint}" for reason in reasons))
    return architecture


def _chosen(variant: Variant) -> str:
    refused = {}
    for name, candidate in ARCHITECTURES.items():
        refused[name] = list(reasons_against(variant, candidate))
        if not refused[name]:
            return name
    everywhere = set.intersection(*map(set, refused.values()))
    if everywhere:
        raise UsageError(*(f"{variant.name}: no architecture can be it: {reason}" for reason in sorted(everywhere)))
    raise UsageError(*(f"{variant.name}: {name}: {reason}" for name, reasons in refused.items() for reason in reasons))


def _notes(variant: Variant, chosen: Architecture, name: str, *, named: bool) -> Iterator[str]:
    if chosen.qk_norm:
        yield (
            f"{name} norms Q and K of each head: 2 · {variant.head_dim} parameters a layer and a kernel that a variant "
            "does not know and that no price has"
        )
    if not named and name == "Qwen3ForCausalLM" and variant.hidden % variant.q_heads:
        yield (
            f"Qwen3ForCausalLM and not LlamaForCausalLM, because hidden {variant.hidden} is no multiple of q_heads "
            f"{variant.q_heads}, which transformers 5 refuses there"
        )
    if "sliding" in variant.attention:
        yield (
            "that TensorRT-LLM's Qwen3 cuts attention at the window is not established; transformers does, and the KV "
            "cache is cut by kv_cache_config.max_attention_window"
        )
    if not chosen.mla:
        return
    yield "num_nextn_predict_layers 1: with speculation TensorRT-LLM adds a layer for draft tokens, which no count has"
    if variant.experts:
        biases = (variant.layers - variant.experts.dense_layers) * variant.experts.count
        yield f"experts are chosen in one group; {biases} router biases (a buffer, no parameters) are in no count"
        if not variant.experts.shared_inter:
            yield "that TensorRT-LLM runs DeepseekV3ForCausalLM without a shared expert is not established"


def _common(variant: Variant, max_positions: int) -> dict[str, Any]:
    """Fields that every class has, under each name that a version knows them by."""
    return {
        "vocab_size": variant.vocab,
        "hidden_size": variant.hidden,
        "num_hidden_layers": variant.layers,
        "num_attention_heads": variant.q_heads,
        "max_position_embeddings": max_positions,
        "rms_norm_eps": _RMS_NORM_EPS,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_theta": _ROPE_THETA,
        "rope_scaling": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": _ROPE_THETA},
        "tie_word_embeddings": variant.tie_embeddings,
        "use_cache": True,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }
