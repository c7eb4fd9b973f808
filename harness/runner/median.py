"""An interval for the median of samples that follow one another, and so depend on each other.

The interval is Woodruff's (Confidence intervals for medians and other position measures, JASA 47, 1952): the share of
samples below the true median is 1/2 give or take its standard error, and the order statistics at these two ranks bound
the median. It asks nothing of the distribution, and one outlier moves it by no more than one rank. For independent
samples the standard error of the share is 1/(2 √n), and the ranks are those of the binomial interval. For dependent
ones it is that of n / τ independent samples, τ being 1 + 2 Σ ρₖ with ρₖ the autocorrelation of "is below the median"
(Sen, On the Bahadur representation of sample quantiles for sequences of φ-mixing random variables, J. Multivariate
Analysis 2, 1972; Heidelberger and Lewis, Quantile estimation in dependent sequences, Operations Research 32, 1984).

Windows of tens of samples show too small a τ. So it is estimated in three ways, good at different kinds of dependence,
and the largest one counts, never one below 1; and Student's t with n / τ − 1 degrees of freedom takes the place of the
normal quantile. `benchmarks/sampling.py` shows what the interval covers then, and when it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

#: Correlation of neighbours at most, so that a drift does not count for less than one independent sample in a hundred.
_MAX_CORRELATION = 0.98
#: Samples further apart are not looked at; more than an arm's usual samples hold to say anything of.
_MAX_LAG = 100
#: Stretches whose shares of samples below the median are compared.
_BATCHES = 6


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """The median, and what it lies between at the confidence asked for. Units are those of the samples."""

    median: float
    low: float
    high: float
    independent: float
    """How many independent samples would say as much: samples / τ."""

    @property
    def half_width_pct(self) -> float:
        """Half of high − low, in % of the median."""
        return 50.0 * (self.high - self.low) / self.median


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> MedianInterval | None:
    """Interval of the median of samples in the order in which they were taken.

    None where they do not bound it, which at 95 % takes seven independent samples.
    """
    import numpy as np

    if len(samples) < 2:
        return None
    values = np.asarray(samples, dtype=np.float64)
    count, ordered = len(values), np.sort(values)
    median = float((ordered[(count - 1) // 2] + ordered[count // 2]) / 2)
    independent = count / dependence(values, median)
    first = floor(count / 2 - _quantile(independent - 1, confidence) * count / sqrt(independent) / 2)
    first = min(first, _binomial_rank(count, confidence))  # exact where samples are independent
    if first < 0:
        return None
    return MedianInterval(median, float(ordered[first]), float(ordered[count - 1 - first]), independent)


def dependence(values: Array, median: float) -> float:
    """τ, from 1: how many of these samples say as much as one independent sample."""
    neighbours, below = _rank_correlation(values), values <= median
    return max((1 + neighbours) / (1 - neighbours), _initial_sequence(below), _batches(below))


def _rank_correlation(values: Array) -> float:
    """Correlation of ranks of neighbours, from 0, less its bias: (1 + 4 ρ) / n too low (Marriott and Pope, Kendall;
    both Biometrika 41, 1954). Of an AR(1) process it gives τ = (1 + ρ) / (1 − ρ)."""
    from scipy.stats import rankdata

    ranks = rankdata(values)
    ranks -= ranks.mean()
    total = float(ranks @ ranks)
    if total == 0:
        return 0.0
    found = float(ranks[1:] @ ranks[:-1]) / total
    return min(max(found + (1 + 4 * max(found, 0.0)) / len(values), 0.0), _MAX_CORRELATION)


def _initial_sequence(below: npt.NDArray[np.bool_]) -> float:
    """τ from the autocorrelations themselves: Geyer's initial monotone sequence (Practical Markov chain Monte Carlo,
    Statistical Science 7, 1992), each ρₖ raised by 1/n, by which the mean that is taken out lowers it."""
    import numpy as np

    count = len(below)
    centred = below - below.mean()
    total = float(centred @ centred)
    if total == 0:
        return 1.0
    spectrum = np.fft.rfft(centred, 2 * count)
    correlations = np.fft.irfft(spectrum * spectrum.conj())[: min(count // 2, _MAX_LAG)] / total + 1 / count
    even = len(correlations) // 2 * 2
    summed, least = 0.0, float("inf")
    for pair in correlations[:even:2] + correlations[1:even:2]:
        if pair <= 0:
            break
        least = min(least, float(pair))
        summed += least
    return max(1.0, 2 * summed - 1)


def _batches(below: npt.NDArray[np.bool_]) -> float:
    """τ from the variance of batch means (Schmeiser, Batch size effects in the analysis of simulation output,
    Operations Research 30, 1982), few and long: a weak dependence over many samples is what the others miss."""
    length = len(below) // _BATCHES
    share = float(below.mean())
    if length < 2 or share in {0.0, 1.0}:
        return 1.0
    means = below[len(below) - length * _BATCHES :].reshape(_BATCHES, length).mean(axis=1)
    return float(length * means.var(ddof=1) / (share * (1 - share)))


@lru_cache(maxsize=4096)
def _binomial_rank(count: int, confidence: float) -> int:
    """Samples below the lower end: as many as are below the true median no more often than (1 − confidence) / 2."""
    from scipy.stats import binom

    return int(binom.ppf((1 - confidence) / 2, count, 0.5)) - 1


@lru_cache(maxsize=4096)
def _quantile_of(degrees: int, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def _quantile(degrees: float, confidence: float) -> float:
    """Two-sided quantile of Student's t; degrees are rounded down, to 1 at least, and remembered."""
    return _quantile_of(max(1, floor(degrees)), confidence)
