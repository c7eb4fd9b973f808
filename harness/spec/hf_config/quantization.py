"""How weights are stored, from `quantization_config` and `hf_quant_config.json`.

Known are NVIDIA Model Optimizer in both of its shapes (nested, and flat since 1.0), fp8 with blocks or fixed scales,
mxfp4, nvfp4 and compressed-tensors; read as TensorRT-LLM does (_torch/model_config.py at 008e0af,
quantization/modelopt_config.py at 2edf354, models/quant_config_utils.py at 21156a7). lm_head counts as bf16, since
TensorRT-LLM gives it no quantisation (_torch/models/modeling_utils.py: "lm_head Linear will not accept QuantConfig").
MLA's kv_b_proj counts as what `harness.cost.weights` makes of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from harness.spec.hf_config.fields import Problems
from harness.spec.hf_config.modules import Modules, NamePatterns, Slot, holders_of
from harness.spec.variant import KvFormat, WeightFormat

#: Where a block is → what it says, None for weights that are not quantised.
Blocks = dict[str, Any]

#: quant_algo of Model Optimizer → the weight format of a variant that it is.
_ALGORITHMS = {
    "FP8": "fp8",
    "NVFP4": "nvfp4",
    "FP8_BLOCK_SCALES": "fp8_block",
    "FP8_PB_WO": "fp8_block",
}
_KV_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4"}
_WEIGHTS, _KV = get_args(WeightFormat), get_args(KvFormat)
#: Lists of modules that stay as they were, under every name they go by.
_EXCLUDED = ("exclude_modules", "ignore", "ignored_layers", "modules_to_not_convert")


@dataclass(frozen=True)
class Scheme:
    """What one block says. A format is one of a variant's, or the name that the block has for another."""

    weights: str
    kv: str = "bf16"
    excluded: tuple[str, ...] = ()
    layers: Mapping[str, str] = field(default_factory=dict)
    """Module → format, where the modules have several."""


class _Unreadable(Exception):
    """Why a block says nothing that could be used."""


def read_formats(blocks: Blocks, modules: Modules, dtype: str, problems: Problems) -> dict[str, Any]:
    """Return `weights`, `kv_format` and `attn_format` of a variant.

    Prefill attention is FP8 where the cache is quantised (cpp/tensorrt_llm/thop/attentionOp.cpp: mFP8ContextFMHA with
    an FP8 cache and paged context attention, which block reuse turns on). Notes what no variant can say, and where two
    blocks disagree.
    """
    said: dict[str, dict[str, str]] = defaultdict(dict)
    for where, block in blocks.items():
        try:
            scheme = Scheme(dtype) if block is None else _scheme(block)
            for name, text in _formats(scheme, modules, dtype, where, problems):
                said[name][where] = text
        except _Unreadable as error:
            problems.note("weights", f"{where}: {error}")
    found = {name: _agreed(name, by_block, problems) for name, by_block in said.items()}
    kv = found.pop("kv_format", None)
    formats = {name.removeprefix("weights."): text for name, text in found.items() if text}
    same = set(formats.values())
    return {
        "weights": same.pop() if len(same) == 1 and len(formats) == len(found) else formats or None,
        "kv_format": kv,
        "attn_format": "fp8" if kv in {"fp8", "nvfp4"} else None,
    }


def _agreed(name: str, by_block: Mapping[str, str], problems: Problems) -> str | None:
    """What every block says, if a variant can say it too."""
    allowed = _KV if name == "kv_format" else _WEIGHTS
    values = list(dict.fromkeys(by_block.values()))
    if len(values) > 1:
        problems.note(name, f"{name}: " + ", but ".join(f"{where} says {value}" for where, value in by_block.items()))
    elif values[0] not in allowed:
        where = next(iter(by_block))
        problems.note(
            name,
            f"{where}: {name} would be {values[0]}, and a variant knows {', '.join(allowed)}; "
            f"say which to assume, for example --set {name}={_nearest(values[0])}",
        )
    else:
        return values[0]
    return None


def _nearest(name: str) -> str:
    """The format of a variant with as many bits as one that no variant has, to go by its name."""
    return "bf16" if name.startswith("float") else "nvfp4" if "4" in name else "fp8"


def _formats(scheme: Scheme, modules: Modules, dtype: str, where: str, problems: Problems) -> Iterator[tuple[str, str]]:
    """The format of each module group, and of the cache."""
    yield "kv_format", scheme.kv
    groups = modules.groups()
    try:
        excluded = NamePatterns(scheme.excluded)
    except re.error as error:
        raise _Unreadable(f"a pattern of modules is no regular expression: {error}") from None
    for group, slots in groups.items():
        examples = {_stored(scheme, excluded, slot, dtype): slot[0] for slot in reversed(slots)}
        if len(examples) == 1:
            yield f"weights.{group}", next(iter(examples))
            continue
        both = " and ".join(f"{stored} in {module}" for stored, module in sorted(examples.items()))
        problems.note(
            f"weights.{group}",
            f"{where}: {both}; a variant has one format for all {group} weights, so say which to assume, for example "
            f"--set weights.{group}=bf16",
        )
    named = NamePatterns([one for one in (*scheme.excluded, *scheme.layers) if modules.concerns(one)])
    unknown = named.without_module([name for slots in groups.values() for slot in slots for name in slot])
    if unknown:
        problems.note("weights", f"{where}: names {', '.join(unknown[:3])}, and no module known here is called so")


