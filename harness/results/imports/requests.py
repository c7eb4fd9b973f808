"""One request of a log: whether its figures count, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

RequestStatus = Literal["ok", "failed", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One request. A figure is None where it is undefined; those that are not `ok` have no latency."""

    request: str
    status: RequestStatus
    tokens: int | None = None
    """Output tokens that came."""
    ttft_ms: float | None = None
    """From sending to the first chunk with a token."""
    tpot_from_first_token_ms: float | None = None
    """(end - first) / (tokens - 1), where end is the last chunk with a token."""
    tpot_after_first_chunk_ms: float | None = None
    """(end - first) / tokens after the first chunk."""
    decode_tok_per_s: float | None = None
    """1000 / TPOT, after the first chunk where that is known."""
    request_latency_ms: float | None = None
    """From sending to the last token."""
    note: str = ""


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are there; None where there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def count_text(requests: Sequence[RequestRow], what: str) -> str:
    """`2 requests are invalid (r5, r9)`, at most five by name."""
    count = len(requests)
    named = ", ".join(f"{one.request}: {one.note}" if one.note else one.request for one in requests[:5])
    return f"{count} request{'' if count == 1 else 's'} {what} ({named}{', …' if count > 5 else ''})"
