"""How large an LLM instance has to be for all workloads of a group: batch, pass, sequence, cache and CUDA graphs.

All sizes are those of one rank. Prompts are cut into chunks where a prefill workload asks for it, and where nothing but
decode is measured, so that filling the cache takes no more memory than decode needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.cost.kv_cache import tokens_kept
from harness.errors import UsageError
from harness.spec.parallelism import Parallelism
from harness.spec.workload import Decode, Prefill, Serve

Workloads = Sequence[Prefill | Decode | Serve]

#: Tokens of a pass that fills the cache for decode.
FILL_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one rank of an instance holds and computes at most."""

    batch: int
    pass_tokens: int
    sequence: int
    cache_tokens: int
    """Whole blocks of all sequences, and one block for a dummy request, which attention data parallelism adds."""
    chunked: bool
    graph_batches: tuple[int, ...]
    graph_padding: bool
    draft_len: int
    notes: tuple[str, ...] = ()


def instance_sizes(split: Parallelism, workloads: Workloads, tokens_per_block: int, output_tokens: int) -> Sizes:
    """Return the sizes that all workloads need; raise UsageError where they cannot share an instance."""
    draft_len, chunk = _one_of_each(workloads)
    decodes = [one for one in workloads if isinstance(one, Decode)]
    chunked = chunk is not None or len(decodes) == len(workloads)
    sequences = {one: -(-one.batch // split.dp) for one in workloads}
    contexts = {one: _context(one, output_tokens) for one in workloads}
    serves = any(isinstance(one, Serve) for one in workloads)
    uneven = any(one.batch % split.dp for one in decodes)
    return Sizes(
        batch=max(sequences.values()),
        pass_tokens=max(_pass(one, sequences[one], chunked) for one in workloads),
        sequence=max(contexts.values()),
        cache_tokens=tokens_per_block
        + max(
            sequences[one] * _blocks(contexts[one], split.cp, tokens_per_block) * tokens_per_block for one in workloads
        ),
        chunked=chunked,
        graph_batches=tuple(sorted(set(_graph_batches(workloads, split.dp)))),
        graph_padding=serves or uneven,
        draft_len=draft_len,
        notes=tuple(_notes(workloads, split, chunked, uneven)),
    )


def _one_of_each(workloads: Workloads) -> tuple[int, int | None]:
    """Draft tokens and chunk of all of them."""
    if not workloads:
        raise UsageError("settings need at least one workload")
    drafts = {(one.draft_len, one.accepted) if isinstance(one, Decode) else (0, 0.0) for one in workloads}
    chunks = {one.chunk if isinstance(one, Prefill) else None for one in workloads}
    findings = []
    if len(drafts) > 1:
        findings.append(f"one instance has one draft_len and accepted, not {' and '.join(map(str, sorted(drafts)))}")
    if len(chunks) > 1:
        findings.append(f"one instance has one chunk, not {' and '.join(map(str, sorted(chunks, key=str)))}")
    if findings:
        raise UsageError(*findings)
    return drafts.pop()[0], chunks.pop()


def _context(workload: Prefill | Decode | Serve, output_tokens: int) -> int:
    """Tokens of a sequence when it ends."""
    if isinstance(workload, Prefill):
        return workload.isl + 1
    if isinstance(workload, Serve):
        return workload.isl + workload.osl
    return workload.kvsl + output_tokens + workload.draft_len


def _pass(workload: Prefill | Decode | Serve, sequences: int, chunked: bool) -> int:
    """Tokens of the largest pass."""
    if isinstance(workload, Prefill):
        return sequences * min(workload.chunk or workload.isl, workload.isl)
    if isinstance(workload, Serve):
        return workload.isl + sequences
    step = sequences * (1 + workload.draft_len)
    # Without chunks a prompt is one pass.
    return max(step, FILL_TOKENS if chunked else workload.kvsl)


def _blocks(context: int, cp: int, tokens_per_block: int) -> int:
    """Blocks of one sequence on the rank that holds most."""
    return -(-tokens_kept(context, cp, tokens_per_block) // tokens_per_block)


def _graph_batches(workloads: Workloads, dp: int) -> Iterator[int]:
    """Sequences of a decode step on one rank: those of the workload, or any up to them where requests come and go."""
    for one in workloads:
        most = -(-one.batch // dp)
        if isinstance(one, Serve):
            yield from (1 << power for power in range(most.bit_length()))
        if not isinstance(one, Prefill):
            yield most


def _notes(workloads: Workloads, split: Parallelism, chunked: bool, uneven: bool) -> Iterator[str]:
    if any(isinstance(one, Prefill) and one.chunk and one.batch > split.dp for one in workloads):
        yield "how TensorRT-LLM shares a chunked pass out over several prompts is not established"
    if chunked and all(isinstance(one, Decode) for one in workloads):
        yield f"the cache is filled in passes of up to {FILL_TOKENS} tokens, which no decode time contains"
    if uneven:
        yield f"a batch is no multiple of the {split.dp} ranks, so that CUDA graphs pad the smaller ones"
