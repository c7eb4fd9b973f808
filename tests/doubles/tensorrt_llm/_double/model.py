"""Read a model folder as the PyTorch backend does: config.json, hf_quant_config.json, weights that are no dummies."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.spec.variant import Experts, Mla, Variant, WeightFormats

ARCHITECTURES = (
    "LlamaForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "MixtralForCausalLM",
    "DeepseekV3ForCausalLM",
)
_FORMAT = {
    None: "bf16", "FP8": "fp8", "FP8_BLOCK_SCALES": "fp8_block", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4",
}  # fmt: skip
_KV = {None: "bf16", "FP8": "fp8", "NVFP4": "nvfp4"}
_MODULES = {
    "attention": ("self_attn.q_proj", "self_attn.o_proj", "self_attn.q_b_proj"),
    "ffn": ("mlp.gate_proj", "mlp.down_proj"),
    "experts": ("mlp.experts.0.gate_proj", "block_sparse_moe.experts.0.w1"),
    "lm_head": ("lm_head",),
}


@dataclass(frozen=True)
class Quantisation:
    """`quantization` of hf_quant_config.json, or what the inline form says."""

    algorithm: str | None = None
    kv: str | None = None
    group_size: int | None = None
    exclude: tuple[str, ...] = ()
    layers: dict[str, Any] = field(default_factory=dict)

    def of(self, module: str) -> str | None:
        """The algorithm of a module by its full name."""
        if any(fnmatchcase(module, one) or module.startswith(f"{one}.") for one in self.exclude):
            return None
        if self.algorithm == "MIXED_PRECISION":
            found = self.layers.get(module)
            return found and found["quant_algo"]
        return self.algorithm


@dataclass(frozen=True)
class Model:
    """A model folder that was read."""

    folder: Path
    config: dict[str, Any]
    quantisation: Quantisation

    @property
    def architecture(self) -> str:
        return str(self.config["architectures"][0])

    @property
    def is_mla(self) -> bool:
        return self.architecture == "DeepseekV3ForCausalLM"

    @property
    def head_dim(self) -> int:
        given = self.config.get("head_dim")
        return given if isinstance(given, int) else self.config["hidden_size"] // self.config["num_attention_heads"]

    @property
    def experts(self) -> int:
        names = ("n_routed_experts", "num_local_experts", "num_experts")
        return next((self.config[name] for name in names if self.config.get(name)), 0)

    @property
    def expert_inter(self) -> int:
        return int(self.config.get("moe_intermediate_size") or self.config["intermediate_size"])

    @property
    def layers(self) -> int:
        return int(os.environ.get("TLLM_OVERRIDE_LAYER_NUM", "0")) or int(self.config["num_hidden_layers"])

    @property
    def dense_layers(self) -> int:
        if not self.experts:
            return self.layers
        first = self.config.get("first_k_dense_replace") or len(self.config.get("mlp_only_layers") or ())
        return min(first, self.layers)

    def format(self, group: str) -> str:
        """Weight format of a module group, looked up in the last layer, or the first for a dense FFN before experts."""
        layer = 0 if group == "ffn" else self.layers - 1
        names = _MODULES[group]
        full = names if group == "lm_head" else tuple(f"model.layers.{layer}.{name}" for name in names)
        if self.quantisation.algorithm == "MIXED_PRECISION":
            known = [one for one in full if one in self.quantisation.layers]
            return _FORMAT[self.quantisation.of(known[0]) if known else None]
        return _FORMAT[self.quantisation.of(full[0])]

    def kv_format(self, setting: str) -> str:
        """`kv_cache_config.dtype` over what the checkpoint says."""
        if setting in {"fp8", "nvfp4"}:
            return setting
        return _KV[self.quantisation.kv] if setting == "auto" else "bf16"

    def variant(self, kv_setting: str = "auto") -> Variant:
        """What it is in words of the cost model."""
        c = self.config
        kv = self.kv_format(kv_setting)
        weights = {group: self.format(group) for group in _MODULES}
        fp8_attention = kv == "fp8" and weights["attention"] != "bf16" and not self.is_mla
        return Variant(
            layers=self.layers,
            hidden=c["hidden_size"],
            q_heads=c["num_attention_heads"],
            kv_heads=c.get("num_key_value_heads") or c["num_attention_heads"],
            head_dim=self.head_dim,
            ffn=c["intermediate_size"] if self.dense_layers else 0,
            vocab=c["vocab_size"],
            attention=self._kinds(),
            window=(c.get("sliding_window") or 0) if "sliding" in self._kinds() else 0,
            mla=self._mla() if self.is_mla else None,
            experts=self._experts() if self.experts else None,
            weights=WeightFormats(**weights),
            kv_format=kv,
            attn_format="fp8" if fp8_attention else "bf16",
            tie_embeddings=bool(c.get("tie_word_embeddings")),
        )

    def _kinds(self) -> tuple[str, ...]:
        if self.is_mla:
            return ("mla",)
        kinds = {"full_attention": "full", "sliding_attention": "sliding"}
        named = [kinds[kind] for kind in self.config.get("layer_types") or ()][: self.layers]
        return tuple(named) if "sliding" in named else ("full",)

    def _mla(self) -> Mla:
        c = self.config
        return Mla(
            kv_lora_rank=c["kv_lora_rank"],
            rope_head_dim=c["qk_rope_head_dim"],
            nope_head_dim=c["qk_nope_head_dim"],
            value_head_dim=c["v_head_dim"],
            q_lora_rank=c.get("q_lora_rank"),
        )

    def _experts(self) -> Experts:
        return Experts(
            count=self.experts,
            top_k=self.config["num_experts_per_tok"],
            inter=self.expert_inter,
            shared_inter=(self.config.get("n_shared_experts") or 0) * self.expert_inter,
            dense_layers=self.dense_layers,
        )


def read_model(folder: str | Path, overrides: dict[str, Any] | None = None) -> Model:
    """Read a folder; raise as the loader does where it is no model or not one of the known classes."""
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(f"Unrecognized model in {folder}. Should have a `config.json` with a `model_type` key.")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config.update({key: value for key, value in (overrides or {}).items() if key in config})
    model = Model(folder, config, _quantisation(folder, config))
    if model.architecture not in ARCHITECTURES:
        raise ValueError(f"Unknown architecture for AutoModelForCausalLM: {model.architecture}")
    return model


def _quantisation(folder: Path, config: dict[str, Any]) -> Quantisation:
    file = folder / "hf_quant_config.json"
    if file.is_file():
        found = json.loads(file.read_text(encoding="utf-8"))["quantization"]
        return _checked(
            found.get("quant_algo"), found.get("kv_cache_quant_algo"), found.get("group_size"),
            tuple(found.get("exclude_modules") or ()), found.get("quantized_layers") or {},
        )  # fmt: skip
    inline = config.get("quantization_config") or {}
    method = inline.get("quant_method")
    exclude = tuple(inline.get("modules_to_not_convert") or inline.get("ignored_layers") or inline.get("ignore") or ())
    if method == "fp8":
        assert list(inline["weight_block_size"]) == [128, 128], "FP8_BLOCK_SCALES only supports block_size=(128, 128)"
        return Quantisation("FP8_BLOCK_SCALES", None, 128, exclude)
    if method == "modelopt":
        kv = {8: "FP8", 4: "NVFP4"}.get((inline.get("kv_cache_scheme") or {}).get("num_bits"))
        return _checked(inline.get("quant_algo"), kv, inline.get("group_size"), exclude, {})
    return Quantisation()


def _checked(
    algorithm: str | None, kv: str | None, group: int | None, exclude: tuple[str, ...], layers: dict[str, Any]
) -> Quantisation:
    if algorithm not in {*_FORMAT, "MIXED_PRECISION"}:
        raise ValueError(f"'{algorithm}' is not a valid QuantAlgo")
    if kv not in _KV:
        raise ValueError(f"'{kv}' is not a valid QuantAlgo")
    if algorithm == "NVFP4" and group not in {None, 16}:
        raise ValueError(f"NVFP4 group_size must be 16, got {group}")
    return Quantisation(algorithm, kv, group, exclude, layers)


def read_weights(folder: Path) -> None:
    """Check that the files of `load_format: auto` are there and whole; raise RuntimeError or ValueError else."""
    index = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("*.safetensors"))
    if index.is_file():
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        files = [folder / name for name in sorted(named)]
    if not files:
        raise RuntimeError(f"No weight files found in {folder}.")
    for file in files:
        with file.open("rb") as stream:
            size = struct.unpack("<Q", stream.read(8))[0]
            header = json.loads(stream.read(size))
        end = max((one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"), default=0)
        if file.stat().st_size != 8 + size + end:
            raise ValueError("Error while deserializing header: MetadataIncompleteBuffer")
