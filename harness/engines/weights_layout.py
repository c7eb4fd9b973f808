"""Which tensors a model has, by the names, shapes and formats they are stored in.

Read off the modules of transformers 4.57.3 (models/llama, qwen3, qwen3_moe, mixtral, deepseek_v3; PyPI) and, for
scales, off exports of NVIDIA Model Optimizer 0.47.0; FP8 block scales are called `weight_scale_inv`, as DeepSeek-V3
stores them and tensorrt_llm/_torch/modules/linear.py at 00bbf71 (github.com/NVIDIA/TensorRT-LLM) looks for first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from harness.engines.module_formats import ModuleFormats
from harness.errors import UsageError
from harness.spec.variant import WeightFormat

#: What a tensor is: an `output` projection is the last of its block, whose result is added to the hidden states.
Role = Literal["linear", "output", "router", "norm", "bias", "embedding", "head"]

#: Sibling modules that TensorRT-LLM reads as one matrix, so that their scales have to be one.
FUSED = (("q_proj", "k_proj", "v_proj"), ("q_a_proj", "kv_a_proj_with_mqa"), ("gate_proj", "up_proj"), ("w1", "w3"))

FP8_BLOCK = 128
NVFP4_BLOCK = 16

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One parameter of a model as transformers holds it, in bf16; a matrix is [out, in]."""

    name: str
    shape: tuple[int, ...]
    role: Role

    @property
    def module(self) -> str:
        """Name of the module that it belongs to."""
        return self.name.rpartition(".")[0]

    @property
    def values(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def bf16_bytes(self) -> int:
        """Bytes in bf16."""
        return 2 * self.values


class Stored(NamedTuple):
    """One tensor in a safetensors file; `dtype` in the spelling of the format."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes of its values."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


DTYPE_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1}


def embedding_tensors(config: Config) -> list[Tensor]:
    """What comes before the layers."""
    return [Tensor("model.embed_tokens.weight", (config["vocab_size"], config["hidden_size"]), "embedding")]


def head_tensors(config: Config) -> list[Tensor]:
    """What comes after the layers; no lm_head where the embedding serves as one."""
    last = [Tensor("model.norm.weight", (config["hidden_size"],), "norm")]
    if not config["tie_word_embeddings"]:
        last.append(Tensor("lm_head.weight", (config["vocab_size"], config["hidden_size"]), "head"))
    return last


def layer_tensors(config: Config, layer: int) -> list[Tensor]:
    """The parameters of one layer, counted from 0, in the order of its modules."""
    prefix, hidden = f"model.layers.{layer}", config["hidden_size"]
    attention = _mla if is_mla(config) else _attention
    return [
        Tensor(f"{prefix}.input_layernorm.weight", (hidden,), "norm"),
        *attention(config, f"{prefix}.self_attn"),
        Tensor(f"{prefix}.post_attention_layernorm.weight", (hidden,), "norm"),
        *_ffn(config, prefix, layer),
    ]


def is_mla(config: Config) -> bool:
    """Whether layers cache latents (multi-head latent attention)."""
    return "kv_lora_rank" in config


def has_experts(config: Config, layer: int) -> bool:
    """Whether a layer has experts."""
    if "first_k_dense_replace" in config:
        return bool(layer >= config["first_k_dense_replace"])
    return "num_experts" in config and layer not in config.get("mlp_only_layers", ())


def format_of(tensor: Tensor, formats: ModuleFormats) -> WeightFormat:
    """The format of a parameter; norms, routers and embeddings are bf16 whatever else there is."""
    return formats.of(tensor.module) if tensor.role in {"linear", "output"} else "bf16"


def stored_tensors(tensor: Tensor, weights: WeightFormat) -> list[Stored]:
    """The tensors that a parameter is stored as in a format, with its scales.

    Raises UsageError where it cannot be: NVFP4 has one scale per 16 inputs.
    """
    module = tensor.module
    if weights == "bf16":
        return [Stored(tensor.name, "BF16", tensor.shape)]
    rows, columns = tensor.shape
    if weights == "fp8_block":
        blocks = (-(-rows // FP8_BLOCK), -(-columns // FP8_BLOCK))
        return [Stored(tensor.name, "F8_E4M3", tensor.shape), Stored(f"{module}.weight_scale_inv", "F32", blocks)]
    scales = [Stored(f"{module}.input_scale", "F32", ())]
    if weights == "fp8":
        return [Stored(tensor.name, "F8_E4M3", tensor.shape), Stored(f"{module}.weight_scale", "F32", ()), *scales]
    if columns % NVFP4_BLOCK:
        raise UsageError(f"{module}: has {columns} inputs, and NVFP4 needs a multiple of {NVFP4_BLOCK}")
    return [
        Stored(tensor.name, "U8", (rows, columns // 2)),
        Stored(f"{module}.weight_scale", "F8_E4M3", (rows, columns // NVFP4_BLOCK)),
        Stored(f"{module}.weight_scale_2", "F32", ()),
        *scales,
    ]


def stored_layer(config: Config, formats: ModuleFormats, layer: int) -> list[Stored]:
    """Everything that is stored of one layer, but for scales of the KV cache."""
    return [
        one for tensor in layer_tensors(config, layer) for one in stored_tensors(tensor, format_of(tensor, formats))
    ]


def cache_scales(config: Config, formats: ModuleFormats, layer: int) -> list[Stored]:
    """The scales of one layer's KV cache; none where it is bf16.

    Nor are there any for latents (MLA): what Model Optimizer measures there are the keys and values made of them.
    """
    if formats.kv == "bf16" or is_mla(config):
        return []
    attention = f"model.layers.{layer}.self_attn"
    return [Stored(f"{attention}.{one}_proj.{one}_scale", "F32", ()) for one in "kv"]


def stored_model(config: Config, formats: ModuleFormats) -> list[list[Stored]]:
    """Everything that is stored of a model, file by file: the embedding, each layer, what comes after the layers.

    Scales of the KV cache, where it has some, are a file at the end, so that all others are the same bytes in models
    that differ in the format of the cache only.
    """
    ends = [
        [one for tensor in tensors for one in stored_tensors(tensor, "bf16")]
        for tensors in (embedding_tensors(config), head_tensors(config))
    ]
    layers = range(config["num_hidden_layers"])
    scales = [one for layer in layers for one in cache_scales(config, formats, layer)]
    files = [ends[0], *(stored_layer(config, formats, layer) for layer in layers), ends[1]]
    return [*files, scales] if scales else files


def fused_modules(modules: Iterable[str]) -> list[tuple[str, ...]]:
    """Group modules by what is read as one matrix; those that stand alone are in no group."""
    known = dict.fromkeys(modules)
    found = []
    for module in known:
        parent, _, name = module.rpartition(".")
        for names in FUSED:
            siblings = tuple(f"{parent}.{one}" for one in names)
            if name == names[0] and all(one in known for one in siblings):
                found.append(siblings)
    return found


def _attention(config: Config, prefix: str) -> Iterator[Tensor]:
    hidden, head = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield Tensor(f"{prefix}.q_proj.weight", (queries, hidden), "linear")
    yield Tensor(f"{prefix}.k_proj.weight", (keys, hidden), "linear")
    yield Tensor(f"{prefix}.v_proj.weight", (keys, hidden), "linear")
    yield Tensor(f"{prefix}.o_proj.weight", (hidden, queries), "output")
    if config["model_type"].startswith("qwen3"):
        yield Tensor(f"{prefix}.q_norm.weight", (head,), "norm")
        yield Tensor(f"{prefix}.k_norm.weight", (head,), "norm")


def _mla(config: Config, prefix: str) -> Iterator[Tensor]:
    hidden, heads, latent = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    rope, nope, value = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["v_head_dim"]
    queries, rank = heads * (nope + rope), config["q_lora_rank"]
    if rank:
        yield Tensor(f"{prefix}.q_a_proj.weight", (rank, hidden), "linear")
        yield Tensor(f"{prefix}.q_a_layernorm.weight", (rank,), "norm")
        yield Tensor(f"{prefix}.q_b_proj.weight", (queries, rank), "linear")
    else:
        yield Tensor(f"{prefix}.q_proj.weight", (queries, hidden), "linear")
    yield Tensor(f"{prefix}.kv_a_proj_with_mqa.weight", (latent + rope, hidden), "linear")
    yield Tensor(f"{prefix}.kv_a_layernorm.weight", (latent,), "norm")
    yield Tensor(f"{prefix}.kv_b_proj.weight", (heads * (nope + value), latent), "linear")
    yield Tensor(f"{prefix}.o_proj.weight", (hidden, heads * value), "output")


def _ffn(config: Config, prefix: str, layer: int) -> Iterator[Tensor]:
    hidden = config["hidden_size"]
    if not has_experts(config, layer):
        yield from _gated(f"{prefix}.mlp", hidden, config["intermediate_size"])
        return
    mixtral = config["model_type"] == "mixtral"
    block = f"{prefix}.{'block_sparse_moe' if mixtral else 'mlp'}"
    count = config["n_routed_experts"] if "n_routed_experts" in config else config["num_experts"]
    inter = config["intermediate_size"] if mixtral else config["moe_intermediate_size"]
    yield Tensor(f"{block}.gate.weight", (count, hidden), "router")
    if config["model_type"] == "deepseek_v3":
        yield Tensor(f"{block}.gate.e_score_correction_bias", (count,), "bias")
    for expert in range(count):
        yield from _gated(f"{block}.experts.{expert}", hidden, inter, ("w1", "w3", "w2") if mixtral else _GATED)
    if config.get("n_shared_experts"):
        yield from _gated(f"{block}.shared_experts", hidden, config["n_shared_experts"] * inter)


_GATED = ("gate_proj", "up_proj", "down_proj")


def _gated(prefix: str, hidden: int, inter: int, names: tuple[str, str, str] = _GATED) -> Iterator[Tensor]:
    gate, up, down = names
    yield Tensor(f"{prefix}.{gate}.weight", (inter, hidden), "linear")
    yield Tensor(f"{prefix}.{up}.weight", (inter, hidden), "linear")
    yield Tensor(f"{prefix}.{down}.weight", (hidden, inter), "output")
