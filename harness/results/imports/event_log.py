"""Event logs of streamed requests, as JSON Lines: when each chunk of each answer came, and how many tokens it carried.

    {"req": "r1", "t_ms": 0, "event": "sent"}
    {"req": "r1", "t_ms": 100, "event": "chunk", "new_tokens": 3}
    {"req": "r1", "t_ms": 221, "event": "done"}

`t_ms` is on one clock. `error` ends a request that failed. Other events are counted and other fields kept. A chunk that
carries no token is none; the end of a request is its last chunk with a token, not `done`. A first chunk of several
tokens makes (end - first) / (tokens - 1) too small (ai-dynamo/aiperf issue 1279), so TPOT is taken over the tokens
after the first chunk, and the other is given beside it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from harness.results.imports.documents import Unreadable, json_lines
from harness.results.imports.requests import RequestRow, count_text, mean_of
from harness.results.imports.row import Draft, ImportRow
from harness.results.imports.table import AFTER_FIRST_CHUNK

_FIELDS = frozenset({"req", "t_ms", "event", "new_tokens"})
#: About 30,000 years.
_MAX_MS = 1e15
_KNOWN = frozenset({"sent", "chunk", "done", "error"})


@dataclass(slots=True)
class _Request:
    """The events of one request, in the order of the file."""

    name: str
    times: list[float] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    chunks: list[tuple[float, int]] = field(default_factory=list)
    """Time and tokens of each chunk that carried any."""

    @property
    def gaps_ms(self) -> list[float]:
        """Times between chunks with tokens."""
        return [later[0] - earlier[0] for earlier, later in zip(self.chunks, self.chunks[1:], strict=False)]

    @property
    def token_latencies_ms(self) -> list[float]:
        """Of each token after the first chunk: the gap before its chunk, shared equally by the tokens of the chunk."""
        pairs = zip(self.gaps_ms, self.chunks[1:], strict=True)
        return [gap / tokens for gap, (_, tokens) in pairs for _ in range(tokens)]

    @property
    def bundled(self) -> bool:
        """Whether the first of several chunks carried several tokens."""
        return len(self.chunks) > 1 and self.chunks[0][1] > 1


#: Requests whose figures count, each with its row.
_Good = list[tuple[_Request, RequestRow]]


def read(file: str, text: str) -> ImportRow:
    """The row of a log. Raises Unreadable, naming the line, for a line that is no event."""
    requests, foreign = _requests(text)
    rows = tuple(_row(request) for request in requests)
    draft = Draft(file, "event log", "event-log", foreign)
    good = [(request, row) for request, row in zip(requests, rows, strict=True) if row.status == "ok"]
    _fill(draft, good, rows)
    _explain(draft, good, rows)
    return draft.row(requests=rows)


def _requests(text: str) -> tuple[list[_Request], dict[str, Any]]:
    """Requests in the order in which they appear, and what else the log says."""
    found: dict[str, _Request] = {}
    unknown: Counter[str] = Counter()
    extra: dict[str, set[str]] = {}
    for number, data in json_lines(text):
        name, time_ms, event = (data.get(key) for key in ("req", "t_ms", "event"))
        if not isinstance(name, (str, int)) or not isinstance(event, str) or not _is_number(time_ms):
            raise Unreadable(f"line {number} is no event: it needs req, t_ms as a number and event")
        time_ms = float(time_ms)
        for key in data.keys() - _FIELDS:
            extra.setdefault(key, set()).add(json.dumps(data[key], sort_keys=True))
        if event not in _KNOWN:
            unknown[event] += 1
            continue
        request = found.setdefault(str(name), _Request(" ".join(str(name).split())))
        request.times.append(time_ms)
        request.events.append(event)
        if event == "chunk" and _tokens(data, number):
            request.chunks.append((time_ms, data["new_tokens"]))
    kept = {key: json.loads(next(iter(seen))) if len(seen) == 1 else _many(seen) for key, seen in sorted(extra.items())}
    return list(found.values()), {**kept, **({"events": dict(unknown)} if unknown else {})}


def _many(seen: set[str]) -> str:
    return f"{len(seen)} values"


def _tokens(data: dict[str, Any], number: int) -> int:
    tokens = data.get("new_tokens")
    if type(tokens) is not int or not 0 <= tokens < 2**31:
        raise Unreadable(f"line {number}: new_tokens is {str(tokens)[:40]}, and not how many tokens a chunk carried")
    return tokens


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MAX_MS


def _row(request: _Request) -> RequestRow:
    fault = _fault(request)
    if fault:
        return RequestRow(request=request.name, status="invalid", note=fault)
    tokens = sum(count for _, count in request.chunks)
    if "error" in request.events:
        return RequestRow(request=request.name, status="failed", tokens=tokens)
    if not tokens:
        return RequestRow(request=request.name, status="invalid", tokens=0, note="done without a token")
    sent, (first, head), end = request.times[0], request.chunks[0], request.chunks[-1][0]
    timed = end > first
    after_ms = (end - first) / (tokens - head) if timed else None
    return RequestRow(
        request=request.name,
        status="ok",
        tokens=tokens,
        ttft_ms=first - sent,
        tpot_from_first_token_ms=(end - first) / (tokens - 1) if timed else None,
        tpot_after_first_chunk_ms=after_ms,
        decode_tok_per_s=1000 / after_ms if after_ms else None,
        request_latency_ms=end - sent,
        note=_note(request, tokens),
    )


def _fault(request: _Request) -> str:
    """Why the events of a request cannot be true, or are not all there."""
    for earlier, later in zip(request.times, request.times[1:], strict=False):
        if later < earlier:
            return f"clock goes backwards ({earlier:g} then {later:g})"
    ends = [event for event in request.events if event in ("done", "error")]
    if request.events[0] != "sent" or request.events.count("sent") > 1:
        return "it has to begin with sent, once"
    if not ends:
        return "the log ends before it is done"
    if len(ends) > 1 or request.events[-1] not in ("done", "error"):
        return f"it goes on after {ends[0]}"
    return ""


def _note(request: _Request, tokens: int) -> str:
    if tokens == 1:
        return "one token"
    if len(request.chunks) == 1:
        return "whole answer in one chunk"
    if request.chunks[-1][0] == request.chunks[0][0]:
        return "all chunks at one time"
    return f"first chunk carried {request.chunks[0][1]} tokens" if request.bundled else ""


def _fill(draft: Draft, good: _Good, rows: tuple[RequestRow, ...]) -> None:
    ok = [row for _, row in good]
    gaps = [gap for request, _ in good for gap in request.gaps_ms]
    tpot_ms = mean_of([row.tpot_after_first_chunk_ms for row in ok])
    values = {
        "requests": len(ok),
        "failed_requests": sum(row.status == "failed" for row in rows),
        "invalid_requests": sum(row.status == "invalid" for row in rows),
        "output_tokens": sum(row.tokens or 0 for row in ok),
        "output_tokens_mean": mean_of([row.tokens for row in ok]),
        "ttft_ms_mean": mean_of([row.ttft_ms for row in ok]),
        "tpot_ms_mean": tpot_ms,
        "tpot_rule": AFTER_FIRST_CHUNK if tpot_ms is not None else None,
        "tpot_ms_mean_from_first_token": mean_of([row.tpot_from_first_token_ms for row in ok]),
        "user_tok_per_s_decode_only": 1000 / tpot_ms if tpot_ms else None,
        "requests_without_tpot": sum(row.tpot_after_first_chunk_ms is None for row in ok),
        "bundled_first_chunks": sum(request.bundled for request, _ in good),
        "chunk_gap_ms_mean": mean_of(gaps),
        "chunk_gap_ms_max": max(gaps, default=None),
        "token_latency_ms_mean": mean_of([one for request, _ in good for one in request.token_latencies_ms]),
        "request_latency_ms_mean": mean_of([row.request_latency_ms for row in ok]),
    }
    for name, value in values.items():
        draft.replace(name, value)


def _explain(draft: Draft, good: _Good, rows: tuple[RequestRow, ...]) -> None:
    if not good:
        draft.suspect("no request has figures that count")
    bundled = [row for request, row in good if request.bundled]
    if bundled:
        draft.note(
            count_text(bundled, "bundled several tokens in the first chunk")
            + ": (end - first) / (tokens - 1) overstates the speed"
        )
    without = [row for _, row in good if row.tpot_after_first_chunk_ms is None]
    for found, what in (
        (without, "without a TPOT, left out of its mean"),
        ([row for row in rows if row.status == "failed"], "failed"),
        ([row for row in rows if row.status == "invalid"], "invalid"),
    ):
        if found:
            draft.note(count_text(found, what))
