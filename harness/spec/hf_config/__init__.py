"""Model folders of Hugging Face as variants: `config.json` and, where there is one, `hf_quant_config.json`.

Pure JSON; no weights are read and transformers is not needed. Spellings of transformers 4.57 and 5 are both known
(`num_experts` and `num_local_experts`, `torch_dtype` and `dtype`). Left out is what a variant has no field for: biases,
norms beyond two a layer, and attention sinks, together at most 0.1 % of the parameters of the models that were counted;
and MTP layers, vision and audio towers.
"""

from __future__ import annotations

from harness.spec.hf_config.config import fields_from_hf

__all__ = ["fields_from_hf"]
