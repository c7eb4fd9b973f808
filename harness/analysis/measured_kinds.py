"""How each kind of claim decides on rows that ran, where replicates say how well every number is known.

Every reading compares two values of the axis, and a comparison is an estimate over replicates with a 99 % interval
(`harness.analysis.intervals`); that takes the place of the scatter which a study allows priced rows. A claim is
supported when each of its intervals lies wholly on its side of the threshold, and contradicted when one lies wholly
beyond. Support needs all intervals, so that each may be taken alone. A contradiction needs one of several, so that
the interval is widened by their number (Bonferroni): either verdict is false in 1 run of 100 at most.

flat_within        the spread is that of the two values farthest apart. Every pair within T supports, a pair beyond T
                   contradicts.
exponent           log ratio of neighbours / log step, within the tolerance or outside it.
gain_per_doubling  the ratio, beyond T or short of it.
ratio              as above.
saturation         a doubling surely gains where its interval lies above 1 + T, and surely does not where it lies below;
                   between them it is open.
best_at            the best of the claimed values surely leads all others, or one of them surely leads all claimed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Protocol

from harness.analysis.intervals import Estimate, Interval
from harness.analysis.readings import Item, Outcome, Readings, all_of
from harness.spec.axes import Scalar
from harness.spec.claims import (
    HIGHER_IS_BETTER,
    BestAt,
    Claim,
    Exponent,
    FlatWithin,
    GainPerDoubling,
    Ratio,
    Saturation,
)


class Comparisons(Protocol):
    """Axis values that can be compared: `harness.analysis.paired.Blocks`."""

    @property
    def count(self) -> int:
        """Replicates."""
        ...

    def labels(self) -> list[Scalar]:
        """The axis values."""
        ...

    def contrast(self, over: Scalar, under: Scalar) -> Estimate:
        """Logarithm of the quantity at one value over that at another."""
        ...


class Rule(Protocol):
    """One kind of claim with its thresholds, on rows that ran."""

    def intervals(self, readings: Readings, pairs: Comparisons) -> dict[Item, Interval]:
        """The interval of each reading, in their unit."""
        ...

    def decide(self, readings: Readings, pairs: Comparisons, together: int) -> Outcome:
        """What the readings of one group say; `together` is how many readings decide the claim in all groups."""
        ...


def rule_of(claim: Claim) -> Rule:
    """Return what decides `claim` on rows that ran."""
    if isinstance(claim, FlatWithin):
        return _Flat(claim)
    if isinstance(claim, Exponent):
        return _Exponent(claim)
    if isinstance(claim, Saturation):
        return _Saturation(claim)
    return _Best(claim) if isinstance(claim, BestAt) else _Bounded(claim)


class _Flat:
    def __init__(self, claim: FlatWithin) -> None:
        self.most = math.log(1 + claim.at_most_pct / 100)

    def intervals(self, readings: Readings, pairs: Comparisons) -> dict[Item, Interval]:
        found = _each_pair(pairs)
        least = max(one.low(len(found) // 2) for one in found)
        most = Estimate(max(one.high() for one in found), 0.0, pairs.count).factors.high
        return dict.fromkeys(readings, Interval(math.exp(max(least, 0.0)) - 1, most - 1, pairs.count))

    def decide(self, readings: Readings, pairs: Comparisons, together: int) -> Outcome:
        found, within = _each_pair(pairs), math.log(1 + readings[()]) <= self.most
        if within and all(one.high() <= self.most for one in found):
            return "supports"
        beyond = any(one.low(together * len(found) // 2) > self.most for one in found)
        return "contradicts" if beyond and not within else "cannot tell"


def _each_pair(pairs: Comparisons) -> list[Estimate]:
    """The comparisons of all values, both ways round."""
    return [pairs.contrast(*pair) for pair in permutations(pairs.labels(), 2)]


class _Bounded:
    """Ratios and gains: one comparison for each reading."""

    def __init__(self, claim: GainPerDoubling | Ratio | Saturation) -> None:
        self.at_least, self.at_most = claim.at_least, claim.at_most
        # a gain is time(x) / time(2x), or rate(2x) / rate(x); a ratio is written the way it is read
        self.swaps = not isinstance(claim, Ratio) and claim.quantity.measure in HIGHER_IS_BETTER

    def estimate(self, item: Item, pairs: Comparisons) -> Estimate:
        return pairs.contrast(item[1], item[0]) if self.swaps else pairs.contrast(item[0], item[1])

    def intervals(self, readings: Readings, pairs: Comparisons) -> dict[Item, Interval]:
        return {item: self.estimate(item, pairs).factors for item in readings}

    def decide(self, readings: Readings, pairs: Comparisons, together: int) -> Outcome:
        return all_of(self._one(self.estimate(item, pairs), together) for item in readings)

    def _one(self, found: Estimate, together: int) -> Outcome:
        if self.at_most is not None:
            return _above(found.scaled(-1), -math.log(self.at_most), together)
        assert self.at_least is not None
        return _above(found, math.log(self.at_least), together)


def _above(found: Estimate, bound: float, together: int) -> Outcome:
    if found.low() >= bound:
        return "supports"
    return "contradicts" if found.high(together) < bound else "cannot tell"


class _Saturation(_Bounded):
    """Where gains end, by the doublings that surely gain and those that may."""

    def __init__(self, claim: Saturation) -> None:
        super().__init__(claim)
        self.least_gain = math.log(1 + claim.gain_below_pct / 100)

    def decide(self, readings: Readings, pairs: Comparisons, together: int) -> Outcome:
        gains = {item: self.estimate(item, pairs) for item in readings}
        first = min(float(item[0]) for item in gains)
        sure = [float(item[1]) for item, gain in gains.items() if gain.low(together) >= self.least_gain]
        may = [float(item[1]) for item, gain in gains.items() if gain.high() >= self.least_gain]
        earliest, latest = max(sure, default=first), max(may, default=first)
        if self.at_most is not None:
            return "supports" if latest <= self.at_most else "contradicts" if earliest > self.at_most else "cannot tell"
        assert self.at_least is not None
        return "supports" if earliest >= self.at_least else "contradicts" if latest < self.at_least else "cannot tell"


class _Exponent:
    def __init__(self, claim: Exponent) -> None:
        self.expect, self.tolerance = claim.expect, claim.tolerance

    def intervals(self, readings: Readings, pairs: Comparisons) -> dict[Item, Interval]:
        slopes = {item: _slope(item, pairs) for item in readings}
        return {item: Interval(slope.low(), slope.high(), slope.count) for item, slope in slopes.items()}

    def decide(self, readings: Readings, pairs: Comparisons, together: int) -> Outcome:
        return all_of(self._one(_slope(item, pairs), together) for item in readings)

    def _one(self, slope: Estimate, together: int) -> Outcome:
        least, most = self.expect - self.tolerance, self.expect + self.tolerance
        if least <= slope.low() and slope.high() <= most:
            return "supports"
        return "contradicts" if slope.low(together) > most or slope.high(together) < least else "cannot tell"


def _slope(item: Item, pairs: Comparisons) -> Estimate:
    low, high = item
    return pairs.contrast(high, low).scaled(1 / math.log(float(high) / float(low)))


class _Best:
    def __init__(self, claim: BestAt) -> None:
        self.claimed = claim.values
        self.higher = claim.quantity.measure in HIGHER_IS_BETTER

    def intervals(self, readings: Readings, pairs: Comparisons) -> dict[Item, Interval]:
        best = min(readings, key=lambda one: readings[one])[0]
        return {item: self._lead(best, item[0], pairs).factors for item in readings}

    def decide(self, readings: Readings, pairs: Comparisons, together: int) -> Outcome:
        ours = [x for (x,) in readings if x in self.claimed]
        others = [x for (x,) in readings if x not in self.claimed]
        if self._one_leads(ours, others, readings, pairs, len(ours)):
            return "supports"
        beaten = self._one_leads(others, ours, readings, pairs, max(together, len(others)))
        return "contradicts" if beaten else "cannot tell"

    def _one_leads(
        self, some: Sequence[Scalar], rest: Sequence[Scalar], readings: Readings, pairs: Comparisons, together: int
    ) -> bool:
        """Whether the best of `some` surely leads each of the rest."""
        first = min(some, key=lambda x: readings[x,])
        return all(self._lead(first, other, pairs).low(together) > 0 for other in rest)

    def _lead(self, x: Scalar, other: Scalar, pairs: Comparisons) -> Estimate:
        """Logarithm of how many times worse `other` is."""
        return pairs.contrast(x, other) if self.higher else pairs.contrast(other, x)
