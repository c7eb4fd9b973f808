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
    accepted answered_by answered_with attempt_id attention attention_dp attention_weights attn_format batch case
    case_id category chunk coordinates count cp draft_len ep expert_inter expert_weights experts ffn ffn_weights
    flags flops group_size harness_version hbm_bytes head_dim hidden isl kernel kv_bytes_per_gpu kv_format
    kv_heads kvsl layers level level_ops link_bytes moe_tp note op phase position pp pp_groups pp_imbalance
    pp_partition prefill_compute_ms provenance q_heads reason roofline_bound roofline_ms roofline_us routing
    run_id schema_version series slots source source_shares started_at status step_ms study system time_us
    tok_s_per_gpu tok_s_per_user top_k total_us tp tpot_ms ttft_ms variant vocab window world_size worst_source
""")

RESERVED = WORKLOAD_FIELDS | ANALYSIS_COLUMNS | RECORD_COLUMNS
