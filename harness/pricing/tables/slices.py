"""Attention rows, arranged: a slice holds one kernel's rows over (batch, length), a curve those of one batch."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from harness.pricing.tables.store import FORMAT_CODES, AttentionRows, group


class SliceKey(NamedTuple):
    """What an attention kernel is compiled for. Heads are those of one rank; window 0 is full attention."""

    q_heads: int
    kv_heads: int
    head_dim: int
    window: int
    attn_format: str
    kv_format: str


class Curve(NamedTuple):
    """Rows of one batch, by length."""

    lengths: tuple[int, ...]
    times_ms: tuple[float, ...]

    def row(self, length: float) -> float | None:
        """The measured time at a length, if there is a row."""
        at = bisect_left(self.lengths, length)
        if at < len(self.lengths) and self.lengths[at] == length:
            return self.times_ms[at]
        return None


class Slice:
    """All rows of one SliceKey: `curves` by batch, ascending, and every length that some batch has."""

    def __init__(self, key: SliceKey, curves: dict[int, Curve]) -> None:
        self.key = key
        self.curves = curves
        self.batches = tuple(curves)
        self.lengths = frozenset(length for curve in curves.values() for length in curve.lengths)
        self.longest = max(self.lengths)

    def row(self, batch: float, length: float) -> float | None:
        """The measured time of one cell, if there is a row."""
        curve = self.curves.get(int(batch)) if batch == int(batch) else None
        return None if curve is None else curve.row(length)

    def bracket(self, batch: float) -> tuple[int, int] | None:
        """The two measured batches around one that is not measured; None outside."""
        at = bisect_left(self.batches, batch)
        return (self.batches[at - 1], self.batches[at]) if 0 < at < len(self.batches) else None


class AttentionTable:
    """Index over attention rows. `AttentionTable(rows.take(mask))` is an index that has not seen the other rows."""

    def __init__(self, rows: AttentionRows) -> None:
        columns = (rows.q_heads, rows.kv_heads, rows.head_dim, rows.window, rows.attn_format, rows.kv_format)
        order, spans = group(columns, (rows.batch, rows.length))
        self._batch, self._length, self._time_ms = (c[order] for c in (rows.batch, rows.length, rows.time_ms))
        self._spans = {_key(*codes): span for codes, span in spans.items()}
        self._slices: dict[SliceKey, Slice] = {}
        self._explained: dict[SliceKey, str] = {}
        self._alike: dict[tuple[int | str, ...], tuple[SliceKey, ...]] = {}

    @cached_property
    def keys(self) -> tuple[SliceKey, ...]:
        """Every slice that exists."""
        return tuple(self._spans)

    def get(self, key: SliceKey) -> Slice | None:
        """The slice of a key, or None."""
        if key not in self._spans:
            return None
        if key not in self._slices:
            self._slices[key] = self._arrange(key)
        return self._slices[key]

    def get_for_length(self, key: SliceKey, length: int) -> tuple[Slice | None, str]:
        """The slice that answers for a window, and a note.

        A window that reaches over the whole length is full attention: rows with that window are taken where they exist,
        else those without one.
        """
        found = self.get(key)
        if found is not None or not key.window or key.window < length:
            return found, ""
        return self.get(key._replace(window=0)), f"a window of {key.window} over {length} tokens is full attention"

    def alike(self, key: SliceKey) -> tuple[SliceKey, ...]:
        """The slices that differ from a key in their heads only."""
        rest = key[2:]
        if rest not in self._alike:
            self._alike[rest] = tuple(one for one in self._spans if one[2:] == rest)
        return self._alike[rest]

    def explain_missing(self, key: SliceKey) -> str:
        """Say what does not exist, and what comes nearest."""
        if key not in self._explained:
            self._explained[key] = self._explain(key)
        return self._explained[key]

    def _explain(self, key: SliceKey) -> str:
        heads = f"{key.q_heads}:{key.kv_heads} heads of {key.head_dim} (query:KV heads on one rank)"
        formats = {k for k in self._spans if k[:4] == key[:4]}
        if formats:
            arithmetic = any(k.attn_format != key.attn_format for k in self._spans)
            there = ", ".join(sorted(_formats(k, arithmetic) for k in formats))
            return f"no rows of {_formats(key, arithmetic)} for {heads}; there are {there}"
        windows = {k.window for k in self._spans if k._replace(window=key.window) == key}
        if windows:
            there = ", ".join(str(window) if window else "no window" for window in sorted(windows))
            return f"no rows with a window of {key.window} for {heads}; there are rows with {there}"
        asked = _formats(key, arithmetic=len({k.attn_format for k in self._spans}) > 1)
        return f"no rows for {heads} with {asked}; nearest: {', '.join(self._nearest_heads(key))}"

    def _nearest_heads(self, key: SliceKey) -> list[str]:
        same = {k[:3] for k in self._spans if k[3:] == key[3:]} or {k[:3] for k in self._spans}
        return [f"{q}:{kv} x {dim}" for q, kv, dim in nearest(key[:3], same)]

    def _arrange(self, key: SliceKey) -> Slice:
        span = self._spans[key]
        columns = (c[span].tolist() for c in (self._batch, self._length, self._time_ms))
        curves: dict[int, list[tuple[int, float]]] = {}
        for batch, length, time_ms in zip(*columns, strict=True):
            curves.setdefault(batch, []).append((length, time_ms))
        return Slice(key, {batch: Curve(*zip(*rows, strict=True)) for batch, rows in curves.items()})


def nearest(wanted: tuple[int, ...], existing: Iterable[tuple[int, ...]], count: int = 3) -> list[tuple[int, ...]]:
    """The `count` size tuples nearest to `wanted`: least sum of absolute log ratios, then the smaller sizes."""

    def distance(sizes: tuple[int, ...]) -> float:
        return sum(abs(math.log(have / max(want, 1))) for have, want in zip(sizes, wanted, strict=True))

    return sorted(existing, key=lambda sizes: (round(distance(sizes), 9), sizes))[:count]


def _formats(key: SliceKey, arithmetic: bool) -> str:
    """The formats of a slice; that of the arithmetic too, unless it is the same throughout, as in decode."""
    return f"{key.attn_format} attention on {key.kv_format} KV" if arithmetic else f"{key.kv_format} KV"


def _key(q_heads: int, kv_heads: int, head_dim: int, window: int, attn: int, kv: int) -> SliceKey:
    return SliceKey(q_heads, kv_heads, head_dim, window, FORMAT_CODES[attn], FORMAT_CODES[kv])
