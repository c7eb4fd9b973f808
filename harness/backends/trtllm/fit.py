"""Whether settings are those of a case: its model, its split, and sizes that hold its workload."""

from __future__ import annotations

from collections.abc import Iterator

from harness.backends.base import CannotAnswer
from harness.backends.trtllm.settings_folder import EngineSettings
from harness.cost.kv_cache import TOKENS_PER_BLOCK
from harness.engines.manifest import engine_variant
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.workload import Decode, Prefill


def check_model(case: Case, settings: EngineSettings) -> None:
    """Raise CannotAnswer where the engine is another model, or the settings split it otherwise."""
    if engine_variant(case.variant) != engine_variant(settings.engine.manifest.variant):
        raise CannotAnswer(f"engine {settings.engine.key} is not the variant of this case")
    findings = list(_other_split(case.parallelism, settings))
    if findings:
        raise CannotAnswer(f"settings {settings.name} split the model otherwise: {'; '.join(findings)}")


def check_sizes(case: Case, settings: EngineSettings) -> None:
    """Raise CannotAnswer that names each setting that is too small for the workload, or another one's."""
    findings = list(_misfits(case, settings))
    if findings:
        raise CannotAnswer(
            f"settings {settings.name} are not for {case.workload.label}: {'; '.join(findings)} "
            "(`trtllm-harness build STUDY` makes settings for the workloads of a study)"
        )


def sequences_of(case: Case) -> int:
    """Sequences of one rank. Raises CannotAnswer where ranks would have different numbers of them."""
    batch, dp = case.workload.batch, case.parallelism.dp
    if batch % dp:
        raise CannotAnswer(
            f"{batch} sequences are no multiple of the {dp} ranks of attention data parallelism, and which rank gets "
            f"fewer cannot be imposed; a batch of {-(-batch // dp) * dp} works"
        )
    return batch // dp


def tokens_per_pass(settings: EngineSettings) -> int:
    """Tokens of one rank that an iteration takes at most."""
    return int(settings.fields["max_num_tokens"])


def chunked_pass(settings: EngineSettings) -> int | None:
    """The same where prompts are cut into chunks; None where they are not."""
    return tokens_per_pass(settings) if settings.fields.get("enable_chunked_prefill") else None


def _other_split(split: Parallelism, settings: EngineSettings) -> Iterator[str]:
    asked = {
        "tensor_parallel_size": split.tp,
        "pipeline_parallel_size": split.pp,
        "context_parallel_size": split.cp,
        "enable_attention_dp": split.attention_dp,
    }
    if "moe_expert_parallel_size" in settings.fields:
        asked |= {"moe_expert_parallel_size": split.ep, "moe_tensor_parallel_size": split.expert_tp}
    for name, value in asked.items():
        found = settings.fields.get(name, False if isinstance(value, bool) else 1)
        if found != value:
            yield f"{name} is {found}, the case has {value}"
    if bool(split.slots) != ("load_balancer" in settings.part("moe_config")):
        yield f"moe_config.load_balancer, the case has {split.slots or 'no'} slots"


def _misfits(case: Case, settings: EngineSettings) -> Iterator[str]:
    work, fields = case.workload, settings.fields
    sequences = sequences_of(case)
    if sequences > int(fields["max_batch_size"]):
        yield f"max_batch_size {fields['max_batch_size']}, {sequences} sequences of a rank"
    if isinstance(work, Prefill):
        yield from _misfits_of_prefill(work, sequences, settings)
    elif isinstance(work, Decode):
        yield from _misfits_of_decode(work, sequences, settings)
    if settings.part("kv_cache_config").get("enable_block_reuse", True):
        yield "kv_cache_config.enable_block_reuse is on, prompts might be found in the cache"
    if not fields.get("enable_iter_perf_stats"):
        yield "enable_iter_perf_stats is off, no iteration is told"


def _misfits_of_prefill(work: Prefill, sequences: int, settings: EngineSettings) -> Iterator[str]:
    whole, chunk = sequences * work.isl, min(work.chunk or work.isl, work.isl)
    longest = int(settings.fields["max_seq_len"])
    if work.isl >= longest:
        yield f"max_seq_len {longest}, the prompts have {work.isl} tokens and yield one"
    pass_tokens = tokens_per_pass(settings)
    if chunk < work.isl:
        if chunked_pass(settings) != sequences * chunk:
            cut = f"cut into passes of {pass_tokens}" if chunked_pass(settings) else "not cut"
            yield f"prompts are {cut}, the case has passes of {sequences * chunk} tokens"
    elif whole > pass_tokens:
        yield f"max_num_tokens {pass_tokens}, a pass over all prompts has {whole}"
    yield from _cache_too_small(sequences, work.isl + 1, settings)


def _misfits_of_decode(work: Decode, sequences: int, settings: EngineSettings) -> Iterator[str]:
    drafts = drafts_of(settings)
    if drafts != work.draft_len:
        yield f"{drafts} draft tokens, the case has {work.draft_len}"
    longest = int(settings.fields["max_seq_len"])
    if work.kvsl >= longest:
        yield f"max_seq_len {longest}, the sequences have {work.kvsl} tokens and go on"
    graphs = settings.part("cuda_graph_config").get("batch_sizes")
    if graphs and sequences not in graphs:
        yield f"CUDA graphs are for batches of {', '.join(map(str, graphs))}, not {sequences}"
    yield from _cache_too_small(sequences, work.kvsl, settings)


def drafts_of(settings: EngineSettings) -> int:
    """Draft tokens of a step."""
    drafts = settings.part("speculative_config")
    return int(drafts.get("max_draft_len") or drafts.get("num_nextn_predict_layers") or 0)


def cache_tokens(settings: EngineSettings) -> int | None:
    """Tokens of the KV cache of one rank; None where they are as many as there is room for."""
    found = settings.part("kv_cache_config").get("max_tokens")
    return None if found is None else int(found)


def block_tokens(settings: EngineSettings) -> int:
    """Tokens of one block of the KV cache."""
    return int(settings.part("kv_cache_config").get("tokens_per_block") or TOKENS_PER_BLOCK)


def _cache_too_small(sequences: int, tokens: int, settings: EngineSettings) -> Iterator[str]:
    held, block = cache_tokens(settings), block_tokens(settings)
    needed = sequences * -(-tokens // block) * block
    if held is not None and needed > held:
        yield f"kv_cache_config.max_tokens {held}, the sequences need {needed}"
