"""The shape: sizes, heads, attention per layer, experts."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.files import read_json
from harness.spec.hf_config.architectures import Architecture, find_architecture
from harness.spec.hf_config.fields import Fields, Problems
from harness.spec.hf_config.modules import Modules
from harness.spec.hf_config.quantization import Blocks, read_formats

#: Where the text model of a model with eyes or ears is described.
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config")
_COUNT = ("num_experts", "num_local_experts", "n_routed_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token")
_KINDS = {"full_attention": "full", "sliding_attention": "sliding"}


def fields_from_hf(path: Path, settled: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a variant for a `config.json`, or the folder that holds it.

    `settled` are dotted fields (`vocab`, `weights.experts`) that come from elsewhere, so that what is wrong with them
    here does not matter. Raises UsageError with every problem found, each naming file and field, and UnreadableInput
    where a file cannot be read.
    """
    file = path / "config.json" if path.is_dir() else path
    whole = _object(file)
    text, where = _text_config(whole, str(file))
    architecture, problems = find_architecture(text, where), Problems()
    f = Fields(text, where, problems, architecture.fill)
    for name in architecture.requires:
        if text.get(name) is None:
            problems.note("experts", f"{where}: {f.missing([name])}, and without it the experts would be guessed")
    layers = f.size("", "num_hidden_layers") or 0
    mla = _mla(f) if architecture.mla else None
    sparse = _sparse_layers(f, architecture, layers)
    fields = {
        "layers": layers,
        **_heads(f, mla),
        **_ffn(f, architecture, sparse),
        "vocab": f.size("vocab", "vocab_size"),
        **_attention(f, architecture, layers),
        "mla": mla,
        "gated_ffn": architecture.gated,
        "tie_embeddings": _tied(f, whole),
    }
    modules = Modules(sparse, architecture.gated, mla, bool((fields.get("experts") or {}).get("shared_inter")))
    fields |= read_formats(_blocks(file, whole, text, where), modules, _dtype(f, whole), problems)
    problems.raise_unless(settled)
    name = file.resolve().parent.name
    return {"name": name, **{field: value for field, value in fields.items() if value is not None}}


def _object(file: Path) -> dict[str, Any]:
    data = read_json(file)
    if not isinstance(data, dict):
        raise UsageError(f"{file}: expected an object of fields, found {type(data).__name__}")
    return data


def _text_config(whole: dict[str, Any], where: str) -> tuple[dict[str, Any], str]:
    """The part that describes the text model, and how to name it."""
    for name in _TEXT_CONFIGS:
        if isinstance(whole.get(name), dict):
            return whole[name], f"{where}: {name}"
    return whole, where


def _blocks(file: Path, whole: dict[str, Any], text: dict[str, Any], where: str) -> Blocks:
    """Every place that says how weights are quantised: where it is → what it says; None where they are not."""
    blocks: Blocks = {}
    for data, place in {id(whole): (whole, str(file)), id(text): (text, where)}.values():
        if data.get("quantization_config") is not None:
            blocks[f"{place}: quantization_config"] = data["quantization_config"]
    beside = file.parent / "hf_quant_config.json"
    if beside.is_file():
        blocks[str(beside)] = _object(beside)
    return blocks or {where: None}


def _heads(f: Fields, mla: dict[str, Any] | None) -> dict[str, Any]:
    """Hidden size and heads. No KV heads means as many as query heads; no head size means hidden / heads.

    Under MLA no head has the size of a KV head; `head_dim` is what a head hands to o_proj.
    """
    hidden, q_heads = f.size("hidden", "hidden_size"), f.size("q_heads", "num_attention_heads")
    kv_heads = f.number("kv_heads", f.get("num_key_value_heads"), "num_key_value_heads") or q_heads
    head_dim = mla["value_head_dim"] if mla else f.number("head_dim", f.get("head_dim"), "head_dim")
    if head_dim is None and hidden and q_heads:
        head_dim, rest = divmod(hidden, q_heads)
        if rest:
            missing = f.missing(["head_dim"])
            f.problems.note(
                "head_dim",
                f"{f.where}: {missing}, and hidden_size {hidden} is no multiple of num_attention_heads {q_heads}",
            )
    return {"hidden": hidden, "q_heads": q_heads, "kv_heads": kv_heads, "head_dim": head_dim}


def _mla(f: Fields) -> dict[str, Any]:
    sizes = {
        "kv_lora_rank": "kv_lora_rank",
        "rope_head_dim": "qk_rope_head_dim",
        "nope_head_dim": "qk_nope_head_dim",
        "value_head_dim": "v_head_dim",
    }
    mla: dict[str, Any] = {field: f.size("mla", name) for field, name in sizes.items()}
    if "q_lora_rank" not in f.data:
        f.problems.note("mla", f"{f.where}: {f.missing(['q_lora_rank'])}; null says that queries are not compressed")
    mla["q_lora_rank"] = f.number("mla", f.get("q_lora_rank"), "q_lora_rank")
    return mla


def _ffn(f: Fields, architecture: Architecture, sparse: list[bool]) -> dict[str, Any]:
    """The dense FFN, and the experts where there are some."""
    if not architecture.expert_size:
        if any(f.data.get(name) for name in _COUNT):
            count = f.number("experts", f.get(*_COUNT), "/".join(_COUNT))
            kind = f.data["model_type"]
            f.problems.note("experts", f"{f.where}: it has {count} experts, and model_type {kind} is known without any")
        return {"ffn": f.size("ffn", "intermediate_size")}
    inter = f.size("experts.inter", architecture.expert_size)
    dense = sparse.index(True) if True in sparse else len(sparse)
    experts = {
        "count": f.size("experts.count", *_COUNT),
        "top_k": f.size("experts.top_k", *_TOP_K),
        "inter": inter,
        "shared_inter": _shared(f, inter),
        "dense_layers": dense,
    }
    if not all(sparse[dense:]):
        f.problems.note("", f"{f.where}: {_layout(sparse)}; a variant has dense layers before those with experts only")
    return {"ffn": f.size("ffn", "intermediate_size") if dense else 0, "experts": experts}


