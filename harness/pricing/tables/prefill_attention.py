"""Prefill attention from measured rows: the row itself, a value between rows, a formula, or a refusal.

Between rows of one slice (QH, KH, Hsz, window, attention and KV format; never between head counts):

- in ISL, c0 + c1·x + c2·x² with coefficients that are not negative, fitted in relative terms to the two rows on each
  side (three rows at an edge), kept between the two rows around the question. With two rows only, a line in the square
  root of the time;
- in batch, a line between the two measured batches at equal ISL. Left-out rows (ISL ≥ 512, FP8) err by 1.3 % (median)
  on B200 and 0.9 % on H200 that way, by 2.7 % and 2.0 % when joined log-log.

No row has cached tokens. A chunk of c tokens after p takes the time of a whole prompt of p + c times its share of the
query-key pairs, 1 − (p/(p+c))² without a window, and never less than c tokens alone, nor less than its roofline: a
short chunk has few pairs but reads the whole cache, and no row tells what that takes. Source `formula`. A difference of
two prompts would carry the noise of both.

Beyond the rows only on request, for full attention. In batch: t(b0, s)·t(b, s')/t(b0, s'), where b0 is a batch measured
at ISL s and s' the longest ISL measured at b. In ISL: the quadratic. Nothing is added for RoPE and the KV write: the
timed operation contains them (ai-dynamo/aiconfigurator, collector/trtllm/collect_attn.py).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.cost.ops import PrefillAttention
from harness.pricing.base import KernelPrice
from harness.pricing.roofline import RooflineTime
from harness.pricing.tables.assumptions import Bands
from harness.pricing.tables.decode_attention import SINKS_NOTE, Answer, Refused
from harness.pricing.tables.slices import AttentionTable, Curve, Slice, SliceKey

Coefficients = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class PrefillRules:
    """What the rules need to know beside the rows. Bands are per doubling.

    `roofline` is that of one kernel without its launch. `value_dim` is the width of V where it is not that of Q and K.
    """

    length_bands: Bands
    batch_bands: Bands
    allow_extrapolation: bool = False
    roofline: Callable[[PrefillAttention], RooflineTime | None] = lambda _: None
    value_dim: int = 0


class PrefillAttentionPricer:
    """Prices prefill attention from an index of rows."""

    def __init__(self, table: AttentionTable, rules: PrefillRules) -> None:
        self.table = table
        self.rules = rules
        self._fits: dict[tuple[tuple[int, ...], tuple[float, ...]], Coefficients] = {}

    def price(self, kernel: PrefillAttention) -> KernelPrice:
        """Price one kernel; never raises."""
        if (kernel.value_dim or kernel.head_dim) != (self.rules.value_dim or kernel.head_dim):
            note = f"no rows with V of {kernel.value_dim} beside Q and K of {kernel.head_dim}"
            return KernelPrice.refuse("unsupported", note)
        length = kernel.past + kernel.chunk
        key = SliceKey(
            kernel.q_heads, kernel.kv_heads, kernel.head_dim, kernel.window, kernel.attn_format, kernel.kv_format
        )
        rows, window_note = self.table.get_for_length(key, length)
        if rows is None:
            return KernelPrice.refuse("unsupported", self.table.explain_missing(key))
        answer = self._time(rows, kernel.batch, length)
        if kernel.past and isinstance(answer, Answer):
            answer = self._after_cached(rows, kernel, answer)
        if isinstance(answer, Refused):
            return KernelPrice.refuse("refused", answer.note)
        flags = ("extrapolated",) * (answer.doublings > 0) + ("sinks",) * (kernel.head_dim == 64)
        sinks = SINKS_NOTE if kernel.head_dim == 64 else ""
        note = "; ".join(part for part in (answer.note, window_note, sinks) if part)
        return KernelPrice(answer.time_ms, answer.source, flags, note)

    def _after_cached(self, rows: Slice, kernel: PrefillAttention, whole: Answer) -> Answer | Refused:
        length = kernel.past + kernel.chunk
        share = kernel.pairs / replace(kernel, chunk=length, past=0).pairs
        alone = self._time(rows, kernel.batch, kernel.chunk)
        if isinstance(alone, Refused):
            return alone
        lasts = [(whole.time_ms * share, ""), (alone.time_ms, f"no less than alone, {alone.time_ms:.4g} ms")]
        limit = self.rules.roofline(kernel)
        if limit:
            takes = (
                f"to move {kernel.kv_bytes:.4g} bytes of KV beside the rest"
                if limit.bound == "memory"
                else "to compute"
            )
            lasts.append((limit.time_ms, f"no less than its roofline, {limit.time_ms:.4g} ms {takes}"))
        time_ms, least = max(lasts, key=lambda one: one[0])
        told = f"ISL {length} ({whole.time_ms:.6g} ms) x {share:.4g}, its share of the query-key pairs"
        note = "; ".join(part for part in (told, whole.note, least) if part)
        return Answer(time_ms, whole.source if whole.doublings else "formula", note, whole.doublings)

    def _time(self, rows: Slice, batch: int, isl: int) -> Answer | Refused:
        curve = rows.curves.get(batch)
        if curve is not None:
            if isl <= curve.lengths[-1]:
                return self._along(batch, curve, isl)
            return self._beyond(rows, batch, isl)
        bracket = rows.bracket(batch)
        if bracket is None:
            batches = f"{rows.batches[0]} to {rows.batches[-1]}"
            return Refused(f"batch {batch} is outside the measured batches, {batches}")
        if isl > rows.curves[bracket[1]].lengths[-1]:
            return self._beyond(rows, batch, isl)
        return self._between_batches(rows, bracket, batch, isl)

    def _between_batches(self, rows: Slice, bracket: tuple[int, int], batch: int, isl: int) -> Answer | Refused:
        low, high = bracket
        first, last = (self._along(b, rows.curves[b], isl) for b in bracket)
        if isinstance(first, Refused):
            return first
        if isinstance(last, Refused):
            return last
        time_ms = first.time_ms + (last.time_ms - first.time_ms) * (batch - low) / (high - low)
        return Answer(time_ms, "interpolated", f"between batch {low} and {high}")

    def _along(self, batch: int, curve: Curve, isl: int) -> Answer | Refused:
        """The time at a measured batch, within its rows."""
        at = bisect_left(curve.lengths, isl)
        measured = curve.row(isl)
        if measured is not None:
            return Answer(measured, "exact")
        if not 0 < at < len(curve.lengths):
            return Refused(f"rows at batch {batch} have ISL {curve.lengths[0]} to {curve.lengths[-1]}, not {isl}")
        near = slice(max(0, at - 2), at + 2)
        lengths, times = curve.lengths[near], curve.times_ms[near]
        (x0, x1), (t0, t1) = curve.lengths[at - 1 : at + 1], curve.times_ms[at - 1 : at + 1]
        if len(lengths) >= 3:
            time_ms = min(max(self._quadratic(lengths, times, isl), min(t0, t1)), max(t0, t1))
        else:
            time_ms = (math.sqrt(t0) + (math.sqrt(t1) - math.sqrt(t0)) * (isl - x0) / (x1 - x0)) ** 2
        return Answer(time_ms, "interpolated", f"between ISL {x0} and {x1} at batch {batch}")

    def _beyond(self, rows: Slice, batch: int, isl: int) -> Answer | Refused:
        """Beyond what was measured at this batch; the batch is one of the slice's or between two."""
        if isl > rows.longest:
            return self._beyond_longest(rows, batch, isl)
        reach = [b for b in rows.batches if b < batch and rows.curves[b].lengths[-1] >= isl]
        place = f"batch {batch} at ISL {isl}"
        if not reach:
            return Refused(f"{place} lies in a gap of the rows")
        base = reach[-1]
        distance = f"{place} is {batch / base:.3g}x beyond the largest batch measured at this length, {base}"
        band = self._allowed(rows, distance, math.log2(batch / base), self.rules.batch_bands, "batch")
        if isinstance(band, Refused):
            return band
        above = rows.batches[bisect_left(rows.batches, batch)]
        shorter = rows.curves[above].lengths[-1]
        times = [self._time(rows, base, isl), self._time(rows, batch, shorter), self._time(rows, base, shorter)]
        if any(isinstance(time, Refused) for time in times):
            return Refused(f"{distance}; the rows around it have gaps")
        long, wide, both = (time.time_ms for time in times if isinstance(time, Answer))
        return Answer(long * wide / both, "extrapolated", f"{distance}; {band[0]}", band[1])

    def _beyond_longest(self, rows: Slice, batch: int, isl: int) -> Answer | Refused:
        curve = rows.curves.get(batch)
        if curve is None or len(curve.lengths) < 4:
            measured = ", ".join(map(str, rows.batches))
            return Refused(f"ISL {isl} is beyond the last row, {rows.longest}, and batch {batch} is none of {measured}")
        last = curve.lengths[-1]
        distance = f"ISL {isl} is {isl / last:.3g}x beyond the last row at batch {batch}, {last}"
        band = self._allowed(rows, distance, math.log2(isl / last), self.rules.length_bands, "ISL")
        if isinstance(band, Refused):
            return band
        time_ms = max(self._quadratic(curve.lengths[-4:], curve.times_ms[-4:], isl), curve.times_ms[-1])
        return Answer(time_ms, "extrapolated", f"{distance}; {band[0]}", band[1])

    def _allowed(
        self, rows: Slice, distance: str, log2_ratio: float, bands: Bands, axis: str
    ) -> tuple[str, int] | Refused:
        """The error of an extrapolation and its doublings, or why there is none."""
        doublings = max(1, math.ceil(round(log2_ratio, 9)))
        if rows.key.window:
            return Refused(f"{distance}; no extrapolation of windowed attention")
        if doublings > len(bands):
            known = f"over more than {len(bands)} doublings of {axis}" if bands else "without a known error"
            return Refused(f"{distance}; no extrapolation {known}")
        band = f"going on for {doublings} doubling{'s' * (doublings > 1)} of {axis} errs by {bands[doublings - 1]}"
        if not self.rules.allow_extrapolation:
            return Refused(f"{distance}; --allow-extrapolation would answer: {band}")
        return band, doublings

    def _quadratic(self, lengths: tuple[int, ...], times_ms: tuple[float, ...], isl: int) -> float:
        """The fit at `isl`; a fit depends on its rows only and is kept."""
        fit = self._fits.get((lengths, times_ms))
        if fit is None:
            fit = self._fits[lengths, times_ms] = fit_quadratic(lengths, times_ms)
        x = isl / lengths[-1]
        return fit[0] + fit[1] * x + fit[2] * x * x


def fit_quadratic(lengths: Sequence[int], times_ms: Sequence[float]) -> Coefficients:
    """Coefficients (≥ 0) of 1, x and x² with x = length / last length, least squares of relative errors.

    C. Lawson, R. Hanson, "Solving Least Squares Problems", 1974, as in scipy.optimize.nnls.
    """
    import numpy as np
    from scipy.optimize import nnls

    x = np.asarray(lengths, dtype=float) / lengths[-1]
    relative = np.vander(x, 3, increasing=True) / np.asarray(times_ms, dtype=float)[:, None]
    coefficients, _ = nnls(relative, np.ones(len(x)))
    constant, linear, square = coefficients.tolist()
    return constant, linear, square
