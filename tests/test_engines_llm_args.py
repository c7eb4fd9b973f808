"""Settings for TensorRT-LLM: sizes by hand, and every emitted YAML against strict schemas of four versions."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from shapes import variant
from trtllm_schemas import SCHEMAS, LoadBalancer

from harness.engines.llm_args import TRTLLM_VERSIONS, LlmArgs, check_fields, llm_args
from harness.engines.llm_fields import allowed_values, field_table, has_field
from harness.errors import UsageError
from harness.files import parse_yaml
from harness.lint.facts import rulebook
from harness.lint.versions import version_key
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Prefill, Serve

#: Version that is asked for → the schema that its YAML has to satisfy.
SCHEMA_OF = dict(zip(TRTLLM_VERSIONS, SCHEMAS, strict=True))

ONE_GPU = Parallelism()
MOE = {"ffn": 0, "experts": {"count": 8, "top_k": 2, "inter": 1024}}
MLA = {"attention": "mla", "mla": {}, "q_heads": 32, "kv_heads": 32}


def prefill(**fields: Any) -> Prefill:
    return Prefill(phase="prefill", **{"batch": 1, "isl": 4096, **fields})


def decode(**fields: Any) -> Decode:
    return Decode(phase="decode", **{"batch": 8, "kvsl": 4096, **fields})


def serve(**fields: Any) -> Serve:
    return Serve(phase="serve", **{"isl": 1024, "osl": 256, "concurrency": 12, **fields})


def accept(args: LlmArgs, schema: str, layers: set[int] | None = None, ep: int = 1) -> BaseModel:
    """Read the YAML back, as TensorRT-LLM would, and the load balancer's file with it."""
    read = parse_yaml(args.to_yaml())
    assert isinstance(read, dict)
    for text in args.files.values():
        LoadBalancer.model_validate(parse_yaml(text)).check(ep, layers or set())
    return SCHEMAS[schema].model_validate({"model": "engine", **read})


def test_decode_on_one_gpu() -> None:
    """8 sequences of 4096 + 512 tokens are 8 · 144 blocks of 32, and a block for the dummy request."""
    args = llm_args(variant(kv_format="fp8", attn_format="fp8"), ONE_GPU, [decode(), decode(batch=2)], "1.2.1")
    assert args.fields == {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "context_parallel_size": 1,
        "enable_attention_dp": False,
        "dtype": "bfloat16",
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "max_batch_size": 8,
        "max_num_tokens": 8192,
        "max_seq_len": 4608,
        "enable_chunked_prefill": True,
        "disable_overlap_scheduler": False,
        "cuda_graph_config": {"batch_sizes": [2, 8], "enable_padding": False},
        "kv_cache_config": {
            "dtype": "fp8",
            "enable_block_reuse": False,
            "enable_partial_reuse": False,
            "tokens_per_block": 32,
            "max_tokens": 8 * 144 * 32 + 32,
            "free_gpu_memory_fraction": 0.9,
        },
        "enable_iter_perf_stats": True,
        "max_stats_len": 100_000,
        "print_iter_log": True,
    }
    assert not args.files
    assert not args.environment
    assert args.notes == ("the cache is filled in passes of up to 8192 tokens, which no decode time contains",)


def test_prefill_is_one_pass_without_graphs() -> None:
    """4 prompts of 4096 tokens in one pass, each with a token to generate, in 129 blocks."""
    fields = llm_args(variant(), ONE_GPU, [prefill(batch=4)], "1.4").fields
    assert fields["max_num_tokens"] == 4 * 4096
    assert fields["max_seq_len"] == 4097
    assert fields["enable_chunked_prefill"] is False
    assert fields["cuda_graph_config"] is None
    assert fields["kv_cache_config"]["max_tokens"] == (4 * 129 + 1) * 32
    assert fields["kv_cache_config"]["dtype"] == "auto"


