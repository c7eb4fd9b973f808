"""The package's own engine over whole models: a variant as a config directory, compiled, asked for a step or a prefill.

Two ways in. `compile_facade` is what the package documents, `EngineHandle.compile`. It has no argument for how tokens
reach experts or for the routing, so `compile_parts` takes the same steps one by one and sets both; for a model without
experts the two are the same (`tests/test_against_engine.py`). Tables of other releases may stand in for missing rows,
as the package does by default: expert exchanges were only measured with an earlier one.

Every variant needs a directory of its own, because the package keeps what it has read by path. It drops its tables
with the last model that uses them and would read them again for the next, so the latest model of a system is held.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant

#: Our weight formats in the engine's words; experts in FP8 with a scale per tensor are `fp8` there.
_GEMM = {"bf16": "bfloat16", "fp8": "fp8_static", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
_EXPERTS = {**_GEMM, "fp8": "fp8"}
_CACHE = {"bf16": "bfloat16", "fp8": "fp8"}
#: DeepEP, one kernel family per phase: TensorRT-LLM's for machines without NVLink between nodes.
_DEEPEP = {"context": "trtllm_deepep_ht", "generation": "trtllm_deepep_ll"}
_GPUS_PER_NODE = 8
_LATEST: dict[str, Any] = {}


@dataclass(frozen=True)
class EngineModel:
    """One compiled variant."""

    handle: Any

    def decode_ms(self, batch: int, kvsl: int) -> float:
        """One step of `batch` sequences of one rank. `kvsl` counts the new token; the engine adds it to its `isl`."""
        return float(self.handle.predict_decode_latency(batch, kvsl - 1, 2))

    def prefill_ms(self, batch: int, isl: int) -> float:
        """One pass over `batch` prompts of one rank."""
        return float(self.handle.predict_prefill_latency(batch, isl))

    def decode_ops(self, batch: int, kvsl: int) -> dict[str, float]:
        """The same step by op, in ms, without the phase in the names."""
        _, ops = self.handle.run_static_per_op(batch_size=batch, isl=kvsl - 1, osl=2)
        return {name.removeprefix("generation_"): float(time_ms) for name, time_ms, *_ in ops}

    def prefill_ops(self, batch: int, isl: int) -> dict[str, float]:
        """The same pass by op, in ms, without the phase in the names."""
        ops, _ = self.handle.run_static_per_op(batch_size=batch, isl=isl, osl=1)
        return {name.removeprefix("context_"): float(time_ms) for name, time_ms, *_ in ops}


def write_config(variant: Variant, folder: Path) -> Path:
    """Write the variant to a new directory as a Hugging Face `config.json`: Llama, or Mixtral where it has experts.

    Both are plain GQA; formats are arguments of compiling.
    """
    experts = variant.experts
    data: dict[str, Any] = {
        "architectures": ["MixtralForCausalLM" if experts else "LlamaForCausalLM"],
        "num_hidden_layers": variant.layers,
        "hidden_size": variant.hidden,
        "num_attention_heads": variant.q_heads,
        "num_key_value_heads": variant.kv_heads,
        "head_dim": variant.head_dim,
        "intermediate_size": experts.inter if experts else variant.ffn,
        "vocab_size": variant.vocab,
        "max_position_embeddings": 131072,
    }
    if experts:
        data |= {
            "num_local_experts": experts.count,
            "num_experts_per_tok": experts.top_k,
            "moe_intermediate_size": experts.inter,
        }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def compile_facade(folder: Path, variant: Variant, system: str, release: str) -> EngineModel:
    """Compile for one GPU through `EngineHandle.compile`."""
    with _quiet():
        from aiconfigurator_core.sdk import EngineHandle

        handle = EngineHandle.compile(
            str(folder), system, "trtllm", backend_version=release, **_formats(variant, experts=False)
        )
    _LATEST[system] = handle
    return EngineModel(handle)


def compile_parts(
    folder: Path, variant: Variant, split: Parallelism, system: str, release: str, routing: str
) -> EngineModel:
    """Compile for a parallelism and a routing, `balanced` or `power_law_1.2`; the engine has no other power.

    Under attention DP whole experts are reached by DeepEP's all-to-all, as rows of it exist for these systems. Raises
    what the package raises where it has no answer.
    """
    with _quiet():
        import aiconfigurator_core
        from aiconfigurator_core.sdk import engine, perf_database
        from aiconfigurator_core.sdk.config_builders import build_model_config
        from aiconfigurator_core.sdk.models import get_model

        dp = split.dp
        config = build_model_config(
            tp_size=split.tp // dp,
            pp_size=split.pp,
            attention_dp_size=dp,
            moe_tp_size=split.expert_tp,
            moe_ep_size=split.ep,
            **_formats(variant, experts=variant.experts is not None),
        )
        config.workload_distribution = routing.removesuffix("_1.2")
        config.system = system
        if exchanges(variant, split):
            config.moe_comm_backend, config.num_gpus_per_node = dict(_DEEPEP), _GPUS_PER_NODE
        model = get_model(str(folder), config, "trtllm")
        spec = engine.build_engine_spec_json(
            model,
            model_path=str(folder),
            system=system,
            backend="trtllm",
            backend_version=release,
            kv_block_size=None,
            systems_path=None,
            nextn=0,
            database=perf_database.get_database_view(system, "trtllm", release, database_mode="SILICON"),
        )
        handle = engine.EngineHandle(aiconfigurator_core.engine_spec_bincode_from_json(spec))
    _LATEST[system] = handle
    return EngineModel(handle)


def exchanges(variant: Variant, split: Parallelism) -> bool:
    """Whether tokens travel to whole experts: attention DP with all of the ranks in EP."""
    return variant.experts is not None and split.attention_dp and split.ep > 1 and split.expert_tp == 1


def _formats(variant: Variant, *, experts: bool) -> dict[str, str]:
    weights = variant.weights
    formats = {
        "gemm_quant_mode": _GEMM[weights.attention],
        "kvcache_quant_mode": _CACHE[variant.kv_format],
        "fmha_quant_mode": _CACHE[variant.attn_format],
    }
    return formats | ({"moe_quant_mode": _EXPERTS[weights.experts]} if experts else {})


@contextmanager
def _quiet() -> Iterator[None]:
    """No log lines or warnings of the package."""
    logger = logging.getLogger("aiconfigurator_core")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
