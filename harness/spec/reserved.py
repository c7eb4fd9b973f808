"""Names that an axis of labelled points cannot have, because something else beside its coordinate is called so.

An axis that moves a field carries the name of the field, and its coordinate is the field's value: nothing is hidden.
Points with labels put words under a name of the writer's choice, in the same tables as fields of the workload, places,
columns of records and ops, and what an analysis adds to them.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Fields of a workload are coordinates themselves.
WORKLOAD_FIELDS = _names("accepted batch chunk concurrency draft_len isl kvsl osl phase routing")

#: Where a row lies, and what an analysis says of it.
ANALYSIS_COLUMNS = _names("flags heads phase roofline series source system value")

#: Columns of `harness.results.record`, which lies above this layer; a test holds them together.
RECORD_COLUMNS = _names("""
    accepted answered_by answered_with arms attempt_id attention attention_dp attention_weights attn_format batch
    case case_id category chunk concurrency coordinates count cp device discarded_samples draft_len duration_s
    energy_j_per_token engine ep expert_inter expert_weights experts failed_requests ffn ffn_weights flags flops
    foreign foreign_cpus foreign_processes gpu_uuid group_size harness_version hbm_bytes head_dim hidden host how
    input_tokens_mean invalid_requests isl kernel kv_bytes_per_gpu kv_format kv_heads kvsl layers layers_run level
    level_ops link_bytes load_average log mean_concurrency moe_tp note op osl output_tok_per_s output_tokens_mean
    phase position power_w pp pp_groups pp_imbalance pp_partition prefill_compute_ms provenance q_heads reason
    replicate request_latency_ms requests requests_per_s requests_without_tpot roofline_bound roofline_ms
    roofline_us routing run_id sample_iqr_pct sample_p90_ms sample_p99_ms samples schema_version series slots
    sm_clock_mhz source source_shares started_at status step_ms stop_reason study system telemetry_note
    telemetry_valid temperature_c throttle_reasons time_us tok_s_per_gpu tok_s_per_user top_k total_tok_per_s
    total_us tp tpot_ms tpot_rule ttft_ms user_tok_per_s_with_prefill variant vocab warmup_drift_pct
    warmup_samples window world_size worst_source
""")

RESERVED = WORKLOAD_FIELDS | ANALYSIS_COLUMNS | RECORD_COLUMNS
