"""Is a figure worse, better, the same, or can nobody tell: intervals, thresholds, exact numbers.

Interval: Welch's two-sample interval at 99 % on the logarithms of the replicates' medians (B. L. Welch, Biometrika 34,
1947), by `scipy.stats.ttest_ind`. Worse or better only where it lies wholly beyond 1 %; the same where it lies inside
2 %. Over a whole table the p-values of "beyond 1 %" are adjusted by Benjamini and Hochberg (J. R. Stat. Soc. B 57,
1995), `scipy.stats.false_discovery_control`, at the same 1 %.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.analysis.compare.pairs import Pair, Values, Verdict
from harness.analysis.compare.policy import BEYOND_PCT, EXACT_PCT, INSIDE_PCT
from harness.analysis.intervals import CONFIDENCE
from harness.results.metrics import Direction

_BEYOND, _INSIDE = math.log1p(BEYOND_PCT / 100), math.log1p(INSIDE_PCT / 100)

#: More replicates than this are no advice.
MOST_REPLICATES = 100

#: A scatter below this share is that of rounding.
_NO_SCATTER = 1e-12


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one rule says of two sets of replicates."""

    verdict: Verdict
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    reason: str = ""
    needed: int | None = None


def percent_text(share: float) -> str:
    """0.051 as `+5.1 %`."""
    return f"{100 * share + 0.0:+.1f} %" if abs(share) >= 0.0005 else "0.0 %"


def without_figure(base: Values | None, candidate: Values | None) -> Judgement | None:
    """Why no change can be computed; None where one can."""
    if base is None or candidate is None:
        return Judgement("not computed", reason=f"only in {'base' if candidate is None else 'candidate'}")
    for side, values in (("base", base), ("candidate", candidate)):
        if values.median < 0:
            return Judgement("not computed", reason=f"{side} value is {values.median:g}: no such figure is negative")
    if base.median == 0:
        return Judgement("not computed", reason="base value is 0")
    return None


def by_threshold(base: Values, candidate: Values, direction: Direction, threshold_pct: float) -> Judgement:
    """Worse or better where the median changed by more than a threshold."""
    change = candidate.median / base.median - 1
    if candidate.median == 0 and direction == "lower":
        return Judgement("not computed", reason="candidate value is 0")
    if abs(change) <= threshold_pct / 100 + 1e-9:
        return Judgement("same", change)
    return Judgement(_towards(change, direction), change)


def exactly(base: Values, candidate: Values) -> Judgement:
    """Priced numbers: the same, or another prediction."""
    change = candidate.median / base.median - 1
    return Judgement("same" if abs(change) <= EXACT_PCT / 100 else "prediction changed", change)


def by_interval(base: Sequence[float], candidate: Sequence[float], direction: Direction) -> Judgement:
    """What replicates are sure of, one value from each process."""
    if sorted(base) == sorted(candidate) and len(base) > 1:
        return Judgement("same", 0.0, 0.0, 0.0, 1.0, "the very same values")
    if min(*base, *candidate) <= 0:
        return Judgement("inconclusive", reason="a replicate has no positive value, so that no logarithm can be taken")
    before, after = [math.log(value) for value in base], [math.log(value) for value in candidate]
    middle = statistics.fmean(after) - statistics.fmean(before)
    if min(len(base), len(candidate)) < 2:
        return Judgement("inconclusive", math.expm1(middle), reason=_too_few(len(base), len(candidate)))
    low, high, p = _welch(before, after)
    told = Judgement("inconclusive", math.expm1(middle), math.expm1(low), math.expm1(high), p)
    if low > _BEYOND or high < -_BEYOND:
        return replace(told, verdict=_towards(middle, direction))
    if low > -_INSIDE and high < _INSIDE:
        return replace(told, verdict="same")
    return _unsettled(told, before, after, 1)


def _too_few(base: int, candidate: int) -> str:
    thin = "base and candidate have" if base < 2 and candidate < 2 else f"{'base' if base < 2 else 'candidate'} has"
    return f"{thin} 1 replicate, and one process says nothing about the next; measure at least 3 on each side"


def _towards(change: float, direction: Direction) -> Verdict:
    return "worse" if (change > 0) == (direction == "lower") else "better"


