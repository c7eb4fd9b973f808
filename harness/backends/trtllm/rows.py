"""Rows of TensorRT-LLM's executor, whether they are whole, and which of their figures is the time of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Share of the working rows that a figure of time has to be known for. Newer releases do not wait for a figure that the
#: GPU has not finished; the rows without it are dropped.
_KNOWN_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One row of the executor, of whatever release. None is what its release does not say."""

    number: int
    """Counts the executor's loops, idle ones included, of which statistics have no row."""
    rank: int = 0
    contexts: int
    """Requests in their context phase."""
    generations: int
    """Requests that generate; without the padding of CUDA graphs."""
    context_tokens: int | None = None
    cached_kv_tokens: int | None = None
    """Tokens in the KV cache of all generating requests."""
    completed: int | None = None
    """Requests that ended with this iteration."""
    reused_blocks: int | None = None
    """KV blocks found in the cache so far; any means that a prompt was not computed."""
    accepted_tokens: int | None = None
    drafted_tokens: int | None = None
    dropped_records: int = 0
    """Rows that the release says it has lost."""
    gpu_forward_ms: float | None = None
    """Device time of this iteration."""
    previous_device_ms: float | None = None
    """Device time of the iteration before, while the scheduler overlaps."""
    latency_ms: float | None = None
    """From loop to loop on the host; a step's time only where the scheduler does not overlap."""
    overlap: bool | None = None
    """Whether the scheduler overlaps iterations; None where the release does not say."""

    @property
    def works(self) -> bool:
        """Whether any request was scheduled."""
        return bool(self.contexts or self.generations)


Rows = Sequence[Iteration]
TimeOf = Callable[[Rows, int], "float | None"]

FORWARD = "gpuForwardTimeMS"


def by_rank(rows: Iterable[Iteration]) -> dict[int, list[Iteration]]:
    """Return the rows of each rank, in order."""
    ranks: dict[int, list[Iteration]] = {}
    for row in sorted(rows, key=lambda row: (row.rank, row.number)):
        ranks.setdefault(row.rank, []).append(row)
    return ranks


def row_after(rows: Rows, index: int) -> Iteration | None:
    """Return the row of the loop right after, if it is there."""
    after = rows[index + 1] if index + 1 < len(rows) else None
    return after if after is not None and after.number == rows[index].number + 1 else None


def _lagging(rows: Rows, index: int) -> float | None:
    # Without overlap a record takes the clocks that its own loop found at its start: they lag by two loops, not one.
    after = row_after(rows, index)
    return None if after is None or rows[index].overlap is False else after.previous_device_ms


#: Best first: name → the device time of a row.
_SOURCES: dict[str, TimeOf] = {
    FORWARD: lambda rows, index: rows[index].gpu_forward_ms,
    "prevDeviceStepTimeMS of the next iteration": _lagging,
    "iterLatencyMS without overlap": lambda rows, i: None if rows[i].overlap is not False else rows[i].latency_ms,
}


def time_of_rows(ranks: Mapping[int, Rows]) -> tuple[str, TimeOf]:
    """Return the best figure of time that the rows have, and how to get it; no name where there is none.

    It is one for all of them, so that no two samples mean different things.
    """
    name = _time_source(ranks)
    return name, _SOURCES[name or FORWARD]


def _time_source(ranks: Mapping[int, Rows]) -> str:
    places = [(own, index) for own in ranks.values() for index, row in enumerate(own) if row.works]
    # Of the last row of a burst no release tells more than the row itself.
    inner = [(own, index) for own, index in places if row_after(own, index) is not None] or places
    for name, time_of in _SOURCES.items():
        known = sum(time_of(own, index) is not None for own, index in inner)
        if known >= max(1, _KNOWN_SHARE * len(inner)):
            return name
    return ""


def problem_of(ranks: Mapping[int, Rows]) -> str:
    """Return why no row can be trusted, or nothing: some are missing, or report other work than was asked."""
    if not any(row.works for own in ranks.values() for row in own):
        return "the executor reported no iteration"
    for rank, own in ranks.items():
        # Releases of late 2026 begin with a record of an idle executor, under a number that comes again.
        working = [row for row in own if row.works]
        missing = max(sum(map(_lost, own, own[1:])), *(row.dropped_records for row in own))
        if missing > 0:
            advice = "drain them more often, or raise max_stats_len"
            return f"lost statistics: {missing} iterations of rank {rank} are missing ({advice})"
        if len({row.number for row in working}) < len(working):
            return f"iterations of rank {rank} are there twice"
        reused = max((row.reused_blocks or 0 for row in own), default=0)
        if reused:
            return f"prompts were found in the KV cache ({reused} blocks reused): not all of the asked work was done"
    return ""


def _lost(row: Iteration, after: Iteration) -> int:
    """Rows missing between two; none where all requests had ended, as an idle loop makes no record."""
    ended = not row.works or (row.completed is not None and row.completed >= row.contexts + row.generations)
    return 0 if ended else max(0, after.number - row.number - 1)
