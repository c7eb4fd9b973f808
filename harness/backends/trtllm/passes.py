"""Whole passes over the prompts of a batch, among the rows of one rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from harness.backends.trtllm.rows import Iteration, Rows, TimeOf

#: Chunks end at whole units of tokens, so a full iteration may lack almost one of them; KV blocks of more do not exist.
CHUNK_UNIT_TOKENS = 128

_OTHER = "other contexts than the batch has"


@dataclass(frozen=True, slots=True)
class Prompts:
    """What one prefill has to take, and the most that an iteration takes where it may be several."""

    requests: int
    tokens: int
    max_num_tokens: int | None = None
    """None: chunked prefill is off, and one iteration takes all."""

    def are_all_in(self, row: Iteration) -> bool:
        """Whether one iteration took the whole batch."""
        return row.contexts == self.requests and row.context_tokens in {None, self.tokens}

    def may_be_part(self, row: Iteration) -> bool:
        """Whether an iteration can be one of several."""
        most = self.max_num_tokens
        return most is not None and row.context_tokens is not None and row.context_tokens <= most

    def is_full(self, row: Iteration) -> bool:
        """Whether an iteration that is not the last one of a pass took as much as it could."""
        return (row.context_tokens or 0) > (self.max_num_tokens or 0) - CHUNK_UNIT_TOKENS


def context_passes(own: Rows, time_of: TimeOf, prompts: Prompts, dropped: Counter[str]) -> Iterator[tuple[int, float]]:
    """Yield number of the first iteration and time of each whole pass; count in `dropped` what is none, and why."""
    parts: list[tuple[Iteration, float]] = []
    for index, row in enumerate(own):
        time_ms = time_of(own, index)
        if parts and row.number != parts[-1][0].number + 1:
            _drop(parts, "unfinished pass", dropped)
        why = _unfit(row, time_ms)
        if why or time_ms is None:
            dropped[why] += 1
            _drop(parts, "unfinished pass", dropped)
        elif not parts and prompts.are_all_in(row):
            yield row.number, time_ms
        else:
            parts.append((row, time_ms))
            if sum(one.context_tokens or 0 for one, _ in parts) == prompts.tokens and prompts.may_be_part(row):
                yield parts[0][0].number, sum(time for _, time in parts)
                parts.clear()
            elif not prompts.may_be_part(row) or not prompts.is_full(row):
                _drop(parts, _OTHER, dropped)
    _drop(parts, "unfinished pass", dropped)


def _unfit(row: Iteration, time_ms: float | None) -> str:
    """Why an iteration is no part of a pass, or nothing."""
    if not row.works:
        return "idle"
    if row.generations:
        return "generations beside the contexts" if row.contexts else "no contexts"
    return "no device time" if time_ms is None else ""


def _drop(parts: list[tuple[Iteration, float]], why: str, dropped: Counter[str]) -> None:
    if parts:
        dropped[why] += len(parts)
        parts.clear()
