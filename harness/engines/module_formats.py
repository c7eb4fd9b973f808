"""The weight format of each module by name, as the quantisation files of an engine say it.

Weights are written in what the files say and not in what the variant asks, so that the two cannot disagree. Rules:
`exclude_modules` are shell patterns over module names; under MIXED_PRECISION `quantized_layers` names modules, experts
by the module that holds them (`is_module_excluded_from_quantization` in tensorrt_llm/models/modeling_utils.py, and
tensorrt_llm/_torch/model_config.py at 008e0af, github.com/NVIDIA/TensorRT-LLM).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from harness.engines.quantization import ALGORITHMS
from harness.spec.variant import KvFormat, WeightFormat

_FORMATS: dict[str, WeightFormat] = {algorithm: weights for weights, algorithm in ALGORITHMS.items()}
_KV_FORMATS: dict[str | None, KvFormat] = {None: "bf16", "FP8": "fp8", "NVFP4": "nvfp4"}


@dataclass(frozen=True, slots=True)
class ModuleFormats:
    """One format with exceptions, or a format for each module by name; and the format of the KV cache."""

    weights: WeightFormat = "bf16"
    excluded: tuple[str, ...] = ()
    layers: Mapping[str, WeightFormat] | None = None
    kv: KvFormat = "bf16"

    @classmethod
    def read(cls, hf_quant_config: Mapping[str, Any] | None) -> ModuleFormats:
        """Return what `hf_quant_config.json` says; None means bf16 throughout."""
        if hf_quant_config is None:
            return cls()
        said = hf_quant_config["quantization"]
        layers = said.get("quantized_layers")
        return cls(
            weights=_FORMATS.get(said["quant_algo"], "bf16"),
            excluded=tuple(said.get("exclude_modules", ())),
            layers={name: _FORMATS[one["quant_algo"]] for name, one in layers.items()} if layers else None,
            kv=_KV_FORMATS[said["kv_cache_quant_algo"]],
        )

    def of(self, module: str) -> WeightFormat:
        """The format of a linear module's weight."""
        if self.layers is not None:
            return self.layers.get(module) or self.layers.get(module.rpartition(".experts.")[0] + ".experts", "bf16")
        return "bf16" if any(fnmatchcase(module, pattern) for pattern in self.excluded) else self.weights
