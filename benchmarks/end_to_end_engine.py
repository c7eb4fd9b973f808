"""The package's own whole-model engine, asked for served rows with formula F and nothing else.

It is given a model as a local folder with a `config.json`, so it looks nothing up on the Hugging Face hub; every engine
has a folder of its own, because the package keeps what it has read by path. Formats are those that the sample names:
FP8 with one scale per tensor where it says fp8 of a dense model. Routing is the package's own.
"""

from __future__ import annotations

import json
import logging
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NamedTuple

from end_to_end_rows import ServedRow, variant_of

from harness.pricing.tables.assumptions import load_assumptions
from harness.spec.variant import Variant

#: Ours → the engine's `GEMMQuantMode` and `MoEQuantMode`.
_GEMM = {"bf16": "bfloat16", "fp8": "fp8_static", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
_MOE = {**_GEMM, "fp8": "fp8"}
_ARCHITECTURES = {
    "Llama": "LlamaForCausalLM",
    "Qwen3-32B": "Qwen3ForCausalLM",
    "Qwen3-235B": "Qwen3MoeForCausalLM",
    "DeepSeek": "DeepseekV3ForCausalLM",
}


class EngineTimes(NamedTuple):
    """What the engine says of one row, in ms."""

    tpot_ms: float
    ttft_ms: float


class WholeModelEngine:
    """The engine over models that it reads from a temporary folder."""

    def __init__(self) -> None:
        logger = logging.getLogger("aiconfigurator_core")
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        self._temporary = TemporaryDirectory(prefix="end-to-end-")
        self._handle = cache(self._compile)

    def close(self) -> None:
        """Remove the folder."""
        self._temporary.cleanup()

    def times(self, row: ServedRow) -> EngineTimes | None:
        """Formula F: a decode step at the mean context and b · prefill / osl; None where the engine raises."""
        variant = variant_of(row, block_fp8=False)
        if isinstance(variant, str) or row.split is None:
            return None
        try:
            split = row.split
            handle = self._handle(variant, row.system, split.tp, split.ep, split.expert_tp)
            prefill_ms = float(handle.predict_prefill_latency(1, row.isl))
            # With osl 2 it is one step.
            step_ms = float(handle.predict_decode_latency(row.batch, row.isl + row.osl // 2, osl=2))
        except Exception:  # noqa: BLE001  # whatever the package raises
            return None
        return EngineTimes(step_ms + row.batch * prefill_ms / row.osl, prefill_ms)

    def _compile(self, variant: Variant, system: str, tp: int, ep: int, moe_tp: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from aiconfigurator_core.sdk import EngineHandle

            experts = variant.experts is not None
            return EngineHandle.compile(
                str(self._folder(variant)),
                system,
                "trtllm",
                backend_version=load_assumptions(system).release,
                tp_size=tp,
                moe_tp_size=moe_tp if experts else None,
                moe_ep_size=ep if experts else None,
                gemm_quant_mode=_GEMM[variant.weights.ffn],
                moe_quant_mode=_MOE[variant.weights.experts],
                kvcache_quant_mode=_GEMM[variant.kv_format].removesuffix("_static"),
                fmha_quant_mode=_GEMM[variant.attn_format].removesuffix("_static"),
            )

    def _folder(self, variant: Variant) -> Path:
        folder = Path(mkdtemp(dir=self._temporary.name))
        (folder / "config.json").write_text(json.dumps(config_of(variant)), encoding="utf-8")
        return folder


def config_of(variant: Variant) -> dict[str, Any]:
    """The `config.json` of a variant, as far as the engine reads it."""
    architecture = next(name for start, name in _ARCHITECTURES.items() if variant.name.startswith(start))
    config: dict[str, Any] = {
        "architectures": [architecture],
        "num_hidden_layers": variant.layers,
        "hidden_size": variant.hidden,
        "num_attention_heads": variant.q_heads,
        "num_key_value_heads": variant.kv_heads,
        "head_dim": variant.head_dim,
        "intermediate_size": variant.ffn,
        "vocab_size": variant.vocab,
        "max_position_embeddings": 131072,
    }
    if variant.experts:
        config["num_experts"] = config["n_routed_experts"] = variant.experts.count
        config["num_experts_per_tok"] = variant.experts.top_k
        config["moe_intermediate_size"] = variant.experts.inter
        config["first_k_dense_replace"] = variant.experts.dense_layers
        config["n_shared_experts"] = variant.experts.shared_inter // variant.experts.inter
    if variant.mla:
        config["kv_lora_rank"], config["q_lora_rank"] = variant.mla.kv_lora_rank, variant.mla.q_lora_rank
        config["qk_rope_head_dim"], config["qk_nope_head_dim"] = variant.mla.rope_head_dim, variant.mla.nope_head_dim
        config["v_head_dim"] = variant.mla.value_head_dim
    return config
