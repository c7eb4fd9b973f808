"""Settings of TensorRT-LLM's LLM API for a group of workloads under one parallelism, as YAML for one version.

What is measured is pinned instead of left to heuristics: sizes are those of the workloads and no larger, the KV cache
holds them and nothing is reused, CUDA graphs exist for the batches that decode. Which version has which setting is in
`harness/data/llm_args.yaml`. Environment variables: github.com/NVIDIA/TensorRT-LLM, docs/source/developer-guide and
tensorrt_llm/_torch/speculative/interface.py, read 2026-11-30.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cost.kv_cache import TOKENS_PER_BLOCK
from harness.cost.ranks import rank_shape
from harness.engines.hf_config import MAX_POSITIONS
from harness.engines.instance import Sizes, Workloads, instance_sizes
from harness.engines.llm_fields import allowed_values, check_fields, check_version, check_written, has_field
from harness.errors import UsageError
from harness.files import dump_yaml
from harness.lint.facts import in_force, rulebook
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Routing

__all__ = ["OUTPUT_TOKENS", "TRTLLM_VERSIONS", "LlmArgs", "check_fields", "llm_args"]

#: Versions that settings are written for by name; any later one gets those of the newest before it.
TRTLLM_VERSIONS = ("1.2.1", "1.3.0rc7", "1.3.0rc24", "1.4")

#: Tokens that each sequence of a decode workload may generate beyond its context.
OUTPUT_TOKENS = 512

#: Records kept until they are fetched, more than any run has iterations.
_STATS_KEPT = 100_000
_LOAD_BALANCER_FILE = "moe_load_balancer.yaml"


@dataclass(frozen=True, slots=True)
class LlmArgs:
    """Settings for one TensorRT-LLM version, the files they name, and what the process that reads them needs."""

    version: str
    fields: dict[str, Any]
    """Without `model`, which is where the engine lies."""
    files: dict[str, str] = field(default_factory=dict)
    """Name → text of files that lie beside the YAML."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that TensorRT-LLM reads when it starts."""
    notes: tuple[str, ...] = ()

    def to_yaml(self, folder: Path | None = None) -> str:
        """Return the YAML; with `folder`, where `files` lie, paths are whole, for a process that works elsewhere."""
        fields = dict(self.fields)
        moe = fields.get("moe_config", {})
        if folder is not None and "load_balancer" in moe:
            fields["moe_config"] = {**moe, "load_balancer": str(folder.resolve() / moe["load_balancer"])}
        return dump_yaml(fields)


def llm_args(
    variant: Variant,
    parallelism: Parallelism,
    workloads: Workloads,
    version: str,
    *,
    load_format: str = "dummy",
    moe_backend: str | None = None,
    tokens_per_block: int = TOKENS_PER_BLOCK,
    output_tokens: int = OUTPUT_TOKENS,
    max_positions: int = MAX_POSITIONS,
) -> LlmArgs:
    """Return the settings with which one LLM instance serves all `workloads`.

    `moe_backend` is by default what the version takes by itself, `load_format` is `dummy` or `auto`, `max_positions`
    that of `hf_config`. Raises UsageError where workloads cannot share an instance, the parallelism is impossible, or
    the version lacks a setting or does not take a value.
    """
    version = check_version(version)
    try:
        rank_shape(variant, parallelism)
    except ValueError as error:
        raise UsageError(f"{variant.name}, {parallelism.label}: {error}") from error
    sizes = instance_sizes(parallelism, workloads, tokens_per_block, output_tokens)
    fields: dict[str, Any] = {
        **_parallel(variant, parallelism, tokens_per_block),
        "dtype": "bfloat16",
        "load_format": load_format,
        "skip_tokenizer_init": True,
        "max_batch_size": sizes.batch,
        "max_num_tokens": sizes.pass_tokens,
        "max_seq_len": sizes.sequence,
        "enable_chunked_prefill": sizes.chunked,
        "disable_overlap_scheduler": False,
        "cuda_graph_config": _graphs(sizes),
        "kv_cache_config": _cache(variant, sizes, tokens_per_block),
        "enable_iter_perf_stats": True,
        "max_stats_len": _STATS_KEPT,
        "print_iter_log": True,
    }
    files = {}
    if variant.experts:
        fields["moe_config"] = {"backend": moe_backend or _default_backend(version)}
        if parallelism.slots:
            fields["moe_config"]["load_balancer"] = _LOAD_BALANCER_FILE
            files[_LOAD_BALANCER_FILE] = _load_balancer(variant, parallelism.slots, sizes.draft_len)
    if sizes.draft_len:
        fields["speculative_config"] = _speculation(variant, sizes.draft_len, version)
    check_written(fields, version)
    return LlmArgs(
        version,
        fields,
        files,
        dict(_environment(variant, sizes, workloads, max_positions)),
        tuple(_notes(variant, sizes, fields, {one.routing for one in workloads}, max_positions)),
    )