def _shared(f: Fields, inter: int | None) -> int | None:
    """Inner size of the shared expert; several are as wide as one of their summed size."""
    names = ("shared_expert_intermediate_size", "shared_intermediate_size")
    size = f.number("experts.shared_inter", f.get(*names), names[0], least=0)
    many = f.number("experts.shared_inter", f.get("n_shared_experts"), "n_shared_experts", least=0)
    if size is not None or not many:
        return size or 0
    return many * inter if inter else None


def _sparse_layers(f: Fields, architecture: Architecture, layers: int) -> list[bool]:
    """Which layers have experts."""
    if not architecture.expert_size:
        return [False] * layers
    first = f.number("experts.dense_layers", f.get("first_k_dense_replace"), "first_k_dense_replace", least=0) or 0
    step = f.number("experts.dense_layers", f.get("decoder_sparse_step"), "decoder_sparse_step") or 1
    dense, every = f.names("experts.dense_layers", "mlp_only_layers"), f.get("moe_layer_freq")
    spelt = [bool(one) for one in every] if isinstance(every, list) else None
    if spelt is not None and len(spelt) != layers:
        f.problems.note("", f"{f.where}: moe_layer_freq has {len(spelt)} entries for {layers} layers")
        return [True] * layers
    freq = 1 if spelt is not None else f.number("experts.dense_layers", every, "moe_layer_freq") or 1
    return [
        (spelt[layer] if spelt is not None else layer >= first and not layer % freq)
        and layer not in dense
        and not (layer + 1) % step
        for layer in range(layers)
    ]


def _layout(sparse: list[bool]) -> str:
    dense = [str(layer) for layer, has_experts in enumerate(sparse) if not has_experts]
    return f"layers {', '.join(dense[:8])}{', …' if len(dense) > 8 else ''} are dense, and the others have experts"


def _attention(f: Fields, architecture: Architecture, layers: int) -> dict[str, Any]:
    """The attention kind per layer, as short as its period allows, and the window.

    A window that is as long as the longest sequence never ends before it, so such layers are full.
    """
    if architecture.mla:
        return {"attention": ["mla"]}
    used = f.get("use_sliding_window") is not False
    window = f.number("window", f.get("sliding_window"), "sliding_window") if used else None
    limit, spelt = f.get("max_position_embeddings"), f.get("layer_types")
    if spelt is not None:
        kinds = _spelt_kinds(f, layers)
        if "sliding" in kinds and not window:
            f.problems.note(
                "window", f"{f.where}: layer_types has sliding_attention, and {f.missing(['sliding_window'])}"
            )
    else:
        kinds = _kinds_by_rule(f, architecture.window, layers) if window else ["full"] * layers
    if window and isinstance(limit, int) and window >= limit:
        kinds = ["full"] * layers
    return {"attention": _period(kinds), "window": window if "sliding" in kinds else None}


def _spelt_kinds(f: Fields, layers: int) -> list[str]:
    names = [str(name) for name in f.names("", "layer_types")]
    unknown = sorted(set(names) - _KINDS.keys())
    if unknown:
        f.problems.note("", f"{f.where}: layer_types has {', '.join(unknown)}; a variant has {', '.join(_KINDS)}")
    if len(names) != layers:
        f.problems.note("", f"{f.where}: layer_types has {len(names)} entries for num_hidden_layers {layers}")
    return [_KINDS.get(name, "full") for name in names]


def _kinds_by_rule(f: Fields, rule: str, layers: int) -> list[str]:
    """What the model's class does with `sliding_window` where no `layer_types` says it."""
    if rule == "late":
        full = f.size("window", "max_window_layers", least=0) or 0
        return ["full" if layer < full else "sliding" for layer in range(layers)]
    if rule == "pattern":
        every = f.size("window", "sliding_window_pattern") or 1
        return ["sliding" if (layer + 1) % every else "full" for layer in range(layers)]
    return ["sliding" if rule == "all" else "full"] * layers


def _period(kinds: list[str]) -> list[str]:
    """The shortest head of a list that gives all of it when repeated."""
    for length in range(1, len(kinds)):
        if all(kind == kinds[layer % length] for layer, kind in enumerate(kinds)):
            return kinds[:length]
    return kinds


def _tied(f: Fields, whole: dict[str, Any]) -> bool | None:
    """Whether lm_head is the embedding; a model with a text part may say so there, outside, or twice."""
    name = "tie_word_embeddings"
    said = [one for one in (f.data.get(name), whole.get(name)) if one is not None]
    value = said[0] if said else f.fill.get(name)
    if not isinstance(value, bool):
        state = f"{name} is {value!r}" if said else f.missing([name])
        f.problems.note("tie_embeddings", f"{f.where}: {state}; it has to be true or false")
        return None
    if any(one != value for one in said):
        f.problems.note("tie_embeddings", f"{f.where}: {name} is {value} here and {not value} outside")
    return value


def _dtype(f: Fields, whole: dict[str, Any]) -> str:
    """Format of what is not quantised; TensorRT-LLM takes bfloat16 where nothing is said (_torch/model_config.py)."""
    for data in (f.data, whole):
        for name in ("dtype", "torch_dtype"):
            if data.get(name) is not None:
                return "bf16" if data[name] in ("bfloat16", "float16") else str(data[name])
    return "bf16"
