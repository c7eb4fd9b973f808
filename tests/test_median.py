"""`harness.runner.median`: what the interval is where ranks can be looked up, and how often it holds the median."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from harness.runner.median import dependence, median_interval


def to_and_fro(count):
    """1 to `count`, small and large in turn: as far from a series that remembers as can be."""
    low, high = range(1, count // 2 + 1), range(count, count // 2, -1)
    return [value for pair in zip(low, high, strict=False) for value in pair] + [count // 2 + 1] * (count % 2)


# Ranks of the 95 % interval of the median: Table A6 of Hollander and Wolfe's, and any table of the sign test.
@pytest.mark.parametrize(("count", "low", "high"), [(7, 1, 7), (8, 1, 8), (12, 3, 10), (20, 6, 15), (30, 10, 21)])
def test_independent_samples_have_the_ranks_of_the_binomial_interval(count, low, high):
    interval = median_interval(to_and_fro(count))
    assert (interval.low, interval.high) == (low, high)
    assert interval.median == (count + 1) / 2
    assert interval.independent == count


@pytest.mark.parametrize("count", range(7, 400))
def test_ranks_never_hold_the_median_of_independent_samples_less_often_than_said(count):
    interval = median_interval(to_and_fro(count))
    assert binom.cdf(interval.high - 1, count, 0.5) - binom.cdf(interval.low - 1, count, 0.5) >= 0.95


@pytest.mark.parametrize("samples", [[], [1.0], [1.0, 2.0], to_and_fro(6), list(range(1, 31))])
def test_samples_that_do_not_bound_the_median_have_no_interval(samples):
    assert median_interval(samples) is None


def test_half_width_is_in_percent_of_the_median():
    assert median_interval(to_and_fro(30)).half_width_pct == pytest.approx(100 * (21 - 10) / 2 / 15.5)


def test_times_that_are_all_the_same_are_known_exactly():
    interval = median_interval([3.5] * 30)
    assert (interval.low, interval.high, interval.half_width_pct) == (3.5, 3.5, 0.0)


def test_an_outlier_does_not_move_the_interval():
    usual = to_and_fro(30)
    assert median_interval([1e9 if value == 30 else value for value in usual]) == median_interval(usual)


def ar1(rng, correlation, count):
    values = [rng.normal()]
    for _ in range(count - 1):
        values.append(correlation * values[-1] + (1 - correlation**2) ** 0.5 * rng.normal())
    return 100 + np.array(values)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_dependence_of_an_autoregressive_series_is_that_of_its_formula(correlation):
    # τ of ranks is (1 + ρ) / (1 − ρ); that of "is below", 1 + 2 Σ 2/π asin ρᵏ, is smaller.
    tau = dependence(ar1(np.random.default_rng(1), correlation, 20_000), 100.0)
    assert tau == pytest.approx((1 + correlation) / (1 - correlation), rel=0.15)


@pytest.mark.parametrize(("correlation", "count"), [(0.0, 30), (0.3, 60), (0.6, 100), (0.8, 200)])
def test_the_interval_holds_the_median_in_93_percent_of_series(correlation, count):
    intervals = [median_interval(ar1(np.random.default_rng(seed), correlation, count)) for seed in range(400)]
    held = [interval.low <= 100 <= interval.high for interval in intervals if interval]
    assert len(held) >= 390
    assert np.mean(held) >= 0.93


def test_independent_ranks_would_hold_it_far_less_often():
    series = [np.sort(ar1(np.random.default_rng(seed), 0.8, 200)) for seed in range(400)]
    assert np.mean([one[85] <= 100 <= one[114] for one in series]) < 0.6


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=80))
def test_an_interval_is_made_of_samples_and_holds_their_median(samples):
    interval = median_interval(samples)
    assert dependence(np.array(samples), float(np.median(samples))) >= 1
    if interval:
        assert interval.low in samples
        assert interval.high in samples
        assert interval.low <= interval.median <= interval.high
        assert interval.median == pytest.approx(np.median(samples), rel=1e-12)


@given(st.lists(st.floats(0.5, 2.0), min_size=20, max_size=60), st.sampled_from([0.25, 4.0, 1024.0]))
def test_units_do_not_matter(samples, factor):
    one, other = median_interval(samples), median_interval([factor * value for value in samples])
    assert (one is None) == (other is None)
    if one and other:
        assert (other.low, other.high) == (factor * one.low, factor * one.high)
        assert other.half_width_pct == one.half_width_pct
