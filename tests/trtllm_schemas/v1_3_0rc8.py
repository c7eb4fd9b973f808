"""`TorchLlmArgs` of TensorRT-LLM 1.3.0rc8, transcribed from its published source listing.

Source: github.com/NVIDIA/TensorRT-LLM, branch gh-pages, 1.3.0rc8/_modules/tensorrt_llm/llmapi/llm_args.html at
3f54ea808d2faa151e5f7a3b424bdcc0a3241c79, read 2026-11-30: `MoeConfig`, `Nvfp4GemmConfig`, `AttentionDpConfig`,
`CpConfig`, `DecodingBaseConfig`, `MTPDecodingConfig`, `KvCacheConfig`, `BaseLlmArgs`, `TorchCompileConfig`,
`TorchLlmArgs`. `CudaGraphConfig` and `NGramDecodingConfig` have the keys on which 1.2.1 before it and
tensorrt_llm/llmapi/llm_args.py at 0004396720054fd8e205cbf616f21f0b57c6b412 after it agree. Other classes are
`Untranscribed`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trtllm_schemas.base import Fraction, Natural, Positive, Strict, Untranscribed, one_of


class CudaGraphConfig(Strict):
    batch_sizes: list[int] | None = None
    max_batch_size: Natural = 0
    enable_padding: bool = False

    @model_validator(mode="after")
    def _sizes_agree(self) -> CudaGraphConfig:
        if self.batch_sizes and self.max_batch_size and max(self.batch_sizes) != self.max_batch_size:
            raise ValueError("max_batch_size must equal max(batch_sizes)")
        return self


class MoeConfig(Strict):
    backend: Literal["AUTO", "CUTLASS", "CUTEDSL", "WIDEEP", "TRTLLM", "DEEPGEMM", "VANILLA", "TRITON"] = "AUTO"
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


class CpConfig(Strict):
    # `validate_cp_type` takes any case; the members are those of tensorrt_llm/mapping.py.
    cp_type: Annotated[str, one_of("ULYSSES", "STAR", "RING", "HELIX", ignore_case=True)] = "ULYSSES"
    tokens_per_block: int | None = None
    use_nccl_for_alltoall: bool | None = None
    fifo_version: int | None = None
    cp_anchor_size: int | None = None
    block_size: int | None = None


class KvCacheConfig(Strict):
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    max_attention_window: Annotated[list[Positive], Field(min_length=1)] | None = None
    sink_token_length: int | None = None
    free_gpu_memory_fraction: Fraction | None = 0.9
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
    # `validate_dtype`: these, or the name of a torch.dtype.
    dtype: Annotated[str, one_of("auto", "fp8", "nvfp4", "bfloat16", "float16", "float32")] = "auto"
    mamba_ssm_cache_dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    mamba_ssm_stochastic_rounding: bool = False
    mamba_ssm_philox_rounds: Positive = 10
    tokens_per_block: int = 32
    use_kv_cache_manager_v2: bool = False
    max_util_for_resume: Fraction = 0.95


class _Decoding(Strict):
    max_draft_len: Natural | None = None
    max_total_draft_tokens: Natural | None = None
    speculative_model: str | None = None
    max_concurrency: Natural | None = None
    draft_len_schedule: dict[int, int] | None = None
    load_format: str | None = None
    acceptance_window: Natural | None = None
    acceptance_length_threshold: Annotated[float, Field(ge=0)] | None = None
    allow_advanced_sampling: bool = False


class NGramDecodingConfig(_Decoding):
    decoding_type: Literal["NGram"]
    max_matching_ngram_size: Positive = 2
    is_keep_all: bool = True
    is_use_oldest: bool = True
    is_public_pool: bool = True


class MTPDecodingConfig(_Decoding):
    decoding_type: Literal["MTP"]
    num_nextn_predict_layers: Positive = 1
    use_relaxed_acceptance_for_thinking: bool = False
    relaxed_topk: int = 1
    relaxed_delta: float = 0.0
    use_mtp_vanilla: bool = False
    mtp_eagle_one_model: bool = True
    use_sa_spec: bool | None = False
    sa_spec_threshold: Positive = 4
    begin_thinking_phase_token: int = 128798
    end_thinking_phase_token: int = 128799

    @model_validator(mode="after")
    def _draft_length(self) -> MTPDecodingConfig:
        # `set_max_total_draft_tokens` overwrites it.
        if self.max_draft_len not in {None, self.num_nextn_predict_layers}:
            raise ValueError("max_draft_len is replaced by num_nextn_predict_layers")
        return self


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
    model_kwargs: dict[str, Any] | None = None
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    gpus_per_node: int | None = None
    moe_cluster_parallel_size: int | None = None
    moe_tensor_parallel_size: int | None = None
    moe_expert_parallel_size: int | None = None
    enable_attention_dp: bool = False
    enable_lm_head_tp_in_adp: bool = False
    pp_partition: list[int] | None = None
    cp_config: CpConfig | None = None
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
    max_batch_size: int | None = 2048
    max_input_len: int | None = 1024
    max_seq_len: int | None = None
    max_beam_width: int | None = 1
    max_num_tokens: int | None = 8192
    gather_generation_logits: bool = False
    num_postprocess_workers: int = 0
    postprocess_tokenizer_dir: str | None = None
    reasoning_parser: str | None = None
    decoding_config: Untranscribed = None
    otlp_traces_endpoint: str | None = None
    return_perf_metrics: bool = False
    perf_metrics_max_requests: Natural = 0
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
    batch_wait_timeout_ms: Annotated[float, Field(ge=0)] = 0
    batch_wait_timeout_iters: Natural = 0
    batch_wait_max_tokens_ratio: Fraction = 0
    torch_compile_config: TorchCompileConfig | None = None
    enable_autotuner: bool = True
    enable_layerwise_nvtx_marker: bool = False
    # `convert_load_format` takes any case.
    load_format: Annotated[str, one_of("AUTO", "DUMMY", "VISION_ONLY", ignore_case=True)] = "AUTO"
    enable_min_latency: bool = False
    stream_interval: Positive = 1
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
    ray_worker_nsight_options: dict[str, str] | None = None
    sleep_config: Untranscribed = None
    use_cute_dsl_blockscaling_mm: bool = False
    use_cute_dsl_blockscaling_bmm: bool = False
    disable_flashinfer_sampling: bool = False
    max_stats_len: int = 1000
    layer_wise_benchmarks_config: Untranscribed = None
    backend: Literal["pytorch"] = "pytorch"

    @model_validator(mode="after")
    def _helix_blocks_are_those_of_the_cache(self) -> TorchLlmArgs:
        cp = self.cp_config
        if cp and cp.cp_type.upper() == "HELIX" and cp.tokens_per_block != self.kv_cache_config.tokens_per_block:
            raise ValueError("cp_config.tokens_per_block must equal kv_cache_config.tokens_per_block")
        return self
