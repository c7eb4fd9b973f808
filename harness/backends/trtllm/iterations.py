"""Iterations of TensorRT-LLM's executor, and which of them are a prefill or a decode step of the asked workload.

The executor reports one row per iteration and rank. Rows are no samples yet: a batch forms over several iterations, its
first ones compile and tune for seconds, a neighbour of a change of the batch holds work of both sides, and the device
time of a row may be that of the row before. What remains after the rules below is what was asked, and nothing else:

prefill  iterations that work on contexts only: one that takes the whole batch, or with chunked prefill consecutive
         ones, full but for the last, that together take exactly the tokens of the batch; then the sum of their times
decode   an iteration without contexts and with the whole batch generating, between two such ones; the first ones after
         the batch was complete are left out

Sources of the rules: NVIDIA/TensorRT-LLM, the parser tests of its performance CI (first five iterations, the rows
around a change and those after an idle one are dropped, device time is that of the row before), PRs 14127 and 14206 for
what the times mean, and tensorrt_llm/_torch/pyexecutor/py_executor.py of 2026 (`_profiler`, `_process_iter_stats`): a
loop that finds no request waits for one, between the start of its clocks and the batch that it then runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from harness.backends.trtllm.passes import Prompts, context_passes
from harness.backends.trtllm.rows import FORWARD, Iteration, Rows, TimeOf, by_rank, problem_of, row_after, time_of_rows

__all__ = ["SETTLE", "Iteration", "Selected", "decode_steps", "prefill_steps"]

#: Decode iterations left out after the batch was complete: the first holds the last context's leftovers, others may
#: capture a graph. NVIDIA's performance CI drops five.
SETTLE = 5


@dataclass(frozen=True, slots=True)
class Selected:
    """The steps found, slowest rank each, in order."""

    times_ms: tuple[float, ...]
    time_source: str
    """Which figure of the executor the times are."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Why iterations are no sample → how many."""
    numbers: tuple[int, ...] = ()
    """Of each step its iteration, of a prefill in chunks its first one."""
    kv_lengths: tuple[float, ...] = ()
    """Of each step, mean tokens in the cache of one sequence; decode only."""
    problem: str = ""
    """Why the rows cannot be trusted at all: lost statistics, prompts found in the cache, no figure of device time."""

    @property
    def kv_length_mean(self) -> float | None:
        """Mean tokens in the cache of one sequence over the steps; decode only."""
        return fmean(self.kv_lengths) if self.kv_lengths else None


def prefill_steps(
    rows: Iterable[Iteration], batch: int, isl: int, *, max_num_tokens: int | None = None, first_waits: bool = True
) -> Selected:
    """Whole prefills of `batch` prompts of `isl` tokens each; both are those of one rank.

    `rows` are those of one call that gave the executor all its batches at once, so that it did not wait between them.
    Every figure of time but gpuForwardTimeMS has the wait before the first batch in it, which then is no sample.
    `first_waits` is False where other work of the same call ran before these rows. `max_num_tokens` is the most that
    one iteration takes, where chunked prefill is on; left out, a prefill is one iteration.
    """
    ranks = by_rank(rows)
    source, time_of, problem = _trusted(ranks)
    if problem:
        return Selected((), "", problem=problem)
    dropped: Counter[str] = Counter()
    passes: dict[int, dict[int, float]] = defaultdict(dict)
    for rank, own in ranks.items():
        found = list(context_passes(own, time_of, Prompts(batch, batch * isl, max_num_tokens), dropped))
        if first_waits and source != FORWARD and found:
            del found[0]
            dropped["may hold the wait for requests"] += 1
        for first, time_ms in found:
            passes[first][rank] = time_ms
    numbers = _told_by_all(passes, len(ranks), dropped)
    return Selected(_slowest(passes, numbers), source, dict(dropped), numbers)


def decode_steps(rows: Iterable[Iteration], batch: int, prompt_tokens: int, tokens_per_step: float = 1.0) -> Selected:
    """Generation steps of `batch` sequences of one rank that began with `prompt_tokens` in the cache."""
    ranks = by_rank(rows)
    source, time_of, problem = _trusted(ranks)
    if problem:
        return Selected((), "", problem=problem)
    dropped: Counter[str] = Counter()
    steps: dict[int, dict[int, float]] = defaultdict(dict)
    lengths: dict[int, float] = {}
    for rank, own in ranks.items():
        since = generated = 0
        for index, row in enumerate(own):
            since = since + 1 if _is_full(row, batch) else 0
            generated += row.generations
            why = _not_steady(row, row_after(own, index), batch, since)
            time_ms = time_of(own, index)
            if why or time_ms is None:
                dropped[why or "no device time"] += 1
                continue
            steps[row.number][rank] = time_ms
            cached = row.cached_kv_tokens
            # Sequences that were there before the others have generated more.
            lengths[row.number] = (cached or prompt_tokens * batch + generated * tokens_per_step) / batch
    numbers = _told_by_all(steps, len(ranks), dropped)
    kv_lengths = tuple(lengths[number] for number in numbers)
    return Selected(_slowest(steps, numbers), source, dict(dropped), numbers, kv_lengths)


_NO_TIME = (
    "no row has a device time: neither gpuForwardTimeMS nor prevDeviceStepTimeMS is there, and iterLatencyMS is no "
    "step's time while the scheduler overlaps (disable_overlap_scheduler: true makes it one)"
)


def _trusted(ranks: Mapping[int, Rows]) -> tuple[str, TimeOf, str]:
    """The figure to take times from, how to, and why no row can be trusted, or nothing."""
    source, time_of = time_of_rows(ranks)
    return source, time_of, problem_of(ranks) or ("" if source else _NO_TIME)


def _is_full(row: Iteration, batch: int) -> bool:
    return (row.contexts, row.generations) == (0, batch)


def _not_steady(row: Iteration, after: Iteration | None, batch: int, since: int) -> str:
    """Why a row is no step of the whole batch alone, or nothing."""
    if not row.works:
        return "idle"
    if row.contexts:
        return "has contexts"
    if row.generations != batch:
        return "batch not complete"
    if since <= SETTLE:
        return "settling"
    if after is None or not _is_full(after, batch):
        return "before a change of the batch"
    return ""


def _told_by_all(steps: Mapping[int, Mapping[int, float]], ranks: int, dropped: Counter[str]) -> tuple[int, ...]:
    """Numbers of the steps that every rank reported, in order."""
    whole = tuple(number for number in sorted(steps) if len(steps[number]) == ranks)
    if len(whole) < len(steps):
        dropped["not reported by every rank"] += len(steps) - len(whole)
    return whole


def _slowest(steps: Mapping[int, Mapping[int, float]], numbers: tuple[int, ...]) -> tuple[float, ...]:
    """The slowest rank of each step."""
    return tuple(max(steps[number].values()) for number in numbers)