def test_chunks_bound_the_pass() -> None:
    args = llm_args(variant(), ONE_GPU, [prefill(batch=2, isl=16384, chunk=2048)], "1.4")
    assert args.fields["enable_chunked_prefill"] is True
    assert args.fields["max_num_tokens"] == 2 * 2048
    assert args.notes == ("how TensorRT-LLM shares a chunked pass out over several prompts is not established",)


def test_prefill_and_decode_together_take_whole_prompts() -> None:
    """The context of a decode workload is a prompt of 8192 tokens, which has to fit into a pass."""
    fields = llm_args(variant(), ONE_GPU, [prefill(), decode(kvsl=8192)], "1.4").fields
    assert (fields["enable_chunked_prefill"], fields["max_num_tokens"]) == (False, 8192)


def test_a_served_mix_has_graphs_of_all_sizes() -> None:
    fields = llm_args(variant(), ONE_GPU, [serve()], "1.4").fields
    assert fields["cuda_graph_config"] == {"batch_sizes": [1, 2, 4, 8, 12], "enable_padding": True}
    assert fields["max_num_tokens"] == 1024 + 12
    assert fields["max_seq_len"] == 1280


def test_attention_dp_counts_the_sequences_of_a_rank() -> None:
    split = Parallelism(tp=4, ep=4, attention_dp=True)
    even = llm_args(variant(**MOE), split, [decode(batch=64)], "1.3.0rc24")
    assert even.fields["max_batch_size"] == 16
    assert even.fields["cuda_graph_config"] == {"batch_sizes": [16], "enable_padding": False}
    assert even.fields["kv_cache_config"]["max_tokens"] == (16 * 144 + 1) * 32
    uneven = llm_args(variant(**MOE), split, [decode(batch=66)], "1.3.0rc24")
    assert uneven.fields["cuda_graph_config"] == {"batch_sizes": [17], "enable_padding": True}
    assert "no multiple of the 4 ranks" in " ".join(uneven.notes)


def test_helix_spreads_the_blocks_of_a_sequence() -> None:
    """65536 + 512 tokens are 2064 blocks, 1032 for each of 2 ranks."""
    fields = llm_args(variant(), Parallelism(tp=4, cp=2), [decode(kvsl=65536, batch=1)], "1.3.0rc24").fields
    assert fields["context_parallel_size"] == 2
    assert fields["cp_config"] == {"cp_type": "HELIX", "tokens_per_block": 32}
    assert fields["kv_cache_config"]["max_tokens"] == (1032 + 1) * 32


def test_sliding_layers_keep_their_window() -> None:
    shape = variant(attention=("sliding", "full"), window=1024)
    cache = llm_args(shape, ONE_GPU, [decode()], "1.2.1").fields["kv_cache_config"]
    assert cache["max_attention_window"] == [1024, 4608]


@pytest.mark.parametrize(
    ("version", "speculation"),
    [
        ("1.2.1", {"decoding_type": "MTP", "num_nextn_predict_layers": 3}),
        ("1.3.0rc20", {"decoding_type": "MTP", "num_nextn_predict_layers": 3}),
        ("1.3.0rc24", {"decoding_type": "MTP", "max_draft_len": 3}),
        ("1.4", {"decoding_type": "MTP", "max_draft_len": 3}),
    ],
)
def test_draft_tokens_of_a_model_with_a_layer_for_them(version: str, speculation: dict[str, Any]) -> None:
    args = llm_args(variant(**MLA), ONE_GPU, [decode(draft_len=3, accepted=2)], version)
    assert args.fields["speculative_config"] == speculation
    assert args.fields["max_seq_len"] == 4096 + 512 + 3
    assert args.environment == {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "2"}


@pytest.mark.parametrize(("version", "kind"), [("1.2.1", "NGram"), ("1.3.0rc24", "NGram"), ("1.4", "SA")])
def test_draft_tokens_of_any_other_model_are_no_fixed_number(version: str, kind: str) -> None:
    args = llm_args(variant(), ONE_GPU, [decode(draft_len=3)], version)
    assert args.fields["speculative_config"]["decoding_type"] == kind
    assert any("fewer than 1 + 3 query tokens" in note for note in args.notes)
    assert not args.environment


