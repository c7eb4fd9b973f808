"""What TensorRT-LLM refuses before it runs, with its words where they are known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from harness.spec.parallelism import Parallelism
from tensorrt_llm._double import gpu, gpu_count, sm_version
from tensorrt_llm._double.era import era
from tensorrt_llm._double.failures import abort
from tensorrt_llm._double.model import Model, read_weights
from tensorrt_llm._double.schemas import load_balancer

#: Head sizes that the attention kernels are made for.
HEAD_SIZES = frozenset({32, 48, 64, 80, 96, 104, 112, 128, 144, 160, 192, 224, 256})
#: MoE backends and the GPUs that they have kernels for.
_MOE_SM = {
    "TRTLLM": {100, 103},
    "DEEPGEMM": {100, 103},
    "DENSEGEMM": {100, 103},
    "CUTEDSL": {100, 103, 120, 121},
    "CUTEDSL_FC12": {100, 103},
    "MARLIN": {90},
    "MEGAMOE_DEEPGEMM": {100, 103},
    "MEGAMOE_CUTEDSL": {100, 103},
}
_BLACKWELL = (100, 103, 120, 121)


def split_of(args: Any) -> Parallelism:
    """The parallelism that arguments ask for; raise ValueError as `Mapping` does."""
    tp, cp = args.tensor_parallel_size, args.context_parallel_size
    ways = tp * cp
    ep, moe_tp = args.moe_expert_parallel_size or -1, args.moe_tensor_parallel_size or -1
    if ep == -1:
        ep = ways // moe_tp if moe_tp != -1 else 1
    if moe_tp == -1:
        moe_tp = ways // ep
    if ep * moe_tp != ways:
        raise ValueError(
            f"tp_size must equal to moe_tp_size * moe_ep_size * moe_cluster_size, but got {ways} != {moe_tp} * {ep} * 1"
        )
    balancer = read_balancer(args)
    parts = args.pp_partition
    return Parallelism(
        tp=tp, pp=args.pipeline_parallel_size, cp=cp, ep=ep, moe_tp=moe_tp, attention_dp=args.enable_attention_dp,
        slots=balancer.num_slots if balancer else None, pp_partition=tuple(parts) if parts else None,
    )  # fmt: skip


def read_balancer(args: Any) -> Any:
    """The load balancer's file, whose path is relative to the working directory."""
    path = args.moe_config.load_balancer
    if path is None:
        return None
    return load_balancer().model_validate(yaml.safe_load(Path(path).read_text(encoding="utf-8")))


def check(args: Any, model: Model, split: Parallelism) -> None:
    """Raise, or abort the process, as the version does for what it cannot run."""
    if split.world_size > 1 and gpu_count() < split.world_size:
        raise RuntimeError(f"Only {gpu_count()} GPUs are available, but {split.world_size} are required.")
    _lengths(args, model)
    _helix(args, model, split)
    _heads(model, split)
    _formats(args, model)
    _linears(model, split)
    if model.experts:
        _experts(args, model, split)
    _drafts(args, model)
    if args.load_format.upper() == "AUTO":
        read_weights(model.folder)
    if not args.skip_tokenizer_init and not (model.folder / "tokenizer.json").is_file():
        raise OSError(f"Can't load tokenizer for '{model.folder}'.")


