"""Levels of a series: single nights that stand out, noise, and where the level changes.

All of it works on logarithms, so that a change of 3 % is the same size everywhere. The mathematics is scipy's and
ruptures'; what is chosen here is said at each function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.errors import MissingExtra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Nights that the Hampel filter looks at, itself in the middle: up to three in a row that stand out are no level.
WINDOW = 7

#: A night stands out when it is further than this many times the noise from the median of its window.
_OUTLIER = 3.0

#: Shortest level, in nights, that change points may bound.
_SHORTEST = 2

#: Penalty of a change point in variances, times ln n; chosen by simulation, see `benchmarks/verdicts.py`.
_PENALTY = 3.0

#: Noise below this is rounding: values are reported with about four digits.
_LEAST_NOISE = 2e-4

#: 1 / 0.6745: from the median absolute deviation to the standard deviation of a normal distribution.
_MAD_TO_SD = 1.4826


@dataclass(frozen=True, slots=True)
class Segment:
    """Nights `start` to `end` (exclusive) of a series at one level, the mean of their logarithms."""

    start: int
    end: int
    level: float

    @property
    def nights(self) -> int:
        """How many it holds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Levels:
    """What `find_levels` finds: segments in order, the nights that stand out, the noise of one night."""

    segments: tuple[Segment, ...]
    logs: Floats
    outliers: NDArray[np.bool_]
    local: Floats
    """Median of the window around each night."""
    residuals: Floats
    """Of each night that does not stand out, from the level of its segment."""


def find_levels(logs: Floats) -> Levels:
    """Split one value a night, in order of time, into levels.

    The Hampel filter (F. R. Hampel, J. Am. Stat. Assoc. 69, 1974) replaces nights that stand out by the median of
    their window; `ruptures.KernelCPD` with the linear kernel (C. Truong et al., Signal Processing 167, 2020) finds the
    change points of what is left. Raises MissingExtra where ruptures is not installed.
    """
    import numpy as np
    from scipy.ndimage import median_filter

    local = median_filter(logs, size=WINDOW, mode="reflect") if len(logs) > _SHORTEST else logs
    sigma = step_noise(logs)
    outliers = np.abs(logs - local) > _OUTLIER * sigma if len(logs) > _SHORTEST else np.zeros(len(logs), bool)
    cleaned = np.where(outliers, local, logs)
    bounds = _change_points(cleaned / sigma)
    segments = tuple(
        Segment(start, end, float(cleaned[start:end].mean()))
        for start, end in zip([0, *bounds[:-1]], bounds, strict=True)
    )
    levels = np.concatenate([np.full(one.nights, one.level) for one in segments])
    return Levels(segments, logs, outliers, local, (logs - levels)[~outliers])


def step_noise(logs: Floats) -> float:
    """Noise of one night from the differences between nights, which steps and spikes hardly change.

    The root mean square of the differences / √2; one that is more than 3 standard deviations, as their median absolute
    value tells that, counts as that much.
    """
    import numpy as np

    if len(logs) < 3:
        return _LEAST_NOISE
    sizes = np.abs(np.diff(logs))
    usual = np.minimum(sizes, 3 * _MAD_TO_SD * np.median(sizes))
    return max(math.sqrt(float((usual**2).mean()) / 2), _LEAST_NOISE)


def pooled_noise(parts: Sequence[Levels]) -> tuple[float, int]:
    """Noise of one night over the environments of a series, and its degrees of freedom, at least 1.

    It is the standard deviation within levels of the nights that do not stand out.
    """
    import numpy as np

    residuals = np.concatenate([part.residuals for part in parts])
    freedom = len(residuals) - sum(len(part.segments) for part in parts)
    if freedom < 1:  # as many levels as nights: the differences between nights are all there is
        return step_noise(max((part.logs for part in parts), key=len)), 1
    return max(math.sqrt(float((residuals**2).sum()) / freedom), _LEAST_NOISE), freedom


@lru_cache(maxsize=4096)
def widening(times: float, freedom: int) -> float:
    """By how much `times` times a noise that few nights tell has to be widened to be as sure as of a known noise.

    Student's quantile over the normal one, at the probability of `times` standard deviations.
    """
    from scipy.stats import norm, t

    if not 0 < times < 8:  # beyond that the probability is no longer told from 1
        return 1.0
    return float(t.isf(norm.sf(times), freedom)) / times


def _change_points(scaled: Floats) -> list[int]:
    """Ends of the segments; the last is the length. `scaled` has noise of about 1."""
    count = len(scaled)
    if count < 2 * _SHORTEST:
        return [count]
    found: list[int] = _kernel_cpd(scaled, _PENALTY * math.log(count))
    return found


def _kernel_cpd(scaled: Floats, penalty: float) -> list[int]:
    try:
        from ruptures import KernelCPD
    except ImportError as error:
        raise MissingExtra("history", "finding change points", f"ruptures: {error}") from None
    found: list[int] = KernelCPD(kernel="linear", min_size=_SHORTEST).fit_predict(scaled.reshape(-1, 1), pen=penalty)
    return found