def test_slots_are_assigned_in_a_file_of_their_own(tmp_path: Any) -> None:
    """8 experts and 12 slots on 4 ranks: 3 a rank, the first 4 experts twice."""
    shape = variant(layers=3, ffn=512, experts={"count": 8, "top_k": 2, "inter": 1024, "dense_layers": 1})
    args = llm_args(shape, Parallelism(tp=4, ep=4, slots=12), [decode()], "1.2.1")
    assert args.fields["moe_expert_parallel_size"] == 4
    assert args.fields["moe_tensor_parallel_size"] == 1
    assert args.fields["moe_config"] == {"backend": "CUTLASS", "load_balancer": "moe_load_balancer.yaml"}
    slots = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]
    assert parse_yaml(args.files["moe_load_balancer.yaml"]) == {
        "num_slots": 12,
        "layer_updates_per_iter": 0,
        "initial_global_assignments": {1: slots, 2: slots},
    }
    whole = parse_yaml(args.to_yaml(tmp_path))
    assert isinstance(whole, dict)
    assert whole["moe_config"]["load_balancer"] == str(tmp_path / "moe_load_balancer.yaml")


def test_the_layer_for_draft_tokens_has_slots_too() -> None:
    shape = variant(layers=2, ffn=0, **MLA, experts={"count": 4, "top_k": 1, "inter": 512, "shared_inter": 512})
    split = Parallelism(tp=2, ep=2, slots=4)
    args = llm_args(shape, split, [decode(draft_len=1)], "1.4")
    accept(args, "1.4", layers={0, 1, 2}, ep=2)
    without = llm_args(shape, split, [decode()], "1.4")
    with pytest.raises(KeyError):
        accept(without, "1.4", layers={0, 1, 2}, ep=2)


