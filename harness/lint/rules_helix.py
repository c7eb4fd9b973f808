"""Rules on Helix, TensorRT-LLM's KV-parallel decode (`context_parallel_size` > 1): each need is a rule of its own."""

from __future__ import annotations

from collections.abc import Iterator

from harness.cost.kv_cache import TOKENS_PER_BLOCK
from harness.lint.facts import Helix, in_force
from harness.lint.finding import Problem, join
from harness.lint.registry import rule
from harness.lint.shapes import working_tp
from harness.lint.subject import Subject
from harness.spec.workload import Decode, Serve


def _helix(s: Subject) -> Helix | None:
    """What Helix needs, where it is asked for."""
    return s.facts.helix if s.split.cp > 1 else None


@rule("helix-gpu")
def helix_gpu(s: Subject) -> Iterator[Problem]:
    """Helix by SM."""
    helix = _helix(s)
    if helix and not helix.gpus.covers(s.gpu.sm):
        why = "only the Blackwell data-centre kernels return the softmax statistics that Helix merges"
        limit = f"1 except on {helix.gpus.gpus}; {s.gpu.key} is sm {s.gpu.sm}"
        yield Problem("parallelism.cp", s.split.cp, limit, why, "cp 1")


@rule("helix-phase")
def helix_phase(s: Subject) -> Iterator[Problem]:
    """Helix is for decode."""
    if _helix(s) and s.workload is not None and not isinstance(s.workload, Decode):
        what = "a served mix prefills too" if isinstance(s.workload, Serve) else "prefill runs with cp 1"
        why = f"Helix is for the generation server of disaggregated serving, and {what}"
        yield Problem("parallelism.cp", s.split.cp, f"1 in {s.workload.phase}", why, "cp 1, or a decode workload")


@rule("helix-attention")
def helix_attention(s: Subject) -> Iterator[Problem]:
    """Kinds of attention that Helix runs, by version."""
    helix = _helix(s)
    if helix is None:
        return
    kinds = {one.kind for one in in_force(helix.attention, s.version)}
    for kind in sorted({kind for kind in s.variant.attention if kind != "none"} - kinds):
        later = [one.since for one in helix.attention if one.kind == kind]
        works = f"TensorRT-LLM {later[0]} or later, or cp 1" if later else "cp 1"
        why = f"Helix of TensorRT-LLM {s.version} runs {join(sorted(kinds)) or 'nothing'}"
        yield Problem("attention", kind, f"one of {join(sorted(kinds)) or 'none'} under cp {s.split.cp}", why, works)


def _block_sizes(s: Subject) -> tuple[int, int]:
    """Tokens per block of the KV cache and of Helix."""
    cache = s.settings.tokens_per_block or TOKENS_PER_BLOCK
    return cache, s.settings.cp_tokens_per_block or cache


@rule("helix-block-size")
def helix_block_size(s: Subject) -> Iterator[Problem]:
    """Equal block sizes of cache and Helix."""
    cache, helix = _block_sizes(s)
    if _helix(s) and cache != helix:
        why = "TensorRT-LLM refuses the configuration where the two differ"
        limit = f"{cache}, as kv_cache_config.tokens_per_block"
        yield Problem("cp_config.tokens_per_block", helix, limit, why, f"cp_config.tokens_per_block {cache}")


@rule("helix-short-sequence")
def helix_short_sequence(s: Subject) -> Iterator[Problem]:
    """A block for each rank, in builds that need it."""
    helix, (block, _) = _helix(s), _block_sizes(s)
    if helix is None or helix.empty_ranks.holds(s.version) or not isinstance(s.workload, Decode):
        return
    least = s.split.cp * block
    if s.workload.kvsl < least:
        why = f"TensorRT-LLM {s.version} fails where a rank owns no block of {block} tokens"
        works = f"kvsl {least}, or TensorRT-LLM {helix.empty_ranks.since} or later"
        yield Problem("workload.kvsl", s.workload.kvsl, f"at least cp · tokens_per_block = {least}", why, works)


@rule("helix-attention-dp")
def helix_attention_dp(s: Subject) -> Iterator[Problem]:
    """Helix with attention data parallelism."""
    if _helix(s) and s.split.attention_dp:
        why = "how the cp ranks of a sequence share its FFN is not known, so no cost and no memory can be given"
        yield Problem("parallelism.attention_dp", "true", "false under cp > 1", why, "attention_dp false, or cp 1")


@rule("helix-kv-heads")
def helix_kv_heads(s: Subject) -> Iterator[Problem]:
    """Tp <= KH under Helix."""
    heads = s.variant.kv_heads
    if _helix(s) and s.has_kv_heads and not s.split.attention_dp and s.split.tp > heads:
        why = "KV heads would be held twice, which Helix exists to avoid"
        works = working_tp(s.variant, s.split, s.facts, largest=heads)
        yield Problem("parallelism.tp", s.split.tp, f"at most kv_heads {heads}", why, works)
