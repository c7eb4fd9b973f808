"""Intervals: how well replicates know a number.

A replicate is one fresh process and gives one number. Over replicates the interval is Student's,
mean ± t(n - 1) · sd / √n, at 99 % unless said otherwise; for ratios and times it is taken on the logarithm. Samples of
one process are never pooled with those of another: they share what is peculiar to the process, and pooling them finds
differences where there are none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from harness.analysis.words import number

#: Of every interval shown, and of every verdict.
CONFIDENCE = 0.99

#: An interval whose ends are further apart than this factor is not worth printing: two replicates often say no more.
WIDEST = 100.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number over replicates. Of one replicate nothing is known about the next: its interval is everything."""

    mean: float
    sd: float
    count: int

    def half_width(self, together: int = 1) -> float:
        """Half of the interval; of `together` intervals all hold at once at the confidence (Bonferroni)."""
        if self.count < 2:
            return math.inf
        return _quantile(1 - (1 - CONFIDENCE) / together / 2, self.count - 1) * self.sd / math.sqrt(self.count)

    def low(self, together: int = 1) -> float:
        return self.mean - self.half_width(together)

    def high(self, together: int = 1) -> float:
        return self.mean + self.half_width(together)

    def scaled(self, factor: float) -> Estimate:
        """That of the number times `factor`."""
        return Estimate(self.mean * factor, self.sd * abs(factor), self.count)

    def with_count(self, count: int) -> Estimate:
        """The same number and scatter, had there been `count` replicates."""
        return replace(self, count=count)

    @property
    def factors(self) -> Interval:
        """The interval of a logarithm as one of the number itself."""
        if self.count < 2:
            return Interval(math.nan, math.nan, self.count)
        return Interval(math.exp(min(self.low(), 700.0)), math.exp(min(self.high(), 700.0)), self.count)


@dataclass(frozen=True, slots=True)
class Interval:
    """From where to where a number may lie; NaN at both ends where there is one replicate."""

    low: float
    high: float
    replicates: int

    @property
    def is_known(self) -> bool:
        """Whether there are replicates enough for an interval."""
        if self.replicates < 2 or not (math.isfinite(self.low) and math.isfinite(self.high)):
            return False
        return self.low <= 0 or self.high / self.low <= WIDEST

    @property
    def text(self) -> str:
        """`0.611 to 0.640`, or `1 replicate`."""
        return f"{number(self.low)} to {number(self.high)}" if self.is_known else replicates_text(self.replicates)


def estimate(values: Sequence[float]) -> Estimate:
    """The estimate that one value for each replicate gives; there is at least one."""
    return Estimate(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))


def of_factors(values: Sequence[float]) -> Interval:
    """The interval of a positive number of which there is one value for each replicate."""
    return estimate([math.log(value) for value in values]).factors


def replicates_text(count: int) -> str:
    """`1 replicate`, `3 replicates`."""
    return f"{count} replicate{'' if count == 1 else 's'}"


@lru_cache(maxsize=256)
def _quantile(share: float, freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(share, freedom))