def _welch(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Ends of the interval of the difference of logarithms, and p of its being beyond 1 %."""
    from scipy import stats

    middle = statistics.fmean(after) - statistics.fmean(before)
    if max(statistics.stdev(before), statistics.stdev(after)) < _NO_SCATTER:
        return middle, middle, 0.0 if abs(middle) > _BEYOND else 1.0
    side = 1 if middle > 0 else -1
    with warnings.catch_warnings():
        # One side may have no scatter at all; its variance is 0 up to rounding, which is what is meant.
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        found = stats.ttest_ind(after, before, equal_var=False).confidence_interval(CONFIDENCE)
        beyond = stats.ttest_ind(
            [side * value - _BEYOND for value in after], [side * value for value in before],
            equal_var=False, alternative="greater",
        )  # fmt: skip
    return float(found.low), float(found.high), min(1.0, 2 * float(beyond.pvalue))


def _unsettled(told: Judgement, before: Sequence[float], after: Sequence[float], table: int) -> Judgement:
    needed = _needed(before, after, table)
    assert told.low is not None
    assert told.high is not None
    settle = f"about {needed} replicates" if needed <= MOST_REPLICATES else f"more than {MOST_REPLICATES} replicates"
    reason = f"between {percent_text(told.low)} and {percent_text(told.high)}; {settle} on each side would settle it"
    return replace(told, verdict="inconclusive", reason=reason, needed=needed if needed <= MOST_REPLICATES else None)


def _needed(before: Sequence[float], after: Sequence[float], table: int) -> int:
    """Replicates of each side with which the interval would lie beyond 1 % or inside 2 %, were all as it seems."""
    from scipy.stats import t

    change = abs(statistics.fmean(after) - statistics.fmean(before))
    room = max(change - _BEYOND, _INSIDE - change)
    variances = statistics.variance(before), statistics.variance(after)
    tail = (1 - CONFIDENCE) / 2 / table
    for count in range(max(min(len(before), len(after)) + 1, 3), MOST_REPLICATES + 1):
        freedom = (count - 1) * sum(variances) ** 2 / sum(one**2 for one in variances)
        if float(t.ppf(1 - tail, freedom)) * math.sqrt(sum(variances) / count) < room:
            return count
    return MOST_REPLICATES + 1


def over_the_table(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs, those that only stand out because there are many of them put back to inconclusive."""
    from scipy.stats import false_discovery_control

    places = [index for index, pair in enumerate(pairs) if pair.p is not None]
    if not places:
        return list(pairs)
    adjusted = false_discovery_control([pairs[index].p for index in places], method="bh")
    found = list(pairs)
    for index, p in zip(places, adjusted.tolist(), strict=True):
        if found[index].verdict in {"worse", "better"} and p > 1 - CONFIDENCE:
            found[index] = _by_chance(found[index], len(places))
    return found


def _by_chance(pair: Pair, table: int) -> Pair:
    assert pair.base is not None
    assert pair.candidate is not None
    before, after = ([math.log(value) for value in side.values] for side in (pair.base, pair.candidate))
    needed = _needed(before, after, table)
    settle = f"{needed} replicates" if needed <= MOST_REPLICATES else f"more than {MOST_REPLICATES} replicates"
    reason = (
        f"{pair.verdict} by itself; among {table} comparisons it may be chance (Benjamini–Hochberg). At most {settle} "
        f"on each side would settle it"
    )
    return replace(
        pair, verdict="inconclusive", reason=reason, replicates_needed=needed if needed <= MOST_REPLICATES else None
    )


def with_clock(pair: Pair) -> Pair:
    """The second opinion on a change: in cycles, which the clock does not move.

    Where cycles are the same within 2 %, only the clock moved, and the change is put back to inconclusive.
    """
    base, candidate = pair.base, pair.candidate
    if pair.verdict not in {"worse", "better"} or not (base and candidate and base.clocks_mhz and candidate.clocks_mhz):
        return pair
    power = 1 if pair.figure.direction == "lower" else -1
    cycles = [
        [value * clock**power for value, clock in zip(side.values, side.clocks_mhz, strict=True)]
        for side in (base, candidate)
    ]
    told = by_interval(cycles[0], cycles[1], pair.figure.direction)
    before, after = (statistics.median(side.clocks_mhz) for side in (base, candidate))
    clocks = f"SM clock {before:.0f} → {after:.0f} MHz"
    moved = percent_text(told.change) if told.change is not None else "unknown"
    if told.verdict == "same":
        assert pair.change is not None
        reason = f"only the clock moved: {pair.figure.title} {percent_text(pair.change)}, cycles {moved} ({clocks})"
        return replace(pair, verdict="inconclusive", reason=reason, clock=reason)
    sure = "cycles too" if told.verdict == pair.verdict else f"cycles {told.verdict}"
    return replace(pair, clock=f"{sure}: {moved} ({clocks})")