def _lengths(args: Any, model: Model) -> None:
    longest = model.config["max_position_embeddings"]
    if args.max_seq_len and args.max_seq_len > longest and os.environ.get("TLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
        raise ValueError(
            f"max_seq_len {args.max_seq_len} is larger than the max_position_embeddings {longest} of the model; set "
            "TLLM_ALLOW_LONG_MAX_MODEL_LEN=1 to allow it"
        )


def _helix(args: Any, model: Model, split: Parallelism) -> None:
    if split.cp == 1:
        return
    kind = getattr(args.cp_config, "cp_type", None)
    if (kind or "").upper() != "HELIX":
        raise ValueError(f"context_parallel_size {split.cp} needs cp_config.cp_type HELIX, got {kind}")
    if args.cp_config.tokens_per_block != args.kv_cache_config.tokens_per_block:
        raise ValueError("cp_config.tokens_per_block must equal kv_cache_config.tokens_per_block")
    if not era().helix_gqa and not model.is_mla:
        raise ValueError("Helix parallelism is only supported with MLA")
    if era().helix_alone == "refused":
        raise ValueError("Helix parallelism is for the generation server of disaggregated serving")


def _heads(model: Model, split: Parallelism) -> None:
    heads, ways = model.config["num_attention_heads"], 1 if split.attention_dp else split.tp * split.cp
    assert heads % ways == 0
    if model.is_mla:
        return
    kv, tp = model.config.get("num_key_value_heads") or heads, 1 if split.attention_dp else split.tp
    if kv % tp and tp % kv:
        # What the version does with, for example, 6 KV heads on 4 ranks is not established.
        raise AssertionError
    size = model.head_dim
    if size == 192 and sm_version() >= 90:
        abort(f"[TensorRT-LLM][ERROR] Assertion failed: Unsupported HeadDim for BMM2-N {size}")
    if size not in HEAD_SIZES:
        text = f"Head size {size} is not supported by MMHA."
        if era().head_size == "abort":
            abort(f"[TensorRT-LLM][ERROR] Assertion failed: {text}")
        raise ValueError(text)


def _formats(args: Any, model: Model) -> None:
    formats = {model.format(group) for group in ("attention", "ffn", "experts", "lm_head")}
    sm = sm_version()
    if "nvfp4" in formats and sm not in _BLACKWELL and not (sm == 90 and era().hopper_nvfp4 == "weight_only"):
        raise RuntimeError(
            "[TensorRT-LLM][ERROR] Assertion failed: FP4 Gemm not supported before Blackwell, or GeForce"
        )
    if "fp8" in formats and gpu().peak_flop_per_s["fp8"] is None:
        raise RuntimeError(f"FP8 is not supported on SM {sm}")
    if model.kv_format(args.kv_cache_config.dtype) == "nvfp4" and sm not in _BLACKWELL:
        raise ValueError("NVFP4 KV cache is only supported on Blackwell")


def _linears(model: Model, split: Parallelism) -> None:
    """NVFP4 has a scale for 16 inputs, FP8 blocks are 128 wide, both after sharding."""
    c, ways = model.config, 1 if split.attention_dp else split.tp * split.cp
    value = c["v_head_dim"] if model.is_mla else model.head_dim
    inputs = {"attention": [c["hidden_size"], c["num_attention_heads"] * value // ways]}
    if model.dense_layers:
        inputs["ffn"] = [c["hidden_size"], c["intermediate_size"] // ways]
    if model.experts:
        inputs["experts"] = [c["hidden_size"], model.expert_inter // split.expert_tp]
    for group, sizes in inputs.items():
        if model.format(group) == "nvfp4":
            for size in sizes:
                assert size % 16 == 0, f"in_features {size} must be divisible by scaling_vector_size 16"
        if model.format(group) == "fp8_block" and any(size % 128 for size in sizes):
            raise RuntimeError(f"FP8 block scales: {max(sizes, key=lambda size: size % 128)} must be divisible by 128")
    if model.dense_layers:
        assert c["intermediate_size"] % ways == 0


def _experts(args: Any, model: Model, split: Parallelism) -> None:
    backend, sm, blocks = args.moe_config.backend, sm_version(), model.format("experts") == "fp8_block"
    balancer = read_balancer(args)
    if balancer:
        balancer.check(split.ep, set(range(model.dense_layers, model.layers)))
        if balancer.num_slots < model.experts:
            raise ValueError(f"num_slots {balancer.num_slots} must be at least num_experts {model.experts}")
        if backend in {"VANILLA", "TRITON", "MARLIN"}:
            raise ValueError(f"MoE load balancer is not supported in {backend} backend")
    elif model.experts % split.ep:
        raise ValueError(f"num_experts {model.experts} must be divisible by ep_size {split.ep}")
    assert model.expert_inter % split.expert_tp == 0
    if backend == "WIDEEP" and era().wideep == "refused":
        raise ValueError("moe_config.backend WIDEEP is no longer supported; use CUTLASS, TRTLLM, CUTEDSL or DEEPGEMM")
    if backend == "AUTO":
        backend = era().blockscale_default if blocks and sm in _BLACKWELL else "CUTLASS"
    if sm not in _MOE_SM.get(backend, {sm}):
        raise ValueError(f"{backend} MoE backend is not supported on SM {sm}")
    if backend in {"CUTLASS", "WIDEEP"} and blocks and sm in _BLACKWELL:
        raise RuntimeError("[TensorRT-LLM][ERROR] Assertion failed: fp8 blockscale gemm only support Hopper")


def _drafts(args: Any, model: Model) -> None:
    spec = args.speculative_config
    if spec is not None and spec.decoding_type == "MTP" and not model.config.get("num_nextn_predict_layers"):
        raise ValueError(f"MTP needs num_nextn_predict_layers in config.json, which {model.folder.name} does not have")