def _stored(scheme: Scheme, excluded: NamePatterns, slot: Slot, dtype: str) -> str:
    """The format of one projection."""
    if any(map(excluded.matches, slot)):
        return dtype
    if scheme.layers:
        holders = (scheme.layers[name] for one in slot for name in holders_of(one) if name in scheme.layers)
        return next(holders, dtype)
    return scheme.weights


def _scheme(block: Any) -> Scheme:
    if not isinstance(block, dict):
        raise _Unreadable(f"expected an object of fields, found {type(block).__name__}")
    nested = block.get("quantization")
    if not block or nested == {}:
        raise _Unreadable("it is empty, and so names no format; without it the weights are bf16")
    if isinstance(nested, dict):
        return _model_optimizer(nested)
    method = block.get("quant_method")
    if str(method).startswith("modelopt") or (method is None and "quant_algo" in block):
        return _model_optimizer(block)
    if method == "compressed-tensors":
        return Scheme(_of_groups(block), _kv(block), _excluded(block))
    if method is None:
        raise _Unreadable("neither quant_method nor quant_algo is there, so it names no format")
    return Scheme(_of_method(str(method), block), _kv(block), _excluded(block))


def _model_optimizer(block: Mapping[str, Any]) -> Scheme:
    if "quant_algo" not in block:
        raise _Unreadable("quant_algo is missing (null says that weights are not quantised)")
    layers = _object(block, "quantized_layers")
    algorithm = block["quant_algo"]
    if algorithm == "MIXED_PRECISION" and not layers:
        raise _Unreadable("quant_algo is MIXED_PRECISION and quantized_layers is missing, so the formats are not told")
    entries = {name: _object(layers, name) for name in layers}
    of_layers = {name: _algorithm(one.get("quant_algo"), one.get("group_size")) for name, one in entries.items()}
    return Scheme(_algorithm(algorithm, block.get("group_size")), _kv(block), _excluded(block), of_layers)


def _algorithm(name: Any, group_size: Any) -> str:
    """A quant_algo as a format; its own name where no variant has it."""
    if name is None:
        return "bf16"
    known = _ALGORITHMS.get(str(name).upper(), str(name))
    blocks = {"nvfp4": 16, "fp8_block": 128}
    if known in blocks and group_size is not None and group_size != blocks[known]:
        return f"{name} with group_size {group_size}"
    return known


def _of_method(method: str, block: Mapping[str, Any]) -> str:
    """The methods of Hugging Face that are one format each."""
    if method == "fp8":
        size = block.get("weight_block_size")
        if size is not None:
            return "fp8_block" if size == [128, 128] else f"fp8 with weight_block_size {size}"
        scheme = block.get("activation_scheme")
        return "fp8" if scheme == "static" else f"fp8 per tensor with activation_scheme {scheme}"
    return _algorithm("NVFP4" if method == "nvfp4" else method, block.get("group_size"))


def _of_groups(block: Mapping[str, Any]) -> str:
    """The format of compressed-tensors' one group of weights."""
    groups = _object(block, "config_groups")
    if not groups:
        raise _Unreadable("config_groups is missing or empty, so it names no format")
    if len(groups) > 1:
        return f"{len(groups)} config_groups ({', '.join(groups)})"
    group = _object(groups, next(iter(groups)))
    weights, inputs = _object(group, "weights"), _object(group, "input_activations")
    if group.get("targets") != ["Linear"]:
        raise _Unreadable(f"config_groups has targets {group.get('targets')}; only ['Linear'] is known here")
    bits, kind, strategy = (weights.get(name) for name in ("num_bits", "type", "strategy"))
    if (bits, kind, strategy, weights.get("group_size")) == (4, "float", "tensor_group", 16) and inputs:
        return "nvfp4"
    if (bits, kind, strategy) == (8, "float", "block") and weights.get("block_structure") in ([128, 128], "128x128"):
        return "fp8_block"
    if (bits, kind, strategy) == (8, "float", "tensor") and inputs.get("dynamic") is False:
        return "fp8"
    size = f" of {weights['group_size']}" if weights.get("group_size") else ""
    return f"{bits}-bit {kind} per {strategy}{size}" + ("" if inputs else ", weights only")


def _kv(block: Mapping[str, Any]) -> str:
    """Format of the cache: an algorithm's name, or compressed-tensors' description of a value."""
    said = block.get("kv_cache_quant_algo")
    if said is None:
        said = block.get("kv_cache_scheme")
    if said is None:
        return "bf16"
    if isinstance(said, dict):
        bits, kind = said.get("num_bits"), said.get("type")
        return "fp8" if (bits, kind) == (8, "float") else f"{bits}-bit {kind}"
    return _KV_ALGORITHMS.get(str(said).upper(), str(said))


def _excluded(block: Mapping[str, Any]) -> tuple[str, ...]:
    lists = {name: block.get(name) or [] for name in _EXCLUDED}
    for name, patterns in lists.items():
        if not isinstance(patterns, list):
            raise _Unreadable(f"{name} is {patterns!r}; it has to be a list of modules")
    return tuple(dict.fromkeys(str(pattern) for patterns in lists.values() for pattern in patterns))


def _object(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field that holds an object, empty where it is absent."""
    value = data.get(name)
    if value is None or isinstance(value, dict):
        return value or {}
    raise _Unreadable(f"{name} is {value!r}; it has to be an object of fields")