def test_what_a_config_json_does_not_allow_is_allowed_and_said() -> None:
    args = llm_args(variant(), ONE_GPU, [decode(kvsl=1 << 20, batch=1)], "1.4")
    assert args.environment == {"TLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    assert "max_seq_len 1049088 is longer than max_position_embeddings 131072 of config.json" in args.notes


def test_routing_is_balanced_where_it_can_be() -> None:
    balanced = llm_args(variant(**MOE), ONE_GPU, [decode()], "1.4")
    assert balanced.environment == {"ENABLE_PERFECT_ROUTER": "1"}
    skewed = llm_args(variant(**MOE), ONE_GPU, [decode(routing="power_law_1.2")], "1.4")
    assert not skewed.environment
    assert any("cannot be told to route as power_law_1.2" in note for note in skewed.notes)


def test_impossible_requests_are_named() -> None:
    with pytest.raises(UsageError, match="one draft_len and accepted") as drafts:
        llm_args(variant(), ONE_GPU, [decode(draft_len=1), decode(), prefill(chunk=512)], "1.4")
    assert len(drafts.value.findings) == 2
    with pytest.raises(UsageError, match="at least one workload"):
        llm_args(variant(), ONE_GPU, [], "1.4")
    with pytest.raises(UsageError, match=r"llama-8b, tp 3: 32 query heads do not divide by tp 3"):
        llm_args(variant(), Parallelism(tp=3), [decode()], "1.4")
    with pytest.raises(UsageError, match=r"older than 1\.2\.1"):
        llm_args(variant(), ONE_GPU, [decode()], "1.1.0")
    with pytest.raises(UsageError, match="no TensorRT-LLM version"):
        llm_args(variant(), ONE_GPU, [decode()], "newest")
    with pytest.raises(UsageError, match=r"load_format: TensorRT-LLM 1\.4 takes auto, dummy, not none"):
        llm_args(variant(), ONE_GPU, [decode()], "1.4", load_format="none")


@pytest.mark.parametrize(
    ("version", "backend", "there"),
    [
        ("1.2.1", "AUTO", False),
        ("1.2.1", "WIDEEP", True),
        ("1.3.0rc20", "AUTO", True),
        ("1.3.0rc20", "DENSEGEMM", False),
        ("1.3.0rc24", "WIDEEP", False),
        ("1.4", "MEGAMOE_CUTEDSL", True),
    ],
)
def test_moe_backends_come_and_go(version: str, backend: str, there: bool) -> None:
    if there:
        args = llm_args(variant(**MOE), ONE_GPU, [decode()], version, moe_backend=backend)
        assert args.fields["moe_config"]["backend"] == backend
    else:
        with pytest.raises(UsageError, match=f"moe_config.backend: TensorRT-LLM {version} takes .*, not {backend}"):
            llm_args(variant(**MOE), ONE_GPU, [decode()], version, moe_backend=backend)


# Every combination against the schema of its version.

SHAPES: dict[str, Variant] = {
    "dense": variant(kv_format="fp8", attn_format="fp8"),
    "windows": variant(attention=("sliding", "full"), window=2048),
    "experts": variant(**MOE, kv_format="nvfp4", attn_format="fp8"),
    "latent": variant(
        **MLA, ffn=1024, experts={"count": 8, "top_k": 2, "inter": 512, "shared_inter": 512, "dense_layers": 1}
    ),
}
SPLITS = {
    "one": ONE_GPU,
    "tp": Parallelism(tp=4),
    "stages": Parallelism(tp=2, pp=2, pp_partition=(20, 12)),
    "helix": Parallelism(tp=2, cp=4, ep=8),
    "wide": Parallelism(tp=8, ep=8, attention_dp=True, slots=16),
}
GROUPS = {
    "prefill": [prefill(), prefill(batch=4)],
    "chunks": [prefill(isl=16384, chunk=2048)],
    "decode": [decode(), decode(batch=32, kvsl=1024)],
    "drafts": [decode(draft_len=2, accepted=1)],
    "serve": [serve()],
    "mixed": [prefill(), decode(), serve()],
}


@pytest.mark.parametrize("version", TRTLLM_VERSIONS)
@pytest.mark.parametrize(("shape", "split"), list(itertools.product(SHAPES, SPLITS)))
def test_every_yaml_is_one_that_its_version_takes(version: str, shape: str, split: str) -> None:
    model, spread = SHAPES[shape], SPLITS[split]
    layers = set(range(model.experts.dense_layers, model.layers)) if model.experts else set()
    for group in GROUPS.values():
        accept(llm_args(model, spread, group, version), SCHEMA_OF[version], layers, spread.ep)


@settings(max_examples=60, deadline=None)
@given(
    version=st.sampled_from(TRTLLM_VERSIONS),
    tp=st.sampled_from([1, 2, 4, 8]),
    adp=st.booleans(),
    batch=st.integers(1, 300),
    kvsl=st.integers(1, 300_000),
    block=st.sampled_from([16, 32, 64, 128]),
)
def test_the_cache_holds_what_is_asked_for(version: str, tp: int, adp: bool, batch: int, kvsl: int, block: int) -> None:
    split = Parallelism(tp=tp, attention_dp=adp)
    args = llm_args(variant(), split, [decode(batch=batch, kvsl=kvsl)], version, tokens_per_block=block)
    accept(args, SCHEMA_OF[version])
    cache, per_rank = args.fields["kv_cache_config"]["max_tokens"], -(-batch // (tp if adp else 1))
    assert cache % block == 0
    assert per_rank * (kvsl + 512) <= cache - block < per_rank * (kvsl + 512 + block)


@pytest.mark.parametrize("version", list(SCHEMAS))
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("no_such_setting", 1),
        ("kv_cache_config.no_such_setting", 1),
        ("cuda_graph_config.no_such_setting", 1),
        ("moe_config.no_such_setting", 1),
        ("cp_config.no_such_setting", 1),
        ("speculative_config.no_such_setting", 1),
        ("moe_config.backend", "FASTEST"),
        ("load_format", "none"),
        ("kv_cache_config.dtype", "int3"),
        ("kv_cache_config.max_tokens", "many"),
        ("cp_config.tokens_per_block", 64),
        ("speculative_config.decoding_type", "Oracle"),
        ("cuda_graph_config.max_batch_size", 7),
        ("enable_attention_dp", "yes"),
        ("scheduler_config.capacity_scheduler_policy", "BEST"),
    ],
)
def test_the_schemas_refuse_what_they_should(version: str, path: str, value: Any) -> None:
    """Starting from settings that they take: so the acceptance above says something."""
    good: dict[str, Any] = {
        "model": "engine",
        "context_parallel_size": 2,
        "cp_config": {"cp_type": "HELIX", "tokens_per_block": 32},
        "kv_cache_config": {"tokens_per_block": 32},
        "cuda_graph_config": {"batch_sizes": [8]},
        "moe_config": {"backend": "CUTLASS"},
        "speculative_config": {"decoding_type": "MTP"},
    }
    SCHEMAS[version].model_validate(good)
    *parents, last = path.split(".")
    inner = good
    for name in parents:
        inner = inner.setdefault(name, {})
    inner[last] = value
    with pytest.raises(ValidationError):
        SCHEMAS[version].model_validate(good)


