"""When enough samples were taken: the target is reached, or out of reach.

As nvbench's `stdrel` (its documentation, "Stopping criteria"): stop once the noise is below the target, or once its
estimate has settled. Here the noise is the half-width of the interval of the median, and a settled estimate ends
sampling only where the target cannot be reached with the samples allowed. The rule is looked at ever more seldom, each
time after a fifth more samples: the more often one looks, the more often an interval is narrow by chance (Chow and
Robbins, On the asymptotic theory of fixed-width sequential confidence intervals, Ann. Math. Stat. 36, 1965, has the
limit; `benchmarks/sampling.py` what it comes to in tens of samples).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from harness.runner.median import MedianInterval, median_interval
from harness.runner.policy import SamplingPolicy

StopReason = Literal["precise", "settled", "samples", "budget", "invalid"]

#: Fewer independent samples do not tell how dependent samples are, and so how wide the interval should be.
MIN_INDEPENDENT = 15
#: nvbench looks whether noise has settled once it has more than 64 values of it, and asks for 5 %.
_MIN_SETTLED, _SETTLED_PCT = 64, 5.0
#: Looks that settled noise is the same in; from the first to the last samples grow by at least 60 %.
_LOOKS = 4


def next_look(count: int) -> int:
    """Samples at which to look again, having looked at `count`."""
    return count + max(10, count // 5)


class StopRule:
    """Decides for one arm; asked again at each look with all samples so far, in the order in which they were taken."""

    def __init__(self, policy: SamplingPolicy) -> None:
        self._policy = policy
        self._spreads_pct: list[float] = []

    def reason(self, times_ms: Sequence[float]) -> Literal["precise", "settled"] | None:
        """Why this arm needs no more samples; None where it does."""
        interval = median_interval(times_ms)
        self._spreads_pct.append(_spread_pct(times_ms))
        if len(times_ms) < self._policy.min_samples or interval is None or interval.independent < MIN_INDEPENDENT:
            return None
        if interval.half_width_pct <= self._policy.target_pct:
            return "precise"
        return "settled" if self._settled(len(times_ms), interval) else None

    def _settled(self, count: int, interval: MedianInterval) -> bool:
        """Whether the noise is known, and too large for the samples that are left. Widths go with 1 / √samples."""
        last = self._spreads_pct[-_LOOKS:]
        if count < _MIN_SETTLED or len(last) < _LOOKS:
            return False
        needed = count * (interval.half_width_pct / self._policy.target_pct) ** 2
        return needed > self._policy.max_samples and max(last) - min(last) <= _SETTLED_PCT / 100 * max(last)


def _spread_pct(times_ms: Sequence[float]) -> float:
    """Interquartile range in % of the median."""
    import numpy as np

    first, middle, third = np.percentile(times_ms, (25, 50, 75))
    return float(100 * (third - first) / middle)