def _parallel(variant: Variant, split: Parallelism, tokens_per_block: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "tensor_parallel_size": split.tp,
        "pipeline_parallel_size": split.pp,
        "context_parallel_size": split.cp,
        "enable_attention_dp": split.attention_dp,
    }
    if split.cp > 1:
        fields["cp_config"] = {"cp_type": "HELIX", "tokens_per_block": tokens_per_block}
    if split.pp_partition:
        fields["pp_partition"] = list(split.pp_partition)
    if variant.experts:
        fields |= {"moe_expert_parallel_size": split.ep, "moe_tensor_parallel_size": split.expert_tp}
    return fields


def _graphs(sizes: Sizes) -> dict[str, Any] | None:
    """Null means none: passes with prompts never use one."""
    if not sizes.graph_batches:
        return None
    return {"batch_sizes": list(sizes.graph_batches), "enable_padding": sizes.graph_padding}


def _cache(variant: Variant, sizes: Sizes, tokens_per_block: int) -> dict[str, Any]:
    cache: dict[str, Any] = {
        "dtype": "auto" if variant.kv_format == "bf16" else variant.kv_format,
        "enable_block_reuse": False,
        "enable_partial_reuse": False,
        "tokens_per_block": tokens_per_block,
        "max_tokens": sizes.cache_tokens,
        # The smaller of the two counts, and TensorRT-LLM says nothing where it is this one.
        "free_gpu_memory_fraction": 0.9,
    }
    if "sliding" in variant.attention:
        # Repeated over the layers, as the pattern of the variant is.
        cache["max_attention_window"] = [
            variant.window if kind == "sliding" else sizes.sequence for kind in variant.attention
        ]
    return cache


def _default_backend(version: str) -> str:
    known = [one.backend for one in in_force(rulebook().facts.moe_defaults, version)]
    return known[-1] if known else "CUTLASS"


def _load_balancer(variant: Variant, slots: int, draft_len: int) -> str:
    """`MoeLoadBalancerConfig`: experts in turn, so that a rank holds none twice; nothing moves while it runs."""
    experts = variant.experts
    assert experts is not None
    # The layer for draft tokens comes after the others.
    last = variant.layers + (1 if draft_len and variant.mla else 0)
    assignment = [slot % experts.count for slot in range(slots)]
    layers = dict.fromkeys(range(experts.dense_layers, last), assignment)
    return dump_yaml({"num_slots": slots, "layer_updates_per_iter": 0, "initial_global_assignments": layers})


def _speculation(variant: Variant, draft_len: int, version: str) -> dict[str, Any]:
    """MTP where the model has a layer for it, else what drafts without a model."""
    known = allowed_values("speculative_config.decoding_type", version)
    if variant.mla:
        name = "num_nextn_predict_layers"
        older = has_field(f"speculative_config.{name}", version)
        return {"decoding_type": "MTP", (name if older else "max_draft_len"): draft_len}
    if "SA" in known:
        return {"decoding_type": "SA", "max_draft_len": draft_len}
    return {"decoding_type": "NGram", "max_draft_len": draft_len, "max_matching_ngram_size": 2}


def _environment(variant: Variant, sizes: Sizes, workloads: Workloads, max_positions: int) -> Iterator[tuple[str, str]]:
    if sizes.sequence > max_positions:
        yield "TLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"
    if variant.experts and {one.routing for one in workloads} == {"balanced"}:
        yield "ENABLE_PERFECT_ROUTER", "1"
    if sizes.draft_len and variant.mla:
        yield "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", f"{_accepted(workloads):g}"


def _accepted(workloads: Workloads) -> float:
    return max((one.accepted for one in workloads if isinstance(one, Decode)), default=0.0)


def _notes(
    variant: Variant, sizes: Sizes, fields: dict[str, Any], routing: set[Routing], max_positions: int
) -> Iterator[str]:
    yield from sizes.notes
    if sizes.sequence > max_positions:
        yield f"max_seq_len {sizes.sequence} is longer than max_position_embeddings {max_positions} of config.json"
    if sizes.draft_len and not variant.mla:
        kind = fields["speculative_config"]["decoding_type"]
        yield (
            f"{kind} drafts where a pattern repeats, which random tokens rarely do: a step can have fewer than 1 + "
            f"{sizes.draft_len} query tokens, and accepted tokens cannot be imposed"
        )
    if variant.experts and routing == {"balanced"}:
        yield "ENABLE_PERFECT_ROUTER balances experts in some models of TensorRT-LLM only; the run has to check"
    elif variant.experts:
        yield f"TensorRT-LLM cannot be told to route as {' and '.join(sorted(routing))}; its own routing is measured"
