"""Small engines with weights, for tests that need Model Optimizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.engines.hf_config import hf_config
from harness.engines.quantization import quant_files
from harness.engines.weights import write_weights
from harness.spec.variant import Variant

DENSE: dict[str, Any] = {
    "layers": 4,
    "hidden": 128,
    "q_heads": 16,
    "kv_heads": 2,
    "head_dim": 64,
    "ffn": 256,
    "vocab": 1000,
}
MOE: dict[str, Any] = {**DENSE, "ffn": 0, "experts": {"count": 8, "top_k": 2, "inter": 64}}
MLA: dict[str, Any] = {
    **DENSE,
    "kv_heads": 16,
    "attention": "mla",
    "mla": {"kv_lora_rank": 64, "rope_head_dim": 16, "nope_head_dim": 32, "value_head_dim": 32, "q_lora_rank": 64},
    "experts": {"count": 4, "top_k": 2, "inter": 64, "shared_inter": 64, "dense_layers": 1},
}


@dataclass(frozen=True)
class Files:
    """The two files that weights are made from, as text."""

    config_text: str
    quant_text: str

    @classmethod
    def of(cls, shape: dict[str, Any], architecture: str | None = None, **changes: Any) -> Files:
        variant = Variant(**{**shape, **changes})
        model = hf_config(variant, architecture)
        quant = quant_files(variant, model.architecture)
        config = dict(model.config)
        if quant.quantization_config is not None:
            config["quantization_config"] = quant.quantization_config
        return cls(json.dumps(config), json.dumps(quant.hf_quant_config))

    @property
    def config(self) -> dict[str, Any]:
        return dict(json.loads(self.config_text))

    @property
    def quant(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = json.loads(self.quant_text)
        return found

    def put(self, folder: Path) -> Path:
        """Write both into a new folder."""
        folder.mkdir()
        (folder / "config.json").write_text(self.config_text)
        if self.quant is not None:
            (folder / "hf_quant_config.json").write_text(self.quant_text)
        return folder

    def write(self, folder: Path, seed: int = 7, **options: Any) -> dict[str, Any]:
        return write_weights(self.config, self.quant, folder, seed, **options)


_BUILT: dict[Files, Path] = {}


def build(files: Files, factory: pytest.TempPathFactory) -> Path:
    """The folder of an engine with weights, made once a run; nobody writes into it."""
    if files not in _BUILT:
        folder = files.put(factory.mktemp("engines") / "engine")
        files.write(folder)
        _BUILT[files] = folder
    return _BUILT[files]


def contents(folder: Path) -> dict[str, bytes]:
    """What stands in a folder but for hidden files."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name[0] != "."}


def tensors_of(folder: Path) -> dict[str, Any]:
    """Every tensor of a folder, read by the package that defines the format."""
    from safetensors.torch import load_file

    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found: dict[str, Any] = {}
    for shard in sorted(set(index["weight_map"].values())):
        found |= load_file(folder / shard)
    assert found.keys() == index["weight_map"].keys()
    return found
