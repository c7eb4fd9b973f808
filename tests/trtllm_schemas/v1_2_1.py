"""`TorchLlmArgs` of TensorRT-LLM 1.2.1, transcribed from its published source listing.

Source: github.com/NVIDIA/TensorRT-LLM, branch gh-pages, 1.2.1/_modules/tensorrt_llm/llmapi/llm_args.html at
58fb435eacc402f3bd177e60f592c955d2b0719d, read 2026-11-30: `CudaGraphConfig`, `MoeConfig`, `Nvfp4GemmConfig`,
`AttentionDpConfig`, `DecodingBaseConfig`, `NGramDecodingConfig`, `MTPDecodingConfig`, `KvCacheConfig`, `BaseLlmArgs`,
`TorchCompileConfig`, `TorchLlmArgs`. Classes that are not in this list are `Untranscribed`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trtllm_schemas.base import Fraction, Natural, Positive, Strict, Untranscribed, one_of


class CudaGraphConfig(Strict):
    batch_sizes: list[int] | None = None
    max_batch_size: Natural = 0
    enable_padding: bool = False

    @model_validator(mode="after")
    def _sizes_agree(self) -> CudaGraphConfig:
        # `TorchLlmArgs.validate_cuda_graph_config`
        if self.batch_sizes and self.max_batch_size and max(self.batch_sizes) != self.max_batch_size:
            raise ValueError("max_batch_size must equal max(batch_sizes)")
        return self


class MoeConfig(Strict):
    backend: Literal["CUTLASS", "CUTEDSL", "WIDEEP", "TRTLLM", "DEEPGEMM", "VANILLA", "TRITON"] = "CUTLASS"
    max_num_tokens: int | None = None
    load_balancer: str | None = None
    disable_finalize_fusion: bool = False
    use_low_precision_moe_combine: bool = False


class Nvfp4GemmConfig(Strict):
    allowed_backends: Annotated[list[Literal["cutlass", "cublaslt", "cutedsl", "cuda_core"]], Field(min_length=1)] = [
        "cutlass",
        "cublaslt",
        "cuda_core",
    ]


class AttentionDpConfig(Strict):
    enable_balance: bool = False
    timeout_iters: int = 50
    batching_wait_iters: int = 10


class HelixConfig(Strict):
    """The field is a plain dict; these are the keys that docs/source/features/helix.md at 04c8822 gives."""

    cp_type: Literal["HELIX"]
    tokens_per_block: Positive


class KvCacheConfig(Strict):
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    max_attention_window: Annotated[list[Positive], Field(min_length=1)] | None = None
    sink_token_length: int | None = None
    free_gpu_memory_fraction: Fraction = 0.9
    host_cache_size: int | None = None
    onboard_blocks: bool = True
    cross_kv_cache_fraction: float | None = None
    secondary_offload_min_priority: int | None = None
    event_buffer_max_size: int = 0
    attention_dp_events_gather_period_ms: int = 5
    enable_partial_reuse: bool = True
    copy_on_partial_reuse: bool = True
    use_uvm: bool = False
    max_gpu_total_bytes: Natural = 0
    # A plain text in the source; the values are those of its documentation (docs/source/features/quantization.md).
    dtype: Annotated[str, one_of("auto", "fp8", "nvfp4")] = "auto"
    mamba_ssm_cache_dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    tokens_per_block: int = 32


class _Decoding(Strict):
    max_draft_len: int | None = None
    max_total_draft_tokens: int | None = None
    speculative_model: str | None = None
    max_concurrency: int | None = None
    draft_len_schedule: dict[int, int] | None = None
    load_format: str | None = None
    acceptance_window: Natural | None = None
    acceptance_length_threshold: Annotated[float, Field(ge=0)] | None = None
    allow_advanced_sampling: bool = False


class NGramDecodingConfig(_Decoding):
    decoding_type: Literal["NGram"]
    max_matching_ngram_size: int = 0
    is_keep_all: bool = True
    is_use_oldest: bool = True
    is_public_pool: bool = True


class MTPDecodingConfig(_Decoding):
    decoding_type: Literal["MTP"]
    num_nextn_predict_layers: int = 1
    use_relaxed_acceptance_for_thinking: bool = False
    relaxed_topk: int = 1
    relaxed_delta: float = 0.0
    use_mtp_vanilla: bool = False
    mtp_eagle_one_model: bool = True
    num_nextn_predict_layers_from_model_config: int = 1
    begin_thinking_phase_token: int = 128798
    end_thinking_phase_token: int = 128799


class TorchCompileConfig(Strict):
    enable_fullgraph: bool = True
    enable_inductor: bool = False
    enable_piecewise_cuda_graph: bool = False
    capture_num_tokens: list[Positive] | None = None
    enable_userbuffers: bool = True
    max_num_streams: Positive = 1


class TorchLlmArgs(Strict):
    # BaseLlmArgs
    model: str
    tokenizer: str | None = None
    tokenizer_mode: Literal["auto", "slow"] = "auto"
    custom_tokenizer: str | None = None
    skip_tokenizer_init: bool = False
    trust_remote_code: bool = False
    tensor_parallel_size: int = 1
    dtype: str = "auto"
    revision: str | None = None
    tokenizer_revision: str | None = None
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    gpus_per_node: int | None = None
    moe_cluster_parallel_size: int | None = None
    moe_tensor_parallel_size: int | None = None
    moe_expert_parallel_size: int | None = None
    enable_attention_dp: bool = False
    enable_lm_head_tp_in_adp: bool = False
    pp_partition: list[int] | None = None
    cp_config: HelixConfig | None = None
    fail_fast_on_attention_window_too_large: bool = False
    enable_lora: bool = False
    lora_config: Untranscribed = None
    kv_cache_config: KvCacheConfig = KvCacheConfig()
    enable_chunked_prefill: bool = False
    guided_decoding_backend: Literal["xgrammar", "llguidance"] | None = None
    batched_logits_processor: Untranscribed = None
    iter_stats_max_iterations: int | None = None
    request_stats_max_iterations: int | None = None
    peft_cache_config: Untranscribed = None
    scheduler_config: Untranscribed = None
    cache_transceiver_config: Untranscribed = None
    sparse_attention_config: Untranscribed = None
    speculative_config: (
        Annotated[NGramDecodingConfig | MTPDecodingConfig, Field(discriminator="decoding_type")] | None
    ) = None
    max_batch_size: int | None = None
    max_input_len: int | None = None
    max_seq_len: int | None = None
    max_beam_width: int | None = None
    max_num_tokens: int | None = 8192
    gather_generation_logits: bool = False
    num_postprocess_workers: int = 0
    postprocess_tokenizer_dir: str | None = None
    reasoning_parser: str | None = None
    decoding_config: Untranscribed = None
    otlp_traces_endpoint: str | None = None
    backend: str | None = None
    return_perf_metrics: bool = False
    orchestrator_type: Literal["rpc", "ray"] | None = None
    env_overrides: dict[str, str] | None = None
    # TorchLlmArgs
    garbage_collection_gen0_threshold: int = 20000
    cuda_graph_config: CudaGraphConfig | None = CudaGraphConfig()
    attention_dp_config: AttentionDpConfig | None = None
    disable_overlap_scheduler: bool = False
    moe_config: MoeConfig = MoeConfig()
    nvfp4_gemm_config: Nvfp4GemmConfig = Nvfp4GemmConfig()
    attn_backend: str = "TRTLLM"
    sampler_type: Literal["TRTLLMSampler", "TorchSampler", "auto"] = "auto"
    sampler_force_async_worker: bool = False
    enable_iter_perf_stats: bool = False
    enable_iter_req_stats: bool = False
    print_iter_log: bool = False
    perf_metrics_max_requests: int = 0
    batch_wait_timeout_ms: float = 0
    batch_wait_timeout_iters: int = 0
    batch_wait_max_tokens_ratio: float = 0
    torch_compile_config: TorchCompileConfig | None = None
    enable_autotuner: bool = True
    enable_layerwise_nvtx_marker: bool = False
    # `convert_load_format` takes any case.
    load_format: Annotated[str, one_of("AUTO", "DUMMY", "VISION_ONLY", ignore_case=True)] = "AUTO"
    enable_min_latency: bool = False
    stream_interval: int = 1
    force_dynamic_quantization: bool = False
    allreduce_strategy: (
        Literal["AUTO", "NCCL", "UB", "MINLATENCY", "ONESHOT", "TWOSHOT", "LOWPRECISION", "MNNVL", "NCCL_SYMMETRIC"]
        | None
    ) = "AUTO"
    checkpoint_loader: Untranscribed = None
    checkpoint_format: str | None = None
    kv_connector_config: Untranscribed = None
    mm_encoder_only: bool = False
    ray_worker_extension_cls: str | None = None
    ray_placement_config: Untranscribed = None
    enable_sleep: bool = False
    disable_flashinfer_sampling: bool = False
    max_stats_len: int = 1000

    @model_validator(mode="after")
    def _helix_blocks_are_those_of_the_cache(self) -> TorchLlmArgs:
        # docs/source/features/helix.md
        if self.cp_config and self.cp_config.tokens_per_block != self.kv_cache_config.tokens_per_block:
            raise ValueError("cp_config.tokens_per_block must equal kv_cache_config.tokens_per_block")
        return self
