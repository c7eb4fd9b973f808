"""Decode attention from measured rows: the row itself, a value between rows, or a refusal.

Between rows of one slice (QH, KH, Hsz, window, KV format; never between head counts, so never across G = 32):

- KV that exceeds L2 at the lower row streams from HBM, and time is a line in KVSL and in batch. So it is at G > 32,
  where TensorRT-LLM leaves its grouped kernel and 1 % of the bandwidth is used.
- KV below L2 is L2-warm in these tables (the collector replays one layer in a CUDA graph), and there is a step where it
  no longer fits. Rows are joined log-log, which has no scale; a grid cell without a row takes the geometric mean of
  the rows with equal batch x KVSL, clipped to what monotonicity in batch and KVSL allows.
- Batch is joined as KVSL is. Where the larger batch was not measured that far, the rows with equal batch x KVSL serve.

Several query tokens per sequence, as draft tokens make, have no rows: `draft_tokens` says how they are priced.

Beyond the last row of a batch, or the last batch, the line is continued for as many doublings as its error was measured
for; only on request, only where the two rows it starts from exceed L2, never for a window, never at G > 32. In KVSL
never from a last row below 512: a tile of tokens is not full there, and one doubling errs by 14 to 39 % at the 90th
percentile. Errors are in `harness/data/tables_assumptions.yaml`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from harness.cost.ops import BYTES_PER_VALUE, DecodeAttention
from harness.pricing.base import KernelPrice, Source
from harness.pricing.tables.assumptions import Bands
from harness.pricing.tables.draft_tokens import price_drafts
from harness.pricing.tables.slices import AttentionTable, Curve, Slice, SliceKey

#: Above this ratio of query to KV heads on a rank, decode runs a kernel 7 to 115 times slower (all systems).
LARGEST_GROUPED = 32
#: The least last row from which the line in KVSL goes on.
SHORTEST_CONTINUED = 512
#: Heads of MLA that have rows; all of them share one latent.
LARGEST_LATENT = 128
SINKS_NOTE = "rows of head size 64 were measured with attention sinks"


class Refused(NamedTuple):
    """No answer: why, and what would be answered."""

    note: str


class Answer(NamedTuple):
    """A time with how it was got; `doublings` counts those beyond the last row, 0 within the rows."""

    time_ms: float
    source: Source
    note: str = ""
    doublings: int = 0


@dataclass(frozen=True, slots=True)
class DecodeRules:
    """What the rules need to know beside the rows. Bands are per KV format and doubling.

    `latent` is MLA: the cache holds one latent that is both K and V, and all heads share it.
    """

    l2_bytes: float
    length_bands: dict[str, Bands]
    batch_bands: dict[str, Bands]
    allow_extrapolation: bool = False
    suspect: str = ""
    latent: bool = False

    @property
    def largest_group(self) -> int:
        """The most query heads per KV head that the kernel takes in one go."""
        return LARGEST_LATENT if self.latent else LARGEST_GROUPED


class DecodeAttentionPricer:
    """Prices decode attention from an index of rows."""

    def __init__(self, table: AttentionTable, rules: DecodeRules) -> None:
        self.table = table
        self.rules = rules

    def price(self, kernel: DecodeAttention) -> KernelPrice:
        """Price one kernel; never raises."""
        problem = self._no_table(kernel)
        if problem:
            return KernelPrice.refuse("unsupported", problem)
        if kernel.query_len > 1:
            return price_drafts(kernel, self.price, self.table, self.rules.largest_group)
        key = SliceKey(kernel.q_heads, kernel.kv_heads, kernel.head_dim, kernel.window, "bf16", kernel.kv_format)
        rows, window_note = self.table.get_for_length(key, kernel.kvsl)
        if rows is None:
            return KernelPrice.refuse("unsupported", self.table.explain_missing(key))
        answer = self._time(rows, kernel.batch, kernel.kvsl)
        if isinstance(answer, Refused):
            return KernelPrice.refuse("refused", answer.note)
        sinks = SINKS_NOTE if kernel.head_dim == 64 else ""
        note = "; ".join(part for part in (answer.note, window_note, self.rules.suspect, sinks) if part)
        return KernelPrice(answer.time_ms, answer.source, self._flags(kernel, answer), note)

    def _flags(self, kernel: DecodeAttention, answer: Answer) -> tuple[str, ...]:
        flags = {
            "extrapolated": answer.doublings > 0,
            "l2_warm": kernel.kv_bytes < self.rules.l2_bytes,
            "sinks": kernel.head_dim == 64,
            "suspect": bool(self.rules.suspect),
        }
        return tuple(flag for flag, holds in flags.items() if holds)

    def _time(self, rows: Slice, batch: int, kvsl: float) -> Answer | Refused:
        curve = rows.curves.get(batch)
        if curve is not None:
            return self._along(rows, batch, curve, kvsl)
        bracket = rows.bracket(batch)
        if bracket is None:
            return self._beyond_last_batch(rows, batch, kvsl)
        low, high = bracket
        ends = [self._along(rows, b, rows.curves[b], kvsl) for b in bracket]
        if any(isinstance(end, Refused) or end.doublings for end in ends):
            same_work = self._same_work(rows, bracket, batch, kvsl)
            if same_work is not None:
                return same_work
        first, last = ends
        if isinstance(first, Refused):
            return first
        if isinstance(last, Refused):
            return last
        time_ms = self._join(rows, (low, high), (first.time_ms, last.time_ms), batch, low, kvsl)
        return _worse(time_ms, first, last, f"between batch {low} and {high}")

    def _along(self, rows: Slice, batch: int, curve: Curve, kvsl: float) -> Answer | Refused:
        """The time at a measured batch."""
        measured = curve.row(kvsl)
        if measured is not None:
            return Answer(measured, "exact")
        at = bisect_left(curve.lengths, kvsl)
        if at == 0:
            return Refused(f"the shortest row has KVSL {curve.lengths[0]}")
        inside = at < len(curve.lengths)
        if not (inside and self._is_line(rows, batch, curve.lengths[at - 1])):
            time_ms = _equal_work(rows, batch, kvsl)
            if time_ms is not None:
                return Answer(time_ms, "interpolated", f"between rows of equal batch x KVSL, {batch * kvsl:g}")
        if not inside:
            return self._beyond_last_row(rows, batch, curve, kvsl)
        lengths, times = curve.lengths[at - 1 : at + 1], curve.times_ms[at - 1 : at + 1]
        time_ms = self._join(rows, lengths, times, kvsl, batch, lengths[0])
        return Answer(time_ms, "interpolated", f"between KVSL {lengths[0]} and {lengths[1]} at batch {batch}")

    def _join(
        self,
        rows: Slice,
        xs: tuple[int, ...],
        times_ms: tuple[float, ...],
        x: float,
        batch: float,
        kvsl: float,
    ) -> float:
        """Join two points: by a line where KV at the lower one, (batch, kvsl), exceeds L2, else log-log."""
        if self._is_line(rows, batch, kvsl):
            return times_ms[0] + (times_ms[1] - times_ms[0]) * (x - xs[0]) / (xs[1] - xs[0])
        share = math.log(x / xs[0]) / math.log(xs[1] / xs[0])
        return float(times_ms[0] * (times_ms[1] / times_ms[0]) ** share)

    def _same_work(self, rows: Slice, bracket: tuple[int, int], batch: int, kvsl: float) -> Answer | None:
        """Join the points of equal batch x KVSL of the two measured batches; None where they lie beyond the rows."""
        points = []
        for b in bracket:
            point = self._along(rows, b, rows.curves[b], kvsl * batch / b)
            if isinstance(point, Refused) or point.doublings:
                return None
            points.append(point.time_ms)
        low, high = bracket
        share = math.log(batch / low) / math.log(high / low)
        note = f"between batch {low} and {high} at equal batch x KVSL"
        return Answer(float(points[0] * (points[1] / points[0]) ** share), "interpolated", note)

    def _beyond_last_row(self, rows: Slice, batch: int, curve: Curve, kvsl: float) -> Answer | Refused:
        place = f"KVSL {kvsl:g} at batch {batch}"
        if len(curve.lengths) < 2:
            return Refused(f"{place} is beyond the only row, {curve.lengths[-1]}")
        xs, times = curve.lengths[-2:], curve.times_ms[-2:]
        if xs[1] < SHORTEST_CONTINUED:
            least = f"no extrapolation from less than KVSL {SHORTEST_CONTINUED}"
            return Refused(f"{place} is {kvsl / xs[1]:.3g}x beyond the last row, {xs[1]}; {least}")
        exceeds = self._kv_bytes(rows, batch, xs[0]) >= self.rules.l2_bytes
        return self._continue(rows, place, xs, times, kvsl, exceeds, self.rules.length_bands)

    def _beyond_last_batch(self, rows: Slice, batch: int, kvsl: float) -> Answer | Refused:
        place = f"batch {batch}"
        if batch < rows.batches[0] or len(rows.batches) < 2:
            return Refused(f"{place} is outside the measured batches, {rows.batches[0]} to {rows.batches[-1]}")
        xs = rows.batches[-2:]
        ends = [self._along(rows, b, rows.curves[b], kvsl) for b in xs]
        times = tuple(end.time_ms for end in ends if isinstance(end, Answer) and not end.doublings)
        if len(times) < 2:
            return Refused(f"{place} and KVSL {kvsl:g} are both beyond the last rows ({xs[1]} at this length)")
        exceeds = self._kv_bytes(rows, xs[0], kvsl) >= self.rules.l2_bytes
        return self._continue(rows, place, xs, times, batch, exceeds, self.rules.batch_bands)

    def _continue(
        self,
        rows: Slice,
        place: str,
        xs: tuple[int, ...],
        times_ms: tuple[float, ...],
        x: float,
        exceeds_l2: bool,
        bands_of: dict[str, Bands],
    ) -> Answer | Refused:
        """Continue the line through the last two points, if that may be done and was asked for."""
        bands = bands_of.get(rows.key.kv_format, ())
        doublings = max(1, math.ceil(round(math.log2(x / xs[1]), 9)))
        distance = f"{place} is {x / xs[1]:.3g}x beyond the last row, {xs[1]}"
        why_never = _why_never(rows.key, self.rules.largest_group, exceeds_l2, doublings, len(bands))
        if why_never:
            return Refused(f"{distance}; no extrapolation {why_never}")
        band = f"a line continued {doublings} doubling{'s' * (doublings > 1)} errs by {bands[doublings - 1]}"
        if not self.rules.allow_extrapolation:
            return Refused(f"{distance}; --allow-extrapolation would answer: {band}")
        slope = max(0.0, times_ms[1] - times_ms[0]) / (xs[1] - xs[0])
        return Answer(times_ms[1] + slope * (x - xs[1]), "extrapolated", f"{distance}; {band}", doublings)

    def _is_line(self, rows: Slice, batch: float, kvsl: float) -> bool:
        return (
            _group_size(rows.key) > self.rules.largest_group or self._kv_bytes(rows, batch, kvsl) >= self.rules.l2_bytes
        )

    def _kv_bytes(self, rows: Slice, batch: float, kvsl: float) -> float:
        """KV that is read: 2·b·KVSL·KH·Hsz·bytes, KVSL capped by the window; once, not twice, for a latent."""
        key, copies = rows.key, 1.0 if self.rules.latent else 2.0
        seen = min(kvsl, key.window) if key.window else kvsl
        return copies * batch * seen * key.kv_heads * key.head_dim * BYTES_PER_VALUE[key.kv_format]

    def _no_table(self, kernel: DecodeAttention) -> str:
        """Why no table can hold this kernel, or nothing."""
        if kernel.latent != self.rules.latent:
            return "rows of absorbed MLA and of grouped-query attention are different kernels"
        if not kernel.latent and kernel.value_dim not in {0, kernel.head_dim}:
            return f"no rows with V of {kernel.value_dim} beside Q and K of {kernel.head_dim}"
        return ""


def _why_never(key: SliceKey, largest_group: int, exceeds_l2: bool, doublings: int, measured: int) -> str:
    if _group_size(key) > largest_group:
        return f"at more than {largest_group} query heads per KV head"
    if key.window:
        return "of windowed attention"
    if not exceeds_l2:
        return "while KV fits in L2"
    if doublings <= measured:
        return ""
    return f"over more than {measured} doublings" if measured else "without a known error"


def _group_size(key: SliceKey) -> float:
    return key.q_heads / key.kv_heads


def _worse(time_ms: float, first: Answer, last: Answer, note: str) -> Answer:
    """A value joined from two: the note and doublings of the one that is further out."""
    outer = max(first, last, key=lambda end: end.doublings)
    if outer.doublings:
        return Answer(time_ms, "extrapolated", f"{note}; {outer.note}", outer.doublings)
    return Answer(time_ms, "interpolated", note)


def _equal_work(rows: Slice, batch: int, kvsl: float) -> float | None:
    """For a grid cell without a row: from the rows with equal batch x KVSL, clipped; None without them.

    They are (2b, KVSL/2) and (b/2, 2·KVSL), or, where one is missing too, that with a factor of 4; joined log-log in
    batch. Time must not fall when batch or KVSL grows: max(t(b, s/2), t(b/2, s)) ≤ t ≤ min(t(b, 2s), t(2b, s)), as far
    as these rows exist and do not contradict each other.
    """
    if kvsl not in rows.lengths:
        return None
    wide = next(((f, t) for f in (2, 4) if (t := rows.row(f * batch, kvsl / f)) is not None), None)
    long = next(((f, t) for f in (2, 4) if (t := rows.row(batch / f, f * kvsl)) is not None), None)
    if wide is None or long is None:
        return None
    share = math.log(long[0]) / math.log(wide[0] * long[0])
    joined = float(long[1] * (wide[1] / long[1]) ** share)
    below = [t for t in (rows.row(batch, kvsl / 2), rows.row(batch / 2, kvsl)) if t is not None]
    above = [t for t in (rows.row(batch, 2 * kvsl), rows.row(2 * batch, kvsl)) if t is not None]
    least, most = max(below, default=0.0), min(above, default=math.inf)
    return min(max(joined, least), most) if least <= most else joined