def test_a_version_lacks_what_another_has() -> None:
    """WIDEEP left, and NGram: the schemas tell versions apart."""
    wide = {"model": "engine", "moe_config": {"backend": "WIDEEP"}}
    ngram = {"model": "engine", "speculative_config": {"decoding_type": "NGram", "max_draft_len": 1}}
    nextn = {"model": "engine", "speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 1}}
    for settings_, versions in ((wide, 3), (ngram, 3), (nextn, 2)):
        taken = []
        for version, schema in SCHEMAS.items():
            try:
                schema.model_validate(settings_)
                taken.append(version)
            except ValidationError:
                pass
        assert taken == list(SCHEMAS)[:versions]


# The table itself.


def test_every_fact_has_its_evidence_and_bounds_in_order() -> None:
    for path, facts in field_table().items():
        assert facts, path
        for fact in facts:
            assert fact.evidence
            assert not (fact.since and fact.before) or version_key(fact.since) < version_key(fact.before)


def test_the_default_moe_backend_is_one_that_its_version_takes() -> None:
    for default in rulebook().facts.moe_defaults:
        for version in TRTLLM_VERSIONS:
            if default.holds(version):
                assert default.backend in allowed_values("moe_config.backend", version)


def test_a_setting_that_nobody_knows_is_not_there() -> None:
    assert not has_field("turbo", "1.4")
    assert not has_field("speculative_config.num_nextn_predict_layers", "1.4")
    assert has_field("speculative_config.num_nextn_predict_layers", "1.3.0rc20")


# At run time, against the fields of whatever is installed.


def test_settings_are_compared_with_the_version_that_is_installed() -> None:
    args = llm_args(SHAPES["latent"], SPLITS["wide"], GROUPS["drafts"], "1.4")
    check_fields(args.fields, SCHEMAS["1.4"].model_fields)
    with pytest.raises(UsageError) as older:
        check_fields(args.fields, SCHEMAS["1.2.1"].model_fields)
    assert older.value.findings == (
        (
            "moe_config.backend: the TensorRT-LLM that is installed takes CUTLASS, CUTEDSL, WIDEEP, TRTLLM, DEEPGEMM, "
            "VANILLA, TRITON, not AUTO"
        ),
    )


def test_a_key_that_is_gone_is_named_with_what_it_may_be_called_now() -> None:
    class Cache(BaseModel):
        tokens_per_block: int = 32
        max_token: int | None = None

    installed = {"kv_cache_config": SimpleNamespace(annotation=Cache | None)}
    with pytest.raises(UsageError) as found:
        check_fields({"kv_cache_config": {"tokens_per_block": 32, "max_tokens": 64}, "pace": 1}, installed)
    assert found.value.findings == (
        (
            "kv_cache_config.max_tokens: the TensorRT-LLM that is installed has no such setting; "
            "did it become 'kv_cache_config.max_token'?"
        ),
        "pace: the TensorRT-LLM that is installed has no such setting",
    )
