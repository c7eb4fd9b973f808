"""Whether an arm is warm: a straight line through its last iterations that no outlier bends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from harness.runner.policy import Phase, SamplingPolicy


@dataclass(frozen=True, slots=True)
class Drift:
    """Rise of the times over a window, in % of their median; below 0 where they fell."""

    pct: float
    low_pct: float
    high_pct: float
    """The 95 % interval of `pct`."""

    def is_none(self, limit_pct: float) -> bool:
        """Whether it may be none at all, or is too small to matter."""
        return self.low_pct <= 0 <= self.high_pct or abs(self.pct) < limit_pct


def drift_of(times_ms: Sequence[float]) -> Drift | None:
    """Drift over these times, by the median of the slopes of all pairs and its interval; None of fewer than three.

    Theil, A rank-invariant method of linear and polynomial regression analysis, 1950; Sen, Estimates of the regression
    coefficient based on Kendall's tau, JASA 63, 1968; `scipy.stats.theilslopes`.
    """
    from scipy.stats import theilslopes

    if len(times_ms) < 3:
        return None
    slope, _, low, high = theilslopes(times_ms)
    to_pct = 100.0 * (len(times_ms) - 1) / median(times_ms)
    return Drift(float(slope) * to_pct, float(low) * to_pct, float(high) * to_pct)


class WarmUp:
    """Says of one arm, as its warm-up goes on, whether it is over."""

    def __init__(self, policy: SamplingPolicy, phase: Phase) -> None:
        self._policy = policy
        self.floor = policy.warmup_floor(phase)
        #: Iterations between two looks; both see half of the same ones.
        self._step = max(1, self.floor // 2)
        self._next = self.floor
        self._over = False

    def is_over(self, times_ms: Sequence[float]) -> bool:
        """Whether the arm is warm, or has been warmed up for as long as it may; once over, it stays over."""
        if len(times_ms) >= self._policy.max_warmup:
            self._over = True
        elif not self._over and len(times_ms) >= self._next:
            self._next = len(times_ms) + self._step
            drift = self.drift(times_ms)
            self._over = drift is not None and drift.is_none(self._policy.drift_pct)
        return self._over

    def drift(self, times_ms: Sequence[float]) -> Drift | None:
        """Drift over the last window."""
        return drift_of(times_ms[-self._policy.drift_window :])
