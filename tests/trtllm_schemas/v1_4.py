"""`TorchLlmArgs` of TensorRT-LLM 1.4, transcribed from its documentation pages.

Sources, read 2026-11-30:

    nvidia.github.io/TensorRT-LLM/1.4.0rc4/llm-api/reference/ TorchLlmArgs.html (as far as `iter_stats_max_iterations`),
        KvCacheConfig.html (as far as `mixed_precision_first_n`), MTPDecodingConfig.html, SADecodingConfig.html
    nvidia.github.io/TensorRT-LLM/1.4.0rc1/_downloads/…/qwen3.5-gb300-agentic-decode.yaml: sets `cuda_graph_config`,
        `enable_iter_perf_stats`, `kv_cache_config.tokens_per_block`, `max_batch_size`, `max_num_tokens`, `max_seq_len`,
        `moe_config`, `nvfp4_gemm_config`, `print_iter_log`, `stream_interval` and MTP by `max_draft_len`

`MoeConfig.backend` has the values that `moe_backend` of the decoding pages names. For what these leave open stand
settings on which 1.3.0rc24 and tensorrt_llm/llmapi/llm_args.py at 0004396720054fd8e205cbf616f21f0b57c6b412, later than
it, agree: `max_stats_len`, `disable_overlap_scheduler`, `env_overrides`, `attn_backend`, `CpConfig`. What else there
may be was not read and so is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trtllm_schemas.base import Fraction, Natural, Positive, Strict, Untranscribed, one_of

MoeBackend = Literal[
    "AUTO",
    "CUTLASS",
    "CUTEDSL",
    "CUTEDSL_FC12",
    "TRTLLM",
    "DEEPGEMM",
    "DENSEGEMM",
    "VANILLA",
    "TRITON",
    "MARLIN",
    "MEGAMOE_DEEPGEMM",
    "MEGAMOE_CUTEDSL",
]


class DecodeCudaGraphConfig(Strict):
    batch_sizes: list[int] | None = None
    max_batch_size: Natural = 0
    enable_padding: bool = False
    mode: Literal["decode"] = "decode"

    @model_validator(mode="after")
    def _sizes_agree(self) -> DecodeCudaGraphConfig:
        if self.batch_sizes and self.max_batch_size and max(self.batch_sizes) != self.max_batch_size:
            raise ValueError("max_batch_size must equal max(batch_sizes)")
        return self


class MoeConfig(Strict):
    backend: MoeBackend = "AUTO"
    max_num_tokens: int | None = None
    load_balancer: str | None = None
    disable_finalize_fusion: bool = False
    use_low_precision_moe_combine: bool = False


class Nvfp4GemmConfig(Strict):
    allowed_backends: Annotated[
        list[Literal["cutlass", "cublaslt", "cutedsl", "cuda_core", "marlin"]], Field(min_length=1)
    ] = ["cutlass", "cublaslt", "cuda_core"]


class CpConfig(Strict):
    cp_type: Annotated[str, one_of("ULYSSES", "RING", "HELIX", ignore_case=True)] = "ULYSSES"
    tokens_per_block: int | None = None
    use_nccl_for_alltoall: bool | None = None
    fifo_version: int | None = None


class KvCacheConfig(Strict):
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    max_attention_window: Annotated[list[int], Field(min_length=1)] | None = None
    sink_token_length: int | None = None
    free_gpu_memory_fraction: Fraction | None = 0.9
    host_cache_size: int | None = None
    host_cache_bind_to_gpu_numa_node: bool = False
    disk_cache_size: Natural | None = None
    disk_cache_path: str | None = None
    disk_io_threads: Annotated[int, Field(ge=0, le=256)] = 0
    disk_keep_copy_after_restore: bool = False
    disk_write_through: bool = False
    disk_protected_copy_fraction: Fraction = 1.0
    cross_kv_cache_fraction: float | None = None
    cold_tier_offload_min_priority: int | None = None
    secondary_offload_min_priority: int | None = None
    event_buffer_max_size: int = 0
    attention_dp_events_gather_period_ms: int = 5
    kv_events_config: Untranscribed = None
    enable_partial_reuse: bool = True
    copy_on_partial_reuse: bool = True
    use_uvm: bool = False
    max_gpu_total_bytes: Natural = 0
    iteration_stats_interval: Positive = 1
    # A plain text; the values are those of 0004396.
    dtype: Annotated[str, one_of("auto", "float16", "bfloat16", "float32", "fp8", "fp8_ds_mla", "nvfp4")] = "auto"
    tokens_per_block: int = 32


class _Decoding(Strict):
    max_draft_len: Natural | None = None
    max_total_draft_tokens: int | None = None
    speculative_model: str | None = None
    moe_backend: MoeBackend | None = None
    moe_tactic: str | None = None
    max_concurrency: Positive | None = None
    draft_len_schedule: dict[int, int] | None = None
    load_format: str | None = None
    acceptance_rate_window_size: Natural | None = None
    acceptance_rate_threshold: Fraction | None = None
    use_rejection_sampling: bool = False
    allow_advanced_sampling: bool = False
    enable_penalty: bool = False
    spec_dec_variant: Positive = 1


class SADecodingConfig(_Decoding):
    decoding_type: Literal["SA"]
    max_matching_ngram_size: int = -1
    enable_global_pool: bool = False
    global_pool_size: Positive | None = None


class MTPDecodingConfig(_Decoding):
    decoding_type: Literal["MTP"]
    use_relaxed_acceptance_for_thinking: bool = False
    relaxed_topk: Positive = 1
    relaxed_delta: Annotated[float, Field(ge=0)] = 0.0
    use_mtp_vanilla: bool = False
    use_dynamic_tree: bool = False
    dynamic_tree_max_topK: int | None = None  # noqa: N815  # the source spells it so
    draft_lm_head_dtype: Literal["auto", "mxfp8"] = "auto"
    draft_moe_dtype: Literal["auto", "nvfp4"] = "auto"
    sa_config: Untranscribed = None
    begin_thinking_phase_token: Natural = 128798
    end_thinking_phase_token: Natural = 128799


class TorchLlmArgs(Strict):
    model: str
    tokenizer: str | None = None
    tokenizer_mode: Literal["auto", "slow"] = "auto"
    custom_tokenizer: str | None = None
    post_processor_hook: str | None = None
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
    load_format: Annotated[str, one_of("AUTO", "DUMMY", "VISION_ONLY", "GMS", ignore_case=True)] = "AUTO"
    enable_lora: bool = False
    lora_config: Untranscribed = None
    kv_cache_config: KvCacheConfig = KvCacheConfig()
    enable_chunked_prefill: bool = False
    guided_decoding_backend: Literal["xgrammar", "llguidance"] | None = None
    batched_logits_processor: Untranscribed = None
    iter_stats_max_iterations: int | None = None
    speculative_config: Annotated[SADecodingConfig | MTPDecodingConfig, Field(discriminator="decoding_type")] | None = (
        None
    )
    max_batch_size: int | None = 2048
    max_seq_len: int | None = None
    max_num_tokens: int | None = 8192
    env_overrides: dict[str, str] | None = None
    cuda_graph_config: DecodeCudaGraphConfig | None = DecodeCudaGraphConfig()
    disable_overlap_scheduler: bool = False
    moe_config: MoeConfig = MoeConfig()
    nvfp4_gemm_config: Nvfp4GemmConfig = Nvfp4GemmConfig()
    attn_backend: Annotated[str, one_of("VANILLA", "TRTLLM", "FLASHINFER")] = "TRTLLM"
    enable_iter_perf_stats: bool = False
    enable_iter_req_stats: bool = False
    iter_perf_stats_interval: Positive = 1
    print_iter_log: bool = False
    stream_interval: Positive = 1
    max_stats_len: int = 1000

    @model_validator(mode="after")
    def _helix_blocks_are_those_of_the_cache(self) -> TorchLlmArgs:
        cp = self.cp_config
        if cp and cp.cp_type.upper() == "HELIX" and cp.tokens_per_block != self.kv_cache_config.tokens_per_block:
            raise ValueError("cp_config.tokens_per_block must equal kv_cache_config.tokens_per_block")
        return self
